/* SPDX-License-Identifier: Apache-2.0 */
#include "common/net/transport.h"

uint32_t ts_transport_find(const ts_transport *transport, ts_role role, uint32_t index) {
    for (uint32_t p = 0; p < transport->peer_count; p++) {
        if (transport->peers[p].role == role && transport->peers[p].index == index) return p;
    }
    return transport->peer_count;
}
