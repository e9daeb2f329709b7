/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every stage there is, in the order of help texts. Registry, help, docs and
 * tests come from these lists; a new stage is its file, its line and its tests.
 */
#ifndef TS_CODEC_STAGE_LIST_H
#define TS_CODEC_STAGE_LIST_H

#include "common/codec/stage.h"

/* X(table) */
#define TS_TRANSFORM_STAGES(X) \
    X(ts_transform_delta)       \
    X(ts_transform_powersgd)    \
    X(ts_transform_svd)         \
    X(ts_transform_tucker)

#define TS_SELECT_STAGES(X) \
    X(ts_select_topk)       \
    X(ts_select_threshold)  \
    X(ts_select_adaptive)   \
    X(ts_select_blocktopk)  \
    X(ts_select_randomk)    \
    X(ts_select_bernoulli)  \
    X(ts_select_magnitude)  \
    X(ts_select_exact)

#define TS_QUANTISE_STAGES(X) \
    X(ts_quantise_fp32)       \
    X(ts_quantise_fp16)       \
    X(ts_quantise_bf16)       \
    X(ts_quantise_int8)       \
    X(ts_quantise_int4)       \
    X(ts_quantise_linear)     \
    X(ts_quantise_log)        \
    X(ts_quantise_qsgd)       \
    X(ts_quantise_natural)    \
    X(ts_quantise_ternary)    \
    X(ts_quantise_sign)

/* X(table, number in the packet's tag): numbers are pinned, 1 … 15; ts_index_best chooses among them and has none. */
#define TS_INDEX_STAGES(X)   \
    X(ts_index_raw32, 1)     \
    X(ts_index_varint, 2)    \
    X(ts_index_bitmap, 3)    \
    X(ts_index_rice, 4)      \
    X(ts_index_raw16, 5)     \
    X(ts_index_raw8, 6)      \
    X(ts_index_block, 7)     \
    X(ts_index_rle, 8)

#define TS_BYTES_STAGES(X) \
    X(ts_bytes_huffman)    \
    X(ts_bytes_rle8)       \
    X(ts_bytes_zstd)

#define TS_DECLARE_TRANSFORM(table) extern const ts_transform_stage table;
#define TS_DECLARE_SELECT(table) extern const ts_select_stage table;
#define TS_DECLARE_QUANTISE(table) extern const ts_quantise_stage table;
#define TS_DECLARE_INDEX(table, number) extern const ts_index_stage table;
#define TS_DECLARE_BYTES(table) extern const ts_bytes_stage table;
TS_TRANSFORM_STAGES(TS_DECLARE_TRANSFORM)
TS_SELECT_STAGES(TS_DECLARE_SELECT)
TS_QUANTISE_STAGES(TS_DECLARE_QUANTISE)
TS_INDEX_STAGES(TS_DECLARE_INDEX)
extern const ts_index_stage ts_index_best;
TS_BYTES_STAGES(TS_DECLARE_BYTES)

#endif
