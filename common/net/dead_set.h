/* SPDX-License-Identifier: Apache-2.0 */
/* Which servers of a daemon with replicas are dead. Plain bytes: travels between processes of one architecture. Thread: any. */
#ifndef TS_NET_DEAD_SET_H
#define TS_NET_DEAD_SET_H

#include <stdbool.h>
#include <stdint.h>

#define TS_DEAD_SERVERS_MOST 4096u /* numbers are below: no daemon has more servers */

typedef struct {
    uint32_t count;
    uint8_t bits[TS_DEAD_SERVERS_MOST / 8];
} ts_dead_set;

static inline bool ts_dead_set_has(const ts_dead_set *set, uint32_t server) {
    return set->count > 0 && server < TS_DEAD_SERVERS_MOST && (set->bits[server / 8] >> server % 8 & 1);
}

static inline void ts_dead_set_add(ts_dead_set *set, uint32_t server) {
    if (server >= TS_DEAD_SERVERS_MOST || ts_dead_set_has(set, server)) return;
    set->bits[server / 8] |= (uint8_t)(1u << server % 8);
    set->count++;
}

#endif
