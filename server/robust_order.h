/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order statistics of each coordinate over the workers (Yin et al. 2018): the median, and the mean without the lowest
 * and highest values. Coordinates go by blocks; a block is `count` rows of TS_ROBUST_BLOCK values, one row a worker.
 * All values are finite. The results depend on the values alone, neither on the order of the workers nor on the CPU.
 */
#ifndef TS_SERVER_ROBUST_ORDER_H
#define TS_SERVER_ROBUST_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "common/config/config.h"

#define TS_ROBUST_BLOCK 64u

/* How many values `trimmed` leaves out at each end: trim · count, rounded down, and at least one always stays. */
uint32_t ts_robust_cut(double trim, uint32_t count);

/*
 * out[j] = the median of column j, the mean of the two in the middle when count is even; or the mean of what is left
 * when `cut` are left out at each end, added from the lowest up. rows: [borrow] count × TS_ROBUST_BLOCK, count > 0,
 * sorted afterwards. Thread: any.
 */
void ts_robust_block(ts_robust_name robust, uint32_t cut, float *rows, uint32_t count, float out[TS_ROBUST_BLOCK]);

#endif
