/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of 4 KiB: how many pushes, each answered by its pull, one server takes a second.
 *
 *   bench_requests CONFIG [--set a.b=c …] [tensors=N] [runs=N] [window=N]
 *
 * Tensors of 1,024 floats, dense. "bundled": a round pushes and pulls all of them by terse_step, and the library puts
 * into a frame what fits. "single": every push leaves in a frame of its own, at most `window` unanswered. Worker 0
 * prints {"requests": how, "workers": N, "per_s": of all workers together} a run. Verified: replicas after the last
 * round are what plain SGD makes of gradients of 1.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker/terse.h"

#define ELEMS 1024
#define WORKERS_AT_MOST 64u
#define WARM 3u
#define LR 0.125f /* exact */

typedef struct {
    terse *client;
    unsigned tensors, runs, window;
    float *params, *gradients;
    const float **pointers;
    terse_handle *pulls;
} bench;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void need(const bench *b, int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "bench_requests: %s: %s\n", what, b->client ? terse_message(b->client) : "");
    exit(1);
}

static void bundled(bench *b) { need(b, terse_step(b->client, b->pointers) == TERSE_OK, "step"); }

static void single(bench *b) {
    for (unsigned t = 0; t < b->tensors; t++) {
        if (t >= b->window) need(b, terse_wait(b->client, b->pulls[t - b->window]) == TERSE_OK, "wait");
        need(b, terse_push(b->client, t, b->pointers[t], NULL) == TERSE_OK, "push");
        need(b, terse_pull(b->client, t, &b->pulls[t]) == TERSE_OK, "pull");
        need(b, terse_progress(b->client) == TERSE_OK, "progress"); /* the frame leaves now */
    }
    for (unsigned t = b->tensors > b->window ? b->tensors - b->window : 0; t < b->tensors; t++)
        need(b, terse_wait(b->client, b->pulls[t]) == TERSE_OK, "wait");
}

static void measure(bench *b, const char *how, void (*round)(bench *b)) {
    for (unsigned run = 0; run < WARM + b->runs; run++) {
        double took[WORKERS_AT_MOST] = {0}, slowest = 0;
        need(b, terse_reduce_sum(b->client, NULL, 0) == TERSE_OK, "barrier");
        double began = now_s();
        round(b);
        took[terse_worker(b->client)] = now_s() - began;
        need(b, terse_reduce_sum(b->client, took, terse_workers(b->client)) == TERSE_OK, "reduce");
        for (uint32_t w = 0; w < terse_workers(b->client); w++) slowest = took[w] > slowest ? took[w] : slowest;
        if (terse_worker(b->client) == 0 && run >= WARM)
            printf("{\"requests\": \"%s\", \"workers\": %u, \"per_s\": %.0f}\n", how, terse_workers(b->client),
                   b->tensors * terse_workers(b->client) / slowest);
    }
}

static void declare(bench *b) {
    const int64_t elems = ELEMS;
    b->params = calloc((size_t)b->tensors * ELEMS, sizeof *b->params);
    b->gradients = malloc((size_t)b->tensors * ELEMS * sizeof *b->gradients);
    b->pointers = calloc(b->tensors, sizeof *b->pointers);
    b->pulls = calloc(b->tensors, sizeof *b->pulls);
    need(b, b->params && b->gradients && b->pointers && b->pulls, "out of memory");
    for (size_t i = 0; i < (size_t)b->tensors * ELEMS; i++) b->gradients[i] = 1;
    for (unsigned t = 0; t < b->tensors; t++) {
        char name[32];
        terse_tensor id;
        snprintf(name, sizeof name, "tensor%u", t);
        b->pointers[t] = b->gradients + (size_t)t * ELEMS;
        need(b, terse_declare(b->client, name, TERSE_FLOAT32, &elems, 1, b->params + (size_t)t * ELEMS, &id) == TERSE_OK,
             "declare");
    }
}

int main(int argc, char **argv) {
    bench b = {.tensors = 2048, .runs = 11, .window = 64};
    need(&b, terse_open(&b.client, NULL, &argc, &argv) == TERSE_OK, "open");
    for (int i = 1; i < argc; i++)
        need(&b, sscanf(argv[i], "tensors=%u", &b.tensors) == 1 || sscanf(argv[i], "runs=%u", &b.runs) == 1 ||
                     sscanf(argv[i], "window=%u", &b.window) == 1, argv[i]);
    need(&b, b.tensors > 0 && b.window > 0 && terse_workers(b.client) <= WORKERS_AT_MOST, "wants tensors and a window");
    declare(&b);
    need(&b, terse_start(b.client) == TERSE_OK, "start");
    measure(&b, "bundled", bundled);
    measure(&b, "single", single);
    float expected = -LR * (float)(2 * (WARM + b.runs));
    for (size_t i = 0; i < (size_t)b.tensors * ELEMS; i++) need(&b, b.params[i] == expected, "wrong parameters");
    if (terse_worker(b.client) == 0) printf("{\"verified\": true}\n");
    need(&b, terse_close(b.client) == TERSE_OK, "close");
    free(b.params);
    free(b.gradients);
    free(b.pointers);
    free(b.pulls);
    return 0;
}
