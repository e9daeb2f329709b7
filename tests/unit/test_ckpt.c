/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoint files: what is written is read back, and nothing that was changed since is believed. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "common/base/mem.h"
#include "tests/unit/ckpt_case.h"
#include "tests/unit/unit.h"

static ckpt_case c;

static void make(void) { ckpt_case_make(&c, 7, 500); }
static void unmake(void) { ckpt_case_remove(&c); }

START_TEST(parts_and_manifest_are_read_back_as_written) {
    ts_ckpt_manifest m = {0};
    ts_error error = {""};
    char *path = ckpt_case_path(&c, NULL);
    ck_assert_ok(ts_ckpt_manifest_read(path, &m, &error));
    ck_assert_str_eq(m.run, c.manifest.run);
    ck_assert_str_eq(m.epoch, c.manifest.epoch);
    ck_assert_str_eq(m.parent_epoch, c.manifest.parent_epoch);
    ck_assert(m.parent_version == 20 && m.serial == 7 && m.version == 500 && m.servers == 2 && m.workers == 2);
    ck_assert_mem_eq(m.digest, c.manifest.digest, TS_DIGEST_BYTES);
    ck_assert_mem_eq(m.parts, c.manifest.parts, 4 * sizeof *m.parts);
    ts_contract *contract = NULL;
    ck_assert_ok(ts_ckpt_manifest_contract(&m, 2, &contract, &error));
    ck_assert_uint_eq(contract->total_steps, 1000);
    ck_assert_mem_eq(contract->digest, c.contract->digest, TS_DIGEST_BYTES);
    ts_contract_destroy(contract);
    for (uint32_t i = 0; i < 4; i++) {
        ts_ckpt_reader *reader = NULL;
        float values[4];
        ck_assert_ok(ts_ckpt_manifest_open(&m, c.dir, c.folder, i >= 2, i % 2, &reader, &error));
        for (uint32_t e = 0; e < ts_ckpt_reader_header(reader)->count; e++)
            ck_assert_ok(ts_ckpt_reader_verify(reader, e, &error));
        if (i == 2) {
            ck_assert_ok(ts_ckpt_reader_get(reader, "fc.weight[4:6]#residual", TS_DTYPE_F32, values, 8, &error));
            ck_assert(values[0] == 100.0f && values[1] == 101.0f);
            ck_assert_status(ts_ckpt_reader_get(reader, "fc.weight[4:6]#residual", TS_DTYPE_F32, values, 12, &error),
                             TERSE_EMISMATCH);
            ck_assert_status(ts_ckpt_reader_get(reader, "fc.weight[4:6]", TS_DTYPE_F32, values, 8, &error), TERSE_ENOTFOUND);
        }
        ts_ckpt_reader_close(reader);
    }
    ts_ckpt_manifest_free(&m);
    free(path);
}
END_TEST

/* Opens a part and reads all of it. */
static terse_status read_all(const char *path, ts_error *error) {
    ts_ckpt_reader *reader = NULL;
    terse_status status = ts_ckpt_reader_open(path, &reader, error);
    for (uint32_t e = 0; status == TERSE_OK && e < ts_ckpt_reader_header(reader)->count; e++)
        status = ts_ckpt_reader_verify(reader, e, error);
    ts_ckpt_reader_close(reader);
    return status;
}

static terse_status read_manifest(const char *path, ts_error *error) {
    ts_ckpt_manifest m = {0};
    terse_status status = ts_ckpt_manifest_read(path, &m, error);
    ts_ckpt_manifest_free(&m);
    return status;
}

/* Every bit, and every shorter length. */
static void damage(const char *file, terse_status (*read)(const char *path, ts_error *error)) {
    char *path = ckpt_case_path(&c, file);
    size_t len;
    uint8_t *bytes = ckpt_case_read(path, &len);
    ts_error error = {""};
    ck_assert_ok(read(path, &error));
    for (size_t at = 0; at < len * 8; at += 3) { /* 3 and 8 have no common divisor: every bit of a byte gets its turn */
        if (!file && at / 8 == len - 1) continue; /* the line end behind the manifest is no part of it */
        bytes[at / 8] ^= (uint8_t)(1u << at % 8);
        ckpt_case_write(path, bytes, len);
        error.text[0] = '\0';
        terse_status status = read(path, &error);
        ck_assert_msg(status == TERSE_ECORRUPT, "bit %zu: %s", at, terse_status_name(status));
        ck_assert_msg(strstr(error.text, path), "bit %zu: %s", at, error.text);
        bytes[at / 8] ^= (uint8_t)(1u << at % 8);
    }
    for (size_t shorter = 0; shorter < len - 1; shorter += 5) {
        ckpt_case_write(path, bytes, shorter);
        ck_assert_msg(read(path, &error) == TERSE_ECORRUPT, "%zu bytes of %zu were taken", shorter, len);
    }
    free(bytes);
    free(path);
}

START_TEST(a_flipped_bit_or_a_missing_byte_of_a_part_is_found) { damage("server-0-of-2.safetensors", read_all); }
END_TEST
START_TEST(a_flipped_bit_or_a_missing_byte_of_a_manifest_is_found) { damage(NULL, read_manifest); }
END_TEST

START_TEST(lengths_that_lie_are_refused_before_memory_is_taken) {
    char *path = ckpt_case_path(&c, "worker-1-of-2.safetensors");
    size_t len;
    uint8_t *bytes = ckpt_case_read(path, &len);
    ts_error error = {""};
    static const uint64_t lies[] = {0, 1, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63, TS_SAFETENSORS_HEADER_MAX,
                                    TS_SAFETENSORS_HEADER_MAX + 1};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        ts_store_u64(bytes, lies[i]);
        ckpt_case_write(path, bytes, len);
        ck_assert_status(read_all(path, &error), TERSE_ECORRUPT);
        ck_assert_ptr_nonnull(strstr(error.text, "header"));
    }
    free(bytes);
    free(path);
}
END_TEST

static const struct {
    const char *json, *complaint;
    uint64_t data;
} bad_headers[] = {
    {"[]", "no object", 0},
    {"{\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}", "dtype", 8},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", "dtype", 4},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", "shape", 4},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", "extent", 4},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", "extent", 4},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", "shape", 4},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", "do not agree", 0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", "data_offsets", 4},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", "data_offsets", 4},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "truncated", 4},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", "do not agree", 4},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", "hole", 8},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}", "hole or overlap", 6},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", "behind", 9},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", "duplicate", 8},
    {"{\"__metadata__\":{\"x\":1}}", "strings", 0},
    {"{\"__metadata__\":[]}", "strings", 0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}", "JSON", 4},
};

START_TEST(headers_that_lie_are_refused_by_name) {
    for (size_t i = 0; i < sizeof bad_headers / sizeof bad_headers[0]; i++) {
        ts_safetensors header = {0};
        ts_error error = {""};
        terse_status status = ts_safetensors_parse("some.file", (const uint8_t *)bad_headers[i].json,
                                                   strlen(bad_headers[i].json), bad_headers[i].data, &header, &error);
        ck_assert_msg(status == TERSE_ECORRUPT, "%s: %s", bad_headers[i].json, terse_status_name(status));
        ck_assert_msg(strstr(error.text, "some.file") && strstr(error.text, bad_headers[i].complaint), "%s: %s",
                      bad_headers[i].json, error.text);
    }
}
END_TEST

START_TEST(files_of_another_epoch_step_or_worker_never_meet) {
    ts_error error = {""};
    ts_ckpt_reader *reader = NULL;
    ts_ckpt_manifest other = c.manifest;
    strcpy(other.epoch, "ffffffffffffffff");
    ck_assert_status(ts_ckpt_manifest_open(&other, c.dir, c.folder, true, 0, &reader, &error), TERSE_EMISMATCH);
    ck_assert_msg(strstr(error.text, "epoch ffffffffffffffff"), "%s", error.text);
    other = c.manifest;
    other.version++;
    ck_assert_status(ts_ckpt_manifest_open(&other, c.dir, c.folder, true, 0, &reader, &error), TERSE_EMISMATCH);
    ck_assert_ptr_nonnull(strstr(error.text, "step 501"));
    char *one = ckpt_case_path(&c, "worker-1-of-2.safetensors"), *zero = ckpt_case_path(&c, "worker-0-of-2.safetensors");
    ck_assert_int_eq(rename(one, zero), 0);
    ck_assert_status(ts_ckpt_manifest_open(&c.manifest, c.dir, c.folder, true, 0, &reader, &error), TERSE_EMISMATCH);
    ck_assert_ptr_nonnull(strstr(error.text, "worker 1 of 2, wanted is worker 0 of 2"));
    ck_assert_status(ts_ckpt_manifest_open(&c.manifest, c.dir, c.folder, true, 1, &reader, &error), TERSE_EIO);
    ck_assert_ptr_nonnull(strstr(error.text, one));
    free(one);
    free(zero);
}
END_TEST

START_TEST(a_part_with_an_entry_missing_is_not_finished_and_leaves_nothing) {
    ts_ckpt_identity is = ts_ckpt_manifest_identity(&c.manifest, false, 0);
    ts_ckpt_writer *writer = NULL;
    ts_ckpt_part part = {0};
    ts_error error = {""};
    const int64_t n = 2;
    const float values[2] = {1, 2};
    char *path = ckpt_case_path(&c, "server-9-of-10.safetensors");
    ck_assert_ok(ts_ckpt_writer_create(&is, &writer));
    ck_assert_ok(ts_ckpt_writer_add(writer, "a", TS_DTYPE_F32, &n, 1, NULL));
    ck_assert_ok(ts_ckpt_writer_add(writer, "b", TS_DTYPE_F32, &n, 1, NULL));
    ck_assert_ok(ts_ckpt_writer_open(writer, path, &error));
    ck_assert_ok(ts_ckpt_writer_put(writer, 1, values, &error));
    ck_assert_status(ts_ckpt_writer_finish(writer, &part, &error), TERSE_ESTATE);
    ck_assert_ptr_nonnull(strstr(error.text, "\"a\" was not written"));
    ck_assert_int_ne(access(path, F_OK), 0);
    ts_ckpt_writer_destroy(writer);
    ck_assert_ok(ts_ckpt_writer_create(&is, &writer)); /* given up in the middle */
    ck_assert_ok(ts_ckpt_writer_add(writer, "a", TS_DTYPE_F32, &n, 1, NULL));
    ck_assert_ok(ts_ckpt_writer_open(writer, path, &error));
    ts_ckpt_writer_destroy(writer);
    strcpy(path + strlen(path), ".partial");
    ck_assert_int_ne(access(path, F_OK), 0);
    free(path);
}
END_TEST

START_TEST(a_full_disk_is_told_and_leaves_nothing) {
    ts_ckpt_identity is = ts_ckpt_manifest_identity(&c.manifest, false, 0);
    ts_ckpt_writer *writer = NULL;
    ts_error error = {""};
    static float values[10000];
    const int64_t n = 10000;
    char *path = ckpt_case_path(&c, "server-9-of-10.safetensors");
    struct rlimit limit, small;
    ck_assert_ok(ts_ckpt_writer_create(&is, &writer));
    ck_assert_ok(ts_ckpt_writer_add(writer, "a", TS_DTYPE_F32, &n, 1, NULL));
    ck_assert_ok(ts_ckpt_writer_open(writer, path, &error));
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    terse_status status = ts_ckpt_writer_put(writer, 0, values, &error);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_status(status, TERSE_EIO);
    ck_assert_ptr_nonnull(strstr(error.text, path));
    ts_ckpt_writer_destroy(writer);
    ck_assert_int_ne(access(path, F_OK), 0);
    free(path);
}
END_TEST

START_TEST(folders_are_found_in_order_and_removed_without_what_is_not_ours) {
    ts_ckpt_found *list = NULL;
    size_t count;
    uint64_t serial, version;
    ts_error error = {""};
    char path[128];
    static const char *const others[] = {"ckpt-000009-step-900", "ckpt-000008-step-1", "ckpt-8-step-1", "ckpt-000010-step-",
                                         "ckpt-000011-step-5x", "notes"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", c.dir, others[i]);
        ck_assert_int_eq(mkdir(path, 0700), 0);
    }
    ck_assert_ok(ts_ckpt_scan(c.dir, &list, &count, &error));
    ck_assert_uint_eq(count, 3);
    ck_assert(list[0].serial == 7 && list[0].committed && list[1].serial == 8 && !list[1].committed && list[2].serial == 9);
    ts_mem_free(list);
    ck_assert(!ts_ckpt_folder_parse("ckpt-99999999999999999999-step-1", &serial, &version));
    char *mine = ckpt_case_path(&c, "mine.txt");
    ckpt_case_write(mine, (const uint8_t *)"x", 1);
    ts_ckpt_remove(c.dir, c.folder, "worker-0-of-2.safetensors");
    char *one = ckpt_case_path(&c, "worker-0-of-2.safetensors"), *manifest = ckpt_case_path(&c, NULL);
    ck_assert(access(one, F_OK) != 0 && access(manifest, F_OK) == 0);
    ts_ckpt_remove(c.dir, c.folder, NULL);
    ck_assert(access(manifest, F_OK) != 0 && access(mine, F_OK) == 0);
    ck_assert_int_eq(unlink(mine), 0);
    char *begun = ckpt_case_path(&c, "manifest.json.partial"); /* whoever wrote it was killed */
    ckpt_case_write(begun, (const uint8_t *)"{", 1);
    free(begun);
    ts_ckpt_remove(c.dir, c.folder, NULL);
    snprintf(path, sizeof path, "%s/%s", c.dir, c.folder);
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_ok(ts_ckpt_scan("/nowhere/at/all", &list, &count, &error));
    ck_assert(count == 0);
    ck_assert_status(ts_ckpt_probe_folder("/proc/nothing", &error), TERSE_EIO);
    ck_assert_ptr_nonnull(strstr(error.text, "/proc/nothing"));
    free(mine);
    free(one);
    free(manifest);
}
END_TEST

START_TEST(only_one_job_writes_into_a_folder) {
    int first = -1, second = -1;
    ts_error error = {""};
    ck_assert(!ts_ckpt_lock_is_of(c.dir, "0123456789abcdef"));
    ck_assert_ok(ts_ckpt_lock(c.dir, "0123456789abcdef", true, &first, &error));
    ck_assert_status(ts_ckpt_lock(c.dir, "fedcba9876543210", true, &second, &error), TERSE_ESTATE);
    ck_assert_ptr_nonnull(strstr(error.text, c.dir));
    ck_assert(ts_ckpt_lock_is_of(c.dir, "0123456789abcdef") && !ts_ckpt_lock_is_of(c.dir, "fedcba9876543210"));
    close(first);
    ck_assert_ok(ts_ckpt_lock(c.dir, "fedcba9876543210", true, &second, &error));
    ck_assert(ts_ckpt_lock_is_of(c.dir, "fedcba9876543210") && !ts_ckpt_lock_is_of(c.dir, "fedcba987654321"));
    close(second);
}
END_TEST

START_TEST(memory_that_runs_out_is_told) {
    char *manifest = ckpt_case_path(&c, NULL), *part = ckpt_case_path(&c, "server-1-of-2.safetensors");
    ts_error error = {""};
    terse_status status = TERSE_ENOMEM;
    for (int64_t after = 0; status != TERSE_OK && after < 400; after++) {
        ts_mem_fail_after(after);
        status = read_manifest(manifest, &error);
        ts_mem_fail_after(-1);
        ck_assert(status == TERSE_OK || status == TERSE_ENOMEM);
    }
    ck_assert_ok(status);
    status = TERSE_ENOMEM;
    for (int64_t after = 0; status != TERSE_OK && after < 400; after++) {
        ts_mem_fail_after(after);
        status = read_all(part, &error);
        ts_mem_fail_after(-1);
        ck_assert(status == TERSE_OK || status == TERSE_ENOMEM);
    }
    ck_assert_ok(status);
    free(manifest);
    free(part);
}
END_TEST

TCase *test_ckpt(void);
TCase *test_ckpt(void) {
    TCase *tests = tcase_create("ckpt");
    tcase_set_timeout(tests, 30);
    tcase_add_checked_fixture(tests, make, unmake);
    tcase_add_test(tests, parts_and_manifest_are_read_back_as_written);
    tcase_add_test(tests, a_flipped_bit_or_a_missing_byte_of_a_part_is_found);
    tcase_add_test(tests, a_flipped_bit_or_a_missing_byte_of_a_manifest_is_found);
    tcase_add_test(tests, lengths_that_lie_are_refused_before_memory_is_taken);
    tcase_add_test(tests, headers_that_lie_are_refused_by_name);
    tcase_add_test(tests, files_of_another_epoch_step_or_worker_never_meet);
    tcase_add_test(tests, a_part_with_an_entry_missing_is_not_finished_and_leaves_nothing);
    tcase_add_test(tests, a_full_disk_is_told_and_leaves_nothing);
    tcase_add_test(tests, folders_are_found_in_order_and_removed_without_what_is_not_ours);
    tcase_add_test(tests, only_one_job_writes_into_a_folder);
    tcase_add_test(tests, memory_that_runs_out_is_told);
    return tests;
}
