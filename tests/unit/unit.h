/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unit tests: each test_<module>.c defines `TCase *test_<module>(void)`. The
 * runner's list is made by the Makefile from the file names.
 */
#ifndef TS_UNIT_H
#define TS_UNIT_H

#include <check.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/* Where tests/ lies; tests are run from the repository's root. */
#define TS_TEST_VECTORS "tests/vectors"

#define ck_assert_ok(expression)                                                \
    do {                                                                        \
        terse_status ck_status = (expression);                                  \
        ck_assert_msg(ck_status == TERSE_OK, "%s gave %s", #expression, terse_status_name(ck_status)); \
    } while (0)
#define ck_assert_status(expression, wanted)                                    \
    do {                                                                        \
        terse_status ck_status = (expression);                                  \
        ck_assert_msg(ck_status == (wanted), "%s gave %s, not %s", #expression, terse_status_name(ck_status), \
                      terse_status_name(wanted));                               \
    } while (0)

/* A flat float32 file; values: [own], free(). Fails the test when it cannot be read. */
float *ts_unit_read_f32(const char *path, size_t *count);

#endif
