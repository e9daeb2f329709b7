/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/encoder_dense.h"

#include "common/base/mem.h"

#define CHUNK_ELEMS 1024u           /* of quantisers without blocks: a half of the first-level cache, with the gradient */
#define ASK_ELEMS 2048u             /* so short chunks are too short for the hardware to see what comes next */

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

/* What is taken in next is asked for from memory while a chunk is encoded. */
static void ask(const ts_sweep *s, size_t first, size_t end) {
    for (size_t i = first; i < end; i += TS_CACHE_LINE / sizeof(float)) {
        __builtin_prefetch(s->residual + i, 1);
        if (s->gradient) __builtin_prefetch(s->gradient + i);
        if (s->velocity) __builtin_prefetch(s->velocity + i, 1);
    }
}

/* How many values of a dense slice are taken in and written together. */
static size_t chunk_elems(const ts_block_format *format, size_t left) {
    size_t n = ts_block_elems(format, left);
    bool any_cut = format->stage->scales == 0 && format->stage->block_elems == 0;
    return any_cut && n > CHUNK_ELEMS ? CHUNK_ELEMS : n;
}

/* Gives back what the chunks in `out` said, the slice's first `done` elements. */
static void take_back_chunks(const ts_packet_slice *slice, const uint8_t *out, float *residual, size_t done) {
    ts_block_format format = slice->format;
    size_t base = format.block.first;
    for (size_t at = 0; at < done;) {
        size_t n = chunk_elems(&format, slice->n - at);
        format.block.first = base + at;
        ts_block_add(&format, out, n, residual + at);
        out += ts_block_bytes(&format, n);
        at += n;
    }
}

/* The slice is refused after `done` elements, with n more in already: all finite ones are taken in, the others counted. */
static void refuse(const ts_packet_slice *slice, ts_sweep *sweep, size_t elems, const uint8_t *out, size_t done, size_t n,
                   ts_encode_report *report) {
    const ts_kernels *kernels = slice->format.block.kernels;
    take_back_chunks(slice, out, sweep->residual + slice->first, done);
    (void)kernels->sweep(sweep, slice->first + done + n, slice->first + slice->n);
    ts_sweep probe = *sweep;
    probe.bad_count = 0;
    ts_look_ahead(kernels, &probe, elems);
    report->nonfinite_count = probe.bad_count;
    report->nonfinite_first = probe.bad_first;
}

terse_status ts_dense_write(const ts_packet_slice *slice, ts_sweep *sweep, size_t elems, float tensor_max,
                            ts_encode_report *report, uint8_t *out, size_t *len) {
    ts_block_format format = slice->format;
    const ts_kernels *kernels = format.block.kernels;
    size_t written = 0, base = format.block.first, bad = sweep->bad_count;
    for (size_t at = 0; at < slice->n;) {
        size_t left = slice->n - at, n = chunk_elems(&format, left), first = slice->first + at;
        float max_abs = tensor_max;
        double sums[2];
        if (format.stage->sums) {
            max_abs = ts_bits_float(kernels->sweep_sums(sweep, first, first + n, sums));
            format.block.sums = sums;
        } else if (!format.whole_tensor && (sweep->gradient || format.stage->scales > 0 || format.stage->most > 0)) {
            max_abs = ts_bits_float(kernels->sweep(sweep, first, first + n));
        }
        if (sweep->bad_count > bad && sweep->policy != TS_NONFINITE_ZERO) {
            refuse(slice, sweep, elems, out, at, n, report);
            return TERSE_ENONFINITE;
        }
        if (n <= ASK_ELEMS) ask(sweep, first + n, first + (left < 2 * n ? left : 2 * n));
        format.block.first = base + at;
        written += ts_block_write(&format, sweep->residual + first, n, max_abs, out + written);
        at += n;
    }
    if (sweep->bad_count > bad) {
        if (report->nonfinite_count == 0 || sweep->bad_first < report->nonfinite_first)
            report->nonfinite_first = sweep->bad_first;
        report->nonfinite_count += sweep->bad_count - bad;
    }
    *len = written;
    return TERSE_OK;
}
