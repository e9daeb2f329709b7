/* SPDX-License-Identifier: Apache-2.0 */
/* What every pipeline must keep, checked for one pipeline, size and input. */
#ifndef TS_UNIT_CONTRACT_CASE_H
#define TS_UNIT_CONTRACT_CASE_H

#include "tests/unit/codec_support.h"
#include "tests/unit/pipeline_generator.h"

#define TS_CONTRACT_SEED 20
#define TS_CONTRACT_REAL TS_UNIT_INPUTS /* one more input: real gradients */
#define TS_CONTRACT_INPUTS (TS_UNIT_INPUTS + 1)
#define TS_CONTRACT_STEPS 3u
#define TS_CONTRACT_FILES 4
#define TS_CONTRACT_LEVELS 4 /* of ts_simd */

/* What the cases share: inputs, working arrays, and scratches that have seen every case before. */
typedef struct {
    size_t most_elems;
    float *input[TS_CONTRACT_INPUTS][TS_CONTRACT_STEPS]; /* most_elems; NULL until wanted */
    float *real[TS_CONTRACT_FILES];
    size_t real_elems[TS_CONTRACT_FILES];
    float *gradient, *before, *decoded, *sum, *other; /* most_elems and a guard */
    ts_scratch *scratch[TS_CONTRACT_LEVELS];
    ts_generated generated;
} ts_contract_bench;

/* Everything the issue of a case depends on. */
typedef struct {
    const char *pipeline;
    size_t n;
    unsigned kind;
    unsigned ndim;
    size_t slice_elems;
    unsigned steps;
    unsigned turn; /* which real gradient, and from where */
} ts_contract_case;

ts_contract_bench *ts_contract_open(size_t most_elems);
void ts_contract_close(ts_contract_bench *bench);
/* TERSE_TEST_LONG=1 in the environment: every combination. */
bool ts_contract_long(void);
/* "topk:0.1 | int8, n = 7, zeros". */
const char *ts_contract_name(const ts_contract_case *c, char *out, size_t capacity);
/* The gradient of a step; n values. */
void ts_contract_gradient(ts_contract_bench *bench, const ts_contract_case *c, unsigned step, float *out);
/* out[n] = residual + gradient as the sweep computes it; gradients that are not finite count as 0. */
void ts_contract_accumulate(const float *residual, const float *gradient, float *out, size_t n);
/* sent + kept == before: exactly for selectors, to rounding for quantisers and, for these, `slack` beside it. */
void ts_contract_conserved(const ts_unit_tensor *t, const float *before, const float *sent, double slack,
                           const char *where);

/*
 * Some steps at every vector level: conservation, decode-add against decode and add, and the bytes, residuals and sums
 * of the scalar reference with memory of its own, whatever the level and whatever the scratch was used for before.
 */
void ts_contract_check(ts_contract_bench *bench, const ts_contract_case *c);

#endif
