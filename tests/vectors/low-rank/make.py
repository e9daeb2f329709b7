#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Made the files beside it: tensors, and what truncated SVD and HOSVD leave of them, by numpy in double precision."""
import os
import numpy

here = os.path.dirname(os.path.abspath(__file__))
random = numpy.random.default_rng(20)


def save(name, array):
    array.astype("<f4").tofile(os.path.join(here, name + ".f32"))


def truncated(matrix, rank):
    u, s, vt = numpy.linalg.svd(matrix, full_matrices=False)
    return (u[:, :rank] * s[:rank]) @ vt[:rank]


def hosvd(tensor, rank):
    out = tensor
    for mode in range(tensor.ndim):
        unfolded = numpy.moveaxis(tensor, mode, 0).reshape(tensor.shape[mode], -1)
        u = numpy.linalg.svd(unfolded, full_matrices=False)[0][:, :rank]
        out = numpy.moveaxis(numpy.tensordot(u @ u.T, out, axes=(1, mode)), 0, mode)
    return out


def long_tailed(*shape):
    return (random.standard_normal(shape) ** 3).astype(numpy.float32)


for name, shape in (("wide", (24, 90)), ("tall", (90, 24)), ("large", (70, 150)), ("three", (12, 9, 7)), ("four", (8, 6, 3, 3))):
    x = long_tailed(*shape)
    save(name, x)
    x = x.astype(numpy.float64)
    save(name + "-svd3", truncated(x.reshape(shape[0], -1), 3))
    if len(shape) > 2:
        save(name + "-tucker2", hosvd(x, 2))
