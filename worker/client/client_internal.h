/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the client share. Nobody else includes it. */
#ifndef TS_CLIENT_INTERNAL_H
#define TS_CLIENT_INTERNAL_H

#include "common/codec/codec.h"
#include "common/keep/keep.h"
#include "common/wire/bundle.h"
#include "common/wire/frame.h"
#include "common/wire/secret.h"
#include "worker/client/client.h"
#include "worker/client/client_checkpoint.h"
#include "worker/client/client_keep.h"
#include "worker/client/feedback.h"
#include "worker/client/outbox.h"

/* Gathered packets leave when another one like the last would make them more than this; a larger packet travels alone. */
#define TS_CLIENT_GATHER_BYTES ((size_t)256 << 10)
#define TS_CLIENT_ALONE_BYTES ((size_t)128 << 10)  /* packets as large as this are written into a frame of their own */
#define TS_CLIENT_LARGE_BYTES ((uint64_t)32 << 20) /* of parameters: see ts_client.large */
#define TS_CLIENT_AHEAD_BYTES ((size_t)512 << 10)  /* that much new data is worth a look at all tensors of a step */
#define TS_CLIENT_LET_GO_BYTES ((size_t)32 << 10) /* of work: letting go of the lock costs as much as a few of them */
#define TS_CLIENT_PATIENCE_US 5000u                /* so long a step waits for news before it encodes far ahead of them */
#define TS_CLIENT_RAW_FRAME_BYTES ((size_t)1 << 20) /* initial values: the size of a Set frame */
#define TS_CLIENT_GATHER_US 20000u                  /* and they never wait longer than this */
#define TS_CLIENT_ABSENT_US 500000u /* between two ticks: more than their longest distance */
#define TS_CLIENT_RTO_US 1000000u
#define TS_CLIENT_RTO_MAX_US 8000000u
#define TS_CLIENT_CROWDED_US 50000u             /* a server without room is tried again after that, */
#define TS_CLIENT_CROWDED_BYTES ((size_t)16 << 20) /* with so much at a time */
#define TS_CLIENT_SPARE_MAX 4096u    /* of their nodes are kept for the next ones */
#define TS_CLIENT_ARRIVALS_MAX 64u   /* packets of one slice waiting to be decoded; more are asked for again later */
#define TS_CLIENT_REFUSED_US 200000u /* after so long a packet that was refused as corrupt is sent again */
#define TS_CLIENT_REFUSALS_MAX 5u /* of one packet as corrupt: sent again it will be no better */
#define TS_CLIENT_DEAD_LISTED 64u    /* in one heartbeat; the job does not live to see so many */
#define TS_CLIENT_BAD_PACKETS_MAX 16u /* checksummed packets that do not decode before the client gives up */

/* A packet of the downlink that waits until the user lets param change. */
typedef struct ts_arrival {
    struct ts_arrival *next;
    ts_buffer *frame; /* a reference */
    const uint8_t *packet;
    size_t len;
    uint64_t version;
    uint64_t answers; /* what wish it ends; in BSP the version itself */
    bool snapshot;
} ts_arrival;

typedef struct {
    uint64_t version;     /* param holds it */
    uint64_t answered;    /* the wish that this version ends (Pull.want) */
    uint64_t ready;       /* what version can be reached with the arrivals, without a gap */
    uint64_t ready_answers; /* and the wish that it will end */
    ts_arrival *arrivals; /* ascending versions, all above `version` */
    bool settled;         /* attaching: set and acknowledged, or its snapshot is here */
    bool fetched;
} ts_client_slice;

typedef enum {
    TS_TENSOR_IDLE,   /* param holds version `step`; the next push is step `step` */
    TS_TENSOR_PUSHED, /* step `step` was pushed, its pull was not asked for */
    TS_TENSOR_PULLING
} ts_tensor_phase;

typedef struct {
    float *param; /* [borrow] */
    ts_encoder *encoder;
    ts_feedback memory;
    uint64_t step;
    ts_tensor_phase phase;
    bool arrived;          /* something new to decode */
    bool on_demand;        /* pushes ask for no data; pulls do */
    bool lends;            /* the gradient in hand stays as it is until ts_client_recall */
    bool asked;            /* on demand: the pull went out */
    const float *deferred; /* [borrow] the gradient that waits for the step's norm */
    float *dense;          /* of sparse pushes; zero between them */
    uint32_t unanswered;   /* slots in GATHERED or SENT */
    float *fetch_out;      /* [borrow] */
    uint32_t unfetched;
} ts_client_tensor;

/* Requests to a server that are repeated until answered. */
enum {
    TS_REQUEST_HELLO = 1,
    TS_REQUEST_CONTRACT = 2,
    TS_REQUEST_SET = 4,
    TS_REQUEST_SNAPSHOT = 8,
    TS_REQUEST_DONE = 16,
    TS_REQUEST_STATS = 32,
    TS_REQUEST_REDUCE = 64,
    TS_REQUEST_FETCH = 128
};

typedef struct {
    uint32_t peer;          /* who speaks for it: the server itself, or its stand-in when it is dead */
    uint32_t home;          /* the server itself */
    bool dead;
    const uint32_t *slices; /* global number of each of its slices, in its order */
    uint32_t slice_count;
    unsigned requests;
    uint32_t unsettled;     /* slices, while attaching */
    uint32_t *gathered;     /* its own numbers of gathered slices */
    uint32_t gathered_count;
    size_t gathered_bytes;
    size_t gathers_bytes;   /* about as much as lately came together; at first all that could */
    uint64_t gathered_since_us;
    ts_bundle_writer filling; /* the frame that just these are in, in order; frame: [own], NULL: they are in none */
    bool crowded;          /* it had no room for all of what we pushed */
    uint64_t heard_us, sent_us, rto_us, rto_at_us;
    uint64_t gap_us; /* how long answers lately took */
    uint64_t asked_us;      /* the last request or progress, repetitions apart: for messages */
    bool proven;            /* it knows the secret, as we do */
    char waiting[160];      /* whom it waits for, by its last heartbeat */
    struct {
        uint64_t in_bytes, out_bytes, steady_in_bytes, steady_out_bytes, lost_rounds, lost_workers, rounds, unsent_nonzero;
        double unsent_l1, unsent_squares;
    } stats;
} ts_client_server;

struct ts_client {
    const ts_config *config;  /* [borrow] */
    ts_transport *transport;  /* [borrow] */
    ts_client_state state;
    terse_status failure;
    ts_error message;
    uint32_t worker, job;     /* our number, and our job's, which each frame names */
    uint64_t deadline_us;
    uint64_t ticked_us;
    ts_contract *contract;
    ts_client_tensor *tensors;
    uint32_t tensor_capacity; /* tensors: contract->tensor_count are in use */
    ts_client_slice *slices;  /* by global number, from start on */
    uint64_t *slice_hash;     /* by global number, of the last statistics */
    uint32_t *slice_order;    /* storage of the servers' `slices` and `gathered` */
    ts_arrival *spare_arrivals; /* to use again; spare_count of them */
    uint32_t spare_count;
    ts_outbox outbox;
    ts_keep *keep;            /* NULL: nothing outlives the process */
    ts_keep_memory keep_memory; /* of the tensors, when there is a keep */
    bool keep_checked;        /* what it holds is of this job */
    uint64_t job_epoch;       /* which life of the servers; 0 before server 0 has said */
    uint32_t incarnation;     /* which life of this worker it is: 1, 2 … */
    ts_client_server *servers;
    uint32_t server_count;
    uint32_t samples;         /* of the gradients pushed now; 0 when nobody said */
    uint32_t pushed_tensors;  /* tensors not IDLE */
    uint32_t deferred_tensors;
    bool replicas;            /* a server that dies has a stand-in; the servers say when */
    uint32_t dead_count;      /* servers */
    bool settles;             /* servers do not wait for stragglers: only an Ack settles a push, and rounds are skipped */
    bool begun;               /* TRAINING was reached once */
    bool stale;               /* the servers have given this life up; the user's thread begins the next */
    bool returning;           /* ATTACHING to a job that goes on: */
    bool return_told;         /* server 0 has said at which step, */
    uint64_t return_from;     /* this one */
    uint32_t returns;         /* how often that was */
    bool sets_parameters;     /* worker 0, on servers that have none yet */
    ts_scratch *scratch;        /* of encoding */
    ts_scratch *decode_scratch; /* a tensor may be half encoded meanwhile */
    float *expanded; /* the residual in hand, when residuals are stored as bfloat16: room for the largest */
    uint32_t bad_packets;
    ts_client_checkpoint checkpoint;
    uint32_t ahead;         /* in a step: its first so many tensors may be decoded as they come; 0: not in a step */
    size_t unanswered_bytes; /* of large packets */
    size_t alone_bytes, ahead_bytes; /* TS_CLIENT_ALONE_BYTES, TS_CLIENT_AHEAD_BYTES; tests have smaller ones */
    bool impatient;         /* nothing came for long enough: this step goes on without waiting */
    bool large;             /* the parameters are more than caches keep until they are read */
    bool sends_large;       /* has sent a packet in a frame of its own */
    struct {
        ts_buffer *owner;    /* of gradients, in the frames' eyes; NULL before the first */
        ts_buffer **frames;  /* references: of which the packet is a gradient that the user has lent */
        uint32_t *slices;    /* whose each is */
        uint32_t count, room;
        ts_frame_sum *sum;
    } lent;
    size_t worked_bytes;    /* since the lock was let go of */
    size_t undecoded_bytes; /* came since somebody last looked for what can be decoded ahead */
    uint64_t done_steps, done_us;
    uint64_t buried_us;     /* when a server was last heard to be dead; 0: never */
    struct {
        uint32_t rounds;       /* pushes of what was left */
        bool leaving;          /* they have begun */
        double first_l1, last_l1;
        ts_client_unsent unsent; /* when it was done */
    } rest;
    struct {
        uint64_t sequence; /* of the last reduce; 0 before the first */
        double *values;
        size_t count, capacity;
        bool answered;
    } reduce;
    ts_secret *secret;        /* [own] or NULL */
    uint8_t nonce[TS_NONCE_BYTES];
    ts_client_counters counters;
    void (*lock)(void *context);
    void (*unlock)(void *context);
    void *lock_context;
    void (*pause)(void *context);
    void *pause_context;
};

/* ---- client.c ---- */
/* The first failure ends it: remembers status and sentence, tells the servers. Returns: status. */
terse_status ts_client_fail(ts_client *client, terse_status status, const char *format, ...) TERSE_PRINTF(3, 4);
/* The same when the servers said so: they tell the others themselves. */
void ts_client_told_to_end(ts_client *client, terse_status status, const char *format, ...) TERSE_PRINTF(3, 4);
/* A call that is not allowed: leaves the sentence, changes nothing else. Returns: status. */
terse_status ts_client_refuse(ts_client *client, terse_status status, const char *format, ...) TERSE_PRINTF(3, 4);
static inline uint64_t ts_client_now(const ts_client *client) { return client->transport->ops->now_us(client->transport); }
static inline void ts_client_let_go(ts_client *client) { if (client->unlock) client->unlock(client->lock_context); }
static inline void ts_client_take_back(ts_client *client) { if (client->lock) client->lock(client->lock_context); }
/* For work on so many bytes, which may be too few to. Returns whether the lock has to be taken back. */
static inline bool ts_client_let_go_for(ts_client *client, size_t bytes) {
    client->worked_bytes += bytes;
    if (client->lock && client->worked_bytes < TS_CLIENT_LET_GO_BYTES) return false;
    client->worked_bytes = 0;
    ts_client_let_go(client);
    return true;
}
/* Whether the server owes an answer or data. */
bool ts_client_owes(const ts_client *client, const ts_client_server *server);
/* What it owes, in words: "version 3 of fc1.weight". */
void ts_client_awaited(const ts_client *client, const ts_client_server *server, char *text, size_t capacity);
const char *ts_client_server_name(const ts_client *client, const ts_client_server *server);
const char *ts_client_tensor_name(const ts_client *client, uint32_t tensor);

/* ---- client_secret.c ---- */
/* A server wants a proof of the secret: proves it, or fails when it does not prove its own. */
void ts_client_on_challenge(ts_client *client, ts_client_server *server, const Terse__Welcome *welcome);
/* Whether a server that lets us in has proven what it had to; fails otherwise. */
bool ts_client_trusts(ts_client *client, const ts_client_server *server);

/* ---- client_retry.c ---- */
void ts_client_send_heartbeat(ts_client *client, ts_client_server *server);

/* ---- client_failover.c ---- */
/* Whose message it is: the server that the header's part, or else the peer, stands for; NULL: nobody's whom we talk to. */
ts_client_server *ts_client_speaker(ts_client *client, uint32_t peer, const Terse__Header *header);
/* Job and part of a header. */
void ts_client_head(const ts_client *client, const ts_client_server *server, Terse__Header *header);
/* A server says whom the job goes on without: their stand-ins take their places. */
void ts_client_on_dead(ts_client *client, const Terse__Heartbeat *heartbeat);
/* At the beginning: who stands in for those that the transport knows to be dead. */
void ts_client_find_standins(ts_client *client);
/* A server has let us in, and with that it knows the contract, without which it had no ear for the part of a dead one. */
void ts_client_greet_standin(ts_client *client, const ts_client_server *server);
/* Notes in a heartbeat whom we take for dead. list: room for TS_CLIENT_DEAD_LISTED. */
void ts_client_list_dead(const ts_client *client, Terse__Heartbeat *beat, uint32_t *list);
/* So long a server may be silent before we give up. */
uint64_t ts_client_patience_us(const ts_client *client, const ts_client_server *server);

/* ---- client_send.c ---- */
/* Hands a finished frame to the transport and drops the caller's reference. NULL is fine. */
void ts_client_send(ts_client *client, ts_client_server *server, ts_buffer *frame);
/* A frame without payload. Best effort: what was not sent for want of memory is repeated by the timers, or missed. */
void ts_client_send_control(ts_client *client, ts_client_server *server, Terse__Header__BodyCase body_case, void *body);
/* The same for something that must be answered: notes it and starts the retransmission timer. */
void ts_client_asked(ts_client *client, ts_client_server *server, unsigned request);
/* An answer came: the timer starts anew. */
void ts_client_progress(ts_client *client, ts_client_server *server, unsigned answered);
/* The same of what came at a time that is known. */
void ts_client_progressed(ts_client_server *server, unsigned answered, uint64_t now_us);
/* Sends the outbox's packets of some of a server's slices (its own numbers, ascending) in frames of one step each. */
void ts_client_send_packets(ts_client *client, ts_client_server *server, const uint32_t *locals, uint32_t count);
/*
 * Begins a push of one slice in a frame of its own, whose packet of `bytes` the caller appends; in the memory of the
 * slice's last such frame when that is free. Returns as ts_frame_begin.
 */
terse_status ts_client_begin_alone(ts_client *client, ts_client_server *server, uint32_t slice, size_t bytes,
                                   ts_buffer **out) TERSE_NODISCARD;
/* Begins a push of several slices, of which one is this, all of one step; in rounds only. Returns as ts_frame_begin. */
terse_status ts_client_begin_together(ts_client *client, ts_client_server *server, uint32_t slice, size_t bytes,
                                      ts_buffer **out) TERSE_NODISCARD;

/* ---- client_gather.c ---- */
/* A packet that is being written into its server's next frame. */
typedef struct {
    ts_bundle_writer writer; /* frame: a reference */
    uint8_t *packet;         /* where */
    uint32_t before, peer;   /* as they were when it began */
} ts_gathering;

/* Sends what has gathered for one server. */
void ts_client_flush_server(ts_client *client, ts_client_server *server);
/* A packet in the outbox joins those that wait for its server's next frame. */
void ts_client_gather(ts_client *client, uint32_t slice);
/*
 * Room for a packet of `bytes` in its server's next frame, until ts_client_gather_close or out's reference is given up; the
 * lock may be let go of meanwhile. Returns false where it cannot go on what is there: then it is to be gathered.
 */
bool ts_client_gather_open(ts_client *client, uint32_t slice, size_t bytes, ts_gathering *out);
/* The packet is written, and the outbox refers to it: it joins. Takes the reference. */
void ts_client_gather_close(ts_client *client, uint32_t slice, ts_gathering *gathering);
/* What has gathered will be copied into another frame. */
void ts_client_gather_forget(ts_client_server *server);

/*
 * send_X asks one server for X, now and again whenever the timer finds it unanswered; on_X takes a server's answer,
 * which may be late, repeated or unasked for, and then changes nothing. slice: the job's number.
 */

/* ---- client_attach.c ---- */
void ts_client_send_hello(ts_client *client, ts_client_server *server);
void ts_client_send_contract(ts_client *client, ts_client_server *server);
void ts_client_send_set(ts_client *client, ts_client_server *server);
void ts_client_send_snapshot_pull(ts_client *client, ts_client_server *server);
void ts_client_on_welcome(ts_client *client, ts_client_server *server, const Terse__Welcome *welcome);
void ts_client_on_set_ack(ts_client *client, ts_client_server *server, const Terse__Ack *ack);
/* A slice packet of a snapshot while attaching. */
void ts_client_on_first_snapshot(ts_client *client, ts_client_server *server, uint32_t slice, uint64_t version,
                                 const uint8_t *packet, size_t len);
/* After the last slice of the last server: TRAINING. */
void ts_client_attached(ts_client *client);

/* ---- client_return.c ---- */
/* A server has given us up. Returns whether we can do something about it (or it is not of this life). */
bool ts_client_note_stale(ts_client *client, const ts_client_server *server, const Terse__Abort *message);
/* The user's thread, between steps: begins to come back when that is due. Returns whether it did. */
bool ts_client_comes_back(ts_client *client);
/* Asks server 0 to be let in; the outbox may hold packets of a former life. */
void ts_client_begin_return(ts_client *client);
/* A server has let us in. Returns false when the message is not for us. */
bool ts_client_on_joined(ts_client *client, ts_client_server *server, const Terse__Joined *joined);
/* TRAINING again. */
void ts_client_has_returned(ts_client *client);

/* ---- client_keep.c ---- */
/*
 * A server welcomes us: whether the file's residual is this job's. One of another epoch is taken for nothing when its job
 * has ended or goes on from a checkpoint here; else the client fails, and the file stays as it is. Returns false when it
 * has failed.
 */
bool ts_client_keep_admits(ts_client *client, const ts_client_server *server, const Terse__Welcome *welcome);

/* ---- client_push.c ---- */
/* A packet of a former life has been used. */
void ts_client_slot_settled(ts_client *client, uint32_t slice);
void ts_client_on_push_ack(ts_client *client, ts_client_server *server, const Terse__Ack *ack);
/* A newer version of a slice is here, so its push is answered for. */
void ts_client_acknowledge(ts_client *client, uint32_t slice, uint64_t version);

/* Every packet that was refused goes back to the residual now. */
terse_status ts_client_take_back_all(ts_client *client) TERSE_NODISCARD;
/* Encodes the gradients that waited for the norm of the step. */
terse_status ts_client_push_deferred(ts_client *client) TERSE_NODISCARD;

/* ---- client_lend.c ---- */
/*
 * A push of one slice that goes out from where its gradient lies. bytes: its packet's. out: [out] [own] the finished frame.
 * Lets go of the lock. Returns TERSE_OK; TERSE_EUNSUPPORTED: it has to be encoded; TERSE_ENOMEM.
 */
terse_status ts_client_lend(ts_client *client, uint32_t t, uint32_t slice, size_t bytes, ts_buffer **out) TERSE_NODISCARD;
void ts_client_lent_free(ts_client *client);

/* ---- client_pull.c ---- */
static inline bool ts_client_in_rounds(const ts_client *client) { return client->contract->mode == TS_MODE_BSP; }
/* Whether data that the tensor's pull waits for has not come; slice: the job's number. */
bool ts_client_lacks(const ts_client *client, uint32_t slice);
/* The servers have nothing new for the wish. */
void ts_client_on_nothing_new(ts_client *client, uint32_t slice, uint64_t answers);
/* Decodes all that has come for the tensors of a step under way. */
void ts_client_decode_arrived(ts_client *client);
void ts_client_on_data(ts_client *client, ts_client_server *server, ts_buffer *buffer, const ts_frame *frame);
/* Asks again for versions that did not come. */
void ts_client_pull_missing(ts_client *client, ts_client_server *server);
/* Frees the packets that were not decoded. */
void ts_client_drop_arrivals(ts_client *client, ts_client_slice *slice);
void ts_client_free_spare(ts_client *client);

/* ---- client_control.c ---- */
void ts_client_send_done(ts_client *client, ts_client_server *server);
void ts_client_send_reduce(ts_client *client);
void ts_client_send_stats_request(ts_client *client, ts_client_server *server);
void ts_client_send_fetches(ts_client *client, ts_client_server *server);
void ts_client_on_done_ack(ts_client *client, ts_client_server *server, const Terse__Ack *ack);
void ts_client_on_reduced(ts_client *client, ts_client_server *server, const Terse__Reduced *reduced);
void ts_client_on_stats(ts_client *client, ts_client_server *server, const Terse__Stats *stats);
void ts_client_on_params(ts_client *client, ts_client_server *server, uint32_t slice, const uint8_t *packet, size_t len);
/* LEAVING becomes DONE when everything is answered. */
void ts_client_maybe_done(ts_client *client);

/* ---- client_dispatch.c ---- */
void ts_client_on_frame(void *context, uint32_t peer, ts_buffer *buffer);

#endif
