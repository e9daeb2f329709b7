/* SPDX-License-Identifier: Apache-2.0 */
/* What ledger_worker and join_worker share: counters that outlive a process, a stop that all agree on, the parameters in a file. */
#ifndef TS_FAULT_LEDGER_H
#define TS_FAULT_LEDGER_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker/terse.h"

#define OWN 1000       /* elements of each worker in each tensor */
#define WORKERS_MOST 16
#define ASK_EVERY 8    /* steps */

typedef struct {
    terse *client;
    const char *program, *folder;
    size_t elems;
    uint64_t step, own;    /* the job's next step; how many this process has pushed */
    uint32_t returns;
    float *param[2], *gradient[2];
    _Atomic uint64_t *begun, *done;
} ledger;

static inline terse_status check(ledger *l, terse_status status, const char *what) {
    if (status != TERSE_OK) fprintf(stderr, "%s: %s: %s: %s\n", l->program, what, terse_status_name(status), terse_message(l->client));
    return status;
}

static inline _Atomic uint64_t *map_counter(const ledger *l, const char *name) {
    char path[500];
    snprintf(path, sizeof path, "%s/%s.%u", l->folder, name, terse_worker(l->client));
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(uint64_t)) != 0) return NULL;
    void *at = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return at == MAP_FAILED ? NULL : at;
}

/* Two tensors of `elems` elements, and the counters. */
static inline terse_status declare_ledger(ledger *l, size_t elems) {
    static const char *const names[2] = {"sparse", "dense"};
    const int64_t shape[] = {(int64_t)elems};
    l->elems = elems;
    for (int t = 0; t < 2; t++) {
        l->param[t] = calloc(elems, sizeof(float));
        l->gradient[t] = calloc(elems, sizeof(float));
        if (!l->param[t] || !l->gradient[t]) return TERSE_ENOMEM;
        terse_status status = terse_declare(l->client, names[t], TERSE_FLOAT32, shape, 1, l->param[t], NULL);
        if (status != TERSE_OK) return status;
    }
    l->begun = map_counter(l, "begun");
    l->done = map_counter(l, "done");
    return l->begun && l->done ? TERSE_OK : TERSE_EIO;
}

/* 1 to 16, so that a sum names how many there are in it, and no number's absence or repetition hides. */
static inline float addend(uint64_t number) { return (float)(number % 16 + 1); }

/* Whether all go on; the same answer for everybody. */
static inline terse_status ask(ledger *l, int *stop) {
    char path[500];
    snprintf(path, sizeof path, "%s/stop", l->folder);
    double stops = access(path, F_OK) == 0;
    terse_status status = terse_reduce_sum(l->client, &stops, 1);
    *stop = stops > 0;
    return status;
}

/* Whether the worker has come into the job, or back into it: it is at another step, and sum, then. */
static inline int has_come(ledger *l, terse_status *status) {
    uint64_t step;
    uint32_t returns = terse_returns(l->client, &step);
    if (*status != TERSE_OK || returns == l->returns) return 0;
    l->returns = returns;
    l->step = step;
    *status = terse_set_sums(l->client, step / ASK_EVERY);
    return 1;
}

/* "sparse", then "dense". */
static inline terse_status write_params(const ledger *l) {
    char path[500];
    snprintf(path, sizeof path, "%s/params.%u", l->folder, terse_worker(l->client));
    FILE *file = fopen(path, "wb");
    if (!file) return TERSE_EIO;
    size_t written = 0;
    for (int t = 0; t < 2; t++) written += fwrite(l->param[t], sizeof(float), l->elems, file);
    return fclose(file) == 0 && written == 2 * l->elems ? TERSE_OK : TERSE_EIO;
}

static inline int end_ledger(ledger *l, terse_status status) {
    terse_status closed = terse_close(l->client);
    for (int t = 0; t < 2; t++) {
        free(l->param[t]);
        free(l->gradient[t]);
    }
    return status != TERSE_OK || closed != TERSE_OK;
}

#endif
