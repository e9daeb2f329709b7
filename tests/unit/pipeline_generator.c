/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/pipeline_generator.h"

#include <stdio.h>
#include <string.h>

#include "common/base/random.h"
#include "common/codec/registry.h"

#define ATTEMPTS 20000

/* A pipeline's text under way; too long a one is cut, which the parser refuses. */
typedef struct {
    ts_random *random;
    char text[2 * TS_PIPELINE_CHARS];
    size_t len;
} draft;

static void put(draft *d, const char *piece) {
    size_t len = strlen(piece), room = sizeof d->text - 1 - d->len;
    if (len > room) len = room;
    memcpy(d->text + d->len, piece, len);
    d->len += len;
    d->text[d->len] = '\0';
}

static double pick(ts_random *random, const double *from, size_t count) {
    return from[ts_random_below(random, (uint32_t)count)];
}
#define PICK(random, table) pick((random), (table), sizeof(table) / sizeof(table)[0])

/* An argument inside its range; the ends of the range now and then. */
static double draw_argument(ts_random *random, const ts_stage_info *info, unsigned i) {
    static const double ratios[] = {0.0005, 0.003, 0.01, 0.05, 0.1, 0.3, 0.5, 0.77, 1};
    static const double levels[] = {1e-6, 0.001, 0.01, 0.125, 0.7, 1.5, 1e6};
    static const double steps[] = {0, 1, 2, 5, 14, 62, 254, 4094};
    double low = info->low[i], high = info->high[i], value;
    if (!info->integral[i]) return high <= 1 ? PICK(random, ratios) : PICK(random, levels);
    unsigned end = ts_random_below(random, 10);
    if (end < 2) return end ? high : low;
    value = low + (high - low > 100 ? PICK(random, steps) : (double)ts_random_below(random, 6));
    return value < high ? value : high;
}

static void put_stage(draft *d, const ts_stage_info *info) {
    char number[40];
    if (d->len > 0) put(d, ts_random_below(d->random, 4) ? " | " : "|");
    put(d, info->name);
    for (unsigned i = 0; i < info->max_args; i++) {
        (void)snprintf(number, sizeof number, ":%.10g", draw_argument(d->random, info, i));
        put(d, number);
    }
    if (info->allows_tensor && ts_random_below(d->random, 3) == 0) put(d, ":tensor");
}

/* Some stage of a kind. */
static const ts_stage_info *some(ts_random *random, ts_stage_kind kind) {
    size_t of_kind[64], count = 0;
    for (size_t i = 0; i < ts_registry_count() && count < sizeof of_kind / sizeof of_kind[0]; i++) {
        if (ts_registry_entry(i)->kind == kind) of_kind[count++] = i;
    }
    return ts_registry_entry(of_kind[ts_random_below(random, (uint32_t)count)])->info;
}

/* What stands behind the quantiser. */
static void put_packs(draft *d, bool selected) {
    if (selected && ts_random_below(d->random, 8) < 5) put_stage(d, some(d->random, TS_STAGE_INDEX));
    unsigned packs = ts_random_below(d->random, 10);
    for (unsigned i = 0; i < (packs < 6 ? 0u : packs < 9 ? 1u : 2u); i++) put_stage(d, some(d->random, TS_STAGE_BYTES));
}

static void keep_if_legal(ts_generated *out, const draft *d) {
    ts_pipeline parsed;
    ts_error error = {""};
    if (out->count == TS_GENERATED_MOST) return;
    if (ts_pipeline_parse(d->text, &parsed, &error) != TERSE_OK) {
        out->refused++;
        out->unnamed += strlen(error.text) < 20;
        return;
    }
    for (size_t i = 0; i < out->count; i++) {
        if (strcmp(out->text[i], parsed.text) == 0) return;
    }
    memcpy(out->text[out->count++], parsed.text, sizeof parsed.text);
}

void ts_generate_pipelines(ts_generated *out, uint64_t seed) {
    ts_random random = ts_random_start(ts_mix64(seed));
    memset(out, 0, sizeof *out);
    /* first == count: neither transform nor selector. */
    for (size_t first = 0; first <= ts_registry_count(); first++) {
        const ts_stage_entry *head = first < ts_registry_count() ? ts_registry_entry(first) : NULL;
        if (head && head->kind != TS_STAGE_TRANSFORM && head->kind != TS_STAGE_SELECT) continue;
        for (size_t q = 0; q < ts_registry_count(); q++) {
            if (ts_registry_entry(q)->kind != TS_STAGE_QUANTISE) continue;
            draft d = {.random = &random};
            if (head) put_stage(&d, head->info);
            put_stage(&d, ts_registry_entry(q)->info);
            put_packs(&d, head && head->kind == TS_STAGE_SELECT);
            keep_if_legal(out, &d);
        }
    }
    for (int attempt = 0; attempt < ATTEMPTS && out->count < TS_GENERATED_MOST; attempt++) {
        draft d = {.random = &random};
        unsigned head = ts_random_below(&random, 20);
        if (head < 5) put_stage(&d, some(&random, TS_STAGE_TRANSFORM));
        if (head > 3 && head < 17) put_stage(&d, some(&random, TS_STAGE_SELECT));
        if (ts_random_below(&random, 10)) put_stage(&d, some(&random, TS_STAGE_QUANTISE));
        put_packs(&d, head > 3);
        keep_if_legal(out, &d);
    }
}
