/* SPDX-License-Identifier: Apache-2.0 */
#include "common/relay/relay_link.h"

#include <pthread.h>

#include "common/base/mem.h"

typedef struct letter {
    struct letter *next;
    ts_buffer *frame; /* [own] one reference */
    uint32_t peer;
} letter;

typedef struct {
    ts_transport base;
    ts_transport *real;
    pthread_mutex_t mutex; /* over all that follows */
    letter *first, **last;
    size_t *waiting;       /* [own] bytes a peer in the queue */
    size_t *beyond;        /* [own] bytes a peer in the real transport, as of the last drain */
} relay_link;

static terse_status link_send(ts_transport *transport, uint32_t peer, ts_buffer *frame) {
    relay_link *link = (relay_link *)transport;
    TS_REQUIRE(peer < transport->peer_count, TERSE_EPEER);
    letter *made = ts_mem_calloc(1, sizeof *made);
    TS_REQUIRE(made, TERSE_ENOMEM);
    *made = (letter){.frame = ts_buffer_ref(frame), .peer = peer};
    pthread_mutex_lock(&link->mutex);
    *link->last = made;
    link->last = &made->next;
    link->waiting[peer] += ts_buffer_bytes(frame);
    pthread_mutex_unlock(&link->mutex);
    return TERSE_OK;
}

bool ts_relay_link_drain(ts_transport *transport) {
    relay_link *link = (relay_link *)transport;
    pthread_mutex_lock(&link->mutex);
    letter *list = link->first;
    link->first = NULL;
    link->last = &link->first;
    pthread_mutex_unlock(&link->mutex);
    bool any = list != NULL;
    while (list) {
        letter *next = list->next;
        size_t bytes = ts_buffer_bytes(list->frame);
        (void)!link->real->ops->send(link->real, list->peer, list->frame); /* what is lost the client repeats */
        pthread_mutex_lock(&link->mutex);
        link->waiting[list->peer] -= bytes;
        pthread_mutex_unlock(&link->mutex);
        ts_buffer_unref(list->frame);
        ts_mem_free(list);
        list = next;
    }
    pthread_mutex_lock(&link->mutex);
    for (uint32_t p = 0; p < transport->peer_count; p++) link->beyond[p] = link->real->ops->queued(link->real, p);
    pthread_mutex_unlock(&link->mutex);
    return any;
}

/* Frames come in through the real transport's handler, which the relay forwards. */
static bool link_poll(ts_transport *transport) {
    (void)transport;
    return false;
}

static size_t link_queued(const ts_transport *transport, uint32_t peer) {
    relay_link *link = (relay_link *)(uintptr_t)transport;
    if (peer >= transport->peer_count) return 0;
    pthread_mutex_lock(&link->mutex);
    size_t bytes = link->waiting[peer] + link->beyond[peer];
    pthread_mutex_unlock(&link->mutex);
    return bytes;
}

static void link_drop_peer(ts_transport *transport, uint32_t peer) {
    relay_link *link = (relay_link *)transport;
    link->real->ops->drop_peer(link->real, peer);
}

static uint64_t link_now_us(const ts_transport *transport) {
    const relay_link *link = (const relay_link *)transport;
    return link->real->ops->now_us(link->real);
}

static void link_counters(const ts_transport *transport, ts_transport_counters *out) {
    const relay_link *link = (const relay_link *)transport;
    link->real->ops->counters(link->real, out);
}

static void link_destroy(ts_transport *transport) {
    relay_link *link = (relay_link *)transport;
    while (link->first) {
        letter *next = link->first->next;
        ts_buffer_unref(link->first->frame);
        ts_mem_free(link->first);
        link->first = next;
    }
    pthread_mutex_destroy(&link->mutex);
    ts_mem_free(link->waiting);
    ts_mem_free(link->beyond);
    ts_mem_free(link);
}

static const ts_transport_ops link_ops = {
    .send = link_send,
    .poll = link_poll,
    .queued = link_queued,
    .drop_peer = link_drop_peer,
    .now_us = link_now_us,
    .counters = link_counters,
    .destroy = link_destroy,
};

terse_status ts_relay_link_create(ts_transport *real, ts_transport **out) {
    relay_link *link = ts_mem_calloc(1, sizeof *link);
    TS_REQUIRE(link, TERSE_ENOMEM);
    if (pthread_mutex_init(&link->mutex, NULL) != 0) {
        ts_mem_free(link);
        return TERSE_ENOMEM;
    }
    link->base = *real;
    link->base.ops = &link_ops;
    link->base.handler = (ts_transport_handler){0};
    link->real = real;
    link->last = &link->first;
    link->waiting = ts_mem_calloc(real->peer_count, sizeof *link->waiting);
    link->beyond = ts_mem_calloc(real->peer_count, sizeof *link->beyond);
    if (!link->waiting || !link->beyond) {
        link_destroy(&link->base);
        return TERSE_ENOMEM;
    }
    *out = &link->base;
    return TERSE_OK;
}
