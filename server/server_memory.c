/* SPDX-License-Identifier: Apache-2.0 */
#include "server/server_memory.h"

#include <string.h>

/* A line of /proc/self/status, as `VmRSS:     1234 kB`. */
static size_t status_bytes(const char *text, const char *key) {
    const char *at = strstr(text, key);
    unsigned long kib = 0;
    return at && sscanf(at + strlen(key), " %lu kB", &kib) == 1 ? (size_t)kib << 10 : 0;
}

static void ask_system(ts_server_memory *memory) {
    char text[8192];
    FILE *file = fopen("/proc/self/status", "r");
    if (!file) return;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    memory->resident = status_bytes(text, "\nVmRSS:");
    memory->peak = status_bytes(text, "\nVmHWM:");
}

static void add_store(ts_store_memory *to, const ts_store_memory *more) {
    to->params += more->params;
    to->reference += more->reference;
    to->optimizer += more->optimizer;
    to->estimates += more->estimates;
    to->receivers += more->receivers;
    to->encoders += more->encoders;
    to->held += more->held;
    to->log += more->log;
    to->bookkeeping += more->bookkeeping;
}

/* A packet's frame counts with the log, when it is in there too. */
static size_t gathered_bytes(const ts_outgoing *outgoing) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < outgoing->count; i++)
        if (outgoing->packets[i].frame->holders == 0) bytes += outgoing->packets[i].len;
    return bytes;
}

ts_server_memory ts_server_memory_of(const ts_server *server) {
    ts_server_memory memory = {0};
    ts_transport_counters counters = {0};
    server->transport->ops->counters(server->transport, &counters);
    memory.queued = (size_t)counters.queued_bytes;
    memory.spare = ts_buffer_pool_bytes(server->transport->pool);
    for (uint32_t i = 0; i < 2 * server->job_count; i++) {
        const ts_job *job = ts_server_part(server, i);
        if (!job) continue;
        ts_store_memory store = ts_store_bytes(&job->store);
        add_store(&memory.store, &store);
        memory.scratch += ts_rounds_bytes(&job->rounds) + job->replies.room * sizeof *job->replies.packets;
        memory.gathered += gathered_bytes(&job->outgoing);
    }
    memory.total = ts_store_total(&memory.store) + memory.scratch + memory.gathered + memory.queued + memory.spare;
    ask_system(&memory);
    return memory;
}

void ts_server_memory_print(const ts_server_memory *memory, FILE *out) {
    const ts_store_memory *store = &memory->store;
    fprintf(out,
            "  memory: parameters %zu, reference %zu, optimizer %zu, estimates (ef21) %zu, receivers (delta) %zu, "
            "pull encoders %zu, held packets %zu, packet log %zu, gathered %zu, queued %zu, spare frames %zu, "
            "scratch %zu, bookkeeping %zu bytes\n",
            store->params, store->reference, store->optimizer, store->estimates, store->receivers, store->encoders,
            store->held, store->log, memory->gathered, memory->queued, memory->spare, memory->scratch,
            store->bookkeeping);
    fprintf(out, "  memory in all: %zu bytes of %zu resident; at most %zu were resident\n", memory->total,
            memory->resident, memory->peak);
}
