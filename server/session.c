/* SPDX-License-Identifier: Apache-2.0 */
#include "server/session.h"

#include <math.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/config/config_plan.h"
#include "server/job.h"
#include "server/peer_link.h"

static void welcome_life(ts_job *job, uint32_t worker, Terse__Welcome__Verdict verdict, terse_status status, const char *reason,
                         uint32_t incarnation) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Welcome body = TERSE__WELCOME__INIT;
    ts_job_head(job, &header);
    header.body_case = TERSE__HEADER__BODY_WELCOME;
    header.welcome = &body;
    body.verdict = verdict;
    body.status = (uint32_t)status;
    if (reason) body.reason = (char *)(uintptr_t)reason;
    body.incarnation = incarnation;
    body.generation = job->members.generation;
    body.initialised = ts_job_initialised(job);
    body.version = ts_store_version(&job->store);
    body.protocol = TS_PROTOCOL_VERSION;
    body.settles = job->members.quorums.active;
    body.replicas = job->server->watch.on;
    Terse__Resumed resumed = TERSE__RESUMED__INIT;
    Terse__Joined joined = TERSE__JOINED__INIT;
    uint64_t *next = NULL;
    ts_checkpoint_welcome(job, worker, &body, &resumed);
    if (worker >= job->members.launched) body.checkpoint_at_end = false; /* it has no part in them */
    if (verdict == TERSE__WELCOME__VERDICT__ACCEPTED && job->members.members[worker].returned) {
        next = ts_mem_calloc((size_t)job->store.count + 1, sizeof *next);
        if (!next) return; /* it asks again */
        ts_join_welcome(job, worker, &joined, next);
        body.joined = &joined;
        body.resumed = NULL; /* what it has is newer than any checkpoint */
    }
    ts_link_control(job->server, ts_job_peer(job, worker), &header);
    ts_mem_free(next);
}

static void welcome(ts_job *job, uint32_t worker, Terse__Welcome__Verdict verdict, terse_status status, const char *reason) {
    welcome_life(job, worker, verdict, status, reason, 0);
}

void ts_session_welcome_back(struct ts_job *job, uint32_t worker) {
    welcome(job, worker, TERSE__WELCOME__VERDICT__ACCEPTED, TERSE_OK, NULL);
}

void ts_session_ask_contract(struct ts_job *job, uint32_t worker) {
    welcome(job, worker, TERSE__WELCOME__VERDICT__NEED_CONTRACT, TERSE_OK, NULL);
}

void ts_session_refuse_alone(struct ts_job *job, uint32_t worker, terse_status status, const char *reason) {
    ts_log(TS_LOG_WARN, "job", "a worker cannot come back", "worker=\"%s\" reason=\"%s\"", ts_job_worker_name(job, worker), reason);
    welcome(job, worker, TERSE__WELCOME__VERDICT__REFUSED, status, reason);
}

/* The job cannot go on without this worker, so all are told. */
static void refuse(ts_job *job, uint32_t worker, terse_status status, const ts_error *reason) {
    welcome(job, worker, TERSE__WELCOME__VERDICT__REFUSED, status, reason->text);
    ts_job_fail(job, status, "%s", reason->text);
}

static void accept(ts_job *job, uint32_t worker) {
    if (job->members.members[worker].state == TS_MEMBER_EXPECTED) {
        ts_membership_attach(&job->members, worker);
        job->last_progress_us = ts_server_now(job->server);
        ts_log(TS_LOG_INFO, "job", "a worker has attached", "worker=\"%s\" attached=%u of=%u",
               ts_job_worker_name(job, worker), job->members.attached, ts_membership_workers(&job->members));
        if (!job->own) ts_replica_follow_members(job);
    }
    job->members.members[worker].unwelcomed = !ts_replica_epoch_is_held(job->server);
    if (!job->members.members[worker].unwelcomed) welcome(job, worker, TERSE__WELCOME__VERDICT__ACCEPTED, TERSE_OK, NULL);
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
    if (hello->workers != job->members.launched)
        return ts_error_set(reason, TERSE_EMISMATCH, "%s was launched with %u workers, server %u knows of %u", name,
                            hello->workers, job->server->index, job->members.launched);
    return TERSE_OK;
}

/* A Hello that can be talked to. */
static void answer_hello(ts_job *job, uint32_t worker) {
    const ts_member *member = &job->members.members[worker];
    bool known = job->contract && memcmp(member->digest, job->contract->digest, TS_DIGEST_BYTES) == 0;
    if (known) accept(job, worker);
    else welcome(job, worker, TERSE__WELCOME__VERDICT__NEED_CONTRACT, TERSE_OK, NULL);
}

terse_status ts_session_hello(struct ts_job *job, uint32_t worker, const Terse__Hello *hello) {
    ts_member *member = &job->members.members[worker];
    ts_error reason;
    TS_REQUIRE(hello->digest.len == TS_DIGEST_BYTES, TERSE_ECORRUPT);
    if (ts_join_is_return(job, worker, hello)) return ts_join_hello(job, worker, hello);
    if (member->state == TS_MEMBER_GONE) return TERSE_ESTATE;
    terse_status status = check_hello(job, worker, hello, &reason);
    if (status != TERSE_OK) {
        refuse(job, worker, status, &reason);
        return TERSE_OK;
    }
    uint32_t incarnation = hello->incarnation ? hello->incarnation : 1;
    if (member->said_hello && incarnation != member->incarnation) {
        /* Its packets would be taken for those of its former life. */
        welcome_life(job, worker, TERSE__WELCOME__VERDICT__REFUSED, TERSE_ESTATE, "a later life of this worker is attached", incarnation);
        return TERSE_OK;
    }
    if (member->state == TS_MEMBER_ATTACHED && memcmp(member->digest, hello->digest.data, TS_DIGEST_BYTES) != 0)
        return TERSE_ESTATE;
    member->said_hello = true;
    member->incarnation = incarnation;
    memcpy(member->digest, hello->digest.data, TS_DIGEST_BYTES);
    member->unwelcomed = !ts_checkpoint_decided(job);
    if (!member->unwelcomed) answer_hello(job, worker);
    return TERSE_OK;
}

void ts_session_decided(struct ts_job *job) {
    if (!ts_checkpoint_decided(job)) return;
    for (uint32_t w = 0; w < job->members.count; w++) {
        if (!job->members.members[w].unwelcomed) continue;
        job->members.members[w].unwelcomed = false;
        answer_hello(job, w);
    }
}

/* Whether this server has the memory that the job may take of it; the reason says by kind what it needs. */
static terse_status check_memory(const ts_job *job, uint32_t worker, const ts_contract *contract, const ts_config *config,
                                 ts_error *reason) {
    uint64_t own = config->job.memory_bytes, given = config->limits.job_bytes;
    uint64_t limit = own == 0 || (given > 0 && given < own) ? given : own;
    ts_plan plan;
    if (limit == 0) return TERSE_OK;
    TS_TRY(ts_plan_of(config, contract, job->members.count, &plan));
    const ts_plan_server need = plan.server[job->server->index];
    ts_plan_free(&plan);
    if (need.memory <= limit) return TERSE_OK;
    return ts_error_set(reason, TERSE_ELIMIT,
                        "%s needs %llu bytes of server %u: parameters %llu, reference %llu, optimizer %llu, estimates %llu, "
                        "delta's state %llu, packet log %llu, working memory %llu; %s allows %llu",
                        ts_job_worker_name(job, worker), (unsigned long long)need.memory, job->server->index,
                        (unsigned long long)need.params, (unsigned long long)need.reference,
                        (unsigned long long)need.optimizer, (unsigned long long)need.estimates,
                        (unsigned long long)need.receivers, (unsigned long long)need.log,
                        (unsigned long long)need.scratch,
                        limit == own ? "job.memory_bytes" : "limits.job_bytes of the server", (unsigned long long)limit);
}

/* The job's settings, from its contract. config: [out] */
static terse_status take_settings(const ts_job *job, uint32_t worker, const ts_contract *contract, ts_config **config,
                                  ts_error *reason) {
    const ts_config *own = job->server->config;
    const char *name = ts_job_worker_name(job, worker);
    ts_error detail = {""};
    if (job->server->upstream && job->id != 0)
        return ts_error_set(reason, TERSE_EUNSUPPORTED, "a relay serves one job, and %s is of another", name);
    if (job->server->upstream && contract->mode != TS_MODE_BSP)
        return ts_error_set(reason, TERSE_EUNSUPPORTED, "consistency.mode of %s must be bsp below a relay", name);
    TS_TRY(ts_replica_allows(job, contract, reason));
    terse_status status = ts_config_of_contract(contract, own, config, &detail);
    if (status != TERSE_OK)
        return ts_error_set(reason, status == TERSE_ECONFIG ? TERSE_EMISMATCH : status, "server %u cannot run what %s asks for: %s",
                            job->server->index, name, detail.text[0] ? detail.text : terse_strerror(status));
    return TERSE_OK;
}

/* The first contract becomes the job's. Takes it over on success. */
static terse_status adopt(ts_job *job, uint32_t worker, ts_contract *contract, ts_error *reason) {
    ts_config *config = NULL;
    TS_TRY(take_settings(job, worker, contract, &config, reason));
    terse_status status = check_memory(job, worker, contract, config, reason);
    if (status == TERSE_OK) {
        status = ts_job_begin(job, contract, config, worker);
        if (status != TERSE_OK)
            ts_error_set(reason, status, "server %u cannot make the slices of %u tensors that %s declares: %s",
                         job->server->index, contract->tensor_count, ts_job_worker_name(job, worker), terse_strerror(status));
    }
    if (status != TERSE_OK) ts_config_free(config);
    return status;
}

/* A later one must be equal. */
terse_status ts_session_compare(const ts_job *job, uint32_t worker, const ts_contract *contract, ts_error *reason) {
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

/* A checkpoint would hold nothing of the workers below a relay. */
static terse_status check_relay(const ts_job *job, uint32_t worker, ts_error *reason) {
    if (!ts_config_checkpoints(job->server->config) || !job->server->transport->peers[ts_job_peer(job, worker)].relay) return TERSE_OK;
    return ts_error_set(reason, TERSE_EUNSUPPORTED, "checkpoint.dir of server %u is set, and %s stands for workers whose residuals "
                        "and place in the data would be in no checkpoint; allowed with relays: no checkpoint.dir",
                        job->server->index, ts_job_worker_name(job, worker));
}

/* The job has its contract: a stand-in is made ready, and what it goes on from must be of the same. */
static terse_status begin_rest(ts_job *job, ts_error *reason) {
    reason->text[0] = '\0';
    terse_status status = ts_replica_begin(job);
    if (status == TERSE_OK) status = ts_checkpoint_begin(job, reason);
    if (status == TERSE_OK && job->standin) status = ts_checkpoint_stand_in(job->standin, reason);
    if (status != TERSE_OK && !reason->text[0])
        return ts_error_set(reason, status, "server %u cannot begin: %s", job->server->index, terse_strerror(status));
    return status;
}

terse_status ts_session_unpack(const ts_job *job, const ts_frame *frame, ts_contract **contract, ts_error *reason) {
    const ts_config *own = job->server->config;
    const ts_contract_room room = {.tensors = own->limits.tensors, .bytes = own->limits.job_bytes};
    return ts_contract_unpack_within(frame->payload, frame->payload_bytes, job->server->transport->servers, &room,
                                     contract, reason);
}

terse_status ts_session_contract(struct ts_job *job, uint32_t worker, const ts_frame *frame) {
    ts_member *member = &job->members.members[worker];
    if (member->suitor) return ts_join_contract(job, worker, frame);
    TS_REQUIRE(member->said_hello && !member->unwelcomed && member->state != TS_MEMBER_GONE, TERSE_ESTATE);
    if (member->state == TS_MEMBER_ATTACHED) { /* repeated: the answer was lost */
        welcome(job, worker, TERSE__WELCOME__VERDICT__ACCEPTED, TERSE_OK, NULL);
        return TERSE_OK;
    }
    ts_contract *contract = NULL;
    ts_error reason, detail = {""};
    terse_status status = ts_session_unpack(job, frame, &contract, &detail);
    if (status == TERSE_ENOMEM) return status;
    if (status != TERSE_OK) {
        ts_error_set(&reason, status, "%s sent a contract that server %u %s: %s", ts_job_worker_name(job, worker),
                     job->server->index, status == TERSE_ELIMIT ? "has no room for" : "cannot read", detail.text);
        refuse(job, worker, status, &reason);
        return TERSE_OK;
    }
    bool first = job->contract == NULL;
    status = check_relay(job, worker, &reason);
    if (status == TERSE_OK && memcmp(contract->digest, member->digest, TS_DIGEST_BYTES) != 0)
        status = ts_error_set(&reason, TERSE_EMISMATCH, "%s sent another contract than its Hello announced",
                              ts_job_worker_name(job, worker));
    else if (status == TERSE_OK) status = first ? adopt(job, worker, contract, &reason) : ts_session_compare(job, worker, contract, &reason);
    if (!first || status != TERSE_OK) ts_contract_destroy(contract);
    if (first && status == TERSE_OK) status = begin_rest(job, &reason);
    if (status != TERSE_OK) refuse(job, worker, status, &reason);
    else accept(job, worker);
    return TERSE_OK;
}

terse_status ts_session_done(struct ts_job *job, uint32_t worker, const Terse__Done *done) {
    bool news = !job->members.members[worker].done;
    ts_membership_done(&job->members, worker, done->steps);
    ts_link_ack(job, ts_job_peer(job, worker), done->steps, TERSE_OK, NULL, 0, NULL);
    if (!news) return TERSE_OK;
    ts_member *member = &job->members.members[worker];
    member->unsent_l1 = done->unsent_l1;
    member->unsent_squares = done->unsent_squares;
    member->unsent_nonzero = done->unsent_nonzero;
    ts_log(TS_LOG_INFO, "job", "a worker is done", "worker=\"%s\" steps=%llu done=%u of=%u unsent_l1=%.6g unsent_norm=%.6g "
           "unsent_elements=%llu", ts_job_worker_name(job, worker), (unsigned long long)done->steps, ts_membership_finished(&job->members),
           ts_membership_workers(&job->members), done->unsent_l1, sqrt(done->unsent_squares), (unsigned long long)done->unsent_nonzero);
    ts_job_membership_changed(job);
    return TERSE_OK;
}

void ts_session_bye(struct ts_job *job, uint32_t worker) {
    ts_member *member = &job->members.members[worker];
    if (!member->lost) member->left = true; /* one that was silent, too: it will not be heard again */
    if (member->state == TS_MEMBER_GONE) return;
    if (!member->done)
        ts_log(TS_LOG_WARN, "job", "a worker left without being done", "worker=\"%s\"",
               ts_job_worker_name(job, worker));
    ts_membership_gone(&job->members, worker);
    ts_job_membership_changed(job);
}
