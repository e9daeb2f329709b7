/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines' texts: what parses has a canonical spelling, which parses to itself. */
#include <string.h>

#include "common/codec/pipeline.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    char *text = malloc(len + 1);
    if (!text) return 0;
    if (len > 0) memcpy(text, data, len);
    text[len] = '\0';
    ts_pipeline pipeline, again;
    ts_error error;
    terse_status status = ts_pipeline_parse(text, &pipeline, &error);
    FUZZ_CHECK(status == TERSE_OK || status == TERSE_EINVAL);
    if (status == TERSE_OK) {
        FUZZ_CHECK(memchr(pipeline.text, '\0', sizeof pipeline.text) != NULL);
        FUZZ_CHECK(pipeline.quantise != NULL);
        FUZZ_CHECK(ts_pipeline_parse(pipeline.text, &again, &error) == TERSE_OK);
        FUZZ_CHECK(strcmp(pipeline.text, again.text) == 0);
        FUZZ_CHECK(pipeline.select == again.select && pipeline.index == again.index);
    } else {
        FUZZ_CHECK(memchr(error.text, '\0', sizeof error.text) != NULL && error.text[0] != '\0');
    }
    free(text);
    return 0;
}
