/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Terse: the worker's library.
 *
 * A worker is:  open -> declare tensors -> start -> (push, pull, wait)* -> close
 *
 * Lifetimes: buffers marked [borrow] belong to the caller and must stay valid
 * as long as said. Every call that waits has a deadline: a server that has been
 * silent for consistency.deadline_s ends the wait with TERSE_ETIMEDOUT, and the
 * servers end the job (TERSE_EPEER) when a worker has been; terse_message() says
 * who, since when, and what was waited for. A slow worker that still gives signs
 * of life is waited for.
 *
 * Failures are final: after TERSE_EPEER, TERSE_ETIMEDOUT, TERSE_EMISMATCH or
 * TERSE_ENONFINITE the job has ended everywhere, and terse_close is what is left.
 *
 * Threads: calls on one client must not run at the same time; two clients in
 * one process are fine. A communication thread of the library's own moves bytes
 * and heartbeats when MPI was initialised with MPI_THREAD_MULTIPLE (terse_open
 * does so when MPI is not initialised yet); otherwise progress happens inside
 * the calls, and a step longer than the deadline lets the servers take this
 * worker for dead: call terse_progress() from the training loop then.
 */
#ifndef TERSE_H
#define TERSE_H

#include <stddef.h>
#include <stdint.h>

#ifdef TERSE_INSTALLED
#include "terse_status.h"
#else
#include "common/base/terse_status.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TERSE_VERSION_MAJOR 0
#define TERSE_VERSION_MINOR 1
#define TERSE_VERSION_PATCH 0

typedef struct terse terse;
typedef uint32_t terse_tensor;  /* counts from 0 in declaration order */
typedef uint64_t terse_handle;  /* of an asynchronous push or pull; 0 is never one */

typedef enum terse_dtype { TERSE_FLOAT32 = 0 } terse_dtype;

/* "0.1.0". Thread: any. */
TERSE_API const char *terse_version(void);

/*
 * Instead of terse_open, for a program that cannot take part (its own options are wrong, its data is missing): tells all
 * others of this mpirun why, so that they end at once instead of waiting until the deadline, and ends this process with
 * `exit_code`. Returns when there is nobody to tell: not started by mpirun, or alone.
 */
TERSE_API void terse_decline(const char *reason, int exit_code);

/*
 * Opens a client: reads the config, initialises MPI if nobody has, finds the servers. With worker.id in the config (or
 * --set worker.id=N) the launch comes into a running job of a daemon: terse_start then does not wait for other workers,
 * terse_returns() is 1 afterwards and says at which step the job is.
 * argc, argv: CONFIG, --set a.b=c … are taken out when config is NULL; may be NULL when config is given.
 * client: [own], terse_close. On failure *client is set to a client that only serves terse_message and terse_close
 * (or NULL when memory ran out).
 * Collective: all workers, or terse_decline. Returns: TERSE_OK, ECONFIG (the command line or the config is not valid, or
 * cannot be read; --help: the message is the usage; nobody else knows: see terse_decline), EINVAL (neither config nor argc and
 * argv), ETIMEDOUT, EPEER, EVERSION, ENOMEM, EIO.
 */
TERSE_API terse_status terse_open(terse **client, const char *config, int *argc, char ***argv) TERSE_NODISCARD;

/*
 * Declares a tensor; all workers declare the same tensors in the same order.
 * name: 1 to 512 bytes of UTF-8 without control characters (below U+0020, U+007F): logs and checkpoints hold it.
 * shape: ndim extents (0 … 8; ndim 0 is a scalar), row-major. param: [borrow until close] the worker's replica,
 * float32, product(shape) elements; pulls write it. With `optimizer: {name: none}` pulls write the averaged
 * gradient there.
 * Returns: TERSE_OK, EINVAL (name NULL, empty, not as above, or repeated; extent < 1), ESTATE (after start), ELIMIT, ENOMEM.
 */
TERSE_API terse_status terse_declare(terse *client, const char *name, terse_dtype dtype, const int64_t *shape,
                                     int ndim, float *param, terse_tensor *tensor) TERSE_NODISCARD;

/* How many steps the run will have; schedules (cosine) need it. Before start. Returns TERSE_OK, ESTATE. */
TERSE_API terse_status terse_set_total_steps(terse *client, uint64_t steps) TERSE_NODISCARD;

/*
 * Says how many samples the gradients pushed from now on are means of, for `aggregation: {mode: samples}`: a smaller
 * last batch then counts less. Every gradient counts 1 until it is called. Returns TERSE_OK, EPEER, ETIMEDOUT.
 */
TERSE_API terse_status terse_set_samples(terse *client, uint32_t samples) TERSE_NODISCARD;

/*
 * Agrees on the contract and makes the parameters equal everywhere: worker 0's replica is set on the servers, and the
 * others pull it. Collective: all workers.
 * Worker 0's must be finite, but with `optimizer: {name: none}`.
 * Returns: TERSE_OK, EMISMATCH (another worker declared otherwise: the message names tensor and worker), ENONFINITE (NaN or
 * infinity in worker 0's replica: tensor, number and first element), ETIMEDOUT, EPEER.
 */
TERSE_API terse_status terse_start(terse *client) TERSE_NODISCARD;

/*
 * The step that the training goes on from, after terse_start: 0 at its beginning, else that of the checkpoint which the
 * job was started from (config, `checkpoint`). The next push is that step's: data and schedules of the program's own go on
 * from there. Parameters, residuals and momentum are there already.
 */
TERSE_API uint64_t terse_resumed(const terse *client);

/*
 * How often this worker has come back into its job: having been given up (stopped, cut off) for longer than
 * consistency.deadline_s, or in the place of a process that had died. Look after each terse_step and sum: when the number
 * has grown, the replicas are a snapshot, and the next push is that of *step [out]; data and schedules of the program's
 * own go on from there. Nothing of its gradients is lost. It happens between steps only: a program that waits for single
 * pushes or pulls in the middle of a step ends with TERSE_ESTALE instead.
 */
TERSE_API uint32_t terse_returns(terse *client, uint64_t *step);

/*
 * Sums over all workers are told apart by their number. A worker that has come back says how many there have been where it
 * goes on, so that its next terse_reduce_sum is one with the others'. Returns TERSE_OK, TERSE_ESTATE.
 */
TERSE_API terse_status terse_set_sums(terse *client, uint64_t count) TERSE_NODISCARD;

/*
 * Asks for a checkpoint of the whole job, soon; with stop, the job then ends at all workers (TERSE_ESHUTDOWN), and the
 * message says why (reason; may be NULL). Does not wait. Any worker, alone. Returns: TERSE_OK, EUNSUPPORTED (no
 * checkpoint.dir, or before terse_start), EPEER, ETIMEDOUT.
 */
TERSE_API terse_status terse_checkpoint(terse *client, int stop, const char *reason) TERSE_NODISCARD;

/*
 * Pushes this step's gradient of one tensor. Returns once `gradient` may be reused (with error_feedback.clip_norm
 * > 0: once the step's last tensor is pushed; until then gradients are borrowed).
 * handle: [out] may be NULL; done when the servers acknowledged. Each tensor is pushed once a step.
 * Returns: TERSE_OK, ENONFINITE (see error_feedback.nonfinite), ESTATE (pushed twice, or the last step's pull is
 * missing), ENOTFOUND, EPEER, ETIMEDOUT.
 */
TERSE_API terse_status terse_push(terse *client, terse_tensor tensor, const float *gradient, terse_handle *handle)
    TERSE_NODISCARD;

/*
 * The same for a gradient that is sparse already: count pairs (index strictly ascending, below the tensor's elements).
 * Elements that are not named have gradient 0.
 */
TERSE_API terse_status terse_push_sparse(terse *client, terse_tensor tensor, const uint32_t *index, const float *value,
                                         size_t count, terse_handle *handle) TERSE_NODISCARD;

/* Asks for the tensor's next version; done when `param` holds it. param must not be read or written in between. */
TERSE_API terse_status terse_pull(terse *client, terse_tensor tensor, terse_handle *handle) TERSE_NODISCARD;

/*
 * Chooses which tensors a worker keeps up to date: with wanted 0 the tensor's pushes ask for nothing back, it may be pushed
 * step after step without a pull, and terse_pull asks for all that has come together; terse_step then pushes it and
 * does not pull. After start, between steps; each worker chooses for itself.
 * Returns: TERSE_OK, ENOTFOUND, ESTATE, EUNSUPPORTED (optimizer none, or consistency.stragglers other than wait).
 */
TERSE_API terse_status terse_prefetch(terse *client, terse_tensor tensor, int wanted) TERSE_NODISCARD;

/*
 * Waits until a handle is done. Returns TERSE_OK, ETIMEDOUT, EPEER, EMISMATCH, ENOTFOUND (no such push or pull), ESTATE
 * (it would never be done: the pull came before its push; or, with error_feedback.clip_norm, other tensors of the step
 * are not pushed yet).
 */
TERSE_API terse_status terse_wait(terse *client, terse_handle handle) TERSE_NODISCARD;

/*
 * A whole step: pushes gradients[t] for every tensor t, pulls every tensor, waits.
 * gradients: [borrow] as many pointers as tensors; what they point to stays as it is until this returns; after EPEER,
 * ETIMEDOUT and other ends of the job they stay mapped until terse_close, since what a dead server does not read any more
 * may still be on its way to it.
 */
TERSE_API terse_status terse_step(terse *client, const float *const *gradients) TERSE_NODISCARD;

/* Moves bytes without waiting; needed only without a communication thread. */
TERSE_API terse_status terse_progress(terse *client) TERSE_NODISCARD;

/*
 * Sums `count` doubles over all workers still in the job, in worker order; the result replaces values. Also a
 * barrier (count may be 0; at most 65536). Collective: all workers.
 */
TERSE_API terse_status terse_reduce_sum(terse *client, double *values, size_t count) TERSE_NODISCARD;

/* Writes the parameters exactly as the servers hold them into a caller's buffer (n elements). Any worker, alone. */
TERSE_API terse_status terse_fetch(terse *client, terse_tensor tensor, float *out) TERSE_NODISCARD;

/*
 * No more pushes from this worker; others go on without it. With error_feedback.flush what it has not sent yet is pushed
 * before, in up to 16 steps more (none beyond terse_set_total_steps), for which the others' steps are waited for; sums do
 * not wait for this worker meanwhile. What is left is said to the servers (lost_l1 …).
 */
TERSE_API terse_status terse_done(terse *client) TERSE_NODISCARD;

/*
 * Ends the job for everybody: the servers and all workers fail with `cause` (not TERSE_OK) and a message that names
 * this worker and holds `reason` (what is not UTF-8 in it, and control characters, as \xHH). For errors of the program's own, which the others would learn of only by the
 * deadline; terse_close alone means that this worker is done in order. Nothing changes when the job has failed already.
 * Returns: cause, or the status of the failure that was there first; TERSE_EINVAL.
 */
TERSE_API terse_status terse_abort(terse *client, terse_status cause, const char *reason);

/* Figures of the whole job, from the servers. After terse_done of all workers they are final. */
typedef struct terse_stats {
    uint64_t push_bytes, pull_bytes;               /* every byte of every frame, all workers and servers */
    uint64_t steady_push_bytes, steady_pull_bytes; /* the same, after the warm-up steps */
    uint64_t lost_rounds;                          /* closed without a worker that still had to push */
    uint64_t lost_workers;                         /* given up, since nothing was heard of them */
    uint64_t parameters;                           /* elements */
    double lost_l1, lost_l2;                       /* of residuals, when their workers were done: Σ |x|, √Σ x² */
    uint64_t lost_nonzero;                         /* and elements; not of workers that were lost, which nobody knows */
    char parameters_xxh3[17];                      /* hash of the slices' hashes in tensor order, hexadecimal */
} terse_stats;
TERSE_API terse_status terse_get_stats(terse *client, terse_stats *stats) TERSE_NODISCARD;

/* This worker's own figures, without asking anybody. */
typedef struct terse_local_stats {
    uint64_t step;                  /* steps finished */
    uint64_t push_bytes, pull_bytes;/* every byte of every frame of this worker so far */
    uint64_t push_payload_bytes;    /* of its gradients' packets alone */
    uint64_t encode_us, wait_us, decode_us;
    double residual_norm;           /* L2 over all tensors, of the last step that was asked; 0 without error feedback */
    uint64_t nonfinite;             /* elements kept out so far */
} terse_local_stats;
TERSE_API terse_status terse_get_local_stats(terse *client, terse_local_stats *stats) TERSE_NODISCARD;

/*
 * This worker's number, how many workers the job began with, and how many servers there are. Who has come into a running
 * job as a new worker has a number that is not below terse_workers().
 */
TERSE_API uint32_t terse_worker(const terse *client);
TERSE_API uint32_t terse_workers(const terse *client);
TERSE_API uint32_t terse_servers(const terse *client);

/*
 * The workers' own communicator, for the user's traffic: of those of the same launch (mpirun) and job, in the launch's
 * order. Workers that come into a running job, in the place of others or as new ones, are a launch of their own and have
 * a communicator of their own; the others' still has the dead in it, and nothing here can replace them there: what all
 * workers of such a job must agree on goes over terse_reduce_sum. comm: [out] points to an MPI_Comm.
 * Collective at the first call: all workers of the launch. Returns TERSE_OK, ESTATE.
 */
TERSE_API terse_status terse_comm(terse *client, void *comm) TERSE_NODISCARD;

/* The sentence behind the last failure: names file, key, tensor or peer. Never NULL; valid until the next call. */
TERSE_API const char *terse_message(const terse *client);

/*
 * Says goodbye (done, if not said), finalises MPI if terse_open initialised it, frees. NULL is fine.
 * After a failure of the job MPI cannot be finalised (whoever initialised it), since a finalise with a dead peer can
 * hang: the process then ends here, with what stdio holds written out and the exit code of the failure (README lists
 * them); print terse_message() before.
 * Returns TERSE_OK, or why the goodbye failed (the client is freed all the same).
 */
TERSE_API terse_status terse_close(terse *client);

#ifdef __cplusplus
}
#endif
#endif
