/* SPDX-License-Identifier: Apache-2.0 */
/* All eigenvalues of a small symmetric matrix, in double precision. Thread: any. */
#ifndef TS_CODEC_EIGEN_H
#define TS_CODEC_EIGEN_H

#include "common/codec/low_rank_kernels.h"

/* Doubles of work that ts_eigen() takes. */
static inline size_t ts_eigen_work(size_t d, size_t p) { return 3 * d + p; }

/*
 * Eigenvalues of the symmetric a (d × d, used up; the largest element between 2⁻³⁰⁰ and 2³⁰⁰, or 0), the largest first,
 * to some DBL_EPSILON of the largest magnitude.
 * z (d × p): row i becomes eigenvector i times z as it was. So the identity gives the vectors, and columns of it their
 * elements at these places, which takes less time.
 * Algorithm: Householder's reduction to three diagonals, then QL with implicit shifts (Dubrulle, Martin and Wilkinson
 * 1968). Of equal values the order is that in which they are found, always the same.
 */
void ts_eigen(const ts_low_rank_kernels *kernels, double *a, size_t d, double *z, size_t p, double *value, double *work);

#endif
