/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every optimizer over 100 steps against tests/vectors/optimizer-*, which PyTorch computed
 * (tests/tools/make_optimizer_vectors.py); and every level of the kernels against the scalar one.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"
#include "server/aggregate.h"
#include "server/optimizer.h"
#include "server/slice_math.h"
#include "tests/unit/unit.h"

#define ELEMS 173
#define STEPS 100
#define WITHIN 1e-6

static void read_file(const char *case_name, const char *ending, void *to, size_t bytes) {
    char path[128];
    snprintf(path, sizeof path, "tests/vectors/optimizer-%s.%s", case_name, ending);
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s cannot be opened; run the tests from the repository's root", path);
    ck_assert_msg(fread(to, 1, bytes, file) == bytes && fgetc(file) == EOF, "%s is not of %zu bytes", path, bytes);
    fclose(file);
}

static ts_config *load(char *const *overrides, unsigned count) {
    ts_config *config;
    ts_error error = {""};
    terse_status status =
        ts_config_load("tests/vectors/optimizer.yaml", (const char *const *)overrides, count, &config, &error);
    ck_assert_msg(status == TERSE_OK, "%s", error.text);
    return config;
}

/* 100 steps over the elements from `first` on, each as a round does them. */
static void train(const ts_config *config, float *w, const float *gradients, size_t first, size_t n) {
    const ts_optimizer *optimizer = ts_optimizer_find(config->optimizer.name);
    static float state[TS_OPTIMIZER_STATES][ELEMS];
    ts_sum sum = {0};
    ck_assert_ok(ts_sum_reserve(&sum, n));
    sum.dense = true;
    memset(state, 0, sizeof state);
    for (uint64_t step = 0; step < STEPS; step++) {
        memcpy(sum.value, gradients + step * ELEMS + first, n * sizeof *sum.value);
        ts_sum_clip(&sum, n, config->optimizer.clip_value, config->optimizer.clip_norm);
        ts_optimizer_input input = {.n = n, .params = w + first, .gradient = sum.value,
                                    .step = step, .lr = ts_config_lr(config, step, STEPS)};
        for (unsigned s = 0; s < optimizer->states(config, false); s++) input.state[s] = state[s];
        optimizer->step(config, &input);
    }
    ts_sum_free(&sum);
}

static double distance(const float *got, const float *brief, const double *exact) {
    double error = 0, size = 0;
    for (size_t i = 0; i < ELEMS; i++) {
        double want = exact ? exact[i] : (double)brief[i];
        error += pow((double)got[i] - want, 2);
        size += want * want;
    }
    return sqrt(error / size);
}

static void follows_vectors(const char *name, const ts_config *config) {
    static float w[ELEMS], brief[ELEMS], gradients[STEPS * ELEMS];
    static double exact[ELEMS];
    read_file("start", "f32", w, sizeof w);
    read_file("gradients", "f32", gradients, sizeof gradients);
    read_file(name, "f32", brief, sizeof brief);
    read_file(name, "f64", exact, sizeof exact);
    train(config, w, gradients, 0, ELEMS);
    double from_brief = distance(w, brief, NULL), from_exact = distance(w, NULL, exact);
    /* A decoupled decay multiplies by 1 - lr·decay rounded to a float, in PyTorch as here. What that is off adds up over
     * the steps, so that PyTorch's own float32 is up to 2.4e-6 from its float64. */
    double own = distance(brief, NULL, exact);
    ck_assert_msg(from_brief < WITHIN, "%s: %.3g from PyTorch in float32", name, from_brief);
    ck_assert_msg(from_exact < fmax(WITHIN, 1.01 * own), "%s: %.3g from PyTorch in float64", name, from_exact);
}

/* Element by element means that slices change nothing; LAMB is the exception, and its tensors are not cut. */
static void slices_change_nothing(const ts_config *config) {
    static float whole[ELEMS], cut[ELEMS], gradients[STEPS * ELEMS];
    read_file("start", "f32", whole, sizeof whole);
    memcpy(cut, whole, sizeof cut);
    read_file("gradients", "f32", gradients, sizeof gradients);
    train(config, whole, gradients, 0, ELEMS);
    train(config, cut, gradients, 0, 101);
    train(config, cut, gradients, 101, ELEMS - 101);
    bool same = memcmp(whole, cut, sizeof cut) == 0;
    ck_assert_int_eq(same, !ts_config_whole_tensors(config));
}

START_TEST(optimizers_follow_pytorch_over_100_steps) {
    char line[512];
    unsigned cases = 0, seen = 0, schedules = 0, clipped = 0;
    FILE *file = fopen("tests/vectors/optimizer-cases.txt", "r");
    ck_assert_ptr_nonnull(file);
    for (; fgets(line, sizeof line, file); cases++) {
        char *words[16] = {0}, *rest = NULL;
        unsigned count = 0;
        for (char *word = strtok_r(line, " \n", &rest); word && count < 16; word = strtok_r(NULL, " \n", &rest))
            words[count++] = word;
        ts_config *config = load(words + 1, count - 1);
        follows_vectors(words[0], config);
        slices_change_nothing(config);
        seen |= 1u << config->optimizer.name;
        schedules |= 1u << config->optimizer.schedule.name | (config->optimizer.schedule.warmup_steps ? 8u : 0u);
        clipped |= (config->optimizer.clip_value > 0 ? 1u : 0u) | (config->optimizer.clip_norm > 0 ? 2u : 0u);
        ts_config_free(config);
    }
    fclose(file);
    ck_assert_uint_ge(cases, 28);
    ck_assert_uint_eq(schedules, 15);
    ck_assert_uint_eq(clipped, 3);
    ck_assert_uint_eq(seen, (1u << (TS_OPTIMIZER_LAMB + 1)) - 1 - (1u << TS_OPTIMIZER_NONE)); /* every one of them */
}
END_TEST

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

#define N 1000

typedef struct {
    float w[N], a[N], b[N], c[N], u[N];
} arrays;

/* Values of all sizes: zeros of both signs, denormal, tiny, large. */
static void fill(float *out, uint64_t key, bool positive) {
    static const float odd[] = {0.0f, -0.0f, 1e-42f, FLT_MIN, 1e-20f, -1e-30f, 1e12f, -3e5f};
    ts_random random = ts_random_start(ts_random_key(5, key, 0, 0, 0));
    for (size_t i = 0; i < N; i++) {
        float value = ts_random_below(&random, 8) ? ts_random_normal(&random) : odd[ts_random_below(&random, 8)];
        out[i] = positive ? fabsf(value) : value;
    }
}

static void run_kernel(const ts_optimizer_kernels *k, unsigned which, arrays *x, const float *g, size_t n) {
    ts_step_rates rate = {.lr = 0.01f, .decay = 0.1f, .keep = 0.999f, .momentum = 0.9f, .beta1 = 0.9f, .less1 = 0.1f,
                          .beta2 = 0.99f, .less2 = 0.01f, .root2 = 0.3f, .gain = 0.7f, .eps = 1e-8f};
    switch (which) {
    case 0: k->decayed(x->w, g, &rate, n); break;
    case 1: k->momentum(x->w, x->a, g, &rate, n); break;
    case 2: k->nesterov(x->w, x->a, g, &rate, n); break;
    case 3: k->adagrad(x->w, x->b, g, &rate, n); break;
    case 4: k->rmsprop(x->w, x->b, NULL, NULL, g, &rate, n); break;
    case 5: k->rmsprop(x->w, x->b, x->a, NULL, g, &rate, n); break;
    case 6: k->rmsprop(x->w, x->b, NULL, x->c, g, &rate, n); break;
    case 7: k->rmsprop(x->w, x->b, x->a, x->c, g, &rate, n); break;
    case 8: k->adam(x->w, x->a, x->b, g, &rate, n); break;
    case 9: k->moments(x->u, x->w, x->a, x->b, g, &rate, n); break;
    default: k->direction(x->u, x->w, x->a, x->b, &rate, n); break;
    }
}

START_TEST(every_level_gives_the_scalar_bits) {
    static arrays start, want, got;
    static float g[N];
    static const size_t lengths[] = {0, 1, 15, 63, 64, 65, 200, N};
    fill(start.w, 1, false);
    fill(start.a, 2, false);
    fill(start.b, 3, true); /* squares */
    fill(start.c, 4, false);
    fill(g, 5, false);
    for (ts_simd level = TS_SIMD_AVX2; level <= TS_SIMD_AVX512; level++) {
        if (!ts_cpu_supports(level)) continue;
        for (unsigned which = 0; which <= 10; which++) {
            for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
                want = start;
                got = start;
                run_kernel(ts_optimizer_kernels_get(TS_SIMD_SCALAR), which, &want, g, lengths[l]);
                run_kernel(ts_optimizer_kernels_get(level), which, &got, g, lengths[l]);
                ck_assert_msg(memcmp(&want, &got, sizeof got) == 0, "kernel %u of %s, %zu elements", which,
                              ts_simd_name(level), lengths[l]);
            }
        }
    }
}
END_TEST

START_TEST(sparse_adagrad_gives_the_dense_bits) {
    static float w[2][N], s[2][N], g[N];
    uint64_t touched[(N + 63) / 64] = {0};
    ts_config config = {0};
    config.optimizer.name = TS_OPTIMIZER_ADAGRAD;
    config.optimizer.eps = 1e-10;
    const ts_optimizer *optimizer = ts_optimizer_find(TS_OPTIMIZER_ADAGRAD);
    fill(w[0], 1, false);
    memcpy(w[1], w[0], sizeof w[0]);
    for (unsigned step = 0; step < 4; step++) {
        memset(g, 0, sizeof g);
        memset(touched, 0, sizeof touched);
        for (size_t i = step; i < N; i += 5 + step) {
            g[i] = (float)i * 0.01f - 3.0f;
            touched[i / 64] |= (uint64_t)1 << (i % 64);
        }
        for (unsigned way = 0; way < 2; way++) {
            ts_optimizer_input input = {.n = N, .params = w[way], .gradient = g, .touched = way ? touched : NULL,
                                        .step = step, .lr = 0.1};
            input.state[0] = s[way];
            optimizer->step(&config, &input);
        }
    }
    ck_assert_mem_eq(w[0], w[1], sizeof w[0]);
    ck_assert_mem_eq(s[0], s[1], sizeof s[0]);
    config.optimizer.weight_decay = 0.5; /* reaches what was not touched */
    ts_optimizer_input input = {.n = N, .params = w[1], .gradient = g, .touched = touched, .lr = 0.1};
    input.state[0] = s[1];
    optimizer->step(&config, &input);
    ck_assert_float_ne(w[0][1], w[1][1]);
}
END_TEST

START_TEST(bias_corrections_are_those_of_powers) {
    for (uint64_t t = 1; t < 5000; t += 7) {
        ck_assert_double_eq_tol(ts_optimizer_bias(0.9, t - 1), 1 - pow(0.9, (double)t), 1e-15);
        ck_assert_double_eq_tol(ts_optimizer_bias(0.999, t - 1), 1 - pow(0.999, (double)t), 1e-13);
    }
    ck_assert_double_eq(ts_optimizer_bias(0, 0), 1);
}
END_TEST

/* lr 1, betas 0, one step: m = g, s = g², u = sign(g) but for eps; |w| = 5, |u| = √2, so w -= 5/√2 · u. */
START_TEST(lamb_gives_values_computed_by_hand) {
    ts_config config = {0};
    float w[2] = {3.0f, 4.0f}, g[2] = {2.0f, -8.0f}, m[2] = {0}, s[2] = {0};
    config.optimizer.name = TS_OPTIMIZER_LAMB;
    config.optimizer.eps = 1e-30;
    ts_optimizer_input input = {.n = 2, .params = w, .gradient = g, .lr = 1.0};
    input.state[0] = m;
    input.state[1] = s;
    ts_optimizer_find(TS_OPTIMIZER_LAMB)->step(&config, &input);
    ck_assert_float_eq_tol(w[0], 3.0f - 3.5355339f, 1e-6f);
    ck_assert_float_eq_tol(w[1], 4.0f + 3.5355339f, 1e-6f);
    float still[2] = {0}, zero[2] = {0}; /* no norm, no ratio: plain steps */
    input.params = still;
    input.gradient = g;
    ts_optimizer_find(TS_OPTIMIZER_LAMB)->step(&config, &input);
    ck_assert_float_eq(still[0], -1.0f);
    input.gradient = zero;
    ts_optimizer_find(TS_OPTIMIZER_LAMB)->step(&config, &input);
    ck_assert_float_eq(still[0], -1.0f);
}
END_TEST

TCase *test_optimizer_vectors(void);
TCase *test_optimizer_vectors(void) {
    TCase *tests = tcase_create("optimizer_vectors");
    tcase_add_test(tests, optimizers_follow_pytorch_over_100_steps);
    tcase_add_test(tests, every_level_gives_the_scalar_bits);
    tcase_add_test(tests, sparse_adagrad_gives_the_dense_bits);
    tcase_add_test(tests, bias_corrections_are_those_of_powers);
    tcase_add_test(tests, lamb_gives_values_computed_by_hand);
    return tests;
}
