/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded: the wall clock of the process jumps by up to a day, forth and back, at every look at it; what counts time
 * passed (CLOCK_MONOTONIC) goes on as it does.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now);
int gettimeofday(struct timeval *restrict now, void *restrict zone);
time_t time(time_t *out);

static atomic_uint looks;

static time_t jump(void) {
    static const time_t by[] = {0, 3600, -3600, 86400, -86400, 1};
    return by[atomic_fetch_add(&looks, 1) % (sizeof by / sizeof by[0])];
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += jump();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
    *now = (struct timeval){precise.tv_sec, precise.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return (time_t)-1;
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
