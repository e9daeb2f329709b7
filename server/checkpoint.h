/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints of a job (proto/CHECKPOINT.md; WIRE.md, "Checkpoints"). Of each part (replica.h), that is, by who speaks for
 * it; server 0 below is who speaks for part 0.
 *
 * Server 0 plans a cut at a version ahead, and tells everybody. When a slice reaches it, its arrays go to this server's
 * file in the executor, straight from where they lie: the slice's next round waits until they are written, so nothing is
 * copied and memory does not grow. Then the file is brought to the disk, and server 0 told. It writes the manifest when
 * all servers and workers have reported. Whatever fails costs that checkpoint, never the training.
 *
 * At the start server 0 decides what the job goes on from; the others ask it, and welcome nobody before.
 *
 * Thread: the loop's, but for the work in the executor.
 */
#ifndef TS_SERVER_CHECKPOINT_H
#define TS_SERVER_CHECKPOINT_H

#include "common/ckpt/ckpt_manifest.h"
#include "common/net/transport.h"
#include "common/wire/frame.h"
#include "server/store.h"

struct ts_job;

typedef enum {
    TS_CUT_NONE,
    TS_CUT_AHEAD,   /* planned; some slices have not been written yet */
    TS_CUT_CLOSING, /* the file is on its way to the disk */
    TS_CUT_WRITTEN,
    TS_CUT_FAILED   /* `reason` says why */
} ts_cut_state;

typedef enum { TS_FROM_UNKNOWN, TS_FROM_START, TS_FROM_CHECKPOINT } ts_from;

/* Of part 0: what is known of the others. */
typedef struct {
    bool active, committing;
    bool shadowed;             /* taken over from a server that is stopped and not gone, as the folder's lock says: what was
                                  begun under it stays, since it may wake up and complete it */
    uint64_t inherited;        /* serial of what was under way then; 0: nothing was */
    uint64_t next_serial;
    uint64_t gap;              /* how many versions ahead a cut is planned: more after it was too late somewhere */
    uint64_t planned_version;  /* of the last plan: never twice */
    bool requested, stop;      /* one soon; and then the end */
    char stop_reason[64];
    uint64_t requested_us, resend_us, written_us;
    uint8_t *answers;          /* [own] a part, then a worker: bits below */
    ts_ckpt_part *parts;       /* [own] likewise */
    int lock;                  /* of the folder; -1 for none */
} ts_checkpoint_lead_state;

enum { TS_ANSWER_PLANNED = 1, TS_ANSWER_REPORTED = 2 };

typedef struct {
    bool on;
    char *dir;                 /* [own] the job's folder of checkpoints */
    char job_folder[TS_JOB_NAME_CHARS]; /* its name below checkpoint.dir; "" for that itself */
    char *from_dir;            /* [own] the folder that `from` lies in */
    char run[TS_CKPT_ID_CHARS + 1], epoch[TS_CKPT_ID_CHARS + 1];
    uint64_t number;           /* of server 0: the epoch's, also without checkpoints; 0 before a worker was welcomed */
    uint8_t digest[TS_DIGEST_BYTES];
    /* What the job goes on from. */
    bool chooses;              /* of an own part: its server led when the job began, so it says that; else it asks */
    ts_from from;
    ts_ckpt_identity parent;   /* of this server's part */
    bool *without;             /* [own] a worker that has no part there; or NULL: all have */
    uint64_t asked_us, first_asked_us;
    ts_ckpt_reader *reader;    /* [own] while slices are loaded */
    uint32_t unread;           /* slices that are not asked for yet */
    /* The cut. */
    ts_cut_state state;
    uint64_t serial, version;
    char folder[TS_CKPT_NAME_CHARS];
    ts_ckpt_writer *writer;
    uint32_t *entries;         /* [own] numbers of the file's entries, by slice and array */
    bool *lost;                /* [own] a worker: it was when the file was begun */
    ts_slice_state **queue;    /* [own] slices that wait to be written, and room for all */
    uint32_t queued, taken;    /* how many were put into the queue, and taken from it */
    uint32_t unwritten;
    ts_ckpt_part part;
    ts_error reason;
    bool settled, noted;       /* its outcome is known here; and to server 0 */
    uint64_t report_us, began_us, settled_us;
    unsigned running;          /* works in the executor */
    unsigned saving;           /* of these, of slices */
    bool last_over;            /* the one after the last step has been, or will not be */
    char stop_wish[64];        /* of an own part: why this server asked for the job's end after a checkpoint; "": it did not */
    uint64_t wish_us;          /* when it is said again */
    /* The last that is complete, as far as is known here. */
    bool committed;
    uint64_t committed_serial, committed_version;
    ts_checkpoint_lead_state lead;
} ts_checkpoint;

void ts_checkpoint_free(ts_checkpoint *checkpoint); /* a zeroed one is fine; not while works run */

/* Whether workers can be welcomed: only once the folder is there, and it is decided what the job goes on from. */
bool ts_checkpoint_decided(const struct ts_job *job);
/* Whether the slices' first values come from a checkpoint. */
static inline bool ts_checkpoint_resumes(const ts_checkpoint *checkpoint) {
    return checkpoint->on && checkpoint->from == TS_FROM_CHECKPOINT;
}
/*
 * The contract is known, and the slices are there: checks it against the checkpoint's, and begins to load.
 * Returns TERSE_OK; TERSE_EMISMATCH, TERSE_EIO, TERSE_ECORRUPT, …: error names what differs or is missing; TERSE_ENOMEM.
 */
terse_status ts_checkpoint_begin(struct ts_job *job, ts_error *error) TERSE_NODISCARD;
/* What a Welcome to this worker says of it. welcome, resumed: [out], pointing into the job. */
void ts_checkpoint_welcome(struct ts_job *job, uint32_t worker, Terse__Welcome *welcome, Terse__Resumed *resumed);

/* A slice has got further: it is held fast when it is at the cut. */
void ts_checkpoint_reached(struct ts_job *job, ts_slice_state *slice);
/* From a server or worker, to this part. Returns TERSE_OK; TERSE_EPEER, TERSE_ECORRUPT: refused. */
terse_status ts_checkpoint_message(struct ts_job *job, uint32_t peer, const Terse__Checkpoint *message) TERSE_NODISCARD;
/* Opens the folder at first; then plans, repeats, commits. At every tick, of each part; a mute one says nothing. */
void ts_checkpoint_advance(struct ts_job *job);
/*
 * One soon; stop: [borrow] why the job is to end then, or NULL. Returns whether there will be one; when all workers are done,
 * whether the last is still to come: then the job ends after it by itself.
 */
bool ts_checkpoint_request(struct ts_job *job, const char *stop);
/* Whether the job may not end yet, since one is being written. */
bool ts_checkpoint_pending(const struct ts_job *job);

/* The step that all slices here have reached: their version; alone, the steps of every worker that owes any. 0 without slices. */
uint64_t ts_checkpoint_position(const struct ts_job *job);
/* The step that somebody somewhere here has reached. */
uint64_t ts_checkpoint_furthest(const struct ts_job *job);
/* No packet waits for the cut any more. */
void ts_checkpoint_let_pass(struct ts_job *job);

/* Whether works are at the cut's file. */
static inline bool ts_checkpoint_cutting(const ts_checkpoint *c) { return c->saving > 0 || c->state == TS_CUT_CLOSING; }

/* ---- among the files of the checkpoint ---------------------------------------------------------------------------------- */

/*
 * A message to a part, or, with `worker`, to a worker; run, epoch and, where serial is 0, serial and version are filled
 * in. To a part of this server's own it comes at once, inside the call.
 */
void ts_checkpoint_send(struct ts_job *job, bool worker, uint32_t index, Terse__Checkpoint *message);
/* The part that leads, when this server speaks for it; else NULL. */
struct ts_job *ts_checkpoint_lead(struct ts_job *job);
/* Whether that is after the last step of all. */
bool ts_checkpoint_is_last(const struct ts_job *job, uint64_t version);
/* Whether such a one is complete: there is nothing more to be had, and workers may have left. */
bool ts_checkpoint_last_is_complete(const struct ts_job *job);
/* Takes a plan. BUSY: with the work on the one before; the question may come again. */
typedef enum { TS_PLAN_TAKEN, TS_PLAN_PASSED, TS_PLAN_BUSY } ts_plan_verdict;
ts_plan_verdict ts_checkpoint_plan(struct ts_job *job, uint64_t serial, uint64_t version);
/* Lets go of the cut; what was written of it is removed. */
void ts_checkpoint_drop(struct ts_job *job);

/* checkpoint_work.c: what runs in the executor. */
void ts_checkpoint_write(struct ts_job *job);  /* slices of the queue, and the end of the file */
void ts_checkpoint_load(struct ts_job *job);   /* slices from the reader */
void ts_checkpoint_commit(struct ts_job *job); /* server 0: manifest and removal of old ones */
void ts_checkpoint_prune(struct ts_job *job, uint64_t keep_from); /* this server's own old parts */

/* checkpoint_arrays.c: the arrays of a slice, as entries of a part. */
typedef struct {
    float *values;          /* [borrow] of the slice */
    size_t n;
    bool is_ledger;         /* of a worker: in the file of those that were lost, and never read back */
    bool is_mark;           /* one U64: the mark of `state`, or `count` */
    ts_decode_state *state;
    uint64_t *count;        /* [borrow] of the slice */
    char what[40];          /* behind '#'; "" for the parameters */
} ts_slice_array;
/* How many numbers there are, for ts_slice_array_of; the same for all slices. */
unsigned ts_slice_arrays(uint32_t workers);
/* An array by its number. Returns whether the slice has it. */
bool ts_slice_array_of(ts_slice_state *slice, uint32_t workers, unsigned number, ts_slice_array *out);
/* Makes the writer with an entry for each array of each slice. Returns TERSE_OK and what the writer returns. */
terse_status ts_checkpoint_open_part(struct ts_job *job, ts_error *error) TERSE_NODISCARD;
/* Writes, or reads, all arrays of a slice. Thread: any. Returns what writer or reader return. */
terse_status ts_checkpoint_put_slice(struct ts_job *job, ts_slice_state *slice, ts_error *error) TERSE_NODISCARD;
terse_status ts_checkpoint_get_slice(struct ts_job *job, ts_slice_state *slice, ts_error *error) TERSE_NODISCARD;

/* checkpoint_lead.c: part 0. */
/* Memory for what the others say. Returns TERSE_OK, TERSE_ENOMEM. */
terse_status ts_checkpoint_lead_reserve(struct ts_job *job) TERSE_NODISCARD;
void ts_checkpoint_lead_advance(struct ts_job *job);
/* index: of the part, or the worker, that says it. */
terse_status ts_checkpoint_lead_message(struct ts_job *job, bool worker, uint32_t index, const Terse__Checkpoint *message)
    TERSE_NODISCARD;
/* Says something to all other parts, and to all workers that are here. unanswered: but not to those who have answered. */
void ts_checkpoint_say_all(struct ts_job *job, Terse__Checkpoint__Kind kind, uint64_t keep_from, bool unanswered);
/* Whether there can be another one: not when a worker has left. */
bool ts_checkpoint_may_plan(const struct ts_job *job);
/* Who speaks for a part has changed: what it had not reported will not be. */
void ts_checkpoint_lead_lost(struct ts_job *job, uint32_t part);
/* This server's own part is written or failed. */
void ts_checkpoint_lead_own(struct ts_job *job);
/* of: [borrow] the manifest that was written. */
void ts_checkpoint_lead_committed(struct ts_job *job, terse_status status, const ts_error *error, const ts_ckpt_manifest *of,
                                  uint64_t keep_from);

/* checkpoint_resume.c */
/* The last complete checkpoint, for the message when the job ends. */
void ts_checkpoint_remember(struct ts_job *job, uint64_t version);

/* Server 0: chooses. Returns TERSE_OK; TERSE_EIO, TERSE_EMISMATCH and others: error says; TERSE_ENOMEM. */
terse_status ts_checkpoint_choose(struct ts_job *job, ts_error *error) TERSE_NODISCARD;
/* Asks server 0, or takes its answer. */
void ts_checkpoint_ask(struct ts_job *job);
terse_status ts_checkpoint_answer(struct ts_job *job, const Terse__Checkpoint *message) TERSE_NODISCARD;
void ts_checkpoint_say_from(struct ts_job *job, uint32_t part);

/*
 * checkpoint_way_on.c: the job has ended with that status. Where it could not go on from its checkpoint, server 0 names the one
 * before, or says that there is none; the same command is no advice then.
 */
void ts_checkpoint_way_on(struct ts_job *job, terse_status status);

/* checkpoint_heir.c: a server that dies, with replicas. */
/* A part that this server stands in for is made: it goes on from what the own part goes on from. As ts_checkpoint_begin. */
terse_status ts_checkpoint_stand_in(struct ts_job *part, ts_error *error) TERSE_NODISCARD;
/* This server speaks for the part from now on: with part 0 it leads. */
void ts_checkpoint_take_over(struct ts_job *part);
/* The lead was taken over: whether the server that had it is still stopped, or gone by now. */
void ts_checkpoint_look_behind(struct ts_job *part);
/* After that; own: an own part. */
void ts_checkpoint_server_died(struct ts_job *own, uint32_t number);
/* The job was to end after a checkpoint, and there will be none: it ends without. job: any part; its reason says why. */
void ts_checkpoint_stop_without(struct ts_job *job, const char *stop);

#endif
