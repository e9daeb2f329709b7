/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of checkpoints. The first byte says whether the rest is a part's front or a manifest, and whether its seal is set
 * right first, so that what lies behind that check is reached, too.
 */
#include <string.h>

#include "common/base/bytes.h"
#include "common/base/mem.h"
#include "common/ckpt/ckpt_manifest.h"
#include "tests/fuzz/fuzz.h"

enum { MANIFEST = 1, SEALED = 2, HEADER = 4 };

static void check_header(const ts_safetensors *header, uint64_t data_bytes) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < header->count; i++) {
        FUZZ_CHECK(header->entries[i].begin == at);
        at += header->entries[i].bytes;
        FUZZ_CHECK(ts_safetensors_find(header, header->entries[i].name) == i);
    }
    FUZZ_CHECK(at == data_bytes && header->data_bytes == data_bytes);
}

static void read_part(uint8_t *bytes, size_t len) {
    ts_safetensors header = {0};
    ts_ckpt_identity is;
    ts_error error = {""};
    uint64_t seal, data = len > 1 ? bytes[0] * (uint64_t)bytes[1] : 0;
    if (len < 10) return;
    bytes += 2;
    len -= 2;
    ts_store_u64(bytes, len - 8);
    if (ts_ckpt_part_parse("fuzz", bytes, len, len + data, &header, &is, &seal, &error) != TERSE_OK) {
        FUZZ_CHECK(error.text[0]);
        return;
    }
    FUZZ_CHECK(is.index < is.count && ts_ckpt_is_id(is.run) && ts_ckpt_is_id(is.epoch));
    check_header(&header, data);
    ts_safetensors_free(&header);
}

static void read_manifest(const uint8_t *bytes, size_t len) {
    ts_ckpt_manifest manifest = {0};
    ts_contract *contract = NULL;
    ts_error error = {""};
    if (ts_ckpt_manifest_parse("fuzz", (const char *)bytes, len, &manifest, &error) != TERSE_OK) {
        FUZZ_CHECK(error.text[0]);
        return;
    }
    FUZZ_CHECK(manifest.servers > 0 && manifest.workers > 0);
    FUZZ_CHECK(ts_ckpt_manifest_contract(&manifest, 3, &contract, &error) == TERSE_OK);
    ts_contract_destroy(contract);
    ts_ckpt_manifest_free(&manifest);
}

static void read_header(const uint8_t *bytes, size_t len) {
    ts_safetensors header = {0};
    ts_error error = {""};
    uint64_t data = len > 1 ? bytes[0] * (uint64_t)bytes[1] : 0;
    if (len < 2 || ts_safetensors_parse("fuzz", bytes + 2, len - 2, data, &header, &error) != TERSE_OK) return;
    check_header(&header, data);
    ts_safetensors_free(&header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    if (len < 2) return 0;
    uint8_t *copy = ts_mem_calloc(len, 1);
    uint64_t seal;
    FUZZ_CHECK(copy);
    memcpy(copy, data + 1, len - 1);
    if (data[0] & SEALED) {
        const char *key = data[0] & MANIFEST ? "\"seal\": \"" : "\"terse.seal\":\"";
        size_t skip = data[0] & MANIFEST ? 0 : 10;
        if (len - 1 > skip) (void)ts_ckpt_seal((char *)copy + skip, len - 1 - skip, key, &seal);
    }
    if (data[0] & HEADER) read_header(copy, len - 1);
    else if (data[0] & MANIFEST) read_manifest(copy, len - 1);
    else read_part(copy, len - 1);
    ts_mem_free(copy);
    return 0;
}
