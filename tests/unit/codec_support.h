/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor on its way through a pipeline, for the codec's tests. */
#ifndef TS_UNIT_CODEC_SUPPORT_H
#define TS_UNIT_CODEC_SUPPORT_H

#include "common/codec/scratch.h"
#include "tests/unit/unit.h"

/* One tensor of one sender: parsed pipeline, encoder, residual, and the packets of the last step. */
typedef struct {
    ts_pipeline pipeline;
    ts_codec_spec spec;
    int64_t shape[4];
    unsigned ndim; /* 0: no shape is told */
    ts_encoder *encoder;
    ts_scratch *scratch;
    bool own_scratch;
    float *residual;      /* n */
    ts_encode_input input; /* gradient, residual and step are set by ts_unit_encode */
    ts_encode_report report;
    uint32_t slices;
    ts_decode_state **state; /* slices: the receiver's; NULL for what is not stateful */
    /* slices; each exactly its bound long, so that a sanitizer sees one byte too many; NULL when refused */
    uint8_t **packet;
    size_t *len;
    size_t bytes; /* of all packets */
} ts_unit_tensor;

void ts_unit_tensor_open(ts_unit_tensor *tensor, const char *pipeline, size_t n, size_t slice_elems, ts_simd simd);
/*
 * The same with a shape of ndim <= 4 dimensions as equal as n allows; what is not to be cut stays whole.
 * scratch: [borrow] used as it is; NULL for one of its own.
 */
void ts_unit_tensor_open_shaped(ts_unit_tensor *tensor, const char *pipeline, size_t n, unsigned ndim,
                                size_t slice_elems, ts_simd simd, ts_scratch *scratch);
void ts_unit_shape(size_t n, unsigned ndim, int64_t *shape);
void ts_unit_tensor_close(ts_unit_tensor *tensor);
/*
 * One step; fails the test unless it gives `wanted`, TERSE_ENONFINITE from begin() or from a slice, which then has no
 * packet (NULL) while the others have theirs.
 */
void ts_unit_encode(ts_unit_tensor *tensor, const float *gradient, uint64_t step, terse_status wanted);
/* sum[n] += what the packets say; with pipelines that replace, new values take their places. */
void ts_unit_decode_add(ts_unit_tensor *tensor, float *sum);
/* Writes what the packets say into out[n], through ts_decode. Returns the values sent. */
size_t ts_unit_decode(ts_unit_tensor *tensor, float *out);

/* Values of several shapes; kind < TS_UNIT_INPUTS. */
#define TS_UNIT_INPUTS 9
#define TS_UNIT_NORMAL 8u
#define TS_UNIT_MAX 4u   /* the largest float, of both signs */
#define TS_UNIT_SPIKE 6u /* normal values and one of 1e6 in the middle */
const char *ts_unit_input_name(unsigned kind);
void ts_unit_input(unsigned kind, float *x, size_t n, uint64_t seed);

#endif
