/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker of a job which others come into (cases_join.py). What each worker has pushed can be counted in the parameters:
 * it adds whole numbers, one after the other, to the elements that are its own alone, in whatever process it lives.
 *
 *   join_worker CONFIG [--set …] FOLDER
 *
 * FOLDER/begun.W and FOLDER/done.W are mapped: how many numbers worker W has begun to add, and how many it knows to be
 * in its residual or on their way. A new process goes on behind what was begun, and notes in FOLDER/killed.W which number
 * its predecessor was at. All go on until FOLDER/stop is there, which they agree on by a sum, and then push nothing new for
 * some steps, until their residuals are empty. Each writes the parameters that it then has to FOLDER/params.W.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "worker/terse.h"

#define OWN 1000     /* elements of each worker in each tensor */
#define WORKERS 16   /* that there is room for */
#define ELEMS ((size_t)WORKERS * OWN)
#define ASK_EVERY 8  /* steps */
#define DRAIN 12     /* steps: each sends half of what a worker has (the config's ratio) */

typedef struct {
    terse *client;
    const char *folder;
    uint64_t step;
    uint32_t returns;
    float *param[2], *gradient[2];
    _Atomic uint64_t *begun, *done;
} ledger;

static terse_status check(ledger *l, terse_status status, const char *what) {
    if (status != TERSE_OK) fprintf(stderr, "join_worker: %s: %s: %s\n", what, terse_status_name(status), terse_message(l->client));
    return status;
}

static _Atomic uint64_t *map_counter(const ledger *l, const char *name) {
    char path[500];
    snprintf(path, sizeof path, "%s/%s.%u", l->folder, name, terse_worker(l->client));
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(uint64_t)) != 0) return NULL;
    void *at = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return at == MAP_FAILED ? NULL : at;
}

static terse_status note_killed(const ledger *l) {
    char path[500];
    if (atomic_load(l->begun) == atomic_load(l->done)) return TERSE_OK;
    snprintf(path, sizeof path, "%s/killed.%u", l->folder, terse_worker(l->client));
    FILE *file = fopen(path, "a");
    if (!file) return TERSE_EIO;
    fprintf(file, "%llu\n", (unsigned long long)atomic_load(l->done));
    atomic_store(l->done, atomic_load(l->begun));
    return fclose(file) == 0 ? TERSE_OK : TERSE_EIO;
}

static terse_status declare(ledger *l) {
    static const char *const names[2] = {"sparse", "dense"};
    const int64_t shape[] = {(int64_t)ELEMS};
    if (terse_worker(l->client) >= WORKERS) return TERSE_EINVAL;
    for (int t = 0; t < 2; t++) {
        l->param[t] = calloc(ELEMS, sizeof(float));
        l->gradient[t] = calloc(ELEMS, sizeof(float));
        if (!l->param[t] || !l->gradient[t]) return TERSE_ENOMEM;
        terse_status status = terse_declare(l->client, names[t], TERSE_FLOAT32, shape, 1, l->param[t], NULL);
        if (status != TERSE_OK) return status;
    }
    l->begun = map_counter(l, "begun");
    l->done = map_counter(l, "done");
    return l->begun && l->done ? note_killed(l) : TERSE_EIO;
}

/* 1 to 16, so that a sum names how many there are in it, and no number's absence or repetition hides. */
static float addend(uint64_t number) { return (float)(number % 16 + 1); }

/* drains: nothing new, only what the residual still has. */
static terse_status one_step(ledger *l, int drains) {
    size_t first = (size_t)terse_worker(l->client) * OWN;
    uint64_t number = atomic_load(l->begun);
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < OWN; i++) l->gradient[t][first + i] = drains ? 0 : addend(number);
    if (!drains) atomic_store(l->begun, number + 1);
    terse_status status = terse_step(l->client, (const float *const *)l->gradient);
    if (status == TERSE_OK && !drains) atomic_store(l->done, number + 1);
    const struct timespec pause = {.tv_nsec = 2000000}; /* a machine with few cores has to start the next process, too */
    nanosleep(&pause, NULL);
    return status;
}

/* Whether all go on; the same answer for everybody. */
static terse_status ask(ledger *l, int *stop) {
    char path[500];
    snprintf(path, sizeof path, "%s/stop", l->folder);
    double stops = access(path, F_OK) == 0;
    terse_status status = terse_reduce_sum(l->client, &stops, 1);
    *stop = stops > 0;
    return status;
}

/* Whether the worker has come into the job, or back into it: it is at another step, and sum, then. */
static int has_come(ledger *l, terse_status *status) {
    uint64_t step;
    uint32_t returns = terse_returns(l->client, &step);
    if (*status != TERSE_OK || returns == l->returns) return 0;
    l->returns = returns;
    l->step = step;
    *status = terse_set_sums(l->client, step / ASK_EVERY);
    return 1;
}

static terse_status train(ledger *l) {
    terse_status status = TERSE_OK;
    (void)has_come(l, &status);
    for (int left = DRAIN, stop = 0; left > 0 && status == TERSE_OK;) {
        status = one_step(l, stop);
        if (has_come(l, &status) || status != TERSE_OK) continue;
        l->step++;
        left -= stop;
        if (stop || l->step % ASK_EVERY) continue;
        int wanted = 0;
        status = ask(l, &wanted);
        stop = !has_come(l, &status) && wanted;
    }
    return status;
}

/* As the servers hold them when all are done. */
static terse_status write_params(ledger *l) {
    char path[500];
    double here = 1;
    terse_status status = terse_reduce_sum(l->client, &here, 1);
    for (terse_tensor t = 0; t < 2 && status == TERSE_OK; t++) status = terse_fetch(l->client, t, l->param[t]);
    if (status != TERSE_OK) return status;
    snprintf(path, sizeof path, "%s/params.%u", l->folder, terse_worker(l->client));
    FILE *file = fopen(path, "wb");
    if (!file) return TERSE_EIO;
    size_t written = 0;
    for (int t = 0; t < 2; t++) written += fwrite(l->param[t], sizeof(float), ELEMS, file);
    return fclose(file) == 0 && written == 2 * ELEMS ? TERSE_OK : TERSE_EIO;
}

int main(int argc, char **argv) {
    ledger l = {0};
    terse_status status = check(&l, terse_open(&l.client, NULL, &argc, &argv), "open");
    if (status == TERSE_OK && argc != 2) status = check(&l, TERSE_EINVAL, "the folder is missing");
    l.folder = argc == 2 ? argv[1] : "";
    if (status == TERSE_OK) status = check(&l, declare(&l), "declare");
    if (status == TERSE_OK) status = check(&l, terse_start(l.client), "start");
    if (status == TERSE_OK) fprintf(stderr, "worker %u is in the job\n", terse_worker(l.client));
    if (status == TERSE_OK) status = check(&l, train(&l), "train");
    if (status == TERSE_OK) status = check(&l, terse_done(l.client), "done");
    if (status == TERSE_OK) status = check(&l, write_params(&l), "params");
    terse_status closed = terse_close(l.client);
    for (int t = 0; t < 2; t++) {
        free(l.param[t]);
        free(l.gradient[t]);
    }
    return status != TERSE_OK || closed != TERSE_OK;
}
