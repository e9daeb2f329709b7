/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user's thread moves the bytes itself while it waits, and between the slices of a step. Only where the host's
 * processes have less than two cores each: there a communication thread of one's own would take the core from the thread
 * that is to go on, twice a frame, and read what the other core has in its cache. With more cores both work at once. With
 * fewer than one each it pays for large packets alone, since who naps between two looks waits for a core after each nap:
 * 2 workers and a server on two cores, requests of 4 KiB, 110,000 a second this way and 240,000 with the other thread;
 * dense rounds of 64 MiB 50 ms and 64.
 */
#include <sys/prctl.h>
#include <time.h>

#include "common/base/cpu.h"
#include "common/base/log.h"
#include "worker/client/terse_internal.h"

#define EMPTY_POLLS 16u   /* between two looks at what came */
#define HOT_US 15u        /* after traffic: polls without a pause, as the pump does */
#define NAP_MIN_US 10u
#define NAP_MAX_US 100u
#define NAPS_SO_FAR 16u   /* a nap is a 16th of the wait so far: what took long will not come in a moment, and others work */
#define SLACK_NS 1000UL
/*
 * Without traffic: then the communication thread waits instead, asleep. Handing over costs more than a hundred naps do: six
 * processes on two cores, where a step waits for some milliseconds, trained in 8.4 s with 1 ms and in 4.6 s with 100 ms.
 */
#define PATIENCE_US 100000u

void ts_terse_choose(terse *client) {
    bool crowded = client->comm && ts_transport_crowded(client->transport);
    client->may_drive = client->comm && ts_transport_one_each(client->transport);
    client->may_drive_large = crowded;
    ts_log(TS_LOG_DEBUG, "terse", "who moves the bytes", "threads=%s cores=%u processes=%u",
           client->may_drive ? "one" : crowded ? "one-for-large-packets" : "several", ts_cpu_cores(),
           client->transport->neighbours);
}

static bool may_drive(const terse *client) {
    return client->may_drive || (client->may_drive_large && ts_client_sends_large(client->client));
}

void ts_terse_drive(terse *client) {
    if (!may_drive(client)) return;
    ts_terse_moved(client);
    if (client->drivers++ == 0) ts_comm_thread_drive(client->comm);
}

void ts_terse_rest(terse *client) {
    /* Without a drive before it when the first large packet was sent in between. */
    if (client->drivers > 0 && --client->drivers == 0) ts_comm_thread_rest(client->comm, false);
}

void ts_terse_moved(terse *client) { client->moved_us = client->transport->ops->now_us(client->transport); }

/* How late a thread may wake is the user's to set. */
static void nap(uint64_t idle_us) {
    uint64_t us = idle_us / NAPS_SO_FAR;
    if (us < NAP_MIN_US) us = NAP_MIN_US;
    if (us > NAP_MAX_US) us = NAP_MAX_US;
    int slack_ns = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0);
    nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
    if (slack_ns > 0) prctl(PR_SET_TIMERSLACK, (unsigned long)slack_ns, 0, 0, 0);
}

static void sleep_until_told(terse *client, long most_ns) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += most_ns;
    if (until.tv_nsec >= 1000000000L) { until.tv_nsec -= 1000000000L; until.tv_sec++; }
    pthread_cond_timedwait(&client->moved, &client->mutex, &until);
}

void ts_terse_await(terse *client, long most_ns) {
    if (!client->drivers) {
        sleep_until_told(client, most_ns);
        return;
    }
    bool moved = false;
    pthread_mutex_unlock(&client->mutex);
    for (unsigned polls = 0; polls < EMPTY_POLLS && !moved; polls++) moved = ts_comm_thread_poll(client->comm);
    pthread_mutex_lock(&client->mutex);
    uint64_t now_us = client->transport->ops->now_us(client->transport);
    if (moved) client->moved_us = now_us;
    uint64_t idle_us = now_us - client->moved_us;
    if (idle_us < HOT_US) return;
    if (idle_us < PATIENCE_US) {
        pthread_mutex_unlock(&client->mutex);
        nap(idle_us);
        pthread_mutex_lock(&client->mutex);
        return;
    }
    ts_comm_thread_rest(client->comm, true);
    sleep_until_told(client, most_ns);
    ts_comm_thread_drive(client->comm);
    ts_terse_moved(client);
}
