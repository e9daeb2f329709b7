/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/codec_support.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"

/* Check writes a file for every assertion, so those in loops are made only when they fail. */
#define REQUIRE_STATUS(expression, wanted)                                                               \
    do {                                                                                                 \
        terse_status required = (expression);                                                            \
        if (required != (wanted)) ck_assert_status(required, (wanted));                                  \
    } while (0)

static void open_shaped(ts_unit_tensor *t, const char *pipeline, size_t n, size_t slice_elems, ts_simd simd) {
    ts_error error = {""};
    if (ts_pipeline_parse(pipeline, &t->pipeline, &error) != TERSE_OK) ck_abort_msg("%s", error.text);
    t->spec = (ts_codec_spec){.pipeline = &t->pipeline, .n = n, .shape = t->shape, .ndim = t->ndim, .seed = 7,
                              .tensor = 3, .worker = 1, .direction = TS_PUSH};
    t->spec.slice_elems = ts_codec_cut_elems(&t->pipeline, t->shape, t->ndim, n, slice_elems);
    t->own_scratch = t->scratch == NULL;
    if (t->own_scratch) REQUIRE_STATUS(ts_scratch_create(&t->scratch), TERSE_OK);
    ts_scratch_set_simd(t->scratch, simd);
    REQUIRE_STATUS(ts_encoder_create(&t->spec, &t->encoder), TERSE_OK);
    t->slices = ts_codec_slices(&t->spec);
    t->residual = calloc(n + 1, sizeof(float));
    t->packet = calloc(t->slices + 1, sizeof *t->packet);
    t->len = calloc(t->slices + 1, sizeof *t->len);
    t->state = calloc(t->slices + 1, sizeof *t->state);
    if (!t->residual || !t->packet || !t->len || !t->state) ck_abort_msg("no memory");
    t->input = (ts_encode_input){.gradient_scale = 1.0f};
}

void ts_unit_tensor_open(ts_unit_tensor *t, const char *pipeline, size_t n, size_t slice_elems, ts_simd simd) {
    memset(t, 0, sizeof *t);
    open_shaped(t, pipeline, n, slice_elems, simd);
}

void ts_unit_tensor_open_shaped(ts_unit_tensor *t, const char *pipeline, size_t n, unsigned ndim, size_t slice_elems,
                                ts_simd simd, ts_scratch *scratch) {
    memset(t, 0, sizeof *t);
    t->ndim = ndim;
    t->scratch = scratch;
    ts_unit_shape(n, ndim, t->shape);
    open_shaped(t, pipeline, n, slice_elems, simd);
    for (uint32_t s = 0; s < t->slices && ts_pipeline_is_stateful(&t->pipeline); s++) {
        REQUIRE_STATUS(ts_decode_state_create(&t->spec, s, &t->state[s]), TERSE_OK);
    }
}

/* The largest divisor of n whose power `ndim` is at most n. */
static size_t root_divisor(size_t n, unsigned ndim) {
    size_t best = 1;
    for (size_t d = 2; d < n; d++) {
        size_t power = d;
        for (unsigned i = 1; i < ndim; i++) power *= d;
        if (power > n) break;
        if (n % d == 0) best = d;
    }
    return best;
}

void ts_unit_shape(size_t n, unsigned ndim, int64_t *shape) {
    for (unsigned d = 0; d < ndim; d++) {
        size_t extent = d + 1 == ndim ? n : root_divisor(n, ndim - d);
        shape[d] = (int64_t)extent;
        n /= extent > 0 ? extent : 1;
    }
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
    for (uint32_t s = 0; s < t->slices; s++) ts_decode_state_destroy(t->state[s]);
    free(t->state);
    ts_encoder_destroy(t->encoder);
    if (t->own_scratch) ts_scratch_destroy(t->scratch);
    free(t->residual);
    free(t->packet);
    free(t->len);
}

/* One slice into memory of exactly its bound and a guard. Leaves no packet when the slice is refused. */
static terse_status encode_slice(ts_unit_tensor *t, uint32_t s) {
    size_t bound = ts_encoder_bound(t->encoder, t->scratch, s);
    uint8_t *packet = malloc(bound + 1);
    if (!packet) ck_abort_msg("no memory");
    packet[bound] = 0xA5;
    if (bound > 0) {
        REQUIRE_STATUS(ts_encoder_slice(t->encoder, t->scratch, s, packet, bound - 1, &t->len[s]), TERSE_ENOSPACE);
    }
    terse_status status = ts_encoder_slice(t->encoder, t->scratch, s, packet, bound, &t->len[s]);
    if (packet[bound] != 0xA5) ck_abort_msg("%s wrote past its bound", t->pipeline.text);
    if (status != TERSE_OK) {
        free(packet);
        return status;
    }
    if (t->len[s] > bound) ck_abort_msg("%s: %zu bytes, the bound is %zu", t->pipeline.text, t->len[s], bound);
    t->packet[s] = packet;
    t->bytes += t->len[s];
    return TERSE_OK;
}

void ts_unit_encode(ts_unit_tensor *t, const float *gradient, uint64_t step, terse_status wanted) {
    drop_packets(t);
    t->input.gradient = gradient;
    t->input.residual = t->residual;
    t->input.step = step;
    t->bytes = 0;
    terse_status status = ts_encoder_begin(t->encoder, t->scratch, &t->input, NULL);
    bool begun = status == TERSE_OK;
    for (uint32_t s = 0; s < t->slices && begun; s++) {
        terse_status sliced = encode_slice(t, s);
        if (sliced == TERSE_OK) continue;
        if (sliced != TERSE_ENONFINITE) REQUIRE_STATUS(sliced, TERSE_OK);
        status = sliced;
    }
    REQUIRE_STATUS(status, wanted);
    ts_encoder_report(t->encoder, &t->report);
}

/* Decoders see a copy without a byte to spare. */
static uint8_t *tight_copy(const ts_unit_tensor *t, uint32_t slice) {
    uint8_t *copy = malloc(t->len[slice] ? t->len[slice] : 1);
    if (!copy) ck_abort_msg("no memory");
    memcpy(copy, t->packet[slice], t->len[slice]);
    return copy;
}

void ts_unit_decode_add(ts_unit_tensor *t, float *sum) {
    for (uint32_t s = 0; s < t->slices; s++) {
        if (!t->packet[s]) continue;
        uint8_t *copy = tight_copy(t, s);
        REQUIRE_STATUS(ts_decode_apply(t->scratch, &t->spec, t->state[s], s, t->input.step, copy, t->len[s],
                                       sum + ts_codec_slice_first(&t->spec, s)),
                       TERSE_OK);
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
        REQUIRE_STATUS(ts_decode(t->scratch, &t->spec, t->state[s], s, t->input.step, copy, t->len[s], &decoded),
                       TERSE_OK);
        float *to = out + ts_codec_slice_first(&t->spec, s);
        size_t n = ts_codec_slice_elems(&t->spec, s), next = 0;
        bool sparse = t->pipeline.select != NULL, either = ts_pipeline_replaces(&t->pipeline);
        if ((decoded.dense == sparse && !either) || (decoded.dense && decoded.count != n)) ck_abort_msg("not what was encoded");
        for (size_t i = 0; i < decoded.count; i++) {
            size_t at = decoded.dense ? i : decoded.index[i];
            if (at >= n || at < next) ck_abort_msg("index %zu, at least %zu and below %zu is right", at, next, n);
            next = at + 1;
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
