/* SPDX-License-Identifier: Apache-2.0 */
#include "server/consistency_clock.h"

/* Whether the worker's packet is there, and not one that waits for a checkpoint. */
static bool is_here(const ts_slice_state *slice, uint32_t worker) {
    const ts_slot *slot = &slice->slots[worker];
    return slot->frame && (slice->cut_step == 0 || slot->step < slice->cut_step);
}

static uint64_t clock_of(const ts_slice_state *slice, uint32_t worker, bool ahead) {
    return slice->slots[worker].next + (ahead && is_here(slice, worker) ? 1 : 0);
}

uint64_t ts_clock_lowest(const ts_membership *membership, const ts_slice_state *slice, bool ahead) {
    uint64_t lowest = UINT64_MAX;
    for (uint32_t w = 0; w < membership->count; w++) {
        uint64_t clock = clock_of(slice, w, ahead);
        if (clock < lowest && ts_membership_expects(membership, w, clock)) lowest = clock;
    }
    return lowest;
}

/* Whether step `step` is within the bound of the slowest. */
static bool within(const ts_membership *membership, const ts_slice_state *slice, uint64_t step, bool ahead,
                   uint64_t bound) {
    if (step <= bound) return true;
    return ts_clock_lowest(membership, slice, ahead) >= step - bound;
}

terse_status ts_clock_admit(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker, uint64_t step,
                            uint64_t bound) {
    const ts_slot *slot = &slice->slots[worker];
    if (step < slot->next || (step == slot->next && slot->frame)) return TERSE_EDUPLICATE;
    /* A worker pushes step t + 1 only after it was told that step t is applied and the slowest is near enough. */
    if (step > slot->next || !within(membership, slice, step, false, bound)) return TERSE_ESTATE;
    return ts_membership_expects(membership, worker, step) ? TERSE_OK : TERSE_ESTALE;
}

bool ts_clock_answers(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker, uint64_t want,
                      bool ahead, uint64_t bound) {
    return clock_of(slice, worker, ahead) >= want && within(membership, slice, want, ahead, bound);
}

bool ts_clock_closable(const ts_membership *membership, const ts_slice_state *slice, uint64_t bound) {
    for (uint32_t w = 0; w < membership->count && slice->held > 0; w++)
        if (is_here(slice, w)) return true;
    if (!slice->changed) return false;
    for (uint32_t w = 0; w < membership->count; w++) {
        const ts_slot *slot = &slice->slots[w];
        if ((slot->owed & TS_OWED_DELTA) && ts_clock_answers(membership, slice, w, slot->want, false, bound)) return true;
    }
    return false;
}

bool ts_clock_takes_part(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker) {
    (void)membership;
    return is_here(slice, worker);
}
