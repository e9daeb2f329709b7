/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/data/split.h"

#include "common/base/mem.h"
#include "common/base/random.h"

#define PURPOSE_SHUFFLE 0x5348554646u /* keeps this stream apart from those of initial values and codecs */

terse_status ts_split_init(ts_split *split, uint64_t seed, size_t samples, uint32_t worker, uint32_t workers,
                           uint32_t batch) {
    TS_REQUIRE(samples > 0 && workers > 0 && batch > 0 && worker < workers, TERSE_EINVAL);
    TS_REQUIRE(samples <= UINT32_MAX, TERSE_ELIMIT);
    uint32_t *order = ts_mem_calloc(samples, sizeof *order);
    TS_REQUIRE(order, TERSE_ENOMEM);
    uint64_t together = (uint64_t)workers * batch;
    *split = (ts_split){.seed = seed, .samples = samples, .worker = worker, .workers = workers, .batch = batch,
                        .steps_per_epoch = (samples - 1) / together + 1, .epoch = UINT64_MAX, .order = order};
    return TERSE_OK;
}

void ts_split_free(ts_split *split) {
    if (!split) return;
    ts_mem_free(split->order);
    *split = (ts_split){0};
}

/* Fisher and Yates (1938), in Durstenfeld's form (1964). */
static void shuffle(ts_split *split, uint64_t epoch) {
    ts_random random = ts_random_start(ts_random_key(split->seed, epoch, 0, 0, PURPOSE_SHUFFLE));
    for (size_t i = 0; i < split->samples; i++) split->order[i] = (uint32_t)i;
    for (size_t i = split->samples - 1; i > 0; i--) {
        uint32_t other = ts_random_below(&random, (uint32_t)i + 1);
        uint32_t kept = split->order[i];
        split->order[i] = split->order[other];
        split->order[other] = kept;
    }
    split->epoch = epoch;
}

ts_share ts_split_step(ts_split *split, uint64_t step) {
    uint64_t epoch = step / split->steps_per_epoch;
    if (epoch != split->epoch) shuffle(split, epoch);
    size_t together = (size_t)split->workers * split->batch;
    size_t start = (size_t)(step % split->steps_per_epoch) * together;
    size_t left = split->samples - start, total = left < together ? left : together, first;
    size_t count = ts_split_part(total, split->worker, split->workers, &first);
    return (ts_share){split->order + start + first, count, total};
}

size_t ts_split_part(size_t count, uint32_t part, uint32_t parts, size_t *first) {
    size_t each = count / parts, extra = count % parts;
    *first = each * part + (part < extra ? part : extra);
    return each + (part < extra ? 1 : 0);
}
