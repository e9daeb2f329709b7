/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/unit.h"

float *ts_unit_read_f32(const char *path, size_t *count) {
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "cannot open %s (run from the repository's root)", path);
    fseek(file, 0, SEEK_END);
    long bytes = ftell(file);
    rewind(file);
    float *values = malloc((size_t)bytes + sizeof(float));
    ck_assert_ptr_nonnull(values);
    *count = fread(values, sizeof(float), (size_t)bytes / sizeof(float), file);
    fclose(file);
    ck_assert_uint_eq(*count, (size_t)bytes / sizeof(float));
    return values;
}
