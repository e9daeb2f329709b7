/* SPDX-License-Identifier: Apache-2.0 */
/* A run's state, shared by the loop (train.c) and the end of a run (finish.c). */
#ifndef TS_TRAINER_TRAINING_H
#define TS_TRAINER_TRAINING_H

#include "worker/terse.h"
#include "worker/trainer/train.h"

typedef struct {
    const ts_train_options *options;
    const terse_model *model;
    terse *client;
    void *instance;
    const terse_model_tensor *tensors;
    size_t tensor_count, parameters;
    const float **gradients;     /* one a tensor */
    const float **params;        /* one a tensor: the replica */
    uint32_t worker, workers;    /* workers: that the job began with; one that has come into it may have a higher number */
    uint64_t steps_per_epoch;    /* 0: endless */
    uint64_t period;             /* steps between two reports */
    uint64_t total_steps, step;  /* step: how many are done */
    uint32_t returns;            /* how often this worker has come back that we know of */
    uint64_t began_us;
    bool asked_to_stop;          /* by a signal: after the next checkpoint */
    bool leaves;                 /* by a signal: alone, the others go on */
    double train_loss;           /* mean since the last report but one, all workers */
    ts_error reason;             /* what was said last */
} ts_training;

/* Says terse_message() on standard error when the status is a failure. Returns: status. */
terse_status ts_training_check(ts_training *run, terse_status status) TERSE_NODISCARD;

uint64_t ts_training_now_us(void);

#endif
