/* SPDX-License-Identifier: Apache-2.0 */
#include "server/turns.h"

#include "server/job.h"
#include "server/stats.h"

static uint64_t start_of(const ts_job *job) {
    return job->turn > job->server->turn ? job->turn : job->server->turn;
}

static bool has_work(const ts_job *job) {
    const ts_job *own = job->own ? job->own : job;
    return own->state == TS_JOB_RUNNING && ts_rounds_ready(job) && !ts_stats_due(job);
}

/* Virtual time: of the jobs that have work, waiting or under way. Never goes back. */
static void move_time(ts_server *server) {
    uint64_t lowest = UINT64_MAX;
    for (uint32_t i = 0; i < 2 * server->job_count; i++) {
        const ts_job *job = ts_server_part(server, i);
        if (job && (job->rounds.running > 0 || has_work(job)) && start_of(job) < lowest) lowest = start_of(job);
    }
    if (lowest != UINT64_MAX) server->turn = lowest;
}

/* Whose next work would end first, if it is like the last one; of equal ones the lowest number. */
static ts_job *next(const ts_server *server) {
    ts_job *best = NULL;
    for (uint32_t i = 0; i < 2 * server->job_count; i++) {
        ts_job *job = ts_server_part(server, i);
        if (job && has_work(job) && (!best || start_of(job) + job->last_work < start_of(best) + best->last_work)) best = job;
    }
    return best;
}

void ts_turns_take(ts_server *server) {
    ts_job *job;
    while (server->running < server->executor->threads && (job = next(server))) {
        move_time(server);
        job->turn = start_of(job);
        job->last_work = ts_rounds_submit(job);
        job->turn += job->last_work;
    }
}
