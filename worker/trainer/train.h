/* SPDX-License-Identifier: Apache-2.0 */
/* The training loop: a model on one side, libterse on the other. */
#ifndef TS_TRAINER_TRAIN_H
#define TS_TRAINER_TRAIN_H

#include "common/config/config.h"
#include "worker/terse_model.h"

typedef struct {
    const ts_config *config;
    const terse_model *model;
    const char *summary, *save; /* files that worker 0 writes, or NULL */
    int argc;                   /* for terse_open: CONFIG and --set */
    char **argv;
} ts_train_options;

/*
 * Trains from beginning to end; says on standard error what went wrong. When the job failed, MPI cannot be ended in
 * order and the process ends inside (terse_close).
 * Collective: all workers. Returns: the process's exit code (config.h).
 */
int ts_train(const ts_train_options *options);

#endif
