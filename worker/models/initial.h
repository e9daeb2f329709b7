/* SPDX-License-Identifier: Apache-2.0 */
/* Initial parameters: a pure function of seed, tensor name and scale, the same at every worker. */
#ifndef TS_MODELS_INITIAL_H
#define TS_MODELS_INITIAL_H

#include <stddef.h>
#include <stdint.h>

/* The random stream of a tensor: key of (seed, name). Thread: any. */
uint64_t ts_initial_key(uint64_t seed, const char *name);

/*
 * Normal values of deviation sqrt(2 / fan_in) (He, Zhang, Ren, Sun 2015), for layers behind a ReLU.
 * to: [out] n floats. fan_in > 0. Thread: any.
 */
void ts_initial_he(uint64_t seed, const char *name, size_t fan_in, float *to, size_t n);

#endif
