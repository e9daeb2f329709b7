/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker whose pushes can be counted in the parameters (kill_workers.py): each adds whole numbers to the elements that
 * are its own alone, so that what the servers hold at the end says which of its steps they took, and how often.
 *
 *   ledger_worker CONFIG [--set …] FOLDER
 *
 * FOLDER/begun.W and FOLDER/done.W hold how many steps worker W has begun to push, and how many it knows to be in the
 * parameters; they are mapped, so that a killed worker's are right. All go on until FOLDER/stop is there, which the workers
 * agree on by a sum, and then push nothing for some steps, until their residuals are empty. Each writes what it then has of
 * the parameters to FOLDER/params.W: "sparse", then "dense".
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker/terse.h"

#define OWN 1000       /* elements of each worker in each tensor */
#define WORKERS_MOST 16
#define ASK_EVERY 8    /* steps */
#define DRAIN 8        /* steps: a step sends half of what a worker has (the config's ratio) */

typedef struct {
    terse *client;
    const char *folder;
    size_t elems;
    uint64_t step, own;    /* the job's next step; how many this worker has pushed */
    uint32_t returns;
    float *param[2], *gradient[2];
    _Atomic uint64_t *begun, *done;
} ledger;

static terse_status check(ledger *l, terse_status status, const char *what) {
    if (status != TERSE_OK) fprintf(stderr, "ledger_worker: %s: %s: %s\n", what, terse_status_name(status), terse_message(l->client));
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

static terse_status declare(ledger *l) {
    static const char *const names[2] = {"sparse", "dense"};
    l->elems = (size_t)terse_workers(l->client) * OWN;
    if (terse_workers(l->client) > WORKERS_MOST) return TERSE_EINVAL;
    const int64_t shape[] = {(int64_t)l->elems};
    for (int t = 0; t < 2; t++) {
        l->param[t] = calloc(l->elems, sizeof(float));
        l->gradient[t] = calloc(l->elems, sizeof(float));
        if (!l->param[t] || !l->gradient[t]) return TERSE_ENOMEM;
        terse_status status = terse_declare(l->client, names[t], TERSE_FLOAT32, shape, 1, l->param[t], NULL);
        if (status != TERSE_OK) return status;
    }
    l->begun = map_counter(l, "begun");
    l->done = map_counter(l, "done");
    return l->begun && l->done ? TERSE_OK : TERSE_EIO;
}

/* 1 to 16, so that the sum after so many steps names their number, and no packet's absence or repetition hides. */
static float addend(uint64_t step) { return (float)(step % 16 + 1); }

/* drains: nothing new, only what the residual still has. */
static terse_status one_step(ledger *l, int drains) {
    size_t first = (size_t)terse_worker(l->client) * OWN;
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < OWN; i++) l->gradient[t][first + i] = drains ? 0 : addend(l->own);
    if (!drains) atomic_store(l->begun, ++l->own);
    return terse_step(l->client, (const float *const *)l->gradient);
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

/* Whether the worker has come back into the job, having been given up: it is at another step, and sum, then. */
static int has_returned(ledger *l, terse_status *status) {
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
    for (int left = DRAIN, stop = 0; left > 0 && status == TERSE_OK;) {
        status = one_step(l, stop);
        if (has_returned(l, &status) || status != TERSE_OK) continue;
        if (!stop) atomic_store(l->done, l->own);
        l->step++;
        left -= stop;
        if (stop || l->step % ASK_EVERY) continue;
        int wanted = 0;
        status = ask(l, &wanted);
        stop = !has_returned(l, &status) && wanted;
    }
    return status;
}

static terse_status write_params(const ledger *l) {
    char path[500];
    snprintf(path, sizeof path, "%s/params.%u", l->folder, terse_worker(l->client));
    FILE *file = fopen(path, "wb");
    if (!file) return TERSE_EIO;
    size_t written = 0;
    for (int t = 0; t < 2; t++) written += fwrite(l->param[t], sizeof(float), l->elems, file);
    return fclose(file) == 0 && written == 2 * l->elems ? TERSE_OK : TERSE_EIO;
}

int main(int argc, char **argv) {
    ledger l = {0};
    terse_status status = check(&l, terse_open(&l.client, NULL, &argc, &argv), "open");
    if (status == TERSE_OK && argc != 2) status = check(&l, TERSE_EINVAL, "the folder is missing");
    l.folder = argc == 2 ? argv[1] : "";
    if (status == TERSE_OK) status = check(&l, declare(&l), "declare");
    if (status == TERSE_OK) status = check(&l, terse_start(l.client), "start");
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
