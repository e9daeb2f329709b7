/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leading singular vectors in double precision, written out here and not taken from LAPACK because its results change
 * with the number of threads, and packets must not. Thread: any.
 */
#ifndef TS_CODEC_SPECTRAL_H
#define TS_CODEC_SPECTRAL_H

#include "common/codec/low_rank_kernels.h"

/* Bytes of work that ts_left_vectors() takes. */
size_t ts_left_vectors_work(size_t rows, size_t cols, size_t r);

/*
 * The r leading left singular vectors of x (rows × cols, row by row), r <= min(rows, cols), each `rows` long, the
 * strongest first; zero where the matrix has a lower rank.
 * Algorithm: eigenvectors of the smaller of X Xᵀ and Xᵀ X by subspace iteration with Rayleigh and Ritz (Stewart 1969),
 * the small problems by cyclic Jacobi rotations.
 */
void ts_left_vectors(const ts_low_rank_kernels *kernels, const float *x, size_t rows, size_t cols, size_t r, void *work,
                     float *vectors);

#endif
