/* SPDX-License-Identifier: Apache-2.0 */
/* Whom a job waits for, in words. */
#include <stdarg.h>

#include "server/job.h"
#include "server/upstream.h"

#define NAMES 4 /* more are only counted */

typedef struct {
    char *text;
    size_t at, capacity;
} words;

static void say(words *to, const char *format, ...) TERSE_PRINTF(2, 3);
static void say(words *to, const char *format, ...) {
    if (to->at >= to->capacity) return;
    va_list args;
    va_start(args, format);
    int wrote = vsnprintf(to->text + to->at, to->capacity - to->at, format, args);
    va_end(args);
    if (wrote > 0) to->at += (size_t)wrote;
}

typedef bool (*holds)(const ts_job *job, uint32_t worker, const ts_slice_state *slice);

static bool not_attached(const ts_job *job, uint32_t worker, const ts_slice_state *slice) {
    (void)slice;
    return job->members.members[worker].state == TS_MEMBER_EXPECTED;
}

static bool not_gone(const ts_job *job, uint32_t worker, const ts_slice_state *slice) {
    (void)slice;
    return job->members.members[worker].state != TS_MEMBER_GONE;
}

static bool not_delivered(const ts_job *job, uint32_t worker, const ts_slice_state *slice) {
    return job->consistency->misses(&job->members, slice, worker);
}

/* The names of all workers of which it holds. Returns how many. */
static uint32_t say_names(words *to, const ts_job *job, holds condition, const ts_slice_state *slice) {
    uint32_t found = 0;
    for (uint32_t w = 0; w < job->members.count; w++) {
        if (!condition(job, w, slice)) continue;
        if (found < NAMES) say(to, "%s%s", found ? ", " : "", ts_job_worker_name(job, w));
        found++;
    }
    if (found > NAMES) say(to, " and %u more", found - NAMES);
    return found;
}

/* The slice that is furthest behind and not at work. */
static const ts_slice_state *last_slice(const ts_job *job) {
    const ts_slice_state *last = NULL;
    for (uint32_t s = 0; s < job->store.count; s++) {
        const ts_slice_state *slice = &job->store.slices[s];
        if (slice->busy || slice->ready || slice->sending) continue;
        if (!last || slice->version < last->version) last = slice;
    }
    return last;
}

bool ts_job_misses(const ts_job *job, uint32_t worker, uint64_t *version) {
    bool found = false;
    if (!ts_job_initialised(job)) return false;
    for (uint32_t s = 0; s < job->store.count; s++) {
        const ts_slice_state *slice = &job->store.slices[s];
        if (!job->consistency->misses(&job->members, slice, worker)) continue;
        uint64_t step = ts_consistency_awaited(job->consistency, slice, worker);
        if (!found || step < *version) *version = step;
        found = true;
    }
    return found;
}

/* Whether some tensor's sum, or all first values, are with the servers above: then they are waited for. */
static bool above(words *to, const ts_job *job) {
    const ts_upstream *upstream = job->server->upstream;
    if (!upstream || !job->above.started) return false;
    bool waits = !ts_job_initialised(job) || (job->above.done && !upstream->ops->ended(upstream));
    for (uint32_t t = 0; t < job->contract->tensor_count && !waits; t++)
        waits = job->above.summed[t] == job->contract->tensors[t].slices;
    char whom[256];
    if (waits) upstream->ops->waiting(upstream, whom, sizeof whom);
    if (waits) say(to, "the servers above%s%s", whom[0] ? ", where it waits for " : "", whom);
    return waits;
}

void ts_job_waiting(const ts_job *job, char *text, size_t capacity) {
    words to = {.text = text, .capacity = capacity};
    const ts_slice_state *slice = last_slice(job);
    if (capacity == 0) return;
    text[0] = '\0';
    if (job->state != TS_JOB_RUNNING) return;
    if (say_names(&to, job, not_attached, NULL) > 0) {
        say(&to, " to attach");
    } else if (above(&to, job)) {
        /* it said so */
    } else if (!ts_job_initialised(job)) {
        say(&to, "%s to set the parameters", ts_job_worker_name(job, 0));
    } else if (job->members.done == job->members.count || !slice) {
        if (job->members.done < job->members.count || say_names(&to, job, not_gone, NULL) == 0) return;
        say(&to, " to say goodbye");
    } else if (say_names(&to, job, not_delivered, slice) > 0) {
        say(&to, " to push step %llu", (unsigned long long)slice->version);
    } else if (ts_replica_holds_back(job, slice)) {
        say(&to, "%s, its stand-in, to hold step %llu, too", ts_server_peer_name(job->server, job->replica.peer),
            (unsigned long long)slice->version);
    } else {
        return;
    }
    say(&to, ", for %.1f s", (double)(ts_server_now(job->server) - job->last_progress_us) / 1e6);
}
