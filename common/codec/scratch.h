/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of ts_scratch: named buffers that only grow, and the kernels its thread uses. */
#ifndef TS_CODEC_SCRATCH_H
#define TS_CODEC_SCRATCH_H

#include "common/codec/codec.h"
#include "common/codec/kernels.h"

typedef enum {
    TS_SLOT_LISTS,        /* candidates, and one slice's indices */
    TS_SLOT_BITMAP,       /* one bit an element of a slice */
    TS_SLOT_STAGED,       /* a packet before its byte packs */
    TS_SLOT_STAGED_SWAP,
    TS_SLOT_BYTES_WORK,   /* a byte pack's own */
    TS_SLOT_BYTES_WORK2,
    TS_SLOT_DECODED_INDEX,
    TS_SLOT_DECODED_VALUE,
    TS_SLOT_FACTORS,      /* low-rank factors, or a block of differences */
    TS_SLOT_EXPANDED,     /* Q made of several factors */
    TS_SLOT_TRANSFORM,    /* a transform's own */
    TS_SLOT_COUNT
} ts_scratch_slot;

/*
 * Memory of at least `bytes`, aligned to a cache line, contents undefined; what the slot held before is gone when it
 * had to grow. Returns NULL when there is none. Thread: the scratch's owner.
 */
void *ts_scratch_reserve(ts_scratch *scratch, ts_scratch_slot slot, size_t bytes);
/* What was reserved last, NULL before. */
void *ts_scratch_slot_data(const ts_scratch *scratch, ts_scratch_slot slot);

const ts_kernels *ts_scratch_kernels(const ts_scratch *scratch);
/* Tests and benchmarks: kernels of another level, which this CPU must support. */
void ts_scratch_set_simd(ts_scratch *scratch, ts_simd level);

#endif
