/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends an MPI_Comm_accept whose other side has died. In Open MPI 4.1 accept and connect agree by publishing values at
 * the name server, and waiting for the other's (dpm.c, comm_cid.c: opal_pmix_base_exchange). The first exchange ends
 * with an error after pmix_base_exchange_timeout; but in those that agree on the context id an error is not passed on
 * and the exchange is tried again, for ever. So a thread of its own watches the lifelines of those who were invited,
 * and when one is cut, publishes what the dead would have: "any context id suits me", "agreed", "ready". The accept
 * then returns with a communicator that is never used. Whatever of it is not asked for stays at the name server.
 *
 * The names and the packing (count, type, value, in network order) are those of Open MPI 4.1; with another version the
 * accept would hang, the watchdog around it end the server, and say so.
 */
#include <mpi.h>
#include <poll.h>
#include <pmix.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/mpi_internal.h"

#define LOOK_EVERY_MS 5
#define EXCHANGES 64 /* the context id is agreed in pairs of exchanges: which is free here, whether it is there, too */
#define PACKED_INT 9u /* opal's type number of an int32 */

struct ts_mpi_rescue {
    pthread_t thread;
    struct pollfd *lifelines;
    size_t count;
    char port[MPI_MAX_PORT_NAME];
    uint64_t until_us;
    atomic_bool over;
    bool rescued; /* read after the thread has ended */
};

static void publish(const char *key, uint8_t value) {
    const uint8_t packed[9] = {0, 0, 0, 1, PACKED_INT, 0, 0, 0, value};
    pmix_persistence_t once = PMIX_PERSIST_FIRST_READ;
    pmix_info_t info[2];
    memset(info, 0, sizeof info);
    for (int i = 0; i < 2; i++) PMIX_INFO_CONSTRUCT(&info[i]);
    pmix_byte_object_t bytes = {.bytes = (char *)(uintptr_t)packed, .size = sizeof packed};
    PMIX_INFO_LOAD(&info[0], key, &bytes, PMIX_BYTE_OBJECT); /* copies */
    PMIX_INFO_LOAD(&info[1], PMIX_PERSISTENCE, &once, PMIX_PERSIST);
    pmix_status_t published = PMIx_Publish(info, 2);
    for (int i = 0; i < 2; i++) PMIX_INFO_DESTRUCT(&info[i]);
    if (published != PMIX_SUCCESS)
        ts_log(TS_LOG_WARN, "rescue", "the name server takes nothing", "key=%s status=%d", key, (int)published);
}

static void speak_for_the_dead(const ts_mpi_rescue *rescue) {
    char key[MPI_MAX_PORT_NAME + 40];
    for (int i = 0; i < EXCHANGES && !atomic_load(&rescue->over); i++) {
        snprintf(key, sizeof key, "%s:nextcid:send:%d", rescue->port, i);
        publish(key, i % 2 ? 1 : 0);
        if (i != 1) continue; /* two exchanges are the rule, then comes the last */
        snprintf(key, sizeof key, "%s:activate:send:0", rescue->port);
        publish(key, 1);
    }
}

static void *watch(void *argument) {
    ts_mpi_rescue *rescue = argument;
    while (!atomic_load(&rescue->over)) {
        int cut = poll(rescue->lifelines, (nfds_t)rescue->count, LOOK_EVERY_MS);
        if (cut <= 0 && ts_mpi_clock_us() < rescue->until_us) continue;
        if (atomic_load(&rescue->over)) break;
        rescue->rescued = true;
        speak_for_the_dead(rescue);
        break;
    }
    return NULL;
}

terse_status ts_mpi_rescue_begin(const int *lifelines, size_t count, const char *port, uint64_t patience_us,
                                 ts_mpi_rescue **out) {
    ts_mpi_rescue *rescue = ts_mem_calloc(1, sizeof *rescue);
    TS_REQUIRE(rescue, TERSE_ENOMEM);
    rescue->lifelines = ts_mem_calloc(count, sizeof *rescue->lifelines);
    if (!rescue->lifelines) {
        ts_mem_free(rescue);
        return TERSE_ENOMEM;
    }
    /* Readable alone says nothing: the other side may be through, and say so, before the accept has returned here. */
    for (size_t i = 0; i < count; i++) rescue->lifelines[i] = (struct pollfd){.fd = lifelines[i], .events = POLLRDHUP};
    rescue->count = count;
    snprintf(rescue->port, sizeof rescue->port, "%s", port);
    rescue->until_us = ts_mpi_clock_us() + patience_us;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the owner's threads */
    int failed = pthread_create(&rescue->thread, NULL, watch, rescue);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        ts_mem_free(rescue->lifelines);
        ts_mem_free(rescue);
        return TERSE_ENOMEM;
    }
    *out = rescue;
    return TERSE_OK;
}

bool ts_mpi_rescue_end(ts_mpi_rescue *rescue) {
    atomic_store(&rescue->over, true);
    pthread_join(rescue->thread, NULL);
    bool rescued = rescue->rescued;
    ts_mem_free(rescue->lifelines);
    ts_mem_free(rescue);
    return rescued;
}
