/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission by a shared secret (auth.secret_file). Until a worker has proven that it knows it, nothing of it is looked
 * at but Hello and Proof, and nothing it says changes anything for the others.
 */
#ifndef TS_SERVER_CHALLENGE_H
#define TS_SERVER_CHALLENGE_H

#include "common/wire/frame.h"
#include "server/server_internal.h"

struct ts_job;

/*
 * Whether a frame from a worker goes on to the job. Otherwise it was dealt with here: Hello is answered by a challenge,
 * Proof looked at; after TS_CHALLENGE_TRIES wrong proofs the peer is dropped. Without a secret all go on.
 * refused: [out] why a frame that does not go on was refused, TERSE_OK when it was in order. Thread: the loop's.
 */
bool ts_challenge_passes(struct ts_job *job, uint32_t peer, const ts_frame *frame, terse_status *refused);

#define TS_CHALLENGE_TRIES 3u

#endif
