/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/vectors/stages: what tests/tools/make_vectors.py says of every stage, from the formulas and proto/WIRE.md alone.
 * The manifest's `match` is explained there.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cpu.h"
#include "common/codec/kernels.h"
#include "common/codec/registry.h"
#include "tests/unit/codec_support.h"

#define STAGES TS_TEST_VECTORS "/stages"
#define CASES 134

/* One case at work. */
typedef struct {
    json_t *about;
    const char *name, *match;
    ts_unit_tensor tensor;
    int64_t shape[8];
    ts_decode_state **state; /* of the receiver, by slice; NULL when the pipeline keeps none */
    float *input, *sent; /* of the step */
    float *residual, *estimate, *got;
    uint8_t *data; /* of the file, */
    size_t len, at; /* read up to `at` */
} golden;

static json_int_t number(const golden *g, const char *key) {
    return json_integer_value(json_object_get(g->about, key));
}
static bool is(const golden *g, const char *match) { return strcmp(g->match, match) == 0; }

/* The next bytes of the case's file. */
static const uint8_t *next(golden *g, size_t bytes) {
    ck_assert_msg(bytes <= g->len - g->at, "%s: the file is too short", g->name);
    g->at += bytes;
    return g->data + g->at - bytes;
}

static void read_file(golden *g) {
    char path[256];
    (void)snprintf(path, sizeof path, STAGES "/%s", json_string_value(json_object_get(g->about, "file")));
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s cannot be opened", path);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    long len = ftell(file);
    ck_assert_int_gt(len, 0);
    rewind(file);
    g->len = (size_t)len;
    g->data = malloc(g->len);
    ck_assert_ptr_nonnull(g->data);
    ck_assert_uint_eq(fread(g->data, 1, g->len, file), g->len);
    (void)fclose(file);
}

static void open_case(golden *g, json_t *about, ts_simd simd) {
    size_t i;
    json_t *extent;
    *g = (golden){.about = about,
                  .name = json_string_value(json_object_get(about, "name")),
                  .match = json_string_value(json_object_get(about, "match"))};
    read_file(g);
    size_t n = (size_t)number(g, "n");
    ts_unit_tensor *t = &g->tensor;
    ts_unit_tensor_open(t, json_string_value(json_object_get(about, "pipeline")), n, (size_t)number(g, "slice"), simd);
    json_array_foreach(json_object_get(about, "shape"), i, extent) g->shape[i] = json_integer_value(extent);
    t->spec.shape = g->shape;
    t->spec.ndim = (unsigned)json_array_size(json_object_get(about, "shape"));
    t->spec.seed = (uint64_t)strtoull(json_string_value(json_object_get(about, "seed")), NULL, 10);
    t->spec.tensor = (uint32_t)number(g, "tensor");
    t->spec.worker = (uint32_t)number(g, "worker");
    t->spec.direction = number(g, "direction") ? TS_PULL : TS_PUSH;
    ts_encoder_destroy(t->encoder);
    ck_assert_ok(ts_encoder_create(&t->spec, &t->encoder));
    t->input.unbiased = json_is_true(json_object_get(about, "unbiased"));
    t->input.decay = (float)json_number_value(json_object_get(about, "decay"));
    g->input = calloc(n, sizeof(float));
    g->sent = calloc(n, sizeof(float));
    g->residual = calloc(n, sizeof(float));
    g->estimate = calloc(n, sizeof(float));
    g->got = calloc(n, sizeof(float));
    g->state = calloc(t->slices, sizeof *g->state);
    ck_assert(g->input && g->sent && g->residual && g->estimate && g->got && g->state);
    for (uint32_t s = 0; s < t->slices && ts_pipeline_is_stateful(&t->pipeline); s++) {
        ck_assert_ok(ts_decode_state_create(&t->spec, s, &g->state[s]));
    }
}

static void close_case(golden *g) {
    for (uint32_t s = 0; s < g->tensor.slices; s++) ts_decode_state_destroy(g->state[s]);
    ts_unit_tensor_close(&g->tensor);
    free(g->state);
    free(g->input);
    free(g->sent);
    free(g->residual);
    free(g->estimate);
    free(g->got);
    free(g->data);
}

/* One slice's packet into got[]. */
static void decode(golden *g, uint32_t slice, uint64_t step, const uint8_t *packet, size_t len) {
    ts_decoded decoded;
    const ts_codec_spec *spec = &g->tensor.spec;
    terse_status status =
        ts_decode(g->tensor.scratch, spec, g->state[slice], slice, step, packet, len, &decoded);
    ck_assert_msg(status == TERSE_OK, "%s, slice %u: %s", g->name, slice, terse_strerror(status));
    float *to = g->got + ts_codec_slice_first(spec, slice);
    memset(to, 0, ts_codec_slice_elems(spec, slice) * sizeof *to);
    for (size_t i = 0; i < decoded.count; i++) to[decoded.dense ? i : decoded.index[i]] = decoded.value[i];
}

/* Zeros may differ in sign, nothing else may. */
static void check_values(const golden *g, const char *what, const float *got, const float *expect) {
    double most = json_number_value(json_object_get(g->about, "tolerance"));
    for (size_t i = 0; i < g->tensor.spec.n; i++) {
        if (!(fabs((double)got[i] - (double)expect[i]) <= most)) {
            ck_abort_msg("%s: %s: element %zu is %.9g, not %.9g", g->name, what, i, (double)got[i], (double)expect[i]);
        }
    }
}

static void check_packet(const golden *g, uint32_t slice, const uint8_t *expect, size_t len) {
    const uint8_t *got = g->tensor.packet[slice];
    size_t got_len = g->tensor.len[slice], i = 0;
    while (i < len && i < got_len && got[i] == expect[i]) i++;
    if (i < len || i < got_len) {
        ck_abort_msg("%s, slice %u: %zu bytes, not %zu; byte %zu is %02x, not %02x", g->name, slice, got_len, len, i,
                     i < got_len ? got[i] : 0, i < len ? expect[i] : 0);
    }
}

static int by_magnitude(const void *a, const void *b) {
    uint32_t x = ts_float_bits(*(const float *)a) & TS_ABS_MASK, y = ts_float_bits(*(const float *)b) & TS_ABS_MASK;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The largest m elements and no others, m within a tenth of k. */
static void check_adaptive(const golden *g, const float *input) {
    size_t n = g->tensor.spec.n, m = 0;
    double k = (double)number(g, "k");
    float *sorted = malloc(n * sizeof *sorted);
    ck_assert_ptr_nonnull(sorted);
    for (size_t i = 0; i < n; i++) {
        ck_assert_msg(g->got[i] == 0.0f || g->got[i] == input[i], "%s: element %zu is not the input's", g->name, i);
        m += g->got[i] != 0.0f;
    }
    ck_assert_msg(fabs((double)m - k) <= 0.1 * k, "%s: %zu elements for k = %g", g->name, m, k);
    memcpy(sorted, input, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_magnitude);
    for (size_t i = 0; i < n; i++) {
        bool large = fabsf(input[i]) >= fabsf(sorted[m - 1]);
        ck_assert_msg(large == (g->got[i] != 0.0f), "%s: element %zu", g->name, i);
    }
    free(sorted);
}

/* What the encoder must have kept: input and old residual less what was sent. */
static void check_residual(golden *g, const float *input, const float *sent) {
    bool ef21 = json_is_true(json_object_get(g->about, "ef21"));
    float beta = g->tensor.input.decay;
    for (size_t i = 0; i < g->tensor.spec.n; i++) {
        float before = ef21 ? -g->estimate[i] : beta > 0 ? beta * g->residual[i] : g->residual[i];
        g->residual[i] = (before + input[i]) - sent[i];
        g->estimate[i] += sent[i];
    }
    if (!g->tensor.input.unbiased) check_values(g, "the residual", g->tensor.residual, g->residual);
}

/* New values: the packets are the file's, and bring what the receiver has of the step before to their bits. */
static void check_replacing_step(golden *g, json_t *about) {
    ts_unit_tensor *t = &g->tensor;
    size_t bytes = t->spec.n * sizeof(float), s;
    json_t *length;
    memcpy(g->input, next(g, bytes), bytes);
    memcpy(g->sent, next(g, bytes), bytes);
    ts_unit_encode(t, g->input, (uint64_t)json_integer_value(json_object_get(about, "step")), TERSE_OK);
    json_array_foreach(json_object_get(about, "lengths"), s, length) {
        size_t len = (size_t)json_integer_value(length);
        check_packet(g, (uint32_t)s, next(g, len), len);
    }
    ts_unit_decode_add(t, g->got);
    ck_assert_msg(memcmp(g->got, g->sent, bytes) == 0, "%s: other bits arrive", g->name);
    ck_assert_msg(memcmp(t->residual, g->sent, bytes) == 0, "%s: other bits stay", g->name);
}

static void check_step(golden *g, json_t *about) {
    ts_unit_tensor *t = &g->tensor;
    size_t n = t->spec.n, s;
    uint64_t step = (uint64_t)json_integer_value(json_object_get(about, "step"));
    float *input = g->input, *sent = g->sent;
    memcpy(input, next(g, n * sizeof *input), n * sizeof *input);
    memcpy(sent, next(g, n * sizeof *sent), n * sizeof *sent);
    json_t *lengths = json_object_get(about, "lengths"), *length;
    ck_assert_uint_eq(json_array_size(lengths), t->slices);
    if (!is(g, "packet")) {
        if (json_is_true(json_object_get(g->about, "ef21"))) {
            for (size_t i = 0; i < n; i++) t->residual[i] = -g->estimate[i];
        }
        ts_unit_encode(t, input, step, TERSE_OK);
    }
    json_array_foreach(lengths, s, length) {
        size_t len = (size_t)json_integer_value(length);
        uint8_t *copy = malloc(len ? len : 1); /* without a byte to spare, for sanitizers */
        ck_assert_ptr_nonnull(copy);
        memcpy(copy, next(g, len), len);
        if (is(g, "bytes")) check_packet(g, (uint32_t)s, copy, len);
        if (!is(g, "adaptive")) decode(g, (uint32_t)s, step, copy, len);
        free(copy);
    }
    if (!is(g, "adaptive")) check_values(g, "what the packets say", g->got, sent);
    if (is(g, "decode") || is(g, "adaptive")) {
        for (uint32_t i = 0; i < t->slices; i++) decode(g, i, step, t->packet[i], t->len[i]);
        if (is(g, "adaptive")) check_adaptive(g, input);
        else check_values(g, "what the encoder's packets say", g->got, sent);
    }
    if (!is(g, "packet") && !is(g, "adaptive")) check_residual(g, input, sent);
}

static void check_case(json_t *about, ts_simd simd) {
    golden g;
    size_t i;
    json_t *step;
    open_case(&g, about, simd);
    json_array_foreach(json_object_get(about, "steps"), i, step) {
        if (is(&g, "replace")) check_replacing_step(&g, step);
        else check_step(&g, step);
    }
    ck_assert_msg(g.at == g.len, "%s: bytes behind the last step", g.name);
    close_case(&g);
}

/* Whether a stage stands in a pipeline's text. */
static bool names(const char *pipeline, const char *stage) {
    size_t len = strlen(stage);
    for (const char *at = strstr(pipeline, stage); at; at = strstr(at + 1, stage)) {
        bool begins = at == pipeline || at[-1] == ' ' || at[-1] == '|', ends = strchr(" :|", at[len]) != NULL;
        if (begins && ends) return true;
    }
    return false;
}

START_TEST(no_stage_is_left_out) {
    json_error_t error;
    json_t *manifest = json_load_file(STAGES "/manifest.json", 0, &error), *about;
    ck_assert_msg(manifest != NULL, "%s", error.text);
    for (size_t e = 0; e < ts_registry_count(); e++) {
        const char *stage = ts_registry_entry(e)->info->name;
        size_t i, found = 0;
        json_array_foreach(json_object_get(manifest, "cases"), i, about) {
            found += names(json_string_value(json_object_get(about, "pipeline")), stage);
        }
        ck_assert_msg(found > 0, "stage `%s` has no golden vector", stage);
    }
    json_decref(manifest);
}
END_TEST

START_TEST(every_stage_gives_what_the_document_says) {
    json_error_t error;
    json_t *manifest = json_load_file(STAGES "/manifest.json", 0, &error), *cases, *about;
    ck_assert_msg(manifest != NULL, "%s", error.text);
    cases = json_object_get(manifest, "cases");
    size_t i;
    ck_assert_uint_eq(json_array_size(cases), CASES);
    json_array_foreach(cases, i, about) {
        check_case(about, TS_SIMD_SCALAR);
        check_case(about, ts_cpu_simd());
    }
    json_decref(manifest);
}
END_TEST

TCase *test_golden_stages(void);
TCase *test_golden_stages(void) {
    TCase *tests = tcase_create("golden stages");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, no_stage_is_left_out);
    tcase_add_test(tests, every_stage_gives_what_the_document_says);
    return tests;
}
