/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NaN and infinity in every pipeline of the contract test: counted, the first one named, never in the residual, never
 * in a packet, whatever the policy; and nothing of what is finite is lost.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/cpu.h"
#include "tests/unit/contract_case.h"

#define MOST_ELEMS 20000u

/* One step that is not finite: where and what. */
typedef struct {
    ts_contract_case c;
    ts_nonfinite policy;
    size_t at[3]; /* ascending; the same number twice is one element */
    float value[3];
} spoilt;

static const char *const policies[] = {"error", "skip", "zero"};

static size_t spoil(const spoilt *s, float *g) {
    size_t count = 0;
    for (unsigned i = 0; i < 3; i++) {
        count += isfinite(g[s->at[i]]) != 0;
        g[s->at[i]] = s->value[i];
    }
    return count;
}

static double largest(const float *x, size_t n) {
    double most = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, fabs((double)x[i]));
    return most;
}

/*
 * The contract of one such step. Whether begin() or a slice refuses is the encoder's affair: with policy `error` the
 * step fails, and what its other slices sent and what is kept is together what entered.
 */
/* Of pipelines that replace, values arrive as they are. */
static void check_replaced(ts_contract_bench *b, const spoilt *s, ts_unit_tensor *t, const char *where) {
    ts_contract_gradient(b, &s->c, 1, b->gradient);
    (void)spoil(s, b->gradient);
    memcpy(b->before, t->residual, s->c.n * sizeof(float));
    t->input.nonfinite = s->policy;
    ts_unit_encode(t, b->gradient, 1, TERSE_OK);
    ts_unit_decode_add(t, b->before);
    if (memcmp(b->before, b->gradient, s->c.n * sizeof(float)) != 0) ck_abort_msg("%s: other bits arrived", where);
}

static void check_step(ts_contract_bench *b, const spoilt *s, ts_unit_tensor *t, const char *where) {
    size_t n = s->c.n;
    ts_contract_gradient(b, &s->c, 1, b->gradient);
    size_t count = spoil(s, b->gradient);
    if (s->policy == TS_NONFINITE_SKIP) memset(b->other, 0, n * sizeof *b->other);
    else memcpy(b->other, b->gradient, n * sizeof *b->other);
    ts_contract_accumulate(t->residual, b->other, b->before, n);
    t->input.nonfinite = s->policy;
    ts_unit_encode(t, b->gradient, 1, s->policy == TS_NONFINITE_ERROR ? TERSE_ENONFINITE : TERSE_OK);
    if (t->report.nonfinite_count != count || t->report.nonfinite_first != s->at[0]) {
        ck_abort_msg("%s: %zu reported, the first at %zu; there are %zu, the first at %zu", where,
                     t->report.nonfinite_count, t->report.nonfinite_first, count, s->at[0]);
    }
    (void)ts_unit_decode(t, b->decoded);
    /* What a refused slice had said already is taken back: a rounding of values that nobody sees any more. */
    double slack = s->policy == TS_NONFINITE_ERROR ? 0x1p-22 * largest(b->before, n) : 0;
    ts_contract_conserved(t, b->before, b->decoded, slack, where);
}

static void check_case(ts_contract_bench *b, const spoilt *s, ts_simd simd) {
    char where[256], name[200];
    ts_unit_tensor t;
    (void)snprintf(where, sizeof where, "%s, %s at %zu, policy %s, %s", ts_contract_name(&s->c, name, sizeof name),
                   isnan(s->value[0]) ? "NaN" : "infinity", s->at[0], policies[s->policy], ts_simd_name(simd));
    ts_unit_tensor_open_shaped(&t, s->c.pipeline, s->c.n, s->c.ndim, s->c.slice_elems, simd, b->scratch[simd]);
    ts_contract_gradient(b, &s->c, 0, b->gradient);
    ts_unit_encode(&t, b->gradient, 0, TERSE_OK);
    if (ts_pipeline_replaces(&t.pipeline)) {
        check_replaced(b, s, &t, where);
        ts_unit_tensor_close(&t);
        return;
    }
    (void)ts_unit_decode(&t, b->decoded);
    check_step(b, s, &t, where);
    /* Goes on from what entered. */
    ts_contract_gradient(b, &s->c, 2, b->gradient);
    ts_contract_accumulate(t.residual, b->gradient, b->before, s->c.n);
    ts_unit_encode(&t, b->gradient, 2, TERSE_OK);
    if (t.report.nonfinite_count > 0) ck_abort_msg("%s: reported again, a step later", where);
    (void)ts_unit_decode(&t, b->decoded);
    ts_contract_conserved(&t, b->before, b->decoded, 0, where);
    ts_unit_tensor_close(&t);
}

START_TEST(what_is_not_finite_stays_out) {
    static const size_t sizes[] = {1, 63, 1000, MOST_ELEMS};
    ts_contract_bench *b = ts_contract_open(MOST_ELEMS);
    for (size_t i = 0; i < b->generated.count; i++) {
        for (size_t z = 0; z < sizeof sizes / sizeof sizes[0]; z++) {
            size_t n = sizes[z], first[] = {0, n / 3, n - 1};
            for (size_t place = 0; place < 3; place++) {
                if (n == MOST_ELEMS && !ts_contract_long() && place != i % 3) continue;
                bool nan = (i + z + place) % 2;
                spoilt s = {.c = {.pipeline = b->generated.text[i],
                                  .n = n,
                                  .kind = TS_UNIT_NORMAL,
                                  .ndim = 1 + (unsigned)i % 4,
                                  .slice_elems = n > 1000 ? 6000 : 300,
                                  .turn = (unsigned)i},
                            .at = {first[place], n - 1 - (n - 1 - first[place]) / 2, n - 1},
                            .value = {nan ? NAN : INFINITY, -INFINITY, NAN}};
                for (int policy = 0; policy < 3; policy++) {
                    if (n == MOST_ELEMS && !ts_contract_long() && policy != (int)(i / 3 + place) % 3) continue;
                    s.policy = (ts_nonfinite)policy;
                    check_case(b, &s, policy == 1 ? TS_SIMD_SCALAR : ts_cpu_simd());
                }
            }
        }
    }
    ts_contract_close(b);
}
END_TEST

/* A finite gradient whose scaled value is not. */
START_TEST(what_overflows_counts_as_well) {
    ts_contract_bench *b = ts_contract_open(1000);
    for (size_t i = 0; i < b->generated.count; i++) {
        ts_unit_tensor t;
        ts_contract_case c = {
            .pipeline = b->generated.text[i], .n = 1000, .kind = TS_UNIT_NORMAL, .ndim = 2, .slice_elems = 300};
        ts_unit_tensor_open_shaped(&t, c.pipeline, c.n, c.ndim, c.slice_elems, ts_cpu_simd(), NULL);
        if (ts_pipeline_replaces(&t.pipeline)) { /* nothing is scaled, or added, and so nothing overflows */
            ts_unit_tensor_close(&t);
            continue;
        }
        t.input.gradient_scale = 4.0f;
        t.input.nonfinite = TS_NONFINITE_ZERO;
        ts_contract_gradient(b, &c, 0, b->gradient);
        b->gradient[500] = FLT_MAX;
        b->gradient[999] = -FLT_MAX;
        for (size_t j = 0; j < c.n; j++) b->other[j] = 4.0f * b->gradient[j];
        ts_contract_accumulate(t.residual, b->other, b->before, c.n);
        ts_unit_encode(&t, b->gradient, 0, TERSE_OK);
        size_t count = t.report.nonfinite_count, at = t.report.nonfinite_first;
        if (count != 2 || at != 500) ck_abort_msg("%s: %zu counted, the first at %zu", c.pipeline, count, at);
        (void)ts_unit_decode(&t, b->decoded);
        ts_contract_conserved(&t, b->before, b->decoded, 0, c.pipeline);
        ts_unit_tensor_close(&t);
    }
    ts_contract_close(b);
}
END_TEST

TCase *test_codec_nonfinite(void);
TCase *test_codec_nonfinite(void) {
    TCase *tests = tcase_create("codec_nonfinite");
    tcase_set_timeout(tests, ts_contract_long() ? 3600 : 180);
    tcase_add_test(tests, what_is_not_finite_stays_out);
    tcase_add_test(tests, what_overflows_counts_as_well);
    return tests;
}
