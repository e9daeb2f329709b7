/* SPDX-License-Identifier: Apache-2.0 */
#include "server/server.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "server/dispatch.h"
#include "server/flow.h"
#include "server/job.h"
#include "server/peer_link.h"
#include "server/turns.h"
#include "server/upstream.h"
#include "server/worker_place.h"

#define ABSENCE_US 500000u /* ticks come every 10 … 200 ms */

static void on_frame(void *context, uint32_t peer, ts_buffer *frame) { ts_dispatch_frame(context, peer, frame); }

static terse_status grow_links(ts_server *server) {
    uint32_t count = server->transport->peer_count;
    if (count == server->link_count) return TERSE_OK;
    ts_link *links = ts_mem_realloc(server->links, count, sizeof *links);
    TS_REQUIRE(links, TERSE_ENOMEM);
    server->links = links;
    for (uint32_t p = server->link_count; p < count; p++)
        links[p] = (ts_link){.last_heard_us = ts_server_now(server), .last_sent_us = ts_server_now(server)};
    server->link_count = count;
    return TERSE_OK;
}

/* The transport's jobs that are new. */
static terse_status add_jobs(ts_server *server) {
    uint32_t count = server->transport->job_count;
    TS_TRY(grow_links(server));
    if (count == server->job_count) return TERSE_OK;
    ts_job **jobs = ts_mem_realloc(server->jobs, count, sizeof(ts_job *));
    TS_REQUIRE(jobs, TERSE_ENOMEM);
    server->jobs = jobs;
    for (; server->job_count < count; server->running_jobs++) {
        uint32_t j = server->job_count;
        TS_TRY(ts_job_create(server, j, server->transport->jobs[j].workers, &jobs[j]));
        server->job_count++;
    }
    uint32_t limit = server->config->limits.jobs;
    while (server->running_jobs > limit && ts_place_end_orphan(server, "a new job needs its place (limits.jobs)")) continue;
    for (uint32_t j = 0; j < count && server->running_jobs > limit; j++) {
        ts_job *last = jobs[count - 1 - j]; /* who came first stays */
        if (last->state == TS_JOB_RUNNING)
            ts_job_fail(last, TERSE_ELIMIT, "job %s is one too many: limits.jobs of server %u is %u", last->name, server->index,
                        limit);
    }
    return TERSE_OK;
}

static void on_jobs(void *context) {
    ts_server *server = context;
    terse_status status = add_jobs(server);
    if (status != TERSE_OK)
        ts_server_fail(server, status, "server %u cannot take up a job: %s", server->index, terse_strerror(status));
}

static terse_status on_wish(void *context, const ts_transport_wish *wish, uint32_t count, ts_transport_place *place,
                            ts_error *reason) {
    return ts_place_wish(context, wish, count, place, reason);
}

static void on_workers(void *context, uint32_t first) {
    ts_server *server = context;
    terse_status status = grow_links(server);
    if (status == TERSE_OK) ts_place_workers(server, first);
    else ts_server_fail(server, status, "server %u cannot take up a worker: %s", server->index, terse_strerror(status));
}

static terse_status on_ask(void *context, ts_error *reason) { return ts_replica_whole(context, reason); }

static uint32_t who_leads(void *context, ts_dead_set *dead) {
    const ts_server *server = context;
    for (uint32_t s = 0; s < server->transport->servers && dead->count < server->watch.dead_count; s++)
        if (server->watch.dead[s]) ts_dead_set_add(dead, s);
    return ts_replica_host(server, 0);
}

static bool job_runs(void *context, uint32_t job) {
    const ts_server *server = context;
    return job < server->job_count && server->jobs[job]->state == TS_JOB_RUNNING;
}

void ts_server_set_join_command(ts_server *server, const char *command) {
    char *copy = ts_mem_strdup(command);
    if (!copy) return;
    ts_mem_free(server->join_command);
    server->join_command = copy;
}

void ts_server_end_orphans(ts_server *server, const char *reason) {
    while (ts_place_end_orphan(server, reason)) continue;
}

static terse_status take_secret(ts_server *server) {
    ts_error error = {""};
    terse_status status = ts_secret_load(server->config->auth.secret_file, &server->secret, &error);
    if (status != TERSE_OK)
        ts_log(TS_LOG_ERROR, "server", "the secret cannot be had", "reason=\"%s\"", error.text);
    return status;
}

/*
 * Without a server, and without replicas, no job can go on; with them see replica.c. A worker may have said goodbye, and
 * that may still be under way: see job.c.
 */
static void on_lost(void *context, uint32_t peer) {
    ts_server *server = context;
    if (peer >= server->link_count) return;
    if (server->links[peer].lost_us == 0) server->links[peer].lost_us = ts_server_now(server);
    if (server->transport->peers[peer].role == TS_ROLE_SERVER && !server->watch.on)
        ts_server_fail(server, TERSE_EPEER, "%s has ended: its part of the parameters is gone", ts_server_peer_name(server, peer));
}

terse_status ts_server_create(const ts_config *config, ts_transport *transport, ts_executor *executor,
                              ts_server **out) {
    ts_server *server = ts_mem_calloc(1, sizeof *server);
    TS_REQUIRE(server, TERSE_ENOMEM);
    server->config = config;
    server->transport = transport;
    server->executor = executor;
    server->index = transport->peers[transport->self].index;
    server->last_tick_us = ts_server_now(server);
    terse_status status = config->auth.secret_file ? take_secret(server) : TERSE_OK;
    if (status == TERSE_OK) status = ts_replica_watch_create(server);
    if (status == TERSE_OK) status = add_jobs(server);
    if (status != TERSE_OK) {
        ts_server_destroy(server);
        return status;
    }
    transport->handler = (ts_transport_handler){.context = server, .on_frame = on_frame, .on_jobs = on_jobs,
                                                 .on_lost = on_lost, .on_wish = on_wish, .on_workers = on_workers,
                                                 .job_runs = job_runs, .on_ask = on_ask, .who_leads = who_leads};
    *out = server;
    return TERSE_OK;
}

void ts_server_destroy(ts_server *server) {
    if (!server) return;
    assert(ts_server_idle(server));
    if (server->transport->handler.context == server) server->transport->handler = (ts_transport_handler){0};
    for (uint32_t j = 0; j < server->job_count; j++) ts_job_destroy(server->jobs[j]);
    ts_mem_free(server->jobs);
    ts_mem_free(server->links);
    ts_mem_free(server->join_command);
    ts_secret_free(server->secret);
    ts_replica_watch_free(server);
    ts_mem_free(server);
}

void ts_server_set_stays(ts_server *server, bool stays) { server->stays = stays; }

bool ts_server_leads(const ts_server *server) { return ts_replica_leads(server); }

void ts_server_set_receipts(ts_server *server, void (*note)(void *context, const ts_receipt *receipt), void *context) {
    server->receipt = note;
    server->receipt_context = context;
}

void ts_server_flush(ts_server *server) {
    if (server->flushing) return; /* an inline executor's work is done inside */
    server->flushing = true;
    ts_job *job;
    for (bool again = true; again;) {
        again = false;
        for (uint32_t i = 0; i < 2 * server->job_count; i++)
            if ((job = ts_server_part(server, i))) ts_job_prepare(job);
        ts_turns_take(server);
        for (uint32_t i = 0; i < 2 * server->job_count; i++)
            if ((job = ts_server_part(server, i)) && ts_job_send(job)) again = true;
    }
    for (uint32_t i = 0; i < 2 * server->job_count; i++)
        if ((job = ts_server_part(server, i))) {
            ts_job_reply(job);
            ts_flow_pace(job);
        }
    server->flushing = false;
}

/* Nobody can be heard while this process is stopped or starved: such a gap is our own silence, not the peers'. */
static void forgive_absence(ts_server *server) {
    uint64_t now_us = ts_server_now(server), gap_us = now_us - server->last_tick_us;
    server->last_tick_us = now_us;
    if (gap_us < ABSENCE_US) return;
    for (uint32_t p = 0; p < server->link_count; p++) {
        uint64_t heard_us = server->links[p].last_heard_us + gap_us;
        server->links[p].last_heard_us = heard_us < now_us ? heard_us : now_us;
    }
}

void ts_server_tick(ts_server *server) {
    forgive_absence(server);
    ts_replica_watch_tick(server);
    for (uint32_t j = 0; j < server->job_count; j++) ts_job_tick(server->jobs[j]);
    ts_server_flush(server);
}

static void end(ts_server *server, terse_status failure, const char *message) {
    if (server->state != TS_SERVER_RUNNING) return;
    server->state = failure == TERSE_OK ? TS_SERVER_FINISHED : TS_SERVER_FAILED;
    server->failure = failure;
    snprintf(server->message.text, sizeof server->message.text, "%s", message);
}

void ts_server_job_ended(ts_server *server, const ts_job *job) {
    if (job->state == TS_JOB_FAILED && server->job_failure == TERSE_OK) {
        server->job_failure = job->failure;
        server->job_message = job->message;
    }
    if (server->running_jobs == 0 && !server->stays) end(server, server->job_failure, server->job_message.text);
}

void ts_server_fail(ts_server *server, terse_status status, const char *format, ...) {
    ts_error message;
    if (server->state != TS_SERVER_RUNNING) return;
    va_list args;
    va_start(args, format);
    ts_error_write(&message, format, args);
    va_end(args);
    server->stays = true; /* until all know */
    for (uint32_t j = 0; j < server->job_count; j++) ts_job_fail(server->jobs[j], status, "%s", message.text);
    end(server, status, message.text);
}

void ts_server_give_up(ts_server *server, terse_status status, const char *format, ...) {
    ts_error message;
    if (server->state != TS_SERVER_RUNNING) return;
    va_list args;
    va_start(args, format);
    ts_error_write(&message, format, args);
    va_end(args);
    ts_log(TS_LOG_ERROR, "server", "this server ends", "status=%s reason=\"%s\"", terse_status_name(status), message.text);
    server->stays = true; /* until none runs */
    for (uint32_t j = 0; j < server->job_count; j++) ts_job_give_up(server->jobs[j], status, "%s", message.text);
    end(server, status, message.text);
}

void ts_server_stop(ts_server *server, const char *reason) {
    ts_server_fail(server, TERSE_ESHUTDOWN, "server %u was told to stop: %s", server->index, reason);
}

void ts_server_drain(ts_server *server, const char *reason) {
    bool waits = false;
    for (uint32_t j = 0; j < server->job_count && !server->draining; j++) {
        ts_job *job = server->jobs[j];
        if (job->state != TS_JOB_RUNNING) continue;
        if (ts_checkpoint_request(job, reason)) waits = true;
        else ts_job_fail(job, TERSE_ESHUTDOWN, "server %u was told to stop: %s", server->index, reason);
    }
    server->draining = true;
    server->stays = false; /* it ends with its last job */
    if (!waits) ts_server_stop(server, reason);
}

bool ts_server_checkpoint(ts_server *server) {
    bool waits = false;
    for (uint32_t j = 0; j < server->job_count && server->state == TS_SERVER_RUNNING; j++)
        waits = ts_checkpoint_request(server->jobs[j], NULL) || waits;
    return waits;
}

const char *ts_server_last_checkpoint(const ts_server *server) { return server->last_checkpoint; }
uint32_t ts_server_jobs_running(const ts_server *server) { return server->running_jobs; }

ts_server_state ts_server_get_state(const ts_server *server) { return server->state; }
terse_status ts_server_failure(const ts_server *server) { return server->failure; }
const char *ts_server_message(const ts_server *server) { return server->message.text; }

bool ts_server_idle(const ts_server *server) {
    for (uint32_t j = 0; j < server->job_count; j++)
        if (!ts_job_idle(server->jobs[j])) return false;
    return true;
}

void ts_server_waiting(const ts_server *server, char *text, size_t capacity) {
    size_t at = 0;
    if (capacity > 0) text[0] = '\0';
    for (uint32_t j = 0; j < server->job_count && at < capacity; j++) {
        char one[512];
        ts_job_waiting(server->jobs[j], one, sizeof one);
        if (!one[0]) continue;
        int wrote = server->job_count == 1 ? snprintf(text, capacity, "%s", one)
                                           : snprintf(text + at, capacity - at, "%sjob %s: %s", at ? "; " : "",
                                                      server->jobs[j]->name, one);
        if (wrote > 0) at += (size_t)wrote;
    }
}
