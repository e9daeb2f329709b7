/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Awake, an idle handle keeps the loop from blocking and polls. After spin_us without traffic the loop blocks in its
 * own wait, with two things to wake it: the bell, and a timer. The timer is quick while somebody cannot ring, while
 * requests are open (their bytes ring no bell), and for a while after traffic (a sender that has just heard from us
 * takes us to be awake and does not ring); else it is a slow safety net.
 */
#include "common/net/pump.h"

#include <sys/prctl.h>
#include <time.h>

#include "common/base/mem.h"
#include "common/net/mpi_transport.h"

#define POLLS_AT_MOST 64u    /* between two turns of the loop, while bytes move */
#define EMPTY_POLLS 16u      /* … while none do: a turn of the loop costs a system call */
#define HOT_US 15u           /* after traffic: polls without a pause; then the core is left to others in between */
#define NAP_NS 10000L
#define SLACK_NS 1000UL      /* how late a nap may end; Linux's default of 50 µs would be most of it */
#define BUSY_SPIN_US 1000u   /* without traffic, while requests are open */
#define QUICK_FOR_US 10000u  /* after traffic */
#define ASIDE_MS 1u          /* between two looks whether somebody else still moves the bytes */

struct ts_pump {
    ts_transport *transport;
    ts_pump_options options;
    uv_idle_t spin;
    uv_timer_t timer;
    uv_poll_t bell;
    bool has_bell, closing;
    bool deaf;         /* stands aside, and the bell has rung meanwhile: whoever moves the bytes needs none */
    bool precise;      /* the loop's thread was told how exact its naps are to be */
    bool awake;
    uint64_t timer_ms; /* the period it runs with; 0: stopped */
    uint64_t moved_us;   /* the last traffic, or wake-up */
    uint64_t traffic_us; /* the last traffic in fact, found out when going to sleep */
    uint64_t frames;     /* had passed by then */
    unsigned open;     /* handles not closed yet */
    void (*closed)(void *context);
};

static uint64_t now_us(const ts_pump *pump) { return pump->transport->ops->now_us(pump->transport); }

static void on_spin(uv_idle_t *handle);
static void on_timer(uv_timer_t *handle);
static void on_bell(uv_poll_t *handle, int status, int events);

static void wake(ts_pump *pump, uint64_t now) {
    pump->moved_us = now;
    if (pump->awake) return;
    pump->awake = true;
    uv_idle_start(&pump->spin, on_spin);
    if (pump->timer_ms) uv_timer_stop(&pump->timer);
    pump->timer_ms = 0;
}

static uint64_t at_least_1_ms(uint64_t us) { return us < 1000 ? 1 : us / 1000; }

static uint64_t nap_ms(const ts_pump *pump, uint64_t now) {
    bool quick = now - pump->traffic_us < QUICK_FOR_US || ts_mpi_transport_busy(pump->transport) ||
                 !pump->has_bell || !ts_mpi_transport_bell_complete(pump->transport);
    return at_least_1_ms(quick ? pump->options.timer_us : pump->options.safety_timer_us);
}

/* An owner that wakes the pump in every tick has not sent in every tick. */
static void note_traffic(ts_pump *pump) {
    ts_transport_counters counters;
    pump->transport->ops->counters(pump->transport, &counters);
    uint64_t frames = counters.frames_in + counters.frames_out;
    if (frames != pump->frames) pump->traffic_us = pump->moved_us;
    pump->frames = frames;
}

/* To sleep, until the bell or so many milliseconds later. */
static void set_timer(ts_pump *pump, uint64_t ms) {
    if (pump->awake) uv_idle_stop(&pump->spin);
    pump->awake = false;
    if (ms == pump->timer_ms) return;
    uv_timer_start(&pump->timer, on_timer, ms, ms);
    pump->timer_ms = ms;
}

static void sleep_now(ts_pump *pump, uint64_t now) {
    note_traffic(pump);
    set_timer(pump, nap_ms(pump, now));
}

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/*
 * Leaves the core to others for a moment: whoever has the answer may need it. A yield would do that, too, but where
 * somebody else wants to run, Linux takes it for the rest of a time slice (measured: 1.4 ms a yield, 30 µs a nap).
 */
static void nap(ts_pump *pump) {
    if (!pump->precise) prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0);
    pump->precise = true;
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

/* Polls until `empty` polls in a row have found nothing, within bounds. Returns whether anything moved. */
static bool poll_some(ts_pump *pump, unsigned empty) {
    bool any = false;
    for (unsigned polls = 0, misses = 0; polls < POLLS_AT_MOST && misses < empty; polls++) {
        bool moved = pump->transport->ops->poll(pump->transport);
        if (moved) {
            any = true;
            misses = 0;
            if (pump->options.after_poll) pump->options.after_poll(pump->options.context, true);
            if (pump->closing) return true;
        } else if (++misses < empty) {
            relax();
        }
    }
    if (!any && pump->options.after_poll) pump->options.after_poll(pump->options.context, false);
    return any;
}

/* Before anything is done with the transport. Returns false while somebody else moves bytes. */
static bool enter(ts_pump *pump) {
    if (pump->options.enter && !pump->options.enter(pump->options.context)) {
        set_timer(pump, ASIDE_MS);
        return false;
    }
    if (pump->deaf) uv_poll_start(&pump->bell, UV_READABLE, on_bell);
    pump->deaf = false;
    return true;
}

static void leave(ts_pump *pump) {
    if (pump->options.leave) pump->options.leave(pump->options.context);
}

/* Returns whether to nap before the next one. */
static bool spin(ts_pump *pump) {
    bool moved = poll_some(pump, EMPTY_POLLS);
    if (pump->closing) return false;
    uint64_t now = now_us(pump);
    if (moved) pump->moved_us = now;
    uint64_t idle_us = now - pump->moved_us;
    if (idle_us < HOT_US) return false;
    if (idle_us < pump->options.spin_us || (idle_us < BUSY_SPIN_US && ts_mpi_transport_busy(pump->transport))) return true;
    sleep_now(pump, now);
    return false;
}

static void on_spin(uv_idle_t *handle) {
    ts_pump *pump = handle->data;
    if (!enter(pump)) return;
    bool naps = spin(pump);
    leave(pump);
    if (naps) nap(pump);
}

static void on_timer(uv_timer_t *handle) {
    ts_pump *pump = handle->data;
    if (!enter(pump)) return;
    bool moved = poll_some(pump, 2); /* the first drives MPI, the second finds what that brought in */
    uint64_t now = now_us(pump);
    if (!pump->closing && moved) wake(pump, now);
    else if (!pump->closing && !pump->awake) sleep_now(pump, now);
    leave(pump);
}

/* A bell can beat its data: it only says that polling may be worth while. */
static void on_bell(uv_poll_t *handle, int status, int events) {
    ts_pump *pump = handle->data;
    (void)status, (void)events;
    if (!enter(pump)) {
        uv_poll_stop(handle);
        pump->deaf = true;
        return;
    }
    ts_mpi_transport_bell_clear(pump->transport);
    wake(pump, now_us(pump));
    leave(pump);
}

terse_status ts_pump_create(uv_loop_t *loop, ts_transport *transport, const ts_pump_options *options, ts_pump **out) {
    ts_pump *pump = ts_mem_calloc(1, sizeof *pump);
    TS_REQUIRE(pump, TERSE_ENOMEM);
    pump->transport = transport;
    pump->options = *options;
    if (!pump->options.spin_us) pump->options.spin_us = TS_AWAKE_US;
    if (!pump->options.timer_us) pump->options.timer_us = 1000;
    if (!pump->options.safety_timer_us) pump->options.safety_timer_us = 20000;
    pump->spin.data = pump->timer.data = pump->bell.data = pump;
    int fd = ts_mpi_transport_bell_fd(transport);
    uv_idle_init(loop, &pump->spin);
    uv_timer_init(loop, &pump->timer);
    pump->open = 2;
    if (fd >= 0 && uv_poll_init(loop, &pump->bell, fd) == 0) {
        pump->open = 3;
        pump->has_bell = uv_poll_start(&pump->bell, UV_READABLE, on_bell) == 0;
    }
    wake(pump, now_us(pump)); /* frames may have come before the pump */
    *out = pump;
    return TERSE_OK;
}

void ts_pump_wake(ts_pump *pump) {
    if (!pump->closing) wake(pump, now_us(pump));
}

static void on_closed(uv_handle_t *handle) {
    ts_pump *pump = handle->data;
    if (--pump->open > 0) return;
    void (*closed)(void *context) = pump->closed;
    void *context = pump->options.context;
    ts_mem_free(pump);
    if (closed) closed(context);
}

void ts_pump_close(ts_pump *pump, void (*closed)(void *context)) {
    if (pump->closing) return;
    pump->closing = true;
    pump->closed = closed;
    bool bell = pump->open == 3;
    uv_close((uv_handle_t *)&pump->spin, on_closed);
    uv_close((uv_handle_t *)&pump->timer, on_closed);
    if (bell) uv_close((uv_handle_t *)&pump->bell, on_closed);
}
