/* SPDX-License-Identifier: Apache-2.0 */
/* What buffer.c needs of its pools; everybody else uses buffer.h. */
#ifndef TS_BASE_BUFFER_POOL_H
#define TS_BASE_BUFFER_POOL_H

#include <stdbool.h>

#include "common/base/buffer.h"

/* A buffer that nobody holds any more. Returns whether the pool keeps it; otherwise the caller frees it. Thread: any. */
bool ts_buffer_pool_give(ts_buffer_pool *pool, ts_buffer *buffer);

#endif
