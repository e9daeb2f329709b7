/* SPDX-License-Identifier: Apache-2.0 */
/* Byte packs: round trips of every registered one, sizes, hostile bytes; what they save on real gradients. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/codec/codec.h"
#include "common/codec/registry.h"
#include "common/codec/scratch.h"
#include "tests/unit/unit.h"

#define MOST_BYTES 300000

static const ts_bytes_stage *stage_at(size_t i) {
    size_t seen = 0;
    for (size_t e = 0; e < ts_registry_count(); e++) {
        const ts_stage_entry *entry = ts_registry_entry(e);
        if (entry->kind == TS_STAGE_BYTES && seen++ == i) return entry->stage.bytes;
    }
    return NULL;
}

static ts_stage_args args_of(const ts_bytes_stage *stage) {
    return (ts_stage_args){.value = {stage->info.low[0]}, .count = stage->info.max_args};
}

typedef enum { ZEROS, ONE_VALUE, TWO_VALUES, SKEWED, ALL_VALUES, RANDOM, RUNS, FLOATS, FIBONACCI, KINDS } content;

static void fill(content kind, uint8_t *bytes, size_t len) {
    ts_random random = ts_random_start(len * 16 + (uint64_t)kind);
    for (size_t i = 0; i < len; i++) {
        uint32_t word = ts_random_u32(&random);
        switch (kind) {
        case ZEROS:
            bytes[i] = 0;
            break;
        case ONE_VALUE:
            bytes[i] = 0xA7;
            break;
        case TWO_VALUES:
            bytes[i] = word & 1 ? 3 : 200;
            break;
        case SKEWED:
            bytes[i] = (uint8_t)__builtin_ctz(word | 1u << 30);
            break;
        case ALL_VALUES:
            bytes[i] = (uint8_t)i;
            break;
        case RANDOM:
            bytes[i] = (uint8_t)word;
            break;
        case RUNS:
            bytes[i] = (uint8_t)(i / (1 + len / 50));
            break;
        case FLOATS:
            if (i % 4 == 0 && len - i >= 4) {
                float x = 0.01f * ts_random_normal(&random);
                memcpy(bytes + i, &x, sizeof x);
            } else if (i % 4 == 0) {
                memset(bytes + i, 0, len - i);
            }
            break;
        case FIBONACCI: /* deep trees, so that lengths have to be cut */
            bytes[i] = (uint8_t)((double)word > 0 ? fmin(255, -log((double)word * 0x1p-32) / 0.481) : 255);
            break;
        case KINDS:
            break;
        }
    }
}

static void round_trip(ts_scratch *scratch, const ts_bytes_stage *stage, content kind, size_t len) {
    ts_stage_args args = args_of(stage);
    size_t bound = stage->bound(len, &args), packed = SIZE_MAX, again = SIZE_MAX;
    uint8_t *in = malloc(len + 1), *out = malloc(bound + 1), *back = malloc(len + 1);
    fill(kind, in, len);
    out[bound] = 0x5A;
    ck_assert_ok(stage->encode(scratch, &args, in, len, out, bound, &packed));
    ck_assert_uint_le(packed, bound);
    ck_assert_uint_eq(out[bound], 0x5A);
    if (packed < len) {
        uint8_t *exact = malloc(packed);
        memcpy(exact, out, packed);
        ck_assert_ok(stage->encode(scratch, &args, in, len, out, bound, &again));
        ck_assert_msg(again == packed && memcmp(out, exact, packed) == 0, "%s: not the same twice", stage->info.name);
        ck_assert_ok(stage->decode(scratch, &args, exact, packed, back, len));
        ck_assert_msg(memcmp(in, back, len) == 0, "%s: kind %d, %zu bytes", stage->info.name, (int)kind, len);
        ck_assert_status(stage->decode(scratch, &args, exact, packed - 1, back, len), TERSE_ECORRUPT);
        free(exact);
    }
    if (len > 0) ck_assert_status(stage->encode(scratch, &args, in, len, out, bound - 1, &again), TERSE_ENOSPACE);
    free(in);
    free(out);
    free(back);
}

START_TEST(round_trips) {
    static const size_t lens[] = {0, 1, 2, 3, 4, 5, 7, 64, 129, 255, 256, 257, 1000, 4096, 65537, MOST_BYTES};
    ts_scratch *scratch = NULL;
    ck_assert_ok(ts_scratch_create(&scratch));
    for (size_t s = 0; stage_at(s); s++) {
        for (int kind = 0; kind < KINDS; kind++) {
            for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
                round_trip(scratch, stage_at(s), (content)kind, lens[i]);
            }
        }
    }
    ts_scratch_destroy(scratch);
}
END_TEST

static size_t packed_len(ts_scratch *scratch, const ts_bytes_stage *stage, content kind, size_t len) {
    ts_stage_args args = args_of(stage);
    uint8_t *in = malloc(len), *out = malloc(stage->bound(len, &args));
    size_t packed;
    fill(kind, in, len);
    ck_assert_ok(stage->encode(scratch, &args, in, len, out, stage->bound(len, &args), &packed));
    free(in);
    free(out);
    return packed;
}

/* Sizes that follow from the formats. */
START_TEST(sizes) {
    ts_scratch *scratch = NULL;
    ck_assert_ok(ts_scratch_create(&scratch));
    /* Half the symbols take 1 bit, a quarter 2 ...: 2 bits a byte, and the lengths. */
    size_t skewed = packed_len(scratch, &ts_bytes_huffman, SKEWED, 100000);
    ck_assert_msg(skewed > 24500 && skewed < 25500, "%zu", skewed);
    ck_assert_uint_lt(packed_len(scratch, &ts_bytes_huffman, TWO_VALUES, 80000), 10000 + 10);
    ck_assert_uint_lt(packed_len(scratch, &ts_bytes_huffman, ZEROS, 80000), 8);
    ck_assert_uint_eq(packed_len(scratch, &ts_bytes_huffman, RANDOM, 5000), 5000);
    ck_assert_uint_eq(packed_len(scratch, &ts_bytes_huffman, ALL_VALUES, 5120), 5120);
    ck_assert_uint_eq(packed_len(scratch, &ts_bytes_rle8, ZEROS, 1300), 20);
    ck_assert_uint_eq(packed_len(scratch, &ts_bytes_rle8, RANDOM, 5000), 5000);
    ck_assert_uint_eq(packed_len(scratch, &ts_bytes_zstd, RANDOM, 5000), 5000);
    size_t floats = packed_len(scratch, &ts_bytes_zstd, FLOATS, 200000);
    ck_assert_msg(floats < 176000, "%zu", floats); /* exponents of a Gaussian carry 2.6 bits of 8 */
    ts_scratch_destroy(scratch);
}
END_TEST

static void check_hostile(ts_scratch *scratch, const ts_bytes_stage *stage, const uint8_t *in, size_t len,
                          size_t out_len) {
    ts_stage_args args = args_of(stage);
    uint8_t *exact = malloc(len ? len : 1), *out = malloc(out_len ? out_len : 1);
    if (len > 0) memcpy(exact, in, len);
    terse_status status = stage->decode(scratch, &args, exact, len, out, out_len);
    ck_assert(status == TERSE_OK || status == TERSE_ECORRUPT);
    free(exact);
    free(out);
}

START_TEST(flips_cuts_and_noise) {
    ts_scratch *scratch = NULL;
    ck_assert_ok(ts_scratch_create(&scratch));
    ts_random random = ts_random_start(3);
    for (size_t s = 0; stage_at(s); s++) {
        const ts_bytes_stage *stage = stage_at(s);
        ts_stage_args args = args_of(stage);
        uint8_t in[400], out[400], noise[40];
        size_t packed;
        fill(SKEWED, in, sizeof in);
        memset(in, 7, 100);
        ck_assert_ok(stage->encode(scratch, &args, in, sizeof in, out, sizeof out, &packed));
        ck_assert_uint_lt(packed, sizeof in);
        for (size_t cut = 0; cut < packed; cut++) check_hostile(scratch, stage, out, cut, sizeof in);
        for (size_t bit = 0; bit < packed * 8; bit++) {
            out[bit / 8] ^= (uint8_t)(1u << (bit % 8));
            check_hostile(scratch, stage, out, packed, sizeof in);
            out[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        }
        for (size_t wrong = 1; wrong < 600; wrong += 7) {
            uint8_t back[600];
            if (wrong == sizeof in) continue;
            ck_assert_status(stage->decode(scratch, &args, out, packed, back, wrong), TERSE_ECORRUPT);
        }
        for (int round = 0; round < 20000; round++) {
            size_t len = ts_random_below(&random, sizeof noise + 1);
            for (size_t i = 0; i < len; i++) noise[i] = (uint8_t)ts_random_u32(&random);
            check_hostile(scratch, stage, noise, len, ts_random_below(&random, 500));
        }
    }
    ts_scratch_destroy(scratch);
}
END_TEST

/* Without memory zstd stores: an encoding that has begun must not fail. */
START_TEST(no_memory) {
    uint8_t in[1000], out[1000];
    size_t packed;
    ts_scratch *scratch = NULL;
    ts_stage_args args = args_of(&ts_bytes_zstd);
    fill(FLOATS, in, sizeof in);
    ck_assert_ok(ts_scratch_create(&scratch));
    ts_mem_fail_after(0);
    ck_assert_ok(ts_bytes_zstd.encode(scratch, &args, in, sizeof in, out, sizeof out, &packed));
    ts_mem_fail_after(-1);
    ck_assert_uint_eq(packed, sizeof in);
    ts_scratch_destroy(scratch);
}
END_TEST

/* The whole pipeline on a real gradient: bit for bit back, and the ratio. */
static double gradient_ratio(const char *text, const char *file, double *bytes) {
    size_t n, packed = 0;
    char path[200];
    snprintf(path, sizeof path, "%s/gradients/%s", TS_TEST_VECTORS, file);
    float *g = ts_unit_read_f32(path, &n), *residual = calloc(n, sizeof *residual);
    ts_pipeline pipeline;
    ts_scratch *scratch = NULL;
    ts_encoder *encoder = NULL;
    ts_error error;
    ck_assert_msg(ts_pipeline_parse(text, &pipeline, &error) == TERSE_OK, "%s", error.text);
    ts_codec_spec spec = {.pipeline = &pipeline, .n = n, .slice_elems = 262144};
    ck_assert_ok(ts_scratch_create(&scratch));
    ck_assert_ok(ts_encoder_create(&spec, &encoder));
    ts_encode_input input = {.gradient = g, .gradient_scale = 1, .residual = residual};
    ck_assert_ok(ts_encoder_begin(encoder, scratch, &input, NULL));
    for (uint32_t slice = 0; slice < ts_codec_slices(&spec); slice++) {
        size_t capacity = ts_encoder_bound(encoder, scratch, slice), len;
        uint8_t *packet = malloc(capacity);
        ts_decoded decoded;
        ck_assert_ok(ts_encoder_slice(encoder, scratch, slice, packet, capacity, &len));
        ck_assert_ok(ts_decode(scratch, &spec, NULL, slice, 0, packet, len, &decoded));
        const float *there = g + ts_codec_slice_first(&spec, slice);
        for (size_t i = 0; i < decoded.count; i++) ck_assert(decoded.value[i] == there[i]);
        packed += len;
        free(packet);
    }
    *bytes += (double)packed;
    ts_encoder_destroy(encoder);
    ts_scratch_destroy(scratch);
    free(residual);
    free(g);
    return (double)n * sizeof(float) / (double)packed;
}

START_TEST(real_gradients) {
    static const char *const files[] = {"cnn-step1-7.weight.f32", "cnn-step300-3.weight.f32",
                                        "lm-step200-blk.0.linear2.weight.f32", "lm-step200-emb.weight.f32"};
    static const char *const texts[] = {"fp32 | zstd:1", "fp32 | zstd:9", "fp32 | huffman", "fp32 | rle8 | huffman"};
    static const double least[] = {1.25, 1.25, 1.0, 1.0};
    double packed = 0, dense = 0;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        double before = packed, ratio = gradient_ratio(texts[_i], files[i], &packed);
        dense += ratio * (packed - before);
    }
    ck_assert_msg(dense / packed >= least[_i], "%s: %.3f", texts[_i], dense / packed);
}
END_TEST

TCase *test_bytes_pack(void);
TCase *test_bytes_pack(void) {
    TCase *tests = tcase_create("bytes_pack");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, round_trips);
    tcase_add_test(tests, sizes);
    tcase_add_test(tests, flips_cuts_and_noise);
    tcase_add_test(tests, no_memory);
    tcase_add_loop_test(tests, real_gradients, 0, 4);
    return tests;
}
