/* SPDX-License-Identifier: Apache-2.0 */
/* What test_simulation.c lends to other files of seeded clusters. */
#ifndef TS_SIMULATION_SUPPORT_H
#define TS_SIMULATION_SUPPORT_H

#include "tests/sim/cluster.h"

#define SECOND 1000000u

typedef struct {
    uint64_t lead, returned, returns;
    unsigned absent;
} replayed;

/* A cluster, a function of the seed; the second: whose workers compute at different speeds. */
ts_cluster_spec spec_of(uint64_t seed);
ts_cluster_spec uneven_spec_of(uint64_t seed);
/* Whether one seed alone is wanted (TERSE_SIM_SEED), and which. */
bool only_seed(uint64_t *seed);
/* How many are. */
unsigned seed_count(unsigned usual);
/* Runs and replays; returns how far anybody was ahead of the slowest, what came too late, who came back, who was not there. */
replayed cluster_equals_replay(uint64_t seed, ts_cluster_spec *spec);

/* Removes a folder of workers' files. */
void clear_keep_folder(const char *folder);

#endif
