/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/guard.h"

#include <assert.h>
#include <string.h>

#define ELEMS_BITS TS_UNDO_BITS
#define ELEMS_MASK (((uint64_t)1 << ELEMS_BITS) - 1)

static uint64_t block_at(size_t first, size_t n) { return (uint64_t)first << ELEMS_BITS | (uint64_t)n; }

/* The compiler stores nothing earlier or later than it stands here. */
static void in_order(void) { atomic_signal_fence(memory_order_seq_cst); }

static void set_phase(ts_guard *g, ts_guard_phase phase) {
    in_order();
    atomic_store_explicit(&g->record->phase, (uint32_t)phase, memory_order_relaxed);
    in_order();
}

static void set_lane(ts_guard *g, unsigned lane, uint64_t value) {
    in_order();
    atomic_store_explicit(&g->record->lane[lane], value, memory_order_relaxed);
    in_order();
}

static float *undo_of(ts_guard *g, unsigned lane) { return g->undo + (size_t)2 * lane * TS_GUARD_UNDO; }

bool ts_guard_can(const ts_pipeline *p) {
    return !p->transform && (p->select || !p->quantise_args.whole_tensor);
}

size_t ts_guard_undo_bytes(void) { return (size_t)2 * TS_GUARD_LANES * TS_GUARD_UNDO * sizeof(float); }

/*
 * Copies n elements, and asks for the next n of both arrays meanwhile: what the sweep works on is then in the cache, and
 * memory serves three streams at once as it does without a guard.
 */
static void copy_and_ask(float *to, const float *from, size_t n, const float *beside) {
    enum { LINE = 16 };
    size_t i = 0;
    for (; i + LINE <= n; i += LINE) {
        __builtin_prefetch(from + n + i, 1);
        if (beside) __builtin_prefetch(beside + n + i);
        memcpy(to + i, from + i, LINE * sizeof *to);
    }
    memcpy(to + i, from + i, (n - i) * sizeof *to);
}

void ts_guard_open(ts_guard *g, unsigned lane, size_t first, size_t n) {
    float *undo = undo_of(g, lane);
    assert(n <= TS_GUARD_UNDO);
    copy_and_ask(undo, g->residual + first, n, g->gradient ? g->gradient + first : NULL);
    if (g->velocity) copy_and_ask(undo + TS_GUARD_UNDO, g->velocity + first, n, NULL);
    set_lane(g, lane, block_at(first, n));
}

void ts_guard_close(ts_guard *g, unsigned lane, size_t done) { set_lane(g, lane, block_at(done, 0)); }

/* Whether a sweep changes what is guarded: not when it only looks, or works on samples. */
static bool minds(const ts_sweep *s) { return s->guard->residual == s->residual && s->gradient; }

static size_t shorter(size_t a, size_t b) { return a < b ? a : b; }

/* The blocks that select() saves by itself while it works. */
static void save_from(ts_guard *g, unsigned lane, size_t first) {
    float *undo = undo_of(g, lane);
    set_lane(g, lane, block_at(first, 0));
    g->saved[lane] = (ts_undo){undo, undo + TS_GUARD_UNDO, first, &g->record->lane[lane]};
}

static size_t select_one(ts_sweep *s, size_t first, size_t end, ts_candidates *c) {
    ts_guard *g = s->guard;
    if (!minds(s)) return g->inner->select(s, first, end, c);
    while (first < end) {
        size_t to = first + shorter(TS_GUARD_BLOCK, end - first);
        save_from(g, 0, first);
        g->saved[1].word = NULL;
        s->undo = g->saved;
        first = g->inner->select(s, first, to, c);
        s->undo = NULL;
        ts_guard_close(g, 0, first);
        if (first < to) break;
    }
    return first;
}

static size_t select_two(ts_sweep *s, size_t first, size_t end, size_t half, ts_candidates c[2]) {
    ts_guard *g = s->guard;
    if (!minds(s)) return g->inner->select_pair(s, first, end, half, c);
    while (first < end) {
        size_t to = first + shorter(TS_GUARD_BLOCK, end - first);
        save_from(g, 0, first);
        save_from(g, 1, half + first);
        s->undo = g->saved;
        first = g->inner->select_pair(s, first, to, half, c);
        s->undo = NULL;
        ts_guard_close(g, 0, first);
        ts_guard_close(g, 1, half + first);
        if (first < to) break;
    }
    return first;
}

static uint32_t sweep(ts_sweep *s, size_t first, size_t end) {
    ts_guard *g = s->guard;
    uint32_t top = 0;
    if (!minds(s)) return g->inner->sweep(s, first, end);
    while (first < end) {
        size_t to = first + shorter(TS_GUARD_BLOCK, end - first);
        ts_guard_open(g, 0, first, to - first);
        uint32_t bits = g->inner->sweep(s, first, to);
        ts_guard_close(g, 0, to);
        top = bits > top ? bits : top;
        first = to;
    }
    return top;
}

const ts_kernels *ts_guard_begin(ts_guard *g, const ts_kernels *kernels, uint32_t tensor, float *residual,
                                 float *velocity, const float *gradient) {
    set_phase(g, TS_GUARD_IDLE);
    g->residual = residual;
    g->velocity = velocity;
    g->gradient = gradient;
    g->inner = kernels;
    g->kernels = *kernels;
    g->kernels.select = select_one;
    g->kernels.select_pair = select_two;
    g->kernels.sweep = sweep;
    g->record->tensor = tensor;
    for (unsigned lane = 0; lane < TS_GUARD_LANES; lane++) set_lane(g, lane, 0);
    set_phase(g, TS_GUARD_SWEEP);
    return &g->kernels;
}

void ts_guard_dense(ts_guard *g, uint32_t slice, size_t first) {
    set_phase(g, TS_GUARD_SWEEP); /* no block is at work, so nothing is to be done about it */
    g->record->slice = slice;
    set_lane(g, 0, block_at(first, 0));
    set_phase(g, TS_GUARD_DENSE);
}

/* Fills the list and makes it count. */
static void list(ts_guard *g, size_t first, const uint32_t *index, const float *value, size_t count) {
    ts_guard_record *r = g->record;
    if (index) memcpy(g->put_index, index, count * sizeof *index);
    if (value != g->put_value) memcpy(g->put_value, value, count * sizeof *value);
    r->put_dense = !index;
    r->put_first = (uint32_t)first;
    r->put_count = (uint32_t)count;
    set_phase(g, TS_GUARD_PUT);
}

void ts_guard_list(ts_guard *g, uint32_t slice, size_t first, const uint32_t *index, const float *value, size_t count,
                   bool masks, uint64_t step, size_t len) {
    ts_guard_record *r = g->record;
    r->slice = slice;
    r->put_masks = masks;
    r->put_effect = TS_GUARD_MAKES;
    r->put_then = TS_GUARD_IDLE;
    r->put_lane = 0;
    r->put_step = step;
    r->put_len = len;
    list(g, first, index, value, count);
}

static void put(ts_guard *g, float *residual, float *velocity) {
    const ts_guard_record *r = g->record;
    for (size_t i = 0; i < r->put_count; i++) {
        size_t at = r->put_first + (r->put_dense ? i : g->put_index[i]);
        residual[at] = g->put_value[i];
        if (r->put_masks && velocity) velocity[at] = 0.0f;
    }
}

void ts_guard_give_back(ts_guard *g, uint32_t tensor, uint32_t slice, size_t first, const ts_decoded *said,
                        float *residual) {
    ts_guard_record *r = g->record;
    set_phase(g, TS_GUARD_IDLE);
    for (size_t i = 0; i < said->count; i++)
        g->put_value[i] = residual[first + (said->index ? said->index[i] : i)] + said->value[i];
    r->tensor = tensor;
    r->slice = slice;
    r->put_masks = false;
    r->put_effect = TS_GUARD_FREES;
    r->put_then = TS_GUARD_IDLE;
    r->put_lane = 0;
    list(g, first, said->index, g->put_value, said->count);
    put(g, residual, NULL);
}

void ts_guard_settle(ts_guard *g) { set_phase(g, TS_GUARD_IDLE); }

/* ---- after a kill ---- */

void ts_guard_recover(ts_guard *g, float *residual, float *velocity) {
    ts_guard_phase phase = (ts_guard_phase)atomic_load(&g->record->phase);
    if (phase == TS_GUARD_PUT) put(g, residual, velocity);
    for (unsigned lane = 0; (phase == TS_GUARD_SWEEP || phase == TS_GUARD_DENSE) && lane < TS_GUARD_LANES; lane++) {
        uint64_t block = atomic_load(&g->record->lane[lane]);
        size_t first = (size_t)(block >> ELEMS_BITS), n = (size_t)(block & ELEMS_MASK);
        const float *undo = undo_of(g, lane);
        memcpy(residual + first, undo, n * sizeof *undo);
        if (velocity) memcpy(velocity + first, undo + TS_GUARD_UNDO, n * sizeof *undo);
        ts_guard_close(g, lane, first);
    }
    if (phase == TS_GUARD_SWEEP) set_phase(g, TS_GUARD_IDLE);
}

void ts_guard_after_put(ts_guard *g) {
    set_lane(g, 0, g->record->put_lane);
    set_phase(g, (ts_guard_phase)g->record->put_then);
}

void ts_guard_take_back(ts_guard *g, const ts_packet_slice *slice, const uint8_t *bytes, float *residual,
                        float *velocity) {
    ts_guard_record *r = g->record;
    size_t block = ts_block_elems(&slice->format, slice->n), base = slice->format.block.first;
    for (;;) {
        size_t done = (size_t)(atomic_load(&r->lane[0]) >> ELEMS_BITS) - slice->first;
        if (done == 0) break;
        size_t at = (done - 1) / block * block, n = done - at;
        ts_block_format format = slice->format;
        format.block.first = base + at;
        /* Into the list's own memory: it counts only when it is complete. */
        memcpy(g->put_value, residual + slice->first + at, n * sizeof *g->put_value);
        ts_block_add(&format, bytes + ts_blocks_bytes(&format, at), n, g->put_value);
        r->put_masks = false;
        r->put_effect = TS_GUARD_KEEPS;
        r->put_then = TS_GUARD_DENSE;
        r->put_lane = block_at(slice->first + at, 0);
        list(g, slice->first + at, NULL, g->put_value, n);
        put(g, residual, velocity);
        ts_guard_after_put(g);
    }
    set_phase(g, TS_GUARD_IDLE);
}
