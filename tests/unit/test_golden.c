/* SPDX-License-Identifier: Apache-2.0 */
/* tests/vectors/manifest.json: results that others have computed. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cpu.h"
#include "common/codec/registry.h"
#include "tests/unit/codec_support.h"

static float *read_vector(const char *name, size_t *n) {
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s.f32", TS_TEST_VECTORS, name);
    return ts_unit_read_f32(path, n);
}

/* The pipeline of a case; false when its stage is not one of this library's. */
static bool pipeline_of(const char *op, json_t *params, char *out, size_t capacity) {
    json_int_t bits = json_integer_value(json_object_get(params, "bits"));
    if (strcmp(op, "topk") == 0) {
        (void)snprintf(out, capacity, "topk:%g", json_number_value(json_object_get(params, "ratio")));
    } else if (strcmp(op, "int") == 0) {
        (void)snprintf(out, capacity, "int%d:tensor", (int)bits);
    } else if (strcmp(op, "linear") == 0 || strcmp(op, "log") == 0) {
        (void)snprintf(out, capacity, "%s:%d", op, (int)bits);
    } else {
        (void)snprintf(out, capacity, "%s", op);
    }
    return ts_registry_find(out, strcspn(out, ":")) != NULL;
}

static int by_magnitude(const void *a, const void *b) {
    float x = fabsf(*(const float *)a), y = fabsf(*(const float *)b);
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Ties may keep any of the equal ones: sorted magnitudes agree, and each kept value is the input's. */
static void check_topk(const char *name, const float *input, const float *got, const float *expect, size_t n) {
    float *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b);
    ck_assert(a && b);
    for (size_t i = 0; i < n; i++) {
        if (got[i] != 0.0f && got[i] != input[i]) ck_abort_msg("%s: element %zu is not the input's", name, i);
    }
    memcpy(a, got, n * sizeof *a);
    memcpy(b, expect, n * sizeof *b);
    qsort(a, n, sizeof *a, by_magnitude);
    qsort(b, n, sizeof *b, by_magnitude);
    for (size_t i = 0; i < n; i++) {
        if (fabsf(a[i]) != fabsf(b[i]))
            ck_abort_msg("%s: magnitude %zu is %g, not %g", name, i, fabs(a[i]), fabs(b[i]));
    }
    free(a);
    free(b);
}

static void check_equal(const char *name, const float *got, const float *expect, size_t n, double most) {
    for (size_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - (double)expect[i]);
        if (!(off <= most)) ck_abort_msg("%s: element %zu is %g, not %g", name, i, (double)got[i], (double)expect[i]);
    }
}

/* One step of `pipeline` on the whole vector as one slice. */
static void round_trip(const char *pipeline, const float *input, size_t n, float *out) {
    ts_unit_tensor t;
    ts_unit_tensor_open(&t, pipeline, n, n, ts_cpu_simd());
    ts_unit_encode(&t, input, 0, TERSE_OK);
    (void)ts_unit_decode(&t, out);
    ts_unit_tensor_close(&t);
}

static bool check_error_feedback(json_t *test) {
    const char *input = json_string_value(json_object_get(test, "input"));
    json_int_t steps = json_integer_value(json_object_get(json_object_get(test, "params"), "steps"));
    const char *pipeline = json_string_value(json_object_get(json_object_get(test, "params"), "codec"));
    char name[128];
    ts_unit_tensor t = {0};
    for (int step = 0; step < (int)steps; step++) {
        size_t n, m;
        (void)snprintf(name, sizeof name, "ef-%s-g%d", input, step);
        float *g = read_vector(name, &n), *sent = malloc(n * sizeof *sent);
        ck_assert_ptr_nonnull(sent);
        if (step == 0) ts_unit_tensor_open(&t, pipeline, n, 1024, ts_cpu_simd());
        ts_unit_encode(&t, g, (uint64_t)step, TERSE_OK);
        (void)ts_unit_decode(&t, sent);
        (void)snprintf(name, sizeof name, "ef-%s-topk-sent%d", input, step);
        float *expect = read_vector(name, &m);
        check_equal(name, sent, expect, n, 0);
        free(expect);
        (void)snprintf(name, sizeof name, "ef-%s-topk-residual%d", input, step);
        expect = read_vector(name, &m);
        check_equal(name, t.residual, expect, n, 0);
        free(expect);
        free(sent);
        free(g);
    }
    ts_unit_tensor_close(&t);
    return true;
}

/* Returns whether the case could be run. */
static bool check_golden(json_t *test) {
    const char *op = json_string_value(json_object_get(test, "op"));
    const char *expect_name = json_string_value(json_object_get(test, "expect"));
    double most = json_number_value(json_object_get(test, "max_abs_err"));
    char pipeline[64];
    if (strcmp(op, "error-feedback") == 0) return check_error_feedback(test);
    if (!pipeline_of(op, json_object_get(test, "params"), pipeline, sizeof pipeline)) return false;
    size_t n, m;
    float *input = read_vector(json_string_value(json_object_get(test, "input")), &n);
    float *expect = read_vector(expect_name, &m), *got = malloc(n * sizeof *got);
    ck_assert(m == n && got);
    round_trip(pipeline, input, n, got);
    if (strcmp(op, "topk") == 0) check_topk(expect_name, input, got, expect, n);
    else check_equal(expect_name, got, expect, n, most);
    free(input);
    free(expect);
    free(got);
    return true;
}

START_TEST(golden_vectors_hold) {
    json_error_t error;
    json_t *manifest = json_load_file(TS_TEST_VECTORS "/manifest.json", 0, &error), *cases, *test;
    ck_assert_msg(manifest != NULL, "%s", error.text);
    cases = json_object_get(manifest, "cases");
    size_t i, run = 0;
    ck_assert_uint_eq(json_array_size(cases), 110);
    json_array_foreach(cases, i, test) run += check_golden(test);
    ck_assert_uint_eq(run, 110);
    json_decref(manifest);
}
END_TEST

TCase *test_golden(void);
TCase *test_golden(void) {
    TCase *tests = tcase_create("golden");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, golden_vectors_hold);
    return tests;
}
