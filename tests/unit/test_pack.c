/* SPDX-License-Identifier: Apache-2.0 */
/* Index packs: round trips, exact sizes, canonical form, hostile bytes, and what rice costs beside entropy. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"
#include "common/codec/pack_best.h"
#include "common/codec/registry.h"
#include "tests/unit/unit.h"

#define MAX_N UINT32_MAX
#define BITMAP_MOST ((size_t)1 << 26) /* no test needs maps of half a gigabyte */

/* Every registered pack, `best` among them. */
static const ts_index_stage *stage_at(size_t i) {
    size_t seen = 0;
    for (size_t e = 0; e < ts_registry_count(); e++) {
        const ts_stage_entry *entry = ts_registry_entry(e);
        if (entry->kind == TS_STAGE_INDEX && seen++ == i) return entry->stage.index;
    }
    return NULL;
}

typedef struct {
    size_t k, n;
} shape;

typedef enum { SET_RANDOM, SET_CLUSTERED, SET_FIRST, SET_LAST, SET_EVERY_SECOND, SET_KINDS } set_kind;

/* k ascending indices below n. Returns [own], free(). */
static uint32_t *make_set(set_kind kind, size_t k, size_t n, uint64_t key) {
    uint32_t *index = malloc((k + 1) * sizeof *index);
    ck_assert_ptr_nonnull(index);
    ts_random random = ts_random_start(key);
    uint64_t next = 0;
    for (size_t i = 0; i < k; i++) {
        uint64_t room = n - (k - i) - next, skip = 0;
        switch (kind) {
        case SET_RANDOM: { /* exponential gaps of about the mean */
            double u = ts_random_unit(ts_random_u32(&random)) + 1e-9;
            skip = (uint64_t)(-log(u) * (double)(n - k) / (double)k);
            break;
        }
        case SET_CLUSTERED: /* short gaps, now and then a long jump */
            skip = ts_random_below(&random, 40) == 0 ? ts_random_below(&random, (uint32_t)(room / 3 + 1))
                                                     : ts_random_below(&random, 4);
            break;
        case SET_FIRST:
            break;
        case SET_LAST:
            skip = room;
            break;
        case SET_EVERY_SECOND:
            skip = 1;
            break;
        case SET_KINDS:
            break;
        }
        if (skip > room) skip = room;
        index[i] = (uint32_t)(next + skip);
        next += skip + 1;
    }
    return index;
}

static bool too_large(const ts_index_stage *stage, size_t n) {
    return n > BITMAP_MOST && (stage == &ts_index_bitmap || stage == &ts_index_block);
}

static void round_trip(const ts_index_stage *stage, const uint32_t *index, size_t k, size_t n) {
    if (too_large(stage, n)) return;
    size_t size = stage->size(index, k, n), bound = stage->bound(k, n), len = SIZE_MAX;
    ck_assert_msg(size <= bound, "%s: k %zu n %zu: size %zu, bound %zu", stage->info.name, k, n, size, bound);
    uint8_t *bytes = malloc(size + 1); /* exactly as large as needed: a write behind it is seen under ASan */
    uint32_t *back = malloc((k + 1) * sizeof *back);
    ck_assert(bytes && back);
    if (size > 0) {
        uint8_t *little = malloc(size - 1 ? size - 1 : 1);
        ck_assert_status(stage->encode(index, k, n, little, size - 1, &len), TERSE_ENOSPACE);
        ck_assert_uint_eq(len, SIZE_MAX);
        free(little);
    }
    ck_assert_ok(stage->encode(index, k, n, bytes, size, &len));
    ck_assert_msg(len == size, "%s: k %zu n %zu: size %zu, wrote %zu", stage->info.name, k, n, size, len);
    ck_assert_ok(stage->decode(bytes, len, k, n, back));
    if (k > 0) ck_assert_mem_eq(index, back, k * sizeof *back);
    if (bound <= BITMAP_MOST) {
        uint8_t *room = malloc(bound + 1);
        ck_assert_ok(stage->encode(index, k, n, room, bound, &len));
        ck_assert_uint_eq(len, size);
        if (size > 0) ck_assert_mem_eq(room, bytes, size);
        free(room);
    }
    bytes[size] = 0; /* too long, and one index too few; rice codes depend on k, so another k reads other gaps */
    ck_assert_status(stage->decode(bytes, size + 1, k, n, back), TERSE_ECORRUPT);
    if (k > 0 && stage != &ts_index_rice && stage != &ts_index_best) {
        ck_assert_status(stage->decode(bytes, size, k - 1, n, back), TERSE_ECORRUPT);
    }
    free(bytes);
    free(back);
}

START_TEST(round_trips) {
    static const size_t sizes[] = {1, 2, 3, 7, 63, 64, 65, 1000, 65535, 65537, 262144, 5000000, MAX_N};
    size_t n = sizes[_i];
    size_t counts[] = {0, 1, 2, 5, n / 1000, n / 100, n / 10, n / 2, n - 1, n};
    for (size_t s = 0; stage_at(s); s++) {
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            size_t k = counts[c];
            if (k > n || k > 600000) continue;
            for (int kind = 0; kind < SET_KINDS; kind++) {
                uint32_t *index = make_set((set_kind)kind, k, n, n * 31 + k);
                round_trip(stage_at(s), index, k, n);
                free(index);
            }
        }
    }
}
END_TEST

/* Whatever decodes must be what encode() writes. */
static void check_hostile(const ts_index_stage *stage, const uint8_t *bytes, size_t len, size_t k, size_t n) {
    uint32_t *back = malloc((k + 1) * sizeof *back);
    uint8_t *exact = malloc(len ? len : 1), *again = malloc(stage->bound(k, n) + 1);
    ck_assert(back && exact && again); /* exact: a read behind it is seen under ASan */
    if (len > 0) memcpy(exact, bytes, len);
    size_t wrote = 0;
    if (stage->decode(exact, len, k, n, back) == TERSE_OK) {
        for (size_t i = 0; i < k; i++) ck_assert(back[i] < n && (i == 0 || back[i] > back[i - 1]));
        ck_assert_ok(stage->encode(back, k, n, again, stage->bound(k, n), &wrote));
        ck_assert_msg(wrote == len && memcmp(again, exact, len) == 0, "%s: two spellings", stage->info.name);
    }
    free(back);
    free(again);
    free(exact);
}

START_TEST(flips_and_cuts) {
    static const shape shapes[] = {{1, 64}, {5, 64}, {40, 1000}, {30, 300}, {20, 5000000}, {64, 64}, {7, 70000}};
    for (size_t s = 0; stage_at(s) && stage_at(s) != &ts_index_best; s++) {
        const ts_index_stage *stage = stage_at(s);
        for (size_t at = 0; at < sizeof shapes / sizeof shapes[0]; at++) {
            size_t k = shapes[at].k, n = shapes[at].n, len;
            if (stage == &ts_index_bitmap && n > 70000) continue;
            uint32_t *index = make_set((set_kind)(at % 2), k, n, at);
            uint8_t *bytes = malloc(stage->bound(k, n) + 1);
            ck_assert_ok(stage->encode(index, k, n, bytes, stage->bound(k, n), &len));
            for (size_t cut = 0; cut < len && len < 5000; cut++) check_hostile(stage, bytes, cut, k, n);
            for (size_t bit = 0; bit < len * 8 && len < 5000; bit++) {
                bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
                check_hostile(stage, bytes, len, k, n);
                bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
            }
            free(bytes);
            free(index);
        }
    }
}
END_TEST

START_TEST(random_bytes) {
    ts_random random = ts_random_start(7);
    for (size_t s = 0; stage_at(s) && stage_at(s) != &ts_index_best; s++) {
        for (int round = 0; round < 3000; round++) {
            uint8_t bytes[64];
            size_t len = ts_random_below(&random, sizeof bytes + 1), n = 1 + ts_random_below(&random, 600);
            size_t k = ts_random_below(&random, (uint32_t)n + 1);
            for (size_t i = 0; i < len; i++) bytes[i] = (uint8_t)ts_random_u32(&random);
            check_hostile(stage_at(s), bytes, len, k, n);
        }
    }
}
END_TEST

START_TEST(lies_about_counts) {
    uint32_t back[8];
    uint8_t bytes[16] = {0};
    for (size_t s = 0; stage_at(s); s++) {
        ck_assert_status(stage_at(s)->decode(bytes, 16, 5, 4, back), TERSE_ECORRUPT); /* k > n */
        ck_assert_status(stage_at(s)->decode(bytes, 0, 5, 4, back), TERSE_ECORRUPT);
    }
    bytes[0] = 0;
    ck_assert_status(ts_index_best.decode(bytes, 5, 1, 64, back), TERSE_ECORRUPT);
    bytes[0] = 15;
    ck_assert_status(ts_index_best.decode(bytes, 5, 1, 64, back), TERSE_ECORRUPT);
}
END_TEST

/* Exact bytes, worked out by hand from the formats' descriptions. */
START_TEST(known_bytes) {
    static const uint32_t index[] = {3, 4, 5, 300};
    static const uint8_t varint[] = {3, 0, 0, 0xA6, 0x02}, raw8[] = {3, 0, 0, 0xFF, 0x26, 0x01, 0, 0};
    static const uint8_t raw16[] = {3, 0, 0, 0, 0, 0, 0x26, 0x01};
    static const uint8_t block[] = {0x03, 2, 3, 4, 5, 0, 44}, rle[] = {3, 2, 0xA5, 0x02, 0};
    static const struct {
        const ts_index_stage *stage;
        const uint8_t *bytes;
        size_t len;
    } cases[] = {{&ts_index_varint, varint, sizeof varint},
                 {&ts_index_raw8, raw8, sizeof raw8},
                 {&ts_index_raw16, raw16, sizeof raw16},
                 {&ts_index_block, block, sizeof block},
                 {&ts_index_rle, rle, sizeof rle}};
    uint8_t out[64];
    size_t len;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_ok(cases[i].stage->encode(index, 4, 512, out, sizeof out, &len));
        ck_assert_uint_eq(len, cases[i].len);
        ck_assert_msg(memcmp(out, cases[i].bytes, len) == 0, "%s", cases[i].stage->info.name);
    }
    ck_assert_ok(ts_index_bitmap.encode(index, 3, 9, out, sizeof out, &len));
    ck_assert(len == 2 && out[0] == 0x38 && out[1] == 0);
}
END_TEST

/*
 * rice by hand: n = 64, k = 1: m = log2(129) = 7.0078, r = floor(7.0078 + 0.8125) - 1 = 6, limit >> 6 = 0, so the
 * index itself in 6 bits. k = 2 among 64: m = log2(65), r = 5; limits 62 and below.
 */
START_TEST(rice_by_hand) {
    uint8_t out[16];
    size_t len;
    uint32_t one[] = {41}, two[] = {33, 63};
    ck_assert_ok(ts_index_rice.encode(one, 1, 64, out, sizeof out, &len));
    ck_assert(len == 1 && out[0] == 41);
    /* 33: limit 62 >> 5 = 1, q = 1: one zero without a one, then 1 in 5 bits. The mean moves to
     * 6.0224 + (log2(67) by chords, 6.0469, less 6.0224) / 4 = 6.0285, r = 5. The next gap and its
     * limit are 29, limit >> 5 = 0: 29 in 5 bits. */
    ck_assert_ok(ts_index_rice.encode(two, 2, 64, out, sizeof out, &len));
    ck_assert_uint_eq(len, 2);
    ck_assert_uint_eq((unsigned)out[0] | (unsigned)out[1] << 8, 1u << 1 | 29u << 6);
    for (uint32_t i = 0; i < 1000; i++) ck_assert_uint_le(ts_index_rice.size(&i, 1, 1000), 2);
}
END_TEST

/* log2 of the number of sets of k among n, an index. */
static double entropy_bits(double k, double n) {
    return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(2) / k;
}

START_TEST(rice_near_entropy) {
    static const size_t sizes[] = {1000000, 10000000, 100000000, 1000000000};
    size_t k = 100000, n = sizes[_i];
    uint32_t *index = malloc(k * sizeof *index);
    ts_random random = ts_random_start(11);
    /* Geometric gaps: independent positions. */
    double position = 0, scale = log1p(-(double)k / (double)n);
    size_t made = 0;
    while (made < k) {
        double u = ((double)ts_random_u32(&random) + 0.5) * 0x1p-32;
        position += floor(log(u) / scale);
        if (position >= (double)n) break;
        index[made++] = (uint32_t)position;
        position += 1;
    }
    double bits = 8.0 * (double)ts_index_rice.size(index, made, n) / (double)made;
    double entropy = entropy_bits((double)made, (double)n);
    ck_assert_msg(made > k * 98 / 100, "%zu", made);
    ck_assert_msg(bits < entropy + 0.15, "%zu of %zu: %.3f bits, entropy %.3f", made, n, bits, entropy);
    free(index);
}
END_TEST

static int compare_f32(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

START_TEST(rice_below_entropy_on_clusters) {
    uint32_t *index = make_set(SET_CLUSTERED, 4000, 4000000, 5);
    double bits = 8.0 * (double)ts_index_rice.size(index, 4000, 4000000) / 4000;
    ck_assert_msg(bits < 0.6 * entropy_bits(4000, 4000000), "%.3f bits", bits);
    free(index);
}
END_TEST

START_TEST(rice_on_real_gradient) {
    size_t n, k, taken = 0;
    float *g = ts_unit_read_f32(TS_TEST_VECTORS "/gradients/cnn-step1-7.weight.f32", &n);
    float *magnitude = malloc(n * sizeof *magnitude);
    k = _i == 0 ? (n + 99) / 100 : (n + 999) / 1000;
    for (size_t i = 0; i < n; i++) magnitude[i] = fabsf(g[i]);
    qsort(magnitude, n, sizeof *magnitude, compare_f32);
    uint32_t *index = malloc(n * sizeof *index);
    for (size_t i = 0; i < n; i++) {
        if (fabsf(g[i]) >= magnitude[n - k]) index[taken++] = (uint32_t)i;
    }
    double bits = 8.0 * (double)ts_index_rice.size(index, taken, n) / (double)taken;
    double entropy = entropy_bits((double)taken, (double)n);
    ck_assert_msg(bits < entropy, "top %zu of %zu: %.3f bits, entropy %.3f", taken, n, bits, entropy);
    free(index);
    free(magnitude);
    free(g);
}
END_TEST

START_TEST(best_is_least) {
    static const shape shapes[] = {{1, 64}, {64, 64}, {32, 64}, {100, 100000}, {5000, 10000}, {300, 300000}};
    for (size_t at = 0; at < sizeof shapes / sizeof shapes[0]; at++) {
        for (int kind = 0; kind < SET_KINDS; kind++) {
            size_t k = shapes[at].k, n = shapes[at].n, size, least = SIZE_MAX;
            if (kind == SET_EVERY_SECOND && 2 * k > n) continue;
            uint32_t *index = make_set((set_kind)kind, k, n, at);
            const ts_index_stage *chosen = ts_index_best_choose(index, k, n, &size), *first = NULL;
            for (size_t i = 0; i < ts_registry_index_count(); i++) {
                size_t bytes = ts_registry_index(i)->size(index, k, n);
                if (bytes < least) least = bytes, first = ts_registry_index(i);
            }
            ck_assert(size == least && chosen == first);
            free(index);
        }
    }
}
END_TEST

TCase *test_pack(void);
TCase *test_pack(void) {
    TCase *tests = tcase_create("pack");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, round_trips, 0, 13);
    tcase_add_test(tests, flips_and_cuts);
    tcase_add_test(tests, random_bytes);
    tcase_add_test(tests, lies_about_counts);
    tcase_add_test(tests, known_bytes);
    tcase_add_test(tests, rice_by_hand);
    tcase_add_loop_test(tests, rice_near_entropy, 0, 4);
    tcase_add_test(tests, rice_below_entropy_on_clusters);
    tcase_add_loop_test(tests, rice_on_real_gradient, 0, 2);
    tcase_add_test(tests, best_is_least);
    return tests;
}
