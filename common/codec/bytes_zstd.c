/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zstd:L: byte shuffle, then Zstandard (RFC 8878) at level L. The first byte says how the rest was shuffled:
 *   1        not at all
 *   2, 4     all first bytes of words of so many bytes, all second bytes ...; what is left over at the end as it is
 *   5        as 4, each word rotated left by one bit first, so that the exponent of a float fills a byte
 * The encoder takes whichever promises least by the entropy of its bytes. Then one Zstandard frame without magic
 * number, content size and checksum, which the packet has already.
 *
 * encode() says in_len and leaves `out` undefined when the result would not be smaller, and when there is no memory.
 */
#define ZSTD_STATIC_LINKING_ONLY
#include <math.h>
#include <string.h>
#include <zstd.h>

#include "common/base/bytes.h"
#include "common/codec/scratch.h"
#include "common/codec/stage_list.h"

#define HEAD_BYTES 1
#define ROTATED 5u
#define SAMPLE_WORDS 8192u /* of 4 bytes, looked at to choose the shuffle */
#define LANES 4

static const unsigned ways[] = {1, 2, 4, ROTATED};

static size_t zstd_bound(size_t len, const ts_stage_args *args) {
    (void)args;
    return len;
}

static unsigned width_of(unsigned way) { return way == ROTATED ? 4 : way; }

static uint32_t rotate_left(uint32_t v) { return v << 1 | v >> 31; }
static uint32_t rotate_right(uint32_t v) { return v >> 1 | v << 31; }

static void shuffle(unsigned way, const uint8_t *in, size_t len, uint8_t *out) {
    size_t width = width_of(way), words = len / width;
    if (way == 2) {
        for (size_t i = 0; i < words; i++) {
            out[i] = in[2 * i];
            out[words + i] = in[2 * i + 1];
        }
    } else {
        for (size_t i = 0; i < words; i++) {
            uint32_t v = ts_load_u32(in + 4 * i);
            if (way == ROTATED) v = rotate_left(v);
            for (unsigned lane = 0; lane < LANES; lane++) out[lane * words + i] = (uint8_t)(v >> (8 * lane));
        }
    }
    memcpy(out + words * width, in + words * width, len - words * width);
}

static void unshuffle(unsigned way, const uint8_t *in, size_t len, uint8_t *out) {
    size_t width = width_of(way), words = len / width;
    if (way == 2) {
        for (size_t i = 0; i < words; i++) {
            out[2 * i] = in[i];
            out[2 * i + 1] = in[words + i];
        }
    } else {
        for (size_t i = 0; i < words; i++) {
            uint32_t v = 0;
            for (unsigned lane = 0; lane < LANES; lane++) v |= (uint32_t)in[lane * words + i] << (8 * lane);
            ts_store_u32(out + 4 * i, way == ROTATED ? rotate_right(v) : v);
        }
    }
    memcpy(out + words * width, in + words * width, len - words * width);
}

/* Bits that `total` bytes with these counts carry. */
static double entropy_of(const uint32_t counts[256], uint32_t total) {
    double bits = 0;
    for (unsigned b = 0; b < 256; b++) {
        if (counts[b] > 0) bits += counts[b] * log2((double)total / counts[b]);
    }
    return bits;
}

/* What a sample of the bytes carries when shuffled that way. */
static double sampled_bits(unsigned way, const uint8_t *in, size_t len) {
    uint32_t counts[LANES][256] = {{0}};
    size_t words = len / 4, stride = words / SAMPLE_WORDS + 1, width = width_of(way);
    uint32_t taken = 0;
    for (size_t i = 0; i < words; i += stride) {
        uint32_t v = ts_load_u32(in + 4 * i);
        if (way == ROTATED) v = rotate_left(v);
        for (unsigned lane = 0; lane < LANES; lane++) counts[lane % width][v >> (8 * lane) & 0xFF]++;
        taken++;
    }
    double bits = 0;
    for (size_t lane = 0; lane < width; lane++) bits += entropy_of(counts[lane], taken * (uint32_t)(LANES / width));
    return bits;
}

/* A wider shuffle must promise 1 % more than a narrower one. */
static unsigned choose_way(const uint8_t *in, size_t len) {
    unsigned best = ways[0];
    double least = sampled_bits(best, in, len);
    for (size_t i = 1; i < sizeof ways / sizeof ways[0]; i++) {
        double bits = sampled_bits(ways[i], in, len);
        if (bits >= 0.99 * least) continue;
        best = ways[i];
        least = bits;
    }
    return best;
}

/* One frame into out; 0 when that fails or does not fit. */
static size_t compress(struct ts_scratch *scratch, int level, const uint8_t *in, size_t len, uint8_t *out,
                       size_t capacity) {
    size_t bytes = ZSTD_estimateCCtxSize_usingCParams(ZSTD_getCParams(level, len, 0));
    void *memory = ts_scratch_reserve(scratch, TS_SLOT_BYTES_WORK, bytes);
    ZSTD_CCtx *context = memory ? ZSTD_initStaticCCtx(memory, bytes) : NULL;
    if (!context) return 0;
    size_t failed = ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, level)) |
                    ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_format, ZSTD_f_zstd1_magicless)) |
                    ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0)) |
                    ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 0));
    if (failed) return 0;
    size_t wrote = ZSTD_compress2(context, out, capacity, in, len);
    return ZSTD_isError(wrote) ? 0 : wrote;
}

static terse_status zstd_encode(struct ts_scratch *scratch, const ts_stage_args *args, const uint8_t *in, size_t in_len,
                                uint8_t *out, size_t capacity, size_t *out_len) {
    TS_REQUIRE(capacity >= in_len, TERSE_ENOSPACE);
    *out_len = in_len;
    if (in_len <= HEAD_BYTES + 1) return TERSE_OK;
    unsigned way = choose_way(in, in_len);
    const uint8_t *shuffled = in;
    if (way != 1) {
        uint8_t *to = ts_scratch_reserve(scratch, TS_SLOT_BYTES_WORK2, in_len);
        if (!to) return TERSE_OK;
        shuffle(way, in, in_len, to);
        shuffled = to;
    }
    size_t wrote = compress(scratch, (int)args->value[0], shuffled, in_len, out + HEAD_BYTES, in_len - HEAD_BYTES - 1);
    if (wrote == 0) return TERSE_OK;
    out[0] = (uint8_t)way;
    *out_len = HEAD_BYTES + wrote;
    return TERSE_OK;
}

static terse_status zstd_decode(struct ts_scratch *scratch, const ts_stage_args *args, const uint8_t *in, size_t in_len,
                                uint8_t *out, size_t out_len) {
    (void)args;
    TS_REQUIRE(in_len > HEAD_BYTES, TERSE_ECORRUPT);
    unsigned way = in[0];
    TS_REQUIRE(way == 1 || way == 2 || way == 4 || way == ROTATED, TERSE_ECORRUPT);
    size_t bytes = ZSTD_estimateDCtxSize();
    void *memory = ts_scratch_reserve(scratch, TS_SLOT_BYTES_WORK, bytes);
    ZSTD_DCtx *context = memory ? ZSTD_initStaticDCtx(memory, bytes) : NULL;
    uint8_t *to = way == 1 ? out : ts_scratch_reserve(scratch, TS_SLOT_BYTES_WORK2, out_len);
    TS_REQUIRE(context && to, TERSE_ENOMEM);
    TS_REQUIRE(!ZSTD_isError(ZSTD_DCtx_setParameter(context, ZSTD_d_format, ZSTD_f_zstd1_magicless)), TERSE_ENOMEM);
    size_t made = ZSTD_decompressDCtx(context, to, out_len, in + HEAD_BYTES, in_len - HEAD_BYTES);
    TS_REQUIRE(!ZSTD_isError(made) && made == out_len, TERSE_ECORRUPT);
    if (way != 1) unshuffle(way, to, out_len, out);
    return TERSE_OK;
}

const ts_bytes_stage ts_bytes_zstd = {
    .info = {.name = "zstd",
             .args = "L",
             .summary = "byte shuffle and Zstandard at level L, 1 ... 19",
             .formula = "zstd(shuffle(bytes)), the shuffle of least sampled entropy",
             .source = "Collet and Kucherawy 2021 (RFC 8878); shuffle after Masui et al. 2015",
             .min_args = 1,
             .max_args = 1,
             .low = {1},
             .high = {19},
             .integral = {true}},
    .bound = zstd_bound,
    .encode = zstd_encode,
    .decode = zstd_decode,
};
