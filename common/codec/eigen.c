/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/eigen.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define SHIFTS 60                     /* for one value; two or three are usual */
#define NOTHING (DBL_EPSILON / 16)    /* beside the largest element */

/* Row k of a, behind the diagonal, and z: reflected along v, which is `length` long and stands before w in `pair`. */
static void reflect(const ts_low_rank_kernels *kernels, double *a, size_t d, size_t k, double beta, double *pair,
                    double *z, size_t p, double *sum) {
    size_t length = d - k - 1;
    double *v = pair, *w = pair + d, *below = a + (k + 1) * d + k + 1;
    kernels->dots(v, below, length, d, length, w);
    double half = beta / 2 * (beta * kernels->dot_double(v, w, length));
    for (size_t i = 0; i < length; i++) w[i] = beta * w[i] - half * v[i];
    for (size_t i = 0; i < length; i++) {
        double c[2] = {-w[i], -v[i]};
        kernels->add_rows(below + i * d, c, pair, 2, d, length);
    }
    memset(sum, 0, p * sizeof *sum);
    kernels->add_rows(sum, v, z + (k + 1) * p, length, p, p);
    for (size_t i = 0; i < length; i++) {
        double c = -beta * v[i];
        kernels->add_rows(z + (k + 1 + i) * p, &c, sum, 1, p, p);
    }
}

/* Leaves a's diagonal in `value` and what stands beside it in off[0 … d - 2]. */
static void tridiagonalise(const ts_low_rank_kernels *kernels, double *a, size_t d, double *z, size_t p, double *value,
                           double *off, double *pair, double *sum) {
    double most = 0;
    for (size_t i = 0; i < d * d; i++) most = fabs(a[i]) > most ? fabs(a[i]) : most;
    for (size_t k = 0; k < d; k++) {
        size_t length = d - k - 1;
        const double *x = a + k * d + k + 1;
        value[k] = a[k * d + k];
        off[k] = length > 0 ? x[0] : 0;
        double rest = length > 1 ? kernels->dot_double(x + 1, x + 1, length - 1) : 0;
        if (!(rest > NOTHING * most * (NOTHING * most))) continue;
        double norm = sqrt(x[0] * x[0] + rest);
        off[k] = x[0] > 0 ? -norm : norm;
        memcpy(pair, x, length * sizeof *pair);
        pair[0] -= off[k];
        reflect(kernels, a, d, k, 2 / (pair[0] * pair[0] + rest), pair, z, p, sum);
    }
}

/* One step of QL on rows first … last, which hang together. */
static void shift(const ts_low_rank_kernels *kernels, double *value, double *off, size_t first, size_t last, double *z,
                  size_t p) {
    double g = (value[first + 1] - value[first]) / (2 * off[first]), r = sqrt(g * g + 1);
    double s = 1, c = 1, moved = 0;
    g = value[last] - value[first] + off[first] / (g + copysign(r, g));
    for (size_t i = last; i-- > first;) {
        double f = s * off[i], b = c * off[i];
        r = sqrt(f * f + g * g);
        off[i + 1] = r;
        if (!(r > 0)) {
            value[i + 1] -= moved;
            off[last] = 0;
            return;
        }
        s = f / r;
        c = g / r;
        g = value[i + 1] - moved;
        r = (value[i] - g) * s + 2 * c * b;
        moved = s * r;
        value[i + 1] = g + moved;
        g = c * r - b;
        kernels->rotate(z + i * p, z + (i + 1) * p, p, c, s);
    }
    value[first] -= moved;
    off[first] = g;
    off[last] = 0;
}

static void swap_rows(double *x, double *y, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double kept = x[i];
        x[i] = y[i];
        y[i] = kept;
    }
}

static void sort(double *value, size_t d, double *z, size_t p) {
    for (size_t i = 0; i < d; i++) {
        size_t best = i;
        for (size_t j = i; j < d; j++) best = value[j] > value[best] ? j : best;
        if (best == i) continue;
        swap_rows(value + i, value + best, 1);
        swap_rows(z + i * p, z + best * p, p);
    }
}

void ts_eigen(const ts_low_rank_kernels *kernels, double *a, size_t d, double *z, size_t p, double *value, double *work) {
    double *off = work, *pair = work + d, *sum = work + 3 * d, most = 0;
    tridiagonalise(kernels, a, d, z, p, value, off, pair, sum);
    for (size_t i = 0; i < d; i++) {
        double size = fabs(value[i]) + fabs(off[i]);
        most = size > most ? size : most;
    }
    for (size_t first = 0; first < d; first++) {
        for (int tries = 0; tries < SHIFTS; tries++) {
            size_t last = first;
            while (last + 1 < d && fabs(off[last]) > DBL_EPSILON / 2 * most) last++;
            if (last == first) break;
            shift(kernels, value, off, first, last, z, p);
        }
    }
    sort(value, d, z, p);
}
