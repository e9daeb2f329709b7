/* SPDX-License-Identifier: Apache-2.0 */
/* All stages, found by name, kind or number. Thread: any; everything is constant. */
#ifndef TS_CODEC_REGISTRY_H
#define TS_CODEC_REGISTRY_H

#include "common/codec/stage_list.h"

typedef enum {
    TS_STAGE_TRANSFORM,
    TS_STAGE_SELECT,
    TS_STAGE_QUANTISE,
    TS_STAGE_INDEX,
    TS_STAGE_BYTES,
    TS_STAGE_KINDS
} ts_stage_kind;

/* One registered stage; exactly the member of its kind is set. */
typedef struct {
    ts_stage_kind kind;
    const ts_stage_info *info;
    union {
        const ts_transform_stage *transform;
        const ts_select_stage *select;
        const ts_quantise_stage *quantise;
        const ts_index_stage *index;
        const ts_bytes_stage *bytes;
    } stage;
} ts_stage_entry;

/* "transform", "select", "quantise", "index pack", "byte pack". */
const char *ts_stage_kind_name(ts_stage_kind kind);

/* All stages in the order of pipelines; i < ts_registry_count(). */
size_t ts_registry_count(void);
const ts_stage_entry *ts_registry_entry(size_t i);
/* By name of `len` characters, or NULL. */
const ts_stage_entry *ts_registry_find(const char *name, size_t len);

/* Index packs that `best` chooses from (all but itself), and their numbers in packets (0 for `best`). */
size_t ts_registry_index_count(void);
const ts_index_stage *ts_registry_index(size_t i);
unsigned ts_registry_index_number(const ts_index_stage *stage);
const ts_index_stage *ts_registry_index_by_number(unsigned number); /* NULL when there is none */

#endif
