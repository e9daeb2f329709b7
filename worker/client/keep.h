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
 * Thread: as the client's core; begin … end from the user's thread.
 */
#ifndef TS_KEEP_H
#define TS_KEEP_H

#include "common/codec/guard.h"
#include "common/config/config.h"
#include "common/contract/contract.h"
#include "worker/client/feedback.h"
#include "worker/client/outbox.h"

typedef struct ts_keep ts_keep;

typedef struct {
    const char *dir;
    uint32_t worker;
    const ts_contract *contract; /* [borrow] until close; sealed */
    const ts_config *config;     /* [borrow] until close */
} ts_keep_options;

/*
 * Opens or makes the worker's file in a folder of ours (made when missing, mode 0700), locks it, and makes good what a
 * kill has left half done. An earlier life's state is found when its contract was the same; else the file starts anew.
 * Returns TERSE_OK; TERSE_EUNSUPPORTED (a pipeline with `delta`); TERSE_ESTATE (another process has it); TERSE_EIO
 * (no folder, not ours, no room); TERSE_ENOMEM; each with a sentence.
 */
terse_status ts_keep_open(const ts_keep_options *options, ts_keep **out, ts_error *error) TERSE_NODISCARD;
/* ended: nothing of it will be needed, the file goes. NULL is fine. */
void ts_keep_close(ts_keep *keep, bool ended);

const char *ts_keep_path(const ts_keep *keep);
/* Whether there was an earlier life, and which incarnation this is: 1, 2 … */
bool ts_keep_found(const ts_keep *keep);
uint32_t ts_keep_incarnation(const ts_keep *keep);
/* A later one, of the same process: it was given up, and comes back. */
void ts_keep_set_incarnation(ts_keep *keep, uint32_t incarnation);
/* Which life of the servers it belongs to; 0 before anybody said. */
uint64_t ts_keep_epoch(const ts_keep *keep);
void ts_keep_set_epoch(ts_keep *keep, uint64_t epoch);
/* Everything in it becomes 0, as for a first life: it must not meet these parameters. */
void ts_keep_forget(ts_keep *keep);
/* Sum of |x| and root of the sum of squares over all residuals. */
void ts_keep_norms(const ts_keep *keep, double *l1, double *l2);

/* Memory for ts_feedback_create. */
ts_feedback_memory *ts_keep_memory(ts_keep *keep);
/* What is kept of a slice's packet, for the outbox: its bytes, and what they are when it is live. */
void ts_keep_slot(ts_keep *keep, uint32_t slice, ts_outbox_slot *slot);
bool ts_keep_live(const ts_keep *keep, uint32_t slice);
/* ts_outbox_reserve for it. Returns TERSE_OK, TERSE_EIO (no room on the file system). */
terse_status ts_keep_reserve(ts_keep *keep, uint32_t slice, ts_outbox_slot *slot, size_t bytes) TERSE_NODISCARD;

/* ---- one push of a tensor: begin, then vacate, encode, hold for each slice, then end ---- */
void ts_keep_begin(ts_keep *keep, uint32_t tensor);
/* For ts_encode_input; NULL for tensors that are copied aside. */
ts_guard *ts_keep_guard(ts_keep *keep, uint32_t tensor);
void ts_keep_vacate(ts_keep *keep, uint32_t slice);
void ts_keep_hold(ts_keep *keep, uint32_t slice, const ts_outbox_slot *slot);
void ts_keep_end(ts_keep *keep, uint32_t tensor);
/* Whether its packets may travel before the end. */
bool ts_keep_early(const ts_keep *keep, uint32_t tensor);

/* The servers have answered for the packet: it is theirs, or given back (between begin and end: with the end). */
void ts_keep_release(ts_keep *keep, uint32_t slice);

#endif
