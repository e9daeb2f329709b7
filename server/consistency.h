/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Consistency: when a pushed packet is accepted, when a slice's round may close, and when a pull can be answered.
 * One constant table a mode, one file each, one line in consistency_list.h. Pure: they look at a job's membership and
 * a slice, and change nothing.
 *
 * In BSP a slice goes from version to version by rounds; a round adds up the packets of one step and is one optimizer
 * step. In SSP and ASP each packet is an optimizer step of its own ("alone"), taken as soon as it is there with the
 * learning rate divided by the job's workers, and a version is made when somebody pulls and something has changed.
 */
#ifndef TS_SERVER_CONSISTENCY_H
#define TS_SERVER_CONSISTENCY_H

#include "server/membership.h"
#include "server/store.h"

typedef struct {
    ts_mode mode;
    const char *name;
    bool alone; /* each packet is an optimizer step */
    /*
     * What becomes of a packet that the worker pushed at `step`.
     * Returns: TERSE_OK (hold it); TERSE_EDUPLICATE (held already, or applied); TERSE_ESTATE (too early);
     * TERSE_ESTALE (too late).
     */
    terse_status (*admit)(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker, uint64_t step);
    /* Whether there is something to do with what is held. */
    bool (*closable)(const ts_membership *membership, const ts_slice_state *slice);
    /* Whether somebody waits for this worker's push. */
    bool (*misses)(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker);
    /* Whether the worker's held packet is used now. */
    bool (*takes_part)(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker);
    /*
     * Whether the slice's state is one that a worker who wants `want` (of Pull; step + 1 of a Push) may see.
     * ahead: as it will be when all that is held is applied.
     */
    bool (*answers)(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker, uint64_t want,
                    bool ahead);
} ts_consistency;

/* Returns: a constant table, or NULL when this build does not have the mode. */
const ts_consistency *ts_consistency_find(ts_mode mode);

/* The step that a round, or somebody, waits for this worker to push. */
uint64_t ts_consistency_awaited(const ts_consistency *consistency, const ts_slice_state *slice, uint32_t worker);

#endif
