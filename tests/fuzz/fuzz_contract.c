/* SPDX-License-Identifier: Apache-2.0 */
/* Contracts from workers: what is accepted packs into bytes that are accepted again and mean the same. */
#include "common/base/mem.h"
#include "common/contract/contract.h"
#include "tests/fuzz/fuzz.h"

#define SERVERS 3
#define ROOM_BYTES (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    ts_contract *contract = NULL, *again = NULL;
    ts_error error = {{0}};
    uint8_t *bytes = NULL;
    size_t packed = 0;
    const ts_contract_room room = {.tensors = 1000, .bytes = ROOM_BYTES};
    terse_status status = ts_contract_unpack_within(data, len, SERVERS, &room, &contract, &error);
    if (status != TERSE_OK) {
        FUZZ_CHECK(contract == NULL);
        return 0;
    }
    FUZZ_CHECK(contract->tensor_count <= room.tensors && ts_contract_slices_bytes(contract->slice_count) <= room.bytes);
    if (ts_contract_pack(contract, &bytes, &packed) == TERSE_OK) {
        FUZZ_CHECK(ts_contract_unpack(bytes, packed, SERVERS, &again, &error) == TERSE_OK);
        FUZZ_CHECK(!ts_contract_difference(contract, "here", again, "there", &error));
    }
    ts_mem_free(bytes);
    ts_contract_destroy(again);
    ts_contract_destroy(contract);
    return 0;
}
