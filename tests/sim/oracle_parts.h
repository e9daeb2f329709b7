/* SPDX-License-Identifier: Apache-2.0 */
/* What the sequential reference (oracle.c) and the replay of receipts (replay.c) share. */
#ifndef TS_SIM_ORACLE_PARTS_H
#define TS_SIM_ORACLE_PARTS_H

#include "tests/sim/cluster.h"

#define ORACLE_SLICES 64
#define ORACLE_PACKET_ROOM 65536

typedef struct {
    const ts_cluster_spec *spec;
    ts_config *config;
    ts_contract *contract;
    ts_scratch *scratch;
    ts_cluster_result *result;
    ts_encoder *up[TS_CLUSTER_WORKERS][TS_CLUSTER_TENSORS];
    float velocity[TS_CLUSTER_WORKERS][TS_CLUSTER_TENSORS][512];
    float estimate[TS_CLUSTER_WORKERS][TS_CLUSTER_TENSORS][512], estimates[TS_CLUSTER_TENSORS][512]; /* EF21 */
    ts_encoder *down[ORACLE_SLICES];
    ts_decode_state *state[TS_CLUSTER_WORKERS][ORACLE_SLICES]; /* of what was pushed */
    float reference[TS_CLUSTER_TENSORS][512];
    float optimizer[TS_CLUSTER_TENSORS][3][512];
    float said[TS_CLUSTER_TENSORS][TS_CLUSTER_WORKERS][512]; /* of this step's participants, in worker order */
    float weight[TS_CLUSTER_TENSORS][TS_CLUSTER_WORKERS];
    bool by_samples;
    float total; /* of the participants' samples, or their number */
    float sum[TS_CLUSTER_TENSORS][512];
    float gradient[512], difference[512];
    uint8_t packet[ORACLE_PACKET_ROOM];
} oracle;

/* Config, contract, encoders, first values. o: zeroed. out: zeroed by this. */
terse_status ts_oracle_begin(oracle *o, const ts_cluster_spec *spec, ts_cluster_result *out) TERSE_NODISCARD;
void ts_oracle_end(oracle *o); /* frees o */
/*
 * Encodes what a worker says of a tensor at a step, which is its own step number `local`, into o->packet.
 * len: [out] of each of the tensor's slices.
 */
terse_status ts_oracle_encode(oracle *o, uint32_t w, uint32_t t, uint64_t step, uint64_t local, size_t *len)
    TERSE_NODISCARD;
/* The slice's next version: encodes under `version`, moves o->reference. ratio: 0 for the pipeline's own. */
terse_status ts_oracle_version(oracle *o, uint32_t slice, uint64_t version, double ratio) TERSE_NODISCARD;

#endif
