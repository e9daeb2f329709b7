/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGINT and SIGTERM while steps are taken: the first one asks the training loop to end the job in order, at its next
 * step; another one kills as ever. The only state of the whole process in the trainer, since a handler can reach no
 * other.
 */
#ifndef TS_TRAINER_STOP_SIGNAL_H
#define TS_TRAINER_STOP_SIGNAL_H

/* From here on both signals ask. Thread: one loop a process. */
void ts_stop_signal_catch(void);
/* From here on both kill again. */
void ts_stop_signal_release(void);
/* The signal that asked, or 0. */
int ts_stop_signal(void);

#endif
