/* SPDX-License-Identifier: Apache-2.0 */
/* How late a loop's ticks come, and how much of that is the loop's own doing. Thread: the loop's. */
#ifndef TS_SERVER_LOOP_LATE_H
#define TS_SERVER_LOOP_LATE_H

#include <stdint.h>

typedef struct {
    int schedstat;                 /* file descriptor; -1 before the first tick, -2: there is no such file */
    uint64_t ticked_us, queued_us; /* at the last tick: its time; how long the thread had waited for a processor */
    uint64_t late_us, own_us;      /* most, since the last ts_lateness_clear */
} ts_lateness;

static inline ts_lateness ts_lateness_start(void) { return (ts_lateness){.schedstat = -1}; }
void ts_lateness_end(ts_lateness *late);
/*
 * A tick, due every_us after the one before. Lateness of its own is what is left without the time in which the thread
 * could have run since then, and others had the processors (Linux; elsewhere all of it counts).
 */
void ts_lateness_tick(ts_lateness *late, uint64_t now_us, uint64_t every_us);
static inline void ts_lateness_clear(ts_lateness *late) { late->late_us = late->own_us = 0; }

#endif
