/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker for the fault matrix: trains a few steps, and in one of them, in a given state, one worker sends a signal to a
 * process whose id a file holds (which the test writes once all ranks run).
 *
 *   fault_worker CONFIG [--set …] STATE STEP STRIKER FILE SIGNAL DELAY_US
 *
 * STATE: idle push pull barrier checkpoint attach shutdown, or none. The signal comes DELAY_US after the state has begun,
 * from a thread of its own, so that the call which makes the state is under way.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "worker/terse.h"

#define TENSORS 3
#define STEPS 12
#define WAIT_S 20

static const size_t sizes[TENSORS] = {600000, 70000, 10};

typedef struct {
    const char *state;
    long step, striker;
    const char *file;
    int number;
    long delay_us;
    pid_t pid;
    pthread_t thread;
    int running;
} strike;

static void nap(long us) {
    const struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

/* The victim's process id; waits for the test to write it. */
static int find_victim(strike *s) {
    for (int tries = 0; tries < WAIT_S * 100; tries++, nap(10000)) {
        FILE *file = fopen(s->file, "r");
        long pid = 0;
        int found = file && fscanf(file, "%ld", &pid) == 1 && pid > 1;
        if (file) fclose(file);
        s->pid = (pid_t)pid;
        if (found) return 1;
    }
    fprintf(stderr, "fault_worker: %s did not come\n", s->file);
    return 0;
}

static void *hit(void *argument) {
    const strike *s = argument;
    nap(s->delay_us);
    kill(s->pid, s->number);
    return NULL;
}

/* The state begins, here and at this step. */
static void enter(strike *s, const char *state, long step, long worker) {
    if (strcmp(s->state, state) != 0 || step != s->step || worker != s->striker || s->running) return;
    s->running = pthread_create(&s->thread, NULL, hit, s) == 0;
    if (strcmp(state, "idle") == 0 && s->running) nap(s->delay_us + 50000); /* nothing is under way meanwhile */
}

static int fail(terse *client, terse_status status) {
    fprintf(stderr, "fault_worker: %s: %s\n", terse_status_name(status), terse_message(client));
    terse_close(client);
    return 1;
}

static float gradient_of(float param, size_t element, long step, unsigned worker) {
    return 0.25f * (param - 1.0f) + (float)((element * 7 + (size_t)step * 13 + worker * 5) % 11) * 0.01f;
}

static terse_status one_step(terse *client, strike *s, long step, float **param, float **gradient) {
    terse_handle handles[TENSORS];
    unsigned worker = terse_worker(client);
    terse_status status = TERSE_OK;
    enter(s, "idle", step, worker);
    for (int t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < sizes[t]; i++) gradient[t][i] = gradient_of(param[t][i], i, step, worker);
    enter(s, "push", step, worker);
    if (strcmp(s->state, "checkpoint") == 0 && worker == s->striker && step == s->step) {
        status = terse_checkpoint(client, 0, NULL);
        enter(s, "checkpoint", step, worker);
    }
    for (terse_tensor t = 0; t < TENSORS && status == TERSE_OK; t++) status = terse_push(client, t, gradient[t], NULL);
    enter(s, "pull", step, worker);
    for (terse_tensor t = 0; t < TENSORS && status == TERSE_OK; t++) status = terse_pull(client, t, &handles[t]);
    for (int t = 0; t < TENSORS && status == TERSE_OK; t++) status = terse_wait(client, handles[t]);
    if (status != TERSE_OK || step % 4 != 3) return status;
    double sum = 1;
    enter(s, "barrier", step, worker);
    return terse_reduce_sum(client, &sum, 1);
}

static terse_status finish(terse *client, strike *s) {
    terse_stats stats;
    double sum = 1;
    enter(s, "shutdown", s->step, terse_worker(client));
    terse_status status = terse_done(client);
    if (status == TERSE_OK) status = terse_reduce_sum(client, &sum, 1);
    if (status == TERSE_OK) status = terse_get_stats(client, &stats);
    if (status == TERSE_OK) printf("worker %u ended well %s\n", terse_worker(client), stats.parameters_xxh3);
    fflush(stdout);
    return status;
}

static terse_status declare(terse *client, float **param, float **gradient) {
    static const char *const names[TENSORS] = {"large", "middle", "small"};
    for (int t = 0; t < TENSORS; t++) {
        const int64_t shape[] = {(int64_t)sizes[t]};
        param[t] = calloc(sizes[t], sizeof(float));
        gradient[t] = calloc(sizes[t], sizeof(float));
        if (!param[t] || !gradient[t]) return TERSE_ENOMEM;
        terse_status status = terse_declare(client, names[t], TERSE_FLOAT32, shape, 1, param[t], NULL);
        if (status != TERSE_OK) return status;
    }
    return terse_set_total_steps(client, STEPS);
}

int main(int argc, char **argv) {
    float *param[TENSORS] = {NULL}, *gradient[TENSORS] = {NULL};
    terse *client;
    terse_status status = terse_open(&client, NULL, &argc, &argv);
    if (status != TERSE_OK) return fail(client, status);
    if (argc != 7) {
        fprintf(stderr, "fault_worker: STATE STEP STRIKER FILE SIGNAL DELAY_US\n");
        terse_close(client);
        return 2;
    }
    strike s = {.state = argv[1], .step = atol(argv[2]), .striker = atol(argv[3]), .file = argv[4], .number = atoi(argv[5]),
                .delay_us = atol(argv[6])};
    if (strcmp(s.state, "none") != 0 && terse_worker(client) == s.striker && !find_victim(&s)) {
        terse_close(client);
        return 2;
    }
    status = declare(client, param, gradient);
    enter(&s, "attach", s.step, terse_worker(client));
    if (status == TERSE_OK) status = terse_start(client);
    for (long step = (long)terse_resumed(client); step < STEPS && status == TERSE_OK; step++)
        status = one_step(client, &s, step, param, gradient);
    if (status == TERSE_OK) status = finish(client, &s);
    if (s.running) pthread_join(s.thread, NULL);
    int code = status == TERSE_OK ? terse_close(client) != TERSE_OK : fail(client, status);
    for (int t = 0; t < TENSORS; t++) {
        free(param[t]);
        free(gradient[t]);
    }
    return code;
}
