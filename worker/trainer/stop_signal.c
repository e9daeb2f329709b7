/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/trainer/stop_signal.h"

#include <signal.h>

static const int signals[] = {SIGINT, SIGTERM};
#define SIGNALS (sizeof signals / sizeof signals[0])

static volatile sig_atomic_t asked;

static void on_signal(int number) { asked = number; }

void ts_stop_signal_catch(void) {
    /* Reset at the first: a loop that never comes to its next step can still be killed. */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)(SA_RESTART | SA_RESETHAND)};
    sigemptyset(&action.sa_mask);
    for (unsigned i = 0; i < SIGNALS; i++) sigaction(signals[i], &action, NULL);
}

void ts_stop_signal_release(void) {
    for (unsigned i = 0; i < SIGNALS; i++) signal(signals[i], SIG_DFL);
}

int ts_stop_signal(void) { return asked; }
