/* SPDX-License-Identifier: Apache-2.0 */
#include "server/membership.h"

#include <assert.h>

#include "common/base/mem.h"

terse_status ts_membership_create(ts_membership *membership, uint32_t count) {
    ts_member *members = ts_mem_calloc(count, sizeof *members);
    TS_REQUIRE(members, TERSE_ENOMEM);
    *membership = (ts_membership){.members = members, .count = count, .launched = count};
    return TERSE_OK;
}

terse_status ts_membership_grow(ts_membership *membership, uint32_t count, uint32_t peer) {
    if (count <= membership->count) return TERSE_OK;
    ts_member *members = ts_mem_realloc(membership->members, count, sizeof *members);
    TS_REQUIRE(members, TERSE_ENOMEM);
    membership->members = members;
    for (uint32_t w = membership->count; w < count; w++)
        members[w] = (ts_member){.peer = peer, .state = TS_MEMBER_GONE, .done = true, .lost = true, .unborn = true};
    uint32_t more = count - membership->count;
    membership->count = count;
    membership->done += more;
    membership->gone += more;
    membership->lost += more;
    membership->unborn += more;
    return TERSE_OK;
}

void ts_membership_free(ts_membership *membership) {
    ts_quorums_free(&membership->quorums);
    ts_mem_free(membership->members);
    *membership = (ts_membership){0};
}

void ts_membership_attach(ts_membership *membership, uint32_t worker) {
    ts_member *member = &membership->members[worker];
    if (member->state != TS_MEMBER_EXPECTED) return;
    member->state = TS_MEMBER_ATTACHED;
    membership->attached++;
    membership->generation++;
}

void ts_membership_done(ts_membership *membership, uint32_t worker, uint64_t steps) {
    ts_member *member = &membership->members[worker];
    if (member->done) return;
    member->done = true;
    member->done_steps = steps;
    membership->done++;
    membership->generation++;
}

void ts_membership_gone(ts_membership *membership, uint32_t worker) {
    ts_member *member = &membership->members[worker];
    if (member->state == TS_MEMBER_GONE) return;
    ts_membership_done(membership, worker, 0);
    member->state = TS_MEMBER_GONE;
    membership->gone++;
    membership->generation++;
}

void ts_membership_lose(ts_membership *membership, uint32_t worker) {
    ts_member *member = &membership->members[worker];
    if (member->lost) return;
    ts_membership_gone(membership, worker);
    member->lost = true;
    member->done_steps = 0; /* what it had pushed last may never have come */
    membership->lost++;
    membership->generation++;
}

bool ts_membership_heard(ts_membership *membership, uint32_t worker) {
    ts_member *member = &membership->members[worker];
    if (member->state != TS_MEMBER_GONE || member->lost || member->left) return false;
    member->state = TS_MEMBER_ATTACHED;
    member->away = true;
    membership->gone--;
    membership->generation++;
    return true;
}

void ts_membership_return(ts_membership *membership, uint32_t worker, uint32_t incarnation, uint64_t from) {
    ts_member *member = &membership->members[worker];
    assert(member->lost);
    membership->lost--;
    bool was_unborn = member->unborn;
    membership->unborn -= was_unborn;
    membership->attached += was_unborn;
    membership->gone--;
    membership->done--;
    membership->generation++;
    membership->returns++;
    *member = (ts_member){.peer = member->peer, .state = TS_MEMBER_ATTACHED, .incarnation = incarnation, .said_hello = true,
                          .returned = true, .away = true, .from = from};
}

bool ts_membership_orphaned(const ts_membership *membership) {
    return membership->lost == membership->count && membership->lost > membership->unborn;
}

bool ts_membership_complete(const ts_membership *membership) {
    for (uint32_t w = 0; w < membership->count; w++)
        if (membership->members[w].state == TS_MEMBER_EXPECTED) return false;
    return true;
}

void ts_membership_move(ts_membership *membership, uint32_t worker, uint64_t from) {
    membership->members[worker].from = from;
}

uint32_t ts_membership_weight(const ts_membership *membership) {
    return membership->count > membership->lost ? membership->count - membership->lost : 1;
}

bool ts_membership_expects(const ts_membership *membership, uint32_t worker, uint64_t step) {
    const ts_member *member = &membership->members[worker];
    return step >= member->from && (!member->done || step < member->done_steps);
}
