/* SPDX-License-Identifier: Apache-2.0 */
#include "server/reduce.h"

#include <string.h>

#include "common/base/mem.h"
#include "server/job.h"
#include "server/peer_link.h"

terse_status ts_reduce_create(ts_reduce *reduce, uint32_t workers) {
    double **values = ts_mem_calloc(workers, sizeof *values);
    TS_REQUIRE(values, TERSE_ENOMEM);
    *reduce = (ts_reduce){.values = values, .workers = workers};
    return TERSE_OK;
}

terse_status ts_reduce_grow(ts_reduce *reduce, uint32_t workers) {
    if (workers <= reduce->workers) return TERSE_OK;
    double **values = ts_mem_realloc(reduce->values, workers, sizeof *values);
    TS_REQUIRE(values, TERSE_ENOMEM);
    for (uint32_t w = reduce->workers; w < workers; w++) values[w] = NULL;
    reduce->values = values;
    reduce->workers = workers;
    return TERSE_OK;
}

static void forget_terms(ts_reduce *reduce) {
    for (uint32_t w = 0; w < reduce->workers; w++) {
        ts_mem_free(reduce->values[w]);
        reduce->values[w] = NULL;
    }
    reduce->open = false;
}

void ts_reduce_free(ts_reduce *reduce) {
    if (reduce->values) forget_terms(reduce);
    ts_mem_free(reduce->values);
    ts_buffer_unref(reduce->result);
    ts_mem_free(reduce->sum);
    *reduce = (ts_reduce){0};
}

/* Who has come back, or was silent and is heard again, asks for a sum that the others had without it: it gets its own values. */
static terse_status answer_alone(ts_job *job, uint32_t worker, const Terse__Reduce *message) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Reduced reduced = TERSE__REDUCED__INIT;
    header.job = job->id;
    header.body_case = TERSE__HEADER__BODY_REDUCED;
    header.reduced = &reduced;
    reduced.sequence = message->sequence;
    reduced.n_values = message->n_values;
    reduced.values = message->values;
    ts_link_control(job->server, ts_job_peer(job, worker), &header);
    return TERSE_OK;
}

terse_status ts_reduce_take(struct ts_job *job, uint32_t worker, const Terse__Reduce *message) {
    ts_reduce *reduce = &job->reduce;
    TS_REQUIRE(message->n_values <= TS_REDUCE_VALUES_MAX, TERSE_ELIMIT);
    if (reduce->answered && message->sequence <= reduce->last) {
        /* An older one than the last was answered to everybody before the last could open. */
        if (message->sequence == reduce->last && !job->replica.unconfirmed_sum)
            ts_link_answer(job->server, ts_job_peer(job, worker), reduce->result);
        else if (message->sequence < reduce->last && (job->members.members[worker].returned || job->members.members[worker].away))
            return answer_alone(job, worker, message);
        return TERSE_OK;
    }
    job->members.members[worker].away = false;
    TS_REQUIRE(!reduce->open || message->sequence == reduce->sequence, TERSE_ESTATE);
    if (reduce->open && reduce->values[worker]) return TERSE_OK;
    if (reduce->open && message->n_values != reduce->count) {
        ts_job_fail(job, TERSE_EMISMATCH, "%s reduces %zu values where %s reduces %zu",
                       ts_job_worker_name(job, worker), message->n_values, ts_job_worker_name(job, reduce->first),
                       reduce->count);
        return TERSE_OK;
    }
    double *values = ts_mem_calloc(message->n_values, sizeof *values);
    TS_REQUIRE(values, TERSE_ENOMEM);
    if (message->n_values > 0) memcpy(values, message->values, message->n_values * sizeof *values);
    if (!reduce->open) {
        reduce->open = true;
        reduce->sequence = message->sequence;
        reduce->count = message->n_values;
        reduce->first = worker;
    }
    reduce->values[worker] = values;
    ts_reduce_check(job);
    return TERSE_OK;
}

static terse_status build_result(const ts_job *job, uint64_t sequence, const double *sum, size_t count, ts_buffer **frame) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Reduced reduced = TERSE__REDUCED__INIT;
    ts_job_head(job, &header);
    header.body_case = TERSE__HEADER__BODY_REDUCED;
    header.reduced = &reduced;
    reduced.sequence = sequence;
    reduced.n_values = count;
    reduced.values = (double *)(uintptr_t)sum; /* packing only reads */
    return ts_frame_control(&header, frame);
}

terse_status ts_reduce_adopt(struct ts_job *job, uint64_t sequence, const double *values, size_t count) {
    ts_reduce *reduce = &job->reduce;
    ts_buffer *frame = NULL;
    TS_REQUIRE(count <= TS_REDUCE_VALUES_MAX, TERSE_ELIMIT);
    if (reduce->answered && sequence <= reduce->last) return TERSE_OK; /* repeated */
    double *sum = ts_mem_calloc(count ? count : 1, sizeof *sum);
    TS_REQUIRE(sum, TERSE_ENOMEM);
    if (count > 0) memcpy(sum, values, count * sizeof *sum);
    terse_status status = build_result(job, sequence, sum, count, &frame);
    if (status != TERSE_OK) {
        ts_mem_free(sum);
        return status;
    }
    ts_buffer_unref(reduce->result);
    ts_mem_free(reduce->sum);
    reduce->result = frame;
    reduce->sum = sum;
    reduce->sum_count = count;
    reduce->last = sequence;
    reduce->answered = true;
    return TERSE_OK;
}

void ts_reduce_without(struct ts_job *job, uint32_t worker) {
    if (job->members.members[worker].away) return;
    job->members.members[worker].away = true;
    ts_reduce_check(job);
}

/* There is room for more terms than there are members when a new one's memory could not all be had. */
static uint32_t reduce_members(const ts_job *job) {
    return job->reduce.workers < job->members.count ? job->reduce.workers : job->members.count;
}

void ts_reduce_answer(struct ts_job *job) {
    for (uint32_t w = 0; w < reduce_members(job); w++)
        if (job->members.members[w].state == TS_MEMBER_ATTACHED)
            ts_link_answer(job->server, ts_job_peer(job, w), job->reduce.result);
}

void ts_reduce_check(struct ts_job *job) {
    ts_reduce *reduce = &job->reduce;
    if (!reduce->open) return;
    for (uint32_t w = 0; w < reduce_members(job); w++)
        if (!reduce->values[w] && job->members.members[w].state != TS_MEMBER_GONE && !job->members.members[w].away) return;
    double *sum = ts_mem_calloc(reduce->count ? reduce->count : 1, sizeof *sum);
    for (uint32_t w = 0; sum && w < reduce->workers; w++)
        for (size_t i = 0; reduce->values[w] && i < reduce->count; i++) sum[i] += reduce->values[w][i];
    terse_status status = sum ? ts_reduce_adopt(job, reduce->sequence, sum, reduce->count) : TERSE_ENOMEM;
    ts_mem_free(sum);
    if (status != TERSE_OK) {
        ts_job_fail(job, status, "server %u cannot answer a sum of %zu values: %s", job->server->index,
                       reduce->count, terse_strerror(status));
        return;
    }
    forget_terms(reduce);
    if (!ts_replica_sum(job)) ts_reduce_answer(job);
}

bool ts_reduce_waits(const struct ts_job *job, uint32_t worker) {
    return job->reduce.open && job->reduce.values[worker] != NULL;
}
