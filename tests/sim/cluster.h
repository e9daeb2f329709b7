/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole cluster in one process: real server and client cores over the
 * in-process transport, a fake clock, seeded faults. Every run is a function of
 * its spec; a failing one prints what replays it.
 */
#ifndef TS_SIM_CLUSTER_H
#define TS_SIM_CLUSTER_H

#include <stdbool.h>

#include "common/config/config.h"
#include "common/contract/contract.h"
#include "common/net/sim_transport.h"
#include "server/server.h"

#define TS_CLUSTER_TENSORS 4
#define TS_CLUSTER_WORKERS 8
#define TS_CLUSTER_KILLS 2
#define TS_CLUSTER_PARTS 6
#define TS_CLUSTER_REST UINT64_MAX

/* The tensors every simulated worker declares. */
typedef struct {
    const char *name;
    int64_t shape[2];
    unsigned ndim;
    size_t n;
} ts_cluster_tensor;
extern const ts_cluster_tensor ts_cluster_tensors[TS_CLUSTER_TENSORS];

typedef struct {
    ts_sim_options network;
    const char *const *overrides; /* --set strings on top of tests/sim/sim.yaml */
    unsigned override_count;
    uint64_t steps[TS_CLUSTER_WORKERS]; /* of each worker: uneven data */
    uint32_t samples[TS_CLUSTER_WORKERS]; /* that each worker says its gradients are means of; 0: it says nothing */
    uint64_t limit_us;                  /* fake time after which a run counts as hung */
    uint64_t kill_at_us;                /* 0 for never */
    uint32_t kill_peer;
    bool tells;                         /* the others are told at once when a server has died */
    uint64_t kill_after[TS_CLUSTER_WORKERS]; /* a worker dies some time after it has pushed so many steps; 0: never */
    uint64_t kill_us[TS_CLUSTER_WORKERS];    /* or at that time, whatever it is doing; 0: never */
    uint64_t restart_us[TS_CLUSTER_WORKERS]; /* and so long after that another process takes its place; 0: none does */
    bool comes_anew;                         /* over a way of its own, as into a daemon's job (ts_sim_come; network.spare) */
    bool forgets;                            /* and with nothing of what the killed one had */
    uint64_t come_us[TS_CLUSTER_WORKERS];    /* of the last, network.late_workers: when it comes */
    uint64_t live_us[TS_CLUSTER_WORKERS];    /* and so long after that it dies; 0: it does not. restart_us as of the killed */
    uint64_t sleep_after[TS_CLUSTER_WORKERS]; /* a worker is stopped some time after it has pushed so many steps; 0: never */
    uint64_t sleep_us[TS_CLUSTER_WORKERS];   /* for so long */
    struct {
        uint64_t at_us;
        uint32_t peer;
    } kills[TS_CLUSTER_KILLS - 1];      /* further ones */
    uint64_t pull_every;                /* tensors 0 and 2 are pulled in every so many steps only; 0 or 1: all */
    bool barrier;                       /* all meet in a sum before they say done */
    uint64_t sum_every;                 /* and before every so many steps; 0: not */
    struct {
        uint64_t at_us, until_us;
        uint32_t a, b;                  /* peers */
    } stop, cut;                        /* stop: peer a, a server, does nothing meanwhile, as with SIGSTOP. cut: nothing passes between the two meanwhile; at_us 0: never */
    struct {
        uint64_t at_us, for_us;
        uint32_t side, other;           /* bit masks of peers: nothing passes between one of these and one of those meanwhile */
        bool attached;                  /* it waits until all workers take part: who is given up before cannot come back */
    } parts[TS_CLUSTER_PARTS];          /* partitions; at_us 0: none */
    bool records;                       /* keep the events */
    uint64_t think_us[TS_CLUSTER_WORKERS]; /* how long each worker computes a step, at most; seeded */
    struct {
        const char *const *overrides; /* of the job's own config, on top of those above */
        unsigned override_count;
        uint32_t first_tensor;        /* the job declares the table's tensors from here on */
    } job[TS_SIM_JOBS];               /* with network.job_workers; workers count through the jobs */
    uint64_t join_every_us;           /* the network's late jobs join at this time, twice this time, … */
    bool begins_at_join;              /* their workers begin then, and know who is dead; else at the beginning */
    unsigned pool_threads;            /* of each server, in fake time; 0: work takes none */
    uint64_t work_ns_a_byte;
    uint64_t work_most_us;            /* instead: of any kind of work, at most so long; seeded */
    struct {
        uint64_t at_us;
        uint32_t servers;             /* bit mask: those that live are told to end, after a last checkpoint where there are any */
        bool by_worker;               /* and worker 0 asks for it */
    } drain;
    struct {
        uint64_t at_us;
        void (*act)(void *context);   /* on what lies outside of the cluster; at_us 0: not */
        void *context;
    } act;
    uint64_t total_steps;             /* that the workers tell the servers; 0: they do not */
    uint64_t away_us;                 /* while a worker encodes or decodes without its lock the network goes on, for so long
                                         at most; seeded. 0: it does not */
    bool large;                       /* packets go the way of large ones, as in a terse_step: lent, or alone in a frame, and not
                                         far ahead of their answers */
} ts_cluster_spec;

/* Whether the worker is to die for good; and whether it is missed for some time. */
static inline bool ts_cluster_is_killed(const ts_cluster_spec *spec, uint32_t w) {
    return spec->kill_after[w] || spec->kill_us[w] || spec->live_us[w];
}
static inline bool ts_cluster_dies(const ts_cluster_spec *spec, uint32_t w) {
    return ts_cluster_is_killed(spec, w) && !spec->restart_us[w];
}
static inline bool ts_cluster_is_cut_off(const ts_cluster_spec *spec, uint32_t w) {
    uint32_t masks = 0;
    for (unsigned p = 0; p < TS_CLUSTER_PARTS; p++) masks |= spec->parts[p].side | spec->parts[p].other;
    return masks >> (spec->network.servers + w) & 1;
}
static inline bool ts_cluster_is_missed(const ts_cluster_spec *spec, uint32_t w) {
    return ts_cluster_is_killed(spec, w) || spec->sleep_after[w] || spec->come_us[w] || ts_cluster_is_cut_off(spec, w);
}

/* What happened, in the order in which it did. */
typedef struct {
    enum { TS_CLUSTER_PUSHED, TS_CLUSTER_HOLDS, TS_CLUSTER_GIVEN_BACK, TS_CLUSTER_TAKEN_BACK, TS_CLUSTER_BACK, TS_CLUSTER_FORGOT,
           TS_CLUSTER_RECEIPT } kind;
    uint32_t worker, tensor; /* PUSHED: encoded the tensor at `step`, its own step number `local` */
    uint64_t step, local;    /* local TS_CLUSTER_REST: no gradient, but all that is left of the residual */
    uint32_t slice;          /* HOLDS: the worker's param has `version` of the slice */
                             /* FORGOT: the worker's residual, momentum and packets are lost */
                             /* BACK: the worker takes part again, after what was given back to it */
                             /* GIVEN_BACK: the worker has come back, and the slice's packet of `step` is its own again */
                             /* TAKEN_BACK: it is done, and has taken that packet, which was refused, into its residual */
    uint64_t version;
    ts_receipt receipt;      /* of a server */
    uint32_t server;         /* which; with replicas two say the same of a slice */
} ts_cluster_event;

/* What is left at the end. Arrays: [own], ts_cluster_result_free. */
typedef struct {
    bool finished;      /* every server FINISHED, every worker done */
    uint64_t returns;   /* how often a worker came back, or came */
    uint64_t first_return_us; /* when the first did; 0: none has */
    bool absent[TS_CLUSTER_WORKERS]; /* with comes_anew: it was dead at the end, or had come too late */
    bool missed[TS_CLUSTER_WORKERS]; /* was given up, and came back when the others had finished */
    bool torn[TS_CLUSTER_WORKERS];   /* with away_us: its client failed within a push, some of which is in its residual */
    bool ended;         /* nobody is running any more, well or not */
    uint64_t took_us;
    char message[1024]; /* of the first that failed, or whom the run still waited for */
    float *replica[TS_CLUSTER_WORKERS][TS_CLUSTER_TENSORS];
    float *residual[TS_CLUSTER_WORKERS][TS_CLUSTER_TENSORS];
    float *fetched[TS_CLUSTER_TENSORS]; /* the servers' parameters, as worker 0 fetched them */
    char xxh3[17];      /* of job 0 */
    struct {
        bool done;      /* all its workers left in order */
        uint64_t took_us;
        char xxh3[17];
        char message[1024]; /* of the first of its workers that failed */
    } job[TS_SIM_JOBS];
    uint64_t longest_work_us;
    ts_cluster_event *events; /* with spec.records */
    size_t event_count, event_room;
    uint64_t returned; /* replay: packets that came too late */
    uint64_t lent;      /* gradients that were sent from where they lay (spec.large) */
    uint64_t alone;     /* workers that had packets in frames of their own (spec.large) */
    uint64_t meanwhile; /* frames that came while a worker was encoding or decoding (spec.away_us) */
    uint64_t lead; /* the most steps that a worker began ahead of what the slowest had pushed */
} ts_cluster_result;

/* Initial value of an element, and the gradient a worker computes from its replica at a step. Pure. */
float ts_cluster_initial(uint32_t tensor, size_t element);
float ts_cluster_gradient(uint32_t tensor, size_t element, float param, uint32_t worker, uint64_t step);

/* Sets away_us and large, each with half of the seeds, of which half have both. */
void ts_cluster_vary(ts_cluster_spec *spec, uint64_t seed);

/* Runs the spec to its end. Returns TERSE_ENOMEM or TERSE_ECONFIG when it could not be set up. */
terse_status ts_cluster_run(const ts_cluster_spec *spec, ts_cluster_result *out) TERSE_NODISCARD;
/* An empty result with its arrays zeroed; free it even when this returns TERSE_ENOMEM. */
terse_status ts_cluster_result_create(ts_cluster_result *out, uint32_t workers) TERSE_NODISCARD;
void ts_cluster_result_free(ts_cluster_result *result);

/*
 * The oracle: the same training done in one loop, with the codec and this file's own arithmetic, knowing neither
 * server nor client. Fills replica, residual and fetched of `out` as a run would.
 */
terse_status ts_oracle_run(const ts_cluster_spec *spec, ts_cluster_result *out) TERSE_NODISCARD;

/*
 * The same from a run's events: every packet used exactly once, every sum, step and version done again in the order of
 * the receipts. complaint: [out] of `capacity` bytes; what is against the rules in words, else "".
 */
terse_status ts_replay_run(const ts_cluster_spec *spec, const ts_cluster_result *run, ts_cluster_result *out,
                           char *complaint, size_t capacity) TERSE_NODISCARD;
/*
 * The first run's events up to its checkpoint at step `cut`, and the events of the second, which went on from it.
 */
terse_status ts_replay_resumed(const ts_cluster_spec *spec, const ts_cluster_result *first, uint64_t cut,
                               const ts_cluster_result *second, ts_cluster_result *out, char *complaint,
                               size_t capacity) TERSE_NODISCARD;

#endif
