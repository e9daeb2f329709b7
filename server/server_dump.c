/* SPDX-License-Identifier: Apache-2.0 */
/* The whole state in text, for SIGUSR2. */
#include <inttypes.h>

#include "server/flow.h"
#include "server/job.h"
#include "server/server_memory.h"

static const char *const state_names[] = {"running", "finished", "failed"};
static const char *const member_names[] = {"expected", "attached", "gone"};

static void dump_peers(const ts_server *server, FILE *out) {
    const ts_transport *transport = server->transport;
    uint64_t now_us = ts_server_now(server);
    for (uint32_t p = 0; p < transport->peer_count; p++) {
        const ts_link *link = &server->links[p];
        if (p == transport->self) continue;
        fprintf(out,
                "  peer %u %s: heard %.1f s ago, in %" PRIu64 " frames %" PRIu64 " bytes, out %" PRIu64
                " frames %" PRIu64 " bytes, queued %zu bytes, corrupt %" PRIu64 ", other version %" PRIu64
                ", refused %" PRIu64 ", quarantined %" PRIu64 ", unsent %" PRIu64 ", no room for %" PRIu64
                " packets, withheld %" PRIu64 ", denied %" PRIu64 "\n",
                p, transport->peers[p].name, (double)(now_us - link->last_heard_us) / 1e6, link->frames_in,
                link->bytes_in, link->frames_out, link->bytes_out, transport->ops->queued(transport, p), link->corrupt,
                link->other_version, link->rejected, link->quarantined, link->send_failures, link->no_room, link->withheld, link->denied);
    }
}

static void dump_members(const ts_job *job, FILE *out) {
    for (uint32_t w = 0; w < job->members.count; w++) {
        const ts_member *member = &job->members.members[w];
        uint32_t held = 0, owed = 0;
        for (uint32_t s = 0; s < job->store.count; s++) {
            held += job->store.slices[s].slots[w].frame != NULL;
            owed += job->store.slices[s].slots[w].owed != 0;
        }
        fprintf(out, "    worker %u: %s, incarnation %u, packets held %u (%zu of %zu bytes), replies owed %u", w,
                member_names[member->state], member->incarnation, held,
                job->store.books ? job->store.books->held[w] : 0, ts_flow_held_limit(job->server, member->peer), owed);
        if (member->lost) fprintf(out, ", %s", member->unborn ? "nobody yet" : "lost");
        else if (member->done) fprintf(out, ", done after %" PRIu64 " steps", member->done_steps);
        fprintf(out, "\n");
    }
}

static void dump_slices(const ts_job *job, FILE *out) {
    for (uint32_t s = 0; s < job->store.count; s++) {
        const ts_slice_state *slice = &job->store.slices[s];
        const ts_tensor *tensor = &job->contract->tensors[slice->tensor];
        fprintf(out, "    slice %u: %s[%zu:%zu] version %" PRIu64 ", held %u of %u%s%s%s\n", s, tensor->name,
                job->contract->slices[slice->global].first, job->contract->slices[slice->global].first + slice->n,
                slice->version, slice->held, job->members.count, slice->initialised ? "" : ", not set",
                slice->busy ? ", at work" : "", slice->sending ? ", going out" : "");
    }
}

static void dump_memory(const ts_job *job, FILE *out) {
    ts_store_memory bytes = ts_store_bytes(&job->store);
    fprintf(out, "    memory: %zu bytes in its slices, %zu of scratch; limit", ts_store_total(&bytes), ts_rounds_bytes(&job->rounds));
    uint64_t limit = ts_job_memory_limit(job);
    if (limit > 0) fprintf(out, " %" PRIu64 "\n", limit);
    else fprintf(out, " none\n");
}

/* The part that this server stands in for, and how its own is held. */
static void dump_replica(const ts_job *job, FILE *out) {
    const ts_replica *replica = &job->replica;
    const ts_job *part = job->standin;
    uint32_t unconfirmed = 0;
    if (!part) return;
    for (uint32_t s = 0; s < job->store.count; s++) unconfirmed += job->store.slices[s].unconfirmed;
    fprintf(out, "    replicas: %s, forwarded %" PRIu64 " packets, not confirmed %u, repeated %" PRIu64 "\n",
            replica->mirrors ? "held twice" : "held once", replica->forwarded, unconfirmed, replica->repeated);
    fprintf(out, "    stands in for server %u: %s, version %" PRIu64 ", at work %u, states compared %" PRIu64 "\n", part->part,
            part->mute ? "which lives" : "which is dead", ts_store_version(&part->store), part->rounds.running,
            part->replica.compared);
    dump_memory(part, out);
    dump_slices(part, out);
}

static void dump_job(const ts_job *job, FILE *out) {
    static const char *const states[] = {"running", "finished", "failed"};
    char waiting[512];
    ts_job_waiting(job, waiting, sizeof waiting);
    fprintf(out, "  job %u (%s): %s%s%s", job->id, job->name, states[job->state], job->message.text[0] ? ": " : "",
            job->message.text);
    if (job->contract) fprintf(out, ", %s, optimizer %s", job->consistency->name, job->optimizer->name);
    fprintf(out, ", generation %u, attached %u, done %u, gone %u, lost %u of %u workers\n", job->members.generation,
            job->members.attached, ts_membership_finished(&job->members), ts_membership_away(&job->members),
            ts_membership_missed(&job->members), ts_membership_workers(&job->members));
    if (job->released) return;
    fprintf(out, "    waits for: %s\n", waiting[0] ? waiting : "nobody");
    fprintf(out, "    rounds: version %" PRIu64 ", slice rounds closed %" PRIu64 ", at work %u, ready %u, going out %u\n",
            ts_store_version(&job->store), job->rounds.closed, job->rounds.running, job->rounds.ready_count,
            job->outgoing.count);
    dump_memory(job, out);
    dump_members(job, out);
    dump_slices(job, out);
    dump_replica(job, out);
}

void ts_server_dump(const ts_server *server, FILE *out) {
    ts_transport_counters counters = {0};
    server->transport->ops->counters(server->transport, &counters);
    fprintf(out, "server %u: %s%s%s\n", server->index, state_names[server->state], server->message.text[0] ? ": " : "",
            server->message.text);
    fprintf(out, "  transport: in %" PRIu64 " bytes, out %" PRIu64 " bytes, queued %" PRIu64 ", dropped %" PRIu64 "\n",
            counters.bytes_in, counters.bytes_out, counters.queued_bytes, counters.dropped);
    ts_server_memory memory = ts_server_memory_of(server);
    ts_server_memory_print(&memory, out);
    dump_peers(server, out);
    for (uint32_t j = 0; j < server->job_count; j++) dump_job(server->jobs[j], out);
    fflush(out);
}
