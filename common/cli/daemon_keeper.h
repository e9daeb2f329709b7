/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process in the background that starts ompi-server and the servers' mpirun, waits for them, and leaves nothing
 * behind: neither processes, should it be killed itself, nor files by which a job could look for a daemon in vain.
 */
#ifndef TS_CLI_DAEMON_KEEPER_H
#define TS_CLI_DAEMON_KEEPER_H

#include <sys/types.h>

#include "common/base/run_dir.h"

typedef struct {
    const char *dir;           /* [borrow] absolute */
    char *const *mpirun;       /* [borrow] words, from "mpirun" on, the last NULL */
    double stop_s;             /* how long the servers may take to end when it is told to end */
} ts_daemon_keeper;

/*
 * Forks it, with a session and a log of its own. pid: [out].
 * Returns TERSE_OK, TERSE_EIO.
 */
terse_status ts_daemon_keeper_fork(const ts_daemon_keeper *keeper, pid_t *pid) TERSE_NODISCARD;

#endif
