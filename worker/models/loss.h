/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax cross entropy. */
#ifndef TS_MODELS_LOSS_H
#define TS_MODELS_LOSS_H

#include <stddef.h>
#include <stdint.h>

/*
 * Sum over the batch of −log softmax(logits)[label], computed stably (largest logit taken off first).
 * logits: batch × classes. labels: batch, below classes. gradient: [out] batch × classes, d(scale · loss)/d(logits);
 * may be logits itself.
 * Thread: any. Returns: the sum, not scaled.
 */
double ts_loss_softmax(const float *logits, const uint8_t *labels, size_t batch, size_t classes, float scale,
                       float *gradient);

/* How many rows have their (first) largest value at the label. */
size_t ts_loss_right(const float *logits, const uint8_t *labels, size_t batch, size_t classes);

#endif
