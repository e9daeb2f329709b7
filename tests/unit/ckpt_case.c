/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/ckpt_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "tests/unit/unit.h"

static ts_contract *make_contract(void) {
    const ts_contract_options options = {.slice_elems = 4, .seed = 3, .optimizer = "name=sgd", .feedback = "enabled=1"};
    ts_contract *contract = NULL;
    ts_pipeline push, pull;
    ts_error error = {""};
    const int64_t weight[] = {2, 3}, bias[] = {2};
    ck_assert_ok(ts_contract_create(&options, &contract));
    ck_assert_ok(ts_pipeline_parse("topk:0.5 | fp32", &push, &error));
    ck_assert_ok(ts_pipeline_parse("dense", &pull, &error));
    ck_assert_ok(ts_contract_add(contract, "fc.weight", weight, 2, &push, &pull, false, NULL, &error));
    ck_assert_ok(ts_contract_add(contract, "fc.bias", bias, 1, &push, &pull, false, NULL, &error));
    contract->total_steps = 1000;
    ck_assert_ok(ts_contract_seal(contract, 2));
    return contract;
}

/* One part: for each of its slices (a server's) or tensors (a worker's) an entry of known values. */
static void write_part(ckpt_case *c, bool worker, uint32_t index) {
    ts_ckpt_identity is = ts_ckpt_manifest_identity(&c->manifest, worker, index);
    ts_ckpt_writer *writer = NULL;
    ts_error error = {""};
    float values[8];
    uint32_t entries = 0;
    char file[TS_CKPT_NAME_CHARS], *path;
    for (unsigned i = 0; i < 8; i++) values[i] = (float)i + (worker ? 100.0f : 0.0f);
    ck_assert_ok(ts_ckpt_writer_create(&is, &writer));
    for (uint32_t s = 0; s < c->contract->slice_count; s++) {
        const ts_slice *slice = &c->contract->slices[s];
        const int64_t n = (int64_t)slice->n;
        char *name;
        if (!worker && slice->server != index) continue;
        ck_assert_ok(ts_ckpt_entry_name(c->contract->tensors[slice->tensor].name, slice->first, slice->first + slice->n,
                                        worker ? "residual" : NULL, &name));
        ck_assert_ok(ts_ckpt_writer_add(writer, name, TS_DTYPE_F32, &n, 1, &entries));
        ts_mem_free(name);
    }
    ts_ckpt_part_file(worker, index, 2, file);
    ck_assert_ok(ts_ckpt_path(c->dir, c->folder, file, &path));
    ck_assert_ok(ts_ckpt_writer_open(writer, path, &error));
    for (uint32_t i = 0; i <= entries; i++) ck_assert_ok(ts_ckpt_writer_put(writer, i, values, &error));
    ck_assert_ok(ts_ckpt_writer_finish(writer, ts_ckpt_manifest_part(&c->manifest, worker, index), &error));
    ts_ckpt_writer_destroy(writer);
    ts_mem_free(path);
}

void ckpt_case_make(ckpt_case *c, uint64_t serial, uint64_t version) {
    ts_error error = {""};
    *c = (ckpt_case){.dir = "/tmp/terse-ckpt-XXXXXX"};
    ck_assert_ptr_nonnull(mkdtemp(c->dir));
    ts_ckpt_folder_name(serial, version, c->folder);
    c->contract = make_contract();
    ts_ckpt_manifest *m = &c->manifest;
    *m = (ts_ckpt_manifest){.parent_version = 20, .serial = serial, .version = version, .servers = 2, .workers = 2};
    strcpy(m->run, "00112233445566ff");
    strcpy(m->epoch, "0123456789abcdef");
    strcpy(m->parent_epoch, "fedcba9876543210");
    ck_assert_ok(ts_ckpt_contract_digest(c->contract, m->digest));
    ck_assert_ok(ts_contract_pack(c->contract, &m->contract, &m->contract_bytes));
    m->parts = ts_mem_calloc(4, sizeof *m->parts);
    char *path;
    ck_assert_ok(ts_ckpt_path(c->dir, c->folder, NULL, &path));
    ck_assert_ok(ts_ckpt_make_folder(path, &error));
    ts_mem_free(path);
    for (uint32_t i = 0; i < 4; i++) write_part(c, i >= 2, i % 2);
    ck_assert_ok(ts_ckpt_path(c->dir, c->folder, TS_CKPT_MANIFEST, &path));
    ck_assert_ok(ts_ckpt_manifest_write(m, path, &error));
    ts_mem_free(path);
}

void ckpt_case_remove(ckpt_case *c) {
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", c->dir);
    ck_assert_int_eq(system(command), 0);
    ts_ckpt_manifest_free(&c->manifest);
    ts_contract_destroy(c->contract);
}

char *ckpt_case_path(const ckpt_case *c, const char *file) {
    char *path = malloc(256);
    snprintf(path, 256, "%s/%s/%s", c->dir, c->folder, file ? file : TS_CKPT_MANIFEST);
    return path;
}

uint8_t *ckpt_case_read(const char *path, size_t *len) {
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s is not there", path);
    uint8_t *bytes = malloc(1 << 20);
    *len = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}

void ckpt_case_write(const char *path, const uint8_t *bytes, size_t len) {
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, len, file), len);
    fclose(file);
}
