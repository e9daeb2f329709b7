/* SPDX-License-Identifier: Apache-2.0 */
#include "common/net/groups.h"

#include <stdio.h>
#include <string.h>

static bool is_relay(const ts_group_member *member) { return member->role == TS_ROLE_SERVER && member->above[0]; }

static ts_role role_in(const ts_group_member *member, const char *group) {
    if (member->role == TS_ROLE_SERVER && strcmp(member->group, group) == 0) return TS_ROLE_SERVER;
    if (is_relay(member) && strcmp(member->above, group) == 0) return TS_ROLE_WORKER;
    if (member->role == TS_ROLE_WORKER && strcmp(member->group, group) == 0) return TS_ROLE_WORKER;
    return TS_ROLE_NONE;
}

static uint32_t job_of(ts_group_view *view, const char *name) {
    uint32_t job = 0;
    while (job < view->job_count && strcmp(view->jobs[job].name, name) != 0) job++;
    if (job == view->job_count) {
        view->jobs[job] = (ts_transport_job){.workers = 0};
        snprintf(view->jobs[job].name, sizeof view->jobs[job].name, "%s", name);
        view->job_count++;
    }
    return job;
}

static void name_peer(const ts_group_view *view, ts_peer *peer, const ts_group_member *member, uint32_t rank,
                      const char *group) {
    static const char *const roles[] = {"server", "worker", "rank"};
    char job[TS_JOB_NAME_CHARS + 8] = "", of[TS_GROUP_CHARS + 32] = "";
    if (peer->role == TS_ROLE_WORKER && view->job_count > 1)
        snprintf(job, sizeof job, " of job %s", view->jobs[peer->job].name);
    if (peer->relay) snprintf(of, sizeof of, ", the relay of %s", member->group);
    else if (peer->role == TS_ROLE_SERVER && is_relay(member)) snprintf(of, sizeof of, ", the relay of %s", group);
    snprintf(peer->name, sizeof peer->name, "%s %u%s (rank %u on %.32s%s)", roles[peer->role],
             peer->role == TS_ROLE_NONE ? rank : peer->index, job, rank, member->host, of);
}

void ts_groups_view(const ts_group_member *members, uint32_t count, uint32_t self, bool above, ts_group_view *view) {
    const char *group = above ? members[self].above : members[self].group;
    view->job_count = view->servers = view->workers = 0;
    for (uint32_t m = 0; m < count; m++) {
        ts_peer *peer = &view->peers[m];
        *peer = (ts_peer){.role = role_in(&members[m], group)};
        peer->relay = peer->role == TS_ROLE_WORKER && is_relay(&members[m]);
        if (peer->role == TS_ROLE_SERVER) peer->index = view->servers++;
        if (peer->role != TS_ROLE_WORKER) continue;
        peer->job = job_of(view, members[m].job);
        peer->index = view->jobs[peer->job].workers++;
        view->workers++;
    }
    for (uint32_t m = 0; m < count; m++) name_peer(view, &view->peers[m], &members[m], m, group);
    if (view->peers[self].role == TS_ROLE_WORKER) view->workers = view->jobs[view->peers[self].job].workers;
}

/* Below a relay there is one job: the relay is one worker above. */
static terse_status check_job(const ts_group_member *members, uint32_t count, uint32_t relay, ts_error *error) {
    const char *group = members[relay].group;
    uint32_t first = count;
    for (uint32_t m = 0; m < count; m++) {
        if (role_in(&members[m], group) != TS_ROLE_WORKER) continue;
        if (first == count) first = m;
        if (strcmp(members[m].job, members[first].job) != 0)
            return ts_error_set(error, TERSE_EMISMATCH, "the relay at rank %u serves one job, and in its group \"%s\" rank %u is a "
                                "worker of job.name %s, rank %u of %s: give each job a relay and a group of its own", relay, group,
                                first, members[first].job, m, members[m].job);
    }
    return TERSE_OK;
}

terse_status ts_groups_check(const ts_group_member *members, uint32_t count, ts_error *error) {
    for (uint32_t m = 0; m < count; m++) {
        const ts_group_member *member = &members[m];
        if (member->role >= TS_ROLE_NONE) continue;
        if (is_relay(member) && strcmp(member->above, member->group) == 0)
            return ts_error_set(error, TERSE_EMISMATCH, "the relay at rank %u is above itself: servers.group of its config "
                                "and of its upstream.config are both \"%s\"; each level needs a name of its own", m,
                                member->group);
        const char *served = is_relay(member) ? member->above : member->group;
        uint32_t servers = 0, relays = 0;
        for (uint32_t o = 0; o < count; o++) {
            servers += members[o].role == TS_ROLE_SERVER && strcmp(members[o].group, served) == 0;
            relays += is_relay(&members[o]) && strcmp(members[o].group, member->group) == 0;
        }
        /* A launch without any server is another matter: its workers may attach to a daemon, or say what is missing. */
        if (servers == 0 && (is_relay(member) || strcmp(served, "default") != 0))
            return ts_error_set(error, TERSE_EMISMATCH, "nobody serves the group \"%s\", which rank %u (%s) %s: a server "
                                "with servers.group=%s is missing from the launch", served, m, member->host,
                                is_relay(member) ? "relays to" : "is a worker of", served);
        if (relays > 0 && is_relay(member)) {
            uint32_t in_group = 0;
            for (uint32_t o = 0; o < count; o++)
                in_group += members[o].role == TS_ROLE_SERVER && strcmp(members[o].group, member->group) == 0;
            if (in_group > 1)
                return ts_error_set(error, TERSE_EMISMATCH, "the group \"%s\" has %u servers, and the relay at rank %u must "
                                    "be its only one: give each relay a group of its own", member->group, in_group, m);
            TS_TRY(check_job(members, count, m, error));
        }
    }
    return TERSE_OK;
}
