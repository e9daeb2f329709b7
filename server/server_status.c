/* SPDX-License-Identifier: Apache-2.0 */
#include "server/server_status.h"

#include <jansson.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/text.h"
#include "server/job.h"
#include "server/server_memory.h"
#include "server/worker_place.h"

#define ENDED_SHOWN 16u

static const char *const server_states[] = {"running", "finished", "failed"};
static const char *const job_states[] = {"running", "finished", "failed"};

/* Whatever bytes it has. NULL: no memory. */
static json_t *text_of(const char *text) {
    char plain[4096];
    return json_string(ts_text_plain(text, plain, sizeof plain));
}

static double seconds_since(const ts_job *job, uint64_t us) {
    return us > 0 ? (double)(ts_server_now(job->server) - us) / 1e6 : 0;
}

/* Workers that are lost, each with the command that brings it back. */
static json_t *lost_list(const ts_job *job) {
    json_t *list = json_array();
    for (uint32_t w = 0; list && job->state == TS_JOB_RUNNING && w < job->members.count; w++) {
        const ts_member *member = &job->members.members[w];
        char command[2048];
        if (!member->lost || member->unborn) continue;
        ts_place_command(job, w, command, sizeof command);
        json_t *one = json_pack("{s:I, s:o, s:f, s:b, s:o}", "worker", (json_int_t)w, "name", text_of(ts_job_worker_name(job, w)),
                                "for_s", seconds_since(job, member->lost_us), "coming", member->coming, "bring_back",
                                text_of(command));
        if (one && json_array_append_new(list, one) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

/* How much longer a job without workers is kept. */
static double kept_s(const ts_job *job) {
    double left_s = job->server->config->daemon.orphan_s - seconds_since(job, job->orphaned_us);
    return left_s > 0 ? left_s : 0; /* somebody is just coming */
}

static json_t *job_object(const ts_job *job) {
    char waiting[512] = "";
    bool orphaned = job->state == TS_JOB_RUNNING && job->orphaned_us > 0;
    if (job->state == TS_JOB_RUNNING) ts_job_waiting(job, waiting, sizeof waiting);
    return json_pack("{s:b, s:f, s:o, s:I, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "orphaned", orphaned, "orphan_s",
                     orphaned ? kept_s(job) : 0.0, "lost",
                     lost_list(job), "number", (json_int_t)job->id, "name", text_of(job->name),
                     "state", job_states[job->state], "workers", (json_int_t)ts_membership_workers(&job->members), "attached",
                     (json_int_t)job->members.attached, "done", (json_int_t)ts_membership_finished(&job->members), "gone",
                     (json_int_t)ts_membership_away(&job->members), "step", (json_int_t)(job->released ? job->rounds_done : ts_store_version(&job->store)),
                     "waiting", text_of(waiting), "message", text_of(job->message.text));
}

/* Those that run, and the last that have ended; a number that no job came for is no job. */
static json_t *job_list(const ts_server *server) {
    json_t *list = json_array();
    uint32_t ended = 0, running = 0;
    for (uint32_t j = 0; j < server->job_count; j++) running += server->jobs[j]->state == TS_JOB_RUNNING;
    uint32_t skip = server->job_count - running > ENDED_SHOWN ? server->job_count - running - ENDED_SHOWN : 0;
    for (uint32_t j = 0; list && j < server->job_count; j++) {
        const ts_job *job = server->jobs[j];
        if (job->members.count == 0 || (job->state != TS_JOB_RUNNING && ended++ < skip)) continue;
        json_t *object = job_object(job);
        if (object && json_array_append_new(list, object) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

/* Servers that the others have gone on without. */
static json_t *dead_list(const ts_server *server) {
    json_t *list = json_array();
    for (uint32_t s = 0; list && s < server->transport->servers; s++)
        if (ts_replica_is_dead(server, s)) json_array_append_new(list, json_integer(s));
    return list;
}

terse_status ts_server_status(const ts_server *server, bool draining, char **text, size_t *bytes) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const char *state = server->state == TS_SERVER_RUNNING && draining ? "draining" : server_states[server->state];
    ts_server_memory memory = ts_server_memory_of(server);
    ts_error reason = {""};
    bool whole = server->message.text[0] || ts_replica_whole(server, &reason) == TERSE_OK;
    json_t *root = json_pack("{s:s, s:I, s:f, s:I, s:I, s:o, s:s, s:o, s:I, s:o}", "version", TS_VERSION, "pid", (json_int_t)getpid(),
                             "time", (double)now.tv_sec + (double)now.tv_nsec * 1e-9, "server", (json_int_t)server->index,
                             "servers", (json_int_t)server->transport->servers, "dead", dead_list(server), "state", state, "message",
                             text_of(whole ? server->message.text : reason.text),
                             "memory_bytes", (json_int_t)memory.resident, "jobs", job_list(server));
    TS_REQUIRE(root, TERSE_ENOMEM);
    char *dump = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(root);
    TS_REQUIRE(dump, TERSE_ENOMEM);
    size_t len = strlen(dump);
    dump[len] = '\n'; /* where the 0 stood: its length is told */
    *text = dump;
    *bytes = len + 1;
    return TERSE_OK;
}
