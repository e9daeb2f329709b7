/* SPDX-License-Identifier: Apache-2.0 */
/* Names of a part's metadata. Internal to ckpt/. */
#ifndef TS_CKPT_KEYS_H
#define TS_CKPT_KEYS_H

#define TS_CKPT_KEY_SEAL "terse.seal"
#define TS_CKPT_KEY_FORMAT "terse.checkpoint"
#define TS_CKPT_KEY_RUN "terse.run"
#define TS_CKPT_KEY_EPOCH "terse.epoch"
#define TS_CKPT_KEY_SERIAL "terse.serial"
#define TS_CKPT_KEY_VERSION "terse.version"
#define TS_CKPT_KEY_CONTRACT "terse.contract"
#define TS_CKPT_KEY_ROLE "terse.role"
#define TS_CKPT_KEY_INDEX "terse.index"
#define TS_CKPT_KEY_COUNT "terse.count"
#define TS_CKPT_KEY_SUMS "terse.xxh3"

/* As they stand in front of their digits. Inside a JSON string every quote has a backslash before it, so no name of a
 * tensor can look like this. */
#define TS_CKPT_SEAL_TEXT "\"" TS_CKPT_KEY_SEAL "\":\""
#define TS_CKPT_SUMS_TEXT "\"" TS_CKPT_KEY_SUMS "\":\""

#endif
