/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/registry.h"

#include <string.h>

#define TRANSFORM(table) {TS_STAGE_TRANSFORM, &(table).info, {.transform = &(table)}},
#define SELECT(table) {TS_STAGE_SELECT, &(table).info, {.select = &(table)}},
#define QUANTISE(table) {TS_STAGE_QUANTISE, &(table).info, {.quantise = &(table)}},
#define INDEX(table, number) {TS_STAGE_INDEX, &(table).info, {.index = &(table)}},
#define BYTES(table) {TS_STAGE_BYTES, &(table).info, {.bytes = &(table)}},
static const ts_stage_entry entries[] = {
    TS_TRANSFORM_STAGES(TRANSFORM)
    TS_SELECT_STAGES(SELECT)
    TS_QUANTISE_STAGES(QUANTISE)
    TS_INDEX_STAGES(INDEX)
    INDEX(ts_index_best, 0)
    TS_BYTES_STAGES(BYTES)
};

#define NUMBERED(table, number) {&(table), number},
static const struct {
    const ts_index_stage *stage;
    unsigned number;
} index_packs[] = {TS_INDEX_STAGES(NUMBERED)};

static const char *const kind_names[TS_STAGE_KINDS] = {"transform", "select", "quantise", "index pack", "byte pack"};

const char *ts_stage_kind_name(ts_stage_kind kind) { return kind_names[kind]; }

size_t ts_registry_count(void) { return sizeof entries / sizeof entries[0]; }

const ts_stage_entry *ts_registry_entry(size_t i) { return &entries[i]; }

const ts_stage_entry *ts_registry_find(const char *name, size_t len) {
    for (size_t i = 0; i < ts_registry_count(); i++) {
        const char *known = entries[i].info->name;
        if (strlen(known) == len && memcmp(known, name, len) == 0) return &entries[i];
    }
    return NULL;
}

size_t ts_registry_index_count(void) { return sizeof index_packs / sizeof index_packs[0]; }

const ts_index_stage *ts_registry_index(size_t i) { return index_packs[i].stage; }

unsigned ts_registry_index_number(const ts_index_stage *stage) {
    for (size_t i = 0; i < ts_registry_index_count(); i++) {
        if (index_packs[i].stage == stage) return index_packs[i].number;
    }
    return 0;
}

const ts_index_stage *ts_registry_index_by_number(unsigned number) {
    for (size_t i = 0; i < ts_registry_index_count(); i++) {
        if (index_packs[i].number == number) return index_packs[i].stage;
    }
    return NULL;
}
