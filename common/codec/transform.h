/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transforms at work. The low-rank ones replace a tensor by factors, which the pipeline's quantiser writes, one factor
 * after the other, each with blocks and scales of its own. Both ends then build the same product P·Q of the factors as
 * they were written, with the same function: the sender subtracts exactly what the receiver adds.
 *
 * What a tensor's shape does not suit (less than two dimensions, factors as large as the tensor, a tensor that was cut)
 * goes through the rest of the pipeline as it is; both ends see that from the shape.
 */
#ifndef TS_CODEC_TRANSFORM_H
#define TS_CODEC_TRANSFORM_H

#include "common/codec/block.h"
#include "common/codec/low_rank_kernels.h"
#include "common/codec/scratch.h"

#define TS_TRANSFORM_DIMS 4
#define TS_TRANSFORM_PARTS (TS_TRANSFORM_DIMS + 1)
/* Factors larger than that are cut; what is beyond stays in the residual, and no product of theirs overflows. */
#define TS_FACTOR_MOST 0x1p80f

/* A low-rank transform of one shape. */
typedef struct ts_transform_view {
    const ts_transform_stage *stage; /* NULL when the tensor is sent as it is */
    size_t rows, cols;               /* of the matrix: shape[0] × the rest */
    size_t rank;                     /* of the product: P is rank × rows, Q is rank × cols */
    unsigned dims;                   /* tucker */
    size_t extent[TS_TRANSFORM_DIMS], mode_rank[TS_TRANSFORM_DIMS];
    unsigned parts;                  /* factors, in the order in which they travel; the first is P */
    size_t part[TS_TRANSFORM_PARTS]; /* values of each */
    size_t values;                   /* of all */
} ts_transform_view;

/* One step, as a transform sees it. */
typedef struct ts_transform_step {
    const ts_kernels *kernels;
    const ts_low_rank_kernels *low_rank;
    const ts_transform_view *view;
    ts_sweep *sweep;  /* taken in by analyse(); its residual is what is to be sent */
    float *memory;    /* [borrow] what stays between steps, zeroed at first */
    void *work;       /* [borrow] work_bytes() */
    float *factors;   /* [out] view->values */
    uint64_t key;     /* of the tensor's stream of random numbers */
} ts_transform_step;

/* The view of a spec; .stage is NULL without a low-rank transform or when it does not suit. */
ts_transform_view ts_transform_view_of(const ts_codec_spec *spec);

/* Bytes of all factors. */
size_t ts_transform_bytes(const ts_transform_view *view, const ts_block_format *format);
/* Writes ts_transform_bytes(); factors: in the values, out what the quantiser left over. */
void ts_transform_write(const ts_transform_view *view, const ts_block_format *format, float *factors, uint8_t *out);

/* Factors as the receiver has them. */
typedef struct {
    const float *p, *q;
} ts_transform_factors;

/* Room for ts_transform_read(); so that it cannot fail for want of memory. Returns TERSE_ENOMEM. */
terse_status ts_transform_reserve(ts_scratch *scratch, const ts_transform_view *view) TERSE_NODISCARD;
/*
 * Reads and checks factors into the scratch.
 * Returns TERSE_OK, TERSE_ECORRUPT (not what an encoder writes, or a product that is too large), TERSE_ENOMEM.
 */
terse_status ts_transform_read(ts_scratch *scratch, const ts_transform_view *view, const ts_block_format *format,
                               const uint8_t *in, size_t len, ts_transform_factors *out) TERSE_NODISCARD;
/* to = , += or -= P·Q; the same bits on every CPU. */
void ts_transform_product(const ts_scratch *scratch, const ts_transform_view *view, const ts_transform_factors *factors,
                          ts_product_use use, float *to);

/* For stages: the view of shape[0] × the rest with factors of rank min(R, rows, cols). False when that saves nothing. */
bool ts_transform_plan_matrix(const ts_stage_args *args, const int64_t *shape, unsigned ndim, ts_transform_view *view);
/*
 * For stages: q = Pᵀ x, cut to TS_FACTOR_MOST. max_abs: largest |x|; where sums might overflow, all is done a power of
 * two lower.
 */
void ts_transform_project(const ts_transform_step *step, const float *x, float max_abs, float *p, float *q);
/* Columns (each n values) made orthonormal; those that hang on the ones before become zero. Gram and Schmidt, twice. */
void ts_transform_orthonormalise(const ts_low_rank_kernels *kernels, float *columns, size_t r, size_t n);

#endif
