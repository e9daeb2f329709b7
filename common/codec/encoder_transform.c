/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/encoder_transform.h"

#include <string.h>

#include "common/base/mem.h"

terse_status ts_encoder_transform_create(const ts_codec_spec *spec, ts_encoder_transform *out) {
    ts_encoder_transform t = {.view = ts_transform_view_of(spec)};
    terse_status status = TERSE_OK;
    if (t.view.stage && t.view.stage->memory) {
        t.memory = ts_mem_aligned(t.view.stage->memory(&t.view), sizeof *t.memory);
        TS_REQUIRE(t.memory, TERSE_ENOMEM);
    }
    if (ts_delta_in(spec->pipeline) && spec->n > 0) {
        t.slices = ts_codec_slices(spec);
        t.sent = ts_mem_calloc(t.slices, sizeof *t.sent);
        TS_REQUIRE(t.sent, TERSE_ENOMEM);
        for (uint32_t s = 0; s < t.slices && status == TERSE_OK; s++) {
            status = ts_decode_state_create(spec, s, &t.sent[s]);
        }
    }
    if (status == TERSE_OK) *out = t;
    else ts_encoder_transform_destroy(&t);
    return status;
}

void ts_encoder_transform_destroy(ts_encoder_transform *t) {
    for (uint32_t s = 0; t->sent && s < t->slices; s++) ts_decode_state_destroy(t->sent[s]);
    ts_mem_free(t->sent);
    ts_mem_free(t->memory);
}

size_t ts_encoder_transform_bytes(const ts_encoder_transform *t) {
    size_t bytes = t->memory ? t->view.stage->memory(&t->view) * sizeof *t->memory : 0;
    for (uint32_t s = 0; t->sent && s < t->slices; s++) bytes += sizeof t->sent[s] + ts_decode_state_bytes(t->sent[s]);
    return bytes;
}

/* Delta: the values of a block and what its packet says, side by side. */
static size_t block_room(const ts_codec_spec *spec) {
    ts_block_format format = ts_block_format_of(spec->pipeline, NULL, false);
    return ts_block_elems(&format, spec->n < spec->slice_elems ? spec->n : spec->slice_elems);
}

terse_status ts_encoder_transform_reserve(const ts_encoder_transform *t, const ts_codec_spec *spec, ts_scratch *scratch) {
    if (t->sent) {
        size_t bytes = 2 * block_room(spec) * sizeof(float);
        TS_REQUIRE(ts_scratch_reserve(scratch, TS_SLOT_FACTORS, bytes), TERSE_ENOMEM);
    }
    if (!t->view.stage) return TERSE_OK;
    if (t->view.stage->work) {
        TS_REQUIRE(ts_scratch_reserve(scratch, TS_SLOT_TRANSFORM, t->view.stage->work(&t->view)), TERSE_ENOMEM);
    }
    return ts_transform_reserve(scratch, &t->view);
}

void ts_encoder_transform_analyse(const ts_encoder_transform *t, ts_scratch *scratch, ts_sweep *sweep, uint64_t key) {
    const ts_kernels *kernels = ts_scratch_kernels(scratch);
    ts_transform_step step = {.kernels = kernels,
                              .low_rank = ts_low_rank_kernels_get(kernels->level),
                              .view = &t->view,
                              .sweep = sweep,
                              .memory = t->memory,
                              .work = ts_scratch_slot_data(scratch, TS_SLOT_TRANSFORM),
                              .factors = ts_scratch_slot_data(scratch, TS_SLOT_FACTORS),
                              .key = key};
    t->view.stage->analyse(&step);
}

size_t ts_encoder_transform_write(const ts_encoder_transform *t, ts_scratch *scratch, const ts_packet_slice *slice,
                                  float *residual, uint8_t *out) {
    float *factors = ts_scratch_slot_data(scratch, TS_SLOT_FACTORS);
    size_t len = ts_transform_bytes(&t->view, &slice->format);
    ts_transform_factors read;
    ts_transform_write(&t->view, &slice->format, factors, out);
    terse_status status = ts_transform_read(scratch, &t->view, &slice->format, out, len, &read);
    if (status != TERSE_OK) {
        /* Values near the end of the range that rounding made too large: this step says nothing. */
        memset(factors, 0, t->view.values * sizeof *factors);
        ts_transform_write(&t->view, &slice->format, factors, out);
        return len;
    }
    ts_transform_product(scratch, &t->view, &read, TS_PRODUCT_SUBTRACT, residual);
    return len;
}

float ts_encoder_delta_max(const ts_encoder_transform *t, ts_scratch *scratch, const ts_codec_spec *spec,
                           const float *residual, uint64_t step) {
    const ts_kernels *kernels = ts_scratch_kernels(scratch);
    float *difference = ts_scratch_slot_data(scratch, TS_SLOT_FACTORS);
    uint32_t top = 0;
    for (uint32_t s = 0; s < t->slices; s++) {
        size_t n = ts_codec_slice_elems(spec, s);
        unsigned behind = ts_delta_behind(t->sent[s], &spec->pipeline->transform_args, step);
        ts_delta_take(t->sent[s], behind, 0, residual + ts_codec_slice_first(spec, s), n, difference);
        uint32_t bits = kernels->max_abs(difference, n);
        if (bits > top) top = bits;
    }
    return ts_bits_float(top);
}

size_t ts_encoder_delta_write(const ts_encoder_transform *t, ts_scratch *scratch, const ts_packet_slice *slice,
                              uint32_t number, ts_sweep *sweep, uint64_t step, float max_abs, uint8_t *out) {
    ts_decode_state *state = t->sent[number];
    ts_block_format format = slice->format;
    const ts_kernels *kernels = format.block.kernels;
    float *residual = sweep->residual + slice->first, *difference = ts_scratch_slot_data(scratch, TS_SLOT_FACTORS);
    unsigned behind = ts_delta_behind(state, &slice->pipeline->transform_args, step);
    size_t written = 1, base = format.block.first;
    out[0] = (uint8_t)behind;
    for (size_t at = 0; at < slice->n;) {
        size_t n = ts_block_elems(&format, slice->n - at), first = slice->first + at;
        float *decoded = difference + n;
        if (sweep->gradient || sweep->bad_count > 0) (void)kernels->sweep(sweep, first, first + n);
        ts_delta_take(state, behind, at, residual + at, n, difference);
        if (!format.whole_tensor && format.stage->scales > 0) max_abs = ts_bits_float(kernels->max_abs(difference, n));
        format.block.first = base + at;
        size_t bytes = ts_block_write(&format, difference, n, max_abs, out + written);
        ts_block_decode(&format, out + written, n, decoded);
        ts_delta_apply(state, behind, at, decoded, n);
        ts_delta_subtract(state, at, residual + at, n);
        written += bytes;
        at += n;
    }
    state->known = true;
    state->step = step;
    return written;
}
