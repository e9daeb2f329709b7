/* SPDX-License-Identifier: Apache-2.0 */
/* The two halves of a round with an upstream (upstream.h): what round.c, job.c and admission.c call. */
#ifndef TS_SERVER_UPSTREAM_ROUND_H
#define TS_SERVER_UPSTREAM_ROUND_H

#include "server/job.h"
#include "server/optimizer.h"
#include "server/upstream.h"

/* In place of an optimizer: none of its arrays are needed here, the servers above have them. */
extern const ts_optimizer ts_optimizer_upstream;

/* Thread: the loop's. */
/* The job's tensors are known: books for them, and the upstream's. Returns TERSE_ENOMEM, or what the upstream says. */
terse_status ts_upstream_begin(ts_job *job, const ts_contract *contract) TERSE_NODISCARD;
void ts_upstream_forget(ts_job *job); /* without books is fine */
/* First values of a slice from the workers: n floats, raw. They count only if nobody above has others. */
void ts_upstream_offer(ts_job *job, uint32_t local, const uint8_t *raw);
/* Whether all first values were offered, so that worker 0 can be sent for those that hold. */
bool ts_upstream_offered(const ts_job *job);
/* The slice's sum is complete; with the tensor's last the tensor is pushed. */
void ts_upstream_summed(ts_job *job, ts_slice_state *slice, uint32_t samples);
/* Tells the upstream when all workers are done and every round is closed. */
void ts_upstream_tick(ts_job *job);

/* Thread: any; in a work item. */
/* item->sum holds the slice's mean: into the tensor's gradient with it. */
void ts_upstream_keep(ts_round_item *item, ts_round_entry *entry);
/* The second half: the values from above become the slice's. Returns as ts_downlink_encode. */
terse_status ts_upstream_close(ts_round_item *item, ts_round_entry *entry, ts_bundle_writer *writer) TERSE_NODISCARD;

#endif
