#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Made the files beside it: tensors, and what truncated SVD and HOSVD leave of them, by numpy in double precision.

made-*: the leading left singular vectors, their largest elements positive, of tensors that the test makes itself,
unfolded along the dimension in the middle."""
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


def mixed(x):
    """ts_mix64() of an array."""
    x = x + numpy.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return x ^ (x >> numpy.uint64(31))


def made(shape, seed):
    """What fill() of tests/unit/test_spectral.c makes."""
    word = mixed(numpy.arange(numpy.prod(shape), dtype=numpy.uint64) + numpy.uint64(seed << 32))
    u = (word >> numpy.uint64(40)).astype(numpy.float32) * numpy.float32(2.0 ** -24) - numpy.float32(0.5)
    return (u * u * u).reshape(shape)


for seed, (name, shape, rank) in enumerate((
        ("670x690", (1, 670, 690), 1), ("690x670", (1, 690, 670), 1), ("12x700x60", (12, 700, 60), 1),
        ("700x650x1", (700, 650, 1), 1), ("330x40x9", (330, 40, 9), 3), ("12x300x70", (12, 300, 70), 2),
        ("140x130", (1, 140, 130), 12))):
    x = numpy.moveaxis(made(shape, seed), 1, 0).reshape(shape[1], -1).astype(numpy.float64)
    u = numpy.linalg.svd(x, full_matrices=False)[0][:, :rank].T
    u *= numpy.sign(u[numpy.arange(rank), numpy.abs(u).argmax(axis=1)])[:, None]
    save("made-" + name, u)
