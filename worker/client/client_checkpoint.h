/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's side of checkpoints (proto/CHECKPOINT.md; WIRE.md, "Checkpoints"). Server 0 plans a cut at a step. The
 * user's thread writes each tensor's residual and what belongs to it when the tensor stands at that step, between its
 * pull and its next push, straight from where it lies; another thread brings the file to the disk and the timers tell
 * server 0. At the start the user's thread loads what an earlier life of the job has written.
 */
#ifndef TS_CLIENT_CHECKPOINT_H
#define TS_CLIENT_CHECKPOINT_H

#include <pthread.h>

#include "common/ckpt/ckpt_manifest.h"
#include "common/wire/frame.h"

struct ts_client;
struct ts_client_server;

typedef enum {
    TS_PART_NONE,
    TS_PART_AHEAD,   /* planned; no tensor has come to the step */
    TS_PART_OPEN,    /* some have */
    TS_PART_CLOSING, /* on its way to the disk */
    TS_PART_WRITTEN,
    TS_PART_FAILED
} ts_part_state;

typedef struct {
    char *dir, *from_dir;      /* [own] of the job's checkpoints; of the one that it goes on from */
    char run[TS_CKPT_ID_CHARS + 1], epoch[TS_CKPT_ID_CHARS + 1]; /* "": no checkpoints */
    uint8_t digest[TS_DIGEST_BYTES];
    ts_ckpt_identity parent;   /* what is to be loaded, or was */
    bool resumes, without, loaded;
    /* The cut. */
    ts_part_state state;
    uint64_t serial, version;
    char folder[TS_CKPT_NAME_CHARS];
    ts_ckpt_identity is;       /* what is written; read without the lock, as are writer to uncut and prune_from */
    ts_ckpt_writer *writer;
    uint32_t *entries;         /* [own] numbers of the file's entries, tensor by tensor */
    size_t *first_entry;       /* [own] a tensor: where its numbers begin */
    bool *cut;                 /* [own] a tensor: it is written */
    uint32_t uncut;
    ts_ckpt_part part;
    ts_error reason;
    bool noted;
    bool at_end, last_over;    /* one is due after the last step; and it has been, or will not be */
    uint64_t report_us, settled_us;
    bool wants_stop;           /* the job's end after a checkpoint; said until it comes */
    char stop_reason[64];
    uint64_t wish_us;          /* when it is said again */
    uint64_t keep_from;        /* older parts of the run are to go */
    uint64_t prune_from;       /* the same, for the thread that closes */
    bool joinable;             /* there is, or was, a thread that closes */
    pthread_t thread;
    bool committed;            /* some checkpoint is known to be complete: */
    uint64_t committed_version;
} ts_client_checkpoint;

void ts_client_checkpoint_free(struct ts_client *client);
/* What a Welcome says of checkpoints. Fails the client when it cannot be. */
void ts_client_checkpoint_welcome(struct ts_client *client, const Terse__Welcome *welcome);
void ts_client_on_checkpoint(struct ts_client *client, const Terse__Checkpoint *message);
/* The tensor stands between two steps: written when this is the cut. The user's thread; lets go of the lock. */
void ts_client_cut(struct ts_client *client, uint32_t tensor);
/* The worker has left the steps before the cut: it has no part in it. */
void ts_client_checkpoint_forget_cut(struct ts_client *client);
/* Reports, under the lock. */
void ts_client_checkpoint_tick(struct ts_client *client);

#endif
