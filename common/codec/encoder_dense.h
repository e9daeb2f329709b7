/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines without selector and transform: the gradient is taken in slice by slice, as each is written. */
#ifndef TS_CODEC_ENCODER_DENSE_H
#define TS_CODEC_ENCODER_DENSE_H

#include "common/codec/packet.h"

/* Counts what is not finite before anything is taken in: one pass over the input. Result: in the sweep. */
void ts_look_ahead(const ts_kernels *kernels, ts_sweep *sweep, size_t n);

/*
 * Writes one slice in one pass over its memory, block by block.
 * elems: of the tensor. tensor_max: its largest magnitude when it has one scale. report: [in, out] counts.
 * Returns TERSE_OK, or TERSE_ENONFINITE as ts_encoder_slice defines it.
 */
terse_status ts_dense_write(const ts_packet_slice *slice, ts_sweep *sweep, size_t elems, float tensor_max,
                            ts_encode_report *report, uint8_t *out, size_t *len) TERSE_NODISCARD;

#endif
