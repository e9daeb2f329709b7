/* SPDX-License-Identifier: Apache-2.0 */
/* Copies into memory that nobody reads soon. */
#ifndef TS_BASE_COPY_H
#define TS_BASE_COPY_H

#include <stddef.h>

/*
 * As memcpy, past the caches where the CPU can: then what is written over is not read first, and nothing that is still
 * wanted leaves the caches for it. to, from: `bytes`, at any address, apart from each other. Thread: any.
 */
void ts_copy_past(void *to, const void *from, size_t bytes);

#endif
