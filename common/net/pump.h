/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pump: a transport's progress inside a libuv loop. Polls at full speed for
 * spin_us after traffic, then sleeps until the bell rings or a timer fires.
 * One of the few modules that include <uv.h>.
 */
#ifndef TS_NET_PUMP_H
#define TS_NET_PUMP_H

#include <uv.h>

#include "common/net/transport.h"

typedef struct ts_pump ts_pump;

typedef struct {
    uint64_t spin_us;         /* default TS_AWAKE_US */
    uint64_t timer_us;        /* asleep, while some peer cannot ring: default 1000 */
    uint64_t safety_timer_us; /* asleep, all peers ring: default 20000 */
    void *context;
    void (*after_poll)(void *context, bool moved); /* after each round of polling: batch work, flush replies. May be NULL */
    /*
     * Around all that the pump does with the transport, where others use it, too. enter: returns false (and leave is not
     * called) while somebody else moves bytes; the pump then stands aside and looks again every few milliseconds, or when
     * it is woken. Both NULL: the transport is the pump's alone.
     */
    bool (*enter)(void *context);
    void (*leave)(void *context);
} ts_pump_options;

/* loop, transport: [borrow] until the close callback. Returns TERSE_ENOMEM, TERSE_EIO. Thread: the loop's. */
terse_status ts_pump_create(uv_loop_t *loop, ts_transport *transport, const ts_pump_options *options, ts_pump **out)
    TERSE_NODISCARD;
/* Poll soon: the owner has just queued something. Thread: the loop's. */
void ts_pump_wake(ts_pump *pump);
/* Stops; the pump frees itself in the last close callback, then calls closed(context) (may be NULL). */
void ts_pump_close(ts_pump *pump, void (*closed)(void *context));

#endif
