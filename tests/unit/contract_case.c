/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/contract_case.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cpu.h"

#define GUARD 12345.678f
#define REPEATED_ELEMS 1000u /* up to here the reference level runs twice */

static float *array_of(size_t n) {
    float *x = malloc((n + 1) * sizeof *x);
    if (!x) ck_abort_msg("no memory for %zu elements", n);
    return x;
}

ts_contract_bench *ts_contract_open(size_t most_elems) {
    static const char *const files[TS_CONTRACT_FILES] = {"cnn-step1-7.weight", "cnn-step300-3.weight",
                                                         "lm-step200-blk.0.linear2.weight", "lm-step200-emb.weight"};
    ts_contract_bench *b = calloc(1, sizeof *b);
    if (!b) ck_abort_msg("no memory");
    b->most_elems = most_elems;
    float **arrays[] = {&b->gradient, &b->before, &b->decoded, &b->sum, &b->other};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) *arrays[i] = array_of(most_elems);
    for (size_t i = 0; i < TS_CONTRACT_FILES; i++) {
        char path[160];
        (void)snprintf(path, sizeof path, "%s/gradients/%s.f32", TS_TEST_VECTORS, files[i]);
        b->real[i] = ts_unit_read_f32(path, &b->real_elems[i]);
    }
    for (int level = 0; level < TS_CONTRACT_LEVELS; level++) {
        if (ts_cpu_supports((ts_simd)level)) ck_assert_ok(ts_scratch_create(&b->scratch[level]));
    }
    ts_generate_pipelines(&b->generated, TS_CONTRACT_SEED);
    return b;
}

void ts_contract_close(ts_contract_bench *b) {
    for (unsigned kind = 0; kind < TS_CONTRACT_INPUTS; kind++) {
        for (unsigned step = 0; step < TS_CONTRACT_STEPS; step++) free(b->input[kind][step]);
    }
    for (size_t i = 0; i < TS_CONTRACT_FILES; i++) free(b->real[i]);
    for (int level = 0; level < TS_CONTRACT_LEVELS; level++) ts_scratch_destroy(b->scratch[level]);
    free(b->gradient), free(b->before), free(b->decoded), free(b->sum), free(b->other), free(b);
}

bool ts_contract_long(void) {
    const char *value = getenv("TERSE_TEST_LONG");
    return value && strcmp(value, "0") != 0 && value[0] != '\0';
}

const char *ts_contract_name(const ts_contract_case *c, char *out, size_t capacity) {
    (void)snprintf(out, capacity, "%s, n = %zu in %u dimensions, slices of %zu, %s", c->pipeline, c->n, c->ndim,
                   c->slice_elems, c->kind == TS_CONTRACT_REAL ? "real gradient" : ts_unit_input_name(c->kind));
    return out;
}

void ts_contract_gradient(ts_contract_bench *b, const ts_contract_case *c, unsigned step, float *out) {
    if (c->kind == TS_CONTRACT_REAL) {
        size_t file = c->turn % TS_CONTRACT_FILES, from = (size_t)c->turn * 977 + step * 131;
        for (size_t i = 0; i < c->n; i++) out[i] = b->real[file][(from + i) % b->real_elems[file]];
        return;
    }
    float **kept = &b->input[c->kind][step % TS_CONTRACT_STEPS];
    if (!*kept) {
        *kept = array_of(b->most_elems);
        ts_unit_input(c->kind, *kept, b->most_elems, step % TS_CONTRACT_STEPS);
    }
    memcpy(out, *kept, c->n * sizeof *out);
    if (c->kind == TS_UNIT_SPIKE && c->n > 0) out[c->n / 2] = 1e6f; /* where it stands depends on n */
}

void ts_contract_accumulate(const float *residual, const float *gradient, float *out, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float sum = isfinite(gradient[i]) ? residual[i] + gradient[i] : residual[i];
        sum = sum > FLT_MAX ? FLT_MAX : sum < -FLT_MAX ? -FLT_MAX : sum;
        out[i] = fabsf(sum) < FLT_MIN ? 0.0f : sum;
    }
}

void ts_contract_conserved(const ts_unit_tensor *t, const float *before, const float *sent, double slack,
                           const char *where) {
    bool exact = t->pipeline.quantise->lossless && !t->pipeline.transform;
    for (size_t i = 0; i < t->spec.n; i++) {
        double in = before[i], out = sent[i], kept = t->residual[i];
        /* What no float can hold stays the largest of its sign (delta, whose states may differ by that much). */
        double left = fmax(-(double)FLT_MAX, fmin((double)FLT_MAX, in - out)), off = fabs(left - kept);
        double allowed = exact ? 0.0 : 0x1p-23 * fmax(fabs(kept), fabs(out)) + 0x1p-149 + slack;
        if (off <= allowed && isfinite(out) && isfinite(kept)) continue;
        ck_abort_msg("%s: element %zu: %g sent + %g kept != %g", where, i, out, kept, in);
    }
}

/* What a level left behind is what the reference left. */
static void compare(const ts_unit_tensor *t, const ts_unit_tensor *reference, const char *where) {
    const char *level = ts_simd_name(ts_scratch_kernels(t->scratch)->level);
    if (memcmp(t->residual, reference->residual, t->spec.n * sizeof(float)) != 0)
        ck_abort_msg("%s: %s leaves another residual", where, level);
    for (uint32_t s = 0; s < t->slices; s++) {
        bool same = t->len[s] == reference->len[s] && memcmp(t->packet[s], reference->packet[s], t->len[s]) == 0;
        if (!same) ck_abort_msg("%s: slice %u differs from the reference at level %s", where, s, level);
    }
}

static void start_sum(float *sum, size_t n) {
    for (size_t i = 0; i < n; i++) sum[i] = (float)(i % 4096) * 0.25f - 1.0f;
    sum[n] = GUARD;
}

static void check_guards(const ts_contract_bench *b, const ts_unit_tensor *t, const char *where) {
    size_t n = t->spec.n;
    if (t->residual[n] != GUARD || b->sum[n] != GUARD || b->other[n] != GUARD || b->decoded[n] != GUARD)
        ck_abort_msg("%s: something behind an array was written", where);
}

/*
 * A pipeline that replaces: the gradient stands for the new values, the residual for what the receiver has of them. Both
 * then have the new bits; what was sent are the elements that differ, or all.
 */
static void check_replacing_step(ts_contract_bench *b, const ts_contract_case *c, unsigned step, ts_unit_tensor *t,
                                 size_t levels, const char *where) {
    size_t n = c->n, differing = 0;
    ts_contract_gradient(b, c, step, b->gradient);
    memcpy(b->before, t->residual, n * sizeof(float));
    for (size_t i = 0; i < n; i += 3) b->gradient[i] = b->before[i]; /* some stay as they are */
    for (size_t i = 0; i < n; i++) differing += memcmp(&b->gradient[i], &b->before[i], sizeof(float)) != 0;
    for (size_t l = 0; l < levels; l++) {
        ts_unit_encode(&t[l], b->gradient, step, TERSE_OK);
        if (l > 0) compare(&t[l], t, where);
        if (t[l].report.selected != differing || t[l].report.nonfinite_count > 0)
            ck_abort_msg("%s: %zu elements differ, %zu reported", where, differing, t[l].report.selected);
        memcpy(b->sum, b->before, n * sizeof(float));
        b->sum[n] = b->other[n] = b->decoded[n] = GUARD;
        ts_unit_decode_add(&t[l], b->sum);
        if (memcmp(b->sum, b->gradient, n * sizeof(float)) != 0 ||
            memcmp(t[l].residual, b->gradient, n * sizeof(float)) != 0)
            ck_abort_msg("%s: not the bits of the new values", where);
        check_guards(b, &t[l], where);
    }
}

static void check_step(ts_contract_bench *b, const ts_contract_case *c, unsigned step, ts_unit_tensor *t,
                       size_t levels) {
    char where[256];
    size_t n = c->n;
    ts_unit_tensor *reference = &t[0];
    ts_contract_name(c, where, sizeof where);
    if (ts_pipeline_replaces(&reference->pipeline)) {
        check_replacing_step(b, c, step, t, levels, where);
        return;
    }
    ts_contract_gradient(b, c, step, b->gradient);
    ts_contract_accumulate(reference->residual, b->gradient, b->before, n);
    ts_unit_encode(reference, b->gradient, step, TERSE_OK);
    b->decoded[n] = GUARD;
    size_t sent = ts_unit_decode(reference, b->decoded);
    if (sent != reference->report.selected || reference->report.nonfinite_count > 0)
        ck_abort_msg("%s: %zu sent, %zu reported", where, sent, reference->report.selected);
    ts_contract_conserved(reference, b->before, b->decoded, 0, where);
    start_sum(b->sum, n);
    start_sum(b->other, n);
    ts_unit_decode_add(reference, b->sum);
    for (size_t i = 0; i < n; i++) b->other[i] += b->decoded[i];
    if (memcmp(b->sum, b->other, n * sizeof(float)) != 0)
        ck_abort_msg("%s: decode_add is not decode, then add", where);
    check_guards(b, reference, where);
    for (size_t l = 1; l < levels; l++) {
        ts_unit_encode(&t[l], b->gradient, step, TERSE_OK);
        compare(&t[l], reference, where);
        start_sum(b->other, n);
        ts_unit_decode_add(&t[l], b->other);
        if (memcmp(b->sum, b->other, n * sizeof(float)) != 0) {
            ck_abort_msg("%s: decodes otherwise at level %s", where,
                         ts_simd_name(ts_scratch_kernels(t[l].scratch)->level));
        }
        check_guards(b, &t[l], where);
    }
}

void ts_contract_check(ts_contract_bench *b, const ts_contract_case *c) {
    ts_unit_tensor t[1 + TS_CONTRACT_LEVELS];
    size_t levels = 1;
    ts_unit_tensor_open_shaped(&t[0], c->pipeline, c->n, c->ndim, c->slice_elems, TS_SIMD_SCALAR, NULL);
    for (int level = c->n <= REPEATED_ELEMS ? TS_SIMD_SCALAR : TS_SIMD_NEON; level < TS_CONTRACT_LEVELS; level++) {
        if (!b->scratch[level]) continue;
        ts_unit_tensor_open_shaped(&t[levels++], c->pipeline, c->n, c->ndim, c->slice_elems, (ts_simd)level,
                                   b->scratch[level]);
    }
    for (size_t l = 0; l < levels; l++) t[l].residual[c->n] = GUARD;
    for (unsigned step = 0; step < c->steps; step++) check_step(b, c, step, t, levels);
    for (size_t l = 0; l < levels; l++) ts_unit_tensor_close(&t[l]);
}
