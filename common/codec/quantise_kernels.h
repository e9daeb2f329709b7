/* SPDX-License-Identifier: Apache-2.0 */
/* The quantisers' inner loops by level; only the kernel tables name these. Signatures: ts_kernels. */
#ifndef TS_CODEC_QUANTISE_KERNELS_H
#define TS_CODEC_QUANTISE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define TS_QUANTISE_KERNELS(level)                                              \
    void ts_fp16_encode_##level(float *x, size_t n, uint8_t *out);              \
    void ts_fp16_decode_##level(const uint8_t *in, size_t n, float *x);         \
    void ts_fp16_add_##level(const uint8_t *in, size_t n, float *sum);          \
    void ts_int8_encode_##level(float scale, float *x, size_t n, uint8_t *out); \
    void ts_int8_decode_##level(float scale, const uint8_t *in, size_t n, float *x); \
    void ts_int8_add_##level(float scale, const uint8_t *in, size_t n, float *sum);

TS_QUANTISE_KERNELS(scalar)
#if defined(__x86_64__)
TS_QUANTISE_KERNELS(avx2)
#endif

#endif
