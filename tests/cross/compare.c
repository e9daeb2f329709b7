/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cross/compare.h"

#include <string.h>

#define TOLD_MOST 20

uint32_t cross_random(cross *c) {
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return (uint32_t)(c->random >> 32);
}

/* About normal: the sum of four. */
static float some(cross *c) {
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += (float)(int32_t)cross_random(c) * 0x1p-31f;
    return sum;
}

static float value_of(cross *c, unsigned kind) {
    float v = some(c);
    uint32_t any = cross_random(c);
    switch (kind) {
    case 0: return (any & 1) ? 0.0f : -0.0f;
    case 1: return v * 1e-39f; /* with any other such, below the smallest normal number */
    case 2: return v;
    case 3: /* about the smallest normal number, and exactly that */
        if (any % 4 == 0) return 0.0f;
        return any % 4 == 1 ? v * 1e-38f : ts_bits_float((any & ~TS_ABS_MASK) | (TS_MIN_NORMAL_BITS - (any >> 4 & 1)));
    case 4: return v > 0 ? 3.4028234e38f : -3.4028234e38f;
    case 5: return any % 50 ? 0.0f : v;
    case 6: return ts_bits_float((any & 0x80FFFFFFu) | (0x38u + (any >> 24) % 16) << 24);
    case 7: return ts_bits_float((any & TS_ABS_MASK) < TS_INF_BITS ? any : any & 0xBFFFFFFFu); /* anything */
    case 8: return any % 97 ? v : (any & 0x800) ? ts_bits_float(TS_INF_BITS) : -ts_bits_float(0x7FC00000u);
    default: return any % 3 ? v * 3e38f : ts_bits_float(any);
    }
}

void cross_input(cross *c, unsigned kind, float *x, size_t n) {
    memcpy(x, c->pool[kind] + cross_random(c) % (CROSS_POOL - CROSS_ROOM), n * sizeof *x);
}

void cross_expect(cross *c, bool equal, const char *kernel, size_t n, size_t detail) {
    c->compared++;
    if (equal) return;
    c->differences++;
    if (c->told++ >= TOLD_MOST) return;
    cross_print("DIFFERENT: ");
    cross_print(kernel);
    cross_print(", n ");
    cross_print_number(n);
    cross_print(", case ");
    cross_print_number(detail);
    cross_print("\n");
}

bool cross_same(const void *a, const void *b, size_t bytes) {
    const uint8_t *x = a, *y = b;
    size_t i = 0;
    for (; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
        uint64_t v, w;
        memcpy(&v, x + i, sizeof v);
        memcpy(&w, y + i, sizeof w);
        if (v != w) return false;
    }
    for (; i < bytes; i++) {
        if (x[i] != y[i]) return false;
    }
    return true;
}

/* A level must not leave a kernel out: all behind `level` are functions. */
static bool complete(const ts_kernels *kernels) {
    uintptr_t entry;
    for (size_t at = offsetof(ts_kernels, add); at < sizeof *kernels; at += sizeof entry) {
        memcpy(&entry, (const uint8_t *)kernels + at, sizeof entry);
        if (entry == 0) return false;
    }
    return true;
}

size_t cross_compare(cross *c, ts_simd level) {
    c->kernels = ts_kernels_get(level);
    c->reference = &ts_kernels_scalar;
    c->random = 0x9E3779B97F4A7C15u;
    if (c->kernels->level != level) {
        cross_print("this level was not built\n");
        return 1;
    }
    if (!complete(c->kernels)) {
        cross_print("a kernel is missing in this level's table\n");
        return 1;
    }
    for (unsigned kind = 0; kind < CROSS_KINDS; kind++) {
        for (size_t i = 0; i < CROSS_POOL; i++) c->pool[kind][i] = value_of(c, kind);
    }
    cross_sweeps(c);
    cross_quantisers(c);
    cross_low_rank(c);
    cross_print("kernels: ");
    cross_print_number(c->compared);
    cross_print(" comparisons, ");
    cross_print_number(c->differences);
    cross_print(" differences\n");
    return c->differences;
}
