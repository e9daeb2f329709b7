/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of names, to find repetitions in lists of any length: open addressing,
 * the names stay with the caller.
 */
#ifndef TS_BASE_NAME_SET_H
#define TS_BASE_NAME_SET_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

typedef struct {
    const char **slots; /* [own] `capacity` of them, NULL where free; the names are [borrow] */
    size_t capacity;    /* 0 or a power of two */
    size_t count;
} ts_name_set;          /* all zero: empty */

/*
 * name: [borrow until clear]. added: [out] false when it was there already.
 * Returns TERSE_OK, TERSE_ENOMEM (nothing has changed).
 */
terse_status ts_name_set_add(ts_name_set *set, const char *name, bool *added) TERSE_NODISCARD;
/* Frees; the set is empty then. */
void ts_name_set_clear(ts_name_set *set);

#endif
