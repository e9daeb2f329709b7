/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a slice costs the server that owns it, from its pipelines alone: placement balances this, and so it has to be
 * the same number everywhere. Integers, and nothing that differs between machines.
 */
#ifndef TS_CONTRACT_WORK_H
#define TS_CONTRACT_WORK_H

#include "common/contract/contract.h"

/* A round is counted with so many workers, whatever the launch: placement must not depend on them. */
#define TS_WORK_WORKERS 4u

/*
 * Picoseconds of one core for one round of the slice: taking TS_WORK_WORKERS packets apart and adding them, the
 * optimizer's step, the pull. tensor, n: need not be a slice of the contract's yet. Thread: any.
 */
uint64_t ts_contract_work(const ts_contract *contract, uint32_t tensor, size_t n);
/* Its parts: one packet of n elements decoded and added; the pull made of n elements. */
uint64_t ts_work_decode(const ts_tensor *tensor, size_t n);
uint64_t ts_work_pull(const ts_tensor *tensor, size_t n);
/* The optimizer's step on n elements, by the name in the contract. */
uint64_t ts_work_step(const ts_contract *contract, const ts_tensor *tensor, size_t n);

/* About how many bytes a packet of n elements takes (byte packs and what clusters left out of account). */
uint64_t ts_work_packet_bytes(const ts_tensor *tensor, const ts_pipeline *pipeline, size_t n);

/* Whether the stage of this name has been measured; tests ask it for every stage there is. */
bool ts_work_knows(const char *stage);

#endif
