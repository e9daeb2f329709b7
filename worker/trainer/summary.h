/* SPDX-License-Identifier: Apache-2.0 */
/* The result of a run: as JSON for other programs, as a table for people. */
#ifndef TS_TRAINER_SUMMARY_H
#define TS_TRAINER_SUMMARY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/status.h"

typedef struct {
    const char *job;       /* [borrow] its name; NULL or "": not told */
    double test_accuracy;  /* 0 … 1; below 0: the model has nothing to evaluate */
    double train_loss;     /* mean over the last epoch and all workers */
    uint64_t steps, epochs; /* epochs: whole ones */
    uint64_t resumed_step;  /* of them, that this start did not take: it went on from a checkpoint */
    uint32_t workers, servers;
    uint64_t parameters;
    double wall_s;
    uint64_t push_bytes, pull_bytes;
    uint64_t steady_steps, steady_bytes; /* after the warm-up, both ways */
    uint64_t lost_rounds, lost_workers;
    double lost_l1, lost_l2;   /* gradient that was never sent, of the workers that were done in order */
    uint64_t lost_nonzero;
    char parameters_xxh3[17];
    uint64_t seed;
} ts_summary;

/* What the same steps, those of this start, cost as dense float32, both ways: workers × steps × parameters × 8. */
uint64_t ts_summary_dense_bytes(const ts_summary *summary);
/* Dense bytes over the bytes that were sent; below 0 when there were none. */
double ts_summary_ratio(const ts_summary *summary);
double ts_summary_ratio_steady(const ts_summary *summary);

/*
 * Writes the JSON file of DESIGN.md §8; what is not known (accuracy without test data, a steady ratio without
 * steady steps) is null. The file appears whole or not at all.
 * Returns: TERSE_OK, EIO (error names the file and why), ENOMEM.
 */
terse_status ts_summary_write(const ts_summary *summary, const char *path, ts_error *error) TERSE_NODISCARD;

/* The table. warmup: whether the config has a warm-up, so that the steady ratio is worth a line. */
void ts_summary_print(const ts_summary *summary, bool warmup, FILE *to);

#endif
