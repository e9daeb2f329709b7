/* SPDX-License-Identifier: Apache-2.0 */
#include "server/loop_late.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

void ts_lateness_end(ts_lateness *late) {
    if (late->schedstat >= 0) close(late->schedstat);
    late->schedstat = -2;
}

/* The second number: nanoseconds on a run queue. */
static uint64_t queued_us(ts_lateness *late) {
    char text[96];
    uint64_t ran, queued;
    if (late->schedstat == -1) {
        late->schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
        if (late->schedstat < 0) late->schedstat = -2;
    }
    ssize_t got = late->schedstat < 0 ? -1 : pread(late->schedstat, text, sizeof text - 1, 0);
    if (got <= 0) return 0;
    text[got] = '\0';
    return sscanf(text, "%" SCNu64 " %" SCNu64, &ran, &queued) == 2 ? queued / 1000 : 0;
}

void ts_lateness_tick(ts_lateness *late, uint64_t now_us, uint64_t every_us) {
    uint64_t due_us = late->ticked_us + every_us, queued = queued_us(late), others = queued - late->queued_us;
    if (late->ticked_us > 0 && now_us > due_us) {
        uint64_t by_us = now_us - due_us, own_us = by_us > others ? by_us - others : 0;
        if (by_us > late->late_us) late->late_us = by_us;
        if (own_us > late->own_us) late->own_us = own_us;
    }
    late->ticked_us = now_us;
    late->queued_us = queued;
}
