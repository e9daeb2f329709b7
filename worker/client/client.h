/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's core: the worker's side of the protocol as a state machine over
 * a transport; never waits. terse.h's calls wrap it (threads, deadlines), the
 * simulation drives it directly.
 *
 * Thread: every call, and the transport's handler, under one lock of the
 * owner's. push, pulled and the other calls that touch tensors come from one
 * thread, the user's; while they encode or decode they may let go of the lock
 * (ts_client_set_lock), and frames and ticks may come in between.
 */
#ifndef TS_CLIENT_H
#define TS_CLIENT_H

#include <stdbool.h>

#include "common/config/config.h"
#include "common/contract/contract.h"
#include "common/net/transport.h"

typedef struct ts_client ts_client;

typedef enum {
    TS_CLIENT_DECLARING,
    TS_CLIENT_ATTACHING,  /* Hello … Welcome from every server, parameters made equal */
    TS_CLIENT_TRAINING,
    TS_CLIENT_LEAVING,    /* Done sent, not yet acknowledged */
    TS_CLIENT_DONE,       /* no more pushes; fetch, stats and reduce still work, until ts_client_bye */
    TS_CLIENT_FAILED      /* ts_client_message says why, ts_client_failure the status */
} ts_client_state;

/* config, transport: [borrow] until destroy. Installs itself as the transport's handler. Returns TERSE_ENOMEM. */
terse_status ts_client_create(const ts_config *config, ts_transport *transport, ts_client **out) TERSE_NODISCARD;
void ts_client_destroy(ts_client *client); /* NULL is fine */

/*
 * How push and pulled let go of the owner's lock while they encode and decode. Without it they hold on to it.
 * lock: NULL where there is one thread only: unlock, called at each such moment, does what others would do meanwhile.
 * context: [borrow] until destroy.
 */
void ts_client_set_lock(ts_client *client, void (*lock)(void *context), void (*unlock)(void *context), void *context);
/*
 * Where all peers are on one host, a step is encoded only so far ahead of its answers as caches hold. pause waits for
 * news, a millisecond or so, with the lock held on entry and return. Without it everything is encoded at once.
 */
void ts_client_set_pause(ts_client *client, void (*pause)(void *context), void *context);
/* Packets of so many bytes and more go the way of large ones, and so much that came is worth decoding within a step: for tests. */
void ts_client_set_large(ts_client *client, size_t bytes);

/*
 * A tensor of the model, before start. shape: ndim extents, copied as the name is. tensor: [out] its number, or NULL.
 * param: [borrow] until destroy, product(shape) elements; between start and TRAINING the handler may write it.
 * Returns TERSE_OK, TERSE_EINVAL, TERSE_ESTATE, TERSE_ELIMIT, TERSE_ENOMEM, with a message.
 */
terse_status ts_client_declare(ts_client *client, const char *name, const int64_t *shape, unsigned ndim, float *param,
                               uint32_t *tensor) TERSE_NODISCARD;
/* Steps of the whole training, for schedules; 0 when unknown. Returns TERSE_OK, TERSE_ESTATE (after start). */
terse_status ts_client_set_total_steps(ts_client *client, uint64_t steps) TERSE_NODISCARD;
/* Samples that the gradients pushed from now on are means of (aggregation.mode: samples). At any time. */
void ts_client_set_samples(ts_client *client, uint32_t samples);
/*
 * Starts attaching; the state becomes TRAINING when done. Returns TERSE_OK; TERSE_ESTATE (no tensor, called twice: as
 * before); TERSE_EPEER, TERSE_EUNSUPPORTED, TERSE_ENOMEM and others: FAILED, with a message.
 */
terse_status ts_client_start(ts_client *client) TERSE_NODISCARD;

/*
 * Encodes now and queues the packets (with clip_norm: when the step's last tensor is pushed; gradients are borrowed
 * until then). gradient: [borrow] n elements; index: [borrow] count, ascending, below n; value: [borrow] count.
 * Returns TERSE_OK; TERSE_EAGAIN: what the tensor's last pull waits for has not come yet: call ts_client_pulled first;
 * TERSE_ESTATE, TERSE_EINVAL, TERSE_ENOTFOUND: refused, nothing has changed; others: FAILED, with a message.
 */
terse_status ts_client_push(ts_client *client, uint32_t tensor, const float *gradient) TERSE_NODISCARD;
terse_status ts_client_push_sparse(ts_client *client, uint32_t tensor, const uint32_t *index, const float *value,
                                   size_t count) TERSE_NODISCARD;
/*
 * The same, and gradient stays as it is until ts_client_recall; a large one may then travel from where it lies. Whoever lends
 * asks when the step is over whether some of what was lent is still needed (has_lent); then lets the transport go on as long
 * as it has some of it (lent_under_way), since whoever receives may read it from here; and then has copies taken of the
 * rest (recall), while nobody moves bytes. It returns TERSE_OK or the failure. A client that has FAILED may never see the
 * last of it leave: it waits a moment only, and what the transport still has is read until it is closed.
 */
terse_status ts_client_push_lent(ts_client *client, uint32_t tensor, const float *gradient) TERSE_NODISCARD;
bool ts_client_has_lent(ts_client *client);
bool ts_client_lent_under_way(const ts_client *client);
terse_status ts_client_recall(ts_client *client) TERSE_NODISCARD;
/* Whether the servers have acknowledged all of the tensor's pushes. */
bool ts_client_pushed(ts_client *client, uint32_t tensor);
/* Whether it has sent packets so large that each has a frame of its own. */
bool ts_client_sends_large(const ts_client *client);
/*
 * Whether a wait for version `version` of the tensor (pull) or for the acknowledgement of the push that leads to it can
 * end. Returns TERSE_OK; TERSE_ESTATE: the pull was never asked for, or the gradient waits (clip_norm) for the step's
 * others; TERSE_ENOTFOUND: there was no such push or pull.
 */
terse_status ts_client_check_wait(ts_client *client, uint32_t tensor, uint64_t version, bool pull) TERSE_NODISCARD;
/* Wants the version after the last push. Returns TERSE_OK; TERSE_ESTATE, TERSE_ENOTFOUND: refused; or the failure. */
terse_status ts_client_pull(ts_client *client, uint32_t tensor) TERSE_NODISCARD;
/* Whether that version is here; decodes into param what has come, so call it when param may change. */
bool ts_client_pulled(ts_client *client, uint32_t tensor);
/*
 * The same of all tensors from *next on, in whatever order they come. next: [in/out] all below it are pulled.
 */
bool ts_client_pulled_all(ts_client *client, uint32_t *next);
/*
 * In a step that pushes and pulls everything: the first so many tensors are pushed now, or next, and their params may
 * change; 0: the step is over. Once that is worth a look, decodes what has come.
 */
void ts_client_step_reaches(ts_client *client, uint32_t tensors);
/*
 * Whether pushes of the tensor ask for what comes of them. Without, it may be pushed step after step without a pull, and
 * a pull asks for what has come together. At first: with. Returns TERSE_OK; TERSE_ENOTFOUND; TERSE_ESTATE (before start,
 * or between a push and its pull); TERSE_EUNSUPPORTED (aggregate only, or rounds that do not wait).
 */
terse_status ts_client_prefetch(ts_client *client, uint32_t tensor, bool wanted) TERSE_NODISCARD;
/* Whether they do. */
bool ts_client_prefetches(const ts_client *client, uint32_t tensor);
/* Sends what has gathered (small tensors share a frame). */
void ts_client_flush(ts_client *client);

/*
 * Sum of count values over all workers; one at a time. values: copied. sequence: [out] for ts_client_reduced.
 * Returns TERSE_OK; TERSE_ELIMIT (above TS_REDUCE_VALUES_MAX), TERSE_ESTATE, TERSE_ENOMEM: refused; or the failure.
 */
terse_status ts_client_reduce(ts_client *client, const double *values, size_t count, uint64_t *sequence) TERSE_NODISCARD;
/* Whether that sum is here; values: [out] count of them, untouched before. */
bool ts_client_reduced(ts_client *client, uint64_t sequence, double *values, size_t count);
/*
 * A tensor as the servers hold it. out: [borrow] until fetched, n elements, written as slices come.
 * Returns TERSE_OK; TERSE_ENOTFOUND, TERSE_ESTATE (under way already): refused; or the failure.
 */
terse_status ts_client_fetch(ts_client *client, uint32_t tensor, float *out) TERSE_NODISCARD;
bool ts_client_fetched(ts_client *client, uint32_t tensor);
/* Asks all servers. Returns TERSE_OK, TERSE_ESTATE (before start), or the failure. */
terse_status ts_client_request_stats(ts_client *client) TERSE_NODISCARD;
struct terse_stats;
/* Whether all have answered; stats: [out] their sum (terse.h), untouched before. */
bool ts_client_stats(ts_client *client, struct terse_stats *stats);
/*
 * How often this client has come back to its job, having been given up, or in the place of a process that had died. Then
 * every tensor's next push is that of another step (ts_client_tensor_step), and its param a snapshot.
 */
uint32_t ts_client_returns(const ts_client *client);
/* In the user's thread, which waits for something: begins to come back when the servers have given this worker up. */
void ts_client_come_back_due(ts_client *client);
/* For audits and tests: whether the last packet of a slice (the job's number) was refused, and goes back to the residual. */
bool ts_client_gives_back(const ts_client *client, uint32_t slice, uint64_t *step);
/* The sums over all workers so far: the next is number count + 1 of the job. For a worker that has missed some. */
void ts_client_set_sums(ts_client *client, uint64_t count);

/*
 * What the job goes on from: the step, 0 for its beginning; once TRAINING. Loads this worker's part of that checkpoint
 * (at the latest the first push does); lets go of the lock meanwhile. Returns TERSE_OK; or the failure.
 */
uint64_t ts_client_resumed(const ts_client *client);
terse_status ts_client_resume(ts_client *client) TERSE_NODISCARD;
/*
 * Asks server 0 for a checkpoint of the job, soon; stop: which ends it then. reason: [borrow] why, with stop.
 * Returns TERSE_OK; TERSE_EUNSUPPORTED: there are none; or the failure.
 */
terse_status ts_client_request_checkpoint(ts_client *client, bool stop, const char *reason) TERSE_NODISCARD;
/* Whether this worker's part of one is still to be written or told of: bye has to wait. */
bool ts_client_checkpoint_pending(const ts_client *client);
/* Writes what a cut waits for, while the user's thread waits for something else; lets go of the lock. */
void ts_client_cut_due(ts_client *client);
/* The step of the last complete checkpoint that is known here. Returns false when there is none. */
bool ts_client_last_checkpoint(const ts_client *client, uint64_t *version);
/*
 * Before done, between steps: whether what is left of the residual is worth a push of its own (error_feedback.flush; not
 * after the last step of all). Then, for every tensor, push_rest and a pull; and the question again.
 */
bool ts_client_rest_due(ts_client *client);
/* Pushes what the residual holds, as much of it as the pipeline can say at once. Returns as ts_client_push. */
terse_status ts_client_push_rest(ts_client *client, uint32_t tensor) TERSE_NODISCARD;
/* What of the gradients is not sent: over all residuals; zeros with EF21, which has no such sum. */
typedef struct {
    double l1, squares;
    uint64_t nonzero;
} ts_client_unsent;
ts_client_unsent ts_client_measure_unsent(ts_client *client);
/* Announces that no more pushes come. Returns TERSE_OK, TERSE_EAGAIN (it comes back to the job: once TRAINING), TERSE_ESTATE (some tensors are a step ahead of others). */
terse_status ts_client_done(ts_client *client) TERSE_NODISCARD;
/* Leaves for good, best effort; call it in DONE, when nothing more will be asked. */
void ts_client_bye(ts_client *client);
/* Tells all servers the job must end, and why; the client is FAILED then. */
void ts_client_abort(ts_client *client, terse_status status, const char *reason);

/* Deadlines, retransmission and heartbeats, by transport->now_us. Call every 10 … 200 ms. */
void ts_client_tick(ts_client *client);

ts_client_state ts_client_get_state(const ts_client *client);
/* Why it FAILED; TERSE_OK while it has not. */
terse_status ts_client_failure(const ts_client *client);
/* The first failure, or the last refused call, in words. Never NULL. */
const char *ts_client_message(const ts_client *client);
/* Whom it waits for and since when, "" for nobody; text of `capacity` bytes. */
void ts_client_waiting(const ts_client *client, char *text, size_t capacity);
/* Steps finished: the version that every tensor's param holds. */
uint64_t ts_client_step(const ts_client *client);
/* The version that param holds of a slice (the job's number). */
uint64_t ts_client_slice_version(const ts_client *client, uint32_t slice);
/* The number of the tensor's next push; in BSP also the version its param holds. */
uint64_t ts_client_tensor_step(const ts_client *client, uint32_t tensor);
/* Whether what a push leaves enters the next one (error_feedback.enabled); else residuals hold nothing of interest. */
bool ts_client_keeps_residual(const ts_client *client);
/*
 * For audits and tests: the residual of a tensor, n elements; NULL before start. Stored as bfloat16 it is valid until
 * the next call or push.
 */
const float *ts_client_residual(const ts_client *client, uint32_t tensor);
/* [borrow] until destroy; sealed from start on. */
const ts_contract *ts_client_contract(const ts_client *client);

typedef struct {
    uint64_t bytes_out, bytes_in;    /* of every frame to and from the servers */
    uint64_t push_payload_bytes;     /* packets of pushed gradients, without frames and repetitions */
    uint64_t encode_us, decode_us;
    uint64_t nonfinite;              /* elements kept out so far */
    double let_go;                   /* sum of what residuals lost by decay and by rounding to bfloat16 */
    uint64_t beyond_gradients;       /* gradients of one tensor and step with values beyond the quantiser's range */
    uint64_t nonfinite_gradients;    /* gradients of one tensor and step with such elements */
    uint64_t retransmits;            /* frames sent again */
    uint64_t dropped_frames;         /* corrupt, foreign or unexpected */
    uint64_t refused_packets;        /* given back to the residual */
} ts_client_counters;
/* [borrow] until destroy; they go on counting. */
const ts_client_counters *ts_client_get_counters(const ts_client *client);

#endif
