/* SPDX-License-Identifier: Apache-2.0 */
/* The pushes' side of what is kept, and what is done about a push that was interrupted. */
#include <string.h>

#include "common/keep/keep_file.h"

static void in_order(void) { atomic_signal_fence(memory_order_seq_cst); }

static void set(_Atomic uint32_t *word, uint32_t value) {
    in_order();
    atomic_store_explicit(word, value, memory_order_relaxed);
    in_order();
}

void ts_keep_begin(ts_keep *keep, uint32_t t) {
    const ts_keep_tensor *tensor = &keep->tensors[t];
    if (tensor->guarded) return;
    memcpy(keep->backup, keep->map + tensor->at, tensor->bytes);
    keep->head->backup_tensor = t;
    set(&keep->head->backup, TS_BACKUP_TAKEN);
}

ts_guard *ts_keep_guard(ts_keep *keep, uint32_t tensor) {
    return keep->tensors[tensor].guarded ? &keep->guard : NULL;
}

bool ts_keep_early(const ts_keep *keep, uint32_t tensor) { return keep->tensors[tensor].guarded; }

/* Whether the slice's tensor is copied aside right now, so that nothing counts before the end. */
static bool in_backup(const ts_keep *keep, uint32_t slice) {
    return atomic_load_explicit(&keep->head->backup, memory_order_relaxed) == TS_BACKUP_TAKEN &&
           keep->head->backup_tensor == keep->contract->slices[slice].tensor;
}

void ts_keep_vacate(ts_keep *keep, uint32_t slice) { set(&keep->slots[slice].live, false); }

void ts_keep_hold(ts_keep *keep, uint32_t slice, uint64_t step, size_t len, uint32_t samples) {
    ts_keep_slot_record *record = &keep->slots[slice];
    record->step = step;
    record->len = (uint32_t)len;
    record->samples = samples;
    if (in_backup(keep, slice)) {
        set(&record->pending, TS_PENDING_HOLD);
        return;
    }
    set(&record->live, true);
    ts_guard_settle(&keep->guard);
}

void ts_keep_release(ts_keep *keep, uint32_t slice) {
    if (in_backup(keep, slice)) set(&keep->slots[slice].pending, TS_PENDING_RELEASE);
    else set(&keep->slots[slice].live, false);
}

/* What was pending comes true. Again, when killed in between. */
static void commit(ts_keep *keep, uint32_t t) {
    const ts_tensor *declared = &keep->contract->tensors[t];
    for (uint32_t i = declared->first_slice; i < declared->first_slice + declared->slices; i++) {
        ts_keep_slot_record *slot = &keep->slots[i];
        uint32_t pending = atomic_load(&slot->pending);
        if (pending != TS_PENDING_NONE) set(&slot->live, pending == TS_PENDING_HOLD);
    }
    for (uint32_t i = declared->first_slice; i < declared->first_slice + declared->slices; i++)
        set(&keep->slots[i].pending, TS_PENDING_NONE);
    set(&keep->head->backup, TS_BACKUP_IDLE);
}

void ts_keep_end(ts_keep *keep, uint32_t t) {
    if (keep->tensors[t].guarded) return;
    set(&keep->head->backup, TS_BACKUP_COMMITTED);
    commit(keep, t);
}

static void undo_backup(ts_keep *keep) {
    uint32_t t = keep->head->backup_tensor;
    const ts_tensor *declared = &keep->contract->tensors[t];
    memcpy(keep->map + keep->tensors[t].at, keep->backup, keep->tensors[t].bytes);
    for (uint32_t i = declared->first_slice; i < declared->first_slice + declared->slices; i++)
        set(&keep->slots[i].pending, TS_PENDING_NONE);
    set(&keep->head->backup, TS_BACKUP_IDLE);
}

/* A list was put: what that means for the slice's packet. */
static void after_put(ts_keep *keep, uint32_t slice) {
    const ts_guard_record *record = &keep->head->guard;
    ts_keep_slot_record *slot = &keep->slots[slice];
    if (record->put_effect == TS_GUARD_MAKES) {
        bool known = atomic_load(&slot->live); /* then `samples` is there as well */
        slot->step = record->put_step;
        slot->len = (uint32_t)record->put_len;
        if (!known) slot->samples = 0;
        set(&slot->live, true);
    } else if (record->put_effect == TS_GUARD_FREES) {
        set(&slot->live, false);
    }
    ts_guard_after_put(&keep->guard);
}

void ts_keep_recover(ts_keep *keep) {
    const ts_guard_record *record = &keep->head->guard;
    uint32_t backup = atomic_load(&keep->head->backup);
    if (backup == TS_BACKUP_TAKEN) undo_backup(keep);
    if (backup == TS_BACKUP_COMMITTED) commit(keep, keep->head->backup_tensor);
    if (atomic_load(&record->phase) == TS_GUARD_IDLE) return;
    const ts_keep_tensor *tensor = &keep->tensors[record->tensor];
    ts_guard_recover(&keep->guard, tensor->residual, tensor->velocity);
    uint32_t slice = keep->contract->tensors[record->tensor].first_slice + record->slice;
    if (atomic_load(&record->phase) == TS_GUARD_PUT) after_put(keep, slice);
    if (atomic_load(&record->phase) == TS_GUARD_DENSE && atomic_load(&keep->slots[slice].live))
        ts_guard_settle(&keep->guard); /* it was complete */
    if (atomic_load(&record->phase) != TS_GUARD_DENSE) return;
    ts_codec_spec spec = ts_contract_push_spec(keep->contract, record->tensor, keep->worker);
    ts_packet_slice view = ts_packet_slice_of(&spec, ts_kernels_get(ts_cpu_simd()), record->slice, 0);
    const uint8_t *bytes = spec.pipeline->bytes[0] ? keep->guard.staged : keep->map + keep->area[slice];
    ts_guard_take_back(&keep->guard, &view, bytes, tensor->residual, tensor->velocity);
}
