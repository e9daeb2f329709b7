/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/random.h"

#include <math.h>

ts_philox_block ts_philox(uint64_t key, uint64_t counter_high, uint64_t counter_low) {
    uint32_t c0 = (uint32_t)counter_low, c1 = (uint32_t)(counter_low >> 32);
    uint32_t c2 = (uint32_t)counter_high, c3 = (uint32_t)(counter_high >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (ts_philox_block){{c0, c1, c2, c3}};
}

uint64_t ts_random_key(uint64_t seed, uint64_t step, uint64_t tensor, uint64_t worker, uint64_t purpose) {
    uint64_t key = ts_mix64(seed);
    key = ts_mix64(key ^ step);
    key = ts_mix64(key ^ tensor);
    key = ts_mix64(key ^ worker);
    return ts_mix64(key ^ purpose);
}

ts_random ts_random_start(uint64_t key) { return (ts_random){.key = key, .position = 0}; }

uint32_t ts_random_u32(ts_random *random) {
    unsigned lane = (unsigned)(random->position & 3);
    if (lane == 0) random->block = ts_philox(random->key, 0, random->position >> 2);
    random->position++;
    return random->block.word[lane];
}

uint32_t ts_random_below(ts_random *random, uint32_t bound) {
    uint64_t product = (uint64_t)ts_random_u32(random) * bound;
    uint32_t low = (uint32_t)product;
    if (low < bound) {
        uint32_t floor = (uint32_t)(-bound) % bound;
        while (low < floor) {
            product = (uint64_t)ts_random_u32(random) * bound;
            low = (uint32_t)product;
        }
    }
    return (uint32_t)(product >> 32);
}

float ts_random_normal(ts_random *random) {
    double u = ((double)ts_random_u32(random) + 0.5) * 0x1p-32;
    double v = ((double)ts_random_u32(random) + 0.5) * 0x1p-32;
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}
