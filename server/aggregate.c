/* SPDX-License-Identifier: Apache-2.0 */
#include "server/aggregate.h"

#include <string.h>

#include "common/base/mem.h"
#include "server/slice_math.h"

terse_status ts_sum_reserve(ts_sum *sum, size_t n) {
    if (n <= sum->elems) return TERSE_OK;
    float *value = ts_mem_aligned(n, sizeof *value);
    uint64_t *touched = ts_mem_calloc(ts_bitmap_words(n), sizeof *touched);
    if (!value || !touched) {
        ts_mem_free(value);
        ts_mem_free(touched);
        return TERSE_ENOMEM;
    }
    ts_sum_free(sum);
    *sum = (ts_sum){.value = value, .touched = touched, .elems = n};
    return TERSE_OK;
}

void ts_sum_free(ts_sum *sum) {
    ts_mem_free(sum->value);
    ts_mem_free(sum->touched);
    *sum = (ts_sum){0};
}

void ts_sum_clear(ts_sum *sum, size_t n) {
    if (n == 0) return; /* the arrays may be NULL */
    if (sum->dense) memset(sum->value, 0, n * sizeof *sum->value);
    else ts_touched_clear(sum->value, sum->touched, n);
    memset(sum->touched, 0, ts_bitmap_words(n) * sizeof *sum->touched);
    sum->dense = false;
}

void ts_sum_average(ts_sum *sum, size_t n, uint32_t participants) {
    float factor = 1.0f / (float)participants;
    if (participants == 1) return;
    if (sum->dense) ts_slice_kernels()->scale(sum->value, factor, n);
    else ts_touched_scale(sum->value, factor, sum->touched, n);
}

void ts_sum_estimate(ts_sum *sum, float *estimate, size_t n, uint32_t workers) {
    const ts_kernels *kernels = ts_slice_kernels();
    if (n == 0) return;
    if (sum->dense) kernels->add(estimate, sum->value, n);
    else ts_touched_add(estimate, sum->value, sum->touched, n);
    memcpy(sum->value, estimate, n * sizeof *estimate);
    sum->dense = true;
    kernels->scale(sum->value, 1.0f / (float)workers, n);
}

static terse_status add_one(ts_sum *sum, ts_scratch *scratch, const ts_codec_spec *spec, uint32_t part, uint64_t step,
                            const ts_contribution *from) {
    if (!ts_pipeline_is_sparse(spec->pipeline)) {
        TS_TRY(ts_decode_add(scratch, spec, from->state, part, step, from->packet, from->len, sum->value));
        sum->dense = true;
        return TERSE_OK;
    }
    ts_decoded decoded;
    TS_TRY(ts_decode(scratch, spec, from->state, part, step, from->packet, from->len, &decoded));
    if (decoded.dense) {
        ts_slice_kernels()->add(sum->value, decoded.value, decoded.count);
        sum->dense = true;
        return TERSE_OK;
    }
    for (size_t j = 0; j < decoded.count; j++) {
        uint32_t i = decoded.index[j];
        sum->value[i] += decoded.value[j];
        sum->touched[i / 64] |= (uint64_t)1 << (i % 64);
    }
    return TERSE_OK;
}

terse_status ts_aggregate(ts_sum *sum, ts_scratch *scratch, const ts_aggregate_place *place,
                          const ts_contribution *contributions, uint32_t count, uint32_t *culprit) {
    const ts_slice *slice = &place->contract->slices[place->slice];
    uint32_t part = place->slice - place->contract->tensors[slice->tensor].first_slice;
    TS_REQUIRE(slice->n <= sum->elems, TERSE_EINVAL);
    for (uint32_t c = 0; c < count; c++) {
        ts_codec_spec spec = ts_contract_push_spec(place->contract, slice->tensor, contributions[c].worker);
        terse_status status = add_one(sum, scratch, &spec, part, place->step, &contributions[c]);
        if (status == TERSE_OK) continue;
        ts_sum_clear(sum, slice->n);
        *culprit = contributions[c].worker;
        return status;
    }
    return TERSE_OK;
}
