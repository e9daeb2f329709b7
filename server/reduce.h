/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of a few numbers over all workers, added in worker order; also barriers. Only where the job is led. */
#ifndef TS_SERVER_REDUCE_H
#define TS_SERVER_REDUCE_H

#include "common/wire/frame.h"

struct ts_job;

typedef struct {
    bool open;
    uint64_t sequence;   /* the one that gathers, when open */
    size_t count;        /* values of each worker */
    uint32_t first;      /* the worker that opened it */
    double **values;     /* [own] by worker; NULL where none has come */
    uint32_t workers;
    bool answered;       /* there is a last result */
    uint64_t last;       /* its sequence */
    ts_buffer *result;   /* [own] the frame, for those who missed it */
    double *sum;         /* [own] its values */
    size_t sum_count;
} ts_reduce;

/* workers: how many give a term each. reduce: [out], ts_reduce_free. Returns TERSE_OK, TERSE_ENOMEM (unchanged). */
terse_status ts_reduce_create(ts_reduce *reduce, uint32_t workers) TERSE_NODISCARD;
void ts_reduce_free(ts_reduce *reduce); /* a zeroed one is fine */
/* Room for the terms of further workers. Returns TERSE_OK, TERSE_ENOMEM (unchanged). */
terse_status ts_reduce_grow(ts_reduce *reduce, uint32_t workers) TERSE_NODISCARD;
/* One worker's term. Returns TERSE_OK; TERSE_ELIMIT, TERSE_ESTATE (out of order): refused; TERSE_ENOMEM. */
terse_status ts_reduce_take(struct ts_job *job, uint32_t worker, const Terse__Reduce *message) TERSE_NODISCARD;
/* Whether the worker has given its term of a sum that is still open. */
bool ts_reduce_waits(const struct ts_job *job, uint32_t worker);
/* The worker is about to leave: sums do not wait for it before it asks for one. */
void ts_reduce_without(struct ts_job *job, uint32_t worker);
/* Answers when all who are still here have delivered. */
void ts_reduce_check(struct ts_job *job);
/* Tells everybody the last sum. */
void ts_reduce_answer(struct ts_job *job);
/* A stand-in: the last sum is this. Returns TERSE_OK, TERSE_ELIMIT, TERSE_ENOMEM. */
terse_status ts_reduce_adopt(struct ts_job *job, uint64_t sequence, const double *values, size_t count) TERSE_NODISCARD;

#endif
