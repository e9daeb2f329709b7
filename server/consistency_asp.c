/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asynchronous (Recht et al. 2011, Dean et al. 2012): nobody waits for anybody; a pull is answered when the worker's
 * own pushes are in it.
 */
#include "server/consistency_clock.h"

static terse_status asp_admit(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker,
                              uint64_t step) {
    return ts_clock_admit(membership, slice, worker, step, TS_CLOCK_UNBOUNDED);
}

static bool asp_closable(const ts_membership *membership, const ts_slice_state *slice) {
    return ts_clock_closable(membership, slice, TS_CLOCK_UNBOUNDED);
}

static bool asp_misses(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker) {
    (void)membership, (void)slice, (void)worker;
    return false;
}

static bool asp_answers(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker, uint64_t want,
                        bool ahead) {
    return ts_clock_answers(membership, slice, worker, want, ahead, TS_CLOCK_UNBOUNDED);
}

extern const ts_consistency ts_consistency_asp;
const ts_consistency ts_consistency_asp = {
    .mode = TS_MODE_ASP,
    .name = "asp",
    .alone = true,
    .admit = asp_admit,
    .closable = asp_closable,
    .misses = asp_misses,
    .takes_part = ts_clock_takes_part,
    .answers = asp_answers,
};
