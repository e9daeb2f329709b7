/* SPDX-License-Identifier: Apache-2.0 */
/* What benchmarks are fed: gradients like real ones in their tails, and a residual as training leaves it. */
#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/cli/cmd_bench.h"

#define TABLE_BITS 14
#define TABLE_SIZE (1u << TABLE_BITS)
#define SIGMA 1.5 /* of the magnitudes' logarithm: the top 1 % hold about a fifth of the L1 norm */
#define TYPICAL 1e-3

/* Table entries from one half of a hash, a factor from the other, so that few values are equal. */
void ts_bench_fill(uint64_t key, float *to, size_t n) {
    float table[TABLE_SIZE];
    ts_random random = ts_random_start(key);
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        table[i] = (float)(TYPICAL * exp(SIGMA * (double)ts_random_normal(&random)));
        if (ts_random_u32(&random) & 1) table[i] = -table[i];
    }
    for (size_t i = 0; i < n; i += 2) {
        uint64_t word = ts_mix64(key + i);
        for (size_t j = i; j < i + 2 && j < n; j++, word >>= 32) {
            float factor = 1.0f + (float)(word >> TABLE_BITS & 0x3FFFF) * 0x1p-21f;
            to[j] = table[word & (TABLE_SIZE - 1)] * factor;
        }
    }
}

/* base[i] times a factor between 1/2 and 3/2. */
static void vary(uint64_t key, const float *base, float *to, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = base[i] * (0.5f + (float)(ts_mix64(key + i) >> 40) * 0x1p-24f);
}

terse_status ts_bench_input_create(size_t n, const float *base, uint64_t seed, ts_bench_input *out) {
    ts_bench_input input = {.n = n, .seed = seed, .level = 1};
    float **buffers[] = {&input.residual, &input.saved, &input.sum, &input.velocity};
    bool enough = true;
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        *buffers[i] = ts_mem_aligned(n, sizeof(float));
        enough = enough && *buffers[i];
    }
    for (unsigned g = 0; g < TS_BENCH_GRADIENTS; g++) {
        input.gradient[g] = ts_mem_aligned(n, sizeof(float));
        enough = enough && input.gradient[g];
        if (!enough) break;
        uint64_t key = ts_random_key(seed, g, 0, 0, 0);
        if (base)
            vary(key, base, input.gradient[g], n);
        else
            ts_bench_fill(key, input.gradient[g], n);
    }
    if (!enough) {
        ts_bench_input_destroy(&input);
        return TERSE_ENOMEM;
    }
    *out = input;
    return TERSE_OK;
}

void ts_bench_input_destroy(ts_bench_input *input) {
    for (unsigned g = 0; g < TS_BENCH_GRADIENTS; g++) ts_mem_free(input->gradient[g]);
    ts_mem_free(input->residual);
    ts_mem_free(input->saved);
    ts_mem_free(input->sum);
    ts_mem_free(input->velocity);
    *input = (ts_bench_input){0};
}

void ts_bench_input_set_level(ts_bench_input *input, float level) {
    if (level == input->level) return;
    const ts_kernels *kernels = ts_kernels_get(ts_cpu_simd());
    for (unsigned g = 0; g < TS_BENCH_GRADIENTS; g++)
        kernels->scale(input->gradient[g], level / input->level, input->n);
    input->level = level;
}

void ts_bench_input_settle(ts_bench_input *input, double ratio, bool by_chance) {
    const ts_kernels *kernels = ts_kernels_get(ts_cpu_simd());
    size_t n = input->n;
    memset(input->residual, 0, n * sizeof(float));
    if (ratio <= 0 || ratio >= 1) return;
    for (unsigned g = 0; g < TS_BENCH_GRADIENTS; g++) kernels->add(input->residual, input->gradient[g], n);
    kernels->scale(input->residual, 1.0f / TS_BENCH_GRADIENTS, n);
    float threshold = (float)(kernels->sum_abs(input->residual, n) / (ratio * (double)n));
    float age = (float)(1 / ratio);
    uint64_t key = ts_random_key(input->seed, 0, 0, 0, 1);
    for (size_t i = 0; i < n; i++) {
        float unit = ((float)(ts_mix64(key + i) >> 40) + 0.5f) * 0x1p-24f;
        if (by_chance)
            input->residual[i] *= -logf(unit) * age;
        else
            input->residual[i] = copysignf(unit * threshold, input->residual[i]);
    }
}
