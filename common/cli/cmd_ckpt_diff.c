/* SPDX-License-Identifier: Apache-2.0 */
/* terse ckpt diff: what differs between two checkpoints, entry by entry, however many servers they are of. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"
#include "common/base/mem.h"
#include "common/cli/cmd_ckpt.h"
#include "common/config/config.h"

#define SHOWN 20 /* entries that differ, without --json; more are counted */

static const char help[] =
    "NAME\n"
    "  terse ckpt diff - compare two checkpoints\n\n"
    "SYNOPSIS\n"
    "  terse ckpt diff CHECKPOINT CHECKPOINT [--json]\n\n"
    "DESCRIPTION\n"
    "  Compares step and contract, then every entry: parameters, reference, optimizer state, and each worker's\n"
    "  residual and what belongs to it, whatever numbers of servers the two are of. For entries that differ: how\n"
    "  many elements, and the largest difference of float32 ones. NaN equals the same NaN only.\n\n"
    "  --json   one object: same, step (of both), contract (null, or what differs), differing (a list of entry,\n"
    "           worker or null, elements, largest), only_first, only_second, compared\n\n"
    "EXIT STATUS\n"
    "  0 no entry differs and the contracts agree; 1 they differ, or cannot be read; 2 the command line is wrong";

typedef struct {
    bool json;
    json_t *differing, *only_first, *only_second;
    size_t compared, shown;
} findings;

/* The reader with an entry: the worker's own part, or whichever server has it; entry: [out] its number. NULL for none. */
static const ts_ckpt_reader *find(const ts_ckpt_source *in, bool worker, uint32_t index, const char *name, uint32_t *entry) {
    uint32_t first = worker ? in->manifest.servers + index : 0, last = worker ? first + 1 : in->manifest.servers;
    for (uint32_t i = first; i < last && i < ts_ckpt_source_parts(in); i++) {
        if (!in->readers[i]) continue;
        const ts_safetensors *header = ts_ckpt_reader_header(in->readers[i]);
        *entry = ts_safetensors_find(header, name);
        if (*entry < header->count) return in->readers[i];
    }
    return NULL;
}

static json_t *place(const char *name, bool worker, uint32_t index) {
    return json_pack("{s:s, s:o}", "entry", name, "worker", worker ? json_integer(index) : json_null());
}

static void note_difference(findings *to, const char *name, bool worker, uint32_t index, size_t elements, double largest) {
    json_t *row = place(name, worker, index);
    json_object_set_new(row, "elements", json_integer((json_int_t)elements));
    json_object_set_new(row, "largest", isfinite(largest) ? json_real(largest) : json_null());
    json_array_append_new(to->differing, row);
    if (to->json || to->shown++ >= SHOWN) return;
    printf("%s", name);
    if (worker) printf(" of worker %" PRIu32, index);
    printf(": %zu elements differ, by at most %.3g\n", elements, largest);
}

static terse_status compare_bytes(const ts_ckpt_reader *a, const ts_ckpt_reader *b, const ts_safetensors_entry *entry,
                                  findings *to, bool worker, uint32_t index, ts_error *error) {
    size_t len = (size_t)entry->bytes, width = ts_dtype_bytes(entry->dtype), elements = 0;
    double largest = 0;
    uint8_t *first = ts_mem_calloc(len + 1, 1), *second = ts_mem_calloc(len + 1, 1);
    terse_status status = first && second ? TERSE_OK : TERSE_ENOMEM;
    if (status == TERSE_OK) status = ts_ckpt_reader_get(a, entry->name, entry->dtype, first, len, error);
    if (status == TERSE_OK) status = ts_ckpt_reader_get(b, entry->name, entry->dtype, second, len, error);
    for (size_t at = 0; status == TERSE_OK && at < len; at += width) {
        if (memcmp(first + at, second + at, width) == 0) continue;
        elements++;
        if (entry->dtype != TS_DTYPE_F32) continue;
        double gap = fabs((double)ts_load_f32(first + at) - (double)ts_load_f32(second + at));
        if (!(gap <= largest)) largest = gap;
    }
    if (elements > 0) note_difference(to, entry->name, worker, index, elements, largest);
    ts_mem_free(first);
    ts_mem_free(second);
    return status;
}

/* Every entry of `a` against `b`; with `missing` only those that `b` has not are noted. */
static terse_status walk(const ts_ckpt_source *a, const ts_ckpt_source *b, findings *to, json_t *missing, bool compare,
                         ts_error *error) {
    for (uint32_t p = 0; p < ts_ckpt_source_parts(a); p++) {
        bool worker = p >= a->manifest.servers;
        uint32_t index = worker ? p - a->manifest.servers : p, other = 0;
        const ts_safetensors *header = a->readers[p] ? ts_ckpt_reader_header(a->readers[p]) : NULL;
        for (uint32_t e = 0; header && e < header->count; e++) {
            const ts_safetensors_entry *entry = &header->entries[e];
            const ts_ckpt_reader *there = worker && index >= b->manifest.workers
                                              ? NULL : find(b, worker, index, entry->name, &other);
            if (!there) {
                json_array_append_new(missing, place(entry->name, worker, index));
                continue;
            }
            if (!compare) continue;
            const ts_safetensors_entry *same = &ts_ckpt_reader_header(there)->entries[other];
            to->compared++;
            if (same->dtype != entry->dtype || same->bytes != entry->bytes)
                note_difference(to, entry->name, worker, index, (size_t)entry->bytes / ts_dtype_bytes(entry->dtype), NAN);
            else
                TS_TRY(compare_bytes(a->readers[p], there, entry, to, worker, index, error));
        }
    }
    return TERSE_OK;
}

static int report(findings *to, const ts_ckpt_source *a, const ts_ckpt_source *b, const char *contract) {
    size_t differing = json_array_size(to->differing), first = json_array_size(to->only_first),
           second = json_array_size(to->only_second);
    bool same = differing + first + second == 0 && !contract;
    if (to->json) {
        json_t *root = json_pack("{s:b, s:[I, I], s:s?, s:O, s:O, s:O, s:I}", "same", same, "step",
                                 (json_int_t)a->manifest.version, (json_int_t)b->manifest.version, "contract", contract,
                                 "differing", to->differing, "only_first", to->only_first, "only_second", to->only_second,
                                 "compared", (json_int_t)to->compared);
        char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
        if (text) puts(text);
        free(text);
        json_decref(root);
        return same ? TS_EXIT_OK : TS_EXIT_FAILED;
    }
    if (differing > SHOWN) printf("… and %zu more entries\n", differing - SHOWN);
    if (contract) printf("contract: %s\n", contract);
    if (first) printf("%zu entries are in the first only\n", first);
    if (second) printf("%zu entries are in the second only\n", second);
    printf("steps %" PRIu64 " and %" PRIu64 ": %zu entries compared, %zu differ\n", a->manifest.version, b->manifest.version,
           to->compared, differing);
    return same ? TS_EXIT_OK : TS_EXIT_FAILED;
}

int ts_ckpt_diff_command(int argc, char **argv) {
    const char *paths[2] = {NULL};
    findings to = {.json = false};
    int code = ts_ckpt_line("terse ckpt diff", help, argc, argv, paths, 2, &to.json, NULL, 0);
    if (code >= 0) return code;
    ts_ckpt_source a = {.dir = NULL}, b = {.dir = NULL};
    ts_error error = {""}, difference = {""};
    to.differing = json_array();
    to.only_first = json_array();
    to.only_second = json_array();
    terse_status status = ts_ckpt_source_open(paths[0], &a, &error);
    if (status == TERSE_OK) status = ts_ckpt_source_open(paths[1], &b, &error);
    if (status == TERSE_OK) status = ts_ckpt_source_open_parts(&a, &error);
    if (status == TERSE_OK) status = ts_ckpt_source_open_parts(&b, &error);
    if (status == TERSE_OK) status = walk(&a, &b, &to, to.only_first, true, &error);
    if (status == TERSE_OK) status = walk(&b, &a, &to, to.only_second, false, &error);
    if (status == TERSE_OK) {
        bool differ = ts_contract_difference(a.contract, "the first", b.contract, "the second", &difference);
        code = report(&to, &a, &b, differ ? difference.text : NULL);
    } else {
        code = ts_ckpt_fail("terse ckpt diff", status, &error);
    }
    json_decref(to.differing);
    json_decref(to.only_first);
    json_decref(to.only_second);
    ts_ckpt_source_close(&a);
    ts_ckpt_source_close(&b);
    return code;
}
