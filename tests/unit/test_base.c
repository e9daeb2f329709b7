/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/buffer.h"
#include "common/base/bytes.h"
#include "common/base/copy.h"
#include "common/base/cpu.h"
#include "common/base/executor.h"
#include "common/base/mem.h"
#include "common/base/name_set.h"
#include "common/base/random.h"
#include "common/base/text.h"
#include "common/net/transport.h"
#include "tests/unit/unit.h"

START_TEST(statuses_have_pinned_values_and_sentences) {
    ck_assert_int_eq(TERSE_OK, 0);
    ck_assert_int_eq(TERSE_ECORRUPT, 5);
    ck_assert_int_eq(TERSE_ESHUTDOWN, 19);
    ck_assert_int_eq(TERSE_EDENIED, 20);
    ck_assert_str_eq(terse_status_name(TERSE_EMISMATCH), "EMISMATCH");
    ck_assert_str_eq(terse_strerror((terse_status)999), "unknown status");
}
END_TEST

START_TEST(varints_round_trip_and_refuse_truncation) {
    const uint64_t values[] = {0, 1, 127, 128, 16383, 16384, 0xFFFFFFFFu, UINT64_MAX};
    uint8_t bytes[TS_VARINT_MAX_BYTES];
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        size_t len = ts_varint_put(bytes, values[i]);
        ck_assert_uint_eq(len, ts_varint_bytes(values[i]));
        uint64_t back = 1;
        ck_assert_uint_eq(ts_varint_get(bytes, len, &back), len);
        ck_assert_uint_eq(back, values[i]);
        ck_assert_uint_eq(ts_varint_get(bytes, len - 1, &back), 0);
    }
    memset(bytes, 0xFF, sizeof bytes);
    uint64_t back;
    ck_assert_uint_eq(ts_varint_get(bytes, sizeof bytes, &back), 0);
}
END_TEST

START_TEST(philox_gives_the_published_values) {
    /* Random123's known-answer file: philox4x32-10 with zero and all-ones input. */
    ts_philox_block zero = ts_philox(0, 0, 0);
    ck_assert_uint_eq(zero.word[0], 0x6627e8d5u);
    ck_assert_uint_eq(zero.word[1], 0xe169c58du);
    ck_assert_uint_eq(zero.word[2], 0xbc57ac4cu);
    ck_assert_uint_eq(zero.word[3], 0x9b00dbd8u);
    ts_philox_block ones = ts_philox(UINT64_MAX, UINT64_MAX, UINT64_MAX);
    ck_assert_uint_eq(ones.word[0], 0x408f276du);
    ck_assert_uint_eq(ones.word[3], 0x6d5451fdu);
}
END_TEST

START_TEST(bounded_randoms_stay_below_and_reach_everything) {
    ts_random random = ts_random_start(ts_random_key(1, 2, 3, 4, 5));
    unsigned seen[7] = {0};
    for (int i = 0; i < 7000; i++) {
        uint32_t v = ts_random_below(&random, 7);
        ck_assert_uint_lt(v, 7);
        seen[v]++;
    }
    for (int i = 0; i < 7; i++) ck_assert_uint_gt(seen[i], 800);
}
END_TEST

START_TEST(memory_checks_overflow_and_fails_on_demand) {
    ck_assert_ptr_null(ts_mem_realloc(NULL, SIZE_MAX, 2));
    ck_assert_ptr_null(ts_mem_aligned(SIZE_MAX / 2, 4));
    ts_mem_fail_after(1);
    void *first = ts_mem_calloc(1, 8);
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_null(ts_mem_calloc(1, 8));
    void *third = ts_mem_aligned(3, sizeof(float));
    ck_assert_uint_eq((uintptr_t)third % TS_CACHE_LINE, 0);
    ts_mem_free(first);
    ts_mem_free(third);
}
END_TEST

/* Whole pages alone are given back: behind the last one somebody else's memory may lie. */
START_TEST(renewed_memory_leaves_its_neighbours_alone) {
    enum { PAGE = 4096, PAGES = 5, BYTES = 3 * PAGE + 64 };
    uint8_t expected[PAGES * PAGE];
    uint8_t *block = mmap(NULL, sizeof expected, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(block, MAP_FAILED);
    memset(block, 7, sizeof expected);
    memset(expected, 7, sizeof expected);
    memset(expected, 0, (size_t)BYTES / (size_t)sysconf(_SC_PAGESIZE) * (size_t)sysconf(_SC_PAGESIZE));
    ts_mem_renew(block, BYTES);
    ck_assert_int_eq(memcmp(block, expected, sizeof expected), 0);
    munmap(block, sizeof expected);
}
END_TEST

START_TEST(buffers_count_their_references) {
    ts_buffer *buffer;
    ck_assert_ok(ts_buffer_create(4, &buffer));
    buffer->len = 4;
    ck_assert_ok(ts_buffer_reserve(buffer, 1000));
    ck_assert_uint_ge(buffer->capacity, 1004);
    ck_assert_ptr_eq(ts_buffer_ref(buffer), buffer);
    ts_buffer_unref(buffer);
    ck_assert_uint_eq(buffer->len, 4);
    ts_buffer_unref(buffer);
    ts_buffer_unref(NULL);
}
END_TEST

START_TEST(pools_keep_what_fits_within_their_limit) {
    const size_t mib = (size_t)1 << 20;
    ts_buffer_pool *pool;
    ts_buffer *a, *b, *c;
    ck_assert_ok(ts_buffer_pool_create(2 * mib, &pool));
    ck_assert_ok(ts_buffer_pool_take(pool, mib, &a));
    uint8_t *memory = a->data;
    a->len = 100;
    ts_buffer_ref(a);
    ts_buffer_unref(a);
    ck_assert_ok(ts_buffer_pool_take(pool, mib, &b)); /* a is in use still */
    ck_assert_ptr_ne(b->data, memory);
    ts_buffer_unref(a);
    ck_assert_ok(ts_buffer_pool_take(pool, mib / 2, &c)); /* would waste half */
    ck_assert_ptr_ne(c->data, memory);
    ts_buffer_unref(c);
    ck_assert_ok(ts_buffer_pool_take(pool, mib - 100, &a));
    ck_assert_ptr_eq(a->data, memory);
    ck_assert_uint_eq(a->len, 0);
    ck_assert_int_eq(a->references, 1);
    ts_buffer_unref(a);
    ts_buffer_unref(b); /* c's memory, the oldest, made room */
    ck_assert_uint_eq(ts_buffer_pool_bytes(pool), 2 * mib);
    ck_assert_uint_eq(ts_buffer_pool_bytes(NULL), 0);
    ck_assert_ok(ts_buffer_pool_take(pool, 3 * mib, &c));
    ts_buffer_unref(c); /* larger than all that may be spare */
    ck_assert_ok(ts_buffer_pool_take(pool, mib, &a));
    ck_assert_ok(ts_buffer_pool_take(NULL, mib, &b));
    ck_assert_ptr_null(b->pool);
    ts_buffer_pool_destroy(pool);
    memset(a->data, 1, mib); /* outlives its pool */
    ts_buffer_unref(a);
    ts_buffer_unref(b);
    ts_buffer_pool_destroy(NULL);
    ts_mem_fail_after(0);
    ck_assert_int_eq(ts_buffer_pool_create(1, &pool), TERSE_ENOMEM);
}
END_TEST

START_TEST(simd_levels_have_names_and_obey_the_environment) {
    ts_simd level;
    ck_assert_ok(ts_simd_parse("avx2", &level));
    ck_assert_int_eq(level, TS_SIMD_AVX2);
    ck_assert_status(ts_simd_parse("mmx", &level), TERSE_EINVAL);
    ck_assert_int_eq(ts_cpu_simd_below("scalar"), TS_SIMD_SCALAR);
    ck_assert_int_eq(ts_cpu_simd_below("mmx"), ts_cpu_simd_below(NULL));
    ck_assert_int_eq(ts_cpu_simd(), ts_cpu_simd_below(getenv("TERSE_SIMD")));
    ck_assert(ts_cpu_supports(ts_cpu_simd()));
}
END_TEST

/* Each bit on its own: what an emulator may leave out while it offers the rest. */
START_TEST(a_level_needs_all_that_its_kernels_are_compiled_for) {
    enum { LEAF1, LEAF7, EXTENDED, SAVED };
    const struct { int word; unsigned bit; ts_simd without; } needed[] = {
        {LEAF1, 12, TS_SIMD_SCALAR},    /* FMA */
        {LEAF1, 20, TS_SIMD_SCALAR},    /* SSE4.2 */
        {LEAF1, 23, TS_SIMD_SCALAR},    /* POPCNT */
        {LEAF1, 27, TS_SIMD_SCALAR},    /* OSXSAVE */
        {LEAF1, 28, TS_SIMD_SCALAR},    /* AVX */
        {LEAF1, 29, TS_SIMD_SCALAR},    /* F16C */
        {LEAF7, 5, TS_SIMD_SCALAR},     /* AVX2 */
        {LEAF7, 8, TS_SIMD_SCALAR},     /* BMI2 */
        {EXTENDED, 5, TS_SIMD_SCALAR},  /* LZCNT */
        {SAVED, 1, TS_SIMD_SCALAR},     /* XMM */
        {SAVED, 2, TS_SIMD_SCALAR},     /* YMM */
        {LEAF7, 16, TS_SIMD_AVX2},      /* AVX512F */
        {LEAF7, 17, TS_SIMD_AVX2},      /* AVX512DQ */
        {LEAF7, 30, TS_SIMD_AVX2},      /* AVX512BW */
        {LEAF7, 31, TS_SIMD_AVX2},      /* AVX512VL */
        {SAVED, 5, TS_SIMD_AVX2},       /* masks */
        {SAVED, 6, TS_SIMD_AVX2},       /* upper halves of ZMM 0 ... 15 */
        {SAVED, 7, TS_SIMD_AVX2},       /* ZMM 16 ... 31 */
    };
    uint32_t all[4] = {0};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) all[needed[i].word] |= 1u << needed[i].bit;
    for (size_t i = 0; i <= sizeof needed / sizeof needed[0]; i++) { /* the last one: nothing is left out */
        uint32_t has[4];
        bool whole = i == sizeof needed / sizeof needed[0];
        memcpy(has, all, sizeof has);
        if (!whole) has[needed[i].word] &= ~(1u << needed[i].bit);
        ts_cpu_words words = {has[LEAF1], has[LEAF7], has[EXTENDED], has[SAVED]};
        ts_simd best = whole ? TS_SIMD_AVX512 : needed[i].without;
        ck_assert(ts_cpu_words_have(&words, TS_SIMD_SCALAR));
        ck_assert(!ts_cpu_words_have(&words, TS_SIMD_NEON));
        ck_assert_int_eq(ts_cpu_words_have(&words, TS_SIMD_AVX2), best >= TS_SIMD_AVX2);
        ck_assert_int_eq(ts_cpu_words_have(&words, TS_SIMD_AVX512), best == TS_SIMD_AVX512);
    }
}
END_TEST

START_TEST(large_buffers_keep_their_bytes_when_they_grow) {
    ts_buffer *buffer;
    ck_assert_ok(ts_buffer_create(TS_MEM_LARGE - 1, &buffer));
    for (int step = 0; step < 3; step++) { /* into large pages, and from large ones to larger */
        size_t len = buffer->capacity;
        for (size_t i = buffer->len; i < len; i++) buffer->data[i] = (uint8_t)(i * 7 + i / 4096);
        buffer->len = len;
        ts_mem_fail_after(0);
        ck_assert_status(ts_buffer_reserve(buffer, 1), TERSE_ENOMEM);
        ck_assert_uint_eq(buffer->capacity, len);
        ck_assert_ok(ts_buffer_reserve(buffer, 1));
        ck_assert_uint_gt(buffer->capacity, len);
        ck_assert_uint_eq((uintptr_t)buffer->data % TS_CACHE_LINE, 0);
        for (size_t i = 0; i < len; i++) {
            if (buffer->data[i] != (uint8_t)(i * 7 + i / 4096)) ck_abort_msg("step %d: byte %zu", step, i);
        }
    }
    ts_buffer_unref(buffer);
    ck_assert_ptr_null(ts_mem_grow(NULL, 0, SIZE_MAX));
}
END_TEST

START_TEST(cores_are_those_that_the_process_may_use) {
    cpu_set_t before, one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    ck_assert_int_eq((int)ts_cpu_cores(), CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (size_t c = 0; c < CPU_SETSIZE && CPU_COUNT(&one) == 0; c++)
        if (CPU_ISSET(c, &before)) CPU_SET(c, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    unsigned bound = ts_cpu_cores();
    ck_assert_int_eq(sched_setaffinity(0, sizeof before, &before), 0);
    ck_assert_uint_eq(bound, 1);
}
END_TEST

START_TEST(cores_are_few_where_a_process_has_less_than_two) {
    ts_transport transport = {.neighbours = 0};
    const char *set = getenv("TERSE_THREADS");
    char kept[16] = "";
    if (set) snprintf(kept, sizeof kept, "%s", set);
    unsetenv("TERSE_THREADS");
    ck_assert(!ts_transport_crowded(&transport)); /* nobody knows */
    transport.neighbours = ts_cpu_cores() / 2;
    ck_assert(!ts_transport_crowded(&transport));
    transport.neighbours++;
    ck_assert(ts_transport_crowded(&transport));
    transport.neighbours = ts_cpu_cores();
    ck_assert(ts_transport_crowded(&transport) && ts_transport_one_each(&transport));
    transport.neighbours++;
    ck_assert(ts_transport_crowded(&transport) && !ts_transport_one_each(&transport));
    setenv("TERSE_THREADS", "several", 1);
    ck_assert(!ts_transport_crowded(&transport) && !ts_transport_one_each(&transport));
    setenv("TERSE_THREADS", "one", 1);
    transport.neighbours = 0;
    ck_assert(ts_transport_crowded(&transport) && ts_transport_one_each(&transport));
    setenv("TERSE_THREADS", kept, 1);
    if (!set) unsetenv("TERSE_THREADS");
}
END_TEST

static void add_one(void *argument) { ++*(int *)argument; }

START_TEST(the_inline_executor_runs_work_then_done) {
    int calls = 0;
    ck_assert_ok(ts_executor_inline.submit(&ts_executor_inline, add_one, add_one, &calls));
    ck_assert_int_eq(calls, 2);
}
END_TEST

/* All bytes arrive and none beside them, whatever the addresses. */
START_TEST(copies_past_the_caches_are_copies) {
    enum { ROOM = 520 };
    static uint8_t from[ROOM], to[ROOM], want[ROOM];
    for (size_t i = 0; i < ROOM; i++) from[i] = (uint8_t)(i * 37 + 11);
    for (size_t out = 0; out < 130; out += out < 66 ? 1 : 13)
        for (size_t in = 0; in < 70; in += 23)
            for (size_t bytes = 0; bytes <= 260; bytes += bytes < 4 ? 1 : 21) {
                memset(to, 0xEE, sizeof to);
                memset(want, 0xEE, sizeof want);
                memcpy(want + out, from + in, bytes);
                ts_copy_past(to + out, from + in, bytes);
                ck_assert_mem_eq(to, want, sizeof to);
            }
}
END_TEST

START_TEST(name_sets_find_repetitions_in_long_lists) {
    enum { NAMES = 100000 }; /* seconds, were it quadratic */
    char (*names)[12] = calloc(NAMES, sizeof *names);
    ts_name_set set = {0};
    bool added = false;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < NAMES; i++) {
            snprintf(names[i], sizeof names[i], "tensor%d", i);
            ck_assert_ok(ts_name_set_add(&set, names[i], &added));
            ck_assert(added == (round == 0));
        }
    ck_assert_uint_eq(set.count, NAMES);
    ts_name_set_clear(&set);
    ck_assert_uint_eq(set.count, 0);
    free(names);
}
END_TEST

START_TEST(a_label_has_few_letters_and_an_end) {
    char endless[4] = {'a', 'b', 'c', 'd'};
    ck_assert(ts_text_is_label("aZ09._-", 8) && ts_text_is_label("a", 2));
    ck_assert(!ts_text_is_label("aZ09._-", 7) && !ts_text_is_label("..", 8) && !ts_text_is_label(".a", 8) && !ts_text_is_label("", 8) && !ts_text_is_label(endless, sizeof endless));
    for (int c = 1; c < 256; c++) {
        char name[3] = {'a', (char)c, 0};
        bool allowed = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
        ck_assert_int_eq(ts_text_is_label(name, sizeof name), allowed);
    }
}
END_TEST

START_TEST(what_is_not_plain_text_is_escaped_and_cut_between_characters) {
    char out[16];
    ck_assert(ts_text_is_plain("") && ts_text_is_plain("~ é 權") && !ts_text_is_plain("\t") && !ts_text_is_plain("\xe6\xac"));
    ck_assert_str_eq(ts_text_escape("a\\b\x01\xe9!", out, sizeof out), "a\\\\b\\x01\\xe9!");
    ck_assert_str_eq(ts_text_escape("0123456789abcde", out, sizeof out), "0123456789abcde");
    ck_assert_str_eq(ts_text_escape("0123456789abcdef", out, sizeof out), "0123456789ab...");
    ck_assert_str_eq(ts_text_escape("0123456789é權權", out, sizeof out), "0123456789é...");
    ck_assert_str_eq(ts_text_escape("0123456789a權權", out, sizeof out), "0123456789a...");
    ck_assert_str_eq(ts_text_escape("0123456789\x01\x01", out, sizeof out), "0123456789...");
}
END_TEST

START_TEST(messages_are_plain_text_and_stay_as_they_are) {
    ts_error error, again;
    char longest[3 * TS_ERROR_CHARS];
    (void)ts_error_set(&error, TERSE_EIO, "%s: %d", "my\nown \xff \\ reason", 7);
    ck_assert_str_eq(error.text, "my\\x0aown \\xff \\ reason: 7");
    (void)ts_error_set(&again, TERSE_EIO, "%s", error.text);
    ck_assert_str_eq(again.text, error.text);
    for (size_t shift = 0; shift < 2; shift++) { /* cut, but in no character */
        memset(longest, 'x', shift);
        for (size_t at = shift; at < sizeof longest - 2; at += 2) memcpy(longest + at, "é", 3);
        (void)ts_error_set(&error, TERSE_EIO, "%s", longest);
        ck_assert(ts_text_is_plain(error.text));
        ck_assert_str_eq(error.text + strlen(error.text) - 5, "é...");
        ck_assert_uint_ge(strlen(error.text), TS_ERROR_CHARS - 2);
    }
}
END_TEST

TCase *test_base(void);
TCase *test_base(void) {
    TCase *tests = tcase_create("base");
    tcase_add_test(tests, statuses_have_pinned_values_and_sentences);
    tcase_add_test(tests, messages_are_plain_text_and_stay_as_they_are);
    tcase_add_test(tests, varints_round_trip_and_refuse_truncation);
    tcase_add_test(tests, philox_gives_the_published_values);
    tcase_add_test(tests, bounded_randoms_stay_below_and_reach_everything);
    tcase_add_test(tests, memory_checks_overflow_and_fails_on_demand);
    tcase_add_test(tests, renewed_memory_leaves_its_neighbours_alone);
    tcase_add_test(tests, buffers_count_their_references);
    tcase_add_test(tests, pools_keep_what_fits_within_their_limit);
    tcase_add_test(tests, simd_levels_have_names_and_obey_the_environment);
    tcase_add_test(tests, a_level_needs_all_that_its_kernels_are_compiled_for);
    tcase_add_test(tests, large_buffers_keep_their_bytes_when_they_grow);
    tcase_add_test(tests, copies_past_the_caches_are_copies);
    tcase_add_test(tests, name_sets_find_repetitions_in_long_lists);
    tcase_add_test(tests, a_label_has_few_letters_and_an_end);
    tcase_add_test(tests, what_is_not_plain_text_is_escaped_and_cut_between_characters);
    tcase_add_test(tests, cores_are_those_that_the_process_may_use);
    tcase_add_test(tests, cores_are_few_where_a_process_has_less_than_two);
    tcase_add_test(tests, the_inline_executor_runs_work_then_done);
    return tests;
}
