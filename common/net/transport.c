/* SPDX-License-Identifier: Apache-2.0 */
#include "common/net/transport.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/cpu.h"

uint32_t ts_transport_find(const ts_transport *transport, ts_role role, uint32_t index) {
    uint32_t job = transport->peers[transport->self].job;
    if (role == TS_ROLE_WORKER) return ts_transport_worker(transport, job, index);
    for (uint32_t p = 0; p < transport->peer_count; p++) {
        if (transport->peers[p].role == role && transport->peers[p].index == index) return p;
    }
    return transport->peer_count;
}

uint32_t ts_transport_worker(const ts_transport *transport, uint32_t job, uint32_t index) {
    for (uint32_t p = 0; p < transport->peer_count; p++) {
        const ts_peer *peer = &transport->peers[p];
        if (peer->role == TS_ROLE_WORKER && peer->job == job && peer->index == index) return p;
    }
    return transport->peer_count;
}

/* Cores between so many times the processes and twice as many, unless the environment says how many threads there shall be. */
static bool few_cores(const ts_transport *transport, unsigned from) {
    const char *threads = getenv("TERSE_THREADS");
    unsigned cores = ts_cpu_cores(), processes = transport->neighbours;
    if (threads && strcmp(threads, "one") == 0) return true;
    if (threads && strcmp(threads, "several") == 0) return false;
    return cores >= from * processes && cores < 2 * processes;
}

bool ts_transport_crowded(const ts_transport *transport) { return few_cores(transport, 0); }

bool ts_transport_one_each(const ts_transport *transport) { return few_cores(transport, 1); }
