/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Consistency: when a pushed packet is accepted and when a slice's round may
 * close. One constant table a mode, one file each, one line in consistency_list.h.
 * Pure: they look at a job's membership and a slice, and change nothing.
 */
#ifndef TS_SERVER_CONSISTENCY_H
#define TS_SERVER_CONSISTENCY_H

#include "server/membership.h"
#include "server/store.h"

typedef struct {
    ts_mode mode;
    const char *name;
    /*
     * What becomes of a packet that the worker pushed at `step`.
     * Returns: TERSE_OK (hold it); TERSE_EDUPLICATE (held already, or in a closed round); TERSE_ESTATE (too early);
     * TERSE_ESTALE (too late).
     */
    terse_status (*admit)(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker, uint64_t step);
    /* Whether the slice's round can close with what is held. */
    bool (*closable)(const ts_membership *membership, const ts_slice_state *slice);
    /* Whether the round waits for this worker. */
    bool (*misses)(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker);
    /* Whether the worker's held packet goes into the round that closes now. */
    bool (*takes_part)(const ts_slice_state *slice, uint32_t worker);
} ts_consistency;

/* Returns: a constant table, or NULL when this build does not have the mode. */
const ts_consistency *ts_consistency_find(ts_mode mode);

#endif
