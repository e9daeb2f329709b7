/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a server holds of its slices: parameters, reference, optimizer state,
 * version, the packets of the last rounds (for workers that are behind), and
 * for each worker one slot: the packet that waits for the round to close, and
 * the replies that are owed.
 */
#ifndef TS_SERVER_STORE_H
#define TS_SERVER_STORE_H

#include "common/base/buffer.h"
#include "common/codec/codec.h"
#include "common/config/config.h"
#include "common/contract/contract.h"
#include "server/optimizer.h"

/* How a slice's pull is made. */
typedef enum {
    TS_DOWNLINK_REPLACE,   /* a lossless pull pipeline: the parameters themselves; no reference */
    TS_DOWNLINK_REFERENCE, /* C(params - reference), reference += decoded; with `exact` what differs, reference = params */
    TS_DOWNLINK_AVERAGE    /* aggregate only: C(what of the averages was not said yet), which stays in `reference` */
} ts_downlink_kind;

#define TS_LOG_PART 16u /* the packet log of a slice is at most a 16th of its parameters' bytes, but the last packet stays */

/* With an upstream (upstream.h), the halves of a round. */
typedef enum {
    TS_ABOVE_NONE,    /* the workers push */
    TS_ABOVE_WAITING, /* their sum is with the upstream, or waits for the tensor's other slices */
    TS_ABOVE_BACK     /* new parameters are there */
} ts_above;

/* Replies that a worker is owed for a slice: bits of ts_slot.owed. */
enum { TS_OWED_DELTA = 1, TS_OWED_SNAPSHOT = 2, TS_OWED_PARAMS = 4, TS_OWED_WORD = 8 };

/* One worker at one slice. */
typedef struct {
    ts_buffer *frame;      /* holds the packet: one reference; NULL when none is held */
    const uint8_t *packet; /* inside frame */
    size_t len;
    uint64_t step;         /* the packet's */
    uint32_t samples;      /* the packet's; 0 stands for 1 */
    uint64_t next;         /* one more than the last step of which a packet was applied: the worker's clock here */
    bool spoke;            /* a packet of the worker was used here */
    uint64_t settled;      /* of a worker that has come back: `next` of its former lives */
    uint64_t arrived_us;
    bool acked;            /* an explicit Ack was sent for it */
    bool unconfirmed;      /* with replicas: the stand-in has not said that it holds it, too */
    uint64_t forwarded_us; /* when it was sent there last */
    uint8_t owed;
    uint64_t have, want;   /* TS_OWED_DELTA: the versions that it holds and wants */
    uint64_t want_snapshot, want_params, want_word;
} ts_slot;

/* A packet of the log: brings version - 1 to version. */
typedef struct {
    ts_buffer *frame; /* one reference; NULL when the entry is free */
    size_t offset, len;
    uint64_t version;
} ts_log_entry;

typedef struct {
    uint32_t local, global; /* this server's number, the job's number */
    uint32_t tensor;
    size_t n;
    ts_downlink_kind kind;
    bool initialised;
    bool busy;              /* in the executor: nobody else touches its arrays */
    bool ready;             /* in the list of slices that can close */
    bool sending;           /* closed, its packet waits for the shared frame */
    bool saving;            /* its arrays go to a checkpoint: they are read, and nobody changes them */
    bool alone;             /* SSP, ASP: each packet is an optimizer step */
    uint64_t cut_step;      /* alone, with a checkpoint ahead: packets of this step and later wait until it is written; else 0 */
    ts_above above;         /* with an upstream: where its round is */
    uint64_t version;
    uint64_t steps;         /* optimizer steps so far; in BSP the version */
    bool changed;           /* parameters have moved since the last version (SSP, ASP) */
    uint64_t clock;         /* SSP, ASP: how many steps of a round's worth were taken, for the schedule, */
    uint64_t clock_part;    /* and how many packets of the next */
    float *params;          /* n, in `values` */
    ts_buffer *values;      /* [own] a reference. Frames under way have others: see ts_store_own_params */
    float *reference;       /* [own] n; NULL with TS_DOWNLINK_REPLACE */
    float *state[TS_OPTIMIZER_STATES];
    float *estimate;        /* [own] n; the sum of all workers' estimates with EF21, else NULL */
    uint32_t further;       /* workers that the job did not begin with, of which something was used here: the sum is of these, too */
    ts_encoder *encoder;    /* NULL with TS_DOWNLINK_REPLACE */
    ts_codec_spec pull;
    ts_slot *slots;         /* [own] one a worker */
    ts_slot *ledger;        /* [borrow] saving: the slots as the checkpoint's thread may read them, also when there become more */
    ts_slot *retired;       /* [own] where they were when there became more of them while a checkpoint read them; or NULL */
    ts_decode_state **push_states; /* [own] one a worker; NULL unless the push pipeline keeps them */
    uint32_t push_room;     /* so many they can be: not moved, since a checkpoint that is written reads them */
    uint32_t held;          /* slots that hold a packet */
    uint32_t unconfirmed;   /* of these */
    bool unset;             /* with replicas: it has first values, and the stand-in has not said that it has them, too */
    ts_log_entry *log;      /* [own] ring, by version modulo log_entries */
    uint32_t log_entries;
    uint32_t log_share;     /* without rounds: entries for each worker; else 0 */
    size_t log_bytes;
    struct ts_store_books *books; /* [borrow] of the store */
    uint64_t hash, hash_steps;
    bool hashed;
} ts_slice_state;

/* Memory of the frames that packets lie in, each frame once. */
typedef struct ts_store_books {
    size_t log;    /* of the packet logs */
    size_t *held;  /* [own] a worker: of what it pushed and no round has used yet */
} ts_store_books;

typedef struct {
    ts_slice_state *slices; /* [own] by local number */
    ts_store_books *books;  /* [own] */
    uint32_t count, workers;
    uint32_t uninitialised;
    size_t elems, largest_elems;
} ts_store;

/*
 * Makes the slices that `server` owns under the contract, all zero and uninitialised.
 * contract, config: [borrow] as long as the store. Returns TERSE_ENOMEM, TERSE_EINVAL (a pull pipeline has no encoder).
 */
terse_status ts_store_create(ts_store *store, const ts_contract *contract, const ts_config *config,
                             const ts_optimizer *optimizer, uint32_t server, uint32_t workers) TERSE_NODISCARD;
void ts_store_free(ts_store *store); /* a zeroed store is fine */
/* Slots for further workers, up to `workers`. Slices may be busy. Returns TERSE_OK, TERSE_ENOMEM (as before). */
terse_status ts_store_grow(ts_store *store, const ts_contract *contract, uint32_t workers) TERSE_NODISCARD;

/* First values of a slice: n floats, raw. Does nothing when it has some. Returns whether they were taken. */
bool ts_store_set(ts_store *store, uint32_t local, const uint8_t *raw);

/*
 * Makes sure that nobody reads the slice's parameters, so that they may change: where frames that are under way still do,
 * the slice gets a copy of them. Thread: whoever works at the slice. Returns TERSE_OK, TERSE_ENOMEM (as before).
 */
terse_status ts_store_own_params(ts_slice_state *slice) TERSE_NODISCARD;

/* The arrays of a slice were filled in from a checkpoint at this version. */
void ts_store_loaded(ts_store *store, uint32_t local, uint64_t version);

/* SSP, ASP: one more packet is in the parameters, of which `weight` make a round's worth. */
static inline void ts_store_tick(ts_slice_state *slice, uint32_t weight) {
    if (++slice->clock_part < weight) return;
    slice->clock++;
    slice->clock_part = 0;
}

/* Takes a packet into a worker's empty slot, with a reference of its own on the frame. */
void ts_store_hold(ts_slice_state *slice, uint32_t worker, ts_buffer *frame, const uint8_t *packet, size_t len,
                   uint64_t step, uint64_t now_us);
/*
 * Copies a worker's packets out of frames of which they are less than half, so that the rest can go. Without memory
 * they stay where they are. Not for slices that are busy.
 */
void ts_store_compact(ts_store *store, uint32_t worker);
/* The slice that the job needs first: the lowest number of the lowest version. 0 without slices. */
uint32_t ts_store_first_open(const ts_store *store);
/* Empties a slot's packet; what is owed stays. */
void ts_store_drop(ts_slice_state *slice, uint32_t worker);

/* Appends the packet that led to `version`; takes a reference. Old entries go when the log outgrows the slice. */
void ts_store_log(ts_slice_state *slice, uint64_t version, ts_buffer *frame, size_t offset, size_t len);
/* The packet that led to `version`, or NULL when it is gone. */
const ts_log_entry *ts_store_logged(const ts_slice_state *slice, uint64_t version);

/* The lowest version of all slices; 0 without slices, and before all have their first values. */
uint64_t ts_store_version(const ts_store *store);
/* XXH3-64 of the parameters; not while busy. */
uint64_t ts_store_hash(ts_slice_state *slice);

/* Bytes, each counted once. */
typedef struct {
    size_t params, reference, optimizer;
    size_t estimates;   /* of EF21: one sum for all workers */
    size_t receivers;   /* what the push pipelines (`delta`) remember of each worker */
    size_t encoders;    /* what the pull pipelines remember (low-rank factors) */
    size_t held, log;   /* frames of the packets that wait for a round, of the packet logs */
    size_t bookkeeping;
} ts_store_memory;
ts_store_memory ts_store_bytes(const ts_store *store);
size_t ts_store_total(const ts_store_memory *bytes); /* of them all */

#endif
