/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker must not lose when its process is killed: residual, velocity, estimate and outbox, in a memory-mapped
 * file (on tmpfs: the same memory, no copy, no disk). The next incarnation of that worker on that host goes on from it.
 * Every change is made so that a kill at any instruction leaves, for each element, sent + residual == what entered.
 * Process death, not power loss.
 *
 * Tensors whose encoding can be guarded cost next to nothing (codec/guard.h). Others (low rank, one scale a dense tensor,
 * EF21, decayed, bfloat16 residuals) are copied aside before each push, which then happens whole or not at all.
 *
 * A file says what it is: contract, job, worker, and the epoch of the servers that it belongs to. An older residual must
 * never meet newer parameters, since part of it has been sent meanwhile; so one of another epoch is not gone on from, and
 * as long as it holds something it is not overwritten either, unless its job is known to have ended.
 *
 * Thread: as the client's core; begin … end from the user's thread.
 */
#ifndef TS_KEEP_H
#define TS_KEEP_H

#include "common/codec/guard.h"
#include "common/contract/contract.h"

#define TS_KEEP_JOB_CHARS 32

typedef struct ts_keep ts_keep;

/* What of the settings decides what is in the file, besides the contract. */
typedef struct {
    bool brief, estimates, decayed; /* residuals in bfloat16; EF21; the variant that forgets */
} ts_keep_form;

typedef struct {
    const char *dir, *job;
    uint32_t worker, workers;
    const ts_contract *contract; /* [borrow] until close; sealed */
    ts_keep_form form;
} ts_keep_options;

/*
 * Opens or makes the worker's file in a folder of ours (made when missing, mode 0700), locks it, and makes good what a
 * kill has left half done. An earlier life's state is found when its contract was the same. One of another contract that
 * holds something gives way only when ts_keep_adopt says so.
 * Returns TERSE_OK; TERSE_EUNSUPPORTED (a pipeline with `delta`); TERSE_ESTATE (another process has it, or a hand-over
 * is at work); TERSE_ECORRUPT (a file that is none of ours, or torn); TERSE_EIO (no folder, not ours, no room);
 * TERSE_ENOMEM; each with a sentence.
 */
terse_status ts_keep_open(const ts_keep_options *options, ts_keep **out, ts_error *error) TERSE_NODISCARD;
/*
 * Opens whatever file it is, by its own description. takes: locked, and made good, to be changed; else only looked at,
 * while its owner may be changing it. Returns as above; TERSE_EVERSION (of another version of Terse);
 * TERSE_ENOTFOUND (nothing is in it yet).
 */
terse_status ts_keep_open_file(const char *path, bool takes, ts_keep **out, ts_error *error) TERSE_NODISCARD;
/*
 * The same to read it all while nobody changes it: locked, and its worker waits. What a kill left half done is made good in
 * what is read, not in the file. TERSE_ESTATE: a process has it.
 */
terse_status ts_keep_open_still(const char *path, ts_keep **out, ts_error *error) TERSE_NODISCARD;
/* ended: nothing of it will be needed, the file goes. NULL is fine. */
void ts_keep_close(ts_keep *keep, bool ended);
/*
 * Whether a name, without its folder, is that of a worker's file: "worker-3.keep". worker: [out]. aside: [out] it is one that was
 * set aside, with its epoch behind it; NULL: those are none.
 */
bool ts_keep_name(const char *name, uint32_t *worker, bool *aside);
/* The process that has a file locked; 0 for nobody, or when it cannot be told. */
long ts_keep_owner(const char *path);

const char *ts_keep_path(const ts_keep *keep);
/* Whether there was an earlier life, and which incarnation this is: 1, 2 … */
bool ts_keep_found(const ts_keep *keep);
uint32_t ts_keep_incarnation(const ts_keep *keep);
/* A later one, of the same process: it was given up, and comes back. */
void ts_keep_set_incarnation(ts_keep *keep, uint32_t incarnation);
const ts_contract *ts_keep_contract(const ts_keep *keep);

/* Whose it is. epoch: which life of the servers, 0 before anybody said; run: the training from its first step on. */
typedef struct {
    char job[TS_KEEP_JOB_CHARS];
    uint32_t worker, workers, incarnation;
    uint64_t epoch, run;
    uint64_t steps; /* steps of which something was pushed */
    bool ended;     /* its job has ended: nobody can come back to it */
    bool mortal;    /* nobody could after its process, either: a job that lets nobody in, without checkpoints */
} ts_keep_identity;
ts_keep_identity ts_keep_identify(const ts_keep *keep);
void ts_keep_set_epoch(ts_keep *keep, uint64_t epoch, uint64_t run, bool mortal);
/* The job is known to have ended for everybody. */
void ts_keep_set_ended(ts_keep *keep);

/* What was not sent yet, or not answered for. */
typedef struct {
    double l1, squares; /* Σ |x|, Σ x² */
    uint64_t nonzero;
    uint32_t packets;   /* without an answer */
} ts_keep_mass;
/* Of one tensor's residual, and its packets. */
ts_keep_mass ts_keep_mass_of(const ts_keep *keep, uint32_t tensor);
/* Of all. */
ts_keep_mass ts_keep_mass_all(const ts_keep *keep);
static inline bool ts_keep_holds(const ts_keep_mass *mass) { return mass->nonzero > 0 || mass->packets > 0; }
/* In words: "sum of magnitudes 12.5, norm 0.81 over 4711 elements, 2 packets without an answer". */
void ts_keep_mass_text(const ts_keep_mass *mass, char *text, size_t capacity);

/*
 * What was found: a file of another contract (NULL for none), which stays until adopt removes it, or close without adopt
 * leaves all as it was.
 */
const ts_keep *ts_keep_other(const ts_keep *keep);
terse_status ts_keep_adopt(ts_keep *keep, ts_error *error) TERSE_NODISCARD;
/* Everything in it becomes 0, as for a first life: it must not meet these parameters. */
void ts_keep_forget(ts_keep *keep);
/*
 * A copy of the file as it is, beside its place, named by worker and epoch. path: [out] of `capacity`. Returns
 * TERSE_OK, EIO, ELIMIT.
 */
terse_status ts_keep_set_aside(const ts_keep *keep, char *path, size_t capacity, ts_error *error) TERSE_NODISCARD;

/* Memory for a tensor's array: "residual", "velocity", "estimate"; NULL when there is none of that size. */
void *ts_keep_array(ts_keep *keep, const char *tensor, const char *purpose, size_t bytes);

/* What is kept of a slice's packet. */
typedef struct {
    uint8_t *bytes;
    size_t capacity, len;
    uint64_t step;
    uint32_t samples;
    bool live; /* the packet counts as sent */
} ts_keep_packet;
ts_keep_packet ts_keep_packet_of(const ts_keep *keep, uint32_t slice);
bool ts_keep_live(const ts_keep *keep, uint32_t slice);
/* Room for a packet of that many bytes. capacity: [out]. Returns TERSE_OK, TERSE_EIO (no room on the file system). */
terse_status ts_keep_reserve(ts_keep *keep, uint32_t slice, size_t bytes, size_t *capacity) TERSE_NODISCARD;

/* ---- one push of a tensor: begin, then vacate, encode, hold for each slice, then end ---- */
void ts_keep_begin(ts_keep *keep, uint32_t tensor);
/* For ts_encode_input; NULL for tensors that are copied aside. */
ts_guard *ts_keep_guard(ts_keep *keep, uint32_t tensor);
void ts_keep_vacate(ts_keep *keep, uint32_t slice);
void ts_keep_hold(ts_keep *keep, uint32_t slice, uint64_t step, size_t len, uint32_t samples);
void ts_keep_end(ts_keep *keep, uint32_t tensor);
/* Whether its packets may travel before the end. */
bool ts_keep_early(const ts_keep *keep, uint32_t tensor);

/* The servers have answered for the packet: it is theirs, or given back (between begin and end: with the end). */
void ts_keep_release(ts_keep *keep, uint32_t slice);

#endif
