/* SPDX-License-Identifier: Apache-2.0 */
#include "server/aggregate.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/codec/decode_nonfinite.h"
#include "server/robust_order.h"
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
    ts_mem_free(sum->lanes);
    *sum = (ts_sum){0};
}

size_t ts_sum_bytes(const ts_sum *sum) {
    return (sum->elems + sum->lanes_elems) * sizeof(float) + ts_bitmap_words(sum->elems) * sizeof(uint64_t);
}

void ts_sum_clear(ts_sum *sum, size_t n) {
    if (n == 0) return; /* the arrays may be NULL */
    if (sum->parts) { /* no bit was set, and a part that was written is stale already */
        sum->parts = NULL;
        sum->dense = false;
        return;
    }
    if (sum->dense) sum->stale = n > sum->stale ? n : sum->stale;
    else ts_touched_clear(sum->value, sum->touched, n);
    memset(sum->touched, 0, ts_bitmap_words(n) * sizeof *sum->touched);
    sum->dense = false;
}

/* Before something is added to it, or looked at. */
static void make_zero(ts_sum *sum) {
    if (sum->stale > 0) memset(sum->value, 0, sum->stale * sizeof *sum->value);
    sum->stale = 0;
}

void ts_sum_scale(ts_sum *sum, size_t n, float factor) {
    if (factor == 1.0f) return;
    if (sum->parts) sum->factor *= factor;
    else if (sum->dense) ts_slice_kernels()->scale(sum->value, factor, n);
    else ts_touched_scale(sum->value, factor, sum->touched, n);
}

const float *ts_sum_part(ts_sum *sum, size_t at, size_t n) {
    const ts_kernels *kernels = ts_slice_kernels();
    bool fresh = true;
    if (!sum->parts) return sum->value + at;
    for (uint32_t c = 0; c < sum->part_count; c++) {
        if (sum->parts[c].quarantined) continue;
        (void)kernels->fp32_sum(sum->parts[c].floats + sizeof(float) * at, n, sum->value, fresh); /* it is known to be finite */
        fresh = false;
    }
    if (sum->factor != 1.0f) kernels->scale(sum->value, sum->factor, n);
    if (n > sum->stale) sum->stale = n;
    return sum->value;
}

void ts_sum_clip(ts_sum *sum, size_t n, double value, double norm) {
    const uint64_t *touched = sum->dense ? NULL : sum->touched;
    if (value > 0) ts_touched_clamp(sum->value, (float)value, touched, n);
    if (!(norm > 0)) return;
    /* As torch.nn.utils.clip_grad_norm_: the small term keeps the quotient finite. */
    double share = norm / (sqrt(ts_touched_sum_squares(sum->value, touched, n)) + 1e-6);
    if (share < 1.0) ts_sum_scale(sum, n, (float)share);
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

/* ---- one slice under way --------------------------------------------------------------------------------------- */

typedef struct {
    ts_sum *sum;
    ts_scratch *scratch;
    const ts_aggregate_place *place;
    size_t n;
    uint32_t part; /* the slice's number in its tensor */
    double clip;   /* of each worker's norm; 0: none */
    bool weighted;
} aggregation;

static ts_codec_spec spec_of(const aggregation *a, const ts_contribution *from) {
    return ts_contract_push_spec(a->place->contract, a->place->contract->slices[a->place->slice].tensor, from->worker);
}

/*
 * Puts a packet that does not decode into quarantine when nothing but NaN or infinity is wrong with it, or that it goes on
 * from one where this was so. Sent again it would be no better.
 */
static terse_status judge(const aggregation *a, const ts_codec_spec *spec, ts_contribution *from, terse_status status) {
    from->adrift = status == TERSE_ESTALE;
    if (status != TERSE_ECORRUPT && !from->adrift) return status;
    if (!from->adrift && !ts_decode_nonfinite(a->scratch, spec, a->part, a->place->step - from->late, from->packet, from->len)) return status;
    from->quarantined = true;
    return TERSE_ENONFINITE;
}

static terse_status decode(const aggregation *a, ts_contribution *from, ts_decoded *out) {
    ts_codec_spec spec = spec_of(a, from);
    return judge(a, &spec, from, ts_decode(a->scratch, &spec, from->state, a->part, a->place->step - from->late, from->packet,
                                           from->len, out));
}

static void touch(ts_sum *sum, uint32_t i) { sum->touched[i / 64] |= (uint64_t)1 << (i % 64); }

/* sum += weight * decoded; a weight of 1 changes no bit. */
static void add_decoded(ts_sum *sum, const ts_decoded *decoded, float weight) {
    if (decoded->dense) {
        sum->dense = true;
        if (weight == 1.0f) ts_slice_kernels()->add(sum->value, decoded->value, decoded->count);
        else ts_slice_kernels()->descend(sum->value, decoded->value, -weight, decoded->count);
        return;
    }
    for (size_t j = 0; j < decoded->count; j++) {
        uint32_t i = decoded->index[j];
        sum->value[i] += weight * decoded->value[j];
        touch(sum, i);
    }
}

/* Floats: in one pass, the first packet of a slice over whatever the sum held. Not finite: what it holds is lost. */
static terse_status sum_whole(const aggregation *a, const ts_codec_spec *spec, ts_contribution *from) {
    ts_sum *sum = a->sum;
    bool fresh = !sum->dense;
    if (fresh && sum->stale > a->n) make_zero(sum);
    terse_status status = ts_decode_sum(a->scratch, spec, a->part, a->place->step - from->late, from->packet, from->len,
                                        sum->value, fresh);
    if (status == TERSE_OK) {
        sum->dense = true;
        sum->stale = 0;
    } else if (status == TERSE_ENONFINITE) {
        from->quarantined = true;
        sum->dense = false;
        sum->stale = a->n;
    }
    return status;
}

/* A packet that speaks of every element, as it is: no copy in between. */
static terse_status add_whole(const aggregation *a, ts_contribution *from) {
    ts_codec_spec spec = spec_of(a, from);
    terse_status status = sum_whole(a, &spec, from);
    if (status != TERSE_EUNSUPPORTED) return status;
    make_zero(a->sum);
    TS_TRY(judge(a, &spec, from, ts_decode_add(a->scratch, &spec, from->state, a->part, a->place->step - from->late, from->packet,
                                               from->len, a->sum->value)));
    a->sum->dense = true;
    return TERSE_OK;
}

static float clipped(const aggregation *a, const ts_decoded *decoded, float weight) {
    double norm = a->clip > 0 ? sqrt(ts_slice_kernels()->sum_squares(decoded->value, decoded->count)) : 0;
    return norm > a->clip ? weight * (float)(a->clip / norm) : weight;
}

/* Whether what a worker says goes into the sum as it is, and speaks of every element. */
static bool is_plain(const aggregation *a) {
    const ts_tensor *tensor = &a->place->contract->tensors[a->place->contract->slices[a->place->slice].tensor];
    return !a->weighted && !(a->clip > 0) && !ts_pipeline_is_sparse(&tensor->push);
}

static terse_status add_one(const aggregation *a, ts_contribution *from) {
    if (is_plain(a)) return add_whole(a, from);
    ts_decoded decoded;
    make_zero(a->sum);
    TS_TRY(decode(a, from, &decoded));
    float weight = a->weighted && from->samples > 1 ? (float)from->samples : 1.0f;
    add_decoded(a->sum, &decoded, clipped(a, &decoded, weight));
    return TERSE_OK;
}

/* ---- coordinate by coordinate ---------------------------------------------------------------------------------- */

static terse_status reserve_lanes(ts_sum *sum, size_t n, uint32_t count) {
    size_t elems;
    TS_REQUIRE(ts_mem_mul(n + TS_ROBUST_BLOCK, count, &elems), TERSE_ENOMEM);
    if (elems <= sum->lanes_elems) return TERSE_OK;
    float *lanes = ts_mem_aligned(elems, sizeof *lanes);
    TS_REQUIRE(lanes, TERSE_ENOMEM);
    ts_mem_free(sum->lanes);
    sum->lanes = lanes;
    sum->lanes_elems = elems;
    return TERSE_OK;
}

static terse_status fill_lane(const aggregation *a, ts_contribution *from, float *lane) {
    ts_decoded decoded;
    TS_TRY(decode(a, from, &decoded));
    if (decoded.dense) {
        memcpy(lane, decoded.value, decoded.count * sizeof *lane);
        a->sum->dense = true;
    }
    for (size_t j = 0; !decoded.dense && j < decoded.count; j++) {
        lane[decoded.index[j]] = decoded.value[j];
        touch(a->sum, decoded.index[j]);
    }
    return TERSE_OK;
}

static void clear_lanes(const aggregation *a, uint32_t count) {
    for (uint32_t c = 0; c < count; c++) {
        float *lane = a->sum->lanes + c * a->n;
        if (a->sum->dense) memset(lane, 0, a->n * sizeof *lane);
        else ts_touched_clear(lane, a->sum->touched, a->n);
    }
}

/* A block's coordinates, gathered from the lanes, ordered and put into the sum. */
static void order_block(const aggregation *a, uint32_t count, const uint32_t *coordinate, unsigned used) {
    const ts_config *config = a->place->config;
    float out[TS_ROBUST_BLOCK], *rows = a->sum->lanes + count * a->n;
    for (uint32_t c = 0; c < count; c++) {
        const float *lane = a->sum->lanes + c * a->n;
        for (unsigned j = 0; j < TS_ROBUST_BLOCK; j++)
            rows[(size_t)c * TS_ROBUST_BLOCK + j] = j < used ? lane[coordinate[j]] : 0.0f;
    }
    ts_robust_block(config->aggregation.robust, ts_robust_cut(config->aggregation.trim, count), rows, count, out);
    memset(rows, 0, (size_t)count * TS_ROBUST_BLOCK * sizeof *rows); /* more workers would have a lane there */
    for (unsigned j = 0; j < used; j++) a->sum->value[coordinate[j]] = out[j];
}

static void order_all(const aggregation *a, uint32_t count) {
    uint32_t coordinate[TS_ROBUST_BLOCK];
    unsigned used = 0;
    for (size_t word = 0; word < ts_bitmap_words(a->n); word++) {
        size_t left = a->n - word * 64;
        uint64_t bits = a->sum->dense ? (left < 64 ? ((uint64_t)1 << left) - 1 : UINT64_MAX) : a->sum->touched[word];
        for (; bits; bits &= bits - 1) {
            coordinate[used++] = (uint32_t)(word * 64 + (size_t)__builtin_ctzll(bits));
            if (used < TS_ROBUST_BLOCK) continue;
            order_block(a, count, coordinate, used);
            used = 0;
        }
    }
    if (used > 0) order_block(a, count, coordinate, used);
}

static terse_status aggregate_ordered(const aggregation *a, ts_contribution *contributions, uint32_t count,
                                      ts_aggregate_outcome *outcome) {
    uint32_t taken = 0;
    terse_status status = reserve_lanes(a->sum, a->n, count);
    outcome->culprit = contributions[0].worker;
    make_zero(a->sum);
    for (uint32_t c = 0; c < count && status == TERSE_OK; c++) {
        outcome->culprit = contributions[c].worker;
        status = fill_lane(a, &contributions[c], a->sum->lanes + taken * a->n);
        if (status == TERSE_OK) taken++;
        else if (status == TERSE_ENONFINITE) status = TERSE_OK;
    }
    if (status == TERSE_OK && taken > 0) order_all(a, taken);
    clear_lanes(a, taken);
    outcome->taken = taken;
    outcome->factor = 1.0f;
    return status;
}

/* ---- sums ------------------------------------------------------------------------------------------------------ */

/* Returns TERSE_EAGAIN when a packet that goes into quarantine has spoiled the sum: once more without it. */
static terse_status add_all(const aggregation *a, ts_contribution *contributions, uint32_t count,
                            ts_aggregate_outcome *outcome, double *weight) {
    *weight = 0;
    outcome->taken = 0;
    for (uint32_t c = 0; c < count; c++) {
        if (contributions[c].quarantined) continue;
        terse_status status = add_one(a, &contributions[c]);
        if (status == TERSE_ENONFINITE && a->sum->stale > 0) return TERSE_EAGAIN;
        if (status == TERSE_ENONFINITE) continue;
        outcome->culprit = contributions[c].worker;
        if (status != TERSE_OK) return status;
        *weight += a->weighted && contributions[c].samples > 1 ? (double)contributions[c].samples : 1.0;
        outcome->taken++;
    }
    make_zero(a->sum); /* nobody wrote over it */
    return TERSE_OK;
}

/* Looks through floats that will be added part by part. Returns TERSE_EUNSUPPORTED when they are none. */
static terse_status open_parts(const aggregation *a, ts_contribution *contributions, uint32_t count,
                               ts_aggregate_outcome *outcome, double *weight) {
    TS_REQUIRE(a->place->in_parts && is_plain(a), TERSE_EUNSUPPORTED);
    outcome->taken = 0;
    for (uint32_t c = 0; c < count; c++) {
        ts_contribution *from = &contributions[c];
        ts_codec_spec spec = spec_of(a, from);
        terse_status status = ts_decode_floats(a->scratch, &spec, a->part, a->place->step - from->late, from->packet, from->len,
                                               &from->floats);
        from->quarantined = status == TERSE_ENONFINITE;
        if (from->quarantined) continue;
        outcome->culprit = from->worker;
        if (status != TERSE_OK) return status;
        outcome->taken++;
    }
    *weight = outcome->taken;
    if (outcome->taken == 0) {
        make_zero(a->sum);
        return TERSE_OK;
    }
    a->sum->parts = contributions;
    a->sum->part_count = count;
    a->sum->factor = 1.0f;
    a->sum->dense = true;
    return TERSE_OK;
}

static terse_status aggregate_sum(const aggregation *a, ts_contribution *contributions, uint32_t count,
                                  ts_aggregate_outcome *outcome) {
    double weight;
    terse_status status = open_parts(a, contributions, count, outcome, &weight);
    if (status == TERSE_EUNSUPPORTED) {
        do status = add_all(a, contributions, count, outcome, &weight);
        while (status == TERSE_EAGAIN);
    }
    if (status != TERSE_OK) return status;
    outcome->factor = outcome->taken > 0 ? 1.0f / (float)weight : 1.0f;
    if (a->place->config && a->place->config->aggregation.mode == TS_AGGREGATE_SUM) outcome->factor = 1.0f;
    return TERSE_OK;
}

/* Whether the numbers of samples make a difference. */
static bool uneven(const ts_contribution *contributions, uint32_t count) {
    for (uint32_t c = 1; c < count; c++) {
        uint32_t first = contributions[0].samples ? contributions[0].samples : 1;
        if ((contributions[c].samples ? contributions[c].samples : 1) != first) return true;
    }
    return false;
}

terse_status ts_aggregate(ts_sum *sum, ts_scratch *scratch, const ts_aggregate_place *place,
                          ts_contribution *contributions, uint32_t count, ts_aggregate_outcome *outcome) {
    const ts_slice *slice = &place->contract->slices[place->slice];
    const ts_config *config = place->config;
    ts_robust_name robust = config ? config->aggregation.robust : TS_ROBUST_NONE;
    aggregation a = {.sum = sum, .scratch = scratch, .place = place, .n = slice->n,
                     .part = place->slice - place->contract->tensors[slice->tensor].first_slice};
    TS_REQUIRE(slice->n <= sum->elems && count > 0, TERSE_EINVAL);
    for (uint32_t c = 0; c < count; c++) contributions[c].quarantined = false;
    if (robust == TS_ROBUST_CLIP) a.clip = config->aggregation.clip_norm;
    a.weighted = config && config->aggregation.mode == TS_AGGREGATE_SAMPLES && uneven(contributions, count);
    bool ordered = robust == TS_ROBUST_MEDIAN || robust == TS_ROBUST_TRIMMED;
    terse_status status = ordered ? aggregate_ordered(&a, contributions, count, outcome)
                                  : aggregate_sum(&a, contributions, count, outcome);
    if (status != TERSE_OK) ts_sum_clear(sum, slice->n);
    return status;
}
