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
#include <time.h>

#include "tests/fault/ledger_parts.h"

#define ELEMS ((size_t)WORKERS_MOST * OWN) /* there is room for further workers */
#define DRAIN 12     /* steps: each sends half of what a worker has (the config's ratio) */

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
    if (terse_worker(l->client) >= WORKERS_MOST) return TERSE_EINVAL;
    terse_status status = declare_ledger(l, ELEMS);
    return status == TERSE_OK ? note_killed(l) : status;
}

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
static terse_status fetch_params(ledger *l) {
    double here = 1;
    terse_status status = terse_reduce_sum(l->client, &here, 1);
    for (terse_tensor t = 0; t < 2 && status == TERSE_OK; t++) status = terse_fetch(l->client, t, l->param[t]);
    return status == TERSE_OK ? write_params(l) : status;
}

int main(int argc, char **argv) {
    ledger l = {.program = "join_worker"};
    terse_status status = check(&l, terse_open(&l.client, NULL, &argc, &argv), "open");
    if (status == TERSE_OK && argc != 2) status = check(&l, TERSE_EINVAL, "the folder is missing");
    l.folder = argc == 2 ? argv[1] : "";
    if (status == TERSE_OK) status = check(&l, declare(&l), "declare");
    if (status == TERSE_OK) status = check(&l, terse_start(l.client), "start");
    if (status == TERSE_OK) fprintf(stderr, "worker %u is in the job\n", terse_worker(l.client));
    if (status == TERSE_OK) status = check(&l, train(&l), "train");
    if (status == TERSE_OK) status = check(&l, terse_done(l.client), "done");
    if (status == TERSE_OK) status = check(&l, fetch_params(&l), "params");
    return end_ledger(&l, status);
}
