/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"
#include "common/codec/selection.h"
#include "common/codec/stage_list.h"
#include "tests/unit/codec_support.h"

static int downwards(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

START_TEST(kth_largest_agrees_with_sorting) {
    ts_random random = ts_random_start(1);
    for (int round = 0; round < 300; round++) {
        static uint32_t v[200000], sorted[200000], space[50000];
        uint32_t largest = round < 200 ? 300 : round < 280 ? 3000 : 200000;
        size_t m = 1 + ts_random_below(&random, largest), k = 1 + ts_random_below(&random, (uint32_t)m);
        uint32_t mask = round % 3 ? TS_ABS_MASK : UINT32_MAX, values = round % 2 ? UINT32_MAX : 5;
        for (size_t i = 0; i < m; i++) sorted[i] = (v[i] = ts_random_u32(&random) % values) & mask;
        if (round % 7 == 0)
            memcpy(v, sorted, m * sizeof *v), qsort(v, m, sizeof *v, downwards); /* an order that fools samples */
        qsort(sorted, m, sizeof *sorted, downwards);
        size_t greater = 0, equal = 0, above = 0, same = 0;
        const ts_kernels *kernels = ts_kernels_get(round % 2 ? ts_cpu_simd() : TS_SIMD_SCALAR);
        const ts_work work = {space, round % 5 ? sizeof space / sizeof *space - TS_KEEP_SPARE : 100};
        const uint32_t untouched = space[work.room];
        ck_assert_uint_eq(ts_kth_largest(kernels, v, m, k, mask, work, &greater, &equal), sorted[k - 1]);
        ck_assert_uint_eq(space[work.room], untouched);
        while (sorted[above] > sorted[k - 1]) above++;
        ck_assert_uint_eq(greater, above);
        while (above + same < m && sorted[above + same] == sorted[k - 1]) same++;
        ck_assert_uint_eq(equal, same);
    }
}
END_TEST

/* Few candidates as large as the k-th, anywhere in a long list: those with the smallest hashes stay, all in their order. */
START_TEST(of_equal_candidates_those_with_the_smallest_hashes_stay) {
    enum { M = 3000, LEVEL = 1000000 };
    ts_random random = ts_random_start(3);
    for (uint64_t key = 0; key < 100; key++) {
        static uint32_t index[M + 8], bits[M + 8], order[M], hash[M], given[M];
        size_t m = M - key, above = 0, ties = 0, kept = 0;
        for (size_t i = 0; i < m; i++) {
            uint32_t kind = ts_random_below(&random, 200);
            bits[i] = given[i] = (kind == 0 ? LEVEL : kind % 2 ? LEVEL + kind : LEVEL - kind) | (uint32_t)(i % 3 == 0) << 31;
            index[i] = (uint32_t)(i * 7);
            above += kind % 2;
            if (kind == 0) hash[ties++] = (uint32_t)(ts_mix64(key ^ (5 + index[i])) >> 32);
        }
        if (ties == 0) continue;
        size_t wanted = 1 + ts_random_below(&random, (uint32_t)ties);
        qsort(hash, ties, sizeof *hash, downwards);
        ts_candidates c = {.index = index, .bits = bits, .order = order, .count = m, .capacity = M};
        ts_candidates_keep(ts_kernels_get(ts_cpu_simd()), &c, above + wanted, key, 5);
        ck_assert_uint_eq(c.count, above + wanted);
        for (size_t i = 0; i < m; i++) {
            uint32_t magnitude = given[i] & TS_ABS_MASK, own = (uint32_t)(ts_mix64(key ^ (5 + i * 7)) >> 32);
            if (magnitude < LEVEL || (magnitude == LEVEL && own > hash[ties - wanted])) continue;
            ck_assert_uint_eq(index[kept], i * 7);
            ck_assert_uint_eq(bits[kept++], given[i]);
        }
        ck_assert_uint_eq(kept, c.count);
    }
}
END_TEST

START_TEST(ratios_give_at_least_one_and_at_most_all) {
    ck_assert_uint_eq(ts_ratio_elems(0.001, 0), 0);
    ck_assert_uint_eq(ts_ratio_elems(0.001, 1), 1);
    ck_assert_uint_eq(ts_ratio_elems(0.001, 1001), 2);
    ck_assert_uint_eq(ts_ratio_elems(1, 77), 77);
    ck_assert_uint_eq(ts_ratio_elems(0.5, 3), 2);
    ck_assert_uint_eq(ts_ratio_elems(5, 3), 3);
    ck_assert_uint_eq(ts_ratio_elems(1e-30, 25500000), 1);
    ck_assert_uint_eq(ts_ratio_elems(5e-324, UINT32_MAX), 1);
}
END_TEST

/* The k largest by magnitude, by sorting; the smallest of them is *level. */
static void check_choice(const ts_unit_tensor *t, const float *before, const float *sent, size_t k) {
    size_t n = t->spec.n, count = 0, above = 0, level_chosen = 0;
    uint32_t *bits = malloc((n + 1) * sizeof *bits);
    ck_assert_ptr_nonnull(bits);
    for (size_t i = 0; i < n; i++) bits[i] = ts_float_bits(before[i]) & TS_ABS_MASK;
    qsort(bits, n, sizeof *bits, downwards);
    uint32_t level = bits[k - 1];
    while (bits[above] > level) above++;
    for (size_t i = 0; i < n; i++) {
        uint32_t magnitude = ts_float_bits(before[i]) & TS_ABS_MASK;
        bool chosen = sent[i] != 0.0f || (level == 0 && magnitude > 0);
        if (magnitude > level && !chosen) ck_abort_msg("element %zu is larger than the k-th and was not sent", i);
        if (magnitude < level && chosen) ck_abort_msg("element %zu is smaller than the k-th and was sent", i);
        count += chosen;
        level_chosen += chosen && magnitude == level;
    }
    if (level > 0) ck_assert_uint_eq(count, k);
    if (level > 0) ck_assert_uint_eq(level_chosen, k - above);
    free(bits);
}

/* How many magnitudes the sweep of s would leave at or above the floor. */
static size_t reaching(const ts_sweep *s, size_t n, uint32_t floor) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        float r = ts_flush(s->residual[i] + (s->velocity ? s->momentum * s->velocity[i] + s->gradient[i]
                                                         : s->gradient[i]));
        count += (ts_float_bits(r) & TS_ABS_MASK) >= floor;
    }
    return count;
}

/* The sample's floor lets the k largest and not many more pass, and taking the sample changes nothing. */
static void check_floors(size_t n, size_t k, size_t tries) {
    size_t room = 3 * k + 10000;
    uint32_t *lists = malloc(3 * room * sizeof *lists);
    float *x[3], *copy[3];
    ck_assert_ptr_nonnull(lists);
    for (unsigned a = 0; a < 3; a++) {
        x[a] = malloc(n * sizeof(float));
        copy[a] = malloc(n * sizeof(float));
        ts_unit_input(8, x[a], n, a);
        for (size_t i = 0; i < n; i++) x[a][i] *= 1 + 7 * (float)i / (float)n; /* so that all of it has to be looked at */
        memcpy(copy[a], x[a], n * sizeof(float));
    }
    size_t missed = 0, passed = 0;
    for (uint64_t key = 0; key < tries; key++) {
        ts_sweep sweep = {.gradient = x[0], .scale = 1, .residual = x[1], .velocity = key % 2 ? x[2] : NULL,
                          .momentum = 0.5f};
        ts_selection s = {.kernels = ts_kernels_get(ts_cpu_simd()), .n = n, .key = key, .sweep = &sweep,
                          .candidates = {.index = lists, .bits = lists + room, .order = lists + 2 * room, .capacity = room}};
        size_t count = reaching(&sweep, n, ts_sample_floor(&s, k));
        missed += count < k;
        passed += count;
    }
    for (unsigned a = 0; a < 3; a++) ck_assert_int_eq(memcmp(x[a], copy[a], n * sizeof(float)), 0);
    ck_assert_uint_le(missed, 2);           /* three standard deviations */
    ck_assert_uint_le(passed, tries * 3 * k); /* the mean is at about 1.8 k for a sample of so few */
    for (unsigned a = 0; a < 3; a++) {
        free(x[a]);
        free(copy[a]);
    }
    free(lists);
}

START_TEST(a_sample_tells_the_floor_and_changes_nothing) { check_floors(400000, 400, 50); }
END_TEST

/* Strata of several pages each: lines come several from a page. The last places are in the last, uneven ones. */
START_TEST(a_sample_of_few_pages_tells_the_floor_as_well) { check_floors(3000001, 9001, 20); }
END_TEST

/* Rows of large values among zeros, as embeddings have: a sample of lines is often wrong there, the choice never. */
/* Long runs, in which vector kernels leave hits for later, with elements in between that are not finite. */
START_TEST(hits_around_what_is_not_finite_are_listed_in_order) {
    enum { N = 8192, ROOM = N + 2 * TS_SELECT_GROUP };
    static float gradient[N], before[N], residual[2][N];
    static uint32_t index[2][ROOM], bits[2][ROOM];
    ts_random random = ts_random_start(11);
    for (unsigned round = 0; round < 60; round++) {
        const unsigned one_in[] = {3, 100, 1000};
        for (size_t i = 0; i < N; i++) {
            bool hit = ts_random_below(&random, one_in[round % 3]) == 0;
            gradient[i] = (float)ts_random_normal(&random) * 0.1f + (hit ? 10.0f : 0.0f);
            before[i] = (float)ts_random_normal(&random) * 0.1f;
        }
        for (unsigned bad = 0; bad < round % 5; bad++) gradient[ts_random_below(&random, N)] = bad % 2 ? INFINITY : NAN;
        const ts_simd levels[] = {TS_SIMD_NEON, TS_SIMD_AVX2, TS_SIMD_AVX512};
        for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
            if (!ts_cpu_supports(levels[l])) continue;
            ts_candidates found[2];
            ts_sweep sweep[2];
            for (int side = 0; side < 2; side++) {
                memcpy(residual[side], before, sizeof before);
                sweep[side] = (ts_sweep){.gradient = gradient, .scale = 1, .residual = residual[side], .policy = TS_NONFINITE_ZERO};
                found[side] = (ts_candidates){.index = index[side], .bits = bits[side], .capacity = ROOM, .floor = ts_float_bits(5)};
                const ts_kernels *kernels = ts_kernels_get(side ? levels[l] : TS_SIMD_SCALAR);
                ck_assert_uint_eq(kernels->select(&sweep[side], 0, N, &found[side]), N);
            }
            ck_assert_uint_eq(found[0].count, found[1].count);
            ck_assert_mem_eq(index[0], index[1], found[0].count * sizeof **index);
            ck_assert_mem_eq(bits[0], bits[1], found[0].count * sizeof **bits);
            ck_assert_mem_eq(residual[0], residual[1], sizeof before);
            ck_assert_uint_eq(sweep[0].bad_count, sweep[1].bad_count);
            if (sweep[0].bad_count > 0) ck_assert_uint_eq(sweep[0].bad_first, sweep[1].bad_first);
        }
    }
}
END_TEST

START_TEST(topk_is_exact_where_samples_mislead) {
    enum { N = 300000, ROW = 96 };
    float *g = malloc(N * sizeof *g), *before = malloc(N * sizeof *g), *sent = malloc(N * sizeof *g);
    for (uint64_t step = 0; step < 40; step++) {
        ts_unit_tensor t;
        ts_unit_tensor_open(&t, "topk:0.001", N, 65536, ts_cpu_simd());
        ts_unit_input(8, g, N, step);
        for (size_t i = 0; i < N; i++) {
            uint64_t row = ts_mix64(step * 1000003 + i / ROW);
            before[i] = g[i] = row % 600 == 0 ? copysignf(1.0f + fabsf(g[i]), g[i]) : g[i] * 1e-3f;
        }
        ts_unit_encode(&t, g, step, TERSE_OK);
        ck_assert_uint_eq(t.report.selected, 300);
        (void)ts_unit_decode(&t, sent);
        check_choice(&t, before, sent, 300);
        ts_unit_tensor_close(&t);
    }
    free(g);
    free(before);
    free(sent);
}
END_TEST

/* Whatever the step before was like (levels that jump both ways, other ratios), exactly the k largest go. */
START_TEST(topk_is_exact_whatever_came_before) {
    static const size_t sizes[] = {1, 5, 100, 5000, 70001, 200003};
    static const float levels[] = {1, 1, 1, 1000, 1, 1e-6f, 1, 1, 0, 1, 1e20f, 1e-30f, 1};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        size_t n = sizes[s];
        ts_unit_tensor t;
        ts_unit_tensor_open(&t, "topk:0.01", n, 16384, ts_cpu_simd());
        float *g = malloc(n * sizeof *g), *before = malloc(n * sizeof *g), *sent = malloc(n * sizeof *g);
        for (size_t step = 0; step < sizeof levels / sizeof levels[0]; step++) {
            ts_unit_input(step % 2 ? 7 : 8, g, n, step);
            for (size_t i = 0; i < n; i++) {
                g[i] *= levels[step];
                before[i] = ts_flush(t.residual[i] + g[i]);
            }
            t.input.ratio = step % 5 == 4 ? 0.1 : 0;
            ts_unit_encode(&t, g, step, TERSE_OK);
            size_t k = ts_ratio_elems(t.input.ratio > 0 ? t.input.ratio : 0.01, n);
            ck_assert_uint_eq(t.report.selected, k);
            (void)ts_unit_decode(&t, sent);
            check_choice(&t, before, sent, k);
        }
        ts_unit_tensor_close(&t);
        free(g);
        free(before);
        free(sent);
    }
}
END_TEST

/* Equal values are spread by their hash, not taken from the front, and other steps take others. */
START_TEST(ties_are_broken_without_a_bias) {
    enum { N = 100000 };
    float *g = malloc(N * sizeof *g), *sent = malloc(N * sizeof *sent);
    size_t first_half = 0, again = 0;
    for (size_t i = 0; i < N; i++) g[i] = i % 2 ? 1.0f : -1.0f;
    float *earlier = calloc(N, sizeof *earlier);
    for (uint64_t step = 0; step < 2; step++) {
        ts_unit_tensor t;
        ts_unit_tensor_open(&t, "topk:0.1", N, 16384, ts_cpu_simd());
        ts_unit_encode(&t, g, step, TERSE_OK);
        ck_assert_uint_eq(ts_unit_decode(&t, sent), N / 10);
        for (size_t i = 0; i < N; i++) {
            first_half += step == 0 && i < N / 2 && sent[i] != 0;
            again += sent[i] != 0 && earlier[i] != 0;
        }
        memcpy(earlier, sent, N * sizeof *sent);
        ts_unit_tensor_close(&t);
    }
    ck_assert(first_half > 4700 && first_half < 5300); /* 5000 ± 4.5 standard deviations */
    ck_assert(again > 850 && again < 1150);
    free(g);
    free(sent);
    free(earlier);
}
END_TEST

START_TEST(randomk_draws_distinct_indices_evenly) {
    static const struct {
        size_t n, k;
    } cases[] = {{1, 1}, {64, 1}, {65, 64}, {1000, 10}, {1000, 700}, {1000, 1000}, {7, 0}};
    uint64_t bitmap[16];
    uint32_t index[1000], hits[1000] = {0};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        size_t n = cases[c].n, k = cases[c].k;
        memset(hits, 0, sizeof hits);
        for (uint64_t key = 0; key < 1000; key++) {
            index[0] = 0;
            ts_select_randomk.regenerate(key, k, n, bitmap, index);
            for (size_t i = 0; i < k; i++) {
                if (index[i] >= n || (i > 0 && index[i] <= index[i - 1]))
                    ck_abort_msg("indices are not ascending below n");
                hits[index[i]]++;
            }
        }
        double mean = 1000.0 * (double)k / (double)n, deviation = sqrt(mean * (1 - (double)k / (double)n));
        for (size_t i = 0; i < n; i++) {
            if (fabs(hits[i] - mean) > 5 * deviation + 1e-9)
                ck_abort_msg("element %zu of %zu: %u hits, not %g", i, n, hits[i], mean);
        }
    }
}
END_TEST

/* All workers draw the same elements, another step others; the downlink has its own. */
START_TEST(randomk_does_not_know_the_worker) {
    enum { N = 5000 };
    float *g = malloc(N * sizeof *g), *sent[3];
    ts_unit_input(8, g, N, 1);
    for (int w = 0; w < 3; w++) {
        ts_unit_tensor t;
        sent[w] = malloc(N * sizeof(float));
        ts_unit_tensor_open(&t, "randomk:0.02", N, 1000, ts_cpu_simd());
        ts_encoder_destroy(t.encoder);
        t.spec.worker = (uint32_t)w;
        ck_assert_ok(ts_encoder_create(&t.spec, &t.encoder));
        ts_unit_encode(&t, g, w == 2 ? 8 : 7, TERSE_OK);
        ck_assert_uint_eq(ts_unit_decode(&t, sent[w]), N / 50);
        /* A tag and the values: no index travels. */
        for (uint32_t s = 0; s < t.slices; s++) ck_assert_uint_eq(t.len[s], 1 + 4 * 20);
        ts_unit_tensor_close(&t);
    }
    ck_assert_mem_eq(sent[0], sent[1], N * sizeof(float));
    ck_assert_mem_ne(sent[0], sent[2], N * sizeof(float));
    for (int w = 0; w < 3; w++) free(sent[w]);
    free(g);
}
END_TEST

START_TEST(threshold_takes_what_reaches_it) {
    ts_unit_tensor t;
    float g[6] = {0.5f, -0.5f, 0.49999f, 0.0f, -7.0f, -0.49999f}, sent[6];
    ts_unit_tensor_open(&t, "threshold:0.5", 6, 4, ts_cpu_simd());
    ts_unit_encode(&t, g, 0, TERSE_OK);
    ck_assert_uint_eq(t.report.selected, 3);
    (void)ts_unit_decode(&t, sent);
    ck_assert(sent[0] == 0.5f && sent[1] == -0.5f && sent[4] == -7.0f && sent[2] == 0 && sent[5] == 0);
    ts_unit_encode(&t, g, 1, TERSE_OK); /* what stayed has grown with the same gradient */
    ck_assert_uint_eq(t.report.selected, 5);
    ts_unit_tensor_close(&t);
}
END_TEST

START_TEST(blocktopk_takes_the_largest_of_each_block) {
    enum { VALUES = 1050, BLOCK = 100 };
    ts_unit_tensor t;
    float g[VALUES], sent[VALUES];
    ts_unit_tensor_open(&t, "blocktopk:0.05:100", VALUES, 256, ts_cpu_simd());
    ts_unit_input(7, g, VALUES, 2);
    ts_unit_encode(&t, g, 0, TERSE_OK);
    ck_assert_uint_eq(t.report.selected, 10 * 5 + 3);
    (void)ts_unit_decode(&t, sent);
    for (size_t at = 0; at < VALUES; at += BLOCK) {
        size_t end = at + BLOCK < VALUES ? at + BLOCK : VALUES, count = 0;
        float least = INFINITY, most = 0;
        for (size_t i = at; i < end; i++) {
            count += sent[i] != 0;
            if (sent[i] != 0) least = fminf(least, fabsf(sent[i]));
            else most = fmaxf(most, fabsf(g[i]));
        }
        ck_assert_uint_eq(count, end - at == BLOCK ? 5 : 3);
        ck_assert(least >= most);
    }
    ts_unit_tensor_close(&t);
}
END_TEST

/* Issue 3: within a tenth of R · n on real gradients, at every step. */
START_TEST(adaptive_meets_its_ratio_on_real_gradients) {
    static const char *const files[] = {"cnn-step1-7.weight", "cnn-step300-3.weight", "lm-step200-blk.0.linear2.weight",
                                        "lm-step200-emb.weight"};
    static const char *const ratios[] = {"0.3", "0.1", "0.03", "0.01", "0.003", "0.001"};
    for (size_t f = 0; f < 4; f++) {
        char path[256], text[64];
        size_t n;
        (void)snprintf(path, sizeof path, "%s/gradients/%s.f32", TS_TEST_VECTORS, files[f]);
        float *g = ts_unit_read_f32(path, &n);
        for (size_t r = 0; r < sizeof ratios / sizeof ratios[0]; r++) {
            ts_unit_tensor t;
            (void)snprintf(text, sizeof text, "adaptive:%s", ratios[r]);
            ts_unit_tensor_open(&t, text, n, 16384, ts_cpu_simd());
            for (uint64_t step = 0; step < 12; step++) {
                ts_unit_encode(&t, g, step, TERSE_OK);
                double wanted = (double)ts_ratio_elems(strtod(ratios[r], NULL), n), got = (double)t.report.selected;
                ck_assert_msg(fabs(got - wanted) <= 0.1 * wanted + 1, "%s, %s: %g instead of %g", files[f], text, got,
                              wanted);
            }
            ts_unit_tensor_close(&t);
        }
        free(g);
    }
}
END_TEST

/* Drawn elements: as many as said on average, and without error feedback the mean of what is sent is the gradient. */
START_TEST(drawing_selectors_keep_the_expectation) {
    enum { VALUES = 500, STEPS = 4000 };
    static const struct { const char *pipeline; double count; } cases[] = {
        {"bernoulli:0.1", 50}, {"randomk:0.1", 50}, {"magnitude:0.1", 50}, {"magnitude:0.5", 250}};
    float g[VALUES], sent[VALUES];
    ts_unit_input(7, g, VALUES, 3);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        ts_unit_tensor t;
        double mean[VALUES] = {0}, squares[VALUES] = {0}, count = 0, bias = 0, spread = 0;
        ts_unit_tensor_open(&t, cases[c].pipeline, VALUES, VALUES, ts_cpu_simd());
        t.input.unbiased = true;
        for (uint64_t step = 0; step < STEPS; step++) {
            memset(t.residual, 0, VALUES * sizeof(float));
            ts_unit_encode(&t, g, step, TERSE_OK);
            (void)ts_unit_decode(&t, sent);
            count += (double)t.report.selected / STEPS;
            for (int i = 0; i < VALUES; i++) {
                mean[i] += (double)sent[i] / STEPS;
                squares[i] += (double)sent[i] * (double)sent[i] / STEPS;
            }
        }
        for (int i = 0; i < VALUES; i++) {
            bias += (mean[i] - (double)g[i]) * (mean[i] - (double)g[i]);
            spread += (squares[i] - mean[i] * mean[i]) / STEPS;
        }
        ck_assert_msg(fabs(count - cases[c].count) < 0.02 * cases[c].count, "%s: %g values a step", cases[c].pipeline,
                      count);
        ck_assert_msg(bias < 2 * spread, "%s: bias %g, expected %g", cases[c].pipeline, bias, spread);
        ts_unit_tensor_close(&t);
    }
}
END_TEST

/* The a for which sum min(1, a |g|) = k, by halving. */
static double factor_of(const float *g, size_t n, double k) {
    double low = 0, high = 1e9;
    for (int i = 0; i < 200; i++) {
        double a = (low + high) / 2, sum = 0;
        for (size_t j = 0; j < n; j++) sum += fmin(1, a * fabs((double)g[j]));
        if (sum < k) low = a;
        else high = a;
    }
    return low;
}

/* Wangni et al. 2018: each element as often as its probability says, g / p without error feedback, g with it. */
START_TEST(magnitude_draws_with_the_probabilities_of_the_paper) {
    enum { VALUES = 400, STEPS = 5000 };
    static const struct { const char *pipeline; double k; } cases[] = {
        {"magnitude:0.02", 8}, {"magnitude:0.1", 40}, {"magnitude:0.5", 200}};
    float g[VALUES], sent[VALUES];
    ts_unit_input(7, g, VALUES, 5);
    g[17] = 0;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        for (int feedback = 0; feedback < 2; feedback++) {
            ts_unit_tensor t;
            unsigned drawn[VALUES] = {0}, certain = 0, freedom = 0;
            double a = factor_of(g, VALUES, cases[c].k), square = 0;
            ts_unit_tensor_open(&t, cases[c].pipeline, VALUES, VALUES, ts_cpu_simd());
            t.input.unbiased = !feedback;
            for (uint64_t step = 0; step < STEPS; step++) {
                memset(t.residual, 0, VALUES * sizeof(float));
                ts_unit_encode(&t, g, step, TERSE_OK);
                (void)ts_unit_decode(&t, sent);
                for (int i = 0; i < VALUES; i++) {
                    if (sent[i] == 0) continue;
                    double p = feedback ? 1 : fmin(1, a * fabs((double)g[i])), wanted = (double)g[i] / p;
                    if (fabs((double)sent[i] - wanted) > 1e-5 * fabs(wanted))
                        ck_abort_msg("%s: %g instead of %g", cases[c].pipeline, (double)sent[i], wanted);
                    drawn[i]++;
                }
            }
            for (int i = 0; i < VALUES; i++) {
                double p = fmin(1, a * fabs((double)g[i])), mean = STEPS * p, off = drawn[i] - mean;
                certain += p > 0.999999;
                if (p > 0.999999 || mean < 5) ck_assert_msg(fabs(off) <= (p < 0.5 ? 30 : 1), "element %d: %u times", i, drawn[i]);
                if (p > 0.999999 || mean < 5) continue;
                square += off * off / (mean * (1 - p));
                freedom++;
            }
            ck_assert_uint_eq(drawn[17], 0);
            ck_assert(certain > 0 || cases[c].k < 100);
            ck_assert_uint_gt(freedom, 100);
            ck_assert_msg(square < freedom + 5 * sqrt(2.0 * freedom), "%s: chi squared %g of %u", cases[c].pipeline, square, freedom);
            ts_unit_tensor_close(&t);
        }
    }
}
END_TEST

TCase *test_select(void);
TCase *test_select(void) {
    TCase *tests = tcase_create("select");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, kth_largest_agrees_with_sorting);
    tcase_add_test(tests, of_equal_candidates_those_with_the_smallest_hashes_stay);
    tcase_add_test(tests, ratios_give_at_least_one_and_at_most_all);
    tcase_add_test(tests, a_sample_tells_the_floor_and_changes_nothing);
    tcase_add_test(tests, a_sample_of_few_pages_tells_the_floor_as_well);
    tcase_add_test(tests, hits_around_what_is_not_finite_are_listed_in_order);
    tcase_add_test(tests, topk_is_exact_where_samples_mislead);
    tcase_add_test(tests, topk_is_exact_whatever_came_before);
    tcase_add_test(tests, ties_are_broken_without_a_bias);
    tcase_add_test(tests, randomk_draws_distinct_indices_evenly);
    tcase_add_test(tests, randomk_does_not_know_the_worker);
    tcase_add_test(tests, threshold_takes_what_reaches_it);
    tcase_add_test(tests, blocktopk_takes_the_largest_of_each_block);
    tcase_add_test(tests, adaptive_meets_its_ratio_on_real_gradients);
    tcase_add_test(tests, drawing_selectors_keep_the_expectation);
    tcase_add_test(tests, magnitude_draws_with_the_probabilities_of_the_paper);
    return tests;
}
