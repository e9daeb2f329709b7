/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a config will take, before anything runs: each server's share of the slices, its work, traffic and memory, and
 * what a worker holds. The servers' own accounts (server_memory.h) are compared with it by tests.
 */
#ifndef TS_CONFIG_PLAN_H
#define TS_CONFIG_PLAN_H

#include "common/config/config.h"
#include "common/config/config_shapes.h"

/* Of one server. Bytes unless a name says otherwise. */
typedef struct {
    uint32_t slices, tensors; /* tensors: those of which it has a slice */
    uint64_t elems;
    uint64_t work_ps;         /* a round, counted as in contract_work.h */
    uint64_t push, pull;      /* packets of a round: from one worker, to one worker */
    uint64_t params, reference, optimizer, estimates;
    uint64_t receivers;       /* what `delta` keeps, for all workers */
    uint64_t log;             /* the packet log when it is full */
    uint64_t scratch;         /* working memory of TS_PLAN_THREADS threads */
    uint64_t standin;         /* all of that of the server that it stands in for (servers.replicas) */
    uint64_t memory;          /* of all these */
} ts_plan_server;

/* Of one worker, beside its own parameters and gradients. */
typedef struct {
    uint64_t residual, velocity, estimate, delta, outbox;
    uint64_t memory;
} ts_plan_worker;

#define TS_PLAN_THREADS 4u /* of a server, at most */

typedef struct {
    ts_contract *contract;   /* [own] sealed for `servers`; NULL when it was lent */
    ts_plan_server *server;  /* [own] servers of them */
    uint32_t servers, workers;
    ts_plan_worker worker;
    uint32_t largest_whole;  /* the tensor with most work among those that are not cut though larger than a slice */
    bool has_whole;
} ts_plan;

/* The contract that workers would make. out: [own], ts_contract_destroy. Returns TERSE_EINVAL, TERSE_ENOMEM, TERSE_ELIMIT. */
terse_status ts_plan_contract(const ts_config *config, const ts_shapes *shapes, uint32_t servers, ts_contract **out,
                              ts_error *error) TERSE_NODISCARD;
/* out: [own], ts_plan_free. Returns as ts_plan_contract. */
terse_status ts_plan_make(const ts_config *config, const ts_shapes *shapes, uint32_t servers, uint32_t workers,
                          ts_plan *out, ts_error *error) TERSE_NODISCARD;
/*
 * The same of a contract that is there; it is lent to the plan: out->contract is NULL. config: the job's settings.
 * Returns TERSE_OK, TERSE_ENOMEM.
 */
terse_status ts_plan_of(const ts_config *config, const ts_contract *contract, uint32_t workers, ts_plan *out) TERSE_NODISCARD;
void ts_plan_free(ts_plan *plan); /* a zeroed one is fine */

/* Arrays as large as the parameters that the optimizer keeps of a tensor. */
unsigned ts_plan_optimizer_arrays(const ts_config *config, bool worker_momentum);

#endif
