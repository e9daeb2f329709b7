/* SPDX-License-Identifier: Apache-2.0 */
/* The server's core: attaching, membership, failures, control messages, hostile peers. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/wire/bundle.h"
#include "tests/sim/server_rig.h"
#include "tests/unit/unit.h"

/* ---- attaching --------------------------------------------------------------------------------------------------------------- */

static int last_verdict(rig *r, uint32_t w) {
    ts_frame frame = {0};
    ck_assert_uint_ge(rig_got(r, w, TERSE__HEADER__BODY_WELCOME, &frame), 1);
    int verdict = (int)frame.header->welcome->verdict;
    ts_frame_release(&frame);
    return verdict;
}

START_TEST(the_first_worker_brings_the_contract_and_others_match_it) {
    rig *r = rig_create(2, RIG_DENSE);
    char waiting[256];
    rig_hello(r, 0, r->contract, TS_PROTOCOL_VERSION);
    rig_run(r, 1000);
    ck_assert_int_eq(last_verdict(r, 0), TERSE__WELCOME__VERDICT__NEED_CONTRACT);
    ts_server_waiting(r->server, waiting, sizeof waiting);
    ck_assert_ptr_nonnull(strstr(waiting, "to attach"));
    rig_send_contract(r, 0, r->contract);
    rig_run(r, 1000);
    ck_assert_int_eq(last_verdict(r, 0), TERSE__WELCOME__VERDICT__ACCEPTED);
    rig_hello(r, 1, r->contract, TS_PROTOCOL_VERSION);
    rig_run(r, 1000);
    ck_assert_int_eq(last_verdict(r, 1), TERSE__WELCOME__VERDICT__ACCEPTED);
    ck_assert_uint_eq(rig_got(r, 1, TERSE__HEADER__BODY_WELCOME, NULL), 1);
    rig_send_contract(r, 0, r->contract); /* repeated: answered again */
    rig_hello(r, 1, r->contract, TS_PROTOCOL_VERSION);
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_WELCOME, NULL), 3);
    ck_assert_uint_eq(rig_got(r, 1, TERSE__HEADER__BODY_WELCOME, NULL), 2);
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_RUNNING);
    rig_destroy(r);
}
END_TEST

START_TEST(another_model_is_refused_naming_both_workers) {
    rig *r = rig_create(2, RIG_DENSE);
    ts_contract *other = rig_contract(r->config, 90);
    rig_hello(r, 0, r->contract, TS_PROTOCOL_VERSION);
    rig_run(r, 1000);
    rig_send_contract(r, 0, r->contract);
    rig_hello(r, 1, other, TS_PROTOCOL_VERSION);
    rig_run(r, 1000);
    ck_assert_int_eq(last_verdict(r, 1), TERSE__WELCOME__VERDICT__NEED_CONTRACT);
    rig_send_contract(r, 1, other);
    rig_run(r, 1000);
    ts_frame refused = {0}, abort = {0};
    ck_assert_uint_ge(rig_got(r, 1, TERSE__HEADER__BODY_WELCOME, &refused), 1);
    ck_assert_int_eq(refused.header->welcome->verdict, TERSE__WELCOME__VERDICT__REFUSED);
    ck_assert_uint_eq(refused.header->welcome->status, TERSE_EMISMATCH);
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_ABORT, &abort), 1);
    ck_assert_str_eq(abort.header->abort->reason, refused.header->welcome->reason);
    const ts_peer *peers = ts_sim_endpoint(r->network, 0)->peers;
    ck_assert_ptr_nonnull(strstr(abort.header->abort->reason, peers[1].name));
    ck_assert_ptr_nonnull(strstr(abort.header->abort->reason, peers[2].name));
    ck_assert_ptr_nonnull(strstr(abort.header->abort->reason, "tensor a"));
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_FAILED);
    ck_assert_int_eq(ts_server_failure(r->server), TERSE_EMISMATCH);
    ts_frame_release(&refused);
    ts_frame_release(&abort);
    ts_contract_destroy(other);
    rig_destroy(r);
}
END_TEST

/* A contract of the rig's tensor a alone, under these texts. */
static ts_contract *contract_of(const char *optimizer, const char *feedback, const char *rounds, bool worker_momentum) {
    ts_contract_options options = {.slice_elems = 64, .seed = 7, .optimizer = optimizer, .feedback = feedback, .rounds = rounds};
    ts_pipeline up, down;
    ts_contract *contract;
    int64_t shape[] = {100};
    ck_assert_ok(ts_pipeline_parse("topk:0.1 | fp32 | raw32", &up, NULL));
    ck_assert_ok(ts_pipeline_parse("dense", &down, NULL));
    ck_assert_ok(ts_contract_create(&options, &contract));
    ck_assert_ok(ts_contract_add(contract, "a", shape, 1, &up, &down, worker_momentum, NULL, NULL));
    ck_assert_ok(ts_contract_seal(contract, 1));
    return contract;
}

START_TEST(settings_of_a_contract_that_no_config_allows_are_refused) {
    static const struct {
        const char *optimizer, *feedback, *rounds, *why;
        bool momentum;
    } cases[] = {
        {"name=sgd lr=-1", "", "", "optimizer.lr", false},
        {"name=sgd lr=nan", "", "", "optimizer.lr", false},
        {"name=sgd log=1", "", "", "log=1", false},
        {"name=adam momentum=0.5", "", "", "optimizer.momentum", false},
        {"name=sgd", "variant=ef22", "", "error_feedback.variant", false},
        {"name=sgd", "", "stragglers=proceed", "consistency.quorum", false},
        {"name=sgd", "", "history=0", "servers.history", false},
        {"name=sgd", "", "history", "history", false},
        {"name=sgd", "", "", "tensor a: whose momentum", true},
        {"name=sgd", "momentum_correction=0.9", "", "tensor a: whose momentum", false},
        {"name=lamb lr=0.1", "", "", "are cut", false},
        {"name=sgd", "", "memory_bytes=100", "job.memory_bytes allows 100", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rig *r = rig_create(1, RIG_DENSE);
        ts_contract *other = contract_of(cases[i].optimizer, cases[i].feedback, cases[i].rounds, cases[i].momentum);
        rig_hello(r, 0, other, TS_PROTOCOL_VERSION);
        rig_run(r, 1000);
        rig_send_contract(r, 0, other);
        rig_run(r, 1000);
        ck_assert_int_eq(last_verdict(r, 0), TERSE__WELCOME__VERDICT__REFUSED);
        ck_assert_msg(strstr(ts_server_message(r->server), cases[i].why) != NULL, "%s", ts_server_message(r->server));
        ck_assert_ptr_nonnull(strstr(ts_server_message(r->server), "worker 0"));
        ts_contract_destroy(other);
        rig_destroy(r);
    }
}
END_TEST

START_TEST(a_server_runs_the_jobs_settings_not_its_own) {
    rig *r = rig_create(1, RIG_DENSE); /* lr 0.5 */
    ts_config *config = rig_config("optimizer: {name: sgd, lr: 0.25, momentum: 0}\n");
    ts_contract *other = rig_contract(config, 100);
    float params[RIG_ELEMS], gradient[RIG_ELEMS], replica[RIG_ELEMS];
    rig_initial(params);
    rig_gradient(0, 0, gradient);
    rig_hello(r, 0, other, TS_PROTOCOL_VERSION);
    rig_run(r, 1000);
    rig_send_contract(r, 0, other);
    rig_run(r, 1000);
    ck_assert_int_eq(last_verdict(r, 0), TERSE__WELCOME__VERDICT__ACCEPTED);
    rig_set(r, 0, params);
    rig_run(r, 1000);
    rig_push(r, 0, 0, gradient);
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_apply(r, 0, replica), 1);
    for (size_t i = 0; i < RIG_ELEMS; i++) ck_assert_float_eq(replica[i], params[i] - 0.25f * gradient[i]);
    ts_contract_destroy(other);
    ts_config_free(config);
    rig_destroy(r);
}
END_TEST

START_TEST(other_protocols_are_refused) {
    rig *r = rig_create(1, RIG_DENSE);
    rig_hello(r, 0, r->contract, TS_PROTOCOL_VERSION + 1);
    rig_run(r, 1000);
    ck_assert_int_eq(last_verdict(r, 0), TERSE__WELCOME__VERDICT__REFUSED);
    ck_assert_int_eq(ts_server_failure(r->server), TERSE_EVERSION);
    rig_destroy(r);
}
END_TEST

/* ---- membership ---------------------------------------------------------------------------------------------------------------------- */

START_TEST(workers_may_be_done_at_different_steps) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS], replica[RIG_ELEMS], g[RIG_ELEMS], other[RIG_ELEMS];
    unsigned slices;
    uint64_t step;
    rig_attach_all(r, params);
    rig_gradient(0, 0, g);
    rig_gradient(1, 0, other);
    rig_done(r, 1, 1); /* overtakes its own last push */
    rig_run(r, 1000);
    ck_assert_status(rig_last_ack(r, 1, &slices, &step), TERSE_OK);
    ck_assert_uint_eq(step, 1);
    rig_push(r, 0, 0, g);
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_DATA, NULL), 0);
    rig_push(r, 1, 0, other);
    rig_run(r, 1000);
    rig_push(r, 0, 1, g);
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_apply(r, 0, replica), 2);
    for (size_t i = 0; i < RIG_ELEMS; i++)
        ck_assert_float_eq(replica[i], params[i] - 0.5f * ((g[i] + other[i]) * 0.5f) - 0.5f * g[i]);
    rig_push(r, 0, 2, g); /* a round that waits for nobody but this one closes when that one is done */
    rig_done(r, 0, 3);
    rig_bye(r, 1);
    rig_run(r, 100000);
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_RUNNING);
    rig_pull(r, 0, 0, 0, true, true); /* the last requests of those who are still here */
    rig_run(r, 1000);
    ck_assert_uint_ge(rig_got(r, 0, TERSE__HEADER__BODY_DATA, NULL), 3);
    rig_bye(r, 0);
    rig_run(r, 100000);
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_FINISHED);
    ck_assert(ts_server_idle(r->server));
    rig_destroy(r);
}
END_TEST

/* One of three falls silent: what it delivered counts, the others go on, and when it talks again it is told. */
START_TEST(a_job_goes_on_without_a_silent_worker) {
    float params[RIG_ELEMS], replica[RIG_ELEMS], g[3][RIG_ELEMS];
    ts_frame frame;
    rig *r = rig_create(3, RIG_DENSE);
    rig_attach_all(r, params);
    for (uint32_t w = 0; w < 3; w++) rig_gradient(w, 0, g[w]);
    rig_push(r, 0, 0, g[0]);
    rig_push(r, 1, 0, g[1]);
    rig_send(r, 2, rig_push_frame(r, 2, 0, g[2], 1, true)); /* its first slice alone */
    for (int half = 0; half < 10; half++) {
        rig_heartbeat(r, 0);
        rig_heartbeat(r, 1);
        rig_run(r, RIG_SECOND / 2);
    }
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_RUNNING);
    memcpy(replica, params, sizeof replica);
    ck_assert_uint_eq(rig_apply(r, 0, replica), 1);
    for (size_t i = 0; i < RIG_ELEMS; i++) {
        bool all = i < rig_slice_elems[0];
        float mean = all ? (g[0][i] + g[1][i] + g[2][i]) * (1.0f / 3.0f) : (g[0][i] + g[1][i]) * 0.5f;
        ck_assert_msg(fabsf(replica[i] - (params[i] - 0.5f * mean)) <= 1e-6f, "element %zu: %g, not %g", i, (double)replica[i],
                      (double)(params[i] - 0.5f * mean));
    }
    rig_forget(r);
    rig_push(r, 0, 1, g[0]);
    rig_push(r, 1, 1, g[1]);
    rig_push(r, 2, 1, g[2]); /* it wakes up */
    rig_run(r, 100000);
    ck_assert_uint_eq(rig_apply(r, 1, replica), 2);
    ck_assert_uint_eq(rig_got(r, 2, TERSE__HEADER__BODY_ABORT, &frame), 1);
    ck_assert_int_eq((int)frame.header->abort->status, TERSE_ESTALE);
    ts_frame_release(&frame);
    for (uint32_t w = 0; w < 2; w++) rig_done(r, w, 2);
    for (uint32_t w = 0; w < 2; w++) rig_bye(r, w);
    rig_run(r, 100000);
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_FINISHED);
    rig_destroy(r);
}
END_TEST

START_TEST(a_silent_worker_ends_the_job_by_name) {
    rig *r = rig_create(2, RIG_ENDS RIG_DENSE);
    float params[RIG_ELEMS], g[RIG_ELEMS];
    char waiting[256];
    rig_attach_all(r, params);
    rig_gradient(0, 0, g);
    rig_push(r, 0, 0, g);
    rig_run(r, 1000);
    const char *name = ts_sim_endpoint(r->network, 0)->peers[2].name;
    ts_server_waiting(r->server, waiting, sizeof waiting);
    ck_assert_ptr_nonnull(strstr(waiting, name));
    ck_assert_ptr_nonnull(strstr(waiting, "step 0"));
    for (int second = 0; second < 6; second++) {
        rig_heartbeat(r, 0);
        rig_run(r, RIG_SECOND);
        ck_assert_int_eq(ts_server_get_state(r->server), second < 3 ? TS_SERVER_RUNNING : TS_SERVER_FAILED);
        if (second == 3) break;
    }
    rig_run(r, 1000);
    ck_assert_int_eq(ts_server_failure(r->server), TERSE_ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(ts_server_message(r->server), name));
    ck_assert_ptr_nonnull(strstr(ts_server_message(r->server), "round 0 waited"));
    ts_frame frame = {0};
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_ABORT, &frame), 1);
    ck_assert_str_eq(frame.header->abort->reason, ts_server_message(r->server));
    ck_assert_uint_eq(frame.header->abort->status, TERSE_ETIMEDOUT);
    ts_frame_release(&frame);
    ck_assert_uint_ge(rig_got(r, 0, TERSE__HEADER__BODY_HEARTBEAT, &frame), 2); /* said while it waited */
    ck_assert_ptr_nonnull(strstr(frame.header->heartbeat->waiting, name));
    ts_frame_release(&frame);
    rig_forget(r);
    rig_run(r, RIG_SECOND);
    rig_heartbeat(r, 0); /* its Abort was lost */
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_ABORT, NULL), 1);
    rig_destroy(r);
}
END_TEST

/* The clock jumps over the deadline between two ticks: the server was stopped, not the workers. */
START_TEST(own_absence_is_nobodys_silence) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS];
    uint32_t peer;
    rig_attach_all(r, params);
    uint64_t later_us = ts_sim_now_us(r->network) + 10 * RIG_SECOND;
    while (ts_sim_step(r->network, later_us, &peer)) {}
    ts_server_tick(r->server);
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_RUNNING);
    rig_run(r, 5 * RIG_SECOND);
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_FAILED);
    rig_destroy(r);
}
END_TEST

START_TEST(a_worker_that_never_comes_is_named) {
    rig *r = rig_create(2, RIG_DENSE);
    rig_hello(r, 0, r->contract, TS_PROTOCOL_VERSION);
    rig_run(r, 1000);
    for (int second = 0; second < 5; second++) {
        rig_heartbeat(r, 0);
        rig_run(r, RIG_SECOND);
    }
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_FAILED);
    ck_assert_ptr_nonnull(strstr(ts_server_message(r->server), ts_sim_endpoint(r->network, 0)->peers[2].name));
    ck_assert_ptr_nonnull(strstr(ts_server_message(r->server), "has not attached"));
    rig_destroy(r);
}
END_TEST

/* consistency.start_s until the parameters have their first values, from then on the deadline. */
START_TEST(a_worker_may_take_its_time_at_the_start) {
    for (int trains = 0; trains < 2; trains++) {
        rig *r = rig_create(2, RIG_DENSE RIG_SLOW_START RIG_ENDS);
        float params[RIG_ELEMS];
        if (trains) rig_attach_all(r, params);
        for (int second = 0; second < (trains ? 5 : 10); second++) {
            ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_RUNNING);
            rig_heartbeat(r, 0);
            if (second == 0) rig_hello(r, 1, r->contract, TS_PROTOCOL_VERSION);
            rig_run(r, RIG_SECOND);
        }
        ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_FAILED);
        rig_destroy(r);
    }
}
END_TEST

START_TEST(done_and_silent_counts_as_gone) {
    rig *r = rig_create(1, RIG_DENSE);
    float params[RIG_ELEMS];
    rig_attach_all(r, params);
    rig_done(r, 0, 0);
    rig_run(r, 3 * RIG_SECOND);
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_RUNNING);
    rig_run(r, 2 * RIG_SECOND);
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_FINISHED);
    rig_destroy(r);
}
END_TEST

START_TEST(an_abort_is_passed_on) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS];
    rig_attach_all(r, params);
    Terse__Abort body = TERSE__ABORT__INIT;
    char reason[] = "out of data \xff\n\"forged\"", shown[] = "out of data \\xff\\x0a\"forged\"";
    body.status = TERSE_EIO;
    body.reason = reason;
    rig_send_body(r, 1, TERSE__HEADER__BODY_ABORT, &body);
    rig_run(r, 1000);
    ts_frame frame = {0};
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_ABORT, &frame), 1);
    ck_assert_ptr_nonnull(strstr(frame.header->abort->reason, shown));
    ck_assert_ptr_nonnull(strstr(ts_server_message(r->server), shown)); /* plain, whoever's words they are */
    ck_assert_ptr_nonnull(strstr(frame.header->abort->reason, ts_sim_endpoint(r->network, 0)->peers[2].name));
    ck_assert_uint_eq(frame.header->abort->status, TERSE_EIO);
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_FAILED);
    ts_frame_release(&frame);
    rig_destroy(r);
}
END_TEST

/* ---- control ---------------------------------------------------------------------------------------------------------------------------- */

static void reduce(rig *r, uint32_t w, uint64_t sequence, double *values, size_t count) {
    Terse__Reduce body = TERSE__REDUCE__INIT;
    body.sequence = sequence;
    body.values = values;
    body.n_values = count;
    rig_send_body(r, w, TERSE__HEADER__BODY_REDUCE, &body);
}

START_TEST(sums_are_answered_to_all_and_repeated_on_demand) {
    rig *r = rig_create(3, RIG_DENSE);
    float params[RIG_ELEMS];
    double values[3][2] = {{1, 1e16}, {2, 1}, {4, -1e16}};
    rig_attach_all(r, params);
    for (uint32_t w = 3; w-- > 0;) reduce(r, w, 1, values[w], 2);
    reduce(r, 0, 1, values[0], 2);
    rig_run(r, 1000);
    for (uint32_t w = 0; w < 3; w++) {
        ts_frame frame = {0};
        ck_assert_uint_ge(rig_got(r, w, TERSE__HEADER__BODY_REDUCED, &frame), 1);
        ck_assert_uint_eq(frame.header->reduced->n_values, 2);
        ck_assert_double_eq(frame.header->reduced->values[0], 7);
        ck_assert_double_eq(frame.header->reduced->values[1], (1e16 + 1.0) - 1e16); /* in worker order */
        ts_frame_release(&frame);
    }
    rig_forget(r);
    reduce(r, 1, 1, values[1], 2);
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_got(r, 1, TERSE__HEADER__BODY_REDUCED, NULL), 1);
    reduce(r, 0, 2, NULL, 0); /* a barrier; worker 2 leaves instead of coming */
    reduce(r, 1, 2, NULL, 0);
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_REDUCED, NULL), 0);
    rig_done(r, 2, 0);
    rig_bye(r, 2);
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_REDUCED, NULL), 1);
    rig_destroy(r);
}
END_TEST

START_TEST(stats_tell_bytes_rounds_and_hashes) {
    rig *r = rig_create(1, RIG_DENSE "error_feedback: {warmup: {steps: 2}}\n");
    float params[RIG_ELEMS], g[RIG_ELEMS], fetched[RIG_ELEMS];
    Terse__StatsRequest body = TERSE__STATS_REQUEST__INIT;
    rig_attach_all(r, params);
    rig_gradient(0, 0, g);
    for (uint64_t step = 0; step < 3; step++) {
        rig_push(r, 0, step, g);
        rig_run(r, 1000);
    }
    size_t data_bytes = r->in[0].frames[r->in[0].count - 1]->len;
    ts_buffer *last = rig_push_frame(r, 0, 2, g, 7, true);
    size_t push_bytes = last->len;
    ts_buffer_unref(last);
    rig_pull(r, 0, 0, 0, true, true);
    rig_run(r, 1000);
    rig_apply(r, 0, fetched);
    size_t fetch_bytes = r->in[0].frames[r->in[0].count - 1]->len;
    rig_forget(r);
    rig_send_body(r, 0, TERSE__HEADER__BODY_STATS_REQUEST, &body);
    rig_run(r, 1000);
    ts_frame frame = {0};
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_STATS, &frame), 1);
    const Terse__Stats *stats = frame.header->stats;
    ck_assert_uint_eq(stats->rounds, 3);
    ck_assert_uint_eq(stats->n_hashes, RIG_SLICES);
    for (uint32_t s = 0; s < RIG_SLICES; s++)
        ck_assert_uint_eq(stats->hashes[s]->xxh3, XXH3_64bits(fetched + rig_slice_first[s], rig_slice_elems[s] * sizeof(float)));
    ck_assert_uint_eq(stats->steady_bytes_out, data_bytes + fetch_bytes);
    ck_assert_uint_gt(stats->steady_bytes_in, push_bytes); /* and the requests */
    ck_assert_uint_lt(stats->steady_bytes_in, push_bytes + 100);
    ck_assert_uint_gt(stats->bytes_in, 3 * push_bytes);
    ck_assert_uint_gt(stats->bytes_out, 3 * data_bytes + fetch_bytes);
    ts_frame_release(&frame);
    rig_destroy(r);
}
END_TEST

/* ---- what comes from hostile or broken peers --------------------------------------------------------------------------------------------- */

START_TEST(damaged_frames_disturb_nobody) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS], replica[RIG_ELEMS], g[RIG_ELEMS];
    rig_attach_all(r, params);
    rig_gradient(0, 0, g);
    ts_buffer *good = rig_push_frame(r, 1, 0, g, 7, true);
    ts_random random = ts_random_start(5);
    for (size_t i = 0; i < 2000; i++) {
        ts_buffer *bad;
        size_t len = i % 3 == 0 ? ts_random_below(&random, (uint32_t)good->len) : good->len;
        ck_assert_ok(ts_buffer_create(len, &bad));
        memcpy(bad->data, good->data, len);
        bad->len = len;
        if (i % 3 == 1) bad->data[ts_random_below(&random, (uint32_t)len)] ^= (uint8_t)(1 + ts_random_below(&random, 255));
        if (i % 3 == 2)
            for (size_t b = 0; b < len; b++) bad->data[b] = (uint8_t)ts_random_u32(&random);
        rig_send(r, 1, bad);
    }
    ts_buffer_unref(good);
    rig_run(r, 1000);
    rig_push(r, 0, 0, g);
    rig_push(r, 1, 0, g);
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_apply(r, 0, replica), 1);
    for (size_t i = 0; i < RIG_ELEMS; i++) ck_assert_float_eq(replica[i], params[i] - 0.5f * g[i]);
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_RUNNING);
    rig_destroy(r);
}
END_TEST

/* Frames whose checksum is right and whose content is not. */
START_TEST(false_frames_are_refused_one_by_one) {
    rig *r = rig_create(2, RIG_SPARSE);
    float params[RIG_ELEMS], replica[RIG_ELEMS], g[RIG_ELEMS];
    unsigned slices;
    rig_attach_all(r, params);
    memcpy(replica, params, sizeof params);
    rig_gradient(0, 0, g);
    rig_push(r, 0, 0, g);
    Terse__Push body = TERSE__PUSH__INIT;
    rig_send(r, 1, rig_raw_bundle(TERSE__HEADER__BODY_PUSH, &body, g, 1)); /* raw floats are no topk packet */
    rig_run(r, 1000);
    ck_assert_status(rig_last_ack(r, 1, &slices, NULL), TERSE_ECORRUPT);
    ck_assert_uint_eq(slices, 1);
    rig_push(r, 1, 0, g); /* the right one closes the round */
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_apply(r, 0, replica), 1);
    rig_forget(r);
    Terse__Set set = TERSE__SET__INIT;
    Terse__Pull odd = TERSE__PULL__INIT;
    Terse__Welcome welcome = TERSE__WELCOME__INIT;
    uint32_t beyond[] = {0, RIG_SLICES};
    odd.want = 2;
    odd.have = 1;
    odd.slices = beyond;
    odd.n_slices = 2;
    rig_send(r, 1, rig_raw_bundle(TERSE__HEADER__BODY_SET, &set, g, 7)); /* not worker 0 */
    rig_send_body(r, 1, TERSE__HEADER__BODY_PULL, &odd);
    rig_send_body(r, 1, TERSE__HEADER__BODY_WELCOME, &welcome);
    rig_run(r, 1000);
    ck_assert_uint_eq(r->in[1].count, 0);
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_RUNNING);
    rig_destroy(r);
}
END_TEST

START_TEST(nothing_is_taken_before_attaching) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS];
    rig_initial(params);
    rig_push(r, 1, 0, params);
    rig_set(r, 0, params);
    rig_pull(r, 1, 0, 0, true, false);
    rig_done(r, 1, 0);
    rig_run(r, 1000);
    ck_assert_uint_eq(r->in[0].count + r->in[1].count, 0);
    char text[8192] = "";
    FILE *out = fmemopen(text, sizeof text, "w");
    ts_server_dump(r->server, out);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "refused 3"));
    ck_assert_ptr_nonnull(strstr(text, "to attach"));
    rig_destroy(r);
}
END_TEST

START_TEST(a_flood_of_requests_is_answered_once) {
    rig *r = rig_create(1, RIG_DENSE);
    float params[RIG_ELEMS];
    rig_attach_all(r, params);
    Terse__Pull body = TERSE__PULL__INIT;
    body.snapshot = true;
    body.want = 1; /* not there yet */
    for (int i = 0; i < 1000; i++) rig_send_body(r, 0, TERSE__HEADER__BODY_PULL, &body);
    rig_run(r, 1000);
    ck_assert_uint_eq(r->in[0].count, 0);
    float g[RIG_ELEMS];
    rig_gradient(0, 0, g);
    rig_send(r, 0, rig_push_frame(r, 0, 0, g, 7, false));
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_DATA, NULL), 1);
    rig_destroy(r);
}
END_TEST

START_TEST(creating_survives_every_failed_allocation) {
    ts_config *config = rig_config(RIG_DENSE);
    ts_sim_options options = {.servers = 1, .workers = 2, .frame_limit_bytes = 1 << 20};
    ts_sim_network *network;
    ck_assert_ok(ts_sim_network_create(&options, &network));
    ts_server *server = NULL;
    terse_status status = TERSE_ENOMEM;
    for (int64_t failing = 0; status != TERSE_OK && failing < 100; failing++) {
        ts_mem_fail_after(failing);
        status = ts_server_create(config, ts_sim_endpoint(network, 0), &ts_executor_inline, &server);
        ts_mem_fail_after(-1);
        if (status != TERSE_OK) ck_assert_int_eq(status, TERSE_ENOMEM);
    }
    ck_assert_ok(status);
    ts_server_destroy(server);
    ts_sim_network_destroy(network);
    ts_config_free(config);
}
END_TEST

TCase *test_server(void);
TCase *test_server(void) {
    TCase *tests = tcase_create("server");
    tcase_add_test(tests, the_first_worker_brings_the_contract_and_others_match_it);
    tcase_add_test(tests, another_model_is_refused_naming_both_workers);
    tcase_add_test(tests, settings_of_a_contract_that_no_config_allows_are_refused);
    tcase_add_test(tests, a_server_runs_the_jobs_settings_not_its_own);
    tcase_add_test(tests, other_protocols_are_refused);
    tcase_add_test(tests, workers_may_be_done_at_different_steps);
    tcase_add_test(tests, a_job_goes_on_without_a_silent_worker);
    tcase_add_test(tests, a_silent_worker_ends_the_job_by_name);
    tcase_add_test(tests, own_absence_is_nobodys_silence);
    tcase_add_test(tests, a_worker_that_never_comes_is_named);
    tcase_add_test(tests, a_worker_may_take_its_time_at_the_start);
    tcase_add_test(tests, done_and_silent_counts_as_gone);
    tcase_add_test(tests, an_abort_is_passed_on);
    tcase_add_test(tests, sums_are_answered_to_all_and_repeated_on_demand);
    tcase_add_test(tests, stats_tell_bytes_rounds_and_hashes);
    tcase_add_test(tests, damaged_frames_disturb_nobody);
    tcase_add_test(tests, false_frames_are_refused_one_by_one);
    tcase_add_test(tests, nothing_is_taken_before_attaching);
    tcase_add_test(tests, a_flood_of_requests_is_answered_once);
    tcase_add_test(tests, creating_survives_every_failed_allocation);
    return tests;
}
