/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delta:N. What is sent is the quantised difference to what the receiver has; every N steps, and when the two ends have
 * no state in common, everything. The receiver gets its own state plus the difference: the values that stay in the
 * residual are measured against that, so quantisation errors of one step are made good by the next.
 */
#include <float.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/codec/delta.h"
#include "common/codec/stage_list.h"

bool ts_pipeline_is_stateful(const ts_pipeline *pipeline) { return ts_delta_in(pipeline); }

terse_status ts_decode_state_create(const ts_codec_spec *spec, uint32_t slice, ts_decode_state **out) {
    TS_REQUIRE(slice < ts_codec_slices(spec) && ts_delta_in(spec->pipeline), TERSE_EINVAL);
    ts_decode_state *state = ts_mem_calloc(1, sizeof *state);
    TS_REQUIRE(state, TERSE_ENOMEM);
    state->n = ts_codec_slice_elems(spec, slice);
    state->value = ts_mem_aligned(state->n, sizeof *state->value);
    if (!state->value) {
        ts_mem_free(state);
        return TERSE_ENOMEM;
    }
    *out = state;
    return TERSE_OK;
}

void ts_decode_state_destroy(ts_decode_state *state) {
    if (!state) return;
    ts_mem_free(state->value);
    ts_mem_free(state);
}

size_t ts_decode_state_bytes(const ts_decode_state *state) { return sizeof *state + state->n * sizeof *state->value; }

float *ts_decode_state_values(ts_decode_state *state, size_t *n) {
    *n = state->n;
    return state->value;
}

uint64_t ts_decode_state_mark(const ts_decode_state *state) { return state->known ? state->step + 1 : 0; }

void ts_decode_state_set_mark(ts_decode_state *state, uint64_t mark) {
    state->known = mark > 0;
    state->step = mark > 0 ? mark - 1 : 0;
}

bool ts_delta_tolerates(const ts_quantise_stage *quantise, const ts_stage_args *args) {
    /* The smallest argument at which residuals of random gradients were seen to stay bounded, refreshed or not. */
    static const struct {
        const ts_quantise_stage *stage;
        double least;
    } coarse[] = {{&ts_quantise_ternary, DBL_MAX}, {&ts_quantise_qsgd, 6}, {&ts_quantise_linear, 3}};
    for (size_t i = 0; i < sizeof coarse / sizeof coarse[0]; i++) {
        if (quantise == coarse[i].stage && args->value[0] < coarse[i].least) return false;
    }
    return true;
}

unsigned ts_delta_behind(const ts_decode_state *state, const ts_stage_args *args, uint64_t step) {
    uint64_t period = (uint64_t)args->value[0];
    if (!state->known || step % period == 0 || step <= state->step) return 0;
    return step - state->step <= TS_DELTA_MOST_STEPS ? (unsigned)(step - state->step) : 0;
}

/* Sums of finite numbers that overflow stay the largest number of their sign. */
static float saturate(float x) { return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : x; }

void ts_delta_take(const ts_decode_state *state, unsigned behind, size_t first, const float *x, size_t n, float *out) {
    const float *known = state->value + first;
    if (behind == 0) {
        memcpy(out, x, n * sizeof *out);
        return;
    }
    for (size_t i = 0; i < n; i++) out[i] = saturate(x[i] - known[i]);
}

void ts_delta_apply(ts_decode_state *state, unsigned behind, size_t first, const float *decoded, size_t n) {
    float *known = state->value + first;
    if (behind == 0) {
        memcpy(known, decoded, n * sizeof *known);
        return;
    }
    for (size_t i = 0; i < n; i++) known[i] = saturate(known[i] + decoded[i]);
}

void ts_delta_subtract(const ts_decode_state *state, size_t first, float *to, size_t n) {
    const float *known = state->value + first;
    for (size_t i = 0; i < n; i++) to[i] = saturate(to[i] - known[i]);
}

const ts_transform_stage ts_transform_delta = {
    .info = {.name = "delta",
             .args = "N",
             .summary = "the difference to what was sent last, and everything every N steps; both ends keep that state",
             .formula = "s = s + Q(g - s), and s = Q(g) every N steps; g is sent as s",
             .source = "Cutler 1952 (differential coding)",
             .min_args = 1,
             .max_args = 1,
             .low = {1},
             .high = {1000000},
             .integral = {true}},
    .differential = true,
};
