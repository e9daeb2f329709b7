/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "tests/unit/unit.h"
#include "worker/data/fashion_mnist.h"
#include "worker/data/idx.h"
#include "worker/data/split.h"

#define DATA_DIR "/usr/share/datasets/fashion-mnist"

static char folder[64];

static void make_folder(void) {
    strcpy(folder, "/tmp/terse-data-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

/* Writes `len` bytes gzipped as `name` in the folder; the path stays valid until the next call. */
static const char *gzipped(const char *name, const void *bytes, unsigned len) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    gzFile file = gzopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(gzwrite(file, bytes, len), (int)len);
    ck_assert_int_eq(gzclose(file), Z_OK);
    return path;
}

static void refused(const char *path, unsigned ndim, terse_status status, const char *words) {
    ts_error error = {{0}};
    ts_idx idx = {.ndim = 77};
    ck_assert_status(ts_idx_read(path, ndim, &idx, &error), status);
    ck_assert_uint_eq(idx.ndim, 77);
    ck_assert_msg(strstr(error.text, path) != NULL, "%s does not name %s", error.text, path);
    ck_assert_msg(strstr(error.text, words) != NULL, "%s does not say %s", error.text, words);
}

static const uint8_t six[] = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 10, 11, 12, 13, 14, 15};

START_TEST(idx_reads_gzipped_and_plain_files) {
    ts_idx idx;
    const char *path = gzipped("six.gz", six, sizeof six);
    ck_assert_ok(ts_idx_read(path, 2, &idx, NULL));
    ck_assert_uint_eq(idx.extent[0], 2);
    ck_assert_uint_eq(idx.extent[1], 3);
    ck_assert_mem_eq(idx.values, six + 12, 6);
    ts_idx_free(&idx);
    ts_idx_free(NULL);
    char plain[128];
    snprintf(plain, sizeof plain, "%s/plain", folder);
    FILE *file = fopen(plain, "wb");
    ck_assert_uint_eq(fwrite(six, 1, sizeof six, file), sizeof six);
    fclose(file);
    ck_assert_ok(ts_idx_read(plain, 2, &idx, NULL));
    ts_idx_free(&idx);
}
END_TEST

START_TEST(idx_refuses_what_does_not_fit_and_names_the_file) {
    refused("/nowhere/at-all.gz", 1, TERSE_EIO, "No such file");
    refused(gzipped("dims.gz", six, sizeof six), 3, TERSE_ECORRUPT, "2 dimensions, 3 are wanted");
    refused(gzipped("short.gz", six, sizeof six - 1), 2, TERSE_ECORRUPT, "ends 1 bytes before");
    refused(gzipped("header.gz", six, 7), 2, TERSE_ECORRUPT, "ends 1 bytes before");
    refused(gzipped("empty.gz", six, 0), 2, TERSE_ECORRUPT, "ends 4 bytes before");
    uint8_t longer[sizeof six + 1] = {0};
    memcpy(longer, six, sizeof six);
    refused(gzipped("longer.gz", longer, sizeof longer), 2, TERSE_ECORRUPT, "more bytes");
    uint8_t changed[sizeof six];
    memcpy(changed, six, sizeof six);
    changed[2] = 0x0D;
    refused(gzipped("floats.gz", changed, sizeof changed), 2, TERSE_ECORRUPT, "not an IDX file");
    memcpy(changed, six, sizeof six);
    changed[7] = 0;
    refused(gzipped("zero.gz", changed, sizeof changed), 2, TERSE_ECORRUPT, "dimension 0 is 0");
    memset(changed + 4, 0xFF, 8);
    refused(gzipped("huge.gz", changed, sizeof changed), 2, TERSE_ELIMIT, "4 GiB");
}
END_TEST

START_TEST(idx_refuses_torn_and_flipped_gzip_files) {
    uint8_t many[16 + 5000] = {0, 0, 8, 1, 0, 0, 0x13, 0x88};
    for (unsigned i = 0; i < 5000; i++) many[8 + i] = (uint8_t)(i * 31 >> 3);
    const char *path = gzipped("many.gz", many, 5008);
    FILE *file = fopen(path, "rb");
    uint8_t packed[8192];
    size_t len = fread(packed, 1, sizeof packed, file);
    fclose(file);
    ck_assert_int_eq(truncate(path, (off_t)len / 2), 0);
    ts_error error;
    ts_idx idx;
    ck_assert_status(ts_idx_read(path, 1, &idx, &error), TERSE_ECORRUPT);
    packed[len - 6] ^= 1; /* the checksum */
    file = fopen(path, "wb");
    ck_assert_uint_eq(fwrite(packed, 1, len, file), len);
    fclose(file);
    ck_assert_status(ts_idx_read(path, 1, &idx, &error), TERSE_ECORRUPT);
}
END_TEST

START_TEST(labels_must_fit_their_pictures) {
    static uint8_t images[16 + 2 * TS_FASHION_PIXELS] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28};
    uint8_t labels[8 + 3] = {0, 0, 8, 1, 0, 0, 0, 2, 9, 0, 0};
    ts_fashion_mnist data;
    ts_error error;
    images[16] = 255;
    gzipped("train-images-idx3-ubyte.gz", images, sizeof images);
    gzipped("t10k-images-idx3-ubyte.gz", images, sizeof images);
    gzipped("t10k-labels-idx1-ubyte.gz", labels, 10);
    gzipped("train-labels-idx1-ubyte.gz", labels, 10);
    ck_assert_ok(ts_fashion_mnist_load(folder, &data, &error));
    ck_assert_uint_eq(data.train.count, 2);
    ck_assert_uint_eq(data.test.labels[0], 9);
    float floats[TS_FASHION_PIXELS];
    ts_fashion_mnist_floats(&data.train, 0, floats);
    ck_assert_float_eq_tol(floats[0], (1.0f - 0.2860f) / 0.3530f, 1e-5f);
    ck_assert_float_eq_tol(floats[1], -0.2860f / 0.3530f, 1e-5f);
    ts_fashion_mnist_free(&data);

    labels[8] = 10;
    gzipped("t10k-labels-idx1-ubyte.gz", labels, 10);
    ck_assert_status(ts_fashion_mnist_load(folder, &data, &error), TERSE_ECORRUPT);
    ck_assert_ptr_nonnull(strstr(error.text, "t10k-labels-idx1-ubyte.gz: label 0 is 10"));
    labels[7] = 3;
    gzipped("t10k-labels-idx1-ubyte.gz", labels, 11);
    ck_assert_status(ts_fashion_mnist_load(folder, &data, &error), TERSE_ECORRUPT);
    ck_assert_ptr_nonnull(strstr(error.text, "3 labels for the 2 pictures"));
    ck_assert_status(ts_fashion_mnist_load("/nowhere", &data, &error), TERSE_EIO);
    ck_assert_ptr_nonnull(strstr(error.text, "/nowhere/train-images-idx3-ubyte.gz"));
}
END_TEST

START_TEST(the_real_data_has_ten_equal_classes) {
    ts_fashion_mnist data;
    if (access(DATA_DIR "/train-images-idx3-ubyte.gz", R_OK) != 0) return; /* package dataset-fashion-mnist */
    ck_assert_ok(ts_fashion_mnist_load(DATA_DIR, &data, NULL));
    ck_assert_uint_eq(data.train.count, 60000);
    ck_assert_uint_eq(data.test.count, 10000);
    size_t each[TS_FASHION_CLASSES] = {0};
    double sum = 0, squares = 0;
    for (size_t i = 0; i < data.train.count; i++) each[data.train.labels[i]]++;
    for (size_t i = 0; i < 2000; i++) {
        float floats[TS_FASHION_PIXELS];
        ts_fashion_mnist_floats(&data.train, i, floats);
        for (size_t p = 0; p < TS_FASHION_PIXELS; p++)
            sum += (double)floats[p], squares += (double)(floats[p] * floats[p]);
    }
    for (size_t c = 0; c < TS_FASHION_CLASSES; c++) ck_assert_uint_eq(each[c], 6000);
    ck_assert_double_eq_tol(sum / (2000.0 * TS_FASHION_PIXELS), 0, 0.05);
    ck_assert_double_eq_tol(squares / (2000.0 * TS_FASHION_PIXELS), 1, 0.05);
    ts_fashion_mnist_free(&data);
}
END_TEST

/* Every sample once an epoch, shares that differ by at most one, the same number of steps at all workers. */
static void check_epoch(size_t samples, uint32_t workers, uint32_t batch, uint64_t steps) {
    uint8_t *seen = calloc(samples, 1);
    ts_split splits[5];
    for (uint32_t w = 0; w < workers; w++) {
        ck_assert_ok(ts_split_init(&splits[w], 7, samples, w, workers, batch));
        ck_assert_uint_eq(splits[w].steps_per_epoch, steps);
    }
    for (uint64_t step = steps; step < 2 * steps; step++) {
        size_t least = SIZE_MAX, most = 0, sum = 0, total = 0;
        for (uint32_t w = 0; w < workers; w++) {
            ts_share share = ts_split_step(&splits[w], step);
            least = share.count < least ? share.count : least;
            most = share.count > most ? share.count : most;
            sum += share.count;
            total = share.total;
            for (size_t i = 0; i < share.count; i++) ck_assert_uint_eq(seen[share.samples[i]]++, 0);
        }
        ck_assert_uint_le(most, batch);
        ck_assert_uint_le(most - least, 1);
        ck_assert_uint_eq(sum, total);
        ck_assert(total > 0);
    }
    for (size_t i = 0; i < samples; i++) ck_assert_uint_eq(seen[i], 1);
    for (uint32_t w = 0; w < workers; w++) ts_split_free(&splits[w]);
    free(seen);
}

START_TEST(every_sample_counts_once_an_epoch) {
    check_epoch(1000, 4, 64, 4);
    check_epoch(1024, 4, 64, 4);
    check_epoch(1025, 4, 64, 5); /* one sample left: three empty shares */
    check_epoch(1, 5, 3, 1);
    check_epoch(7, 1, 7, 1);
    check_epoch(101, 3, 1, 34);
}
END_TEST

START_TEST(epochs_and_seeds_shuffle_differently_and_repeatably) {
    ts_split a, b, other;
    ck_assert_ok(ts_split_init(&a, 1, 500, 0, 1, 500));
    ck_assert_ok(ts_split_init(&b, 1, 500, 0, 1, 500));
    ck_assert_ok(ts_split_init(&other, 2, 500, 0, 1, 500));
    uint32_t first[500];
    memcpy(first, ts_split_step(&a, 0).samples, sizeof first);
    ck_assert_mem_ne(ts_split_step(&other, 0).samples, first, sizeof first);
    ck_assert_mem_ne(ts_split_step(&a, 1).samples, first, sizeof first);
    ck_assert_mem_eq(ts_split_step(&a, 0).samples, first, sizeof first); /* going back works */
    ck_assert_mem_eq(ts_split_step(&b, 0).samples, first, sizeof first);
    ts_split_free(&a);
    ts_split_free(&b);
    ts_split_free(&other);
    ck_assert_status(ts_split_init(&a, 1, 0, 0, 1, 1), TERSE_EINVAL);
    ck_assert_status(ts_split_init(&a, 1, 5, 1, 1, 1), TERSE_EINVAL);
}
END_TEST

TCase *test_data(void);
TCase *test_data(void) {
    TCase *tests = tcase_create("data");
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, idx_reads_gzipped_and_plain_files);
    tcase_add_test(tests, idx_refuses_what_does_not_fit_and_names_the_file);
    tcase_add_test(tests, idx_refuses_torn_and_flipped_gzip_files);
    tcase_add_test(tests, labels_must_fit_their_pictures);
    tcase_add_test(tests, the_real_data_has_ten_equal_classes);
    tcase_add_test(tests, every_sample_counts_once_an_epoch);
    tcase_add_test(tests, epochs_and_seeds_shuffle_differently_and_repeatably);
    tcase_set_timeout(tests, 60);
    return tests;
}
