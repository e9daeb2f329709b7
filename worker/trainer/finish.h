/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a run: exact parameters, accuracy, figures, files. */
#ifndef TS_TRAINER_FINISH_H
#define TS_TRAINER_FINISH_H

#include "worker/trainer/training.h"

/*
 * Before the first step: whether worker 0 can write the files that it will be asked for. Says what is wrong.
 * Returns: TERSE_OK, ECONFIG (option and path are named), ENOMEM.
 */
terse_status ts_training_check_files(ts_training *run) TERSE_NODISCARD;

/*
 * Ends pushing; worker 0 then evaluates the parameters as the servers hold them, prints the table and writes the files, the
 * summary last and only when all else went well.
 * Collective: all workers. Returns: TERSE_OK, EIO (a file; the table is printed all the same), or libterse's status.
 */
terse_status ts_training_finish(ts_training *run) TERSE_NODISCARD;

#endif
