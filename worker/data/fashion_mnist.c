/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/data/fashion_mnist.h"

#include <limits.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "worker/data/idx.h"

/* Of the 60,000 training pictures, in units of 255. */
#define PIXEL_MEAN 0.2860f
#define PIXEL_DEVIATION 0.3530f

static terse_status load_half(const char *dir, const char *half, ts_samples *out, ts_error *error) {
    char images_path[PATH_MAX], labels_path[PATH_MAX];
    ts_idx images = {0}, labels = {0};
    int a = snprintf(images_path, sizeof images_path, "%s/%s-images-idx3-ubyte.gz", dir, half);
    int b = snprintf(labels_path, sizeof labels_path, "%s/%s-labels-idx1-ubyte.gz", dir, half);
    if (a < 0 || b < 0 || (size_t)a >= sizeof images_path || (size_t)b >= sizeof labels_path)
        return ts_error_set(error, TERSE_ELIMIT, "training.data_dir: the path is too long");
    terse_status status = ts_idx_read(images_path, 3, &images, error);
    if (status != TERSE_OK) goto out;
    status = ts_idx_read(labels_path, 1, &labels, error);
    if (status != TERSE_OK) goto out;
    if (images.extent[1] != TS_FASHION_SIDE || images.extent[2] != TS_FASHION_SIDE) {
        status = ts_error_set(error, TERSE_ECORRUPT, "%s: pictures of %zu x %zu, 28 x 28 are wanted", images_path,
                              images.extent[1], images.extent[2]);
        goto out;
    }
    if (images.extent[0] != labels.extent[0]) {
        status = ts_error_set(error, TERSE_ECORRUPT, "%s: %zu labels for the %zu pictures of %s", labels_path,
                              labels.extent[0], images.extent[0], images_path);
        goto out;
    }
    for (size_t i = 0; i < labels.extent[0]; i++)
        if (labels.values[i] >= TS_FASHION_CLASSES) {
            status = ts_error_set(error, TERSE_ECORRUPT, "%s: label %zu is %u, 0 ... 9 are allowed", labels_path, i,
                                  labels.values[i]);
            goto out;
        }
    *out = (ts_samples){images.extent[0], images.values, labels.values};
    return TERSE_OK;
out:
    ts_idx_free(&images);
    ts_idx_free(&labels);
    return status;
}

terse_status ts_fashion_mnist_load(const char *dir, ts_fashion_mnist *out, ts_error *error) {
    ts_fashion_mnist data = {0};
    terse_status status = load_half(dir, "train", &data.train, error);
    if (status == TERSE_OK) status = load_half(dir, "t10k", &data.test, error);
    if (status != TERSE_OK) {
        ts_fashion_mnist_free(&data);
        return status;
    }
    *out = data;
    return TERSE_OK;
}

void ts_fashion_mnist_free(ts_fashion_mnist *data) {
    if (!data) return;
    ts_mem_free(data->train.images);
    ts_mem_free(data->train.labels);
    ts_mem_free(data->test.images);
    ts_mem_free(data->test.labels);
    *data = (ts_fashion_mnist){0};
}

void ts_fashion_mnist_floats(const ts_samples *samples, size_t sample, float *to) {
    const uint8_t *from = samples->images + sample * TS_FASHION_PIXELS;
    const float scale = 1.0f / (255.0f * PIXEL_DEVIATION), shift = PIXEL_MEAN / PIXEL_DEVIATION;
    for (size_t i = 0; i < TS_FASHION_PIXELS; i++) to[i] = (float)from[i] * scale - shift;
}
