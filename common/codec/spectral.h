/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leading singular vectors in double precision, written out here and not taken from LAPACK because its results change
 * with the number of threads, and packets must not. Thread: any.
 */
#ifndef TS_CODEC_SPECTRAL_H
#define TS_CODEC_SPECTRAL_H

#include "common/codec/low_rank_kernels.h"

/* One dimension of a tensor in row-major order: the elements before it, its own, and those behind it. */
typedef struct {
    size_t outer, extent, inner;
} ts_mode;

/* A matrix's rows. */
static inline ts_mode ts_mode_matrix(size_t rows, size_t cols) {
    return (ts_mode){.outer = 1, .extent = rows, .inner = cols};
}

/* Bytes of work that ts_left_vectors() takes, which is aligned for doubles. */
size_t ts_left_vectors_work(ts_mode mode, size_t r);

/*
 * The r leading left singular vectors of x unfolded along that dimension (extent × the rest), r <= both sides; each is
 * `extent` long, the strongest first, the element of largest magnitude (of equal ones the first) positive; zero where
 * the matrix has a lower rank, and 1 where there is one row. The same bits on every CPU.
 * Algorithm: eigenvectors of X Xᵀ or Xᵀ X: all of them where a side is short, else those that krylov.h finds, in a Gram
 * matrix where it takes less time to make it than to multiply by X over and over.
 */
void ts_left_vectors(const ts_low_rank_kernels *kernels, const float *x, ts_mode mode, size_t r, void *work,
                     float *vectors);

#endif
