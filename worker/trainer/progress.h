/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a person sees while training runs: on a terminal one live line, into
 * files and pipes a plain line every few seconds, and a line at each epoch on
 * both. The clock is the caller's, so that tests have one of their own.
 */
#ifndef TS_TRAINER_PROGRESS_H
#define TS_TRAINER_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "worker/trainer/terminal.h"

/* What does not change during a run. */
typedef struct {
    const char *model; /* [borrow] */
    uint64_t parameters;
    uint32_t workers, servers;
    uint64_t total_steps;
    uint64_t first_step;       /* taken before, in another life of the run */
    uint64_t steps_per_epoch;  /* 0: the model has no epochs */
    uint64_t samples_per_step; /* of all workers */
} ts_progress_plan;

typedef struct {
    ts_progress_plan plan;
    ts_terminal terminal;
    FILE *out; /* [borrow] */
    uint64_t began_us, shown_us, epoch_began_us;
    uint64_t steps, shown_steps;
    double steps_per_s;  /* smoothed */
    double loss;         /* of this worker, smoothed */
    double accuracy;     /* of the last evaluation; below 0 before it */
    bool line_open;      /* a live line stands on the terminal */
} ts_progress;

/* Prints the first line. */
void ts_progress_start(ts_progress *progress, const ts_progress_plan *plan, ts_terminal terminal, FILE *out,
                       uint64_t now_us);
/* `steps` steps are done, the last one with this loss. Returns: whether ts_progress_show is due. */
bool ts_progress_step(ts_progress *progress, uint64_t steps, double loss, uint64_t now_us);
/* The line between epochs. bytes: what this worker has sent and received so far. */
void ts_progress_show(ts_progress *progress, uint64_t bytes, uint64_t now_us);
/* The line at an epoch's end. loss: mean over the epoch and all workers. accuracy: 0 … 1, below 0: none. */
void ts_progress_epoch(ts_progress *progress, double loss, double accuracy, uint64_t bytes, uint64_t now_us);
/* Takes the live line away, so that something else may be printed. */
void ts_progress_clear(ts_progress *progress);

#endif
