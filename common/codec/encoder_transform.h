/* SPDX-License-Identifier: Apache-2.0 */
/* The encoder's part of transforms; only encoder.c includes this. */
#ifndef TS_CODEC_ENCODER_TRANSFORM_H
#define TS_CODEC_ENCODER_TRANSFORM_H

#include "common/codec/delta.h"
#include "common/codec/packet.h"

/* What an encoder has besides when its pipeline begins with a transform. */
typedef struct {
    ts_transform_view view;  /* its stage is NULL when no factors travel */
    float *memory;           /* [own] of the transform */
    ts_decode_state **sent;  /* [own] of delta: what the receiver of each slice has */
    uint32_t slices;
} ts_encoder_transform;

/* Returns TERSE_ENOMEM. */
terse_status ts_encoder_transform_create(const ts_codec_spec *spec, ts_encoder_transform *out) TERSE_NODISCARD;
void ts_encoder_transform_destroy(ts_encoder_transform *transform);
/* Memory that it holds beside itself. */
size_t ts_encoder_transform_bytes(const ts_encoder_transform *transform);
/* All memory a step can need. Returns TERSE_ENOMEM. */
terse_status ts_encoder_transform_reserve(const ts_encoder_transform *transform, const ts_codec_spec *spec,
                                          ts_scratch *scratch) TERSE_NODISCARD;
/* Low rank: takes the sweep in and leaves the factors in the scratch. */
void ts_encoder_transform_analyse(const ts_encoder_transform *transform, ts_scratch *scratch, ts_sweep *sweep,
                                  uint64_t key);
/* Low rank: writes the factors and takes their product from the residual. Returns the bytes. */
size_t ts_encoder_transform_write(const ts_encoder_transform *transform, ts_scratch *scratch,
                                  const ts_packet_slice *slice, float *residual, uint8_t *out);
/* Delta: the largest |difference| of a tensor that was taken in. */
float ts_encoder_delta_max(const ts_encoder_transform *transform, ts_scratch *scratch, const ts_codec_spec *spec,
                           const float *residual, uint64_t step);
/* Delta: takes the slice in and writes it, block by block. max_abs: of the tensor when it has one scale. Returns bytes. */
size_t ts_encoder_delta_write(const ts_encoder_transform *transform, ts_scratch *scratch, const ts_packet_slice *slice,
                              uint32_t number, ts_sweep *sweep, uint64_t step, float max_abs, uint8_t *out);

#endif
