/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "tests/unit/unit.h"
#include "common/ckpt/safetensors.h"
#include "worker/trainer/summary.h"

static char folder[64], path[96];

static void make_folder(void) {
    strcpy(folder, "/tmp/terse-save-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
}

static void remove_folder(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

/* The whole file; free(). */
static uint8_t *slurp(const char *name, size_t *len) {
    FILE *file = fopen(name, "rb");
    ck_assert_msg(file != NULL, "%s is not there", name);
    uint8_t *bytes = malloc(1 << 20);
    *len = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}

static const float weight[6] = {1, 2, 3, -4, 0.5f, 1e-30f}, bias[2] = {7, 8}, scalar[1] = {9};
static const int64_t weight_shape[] = {2, 3}, bias_shape[] = {2};
static const ts_safetensor tensors[] = {{"fc\"1\".weight", weight_shape, 2, weight}, {"a.bias", bias_shape, 1, bias},
                                        {"scale", NULL, 0, scalar}};

START_TEST(files_hold_header_and_bytes_as_the_format_says) {
    const char *const metadata[] = {"producer", "test", NULL};
    ts_error error;
    ck_assert_ok(ts_safetensors_write(path, tensors, 3, metadata, &error));
    size_t len;
    uint8_t *bytes = slurp(path, &len);
    uint64_t header = ts_load_u64(bytes);
    ck_assert_uint_eq(header % 8, 0);
    ck_assert_uint_eq(len, 8 + header + 36);
    json_t *root = json_loadb((const char *)bytes + 8, header, 0, NULL);
    ck_assert_ptr_nonnull(root);
    ck_assert_uint_eq(json_object_size(root), 4);
    const char *dtype;
    int rows, columns, begin, end;
    ck_assert_int_eq(json_unpack(root, "{s:{s:s, s:[i,i!], s:[i,i!]}}", "fc\"1\".weight", "dtype", &dtype, "shape",
                                 &rows, &columns, "data_offsets", &begin, &end),
                     0);
    ck_assert_str_eq(dtype, "F32");
    ck_assert(rows == 2 && columns == 3 && begin == 0 && end == 24);
    ck_assert_int_eq(json_unpack(root, "{s:{s:[i,i!]}}", "a.bias", "data_offsets", &begin, &end), 0);
    ck_assert(begin == 24 && end == 32);
    ck_assert_uint_eq(json_array_size(json_object_get(json_object_get(root, "scale"), "shape")), 0);
    ck_assert_mem_eq(bytes + 8 + header, weight, 24);
    ck_assert_mem_eq(bytes + 8 + header + 24, bias, 8);
    ck_assert_mem_eq(bytes + 8 + header + 32, scalar, 4);
    json_decref(root);
    free(bytes);
}
END_TEST

START_TEST(files_that_cannot_be_written_are_named_with_the_reason) {
    ts_error error;
    ck_assert_status(ts_safetensors_write("/dev/full/model", tensors, 3, NULL, &error), TERSE_EIO);
    ck_assert_ptr_nonnull(strstr(error.text, "/dev/full/model"));
    ck_assert_ptr_nonnull(strstr(error.text, "Not a directory"));
    ck_assert_status(ts_safetensors_write("/nowhere/model", tensors, 3, NULL, &error), TERSE_EIO);
    ck_assert_ptr_nonnull(strstr(error.text, "No such file"));
}
END_TEST

START_TEST(a_failed_write_leaves_the_old_file_and_nothing_beside_it) {
    ts_error error;
    ck_assert_ok(ts_safetensors_write(path, tensors, 3, NULL, &error));
    size_t before, after;
    uint8_t *old = slurp(path, &before);
    static float large[100000];
    const int64_t shape[] = {100000};
    const ts_safetensor one = {"large", shape, 1, large};
    struct rlimit limit, small;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 4096; /* a disk that is full after 4 KiB */
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    terse_status status = ts_safetensors_write(path, &one, 1, NULL, &error);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_status(status, TERSE_EIO);
    ck_assert_msg(strstr(error.text, path) && strstr(error.text, strerror(EFBIG)), "%s", error.text);
    uint8_t *now = slurp(path, &after);
    ck_assert_uint_eq(before, after);
    ck_assert_mem_eq(old, now, before);
    char aside[128];
    snprintf(aside, sizeof aside, "%s.partial", path);
    ck_assert_int_ne(access(aside, F_OK), 0);
    free(old);
    free(now);
}
END_TEST

/* As root, a rename over /dev/full would put a plain file in its place. */
START_TEST(devices_and_links_are_never_replaced) {
    char link[128];
    struct stat info;
    ts_error error = {""};
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDWR | O_NONBLOCK);
    ck_assert_int_ge(reader, 0);
    ck_assert_ok(ts_safetensors_write(path, tensors, 3, NULL, &error));
    ck_assert(lstat(path, &info) == 0 && S_ISFIFO(info.st_mode));
    uint8_t length[8];
    ck_assert_int_eq(read(reader, length, sizeof length), 8);
    close(reader);

    snprintf(link, sizeof link, "%s/link", folder);
    ck_assert_int_eq(symlink("/dev/full", link), 0);
    ck_assert_status(ts_safetensors_write(link, tensors, 3, NULL, &error), TERSE_EIO);
    ck_assert_ptr_nonnull(strstr(error.text, strerror(ENOSPC)));
    ck_assert(lstat(link, &info) == 0 && S_ISLNK(info.st_mode));
    ck_assert(stat("/dev/full", &info) == 0 && S_ISCHR(info.st_mode));

    ck_assert_int_eq(unlink(link) | unlink(path), 0);
    ck_assert_int_eq(symlink(path, link), 0);
    FILE *target = fopen(path, "w");
    ck_assert_ptr_nonnull(target);
    fclose(target);
    ck_assert_ok(ts_safetensors_write(link, tensors, 3, NULL, &error)); /* the target is replaced */
    ck_assert(lstat(link, &info) == 0 && S_ISLNK(info.st_mode));
    ck_assert(lstat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 36);
}
END_TEST

START_TEST(names_that_the_format_cannot_hold_are_refused) {
    ts_error error;
    const ts_safetensor twice[] = {tensors[1], tensors[1]}, reserved = {"__metadata__", NULL, 0, scalar};
    ck_assert_status(ts_safetensors_write(path, twice, 2, NULL, &error), TERSE_EINVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "a.bias"));
    ck_assert_status(ts_safetensors_write(path, &reserved, 1, NULL, &error), TERSE_EINVAL);
    ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

static const ts_summary figures = {.test_accuracy = 0.8875, .train_loss = 0.25, .steps = 100, .epochs = 2, .workers = 4,
                                   .servers = 2, .parameters = 1000, .wall_s = 1.5, .push_bytes = 20000,
                                   .pull_bytes = 12000, .steady_steps = 75, .steady_bytes = 4800,
                                   .parameters_xxh3 = "0123456789abcdef", .seed = 5};

START_TEST(summaries_hold_exactly_the_promised_keys) {
    ts_error error;
    ck_assert_ok(ts_summary_write(&figures, path, &error));
    json_t *root = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(root);
    static const char *const keys[] = {"job",
                                       "test_accuracy", "train_loss",  "steps",           "epochs",
                                       "workers",       "servers",     "parameters",      "wall_s",
                                       "push_bytes",    "pull_bytes",  "dense_bytes",     "ratio",
                                       "ratio_steady",  "lost_rounds", "parameters_xxh3", "seed",
                                       "resumed_step",  "lost_workers", "lost_mass"};
    ck_assert_uint_eq(json_object_size(root), sizeof keys / sizeof keys[0]);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        ck_assert_msg(json_object_get(root, keys[i]) != NULL, "no key %s", keys[i]);
    ck_assert_int_eq(json_integer_value(json_object_get(root, "dense_bytes")), 3200000);
    ck_assert_double_eq_tol(json_real_value(json_object_get(root, "ratio")), 100, 1e-9);
    ck_assert_double_eq_tol(json_real_value(json_object_get(root, "ratio_steady")), 500, 1e-9);
    ck_assert_double_eq_tol(json_real_value(json_object_get(root, "test_accuracy")), 0.8875, 1e-12);
    json_decref(root);

    ts_summary unknown = figures;
    unknown.test_accuracy = -1;
    unknown.steady_steps = 0;
    ck_assert_ok(ts_summary_write(&unknown, path, &error));
    root = json_load_file(path, 0, NULL);
    ck_assert(json_is_null(json_object_get(root, "test_accuracy")));
    ck_assert(json_is_null(json_object_get(root, "ratio_steady")));
    json_decref(root);
    ck_assert_status(ts_summary_write(&figures, "/nowhere/summary.json", &error), TERSE_EIO);
    ck_assert_ptr_nonnull(strstr(error.text, "/nowhere/summary.json"));
}
END_TEST

TCase *test_safetensors(void);
TCase *test_safetensors(void) {
    TCase *tests = tcase_create("safetensors");
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, files_hold_header_and_bytes_as_the_format_says);
    tcase_add_test(tests, files_that_cannot_be_written_are_named_with_the_reason);
    tcase_add_test(tests, a_failed_write_leaves_the_old_file_and_nothing_beside_it);
    tcase_add_test(tests, devices_and_links_are_never_replaced);
    tcase_add_test(tests, names_that_the_format_cannot_hold_are_refused);
    tcase_add_test(tests, summaries_hold_exactly_the_promised_keys);
    return tests;
}
