/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What turns the average of the workers' gradients into new parameters: one
 * vtable a kind, one file each, one line in optimizer_list.h.
 */
#ifndef TS_SERVER_OPTIMIZER_H
#define TS_SERVER_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/config/config.h"
#include "server/optimizer_kernels.h"

#define TS_OPTIMIZER_STATES 3 /* arrays of n floats that an optimizer may keep for a slice */

/*
 * One step on one slice of n elements. All optimizers are dense, as PyTorch's on gradients that are 0 where nothing was
 * pushed: moments decay there, and weight decay applies. Where that changes nothing (plain SGD, AdaGrad, both without
 * weight decay) only what was touched is visited. With LAMB, and with clipping by norm, a slice is a whole tensor
 * (ts_config_whole_tensors).
 */
typedef struct {
    size_t n;
    float *params;                      /* [borrow] n, in and out */
    float *state[TS_OPTIMIZER_STATES];  /* [borrow] n each, in and out; NULL where states() asked for fewer */
    const float *gradient;              /* [borrow] n: the average */
    const uint64_t *touched;            /* [borrow] one bit an element that may differ from 0; NULL: any may */
    uint64_t step;                      /* the version that is being left, from 0 */
    double lr;
    bool plain;                         /* momentum and weight decay of this tensor are the worker's */
} ts_optimizer_input;

typedef struct {
    ts_optimizer_name id;
    const char *name;
    const char *summary;
    const char *formula;
    bool whole;      /* a step wants all of a slice at once: parts of it would be other steps */
    bool aggregates; /* the pull carries the average itself, and the optimizer lives in the worker */
    /* How many state arrays a slice needs, all zero at first. */
    unsigned (*states)(const ts_config *config, bool plain);
    /* Thread: any. Touches nothing but the input's arrays. */
    void (*step)(const ts_config *config, const ts_optimizer_input *input);
} ts_optimizer;

/* The optimizer of a name in the config. Returns: a constant table, or NULL when this build has none. */
const ts_optimizer *ts_optimizer_find(ts_optimizer_name id);

/* For the optimizers. The kernels on this CPU. Thread: any. */
static inline const ts_optimizer_kernels *ts_optimizer_kernels_here(void) {
    return ts_optimizer_kernels_get(ts_cpu_simd());
}
/* The step's constants; bias corrections are 1. */
ts_step_rates ts_optimizer_rates(const ts_config *config, const ts_optimizer_input *input);
/* What bias correction divides by: 1 - beta^(step + 1), the same bits on every machine. */
double ts_optimizer_bias(double beta, uint64_t step);

#endif
