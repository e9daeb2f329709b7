/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/models/loss.h"

#include <math.h>

static size_t largest(const float *row, size_t classes) {
    size_t best = 0;
    for (size_t c = 1; c < classes; c++)
        if (row[c] > row[best]) best = c;
    return best;
}

double ts_loss_softmax(const float *logits, const uint8_t *labels, size_t batch, size_t classes, float scale,
                       float *gradient) {
    double loss = 0;
    for (size_t s = 0; s < batch; s++) {
        const float *row = logits + s * classes;
        float *out = gradient + s * classes;
        const double top = (double)row[largest(row, classes)];
        const double wanted = (double)row[labels[s]] - top;
        double sum = 0;
        for (size_t c = 0; c < classes; c++) sum += exp((double)row[c] - top);
        loss += log(sum) - wanted;
        for (size_t c = 0; c < classes; c++) {
            double p = exp((double)row[c] - top) / sum;
            out[c] = (float)(p - (c == labels[s] ? 1 : 0)) * scale;
        }
    }
    return loss;
}

size_t ts_loss_right(const float *logits, const uint8_t *labels, size_t batch, size_t classes) {
    size_t right = 0;
    for (size_t s = 0; s < batch; s++) right += largest(logits + s * classes, classes) == labels[s];
    return right;
}
