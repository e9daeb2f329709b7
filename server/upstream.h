/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hierarchy: a server whose workers are only a part of a job (a rack, a site). It sums what they push as ever, but
 * instead of an optimizer step it hands each tensor's sum to an upstream, which pushes it to other servers as one worker
 * of theirs, with a pipeline and a residual of its own, and brings back new parameters. Those become the slices' next
 * version, and go to the workers by the job's own pull pipeline.
 *
 * A round of a slice so has two halves, each a work item of its own: the sum; then, when the tensor has come back, the
 * downlink. In between the slice keeps its version, and the packets that went in, so a repeated one is recognised.
 *
 * The upstream is somebody else's (common/relay): the server knows this table only. One upstream serves one job.
 */
#ifndef TS_SERVER_UPSTREAM_H
#define TS_SERVER_UPSTREAM_H

#include "common/contract/contract.h"
#include "server/server.h"

typedef struct ts_upstream ts_upstream;

/* Thread: the loop's, for all but `gradient` and `values`. */
typedef struct {
    /* The job's tensors are known. contract: [borrow] until the server is destroyed. Returns TERSE_ENOMEM and others. */
    terse_status (*begin)(ts_upstream *upstream, const ts_contract *contract);
    /* Where the sum of a tensor goes, n elements; the server's from the tensor's values on until `push`. Thread: any. */
    float *(*gradient)(ts_upstream *upstream, uint32_t tensor);
    /* The tensor's parameters, n elements; before start the workers' first values are written there. Thread: any. */
    float *(*values)(ts_upstream *upstream, uint32_t tensor);
    /* All first values are there: join the servers above. ts_upstream_arrived follows for each tensor, version 0. */
    void (*start)(ts_upstream *upstream);
    /* The tensor's gradient is complete, a mean of so many samples (or workers). ts_upstream_arrived follows. */
    void (*push)(ts_upstream *upstream, uint32_t tensor, uint32_t samples);
    /* All workers are done: nothing is pushed any more. */
    void (*done)(ts_upstream *upstream);
    /* Whether that has been acknowledged above. */
    bool (*ended)(const ts_upstream *upstream);
    /* Whom it waits for, "" for nobody; text of `capacity` bytes. */
    void (*waiting)(const ts_upstream *upstream, char *text, size_t capacity);
} ts_upstream_ops;

struct ts_upstream {
    const ts_upstream_ops *ops;
};

/*
 * Before the first frame. upstream: [borrow] until destroy. Returns TERSE_OK; TERSE_EUNSUPPORTED: more than one server
 * in this group, or a consistency mode other than bsp (the message says so). A job of another mode is refused at attach.
 */
terse_status ts_server_set_upstream(ts_server *server, ts_upstream *upstream, ts_error *error) TERSE_NODISCARD;

/* The tensor's values(): the next version of its slices, or the first one. They stay as they are until its next push. */
void ts_upstream_arrived(ts_server *server, uint32_t tensor);
/* The servers above are lost: the job ends. text: [borrow]. */
void ts_upstream_failed(ts_server *server, terse_status status, const char *text);

#endif
