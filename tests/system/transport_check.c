/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks flood each other through the MPI transport and check every byte.
 *
 *   mpirun --tune configs/openmpi.conf -n 4 transport_check [frames=N] [window=BYTES] [seed=N]
 *     kill=RANK      that rank kills itself in the middle; the others must not mind
 *     absent=RANK    that rank initialises MPI and never joins the roll call
 *     small=RANK     that rank accepts frames up to 64 KiB only: larger ones are lost and counted, nothing else
 *     user=1         MPI is initialised by the program, single-threaded, and finalised by it
 *     deadline=S     of roll call and silence; 20 when not given
 *     ahead=1        of four ranks: 1 and 3 send rank 0 their frames, and 1 is held back while those of 3 come
 *     turns=1        of three ranks: rank 1 has sent rank 0 all its frames before rank 2 sends one; whose turn comes when
 *
 * Both ends derive size and bytes of frame n from (seed, sender, receiver, n). Each rank that succeeds prints
 * "transport_check: rank R of N ok ..."; exit codes of mpirun prove nothing.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "common/base/bytes.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/net/mpi_transport.h"
#include "common/net/pump.h"

#define LIMIT_BYTES (16u << 20)
#define SMALL_LIMIT_BYTES (64u << 10)
#define BACKLOG_BYTES (8u << 20)
#define TICK_MS 20

typedef struct {
    uint64_t sent, got, lost; /* frames to it and of it; lost: over its receiver's limit */
    uint64_t bytes_got, heard_us;
    size_t queued;
    bool gone;
} peer_check;

typedef struct {
    uint64_t frames, window, seed, deadline_s, user, jobs, turns, ahead;
    long kill, absent, small;
    ts_transport *transport;
    peer_check *peers;
    uv_loop_t loop;
    uv_timer_t tick;
    ts_pump *pump;
    uint64_t wrong, refused;
    bool over;
} check;

/* Mostly small, as frames are; some of no bytes, some of several chunks, some on the borders. */
static size_t size_of(uint64_t key) {
    static const size_t borders[] = {0, 1, 4095, 4096, 4097, 65535, 65536, 65537, (4u << 20) - 1, 4u << 20, (4u << 20) + 1};
    uint64_t kind = key % 100;
    uint64_t draw = ts_mix64(key);
    if (kind < 15) return borders[draw % (sizeof borders / sizeof borders[0])];
    if (kind < 80) return draw % 600;
    if (kind < 95) return draw % 100000;
    return draw % (12u << 20);
}

static uint64_t key_of(const check *c, uint32_t from, uint32_t to, uint64_t n) {
    return ts_random_key(c->seed, n, from, to, 77);
}

static uint8_t byte_tail(uint64_t key, size_t at) { return (uint8_t)(ts_mix64(key + at / 8) >> (8 * (at % 8))); }

static void fill(uint8_t *bytes, size_t len, uint64_t key) {
    size_t at = 0;
    for (; at + 8 <= len; at += 8) ts_store_u64(bytes + at, ts_mix64(key + at / 8));
    for (; at < len; at++) bytes[at] = byte_tail(key, at);
}

static bool matches(const uint8_t *bytes, size_t len, uint64_t key) {
    size_t at = 0;
    for (; at + 8 <= len; at += 8) {
        if (ts_load_u64(bytes + at) != ts_mix64(key + at / 8)) return false;
    }
    for (; at < len; at++) {
        if (bytes[at] != byte_tail(key, at)) return false;
    }
    return true;
}

/* Frames that are over this rank's limit never arrive; the next one that does tells how many those were. */
static void skip_lost(check *c, uint32_t peer) {
    peer_check *p = &c->peers[peer];
    if (c->small != (long)c->transport->self && c->small != (long)peer) return; /* nor does it send any */
    while (p->got < c->frames && size_of(key_of(c, peer, c->transport->self, p->got)) > SMALL_LIMIT_BYTES) {
        p->got++;
        p->lost++;
    }
}

static void on_frame(void *context, uint32_t peer, ts_buffer *frame) {
    check *c = context;
    peer_check *p = &c->peers[peer];
    skip_lost(c, peer);
    uint64_t key = key_of(c, peer, c->transport->self, p->got);
    if (p->got >= c->frames || frame->len != size_of(key) || !matches(frame->data, frame->len, key)) {
        if (c->wrong++ == 0) fprintf(stderr, "transport_check: frame %lu of rank %u is wrong\n", (unsigned long)p->got, peer);
    }
    p->got++;
    p->bytes_got += frame->len;
    p->heard_us = c->transport->ops->now_us(c->transport);
    skip_lost(c, peer);
    if (c->kill == (long)c->transport->self && p->got > c->frames / 2) kill(getpid(), SIGKILL);
}

/*
 * A frame of bytes that are a function of key. Of every second one the middle lies elsewhere, between few bytes at its ends,
 * or between more than a transport sends apart.
 */
static ts_buffer *make_frame(size_t len, uint64_t key) {
    ts_buffer *flat, *parted;
    if (ts_buffer_create(len + 1, &flat) != TERSE_OK) return NULL;
    fill(flat->data, len, key);
    flat->len = len;
    size_t head = key % 32 ? key / 64 % 200 : len / 2, tail = key / 4096 % 200;
    if (key % 2 || head + tail >= len) return flat;
    terse_status status = ts_buffer_create(head + tail + 1, &parted);
    if (status == TERSE_OK) {
        memcpy(parted->data, flat->data, head);
        parted->len = head;
        ts_buffer_put_outside(parted, flat->data + head, len - head - tail, flat);
        memcpy(parted->data + head, flat->data + len - tail, tail);
        parted->len += tail;
    }
    ts_buffer_unref(flat);
    return status == TERSE_OK ? parted : NULL;
}

static void send_more(check *c) {
    ts_transport *t = c->transport;
    for (uint32_t p = 0; p < t->peer_count; p++) {
        peer_check *peer = &c->peers[p];
        while (p != t->self && !peer->gone && peer->sent < c->frames && t->ops->queued(t, p) < BACKLOG_BYTES) {
            uint64_t key = key_of(c, t->self, p, peer->sent);
            size_t len = size_of(key);
            ts_buffer *frame = make_frame(len, key);
            if (!frame) return;
            terse_status status = t->ops->send(t, p, frame);
            ts_buffer_unref(frame);
            bool over = c->small == (long)t->self && len > SMALL_LIMIT_BYTES;
            if (status != (over ? TERSE_ELIMIT : TERSE_OK)) c->wrong++;
            c->refused += over;
            peer->sent++;
        }
    }
}

static bool all_done(check *c) {
    for (uint32_t p = 0; p < c->transport->peer_count; p++) {
        skip_lost(c, p);
        const peer_check *peer = &c->peers[p];
        bool done = peer->sent == c->frames && peer->got == c->frames && c->transport->ops->queued(c->transport, p) == 0;
        if (p != c->transport->self && !peer->gone && !done) return false;
    }
    return true;
}

static void stop(check *c) {
    if (c->over) return;
    c->over = true;
    uv_close((uv_handle_t *)&c->tick, NULL);
    ts_pump_close(c->pump, NULL);
}

static void after_poll(void *context, bool moved) {
    check *c = context;
    (void)moved;
    send_more(c);
    if (all_done(c)) stop(c);
}

static void on_tick(uv_timer_t *timer) {
    check *c = timer->data;
    uint64_t now = c->transport->ops->now_us(c->transport);
    for (uint32_t p = 0; p < c->transport->peer_count; p++) {
        peer_check *peer = &c->peers[p];
        size_t queued = c->transport->ops->queued(c->transport, p);
        if (queued < peer->queued) peer->heard_us = now; /* it takes, if it has no more to give */
        peer->queued = queued;
        if (p == c->transport->self || peer->gone || (peer->got == c->frames && queued == 0)) continue;
        if (now - peer->heard_us < c->deadline_s * 1000000u) continue;
        if (c->kill != (long)p) c->wrong++;
        fprintf(stderr, "transport_check: rank %u: %s is silent\n", c->transport->self, c->transport->peers[p].name);
        peer->gone = true;
        c->transport->ops->drop_peer(c->transport, p);
    }
    ts_pump_wake(c->pump);
}

/* Worker w is of job w modulo `jobs`; each job counts its own workers. */
static void check_jobs(check *c) {
    const ts_transport *t = c->transport;
    uint32_t workers = 0;
    for (uint32_t p = 0; p < t->peer_count; p++) {
        const ts_peer *peer = &t->peers[p];
        if (peer->role != TS_ROLE_WORKER) continue;
        uint32_t w = workers++, job = w % (uint32_t)c->jobs;
        if (peer->job != job || peer->index != w / c->jobs || ts_transport_worker(t, job, peer->index) != p) c->wrong++;
        if ((strstr(peer->name, " of job j") != NULL) != (t->job_count > 1)) c->wrong++;
    }
    uint32_t in_jobs = 0;
    for (uint32_t j = 0; j < t->job_count; j++) in_jobs += t->jobs[j].workers;
    if (in_jobs != workers || t->job_count != (workers < c->jobs ? workers : c->jobs)) c->wrong++;
}

/* The workers of a job get a communicator of their own, servers a refusal. */
static void check_workers_comm(check *c) {
    MPI_Comm comm;
    const ts_peer *self = &c->transport->peers[c->transport->self];
    int size = 0, rank = -1, sum = 0, job = (int)self->job;
    bool worker = c->transport->peers[c->transport->self].role == TS_ROLE_WORKER;
    terse_status status = ts_mpi_transport_workers_comm(c->transport, &comm);
    if (status == TERSE_OK) {
        MPI_Comm_size(comm, &size);
        MPI_Comm_rank(comm, &rank);
        MPI_Allreduce(&job, &sum, 1, MPI_INT, MPI_SUM, comm);
        if (rank != (int)self->index || sum != job * size || size != (int)c->transport->jobs[job].workers) c->wrong++;
    }
    if (status != (worker ? TERSE_OK : TERSE_ESTATE) || (worker && size != (int)c->transport->workers)) c->wrong++;
    if (c->user && ts_mpi_transport_multiple(c->transport)) c->wrong++;
}

static int run(check *c) {
    ts_transport *t = c->transport;
    c->peers = ts_mem_calloc(t->peer_count, sizeof *c->peers);
    if (!c->peers) return 1;
    for (uint32_t p = 0; p < t->peer_count; p++) c->peers[p].heard_us = t->ops->now_us(t);
    t->handler = (ts_transport_handler){.context = c, .on_frame = on_frame};
    ts_pump_options options = {.context = c, .after_poll = after_poll};
    uv_loop_init(&c->loop);
    uv_timer_init(&c->loop, &c->tick);
    c->tick.data = c;
    uv_timer_start(&c->tick, on_tick, TICK_MS, TICK_MS);
    if (ts_pump_create(&c->loop, t, &options, &c->pump) != TERSE_OK) return 1;
    uv_run(&c->loop, UV_RUN_DEFAULT);
    uv_loop_close(&c->loop);
    uint64_t frames = 0, bytes = 0, lost = 0;
    bool bereft = false;
    for (uint32_t p = 0; p < t->peer_count; p++) {
        frames += c->peers[p].got - c->peers[p].lost;
        bytes += c->peers[p].bytes_got;
        lost += c->peers[p].lost;
        bereft = bereft || c->peers[p].gone;
    }
    ts_transport_counters counters;
    t->ops->counters(t, &counters);
    bool ok = c->wrong == 0 && counters.frames_in == frames && (c->small != (long)t->self || counters.dropped == lost + c->refused);
    printf("transport_check: rank %u of %u %s frames=%lu bytes=%lu lost=%lu dropped=%lu bells=%d multiple=%d recovery=%d near=%zu\n",
           t->self, t->peer_count, ok ? "ok" : "WRONG", (unsigned long)frames, (unsigned long)bytes, (unsigned long)lost,
           (unsigned long)counters.dropped, ts_mpi_transport_bell_complete(t), ts_mpi_transport_multiple(t),
           ts_mpi_recovery_on(), t->near_bytes);
    fflush(stdout);
    ts_mem_free(c->peers);
    ts_mpi_transport_finish(t, 2000000, !bereft, ok ? 0 : 1);
    return ok ? 0 : 1;
}

/* ---- turns ------------------------------------------------------------------------------------------------------------ */

#define TURN_BYTES 1000u
#define TURN_TAG 7
#define TURNS_MOST 10u /* frames of the flood that may come before the one of the other; round robin makes it one or two */

static void on_turn(void *context, uint32_t peer, ts_buffer *frame) {
    check *c = context;
    if (frame->len != TURN_BYTES) c->wrong++;
    if (peer == 2 && c->peers[1].got > TURNS_MOST) c->wrong++;
    c->peers[peer].got++;
}

/* Hands frames to MPI, all of them. */
static void send_turns(check *c, uint64_t count) {
    ts_transport *t = c->transport;
    ts_buffer *frame;
    if (ts_buffer_create(TURN_BYTES, &frame) != TERSE_OK) exit(1);
    memset(frame->data, 0, TURN_BYTES);
    frame->len = TURN_BYTES;
    for (uint64_t n = 0; n < count; n++)
        if (t->ops->send(t, 0, frame) != TERSE_OK) c->wrong++;
    ts_buffer_unref(frame);
    while (t->ops->queued(t, 0) > 0) t->ops->poll(t);
}

/* Rank 1 tells rank 2, and rank 2 rank 0, when its frames are with MPI; rank 0 looks at none before. */
static int run_turns(check *c) {
    ts_transport *t = c->transport;
    uint32_t self = t->self;
    char word = 0;
    c->peers = ts_mem_calloc(t->peer_count, sizeof *c->peers);
    if (!c->peers || t->peer_count != 3) return 1;
    t->handler = (ts_transport_handler){.context = c, .on_frame = on_turn};
    if (self == 2) MPI_Recv(&word, 1, MPI_CHAR, 1, TURN_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (self == 0) MPI_Recv(&word, 1, MPI_CHAR, 2, TURN_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else send_turns(c, self == 1 ? c->frames : 1);
    if (self != 0) MPI_Send(&word, 1, MPI_CHAR, self == 1 ? 2 : 0, TURN_TAG, MPI_COMM_WORLD);
    while (self == 0 && c->peers[1].got + c->peers[2].got < c->frames + 1) t->ops->poll(t);
    printf("transport_check: rank %u of %u %s frames=%lu bells=%d\n", self, t->peer_count, c->wrong ? "WRONG" : "ok",
           (unsigned long)(self ? 0 : c->frames + 1), ts_mpi_transport_bell_complete(t));
    fflush(stdout);
    ts_mem_free(c->peers);
    ts_mpi_transport_finish(t, 2000000, true, c->wrong ? 1 : 0);
    return c->wrong ? 1 : 0;
}

/* ---- who is ahead ----------------------------------------------------------------------------------------------------- */

#define AHEAD_BYTES ((size_t)256 << 10)
#define AHEAD_MOST 8u        /* frames of a window and more that may still come */
#define AHEAD_GAP_US 150000u /* who waits longer for the others' next frame cannot tell: then nobody is held back */

typedef struct {
    check *check;
    uint64_t held_at, last_us; /* frames of rank 1 when it was held back; 0: it was not. The last frame of rank 3 */
    bool slow;
} ahead_check;

static void on_ahead(void *context, uint32_t peer, ts_buffer *frame) {
    ahead_check *a = context;
    check *c = a->check;
    uint64_t now = c->transport->ops->now_us(c->transport);
    if (frame->len != AHEAD_BYTES || !matches(frame->data, frame->len, peer)) c->wrong++;
    c->peers[peer].got++;
    if (peer == 3) {
        a->slow = a->slow || (a->held_at && now - a->last_us > AHEAD_GAP_US);
        a->last_us = now;
    }
    if (a->held_at || !c->peers[1].got || !c->peers[3].got) return;
    a->held_at = c->peers[1].got;
    c->transport->ops->hold_back(c->transport, 1, true);
}

static void send_ahead(check *c) {
    ts_transport *t = c->transport;
    ts_buffer *frame;
    if (ts_buffer_create(AHEAD_BYTES, &frame) != TERSE_OK) exit(1);
    fill(frame->data, AHEAD_BYTES, t->self);
    frame->len = AHEAD_BYTES;
    for (uint64_t n = 0; n < c->frames; n++)
        if (t->ops->send(t, 0, frame) != TERSE_OK) c->wrong++;
    ts_buffer_unref(frame);
    while (t->ops->queued(t, 0) > 0) t->ops->poll(t);
}

/* It is never told that rank 1 may go on: when nothing comes of rank 3 any more, the rest of rank 1 does all the same. */
static int run_ahead(check *c) {
    ts_transport *t = c->transport;
    ahead_check a = {.check = c};
    c->peers = ts_mem_calloc(t->peer_count, sizeof *c->peers);
    if (!c->peers || t->peer_count != 4) return 1;
    t->handler = (ts_transport_handler){.context = &a, .on_frame = on_ahead};
    if (t->self % 2) send_ahead(c);
    while (t->self == 0 && c->peers[3].got < c->frames) t->ops->poll(t);
    bool waits = t->self != 0 || a.slow || c->peers[1].got - a.held_at <= AHEAD_MOST;
    while (t->self == 0 && c->peers[1].got < c->frames) t->ops->poll(t);
    if (!waits) c->wrong++;
    printf("transport_check: rank %u of %u %s slow=%d bells=%d\n", t->self, t->peer_count, c->wrong ? "WRONG" : "ok", a.slow,
           ts_mpi_transport_bell_complete(t));
    fflush(stdout);
    ts_mem_free(c->peers);
    ts_mpi_transport_finish(t, 2000000, true, c->wrong ? 1 : 0);
    return c->wrong ? 1 : 0;
}

static void read_words(check *c, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        unsigned long value;
        char name[16];
        if (sscanf(argv[i], "%15[a-z]=%lu", name, &value) != 2) continue;
        if (!strcmp(name, "frames")) c->frames = value;
        if (!strcmp(name, "window")) c->window = value;
        if (!strcmp(name, "seed")) c->seed = value;
        if (!strcmp(name, "deadline")) c->deadline_s = value;
        if (!strcmp(name, "user")) c->user = value;
        if (!strcmp(name, "turns")) c->turns = value;
        if (!strcmp(name, "ahead")) c->ahead = value;
        if (!strcmp(name, "jobs") && value > 0) c->jobs = value;
        if (!strcmp(name, "kill")) c->kill = (long)value;
        if (!strcmp(name, "absent")) c->absent = (long)value;
        if (!strcmp(name, "small")) c->small = (long)value;
    }
}

int main(int argc, char **argv) {
    check c = {.frames = 300, .window = 8u << 20, .seed = 1, .deadline_s = 20, .jobs = 1, .kill = -1, .absent = -1, .small = -1};
    read_words(&c, argc, argv);
    const char *word = getenv("OMPI_COMM_WORLD_RANK");
    long rank = word ? strtol(word, NULL, 10) : 0;
    if (rank == c.absent || c.user) MPI_Init(NULL, NULL);
    if (rank == c.absent) sleep(600);
    ts_mpi_options options = {.role = rank % 2 ? TS_ROLE_WORKER : TS_ROLE_SERVER, .window_bytes = c.window,
                              .start_us = c.deadline_s * 1000000u, .deadline_us = c.deadline_s * 1000000u,
                              .needs_multiple = rank % 2,
                              .frame_limit_bytes = rank == c.small ? SMALL_LIMIT_BYTES : LIMIT_BYTES};
    char job[TS_JOB_NAME_CHARS];
    snprintf(job, sizeof job, "j%lu", (unsigned long)rank / 2 % c.jobs);
    options.job = job;
    ts_error error = {""};
    terse_status status = ts_mpi_transport_create(&options, &c.transport, &error);
    if (status != TERSE_OK) {
        fprintf(stderr, "transport_check: rank %ld: %s: %s\n", rank, terse_status_name(status), error.text);
        ts_mpi_abandon(status == TERSE_ETIMEDOUT ? 4 : 1);
    }
    check_jobs(&c);
    check_workers_comm(&c);
    int code = c.turns ? run_turns(&c) : c.ahead ? run_ahead(&c) : run(&c);
    if (c.user) MPI_Finalize();
    return code;
}
