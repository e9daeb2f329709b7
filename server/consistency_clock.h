/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What SSP and ASP share: clocks. A worker's clock at a slice is the number of its packets that were applied there, so
 * it is also the step that it pushes next. Clocks may differ by the bound; ASP is SSP without one.
 */
#ifndef TS_SERVER_CONSISTENCY_CLOCK_H
#define TS_SERVER_CONSISTENCY_CLOCK_H

#include "server/consistency.h"

#define TS_CLOCK_UNBOUNDED UINT64_MAX

/*
 * The lowest clock of the workers that still owe a push, UINT64_MAX when none does. ahead: as it will be when all that
 * is held is applied.
 */
uint64_t ts_clock_lowest(const ts_membership *membership, const ts_slice_state *slice, bool ahead);

/* The functions of ts_consistency under a bound. */
terse_status ts_clock_admit(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker, uint64_t step,
                            uint64_t bound);
bool ts_clock_answers(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker, uint64_t want,
                      bool ahead, uint64_t bound);
/* A packet is held, or a version must be made before somebody who may see the slice can be answered. */
bool ts_clock_closable(const ts_membership *membership, const ts_slice_state *slice, uint64_t bound);
bool ts_clock_takes_part(const ts_membership *membership, const ts_slice_state *slice, uint32_t worker);

#endif
