/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The door of a server that workers join later: a TCP socket at which each worker process knocks, and shows the token
 * that lies in the run directory. The connection then stays as its lifeline: the kernel closes it when the process
 * dies, however it dies, so the server knows before it writes to the dead one's MPI connection (mpi_daemon.c says why
 * that matters). No MPI here, and nothing blocks at the server's side.
 *
 * Plain structures travel: both ends are builds of one version on machines of one kind; the version is checked first.
 *
 * Thread: all calls on one door from one thread at a time.
 */
#ifndef TS_NET_DOOR_H
#define TS_NET_DOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define TS_DOOR_TOKEN_BYTES 16
#define TS_DOOR_PARTY_BYTES 16
#define TS_DOOR_NO_JOB UINT32_MAX
#define TS_DOOR_SERVER (UINT32_MAX - 1u) /* as a job: another server of the daemon, which only stays on the line */
#define TS_DOOR_JOIN (UINT32_MAX - 2u)   /* as a job: one that runs; who leads says which, and as which worker */
#define TS_DOOR_NO_WORKER UINT32_MAX
#define TS_DOOR_ENDING 'E'   /* said between servers: this one ends in order */
#define TS_DOOR_ATTACHED 'A' /* said by rank 0 to who has given the number: its job has been let in everywhere */

/* What a worker says first; `entry_bytes` of what the transport wants to know of it follow. */
typedef struct {
    uint32_t magic, version;
    uint8_t token[TS_DOOR_TOKEN_BYTES];
    uint8_t party[TS_DOOR_PARTY_BYTES]; /* random, the same for all workers of one mpirun */
    uint32_t job;                       /* TS_DOOR_NO_JOB: rank 0 asks the leading server for a number */
    uint32_t rank, size;
    uint32_t worker;                    /* with a job that runs: which worker of it, as it was told; else TS_DOOR_NO_WORKER */
    uint32_t numbered;                  /* the job is named by its number, as it was told: all servers name it alike */
    uint32_t entry_bytes;
} ts_door_knock;

typedef enum {
    TS_DOOR_REFUSED = 1, /* the payload says why, in words */
    TS_DOOR_GRANTED = 2, /* the job's number, or with TS_DOOR_JOIN a place, and who is dead; knock at the other doors with it */
    TS_DOOR_OPEN = 3     /* what the transport tells (mpi_daemon.c): connect now */
} ts_door_answer_kind;

/* What a server says; `bytes` of payload follow. */
typedef struct {
    uint32_t magic, kind, status, bytes;
} ts_door_answer;

typedef struct {
    int fd;
    bool known;           /* it has knocked, with the right token */
    bool gone;            /* its process has ended, or the connection has */
    bool attached_all;    /* said TS_DOOR_ATTACHED */
    bool ending;          /* said TS_DOOR_ENDING */
    bool granted, told;   /* for the owner: has a number; was told to connect */
    uint32_t peer;        /* for the owner: UINT32_MAX before it is one */
    uint64_t since_us;
    ts_door_knock knock;
    size_t got;           /* bytes of knock and entry */
    uint8_t *entry;
} ts_door_guest;

typedef struct ts_door ts_door;

/* Why a worker that says this of itself is not let in, or NULL. entry: [borrow] `entry_bytes`, unaligned, of anything. */
typedef const char *ts_door_objection(const void *entry);

/*
 * token: copied. entry_bytes: how much follows a knock, exactly. objection: NULL: none to any entry.
 * Returns TERSE_OK, TERSE_ENOMEM, TERSE_EIO (no socket to be had).
 */
terse_status ts_door_create(const uint8_t token[TS_DOOR_TOKEN_BYTES], uint32_t version, uint32_t entry_bytes,
                            ts_door_objection *objection, ts_door **out) TERSE_NODISCARD;
void ts_door_destroy(ts_door *door); /* closes all lifelines; NULL is fine */
/* In network order. */
uint16_t ts_door_port(const ts_door *door);
/* Another token from now on. */
void ts_door_set_token(ts_door *door, const uint8_t token[TS_DOOR_TOKEN_BYTES]);

/* Lets in, reads, notices who is gone. now_us: monotonic. Returns whether anything changed. */
bool ts_door_poll(ts_door *door, uint64_t now_us);
/* All guests, [borrow] until the next poll or dismiss. */
ts_door_guest **ts_door_guests(ts_door *door, size_t *count);
/* Sends an answer; a guest that does not take it counts as gone. */
void ts_door_tell(ts_door_guest *guest, ts_door_answer_kind kind, terse_status status, const void *payload, size_t bytes);
/* Closes the lifeline and frees the guest. */
void ts_door_dismiss(ts_door *door, ts_door_guest *guest);

/* Whether the other end of a lifeline has ended. One system call; reads nothing. */
bool ts_door_is_cut(int fd);

/* ---- the worker's side: these wait, until the deadline at most ---- */

/*
 * Goes to a door and knocks. address, port: network order. fd: [out] [own] the lifeline.
 * Returns TERSE_OK, TERSE_EPEER (nobody there), TERSE_ETIMEDOUT, TERSE_EIO.
 */
terse_status ts_door_visit(uint32_t address, uint16_t port, const ts_door_knock *knock, const void *entry, uint64_t until_us,
                           int *fd) TERSE_NODISCARD;
/*
 * Hears the next answer. payload: [out] `capacity` bytes; bytes: [out].
 * Returns TERSE_OK, TERSE_ETIMEDOUT, TERSE_EPEER (the server is gone), TERSE_ECORRUPT.
 */
terse_status ts_door_hear(int fd, uint64_t until_us, ts_door_answer *answer, void *payload, size_t capacity) TERSE_NODISCARD;
/* Says one byte on a lifeline. */
void ts_door_say(int fd, char word);

#endif
