/* SPDX-License-Identifier: Apache-2.0 */
#include "server/session.h"

#include <string.h>

#include "common/base/log.h"
#include "server/job.h"
#include "server/peer_link.h"

static void welcome(ts_job *job, uint32_t worker, Terse__Welcome__Verdict verdict, terse_status status,
                    const char *reason) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Welcome body = TERSE__WELCOME__INIT;
    header.job = job->id;
    header.body_case = TERSE__HEADER__BODY_WELCOME;
    header.welcome = &body;
    body.verdict = verdict;
    body.status = (uint32_t)status;
    if (reason) body.reason = (char *)(uintptr_t)reason;
    body.generation = job->members.generation;
    body.initialised = ts_job_initialised(job);
    body.version = ts_store_version(&job->store);
    body.protocol = TS_PROTOCOL_VERSION;
    body.settles = job->members.quorums.active;
    ts_link_control(job->server, ts_job_peer(job, worker), &header);
}

/* The job cannot go on without this worker, so all are told. */
static void refuse(ts_job *job, uint32_t worker, terse_status status, const ts_error *reason) {
    welcome(job, worker, TERSE__WELCOME__VERDICT__REFUSED, status, reason->text);
    ts_server_fail(job->server, status, "%s", reason->text);
}

static void accept(ts_job *job, uint32_t worker) {
    if (job->members.members[worker].state == TS_MEMBER_EXPECTED) {
        ts_membership_attach(&job->members, worker);
        job->last_progress_us = ts_server_now(job->server);
        ts_log(TS_LOG_INFO, "job", "a worker has attached", "worker=\"%s\" attached=%u of=%u",
               ts_job_worker_name(job, worker), job->members.attached, job->members.count);
    }
    welcome(job, worker, TERSE__WELCOME__VERDICT__ACCEPTED, TERSE_OK, NULL);
}

/* Whether the Hello itself can be talked to; fills the reason otherwise. */
static terse_status check_hello(const ts_job *job, uint32_t worker, const Terse__Hello *hello, ts_error *reason) {
    const char *name = ts_job_worker_name(job, worker);
    if (hello->protocol != TS_PROTOCOL_VERSION)
        return ts_error_set(reason, TERSE_EVERSION, "%s (Terse %s) speaks protocol %u, server %u (Terse %s) speaks %u",
                            name, hello->version[0] ? hello->version : "of unknown version", hello->protocol, job->server->index, TS_VERSION,
                            TS_PROTOCOL_VERSION);
    if (hello->worker != worker)
        return ts_error_set(reason, TERSE_EMISMATCH, "%s calls itself worker %u", name, hello->worker);
    if (hello->workers != job->members.count)
        return ts_error_set(reason, TERSE_EMISMATCH, "%s was launched with %u workers, server %u knows of %u", name,
                            hello->workers, job->server->index, job->members.count);
    return TERSE_OK;
}

terse_status ts_session_hello(struct ts_job *job, uint32_t worker, const Terse__Hello *hello) {
    ts_member *member = &job->members.members[worker];
    ts_error reason;
    TS_REQUIRE(hello->digest.len == TS_DIGEST_BYTES, TERSE_ECORRUPT);
    if (member->state == TS_MEMBER_GONE) return TERSE_ESTATE;
    terse_status status = check_hello(job, worker, hello, &reason);
    if (status != TERSE_OK) {
        refuse(job, worker, status, &reason);
        return TERSE_OK;
    }
    uint32_t incarnation = hello->incarnation ? hello->incarnation : 1;
    if (member->said_hello && incarnation != member->incarnation) {
        /* Its packets would be taken for those of its former life. */
        welcome(job, worker, TERSE__WELCOME__VERDICT__REFUSED, TERSE_ESTATE, "another life of this worker is attached");
        return TERSE_OK;
    }
    if (member->state == TS_MEMBER_ATTACHED && memcmp(member->digest, hello->digest.data, TS_DIGEST_BYTES) != 0)
        return TERSE_ESTATE;
    member->said_hello = true;
    member->incarnation = incarnation;
    memcpy(member->digest, hello->digest.data, TS_DIGEST_BYTES);
    bool known = job->contract && memcmp(member->digest, job->contract->digest, TS_DIGEST_BYTES) == 0;
    if (known) accept(job, worker);
    else welcome(job, worker, TERSE__WELCOME__VERDICT__NEED_CONTRACT, TERSE_OK, NULL);
    return TERSE_OK;
}

/* What the server computes with must be what the workers believe. */
static terse_status check_against_config(const ts_job *job, uint32_t worker, const ts_contract *contract,
                                         ts_error *reason) {
    const ts_config *config = job->server->config;
    const char *name = ts_job_worker_name(job, worker);
    uint32_t server = job->server->index;
    char text[TS_ERROR_CHARS / 2];
    ts_config_optimizer_text(config, text, sizeof text);
    if (strcmp(text, contract->optimizer) != 0)
        return ts_error_set(reason, TERSE_EMISMATCH, "the optimizer of %s (%s) is not that of server %u (%s)", name,
                            contract->optimizer, server, text);
    ts_config_feedback_text(config, text, sizeof text);
    if (strcmp(text, contract->feedback) != 0)
        return ts_error_set(reason, TERSE_EMISMATCH, "error_feedback of %s (%s) is not that of server %u (%s)", name,
                            contract->feedback, server, text);
    if (contract->whole_tensors != ts_config_whole_tensors(config))
        return ts_error_set(reason, TERSE_EMISMATCH, "%s %s tensors, other than server %u", name,
                            contract->whole_tensors ? "does not cut" : "cuts", server);
    if (contract->mode != config->consistency.mode)
        return ts_error_set(reason, TERSE_EMISMATCH, "consistency.mode of %s is not that of server %u", name, server);
    if (contract->staleness != config->consistency.staleness)
        return ts_error_set(reason, TERSE_EMISMATCH, "consistency.staleness of %s is %u, that of server %u is %u", name,
                            contract->staleness, server, config->consistency.staleness);
    if (contract->tensor_count > config->limits.tensors)
        return ts_error_set(reason, TERSE_ELIMIT, "%s declares %u tensors, limits.tensors of server %u is %llu", name,
                            contract->tensor_count, server, (unsigned long long)config->limits.tensors);
    return TERSE_OK;
}

static ts_config_tensor tensor_of(const void *list, size_t i) {
    const ts_tensor *tensor = &((const ts_contract *)list)->tensors[i];
    return (ts_config_tensor){tensor->name, tensor->shape, tensor->ndim};
}

static void say_unused(void *context, const char *text) {
    (void)context;
    ts_log(TS_LOG_WARN, "session", "a rule of the config is not used", "rule=\"%s\"", text);
}

/* The first contract becomes the job's. Takes it over on success. */
static terse_status adopt(ts_job *job, uint32_t worker, ts_contract *contract, ts_error *reason) {
    TS_TRY(check_against_config(job, worker, contract, reason));
    terse_status status = ts_job_begin(job, contract, worker);
    if (status != TERSE_OK)
        return ts_error_set(reason, status, "server %u cannot make the slices of %u tensors that %s declares: %s",
                            job->server->index, contract->tensor_count, ts_job_worker_name(job, worker),
                            terse_strerror(status));
    if (job->server->index == 0)
        ts_config_unused_rules(job->server->config, tensor_of, contract, contract->tensor_count, say_unused, NULL);
    return TERSE_OK;
}

/* A later one must be equal. */
static terse_status compare(const ts_job *job, uint32_t worker, const ts_contract *contract, ts_error *reason) {
    ts_error difference;
    if (memcmp(contract->digest, job->contract->digest, TS_DIGEST_BYTES) == 0) return TERSE_OK;
    char first[24], other[24]; /* the full names, with rank and host, stand in front */
    snprintf(first, sizeof first, "worker %u", job->contract_worker);
    snprintf(other, sizeof other, "worker %u", worker);
    if (!ts_contract_difference(job->contract, first, contract, other, &difference))
        ts_error_set(&difference, TERSE_OK, "the digests differ");
    return ts_error_set(reason, TERSE_EMISMATCH, "%s does not agree with %s: %s",
                        ts_job_worker_name(job, worker), ts_job_worker_name(job, job->contract_worker),
                        difference.text);
}

terse_status ts_session_contract(struct ts_job *job, uint32_t worker, const ts_frame *frame) {
    ts_member *member = &job->members.members[worker];
    TS_REQUIRE(member->said_hello && member->state != TS_MEMBER_GONE, TERSE_ESTATE);
    if (member->state == TS_MEMBER_ATTACHED) { /* repeated: the answer was lost */
        welcome(job, worker, TERSE__WELCOME__VERDICT__ACCEPTED, TERSE_OK, NULL);
        return TERSE_OK;
    }
    ts_contract *contract = NULL;
    ts_error reason, detail = {""};
    terse_status status = ts_contract_unpack(frame->payload, frame->payload_bytes, job->server->transport->servers,
                                             &contract, &detail);
    if (status == TERSE_ENOMEM) return status;
    if (status != TERSE_OK) {
        ts_error_set(&reason, status, "%s sent a contract that is not valid: %s", ts_job_worker_name(job, worker),
                     detail.text);
        refuse(job, worker, status, &reason);
        return TERSE_OK;
    }
    bool first = job->contract == NULL;
    if (memcmp(contract->digest, member->digest, TS_DIGEST_BYTES) != 0)
        status = ts_error_set(&reason, TERSE_EMISMATCH, "%s sent another contract than its Hello announced",
                              ts_job_worker_name(job, worker));
    else status = first ? adopt(job, worker, contract, &reason) : compare(job, worker, contract, &reason);
    if (!first || status != TERSE_OK) ts_contract_destroy(contract);
    if (status != TERSE_OK) refuse(job, worker, status, &reason);
    else accept(job, worker);
    return TERSE_OK;
}

terse_status ts_session_done(struct ts_job *job, uint32_t worker, const Terse__Done *done) {
    bool news = !job->members.members[worker].done;
    ts_membership_done(&job->members, worker, done->steps);
    ts_link_ack(job->server, ts_job_peer(job, worker), job->id, done->steps, TERSE_OK, NULL, 0, NULL);
    if (!news) return TERSE_OK;
    ts_log(TS_LOG_INFO, "job", "a worker is done", "worker=\"%s\" steps=%llu done=%u of=%u",
           ts_job_worker_name(job, worker), (unsigned long long)done->steps, job->members.done, job->members.count);
    ts_job_membership_changed(job);
    return TERSE_OK;
}

void ts_session_bye(struct ts_job *job, uint32_t worker) {
    const ts_member *member = &job->members.members[worker];
    if (member->state == TS_MEMBER_GONE) return;
    if (!member->done)
        ts_log(TS_LOG_WARN, "job", "a worker left without being done", "worker=\"%s\"",
               ts_job_worker_name(job, worker));
    ts_membership_gone(&job->members, worker);
    ts_job_membership_changed(job);
}
