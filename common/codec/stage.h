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

typedef struct ts_transform_stage ts_transform_stage;
typedef struct ts_select_stage ts_select_stage;
typedef struct ts_quantise_stage ts_quantise_stage;

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
     * Reads exactly `len` bytes into exactly k indices.
     * Returns TERSE_OK, or TERSE_ECORRUPT unless they are strictly ascending, below n, and what encode() writes.
     */
    terse_status (*decode)(const uint8_t *in, size_t len, size_t k, size_t n, uint32_t *index);
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
