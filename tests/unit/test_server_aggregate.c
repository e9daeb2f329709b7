/* SPDX-License-Identifier: Apache-2.0 */
/* The server's core: what becomes of pushes that are not finite, and of numbers of samples. */
#include <math.h>
#include <string.h>

#include "tests/sim/server_rig.h"
#include "tests/unit/unit.h"

/* A push of a dense pipeline as its bytes are: raw floats, whatever they are. */
static void push_raw(rig *r, uint32_t w, uint64_t step, const float *values, uint32_t samples) {
    Terse__Push push = TERSE__PUSH__INIT;
    push.step = step;
    push.pull = true;
    push.samples = samples;
    rig_send(r, w, rig_raw_bundle(TERSE__HEADER__BODY_PUSH, &push, values, 7));
    rig_run(r, 1000);
}

static bool dump_says(const rig *r, const char *text) {
    static char dump[16384];
    memset(dump, 0, sizeof dump);
    FILE *out = fmemopen(dump, sizeof dump - 1, "w");
    ts_server_dump(r->server, out);
    fclose(out);
    return strstr(dump, text) != NULL;
}

START_TEST(a_push_of_nan_is_left_out_slice_by_slice) {
    rig *r = rig_create(3, RIG_DENSE);
    float params[RIG_ELEMS], replica[RIG_ELEMS], g[3][RIG_ELEMS];
    size_t bad = rig_slice_first[1] + 3, end = rig_slice_first[1] + rig_slice_elems[1];
    rig_attach_all(r, params);
    for (uint32_t w = 0; w < 3; w++) rig_gradient(w, 0, g[w]);
    g[1][bad] = NAN;
    for (uint32_t w = 0; w < 3; w++) push_raw(r, w, 0, g[w], 0);
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_RUNNING);
    for (uint32_t w = 0; w < 3; w++) {
        ck_assert_uint_eq(rig_apply(r, w, replica), 1);
        for (size_t i = 0; i < RIG_ELEMS; i++) {
            bool two = i >= rig_slice_first[1] && i < end;
            float mean = two ? (g[0][i] + g[2][i]) * 0.5f : (g[0][i] + g[1][i] + g[2][i]) * (1.0f / 3.0f);
            ck_assert_float_eq(replica[i], params[i] - 0.5f * mean);
        }
    }
    ck_assert(dump_says(r, "quarantined 1,"));
    memcpy(params, replica, sizeof params);
    rig_forget(r);
    for (uint32_t w = 0; w < 3; w++) { /* nobody says anything of use of that slice: it stays */
        g[w][bad] = w == 1 ? -INFINITY : NAN;
        push_raw(r, w, 1, g[w], 0);
    }
    ck_assert_uint_eq(rig_apply(r, 0, replica), 2);
    for (size_t i = 0; i < RIG_ELEMS; i++) {
        bool stays = i >= rig_slice_first[1] && i < end;
        ck_assert(stays ? replica[i] == params[i] : replica[i] != params[i] || g[0][i] + g[1][i] + g[2][i] == 0);
    }
    ck_assert(dump_says(r, "quarantined 2,"));
    rig_destroy(r);
}
END_TEST

START_TEST(means_by_samples_follow_what_the_pushes_say) {
    rig *r = rig_create(2, RIG_DENSE "aggregation: {mode: samples}\n");
    float params[RIG_ELEMS], replica[RIG_ELEMS], g[2][RIG_ELEMS];
    rig_attach_all(r, params);
    for (uint32_t w = 0; w < 2; w++) {
        rig_gradient(w, 0, g[w]);
        push_raw(r, w, 0, g[w], w ? 3 : 1);
    }
    rig_apply(r, 0, replica);
    for (size_t i = 0; i < RIG_ELEMS; i++)
        ck_assert_float_eq(replica[i], params[i] - 0.5f * ((g[0][i] + 3.0f * g[1][i]) * 0.25f));
    rig_destroy(r);
}
END_TEST

TCase *test_server_aggregate(void);
TCase *test_server_aggregate(void) {
    TCase *tests = tcase_create("server_aggregate");
    tcase_add_test(tests, a_push_of_nan_is_left_out_slice_by_slice);
    tcase_add_test(tests, means_by_samples_follow_what_the_pushes_say);
    return tests;
}
