/* SPDX-License-Identifier: Apache-2.0 */
/* The contract as a protobuf message: what the digest is taken of, and what a server checks. */
#include <string.h>

#include "common/base/mem.h"
#include "common/contract/contract.h"
#include "common/contract/contract_limits.h"
#include "terse.pb-c.h"

/* ---- out --------------------------------------------------------------------------------------------------------- */

/* Message structs that point into the contract. */
typedef struct {
    Terse__Tensor *tensors;
    Terse__Tensor **pointers;
    uint64_t *shapes; /* TS_TENSOR_DIMS each */
} message_arrays;

static void arrays_free(message_arrays *arrays) {
    ts_mem_free(arrays->tensors);
    ts_mem_free(arrays->pointers);
    ts_mem_free(arrays->shapes);
}

static terse_status arrays_fill(const ts_contract *contract, message_arrays *arrays) {
    uint32_t count = contract->tensor_count;
    size_t extents;
    TS_REQUIRE(ts_mem_mul(count, TS_TENSOR_DIMS, &extents), TERSE_ELIMIT);
    arrays->tensors = ts_mem_calloc(count, sizeof *arrays->tensors);
    arrays->pointers = ts_mem_calloc(count, sizeof(Terse__Tensor *));
    arrays->shapes = ts_mem_calloc(extents, sizeof *arrays->shapes);
    TS_REQUIRE(arrays->tensors && arrays->pointers && arrays->shapes, TERSE_ENOMEM);
    for (uint32_t i = 0; i < count; i++) {
        ts_tensor *tensor = &contract->tensors[i];
        Terse__Tensor *message = &arrays->tensors[i];
        uint64_t *shape = arrays->shapes + (size_t)i * TS_TENSOR_DIMS;
        for (unsigned d = 0; d < tensor->ndim; d++) shape[d] = (uint64_t)tensor->shape[d];
        terse__tensor__init(message);
        message->name = tensor->name;
        message->n_shape = tensor->ndim;
        message->shape = shape;
        message->push = tensor->push.text;
        message->pull = tensor->pull.text;
        message->worker_momentum = tensor->worker_momentum;
        arrays->pointers[i] = message;
    }
    return TERSE_OK;
}

terse_status ts_contract_pack(const ts_contract *contract, uint8_t **bytes, size_t *len) {
    message_arrays arrays = {0};
    uint8_t *packed = NULL;
    terse_status status = arrays_fill(contract, &arrays);
    if (status == TERSE_OK) {
        Terse__Contract message = TERSE__CONTRACT__INIT;
        message.n_tensors = contract->tensor_count;
        message.tensors = arrays.pointers;
        message.slice_elems = contract->slice_elems;
        message.seed = contract->seed;
        message.mode = (uint32_t)contract->mode;
        message.staleness = contract->staleness;
        message.optimizer = contract->optimizer;
        message.feedback = contract->feedback;
        message.rounds = contract->rounds;
        message.total_steps = contract->total_steps;
        message.whole_tensors = contract->whole_tensors;
        size_t size = terse__contract__get_packed_size(&message);
        packed = size <= TS_CONTRACT_BYTES ? ts_mem_calloc(size, 1) : NULL;
        status = size > TS_CONTRACT_BYTES ? TERSE_ELIMIT : packed ? TERSE_OK : TERSE_ENOMEM;
        if (status == TERSE_OK) {
            *len = terse__contract__pack(&message, packed);
            *bytes = packed;
        }
    }
    arrays_free(&arrays);
    return status;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

/* An honest message needs a few times its length; `0a 00` repeated would need fifty times. */
#define UNPACK_FACTOR 16
#define UNPACK_BASE_BYTES ((size_t)1 << 20)

/* What protobuf-c may still allocate for one message, and why it got nothing more. */
typedef struct {
    size_t left;
    terse_status failure;
} unpack_memory;

static void *unpack_alloc(void *context, size_t bytes) {
    unpack_memory *memory = context;
    if (bytes > memory->left) {
        memory->failure = TERSE_ELIMIT;
        return NULL;
    }
    memory->left -= bytes;
    void *block = ts_mem_calloc(bytes, 1);
    if (!block) memory->failure = TERSE_ENOMEM;
    return block;
}

static void unpack_free(void *context, void *block) {
    (void)context;
    ts_mem_free(block);
}

static terse_status add_tensor(ts_contract *contract, const Terse__Tensor *message, ts_error *error) {
    int64_t shape[TS_TENSOR_DIMS];
    const char *name = message->name;
    terse_status status = ts_contract_check_name(contract->tensor_count, name, error); /* before it is in a sentence */
    if (status != TERSE_OK) return status == TERSE_EINVAL ? TERSE_ECORRUPT : status;
    if (message->dtype != 0) {
        return ts_error_set(error, TERSE_ECORRUPT, "tensor %.200s: type %u; allowed: 0 (float32)", name, message->dtype);
    }
    if (message->n_shape > TS_TENSOR_DIMS) {
        return ts_error_set(error, TERSE_ECORRUPT, "tensor %.200s: %zu extents; allowed: at most %d", name,
                            message->n_shape, TS_TENSOR_DIMS);
    }
    for (size_t i = 0; i < message->n_shape; i++) {
        if (message->shape[i] > TS_CONTRACT_TENSOR_ELEMS) {
            return ts_error_set(error, TERSE_ELIMIT, "tensor %.200s: more than %llu elements", name,
                                (unsigned long long)TS_CONTRACT_TENSOR_ELEMS);
        }
        shape[i] = (int64_t)message->shape[i];
    }
    ts_pipeline push, pull;
    ts_error reason = {{0}};
    const char *texts[2] = {message->push, message->pull};
    ts_pipeline *parsed[2] = {&push, &pull};
    for (int i = 0; i < 2; i++) {
        if (ts_pipeline_parse(texts[i], parsed[i], &reason) == TERSE_OK && strcmp(parsed[i]->text, texts[i]) == 0) continue;
        return ts_error_set(error, TERSE_ECORRUPT, "tensor %.200s: pipeline \"%.100s\": %s", name, texts[i],
                            reason.text[0] ? reason.text : "not in its canonical spelling");
    }
    status = ts_contract_add(contract, name, shape, (unsigned)message->n_shape, &push, &pull, message->worker_momentum, NULL,
                             error);
    return status == TERSE_EINVAL ? TERSE_ECORRUPT : status;
}

/* Before sealing: a tensor of any size costs a message a few bytes, and its slices as many entries as it says. */
static terse_status check_slices(const ts_contract *contract, const ts_contract_room *room, ts_error *error) {
    uint64_t slices = ts_contract_count_slices(contract), bytes = ts_contract_slices_bytes(slices);
    if (slices > TS_CONTRACT_SLICES) {
        return ts_error_set(error, TERSE_ELIMIT, "its tensors have %llu slices of %zu elements; allowed: at most %u",
                            (unsigned long long)slices, contract->slice_elems, TS_CONTRACT_SLICES);
    }
    if (room->bytes == 0 || bytes <= room->bytes) return TERSE_OK;
    return ts_error_set(error, TERSE_ELIMIT, "its tensors have %llu slices of %zu elements, to keep account of which "
                        "takes %llu bytes; limits.job_bytes of the server allows %llu", (unsigned long long)slices,
                        contract->slice_elems, (unsigned long long)bytes, (unsigned long long)room->bytes);
}

static terse_status check_header(const Terse__Contract *message, const ts_contract_room *room, ts_error *error) {
    if (message->slice_elems == 0 || message->slice_elems > UINT32_MAX) {
        return ts_error_set(error, TERSE_ECORRUPT, "slice_elems %llu; allowed: 1 to 4294967295",
                            (unsigned long long)message->slice_elems);
    }
    if (message->mode > TS_MODE_ASP) {
        return ts_error_set(error, TERSE_ECORRUPT, "consistency mode %u; allowed: 0 (bsp), 1 (ssp), 2 (asp)",
                            message->mode);
    }
    if (strlen(message->optimizer) > TS_CONTRACT_TEXT_BYTES || strlen(message->feedback) > TS_CONTRACT_TEXT_BYTES ||
        strlen(message->rounds) > TS_CONTRACT_TEXT_BYTES) {
        return ts_error_set(error, TERSE_ELIMIT, "a text of hyper-parameters is longer than %d bytes",
                            TS_CONTRACT_TEXT_BYTES);
    }
    if (message->n_tensors > TS_CONTRACT_TENSORS) {
        return ts_error_set(error, TERSE_ELIMIT, "%zu tensors; allowed: at most %u", message->n_tensors,
                            TS_CONTRACT_TENSORS);
    }
    if (message->n_tensors > room->tensors) {
        return ts_error_set(error, TERSE_ELIMIT, "%zu tensors; limits.tensors of the server allows %llu", message->n_tensors,
                            (unsigned long long)room->tensors);
    }
    return TERSE_OK;
}

static terse_status build(const Terse__Contract *message, uint32_t servers, const ts_contract_room *room,
                          ts_contract **out, ts_error *error) {
    TS_TRY(check_header(message, room, error));
    const ts_contract_options options = {.slice_elems = (size_t)message->slice_elems,
                                         .seed = message->seed,
                                         .mode = (ts_mode)message->mode,
                                         .staleness = message->staleness,
                                         .optimizer = message->optimizer,
                                         .feedback = message->feedback,
                                         .rounds = message->rounds,
                                         .total_steps = message->total_steps,
                                         .whole_tensors = message->whole_tensors};
    ts_contract *contract = NULL;
    terse_status status = ts_contract_create(&options, &contract);
    if (status != TERSE_OK) return ts_error_set(error, status, "contract: %s", terse_strerror(status));
    for (size_t i = 0; status == TERSE_OK && i < message->n_tensors; i++) {
        status = add_tensor(contract, message->tensors[i], error);
    }
    if (status == TERSE_OK) status = check_slices(contract, room, error);
    if (status == TERSE_OK) {
        status = ts_contract_seal(contract, servers);
        if (status != TERSE_OK) ts_error_set(error, status, "contract: %s", terse_strerror(status));
    }
    if (status != TERSE_OK) {
        ts_contract_destroy(contract);
        return status;
    }
    *out = contract;
    return TERSE_OK;
}

terse_status ts_contract_unpack(const uint8_t *bytes, size_t len, uint32_t servers, ts_contract **out, ts_error *error) {
    const ts_contract_room room = {.tensors = TS_CONTRACT_TENSORS};
    return ts_contract_unpack_within(bytes, len, servers, &room, out, error);
}

terse_status ts_contract_unpack_within(const uint8_t *bytes, size_t len, uint32_t servers, const ts_contract_room *room,
                                       ts_contract **out, ts_error *error) {
    if (len > TS_CONTRACT_BYTES) {
        return ts_error_set(error, TERSE_ELIMIT, "a contract of %zu bytes; allowed: at most %zu", len, TS_CONTRACT_BYTES);
    }
    unpack_memory memory = {.left = UNPACK_BASE_BYTES + len * UNPACK_FACTOR, .failure = TERSE_ECORRUPT};
    ProtobufCAllocator allocator = {.alloc = unpack_alloc, .free = unpack_free, .allocator_data = &memory};
    Terse__Contract *message = terse__contract__unpack(&allocator, len, bytes);
    if (!message) {
        return ts_error_set(error, memory.failure, "contract: %s", terse_strerror(memory.failure));
    }
    terse_status status = build(message, servers, room, out, error);
    terse__contract__free_unpacked(message, &allocator);
    return status;
}
