/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replicas of slices (servers.replicas: 1). A job's slices are in as many parts as there are servers; a part has an owner,
 * the server of its number, and a stand-in, the next one, which holds what the owner holds and takes its place when it
 * dies. Rounds are the same at both, since they are functions of the packets in them: only packets travel.
 *
 * replica.c          who is alive, and who takes whose place
 * replica_owner.c    forwards what was admitted; holds rounds and answers back until the stand-in has it
 * replica_standin.c  takes what is forwarded
 *
 * Thread: the loop's, for all of these.
 */
#ifndef TS_SERVER_REPLICA_H
#define TS_SERVER_REPLICA_H

#include "common/wire/frame.h"
#include "server/store.h"

struct ts_job;
struct ts_server;

/* A packet of the next round, at a stand-in whose slice has not come so far. */
typedef struct {
    ts_buffer *frame; /* one reference; NULL: there is none */
    const uint8_t *packet;
    size_t len;
    uint64_t step;
    uint32_t samples;
} ts_replica_early;

/* The last state of a slice that is compared. */
typedef struct {
    bool here, there;
    uint64_t here_version, there_version, here_hash, there_hash;
} ts_replica_check;

#define TS_REPLICA_DEAD_LISTED 64u /* in one heartbeat: the job ends with the second death that matters, long before */

/* What an owner has to say of a worker: one thing at a time. */
typedef enum { TS_REPLICA_SILENT, TS_REPLICA_SAY_LEFT, TS_REPLICA_LEFT /* confirmed */, TS_REPLICA_SAY_JOINED } ts_replica_word;

/* Of one part. All zero without replicas. */
typedef struct {
    bool mirrors;             /* owner: the stand-in lives */
    uint32_t peer;            /* owner: the stand-in's; stand-in: the owner's */
    uint8_t *words;           /* [own] owner: a worker's ts_replica_word */
    uint32_t leaving, joining; /* owner: workers whose leaving, and whose coming, is not confirmed */
    uint32_t *told;           /* [own] slices of one message */
    uint32_t told_count;
    uint64_t repeated_us;     /* owner: when what is not confirmed was last looked through */
    bool unconfirmed_sum;     /* owner: the last sum is not confirmed, and nobody has got it */
    uint64_t sum_said_us;
    ts_replica_early *early;  /* [own] stand-in: workers × slices */
    uint32_t workers;         /* for so many there is room in these two */
    ts_replica_check *checks; /* [own] a slice */
    uint64_t forwarded, repeated, compared; /* packets, and comparisons of a slice's state */
    bool steady;
    uint64_t bytes_in, steady_base;         /* own part: of what other servers sent about the job; before the steady steps */
} ts_replica;

/* Of a server. */
typedef struct {
    bool on;
    uint8_t *dead;       /* [own] a server: the job goes on without it */
    uint64_t epoch;      /* server 0's number of this start; 0: not heard of yet */
    bool epoch_held;     /* server 0: who would lead next has heard of it */
    uint32_t dead_count;
    bool is_dead;              /* this server, as the others say */
    uint64_t said_us;    /* when ALIVE was last said */
    uint64_t last_dead_us;
} ts_replica_watch;

/* ---- replica.c ---- */
/* Returns TERSE_OK, TERSE_ENOMEM. */
terse_status ts_replica_watch_create(struct ts_server *server) TERSE_NODISCARD;
void ts_replica_watch_free(struct ts_server *server);
/* Whether the server's process has ended, or counts as if. server: its number. */
bool ts_replica_is_dead(const struct ts_server *server, uint32_t number);
/* Whether every part has somebody who speaks for it; else no job can run. reason: [out] Returns TERSE_OK, TERSE_EPEER. */
terse_status ts_replica_whole(const struct ts_server *server, ts_error *reason) TERSE_NODISCARD;
/* The server that speaks for a part: its owner, or the stand-in; the number of servers when both are dead. */
uint32_t ts_replica_host(const struct ts_server *server, uint32_t part);
/* Whether this server decides for all of them: it speaks for part 0. */
bool ts_replica_leads(const struct ts_server *server);
/* What a worker's heartbeat says of the servers. list: TS_REPLICA_DEAD_LISTED of them, as long as the message. */
void ts_replica_heartbeat(const struct ts_server *server, Terse__Heartbeat *body, uint32_t *list);
/* The peer that does; peer_count when nobody is left to. */
uint32_t ts_replica_lead_peer(const struct ts_server *server);
/* Whether a worker may be told the epoch: whoever leads next calls it the same. */
bool ts_replica_epoch_is_held(const struct ts_server *server);
/* Says ALIVE, notices silence. */
void ts_replica_watch_tick(struct ts_server *server);
/* From another server. Returns TERSE_OK, TERSE_ECORRUPT, TERSE_ESTATE, TERSE_ENOMEM. */
terse_status ts_replica_message(struct ts_server *server, uint32_t peer, ts_buffer *buffer, const ts_frame *frame)
    TERSE_NODISCARD;
/* A worker says which servers it has given up. */
void ts_replica_told_by_worker(struct ts_server *server, uint32_t peer, const Terse__Heartbeat *heartbeat);
/*
 * The own part has its contract: the part that this server stands in for is made. config: [borrow] of the own part.
 * Returns TERSE_OK, TERSE_ENOMEM, as ts_job_begin.
 */
terse_status ts_replica_begin(struct ts_job *own) TERSE_NODISCARD;
void ts_replica_free(struct ts_job *job);
/* Room for further workers, of a part that has its contract. Returns TERSE_OK, TERSE_ENOMEM (unchanged). */
terse_status ts_replica_grow(struct ts_job *job, uint32_t workers) TERSE_NODISCARD;
/* Whether a job of this contract can have replicas, where they are on. reason: [out] */
terse_status ts_replica_allows(const struct ts_job *job, const ts_contract *contract, ts_error *reason) TERSE_NODISCARD;
/* The stand-in's part learns what this server knows of the workers. own: an own part. */
void ts_replica_follow_members(struct ts_job *own);
/* Whether two parts of a server mean the same life of a worker. */
bool ts_replica_same_life(const struct ts_job *own, const struct ts_job *part, uint32_t worker);
/* The part that a frame of a worker means; NULL when this server does not speak for it. */
struct ts_job *ts_replica_part(struct ts_job *own, uint32_t part);
/* The first worker is past the warm-up. */
void ts_replica_steady(struct ts_job *job);
/* Sends a Mirror without payload about a part. */
void ts_replica_say(const struct ts_job *job, Terse__Mirror *body);

/* ---- replica_owner.c ---- */
/* Whether the slice's round has to wait for the stand-in. */
bool ts_replica_holds_back(const struct ts_job *job, const ts_slice_state *slice);
/* The worker's packet was taken into its slot; ts_replica_forward sends all of those. */
void ts_replica_admitted(struct ts_job *job, ts_slice_state *slice, uint32_t worker);
void ts_replica_forward(struct ts_job *job, uint32_t worker);
/* Sends first values of those slices that the stand-in has not confirmed. Returns how many others there are, now in front. */
size_t ts_replica_forward_set(struct ts_job *job, uint32_t *slices, size_t count);
/* After each version of a slice, at both: now and then they are compared. */
void ts_replica_reached(struct ts_job *job, ts_slice_state *slice);
/* Somebody is done or has left: an own part, before its rounds are looked at. */
void ts_replica_members_changed(struct ts_job *job);
/* The worker was let in, or its step was moved: until the stand-in knows, no round closes and no packet is forwarded. */
void ts_replica_joins(struct ts_job *job, uint32_t worker);
/* Whether the stand-in, where there is one, knows of all who have left, and that the worker has come in. */
bool ts_replica_knows_left(const struct ts_job *job);
bool ts_replica_knows_joined(const struct ts_job *job, uint32_t worker);
/* A sum is there. Returns whether its answer has to wait. */
bool ts_replica_sum(struct ts_job *job);
/* Says again what is not confirmed. */
void ts_replica_owner_tick(struct ts_job *job);
/* There is no stand-in any more: nothing is held back. */
void ts_replica_stop_mirroring(struct ts_job *job);
/* The stand-in holds it. */
terse_status ts_replica_held(struct ts_job *job, const Terse__Mirror *message) TERSE_NODISCARD;

/* ---- replica_standin.c ---- */
/* What the owner forwards. */
terse_status ts_replica_take(struct ts_job *job, ts_buffer *buffer, const ts_frame *frame) TERSE_NODISCARD;
/* What waits there of the worker was not confirmed, and never will be. */
void ts_replica_forget_early(struct ts_job *job, uint32_t worker);
/* The slice has come to a new version: packets that waited for it are held. The caller looks whether the round can close. */
void ts_replica_catch_up(struct ts_job *job, ts_slice_state *slice);
/* The slice has its first values from a checkpoint: likewise, and its round is looked at. */
void ts_replica_loaded(struct ts_job *job, ts_slice_state *slice);
/* A hash that this server has computed, or got from the owner. Ends the job when both are there and differ. */
void ts_replica_compare(struct ts_job *job, uint32_t local, uint64_t version, uint64_t hash, bool here);

#endif
