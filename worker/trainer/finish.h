/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a run: exact parameters, accuracy, figures, files. */
#ifndef TS_TRAINER_FINISH_H
#define TS_TRAINER_FINISH_H

#include "worker/trainer/training.h"

/*
 * Ends pushing; worker 0 then evaluates the parameters as the servers hold them, prints the table and writes the files.
 * Collective: all workers. Returns: TERSE_OK, EIO (a file; the table is printed all the same), or libterse's status.
 */
terse_status ts_training_finish(ts_training *run) TERSE_NODISCARD;

#endif
