/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sequential reference: one loop, no messages. It uses the codec (proved elsewhere against golden vectors) and the
 * contract's list of tensors; rounds, means, optimizer, reference and residual bookkeeping are its own.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/codec/kernels.h"
#include "tests/sim/oracle_parts.h"
#include "tests/sim/oracle_rules.h"

static terse_status make_contract(oracle *o) {
    TS_TRY(ts_config_contract(o->config, &o->contract));
    for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++) {
        const ts_cluster_tensor *tensor = &ts_cluster_tensors[t];
        const ts_pipeline *push = ts_config_pipeline(&o->config->push, tensor->name, tensor->shape, tensor->ndim);
        const ts_pipeline *pull = ts_config_pipeline(&o->config->pull, tensor->name, tensor->shape, tensor->ndim);
        uint32_t id;
        TS_TRY(ts_contract_add(o->contract, tensor->name, tensor->shape, tensor->ndim, push, pull,
                               ts_config_worker_momentum(o->config, push), &id, NULL));
    }
    TS_TRY(ts_contract_seal(o->contract, 1));
    return o->contract->slice_count <= ORACLE_SLICES ? TERSE_OK : TERSE_ELIMIT;
}

static terse_status make_encoders(oracle *o) {
    for (uint32_t w = 0; w < o->spec->network.workers; w++) {
        for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++) {
            ts_codec_spec spec = ts_contract_push_spec(o->contract, t, w);
            TS_TRY(ts_encoder_create(&spec, &o->up[w][t]));
            uint32_t slices = ts_pipeline_is_stateful(spec.pipeline) ? ts_codec_slices(&spec) : 0;
            for (uint32_t s = 0; s < slices; s++) {
                TS_TRY(ts_decode_state_create(&spec, s, &o->state[w][o->contract->tensors[t].first_slice + s]));
            }
        }
    }
    for (uint32_t s = 0; s < o->contract->slice_count; s++) {
        ts_codec_spec spec = ts_contract_pull_spec(o->contract, s);
        TS_TRY(ts_encoder_create(&spec, &o->down[s]));
    }
    return TERSE_OK;
}

/* As a worker that stores its residual as bfloat16 will find it: to nearest, ties to even. */
static void round_brief(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits = (bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u;
        memcpy(&x[i], &bits, sizeof bits);
    }
}

/* Whether the aggregate is more than a sum of what came. */
static bool weighs(const oracle *o) {
    return o->config->aggregation.robust != TS_ROBUST_NONE || o->config->aggregation.mode != TS_AGGREGATE_MEAN;
}

/* Keeps what the p-th participant said of a slice, and what it weighs. */
static terse_status note(oracle *o, uint32_t w, uint32_t t, uint32_t p, uint32_t s, uint64_t step, size_t len,
                         const uint8_t *packet) {
    ts_codec_spec spec = ts_contract_push_spec(o->contract, t, w);
    ts_decode_state *state = o->state[w][o->contract->tensors[t].first_slice + s];
    size_t first = ts_codec_slice_first(&spec, s);
    ts_decoded decoded;
    o->weight[t][p] = o->by_samples && o->spec->samples[w] ? (float)o->spec->samples[w] : 1.0f;
    TS_TRY(ts_decode(o->scratch, &spec, state, s, step, packet, len, &decoded));
    for (size_t j = 0; j < decoded.count; j++)
        o->said[t][p][first + (decoded.dense ? j : decoded.index[j])] = decoded.value[j];
    double norm = sqrt(ts_kernels_scalar.sum_squares(decoded.value, decoded.count));
    double limit = o->config->aggregation.clip_norm;
    if (o->config->aggregation.robust == TS_ROBUST_CLIP && norm > limit) o->weight[t][p] *= (float)(limit / norm);
    return TERSE_OK;
}

terse_status ts_oracle_encode(oracle *o, uint32_t w, uint32_t t, uint64_t step, uint64_t local, size_t *len) {
    const ts_tensor *tensor = &o->contract->tensors[t];
    float *residual = o->result->residual[w][t];
    bool rest = local == TS_CLUSTER_REST;
    for (size_t i = 0; i < tensor->n && !rest; i++) {
        o->gradient[i] = ts_cluster_gradient(t, i, o->result->replica[w][t][i], w, local);
    }
    if (!o->config->error_feedback.enabled) memset(residual, 0, tensor->n * sizeof(float));
    bool estimates = ts_config_estimates(o->config), decays = o->config->error_feedback.variant == TS_FEEDBACK_DECAYED;
    for (size_t i = 0; estimates && i < tensor->n; i++) residual[i] = -o->estimate[w][t][i];
    ts_encode_input input = {.gradient = rest ? NULL : o->gradient,
                             .decay = decays ? (float)o->config->error_feedback.beta : 0,
                             .gradient_scale = 1,
                             .residual = residual,
                             .velocity = tensor->worker_momentum ? o->velocity[w][t] : NULL,
                             .momentum = (float)o->config->error_feedback.momentum_correction,
                             .nesterov = o->config->optimizer.nesterov,
                             .masking = o->config->error_feedback.masking,
                             .step = step,
                             .unbiased = !o->config->error_feedback.enabled,
                             .ratio = rest ? 1.0 : ts_config_warmup_ratio(o->config, &tensor->push, step)};
    if (tensor->worker_momentum && o->config->optimizer.weight_decay > 0) {
        input.params = o->result->replica[w][t];
        input.weight_decay = (float)o->config->optimizer.weight_decay;
    }
    ts_codec_spec spec = ts_contract_push_spec(o->contract, t, w);
    TS_TRY(ts_encoder_begin(o->up[w][t], o->scratch, &input, NULL));
    uint32_t slices = ts_codec_slices(&spec);
    size_t at = 0;
    for (uint32_t s = 0; s < slices; s++) {
        TS_TRY(ts_encoder_slice(o->up[w][t], o->scratch, s, o->packet + at, ORACLE_PACKET_ROOM - at, &len[s]));
        at += len[s];
    }
    at = 0;
    for (uint32_t s = 0; estimates && s < slices; s++) {
        TS_TRY(ts_decode_add(o->scratch, &spec, NULL, s, step, o->packet + at, len[s],
                             o->estimate[w][t] + ts_codec_slice_first(&spec, s)));
        at += len[s];
    }
    if (o->config->error_feedback.residual == TS_RESIDUAL_BF16) round_brief(residual, tensor->n);
    return TERSE_OK;
}

/* What one worker says of one tensor at a step, added to the sum. */
static terse_status push(oracle *o, uint32_t w, uint32_t t, uint32_t participant, uint64_t step) {
    const ts_tensor *tensor = &o->contract->tensors[t];
    ts_codec_spec spec = ts_contract_push_spec(o->contract, t, w);
    size_t len[ORACLE_SLICES], at = 0;
    TS_TRY(ts_oracle_encode(o, w, t, step, step, len));
    for (uint32_t s = 0; s < tensor->slices; s++) {
        TS_TRY(ts_decode_add(o->scratch, &spec, o->state[w][tensor->first_slice + s], s, step, o->packet + at, len[s],
                             o->sum[t] + ts_codec_slice_first(&spec, s)));
        if (weighs(o)) TS_TRY(note(o, w, t, participant, s, step, len[s], o->packet + at));
        at += len[s];
    }
    return TERSE_OK;
}

static float aggregate(oracle *o, uint32_t t, size_t i, uint32_t participants) {
    float value[TS_CLUSTER_WORKERS];
    if (ts_config_estimates(o->config)) {
        o->estimates[t][i] += o->sum[t][i];
        return o->estimates[t][i] * (1.0f / (float)o->spec->network.workers);
    }
    if (!weighs(o)) return o->sum[t][i] * (1.0f / (float)participants);
    for (uint32_t p = 0; p < participants; p++) value[p] = o->said[t][p][i];
    return ts_oracle_combine(o->config, value, o->weight[t], participants, o->total);
}

static void optimize(oracle *o, uint32_t t, uint64_t step, uint32_t participants) {
    const ts_tensor *tensor = &o->contract->tensors[t];
    float g[512];
    for (size_t i = 0; i < tensor->n; i++) g[i] = aggregate(o, t, i, participants);
    bool sparse = ts_pipeline_is_sparse(&tensor->push) && !ts_config_estimates(o->config);
    ts_oracle_step(o->config, step, ts_config_lr(o->config, step, 0), tensor->worker_momentum, sparse, tensor->n,
                   o->result->fetched[t], o->optimizer[t], g);
}

terse_status ts_oracle_version(oracle *o, uint32_t s, uint64_t version, double ratio) {
    const ts_slice *slice = &o->contract->slices[s];
    float *params = o->result->fetched[slice->tensor] + slice->first;
    float *reference = o->reference[slice->tensor] + slice->first;
    ts_codec_spec spec = ts_contract_pull_spec(o->contract, s);
    /* All values or those that changed: what is then at the workers is the parameters. */
    if (ts_pipeline_is_lossless(spec.pipeline) || ts_pipeline_replaces(spec.pipeline)) {
        memcpy(reference, params, slice->n * sizeof(float));
        return TERSE_OK;
    }
    for (size_t i = 0; i < slice->n; i++) o->difference[i] = params[i] - reference[i];
    ts_encode_input input = {.gradient_scale = 1, .residual = o->difference, .step = version, .ratio = ratio};
    size_t len;
    TS_TRY(ts_encoder_begin(o->down[s], o->scratch, &input, NULL));
    TS_TRY(ts_encoder_slice(o->down[s], o->scratch, 0, o->packet, ORACLE_PACKET_ROOM, &len));
    return ts_decode_add(o->scratch, &spec, NULL, 0, version, o->packet, len, reference);
}

/* What each participant counts, and what the sum is divided by; 1 each when all say the same number of samples. */
static void weigh_workers(oracle *o, uint64_t step) {
    uint32_t first = 0, total = 0, participants = 0;
    bool even = true;
    for (uint32_t w = 0; w < o->spec->network.workers; w++) {
        if (step >= o->spec->steps[w]) continue;
        uint32_t samples = o->spec->samples[w] ? o->spec->samples[w] : 1;
        if (participants++ == 0) first = samples;
        even = even && samples == first;
        total += samples;
    }
    o->by_samples = o->config->aggregation.mode == TS_AGGREGATE_SAMPLES && !even;
    o->total = (float)(o->by_samples ? total : participants);
}

static terse_status round_of(oracle *o, uint64_t step, bool *any) {
    uint32_t participants = 0;
    weigh_workers(o, step);
    memset(o->sum, 0, sizeof o->sum);
    memset(o->said, 0, sizeof o->said);
    for (uint32_t w = 0; w < o->spec->network.workers; w++) {
        if (step >= o->spec->steps[w]) continue;
        for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++) TS_TRY(push(o, w, t, participants, step));
        participants++;
    }
    *any = participants > 0;
    if (!participants) return TERSE_OK;
    for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++) optimize(o, t, step, participants);
    for (uint32_t s = 0; s < o->contract->slice_count; s++) {
        ts_codec_spec spec = ts_contract_pull_spec(o->contract, s);
        TS_TRY(ts_oracle_version(o, s, step, ts_config_warmup_ratio(o->config, spec.pipeline, step)));
    }
    for (uint32_t w = 0; w < o->spec->network.workers; w++) {
        if (step >= o->spec->steps[w]) continue;
        for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++)
            memcpy(o->result->replica[w][t], o->reference[t], ts_cluster_tensors[t].n * sizeof(float));
    }
    return TERSE_OK;
}

static void first_values(oracle *o) {
    for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++) {
        size_t bytes = ts_cluster_tensors[t].n * sizeof(float);
        for (size_t i = 0; i < ts_cluster_tensors[t].n; i++) o->result->fetched[t][i] = ts_cluster_initial(t, i);
        memcpy(o->reference[t], o->result->fetched[t], bytes);
        for (uint32_t w = 0; w < o->spec->network.workers; w++)
            memcpy(o->result->replica[w][t], o->result->fetched[t], bytes);
    }
}

terse_status ts_oracle_begin(oracle *o, const ts_cluster_spec *spec, ts_cluster_result *out) {
    o->spec = spec;
    o->result = out;
    TS_TRY(ts_cluster_result_create(out, spec->network.workers));
    TS_TRY(ts_config_load("tests/sim/sim.yaml", spec->overrides, spec->override_count, &o->config, NULL));
    TS_TRY(ts_scratch_create(&o->scratch));
    TS_TRY(make_contract(o));
    TS_TRY(make_encoders(o));
    first_values(o);
    return TERSE_OK;
}

void ts_oracle_end(oracle *o) {
    for (uint32_t w = 0; w < TS_CLUSTER_WORKERS; w++)
        for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++) ts_encoder_destroy(o->up[w][t]);
    for (uint32_t s = 0; s < ORACLE_SLICES; s++) {
        ts_encoder_destroy(o->down[s]);
        for (uint32_t w = 0; w < TS_CLUSTER_WORKERS; w++) ts_decode_state_destroy(o->state[w][s]);
    }
    ts_scratch_destroy(o->scratch);
    ts_contract_destroy(o->contract);
    ts_config_free(o->config);
    ts_mem_free(o);
}

terse_status ts_oracle_run(const ts_cluster_spec *spec, ts_cluster_result *out) {
    oracle *o = ts_mem_calloc(1, sizeof *o);
    if (!o) return TERSE_ENOMEM;
    terse_status status = ts_oracle_begin(o, spec, out);
    bool any = true;
    for (uint64_t step = 0; any && status == TERSE_OK; step++) status = round_of(o, step, &any);
    ts_oracle_end(o);
    return status;
}
