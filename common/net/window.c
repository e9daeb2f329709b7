/* SPDX-License-Identifier: Apache-2.0 */
#include "common/net/window.h"

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

void ts_window_open(ts_send_window *send, ts_receive_window *receive, bool paced, size_t most_bytes) {
    size_t most = paced ? least(most_bytes, TS_WINDOW_QUICK_BYTES) : most_bytes;
    *send = (ts_send_window){.paced = paced, .bytes = paced ? TS_WINDOW_FIRST_BYTES : most, .most_bytes = most};
    *receive = (ts_receive_window){.paced = paced, .most_bytes = most,
                                   .credit_bytes = paced ? TS_WINDOW_CREDIT_BYTES : most / 2};
}

bool ts_send_window_fits(const ts_send_window *window, size_t bytes) {
    return window->sent - window->credited + bytes + TS_WINDOW_MESSAGE_COST <= window->bytes;
}

void ts_send_window_note(ts_send_window *window, size_t bytes, uint64_t now_us) {
    window->sent += bytes + TS_WINDOW_MESSAGE_COST;
    if (!window->paced || window->mark) return;
    window->mark = window->sent;
    window->mark_us = now_us;
}

/* How long what is under way takes, now that it is known. */
static void time_path(ts_send_window *window, uint64_t now_us) {
    uint64_t took_us = now_us - window->mark_us;
    window->mark = 0;
    window->quick = took_us <= TS_WINDOW_QUICK_US;
    if (took_us >= TS_WINDOW_LATE_US) window->bytes = least(window->bytes, TS_WINDOW_SLOW_BYTES);
}

bool ts_send_window_credit(ts_send_window *window, uint64_t credited, bool waits, uint64_t now_us) {
    if (credited < window->credited || credited > window->sent) return false;
    if (window->mark && credited >= window->mark) time_path(window, now_us);
    size_t slow = least(window->most_bytes, TS_WINDOW_SLOW_BYTES), more = (size_t)(credited - window->credited);
    if (window->paced && waits && window->bytes < slow) /* the window was the limit */
        window->bytes = least(slow, window->bytes + more);
    else if (window->paced && waits && window->quick)
        window->bytes = least(window->most_bytes, window->bytes + more / 8);
    window->credited = credited;
    return true;
}

size_t ts_send_window_message_bytes(const ts_send_window *window, size_t plain_bytes, size_t small_bytes, size_t large_bytes) {
    size_t most = !window->paced ? plain_bytes : window->bytes < TS_WINDOW_LARGE_BYTES ? small_bytes : large_bytes;
    return least(window->bytes / 2 - TS_WINDOW_MESSAGE_COST, most);
}

void ts_receive_window_learn(ts_receive_window *window, uint64_t bytes) {
    size_t most = least(window->most_bytes, TS_WINDOW_SLOW_BYTES);
    size_t quarter = (bytes < most ? (size_t)bytes : most) / 4;
    if (window->paced && quarter > window->credit_bytes) window->credit_bytes = quarter;
}

void ts_receive_window_note(ts_receive_window *window, size_t bytes) { window->taken += bytes + TS_WINDOW_MESSAGE_COST; }

bool ts_receive_window_owes(const ts_receive_window *window) {
    return window->taken - window->returned >= window->credit_bytes;
}
