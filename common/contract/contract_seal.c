/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting tensors into slices, and sharing slices out over servers. */
#include <stdlib.h>
#include <xxhash.h>

#include "common/base/mem.h"
#include "common/contract/contract.h"
#include "common/contract/contract_limits.h"
#include "common/contract/contract_work.h"

uint64_t ts_contract_count_slices(const ts_contract *contract) {
    uint64_t count = 0;
    for (uint32_t t = 0; t < contract->tensor_count; t++) {
        count += (contract->tensors[t].n - 1) / ts_contract_slice_elems(contract, t) + 1;
    }
    return count;
}

static terse_status cut(ts_contract *contract, ts_slice **slices, uint32_t *slice_count) {
    uint64_t count = ts_contract_count_slices(contract);
    TS_REQUIRE(count <= TS_CONTRACT_SLICES, TERSE_ELIMIT);
    ts_slice *all = ts_mem_calloc(count, sizeof *all);
    TS_REQUIRE(all, TERSE_ENOMEM);
    uint32_t at = 0;
    for (uint32_t t = 0; t < contract->tensor_count; t++) {
        ts_tensor *tensor = &contract->tensors[t];
        size_t elems = ts_contract_slice_elems(contract, t);
        tensor->first_slice = at;
        for (size_t first = 0; first < tensor->n; first += elems) {
            size_t left = tensor->n - first;
            all[at++] = (ts_slice){.tensor = t, .first = first, .n = left < elems ? left : elems};
        }
        tensor->slices = at - tensor->first_slice;
    }
    *slices = all;
    *slice_count = at;
    return TERSE_OK;
}

typedef struct {
    uint64_t work;
    uint32_t slice;
} job;

uint64_t ts_contract_slices_bytes(uint64_t slices) { return slices * (sizeof(ts_slice) + sizeof(job)); }

static int by_work(const void *a, const void *b) {
    const job *x = a, *y = b;
    if (x->work != y->work) return x->work < y->work ? 1 : -1;
    return x->slice < y->slice ? -1 : x->slice > y->slice;
}

/* Moves the server at `at` down a binary heap of server numbers: least load on top, ties to the lower number. */
static void sift_down(uint32_t *heap, uint32_t servers, uint32_t at, const uint64_t *load) {
    for (;;) {
        uint32_t least = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < servers; child++) {
            uint32_t a = heap[child], b = heap[least];
            if (load[a] < load[b] || (load[a] == load[b] && a < b)) least = child;
        }
        if (least == at) return;
        uint32_t swap = heap[at];
        heap[at] = heap[least];
        heap[least] = swap;
        at = least;
    }
}

/* Largest first, each to the least loaded server (Graham 1969); then every owner numbers its slices in order. */
static terse_status place(const ts_contract *contract, ts_slice *slices, uint32_t slice_count, uint32_t servers,
                          uint32_t *server_slices) {
    job *jobs = ts_mem_calloc(slice_count, sizeof *jobs);
    uint64_t *load = ts_mem_calloc(servers, sizeof *load);
    uint32_t *heap = ts_mem_calloc(servers, sizeof *heap);
    terse_status status = jobs && load && heap ? TERSE_OK : TERSE_ENOMEM;
    if (status == TERSE_OK) {
        for (uint32_t i = 0; i < servers; i++) heap[i] = i;
        for (uint32_t i = 0; i < slice_count; i++) { /* all slices of a tensor but the last are alike */
            bool alike = i > 0 && slices[i].tensor == slices[i - 1].tensor && slices[i].n == slices[i - 1].n;
            jobs[i] = (job){alike ? jobs[i - 1].work : ts_contract_work(contract, slices[i].tensor, slices[i].n), i};
        }
        qsort(jobs, slice_count, sizeof *jobs, by_work);
        for (uint32_t i = 0; i < slice_count; i++) {
            slices[jobs[i].slice].server = heap[0];
            load[heap[0]] += jobs[i].work;
            sift_down(heap, servers, 0, load);
        }
        for (uint32_t i = 0; i < slice_count; i++) slices[i].local = server_slices[slices[i].server]++;
    }
    ts_mem_free(jobs);
    ts_mem_free(load);
    ts_mem_free(heap);
    return status;
}

static terse_status digest(const ts_contract *contract, uint8_t out[TS_DIGEST_BYTES]) {
    uint8_t *bytes = NULL;
    size_t len = 0;
    TS_TRY(ts_contract_pack(contract, &bytes, &len));
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, len));
    for (unsigned i = 0; i < TS_DIGEST_BYTES; i++) out[i] = canonical.digest[i];
    ts_mem_free(bytes);
    return TERSE_OK;
}

terse_status ts_contract_seal(ts_contract *contract, uint32_t servers) {
    TS_REQUIRE(servers > 0 && servers <= TS_CONTRACT_SERVERS, TERSE_EINVAL);
    TS_REQUIRE(contract->servers == 0, TERSE_ESTATE);
    ts_slice *slices = NULL;
    uint32_t slice_count = 0;
    uint8_t hash[TS_DIGEST_BYTES];
    TS_TRY(digest(contract, hash));
    TS_TRY(cut(contract, &slices, &slice_count));
    uint32_t *server_slices = ts_mem_calloc(servers, sizeof *server_slices);
    terse_status status = server_slices ? place(contract, slices, slice_count, servers, server_slices) : TERSE_ENOMEM;
    if (status != TERSE_OK) {
        ts_mem_free(slices);
        ts_mem_free(server_slices);
        return status;
    }
    contract->slices = slices;
    contract->slice_count = slice_count;
    contract->server_slices = server_slices;
    contract->servers = servers;
    for (unsigned i = 0; i < TS_DIGEST_BYTES; i++) contract->digest[i] = hash[i];
    return TERSE_OK;
}
