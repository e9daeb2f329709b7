/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline: `stage:arg | stage:arg`, parsed and checked. At most one
 * transform, one selector, one quantiser, one index pack and two byte packs,
 * in this order. `dense` is another name of `fp32`.
 */
#ifndef TS_CODEC_PIPELINE_H
#define TS_CODEC_PIPELINE_H

#include <stdbool.h>

#include "common/base/status.h"
#include "common/codec/stage.h"

#define TS_PIPELINE_CHARS 128
#define TS_PIPELINE_BYTE_STAGES 2

typedef struct {
    const ts_transform_stage *transform; /* NULL when absent, as all of these */
    const ts_select_stage *select;
    const ts_quantise_stage *quantise; /* never NULL: fp32 when not named */
    const ts_index_stage *index;       /* never NULL after a selector that sends indices: `best` when not named */
    const ts_bytes_stage *bytes[TS_PIPELINE_BYTE_STAGES];
    ts_stage_args transform_args, select_args, quantise_args, bytes_args[TS_PIPELINE_BYTE_STAGES];
    char text[TS_PIPELINE_CHARS]; /* canonical spelling: what the contract's digest sees */
} ts_pipeline;

/*
 * Parses and checks a pipeline.
 * error: [out] one sentence that names the stage and what is allowed. May be NULL.
 * Returns: TERSE_OK; TERSE_EINVAL (out untouched).
 */
terse_status ts_pipeline_parse(const char *text, ts_pipeline *out, ts_error *error) TERSE_NODISCARD;

/* Every element travels, bit for bit, with nothing left over (`fp32`, with or without byte packs). */
bool ts_pipeline_is_lossless(const ts_pipeline *pipeline);
/*
 * New values travel, and take the place of those at the receiver (`exact`), so that both ends hold the same bits. The
 * sender has to know what the receiver has: a pull's reference. A push has none.
 */
bool ts_pipeline_replaces(const ts_pipeline *pipeline);
/* Only some elements travel. */
bool ts_pipeline_is_sparse(const ts_pipeline *pipeline);

#endif
