/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kinds of stage, one vtable each. A stage is one file that defines one
 * constant table, and one line in stage_list.h; from that list come registry,
 * help text, docs and tests.
 */
#ifndef TS_CODEC_STAGE_H
#define TS_CODEC_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct ts_scratch;

#define TS_STAGE_ARGS 2

/* The numbers behind the colons, or the defaults; `tensor` as an argument sets whole_tensor. */
typedef struct {
    double value[TS_STAGE_ARGS];
    unsigned count;
    bool whole_tensor;
} ts_stage_args;

/* What every stage says of itself; help text and docs are made from it. */
typedef struct {
    const char *name;
    const char *args;    /* "R", "R:B", "" */
    const char *summary; /* one sentence */
    const char *formula;
    const char *source;  /* author, year */
    unsigned min_args, max_args;
    double low[TS_STAGE_ARGS], high[TS_STAGE_ARGS]; /* inclusive; low_open excludes low itself */
    bool low_open[TS_STAGE_ARGS];
    bool integral[TS_STAGE_ARGS];
    bool allows_tensor; /* takes the word `tensor` for one scale a tensor */
} ts_stage_info;

struct ts_selection;
struct ts_kernels;
struct ts_sweep;
struct ts_beside;

struct ts_transform_view;
struct ts_transform_step;

/*
 * Transforms: something else than the tensor's values is quantised. Either factors of low rank (transform.h), or the
 * difference to what was sent before (delta.h), and then the members behind `differential` are NULL.
 */
typedef struct ts_transform_stage {
    ts_stage_info info;
    bool differential;
    /* Fills in the view of a shape of ndim >= 2 dimensions, except stage and values. False when it does not suit. */
    bool (*plan)(const ts_stage_args *args, const int64_t *shape, unsigned ndim, struct ts_transform_view *view);
    /* Floats that the sender keeps between steps. NULL for none. */
    size_t (*memory)(const struct ts_transform_view *view);
    /* Bytes of work space. NULL for none. */
    size_t (*work)(const struct ts_transform_view *view);
    /* Takes the gradient in and fills in step->factors, unless what it took in is refused. */
    void (*analyse)(struct ts_transform_step *step);
    /* q[rank × cols] from factors that are not P and Q themselves, with as much to spare. NULL when they are. */
    void (*expand)(const struct ts_transform_view *view, const float *factors, float *q, float *spare);
} ts_transform_stage;

/*
 * Selectors: which elements travel. select() also takes in the gradient, so that one sweep does both.
 * Shapes: n = elements of the tensor.
 */
typedef struct ts_select_stage {
    ts_stage_info info;
    bool ranks;         /* chooses by rank, and so needs room to order ties */
    bool sends_indices; /* false: the receiver works them out from seed, step and count */
    bool takes_ratio;   /* argument 0 is a ratio that warm-up may replace */
    bool replaces;      /* sends new values, which take the place of those at the receiver; see codec.h */
    /* Values sent of n when that is known beforehand; the receiver knows it too. 0 when it is not. */
    size_t (*expected)(const ts_stage_args *args, size_t n);
    /* Room for candidates that select() asks for; the selection itself never exceeds it. */
    size_t (*capacity)(const ts_stage_args *args, size_t n);
    /* Sweeps and leaves the chosen elements, ascending, in selection->candidates. */
    void (*select)(struct ts_selection *selection);
    /* Selectors that send no indices: the k indices of one slice, ascending below n; bitmap has (n + 63) / 64 words. */
    void (*regenerate)(uint64_t key, size_t k, size_t n, uint64_t *bitmap, uint32_t *index);
} ts_select_stage;

#define TS_BLOCK_SCALES 2
#define TS_BLOCK_ELEMS 16384u

/* Sums over a block that a quantiser may want. */
#define TS_SUM_SQUARES 1u
#define TS_SUM_ABS 2u

/* What a quantiser is told of a block besides its values. */
typedef struct {
    const struct ts_kernels *kernels;
    const ts_stage_args *args;
    uint64_t key;          /* of the stream of random numbers: seed, step, tensor, worker, direction */
    bool unbiased;         /* nothing is kept for later steps, so expectation counts; at the encoder */
    float max_abs;         /* largest |x| of the block, or of the tensor when that has one scale; at the encoder */
    const double *sums;    /* [borrow] 2: of x^2 and of |x| over the block, those the stage wants, or NULL: not known
                              yet; at the encoder */
    const uint32_t *index; /* [borrow] numbers of the elements, NULL when they are 0, 1, 2 ... */
    size_t first;          /* what is added to them to make keys of randomness */
} ts_quantise_block;

/*
 * Quantisers: values to bytes, block by block. Scales are written and rounded by the packet layer; quantisers see
 * them as the receiver will.
 * Shapes: x[n], 1 <= n <= TS_BLOCK_ELEMS (or a slice, without scales or with one scale a tensor).
 */
typedef struct ts_quantise_stage {
    ts_stage_info info;
    unsigned scales;   /* floats in front of a block: 0 … TS_BLOCK_SCALES */
    unsigned sums;     /* TS_SUM_SQUARES | TS_SUM_ABS: what scale() wants of block->sums, brought along by the sweep */
    bool wide_scales;  /* they are never shortened to two bytes: they may be negative, or their rounding would show */
    bool lossless;
    float most;        /* the largest magnitude it can say; what is beyond stays in the residual. 0: all of them */
    unsigned block_elems; /* values to a block; 0 for TS_BLOCK_ELEMS */
    /* Bytes of n values, without scales. */
    size_t (*bytes)(const ts_stage_args *args, size_t n);
    /* The scales for x. NULL when there are none. */
    void (*scale)(const ts_quantise_block *block, const float *x, size_t n, float *scales);
    /* Writes bytes() bytes; x: in the values, out what the receiver does not get: x - decoded. */
    void (*encode)(const ts_quantise_block *block, const float *scales, float *x, size_t n, uint8_t *out);
    /* encode() as work that can go beside the next block's sweep: all but x, n and out. NULL: there is no such kernel. */
    void (*beside)(const ts_quantise_block *block, const float *scales, size_t n, struct ts_beside *work);
    /* Sweep and encode() of elements first ... end - 1 in one pass, all blocks; block->first is the number of the first.
       See ts_kernels.sweep_floats. NULL: there is none. */
    void (*take_in)(const ts_quantise_block *block, struct ts_sweep *sweep, size_t first, size_t end, uint8_t *out,
                    size_t *beyond);
    /* Whether encode() can have written these bytes under these scales. */
    bool (*valid)(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n);
    void (*decode)(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *x);
    /* sum[i] += decoded(i); the same bits as decode() and an addition. */
    void (*add)(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *sum);
    /*
     * valid() and add() in one pass, for stages without scales; fresh: sum counts as 0. Returns whether the bytes are
     * valid; sum holds rubbish when they are not. NULL: there is none.
     */
    bool (*sum)(const ts_quantise_block *block, const uint8_t *in, size_t n, float *sum, bool fresh);
} ts_quantise_stage;

/*
 * Index packs: k strictly ascending indices below n as bytes.
 * Shapes: index[k]; 0 <= k <= n <= 2^32 - 1.
 */
typedef struct ts_index_stage {
    ts_stage_info info;
    /* Bytes that no encoding of k indices below n exceeds. */
    size_t (*bound)(size_t k, size_t n);
    /* The exact bytes encode() would write. */
    size_t (*size)(const uint32_t *index, size_t k, size_t n);
    /* Returns TERSE_OK or TERSE_ENOSPACE. */
    terse_status (*encode)(const uint32_t *index, size_t k, size_t n, uint8_t *out, size_t capacity, size_t *len);
    /*
     * encode() that on its way asks memory for near[index[i]], all of them, which the caller writes next: what it computes
     * goes on while memory works. NULL: there is none.
     */
    terse_status (*encode_near)(const uint32_t *index, size_t k, size_t n, uint8_t *out, size_t capacity, size_t *len,
                                const float *near);
    /*
     * Reads exactly `len` bytes into exactly k indices.
     * Returns TERSE_OK, or TERSE_ECORRUPT unless they are strictly ascending, below n, and what encode() writes.
     */
    terse_status (*decode)(const uint8_t *in, size_t len, size_t k, size_t n, uint32_t *index);
    /* The same, and near[i] is asked for from memory for each index i. NULL where decoding leaves no time for that. */
    terse_status (*decode_near)(const uint8_t *in, size_t len, size_t k, size_t n, uint32_t *index, const float *near);
} ts_index_stage;

/* Byte packs: lossless, over the bytes of a packet. */
typedef struct ts_bytes_stage {
    ts_stage_info info;
    size_t (*bound)(size_t len, const ts_stage_args *args);
    terse_status (*encode)(struct ts_scratch *scratch, const ts_stage_args *args, const uint8_t *in, size_t in_len,
                           uint8_t *out, size_t capacity, size_t *out_len);
    /* out_len is what the packet says; TERSE_ECORRUPT unless the input gives exactly that many. */
    terse_status (*decode)(struct ts_scratch *scratch, const ts_stage_args *args, const uint8_t *in, size_t in_len,
                           uint8_t *out, size_t out_len);
} ts_bytes_stage;

#endif
