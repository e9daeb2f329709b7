/* SPDX-License-Identifier: Apache-2.0 */
/* The comparison as an ordinary program: compare_kernels avx2|avx512|neon. */
#include <stdio.h>
#include <string.h>

#include "tests/cross/compare.h"

static cross all;

void cross_print(const char *text) { (void)fputs(text, stdout); }
void cross_print_number(size_t number) { (void)printf("%zu", number); }

int main(int argc, char **argv) {
    ts_simd level;
    if (argc != 2 || ts_simd_parse(argv[1], &level) != TERSE_OK) {
        (void)fputs("usage: compare_kernels scalar|neon|avx2|avx512\n", stderr);
        return 2;
    }
    if (!ts_cpu_supports(level)) {
        (void)fprintf(stderr, "this CPU has no %s\n", argv[1]);
        return 3;
    }
    return cross_compare(&all, level) == 0 ? 0 : 1;
}
