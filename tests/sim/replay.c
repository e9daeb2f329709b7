/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run done again from its events, one after the other: what workers pushed, from the versions they held; what servers
 * added, in the order of their receipts. It refuses a packet that is used twice, or that was never pushed.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "tests/sim/oracle_parts.h"
#include "tests/sim/oracle_rules.h"

/* The packet that a worker pushed last of a slice. */
typedef struct {
    uint8_t *bytes;
    size_t len;
    uint64_t step;
    bool open;     /* neither used nor given back */
    bool returned; /* the worker has it again, and takes it back with its next push */
    bool forgotten;/* its worker knows nothing of it any more */
} sent_packet;

/* What a version of a slice holds. */
typedef struct {
    uint64_t version;
    float *values;
} kept_version;

typedef struct {
    oracle *o;
    sent_packet sent[TS_CLUSTER_WORKERS][ORACLE_SLICES];
    kept_version *versions[ORACLE_SLICES];
    size_t version_count[ORACLE_SLICES], version_room[ORACLE_SLICES];
    uint64_t steps[ORACLE_SLICES];
    uint64_t clock[ORACLE_SLICES]; /* without rounds: rounds' worth of steps, */
    uint32_t clock_part[ORACLE_SLICES]; /* and packets of the next */
    uint32_t used[ORACLE_SLICES]; /* since the slice's last step */
    bool anew[TS_CLUSTER_WORKERS][ORACLE_SLICES]; /* `delta`: the worker's next packet of the slice is all of it */
    bool said[TS_CLUSTER_WORKERS][ORACLE_SLICES]; /* something of the worker was used there */
    uint64_t cut;                 /* the step of the checkpoint at which another run goes on; 0 for none */
    bool is_cut[ORACLE_SLICES];   /* the slice is in it */
    uint64_t cut_version[ORACLE_SLICES];
    char *complaint;
    size_t capacity;
} replay;

static void complain(replay *r, const char *format, ...) TERSE_PRINTF(2, 3);
static void complain(replay *r, const char *format, ...) {
    va_list args;
    if (r->complaint[0]) return;
    va_start(args, format);
    vsnprintf(r->complaint, r->capacity, format, args);
    va_end(args);
}

static terse_status keep_version(replay *r, uint32_t s, uint64_t version) {
    const ts_slice *slice = &r->o->contract->slices[s];
    if (r->version_count[s] == r->version_room[s]) {
        size_t room = r->version_room[s] ? 2 * r->version_room[s] : 16;
        kept_version *grown = ts_mem_realloc(r->versions[s], room, sizeof *grown);
        TS_REQUIRE(grown, TERSE_ENOMEM);
        r->versions[s] = grown;
        r->version_room[s] = room;
    }
    float *values = ts_mem_aligned(slice->n, sizeof *values);
    TS_REQUIRE(values, TERSE_ENOMEM);
    memcpy(values, r->o->reference[slice->tensor] + slice->first, slice->n * sizeof *values);
    r->versions[s][r->version_count[s]++] = (kept_version){version, values};
    return TERSE_OK;
}

/* What was returned goes back into the residual, or out of the estimate, before the next gradient enters, or at the end. */
static terse_status take_back_slice(replay *r, uint32_t w, uint32_t s) {
    sent_packet *packet = &r->sent[w][s];
    const ts_slice *slice = &r->o->contract->slices[s];
    uint32_t t = slice->tensor;
    float *residual = r->o->result->residual[w][t] + slice->first, *estimate = r->o->estimate[w][t] + slice->first;
    bool estimates = ts_config_estimates(r->o->config);
    if (!packet->returned || !r->o->config->error_feedback.enabled) return TERSE_OK;
    packet->returned = false;
    if (estimates) memset(residual, 0, slice->n * sizeof *residual);
    TS_TRY(ts_encoder_take_back(r->o->up[w][t], r->o->scratch, s - r->o->contract->tensors[t].first_slice, packet->step, packet->bytes,
                                packet->len, residual));
    for (size_t j = 0; estimates && j < slice->n; j++) estimate[j] -= residual[j];
    return TERSE_OK;
}

static terse_status take_back(replay *r, uint32_t w, uint32_t t) {
    const ts_tensor *tensor = &r->o->contract->tensors[t];
    for (uint32_t i = 0; i < tensor->slices; i++) {
        bool *anew = &r->anew[w][tensor->first_slice + i];
        TS_TRY(take_back_slice(r, w, tensor->first_slice + i));
        if (*anew) ts_encoder_restart(r->o->up[w][t], i);
        *anew = false;
    }
    return TERSE_OK;
}

static terse_status on_pushed(replay *r, const ts_cluster_event *event) {
    size_t len[ORACLE_SLICES], at = 0;
    const ts_tensor *tensor = &r->o->contract->tensors[event->tensor];
    TS_TRY(take_back(r, event->worker, event->tensor));
    TS_TRY(ts_oracle_encode(r->o, event->worker, event->tensor, event->step, event->local, len));
    for (uint32_t i = 0; i < tensor->slices; i++) {
        sent_packet *packet = &r->sent[event->worker][tensor->first_slice + i];
        if (packet->open && !packet->forgotten)
            complain(r, "worker %u pushed step %llu of slice %u before step %llu was settled", event->worker,
                     (unsigned long long)event->step, tensor->first_slice + i, (unsigned long long)packet->step);
        uint8_t *bytes = ts_mem_realloc(packet->bytes, len[i] + 1, 1);
        TS_REQUIRE(bytes, TERSE_ENOMEM);
        memcpy(bytes, r->o->packet + at, len[i]);
        *packet = (sent_packet){.bytes = bytes, .len = len[i], .step = event->step, .open = true};
        at += len[i];
    }
    return TERSE_OK;
}

static terse_status on_used(replay *r, const ts_receipt *receipt) {
    sent_packet *packet = &r->sent[receipt->worker][receipt->slice];
    if (!packet->open || packet->step != receipt->step) {
        complain(r, "slice %u used step %llu of worker %u, whose last is step %llu, %s", receipt->slice,
                 (unsigned long long)receipt->step, receipt->worker, (unsigned long long)packet->step,
                 packet->open ? "open" : "settled already");
        return TERSE_OK;
    }
    packet->open = false;
    r->said[receipt->worker][receipt->slice] = true;
    r->used[receipt->slice]++;
    const ts_slice *slice = &r->o->contract->slices[receipt->slice];
    ts_codec_spec spec = ts_contract_push_spec(r->o->contract, slice->tensor, receipt->worker);
    uint32_t part = receipt->slice - r->o->contract->tensors[slice->tensor].first_slice;
    return ts_decode_add(r->o->scratch, &spec, r->o->state[receipt->worker][receipt->slice], part, receipt->step,
                         packet->bytes, packet->len, r->o->sum[slice->tensor] + slice->first);
}

static void on_returned(replay *r, const ts_receipt *receipt) {
    sent_packet *packet = &r->sent[receipt->worker][receipt->slice];
    if (packet->step != receipt->step) return; /* said again, long after */
    if (!packet->open && !packet->returned)
        complain(r, "slice %u returned step %llu of worker %u, which it had used", receipt->slice,
                 (unsigned long long)receipt->step, receipt->worker);
    if (packet->open) r->o->result->returned++;
    packet->open = false;
    packet->returned = !packet->forgotten; /* whom it is returned to does not know it */
}

static void on_back(replay *r, uint32_t w) {
    for (uint32_t s = 0; s < r->o->contract->slice_count; s++) r->anew[w][s] = true;
}

/* A new process that has nothing of the former's: what a server held may still be used, the rest is lost. */
static void on_forgot(replay *r, uint32_t w) {
    for (uint32_t s = 0; s < r->o->contract->slice_count; s++) {
        r->sent[w][s].forgotten = true;
        r->sent[w][s].returned = false;
    }
    for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++) {
        memset(r->o->result->residual[w][t], 0, ts_cluster_tensors[t].n * sizeof(float));
        memset(r->o->velocity[w][t], 0, sizeof r->o->velocity[w][t]);
        memset(r->o->estimate[w][t], 0, sizeof r->o->estimate[w][t]); /* the servers' sum keeps what it had said */
    }
}

/* The worker's former life had sent it; the servers have said that they have not used it, and may not from now on. */
static void on_given_back(replay *r, const ts_cluster_event *event) {
    sent_packet *packet = &r->sent[event->worker][event->slice];
    if (packet->step != event->step || (!packet->open && !packet->returned))
        complain(r, "step %llu of worker %u at slice %u was given back, but its last is step %llu, %s", (unsigned long long)event->step,
                 event->worker, event->slice, (unsigned long long)packet->step, packet->open ? "open" : "used");
    packet->open = false;
    packet->returned = true;
}

static terse_status on_taken_back(replay *r, const ts_cluster_event *event) {
    sent_packet *packet = &r->sent[event->worker][event->slice];
    if (packet->step != event->step || !packet->returned)
        complain(r, "worker %u took step %llu of slice %u back, which was not returned", event->worker, (unsigned long long)event->step,
                 event->slice);
    TS_TRY(take_back_slice(r, event->worker, event->slice));
    packet->step = UINT64_MAX; /* whoever says again that it came too late says nothing new */
    return TERSE_OK;
}

static bool alone(const replay *r) { return r->o->config->consistency.mode != TS_MODE_BSP; }

/* EF21's mean is over all that the job began with and all others of which something is in the slice's sum. */
static uint32_t count_estimates(replay *r, uint32_t s, uint64_t step, uint32_t told) {
    const ts_cluster_spec *spec = r->o->spec;
    uint32_t of = spec->network.workers - spec->network.late_workers;
    for (uint32_t w = of; w < spec->network.workers; w++) of += r->said[w][s];
    if (told != of)
        complain(r, "slice %u, step %llu: a mean over the estimates of %u workers, where the sum is of %u", s, (unsigned long long)step, told, of);
    return of;
}

static void optimize(oracle *o, const ts_slice *slice, uint64_t step, double lr, float share, uint32_t ever) {
    const ts_tensor *tensor = &o->contract->tensors[slice->tensor];
    float g[512], *sum = o->sum[slice->tensor] + slice->first, *estimates = o->estimates[slice->tensor] + slice->first;
    for (size_t i = 0; i < slice->n; i++) {
        g[i] = sum[i] * share;
        if (!ts_config_estimates(o->config)) continue;
        estimates[i] += sum[i];
        g[i] = estimates[i] * (1.0f / (float)ever);
    }
    bool sparse = ts_pipeline_is_sparse(&tensor->push) && !ts_config_estimates(o->config);
    float (*state)[512] = (float (*)[512])(void *)(o->optimizer[slice->tensor][0] + slice->first); /* the slice's part */
    ts_oracle_step(o->config, step, lr, tensor->worker_momentum, sparse, slice->n,
                   o->result->fetched[slice->tensor] + slice->first, state, g);
    memset(sum, 0, slice->n * sizeof *sum);
}

static void on_step(replay *r, const ts_receipt *receipt) {
    uint32_t s = receipt->slice, weight = receipt->worker;
    const ts_slice *slice = &r->o->contract->slices[s];
    uint32_t workers = r->o->spec->network.workers;
    uint64_t step = r->steps[s];
    bool deaths = false;
    uint32_t ever = ts_config_estimates(r->o->config) ? count_estimates(r, s, step, receipt->estimates) : 0;
    for (uint32_t w = 0; w < workers; w++) deaths = deaths || ts_cluster_is_missed(r->o->spec, w);
    if (r->used[s] == 0 && deaths && !alone(r)) { /* all of a decided round died before they had delivered it there */
        r->steps[s]++;
        return;
    }
    if (r->used[s] == 0 || (alone(r) && r->used[s] != 1)) complain(r, "slice %u: a step on %u packets", s, r->used[s]);
    if (alone(r) && (weight > workers || weight == 0 || (!deaths && weight != workers)))
        complain(r, "slice %u: a step for %u workers of %u", s, weight, workers);
    if (alone(r) && weight > 0) {
        optimize(r->o, slice, step, ts_config_lr(r->o->config, r->clock[s], 0) / weight, 1.0f, ever);
        if (++r->clock_part[s] >= weight) r->clock[s]++, r->clock_part[s] = 0;
    } else optimize(r->o, slice, step, ts_config_lr(r->o->config, step, 0), 1.0f / (float)r->used[s], ever);
    r->steps[s]++;
    r->used[s] = 0;
}

static terse_status on_version(replay *r, const ts_receipt *receipt) {
    uint32_t s = receipt->slice;
    ts_codec_spec spec = ts_contract_pull_spec(r->o->contract, s);
    const ts_pipeline *pipeline = spec.pipeline;
    uint64_t left = receipt->version - 1;
    double ratio = ts_config_warmup_ratio(r->o->config, pipeline, alone(r) ? r->clock[s] : left);
    if (alone(r) && pipeline->select && pipeline->select->takes_ratio)
        ratio = (ratio > 0 ? ratio : pipeline->select_args.value[0]) / receipt->worker;
    TS_TRY(ts_oracle_version(r->o, s, left, ratio));
    return keep_version(r, s, receipt->version);
}

static void on_holds(replay *r, const ts_cluster_event *event) {
    const ts_slice *slice = &r->o->contract->slices[event->slice];
    for (size_t i = r->version_count[event->slice]; i-- > 0;) {
        const kept_version *kept = &r->versions[event->slice][i];
        if (kept->version != event->version) continue;
        memcpy(r->o->result->replica[event->worker][slice->tensor] + slice->first, kept->values,
               slice->n * sizeof(float));
        return;
    }
    complain(r, "worker %u holds version %llu of slice %u, which was never made", event->worker,
             (unsigned long long)event->version, event->slice);
}

/* Whether an event is none of what the checkpoint holds. */
static bool is_after_cut(replay *r, const ts_cluster_event *event) {
    const ts_receipt *receipt = &event->receipt;
    if (r->cut == 0) return false;
    if (event->kind == TS_CLUSTER_PUSHED) return event->step >= r->cut;
    if (event->kind == TS_CLUSTER_HOLDS) return r->is_cut[event->slice];
    if (receipt->kind == TS_RECEIPT_CUT && receipt->step == r->cut) {
        r->is_cut[receipt->slice] = true;
        r->cut_version[receipt->slice] = receipt->version;
    }
    return r->is_cut[receipt->slice];
}

static terse_status on_event(replay *r, const ts_cluster_event *event) {
    if (is_after_cut(r, event)) return TERSE_OK;
    switch (event->kind) {
    case TS_CLUSTER_PUSHED: return on_pushed(r, event);
    case TS_CLUSTER_HOLDS: on_holds(r, event); return TERSE_OK;
    case TS_CLUSTER_GIVEN_BACK: on_given_back(r, event); return TERSE_OK;
    case TS_CLUSTER_TAKEN_BACK: return on_taken_back(r, event);
    case TS_CLUSTER_BACK: on_back(r, event->worker); return TERSE_OK;
    case TS_CLUSTER_FORGOT: on_forgot(r, event->worker); return TERSE_OK;
    default: break;
    }
    switch (event->receipt.kind) {
    case TS_RECEIPT_USED: return on_used(r, &event->receipt);
    case TS_RECEIPT_RETURNED: on_returned(r, &event->receipt); return TERSE_OK;
    case TS_RECEIPT_STEP: on_step(r, &event->receipt); return TERSE_OK;
    case TS_RECEIPT_CUT: return TERSE_OK; /* of a checkpoint that nobody went on from */
    default: return on_version(r, &event->receipt);
    }
}

/* What a dead worker's network lost is lost, and who came back too late has nobody to give it to. */
static void look_for_lost_packets(replay *r, const ts_cluster_result *run) {
    for (uint32_t w = 0; w < r->o->spec->network.workers; w++)
        for (uint32_t s = 0; s < r->o->contract->slice_count; s++)
            if (r->sent[w][s].open && !r->sent[w][s].forgotten && !run->absent[w] && !ts_cluster_dies(r->o->spec, w) && !run->missed[w])
                complain(r, "step %llu of worker %u at slice %u was never used", (unsigned long long)r->sent[w][s].step, w, s);
}

static void free_replay(replay *r) {
    for (uint32_t s = 0; s < ORACLE_SLICES; s++) {
        for (size_t i = 0; i < r->version_count[s]; i++) ts_mem_free(r->versions[s][i].values);
        ts_mem_free(r->versions[s]);
        for (uint32_t w = 0; w < TS_CLUSTER_WORKERS; w++) ts_mem_free(r->sent[w][s].bytes);
    }
    if (r->o) ts_oracle_end(r->o);
    ts_mem_free(r);
}

static terse_status play(replay *r, const ts_cluster_result *run) {
    for (size_t i = 0; i < run->event_count; i++) TS_TRY(on_event(r, &run->events[i]));
    look_for_lost_packets(r, run);
    return TERSE_OK;
}

/* Everybody begins with what the references were at the cut; older versions are known to nobody. */
static terse_status go_on(replay *r) {
    r->cut = 0;
    for (uint32_t s = 0; s < r->o->contract->slice_count; s++) {
        const ts_slice *slice = &r->o->contract->slices[s];
        if (!r->is_cut[s]) complain(r, "slice %u was never cut", s);
        for (size_t i = 0; i < r->version_count[s]; i++) ts_mem_free(r->versions[s][i].values);
        r->version_count[s] = 0;
        TS_TRY(keep_version(r, s, r->cut_version[s]));
        for (uint32_t w = 0; w < r->o->spec->network.workers; w++)
            memcpy(r->o->result->replica[w][slice->tensor] + slice->first, r->versions[s][0].values,
                   slice->n * sizeof(float));
    }
    return TERSE_OK;
}

static terse_status replay_runs(const ts_cluster_spec *spec, const ts_cluster_result *first, uint64_t cut,
                                const ts_cluster_result *second, ts_cluster_result *out, char *complaint, size_t capacity) {
    replay *r = ts_mem_calloc(1, sizeof *r);
    if (!r) return TERSE_ENOMEM;
    r->complaint = complaint;
    r->capacity = capacity;
    r->cut = cut;
    complaint[0] = '\0';
    r->o = ts_mem_calloc(1, sizeof *r->o);
    terse_status status = r->o ? ts_oracle_begin(r->o, spec, out) : TERSE_ENOMEM;
    for (uint32_t s = 0; status == TERSE_OK && s < r->o->contract->slice_count; s++) status = keep_version(r, s, 0);
    if (status == TERSE_OK) status = play(r, first);
    if (status == TERSE_OK && second) status = go_on(r);
    if (status == TERSE_OK && second) status = play(r, second);
    free_replay(r);
    return status;
}

terse_status ts_replay_run(const ts_cluster_spec *spec, const ts_cluster_result *run, ts_cluster_result *out,
                           char *complaint, size_t capacity) {
    return replay_runs(spec, run, 0, NULL, out, complaint, capacity);
}

terse_status ts_replay_resumed(const ts_cluster_spec *spec, const ts_cluster_result *first, uint64_t cut,
                               const ts_cluster_result *second, ts_cluster_result *out, char *complaint, size_t capacity) {
    return replay_runs(spec, first, cut, second, out, complaint, capacity);
}
