/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bulk-synchronous rounds (Valiant 1990): a slice goes from version v to v + 1 when every member that owes step v has
 * delivered it. Who has delivered counts, never how many packets came.
 */
#include "server/consistency.h"

/* Where rounds do not wait: a packet may come before its round, and after it. */
static terse_status admit_to_quorum(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker,
                                    uint64_t step) {
    const ts_slot *slot = &slice->slots[worker];
    const uint8_t *members = step < slice->version ? NULL : ts_quorums_of(&membership->quorums, step);
    if (step < slot->next || (slot->frame && slot->step == step)) return TERSE_EDUPLICATE;
    bool late = step < slice->version || (members && !members[worker]);
    if (slot->frame || !ts_membership_expects(membership, worker, step)) return TERSE_ESTALE;
    return late && !membership->quorums.applies_late ? TERSE_ESTALE : TERSE_OK;
}

static terse_status bsp_admit(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker,
                              uint64_t step) {
    if (membership->quorums.active) return admit_to_quorum(membership, slice, worker, step);
    if (step < slice->version) return TERSE_EDUPLICATE;
    /* A worker pushes step v + 1 only after it has seen version v + 1. */
    if (step > slice->version) return TERSE_ESTATE;
    if (slice->slots[worker].frame) return TERSE_EDUPLICATE;
    return ts_membership_expects(membership, worker, step) ? TERSE_OK : TERSE_ESTALE;
}

/* Whether there is a packet of the worker that can go into the open round. */
static bool is_here(const ts_slice_state *slice, uint32_t worker) {
    const ts_slot *slot = &slice->slots[worker];
    return slot->frame && slot->step <= slice->version;
}

static bool bsp_misses(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker) {
    const uint8_t *members = ts_quorums_of(&membership->quorums, slice->version);
    if (is_here(slice, worker)) return false;
    const ts_member *member = &membership->members[worker];
    /* A member that died had delivered all of the round to server 0, but perhaps not here. */
    return members ? members[worker] && !member->lost && slice->version >= member->from
                   : ts_membership_expects(membership, worker, slice->version);
}

static bool bsp_closable(const ts_membership *membership, const ts_slice_state *slice) {
    if (membership->quorums.active) {
        if (!ts_quorums_of(&membership->quorums, slice->version)) return false;
    } else if (slice->held == 0 && slice->version >= membership->floor) {
        return false;
    }
    for (uint32_t w = 0; w < membership->count; w++)
        if (bsp_misses(membership, slice, w)) return false;
    return true;
}

static bool bsp_takes_part(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker) {
    const uint8_t *members = ts_quorums_of(&membership->quorums, slice->version);
    return is_here(slice, worker) && (!members || members[worker]);
}

static bool bsp_answers(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker, uint64_t want,
                        bool ahead) {
    (void)membership, (void)worker, (void)ahead;
    return slice->version >= want;
}

extern const ts_consistency ts_consistency_bsp;
const ts_consistency ts_consistency_bsp = {
    .mode = TS_MODE_BSP,
    .name = "bsp",
    .admit = bsp_admit,
    .closable = bsp_closable,
    .misses = bsp_misses,
    .takes_part = bsp_takes_part,
    .answers = bsp_answers,
};
