/* SPDX-License-Identifier: Apache-2.0 */
#include "server/challenge.h"

#include <string.h>

#include "common/base/log.h"
#include "server/job.h"
#include "server/peer_link.h"
#include "server/worker_place.h"

static ts_proof_subject subject_of(const ts_job *job, uint32_t peer) {
    const ts_link *link = &job->server->links[peer];
    ts_proof_subject subject = {.digest = link->challenge.digest, .job = job->id, .server = job->server->index,
                                .worker = job->server->transport->peers[peer].index};
    memcpy(subject.server_nonce, link->challenge.own_nonce, TS_NONCE_BYTES);
    memcpy(subject.worker_nonce, link->challenge.nonce, TS_NONCE_BYTES);
    return subject;
}

/* asked: the part that the Hello was to, of which the worker waits for an answer. */
static void answer(ts_job *job, uint32_t peer, uint32_t asked, Terse__Welcome *body) {
    Terse__Header header = TERSE__HEADER__INIT;
    header.job = job->id;
    header.part = asked;
    header.body_case = TERSE__HEADER__BODY_WELCOME;
    header.welcome = body;
    body->protocol = TS_PROTOCOL_VERSION;
    ts_link_control(job->server, peer, &header);
}

/* To this worker alone: others are not to notice. */
static void refuse(ts_job *job, uint32_t peer, uint32_t asked, const char *reason) {
    ts_link *link = &job->server->links[peer];
    Terse__Welcome body = TERSE__WELCOME__INIT;
    body.verdict = TERSE__WELCOME__VERDICT__REFUSED;
    body.status = TERSE_EDENIED;
    body.reason = (char *)(uintptr_t)reason;
    link->denied++;
    ts_log(TS_LOG_WARN, "challenge", "a peer was not admitted", "peer=\"%s\" times=%llu reason=\"%s\"",
           ts_server_peer_name(job->server, peer), (unsigned long long)link->denied, reason);
    answer(job, peer, asked, &body);
}

static terse_status challenge(ts_job *job, uint32_t peer, uint32_t asked, const Terse__Hello *hello) {
    ts_link *link = &job->server->links[peer];
    TS_REQUIRE(hello->digest.len == TS_DIGEST_BYTES, TERSE_ECORRUPT);
    if (hello->nonce.len != TS_NONCE_BYTES) {
        refuse(job, peer, asked, "the servers want a secret: auth.secret_file is not set at the worker");
        return TERSE_EDENIED;
    }
    if (!link->challenge.made) ts_secret_nonce(link->challenge.own_nonce);
    link->challenge.made = true;
    memcpy(link->challenge.nonce, hello->nonce.data, TS_NONCE_BYTES);
    memcpy(link->challenge.digest, hello->digest.data, TS_DIGEST_BYTES);
    uint8_t proof[TS_PROOF_BYTES];
    ts_proof_subject subject = subject_of(job, peer);
    ts_secret_prove(job->server->secret, TS_PROVER_SERVER, &subject, proof);
    Terse__Welcome body = TERSE__WELCOME__INIT;
    body.verdict = TERSE__WELCOME__VERDICT__CHALLENGE;
    body.nonce.data = link->challenge.own_nonce;
    body.nonce.len = TS_NONCE_BYTES;
    body.proof.data = proof;
    body.proof.len = sizeof proof;
    answer(job, peer, asked, &body);
    return TERSE_OK;
}

static terse_status look_at(ts_job *job, uint32_t peer, uint32_t asked, const Terse__Proof *proof) {
    ts_server *server = job->server;
    ts_link *link = &server->links[peer];
    TS_REQUIRE(link->challenge.made, TERSE_ESTATE);
    ts_proof_subject subject = subject_of(job, peer);
    if (ts_secret_verify(server->secret, TS_PROVER_WORKER, &subject, proof->proof.data, proof->proof.len)) {
        link->proven = true; /* its Hello follows */
        ts_place_proven(server, peer);
        return TERSE_OK;
    }
    refuse(job, peer, asked, "its secret is not the servers'");
    if (link->denied >= TS_CHALLENGE_TRIES) {
        ts_log(TS_LOG_WARN, "challenge", "the peer was dropped", "peer=\"%s\"", ts_server_peer_name(server, peer));
        server->transport->ops->drop_peer(server->transport, peer);
    }
    return TERSE_EDENIED;
}

bool ts_challenge_passes(struct ts_job *job, uint32_t peer, const ts_frame *frame, terse_status *refused) {
    const ts_link *link = &job->server->links[peer];
    Terse__Header__BodyCase kind = frame->header->body_case;
    *refused = TERSE_OK;
    if (kind == TERSE__HEADER__BODY_PROOF) {
        if (job->server->secret && !link->proven) *refused = look_at(job, peer, frame->header->part, frame->header->proof);
        return false; /* repeated, or nobody asked */
    }
    if (!job->server->secret || link->proven) return true;
    *refused = kind == TERSE__HEADER__BODY_HELLO ? challenge(job, peer, frame->header->part, frame->header->hello)
               : kind == TERSE__HEADER__BODY_HEARTBEAT ? TERSE_OK : TERSE_EDENIED;
    return false;
}
