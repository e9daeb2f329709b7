/* SPDX-License-Identifier: Apache-2.0 */
#include "server/flow.h"

#include "common/base/log.h"
#include "server/job.h"
#include "server/peer_link.h"

#define AHEAD_BYTES ((size_t)3 << 19) /* less than two slices of the usual size */
#define REPLY_BYTES ((size_t)8 << 20) /* as much as keeps any link busy until the next look */

/* Jobs that run share alike, and so do the workers of a job. */
static size_t share(const ts_server *server, uint32_t peer) {
    const ts_transport *transport = server->transport;
    const ts_peer *to = &transport->peers[peer];
    uint64_t jobs = server->running_jobs > 0 ? server->running_jobs : 1;
    uint32_t workers = to->role == TS_ROLE_WORKER ? transport->jobs[to->job].workers : transport->workers;
    return (size_t)(ts_config_traffic_share(server->config, workers) / jobs);
}

size_t ts_flow_held_limit(const ts_server *server, uint32_t peer) { return share(server, peer) / 2; }

size_t ts_flow_queue_limit(const ts_server *server, uint32_t peer) { return share(server, peer) / 4; }

size_t ts_flow_reply_limit(const ts_server *server, uint32_t peer) {
    size_t limit = ts_flow_queue_limit(server, peer);
    return limit < REPLY_BYTES ? limit : REPLY_BYTES;
}

bool ts_flow_queue_has_room(const ts_server *server, uint32_t peer, size_t bytes) {
    size_t queued = server->transport->ops->queued(server->transport, peer);
    return queued == 0 || queued + bytes <= ts_flow_queue_limit(server, peer);
}

static bool worth_saying(uint64_t before, uint64_t now) {
    uint64_t both = before ^ now;
    return both > before; /* the highest bit is new */
}

void ts_flow_note_refused(ts_server *server, uint32_t peer, size_t packets) {
    ts_link *link = &server->links[peer];
    uint64_t before = link->no_room;
    link->no_room += packets;
    if (!worth_saying(before, link->no_room)) return;
    ts_log(TS_LOG_WARN, "flow", "a worker's packets wait: its share of limits.traffic_bytes is full",
           "worker=\"%s\" share=%zu packets_refused=%llu", ts_server_peer_name(server, peer), ts_flow_held_limit(server, peer),
           (unsigned long long)link->no_room);
}

void ts_flow_note_withheld(ts_server *server, uint32_t peer) {
    ts_link *link = &server->links[peer];
    uint64_t before = link->withheld++;
    if (!worth_saying(before, link->withheld)) return;
    ts_log(TS_LOG_WARN, "flow", "a worker reads more slowly than it is sent: answers wait",
           "worker=\"%s\" queued=%zu limit=%zu withheld=%llu", ts_server_peer_name(server, peer),
           server->transport->ops->queued(server->transport, peer), ts_flow_queue_limit(server, peer),
           (unsigned long long)link->withheld);
}

/* On one host the workers wait for answers of their own accord (ts_transport.near_bytes). */
static bool paces(const ts_job *job) {
    return !job->server->transport->near_bytes && ts_job_runs(job) && !job->mute && job->store.books &&
           !job->members.quorums.active;
}

/* Whoever is slow must not look dead for being held back. */
static bool heard_lately(const ts_server *server, uint32_t peer) {
    return ts_server_now(server) - server->links[peer].last_heard_us < ts_server_deadline_us(server) / 4;
}

/* What may be held of a worker before it is ahead; SIZE_MAX: nobody is. */
static size_t pace(const ts_job *job) {
    size_t least = SIZE_MAX, most = 0;
    if (!paces(job)) return SIZE_MAX;
    for (uint32_t w = 0; w < job->members.count; w++) {
        size_t held = job->store.books->held[w];
        if (job->members.members[w].state != TS_MEMBER_ATTACHED) continue;
        least = held < least ? held : least;
        most = held > most ? held : most;
    }
    size_t ahead = share(job->server, ts_job_peer(job, 0)) / 8;
    if (ahead > AHEAD_BYTES) ahead = AHEAD_BYTES;
    return most > least && most - least > ahead ? least + ahead : SIZE_MAX;
}

void ts_flow_pace(struct ts_job *job) {
    ts_transport *transport = job->server->transport;
    size_t most = transport->ops->hold_back ? pace(job) : SIZE_MAX;
    if (most == SIZE_MAX && !job->paced) return;
    job->paced = most < SIZE_MAX;
    for (uint32_t w = 0; w < job->members.count; w++) {
        const ts_member *member = &job->members.members[w];
        bool ahead = job->paced && member->state == TS_MEMBER_ATTACHED && job->store.books->held[w] > most;
        transport->ops->hold_back(transport, member->peer, ahead && heard_lately(job->server, member->peer));
    }
}
