/* SPDX-License-Identifier: Apache-2.0 */
/* The file behind keep.h, as its sources see it. Not a format for exchange: same machine, same build. */
#ifndef TS_KEEP_FILE_H
#define TS_KEEP_FILE_H

#include "common/keep/keep.h"

#define TS_KEEP_MAGIC "TERSEKP3"
#define TS_KEEP_PAGE ((size_t)4096)
#define TS_KEEP_PATH_CHARS 1024
#define TS_KEEP_YES 0x59e55e59u /* neither this nor 0 becomes the other by a bit or two */
#define TS_KEEP_FORM 0xa5u

typedef enum { TS_BACKUP_IDLE, TS_BACKUP_TAKEN = 0x3a35c6c9, TS_BACKUP_COMMITTED = 0x4c536339 } ts_backup_phase;

typedef struct {
    char magic[8];
    uint64_t bytes;                 /* of the file; with the contract and the form it says where everything is */
    uint64_t contract_bytes;        /* behind this page */
    uint8_t digest[TS_DIGEST_BYTES];
    uint64_t epoch, run;
    uint32_t worker, incarnation, workers;
    char job[TS_KEEP_JOB_CHARS];
    uint8_t brief, estimates, decayed; /* 0 or TS_KEEP_FORM */
    _Atomic uint32_t ended;         /* 0 or TS_KEEP_YES: the job has */
    _Atomic uint32_t mortal;        /* 0 or TS_KEEP_YES: nobody can go on from it when this process has ended */
    _Atomic uint32_t ready;         /* 0 or TS_KEEP_YES: the file is complete */
    _Atomic uint32_t backup;        /* ts_backup_phase */
    uint32_t backup_tensor;
    /* A hand-over (keep_move.h): what this file gives, and has taken; 0: nothing is under way. */
    _Atomic uint64_t given, took;
    uint32_t given_kind;            /* ts_keep_receiver */
    char partner[TS_KEEP_PATH_CHARS];
    ts_guard_record guard;
} ts_keep_head;

typedef enum { TS_KEEP_TO_FILE, TS_KEEP_TO_CHECKPOINT } ts_keep_receiver;

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
    const ts_contract *contract;
    ts_contract *described; /* [own] the file's own, when nobody else has one */
    int file;
    char *path, *temporary; /* [own] temporary: where it lies as long as `other` has its place; else NULL */
    uint8_t *map;
    size_t bytes;
    bool found;
    bool takes; /* it is ours alone: what a kill left half done was made good */
    ts_keep *other;         /* [own] or NULL */
    ts_keep_form form;
    ts_keep_head *head;
    ts_keep_slot_record *slots;
    ts_keep_tensor *tensors; /* [own] */
    size_t *area;            /* [own] offset of each slice's packet, and the end */
    uint8_t *backup;
    ts_guard guard;
    uint32_t worker;
};

/* ---- keep_layout.c: where everything is, a function of contract and form ---- */
typedef struct {
    size_t contract, slots, undo, put_index, put_value, staged, arrays, backup, areas, end;
} ts_keep_layout;
/* map: NULL to learn the sizes. contract_bytes: of the packed contract. */
ts_keep_layout ts_keep_lay_out(ts_keep *keep, size_t contract_bytes, uint8_t *map);
/* Sets all pointers into the map. */
void ts_keep_point(ts_keep *keep, size_t contract_bytes);
/* tensors and area, for the contract. Returns TERSE_OK, TERSE_ENOMEM. */
terse_status ts_keep_make_tables(ts_keep *keep) TERSE_NODISCARD;

/* ---- keep_describe.c: any file ---- */
typedef enum { TS_KEEP_EMPTY, TS_KEEP_OURS, TS_KEEP_FOREIGN } ts_keep_kind;
/* What the head says is in the file. */
static inline ts_keep_form ts_keep_form_of(const ts_keep_head *head) {
    return (ts_keep_form){.brief = head->brief != 0, .estimates = head->estimates != 0, .decayed = head->decayed != 0};
}
/* Reads the head of an open file. kind: [out] EMPTY also for one that was never completed. head: [out] */
terse_status ts_keep_read_head(int file, const char *path, ts_keep_kind *kind, ts_keep_head *head, ts_error *error)
    TERSE_NODISCARD;
/*
 * LOOKED_AT: as it is, while its owner may be changing it. STILL: nobody changes it; what a kill left half done is made good in
 * memory of our own. TAKEN: it is made good in the file.
 */
typedef enum { TS_KEEP_LOOKED_AT, TS_KEEP_STILL, TS_KEEP_TAKEN } ts_keep_use;
/* Maps an open file by its own description, hand-overs as they are. file: taken over on success, with its lock. path: copied. */
terse_status ts_keep_describe(int file, const char *path, ts_keep_use use, ts_keep **out, ts_error *error) TERSE_NODISCARD;

/* keep_check.c: what recovery and readers follow lies inside. Returns TERSE_OK, or TERSE_ECORRUPT with a sentence. */
terse_status ts_keep_check(const ts_keep *keep, ts_error *error) TERSE_NODISCARD;

/* keep_recover.c: makes good what a kill has left half done, in a file that was checked. May be killed too. */
void ts_keep_recover(ts_keep *keep);

/* keep_move.c: a hand-over that was interrupted is finished, or never was. Returns TERSE_OK, ESTATE (it is at work), EIO. */
terse_status ts_keep_settle_move(ts_keep *keep, ts_error *error) TERSE_NODISCARD;

/* keep_copy.c: all of it into another file, which appears whole or not at all. Returns TERSE_OK, TERSE_EIO. */
terse_status ts_keep_copy(const ts_keep *keep, const char *path, ts_error *error) TERSE_NODISCARD;

/* keep.c */
terse_status ts_keep_map(ts_keep *keep, ts_keep_use use, ts_error *error) TERSE_NODISCARD;
typedef enum { TS_KEEP_READS, TS_KEEP_WRITES, TS_KEEP_MAKES } ts_keep_access; /* MAKES: writes, and it need not be there */
/* Opens and locks the file of that name, which another process may just be removing. Who only reads it is waited for. */
terse_status ts_keep_lock_file(const char *path, ts_keep_access access, int *file, ts_error *error) TERSE_NODISCARD;

#endif
