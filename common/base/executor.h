/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where heavy work runs. The owner of the state submits; `work` runs on any
 * thread and touches only what `argument` owns; `done` runs on the owner's
 * thread. The daemon's executor is libuv's thread pool; tests and the
 * simulation run inline.
 */
#ifndef TS_BASE_EXECUTOR_H
#define TS_BASE_EXECUTOR_H

#include "common/base/status.h"

typedef struct ts_executor ts_executor;
typedef void (*ts_executor_fn)(void *argument);

struct ts_executor {
    /* [in] work and done may not be NULL. Returns TERSE_OK or TERSE_ENOMEM (nothing ran). */
    terse_status (*submit)(ts_executor *executor, ts_executor_fn work, ts_executor_fn done, void *argument);
    /*
     * The same for work of a millisecond or so that waits for nobody: may run it on the owner's own thread, but not
     * inside the call. NULL: submit.
     */
    terse_status (*submit_brief)(ts_executor *executor, ts_executor_fn work, ts_executor_fn done, void *argument);
    unsigned threads; /* how many works may run at once */
};

/* Runs work and done at once, in the caller. A constant table; no state. */
extern ts_executor ts_executor_inline;

#endif
