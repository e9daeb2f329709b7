/* SPDX-License-Identifier: Apache-2.0 */
/* Where everything lies in the file. */
#include "common/base/mem.h"
#include "common/keep/keep_file.h"

static size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

static size_t place(size_t *at, size_t bytes) {
    size_t here = *at;
    *at = round_up(here + bytes, TS_CACHE_LINE);
    return here;
}

/* One tensor's arrays from `at` on; the pointers are set when the map is known. */
static size_t lay_tensor(ts_keep_tensor *tensor, const ts_keep_form *form, const ts_tensor *declared, uint8_t *map, size_t at) {
    size_t n = declared->n, start = at, floats = n * sizeof(float);
    size_t residual = place(&at, form->brief ? n * sizeof(uint16_t) : floats);
    size_t velocity = declared->worker_momentum ? place(&at, floats) : 0;
    size_t estimate = form->estimates ? place(&at, floats) : 0;
    *tensor = (ts_keep_tensor){.n = n, .at = start, .bytes = at - start};
    tensor->guarded = ts_guard_can(&declared->push) && !form->brief && !form->estimates && !form->decayed;
    if (!map) return at;
    if (form->brief) tensor->brief = map + residual;
    else tensor->residual = (float *)(void *)(map + residual);
    if (velocity) tensor->velocity = (float *)(void *)(map + velocity);
    if (estimate) tensor->estimate = (float *)(void *)(map + estimate);
    return at;
}

/* The longest slice's packet before its byte packs, and all packets' places. */
static size_t lay_areas(ts_keep *keep, size_t at, size_t *staged) {
    const ts_contract *contract = keep->contract;
    const ts_kernels *kernels = ts_kernels_get(TS_SIMD_SCALAR);
    for (uint32_t i = 0; i < contract->slice_count; i++) {
        uint32_t t = contract->slices[i].tensor;
        ts_codec_spec spec = ts_contract_push_spec(contract, t, keep->worker);
        ts_packet_slice slice = ts_packet_slice_of(&spec, kernels, i - contract->tensors[t].first_slice, 0);
        size_t inner = ts_packet_inner_bound(&slice, slice.n);
        if (spec.pipeline->bytes[0] && !spec.pipeline->select && inner > *staged) *staged = inner;
        keep->area[i] = at;
        at += round_up(ts_packet_bound(&slice, slice.n) + 1, TS_KEEP_PAGE);
    }
    keep->area[contract->slice_count] = at;
    return at;
}

ts_keep_layout ts_keep_lay_out(ts_keep *keep, size_t contract_bytes, uint8_t *map) {
    const ts_contract *contract = keep->contract;
    size_t longest = 0, largest = 0, staged = 0, at = TS_KEEP_PAGE;
    ts_keep_layout l;
    for (uint32_t i = 0; i < contract->slice_count; i++)
        if (contract->slices[i].n > longest) longest = contract->slices[i].n;
    (void)lay_areas(keep, 0, &staged);
    l.contract = place(&at, contract_bytes);
    l.slots = place(&at, contract->slice_count * sizeof(ts_keep_slot_record));
    l.undo = place(&at, ts_guard_undo_bytes());
    l.put_index = place(&at, longest * sizeof(uint32_t));
    l.put_value = place(&at, longest * sizeof(float));
    l.staged = place(&at, staged);
    l.arrays = at = round_up(at, TS_KEEP_PAGE);
    for (uint32_t t = 0; t < contract->tensor_count; t++) {
        at = lay_tensor(&keep->tensors[t], &keep->form, &contract->tensors[t], map, at);
        if (!keep->tensors[t].guarded && keep->tensors[t].bytes > largest) largest = keep->tensors[t].bytes;
    }
    l.backup = place(&at, largest);
    l.areas = round_up(at, TS_KEEP_PAGE);
    l.end = lay_areas(keep, l.areas, &staged);
    return l;
}

void ts_keep_point(ts_keep *keep, size_t contract_bytes) {
    ts_keep_layout l = ts_keep_lay_out(keep, contract_bytes, keep->map);
    keep->head = (ts_keep_head *)(void *)keep->map;
    keep->slots = (ts_keep_slot_record *)(void *)(keep->map + l.slots);
    keep->backup = keep->map + l.backup;
    keep->guard = (ts_guard){.record = &keep->head->guard,
                             .undo = (float *)(void *)(keep->map + l.undo),
                             .put_index = (uint32_t *)(void *)(keep->map + l.put_index),
                             .put_value = (float *)(void *)(keep->map + l.put_value),
                             .staged = keep->map + l.staged};
}

terse_status ts_keep_make_tables(ts_keep *keep) {
    keep->tensors = ts_mem_calloc(keep->contract->tensor_count + 1, sizeof *keep->tensors);
    keep->area = ts_mem_calloc((size_t)keep->contract->slice_count + 1, sizeof *keep->area);
    return keep->tensors && keep->area ? TERSE_OK : TERSE_ENOMEM;
}
