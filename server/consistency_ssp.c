/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stale-synchronous (Ho et al. 2013): a worker pushes step t once every member of the quorum has pushed all steps below
 * t - staleness. The wait is at the pull before it, which is answered only then; so what a worker sees at step t has
 * all pushes of steps below t - staleness, and its own. With staleness 0 all go in lockstep.
 */
#include "server/consistency_clock.h"

static terse_status ssp_admit(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker,
                              uint64_t step) {
    return ts_clock_admit(membership, slice, worker, step, membership->staleness);
}

static bool ssp_closable(const ts_membership *membership, const ts_slice_state *slice) {
    return ts_clock_closable(membership, slice, membership->staleness);
}

static bool ssp_misses(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker) {
    const ts_slot *slot = &slice->slots[worker];
    if (slot->frame || !ts_membership_expects(membership, worker, slot->next)) return false;
    for (uint32_t w = 0; w < membership->count; w++) {
        const ts_slot *other = &slice->slots[w];
        if ((other->owed & TS_OWED_DELTA) && other->want > membership->staleness &&
            slot->next < other->want - membership->staleness)
            return true;
    }
    return false;
}

static bool ssp_answers(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker, uint64_t want,
                        bool ahead) {
    return ts_clock_answers(membership, slice, worker, want, ahead, membership->staleness);
}

extern const ts_consistency ts_consistency_ssp;
const ts_consistency ts_consistency_ssp = {
    .mode = TS_MODE_SSP,
    .name = "ssp",
    .alone = true,
    .admit = ssp_admit,
    .closable = ssp_closable,
    .misses = ssp_misses,
    .takes_part = ts_clock_takes_part,
    .answers = ssp_answers,
};
