/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz targets: each fuzz_<what>.c defines LLVMFuzzerTestOneInput. fuzz.mk links it with libFuzzer (make fuzz) or with
 * replay_main.c, which runs the files of tests/fuzz/corpus/<what>/ (make fuzz-replay, a part of make test).
 */
#ifndef TS_FUZZ_H
#define TS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* One input. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* What must hold for any input. */
#define FUZZ_CHECK(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                              \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
