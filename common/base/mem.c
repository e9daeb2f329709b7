/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static _Thread_local int64_t fail_countdown = -1;

static bool allowed(void) {
    if (fail_countdown < 0) return true;
    if (fail_countdown == 0) {
        fail_countdown = -1;
        return false;
    }
    fail_countdown--;
    return true;
}

bool ts_mem_mul(size_t a, size_t b, size_t *product) {
    size_t result;
    if (__builtin_mul_overflow(a, b, &result)) return false;
    *product = result;
    return true;
}

bool ts_mem_add(size_t a, size_t b, size_t *sum) {
    size_t result;
    if (__builtin_add_overflow(a, b, &result)) return false;
    *sum = result;
    return true;
}

void *ts_mem_calloc(size_t count, size_t size) {
    if (!allowed()) return NULL;
    return calloc(count ? count : 1, size ? size : 1);
}

void *ts_mem_realloc(void *block, size_t count, size_t size) {
    size_t bytes;
    if (!ts_mem_mul(count, size, &bytes) || !allowed()) return NULL;
    return realloc(block, bytes ? bytes : 1);
}

void ts_mem_renew(void *block, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    (void)madvise(block, bytes & ~(page - 1), MADV_DONTNEED);
    (void)madvise(block, bytes, MADV_HUGEPAGE);
}

/* bytes: a multiple of a cache line. */
static void *aligned_block(size_t bytes, bool large) {
    void *block;
    if (!allowed() || posix_memalign(&block, large ? TS_MEM_PAGE : TS_CACHE_LINE, bytes) != 0) return NULL;
    if (large) ts_mem_renew(block, bytes);
    return block;
}

void *ts_mem_aligned(size_t count, size_t size) {
    size_t bytes, padded;
    if (!ts_mem_mul(count, size, &bytes) || !ts_mem_add(bytes, TS_CACHE_LINE - 1, &padded)) return NULL;
    padded &= ~(size_t)(TS_CACHE_LINE - 1);
    if (padded == 0) padded = TS_CACHE_LINE;
    void *block = aligned_block(padded, padded >= TS_MEM_LARGE);
    if (block) memset(block, 0, padded);
    return block;
}

void *ts_mem_pages(size_t bytes) {
    void *block = aligned_block(bytes, true);
    if (block) memset(block, 0, bytes);
    return block;
}

void *ts_mem_grow(void *block, size_t used, size_t bytes) {
    size_t padded;
    if (bytes < TS_MEM_LARGE) return ts_mem_realloc(block, bytes, 1);
    if (!ts_mem_add(bytes, TS_CACHE_LINE - 1, &padded)) return NULL;
    void *grown = aligned_block(padded & ~(size_t)(TS_CACHE_LINE - 1), true);
    if (!grown) return NULL;
    if (used > 0) memcpy(grown, block, used);
    free(block);
    return grown;
}

char *ts_mem_strdup(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = ts_mem_calloc(bytes, 1);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

void ts_mem_free(void *block) { free(block); }

void ts_mem_fail_after(int64_t countdown) { fail_countdown = countdown; }
