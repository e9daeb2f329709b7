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
#include "tests/fault/ledger_parts.h"

#define DRAIN 8        /* steps: a step sends half of what a worker has (the config's ratio) */

static terse_status declare(ledger *l) {
    if (terse_workers(l->client) > WORKERS_MOST) return TERSE_EINVAL;
    return declare_ledger(l, (size_t)terse_workers(l->client) * OWN);
}

/* drains: nothing new, only what the residual still has. */
static terse_status one_step(ledger *l, int drains) {
    size_t first = (size_t)terse_worker(l->client) * OWN;
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < OWN; i++) l->gradient[t][first + i] = drains ? 0 : addend(l->own);
    if (!drains) atomic_store(l->begun, ++l->own);
    return terse_step(l->client, (const float *const *)l->gradient);
}

static terse_status train(ledger *l) {
    terse_status status = TERSE_OK;
    for (int left = DRAIN, stop = 0; left > 0 && status == TERSE_OK;) {
        status = one_step(l, stop);
        if (has_come(l, &status) || status != TERSE_OK) continue;
        if (!stop) atomic_store(l->done, l->own);
        l->step++;
        left -= stop;
        if (stop || l->step % ASK_EVERY) continue;
        int wanted = 0;
        status = ask(l, &wanted);
        stop = !has_come(l, &status) && wanted;
    }
    return status;
}

int main(int argc, char **argv) {
    ledger l = {.program = "ledger_worker"};
    terse_status status = check(&l, terse_open(&l.client, NULL, &argc, &argv), "open");
    if (status == TERSE_OK && argc != 2) status = check(&l, TERSE_EINVAL, "the folder is missing");
    l.folder = argc == 2 ? argv[1] : "";
    if (status == TERSE_OK) status = check(&l, declare(&l), "declare");
    if (status == TERSE_OK) status = check(&l, terse_start(l.client), "start");
    if (status == TERSE_OK) status = check(&l, train(&l), "train");
    if (status == TERSE_OK) status = check(&l, terse_done(l.client), "done");
    if (status == TERSE_OK) status = check(&l, write_params(&l), "params");
    return end_ledger(&l, status);
}
