/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TS_ONE_ACCOUNT_H
#define TS_ONE_ACCOUNT_H

#include "tests/sim/cluster.h"

/*
 * With replicas two servers tell the same of a slice, one of them sooner: each thing is kept once, and the test fails where
 * they do not tell the same.
 */
void keep_one_account(uint64_t seed, ts_cluster_result *run);

#endif
