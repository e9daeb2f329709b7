/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/decode_nonfinite.h"

#include "common/codec/delta.h"
#include "common/codec/packet.h"

/* Looks through the blocks of k values; *in moves behind them. */
static bool blocks_nonfinite(const ts_packet_slice *slice, const uint8_t **in, size_t k) {
    bool found = false;
    for (size_t left = k; left > 0;) {
        size_t n = ts_block_elems(&slice->format, left);
        found = found || ts_block_nonfinite(&slice->format, *in, n);
        *in += ts_block_bytes(&slice->format, n);
        left -= n;
    }
    return found;
}

static bool dense_nonfinite(const ts_packet_slice *slice, const uint8_t *in, size_t len) {
    return len == ts_blocks_bytes(&slice->format, slice->n) && blocks_nonfinite(slice, &in, slice->n);
}

static bool factors_nonfinite(const ts_packet_slice *slice, const uint8_t *in, size_t len) {
    bool found = false;
    if (len != ts_transform_bytes(&slice->view, &slice->format)) return false;
    for (unsigned i = 0; i < slice->view.parts; i++) found = blocks_nonfinite(slice, &in, slice->view.part[i]) || found;
    return found;
}

bool ts_decode_nonfinite(ts_scratch *scratch, const ts_codec_spec *spec, uint32_t slice, uint64_t step,
                         const uint8_t *packet, size_t len) {
    if (slice >= ts_codec_slices(spec) || ts_pipeline_replaces(spec->pipeline)) return false;
    ts_packet_slice place = ts_packet_slice_of(spec, ts_scratch_kernels(scratch), slice, step);
    const uint8_t *bytes;
    if (ts_packet_unwrap(&place, scratch, packet, len, &bytes, &len) != TERSE_OK) return false;
    if (place.format.sparse) {
        ts_packet_parts parts;
        if (ts_packet_split(&place, bytes, len, &parts) != TERSE_OK) return false;
        const uint8_t *values = parts.values;
        return blocks_nonfinite(&place, &values, parts.k);
    }
    if (ts_delta_in(spec->pipeline)) return len > 0 && dense_nonfinite(&place, bytes + 1, len - 1);
    return place.view.stage ? factors_nonfinite(&place, bytes, len) : dense_nonfinite(&place, bytes, len);
}
