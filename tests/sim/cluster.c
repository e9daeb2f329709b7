/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/cluster_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "server/server.h"

#define PAUSE_MOST_US 2000u

void ts_cluster_note_failure(cluster *c, const char *who, uint32_t index, const char *message) {
    if (strcmp(who, "worker") == 0) {
        char *job = c->result->job[c->workers[index].job].message;
        if (!job[0]) snprintf(job, sizeof c->result->job[0].message, "%s", message);
    }
    if (c->result->message[0]) return;
    snprintf(c->result->message, sizeof c->result->message, "%s %u: %s", who, index, message);
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
    else if (!c->is_away) ts_cluster_drive(c, w);
}

static void tick(cluster *c) {
    c->next_tick_us = ts_sim_now_us(c->network) + TICK_US;
    for (uint32_t s = 0; s < c->spec->network.servers; s++) {
        if (c->dead[s] || ts_cluster_stopped(c, s)) continue;
        deliver(c, s); /* what came while it was stopped */
        ts_server_tick(c->servers[s]);
        ts_server_flush(c->servers[s]);
    }
    for (uint32_t w = 0; w < c->spec->network.workers; w++) {
        if (c->workers[w].client && !c->workers[w].dead && !ts_cluster_sleeps(c, w)) ts_client_tick(c->workers[w].client);
        if (!c->is_away) ts_cluster_drive(c, w);
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

void ts_cluster_vary(ts_cluster_spec *spec, uint64_t seed) {
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 604));
    bool away = ts_random_below(&random, 2);
    spec->away_us = away ? 1 + ts_random_below(&random, 50000) : 0;
    spec->large = ts_random_below(&random, 2);
}

/*
 * A worker's thread encodes or decodes without its lock: servers work, and may die; what comes to workers, to this one too,
 * is taken in; everybody's timers go on.
 */
static void go_on_for(const listener *from, uint64_t us) {
    cluster *c = from->cluster;
    uint32_t peer;
    uint64_t until = ts_sim_now_us(c->network) + us;
    c->is_away = true;
    for (;;) {
        bool delivered = ts_sim_step(c->network, next_work(c, until < c->next_tick_us ? until : c->next_tick_us), &peer);
        run_pools(c);
        ts_cluster_kill_servers(c);
        c->result->meanwhile += delivered;
        if (delivered) deliver(c, peer);
        else if (ts_sim_now_us(c->network) >= until) break;
        else if (ts_sim_now_us(c->network) >= c->next_tick_us) tick(c);
    }
    if (!ts_cluster_sleeps(c, from->member)) ts_client_tick(c->workers[from->member].client);
    c->is_away = false;
}

void ts_cluster_go_on(void *context) {
    const listener *from = context;
    cluster *c = from->cluster;
    if (!c->is_away && !ts_random_below(&c->away_random, 2)) go_on_for(from, ts_random_below(&c->away_random, (uint32_t)c->spec->away_us));
}

void ts_cluster_pause(void *context) {
    const listener *from = context;
    go_on_for(from, 1 + ts_random_below(&from->cluster->away_random, PAUSE_MOST_US));
}

static void run_to_the_tick(cluster *c) {
    for (;;) {
        uint32_t peer;
        bool delivered = ts_sim_step(c->network, next_work(c, c->next_tick_us), &peer);
        run_pools(c); /* their clock, too, before anybody submits */
        ts_cluster_kill_due(c);
        ts_cluster_kill_servers(c);
        if (delivered) deliver(c, peer);
        else if (ts_sim_now_us(c->network) >= c->next_tick_us) return;
    }
}

/* The workers of the job that joins as the so-manieth of the late ones. */
static void begin_job(cluster *c, uint32_t joined) {
    const ts_transport *any = ts_sim_endpoint(c->network, c->spec->network.servers);
    for (uint32_t w = 0; w < c->spec->network.workers && c->spec->begins_at_join; w++)
        if (c->workers[w].job == any->job_count - c->spec->network.late_jobs + joined - 1) c->workers[w].back_us = ts_sim_now_us(c->network);
}

static void run_to_the_end(cluster *c) {
    bool finished = false;
    c->next_tick_us = TICK_US;
    while (!everybody_ended(c, &finished) && ts_sim_now_us(c->network) < c->spec->limit_us) {
        run_to_the_tick(c);
        ts_cluster_kill_servers(c);
        ts_cluster_part_and_heal(c);
        if (c->joined < c->spec->network.late_jobs && ts_sim_now_us(c->network) >= c->spec->join_every_us * (c->joined + 1)) {
            if (ts_sim_join(c->network)) begin_job(c, ++c->joined);
        }
        ts_cluster_tell(c);
        tick(c);
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
