/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/packet.h"

#include <string.h>

#include "common/base/bytes.h"
#include "common/base/random.h"
#include "common/codec/delta.h"
#include "common/codec/pack_best.h"
#include "common/codec/registry.h"

#define TAG_METHOD 0x0Fu
#define TAG_SHARE 0x10u
#define PURPOSE_INDICES 0x696E6478u /* "indx" */

uint32_t ts_codec_slices(const ts_codec_spec *spec) {
    return (uint32_t)(spec->n / spec->slice_elems + (spec->n % spec->slice_elems != 0));
}

size_t ts_codec_slice_first(const ts_codec_spec *spec, uint32_t slice) { return slice * spec->slice_elems; }

size_t ts_codec_slice_elems(const ts_codec_spec *spec, uint32_t slice) {
    size_t left = spec->n - ts_codec_slice_first(spec, slice);
    return left < spec->slice_elems ? left : spec->slice_elems;
}

size_t ts_packet_share(const ts_codec_spec *spec, uint32_t slice, size_t total) {
    /* n < 2^32, so the products fit. */
    size_t first = ts_codec_slice_first(spec, slice), end = first + ts_codec_slice_elems(spec, slice);
    return (size_t)((uint64_t)total * end / spec->n - (uint64_t)total * first / spec->n);
}

ts_packet_slice ts_packet_slice_of(const ts_codec_spec *spec, const ts_kernels *kernels, uint32_t slice,
                                   uint64_t step) {
    const ts_pipeline *p = spec->pipeline;
    ts_packet_slice s = {.pipeline = p,
                         .format = ts_block_format_of(p, kernels, p->select != NULL),
                         .view = ts_transform_view_of(spec),
                         .n = ts_codec_slice_elems(spec, slice),
                         .first = ts_codec_slice_first(spec, slice)};
    s.format.block.first = spec->origin + s.first;
    if (p->select && p->select->expected)
        s.share = ts_packet_share(spec, slice, p->select->expected(&p->select_args, spec->n));
    if (p->select && !p->select->sends_indices) {
        s.key = ts_random_key(spec->seed, step, spec->tensor, spec->origin + s.first,
                              PURPOSE_INDICES + (uint64_t)spec->direction);
    }
    return s;
}

size_t ts_packet_inner_bound(const ts_packet_slice *slice, size_t k) {
    if (slice->view.stage) return ts_transform_bytes(&slice->view, &slice->format);
    if (!slice->format.sparse) return ts_blocks_bytes(&slice->format, slice->n) + ts_delta_in(slice->pipeline);
    if (k == 0) return 0;
    size_t indices = slice->pipeline->index ? slice->pipeline->index->bound(k, slice->n) : 0;
    return 1 + TS_VARINT_MAX_BYTES + ts_blocks_bytes(&slice->format, k) + indices;
}

static uint64_t zigzag(int64_t v) { return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63); }
static int64_t unzigzag(uint64_t v) { return (int64_t)(v >> 1) ^ -(int64_t)(v & 1); }

terse_status ts_packet_write_sparse(const ts_packet_slice *slice, const uint32_t *index, float *x, size_t k,
                                    float max_abs, const float *near, uint8_t *out, size_t capacity, size_t *len) {
    TS_REQUIRE(capacity >= ts_packet_inner_bound(slice, k), TERSE_ENOSPACE);
    if (k == 0) {
        *len = 0;
        return TERSE_OK;
    }
    const ts_index_stage *stage = NULL;
    unsigned tag = k == slice->share ? TAG_SHARE : 0;
    size_t at = 1, indices_len = 0;
    if (slice->pipeline->index) {
        stage = slice->pipeline->index;
        if (stage == &ts_index_best) stage = ts_index_best_choose(index, k, slice->n, &indices_len);
        tag |= ts_registry_index_number(stage);
    }
    out[0] = (uint8_t)tag;
    if (k != slice->share) at += ts_varint_put(out + at, zigzag((int64_t)k - (int64_t)slice->share));
    size_t values_at = at;
    at += ts_blocks_bytes(&slice->format, k);
    if (stage && stage->encode_near) {
        TS_TRY(stage->encode_near(index, k, slice->n, out + at, capacity - at, &indices_len, near));
    } else {
        for (size_t i = 0; near && i < k; i++) __builtin_prefetch(near + index[i], 1);
        if (stage) TS_TRY(stage->encode(index, k, slice->n, out + at, capacity - at, &indices_len));
    }

    ts_block_format format = slice->format;
    for (size_t done = 0; done < k;) {
        size_t n = ts_block_elems(&format, k - done);
        format.block.index = index + done;
        if (!format.whole_tensor && (format.stage->scales > 0 || format.stage->most > 0)) {
            max_abs = ts_bits_float(format.block.kernels->max_abs(x + done, n));
        }
        values_at += ts_block_write(&format, x + done, n, max_abs, out + values_at);
        done += n;
    }
    *len = at + indices_len;
    return TERSE_OK;
}

/* Bytes of a replacing packet with all values. */
static size_t whole_bytes(const ts_packet_slice *slice) { return 1 + slice->n * sizeof(float); }

terse_status ts_packet_write_exact(const ts_packet_slice *slice, const uint32_t *index, const float *x, size_t k,
                                   const float *all, uint8_t *out, size_t capacity, size_t *len) {
    TS_REQUIRE(capacity >= ts_packet_inner_bound(slice, k), TERSE_ENOSPACE);
    if (k == 0) {
        *len = 0;
        return TERSE_OK;
    }
    const ts_index_stage *stage = slice->pipeline->index;
    size_t indices_len;
    if (stage == &ts_index_best) stage = ts_index_best_choose(index, k, slice->n, &indices_len);
    else indices_len = stage->size(index, k, slice->n);
    size_t at = 1 + ts_varint_bytes(zigzag((int64_t)k)), values_len = k * sizeof *x;
    if (at + values_len + indices_len >= whole_bytes(slice)) {
        out[0] = TAG_SHARE;
        memcpy(out + 1, all, slice->n * sizeof *all);
        *len = whole_bytes(slice);
        return TERSE_OK;
    }
    out[0] = (uint8_t)ts_registry_index_number(stage);
    (void)ts_varint_put(out + 1, zigzag((int64_t)k));
    memcpy(out + at, x, values_len);
    at += values_len;
    TS_TRY(stage->encode(index, k, slice->n, out + at, capacity - at, &indices_len));
    *len = at + indices_len;
    return TERSE_OK;
}

/* The form with all values; false when it is the other one, shorter than this. */
static bool split_whole(const ts_packet_slice *slice, const uint8_t *packet, size_t len, ts_packet_parts *parts) {
    if (!ts_pipeline_replaces(slice->pipeline) || len != whole_bytes(slice) || packet[0] != TAG_SHARE) return false;
    *parts = (ts_packet_parts){.k = slice->n, .values = packet + 1, .values_len = len - 1};
    return true;
}

terse_status ts_packet_split(const ts_packet_slice *slice, const uint8_t *packet, size_t len, ts_packet_parts *parts) {
    ts_packet_parts p = {0};
    if (len == 0) {
        *parts = p;
        return TERSE_OK;
    }
    if (split_whole(slice, packet, len, parts)) return TERSE_OK;
    TS_REQUIRE(!ts_pipeline_replaces(slice->pipeline) || len < whole_bytes(slice), TERSE_ECORRUPT);
    unsigned tag = packet[0];
    size_t at = 1;
    TS_REQUIRE((tag & ~(TAG_METHOD | TAG_SHARE)) == 0, TERSE_ECORRUPT);
    p.k = slice->share;
    if (!(tag & TAG_SHARE)) {
        uint64_t difference;
        size_t bytes = ts_varint_get(packet + at, len - at, &difference);
        TS_REQUIRE(bytes > 0 && bytes == ts_varint_bytes(difference) && difference != 0, TERSE_ECORRUPT);
        TS_REQUIRE(difference <= 2 * (uint64_t)UINT32_MAX, TERSE_ECORRUPT);
        int64_t k = (int64_t)slice->share + unzigzag(difference);
        TS_REQUIRE(k > 0, TERSE_ECORRUPT);
        p.k = (size_t)k;
        at += bytes;
    }
    TS_REQUIRE(p.k > 0 && p.k <= slice->n, TERSE_ECORRUPT);
    if (slice->pipeline->index) {
        p.index = ts_registry_index_by_number(tag & TAG_METHOD);
        TS_REQUIRE(p.index, TERSE_ECORRUPT);
        TS_REQUIRE(slice->pipeline->index == &ts_index_best || slice->pipeline->index == p.index, TERSE_ECORRUPT);
    } else {
        TS_REQUIRE((tag & TAG_METHOD) == 0, TERSE_ECORRUPT);
    }
    p.values_len = ts_blocks_bytes(&slice->format, p.k);
    TS_REQUIRE(len - at >= p.values_len, TERSE_ECORRUPT);
    p.values = packet + at;
    p.indices = p.values + p.values_len;
    p.indices_len = len - at - p.values_len;
    TS_REQUIRE(p.index || p.indices_len == 0, TERSE_ECORRUPT);
    *parts = p;
    return TERSE_OK;
}
