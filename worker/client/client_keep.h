/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the client does with its file (common/keep/keep.h): whether what it holds may meet the job's parameters, and what is
 * said of what is lost.
 */
#ifndef TS_CLIENT_KEEP_H
#define TS_CLIENT_KEEP_H

#include "common/keep/keep.h"
#include "worker/client/feedback.h"

struct ts_client;

/* ts_feedback_memory out of the file. */
typedef struct {
    ts_feedback_memory memory; /* first */
    ts_keep *keep;
} ts_keep_memory;

/* Opens the file when the config wants one, and fills the outbox with what it holds. Returns as ts_keep_open. */
terse_status ts_client_keep_open(struct ts_client *client, ts_error *reason) TERSE_NODISCARD;
/* The job has ended for everybody. */
void ts_client_keep_job_ended(struct ts_client *client);

#endif
