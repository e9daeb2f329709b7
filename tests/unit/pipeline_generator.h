/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Legal pipelines made at random from the registry, for tests and fuzzing: each selector, each transform and none of
 * them with every quantiser, then combinations of everything. The same seed gives the same list.
 */
#ifndef TS_UNIT_PIPELINE_GENERATOR_H
#define TS_UNIT_PIPELINE_GENERATOR_H

#include "common/codec/pipeline.h"

#define TS_GENERATED_MOST 420

typedef struct {
    char text[TS_GENERATED_MOST][TS_PIPELINE_CHARS]; /* canonical, no two alike */
    size_t count;
    size_t refused; /* drawn, but not legal */
    size_t unnamed; /* of these, without a sentence that says why */
} ts_generated;

void ts_generate_pipelines(ts_generated *out, uint64_t seed);

#endif
