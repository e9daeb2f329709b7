/* SPDX-License-Identifier: Apache-2.0 */
/* The choice behind `best`. In packets the chosen pack's number stands in the tag (packet.h). */
#ifndef TS_CODEC_PACK_BEST_H
#define TS_CODEC_PACK_BEST_H

#include "common/codec/stage_list.h"

/*
 * The registered index pack that writes these indices in the fewest bytes, the first in the list among equals.
 * index[k]: strictly ascending, below n. size: [out] its exact bytes.
 * Thread: any. Returns: never NULL.
 */
const ts_index_stage *ts_index_best_choose(const uint32_t *index, size_t k, size_t n, size_t *size);

#endif
