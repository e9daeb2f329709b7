/* SPDX-License-Identifier: Apache-2.0 */
#include "common/net/transport_view.h"

#include "common/base/mem.h"

typedef struct {
    ts_transport transport;
    ts_transport *base;
} transport_view;

static ts_transport *base_of(const ts_transport *transport) { return ((const transport_view *)transport)->base; }

static bool shows(const ts_transport *transport, uint32_t peer) {
    return peer < transport->peer_count && transport->peers[peer].role != TS_ROLE_NONE;
}

static terse_status view_send(ts_transport *transport, uint32_t peer, ts_buffer *frame) {
    TS_REQUIRE(shows(transport, peer), TERSE_EPEER);
    return base_of(transport)->ops->send(base_of(transport), peer, frame);
}

static bool view_poll(ts_transport *transport) {
    (void)transport;
    return false;
}

static size_t view_queued(const ts_transport *transport, uint32_t peer) {
    return shows(transport, peer) ? base_of(transport)->ops->queued(base_of(transport), peer) : 0;
}

static void view_drop_peer(ts_transport *transport, uint32_t peer) {
    if (shows(transport, peer)) base_of(transport)->ops->drop_peer(base_of(transport), peer);
}

static uint64_t view_now_us(const ts_transport *transport) { return base_of(transport)->ops->now_us(base_of(transport)); }

static void view_counters(const ts_transport *transport, ts_transport_counters *out) {
    base_of(transport)->ops->counters(base_of(transport), out);
}

static void view_destroy(ts_transport *transport) { ts_mem_free(transport); }

static const ts_transport_ops view_ops = {
    .send = view_send,
    .poll = view_poll,
    .queued = view_queued,
    .drop_peer = view_drop_peer,
    .now_us = view_now_us,
    .counters = view_counters,
    .destroy = view_destroy,
};

terse_status ts_transport_view_create(ts_transport *base, const ts_group_view *view, ts_transport **out) {
    transport_view *made = ts_mem_calloc(1, sizeof *made);
    TS_REQUIRE(made, TERSE_ENOMEM);
    made->base = base;
    made->transport = (ts_transport){.ops = &view_ops, .peers = view->peers, .peer_count = base->peer_count,
                                     .jobs = view->jobs, .job_count = view->job_count, .self = base->self,
                                     .servers = view->servers, .workers = view->workers, .pool = base->pool};
    *out = &made->transport;
    return TERSE_OK;
}
