/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slice packets, byte by byte. Integers are little-endian; varint is base 128, low groups first; zigzag maps
 * 0, -1, 1, -2 … to 0, 1, 2, 3 …. Everything not said in the packet (pipeline, n, step, tensor, worker) both ends know.
 *
 *   dense packet (no selector):   value blocks of the slice's n values, nothing else
 *   with a low-rank transform:    value blocks of each factor (transform.h)
 *   with delta:                   one byte (delta.h), then as a dense packet
 *   sparse packet, k = 0:         no byte at all
 *   sparse packet, k > 0:
 *     tag      1 byte   bits 0–3  number of the index pack used (stage_list.h: 1 raw32, 2 varint, 3 bitmap, 4 rice …);
 *                                 0 when the selector sends no indices
 *                       bit 4     k is the slice's share, and not sent
 *                       bits 5–7  0
 *     k        varint   zigzag(k − share), never 0; only when bit 4 is clear
 *     values   value blocks of k values (block.h)
 *     indices  what the index pack wrote, to the end of the packet
 *   replacing packet (`exact`), k > 0: the shorter of
 *     a sparse packet with the k new values, 4 bytes each, whatever they are (share 0)
 *     tag 0x10 and the slice's n values
 *
 * The slice's share is floor(K·end/n) − floor(K·first/n) of the K values that the selector's own ratio takes from a
 * tensor of n elements (0 for selectors without a ratio); first and end are the slice's borders.
 *
 * With byte packs each wraps what the pipeline before it made, unless that is empty:
 *     varint   2 · (length before the pack) + (1 when packed, 0 when the bytes are stored as they are)
 *     bytes    to the end of the packet
 */
#ifndef TS_CODEC_PACKET_H
#define TS_CODEC_PACKET_H

#include "common/codec/block.h"
#include "common/codec/scratch.h"
#include "common/codec/transform.h"

/* A slice as packets see it. */
typedef struct {
    const ts_pipeline *pipeline;
    ts_block_format format;
    ts_transform_view view; /* of the factors that travel; its stage is NULL when values do */
    size_t n;     /* elements of the slice */
    size_t first; /* its first element in the tensor */
    size_t share; /* of k, see above */
    uint64_t key; /* of the indices that are not sent */
} ts_packet_slice;

/* spec's slice. step: of the packet. Thread: any. */
ts_packet_slice ts_packet_slice_of(const ts_codec_spec *spec, const ts_kernels *kernels, uint32_t slice, uint64_t step);

/* A slice's share of `total` values selected from the whole tensor. */
size_t ts_packet_share(const ts_codec_spec *spec, uint32_t slice, size_t total);

/* Bytes that no packet of k values exceeds, before and after byte packs. */
size_t ts_packet_inner_bound(const ts_packet_slice *slice, size_t k);
size_t ts_packet_bound(const ts_packet_slice *slice, size_t k);

/*
 * Writes a sparse packet. index[k]: ascending below n. x[k]: in the values, out the remainders.
 * max_abs: of the tensor when the pipeline has one scale a tensor.
 * near: [borrow] n floats of which the caller writes those at index[] next, asked for meanwhile; NULL for none.
 * Returns TERSE_OK or TERSE_ENOSPACE (nothing changed).
 */
terse_status ts_packet_write_sparse(const ts_packet_slice *slice, const uint32_t *index, float *x, size_t k,
                                    float max_abs, const float *near, uint8_t *out, size_t capacity, size_t *len);

/*
 * Writes a replacing packet. index[k]: ascending below n, where x[k] are the new values; all[n]: the slice with them.
 * Returns TERSE_OK or TERSE_ENOSPACE (nothing changed).
 */
terse_status ts_packet_write_exact(const ts_packet_slice *slice, const uint32_t *index, const float *x, size_t k,
                                   const float *all, uint8_t *out, size_t capacity, size_t *len);

/* Where the parts of a sparse packet are. */
typedef struct {
    size_t k;
    const ts_index_stage *index; /* NULL when none are sent: the receiver derives them, or all n values are there */
    const uint8_t *values, *indices;
    size_t values_len, indices_len;
} ts_packet_parts;

/* Takes a packet without its byte packs apart. Returns TERSE_OK or TERSE_ECORRUPT. */
terse_status ts_packet_split(const ts_packet_slice *slice, const uint8_t *packet, size_t len, ts_packet_parts *parts);

/* Applies the pipeline's byte packs. Returns TERSE_OK or TERSE_ENOSPACE. */
terse_status ts_packet_wrap(const ts_packet_slice *slice, ts_scratch *scratch, const uint8_t *inner, size_t inner_len,
                            uint8_t *out, size_t capacity, size_t *len);
/*
 * Undoes them. limit: bytes that the inner packet cannot exceed. inner: [out] in the scratch or in `packet`.
 * Returns TERSE_OK, TERSE_ECORRUPT, TERSE_ENOMEM.
 */
terse_status ts_packet_unwrap(const ts_packet_slice *slice, ts_scratch *scratch, const uint8_t *packet, size_t len,
                              const uint8_t **inner, size_t *inner_len);

#endif
