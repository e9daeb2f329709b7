/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/encoder_dense.h"

#include "common/base/mem.h"
#include "common/codec/guard.h"

#define ASK_ELEMS 2048u /* so short blocks are too short for the hardware to see what comes next */

static float scaled_input(const ts_sweep *s, size_t i) {
    float g = s->gradient[i] * s->scale;
    return s->params ? g + s->weight_decay * s->params[i] : g;
}

void ts_look_ahead(const ts_kernels *kernels, ts_sweep *s, size_t n) {
    const float *x = s->gradient ? s->gradient : s->residual;
    bool may_overflow = s->gradient && (s->params || !(s->scale >= -1.0f && s->scale <= 1.0f));
    if (!may_overflow) {
        s->bad_count = kernels->nonfinite(x, n, &s->bad_first);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        float g = scaled_input(s, i);
        if ((ts_float_bits(g) & TS_ABS_MASK) < TS_INF_BITS) continue;
        if (s->bad_count++ == 0) s->bad_first = i;
    }
}

/* What is taken in next is asked for from memory while a block is encoded. */
static void ask(const ts_sweep *s, size_t first, size_t end) {
    for (size_t i = first; i < end; i += TS_CACHE_LINE / sizeof(float)) {
        __builtin_prefetch(s->residual + i, 1);
        if (s->gradient) __builtin_prefetch(s->gradient + i);
        if (s->velocity) __builtin_prefetch(s->velocity + i, 1);
    }
}

/* Gives back what the blocks in out[written] said, the slice's first elements. */
static void take_back_blocks(const ts_packet_slice *slice, const uint8_t *out, size_t written, float *residual) {
    ts_block_format format = slice->format;
    size_t base = format.block.first;
    for (size_t at = 0, done = 0; done < written;) {
        size_t n = ts_block_elems(&format, slice->n - at);
        format.block.first = base + at;
        ts_block_add(&format, out + done, n, residual + at);
        done += ts_block_bytes(&format, n);
        at += n;
    }
}

/* The slice is refused with `taken` elements in already: all finite ones are taken in, the others counted. */
static void refuse(const ts_packet_slice *slice, ts_sweep *sweep, size_t elems, const uint8_t *out, size_t written,
                   size_t taken, ts_encode_report *report) {
    const ts_kernels *kernels = slice->format.block.kernels;
    if (sweep->guard) ts_guard_settle(sweep->guard); /* the worker ends here; what is taken back now is not again */
    if (!sweep->blank) {
        take_back_blocks(slice, out, written, sweep->residual + slice->first);
        (void)kernels->sweep(sweep, slice->first + taken, slice->first + slice->n);
    }
    ts_sweep probe = *sweep;
    probe.bad_count = 0;
    ts_look_ahead(kernels, &probe, elems);
    report->nonfinite_count = probe.bad_count;
    report->nonfinite_first = probe.bad_first;
}

/* Sweep and encoding block by block. Returns how many elements were taken in: all of them, or up to what is refused. */
static size_t write_blocks(const ts_packet_slice *slice, ts_sweep *sweep, float max_abs, uint8_t *out, size_t *written) {
    ts_block_format format = slice->format;
    const ts_kernels *kernels = format.block.kernels;
    size_t base = format.block.first, bad = sweep->bad_count, at = 0;
    while (at < slice->n) {
        size_t left = slice->n - at, n = ts_block_elems(&format, left), first = slice->first + at;
        double sums[2];
        if (sweep->guard) ts_guard_open(sweep->guard, 0, first, n);
        if (format.stage->sums) {
            max_abs = ts_bits_float(kernels->sweep_sums(sweep, first, first + n, format.stage->sums, sums));
            format.block.sums = sums;
        } else if (!format.whole_tensor && (sweep->gradient || format.stage->scales > 0)) {
            max_abs = ts_bits_float(kernels->sweep(sweep, first, first + n));
        }
        if (sweep->bad_count > bad && sweep->policy != TS_NONFINITE_ZERO) return at + n;
        if (n <= ASK_ELEMS) ask(sweep, first + n, first + (left < 2 * n ? left : 2 * n));
        format.block.first = base + at;
        *written += ts_block_write(&format, sweep->residual + first, n, max_abs, out + *written);
        at += n;
        if (sweep->guard) ts_guard_close(sweep->guard, 0, first + n);
    }
    return at;
}

/* The same with each block encoded while the next one is taken in, for stages that have a kernel for that. */
static size_t write_beside(const ts_packet_slice *slice, ts_sweep *sweep, uint8_t *out, size_t *written) {
    ts_block_format format = slice->format;
    const ts_kernels *kernels = format.block.kernels;
    size_t base = format.block.first, bad = sweep->bad_count, at = 0, n = 0, next = ts_block_elems(&format, slice->n);
    ts_beside work = {.kind = TS_BESIDE_NONE};
    double sums[2];
    format.block.sums = format.stage->sums ? sums : NULL;
    for (;;) {
        size_t first = slice->first + at + n;
        float scales[TS_BLOCK_SCALES] = {0};
        uint32_t bits = kernels->sweep_beside(sweep, first, first + next, format.stage->sums, sums, &work);
        if (n > 0) *written += ts_block_bytes(&format, n);
        at += n;
        if (sweep->bad_count > bad && sweep->policy != TS_NONFINITE_ZERO) return at + next;
        if (next == 0) return at;
        n = next;
        next = at + n < slice->n ? ts_block_elems(&format, slice->n - at - n) : 0;
        work = (ts_beside){.x = sweep->residual + first, .n = n, .out = out + *written};
        format.block.max_abs = ts_bits_float(bits);
        format.block.first = base + at;
        work.out += ts_block_write_scales(&format, work.x, n, format.block.max_abs, work.out, scales);
        format.stage->beside(&format.block, scales, n, &work);
    }
}

/* Sweep and writing in one pass; with a guard in pieces that it can take, which are whole blocks where those are short. */
static void take_in(const ts_packet_slice *slice, ts_sweep *sweep, uint8_t *out, size_t *beyond) {
    size_t most = sweep->guard ? TS_GUARD_BLOCK : slice->n;
    for (size_t at = 0, n; at < slice->n; at += n) {
        size_t first = slice->first + at;
        ts_quantise_block block = slice->format.block;
        n = slice->n - at < most ? slice->n - at : most;
        block.first += at;
        if (sweep->guard) ts_guard_open(sweep->guard, 0, first, n);
        slice->format.stage->take_in(&block, sweep, first, first + n, out + ts_blocks_bytes(&slice->format, at), beyond);
        if (sweep->guard) ts_guard_close(sweep->guard, 0, first + n);
    }
}

terse_status ts_dense_write(const ts_packet_slice *slice, ts_sweep *sweep, size_t elems, float tensor_max,
                            ts_encode_report *report, uint8_t *out, size_t *len) {
    const ts_quantise_stage *stage = slice->format.stage;
    size_t written = 0, taken = slice->n, bad = sweep->bad_count;
    if (stage->take_in) {
        take_in(slice, sweep, out, &report->beyond);
        written = ts_blocks_bytes(&slice->format, slice->n);
    } else if (stage->beside && sweep->gradient && !sweep->guard && !slice->format.whole_tensor) {
        taken = write_beside(slice, sweep, out, &written);
    } else {
        taken = write_blocks(slice, sweep, tensor_max, out, &written);
    }
    if (sweep->bad_count > bad && sweep->policy != TS_NONFINITE_ZERO) {
        refuse(slice, sweep, elems, out, written, taken, report);
        return TERSE_ENONFINITE;
    }
    if (sweep->gradient && sweep->bad_count > bad) { /* without one it was looked for before */
        if (report->nonfinite_count == 0 || sweep->bad_first < report->nonfinite_first)
            report->nonfinite_first = sweep->bad_first;
        report->nonfinite_count += sweep->bad_count - bad;
    }
    *len = written;
    return TERSE_OK;
}
