/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/client/feedback.h"

#include <math.h>

#include "common/base/mem.h"

static void *heap_take(ts_feedback_memory *memory, const char *tensor, const char *purpose, size_t bytes) {
    (void)memory, (void)tensor, (void)purpose;
    return ts_mem_aligned(bytes, 1);
}

static void heap_give(ts_feedback_memory *memory, void *block) {
    (void)memory;
    ts_mem_free(block);
}

ts_feedback_memory ts_feedback_heap = {heap_take, heap_give};

terse_status ts_feedback_create(ts_feedback_memory *memory, const char *tensor, size_t n, bool velocity,
                                ts_feedback *out) {
    size_t bytes;
    TS_REQUIRE(ts_mem_mul(n, sizeof(float), &bytes), TERSE_ENOMEM);
    ts_feedback made = {.memory = memory, .n = n};
    made.residual = memory->take(memory, tensor, "residual", bytes);
    TS_REQUIRE(made.residual, TERSE_ENOMEM);
    if (velocity) {
        made.velocity = memory->take(memory, tensor, "velocity", bytes);
        if (!made.velocity) {
            memory->give(memory, made.residual);
            return TERSE_ENOMEM;
        }
    }
    *out = made;
    return TERSE_OK;
}

void ts_feedback_destroy(ts_feedback *feedback) {
    if (!feedback->memory) return;
    if (feedback->residual) feedback->memory->give(feedback->memory, feedback->residual);
    if (feedback->velocity) feedback->memory->give(feedback->memory, feedback->velocity);
    *feedback = (ts_feedback){0};
}

float ts_feedback_clip_scale(double sum_of_squares, double limit, uint32_t workers) {
    double allowed = limit / sqrt((double)(workers ? workers : 1));
    double norm = sqrt(sum_of_squares);
    return norm > allowed ? (float)(allowed / norm) : 1.0f;
}

double ts_feedback_sum_of_squares(const float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double value = (double)x[i];
        if (isfinite(value)) sum += value * value;
    }
    return sum;
}
