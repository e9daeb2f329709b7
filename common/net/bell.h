/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bells: how a sender wakes a process that sleeps in its event loop, where MPI
 * has nothing to wait on. Each process has one UDP socket; one byte sent there
 * means "poll". A greeting at the start tells each process whose bell reaches
 * it; while somebody's does not, it must poll by a timer. A lost or forged
 * datagram costs a little time, never correctness.
 *
 * Thread: all calls on one bell from one thread at a time.
 */
#ifndef TS_NET_BELL_H
#define TS_NET_BELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define TS_BELL_ADDRESSES 6
#define TS_BELL_HOST_BYTES 48

/* Where a process can be rung, as it tells everybody. Plain bytes: travels between processes of one architecture. */
typedef struct {
    uint8_t host[TS_BELL_HOST_BYTES]; /* one kernel and network namespace: its boot id and the namespace's inode */
    uint64_t cookie;                  /* a greeting must repeat it */
    struct {
        uint32_t address, mask; /* IPv4, network order */
    } network[TS_BELL_ADDRESSES];
    uint16_t networks;
    uint16_t port; /* network order; 0: has no bell */
    uint32_t reserved;
} ts_bell_address;

typedef struct ts_bell ts_bell;

/*
 * A bell of one's own. A process without one (no socket to be had) still rings others' by it and is rung by nobody.
 * Returns TERSE_ENOMEM.
 */
terse_status ts_bell_create(ts_bell **out) TERSE_NODISCARD;
void ts_bell_destroy(ts_bell *bell); /* NULL is fine */

/* What the others need to know. */
void ts_bell_own_address(const ts_bell *bell, ts_bell_address *out);
/* Whether two processes share a host (and can reach each other by the loopback address). */
bool ts_bell_same_host(const ts_bell_address *a, const ts_bell_address *b);

/*
 * Everybody's addresses are known: greets all, asking to be greeted. peers: `count` of them, self included, copied.
 * Returns TERSE_ENOMEM.
 */
terse_status ts_bell_meet(ts_bell *bell, const ts_bell_address *peers, uint32_t count, uint32_t self) TERSE_NODISCARD;

/*
 * One more peer; its number is the next. as: the number by which it knows this process. Greets it. self: whether the
 * new one is this process. Returns TERSE_ENOMEM.
 */
terse_status ts_bell_add(ts_bell *bell, const ts_bell_address *peer, uint32_t as, bool self) TERSE_NODISCARD;
/* Room for `more` peers, so that adding them cannot fail. Returns TERSE_ENOMEM. */
terse_status ts_bell_reserve(ts_bell *bell, uint32_t more) TERSE_NODISCARD;
/* A peer is gone: it is not rung any more, nor waited for. */
void ts_bell_forget(ts_bell *bell, uint32_t peer);
/* The IPv4 address by which `own` best reaches `peer`, network order; 0: none is known. */
uint32_t ts_bell_way(const ts_bell_address *own, const ts_bell_address *peer);

/* Rings a peer, unless it has no bell. Returns whether a datagram left. */
bool ts_bell_ring(ts_bell *bell, uint32_t peer);

/* Readable when somebody rang; -1 when this process has no bell. */
int ts_bell_fd(const ts_bell *bell);
/* Empties it: notes and answers greetings. now_us: monotonic. */
void ts_bell_clear(ts_bell *bell, uint64_t now_us);
/* Every other peer has greeted; asks again, now and then and not for ever, those who have not. now_us: monotonic. */
bool ts_bell_complete(ts_bell *bell, uint64_t now_us);

#endif
