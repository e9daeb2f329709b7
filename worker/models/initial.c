/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/models/initial.h"

#include <math.h>

#include "common/base/random.h"

#define PURPOSE_INITIAL 0x494E4954u

uint64_t ts_initial_key(uint64_t seed, const char *name) {
    uint64_t hash = 0;
    for (const char *c = name; *c; c++) hash = ts_mix64(hash ^ (uint64_t)(unsigned char)*c);
    return ts_random_key(seed, 0, hash, 0, PURPOSE_INITIAL);
}

void ts_initial_he(uint64_t seed, const char *name, size_t fan_in, float *to, size_t n) {
    ts_random random = ts_random_start(ts_initial_key(seed, name));
    const float deviation = (float)sqrt(2.0 / (double)fan_in);
    for (size_t i = 0; i < n; i++) to[i] = deviation * ts_random_normal(&random);
}
