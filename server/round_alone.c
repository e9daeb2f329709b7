/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SSP and ASP: no rounds. Each packet is an optimizer step of its own, on that worker's gradient as it is, with the
 * learning rate divided by the number of the job's workers (members who are done included): as many packets as there
 * are workers move the parameters about as far as one round does, with any optimizer (aggregation.mode sum: with the
 * rate as it is). The schedule's clock at a slice
 * is the number of steps taken there divided by the workers, so that it ends where a round's would.
 *
 * A version of the slice is made when somebody pulls and something has changed. Its packet takes a round's share of the
 * selector's ratio, 1 / workers, since a round's worth of pulls makes as many.
 *
 * Workers that were given up do not count, from the next work on.
 */
#include "server/downlink.h"
#include "server/job.h"
#include "server/reply.h"

static terse_status apply(ts_round_item *item, ts_round_entry *entry, uint32_t at) {
    ts_slice_state *slice = entry->slice;
    uint64_t step = slice->steps + entry->applied;
    ts_aggregate_place place = {.contract = item->contract, .slice = slice->global, .step = item->steps[at],
                                .config = item->config};
    ts_aggregate_outcome outcome;
    terse_status status = ts_aggregate(&item->sum, item->scratch, &place, item->contributions + at, 1, &outcome);
    if (status != TERSE_OK) entry->culprit = outcome.culprit;
    if (status != TERSE_OK) return status;
    if (slice->estimate) ts_sum_estimate(&item->sum, slice->estimate, slice->n, ts_round_estimates(item, entry, at + 1));
    else ts_sum_scale(&item->sum, slice->n, outcome.factor);
    double lr = ts_config_lr(item->config, slice->clock, item->contract->total_steps);
    if (item->config->aggregation.mode != TS_AGGREGATE_SUM) lr /= item->weight;
    status = ts_round_optimize(item, slice, step, lr, &outcome, NULL);
    ts_sum_clear(&item->sum, slice->n);
    if (status != TERSE_OK) {
        item->status = status; /* the parameters have moved: not to be tried again */
        return status;
    }
    entry->applied++;
    ts_store_tick(slice, item->weight);
    return TERSE_OK;
}

terse_status ts_round_alone(ts_round_item *item, ts_round_entry *entry, ts_bundle_writer *writer) {
    terse_status status = TERSE_OK;
    entry->applied = 0;
    for (uint32_t c = 0; c < entry->count && status == TERSE_OK; c++) status = apply(item, entry, entry->first + c);
    if (item->status != TERSE_OK) return status;
    /* One that does not decode is refused by name; what came before it counts. */
    if (status == TERSE_OK && entry->encodes) {
        status = ts_downlink_encode(item, entry, writer);
        if (status != TERSE_OK) item->status = status;
    }
    return status;
}

void ts_round_alone_settle(struct ts_job *job, ts_round_item *item, const ts_round_entry *entry) {
    ts_slice_state *slice = entry->slice;
    bool replaces = slice->kind == TS_DOWNLINK_REPLACE;
    for (uint32_t c = entry->first; c < entry->first + entry->applied; c++) {
        ts_round_used(job, slice, item, c);
        ts_round_stepped(job, slice, item->weight, slice->steps);
        slice->steps++;
        slice->changed = true;
    }
    job->rounds.closed += entry->applied;
    if (entry->status != TERSE_OK)
        ts_round_refuse_packet(job, slice, entry, item->steps[entry->first + entry->applied]);
    if (replaces) {
        slice->version = slice->steps; /* the parameters themselves go out, so each step is a version */
        slice->changed = false;
    } else if (entry->status == TERSE_OK && entry->encodes) {
        slice->version++;
        slice->changed = false;
        ts_store_log(slice, slice->version, item->frame, entry->offset, entry->len);
    } else {
        return;
    }
    ts_round_receipt(job, slice, TS_RECEIPT_VERSION, item->weight, 0);
}
