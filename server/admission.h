/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker sends of its tensors: pushed packets and first values. */
#ifndef TS_SERVER_ADMISSION_H
#define TS_SERVER_ADMISSION_H

#include "common/wire/frame.h"

struct ts_job;

/*
 * A Push: each packet is held, acknowledged as repeated, or refused, alone.
 * buffer: [borrow] the frame's; held packets take references. Returns TERSE_OK; TERSE_ECORRUPT (nothing was taken);
 * TERSE_ENOMEM.
 */
terse_status ts_admission_push(struct ts_job *job, uint32_t worker, ts_buffer *buffer, const ts_frame *frame)
    TERSE_NODISCARD;
/* First values from worker 0. Returns as ts_admission_push, and TERSE_EPEER when another worker sends them. */
terse_status ts_admission_set(struct ts_job *job, uint32_t worker, const ts_frame *frame) TERSE_NODISCARD;
/* Explicit acknowledgements for packets that have waited for their round for a while. */
void ts_admission_tick(struct ts_job *job);

#endif
