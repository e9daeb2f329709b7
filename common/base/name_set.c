/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/name_set.h"

#include <stdint.h>
#include <string.h>

#include "common/base/mem.h"

#define FIRST_CAPACITY 64

/* FNV-1a, 64 bits (Fowler, Noll, Vo 1991). */
static uint64_t hash(const char *name) {
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h ^ (h >> 32);
}

/* Where the name stands, or the free place where it belongs. There is always one. */
static size_t find(const ts_name_set *set, const char *name) {
    size_t at = (size_t)hash(name) & (set->capacity - 1);
    while (set->slots[at] && strcmp(set->slots[at], name) != 0) at = (at + 1) & (set->capacity - 1);
    return at;
}

static terse_status grow(ts_name_set *set) {
    ts_name_set larger = {.capacity = set->capacity ? set->capacity * 2 : FIRST_CAPACITY, .count = set->count};
    larger.slots = ts_mem_calloc(larger.capacity, sizeof *larger.slots);
    TS_REQUIRE(larger.slots, TERSE_ENOMEM);
    for (size_t i = 0; i < set->capacity; i++)
        if (set->slots[i]) larger.slots[find(&larger, set->slots[i])] = set->slots[i];
    ts_mem_free(set->slots);
    *set = larger;
    return TERSE_OK;
}

terse_status ts_name_set_add(ts_name_set *set, const char *name, bool *added) {
    if (set->count * 2 >= set->capacity) TS_TRY(grow(set)); /* at most half full */
    size_t at = find(set, name);
    *added = !set->slots[at];
    if (*added) {
        set->slots[at] = name;
        set->count++;
    }
    return TERSE_OK;
}

void ts_name_set_clear(ts_name_set *set) {
    ts_mem_free(set->slots);
    *set = (ts_name_set){0};
}
