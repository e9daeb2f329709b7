/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated worker: what its thread does, step by step, with the client's core. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/cluster_parts.h"
#include "worker/terse.h"

#define NEAR_BYTES 500u /* of spec.large: some slices */

/* A call came to nothing. What has failed, for which there may be a reason, is looked at by drive. */
static void note_refusal(cluster *c, uint32_t w) {
    const ts_client *client = c->workers[w].client;
    if (ts_client_get_state(client) != TS_CLIENT_FAILED) ts_cluster_note_failure(c, "worker", w, ts_client_message(client));
}

static void note_holdings(cluster *c, uint32_t w) {
    const ts_contract *contract = ts_client_contract(c->workers[w].client);
    for (uint32_t s = 0; s < contract->slice_count; s++)
        ts_cluster_note_event(c, &(ts_cluster_event){.kind = TS_CLUSTER_HOLDS, .worker = w, .slice = s,
                                          .version = ts_client_slice_version(c->workers[w].client, s)});
}

/* A worker begins a step: how far ahead of the slowest that still has something to push. */
static void note_lead(cluster *c, uint32_t w) {
    for (uint32_t v = 0; v < c->spec->network.workers; v++) {
        uint64_t pushed = c->workers[v].pushed, step = c->workers[w].step;
        if (c->workers[v].job != c->workers[w].job || c->workers[v].dead) continue;
        if (pushed < c->spec->steps[v] && step > pushed && step - pushed > c->result->lead) c->result->lead = step - pushed;
    }
}

/* How long a step's computing takes: something up to the worker's own most. */
static uint64_t think_us(const cluster *c, uint32_t w) {
    if (!c->spec->think_us[w]) return 0;
    ts_random random = ts_random_start(ts_random_key(c->spec->network.seed, c->workers[w].step, 0, 0, 500 + w));
    return ts_random_below(&random, (uint32_t)c->spec->think_us[w]);
}


void ts_cluster_start_worker(cluster *c, uint32_t w) {
    worker *me = &c->workers[w];
    c->worker_contexts[w] = (listener){c, w};
    if (c->spec->away_us) ts_client_set_lock(me->client, NULL, ts_cluster_go_on, &c->worker_contexts[w]);
    if (c->spec->large) {
        ts_client_set_large(me->client, 1);
        ts_client_set_pause(me->client, ts_cluster_pause, &c->worker_contexts[w]);
        ts_sim_endpoint(c->network, me->peer)->near_bytes = NEAR_BYTES;
    }
    for (uint32_t t = me->first; t < TS_CLUSTER_TENSORS; t++) {
        const ts_cluster_tensor *tensor = &ts_cluster_tensors[t];
        for (size_t i = 0; i < tensor->n; i++) {
            /* only worker 0's values count: the others must be made equal */
            c->result->replica[w][t][i] = ts_cluster_initial(t, i) + (me->index ? 1.0f : 0.0f);
        }
        uint32_t id;
        terse_status status = ts_client_declare(me->client, tensor->name, tensor->shape, tensor->ndim,
                                                c->result->replica[w][t], &id);
        if (status != TERSE_OK || id != t - me->first) ts_cluster_note_failure(c, "worker", w, "declare failed");
    }
    if (c->spec->total_steps && ts_client_set_total_steps(me->client, c->spec->total_steps) != TERSE_OK)
        ts_cluster_note_failure(c, "worker", w, "its steps were refused");
    if (ts_client_start(me->client) != TERSE_OK) ts_cluster_note_failure(c, "worker", w, ts_client_message(me->client));
}

static bool chosen(const cluster *c, uint32_t t) { return c->spec->pull_every > 1 && t % 2 == 0; }

/* Pushes the gradient. The event stands before whatever came of the push while that was encoded. */
static terse_status push(cluster *c, uint32_t w, uint32_t t) {
    worker *me = &c->workers[w];
    ts_cluster_event event = {.kind = TS_CLUSTER_PUSHED, .worker = w, .tensor = t, .local = me->resting ? TS_CLUSTER_REST : me->step};
    ts_cluster_result *to = c->result;
    size_t place = to->event_count;
    ts_cluster_note_event(c, &event);
    terse_status status = me->resting      ? ts_client_push_rest(me->client, t - me->first)
                          : c->spec->large ? ts_client_push_lent(me->client, t - me->first, me->gradient[t])
                                           : ts_client_push(me->client, t - me->first, me->gradient[t]);
    to->lent += status == TERSE_OK && ts_client_has_lent(me->client);
    to->torn[w] = to->torn[w] || ts_client_get_state(me->client) == TS_CLIENT_FAILED;
    if (place == to->event_count) return status;
    to->events[place].step = ts_client_tensor_step(me->client, t - me->first);
    if (status == TERSE_OK) return status;
    to->event_count--;
    memmove(&to->events[place], &to->events[place + 1], (to->event_count - place) * sizeof *to->events);
    return status;
}

/* Pushes every tensor of the step that can be pushed now; returns whether all are out. */
static bool push_step(cluster *c, uint32_t w) {
    worker *me = &c->workers[w];
    if (me->next_push == 0 && me->ready_us == 0) me->ready_us = ts_sim_now_us(c->network) + think_us(c, w);
    if (ts_sim_now_us(c->network) < me->ready_us) return false;
    if (me->next_push == 0) note_lead(c, w);
    while (me->next_push + me->first < TS_CLUSTER_TENSORS) {
        uint32_t t = me->first + me->next_push;
        for (size_t i = 0; i < ts_cluster_tensors[t].n; i++) {
            me->gradient[t][i] = ts_cluster_gradient(t, i, c->result->replica[w][t][i], me->index, me->step);
        }
        if (c->spec->large) ts_client_step_reaches(me->client, t - me->first + 1);
        terse_status status = push(c, w, t);
        if (status == TERSE_EAGAIN) return false;
        if (status != TERSE_OK) {
            note_refusal(c, w);
            return false;
        }
        me->next_push++;
    }
    me->next_push = 0;
    me->resting = false;
    me->pushed++;
    ts_client_step_reaches(me->client, 0);
    for (uint32_t t = me->first; t < TS_CLUSTER_TENSORS; t++) {
        if (chosen(c, t) && (me->step + 1) % c->spec->pull_every) continue;
        if (ts_client_pull(me->client, t - me->first) != TERSE_OK) note_refusal(c, w);
    }
    ts_client_flush(me->client);
    me->ready_us = 0;
    return true;
}

static bool all_pulled(worker *me) {
    bool all = true;
    for (uint32_t t = me->first; t < TS_CLUSTER_TENSORS; t++) all = ts_client_pulled(me->client, t - me->first) && all;
    return all;
}

/* A job's worker 0 asks for the servers' parameters, and their hash, once every worker of it has said done. */
static bool fetch_all(cluster *c, worker *me) {
    if (!me->asked) {
        for (uint32_t w = 0; w < c->spec->network.workers; w++) {
            bool gone = c->workers[w].dead && !c->workers[w].back_us;
            if (c->workers[w].job == me->job && c->workers[w].phase < FETCHING && !gone) return false;
        }
        for (uint32_t t = me->first; t < TS_CLUSTER_TENSORS && me->job == 0; t++) {
            if (ts_client_fetch(me->client, t - me->first, c->result->fetched[t]) != TERSE_OK) return false;
        }
        if (ts_client_request_stats(me->client) != TERSE_OK) return false;
        me->asked = true;
    }
    for (uint32_t t = me->first; t < TS_CLUSTER_TENSORS && me->job == 0; t++) {
        if (!ts_client_fetched(me->client, t - me->first)) return false;
    }
    terse_stats stats;
    if (!ts_client_stats(me->client, &stats)) return false;
    if (me->job == 0) memcpy(c->result->xxh3, stats.parameters_xxh3, sizeof c->result->xxh3);
    memcpy(c->result->job[me->job].xxh3, stats.parameters_xxh3, sizeof c->result->xxh3);
    return true;
}

static void leave(cluster *c, uint32_t w) {
    for (uint32_t t = c->workers[w].first; t < TS_CLUSTER_TENSORS; t++) {
        const float *residual = ts_client_residual(c->workers[w].client, t - c->workers[w].first);
        if (residual) memcpy(c->result->residual[w][t], residual, ts_cluster_tensors[t].n * sizeof(float));
    }
    c->result->alone += ts_client_sends_large(c->workers[w].client);
    ts_client_destroy(c->workers[w].client);
    c->workers[w].client = NULL;
    c->workers[w].phase = GONE;
}

/* The step is over, one way or the other: its gradients are other numbers from here on. */
static void recall(cluster *c, uint32_t w) {
    worker *me = &c->workers[w];
    if (!c->spec->large) return;
    ts_client_step_reaches(me->client, 0);
    if (ts_client_lent_under_way(me->client)) ts_cluster_note_failure(c, "worker", w, "a lent gradient is still under way");
    if (ts_client_recall(me->client) != TERSE_OK) note_refusal(c, w);
    for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++)
        for (size_t i = 0; i < ts_cluster_tensors[t].n; i++) me->gradient[t][i] = NAN;
}

/* Whether the worker is past the barrier in front of its next step, or of the end. */
static bool met(cluster *c, uint32_t w) {
    worker *me = &c->workers[w];
    bool last = me->step == c->spec->steps[w];
    if (last && me->past_barrier) return true;
    double term = (double)(w + 1), want = 0;
    if (last ? !c->spec->barrier : c->spec->sum_every == 0 || me->step % c->spec->sum_every || me->sums > me->step / c->spec->sum_every)
        return true;
    if (me->sum == 0 && ts_client_reduce(me->client, &term, 1, &me->sum) != TERSE_OK)
        note_refusal(c, w);
    if (!ts_client_reduced(me->client, me->sum, &term, 1)) return false;
    for (uint32_t v = 0; v < c->spec->network.workers; v++) want += v + 1;
    if (term != want && c->spec->sum_every) ts_cluster_note_failure(c, "worker", w, "a sum over all workers is wrong");
    if (!last) me->sum = 0;
    me->past_barrier = last;
    me->sums++;
    return true;
}

/* The first of a job's workers that lives. */
static uint32_t fetcher(const cluster *c, uint32_t job) {
    uint32_t w = 0;
    while (w + 1 < c->spec->network.workers && (c->workers[w].job != job || c->workers[w].dead)) w++;
    return w;
}

/* Whether it came back too late: the others have finished, and say so, or the servers have left, and say nothing. */
static bool missed_the_end(const cluster *c, uint32_t w) {
    const char *message = ts_client_message(c->workers[w].client);
    bool left = true;
    for (uint32_t s = 0; s < c->spec->network.servers; s++) left = left && (c->dead[s] || ts_server_get_state(c->servers[s]) == TS_SERVER_FINISHED);
    return ts_cluster_is_missed(c->spec, w) && (strstr(message, "ended without this worker") || strstr(message, "the training is at its end") ||
                                                     (left && strstr(message, "silent")));
}

/* It goes on elsewhere, and some of its packets are its own again. */
static void note_return(cluster *c, uint32_t w) {
    worker *me = &c->workers[w];
    uint64_t step;
    if (me->returns == ts_client_returns(me->client)) return;
    me->returns = ts_client_returns(me->client);
    recall(c, w);
    for (uint32_t s = 0; s < ts_client_contract(me->client)->slice_count; s++)
        if (ts_client_gives_back(me->client, s, &step))
            ts_cluster_note_event(c, &(ts_cluster_event){.kind = TS_CLUSTER_GIVEN_BACK, .worker = w, .slice = s, .step = step});
    ts_cluster_note_event(c, &(ts_cluster_event){.kind = TS_CLUSTER_BACK, .worker = w});
    if (c->result->returns++ == 0) c->result->first_return_us = ts_sim_now_us(c->network);
    bool summing = me->sum && !ts_client_reduced(me->client, me->sum, &(double){0}, 1); /* its call goes on */
    if (!summing) ts_client_set_sums(me->client, me->sum = 0); /* the only one is after the last step */
    note_holdings(c, w);
    me->step = me->pushed = ts_client_step(me->client);
    me->next_push = 0;
    me->resting = false;
    me->ready_us = 0;
    me->phase = PUSHING;
    if (me->step > c->spec->steps[w]) me->step = c->spec->steps[w]; /* nothing is left to do */
}

/* What was refused is its own again when it leaves. Returns whether it is done. */
static bool be_done(cluster *c, uint32_t w) {
    ts_client *client = c->workers[w].client;
    uint64_t step[SLICES_MOST] = {0};
    bool back[SLICES_MOST] = {false};
    uint32_t slices = ts_client_contract(client)->slice_count;
    for (uint32_t s = 0; s < slices && s < SLICES_MOST; s++) back[s] = ts_client_gives_back(client, s, &step[s]);
    terse_status status = ts_client_done(client);
    if (status == TERSE_EAGAIN) return false;
    if (status != TERSE_OK) note_refusal(c, w);
    for (uint32_t s = 0; s < slices && s < SLICES_MOST; s++)
        if (back[s]) ts_cluster_note_event(c, &(ts_cluster_event){.kind = TS_CLUSTER_TAKEN_BACK, .worker = w, .slice = s, .step = step[s]});
    return true;
}

void ts_cluster_drive(cluster *c, uint32_t w) {
    worker *me = &c->workers[w];
    if (me->phase == GONE || c->workers[w].dead || ts_cluster_sleeps(c, w)) return;
    ts_client_state state = ts_client_get_state(me->client);
    if (state == TS_CLIENT_FAILED && missed_the_end(c, w)) {
        c->result->missed[w] = true;
        c->result->absent[w] = c->spec->comes_anew;
        leave(c, w);
        return;
    }
    if (state == TS_CLIENT_FAILED) {
        ts_cluster_note_failure(c, "worker", w, ts_client_message(me->client));
        leave(c, w);
        return;
    }
    if (state == TS_CLIENT_ATTACHING || state == TS_CLIENT_LEAVING) ts_client_come_back_due(me->client); /* given up meanwhile */
    if (ts_client_get_state(me->client) == TS_CLIENT_ATTACHING) return;
    if (me->phase == ATTACHING && state == TS_CLIENT_TRAINING) {
        if (ts_client_resume(me->client) != TERSE_OK) return; /* it has failed */
        me->step = me->pushed = ts_client_resumed(me->client);
        me->phase = PUSHING;
        note_holdings(c, w);
        for (uint32_t t = me->first; t < TS_CLUSTER_TENSORS; t++)
            if (chosen(c, t) && ts_client_prefetch(me->client, t - me->first, false) != TERSE_OK)
                note_refusal(c, w);
    }
    for (;;) {
        if (ts_client_get_state(me->client) == TS_CLIENT_FAILED) return; /* meanwhile; it is judged next time */
        note_return(c, w);
        if (me->phase != PUSHING) ts_client_cut_due(me->client); /* as a user's thread does that waits */
        if (me->phase == PUSHING && !met(c, w)) return;
        bool over = me->phase == PUSHING && me->step >= c->spec->steps[w];
        if (over && !me->resting) me->resting = ts_client_rest_due(me->client);
        if (over && !me->resting) {
            if (!be_done(c, w)) return; /* first it comes back */
            me->phase = FETCHING;
        } else if (me->phase == PUSHING && push_step(c, w)) {
            me->phase = PULLING;
        } else if (me->phase == PULLING && all_pulled(me)) {
            if (me->returns != ts_client_returns(me->client)) continue;
            recall(c, w);
            note_holdings(c, w);
            me->step++;
            me->phase = PUSHING;
        } else if (me->phase == FETCHING && ts_client_get_state(me->client) == TS_CLIENT_DONE &&
                   (w != fetcher(c, me->job) || fetch_all(c, me))) {
            me->phase = LEAVING;
        } else if (me->phase == LEAVING && !ts_client_checkpoint_pending(me->client)) {
            leave(c, w);
            return;
        } else {
            return;
        }
    }
}
