/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: checked sizes, cache-line alignment, and one place where tests make
 * allocations fail in turn.
 */
#ifndef TS_BASE_MEM_H
#define TS_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define TS_CACHE_LINE 64
#define TS_MEM_PAGE ((size_t)2 << 20) /* a large page */
#define TS_MEM_LARGE ((size_t)8 << 20) /* bytes from which memory is asked for in large pages */

/* Zeroed memory for count × size bytes. Returns NULL on overflow or when there is none. */
void *ts_mem_calloc(size_t count, size_t size);

/* Grows or creates; NULL on overflow or when there is none (the old block stays valid). */
void *ts_mem_realloc(void *block, size_t count, size_t size);

/* Zeroed and aligned to TS_CACHE_LINE, for tensors; free with ts_mem_free. */
void *ts_mem_aligned(size_t count, size_t size);

/* Zeroed, in whole large pages where the system has some. bytes: a multiple of TS_MEM_PAGE. */
void *ts_mem_pages(size_t bytes);

/*
 * As ts_mem_realloc to `bytes`, of which the first `used` are kept, the others unset; large pages where it is large.
 * block: NULL for a new one.
 */
void *ts_mem_grow(void *block, size_t used, size_t bytes);

/*
 * Of memory whose contents nobody needs: its whole pages are given back, since what was used before is there in small ones, and
 * come anew, zeroed, in large ones where the kernel has some (sweeps over large tensors are slowed by small ones).
 */
void ts_mem_renew(void *block, size_t bytes);

/* A copy of a string, or NULL. */
char *ts_mem_strdup(const char *text);

/* Freeing NULL is fine. */
void ts_mem_free(void *block);

/* a × b and a + b with overflow told, outputs untouched on overflow. */
bool ts_mem_mul(size_t a, size_t b, size_t *product);
bool ts_mem_add(size_t a, size_t b, size_t *sum);

/*
 * Tests only: let `countdown` further allocations of this thread succeed, then fail one.
 * A negative countdown switches the failing off. Thread: the calling thread's allocations.
 */
void ts_mem_fail_after(int64_t countdown);

#endif
