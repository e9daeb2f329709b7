/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The comparison without an operating system: AVX-512 on the machine that bochs emulates, for CPUs that lack it. Text
 * goes to port 0xE9, which bochs copies to its standard output; writing "Shutdown" to port 0x8900 ends it.
 */
#include <cpuid.h>

#include "tests/cross/compare.h"

void bare_main(void);
void *memcpy(void *to, const void *from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int value, size_t n);

static cross all;

static void put_byte(uint16_t port, char value) { __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port)); }

void *memcpy(void *to, const void *from, size_t n) {
    void *at = to;
    __asm__ volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(n) : : "memory");
    return to;
}

void *memmove(void *to, const void *from, size_t n) {
    uint8_t *t = to;
    const uint8_t *f = from;
    if (t <= f) return memcpy(to, from, n);
    while (n-- > 0) ((volatile uint8_t *)t)[n] = f[n];
    return to;
}

void *memset(void *to, int value, size_t n) {
    void *at = to;
    __asm__ volatile("rep stosb" : "+D"(at), "+c"(n) : "a"(value) : "memory");
    return to;
}

void cross_print(const char *text) {
    for (; *text; text++) put_byte(0xE9, *text);
}

void cross_print_number(size_t number) {
    char digits[24] = "";
    size_t at = sizeof digits - 1;
    do digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    cross_print(digits + at);
}

/* No environment here: the other ways of going over memory are compared on real CPUs. */
ts_reach ts_cpu_reach(void) { return TS_REACH_FAR; }

static bool has_avx512(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    unsigned wanted = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL | bit_AVX2 | bit_BMI2;
    return (b & wanted) == wanted;
}

/*
 * Whether vcvtps2ph takes 1 + 2^-11, which lies between the halves 0x3C00 and 0x3C01, to the even one, as CPUs do. bochs
 * 2.7 adds half a unit and cuts off: it gives 0x3C01, and 1 for 2^-25, which is 0 elsewhere.
 */
static bool halves_tie_to_even(void) {
    uint32_t half, tie = 0x3F801000u;
    __asm__ volatile("vmovd %1, %%xmm0\n\tvcvtps2ph $0, %%xmm0, %%xmm0\n\tvmovd %%xmm0, %0" : "=r"(half) : "r"(tie) : "xmm0");
    return (half & 0xFFFFu) == 0x3C00u;
}

void bare_main(void) {
    cross_print("\n");
    if (has_avx512()) all.no_half_ties = !halves_tie_to_even();
    if (all.no_half_ties) cross_print("this machine does not round ties of halves to even: none is compared\n");
    if (!has_avx512()) cross_print("this machine has no AVX-512\n");
    else if (cross_compare(&all, TS_SIMD_AVX512) == 0) cross_print("verdict: passed\n");
    for (const char *word = "Shutdown"; *word; word++) put_byte(0x8900, *word);
}
