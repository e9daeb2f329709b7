/* SPDX-License-Identifier: Apache-2.0 */
/* Fashion-MNIST (Xiao, Rasul, Vollgraf 2017): 60,000 + 10,000 grey pictures of 28 × 28, ten classes. */
#ifndef TS_DATA_FASHION_MNIST_H
#define TS_DATA_FASHION_MNIST_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define TS_FASHION_SIDE 28
#define TS_FASHION_PIXELS (TS_FASHION_SIDE * TS_FASHION_SIDE)
#define TS_FASHION_CLASSES 10

typedef struct {
    size_t count;
    uint8_t *images; /* [own] count × TS_FASHION_PIXELS */
    uint8_t *labels; /* [own] count, below TS_FASHION_CLASSES */
} ts_samples;

typedef struct {
    ts_samples train, test;
} ts_fashion_mnist;

/*
 * Reads the four .gz files of a folder.
 * out: [own], ts_fashion_mnist_free. error: [out] names the file.
 * Thread: any. Returns: as ts_idx_read; ECORRUPT also when pictures and labels do not fit each other.
 */
terse_status ts_fashion_mnist_load(const char *dir, ts_fashion_mnist *out, ts_error *error) TERSE_NODISCARD;
void ts_fashion_mnist_free(ts_fashion_mnist *data);

/*
 * One picture as floats of mean 0 and deviation 1 over the training pictures.
 * to: [out] TS_FASHION_PIXELS floats.
 */
void ts_fashion_mnist_floats(const ts_samples *samples, size_t sample, float *to);

#endif
