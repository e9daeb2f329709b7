/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/scratch.h"

#include "common/base/mem.h"

/*
 * From so many bytes on a slot is of large pages: after a sweep over a large tensor the processor has forgotten where small
 * ones lie, and finding out costs more than reading them.
 */
#define PAGED_BYTES ((size_t)256 << 10)

struct ts_scratch {
    const ts_kernels *kernels;
    void *data[TS_SLOT_COUNT];
    size_t bytes[TS_SLOT_COUNT];
};

terse_status ts_scratch_create(ts_scratch **out) {
    ts_scratch *scratch = ts_mem_calloc(1, sizeof *scratch);
    TS_REQUIRE(scratch, TERSE_ENOMEM);
    scratch->kernels = ts_kernels_get(ts_cpu_simd());
    *out = scratch;
    return TERSE_OK;
}

void ts_scratch_destroy(ts_scratch *scratch) {
    if (!scratch) return;
    for (int slot = 0; slot < TS_SLOT_COUNT; slot++) ts_mem_free(scratch->data[slot]);
    ts_mem_free(scratch);
}

size_t ts_scratch_bytes(const ts_scratch *scratch) {
    size_t total = sizeof *scratch;
    for (int slot = 0; slot < TS_SLOT_COUNT; slot++) total += scratch->bytes[slot];
    return total;
}

void *ts_scratch_reserve(ts_scratch *scratch, ts_scratch_slot slot, size_t bytes) {
    if (bytes <= scratch->bytes[slot] && scratch->data[slot]) return scratch->data[slot];
    bool paged = bytes >= PAGED_BYTES && bytes <= SIZE_MAX - TS_MEM_PAGE;
    if (paged) bytes = (bytes + TS_MEM_PAGE - 1) / TS_MEM_PAGE * TS_MEM_PAGE;
    void *grown = paged ? ts_mem_pages(bytes) : ts_mem_aligned(bytes, 1);
    if (!grown) return NULL;
    ts_mem_free(scratch->data[slot]);
    scratch->data[slot] = grown;
    scratch->bytes[slot] = bytes;
    return grown;
}

void *ts_scratch_slot_data(const ts_scratch *scratch, ts_scratch_slot slot) { return scratch->data[slot]; }

const ts_kernels *ts_scratch_kernels(const ts_scratch *scratch) { return scratch->kernels; }

void ts_scratch_set_simd(ts_scratch *scratch, ts_simd level) { scratch->kernels = ts_kernels_get(level); }
