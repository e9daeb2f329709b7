/* SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "common/base/random.h"
#include "server/optimizer.h"
#include "server/slice_math.h"
#include "tests/unit/unit.h"

#define N 1000 /* no multiple of the sweeps' block */

static ts_config sgd(double momentum, double weight_decay, bool nesterov) {
    ts_config config = {0};
    config.optimizer.name = TS_OPTIMIZER_SGD;
    config.optimizer.momentum = momentum;
    config.optimizer.weight_decay = weight_decay;
    config.optimizer.nesterov = nesterov;
    return config;
}

static void fill(float *out, uint64_t key, float scale) {
    ts_random random = ts_random_start(ts_random_key(7, key, 0, 0, 0));
    for (size_t i = 0; i < N; i++) out[i] = scale * ts_random_normal(&random);
}

/* torch.optim.SGD as its documentation writes it, in double precision. */
static void torch_step(const ts_config *config, double lr, double *w, double *v, const float *gradient, bool first) {
    double m = config->optimizer.momentum;
    for (size_t i = 0; i < N; i++) {
        double g = (double)gradient[i] + config->optimizer.weight_decay * w[i];
        if (m > 0) {
            v[i] = first ? g : m * v[i] + g;
            g = config->optimizer.nesterov ? g + m * v[i] : v[i];
        }
        w[i] -= lr * g;
    }
}

static void follows_torch(const ts_config *config) {
    static float w[N], v[N], g[N];
    static double want[N], velocity[N];
    const ts_optimizer *optimizer = ts_optimizer_find(TS_OPTIMIZER_SGD);
    fill(w, 0, 1.0f);
    memset(v, 0, sizeof v);
    for (size_t i = 0; i < N; i++) want[i] = (double)w[i];
    unsigned states = optimizer->states(config, false);
    ck_assert_uint_eq(states, config->optimizer.momentum > 0 ? 1 : 0);
    for (uint64_t step = 0; step < 100; step++) {
        double lr = 0.1 / (double)(step + 1);
        fill(g, step + 1, 0.1f);
        ts_optimizer_input input = {.n = N, .params = w, .gradient = g, .step = step, .lr = lr};
        input.state[0] = states ? v : NULL;
        optimizer->step(config, &input);
        torch_step(config, lr, want, velocity, g, step == 0);
    }
    double error = 0, size = 0;
    for (size_t i = 0; i < N; i++) {
        error += pow((double)w[i] - want[i], 2);
        size += want[i] * want[i];
    }
    ck_assert_double_lt(sqrt(error / size), 1e-6);
}

START_TEST(sgd_follows_pytorch_over_100_steps) {
    const ts_config configs[] = {sgd(0, 0, false), sgd(0.9, 0, false), sgd(0.9, 0.01, false), sgd(0.9, 0.01, true),
                                 sgd(0, 0.01, false)};
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) follows_torch(&configs[i]);
}
END_TEST

/* Two steps by hand: w = 1, g = 0.5, wd = 0.5, m = 0.5, lr = 1, Nesterov. All values are exact in binary. */
START_TEST(sgd_gives_values_computed_by_hand) {
    ts_config config = sgd(0.5, 0.5, true);
    float w = 1.0f, v = 0.0f, g = 0.5f;
    ts_optimizer_input input = {.n = 1, .params = &w, .gradient = &g, .lr = 1.0};
    input.state[0] = &v;
    const ts_optimizer *optimizer = ts_optimizer_find(TS_OPTIMIZER_SGD);
    optimizer->step(&config, &input); /* g = 1, v = 1, u = 1.5 */
    ck_assert_float_eq(v, 1.0f);
    ck_assert_float_eq(w, -0.5f);
    optimizer->step(&config, &input); /* g = 0.25, v = 0.75, u = 0.625 */
    ck_assert_float_eq(v, 0.75f);
    ck_assert_float_eq(w, -1.125f);
}
END_TEST

/* A sparse average: sparse and dense walks give the same bits, and nothing else moves. */
static void touched_equals_dense(ts_optimizer_name name) {
    static float sparse[N], dense[N], before[N], g[N];
    uint64_t touched[(N + 63) / 64] = {0};
    ts_config config = sgd(0, 0, false);
    const ts_optimizer *optimizer = ts_optimizer_find(name);
    fill(before, 1, 1.0f);
    memcpy(sparse, before, sizeof before);
    memcpy(dense, before, sizeof before);
    memset(g, 0, sizeof g);
    for (size_t i = 0; i < N; i += 37) {
        g[i] = (float)i + 0.3f;
        touched[i / 64] |= (uint64_t)1 << (i % 64);
    }
    ts_optimizer_input input = {.n = N, .params = sparse, .gradient = g, .touched = touched, .lr = 0.05};
    optimizer->step(&config, &input);
    input.params = dense;
    input.touched = NULL;
    optimizer->step(&config, &input);
    ck_assert_mem_eq(sparse, dense, sizeof dense);
    for (size_t i = 0; i < N; i++) ck_assert_int_eq(sparse[i] != before[i], i > 0 ? i % 37 == 0 : 1);
}

START_TEST(sparse_averages_move_only_what_they_touch) {
    touched_equals_dense(TS_OPTIMIZER_SGD);
    touched_equals_dense(TS_OPTIMIZER_NONE);
}
END_TEST

START_TEST(worker_momentum_leaves_plain_steps_to_the_server) {
    ts_config config = sgd(0.9, 0.1, true);
    const ts_optimizer *optimizer = ts_optimizer_find(TS_OPTIMIZER_SGD);
    ck_assert_uint_eq(optimizer->states(&config, true), 0);
    float w = 2.0f, g = 0.25f;
    ts_optimizer_input input = {.n = 1, .params = &w, .gradient = &g, .lr = 0.5, .plain = true};
    optimizer->step(&config, &input);
    optimizer->step(&config, &input);
    ck_assert_float_eq(w, 1.75f);
}
END_TEST

START_TEST(denormal_velocities_are_flushed) {
    ts_config config = sgd(0.5, 0, false);
    float w = 1.0f, v = FLT_MIN * 1.5f, g = 0.0f;
    ts_optimizer_input input = {.n = 1, .params = &w, .gradient = &g, .lr = 1.0};
    input.state[0] = &v;
    ts_optimizer_find(TS_OPTIMIZER_SGD)->step(&config, &input);
    ck_assert_float_eq(v, 0.0f);
    ck_assert(!signbit(ts_flush(-FLT_MIN / 2)));
    ck_assert_float_eq(ts_flush(-FLT_MIN), -FLT_MIN);
}
END_TEST

START_TEST(every_optimizer_describes_itself) {
    for (ts_optimizer_name name = TS_OPTIMIZER_NONE; name <= TS_OPTIMIZER_LAMB; name++) {
        const ts_optimizer *optimizer = ts_optimizer_find(name);
        ck_assert_ptr_nonnull(optimizer);
        ck_assert_int_eq(optimizer->id, name);
        ck_assert(optimizer->name[0] && optimizer->summary[0] && optimizer->formula[0]);
        ck_assert_int_eq(optimizer->aggregates, name == TS_OPTIMIZER_NONE);
    }
    ck_assert_ptr_null(ts_optimizer_find((ts_optimizer_name)99));
}
END_TEST

TCase *test_optimizer(void);
TCase *test_optimizer(void) {
    TCase *tests = tcase_create("optimizer");
    tcase_add_test(tests, sgd_follows_pytorch_over_100_steps);
    tcase_add_test(tests, sgd_gives_values_computed_by_hand);
    tcase_add_test(tests, sparse_averages_move_only_what_they_touch);
    tcase_add_test(tests, worker_momentum_leaves_plain_steps_to_the_server);
    tcase_add_test(tests, denormal_velocities_are_flushed);
    tcase_add_test(tests, every_optimizer_describes_itself);
    return tests;
}
