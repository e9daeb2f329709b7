/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/block.h"

#include "common/base/bytes.h"
#include "common/codec/stage_list.h"

ts_block_format ts_block_format_of(const ts_pipeline *pipeline, const ts_kernels *kernels, bool sparse) {
    return (ts_block_format){.stage = pipeline->quantise,
                             .block = {.kernels = kernels, .args = &pipeline->quantise_args},
                             .sparse = sparse,
                             .whole_tensor = pipeline->quantise_args.whole_tensor};
}

size_t ts_block_elems(const ts_block_format *format, size_t left) {
    size_t most = format->stage->block_elems ? format->stage->block_elems : TS_BLOCK_ELEMS;
    return format->whole_tensor || left < most ? left : most;
}

size_t ts_block_span(const ts_block_format *format, size_t left) {
    return format->stage->scales == 0 ? left : ts_block_elems(format, left);
}

static bool alone(const ts_block_format *format, size_t n) {
    return format->sparse && n == 1 && format->stage->scales > 0;
}

static size_t scale_bytes(const ts_block_format *format, size_t n) {
    bool wide = !format->sparse || n >= TS_SHORT_SCALE_ELEMS || format->stage->wide_scales;
    return wide ? sizeof(float) : sizeof(uint16_t);
}

size_t ts_block_bytes(const ts_block_format *format, size_t n) {
    if (alone(format, n)) return sizeof(uint16_t);
    return format->stage->scales * scale_bytes(format, n) + format->stage->bytes(format->block.args, n);
}

size_t ts_blocks_bytes(const ts_block_format *format, size_t n) {
    if (n == 0) return 0;
    size_t full = ts_block_elems(format, n), rest = n % full;
    return n / full * ts_block_bytes(format, full) + (rest ? ts_block_bytes(format, rest) : 0);
}

static uint16_t short_scale(float scale) { return (uint16_t)((ts_float_bits(scale) + 0x7FFFu) >> 15); }
static float from_short_scale(uint16_t bits) { return ts_bits_float((uint32_t)bits << 15); }

/* To nearest even, but never to infinity. */
static uint16_t bfloat(float x) {
    uint32_t bits = ts_float_bits(x);
    uint32_t rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
    if ((rounded & TS_ABS_MASK) >= TS_INF_BITS) rounded = (bits & ~TS_ABS_MASK) | 0x7F7F0000u;
    return (uint16_t)(rounded >> 16);
}
static float from_bfloat(uint16_t bits) { return ts_bits_float((uint32_t)bits << 16); }

static void count_beyond(const ts_block_format *format, const float *x, size_t n, float max_abs) {
    float most = format->stage->most;
    if (!format->beyond || !(most > 0 && max_abs > most)) return;
    for (size_t i = 0; i < n; i++) *format->beyond += !(x[i] <= most && x[i] >= -most);
}

size_t ts_block_write_scales(const ts_block_format *format, const float *x, size_t n, float max_abs, uint8_t *out,
                             float scales[TS_BLOCK_SCALES]) {
    size_t width = scale_bytes(format, n), at = 0;
    ts_quantise_block block = format->block;
    block.max_abs = max_abs;
    count_beyond(format, x, n, max_abs);
    if (format->stage->scales > 0) format->stage->scale(&block, x, n, scales);
    for (unsigned i = 0; i < format->stage->scales; i++, at += width) {
        if (width == sizeof(float)) {
            ts_store_f32(out + at, scales[i]);
        } else {
            uint16_t bits = short_scale(scales[i]);
            ts_store_u16(out + at, bits);
            scales[i] = from_short_scale(bits);
        }
    }
    return at;
}

size_t ts_block_write(const ts_block_format *format, float *x, size_t n, float max_abs, uint8_t *out) {
    if (alone(format, n)) {
        uint16_t value = bfloat(x[0]);
        ts_store_u16(out, value);
        x[0] = x[0] - from_bfloat(value);
        return sizeof value;
    }
    float scales[TS_BLOCK_SCALES] = {0};
    size_t at = ts_block_write_scales(format, x, n, max_abs, out, scales);
    ts_quantise_block block = format->block;
    block.max_abs = max_abs;
    format->stage->encode(&block, scales, x, n, out + at);
    return at + format->stage->bytes(format->block.args, n);
}

static size_t read_scales(const ts_block_format *format, const uint8_t *in, size_t n, float *scales) {
    size_t width = scale_bytes(format, n), at = 0;
    for (unsigned i = 0; i < format->stage->scales; i++, at += width) {
        scales[i] = width == sizeof(float) ? ts_load_f32(in + at) : from_short_scale(ts_load_u16(in + at));
    }
    return at;
}

static bool finite(float x) { return (ts_float_bits(x) & TS_ABS_MASK) < TS_INF_BITS; }

bool ts_block_valid(const ts_block_format *format, const uint8_t *in, size_t n) {
    if (alone(format, n)) return finite(from_bfloat(ts_load_u16(in)));
    float scales[TS_BLOCK_SCALES] = {0};
    size_t at = read_scales(format, in, n, scales);
    for (unsigned i = 0; i < format->stage->scales; i++) {
        if (!finite(scales[i])) return false;
    }
    return format->stage->valid(&format->block, scales, in + at, n);
}

/* fp32, fp16, bf16: nothing but NaN and infinity makes such a block invalid. */
static bool is_float(const ts_quantise_stage *stage) {
    return stage == &ts_quantise_fp32 || stage == &ts_quantise_fp16 || stage == &ts_quantise_bf16;
}

bool ts_block_nonfinite(const ts_block_format *format, const uint8_t *in, size_t n) {
    if (alone(format, n) || is_float(format->stage)) return !ts_block_valid(format, in, n);
    float scales[TS_BLOCK_SCALES] = {0};
    (void)read_scales(format, in, n, scales);
    for (unsigned i = 0; i < format->stage->scales; i++) {
        if (!finite(scales[i])) return true;
    }
    return false;
}

void ts_block_decode(const ts_block_format *format, const uint8_t *in, size_t n, float *x) {
    if (alone(format, n)) {
        x[0] = from_bfloat(ts_load_u16(in));
        return;
    }
    float scales[TS_BLOCK_SCALES] = {0};
    size_t at = read_scales(format, in, n, scales);
    format->stage->decode(&format->block, scales, in + at, n, x);
}

void ts_block_add(const ts_block_format *format, const uint8_t *in, size_t n, float *sum) {
    if (alone(format, n)) {
        sum[0] += from_bfloat(ts_load_u16(in));
        return;
    }
    float scales[TS_BLOCK_SCALES] = {0};
    size_t at = read_scales(format, in, n, scales);
    format->stage->add(&format->block, scales, in + at, n, sum);
}
