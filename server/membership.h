/* SPDX-License-Identifier: Apache-2.0 */
/* Who takes part in a job: attached, done, gone; each change is a new generation. */
#ifndef TS_SERVER_MEMBERSHIP_H
#define TS_SERVER_MEMBERSHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/contract/contract.h"
#include "server/quorum.h"

typedef enum {
    TS_MEMBER_EXPECTED, /* of the launch, not here yet */
    TS_MEMBER_ATTACHED,
    TS_MEMBER_GONE      /* said Bye, or was done and fell silent */
} ts_member_state;

typedef struct {
    uint32_t peer; /* of the transport */
    ts_member_state state;
    uint32_t incarnation;
    bool said_hello;
    bool unwelcomed;            /* its Hello waits until it is decided what the job goes on from, and who would lead next knows the epoch */
    uint8_t digest[TS_DIGEST_BYTES]; /* of its Hello */
    bool done;
    uint64_t done_steps;        /* it pushes steps below this */
    double unsent_l1, unsent_squares; /* done: what of its gradients it had not sent */
    uint64_t unsent_nonzero;
    uint64_t unacked_since_us;  /* arrival of the oldest push that nobody acknowledged yet; 0 for none */
    bool reply_due;             /* some slice may have a reply for it that is not in a shared frame */
    bool reply_later;           /* there is one, but its queue is full */
    bool stats_due;
    bool left;                  /* it said Bye */
    bool lost;                  /* GONE, since the job gave it up */
    bool unborn;                /* lost, but nobody has ever been this worker: a place that was made for one who comes */
    bool returned;              /* this is not the first of its lives here */
    bool away;                  /* it has come back, or is about to leave: sums do not wait for it before it has asked for one */
    bool coming;                /* another process is its peer now, and was not let in yet */
    uint32_t suitor;            /* the life that was asked for its contract, which is another; 0: none */
    uint64_t lost_us;           /* since when it is lost */
    uint64_t from;              /* it owes pushes from this step on */
    uint64_t coming_us;         /* GONE: when it was last heard that its next life is to come in */
    uint64_t asked_us;          /* GONE: when a process said Hello last that would like to be its next life */
    uint64_t told_from;         /* server 0: the step that the others were told last as the one of its life's coming in, */
    uint32_t told_life;         /* and which life; 0: none */
    uint32_t wants_in;          /* server 0: the life that would like to come back; 0: none */
    uint64_t lost_asked_us;     /* when server 0 was told last that nothing is heard of it */
    bool unsure;                /* who leads since another's death: it is in here, but perhaps not at all servers */
} ts_member;

typedef struct {
    ts_member *members; /* [own] by worker number */
    uint32_t count;
    uint32_t launched;    /* how many the job began with */
    uint32_t attached, done, gone; /* how many ever attached, how many are done (gone ones too), how many are gone */
    uint32_t lost;        /* of the gone ones: given up */
    uint32_t unborn;      /* of the lost ones */
    uint64_t returns;     /* how often one came back */
    uint64_t floor;       /* rounds before this one close without anybody when nobody owes them any more */
    uint64_t lost_rounds; /* server 0: rounds that waited for a worker which was then given up */
    uint32_t generation;
    uint64_t staleness; /* of SSP */
    ts_quorums quorums; /* [own] when rounds do not wait for stragglers */
} ts_membership;

/* Thread: the loop's, for all of these. worker: below count, by the job's number. */
/* count workers, all EXPECTED. membership: [out], ts_membership_free. Returns TERSE_OK, TERSE_ENOMEM (unchanged). */
terse_status ts_membership_create(ts_membership *membership, uint32_t count) TERSE_NODISCARD;
void ts_membership_free(ts_membership *membership); /* a zeroed one is fine */
/*
 * Places for further workers, up to `count`: each is like a worker that was lost, and can come back. peer: until it has one
 * of its own. Returns TERSE_OK, TERSE_ENOMEM (unchanged).
 */
terse_status ts_membership_grow(ts_membership *membership, uint32_t count, uint32_t peer) TERSE_NODISCARD;

/* EXPECTED becomes ATTACHED; in another state nothing changes. */
void ts_membership_attach(ts_membership *membership, uint32_t worker);
/* No pushes from `steps` on. A second call changes nothing. */
void ts_membership_done(ts_membership *membership, uint32_t worker, uint64_t steps);
/* GONE for good, and done with 0 steps unless it was done before. */
void ts_membership_gone(ts_membership *membership, uint32_t worker);

/* GONE because the job goes on without it: it owes nothing, even when it had gone in order here, since it has not elsewhere. */
void ts_membership_lose(ts_membership *membership, uint32_t worker);
/* ATTACHED again when it was GONE for its silence alone. Returns whether it was. */
bool ts_membership_heard(ts_membership *membership, uint32_t worker);

/* ATTACHED again, in a new life, which owes pushes from a step on. */
void ts_membership_return(ts_membership *membership, uint32_t worker, uint32_t incarnation, uint64_t from);
/* It is in from another step on than was said. */
void ts_membership_move(ts_membership *membership, uint32_t worker, uint64_t from);

/* Whether nobody is expected any more. */
bool ts_membership_complete(const ts_membership *membership);

/* How many workers the job has or has had: no places that nobody has come into, as when the comer was refused. */
static inline uint32_t ts_membership_workers(const ts_membership *membership) { return membership->count - membership->unborn; }
/* Of these, how many are gone. */
static inline uint32_t ts_membership_away(const ts_membership *membership) { return membership->gone - membership->unborn; }
/* How many were here and are lost. */
static inline uint32_t ts_membership_missed(const ts_membership *membership) { return membership->lost - membership->unborn; }
/* How many are done because they said so: all that are, but those that were given up. */
static inline uint32_t ts_membership_finished(const ts_membership *membership) { return membership->done - membership->lost; }
/* Whether all have died, and none of them had finished: then somebody may still come back. */
bool ts_membership_orphaned(const ts_membership *membership);

/* How many workers the weight of one is for: all but those that were given up. At least 1. */
uint32_t ts_membership_weight(const ts_membership *membership);

/* Whether the worker still owes a push for this step. */
bool ts_membership_expects(const ts_membership *membership, uint32_t worker, uint64_t step);

#endif
