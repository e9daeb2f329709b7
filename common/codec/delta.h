/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What both ends of `delta` keep of a slice: the values as the receiver has them. A packet is one byte and the value
 * blocks of a dense packet:
 *     0        the blocks hold the values themselves (refresh)
 *     1 … 255  they hold the difference to the state that the packet of so many steps before has left
 */
#ifndef TS_CODEC_DELTA_H
#define TS_CODEC_DELTA_H

#include "common/codec/block.h"
#include "common/codec/codec.h"

#define TS_DELTA_MOST_STEPS 255u

struct ts_decode_state {
    size_t n;
    uint64_t step; /* of the packet that left it so */
    bool known;    /* some packet has */
    float *value;  /* [own] n */
};

/* Whether the pipeline keeps such states. */
static inline bool ts_delta_in(const ts_pipeline *pipeline) {
    return pipeline->transform && pipeline->transform->differential;
}

/*
 * Whether the quantiser is fine enough for differences under error feedback. With e the residual, what is quantised is
 * 2 e(t-1) - e(t-2) and the gradients' difference, so an error of a third of the input or more builds up without end.
 */
bool ts_delta_tolerates(const ts_quantise_stage *quantise, const ts_stage_args *args);
/* The first byte of the packet of this step: how many steps the state is behind, 0 to refresh. */
unsigned ts_delta_behind(const ts_decode_state *state, const ts_stage_args *args, uint64_t step);
/* out[i] = x[i] - state[i], saturating; `first` is where in the slice the n values begin. Refreshed: out = x. */
void ts_delta_take(const ts_decode_state *state, unsigned behind, size_t first, const float *x, size_t n, float *out);
/* What both ends do with decoded[n]: state += decoded, saturating; refreshed: state = decoded. */
void ts_delta_apply(ts_decode_state *state, unsigned behind, size_t first, const float *decoded, size_t n);
/* to[i] -= state[i], saturating. */
void ts_delta_subtract(const ts_decode_state *state, size_t first, float *to, size_t n);

#endif
