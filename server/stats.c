/* SPDX-License-Identifier: Apache-2.0 */
#include "server/stats.h"

#include "common/base/mem.h"
#include "server/job.h"
#include "server/peer_link.h"

/*
 * What servers send each other of what was pushed counts with the pushes. A part that this server has taken over has no
 * bytes of its own.
 */
static void count_bytes(const ts_job *job, Terse__Stats *stats) {
    if (job->own) return;
    stats->bytes_in += job->replica.bytes_in;
    if (job->replica.steady) stats->steady_bytes_in += job->replica.bytes_in - job->replica.steady_base;
    const ts_transport *transport = job->server->transport;
    for (uint32_t p = 0; p < job->server->link_count; p++) { /* former lives, too */
        if (transport->peers[p].role != TS_ROLE_WORKER || transport->peers[p].job != job->id) continue;
        const ts_link *link = &job->server->links[p];
        stats->bytes_in += link->bytes_in;
        stats->bytes_out += link->bytes_out;
        if (!link->steady) continue;
        stats->steady_bytes_in += link->bytes_in - link->steady_in_base;
        stats->steady_bytes_out += link->bytes_out - link->steady_out_base;
    }
}

static terse_status build(ts_job *job, ts_buffer **frame) {
    uint32_t count = job->store.count;
    Terse__SliceHash *hashes = ts_mem_calloc(count, sizeof *hashes);
    Terse__SliceHash **list = ts_mem_calloc(count, sizeof *list);
    terse_status status = TERSE_ENOMEM;
    if (!hashes || !list) goto out;
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Stats stats = TERSE__STATS__INIT;
    ts_job_head(job, &header);
    header.body_case = TERSE__HEADER__BODY_STATS;
    header.stats = &stats;
    for (uint32_t s = 0; s < count; s++) {
        hashes[s] = (Terse__SliceHash)TERSE__SLICE_HASH__INIT;
        hashes[s].slice = s;
        hashes[s].xxh3 = ts_store_hash(&job->store.slices[s]);
        list[s] = &hashes[s];
    }
    stats.n_hashes = count;
    stats.hashes = list;
    stats.rounds = ts_store_version(&job->store);
    stats.lost_rounds = job->members.quorums.lost + job->members.lost_rounds;
    stats.lost_workers = ts_membership_missed(&job->members);
    for (uint32_t w = 0; w < job->members.count; w++) {
        stats.unsent_l1 += job->members.members[w].unsent_l1;
        stats.unsent_squares += job->members.members[w].unsent_squares;
        stats.unsent_nonzero += job->members.members[w].unsent_nonzero;
    }
    count_bytes(job, &stats);
    status = ts_frame_control(&header, frame);
out:
    ts_mem_free(hashes);
    ts_mem_free(list);
    return status;
}

bool ts_stats_due(const struct ts_job *job) {
    for (uint32_t w = 0; w < job->members.count; w++)
        if (job->members.members[w].stats_due) return true;
    return false;
}

void ts_stats_serve(struct ts_job *job) {
    if (!ts_stats_due(job) || job->rounds.running > 0) return;
    ts_buffer *frame = NULL;
    terse_status status = build(job, &frame);
    for (uint32_t w = 0; w < job->members.count; w++) {
        ts_member *member = &job->members.members[w];
        if (!member->stats_due) continue;
        member->stats_due = false;
        if (status == TERSE_OK) ts_link_answer(job->server, member->peer, frame);
        else job->server->links[member->peer].send_failures++;
    }
    if (status == TERSE_OK) ts_buffer_unref(frame);
}
