/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel says of other processes of this host (proc(5)).
 *
 * Thread: any.
 */
#ifndef TS_BASE_PROCESS_H
#define TS_BASE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct {
    pid_t pid, parent;
    uint64_t birth; /* when it began, in the kernel's clock ticks: with the pid it names a process for good */
    char state;     /* as proc(5) has it: 'T' is stopped by a signal */
} ts_process;

/* Returns whether there is one; not one that is dead and only waits to be reaped. out: [out] */
bool ts_process_look(pid_t pid, ts_process *out);

/* Its birth, or 0 when ts_process_look finds none. */
uint64_t ts_process_birth(pid_t pid);

/* The processes with this parent, `most` at most, in no order. Returns how many. out: [out] */
size_t ts_process_children(pid_t parent, ts_process *out, size_t most);

/* The value of a variable in the environment that a process was started with. Returns whether it has one that fits. */
bool ts_process_variable(pid_t pid, const char *name, char *value, size_t capacity);

/* Whether a process is Open MPI's launcher, or its daemon on a further host. */
bool ts_process_launches(pid_t pid);

#endif
