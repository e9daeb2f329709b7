/* SPDX-License-Identifier: Apache-2.0 */
/* What disturbs a simulated cluster: kills, stops, partitions, and processes that come in the place of others. */
#include "tests/sim/cluster_parts.h"

#include "common/base/random.h"
#include "server/server.h"

#define RETRY_US 300000u

/* Its own way into the job, in the place of a worker or as a new one. Returns whether it has one; else it may try again. */
static bool come(cluster *c, uint32_t w) {
    worker *me = &c->workers[w];
    ts_transport_wish wish = {.job = "default", .wanted = w};
    ts_error reason = {""};
    uint32_t number = 0;
    if (c->spec->network.seed % 2 && !c->spec->come_us[w]) { /* any, and finds what it has kept */
        wish.wanted = TS_WORKER_ANY;
        wish.kept[wish.kept_count++] = w;
    }
    terse_status status = ts_sim_come(c->network, &wish, &number, &me->peer, &reason);
    if (status == TERSE_OK && number != w) ts_cluster_note_failure(c, "worker", w, "it was given another's place");
    uint32_t leads = c->dead[0] ? 1 : 0;
    bool over = c->dead[leads] || ts_server_get_state(c->servers[leads]) != TS_SERVER_RUNNING;
    me->back_us = status == TERSE_OK || over ? 0 : ts_sim_now_us(c->network) + RETRY_US;
    return status == TERSE_OK;
}

/* A new process in the place of one that was killed. */
static void restart(cluster *c, uint32_t w) {
    worker *me = &c->workers[w];
    if (c->spec->comes_anew && !come(c, w)) return;
    if (!c->spec->comes_anew) ts_sim_revive(c->network, me->peer);
    bool dies = c->spec->live_us[w] && me->comings == 0;
    *me = (worker){.job = me->job, .index = me->index, .peer = me->peer, .first = me->first, .comings = me->comings + 1,
                   .dies_us = dies ? ts_sim_now_us(c->network) + c->spec->live_us[w] : UINT64_MAX, .asleep_us = UINT64_MAX};
    if (c->spec->forgets) ts_cluster_note_event(c, &(ts_cluster_event){.kind = TS_CLUSTER_FORGOT, .worker = w});
    if (ts_client_create(c->jobs[me->job], ts_sim_endpoint(c->network, me->peer), &me->client) != TERSE_OK)
        ts_cluster_note_failure(c, "worker", w, "create failed");
    else ts_cluster_start_worker(c, w);
}

static void kill(cluster *c, uint32_t w) {
    worker *me = &c->workers[w];
    me->dead = true;
    ts_sim_kill(c->network, me->peer);
    if (c->spec->comes_anew) ts_sim_tell_lost(c->network, me->peer);
    if (!c->spec->restart_us[w]) return;
    ts_client_destroy(me->client); /* what it has kept stays where it is, as if nobody had touched it */
    me->client = NULL;
    me->back_us = ts_sim_now_us(c->network) + c->spec->restart_us[w];
}

/* Whether the worker is stopped now. */
bool ts_cluster_sleeps(cluster *c, uint32_t w) {
    worker *me = &c->workers[w];
    uint64_t now = ts_sim_now_us(c->network);
    if (!c->spec->sleep_after[w] || me->pushed < c->spec->sleep_after[w]) return false;
    ts_random random = ts_random_start(ts_random_key(c->spec->network.seed, w, 0, 0, 601));
    if (!me->asleep_us) me->asleep_us = now + ts_random_below(&random, 400000);
    return me->phase != GONE && now >= me->asleep_us && now - me->asleep_us < c->spec->sleep_us[w];
}

/* Workers whose time has come. */
void ts_cluster_kill_due(cluster *c) {
    uint64_t now = ts_sim_now_us(c->network);
    for (uint32_t w = 0; w < c->spec->network.workers; w++) {
        worker *me = &c->workers[w];
        if (me->back_us && now >= me->back_us) restart(c, w);
        if (me->dies_us == UINT64_MAX || !ts_cluster_is_killed(c->spec, w) || me->dead || me->phase == GONE) continue;
        if (now < c->spec->kill_us[w] || me->pushed < c->spec->kill_after[w]) continue;
        ts_random random = ts_random_start(ts_random_key(c->spec->network.seed, w, 0, 0, 600));
        if (!me->dies_us) me->dies_us = now + (c->spec->kill_us[w] ? 0 : ts_random_below(&random, 400000));
        if (now >= me->dies_us) kill(c, w);
    }
}

/* Whether a server is stopped now. */
bool ts_cluster_stopped(const cluster *c, uint32_t server) {
    uint64_t now = ts_sim_now_us(c->network);
    return c->spec->stop.at_us && server == c->spec->stop.a && now >= c->spec->stop.at_us && now < c->spec->stop.until_us;
}

static bool all_attached(const cluster *c) {
    for (uint32_t w = 0; w < c->spec->network.workers; w++)
        if (c->workers[w].phase == ATTACHING) return false;
    return true;
}

void ts_cluster_part_and_heal(cluster *c) {
    uint64_t now = ts_sim_now_us(c->network);
    uint32_t peers = c->spec->network.servers + c->spec->network.workers, away[2 * TS_CLUSTER_WORKERS] = {0};
    if (!c->spec->parts[0].at_us) return;
    for (unsigned p = 0; p < TS_CLUSTER_PARTS; p++) {
        uint64_t *since = &c->parted_us[p], at = c->spec->parts[p].at_us;
        if (!*since && at && now >= at && (!c->spec->parts[p].attached || all_attached(c))) *since = now;
        if (!*since || now - *since >= c->spec->parts[p].for_us) continue;
        for (uint32_t a = 0; a < peers; a++) {
            if (c->spec->parts[p].side >> a & 1) away[a] |= c->spec->parts[p].other;
            if (c->spec->parts[p].other >> a & 1) away[a] |= c->spec->parts[p].side;
        }
    }
    for (uint32_t a = 0; a < peers; a++)
        for (uint32_t b = a + 1; b < peers; b++) ts_sim_cut(c->network, a, b, away[a] >> b & 1);
}

/* Whose time has come dies, between two frames of it. */
void ts_cluster_kill_servers(cluster *c) {
    uint64_t now = ts_sim_now_us(c->network);
    if (c->spec->cut.at_us) ts_sim_cut(c->network, c->spec->cut.a, c->spec->cut.b, now >= c->spec->cut.at_us && now < c->spec->cut.until_us);
    for (unsigned k = 0; k < TS_CLUSTER_KILLS; k++) {
        uint64_t at = k ? c->spec->kills[k - 1].at_us : c->spec->kill_at_us;
        uint32_t peer = k ? c->spec->kills[k - 1].peer : c->spec->kill_peer;
        bool *dead = peer < c->spec->network.servers ? &c->dead[peer] : &c->workers[peer - c->spec->network.servers].dead;
        if (at == 0 || now < at || *dead) continue;
        *dead = true;
        ts_sim_kill(c->network, peer);
        if (c->spec->tells) ts_sim_tell_lost(c->network, peer);
        if (peer >= c->spec->network.servers || c->spec->pool_threads) continue; /* what is in the pool goes on, as when it is stopped */
        ts_server_destroy(c->servers[peer]); /* and lets go of its files */
        c->servers[peer] = NULL;
    }
}

void ts_cluster_tell(cluster *c) {
    const ts_cluster_spec *spec = c->spec;
    uint64_t now = ts_sim_now_us(c->network);
    ts_client *client = c->workers[0].client;
    if (spec->act.at_us && now >= spec->act.at_us && !c->acted) {
        c->acted = true;
        spec->act.act(spec->act.context);
    }
    if (!spec->drain.at_us || now < spec->drain.at_us || c->drained) return;
    c->drained = true;
    for (uint32_t s = 0; s < spec->network.servers; s++)
        if ((spec->drain.servers >> s & 1) && !c->dead[s]) ts_server_drain(c->servers[s], "SIGTERM");
    if (spec->drain.by_worker && client && ts_client_request_checkpoint(client, true, "SIGTERM") != TERSE_OK)
        ts_cluster_note_failure(c, "worker", 0, "its request was refused");
}
