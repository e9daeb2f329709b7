/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The optimizers' steps beside their memory traffic: a plain sweep that reads and writes the same arrays in the same
 * run. Arrays are cut into slices of the default size and larger than any cache together, as on a server between rounds.
 *   bench_optimizer [MIB]      of each array, 64 by default
 * Columns: ns an element of the step and of the sweep, their quotient in the median run, and the bytes an element.
 * Exits 1 when a result is wrong; speed alone fails nothing.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/mem.h"
#include "server/optimizer.h"
#include "server/slice_math.h"

#define SLICE ((size_t)262144)
#define RUNS 11

typedef struct {
    const char *label;
    ts_optimizer_name name;
    double momentum, weight_decay;
    bool nesterov, centered;
    unsigned reread; /* arrays read a second time, and parameters written apart from the moments: LAMB's second pass */
} bench_case;

static const bench_case cases[] = {
    {"sgd", TS_OPTIMIZER_SGD, 0, 0, false, false, 0},
    {"sgd, decay", TS_OPTIMIZER_SGD, 0, 0.01, false, false, 0},
    {"momentum", TS_OPTIMIZER_SGD, 0.9, 0, false, false, 0},
    {"nesterov, decay", TS_OPTIMIZER_SGD, 0.9, 0.01, true, false, 0},
    {"adagrad", TS_OPTIMIZER_ADAGRAD, 0, 0, false, false, 0},
    {"rmsprop", TS_OPTIMIZER_RMSPROP, 0, 0, false, false, 0},
    {"rmsprop, centered, momentum", TS_OPTIMIZER_RMSPROP, 0.9, 0, false, true, 0},
    {"adam", TS_OPTIMIZER_ADAM, 0, 0, false, false, 0},
    {"adamw", TS_OPTIMIZER_ADAMW, 0, 0.01, false, false, 0},
    {"lamb (two passes)", TS_OPTIMIZER_LAMB, 0, 0.01, false, false, 1},
};

typedef struct {
    float *params, *state[TS_OPTIMIZER_STATES], *gradient;
    size_t n;
} arrays;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void steps(const ts_config *config, const ts_optimizer *optimizer, const arrays *a, uint64_t step) {
    unsigned states = optimizer->states(config, false);
    for (size_t at = 0; at < a->n; at += SLICE) {
        ts_optimizer_input input = {.n = a->n - at < SLICE ? a->n - at : SLICE, .params = a->params + at,
                                    .gradient = a->gradient + at, .step = step, .lr = 1e-3};
        for (unsigned s = 0; s < states; s++) input.state[s] = a->state[s] + at;
        optimizer->step(config, &input);
    }
}

/* Blocks of constant length become vectors in every build. */
static inline void add_all(float *restrict w, float *restrict a, float *restrict b, float *restrict c,
                           const float *restrict g, unsigned states) {
    for (size_t i = 0; i < 64; i++) {
        float x = g[i];
        w[i] += x;
        if (states > 0) a[i] += x;
        if (states > 1) b[i] += x;
        if (states > 2) c[i] += x;
    }
}

static inline void gather_all(float *restrict w, const float *restrict a, const float *restrict b) {
    for (size_t i = 0; i < 64; i++) w[i] += a[i] + b[i];
}

/* Reads what the step reads and writes what it writes: x += g for parameters and states. */
static void sweep(const arrays *a, unsigned states, unsigned reread) {
    for (size_t at = 0; at < a->n; at += SLICE) {
        size_t end = a->n - at < SLICE ? a->n : at + SLICE;
        for (size_t i = at; i < end; i += 64) {
            float *w = a->params + i, *s = a->state[0] + i, *t = a->state[1] + i, *u = a->state[2] + i;
            const float *g = a->gradient + i;
            if (states == 0) add_all(w, s, t, u, g, 0);
            else if (states == 1) add_all(w, s, t, u, g, 1);
            else if (states == 2) add_all(w, s, t, u, g, 2);
            else add_all(w, s, t, u, g, 3);
        }
        for (size_t i = at; reread && i < end; i += 64) gather_all(a->params + i, a->state[0] + i, a->state[1] + i);
    }
}

static void fill(const arrays *a) {
    for (size_t i = 0; i < a->n; i++) {
        a->params[i] = (float)(i % 1013) * 0.001f - 0.5f;
        a->gradient[i] = (float)(i % 509) * 1e-4f; /* the sweep adds it to sums of squares, too */
        for (unsigned s = 0; s < TS_OPTIMIZER_STATES; s++) a->state[s][i] = 1e-3f;
    }
}

static bool run(const bench_case *c, const arrays *a) {
    ts_config config = {0};
    config.optimizer.name = c->name;
    config.optimizer.momentum = c->momentum;
    config.optimizer.weight_decay = c->weight_decay;
    config.optimizer.nesterov = c->nesterov;
    config.optimizer.centered = c->centered;
    config.optimizer.beta1 = 0.9;
    config.optimizer.beta2 = 0.999;
    config.optimizer.alpha = 0.99;
    config.optimizer.eps = 1e-8;
    const ts_optimizer *optimizer = ts_optimizer_find(c->name);
    unsigned states = optimizer->states(&config, false);
    double step_s[RUNS], sweep_s[RUNS], share[RUNS];
    fill(a);
    for (int r = -1; r < RUNS; r++) { /* the first one warms up */
        double began = now_s();
        steps(&config, optimizer, a, (uint64_t)(r + 1));
        double middle = now_s();
        bool finite = ts_touched_nonfinite(a->params, NULL, a->n) == 0;
        if (!finite) {
            printf("%s: parameters are not finite\n", c->label);
            return false;
        }
        double swept = now_s();
        sweep(a, states, c->reread);
        double end = now_s();
        if (r < 0) continue;
        step_s[r] = middle - began;
        sweep_s[r] = end - swept;
        share[r] = step_s[r] / sweep_s[r];
    }
    qsort(step_s, RUNS, sizeof *step_s, ascending);
    qsort(sweep_s, RUNS, sizeof *sweep_s, ascending);
    qsort(share, RUNS, sizeof *share, ascending);
    double scale = 1e9 / (double)a->n;
    size_t bytes = (3 + 2 * (size_t)states + 4 * c->reread) * sizeof(float);
    printf("%-28s %8.3f %8.3f %6.2f  (%.2f to %.2f) %5zu\n", c->label, step_s[RUNS / 2] * scale, sweep_s[RUNS / 2] * scale,
           share[RUNS / 2], share[0], share[RUNS - 1], bytes);
    return true;
}

int main(int argc, char **argv) {
    long mib = argc > 1 ? strtol(argv[1], NULL, 10) : 64;
    if (mib < 1 || mib > 4096) {
        fprintf(stderr, "usage: bench_optimizer [MIB]   1 to 4096, of each of five arrays\n");
        return 2;
    }
    arrays a = {.n = (size_t)mib << 18};
    a.params = ts_mem_aligned(a.n, sizeof(float));
    a.gradient = ts_mem_aligned(a.n, sizeof(float));
    bool ok = a.params && a.gradient;
    for (unsigned s = 0; s < TS_OPTIMIZER_STATES; s++) {
        a.state[s] = ts_mem_aligned(a.n, sizeof(float));
        ok = ok && a.state[s];
    }
    if (!ok) fprintf(stderr, "bench_optimizer: out of memory\n");
    if (ok) printf("%ld MiB an array, %s, median of %d runs\n%-28s %8s %8s %6s %16s %5s\n", mib, ts_simd_name(ts_cpu_simd()),
                   RUNS, "optimizer", "step ns", "sweep ns", "ratio", "", "bytes");
    for (size_t c = 0; ok && c < sizeof cases / sizeof cases[0]; c++) ok = run(&cases[c], &a);
    ts_mem_free(a.params);
    ts_mem_free(a.gradient);
    for (unsigned s = 0; s < TS_OPTIMIZER_STATES; s++) ts_mem_free(a.state[s]);
    return ok ? 0 : 1;
}
