/* SPDX-License-Identifier: Apache-2.0 */
/* What a contract may hold at most; a larger one from outside is refused before memory is spent on it. */
#ifndef TS_CONTRACT_LIMITS_H
#define TS_CONTRACT_LIMITS_H

#include <stdint.h>

#define TS_CONTRACT_BYTES ((size_t)64 << 20) /* serialized */
#define TS_CONTRACT_TENSORS (1u << 20)
#define TS_CONTRACT_SLICES (1u << 24)
#define TS_CONTRACT_TENSOR_ELEMS UINT32_MAX /* indices have 32 bits */
#define TS_CONTRACT_NAME_BYTES 512
#define TS_CONTRACT_TEXT_BYTES 4096         /* optimizer, feedback, rounds */
#define TS_CONTRACT_SERVERS 65536u

#endif
