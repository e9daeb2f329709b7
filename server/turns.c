/* SPDX-License-Identifier: Apache-2.0 */
#include "server/turns.h"

#include "server/job.h"
#include "server/stats.h"

static uint64_t start_of(const ts_server *server, const ts_job *job) {
    return job->turn > server->turn ? job->turn : server->turn;
}

/* The job with the lowest tag of those that have work; of equal ones the lowest number. */
static ts_job *next(const ts_server *server) {
    ts_job *best = NULL;
    for (uint32_t j = 0; j < server->job_count; j++) {
        ts_job *job = server->jobs[j];
        if (job->state != TS_JOB_RUNNING || !ts_rounds_ready(job) || ts_stats_due(job)) continue;
        if (!best || start_of(server, job) < start_of(server, best)) best = job;
    }
    return best;
}

void ts_turns_take(ts_server *server) {
    ts_job *job;
    while (server->running < server->executor->threads && (job = next(server))) {
        server->turn = start_of(server, job);
        job->turn = server->turn;
        job->turn += ts_rounds_submit(job); /* after the tag is set: inline work is over by now */
    }
}
