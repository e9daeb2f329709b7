/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoding one tensor's step.
 *
 * With a selector, begin() takes in the gradient and selects in one sweep; the slices' packets then touch the selected
 * elements alone. Without one, begin() only looks for NaN and infinity, and each slice takes in, scales, quantises and
 * subtracts a block at a time while it is in the cache, so that memory is read and written once.
 *
 * With a low-rank transform begin() takes in the gradient and makes the factors; the packet, there is one, holds them,
 * and what the receiver will make of them is then taken from the residual.
 */
#include <string.h>

#include "common/base/bytes.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/codec/encoder_dense.h"
#include "common/codec/encoder_transform.h"
#include "common/codec/guard.h"
#include "common/codec/packet.h"
#include "common/codec/selection.h"

#define FAR_APART 256u /* elements; what lies so far apart comes sooner asked for at once than while its indices are coded */
#define PURPOSE_VALUES 0x76616C75u /* "valu" */

struct ts_encoder {
    ts_codec_spec spec;
    ts_encoder_transform transform;
    /* One step. */
    ts_encode_input input;
    ts_sweep sweep;
    ts_stage_args select_args;
    size_t selected;
    float max_abs; /* of the tensor when it has one scale */
    uint64_t key;
    ts_encode_report report;
};

terse_status ts_encoder_create(const ts_codec_spec *spec, ts_encoder **out) {
    TS_REQUIRE(spec->pipeline && spec->slice_elems > 0 && spec->n <= UINT32_MAX, TERSE_EINVAL);
    ts_encoder *encoder = ts_mem_calloc(1, sizeof *encoder);
    TS_REQUIRE(encoder, TERSE_ENOMEM);
    encoder->spec = *spec;
    terse_status status = ts_encoder_transform_create(spec, &encoder->transform);
    if (status == TERSE_OK) *out = encoder;
    else ts_mem_free(encoder);
    return status;
}

void ts_encoder_destroy(ts_encoder *encoder) {
    if (!encoder) return;
    ts_encoder_transform_destroy(&encoder->transform);
    ts_mem_free(encoder);
}

size_t ts_encoder_bytes(const ts_encoder *encoder) {
    return sizeof *encoder + ts_encoder_transform_bytes(&encoder->transform);
}

float *ts_encoder_memory(ts_encoder *encoder, size_t *count) {
    const ts_transform_view *view = &encoder->transform.view;
    *count = encoder->transform.memory ? view->stage->memory(view) : 0;
    return encoder->transform.memory;
}

ts_decode_state *ts_encoder_sent(ts_encoder *encoder, uint32_t slice) {
    return encoder->transform.sent && slice < encoder->transform.slices ? encoder->transform.sent[slice] : NULL;
}

/* The lists of one step, side by side in as few pages as possible. */
typedef struct {
    ts_candidates candidates;
    uint32_t *slice_index; /* of one slice's elements, relative to it */
    size_t bytes;
} step_lists;

static step_lists lists_in(const ts_encoder *e, void *memory) {
    const ts_select_stage *select = e->spec.pipeline->select;
    size_t n = e->spec.n, longest = n < e->spec.slice_elems ? n : e->spec.slice_elems;
    size_t room = select->capacity(&e->select_args, n);
    size_t counts[] = {room, room, select->ranks ? room : 1, room < longest ? room : longest};
    uint32_t *at[4];
    step_lists lists = {.candidates.capacity = room};
    for (size_t i = 0; i < 4; i++) {
        at[i] = memory ? (uint32_t *)(void *)((char *)memory + lists.bytes) : NULL;
        lists.bytes += (counts[i] * sizeof **at + TS_CACHE_LINE - 1) / TS_CACHE_LINE * TS_CACHE_LINE;
    }
    lists.candidates.index = at[0];
    lists.candidates.bits = at[1];
    lists.candidates.order = at[2];
    lists.slice_index = at[3];
    return lists;
}

/* All memory this step can need, so that nothing fails once the residual changes. */
static terse_status reserve(const ts_encoder *e, ts_scratch *scratch, ts_candidates *candidates) {
    const ts_pipeline *p = e->spec.pipeline;
    size_t n = e->spec.n, longest = n < e->spec.slice_elems ? n : e->spec.slice_elems;
    if (p->select) {
        void *memory = ts_scratch_reserve(scratch, TS_SLOT_LISTS, lists_in(e, NULL).bytes);
        TS_REQUIRE(memory, TERSE_ENOMEM);
        *candidates = lists_in(e, memory).candidates;
        if (!p->select->sends_indices) {
            TS_REQUIRE(ts_scratch_reserve(scratch, TS_SLOT_BITMAP, (longest + 63) / 64 * sizeof(uint64_t)),
                       TERSE_ENOMEM);
        }
    }
    TS_TRY(ts_encoder_transform_reserve(&e->transform, &e->spec, scratch));
    if (p->bytes[0] && n > 0) {
        ts_packet_slice slice = ts_packet_slice_of(&e->spec, ts_scratch_kernels(scratch), 0, 0);
        size_t inner = ts_packet_inner_bound(&slice, longest);
        size_t swap = p->bytes[0]->bound(inner, &p->bytes_args[0]);
        if (swap < inner) swap = inner;
        TS_REQUIRE(ts_scratch_reserve(scratch, TS_SLOT_STAGED, inner), TERSE_ENOMEM);
        TS_REQUIRE(ts_scratch_reserve(scratch, TS_SLOT_STAGED_SWAP, swap + TS_VARINT_MAX_BYTES), TERSE_ENOMEM);
    }
    return TERSE_OK;
}

/* Without a selector: is the input fit, and what is left for the slices to do. */
static void begin_dense(ts_encoder *e, ts_scratch *scratch, const ts_kernels *kernels) {
    ts_sweep *s = &e->sweep;
    size_t n = e->spec.n, known = s->bad_count, first = s->bad_first;
    bool refused = known > 0 && s->policy != TS_NONFINITE_ZERO;
    bool one_scale = e->spec.pipeline->quantise_args.whole_tensor;
    if (refused || one_scale) {
        if (s->gradient || one_scale) e->max_abs = ts_bits_float(kernels->sweep(s, 0, n));
        s->gradient = NULL;
        if (known > 0) { /* else the sweep found out */
            s->bad_count = known;
            s->bad_first = first;
        }
        if (e->transform.sent && !refused) {
            e->max_abs = ts_encoder_delta_max(&e->transform, scratch, &e->spec, s->residual, e->input.step);
        }
    }
    e->selected = n;
}

/* Whether a residual that counts as 0 need not be had: floats as they are leave nothing of it either. */
static bool leaves_residual(const ts_encoder *e, const ts_encode_input *input) {
    const ts_pipeline *p = e->spec.pipeline;
    bool dense = !p->select && !e->transform.view.stage && !e->transform.sent;
    return dense && p->quantise->take_in && p->quantise->lossless && input->gradient && !input->velocity &&
           !input->params && input->nonfinite != TS_NONFINITE_SKIP;
}

/* The residual times beta; returns the sum of what it loses, in four lanes. */
static double decay_residual(float *residual, size_t n, float beta) {
    double lost[4] = {0};
    for (size_t i = 0; i < n; i++) {
        float before = residual[i];
        residual[i] = ts_flush(beta * before);
        lost[i % 4] += (double)before - (double)residual[i];
    }
    return (lost[0] + lost[2]) + (lost[1] + lost[3]);
}

/* The tensor's largest selected value, for one scale a tensor. */
static float selected_max(const ts_encoder *e, const ts_kernels *kernels, const ts_candidates *c) {
    if (e->spec.pipeline->select->sends_indices) {
        uint32_t top = 0;
        for (size_t i = 0; i < c->count; i++) top = (c->bits[i] & TS_ABS_MASK) > top ? c->bits[i] & TS_ABS_MASK : top;
        return ts_bits_float(top);
    }
    return ts_bits_float(kernels->max_abs(e->input.residual, e->spec.n));
}

static void begin_sparse(ts_encoder *e, const ts_kernels *kernels, const ts_candidates *candidates) {
    ts_selection selection = {.kernels = kernels,
                              .args = &e->select_args,
                              .n = e->spec.n,
                              .key = e->key,
                              .unbiased = e->input.unbiased,
                              .origin = e->spec.origin,
                              .sweep = &e->sweep,
                              .candidates = *candidates};
    e->spec.pipeline->select->select(&selection);
    e->selected = selection.candidates.count;
    if (e->spec.pipeline->quantise_args.whole_tensor) e->max_abs = selected_max(e, kernels, &selection.candidates);
}

terse_status ts_encoder_begin(ts_encoder *e, ts_scratch *scratch, const ts_encode_input *input,
                              ts_encode_report *report) {
    const ts_codec_spec *spec = &e->spec;
    const ts_kernels *kernels = ts_scratch_kernels(scratch);
    ts_candidates candidates = {0};
    e->select_args = spec->pipeline->select_args;
    if (spec->pipeline->select && spec->pipeline->select->takes_ratio && input->ratio > 0) {
        e->select_args.value[0] = input->ratio < 1 ? input->ratio : 1;
    }
    TS_TRY(reserve(e, scratch, &candidates));
    e->input = *input;
    e->sweep = (ts_sweep){.gradient = input->gradient,
                          .scale = input->gradient_scale,
                          .residual = input->residual,
                          .velocity = input->velocity,
                          .momentum = input->momentum,
                          .nesterov = input->nesterov,
                          .params = input->params,
                          .weight_decay = input->weight_decay,
                          .guard = input->guard,
                          .policy = input->nonfinite};
    e->key = ts_random_key(spec->seed, input->step, spec->tensor, spec->worker,
                           PURPOSE_VALUES + (uint64_t)spec->direction);
    e->sweep.blank = input->blank && leaves_residual(e, input);
    if (input->blank && !e->sweep.blank && spec->n > 0) memset(input->residual, 0, spec->n * sizeof *input->residual);
    e->selected = 0;
    if (input->guard) kernels = ts_guard_begin(input->guard, kernels, spec->tensor, input->residual, input->velocity, input->gradient);
    double let_go = 0;
    if (input->gradient && input->decay > 0 && input->decay < 1 && !e->sweep.blank && !ts_pipeline_replaces(spec->pipeline)) {
        let_go = decay_residual(input->residual, spec->n, input->decay);
    }
    size_t left_out = 0, left_out_first = 0;
    if (spec->n > 0) {
        bool low_rank = e->transform.view.stage != NULL, dense = !spec->pipeline->select && !low_rank;
        bool skip = input->gradient && input->nonfinite == TS_NONFINITE_SKIP && !ts_pipeline_replaces(spec->pipeline);
        bool as_it_goes = dense && input->gradient && !e->transform.sent; /* ts_dense_write finds out by itself */
        if (skip || (dense && !as_it_goes)) ts_look_ahead(kernels, &e->sweep, spec->n);
        if (skip && e->sweep.bad_count > 0) {
            left_out = e->sweep.bad_count;
            left_out_first = e->sweep.bad_first;
            e->sweep.gradient = NULL;
            e->sweep.bad_count = 0;
            if (dense) ts_look_ahead(kernels, &e->sweep, spec->n);
        }
        if (low_rank) {
            ts_encoder_transform_analyse(&e->transform, scratch, &e->sweep, e->key);
            e->selected = spec->n;
        } else if (dense) {
            begin_dense(e, scratch, kernels);
        } else {
            begin_sparse(e, kernels, &candidates);
        }
    }
    bool refused = e->sweep.bad_count > 0 && e->sweep.policy != TS_NONFINITE_ZERO;
    e->report = (ts_encode_report){.selected = refused ? 0 : e->selected,
                                   .let_go = let_go,
                                   .nonfinite_count = e->sweep.bad_count + left_out,
                                   .nonfinite_first = e->sweep.bad_count ? e->sweep.bad_first : left_out_first};
    if (report) *report = e->report;
    return refused ? TERSE_ENONFINITE : TERSE_OK;
}

void ts_encoder_report(const ts_encoder *e, ts_encode_report *report) { *report = e->report; }

/* The selected elements of one slice: candidates [low, low + count). */
static size_t slice_range(const ts_encoder *e, const ts_scratch *scratch, uint32_t slice, size_t *low) {
    if (!e->spec.pipeline->select->sends_indices) {
        *low = 0;
        return ts_packet_share(&e->spec, slice, e->selected);
    }
    const uint32_t *index = lists_in(e, ts_scratch_slot_data(scratch, TS_SLOT_LISTS)).candidates.index;
    size_t first = ts_codec_slice_first(&e->spec, slice), end = first + ts_codec_slice_elems(&e->spec, slice);
    size_t at[2];
    for (int side = 0; side < 2; side++) {
        size_t border = side ? end : first, from = 0, to = e->selected;
        while (from < to) {
            size_t middle = from + (to - from) / 2;
            if (index[middle] < border) from = middle + 1;
            else to = middle;
        }
        at[side] = from;
    }
    *low = at[0];
    return at[1] - at[0];
}

size_t ts_encoder_bound(const ts_encoder *e, const ts_scratch *scratch, uint32_t slice) {
    ts_packet_slice s = ts_packet_slice_of(&e->spec, ts_scratch_kernels(scratch), slice, e->input.step);
    size_t low, k = e->spec.pipeline->select ? slice_range(e, scratch, slice, &low) : s.n;
    return ts_packet_bound(&s, k);
}

bool ts_encoder_fixed(const ts_encoder *e) {
    const ts_pipeline *p = e->spec.pipeline;
    return !p->select && !p->bytes[0] && !e->transform.view.stage;
}

const float *ts_encoder_unchanged(const ts_encoder *e, uint32_t slice) {
    const ts_pipeline *p = e->spec.pipeline;
    bool floats = p->quantise->lossless && p->quantise->sum && !p->bytes[0];
    if (!e->sweep.blank || !floats || e->input.gradient_scale != 1.0f) return NULL;
    return e->input.gradient + ts_codec_slice_first(&e->spec, slice);
}

static void scatter(float *to, const uint32_t *index, const float *x, size_t k) {
    for (size_t i = 0; i < k; i++) to[index[i]] = x[i];
}

/* What a sparse packet took, and what stays of it. */
typedef struct {
    const uint32_t *index; /* relative to the slice */
    const float *value;
    size_t k;
} taken_out;

static void take_out(ts_encoder *e, uint32_t number, size_t first, const taken_out *t, size_t len) {
    bool masks = e->input.velocity && e->input.masking;
    if (e->input.guard)
        ts_guard_list(e->input.guard, number, first, t->index, t->value, t->k, masks, e->input.step, len);
    scatter(e->input.residual + first, t->index, t->value, t->k);
    for (size_t i = 0; masks && i < t->k; i++) e->input.velocity[first + t->index[i]] = 0.0f;
}

static terse_status write_sparse(ts_encoder *e, ts_scratch *scratch, const ts_packet_slice *slice, size_t low, size_t k,
                                 uint8_t *out, size_t capacity, size_t *len, taken_out *t) {
    const step_lists lists = lists_in(e, ts_scratch_slot_data(scratch, TS_SLOT_LISTS));
    uint32_t *relative = lists.slice_index;
    float *residual = e->input.residual + slice->first, *values;
    float max_abs = e->max_abs;
    bool replaces = slice->pipeline->select->replaces;
    if (slice->pipeline->select->sends_indices) {
        const uint32_t *index = lists.candidates.index + low;
        values = (float *)(void *)lists.candidates.bits + low;
        for (size_t i = 0; i < k; i++) relative[i] = index[i] - (uint32_t)slice->first;
    } else {
        slice->pipeline->select->regenerate(slice->key, k, slice->n, ts_scratch_slot_data(scratch, TS_SLOT_BITMAP),
                                            relative);
        values = (float *)(void *)lists.candidates.bits;
        float gain = e->input.unbiased ? (float)((double)slice->n / (double)k) : 1.0f;
        for (size_t i = 0; i < k; i++) values[i] = ts_scaled_up(residual[relative[i]], gain);
        max_abs = ts_scaled_up(max_abs, gain);
    }
    if (replaces) { /* the reference moves first, and then has all values that may have to be written */
        scatter(residual, relative, values, k);
        return ts_packet_write_exact(slice, relative, values, k, residual, out, capacity, len);
    }
    const float *near = slice->pipeline->select->sends_indices ? residual : NULL; /* else they were just read */
    if (near && slice->n / FAR_APART > k) {
        for (size_t i = 0; i < k; i++) __builtin_prefetch(near + relative[i], 0, 2);
        near = NULL;
    }
    TS_TRY(ts_packet_write_sparse(slice, relative, values, k, max_abs, near, out, capacity, len));
    *t = (taken_out){relative, values, k};
    return TERSE_OK;
}

terse_status ts_encoder_slice(ts_encoder *e, ts_scratch *scratch, uint32_t slice, uint8_t *out, size_t capacity,
                              size_t *len) {
    ts_packet_slice s = ts_packet_slice_of(&e->spec, ts_scratch_kernels(scratch), slice, e->input.step);
    bool sparse = e->spec.pipeline->select != NULL;
    size_t low = 0, k = sparse ? slice_range(e, scratch, slice, &low) : s.n, written = 0;
    TS_REQUIRE(capacity >= ts_packet_bound(&s, k), TERSE_ENOSPACE);
    s.format.block.key = e->key;
    s.format.block.unbiased = e->input.unbiased;
    s.format.beyond = &e->report.beyond;

    bool wrapped = e->spec.pipeline->bytes[0] != NULL;
    uint8_t *inner = wrapped ? ts_scratch_slot_data(scratch, TS_SLOT_STAGED) : out;
    taken_out taken = {0};
    if (e->input.guard && !sparse) {
        if (wrapped) inner = e->input.guard->staged;
        ts_guard_dense(e->input.guard, slice, s.first);
    }
    if (sparse) {
        TS_TRY(write_sparse(e, scratch, &s, low, k, inner, ts_packet_inner_bound(&s, k), &written, &taken));
    } else if (e->transform.sent) {
        written =
            ts_encoder_delta_write(&e->transform, scratch, &s, slice, &e->sweep, e->input.step, e->max_abs, inner);
    } else if (s.view.stage) {
        written = ts_encoder_transform_write(&e->transform, scratch, &s, e->input.residual, inner);
    } else {
        TS_TRY(ts_dense_write(&s, &e->sweep, e->spec.n, e->max_abs, &e->report, inner, &written));
    }
    if (wrapped) TS_TRY(ts_packet_wrap(&s, scratch, inner, written, out, capacity, &written));
    if (sparse) take_out(e, slice, s.first, &taken, written);
    *len = written;
    return TERSE_OK;
}

terse_status ts_encoder_take_back(ts_encoder *e, ts_scratch *scratch, uint32_t slice, uint64_t step,
                                  const uint8_t *packet, size_t len, float *residual) {
    if (!e->transform.sent) return ts_decode_add(scratch, &e->spec, NULL, slice, step, packet, len, residual);
    TS_REQUIRE(slice < e->transform.slices, TERSE_ECORRUPT);
    ts_decode_state *sent = e->transform.sent[slice];
    TS_REQUIRE(sent->known && sent->step == step, TERSE_ECORRUPT);
    ts_scratch_kernels(scratch)->add(residual, sent->value, sent->n);
    sent->known = false;
    return TERSE_OK;
}

void ts_encoder_restart(ts_encoder *e, uint32_t slice) {
    if (e->transform.sent && slice < e->transform.slices) e->transform.sent[slice]->known = false;
}
