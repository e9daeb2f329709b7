/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated cluster's own state, shared by cluster.c, which drives it, cluster_worker.c and cluster_faults.c, which disturbs it. */
#ifndef TS_SIM_CLUSTER_PARTS_H
#define TS_SIM_CLUSTER_PARTS_H

#include "common/base/random.h"
#include "tests/sim/cluster.h"
#include "tests/sim/timed_pool.h"
#include "worker/client/client.h"

#define TICK_US 20000u
#define SLICES_MOST 64u

typedef enum { ATTACHING, PUSHING, PULLING, FETCHING, LEAVING, GONE } phase;

typedef struct {
    ts_client *client;
    uint32_t job, index; /* its job, its number there */
    uint32_t peer;       /* of its process */
    bool dead;
    unsigned comings;    /* processes that have come as this worker */
    uint32_t first;      /* tensor */
    phase phase;
    uint64_t step;
    uint32_t next_push;
    uint64_t pushed;   /* whole steps */
    uint64_t sum;      /* the sequence of the barrier; 0 before it */
    uint64_t sums;     /* how many it is past */
    bool past_barrier; /* the one after the last step */
    uint64_t ready_us; /* its gradient is computed then */
    uint64_t dies_us;  /* with spec.kill_after */
    uint64_t back_us;  /* killed, and restarted then */
    uint64_t asleep_us, wakes_us; /* with spec.sleep_after */
    uint32_t returns;  /* that were noticed */
    bool resting;      /* it pushes what is left of its residual */
    bool asked;
    float gradient[TS_CLUSTER_TENSORS][510];
} worker;

struct cluster;
typedef struct {
    struct cluster *cluster;
    uint32_t member; /* the server, or the worker */
} listener;

typedef struct cluster {
    const ts_cluster_spec *spec;
    listener server_contexts[TS_CLUSTER_WORKERS], worker_contexts[TS_CLUSTER_WORKERS]; /* of their callbacks */
    ts_random away_random; /* with spec.away_us */
    bool is_away;
    uint64_t next_tick_us; /* everybody's */
    ts_config *config;   /* the servers' */
    ts_config *jobs[TS_SIM_JOBS];
    ts_sim_network *network;
    ts_server *servers[TS_CLUSTER_WORKERS];
    timed_pool pools[TS_CLUSTER_WORKERS];
    uint32_t joined;
    bool drained, acted;
    uint64_t parted_us[TS_CLUSTER_PARTS]; /* when it began; 0: not yet */
    bool dead[TS_CLUSTER_WORKERS]; /* servers */
    worker workers[TS_CLUSTER_WORKERS];
    ts_cluster_result *result;
} cluster;

/* cluster.c */
void ts_cluster_note_failure(cluster *c, const char *who, uint32_t index, const char *message);
void ts_cluster_note_event(cluster *c, const ts_cluster_event *event);
/* For a client that lets go of its lock, and for one that waits for news; context: the worker's listener. */
void ts_cluster_go_on(void *context);
void ts_cluster_pause(void *context);

/* cluster_worker.c */
void ts_cluster_start_worker(cluster *c, uint32_t w);
/* As far as it comes without waiting. */
void ts_cluster_drive(cluster *c, uint32_t w);

/* cluster_faults.c */
/* Workers whose time has come, to die or to be there again. */
void ts_cluster_kill_due(cluster *c);
void ts_cluster_kill_servers(cluster *c);
/* Whether a worker, a server, is stopped now. */
bool ts_cluster_sleeps(cluster *c, uint32_t w);
bool ts_cluster_stopped(const cluster *c, uint32_t server);
void ts_cluster_part_and_heal(cluster *c);
/* Who is told to end, and what the test does itself. */
void ts_cluster_tell(cluster *c);

#endif
