/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is who to whom, when one launch has several groups of servers: each with its own servers and workers, of which
 * some may be relays, the server of a group below. Everybody keeps its number (the rank) in all views; who does not
 * belong to one is TS_ROLE_NONE there. Pure.
 */
#ifndef TS_NET_GROUPS_H
#define TS_NET_GROUPS_H

#include "common/net/transport.h"

#define TS_GROUP_CHARS TS_JOB_NAME_CHARS /* of a group's name, the end included */

/* What each rank says of itself. */
typedef struct {
    uint32_t role;                    /* a ts_role, unchecked */
    char group[TS_GROUP_CHARS];       /* its servers', or the one it serves */
    char job[TS_JOB_NAME_CHARS];      /* of a worker; of a relay: that which it is a worker of above */
    char above[TS_GROUP_CHARS];       /* of a relay: the group above; "" for all others */
    char host[40];
} ts_group_member;

typedef struct {
    ts_peer *peers;         /* [borrow] room for all members */
    ts_transport_job *jobs; /* [borrow] room for as many */
    uint32_t job_count, servers, workers; /* workers: as ts_transport.workers */
} ts_group_view;

/*
 * The group as `self` sees it: its own, or (above) that whose worker it is as a relay. Servers, jobs and the workers of
 * a job are numbered in the members' order, so that all come to the same numbers. view: [out]
 */
void ts_groups_view(const ts_group_member *members, uint32_t count, uint32_t self, bool above, ts_group_view *view);

/*
 * Whether the groups make sense. Returns TERSE_OK; TERSE_EMISMATCH: a relay above itself, a relay beside other servers in
 * one group, several jobs below a relay, or a group without servers, with a sentence.
 */
terse_status ts_groups_check(const ts_group_member *members, uint32_t count, ts_error *error) TERSE_NODISCARD;

#endif
