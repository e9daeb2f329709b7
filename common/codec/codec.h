/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codec layer's front: pipelines, encoders, decoding. Pure: no MPI, no
 * libuv, no clock; every result is a function of its arguments.
 *
 * A *tensor* of n elements is cut into *slices* of slice_elems (the last may be
 * shorter). Selection and scales look at the whole tensor, packing works slice
 * by slice, and the *packet* of a slice is what travels.
 *
 * Shapes: n = elements of the tensor, k = values sent, all float32.
 */
#ifndef TS_CODEC_H
#define TS_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/codec/pipeline.h"

/* The worker number that stands for the server (downlink). */
#define TS_CODEC_SERVER 0xFFFFFFFFu

typedef enum { TS_PUSH = 0, TS_PULL = 1 } ts_direction;

/* What to do with NaN and infinity in a gradient. They never enter the residual. */
typedef enum {
    TS_NONFINITE_ERROR, /* one sweep: finite elements enter the residual, the others do not; nothing is selected or sent */
    TS_NONFINITE_SKIP,  /* a sweep of its own first: the whole tensor's gradient is left out of this step, and counted */
    TS_NONFINITE_ZERO   /* one sweep: the offending elements count as 0, and are counted */
} ts_nonfinite;

/* What a tensor (or, on the downlink, one slice of it) is to the codec. Both ends build the same. */
typedef struct {
    const ts_pipeline *pipeline; /* [borrow] */
    size_t n;                    /* elements */
    size_t slice_elems;          /* > 0 */
    size_t origin;               /* element of the whole tensor at which this piece begins (keys of randomness) */
    const int64_t *shape;        /* [borrow] ndim extents of the whole tensor; may be NULL when ndim is 0 */
    unsigned ndim;
    uint64_t seed;
    uint32_t tensor;             /* stable id */
    uint32_t worker;             /* or TS_CODEC_SERVER */
    ts_direction direction;
} ts_codec_spec;

/*
 * slice_elems of a tensor that is not to be cut: n when its transform takes the whole tensor (low rank, and the shape
 * suits it), else the slice_elems that is given.
 */
size_t ts_codec_cut_elems(const ts_pipeline *pipeline, const int64_t *shape, unsigned ndim, size_t n, size_t slice_elems);
uint32_t ts_codec_slices(const ts_codec_spec *spec);                       /* 0 for an empty tensor */
size_t ts_codec_slice_first(const ts_codec_spec *spec, uint32_t slice);    /* first element */
size_t ts_codec_slice_elems(const ts_codec_spec *spec, uint32_t slice);    /* elements in it */

/* Working memory of one thread: grows to the largest tensor it has seen, then allocates no more. */
typedef struct ts_scratch ts_scratch;
terse_status ts_scratch_create(ts_scratch **out) TERSE_NODISCARD; /* TERSE_ENOMEM */
void ts_scratch_destroy(ts_scratch *scratch);                     /* NULL is fine */
size_t ts_scratch_bytes(const ts_scratch *scratch);

/* What stays between the steps of one tensor in one direction besides the residual (low-rank factors, what `delta` sent …). */
typedef struct ts_encoder ts_encoder;
/* spec: copied, what it points to is borrowed until destroy. Returns TERSE_EINVAL, TERSE_ENOMEM. */
terse_status ts_encoder_create(const ts_codec_spec *spec, ts_encoder **out) TERSE_NODISCARD;
void ts_encoder_destroy(ts_encoder *encoder);
/* Memory that it holds. */
size_t ts_encoder_bytes(const ts_encoder *encoder);

/*
 * One step's input. The sweep computes, per element i, in float32 and in this order:
 *   g  = gradient[i] * gradient_scale + weight_decay * params[i]      (terms that are absent are skipped)
 *   u  = velocity[i] = momentum * velocity[i] + g ;  v = nesterov ? g + momentum * u : u     (without velocity: v = g)
 *   residual[i] = residual[i] + v
 * |residual| and |velocity| below FLT_MIN are flushed to +0. Then the pipeline takes from the residual what it
 * sends: residual[i] -= decoded(i), and velocity[i] = 0 where i was selected (momentum factor masking, Lin et al. 2018).
 *
 * With a pipeline that replaces (`exact`) the same two arrays are other things: `gradient` is the new values, `residual`
 * the reference, what the receiver holds, and when the last slice is out it holds the new values, bit for bit. Nothing
 * else of the input counts then, and no value is refused.
 */
typedef struct {
    const float *gradient; /* [borrow] n; NULL adds nothing (encode what the residual holds) */
    float gradient_scale;  /* 1 for none */
    float *residual;       /* [borrow] n, in and out */
    float *velocity;       /* [borrow] n, in and out; NULL without momentum correction */
    float momentum;
    bool nesterov;
    bool masking;          /* zero the velocity at selected elements */
    const float *params;   /* [borrow] n; NULL without weight decay */
    float weight_decay;
    float decay;           /* in (0, 1): residual[i] *= decay before anything else, when there is a gradient; 0 keeps it */
    uint64_t step;
    bool blank;            /* the residual counts as 0 and what is left of it is of no use: it need not be touched */
    bool unbiased;         /* no error feedback follows: stochastic stages then keep the expectation (undamped, value / p) */
    double ratio;          /* > 0 replaces the selector's ratio this step (warm-up); 0 keeps it */
    ts_nonfinite nonfinite;
    struct ts_guard *guard;/* [borrow] makes a kill recoverable, see guard.h; NULL for none. Not with transforms, decay or
                              one scale a dense tensor */
} ts_encode_input;

typedef struct {
    size_t selected;          /* values that will be sent (n without a selector) */
    size_t beyond;            /* values that the quantiser could not say in full (fp16: above 65504; int8: 2^120), of the slices so far;
                                 the rest of each stays in the residual */
    size_t nonfinite_count;
    size_t nonfinite_first;   /* index of the first, when count > 0 */
    double let_go;            /* sum of what the residual lost by decay, with its sign */
} ts_encode_report;

/*
 * Takes in one step and selects. Every slice must then be encoded exactly once, with the same scratch, which
 * nobody else uses until the last slice is out; the input's pointers stay borrowed until then.
 * report: [out] may be NULL. Filled on TERSE_OK and TERSE_ENONFINITE. Pipelines that take the gradient in slice by
 * slice (quantisers without selector, transform and one scale a tensor) find what is not finite as they go.
 * Returns: TERSE_OK; TERSE_ENONFINITE (policy ERROR; no slice may be encoded; a later begin without a gradient goes
 * on from what entered); TERSE_ENOMEM (nothing was changed).
 */
terse_status ts_encoder_begin(ts_encoder *encoder, ts_scratch *scratch, const ts_encode_input *input,
                              ts_encode_report *report) TERSE_NODISCARD;
/* Bytes that no packet of this slice exceeds, after begin. */
size_t ts_encoder_bound(const ts_encoder *encoder, const ts_scratch *scratch, uint32_t slice);
/* Whether every packet has exactly that many bytes. */
bool ts_encoder_fixed(const ts_encoder *encoder);
/*
 * The elements of the slice's gradient where a packet of them is the gradient itself, if it is plain (kernels.h): floats
 * as they are, of which no residual is kept. After begin. Returns: [borrow] as the gradient; NULL where it is not so.
 */
const float *ts_encoder_unchanged(const ts_encoder *encoder, uint32_t slice);
/*
 * Writes the packet of one slice. Returns TERSE_OK; TERSE_ENOSPACE (capacity below the bound; nothing changed);
 * TERSE_ENONFINITE (policy ERROR: the slice's finite elements are in the residual, there is no packet, and the report
 * counts the whole gradient; other slices can still be encoded).
 */
terse_status ts_encoder_slice(ts_encoder *encoder, ts_scratch *scratch, uint32_t slice, uint8_t *out, size_t capacity,
                              size_t *len) TERSE_NODISCARD;

/* What is known of the step by now; all of it after the last slice. */
void ts_encoder_report(const ts_encoder *encoder, ts_encode_report *report);

/*
 * Gives a packet back that its receiver refused: residual[i] += what it said, for the slice's elements; what the encoder
 * believes the receiver to hold (`delta`) starts anew. Only the slice's last packet can be given back, and once.
 * Returns: as ts_decode_add.
 */
terse_status ts_encoder_take_back(ts_encoder *encoder, ts_scratch *scratch, uint32_t slice, uint64_t step,
                                  const uint8_t *packet, size_t len, float *residual) TERSE_NODISCARD;

/* What the receiver holds of the slice is not known any more: the next packet is a refresh. For `delta`; nothing else changes. */
void ts_encoder_restart(ts_encoder *encoder, uint32_t slice);

/*
 * What a stateful pipeline (`delta`) remembers of one sender's slice at the receiver; NULL for all others. It advances
 * with each packet; the packet of the step it stands at may be decoded again and says the same. Without a state only
 * packets that refresh can be decoded.
 */
typedef struct ts_decode_state ts_decode_state;
bool ts_pipeline_is_stateful(const ts_pipeline *pipeline);
/* Returns TERSE_EINVAL (the pipeline needs none, no such slice), TERSE_ENOMEM. */
terse_status ts_decode_state_create(const ts_codec_spec *spec, uint32_t slice, ts_decode_state **out) TERSE_NODISCARD;
void ts_decode_state_destroy(ts_decode_state *state); /* NULL is fine */
size_t ts_decode_state_bytes(const ts_decode_state *state); /* memory that it holds */

/*
 * For checkpoints: what an encoder keeps between steps besides the residual, and what a receiver remembers. Values may be
 * written, by whoever owns the encoder or state; with the mark they are all there is.
 */
/* The factors that a low-rank transform starts from: count floats; NULL when there are none. */
float *ts_encoder_memory(ts_encoder *encoder, size_t *count);
/* What `delta` has said of a slice; NULL without. */
ts_decode_state *ts_encoder_sent(ts_encoder *encoder, uint32_t slice);
/* The slice's values, n floats. */
float *ts_decode_state_values(ts_decode_state *state, size_t *n);
/* The step of which they are, plus 1; 0: of none yet. */
uint64_t ts_decode_state_mark(const ts_decode_state *state);
void ts_decode_state_set_mark(ts_decode_state *state, uint64_t mark);

/* A packet taken apart: for sparse pipelines the changed elements, else every element. Lives in the scratch. */
typedef struct {
    bool dense;          /* index is NULL, value has the slice's n elements */
    size_t count;
    const uint32_t *index; /* ascending, relative to the slice */
    const float *value;
} ts_decoded;

/*
 * Decodes and checks a packet from outside.
 * spec: the sender's (worker = who sent it). out: [out] valid until the scratch is used again.
 * Returns: TERSE_OK; TERSE_ECORRUPT (any packet that no encoder of this spec can have written); TERSE_ESTALE (`delta`: it
 * goes on from a packet that was not taken in here; the next refresh can be); TERSE_ENOMEM.
 */
terse_status ts_decode(ts_scratch *scratch, const ts_codec_spec *spec, ts_decode_state *state, uint32_t slice,
                       uint64_t step, const uint8_t *packet, size_t len, ts_decoded *out) TERSE_NODISCARD;
/*
 * As ts_decode_add, with the same bits, in one pass over a packet of floats: what is not finite is found as it is added.
 * fresh: the accumulator counts as 0, whatever it holds.
 * Returns: TERSE_OK; TERSE_EUNSUPPORTED (not for packets of this pipeline; untouched); TERSE_ENONFINITE (the accumulator
 * holds rubbish); TERSE_ECORRUPT (untouched); TERSE_ENOMEM.
 */
terse_status ts_decode_sum(ts_scratch *scratch, const ts_codec_spec *spec, uint32_t slice, uint64_t step,
                           const uint8_t *packet, size_t len, float *accumulator, bool fresh) TERSE_NODISCARD;
/*
 * Where in a packet of floats they lie, so that whoever adds them can do so part by part: n of them as fp32_sum takes them,
 * all finite. out: [out] in the packet. Returns: TERSE_OK; TERSE_EUNSUPPORTED (not for packets of this pipeline);
 * TERSE_ENONFINITE, TERSE_ECORRUPT.
 */
terse_status ts_decode_floats(ts_scratch *scratch, const ts_codec_spec *spec, uint32_t slice, uint64_t step,
                              const uint8_t *packet, size_t len, const uint8_t **out) TERSE_NODISCARD;
/*
 * accumulator[i] += decoded(i) for one slice of n elements; untouched on failure. Same codes as ts_decode, and
 * TERSE_EINVAL for pipelines that replace.
 */
terse_status ts_decode_add(ts_scratch *scratch, const ts_codec_spec *spec, ts_decode_state *state, uint32_t slice,
                           uint64_t step, const uint8_t *packet, size_t len, float *accumulator) TERSE_NODISCARD;
/*
 * Brings what a receiver holds of one slice to the packet's version: held[i] = decoded(i) for the elements that a
 * pipeline that replaces sent, else ts_decode_add. Untouched on failure. Same codes as ts_decode.
 */
terse_status ts_decode_apply(ts_scratch *scratch, const ts_codec_spec *spec, ts_decode_state *state, uint32_t slice,
                             uint64_t step, const uint8_t *packet, size_t len, float *held) TERSE_NODISCARD;

#endif
