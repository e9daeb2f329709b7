/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much may be under way from one end to the other, and when the other end says what has come. Counted in cost: a
 * message's bytes and TS_WINDOW_MESSAGE_COST. Pure.
 *
 * A plain window is as large as both ends allow, and credit comes for each half of it. A paced one is for a path whose
 * speed is not known. It begins small, and while it is the limit it grows by what is credited, as TCP's own (RFC 5681, slow
 * start), to TS_WINDOW_SLOW_BYTES; from there by an eighth of that, to its maximum, as long as what is under way is
 * credited within TS_WINDOW_QUICK_US, so a delay bounds it, as in TCP Vegas (Brakmo, Peterson 1995). Where that takes
 * TS_WINDOW_LATE_US it is what a slow path has again. Credit comes for each quarter of what a slow path has, so a window
 * may shrink at any time.
 */
#ifndef TS_NET_WINDOW_H
#define TS_NET_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TS_WINDOW_MESSAGE_COST 64u /* what a message takes besides its bytes, roughly */
#define TS_WINDOW_FIRST_BYTES ((size_t)128 << 10)
#define TS_WINDOW_SLOW_BYTES ((size_t)1 << 20)
#define TS_WINDOW_QUICK_BYTES ((size_t)8 << 20)   /* paced: the largest one */
#define TS_WINDOW_LARGE_BYTES (2 * TS_WINDOW_SLOW_BYTES) /* paced: from here on messages may be large */
#define TS_WINDOW_CREDIT_BYTES ((size_t)48 << 10) /* paced: credit comes at least so seldom */
#define TS_WINDOW_QUICK_US 10000u
#define TS_WINDOW_LATE_US 100000u

/* The sender's end. */
typedef struct {
    bool paced, quick;
    size_t bytes, most_bytes; /* cost that may be under way; what it grows to */
    uint64_t sent, credited;  /* cost */
    uint64_t mark, mark_us;   /* cost sent by then, of which no credit has told yet; 0: none is awaited */
} ts_send_window;

/* The receiver's end. */
typedef struct {
    bool paced;
    size_t most_bytes, credit_bytes; /* of the sender's window; cost of what came after which it is told */
    uint64_t taken, returned;        /* cost of what came, and what of it the sender was told */
} ts_receive_window;

/* most_bytes: what both ends allow, TS_WINDOW_FIRST_BYTES at least. send, receive: [out] */
void ts_window_open(ts_send_window *send, ts_receive_window *receive, bool paced, size_t most_bytes);

/* Whether a message of so many bytes may go. One of up to ts_send_window_message_bytes() can, when all else is credited. */
bool ts_send_window_fits(const ts_send_window *window, size_t bytes);
void ts_send_window_note(ts_send_window *window, size_t bytes, uint64_t now_us);
/*
 * The other end has had so much, in all. waits: more is to be sent. Returns false, and changes nothing, when that is less
 * than it had said before, or more than was sent.
 */
bool ts_send_window_credit(ts_send_window *window, uint64_t credited, bool waits, uint64_t now_us);
/* The largest message, of plain_bytes at most; of a paced window: of small_bytes, or large_bytes where the path is quick. */
size_t ts_send_window_message_bytes(const ts_send_window *window, size_t plain_bytes, size_t small_bytes, size_t large_bytes);

/* The sender's window is so large now, as it says. */
void ts_receive_window_learn(ts_receive_window *window, uint64_t bytes);
/* A message has come. */
void ts_receive_window_note(ts_receive_window *window, size_t bytes);
/* Whether it is time to say so. */
bool ts_receive_window_owes(const ts_receive_window *window);

#endif
