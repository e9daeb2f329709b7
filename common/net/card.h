/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon's card: the file in its run directory by which workers find it. Text, one fact a line:
 *
 *   terse-daemon 3
 *   pid PID BIRTH           of the server that lets jobs in: server 0, or who stands in for it
 *   leader N                which server that is
 *   token HEX
 *   wire VERSION            of the transport
 *   server N HOST PORT NETWORK/MASK,…   (host: as bells tell hosts apart; port: of its door)
 *   dead N                  a server that is not there any more
 *   seal HEX                XXH3 of all before it
 */
#ifndef TS_NET_CARD_H
#define TS_NET_CARD_H

#include "common/base/run_dir.h"
#include "common/net/bell.h"
#include "common/net/dead_set.h"
#include "common/net/door.h"

#define TS_CARD_SERVERS_MOST TS_DEAD_SERVERS_MOST
#define TS_CARD_CHARS ((size_t)1 << 20)

typedef struct {
    uint8_t token[TS_DOOR_TOKEN_BYTES];
    uint32_t wire, servers, leader;
    uint64_t pid, birth;    /* of the leader */
    ts_bell_address *doors; /* [own] a server; port is the door's */
    ts_dead_set dead;
} ts_card;

void ts_card_free(ts_card *card);
/* Returns TERSE_OK, TERSE_EIO, TERSE_ENOMEM, TERSE_ELIMIT. */
terse_status ts_card_write(const char *dir, const ts_card *card) TERSE_NODISCARD;
/*
 * Reads and checks the directory and the card. card: [out] [own]. error: [out] in words.
 * Returns TERSE_OK; TERSE_ENOTFOUND (no daemon there); TERSE_EPEER (not a directory to be trusted); TERSE_ECORRUPT;
 * TERSE_ENOMEM; TERSE_EIO.
 */
terse_status ts_card_read(const char *dir, ts_card *card, ts_error *error) TERSE_NODISCARD;
/*
 * Whether a daemon may open a directory: not while the process of the card there lives. Of a process of another host nobody
 * can tell, so its card is taken for one that was left behind, as one is that cannot be read. own: of this process.
 * error: [out] names that process. Returns TERSE_OK, TERSE_ESTATE.
 */
terse_status ts_card_vacant(const char *dir, const ts_bell_address *own, ts_error *error) TERSE_NODISCARD;
/* Removes this process's card of the daemon with this token, and no other's: nor that of who has taken its place. */
void ts_card_remove(const char *dir, const uint8_t token[TS_DOOR_TOKEN_BYTES]);

#endif
