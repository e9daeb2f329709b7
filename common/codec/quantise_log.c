/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log:B: magnitudes on a logarithmic scale. There are only 2^(B-1) of them, so both ends make a table of what they
 * decode to, in double and without the C library, whose functions differ between machines.
 */
#include <string.h>

#include "common/codec/quantise_codes.h"
#include "common/codec/stage_list.h"

#define LOG_MOST 88.8 /* above log(1 + the largest float) */

static unsigned bits_of(const ts_stage_args *args) { return (unsigned)args->value[0]; }
static unsigned levels_of(const ts_stage_args *args) { return (1u << (bits_of(args) - 1)) - 1; }

static size_t log_bytes(const ts_stage_args *args, size_t n) { return ts_codes_bytes(bits_of(args), n); }

#define TOGETHER 4 /* independent chains of arithmetic: one alone would wait for each of its results */

/* e^y - 1 for 0 <= y < 90: y = k·log 2 + r, the series of e^r - 1, and k put into the exponent. */
static void exp_minus_one(const double y[TOGETHER], double out[TOGETHER]) {
    static const double factor[] = {
        1.0 / 87178291200, 1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
        1.0 / 5040,        1.0 / 720,        1.0 / 120,       1.0 / 24,       1.0 / 6,       0.5,          1.0};
    int k[TOGETHER];
    double r[TOGETHER], sum[TOGETHER] = {0};
    for (size_t j = 0; j < TOGETHER; j++) {
        k[j] = (int)(y[j] * 1.4426950408889634 + 0.5);
        r[j] = (y[j] - k[j] * 6.93147180369123816490e-01) - k[j] * 1.90821492927058770002e-10;
    }
    for (size_t i = 0; i < sizeof factor / sizeof factor[0]; i++) {
        for (size_t j = 0; j < TOGETHER; j++) sum[j] = (sum[j] + factor[i]) * r[j];
    }
    for (size_t j = 0; j < TOGETHER; j++) {
        union { uint64_t bits; double value; } power = {.bits = (uint64_t)(1023 + k[j]) << 52};
        out[j] = k[j] == 0 ? sum[j] : sum[j] * power.value + (power.value - 1);
    }
}

/* log(1 + x) in double: the y that exp_minus_one() takes back to x, by Newton from the exponent. */
static double log_one_plus(double x) {
    double y = 0;
    for (double power = 1 + x; power >= 2; power *= 0.5) y += 0.6931471805599453;
    if (x < 1) y = x / (1 + x / 2);
    for (int i = 0; i < 8; i++) {
        double at[TOGETHER] = {y}, e[TOGETHER];
        exp_minus_one(at, e);
        double next = y - (e[0] - x) / (e[0] + 1);
        y = next > 0 ? next : 0;
    }
    return y;
}

typedef struct { float value[256]; } table;

/* What each code stands for, the sign included. */
static void make_table(const ts_stage_args *args, float scale, table *t) {
    unsigned levels = levels_of(args), codes = 1u << bits_of(args);
    memset(t, 0, sizeof *t);
    for (unsigned q = 1; q <= levels; q += TOGETHER) {
        double y[TOGETHER], value[TOGETHER];
        for (unsigned i = 0; i < TOGETHER; i++) y[i] = (double)scale * (q + i <= levels ? q + i : levels);
        exp_minus_one(y, value);
        for (unsigned i = 0; i < TOGETHER && q + i <= levels; i++) {
            t->value[q + i] = value[i] < (double)FLT_MAX ? (float)value[i] : FLT_MAX;
            t->value[codes - q - i] = -t->value[q + i];
        }
    }
}

static void log_scale(const ts_quantise_block *block, const float *x, size_t n, float *scales) {
    (void)x;
    (void)n;
    /* The formula as it stands: 1 + max|g| is 1 in double below 2^-53, and the scale 0. */
    if (1.0 + (double)block->max_abs == 1.0) {
        scales[0] = 0.0f;
        return;
    }
    scales[0] = ts_usable_scale((float)(log_one_plus((double)block->max_abs) / levels_of(block->args)));
}

static void log_encode(const ts_quantise_block *block, const float *scales, float *x, size_t n, uint8_t *out) {
    uint8_t codes[TS_CODES_RUN];
    unsigned bits = bits_of(block->args);
    float inverse = scales[0] > 0.0f ? 1.0f / scales[0] : 0.0f;
    table t;
    make_table(block->args, scales[0], &t);
    for (size_t at = 0; at < n; at += TS_CODES_RUN, out += TS_CODES_RUN / 8 * bits) {
        size_t run = n - at < TS_CODES_RUN ? n - at : TS_CODES_RUN;
        block->kernels->log_codes(inverse, (float)levels_of(block->args), t.value, x + at, run, codes);
        block->kernels->pack(bits, codes, run, out);
    }
}

static bool log_valid(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n) {
    unsigned levels = levels_of(block->args);
    if (!ts_scale_valid(scales[0], (float)(LOG_MOST / levels))) return false;
    return ts_codes_valid(block, bits_of(block->args), in, n, (int)levels + 1, scales[0] == 0.0f);
}

/* Into x, or added to it. */
static void log_values(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *x,
                       bool add) {
    uint8_t codes[TS_CODES_RUN];
    unsigned bits = bits_of(block->args);
    table t;
    make_table(block->args, scales[0], &t);
    for (size_t at = 0; at < n; at += TS_CODES_RUN, in += TS_CODES_RUN / 8 * bits) {
        size_t run = n - at < TS_CODES_RUN ? n - at : TS_CODES_RUN;
        block->kernels->unpack(bits, in, run, codes);
        block->kernels->table_values(t.value, codes, run, x + at, add);
    }
}

static void log_decode(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *x) {
    log_values(block, scales, in, n, x, false);
}

static void log_add(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *sum) {
    log_values(block, scales, in, n, sum, true);
}

const ts_quantise_stage ts_quantise_log = {
    .info = {.name = "log",
             .args = "B",
             .summary = "B bits with magnitudes on a logarithmic scale, one scale a block of 16384 values",
             .formula = "q = sign(g) · round(log(|g| + 1) / s), s = log(max|g| + 1) / (2^(B-1) - 1)",
             .source = "logarithmic quantisation; Miyashita et al. 2016",
             .min_args = 1,
             .max_args = 1,
             .low = {2},
             .high = {8},
             .integral = {true}},
    .scales = 1,
    .wide_scales = true,
    .bytes = log_bytes,
    .scale = log_scale,
    .encode = log_encode,
    .valid = log_valid,
    .decode = log_decode,
    .add = log_add,
};
