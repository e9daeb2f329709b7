/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The residual of a worker that will not come back goes to where it is used: another worker's file of the same epoch, or
 * a checkpoint. Whatever instruction a hand-over is killed at, the residual is in one of the two, never in both or in none:
 * what it goes to is written aside; the giver's file then names it (`given`); its rename is the moment; and the giver is
 * emptied, by whoever opens one of the two files next when need be.
 *
 * Thread: one at a time.
 */
#ifndef TS_KEEP_MOVE_H
#define TS_KEEP_MOVE_H

#include "common/keep/keep.h"

/* What adding float32 (or bfloat16) numbers could not hold. */
typedef struct {
    double sum, l1;   /* Σ and Σ |.| of exact sum - stored sum */
    uint64_t rounded; /* elements */
} ts_keep_rounding;

/* to += from, element by element; two lists of n. */
void ts_keep_add(float *to, const float *from, size_t n, ts_keep_rounding *rounding);

typedef struct {
    ts_keep_mass moved;
    ts_keep_rounding rounding;
    uint32_t packets_left; /* stay in the giver's file: what became of them only the servers know */
} ts_keep_moved;

/*
 * Adds residual and velocity of one file to another's. moved: [out]
 * Returns TERSE_OK; TERSE_ESTATE (one of them is in use), TERSE_EMISMATCH (of different epochs, contracts, or the same
 * file), TERSE_EUNSUPPORTED (EF21: what is there is no sum), and as ts_keep_open_file: error says; nothing has changed.
 */
terse_status ts_keep_move(const char *from, const char *to, ts_keep_moved *moved, ts_error *error) TERSE_NODISCARD;

/*
 * For who takes several files: first each is settled (what was interrupted is finished, and the file let go), then each is
 * opened, locked, as it is. Looking at a hand-over's other file would give up the lock on it, were it one of those.
 * Return as ts_keep_open_file; the second TERSE_ESTATE when a hand-over of the file is at work.
 */
terse_status ts_keep_settle(const char *path, ts_error *error) TERSE_NODISCARD;
terse_status ts_keep_open_settled(const char *path, ts_keep **out, ts_error *error) TERSE_NODISCARD;

/* ---- to a checkpoint: announce, then its manifest appears at `manifest` with the epoch, then spend ---------------------- */

/*
 * One tensor's residual with the packets that the servers had not used: of a slice those of step next[slice] and later.
 * out: [n] next: by the contract's slices. Returns TERSE_OK, TERSE_ECORRUPT (a packet does not decode), TERSE_ENOMEM.
 */
terse_status ts_keep_outstanding(const ts_keep *keep, uint32_t tensor, const uint64_t *next, float *out,
                                 ts_keep_rounding *rounding) TERSE_NODISCARD;
/* The tensor's velocity, or NULL. */
const float *ts_keep_velocity(const ts_keep *keep, uint32_t tensor);
/* Returns TERSE_OK, TERSE_ELIMIT (the path is too long). */
terse_status ts_keep_announce(ts_keep *keep, const char *manifest, uint64_t epoch) TERSE_NODISCARD;
void ts_keep_spend(ts_keep *keep);

#endif
