/* SPDX-License-Identifier: Apache-2.0 */
/* Admission by a shared secret: proofs, and server and client cores that meet over the in-process transport. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/net/sim_transport.h"
#include "common/wire/frame.h"
#include "common/wire/secret.h"
#include "server/job.h"
#include "tests/unit/unit.h"
#include "worker/client/client.h"

static char folder[] = "/tmp/terse-secret-XXXXXX";

static const char *write_file(const char *name, const char *content, mode_t mode) {
    static char path[4][128];
    static unsigned turn;
    char *at = path[turn++ % 4];
    snprintf(at, sizeof path[0], "%s/%s", folder, name);
    unlink(at);
    int file = open(at, O_CREAT | O_WRONLY, 0600);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(write(file, content, strlen(content)), (ssize_t)strlen(content));
    fchmod(file, mode);
    close(file);
    return at;
}

static void hex(const uint8_t *bytes, size_t n, char *text) {
    for (size_t i = 0; i < n; i++) sprintf(text + 2 * i, "%02x", bytes[i]);
}

static ts_proof_subject known_subject(const uint8_t *digest) {
    ts_proof_subject subject = {.digest = digest, .job = 3, .worker = 5, .server = 1};
    for (unsigned i = 0; i < TS_NONCE_BYTES; i++) {
        subject.server_nonce[i] = (uint8_t)i;
        subject.worker_nonce[i] = (uint8_t)(100 + i);
    }
    return subject;
}

/* From Python's hashlib.blake2b: key = BLAKE2b-256(secret, key "terse attach 1"), proof = BLAKE2b-256(message, key). */
START_TEST(proofs_are_those_of_another_implementation) {
    ts_secret *secret = NULL;
    ts_error error;
    uint8_t digest[16], proof[TS_PROOF_BYTES];
    char text[2 * TS_PROOF_BYTES + 1];
    for (unsigned i = 0; i < 16; i++) digest[i] = (uint8_t)(200 + i);
    ck_assert_ok(ts_secret_load(write_file("known", "correct horse battery\n", 0600), &secret, &error));
    ts_proof_subject subject = known_subject(digest);
    ts_secret_prove(secret, TS_PROVER_WORKER, &subject, proof);
    hex(proof, sizeof proof, text);
    ck_assert_str_eq(text, "c1ce39627fc5b06542220089c842245a0aed065286aee139b7e7632c745a35cb");
    ck_assert(ts_secret_verify(secret, TS_PROVER_WORKER, &subject, proof, sizeof proof));
    ck_assert(!ts_secret_verify(secret, TS_PROVER_SERVER, &subject, proof, sizeof proof));
    ck_assert(!ts_secret_verify(secret, TS_PROVER_WORKER, &subject, proof, sizeof proof - 1));
    subject.server_nonce[0] ^= 1; /* recorded once, of no use the next time */
    ck_assert(!ts_secret_verify(secret, TS_PROVER_WORKER, &subject, proof, sizeof proof));
    subject.server_nonce[0] ^= 1;
    ts_secret_prove(secret, TS_PROVER_SERVER, &subject, proof);
    hex(proof, sizeof proof, text);
    ck_assert_str_eq(text, "b46ca09a16e77c4829597182ffcffbf0bc65421f6aa64f8cd927f3eea62a1a5c");
    ts_secret_free(secret);
}
END_TEST

START_TEST(files_that_cannot_be_secrets_are_refused) {
    ts_secret *secret = NULL;
    ts_error error;
    ck_assert_int_eq(ts_secret_check(write_file("open", "0123456789abcdef", 0640), &error), TERSE_ECONFIG);
    ck_assert_msg(strstr(error.text, "640") && strstr(error.text, "chmod 600"), "%s", error.text);
    ck_assert_int_eq(ts_secret_check(write_file("short", "0123456789abcde", 0600), &error), TERSE_ECONFIG);
    ck_assert_msg(strstr(error.text, "15 bytes; allowed: 16"), "%s", error.text);
    ck_assert_int_eq(ts_secret_load(write_file("line", "0123456789abcde\n", 0600), &secret, &error), TERSE_ECONFIG);
    ck_assert_int_eq(ts_secret_check("/no/such/file", &error), TERSE_EIO);
    ck_assert_int_eq(ts_secret_check("/tmp", &error), TERSE_ECONFIG);
    ck_assert_ok(ts_secret_check(write_file("good", "0123456789abcdef", 0400), &error));
}
END_TEST

/* One server, two workers. */
typedef struct {
    ts_config *config[4]; /* the server's, each worker's, that of who comes late */
    ts_sim_network *network;
    ts_server *server;
    ts_client *client[3];
    float param[3][4];
} meeting;

static const char *on_loss = "consistency.on_worker_loss=end", *start = "consistency.start_s=2";

static ts_config *config_with(const char *secret_file) {
    char secret[200];
    const char *overrides[] = {"consistency.deadline_s=2", start, on_loss, secret};
    ts_config *config = NULL;
    ts_error error;
    snprintf(secret, sizeof secret, "auth.secret_file=%s", secret_file ? secret_file : "");
    terse_status status = ts_config_load("tests/sim/sim.yaml", overrides, secret_file ? 4 : 3, &config, &error);
    ck_assert_msg(status == TERSE_OK, "%s", error.text);
    return config;
}

static void meet(meeting *m, const char *server, const char *first, const char *second, double drop) {
    const char *files[] = {server, first, second};
    ts_sim_options options = {.seed = 5, .servers = 1, .workers = 2, .delay_min_us = 100, .delay_max_us = 2000, .drop = drop,
                              .duplicate = drop, .reorder = drop > 0, .frame_limit_bytes = 1 << 20, .spare = 4};
    ts_log_level level = ts_log_get_level();
    ts_log_set_level(TS_LOG_NONE);
    memset(m, 0, sizeof *m);
    ck_assert_ok(ts_sim_network_create(&options, &m->network));
    for (unsigned i = 0; i < 3; i++) m->config[i] = config_with(files[i]);
    ck_assert_ok(ts_server_create(m->config[0], ts_sim_endpoint(m->network, 0), &ts_executor_inline, &m->server));
    for (unsigned w = 0; w < 2; w++) {
        const int64_t shape = 4;
        ck_assert_ok(ts_client_create(m->config[1 + w], ts_sim_endpoint(m->network, 1 + w), &m->client[w]));
        ck_assert_ok(ts_client_declare(m->client[w], "t", &shape, 1, m->param[w], NULL));
        ck_assert_ok(ts_client_start(m->client[w]));
    }
    ts_log_set_level(level);
}

static void run_for(meeting *m, uint64_t us) {
    uint64_t until = ts_sim_now_us(m->network) + us, next = ts_sim_now_us(m->network);
    ts_log_level level = ts_log_get_level();
    ts_log_set_level(TS_LOG_NONE);
    while (next < until) {
        uint32_t peer;
        next += 20000;
        while (ts_sim_step(m->network, next, &peer)) {
            ts_transport *endpoint = ts_sim_endpoint(m->network, peer);
            while (endpoint->ops->poll(endpoint)) continue;
            ts_server_flush(m->server);
        }
        ts_server_tick(m->server);
        ts_server_flush(m->server);
        for (unsigned w = 0; w < 3; w++)
            if (m->client[w]) ts_client_tick(m->client[w]);
    }
    ts_log_set_level(level);
}

static void part(meeting *m) {
    for (unsigned w = 0; w < 3; w++) ts_client_destroy(m->client[w]);
    ts_server_destroy(m->server);
    ts_sim_network_destroy(m->network);
    for (unsigned i = 0; i < 4; i++) ts_config_free(m->config[i]);
}

START_TEST(who_knows_the_secret_is_let_in) {
    for (int lossy = 0; lossy < 2; lossy++) {
        meeting m;
        const char *file = write_file("a", "a secret of some length", 0600);
        meet(&m, file, file, file, lossy ? 0.2 : 0);
        run_for(&m, lossy ? 30000000 : 500000);
        for (unsigned w = 0; w < 2; w++)
            ck_assert_msg(ts_client_get_state(m.client[w]) == TS_CLIENT_TRAINING, "%s", ts_client_message(m.client[w]));
        part(&m);
    }
}
END_TEST

static void expect_denied(const char *server, const char *second, const char *words) {
    meeting m;
    const char *good = write_file("b", "a secret of some length", 0600);
    meet(&m, server, good, second, 0);
    run_for(&m, 500000);
    unsigned denied = server ? 1 : 0; /* a server without a secret: even the first worker does not trust it */
    ck_assert_int_eq(ts_client_failure(m.client[denied]), TERSE_EDENIED);
    ck_assert_msg(strstr(ts_client_message(m.client[denied]), words), "%s", ts_client_message(m.client[denied]));
    if (server) {
        ck_assert_int_ne(ts_client_get_state(m.client[0]), TS_CLIENT_FAILED); /* its end is nothing to the others yet */
        ck_assert_int_eq(ts_server_get_state(m.server), TS_SERVER_RUNNING);
        run_for(&m, 3000000);
        ck_assert_msg(strstr(ts_server_message(m.server), "its secret is missing or not ours") != NULL ||
                      second != NULL, "%s", ts_server_message(m.server));
        ck_assert_msg(strstr(ts_server_message(m.server), "worker 1") != NULL, "%s", ts_server_message(m.server));
    }
    part(&m);
}

START_TEST(who_does_not_know_it_is_told_and_disturbs_nobody) {
    const char *good = write_file("good", "a secret of some length", 0600);
    expect_denied(good, write_file("bad", "another secret of length", 0600), "does not know the secret");
    expect_denied(good, NULL, "auth.secret_file is not set");
    expect_denied(NULL, NULL, "asks for no secret");
}
END_TEST

static void say(meeting *m, Terse__Header *header) {
    ts_transport *from = ts_sim_endpoint(m->network, 2);
    ts_buffer *frame = NULL;
    ck_assert_ok(ts_frame_control(header, &frame));
    ck_assert_ok(from->ops->send(from, 0, frame));
    ts_buffer_unref(frame);
}

START_TEST(nothing_counts_before_the_proof) {
    meeting m;
    const char *good = write_file("c", "a secret of some length", 0600);
    meet(&m, good, good, NULL, 0);
    Terse__Abort abort = TERSE__ABORT__INIT;
    Terse__Header header = TERSE__HEADER__INIT;
    abort.status = TERSE_EPEER;
    abort.reason = (char *)"end it all";
    header.body_case = TERSE__HEADER__BODY_ABORT;
    header.abort = &abort;
    say(&m, &header);
    Terse__Bye bye = TERSE__BYE__INIT;
    header.body_case = TERSE__HEADER__BODY_BYE;
    header.bye = &bye;
    say(&m, &header);
    run_for(&m, 300000);
    ck_assert_int_eq(ts_server_get_state(m.server), TS_SERVER_RUNNING);
    /* Guessing: after three wrong proofs nothing of it is heard any more. */
    uint8_t nonce[TS_NONCE_BYTES] = {1}, digest[16] = {2}, guess[TS_PROOF_BYTES] = {3};
    Terse__Hello hello = TERSE__HELLO__INIT;
    hello.digest = (ProtobufCBinaryData){sizeof digest, digest};
    hello.nonce = (ProtobufCBinaryData){sizeof nonce, nonce};
    header.body_case = TERSE__HEADER__BODY_HELLO;
    header.hello = &hello;
    say(&m, &header);
    run_for(&m, 40000);
    Terse__Proof proof = TERSE__PROOF__INIT;
    proof.proof = (ProtobufCBinaryData){sizeof guess, guess};
    header.body_case = TERSE__HEADER__BODY_PROOF;
    header.proof = &proof;
    for (int i = 0; i < 5; i++) {
        guess[1] = (uint8_t)i;
        say(&m, &header);
        run_for(&m, 40000);
    }
    char text[8192] = "";
    FILE *out = fmemopen(text, sizeof text, "w");
    ts_server_dump(m.server, out);
    fclose(out);
    ck_assert_msg(strstr(text, "denied 3") != NULL, "%s", text);
    ck_assert_int_eq(ts_server_get_state(m.server), TS_SERVER_RUNNING);
    part(&m);
}
END_TEST

/* ---- those who come into a running job ------------------------------------------------------------------------------------------ */

static const ts_membership *members_of(const meeting *m) { return &m->server->jobs[0]->members; }

/* A process comes for a worker's place, and says nothing yet. Returns its peer. */
static uint32_t arrive(meeting *m, uint32_t wanted, terse_status expected) {
    const ts_transport_wish wish = {.job = "default", .wanted = wanted};
    uint32_t worker = 0, peer = 0;
    ts_error reason = {""};
    terse_status status = ts_sim_come(m->network, &wish, &worker, &peer, &reason);
    ck_assert_msg(status == expected, "%s", reason.text);
    return peer;
}

/* It says Hello, with a secret of its own. Becomes m->client[c], which must be no living process's. */
static void enter(meeting *m, unsigned c, uint32_t peer, const char *file) {
    const int64_t shape = 4;
    ts_client_destroy(m->client[c]);
    ts_config_free(m->config[1 + c]);
    m->config[1 + c] = config_with(file);
    ck_assert_ok(ts_client_create(m->config[1 + c], ts_sim_endpoint(m->network, peer), &m->client[c]));
    ck_assert_ok(ts_client_declare(m->client[c], "t", &shape, 1, m->param[c], NULL));
    ck_assert_ok(ts_client_start(m->client[c]));
}

/* Both at once, as m->client[1]. */
static uint32_t come(meeting *m, uint32_t wanted, const char *file, terse_status expected) {
    uint32_t peer = arrive(m, wanted, expected);
    if (expected == TERSE_OK) enter(m, 1, peer, file);
    return peer;
}

START_TEST(a_place_is_taken_with_the_proof_only) {
    meeting m;
    const char *good = write_file("d", "a secret of some length", 0600), *bad = write_file("e", "another secret of length", 0600);
    on_loss = "consistency.on_worker_loss=go_on";
    meet(&m, good, good, good, 0);
    run_for(&m, 500000);
    ck_assert_int_eq(ts_client_get_state(m.client[1]), TS_CLIENT_TRAINING);
    ts_sim_kill(m.network, 2);
    ts_sim_tell_lost(m.network, 2);
    run_for(&m, 2500000);
    ck_assert(members_of(&m)->members[1].lost);
    /* Without the secret: neither a lost worker's place nor a number is taken, and who has a place keeps it. */
    for (int without = 0; without < 2; without++) {
        (void)come(&m, 1, without ? NULL : bad, TERSE_OK);
        ck_assert_uint_eq(members_of(&m)->members[1].peer, 2);
        (void)come(&m, 1, good, TERSE_EDUPLICATE); /* for a moment it is kept for who has asked for it */
        run_for(&m, 500000);
        ck_assert_int_eq(ts_client_failure(m.client[1]), TERSE_EDENIED);
        ck_assert_uint_eq(members_of(&m)->members[1].peer, 2);
        ck_assert(members_of(&m)->members[1].lost && !members_of(&m)->members[1].coming);
        run_for(&m, 2000000);
    }
    (void)come(&m, 2, bad, TERSE_OK);
    run_for(&m, 500000);
    ck_assert_uint_eq(members_of(&m)->count, 2);
    /* With it. */
    uint32_t peer = come(&m, 1, good, TERSE_OK);
    ck_assert_uint_eq(members_of(&m)->members[1].peer, 2);
    run_for(&m, 1000000);
    ck_assert(!members_of(&m)->members[1].lost && members_of(&m)->members[1].incarnation == 2); /* it waits for worker 0's push */
    ck_assert_uint_eq(members_of(&m)->members[1].peer, peer);
    ck_assert_int_eq(ts_client_get_state(m.client[0]), TS_CLIENT_TRAINING);
    ck_assert_int_eq(ts_server_get_state(m.server), TS_SERVER_RUNNING);
    part(&m);
    on_loss = "consistency.on_worker_loss=end";
}
END_TEST

/* Who loads for longer than others wait for the proof, and longer than the deadline, is let in if the place is still free. */
START_TEST(who_is_slow_to_prove_itself_displaces_nobody_and_is_not_dropped) {
    meeting m;
    const char *good = write_file("f", "a secret of some length", 0600);
    on_loss = "consistency.on_worker_loss=go_on";
    start = "consistency.start_s=10";
    meet(&m, good, good, good, 0);
    run_for(&m, 500000);
    for (int other = 1; other >= 0; other--) {
        uint32_t dead = members_of(&m)->members[1].peer, lives = members_of(&m)->members[1].incarnation;
        ts_sim_kill(m.network, dead);
        ts_sim_tell_lost(m.network, dead);
        run_for(&m, 2500000);
        ck_assert(members_of(&m)->members[1].lost);
        uint32_t slow = arrive(&m, 1, TERSE_OK), in = slow;
        run_for(&m, 3000000);
        if (other) in = come(&m, 1, good, TERSE_OK);
        run_for(&m, 1000000);
        ck_assert(members_of(&m)->members[1].lost != other);
        enter(&m, 2, slow, good);
        run_for(&m, 3000000);
        ck_assert_int_eq(ts_client_failure(m.client[2]), other ? TERSE_EDUPLICATE : TERSE_OK);
        ck_assert(!members_of(&m)->members[1].lost);
        ck_assert_uint_eq(members_of(&m)->members[1].incarnation, lives + 1);
        ck_assert_uint_eq(members_of(&m)->members[1].peer, in);
        if (other) ck_assert_int_eq(ts_client_failure(m.client[1]), TERSE_OK);
    }
    part(&m);
    on_loss = "consistency.on_worker_loss=end";
    start = "consistency.start_s=2";
}
END_TEST

static void make_folder(void) { ck_assert_ptr_nonnull(mkdtemp(folder)); }

TCase *test_challenge(void);
TCase *test_challenge(void) {
    TCase *tests = tcase_create("challenge");
    tcase_add_unchecked_fixture(tests, make_folder, NULL);
    tcase_add_test(tests, proofs_are_those_of_another_implementation);
    tcase_add_test(tests, files_that_cannot_be_secrets_are_refused);
    tcase_add_test(tests, who_knows_the_secret_is_let_in);
    tcase_add_test(tests, who_does_not_know_it_is_told_and_disturbs_nobody);
    tcase_add_test(tests, nothing_counts_before_the_proof);
    tcase_add_test(tests, a_place_is_taken_with_the_proof_only);
    tcase_add_test(tests, who_is_slow_to_prove_itself_displaces_nobody_and_is_not_dropped);
    return tests;
}
