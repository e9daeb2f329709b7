/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/client/comm_thread.h"

#include <signal.h>
#include <stdatomic.h>
#include <uv.h>

#include "common/base/mem.h"
#include "common/net/mpi_transport.h"
#include "common/net/pump.h"

#define TICK_MS 50u
#define CALL_EVERY_US 500u

typedef struct mail {
    struct mail *next;
    uint32_t peer;
    ts_buffer *frame; /* a reference */
} mail;

struct ts_comm_thread {
    ts_transport stand_in; /* first: the ops get it back by a cast */
    ts_comm_options options;
    mail *first, **last;   /* under the mutex */
    size_t *mailed_bytes;  /* a peer; under the mutex */
    atomic_bool has_mail;
    atomic_bool stopping;
    bool started;
    pthread_mutex_t driver; /* around every use of the real transport; taken before the options' mutex, never after */
    atomic_uint driven;     /* user threads that move bytes themselves */
    atomic_uint_fast64_t called_us; /* when it was last called to take over */
    atomic_bool busy;       /* the transport had requests under way when the last of them looked */
    bool delivered;         /* under driver */
    pthread_t thread;
    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t ticker;
    ts_pump *pump;
    void (*tick)(void *context);
    void *tick_context;
};

static ts_comm_thread *of(const ts_transport *transport) { return (ts_comm_thread *)(uintptr_t)transport; }

static bool on_loop_thread(const ts_comm_thread *comm) {
    return comm->started && pthread_equal(comm->thread, pthread_self());
}

/* ---- the stand-in's operations ---- */

/* frame: NULL to drop the peer. */
static terse_status post(ts_comm_thread *comm, uint32_t peer, ts_buffer *frame) {
    TS_REQUIRE(peer < comm->stand_in.peer_count, TERSE_EPEER);
    mail *letter = ts_mem_calloc(1, sizeof *letter);
    TS_REQUIRE(letter, TERSE_ENOMEM);
    letter->peer = peer;
    if (frame) letter->frame = ts_buffer_ref(frame);
    *comm->last = letter;
    comm->last = &letter->next;
    if (frame) comm->mailed_bytes[peer] += ts_buffer_bytes(frame);
    /*
     * One wake-up suffices until the queue is emptied; the loop's own mail leaves at the end of its callback, and who moves
     * bytes itself looks here before it rests.
     */
    bool first = !atomic_exchange(&comm->has_mail, true);
    if (first && comm->started && !on_loop_thread(comm) && atomic_load(&comm->driven) == 0) uv_async_send(&comm->wake);
    return TERSE_OK;
}

static terse_status mail_send(ts_transport *transport, uint32_t peer, ts_buffer *frame) {
    return post(of(transport), peer, frame);
}

static bool mail_poll(ts_transport *transport) {
    (void)transport;
    return false; /* the loop polls */
}

static size_t mail_queued(const ts_transport *transport, uint32_t peer) {
    const ts_comm_thread *comm = of(transport);
    if (peer >= transport->peer_count) return 0;
    size_t real = on_loop_thread(comm) ? comm->options.transport->ops->queued(comm->options.transport, peer) : 0;
    return comm->mailed_bytes[peer] + real;
}

/* After what was sent to it before; without memory it stays, and is only spoken with no more. */
static void mail_drop_peer(ts_transport *transport, uint32_t peer) {
    (void)!post(of(transport), peer, NULL);
}

static uint64_t mail_now_us(const ts_transport *transport) {
    const ts_transport *real = of(transport)->options.transport;
    return real->ops->now_us(real);
}

static void mail_counters(const ts_transport *transport, ts_transport_counters *out) {
    (void)transport;
    *out = (ts_transport_counters){0};
}

static void mail_destroy(ts_transport *transport) { ts_comm_thread_destroy(of(transport)); }

static const ts_transport_ops mail_ops = {mail_send, mail_poll, mail_queued, mail_drop_peer,
                                          mail_now_us, mail_counters, mail_destroy, NULL, NULL};

/* ---- the loop's side ---- */

/* Hands what was queued to the real transport, without the mutex, as its driver. Returns whether there was anything. */
static bool deliver_mail(ts_comm_thread *comm) {
    if (!atomic_load(&comm->has_mail)) return false;
    pthread_mutex_lock(comm->options.mutex);
    mail *letter = comm->first;
    comm->first = NULL;
    comm->last = &comm->first;
    for (uint32_t p = 0; p < comm->stand_in.peer_count; p++) comm->mailed_bytes[p] = 0;
    atomic_store(&comm->has_mail, false);
    pthread_mutex_unlock(comm->options.mutex);
    while (letter) {
        mail *next = letter->next;
        /* What a peer that is gone does not get is found out by the client's timers. */
        const ts_transport_ops *ops = comm->options.transport->ops;
        if (letter->frame) (void)!ops->send(comm->options.transport, letter->peer, letter->frame);
        else if (ops->drop_peer) ops->drop_peer(comm->options.transport, letter->peer);
        ts_buffer_unref(letter->frame);
        ts_mem_free(letter);
        letter = next;
    }
    return true;
}

/* On the loop's thread, outside the pump's callbacks. */
static void send_mail(ts_comm_thread *comm) {
    pthread_mutex_lock(&comm->driver);
    bool any = deliver_mail(comm);
    pthread_mutex_unlock(&comm->driver);
    if (any && comm->pump) ts_pump_wake(comm->pump);
}

static void on_frame(void *context, uint32_t peer, ts_buffer *frame) {
    ts_comm_thread *comm = context;
    pthread_mutex_lock(comm->options.mutex);
    ts_transport_handler handler = comm->stand_in.handler;
    if (handler.on_frame) handler.on_frame(handler.context, peer, frame);
    pthread_mutex_unlock(comm->options.mutex);
    comm->delivered = true;
}

/* Wakes those who wait for frames. */
static void tell(ts_comm_thread *comm) {
    if (!comm->delivered) return;
    comm->delivered = false;
    pthread_cond_broadcast(comm->options.moved);
}

static void after_poll(void *context, bool moved) {
    ts_comm_thread *comm = context;
    (void)moved;
    tell(comm);
    if (deliver_mail(comm)) ts_pump_wake(comm->pump);
}

static void on_tick(uv_timer_t *timer) {
    ts_comm_thread *comm = timer->data;
    pthread_mutex_lock(&comm->driver); /* the tick asks the transport what is queued */
    pthread_mutex_lock(comm->options.mutex);
    comm->tick(comm->tick_context);
    pthread_mutex_unlock(comm->options.mutex);
    bool any = deliver_mail(comm);
    pthread_mutex_unlock(&comm->driver);
    pthread_cond_broadcast(comm->options.moved); /* a deadline may have passed */
    if (any) ts_pump_wake(comm->pump);
}

/* ---- the user's thread moves bytes ---- */

static bool enter_transport(void *context) {
    ts_comm_thread *comm = context;
    if (atomic_load(&comm->driven) > 0) return false;
    pthread_mutex_lock(&comm->driver);
    return true;
}

static void leave_transport(void *context) { pthread_mutex_unlock(&((ts_comm_thread *)context)->driver); }

void ts_comm_thread_hold(ts_comm_thread *comm) { pthread_mutex_lock(&comm->driver); }

void ts_comm_thread_release(ts_comm_thread *comm) { pthread_mutex_unlock(&comm->driver); }

void ts_comm_thread_drive(ts_comm_thread *comm) { atomic_fetch_add(&comm->driven, 1); }

bool ts_comm_thread_poll(ts_comm_thread *comm) {
    ts_transport *transport = comm->options.transport;
    pthread_mutex_lock(&comm->driver);
    bool moved = deliver_mail(comm);
    moved = transport->ops->poll(transport) || moved;
    tell(comm);
    atomic_store(&comm->busy, ts_mpi_transport_busy(transport));
    pthread_mutex_unlock(&comm->driver);
    return moved;
}

void ts_comm_thread_rest(ts_comm_thread *comm, bool hurry) {
    bool last = atomic_fetch_sub(&comm->driven, 1) == 1;
    if (!last || (!hurry && !atomic_load(&comm->has_mail) && !atomic_load(&comm->busy))) return;
    uint64_t now_us = mail_now_us(&comm->stand_in);
    /* Called a moment ago it looks again in a moment, whatever it found; calls that follow each other need it in none. */
    if (!hurry && now_us - atomic_load(&comm->called_us) < CALL_EVERY_US) return;
    atomic_store(&comm->called_us, now_us);
    uv_async_send(&comm->wake);
}

/* ---- the loop's other callbacks ---- */

static void on_pump_closed(void *context) {
    ts_comm_thread *comm = context;
    comm->pump = NULL;
    uv_close((uv_handle_t *)&comm->wake, NULL);
    uv_close((uv_handle_t *)&comm->ticker, NULL);
}

static void on_wake(uv_async_t *wake) {
    ts_comm_thread *comm = wake->data;
    send_mail(comm);
    if (!comm->pump) return;
    ts_pump_wake(comm->pump);
    if (!atomic_load(&comm->stopping)) return;
    uv_timer_stop(&comm->ticker);
    ts_pump_close(comm->pump, on_pump_closed);
    comm->pump = NULL;
}

static void *run(void *argument) {
    ts_comm_thread *comm = argument;
    uv_run(&comm->loop, UV_RUN_DEFAULT);
    return NULL;
}

/* ---- life ---- */

terse_status ts_comm_thread_create(const ts_comm_options *options, ts_comm_thread **out) {
    ts_comm_thread *comm = ts_mem_calloc(1, sizeof *comm);
    TS_REQUIRE(comm, TERSE_ENOMEM);
    const ts_transport *real = options->transport;
    comm->mailed_bytes = ts_mem_calloc(real->peer_count ? real->peer_count : 1, sizeof *comm->mailed_bytes);
    if (!comm->mailed_bytes) {
        ts_mem_free(comm);
        return TERSE_ENOMEM;
    }
    comm->options = *options;
    comm->stand_in = *real; /* peers, numbers */
    comm->stand_in.ops = &mail_ops;
    comm->stand_in.handler = (ts_transport_handler){0};
    comm->last = &comm->first;
    if (pthread_mutex_init(&comm->driver, NULL) != 0) {
        ts_mem_free(comm->mailed_bytes);
        ts_mem_free(comm);
        return TERSE_ENOMEM;
    }
    *out = comm;
    return TERSE_OK;
}

ts_transport *ts_comm_thread_transport(ts_comm_thread *comm) { return &comm->stand_in; }

/* The loop with its handles. On failure nothing of it is left. */
static terse_status make_loop(ts_comm_thread *comm) {
    TS_REQUIRE(uv_loop_init(&comm->loop) == 0, TERSE_EIO);
    if (uv_async_init(&comm->loop, &comm->wake, on_wake) != 0) {
        uv_loop_close(&comm->loop);
        return TERSE_EIO;
    }
    uv_timer_init(&comm->loop, &comm->ticker);
    comm->wake.data = comm->ticker.data = comm;
    ts_pump_options pump = {.timer_us = 1000, .safety_timer_us = 20000, .context = comm,
                            .after_poll = after_poll, .enter = enter_transport, .leave = leave_transport};
    terse_status status = ts_pump_create(&comm->loop, comm->options.transport, &pump, &comm->pump);
    if (status == TERSE_OK && uv_timer_start(&comm->ticker, on_tick, TICK_MS, TICK_MS) != 0) status = TERSE_EIO;
    if (status == TERSE_OK) return TERSE_OK;
    if (comm->pump) ts_pump_close(comm->pump, on_pump_closed);
    else on_pump_closed(comm);
    uv_run(&comm->loop, UV_RUN_DEFAULT);
    uv_loop_close(&comm->loop);
    return status;
}

terse_status ts_comm_thread_start(ts_comm_thread *comm, void (*tick)(void *context), void *context) {
    comm->tick = tick;
    comm->tick_context = context;
    TS_TRY(make_loop(comm));
    comm->options.transport->handler = (ts_transport_handler){.context = comm, .on_frame = on_frame};
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the user's threads */
    pthread_mutex_lock(comm->options.mutex);     /* the thread's id is written before anybody asks for it */
    int failed = pthread_create(&comm->thread, NULL, run, comm);
    comm->started = !failed;
    pthread_mutex_unlock(comm->options.mutex);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed) return TERSE_OK;
    ts_pump_close(comm->pump, on_pump_closed);
    uv_run(&comm->loop, UV_RUN_DEFAULT);
    uv_loop_close(&comm->loop);
    return TERSE_EIO;
}

void ts_comm_thread_stop(ts_comm_thread *comm) {
    if (!comm->started) return;
    atomic_store(&comm->stopping, true);
    uv_async_send(&comm->wake);
    pthread_join(comm->thread, NULL);
    comm->started = false;
    uv_loop_close(&comm->loop);
    pthread_mutex_lock(&comm->driver); /* the thread that closes a checkpoint may look in once more */
    deliver_mail(comm);                /* what was queued last; from here on the caller owns the transport */
    comm->options.transport->handler = (ts_transport_handler){0};
    pthread_mutex_unlock(&comm->driver);
}

void ts_comm_thread_destroy(ts_comm_thread *comm) {
    if (!comm) return;
    ts_comm_thread_stop(comm);
    while (comm->first) {
        mail *letter = comm->first;
        comm->first = letter->next;
        ts_buffer_unref(letter->frame);
        ts_mem_free(letter);
    }
    pthread_mutex_destroy(&comm->driver);
    ts_mem_free(comm->mailed_bytes);
    ts_mem_free(comm);
}
