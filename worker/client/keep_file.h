/* SPDX-License-Identifier: Apache-2.0 */
/* The file behind keep.h, as its two sources see it. Not a format for exchange: same machine, same build. */
#ifndef TS_KEEP_FILE_H
#define TS_KEEP_FILE_H

#include "worker/client/keep.h"

#define TS_KEEP_MAGIC "TERSEKP1"
#define TS_KEEP_PAGE ((size_t)4096)

typedef enum { TS_BACKUP_IDLE, TS_BACKUP_TAKEN, TS_BACKUP_COMMITTED } ts_backup_phase;

typedef struct {
    char magic[8];
    uint64_t bytes;                 /* of the file; with the digest it says where everything is */
    uint8_t digest[TS_DIGEST_BYTES];
    uint64_t epoch;
    uint32_t worker, incarnation;
    _Atomic uint32_t ready;         /* the file is complete */
    _Atomic uint32_t backup;        /* ts_backup_phase */
    uint32_t backup_tensor;
    ts_guard_record guard;
} ts_keep_head;

typedef enum { TS_PENDING_NONE, TS_PENDING_HOLD, TS_PENDING_RELEASE } ts_keep_pending;

typedef struct {
    uint64_t step, room;     /* room: bytes that the file system has promised */
    uint32_t len, samples;
    _Atomic uint32_t live;   /* the packet counts as sent */
    _Atomic uint32_t pending;/* what becomes of it with the end of the push */
} ts_keep_slot_record;

/* Where a tensor's arrays are. */
typedef struct {
    float *residual, *velocity, *estimate; /* NULL: none */
    uint8_t *brief;
    size_t n, at, bytes;                   /* all of them, one behind the other */
    bool guarded;
} ts_keep_tensor;

struct ts_keep {
    ts_feedback_memory memory; /* first: take() finds the keep by it */
    const ts_contract *contract;
    int file;
    char *path;
    uint8_t *map;
    size_t bytes;
    bool found;
    ts_keep_head *head;
    ts_keep_slot_record *slots;
    ts_keep_tensor *tensors; /* [own] */
    size_t *area;            /* [own] offset of each slice's packet, and the end */
    uint8_t *backup;
    ts_guard guard;
    uint32_t worker;
};

/* Makes good what a kill has left half done. May be killed too. */
void ts_keep_recover(ts_keep *keep);

#endif
