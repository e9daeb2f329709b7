/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes the encoding of a tensor recoverable when the process is killed in the middle of it, at any instruction,
 * while its memory lives on (a shared mapping). The residual and the velocity are changed in place in two ways:
 *
 *   a block at a time   Its old values are copied aside before, and are valid while `lane` counts them (ts_undo). So
 *                       after a kill every element is as before the step or as after it.
 *   values put          What a packet takes out: the new values are listed aside first, and may be put again.
 *
 * The process dies, the machine does not: what was stored is in memory in program order, so all that is needed is that
 * the compiler keeps that order.
 *
 * Thread: the encoder's.
 */
#ifndef TS_CODEC_GUARD_H
#define TS_CODEC_GUARD_H

#include "common/codec/kernels.h"
#include "common/codec/packet.h"

#define TS_GUARD_LANES 2u
#define TS_GUARD_BLOCK ((size_t)2048)      /* elements that a sweep takes in at a time: whole vector groups, and short blocks */
#define TS_GUARD_UNDO ((size_t)TS_BLOCK_ELEMS) /* and the most of one block of a dense packet */

typedef enum {
    TS_GUARD_IDLE,
    TS_GUARD_SWEEP, /* begin: `lane` names the blocks at work */
    TS_GUARD_DENSE, /* a slice without selector: what lane[0] has passed is in the packet's bytes already */
    TS_GUARD_PUT    /* the list is complete */
} ts_guard_phase;

/* What becomes of the packet when a list is put. */
typedef enum { TS_GUARD_KEEPS, TS_GUARD_MAKES, TS_GUARD_FREES } ts_guard_effect;

/* Lies in the memory that lives on. Pinned layout. */
typedef struct {
    _Atomic uint32_t phase;                 /* ts_guard_phase */
    uint32_t tensor;
    _Atomic uint64_t lane[TS_GUARD_LANES];  /* first element << 20 | elements of the block at work; 0 elements: none */
    uint32_t slice;                         /* of the tensor */
    /* The list. */
    uint32_t put_first, put_count;          /* from which element of the tensor its indices count; its length */
    uint8_t put_dense, put_masks, put_effect, put_then; /* no indices; the velocity becomes 0; ts_guard_effect, phase */
    uint64_t put_lane;                      /* lane[0] afterwards */
    uint64_t put_step, put_len;             /* of the packet */
} ts_guard_record;

typedef struct ts_guard {
    ts_guard_record *record; /* [borrow], as all of these */
    float *undo;             /* TS_GUARD_LANES times TS_GUARD_UNDO of the residual and as many of the velocity */
    uint32_t *put_index;     /* room for the longest slice */
    float *put_value;
    uint8_t *staged;         /* a dense packet before its byte packs; NULL when there is none */
    /* One step. */
    float *residual, *velocity;
    const float *gradient;
    const ts_kernels *inner;
    ts_undo saved[TS_GUARD_LANES];
    ts_kernels kernels;      /* `inner` with sweeps that mind the guard */
} ts_guard;

/* Whether the encoder can do with a guard: not with transforms, or one scale a dense tensor. */
bool ts_guard_can(const ts_pipeline *pipeline);
/* Bytes of `undo`. */
size_t ts_guard_undo_bytes(void);
/* Begins a step of tensor `tensor`. Returns the kernels to take the gradient in with. */
const ts_kernels *ts_guard_begin(ts_guard *guard, const ts_kernels *kernels, uint32_t tensor, float *residual,
                                 float *velocity, const float *gradient);
/* A dense slice begins, at element `first` of the tensor. */
void ts_guard_dense(ts_guard *guard, uint32_t slice, size_t first);
/* Copies n <= TS_GUARD_UNDO elements aside, which are about to change; then says that they are done. */
void ts_guard_open(ts_guard *guard, unsigned lane, size_t first, size_t n);
void ts_guard_close(ts_guard *guard, unsigned lane, size_t done);
/*
 * Lists what slice `slice` puts from element `first` on, whose packet of `len` bytes is complete; the caller may then put
 * it. index: NULL for 0, 1, 2 … The phase stays PUT until ts_guard_settle.
 */
void ts_guard_list(ts_guard *guard, uint32_t slice, size_t first, const uint32_t *index, const float *value, size_t count,
                   bool masks, uint64_t step, size_t len);
/*
 * Adds a packet that was refused to the residual: from element `first` on what it said. The phase stays PUT, with the
 * effect that the packet goes, until ts_guard_settle.
 */
void ts_guard_give_back(ts_guard *guard, uint32_t tensor, uint32_t slice, size_t first, const ts_decoded *said,
                        float *residual);
/* The packet of the slice is where it belongs. */
void ts_guard_settle(ts_guard *guard);

/* ---- after a kill; may be killed too ---- */
/*
 * Puts the list again or the old values of blocks at work back. residual, velocity: of record->tensor. Afterwards the
 * phase is IDLE, or PUT (the caller does to the packet what put_effect says, then calls ts_guard_after_put), or DENSE
 * (ts_guard_take_back).
 */
void ts_guard_recover(ts_guard *guard, float *residual, float *velocity);
void ts_guard_after_put(ts_guard *guard);
/* The slice that was being written: its blocks are taken back from `bytes`, last first. Afterwards IDLE. */
void ts_guard_take_back(ts_guard *guard, const ts_packet_slice *slice, const uint8_t *bytes, float *residual,
                        float *velocity);

#endif
