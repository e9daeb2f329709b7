/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Value blocks: the part of a packet that holds values. TS_BLOCK_ELEMS values at a time (another number when the
 * quantiser says so, all of the packet's when the pipeline has one scale a tensor), each block's scales in front.
 *
 *   scales   in dense packets, and for blocks of TS_SHORT_SCALE_ELEMS values or more: float32 each. In smaller
 *            blocks of sparse packets: 16 bits, 8 of exponent and 8 of mantissa (the upper half of a float32 without
 *            its sign), rounded up, so that the largest value still fits. Quantisers with `wide_scales` always have
 *            float32.
 *   values   what the quantiser writes.
 *   alone    a quantiser with scales sends a sparse block of a single value as bfloat16 (sign, 8 bits of exponent, 7
 *            of mantissa, to nearest even) and nothing else.
 */
#ifndef TS_CODEC_BLOCK_H
#define TS_CODEC_BLOCK_H

#include "common/codec/kernels.h"
#include "common/codec/pipeline.h"

#define TS_SHORT_SCALE_ELEMS 4096u

/* How a packet's values are written; what the same functions need at both ends. */
typedef struct {
    const ts_quantise_stage *stage;
    ts_quantise_block block; /* index and first move on from block to block */
    bool sparse;
    bool whole_tensor;
    size_t *beyond; /* [borrow] counts values beyond what the quantiser can say; NULL: nobody asks */
} ts_block_format;

/* The format of a pipeline's packets. sparse: only some elements travel. */
ts_block_format ts_block_format_of(const ts_pipeline *pipeline, const ts_kernels *kernels, bool sparse);

/* Values in the block that begins where `left` are still to come. */
size_t ts_block_elems(const ts_block_format *format, size_t left);
/* Bytes of one block of n values. */
size_t ts_block_bytes(const ts_block_format *format, size_t n);
/* Bytes of all blocks of n values. */
size_t ts_blocks_bytes(const ts_block_format *format, size_t n);

/* Writes the scales of one block, which is not a sparse one of a single value. Returns their bytes. */
size_t ts_block_write_scales(const ts_block_format *format, const float *x, size_t n, float max_abs, uint8_t *out,
                             float scales[TS_BLOCK_SCALES]);
/* Writes one block; x: in the values, out the remainders. max_abs: see ts_quantise_block. Returns the bytes. */
size_t ts_block_write(const ts_block_format *format, float *x, size_t n, float max_abs, uint8_t *out);
/* Values that may be read as one block where `left` are still to come: without scales there is nothing between blocks. */
size_t ts_block_span(const ts_block_format *format, size_t left);
/* Whether an encoder can have written this block of ts_block_bytes(n) bytes. */
bool ts_block_valid(const ts_block_format *format, const uint8_t *in, size_t n);
/* Whether an invalid block is so because a float or a scale in it is NaN or infinite. */
bool ts_block_nonfinite(const ts_block_format *format, const uint8_t *in, size_t n);
/* Of a valid block. */
void ts_block_decode(const ts_block_format *format, const uint8_t *in, size_t n, float *x);
void ts_block_add(const ts_block_format *format, const uint8_t *in, size_t n, float *sum);

#endif
