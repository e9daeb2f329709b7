/* SPDX-License-Identifier: Apache-2.0 */
/* Leading eigenvectors of a large symmetric matrix that is only multiplied by. Thread: any. */
#ifndef TS_CODEC_KRYLOV_H
#define TS_CODEC_KRYLOV_H

#include "common/codec/low_rank_kernels.h"

/* A matrix of length × length without negative eigenvalues. */
typedef struct {
    size_t length;
    /* w = G v for b vectors of `length`, one after the other. */
    void (*apply)(const void *context, const double *v, size_t b, double *w);
    const void *context; /* [borrow] */
} ts_krylov_matrix;

/* Doubles of work that ts_krylov() takes. */
size_t ts_krylov_work(size_t length, size_t r);

/*
 * The r largest eigenvalues, descending, and their vectors (r × length, in the work space), r <= length. Each is
 * iterated until |G v - λ v| <= 1e-9 λ1; so the sum of the values is at most r · 1e-9 λ1 below the largest possible one
 * (and where the next eigenvalue is some way off only by the square of that). A value of 0 may have a vector of 0.
 * Algorithm: block Lanczos with r vectors a block, as many equal eigenvalues may be wanted (Golub and Underwood 1977),
 * full reorthogonalisation, and thick restarts when the basis has grown to its most (Wu and Simon 2000).
 */
const double *ts_krylov(const ts_low_rank_kernels *kernels, const ts_krylov_matrix *matrix, size_t r, double *work,
                        double *value);

#endif
