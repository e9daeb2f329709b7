/* SPDX-License-Identifier: Apache-2.0 */
/* The ladder: one gradient of a 110 M-parameter transformer, really encoded, from dense down to 0.1 %. */
#include <jansson.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/cli/cmd_bench.h"
#include "common/config/config.h"

#define LADDER_ELEMS 110000000u

static const struct {
    const char *pipeline, *words;
} rungs[] = {
    {"fp32", "dense"},
    {"fp16", "half precision"},
    {"topk:0.1 | fp16 | best", "top 10 % of that"},
    {"topk:0.01 | fp16 | best", "top 1 %"},
    {"topk:0.001 | fp16 | best", "top 0.1 %"},
    {"topk:0.1 | int8 | rice", "top 10 % in 8 bits"},
    {"topk:0.01 | int8 | rice", "top 1 % in 8 bits"},
    {"topk:0.001 | int8 | rice", "top 0.1 % in 8 bits"},
};
#define RUNG_COUNT (sizeof rungs / sizeof rungs[0])

static terse_status climb(const float *gradient, float *residual, bool json, json_t *rows) {
    for (size_t i = 0; i < RUNG_COUNT; i++) {
        ts_pipeline pipeline;
        size_t bytes = 0, values = 0;
        if (ts_pipeline_parse(rungs[i].pipeline, &pipeline, NULL) != TERSE_OK) continue;
        for (size_t e = 0; e < LADDER_ELEMS; e++) residual[e] = 0;
        TS_TRY(ts_bench_once(&pipeline, gradient, residual, LADDER_ELEMS, &bytes, &values));
        double ratio = 4.0 * LADDER_ELEMS / (double)bytes;
        if (json) {
            json_array_append_new(rows, json_pack("{s:s, s:s, s:I, s:I, s:I, s:f}", "pipeline", pipeline.text, "what",
                                                  rungs[i].words, "n", (json_int_t)LADDER_ELEMS, "values",
                                                  (json_int_t)values, "bytes", (json_int_t)bytes, "ratio", ratio));
        } else {
            printf("%-22s %-28s %12zu %12.3f %10.1f\n", rungs[i].words, pipeline.text, values, (double)bytes / 1e6,
                   ratio);
            fflush(stdout);
        }
    }
    return TERSE_OK;
}

int ts_bench_ladder(uint64_t seed, bool json) {
    float *gradient = ts_mem_aligned(LADDER_ELEMS, sizeof(float)),
          *residual = ts_mem_aligned(LADDER_ELEMS, sizeof(float));
    json_t *rows = json_array();
    terse_status status = gradient && residual && rows ? TERSE_OK : TERSE_ENOMEM;
    if (status == TERSE_OK) {
        ts_bench_fill(ts_random_key(seed, 0, 0, 0, 0), gradient, LADDER_ELEMS);
        if (!json) {
            printf("one gradient of %u parameters; bytes of all packets, indices and scales included\n", LADDER_ELEMS);
            printf("%-22s %-28s %12s %12s %10s\n", "", "pipeline", "values", "MB", "ratio");
        }
        status = climb(gradient, residual, json, rows);
    }
    if (status == TERSE_OK && json) {
        json_dumpf(rows, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        putchar('\n');
    }
    json_decref(rows);
    ts_mem_free(gradient);
    ts_mem_free(residual);
    if (status != TERSE_OK) fprintf(stderr, "terse bench codec: %s\n", terse_strerror(status));
    return status == TERSE_OK && fflush(stdout) == 0 ? TS_EXIT_OK : TS_EXIT_FAILED;
}
