/* SPDX-License-Identifier: Apache-2.0 */
#include "server/downlink.h"

#include "common/base/mem.h"
#include "server/slice_math.h"

static terse_status reserve_difference(ts_round_item *item, size_t n) {
    if (n <= item->difference_elems) return TERSE_OK;
    float *difference = ts_mem_aligned(n, sizeof *difference);
    TS_REQUIRE(difference, TERSE_ENOMEM);
    ts_mem_free(item->difference);
    item->difference = difference;
    item->difference_elems = n;
    return TERSE_OK;
}

static terse_status reserve_packet(ts_round_item *item, size_t bytes) {
    if (bytes <= item->packet_room) return TERSE_OK;
    uint8_t *packet = ts_mem_realloc(NULL, bytes, 1);
    TS_REQUIRE(packet, TERSE_ENOMEM);
    ts_mem_free(item->packet);
    item->packet = packet;
    item->packet_room = bytes;
    return TERSE_OK;
}

/* What is still to be said of the slice, as the encoder's residual. */
static terse_status unsaid(ts_round_item *item, ts_slice_state *slice, float **residual) {
    if (slice->kind == TS_DOWNLINK_AVERAGE) {
        /* The averages themselves: adding them to ever growing sums and taking differences would round them. */
        if (item->sum.dense) ts_slice_kernels()->add(slice->reference, item->sum.value, slice->n);
        else ts_touched_add(slice->reference, item->sum.value, item->sum.touched, slice->n);
        *residual = slice->reference;
        return TERSE_OK;
    }
    if (ts_pipeline_replaces(slice->pull.pipeline)) { /* compared with the parameters, and then equal to them */
        *residual = slice->reference;
        return TERSE_OK;
    }
    TS_TRY(reserve_difference(item, slice->n));
    ts_slice_kernels()->sub(item->difference, slice->params, slice->reference, slice->n);
    *residual = item->difference;
    return TERSE_OK;
}

/* The selector's ratio for this version, or 0 for the pipeline's own. */
static double ratio(const ts_round_item *item, const ts_round_entry *entry) {
    const ts_slice_state *slice = entry->slice;
    const ts_pipeline *pipeline = slice->pull.pipeline;
    if (!item->alone) return ts_config_warmup_ratio(item->config, pipeline, item->version);
    if (!pipeline->select || !pipeline->select->takes_ratio) return 0;
    double warm = ts_config_warmup_ratio(item->config, pipeline, slice->clock);
    return (warm > 0 ? warm : pipeline->select_args.value[0]) / item->weight;
}

static terse_status encode(ts_round_item *item, const ts_round_entry *entry, float *residual, size_t *len) {
    ts_slice_state *slice = entry->slice;
    ts_encode_input input = {
        .gradient = ts_pipeline_replaces(slice->pull.pipeline) ? slice->params : NULL,
        .gradient_scale = 1.0f,
        .residual = residual,
        .step = slice->version,
        .ratio = ratio(item, entry),
        .nonfinite = TS_NONFINITE_ZERO,
    };
    TS_TRY(ts_encoder_begin(slice->encoder, item->scratch, &input, NULL));
    TS_TRY(reserve_packet(item, ts_encoder_bound(slice->encoder, item->scratch, 0)));
    return ts_encoder_slice(slice->encoder, item->scratch, 0, item->packet, item->packet_room, len);
}

terse_status ts_downlink_encode(ts_round_item *item, ts_round_entry *entry, ts_bundle_writer *writer) {
    ts_slice_state *slice = entry->slice;
    const uint8_t *packet = (const uint8_t *)slice->params;
    size_t len = slice->n * sizeof(float);
    if (slice->kind != TS_DOWNLINK_REPLACE) {
        float *residual;
        TS_TRY(unsaid(item, slice, &residual));
        TS_TRY(encode(item, entry, residual, &len));
        packet = item->packet;
    }
    if (slice->kind == TS_DOWNLINK_REFERENCE && !ts_pipeline_replaces(slice->pull.pipeline)) {
        /* The same addition as the workers': params - residual would round otherwise than reference + decoded. */
        TS_TRY(ts_decode_add(item->scratch, &slice->pull, NULL, 0, slice->version, packet, len, slice->reference));
    }
    TS_TRY(ts_bundle_add(writer, slice->local, packet, len));
    entry->len = len;
    entry->offset = writer->frame->len - len;
    return TERSE_OK;
}

terse_status ts_downlink_room(ts_round_entry *entry, ts_bundle_writer *writer, uint8_t **room) {
    const ts_slice_state *slice = entry->slice;
    *room = NULL;
    if (slice->kind != TS_DOWNLINK_REPLACE) return TERSE_OK;
    entry->len = slice->n * sizeof(float);
    TS_TRY(ts_bundle_room(writer, slice->local, entry->len, room));
    entry->offset = writer->frame->len - entry->len;
    return TERSE_OK;
}
