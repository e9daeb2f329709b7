/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker that times whole rounds: push, pull and wait of every tensor, nothing computed in between.
 *
 *   bench_round CONFIG [--set a.b=c …] shapes=FILE [warm=N] [runs=N] [check=LR]
 *
 * Gradients are those of the model synthetic. All workers begin a round together (a reduction before it). Worker 0
 * prints a JSON line a round, each part a list over the workers in seconds: "round", "encode", "wait" (for the servers,
 * decoding left out), "decode"; and "push_bytes", "pull_bytes" of frames. The lines {"measured": "begins"} and
 * {"measured": "ends"} have a pause behind them, in which others may take readings. Verified: all replicas are equal at
 * the end; with check=LR (a dense pipeline and plain SGD at that rate) also that they are what they must be.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "worker/models/model_registry.h"
#include "worker/terse.h"

#define WORKERS_AT_MOST 64u
#define SAMPLES 61u
#define PAUSE_US 400000u
#define TOLERANCE 1e-5

enum { ROUND, ENCODE, WAIT, DECODE, PUSH_BYTES, PULL_BYTES, PARTS };
static const char *const part_names[PARTS] = {"round", "encode", "wait", "decode", "push_bytes", "pull_bytes"};

typedef struct {
    terse *client;
    const terse_model *model;
    void *instance;
    const terse_model_tensor *tensors;
    const float **gradients;
    size_t count;
    uint32_t worker, workers;
    unsigned warm, runs;
    const char *shapes;
    double check_lr;           /* 0: parameters are only compared with each other */
    double expected[SAMPLES];  /* of one element each of a few tensors */
} bench;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void need(const bench *b, bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "bench_round: %s: %s\n", what, b->client ? terse_message(b->client) : "");
    exit(1);
}

static size_t sampled_tensor(const bench *b, unsigned sample) { return sample * 7919u % b->count; }
static size_t sampled_element(const bench *b, unsigned sample) {
    return sample * 104729u % ts_model_tensor_elems(&b->tensors[sampled_tensor(b, sample)]);
}

static void make_model(bench *b) {
    char message[256] = "";
    const terse_model_context context = {.worker = b->worker, .workers = b->workers, .batch = 1, .seed = 1,
                                         .shapes = b->shapes, .threads = 1};
    ts_error error = {""};
    need(b, ts_model_find("synthetic", &b->model, &error) == TERSE_OK, error.text);
    b->instance = b->model->create(&context, message, sizeof message);
    need(b, b->instance, message);
    b->count = b->model->tensors(b->instance, &b->tensors);
    b->gradients = calloc(b->count, sizeof *b->gradients);
    need(b, b->gradients, "out of memory");
    for (size_t t = 0; t < b->count; t++) {
        const terse_model_tensor *tensor = &b->tensors[t];
        terse_tensor id;
        need(b, terse_declare(b->client, tensor->name, TERSE_FLOAT32, tensor->shape, tensor->ndim, tensor->param, &id)
                    == TERSE_OK, "declare");
    }
    for (unsigned s = 0; s < SAMPLES; s++)
        b->expected[s] = (double)b->tensors[sampled_tensor(b, s)].param[sampled_element(b, s)];
}

/* What the sampled elements must become. */
static void expect(bench *b) {
    double sums[SAMPLES];
    for (unsigned s = 0; s < SAMPLES; s++) sums[s] = (double)b->gradients[sampled_tensor(b, s)][sampled_element(b, s)];
    need(b, terse_reduce_sum(b->client, sums, SAMPLES) == TERSE_OK, "reduce");
    for (unsigned s = 0; s < SAMPLES; s++) b->expected[s] -= b->check_lr * sums[s] / b->workers;
}

static void one_round(bench *b, unsigned round, double *parts) {
    terse_local_stats before, after;
    b->model->step(b->instance, round);
    for (size_t t = 0; t < b->count; t++) b->gradients[t] = b->tensors[t].gradient;
    need(b, terse_get_local_stats(b->client, &before) == TERSE_OK, "stats");
    expect(b); /* a barrier, too */
    double began = now_s();
    need(b, terse_step(b->client, b->gradients) == TERSE_OK, "step");
    parts[ROUND] = now_s() - began;
    need(b, terse_get_local_stats(b->client, &after) == TERSE_OK, "stats");
    parts[ENCODE] = 1e-6 * (double)(after.encode_us - before.encode_us);
    parts[DECODE] = 1e-6 * (double)(after.decode_us - before.decode_us);
    parts[WAIT] = 1e-6 * (double)(after.wait_us - before.wait_us) - parts[DECODE];
    parts[PUSH_BYTES] = (double)(after.push_bytes - before.push_bytes);
    parts[PULL_BYTES] = (double)(after.pull_bytes - before.pull_bytes);
}

/* The parts of every worker, at worker 0. */
static void report(bench *b, unsigned round, const double *parts) {
    double all[WORKERS_AT_MOST * PARTS] = {0};
    memcpy(all + b->worker * PARTS, parts, PARTS * sizeof *parts);
    need(b, terse_reduce_sum(b->client, all, b->workers * PARTS) == TERSE_OK, "reduce");
    if (b->worker != 0 || round < b->warm) return;
    printf("{\"run\": %u", round - b->warm);
    for (unsigned p = 0; p < PARTS; p++) {
        printf(", \"%s\": [", part_names[p]);
        for (uint32_t w = 0; w < b->workers; w++) printf(p < PUSH_BYTES ? "%s%.6f" : "%s%.0f", w ? ", " : "", all[w * PARTS + p]);
        printf("]");
    }
    printf("}\n");
    fflush(stdout);
}

/* Everybody stops here for a moment, before and after the rounds that are measured. */
static void mark(bench *b, const char *what) {
    need(b, terse_reduce_sum(b->client, NULL, 0) == TERSE_OK, "barrier");
    if (b->worker == 0) {
        printf("{\"measured\": \"%s\", \"runs\": %u}\n", what, b->runs);
        fflush(stdout);
        usleep(PAUSE_US);
    }
    need(b, terse_reduce_sum(b->client, NULL, 0) == TERSE_OK, "barrier");
}

static void verify(bench *b) {
    XXH64_hash_t hash = 0;
    double hashes[WORKERS_AT_MOST] = {0};
    for (size_t t = 0; t < b->count; t++)
        hash = XXH3_64bits_withSeed(b->tensors[t].param, ts_model_tensor_elems(&b->tensors[t]) * sizeof(float), hash);
    hashes[b->worker] = (double)(hash >> 12); /* exact in a double */
    need(b, terse_reduce_sum(b->client, hashes, b->workers) == TERSE_OK, "reduce");
    for (uint32_t w = 0; w < b->workers; w++) /* who has died has none */
        need(b, hashes[w] == hashes[b->worker] || hashes[w] == 0, "replicas differ");
    for (unsigned s = 0; b->check_lr > 0 && s < SAMPLES; s++) {
        double is = (double)b->tensors[sampled_tensor(b, s)].param[sampled_element(b, s)];
        need(b, fabs(is - b->expected[s]) <= TOLERANCE * (1 + fabs(b->expected[s])), "wrong sums");
    }
    if (b->worker == 0) printf("{\"verified\": true}\n");
    fflush(stdout);
}

static void read_options(bench *b, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "shapes=", 7) == 0) b->shapes = argv[i] + 7;
        else if (sscanf(argv[i], "warm=%u", &b->warm) != 1 && sscanf(argv[i], "runs=%u", &b->runs) != 1 &&
                 sscanf(argv[i], "check=%lf", &b->check_lr) != 1) need(b, false, argv[i]);
    }
    need(b, b->shapes && b->runs > 0, "wants shapes=FILE");
}

int main(int argc, char **argv) {
    static bench b = {.warm = 3, .runs = 11};
    double parts[PARTS];
    need(&b, terse_open(&b.client, NULL, &argc, &argv) == TERSE_OK, "open");
    read_options(&b, argc, argv);
    b.worker = terse_worker(b.client);
    b.workers = terse_workers(b.client);
    need(&b, b.workers <= WORKERS_AT_MOST, "too many workers");
    make_model(&b);
    need(&b, terse_set_total_steps(b.client, b.warm + b.runs) == TERSE_OK, "steps");
    need(&b, terse_start(b.client) == TERSE_OK, "start");
    for (unsigned round = 0; round < b.warm + b.runs; round++) {
        if (round == b.warm) mark(&b, "begins");
        one_round(&b, round, parts);
        report(&b, round, parts);
    }
    mark(&b, "ends");
    verify(&b);
    need(&b, terse_close(b.client) == TERSE_OK, "close");
    b.model->destroy(b.instance);
    free(b.gradients);
    return 0;
}
