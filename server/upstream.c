/* SPDX-License-Identifier: Apache-2.0 */
#include "server/upstream.h"

#include <string.h>

#include "common/base/mem.h"
#include "server/downlink.h"
#include "server/reply.h"
#include "server/upstream_round.h"

static unsigned no_states(const ts_config *config, bool plain) {
    (void)config, (void)plain;
    return 0;
}

static void no_step(const ts_config *config, const ts_optimizer_input *input) { (void)config, (void)input; }

const ts_optimizer ts_optimizer_upstream = {
    .id = TS_OPTIMIZER_NONE,
    .name = "upstream",
    .summary = "the servers above have the optimizer",
    .formula = "params = what comes back",
    .states = no_states,
    .step = no_step,
};

terse_status ts_server_set_upstream(ts_server *server, ts_upstream *upstream, ts_error *error) {
    if (server->transport->servers != 1)
        return ts_error_set(error, TERSE_EUNSUPPORTED, "a relay has its group to itself, this one has %u servers: give "
                            "each its own servers.group", server->transport->servers);
    if (server->config->consistency.mode != TS_MODE_BSP)
        return ts_error_set(error, TERSE_EUNSUPPORTED, "consistency.mode below a relay must be bsp; the servers above "
                            "may have another");
    server->upstream = upstream;
    return TERSE_OK;
}

void ts_upstream_failed(ts_server *server, terse_status status, const char *text) {
    ts_server_fail(server, status, "the servers above: %s", text);
}

/* ---- beginning ------------------------------------------------------------------------------------------------------ */

terse_status ts_upstream_begin(ts_job *job, const ts_contract *contract) {
    job->above.summed = ts_mem_calloc(contract->tensor_count, sizeof *job->above.summed);
    job->above.offered = ts_mem_calloc(contract->slice_count, sizeof *job->above.offered);
    TS_REQUIRE(job->above.summed && job->above.offered, TERSE_ENOMEM);
    return job->server->upstream->ops->begin(job->server->upstream, contract);
}

void ts_upstream_forget(ts_job *job) {
    ts_mem_free(job->above.summed);
    ts_mem_free(job->above.offered);
    job->above.summed = NULL;
    job->above.offered = NULL;
}

/* The slice's place in one of the upstream's arrays. */
static float *place(const ts_server *server, const ts_contract *contract, const ts_slice_state *slice,
                    float *(*array)(ts_upstream *, uint32_t)) {
    return array(server->upstream, slice->tensor) + contract->slices[slice->global].first;
}

void ts_upstream_offer(ts_job *job, uint32_t local, const uint8_t *raw) {
    ts_upstream *upstream = job->server->upstream;
    const ts_slice_state *slice = &job->store.slices[local];
    if (job->above.offered[local]) return;
    memcpy(place(job->server, job->contract, slice, upstream->ops->values), raw, slice->n * sizeof(float));
    job->above.offered[local] = 1;
    job->above.offers++;
    job->last_progress_us = ts_server_now(job->server);
    if (!ts_upstream_offered(job)) return;
    job->above.started = true;
    upstream->ops->start(upstream);
}

bool ts_upstream_offered(const ts_job *job) { return job->contract && job->above.offers == job->store.count; }

static void take_first(ts_job *job, ts_slice_state *slice) {
    const float *values = place(job->server, job->contract, slice, job->server->upstream->ops->values);
    ts_store_set(&job->store, slice->local, (const uint8_t *)values);
    for (uint32_t w = 0; w < job->members.count; w++) job->members.members[w].reply_due = true; /* those who wait */
}

void ts_upstream_arrived(ts_server *server, uint32_t tensor) {
    ts_job *job = server->jobs[0];
    if (job->state != TS_JOB_RUNNING) return;
    const ts_tensor *declared = &job->contract->tensors[tensor];
    job->last_progress_us = ts_server_now(server);
    job->above.summed[tensor] = 0;
    for (uint32_t i = 0; i < declared->slices; i++) {
        ts_slice_state *slice = &job->store.slices[job->contract->slices[declared->first_slice + i].local];
        if (!slice->initialised) {
            take_first(job, slice);
        } else if (slice->above == TS_ABOVE_WAITING) {
            slice->above = TS_ABOVE_BACK;
            ts_rounds_consider(job, slice);
        }
    }
}

/* ---- a round ----------------------------------------------------------------------------------------------------------- */

static uint32_t samples_of(const ts_round_item *item, const ts_round_entry *entry) {
    uint32_t samples = 0;
    for (uint32_t c = entry->first; c < entry->first + entry->count; c++) {
        const ts_contribution *from = &item->contributions[c];
        if (from->quarantined) continue;
        samples += item->config->aggregation.mode == TS_AGGREGATE_SAMPLES && from->samples ? from->samples : 1;
    }
    return samples > 0 ? samples : 1;
}

void ts_upstream_keep(ts_round_item *item, ts_round_entry *entry) {
    const ts_slice_state *slice = entry->slice;
    float *gradient = place(item->job->server, item->contract, slice, item->job->server->upstream->ops->gradient);
    memcpy(gradient, item->sum.value, slice->n * sizeof(float));
    entry->deferred = true;
    entry->samples = samples_of(item, entry);
}

void ts_upstream_summed(ts_job *job, ts_slice_state *slice, uint32_t samples) {
    ts_upstream *upstream = job->server->upstream;
    slice->above = TS_ABOVE_WAITING;
    if (++job->above.summed[slice->tensor] == job->contract->tensors[slice->tensor].slices)
        upstream->ops->push(upstream, slice->tensor, samples);
}

terse_status ts_upstream_close(ts_round_item *item, ts_round_entry *entry, ts_bundle_writer *writer) {
    ts_slice_state *slice = entry->slice;
    const float *values = place(item->job->server, item->contract, slice, item->job->server->upstream->ops->values);
    if (slice->kind != TS_DOWNLINK_AVERAGE) {
        memcpy(slice->params, values, slice->n * sizeof(float));
        return ts_downlink_encode(item, entry, writer);
    }
    memcpy(item->sum.value, values, slice->n * sizeof(float));
    item->sum.dense = true;
    item->optimizer->step(item->config, &(ts_optimizer_input){.n = slice->n, .params = slice->params,
                                                              .gradient = item->sum.value, .step = item->version});
    terse_status status = ts_downlink_encode(item, entry, writer);
    ts_sum_clear(&item->sum, slice->n);
    return status;
}

/* ---- the end ------------------------------------------------------------------------------------------------------------ */

void ts_upstream_tick(ts_job *job) {
    ts_upstream *upstream = job->server->upstream;
    if (!job->above.started || job->above.done || job->members.done < job->members.count) return;
    if (!ts_job_initialised(job)) return;
    for (uint32_t s = 0; s < job->store.count; s++) {
        const ts_slice_state *slice = &job->store.slices[s];
        if (slice->above != TS_ABOVE_NONE || slice->busy || slice->ready || slice->held > 0) return;
    }
    job->above.done = true;
    upstream->ops->done(upstream);
}
