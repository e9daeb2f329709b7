/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker remembers of each tensor: the residual (what was not said yet)
 * and, under momentum correction, the velocity. The memory comes from behind a
 * small table, so that it can lie in a file that outlives the process.
 */
#ifndef TS_FEEDBACK_H
#define TS_FEEDBACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct ts_feedback_memory ts_feedback_memory;
struct ts_feedback_memory {
    /* Zeroed (or, of an earlier life, as it was left) memory for `bytes` under a name; NULL when there is none. */
    void *(*take)(ts_feedback_memory *memory, const char *tensor, const char *purpose, size_t bytes);
    void (*give)(ts_feedback_memory *memory, void *block);
};

/* On the heap. A constant table; no state. */
extern ts_feedback_memory ts_feedback_heap;

typedef struct {
    ts_feedback_memory *memory;
    size_t n;
    float *residual; /* n; NULL when it is stored as `brief` */
    uint8_t *brief;  /* n bfloat16 */
    float *velocity; /* n, or NULL without momentum correction */
    float *estimate; /* n; of EF21: the gradient as the servers believe it; the residual is then what it lacks */
} ts_feedback;

typedef struct {
    bool velocity, estimate, brief; /* what there is besides, or instead of, the residual */
} ts_feedback_needs;

/* out: zeroed before. Returns TERSE_OK or TERSE_ENOMEM. */
terse_status ts_feedback_create(ts_feedback_memory *memory, const char *tensor, size_t n, const ts_feedback_needs *needs,
                                ts_feedback *out) TERSE_NODISCARD;
void ts_feedback_destroy(ts_feedback *feedback); /* a zeroed one is fine */

/* EF21 (Richtárik, Sokolov and Fatkhullin 2021): residual = -estimate, to which the encoder adds the gradient. */
void ts_feedback_start_difference(ts_feedback *feedback);
/* A residual that is stored as bfloat16: into out[n]. */
void ts_feedback_read_brief(const ts_feedback *feedback, float *out);
/* And back; x: scratch afterwards. Returns the sum of what rounding lost, with its sign. */
double ts_feedback_write_brief(ts_feedback *feedback, float *x);

/*
 * What the gradients of a step are scaled by so that their global norm is at most limit / sqrt(workers)
 * (Lin et al. 2018, local gradient clipping); 1 when it is. sum_of_squares: over all tensors, finite elements only.
 */
float ts_feedback_clip_scale(double sum_of_squares, double limit, uint32_t workers);
/* Σ x² over the finite elements, in element order. */
double ts_feedback_sum_of_squares(const float *x, size_t n);

#endif
