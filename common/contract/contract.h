/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract: what workers and servers must agree on before step 0 (tensors,
 * pipelines, slices, hyper-parameters), its digest, and who owns which slice.
 * Slices depend on the tensors and slice_elems alone, never on the number of
 * servers. Global slice ids count through the tensors in declaration order.
 */
#ifndef TS_CONTRACT_H
#define TS_CONTRACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/codec/codec.h"

#define TS_DIGEST_BYTES 16
#define TS_TENSOR_DIMS 8

typedef struct {
    char *name;
    int64_t shape[TS_TENSOR_DIMS];
    unsigned ndim;
    size_t n;
    ts_pipeline push, pull;
    bool worker_momentum;
    uint32_t first_slice, slices;
} ts_tensor;

typedef struct {
    uint32_t tensor;
    size_t first, n;   /* elements of its tensor */
    uint32_t server;   /* owner */
    uint32_t local;    /* its number among the owner's slices */
} ts_slice;

typedef enum { TS_MODE_BSP = 0, TS_MODE_SSP = 1, TS_MODE_ASP = 2 } ts_mode;

/* All members are plain values; strings are owned. */
typedef struct {
    ts_tensor *tensors;
    uint32_t tensor_count;
    ts_slice *slices;
    uint32_t slice_count;
    uint32_t *server_slices; /* slices of each server (servers entries) */
    uint32_t servers;
    size_t slice_elems;
    uint64_t seed;
    ts_mode mode;
    uint32_t staleness;
    char *optimizer;         /* canonical "name=sgd lr=0.05 …" */
    char *feedback;
    char *rounds;            /* canonical "stragglers=proceed quorum=3 …"; "" for the defaults */
    uint64_t total_steps;
    bool whole_tensors;      /* no tensor is cut */
    uint8_t digest[TS_DIGEST_BYTES];
    uint32_t *names;         /* internal: hash table of tensor ids + 1 by name */
    uint32_t name_slots;
} ts_contract;

typedef struct {
    size_t slice_elems;
    uint64_t seed;
    ts_mode mode;
    uint32_t staleness;
    const char *optimizer, *feedback, *rounds; /* copied; NULL is "" */
    uint64_t total_steps;
    bool whole_tensors;
} ts_contract_options;

/* An empty contract. options: [borrow], copied. out: [own], ts_contract_destroy.
 * Returns TERSE_OK, TERSE_EINVAL (slice_elems is 0 or above 2^32 - 1), TERSE_ENOMEM. */
terse_status ts_contract_create(const ts_contract_options *options, ts_contract **out) TERSE_NODISCARD;
void ts_contract_destroy(ts_contract *contract); /* NULL is fine */
/*
 * What a tensor's name may be: 1 to 512 bytes of UTF-8 without control characters, since logs and checkpoints hold it.
 * number: of the tensor, for a name that cannot be told. name: may be NULL.
 * Returns TERSE_OK, TERSE_EINVAL, TERSE_ELIMIT (too long), with a sentence.
 */
terse_status ts_contract_check_name(uint32_t number, const char *name, ts_error *error) TERSE_NODISCARD;
/* Returns TERSE_EINVAL (no name, one that is not plain, or repeated; zero extent, too many dims: error says), TERSE_ELIMIT, TERSE_ENOMEM. */
terse_status ts_contract_add(ts_contract *contract, const char *name, const int64_t *shape, unsigned ndim,
                             const ts_pipeline *push, const ts_pipeline *pull, bool worker_momentum, uint32_t *id,
                             ts_error *error) TERSE_NODISCARD;
/* After the last tensor: cuts slices, places them on `servers` servers by work, computes the digest. */
terse_status ts_contract_seal(ts_contract *contract, uint32_t servers) TERSE_NODISCARD;

/* Serialized protobuf Contract (the digest is over these bytes). bytes: [own] by the caller, ts_mem_free. */
terse_status ts_contract_pack(const ts_contract *contract, uint8_t **bytes, size_t *len) TERSE_NODISCARD;
/* From outside: checks everything, seals. Returns TERSE_ECORRUPT, TERSE_ELIMIT, TERSE_ENOMEM, with a sentence. */
terse_status ts_contract_unpack(const uint8_t *bytes, size_t len, uint32_t servers, ts_contract **out, ts_error *error)
    TERSE_NODISCARD;

/* What a contract from a peer may take: a few bytes can declare a tensor of millions of slices. */
typedef struct {
    uint64_t tensors; /* limits.tensors */
    uint64_t bytes;   /* limits.job_bytes, of memory for slices; 0: no limit */
} ts_contract_room;
/* The same; TERSE_ELIMIT, before memory is taken, for more than the room. */
terse_status ts_contract_unpack_within(const uint8_t *bytes, size_t len, uint32_t servers, const ts_contract_room *room,
                                       ts_contract **out, ts_error *error) TERSE_NODISCARD;
/* Slices that sealing will cut the tensors into, and what it takes for so many. */
uint64_t ts_contract_count_slices(const ts_contract *contract);
uint64_t ts_contract_slices_bytes(uint64_t slices);
/*
 * The first difference in words, with the names of who declared which: "tensor fc1.weight: shape 512x784 at worker 0,
 * 512x780 at worker 2". Returns whether they differ.
 */
bool ts_contract_difference(const ts_contract *here, const char *here_name, const ts_contract *there,
                            const char *there_name, ts_error *difference);

/* Elements of a slice of this tensor: all of them when a transform, or the job, takes whole tensors, and so it gets one
 * owner. */
size_t ts_contract_slice_elems(const ts_contract *contract, uint32_t tensor);
/* The codec's view: a whole tensor at a worker, or one slice at a server (downlink). pipeline: push or pull by direction. */
ts_codec_spec ts_contract_push_spec(const ts_contract *contract, uint32_t tensor, uint32_t worker);
ts_codec_spec ts_contract_pull_spec(const ts_contract *contract, uint32_t slice);

#endif
