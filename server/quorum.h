/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who belongs to a round when rounds do not wait for stragglers: server 0 decides it round by round, from what has been
 * delivered to it, and tells the other servers; each closes every slice of the round with exactly these workers.
 * With consistency.stragglers: wait there is nothing to decide, and nothing of this is used.
 */
#ifndef TS_SERVER_QUORUM_H
#define TS_SERVER_QUORUM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config/config.h"
#include "common/wire/frame.h"

struct ts_job;

#define TS_QUORUM_ROUNDS 256u /* that are remembered; servers are never more than a few rounds apart */

typedef struct {
    bool active;
    bool applies_late;   /* a packet whose round is closed goes into the open one; else it is returned */
    uint32_t workers;
    uint64_t next;       /* server 0: the round to be decided */
    uint64_t since_us;   /* server 0: when somebody had first delivered it; 0 for not yet */
    uint64_t asked_us;   /* others: when server 0 was last asked */
    uint64_t lost;       /* server 0: rounds decided without a member that owed a push */
    uint64_t *rounds;    /* [own] ring: the round of an entry, plus 1 */
    uint8_t *members;    /* [own] ring: a byte a worker */
} ts_quorums;

/* quorums: [out], ts_quorums_free. Returns TERSE_OK, TERSE_ENOMEM (unchanged). */
terse_status ts_quorums_create(ts_quorums *quorums, const ts_config *config, uint32_t workers) TERSE_NODISCARD;
void ts_quorums_free(ts_quorums *quorums); /* a zeroed one is fine */
/* Further workers, who belong to none of the rounds that are known. Returns TERSE_OK, TERSE_ENOMEM (unchanged). */
terse_status ts_quorums_grow(ts_quorums *quorums, uint32_t workers) TERSE_NODISCARD;

/* A byte a worker, 1 for the members of a round; NULL when it is not decided, or not known here. */
const uint8_t *ts_quorums_of(const ts_quorums *quorums, uint64_t round);

/* Thread: the loop's. Server 0: decides the next round, if that can be done. Returns whether it did. */
bool ts_quorum_decide(struct ts_job *job);
/* From another server: a decision of server 0, or a question to it. Returns TERSE_OK, TERSE_ECORRUPT, TERSE_EPEER. */
terse_status ts_quorum_members(struct ts_job *job, uint32_t peer, const Terse__Members *message) TERSE_NODISCARD;
/* Others: asks server 0 again when its decision did not come. */
void ts_quorum_tick(struct ts_job *job);

#endif
