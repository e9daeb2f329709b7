/* SPDX-License-Identifier: Apache-2.0 */
/* The quantisers that have NEON kernels; the others run the reference. Signatures: ts_kernels. */
#ifndef TS_CODEC_QUANTISE_KERNELS_NEON_H
#define TS_CODEC_QUANTISE_KERNELS_NEON_H

#include "common/codec/kernels.h"

void ts_fp16_encode_neon(float *x, size_t n, uint8_t *out);
void ts_fp16_decode_neon(const uint8_t *in, size_t n, float *x);
void ts_fp16_add_neon(const uint8_t *in, size_t n, float *sum);
void ts_int8_encode_neon(float scale, float *x, size_t n, uint8_t *out);
void ts_int8_decode_neon(float scale, const uint8_t *in, size_t n, float *x);
void ts_int8_add_neon(float scale, const uint8_t *in, size_t n, float *sum);
void ts_bf16_encode_neon(float *x, size_t n, uint8_t *out);
void ts_bf16_decode_neon(const uint8_t *in, size_t n, float *x);
void ts_int_codes_neon(float scale, float most, float *x, size_t n, uint8_t *codes);
void ts_linear_codes_neon(float low, float step, float most, float *x, size_t n, uint8_t *codes);
void ts_sign_bits_neon(float scale, float *x, size_t n, uint8_t *bits);
void ts_stochastic_codes_neon(const ts_stochastic *how, float *x, size_t n, uint8_t *codes);
void ts_natural_codes_neon(const ts_stochastic *how, float *x, size_t n, uint8_t *exponents, uint8_t *signs);

#define TS_NEON_QUANTISE_ENTRIES                                                                                \
    .fp16_encode = ts_fp16_encode_neon, .fp16_decode = ts_fp16_decode_neon, .fp16_add = ts_fp16_add_neon,       \
    .int8_encode = ts_int8_encode_neon, .int8_decode = ts_int8_decode_neon, .int8_add = ts_int8_add_neon,       \
    .bf16_encode = ts_bf16_encode_neon, .bf16_decode = ts_bf16_decode_neon, .int_codes = ts_int_codes_neon,     \
    .linear_codes = ts_linear_codes_neon, .sign_bits = ts_sign_bits_neon,                                       \
    .stochastic_codes = ts_stochastic_codes_neon, .natural_codes = ts_natural_codes_neon

#endif
