/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every kernel of a level against the reference, without the C library: the same program runs under qemu-user and on
 * the bare machine that bochs emulates.
 */
#ifndef TS_CROSS_COMPARE_H
#define TS_CROSS_COMPARE_H

#include "common/codec/kernels.h"

/* Arrays of the comparisons; the longest run of floats, and what stands behind it to show writes past the end. */
#define CROSS_MOST 2100
#define CROSS_ROOM (CROSS_MOST + 64)

/* One array twice: for the reference and for the level under test. */
typedef struct {
    float want[CROSS_ROOM], got[CROSS_ROOM];
} cross_floats;
typedef struct {
    uint8_t want[4 * CROSS_ROOM], got[4 * CROSS_ROOM];
} cross_bytes;

/* Kinds of input; the last ones hold NaN and infinity. Values are made once, and taken from random places. */
#define CROSS_KINDS 10
#define CROSS_FINITE 8
#define CROSS_POOL 8192

/* The state of all comparisons; large, so it is static where the program begins. */
typedef struct {
    const ts_kernels *kernels, *reference;
    bool no_half_ties; /* the machine rounds what lies exactly between two halves the wrong way */
    uint64_t random;
    size_t compared, differences;
    size_t told; /* differences that were printed */
    cross_floats x, y, z;
    cross_bytes bytes, more;
    float pool[CROSS_KINDS][CROSS_POOL];
    float input[CROSS_ROOM], gradient[CROSS_ROOM], velocity[CROSS_ROOM], params[CROSS_ROOM];
    uint32_t index[2][4 * CROSS_ROOM], bits[2][4 * CROSS_ROOM], order[4 * CROSS_ROOM];
    uint32_t taken[2][2][2 * CROSS_ROOM]; /* of the reference and the other: index, bits */
} cross;

/* n values of that kind, n <= CROSS_ROOM. */
void cross_input(cross *c, unsigned kind, float *x, size_t n);
uint32_t cross_random(cross *c);
/* Counts a comparison; prints the kernel's name and the numbers when it failed, for the first few. */
void cross_expect(cross *c, bool equal, const char *kernel, size_t n, size_t detail);
bool cross_same(const void *a, const void *b, size_t bytes);

void cross_sweeps(cross *c);
void cross_quantisers(cross *c);
void cross_low_rank(cross *c);
/* All of them at one level; returns how many differences there are, or that a kernel is missing. */
size_t cross_compare(cross *c, ts_simd level);

/* Of the surroundings. */
void cross_print(const char *text);
void cross_print_number(size_t number);

#endif
