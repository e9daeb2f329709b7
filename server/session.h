/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's coming and going: Hello, Contract, Done, Bye. */
#ifndef TS_SERVER_SESSION_H
#define TS_SERVER_SESSION_H

#include "common/contract/contract.h"
#include "common/wire/frame.h"

struct ts_job;

/*
 * Each answers the worker; a refusal of a worker that the job needs ends the job, naming both sides.
 * worker: the job's number, checked; messages and frame: [borrow]. Thread: the loop's.
 * Returns TERSE_OK (answered, also with a refusal); hello: TERSE_ECORRUPT, TERSE_ESTATE (another life of the worker);
 * contract: TERSE_ESTATE (before Hello, after Bye), TERSE_ENOMEM. What is not TERSE_OK is counted and dropped.
 */
terse_status ts_session_hello(struct ts_job *job, uint32_t worker, const Terse__Hello *hello) TERSE_NODISCARD;
terse_status ts_session_contract(struct ts_job *job, uint32_t worker, const ts_frame *frame) TERSE_NODISCARD;
terse_status ts_session_done(struct ts_job *job, uint32_t worker, const Terse__Done *done) TERSE_NODISCARD;
void ts_session_bye(struct ts_job *job, uint32_t worker);

/* To a worker that has come back (worker_join.h): it is let in, and hears what is new. */
void ts_session_welcome_back(struct ts_job *job, uint32_t worker);
/* To one whose contract is another than the job's: it sends it. */
void ts_session_ask_contract(struct ts_job *job, uint32_t worker);
/* A contract out of a worker's frame, within limits.tensors and limits.job_bytes. Returns as ts_contract_unpack. */
terse_status ts_session_unpack(const struct ts_job *job, const ts_frame *frame, ts_contract **contract, ts_error *reason)
    TERSE_NODISCARD;
/* Whether a contract is the job's; else what differs, in words. Returns TERSE_OK, TERSE_EMISMATCH. */
terse_status ts_session_compare(const struct ts_job *job, uint32_t worker, const ts_contract *contract, ts_error *reason)
    TERSE_NODISCARD;
/* To one that cannot: it ends, and nobody else. */
void ts_session_refuse_alone(struct ts_job *job, uint32_t worker, terse_status status, const char *reason);

/* What a job goes on from may be decided now, and its epoch known where it has to be: those who said Hello before hear what follows. */
void ts_session_decided(struct ts_job *job);

#endif
