/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop's thread before others. Where a host has more processes than cores, all workers wait for the server, and a
 * scheduler that is fair to all of them lets it run two thirds of the time. Thread: the loop's.
 */
#ifndef TS_SERVER_LOOP_PRECEDENCE_H
#define TS_SERVER_LOOP_PRECEDENCE_H

#include <stdbool.h>

#define TS_PRECEDENCE_NICE (-10)

typedef struct {
    bool taken;
    bool refused; /* the system does not allow it: it is not asked again */
} ts_precedence;

/*
 * Takes precedence, or gives it back. Only a thread at the level 0, to which it returns: who was started with another one
 * keeps that. Nothing happens where the system does not allow it (it wants CAP_SYS_NICE, or RLIMIT_NICE).
 */
void ts_precedence_set(ts_precedence *precedence, bool wanted);

#endif
