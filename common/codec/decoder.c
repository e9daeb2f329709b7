/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/codec/delta.h"
#include "common/codec/packet.h"
#include "common/codec/selection.h"

/* A packet from outside, taken apart and checked as far as that goes without decoding values. */
typedef struct {
    ts_packet_slice slice;
    const uint8_t *bytes; /* without byte packs */
    size_t len;
    size_t k;
    const uint8_t *values;
    uint32_t *index; /* in the scratch; NULL when dense */
    ts_transform_factors factors; /* of a low-rank transform */
} opened;

/* Whether all value blocks are what an encoder writes. */
static bool values_valid(const opened *o) {
    ts_block_format format = o->slice.format;
    size_t at = 0;
    for (size_t done = 0; done < o->k;) {
        size_t n = ts_block_span(&format, o->k - done);
        if (!ts_block_valid(&format, o->values + at, n)) return false;
        at += ts_block_bytes(&format, n);
        done += n;
    }
    return true;
}

static terse_status open_sparse(opened *o, ts_scratch *scratch, const float *near) {
    ts_packet_parts parts;
    TS_TRY(ts_packet_split(&o->slice, o->bytes, o->len, &parts));
    o->k = parts.k;
    o->values = parts.values;
    if (o->k == 0) return TERSE_OK;
    bool replaces = ts_pipeline_replaces(o->slice.pipeline);
    if (replaces && !parts.index) return TERSE_OK;
    TS_REQUIRE(replaces || values_valid(o), TERSE_ECORRUPT); /* new values are whatever the sender's are */
    o->index = ts_scratch_reserve(scratch, TS_SLOT_DECODED_INDEX, o->k * sizeof *o->index);
    TS_REQUIRE(o->index, TERSE_ENOMEM);
    if (parts.index && parts.index->decode_near && near) {
        return parts.index->decode_near(parts.indices, parts.indices_len, o->k, o->slice.n, o->index, near);
    }
    if (parts.index) return parts.index->decode(parts.indices, parts.indices_len, o->k, o->slice.n, o->index);
    uint64_t *bitmap = ts_scratch_reserve(scratch, TS_SLOT_BITMAP, (o->slice.n + 63) / 64 * sizeof *bitmap);
    TS_REQUIRE(bitmap, TERSE_ENOMEM);
    o->slice.pipeline->select->regenerate(o->slice.key, o->k, o->slice.n, bitmap, o->index);
    return TERSE_OK;
}

static terse_status open_dense(opened *o) {
    TS_REQUIRE(o->len == ts_blocks_bytes(&o->slice.format, o->slice.n), TERSE_ECORRUPT);
    o->k = o->slice.n;
    o->values = o->bytes;
    return values_valid(o) ? TERSE_OK : TERSE_ECORRUPT;
}

/* Checks that the packet goes on from what is known; a packet that is in the state already does, too. */
static terse_status open_delta(opened *o, const ts_decode_state *state, uint64_t step, unsigned *behind) {
    TS_REQUIRE(o->len > 0 && (!state || state->n == o->slice.n), TERSE_ECORRUPT);
    *behind = o->bytes[0];
    if (*behind > 0) {
        TS_REQUIRE(state && step >= *behind, TERSE_ECORRUPT);
        TS_REQUIRE(state->known && (state->step == step || state->step == step - *behind), TERSE_ESTALE);
    }
    o->bytes++;
    o->len--;
    return open_dense(o);
}

/* near: [borrow] the slice's floats that will be added to, or NULL: then none are asked for ahead. */
static terse_status open_packet(ts_scratch *scratch, const ts_codec_spec *spec, uint32_t slice, uint64_t step,
                                const uint8_t *packet, size_t len, const float *near, opened *o) {
    TS_REQUIRE(slice < ts_codec_slices(spec), TERSE_ECORRUPT);
    *o = (opened){.slice = ts_packet_slice_of(spec, ts_scratch_kernels(scratch), slice, step)};
    TS_TRY(ts_packet_unwrap(&o->slice, scratch, packet, len, &o->bytes, &o->len));
    if (o->slice.format.sparse) return open_sparse(o, scratch, near);
    if (ts_delta_in(spec->pipeline)) return TERSE_OK;
    if (!o->slice.view.stage) return open_dense(o);
    o->k = o->slice.n;
    return ts_transform_read(scratch, &o->slice.view, &o->slice.format, o->bytes, o->len, &o->factors);
}

/* All values of an opened packet, in order. */
static void decode_values(const opened *o, float *x) {
    ts_block_format format = o->slice.format;
    size_t at = 0;
    for (size_t done = 0; done < o->k;) {
        size_t n = ts_block_span(&format, o->k - done);
        ts_block_decode(&format, o->values + at, n, x + done);
        at += ts_block_bytes(&format, n);
        done += n;
    }
}

/* Brings the state up to the packet; all values are then there. Without a state they are put into x alone. */
static terse_status follow_delta(opened *o, ts_decode_state *state, uint64_t step, float *x) {
    unsigned behind = 0;
    TS_TRY(open_delta(o, state, step, &behind));
    bool there = state && state->known && state->step == step;
    if (!there) decode_values(o, x);
    if (!state) return TERSE_OK;
    if (!there) ts_delta_apply(state, behind, 0, x, o->k);
    state->known = true;
    state->step = step;
    memcpy(x, state->value, o->k * sizeof *x);
    return TERSE_OK;
}

static bool is_dense(const opened *o) {
    return !o->slice.format.sparse || (ts_pipeline_replaces(o->slice.pipeline) && o->k > 0 && !o->index);
}

terse_status ts_decode(ts_scratch *scratch, const ts_codec_spec *spec, ts_decode_state *state, uint32_t slice,
                       uint64_t step, const uint8_t *packet, size_t len, ts_decoded *out) {
    opened o;
    TS_TRY(open_packet(scratch, spec, slice, step, packet, len, NULL, &o));
    bool delta = ts_delta_in(spec->pipeline);
    float *x = ts_scratch_reserve(scratch, TS_SLOT_DECODED_VALUE, (delta ? o.slice.n : o.k) * sizeof *x);
    TS_REQUIRE(x, TERSE_ENOMEM);
    if (delta) TS_TRY(follow_delta(&o, state, step, x));
    else if (o.slice.view.stage) ts_transform_product(scratch, &o.slice.view, &o.factors, TS_PRODUCT_SET, x);
    else decode_values(&o, x);
    *out = (ts_decoded){.dense = is_dense(&o), .count = o.k, .index = o.index, .value = x};
    return TERSE_OK;
}

#define AHEAD 24

static void scatter_add(float *sum, const uint32_t *index, const float *x, size_t k) {
    for (size_t i = 0; i < k; i++) {
        if (i + AHEAD < k) __builtin_prefetch(sum + index[i + AHEAD], 1);
        sum[index[i]] += x[i];
    }
}

terse_status ts_decode_add(ts_scratch *scratch, const ts_codec_spec *spec, ts_decode_state *state, uint32_t slice,
                           uint64_t step, const uint8_t *packet, size_t len, float *accumulator) {
    opened o;
    TS_REQUIRE(!ts_pipeline_replaces(spec->pipeline), TERSE_EINVAL);
    if (ts_delta_in(spec->pipeline)) {
        ts_decoded decoded;
        TS_TRY(ts_decode(scratch, spec, state, slice, step, packet, len, &decoded));
        ts_scratch_kernels(scratch)->add(accumulator, decoded.value, decoded.count);
        return TERSE_OK;
    }
    TS_TRY(open_packet(scratch, spec, slice, step, packet, len, accumulator, &o));
    if (o.slice.view.stage) {
        ts_transform_product(scratch, &o.slice.view, &o.factors, TS_PRODUCT_ADD, accumulator);
        return TERSE_OK;
    }
    if (o.slice.format.sparse) {
        float *x = ts_scratch_reserve(scratch, TS_SLOT_DECODED_VALUE, o.k * sizeof *x);
        TS_REQUIRE(x, TERSE_ENOMEM);
        decode_values(&o, x);
        scatter_add(accumulator, o.index, x, o.k);
        return TERSE_OK;
    }
    ts_block_format format = o.slice.format;
    size_t at = 0;
    for (size_t done = 0; done < o.k;) {
        size_t n = ts_block_span(&format, o.k - done);
        ts_block_add(&format, o.values + at, n, accumulator + done);
        at += ts_block_bytes(&format, n);
        done += n;
    }
    return TERSE_OK;
}

terse_status ts_decode_apply(ts_scratch *scratch, const ts_codec_spec *spec, ts_decode_state *state, uint32_t slice,
                             uint64_t step, const uint8_t *packet, size_t len, float *held) {
    if (!ts_pipeline_replaces(spec->pipeline)) {
        return ts_decode_add(scratch, spec, state, slice, step, packet, len, held);
    }
    ts_decoded d;
    TS_TRY(ts_decode(scratch, spec, state, slice, step, packet, len, &d));
    if (d.dense) memcpy(held, d.value, d.count * sizeof *held);
    for (size_t i = 0; !d.dense && i < d.count; i++) {
        if (i + AHEAD < d.count) __builtin_prefetch(held + d.index[i + AHEAD], 1);
        held[d.index[i]] = d.value[i];
    }
    return TERSE_OK;
}

/* A packet of floats as they are, or TERSE_EUNSUPPORTED. */
static terse_status open_floats(ts_scratch *scratch, const ts_codec_spec *spec, uint32_t slice, uint64_t step,
                                const uint8_t *packet, size_t len, opened *o) {
    TS_REQUIRE(!spec->pipeline->select && spec->pipeline->quantise->sum && !ts_delta_in(spec->pipeline), TERSE_EUNSUPPORTED);
    TS_REQUIRE(slice < ts_codec_slices(spec), TERSE_ECORRUPT);
    *o = (opened){.slice = ts_packet_slice_of(spec, ts_scratch_kernels(scratch), slice, step)};
    TS_REQUIRE(!o->slice.view.stage, TERSE_EUNSUPPORTED);
    TS_TRY(ts_packet_unwrap(&o->slice, scratch, packet, len, &o->bytes, &o->len));
    TS_REQUIRE(o->len == ts_blocks_bytes(&o->slice.format, o->slice.n), TERSE_ECORRUPT);
    return TERSE_OK;
}

terse_status ts_decode_sum(ts_scratch *scratch, const ts_codec_spec *spec, uint32_t slice, uint64_t step,
                           const uint8_t *packet, size_t len, float *accumulator, bool fresh) {
    opened o;
    TS_TRY(open_floats(scratch, spec, slice, step, packet, len, &o));
    bool valid = spec->pipeline->quantise->sum(&o.slice.format.block, o.bytes, o.slice.n, accumulator, fresh);
    return valid ? TERSE_OK : TERSE_ENONFINITE;
}

terse_status ts_decode_floats(ts_scratch *scratch, const ts_codec_spec *spec, uint32_t slice, uint64_t step,
                              const uint8_t *packet, size_t len, const uint8_t **out) {
    opened o;
    /* What had to be unpacked lies in the scratch, and the next packet would go there, too. */
    TS_REQUIRE(!spec->pipeline->bytes[0], TERSE_EUNSUPPORTED);
    TS_TRY(open_floats(scratch, spec, slice, step, packet, len, &o));
    TS_REQUIRE(spec->pipeline->quantise->valid(&o.slice.format.block, NULL, o.bytes, o.slice.n), TERSE_ENONFINITE);
    *out = o.bytes;
    return TERSE_OK;
}
