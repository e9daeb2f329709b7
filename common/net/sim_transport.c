/* SPDX-License-Identifier: Apache-2.0 */
#include "common/net/sim_transport.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/random.h"

/* A frame under way. */
typedef struct {
    uint64_t due_us, sequence; /* sequence breaks ties, so that equal times keep their order */
    uint32_t from, to;
    ts_buffer *frame; /* owned */
} flight;

typedef struct {
    uint32_t from;
    ts_buffer *frame;
} arrival;

typedef struct {
    ts_transport base;
    ts_sim_network *network;
    arrival *inbox; /* ring is not needed: poll empties it from the front */
    size_t inbox_count, inbox_room, inbox_next;
    ts_transport_counters counters;
    bool *dropped; /* peers this endpoint wants nothing of */
    bool *held_back;
} endpoint;

struct ts_sim_network {
    ts_sim_options options;
    uint32_t peers;
    endpoint *endpoints;
    ts_peer *names;
    ts_transport_job jobs[TS_SIM_JOBS];
    uint32_t job_count, joined;  /* in all; known to the servers */
    uint32_t arrived;            /* endpoints that are somebody's */
    bool *dead, *cut;       /* cut: peers × peers */
    bool *stopped;          /* does not read */
    flight *parked;         /* to those, in the order of sending */
    size_t parked_count, parked_room;
    size_t *queued;         /* peers × peers: bytes parked */
    uint64_t *last_due_us;  /* peers × peers: keeps order when !reorder */
    flight *heap;           /* binary heap by (due, sequence) */
    size_t count, room;
    uint64_t now_us, sequence;
    ts_random random;
};

static bool earlier(const flight *a, const flight *b) {
    return a->due_us != b->due_us ? a->due_us < b->due_us : a->sequence < b->sequence;
}

static void swap(flight *a, flight *b) {
    flight kept = *a;
    *a = *b;
    *b = kept;
}

static terse_status heap_push(ts_sim_network *net, const flight *added) {
    if (net->count == net->room) {
        size_t room = net->room ? net->room * 2 : 64;
        flight *grown = ts_mem_realloc(net->heap, room, sizeof *grown);
        TS_REQUIRE(grown, TERSE_ENOMEM);
        net->heap = grown;
        net->room = room;
    }
    size_t i = net->count++;
    net->heap[i] = *added;
    for (; i > 0 && earlier(&net->heap[i], &net->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        swap(&net->heap[i], &net->heap[(i - 1) / 2]);
    }
    return TERSE_OK;
}

static flight heap_pop(ts_sim_network *net) {
    flight top = net->heap[0];
    net->heap[0] = net->heap[--net->count];
    for (size_t i = 0;;) {
        size_t least = i, left = 2 * i + 1, right = left + 1;
        if (left < net->count && earlier(&net->heap[left], &net->heap[least])) least = left;
        if (right < net->count && earlier(&net->heap[right], &net->heap[least])) least = right;
        if (least == i) break;
        swap(&net->heap[i], &net->heap[least]);
        i = least;
    }
    return top;
}

static bool chance(ts_sim_network *net, double probability) {
    return probability > 0 && (double)ts_random_unit(ts_random_u32(&net->random)) < probability;
}

static uint64_t delay(ts_sim_network *net) {
    uint64_t span = net->options.delay_max_us - net->options.delay_min_us;
    if (span == 0) return net->options.delay_min_us;
    return net->options.delay_min_us + ts_random_below(&net->random, (uint32_t)(span + 1));
}

/* A private copy with one to three bits turned over. */
static terse_status corrupted(ts_sim_network *net, const ts_buffer *frame, ts_buffer **out) {
    ts_buffer *copy;
    TS_TRY(ts_buffer_create(frame->len, &copy));
    memcpy(copy->data, frame->data, frame->len);
    copy->len = frame->len;
    uint32_t flips = frame->len ? 1 + ts_random_below(&net->random, 3) : 0;
    for (uint32_t i = 0; i < flips; i++) {
        uint32_t bit = ts_random_below(&net->random, (uint32_t)(8 * frame->len));
        copy->data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    *out = copy;
    return TERSE_OK;
}

static terse_status park(ts_sim_network *net, const flight *added) {
    if (net->parked_count == net->parked_room) {
        size_t room = net->parked_room ? net->parked_room * 2 : 64;
        flight *grown = ts_mem_realloc(net->parked, room, sizeof *grown);
        TS_REQUIRE(grown, TERSE_ENOMEM);
        net->parked = grown;
        net->parked_room = room;
    }
    net->parked[net->parked_count++] = *added;
    net->queued[(size_t)added->from * net->peers + added->to] += added->frame->len;
    return TERSE_OK;
}

static terse_status launch(ts_sim_network *net, uint32_t from, uint32_t to, ts_buffer *frame) {
    size_t pair = (size_t)from * net->peers + to;
    flight added = {.due_us = net->now_us + delay(net), .sequence = net->sequence++, .from = from, .to = to};
    if (!net->options.reorder && added.due_us < net->last_due_us[pair]) added.due_us = net->last_due_us[pair];
    net->last_due_us[pair] = added.due_us;
    if (chance(net, net->options.corrupt)) TS_TRY(corrupted(net, frame, &added.frame));
    else added.frame = ts_buffer_ref(frame);
    terse_status status = net->stopped[to] ? park(net, &added) : heap_push(net, &added);
    if (status != TERSE_OK) ts_buffer_unref(added.frame);
    return status;
}

static bool reachable(const ts_sim_network *net, uint32_t from, uint32_t to) {
    return !net->dead[from] && !net->dead[to] && !net->cut[(size_t)from * net->peers + to];
}

/* frame: in a row. */
static terse_status send_flat(endpoint *self, uint32_t peer, ts_buffer *frame) {
    const ts_transport *transport = &self->base;
    ts_sim_network *net = self->network;
    if (frame->len > net->options.frame_limit_bytes) {
        self->counters.dropped++;
        return TERSE_ELIMIT;
    }
    self->counters.frames_out++;
    self->counters.bytes_out += frame->len;
    if (!reachable(net, transport->self, peer) || chance(net, net->options.drop)) return TERSE_OK;
    if (net->options.meddle) frame = net->options.meddle(net->options.meddler, net->now_us, transport->self, peer, frame);
    else ts_buffer_ref(frame);
    if (!frame) return TERSE_OK;
    terse_status status = launch(net, transport->self, peer, frame);
    if (status == TERSE_OK && chance(net, net->options.duplicate)) status = launch(net, transport->self, peer, frame);
    ts_buffer_unref(frame);
    return status;
}

static terse_status sim_send(ts_transport *transport, uint32_t peer, ts_buffer *frame) {
    endpoint *self = (endpoint *)transport;
    ts_buffer *flat;
    TS_REQUIRE(peer < self->network->peers && !self->dropped[peer], TERSE_EPEER);
    TS_TRY(ts_buffer_flat(frame, &flat));
    terse_status status = send_flat(self, peer, flat);
    ts_buffer_unref(flat);
    return status;
}

static bool sim_poll(ts_transport *transport) {
    endpoint *self = (endpoint *)transport;
    if (self->inbox_next == self->inbox_count) return false;
    arrival next = self->inbox[self->inbox_next++];
    if (self->inbox_next == self->inbox_count) self->inbox_next = self->inbox_count = 0;
    self->counters.frames_in++;
    self->counters.bytes_in += next.frame->len;
    if (self->dropped[next.from] || next.from >= transport->peer_count) self->counters.dropped++;
    else if (transport->handler.on_frame) transport->handler.on_frame(transport->handler.context, next.from, next.frame);
    ts_buffer_unref(next.frame);
    return true;
}

static size_t sim_queued(const ts_transport *transport, uint32_t peer) {
    const ts_sim_network *net = ((const endpoint *)transport)->network; /* which takes everything at once, else */
    return peer < net->peers ? net->queued[(size_t)transport->self * net->peers + peer] : 0;
}

static void sim_drop_peer(ts_transport *transport, uint32_t peer) {
    endpoint *self = (endpoint *)transport;
    if (peer < self->network->peers) self->dropped[peer] = true;
}

static void sim_hold_back(ts_transport *transport, uint32_t peer, bool ahead) {
    endpoint *self = (endpoint *)transport;
    if (peer < self->network->peers) self->held_back[peer] = ahead;
}

static uint64_t sim_now(const ts_transport *transport) { return ((const endpoint *)transport)->network->now_us; }

static void sim_counters(const ts_transport *transport, ts_transport_counters *out) {
    *out = ((const endpoint *)transport)->counters;
}

static void sim_destroy(ts_transport *transport) { (void)transport; /* the network owns its endpoints */ }

static const ts_transport_ops sim_ops = {sim_send, sim_poll,     sim_queued,  sim_drop_peer,
                                         sim_now,  sim_counters, sim_destroy, NULL, sim_hold_back};

static void count_jobs(ts_sim_network *net) {
    for (uint32_t j = 0; j < TS_SIM_JOBS && net->options.job_workers[j] > 0; j++) {
        net->jobs[j].workers = net->options.job_workers[j];
        net->job_count++;
    }
    if (net->job_count == 0) net->jobs[net->job_count++].workers = net->options.workers - net->options.late_workers;
    for (uint32_t j = 0; j < net->job_count; j++) snprintf(net->jobs[j].name, sizeof net->jobs[j].name, "job%u", j);
    if (net->job_count == 1) snprintf(net->jobs[0].name, sizeof net->jobs[0].name, "default"); /* as of a config that names none */
    net->joined = net->options.late_jobs < net->job_count ? net->job_count - net->options.late_jobs : 0;
}

static void name_peers(ts_sim_network *net) {
    uint32_t p = 0;
    for (; p < net->options.servers; p++) {
        net->names[p] = (ts_peer){.role = TS_ROLE_SERVER, .index = p};
        snprintf(net->names[p].name, sizeof net->names[p].name, "server %u", p);
    }
    for (uint32_t j = 0; j < net->job_count; j++) {
        for (uint32_t w = 0; w < net->jobs[j].workers; w++, p++) {
            net->names[p] = (ts_peer){.role = TS_ROLE_WORKER, .index = w, .job = j};
            if (net->job_count == 1) snprintf(net->names[p].name, sizeof net->names[p].name, "worker %u", w);
            else snprintf(net->names[p].name, sizeof net->names[p].name, "worker %u of %s", w, net->jobs[j].name);
        }
    }
    for (; p < net->peers; p++) net->names[p].role = TS_ROLE_NONE; /* nobody yet */
}

/* What a server knows of jobs. */
static void show_jobs(ts_sim_network *net, ts_transport *server) {
    server->job_count = net->joined;
    server->workers = 0;
    for (uint32_t j = 0; j < net->joined; j++) server->workers += net->jobs[j].workers;
    server->peer_count = net->options.servers + server->workers;
}

static terse_status make_endpoints(ts_sim_network *net) {
    for (uint32_t p = 0; p < net->peers; p++) {
        endpoint *self = &net->endpoints[p];
        self->network = net;
        self->dropped = ts_mem_calloc(net->peers, sizeof *self->dropped);
        self->held_back = ts_mem_calloc(net->peers, sizeof *self->held_back);
        TS_REQUIRE(self->dropped && self->held_back, TERSE_ENOMEM);
        self->base = (ts_transport){.ops = &sim_ops, .peers = net->names, .peer_count = net->peers, .self = p,
                                    .jobs = net->jobs, .job_count = net->job_count, .servers = net->options.servers,
                                    .workers = net->jobs[net->names[p].job].workers};
        if (p < net->options.servers) show_jobs(net, &self->base);
    }
    return TERSE_OK;
}

/* The first server that lives. */
static const ts_transport_handler *first_living(const ts_sim_network *network, uint32_t *number) {
    for (*number = 0; *number + 1 < network->options.servers && network->dead[*number];) ++*number;
    return &network->endpoints[*number].base.handler;
}

/* Whether that one leads. dead: [out] as it says. */
static bool is_led(const ts_sim_network *network, ts_dead_set *dead) {
    uint32_t number;
    const ts_transport_handler *leader = first_living(network, &number);
    return !leader->who_leads || leader->who_leads(leader->context, dead) == number;
}

bool ts_sim_join(ts_sim_network *network) {
    ts_dead_set dead = {0};
    if (network->joined == network->job_count || !is_led(network, &dead)) return false;
    for (uint32_t p = network->options.servers; p < network->peers; p++)
        if (network->names[p].job == network->joined) network->endpoints[p].base.absent = dead;
    network->joined++;
    for (uint32_t p = 0; p < network->options.servers; p++) {
        ts_transport *server = &network->endpoints[p].base;
        show_jobs(network, server);
        if (server->handler.on_jobs) server->handler.on_jobs(server->handler.context);
    }
    return true;
}

/* Server 0 gives the process a place, and the first `servers` let it in there. peer: [out] its endpoint. */
static terse_status let_in(ts_sim_network *network, const ts_transport_wish *wish, uint32_t servers, ts_transport_place *place,
                           uint32_t *peer, ts_error *reason) {
    uint32_t p = network->arrived, first;
    const ts_transport_handler *leader = first_living(network, &first);
    TS_REQUIRE(p < network->peers && leader->on_wish, TERSE_ELIMIT);
    TS_TRY(leader->on_wish(leader->context, wish, 1, place, reason));
    network->arrived++;
    network->names[p] = (ts_peer){.role = TS_ROLE_WORKER, .index = place->worker};
    snprintf(network->names[p].name, sizeof network->names[p].name, "worker %u (come as %u)", place->worker, p);
    network->endpoints[p].base.incarnation = place->incarnation;
    (void)is_led(network, &network->endpoints[p].base.absent);
    if (place->worker >= network->jobs[0].workers) network->jobs[0].workers = place->worker + 1;
    for (uint32_t s = 0; s < servers; s++) {
        ts_transport *server = &network->endpoints[s].base;
        server->peer_count = network->arrived;
        if (server->handler.on_workers) server->handler.on_workers(server->handler.context, p);
    }
    *peer = p;
    return TERSE_OK;
}

terse_status ts_sim_come(ts_sim_network *network, const ts_transport_wish *wish, uint32_t *worker, uint32_t *peer,
                         ts_error *reason) {
    ts_transport_place place = {0};
    TS_TRY(let_in(network, wish, network->options.servers, &place, peer, reason));
    *worker = place.worker;
    return TERSE_OK;
}

/* A new one dies when only server 0 has let it in: the others never learn of it. As soon as the job lets anybody in. */
static void come_in_vain(ts_sim_network *network) {
    const ts_transport_wish wish = {.job = "default", .wanted = TS_WORKER_ANY};
    ts_transport_handler *leader = &network->endpoints[0].base.handler;
    ts_transport_place place = {0};
    ts_error reason = {""};
    uint32_t peer;
    if (!network->options.vain || let_in(network, &wish, 1, &place, &peer, &reason) != TERSE_OK) return;
    network->options.vain = false;
    ts_sim_kill(network, peer);
    if (leader->on_lost) leader->on_lost(leader->context, peer);
}

void ts_sim_tell_lost(ts_sim_network *network, uint32_t peer) {
    for (uint32_t s = 0; s < network->options.servers; s++) {
        ts_transport_handler *handler = &network->endpoints[s].base.handler;
        if (handler->on_lost) handler->on_lost(handler->context, peer);
    }
}

terse_status ts_sim_network_create(const ts_sim_options *options, ts_sim_network **out) {
    TS_REQUIRE(options->delay_min_us <= options->delay_max_us, TERSE_EINVAL);
    TS_REQUIRE(options->delay_max_us - options->delay_min_us < UINT32_MAX, TERSE_EINVAL);
    ts_sim_network *net = ts_mem_calloc(1, sizeof *net);
    TS_REQUIRE(net, TERSE_ENOMEM);
    net->options = *options;
    count_jobs(net);
    net->peers = options->servers;
    for (uint32_t j = 0; j < net->job_count; j++) net->peers += net->jobs[j].workers;
    net->arrived = net->peers;
    net->peers += options->late_workers + options->spare;
    net->random = ts_random_start(ts_random_key(options->seed, 0, 0, 0, 1));
    size_t pairs = (size_t)net->peers * net->peers;
    net->endpoints = ts_mem_calloc(net->peers, sizeof *net->endpoints);
    net->names = ts_mem_calloc(net->peers, sizeof *net->names);
    net->dead = ts_mem_calloc(net->peers, sizeof *net->dead);
    net->cut = ts_mem_calloc(pairs, sizeof *net->cut);
    net->last_due_us = ts_mem_calloc(pairs, sizeof *net->last_due_us);
    net->stopped = ts_mem_calloc(net->peers, sizeof *net->stopped);
    net->queued = ts_mem_calloc(pairs, sizeof *net->queued);
    bool whole = net->endpoints && net->names && net->dead && net->cut && net->last_due_us && net->stopped && net->queued;
    if (!whole || (name_peers(net), make_endpoints(net) != TERSE_OK)) {
        ts_sim_network_destroy(net);
        return TERSE_ENOMEM;
    }
    *out = net;
    return TERSE_OK;
}

static void empty_inbox(endpoint *self) {
    for (; self->inbox_next < self->inbox_count; self->inbox_next++) ts_buffer_unref(self->inbox[self->inbox_next].frame);
    self->inbox_next = self->inbox_count = 0;
}

void ts_sim_network_destroy(ts_sim_network *network) {
    if (!network) return;
    while (network->count) ts_buffer_unref(heap_pop(network).frame);
    while (network->parked_count) ts_buffer_unref(network->parked[--network->parked_count].frame);
    for (uint32_t p = 0; network->endpoints && p < network->peers; p++) {
        empty_inbox(&network->endpoints[p]);
        ts_mem_free(network->endpoints[p].inbox);
        ts_mem_free(network->endpoints[p].dropped);
        ts_mem_free(network->endpoints[p].held_back);
    }
    ts_mem_free(network->heap);
    ts_mem_free(network->endpoints);
    ts_mem_free(network->names);
    ts_mem_free(network->dead);
    ts_mem_free(network->cut);
    ts_mem_free(network->last_due_us);
    ts_mem_free(network->stopped);
    ts_mem_free(network->parked);
    ts_mem_free(network->queued);
    ts_mem_free(network);
}

ts_transport *ts_sim_endpoint(ts_sim_network *network, uint32_t peer) { return &network->endpoints[peer].base; }

/* What is under way from or to a dead peer must not turn up after it has come back. */
static void forget_flights(ts_sim_network *net, uint32_t peer) {
    size_t count = net->count;
    net->count = 0;
    for (size_t i = 0; i < count; i++) {
        flight kept = net->heap[i];
        if (kept.from == peer || kept.to == peer) {
            ts_buffer_unref(kept.frame);
            continue;
        }
        terse_status status = heap_push(net, &kept); /* never grows: i is ahead of the heap's end */
        (void)status;
    }
}

/* Those from or to a peer leave the queues: into the air, or, when it is dead, into nothing. */
static void unpark(ts_sim_network *net, uint32_t peer, bool dead) {
    size_t kept = 0;
    for (size_t i = 0; i < net->parked_count; i++) {
        flight next = net->parked[i];
        if (next.to != peer && !(dead && next.from == peer)) {
            net->parked[kept++] = next;
            continue;
        }
        net->queued[(size_t)next.from * net->peers + next.to] -= next.frame->len;
        if (next.due_us < net->now_us) next.due_us = net->now_us;
        if (dead || heap_push(net, &next) != TERSE_OK) ts_buffer_unref(next.frame);
    }
    net->parked_count = kept;
}

void ts_sim_stop_reading(ts_sim_network *network, uint32_t peer, bool stopped) {
    network->stopped[peer] = stopped;
    if (!stopped) unpark(network, peer, false);
}

void ts_sim_kill(ts_sim_network *network, uint32_t peer) {
    unpark(network, peer, true);
    network->dead[peer] = true;
    forget_flights(network, peer);
    empty_inbox(&network->endpoints[peer]);
}

void ts_sim_revive(ts_sim_network *network, uint32_t peer) { network->dead[peer] = false; }

void ts_sim_cut(ts_sim_network *network, uint32_t a, uint32_t b, bool cut) {
    network->cut[(size_t)a * network->peers + b] = cut;
    network->cut[(size_t)b * network->peers + a] = cut;
}

bool ts_sim_held_back(const ts_sim_network *network, uint32_t server, uint32_t peer) {
    return network->endpoints[server].held_back[peer];
}

uint64_t ts_sim_now_us(const ts_sim_network *network) { return network->now_us; }

/* Into the receiver's inbox; without memory it is lost, as a network may lose it. */
static bool deliver(ts_sim_network *net, const flight *due) {
    endpoint *to = &net->endpoints[due->to];
    if (!reachable(net, due->from, due->to)) return false;
    if (to->inbox_count == to->inbox_room) {
        size_t room = to->inbox_room ? to->inbox_room * 2 : 16;
        arrival *grown = ts_mem_realloc(to->inbox, room, sizeof *grown);
        if (!grown) return false;
        to->inbox = grown;
        to->inbox_room = room;
    }
    to->inbox[to->inbox_count++] = (arrival){.from = due->from, .frame = due->frame};
    return true;
}

bool ts_sim_step(ts_sim_network *network, uint64_t until_us, uint32_t *peer) {
    come_in_vain(network);
    while (network->count && network->heap[0].due_us <= until_us) {
        flight due = heap_pop(network);
        if (due.due_us > network->now_us) network->now_us = due.due_us;
        if (deliver(network, &due)) {
            *peer = due.to;
            return true;
        }
        ts_buffer_unref(due.frame);
    }
    if (until_us > network->now_us) network->now_us = until_us;
    return false;
}
