/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/cluster_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "server/server.h"
#include "worker/terse.h"

void ts_cluster_note_failure(cluster *c, const char *who, uint32_t index, const char *message) {
    if (strcmp(who, "worker") == 0) {
        char *job = c->result->job[c->workers[index].job].message;
        if (!job[0]) snprintf(job, sizeof c->result->job[0].message, "%s", message);
    }
    if (c->result->message[0]) return;
    snprintf(c->result->message, sizeof c->result->message, "%s %u: %s", who, index, message);
}

/* A call came to nothing. What has failed, for which there may be a reason, is looked at by drive. */
static void note_refusal(cluster *c, uint32_t w) {
    const ts_client *client = c->workers[w].client;
    if (ts_client_get_state(client) != TS_CLIENT_FAILED) ts_cluster_note_failure(c, "worker", w, ts_client_message(client));
}

void ts_cluster_note_event(cluster *c, const ts_cluster_event *event) {
    ts_cluster_result *to = c->result;
    if (!c->spec->records) return;
    if (to->event_count == to->event_room) {
        size_t room = to->event_room ? to->event_room * 2 : 4096;
        ts_cluster_event *grown = ts_mem_realloc(to->events, room, sizeof *grown);
        if (!grown) return; /* the replay then complains */
        to->events = grown;
        to->event_room = room;
    }
    to->events[to->event_count++] = *event;
}

static void on_receipt(void *context, const ts_receipt *receipt) {
    const listener *from = context;
    ts_cluster_note_event(from->cluster, &(ts_cluster_event){.kind = TS_CLUSTER_RECEIPT, .server = from->member, .receipt = *receipt});
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

static void go_on(void *context);

void ts_cluster_start_worker(cluster *c, uint32_t w) {
    worker *me = &c->workers[w];
    c->worker_contexts[w] = (listener){c, w};
    if (c->spec->away_us) ts_client_set_lock(me->client, NULL, go_on, &c->worker_contexts[w]);
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
    terse_status status = me->resting ? ts_client_push_rest(me->client, t - me->first)
                                      : ts_client_push(me->client, t - me->first, c->gradient);
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
            c->gradient[i] = ts_cluster_gradient(t, i, c->result->replica[w][t][i], me->index, me->step);
        }
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
    ts_client_destroy(c->workers[w].client);
    c->workers[w].client = NULL;
    c->workers[w].phase = GONE;
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

static void drive(cluster *c, uint32_t w) {
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

static bool everybody_ended(cluster *c, bool *finished) {
    bool ended = true, good = true;
    for (uint32_t s = 0; s < c->spec->network.servers; s++) {
        if (c->dead[s]) continue;
        ts_server_state state = ts_server_get_state(c->servers[s]);
        ended = ended && state != TS_SERVER_RUNNING;
        good = good && state == TS_SERVER_FINISHED;
        if (state == TS_SERVER_FAILED) ts_cluster_note_failure(c, "server", s, ts_server_message(c->servers[s]));
    }
    for (uint32_t w = 0; w < c->spec->network.workers; w++) {
        ended = ended && (c->workers[w].phase == GONE || (c->workers[w].dead && !c->workers[w].back_us));
    }
    for (uint32_t j = 0; j < TS_SIM_JOBS; j++) {
        bool done = c->result->job[j].message[0] == 0;
        for (uint32_t w = 0; w < c->spec->network.workers; w++) done = done && (c->workers[w].job != j || c->workers[w].phase == GONE);
        if (done && !c->result->job[j].done) c->result->job[j].took_us = ts_sim_now_us(c->network);
        c->result->job[j].done = done;
    }
    *finished = ended && good && c->result->message[0] == 0;
    return ended;
}

static void deliver(cluster *c, uint32_t peer) {
    uint32_t servers = c->spec->network.servers, w = 0;
    if (peer < servers && (c->dead[peer] || ts_cluster_stopped(c, peer))) return;
    while (w < c->spec->network.workers && (c->workers[w].peer != peer || c->workers[w].dead)) w++;
    if (peer >= servers && (w == c->spec->network.workers || !c->workers[w].client || ts_cluster_sleeps(c, w))) return;
    ts_transport *endpoint = ts_sim_endpoint(c->network, peer);
    while (endpoint->ops->poll(endpoint)) continue;
    if (peer < servers) ts_server_flush(c->servers[peer]);
    else if (!c->is_away) drive(c, w);
}

static void tick(cluster *c) {
    for (uint32_t s = 0; s < c->spec->network.servers; s++) {
        if (c->dead[s] || ts_cluster_stopped(c, s)) continue;
        deliver(c, s); /* what came while it was stopped */
        ts_server_tick(c->servers[s]);
        ts_server_flush(c->servers[s]);
    }
    for (uint32_t w = 0; w < c->spec->network.workers; w++) {
        if (c->workers[w].client && !c->workers[w].dead && !ts_cluster_sleeps(c, w)) ts_client_tick(c->workers[w].client);
        drive(c, w);
    }
}

/* When something is next to be done that no frame brings. */
static uint64_t next_work(const cluster *c, uint64_t tick_us) {
    uint64_t next = tick_us;
    for (uint32_t s = 0; s < c->spec->network.servers && c->spec->pool_threads; s++)
        if (!ts_cluster_stopped(c, s) && timed_pool_next(&c->pools[s]) < next) next = timed_pool_next(&c->pools[s]);
    return next;
}

static void run_pools(cluster *c) {
    for (uint32_t s = 0; s < c->spec->network.servers && c->spec->pool_threads; s++) {
        if (ts_cluster_stopped(c, s)) continue;
        if (timed_pool_run(&c->pools[s], ts_sim_now_us(c->network)) && !c->dead[s]) ts_server_flush(c->servers[s]);
        c->result->longest_work_us = c->pools[s].longest_us;
    }
}

uint64_t ts_cluster_away_us(uint64_t seed) {
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 604));
    return ts_random_below(&random, 2) ? 1 + ts_random_below(&random, 50000) : 0;
}

/* A worker's thread encodes or decodes without its lock: servers work, and what comes to workers, to this one too, is taken in. */
static void go_on(void *context) {
    const listener *from = context;
    cluster *c = from->cluster;
    uint32_t peer;
    if (c->is_away || ts_random_below(&c->away_random, 2)) return;
    c->is_away = true;
    uint64_t until = ts_sim_now_us(c->network) + ts_random_below(&c->away_random, (uint32_t)c->spec->away_us);
    for (;;) {
        bool delivered = ts_sim_step(c->network, next_work(c, until), &peer);
        run_pools(c);
        c->result->meanwhile += delivered;
        if (delivered) deliver(c, peer);
        else if (ts_sim_now_us(c->network) >= until) break;
    }
    if (!ts_cluster_sleeps(c, from->member)) ts_client_tick(c->workers[from->member].client);
    c->is_away = false;
}

static void run_until(cluster *c, uint64_t tick_us) {
    for (;;) {
        uint32_t peer;
        bool delivered = ts_sim_step(c->network, next_work(c, tick_us), &peer);
        run_pools(c); /* their clock, too, before anybody submits */
        ts_cluster_kill_due(c);
        ts_cluster_kill_servers(c);
        if (delivered) deliver(c, peer);
        else if (ts_sim_now_us(c->network) >= tick_us) return;
    }
}

/* The workers of the job that joins as the so-manieth of the late ones. */
static void begin_job(cluster *c, uint32_t joined) {
    const ts_transport *any = ts_sim_endpoint(c->network, c->spec->network.servers);
    for (uint32_t w = 0; w < c->spec->network.workers && c->spec->begins_at_join; w++)
        if (c->workers[w].job == any->job_count - c->spec->network.late_jobs + joined - 1) c->workers[w].back_us = ts_sim_now_us(c->network);
}

static void run_to_the_end(cluster *c) {
    uint64_t next_tick = TICK_US;
    bool finished = false;
    while (!everybody_ended(c, &finished) && ts_sim_now_us(c->network) < c->spec->limit_us) {
        run_until(c, next_tick);
        ts_cluster_kill_servers(c);
        ts_cluster_part_and_heal(c);
        if (c->joined < c->spec->network.late_jobs && ts_sim_now_us(c->network) >= c->spec->join_every_us * (c->joined + 1)) {
            if (ts_sim_join(c->network)) begin_job(c, ++c->joined);
        }
        ts_cluster_tell(c);
        tick(c);
        next_tick += TICK_US;
    }
    for (uint32_t s = 0; s < c->spec->network.servers && c->spec->pool_threads; s++) timed_pool_run(&c->pools[s], UINT64_MAX - 1);
    c->result->ended = everybody_ended(c, &finished);
    c->result->finished = finished;
    c->result->took_us = ts_sim_now_us(c->network);
    for (uint32_t s = 0; s < c->spec->network.servers && !c->result->ended; s++) {
        if (c->dead[s]) continue;
        char text[512];
        ts_server_waiting(c->servers[s], text, sizeof text);
        if (text[0]) ts_cluster_note_failure(c, "still running, server", s, text);
    }
    for (uint32_t w = 0; w < c->spec->network.workers && !c->result->ended; w++) {
        char text[512] = "";
        if (c->workers[w].client) ts_client_waiting(c->workers[w].client, text, sizeof text);
        if (text[0]) ts_cluster_note_failure(c, "still running, worker", w, text);
    }
}

static terse_status load_job(cluster *c, uint32_t job, ts_error *error) {
    const ts_cluster_spec *spec = c->spec;
    const char *all[64];
    unsigned count = 0;
    for (unsigned i = 0; i < spec->override_count && count < 64; i++) all[count++] = spec->overrides[i];
    for (unsigned i = 0; i < spec->job[job].override_count && count < 64; i++) all[count++] = spec->job[job].overrides[i];
    return ts_config_load("tests/sim/sim.yaml", all, count, &c->jobs[job], error);
}

static terse_status create_members(cluster *c, ts_error *error) {
    for (uint32_t s = 0; s < c->spec->network.servers; s++) {
        if (c->spec->work_most_us) timed_pool_start_random(&c->pools[s], c->spec->pool_threads, c->spec->work_most_us, c->spec->network.seed + s);
        else timed_pool_start(&c->pools[s], c->spec->pool_threads, c->spec->work_ns_a_byte);
        ts_executor *executor = c->spec->pool_threads ? &c->pools[s].executor : &ts_executor_inline;
        TS_TRY(ts_server_create(c->config, ts_sim_endpoint(c->network, s), executor, &c->servers[s]));
        c->server_contexts[s] = (listener){c, s};
        ts_server_set_receipts(c->servers[s], on_receipt, &c->server_contexts[s]);
        if (c->spec->comes_anew) ts_server_set_join_command(c->servers[s], "come");
    }
    for (uint32_t w = 0; w < c->spec->network.workers; w++) {
        worker *me = &c->workers[w];
        me->peer = c->spec->network.servers + w;
        ts_transport *endpoint = ts_sim_endpoint(c->network, me->peer);
        const ts_peer *self = &endpoint->peers[endpoint->self];
        me->index = w;
        me->dead = c->spec->come_us[w] > 0;
        me->back_us = c->spec->come_us[w];
        if (me->dead) continue;
        me->job = self->job;
        me->index = self->index;
        me->first = c->spec->job[self->job].first_tensor;
        if (!c->jobs[self->job]) TS_TRY(load_job(c, self->job, error));
        if (c->spec->begins_at_join && self->job + c->spec->network.late_jobs >= endpoint->job_count) {
            me->dead = true;
            me->back_us = UINT64_MAX;
            continue;
        }
        TS_TRY(ts_client_create(c->jobs[self->job], endpoint, &me->client));
        if (c->spec->samples[w]) ts_client_set_samples(me->client, c->spec->samples[w]);
        ts_cluster_start_worker(c, w);
    }
    return TERSE_OK;
}

terse_status ts_cluster_run(const ts_cluster_spec *spec, ts_cluster_result *out) {
    cluster *c = ts_mem_calloc(1, sizeof *c);
    if (!c) return TERSE_ENOMEM;
    ts_error error = {""};
    ts_log_level level = ts_log_get_level();
    if (!getenv("TERSE_SIM_LOG")) ts_log_set_level(TS_LOG_NONE); /* deaths are what these runs are about; the result tells them */
    c->spec = spec;
    c->result = out;
    c->away_random = ts_random_start(ts_random_key(spec->network.seed, 0, 0, 0, 603));
    terse_status status = ts_cluster_result_create(out, spec->network.workers);
    if (status == TERSE_OK)
        status = ts_config_load("tests/sim/sim.yaml", spec->overrides, spec->override_count, &c->config, &error);
    if (status == TERSE_OK) status = ts_sim_network_create(&spec->network, &c->network);
    if (status == TERSE_OK) status = create_members(c, &error);
    if (status == TERSE_OK) run_to_the_end(c);
    else snprintf(out->message, sizeof out->message, "set-up: %s", error.text);
    for (uint32_t w = 0; w < spec->network.workers; w++) {
        if (spec->comes_anew && c->workers[w].dead) out->absent[w] = true;
        ts_client_destroy(c->workers[w].client);
    }
    for (uint32_t s = 0; s < spec->network.servers; s++) ts_server_destroy(c->servers[s]);
    if (c->network) ts_sim_network_destroy(c->network);
    ts_config_free(c->config);
    for (uint32_t j = 0; j < TS_SIM_JOBS; j++) ts_config_free(c->jobs[j]);
    ts_mem_free(c);
    ts_log_set_level(level);
    return status;
}
