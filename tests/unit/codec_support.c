/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/codec_support.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"

void ts_unit_tensor_open(ts_unit_tensor *t, const char *pipeline, size_t n, size_t slice_elems, ts_simd simd) {
    ts_error error = {""};
    memset(t, 0, sizeof *t);
    ck_assert_msg(ts_pipeline_parse(pipeline, &t->pipeline, &error) == TERSE_OK, "%s", error.text);
    t->spec = (ts_codec_spec){.pipeline = &t->pipeline, .n = n, .slice_elems = slice_elems, .seed = 7, .tensor = 3,
                              .worker = 1, .direction = TS_PUSH};
    ck_assert_ok(ts_scratch_create(&t->scratch));
    ts_scratch_set_simd(t->scratch, simd);
    ck_assert_ok(ts_encoder_create(&t->spec, &t->encoder));
    t->slices = ts_codec_slices(&t->spec);
    t->residual = calloc(n + 1, sizeof(float));
    t->packet = calloc(t->slices + 1, sizeof *t->packet);
    t->len = calloc(t->slices + 1, sizeof *t->len);
    ck_assert(t->residual && t->packet && t->len);
    t->input = (ts_encode_input){.gradient_scale = 1.0f};
}

static void drop_packets(ts_unit_tensor *t) {
    for (uint32_t s = 0; s < t->slices; s++) {
        free(t->packet[s]);
        t->packet[s] = NULL;
        t->len[s] = 0;
    }
}

void ts_unit_tensor_close(ts_unit_tensor *t) {
    drop_packets(t);
    ts_encoder_destroy(t->encoder);
    ts_scratch_destroy(t->scratch);
    free(t->residual);
    free(t->packet);
    free(t->len);
}

void ts_unit_encode(ts_unit_tensor *t, const float *gradient, uint64_t step, terse_status wanted) {
    drop_packets(t);
    t->input.gradient = gradient;
    t->input.residual = t->residual;
    t->input.step = step;
    terse_status got = ts_encoder_begin(t->encoder, t->scratch, &t->input, &t->report);
    ck_assert_status(got, got == TERSE_OK ? TERSE_OK : wanted);
    t->bytes = 0;
    for (uint32_t s = 0, begun = got == TERSE_OK; s < t->slices && begun; s++) {
        size_t bound = ts_encoder_bound(t->encoder, t->scratch, s);
        t->packet[s] = malloc(bound + 1);
        ck_assert_ptr_nonnull(t->packet[s]);
        t->packet[s][bound] = 0xA5;
        if (bound > 0) {
            ck_assert_status(ts_encoder_slice(t->encoder, t->scratch, s, t->packet[s], bound - 1, &t->len[s]),
                             TERSE_ENOSPACE);
        }
        terse_status status = ts_encoder_slice(t->encoder, t->scratch, s, t->packet[s], bound, &t->len[s]);
        if (status == TERSE_ENONFINITE) { /* found out as it went */
            ck_assert_uint_eq(t->len[s], 0);
            free(t->packet[s]);
            t->packet[s] = NULL;
            got = status;
            continue;
        }
        ck_assert_ok(status);
        ck_assert_uint_le(t->len[s], bound);
        ck_assert_msg(t->packet[s][bound] == 0xA5, "%s wrote past its bound", t->pipeline.text);
        t->bytes += t->len[s];
    }
    ts_encoder_report(t->encoder, &t->report);
    ck_assert_status(got, wanted);
}

/* Decoders see a copy without a byte to spare. */
static uint8_t *tight_copy(const ts_unit_tensor *t, uint32_t slice) {
    uint8_t *copy = malloc(t->len[slice] ? t->len[slice] : 1);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, t->packet[slice], t->len[slice]);
    return copy;
}

void ts_unit_decode_add(ts_unit_tensor *t, float *sum) {
    for (uint32_t s = 0; s < t->slices; s++) {
        if (!t->packet[s]) continue;
        uint8_t *copy = tight_copy(t, s);
        ck_assert_ok(ts_decode_add(t->scratch, &t->spec, NULL, s, t->input.step, copy, t->len[s],
                                   sum + ts_codec_slice_first(&t->spec, s)));
        free(copy);
    }
}

size_t ts_unit_decode(ts_unit_tensor *t, float *out) {
    size_t sent = 0;
    memset(out, 0, t->spec.n * sizeof *out);
    for (uint32_t s = 0; s < t->slices; s++) {
        if (!t->packet[s]) continue;
        uint8_t *copy = tight_copy(t, s);
        ts_decoded decoded;
        ck_assert_ok(ts_decode(t->scratch, &t->spec, NULL, s, t->input.step, copy, t->len[s], &decoded));
        float *to = out + ts_codec_slice_first(&t->spec, s);
        ck_assert(decoded.dense == (decoded.index == NULL) || decoded.count == 0);
        for (size_t i = 0; i < decoded.count; i++) {
            size_t at = decoded.dense ? i : decoded.index[i];
            if (at >= ts_codec_slice_elems(&t->spec, s)) ck_abort_msg("index %zu is not in slice %u", at, s);
            to[at] = decoded.value[i];
        }
        sent += decoded.count;
        free(copy);
    }
    return sent;
}

static const char *const input_names[TS_UNIT_INPUTS] = {"zeros",     "equal", "negatives", "denormals", "max",
                                                        "98% zeros", "spike", "long tail", "normal"};

const char *ts_unit_input_name(unsigned kind) { return input_names[kind]; }

void ts_unit_input(unsigned kind, float *x, size_t n, uint64_t seed) {
    ts_random random = ts_random_start(ts_random_key(seed, kind, 0, 0, 0));
    for (size_t i = 0; i < n; i++) {
        float normal = ts_random_normal(&random), unit = ts_random_unit(ts_random_u32(&random));
        switch (kind) {
        case 0: x[i] = 0.0f; break;
        case 1: x[i] = 0.125f; break;
        case 2: x[i] = -1.0f - unit; break;
        case 3: x[i] = normal * 1e-39f; break;
        case 4: x[i] = normal > 0 ? FLT_MAX : -FLT_MAX; break;
        case 5: x[i] = unit < 0.98f ? 0.0f : normal; break;
        case 6: x[i] = i == n / 2 ? 1e6f : normal * 1e-3f; break;
        case 7: x[i] = normal * normal * normal * 0.01f; break;
        default: x[i] = normal; break;
        }
    }
}
