/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/trainer/human.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

char *ts_human_count(uint64_t value, char text[TS_HUMAN_CHARS]) {
    char digits[TS_HUMAN_CHARS];
    int len = snprintf(digits, sizeof digits, "%" PRIu64, value);
    size_t at = 0;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0) text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = 0;
    return text;
}

char *ts_human_bytes(double bytes, char text[TS_HUMAN_CHARS]) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    while (bytes >= 999.5 && unit + 1 < sizeof units / sizeof units[0]) bytes /= 1000, unit++;
    const int decimals = unit == 0 || bytes >= 100 ? 0 : bytes >= 10 ? 1 : 2;
    snprintf(text, TS_HUMAN_CHARS, "%.*f %s", decimals, bytes, units[unit]);
    return text;
}

char *ts_human_times(double ratio, char text[TS_HUMAN_CHARS]) {
    if (ratio >= 999.5 && ratio < 1e15) {
        ts_human_count((uint64_t)(ratio + 0.5), text);
        strcat(text, "x");
    } else {
        snprintf(text, TS_HUMAN_CHARS, "%.*fx", ratio >= 100 ? 0 : ratio >= 10 ? 1 : 2, ratio);
    }
    return text;
}

char *ts_human_clock(double seconds, char text[TS_HUMAN_CHARS]) {
    uint64_t s = seconds > 0 && seconds < 1e9 ? (uint64_t)(seconds + 0.5) : 0;
    if (s >= 3600)
        snprintf(text, TS_HUMAN_CHARS, "%" PRIu64 ":%02u:%02u", s / 3600, (unsigned)(s / 60 % 60), (unsigned)(s % 60));
    else
        snprintf(text, TS_HUMAN_CHARS, "%u:%02u", (unsigned)(s / 60), (unsigned)(s % 60));
    return text;
}
