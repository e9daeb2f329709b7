/* SPDX-License-Identifier: Apache-2.0 */
/* Telling a packet of NaN or infinity from other packets that no encoder writes. */
#ifndef TS_CODEC_DECODE_NONFINITE_H
#define TS_CODEC_DECODE_NONFINITE_H

#include "common/codec/codec.h"

/*
 * Whether a packet that ts_decode calls corrupt is of the right form and holds a value, factor or scale that is NaN or
 * infinite: whoever made it computed wrongly, and sending it again would not mend it.
 * Arguments as of ts_decode. Thread: the scratch's. Returns: false when memory ran out, too.
 */
bool ts_decode_nonfinite(ts_scratch *scratch, const ts_codec_spec *spec, uint32_t slice, uint64_t step,
                         const uint8_t *packet, size_t len);

#endif
