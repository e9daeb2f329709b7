/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of a job for its workers: bytes, rounds, hashes of the parameters. */
#ifndef TS_SERVER_STATS_H
#define TS_SERVER_STATS_H

#include <stdbool.h>

struct ts_job;

/* Whether somebody has asked; no new rounds begin until it is answered. */
bool ts_stats_due(const struct ts_job *job);
/* Answers every worker that has asked, as soon as no slice is in the executor. */
void ts_stats_serve(struct ts_job *job);

#endif
