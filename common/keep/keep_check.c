/* SPDX-License-Identifier: Apache-2.0 */
/* Whether everything that is followed in a file lies inside of it. What a kill left half done does; what is damaged may not. */
#include <string.h>

#include "common/keep/keep_file.h"

#define UNDO_MASK (((uint64_t)1 << TS_UNDO_BITS) - 1)

static size_t area_bytes(const ts_keep *keep, uint32_t slice) { return keep->area[slice + 1] - keep->area[slice]; }

static bool slots_fit(const ts_keep *keep) {
    for (uint32_t i = 0; i < keep->contract->slice_count; i++)
        if (keep->slots[i].len > area_bytes(keep, i) || keep->slots[i].room > area_bytes(keep, i)) return false;
    return true;
}

/* The tensor that was copied aside. */
static bool backup_fits(const ts_keep *keep) {
    uint32_t phase = atomic_load(&keep->head->backup), t = keep->head->backup_tensor;
    if (t >= keep->contract->tensor_count) return false;
    return phase == TS_BACKUP_IDLE || ((phase == TS_BACKUP_TAKEN || phase == TS_BACKUP_COMMITTED) && !keep->tensors[t].guarded);
}

/* Blocks at work, whose old values go back. */
static bool lanes_fit(const ts_guard_record *record, size_t n) {
    for (unsigned lane = 0; lane < TS_GUARD_LANES; lane++) {
        uint64_t word = atomic_load(&record->lane[lane]), first = word >> TS_UNDO_BITS, count = word & UNDO_MASK;
        if (count > TS_GUARD_UNDO || first + count > n) return false;
    }
    return true;
}

/* Where a dense slice stands: from there on it is taken back. */
static bool stands_in(uint64_t word, const ts_slice *slice) {
    uint64_t first = word >> TS_UNDO_BITS;
    return first >= slice->first && first - slice->first <= slice->n;
}

static bool list_fits(const ts_keep *keep, const ts_slice *slice, uint32_t number) {
    const ts_guard_record *record = &keep->head->guard;
    size_t n = keep->tensors[slice->tensor].n;
    if (record->put_count > slice->n || record->put_first > n) return false;
    if (record->put_effect == TS_GUARD_MAKES && record->put_len > area_bytes(keep, number)) return false;
    if (record->put_then == TS_GUARD_DENSE ? !stands_in(record->put_lane, slice) : record->put_then != TS_GUARD_IDLE) return false;
    for (uint32_t i = 0; i < record->put_count; i++)
        if ((record->put_dense ? i : keep->guard.put_index[i]) >= n - record->put_first) return false;
    return true;
}

/* The record's slice is that of an earlier tensor until the sweep is over. */
static bool guard_fits(const ts_keep *keep) {
    const ts_guard_record *record = &keep->head->guard;
    uint32_t phase = atomic_load(&record->phase);
    if (phase == TS_GUARD_IDLE) return true;
    if (phase > TS_GUARD_PUT || record->tensor >= keep->contract->tensor_count || !keep->tensors[record->tensor].guarded) return false;
    const ts_tensor *tensor = &keep->contract->tensors[record->tensor];
    if (phase == TS_GUARD_SWEEP) return lanes_fit(record, tensor->n);
    if (record->slice >= tensor->slices) return false;
    uint32_t number = tensor->first_slice + record->slice;
    const ts_slice *slice = &keep->contract->slices[number];
    if (phase == TS_GUARD_PUT) return list_fits(keep, slice, number);
    return lanes_fit(record, tensor->n) && stands_in(atomic_load(&record->lane[0]), slice);
}

terse_status ts_keep_check(const ts_keep *keep, ts_error *error) {
    const ts_keep_head *head = keep->head;
    bool fine = memchr(head->job, '\0', sizeof head->job) != NULL && slots_fit(keep);
    if (fine && keep->takes) /* else its owner may be changing it, and nobody follows it */
        fine = backup_fits(keep) && guard_fits(keep);
    return fine ? TERSE_OK : ts_error_set(error, TERSE_ECORRUPT, "%s: damaged: what it says of itself cannot be", keep->path);
}
