/* SPDX-License-Identifier: Apache-2.0 */
/* The quantisers' inner loops by level; only the kernel tables name these. Signatures: ts_kernels. */
#ifndef TS_CODEC_QUANTISE_KERNELS_H
#define TS_CODEC_QUANTISE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "common/codec/kernels.h"

#define TS_QUANTISE_KERNELS(level)                                              \
    void ts_fp16_encode_##level(float *x, size_t n, uint8_t *out);              \
    void ts_fp16_decode_##level(const uint8_t *in, size_t n, float *x);         \
    void ts_fp16_add_##level(const uint8_t *in, size_t n, float *sum);          \
    void ts_int8_encode_##level(float scale, float *x, size_t n, uint8_t *out); \
    void ts_int8_decode_##level(float scale, const uint8_t *in, size_t n, float *x); \
    void ts_int8_add_##level(float scale, const uint8_t *in, size_t n, float *sum); \
    void ts_bf16_encode_##level(float *x, size_t n, uint8_t *out);              \
    void ts_bf16_decode_##level(const uint8_t *in, size_t n, float *x);         \
    void ts_int_codes_##level(float scale, float most, float *x, size_t n, uint8_t *codes); \
    void ts_linear_codes_##level(float low, float step, float most, float *x, size_t n, uint8_t *codes); \
    void ts_sign_bits_##level(float scale, float *x, size_t n, uint8_t *bits); \
    void ts_stochastic_codes_##level(const ts_stochastic *how, float *x, size_t n, uint8_t *codes); \
    void ts_natural_codes_##level(const ts_stochastic *how, float *x, size_t n, uint8_t *exponents, uint8_t *signs); \
    void ts_log_codes_##level(float inverse, float most, const float *values, float *x, size_t n, uint8_t *codes); \
    void ts_int_values_##level(float scale, unsigned bits, const uint8_t *codes, size_t n, float *x, bool add); \
    void ts_linear_values_##level(float low, float step, const uint8_t *codes, size_t n, float *x, bool add); \
    void ts_sign_values_##level(float scale, const uint8_t *bits, size_t n, float *x, bool add); \
    void ts_table_values_##level(const float *table, const uint8_t *codes, size_t n, float *x, bool add); \
    void ts_natural_values_##level(size_t block, const uint8_t *in, size_t n, float *x, bool add); \
    void ts_pack_##level(unsigned bits, const uint8_t *codes, size_t n, uint8_t *out); \
    void ts_unpack_##level(unsigned bits, const uint8_t *in, size_t n, uint8_t *codes); \
    bool ts_fields_lack_##level(unsigned bits, uint16_t mask, uint16_t code, const uint8_t *in, size_t bytes);

#define TS_QUANTISE_KERNEL_ENTRIES(level)                                       \
    .fp16_encode = ts_fp16_encode_##level, .fp16_decode = ts_fp16_decode_##level, .fp16_add = ts_fp16_add_##level, \
    .int8_encode = ts_int8_encode_##level, .int8_decode = ts_int8_decode_##level, .int8_add = ts_int8_add_##level, \
    .bf16_encode = ts_bf16_encode_##level, .bf16_decode = ts_bf16_decode_##level, .int_codes = ts_int_codes_##level, \
    .linear_codes = ts_linear_codes_##level, .sign_bits = ts_sign_bits_##level, \
    .stochastic_codes = ts_stochastic_codes_##level, .natural_codes = ts_natural_codes_##level, \
    .log_codes = ts_log_codes_##level, .int_values = ts_int_values_##level, .linear_values = ts_linear_values_##level, \
    .sign_values = ts_sign_values_##level, .natural_values = ts_natural_values_##level, \
    .table_values = ts_table_values_##level, \
    .pack = ts_pack_##level, .unpack = ts_unpack_##level, .fields_lack = ts_fields_lack_##level

TS_QUANTISE_KERNELS(scalar)
#if defined(__x86_64__)
/* What has one loop for the scalar reference and NEON has more of them here. */
#define TS_X86_KERNELS(level) \
    TS_QUANTISE_KERNELS(level) \
    uint32_t ts_sweep_sums_##level(ts_sweep *s, size_t first, size_t end, unsigned wanted, double sums[2]); \
    uint32_t ts_sweep_beside_##level(ts_sweep *s, size_t first, size_t end, unsigned wanted, double sums[2], \
                                  const ts_beside *work); \
    void ts_sweep_natural_##level(ts_sweep *s, size_t first, size_t end, const ts_stochastic *how, size_t block, uint8_t *out); \
    void ts_sweep_floats_##level(ts_sweep *s, size_t first, size_t end, ts_float_kind kind, uint8_t *out, size_t *beyond); \
    size_t ts_select_##level(ts_sweep *s, size_t first, size_t end, ts_candidates *c); \
    size_t ts_select_pair_##level(ts_sweep *s, size_t first, size_t end, size_t half, ts_candidates c[2]); \
    void ts_keep_above_##level(ts_candidates *c, uint32_t level); \
    size_t ts_between_##level(const uint32_t *v, size_t n, uint32_t mask, uint32_t low, uint32_t high, uint32_t *between, \
                           size_t room, size_t *above);
TS_X86_KERNELS(avx2)
TS_X86_KERNELS(avx512)
#endif

#endif
