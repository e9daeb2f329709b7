/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's half of admission by a shared secret (server/challenge.h): it proves that it knows it, and wants the same. */
#include <string.h>

#include "worker/client/client_internal.h"

static ts_proof_subject subject_of(const ts_client *client, const ts_client_server *server, const uint8_t *nonce) {
    ts_proof_subject subject = {.digest = client->contract->digest, .job = client->job, .worker = client->worker,
                                .server = client->transport->peers[server->peer].index};
    memcpy(subject.server_nonce, nonce, TS_NONCE_BYTES);
    memcpy(subject.worker_nonce, client->nonce, TS_NONCE_BYTES);
    return subject;
}

void ts_client_on_challenge(ts_client *client, ts_client_server *server, const Terse__Welcome *welcome) {
    const char *name = ts_client_server_name(client, server);
    if (!client->secret) {
        ts_client_fail(client, TERSE_EDENIED, "%s wants a secret: auth.secret_file is not set here", name);
        return;
    }
    if (welcome->nonce.len != TS_NONCE_BYTES) {
        client->counters.dropped_frames++;
        return;
    }
    ts_proof_subject subject = subject_of(client, server, welcome->nonce.data);
    if (!ts_secret_verify(client->secret, TS_PROVER_SERVER, &subject, welcome->proof.data, welcome->proof.len)) {
        ts_client_fail(client, TERSE_EDENIED, "%s does not know the secret of auth.secret_file: another file there, or not the "
                       "server it says it is", name);
        return;
    }
    for (uint32_t s = 0; s < client->server_count; s++) /* it may speak for two of them */
        client->servers[s].proven = client->servers[s].proven || client->servers[s].peer == server->peer;
    uint8_t proof[TS_PROOF_BYTES];
    ts_secret_prove(client->secret, TS_PROVER_WORKER, &subject, proof);
    Terse__Proof body = TERSE__PROOF__INIT;
    body.proof.data = proof;
    body.proof.len = sizeof proof;
    ts_client_send_control(client, server, TERSE__HEADER__BODY_PROOF, &body);
    ts_client_send_hello(client, server); /* should one of them be lost, the timer begins anew */
}

bool ts_client_trusts(ts_client *client, const ts_client_server *server) {
    if (!client->secret || server->proven) return true;
    ts_client_fail(client, TERSE_EDENIED, "%s asks for no secret, though auth.secret_file is set here: it must be set there, too",
                   ts_client_server_name(client, server));
    return false;
}
