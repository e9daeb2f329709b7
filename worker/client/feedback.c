/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/client/feedback.h"

#include <math.h>

#include "common/base/mem.h"
#include "common/codec/kernels.h"

static void *heap_take(ts_feedback_memory *memory, const char *tensor, const char *purpose, size_t bytes) {
    (void)memory, (void)tensor, (void)purpose;
    return ts_mem_aligned(bytes, 1);
}

static void heap_give(ts_feedback_memory *memory, void *block) {
    (void)memory;
    ts_mem_free(block);
}

ts_feedback_memory ts_feedback_heap = {heap_take, heap_give};

/* Memory for n elements under a name, when it is needed. */
static bool take(ts_feedback_memory *memory, const char *tensor, const char *purpose, size_t n, size_t size, bool needed,
                 void **out) {
    size_t bytes;
    if (!needed) return true;
    if (!ts_mem_mul(n, size, &bytes)) return false;
    *out = memory->take(memory, tensor, purpose, bytes);
    return *out != NULL;
}

terse_status ts_feedback_create(ts_feedback_memory *memory, const char *tensor, size_t n, const ts_feedback_needs *needs,
                                ts_feedback *out) {
    ts_feedback made = {.memory = memory, .n = n};
    void *residual = NULL, *brief = NULL, *velocity = NULL, *estimate = NULL;
    bool all = take(memory, tensor, "residual", n, sizeof(float), !needs->brief, &residual) &&
               take(memory, tensor, "residual", n, sizeof(uint16_t), needs->brief, &brief) &&
               take(memory, tensor, "velocity", n, sizeof(float), needs->velocity, &velocity) &&
               take(memory, tensor, "estimate", n, sizeof(float), needs->estimate, &estimate);
    made.residual = residual;
    made.brief = brief;
    made.velocity = velocity;
    made.estimate = estimate;
    if (!all) {
        ts_feedback_destroy(&made);
        return TERSE_ENOMEM;
    }
    *out = made;
    return TERSE_OK;
}

void ts_feedback_destroy(ts_feedback *feedback) {
    if (!feedback->memory) return;
    void *blocks[] = {feedback->residual, feedback->brief, feedback->velocity, feedback->estimate};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        if (blocks[i]) feedback->memory->give(feedback->memory, blocks[i]);
    }
    *feedback = (ts_feedback){0};
}

void ts_feedback_start_difference(ts_feedback *feedback) {
    for (size_t i = 0; i < feedback->n; i++) feedback->residual[i] = -feedback->estimate[i];
}

void ts_feedback_read_brief(const ts_feedback *feedback, float *out) {
    ts_kernels_get(ts_cpu_simd())->bf16_decode(feedback->brief, feedback->n, out);
}

double ts_feedback_write_brief(ts_feedback *feedback, float *x) {
    double lost = 0;
    ts_kernels_get(ts_cpu_simd())->bf16_encode(x, feedback->n, feedback->brief);
    for (size_t i = 0; i < feedback->n; i++) lost += (double)x[i];
    return lost;
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
