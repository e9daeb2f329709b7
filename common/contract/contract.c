/* SPDX-License-Identifier: Apache-2.0 */
/* Declaring tensors, and the codec's view of them. */
#include "common/contract/contract.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/mem.h"
#include "common/base/text.h"
#include "common/contract/contract_limits.h"

#define NAME_SHOWN 128 /* bytes of a name that is refused */

static char *copy_or_empty(const char *text) { return ts_mem_strdup(text ? text : ""); }

terse_status ts_contract_create(const ts_contract_options *options, ts_contract **out) {
    TS_REQUIRE(options->slice_elems > 0 && options->slice_elems <= UINT32_MAX, TERSE_EINVAL);
    ts_contract *contract = ts_mem_calloc(1, sizeof *contract);
    TS_REQUIRE(contract, TERSE_ENOMEM);
    contract->slice_elems = options->slice_elems;
    contract->seed = options->seed;
    contract->mode = options->mode;
    contract->staleness = options->staleness;
    contract->total_steps = options->total_steps;
    contract->whole_tensors = options->whole_tensors;
    contract->optimizer = copy_or_empty(options->optimizer);
    contract->feedback = copy_or_empty(options->feedback);
    contract->rounds = copy_or_empty(options->rounds);
    if (!contract->optimizer || !contract->feedback || !contract->rounds) {
        ts_contract_destroy(contract);
        return TERSE_ENOMEM;
    }
    *out = contract;
    return TERSE_OK;
}

void ts_contract_destroy(ts_contract *contract) {
    if (!contract) return;
    for (uint32_t i = 0; i < contract->tensor_count; i++) ts_mem_free(contract->tensors[i].name);
    ts_mem_free(contract->tensors);
    ts_mem_free(contract->names);
    ts_mem_free(contract->slices);
    ts_mem_free(contract->server_slices);
    ts_mem_free(contract->optimizer);
    ts_mem_free(contract->feedback);
    ts_mem_free(contract->rounds);
    ts_mem_free(contract);
}

/* Where the name stands in the table, or where it would (linear probing; the table is never full). */
static uint32_t name_slot(const ts_contract *contract, const char *name) {
    uint32_t mask = contract->name_slots - 1;
    uint32_t slot = (uint32_t)XXH3_64bits(name, strlen(name)) & mask;
    while (contract->names[slot] != 0 && strcmp(contract->tensors[contract->names[slot] - 1].name, name) != 0) {
        slot = (slot + 1) & mask;
    }
    return slot;
}

terse_status ts_contract_check_name(uint32_t number, const char *name, ts_error *error) {
    char shown[NAME_SHOWN];
    if (!name || !name[0]) {
        return ts_error_set(error, TERSE_EINVAL, "tensor %u: the name is %s; allowed: 1 to %d bytes of UTF-8", number,
                            name ? "empty" : "missing (NULL)", TS_CONTRACT_NAME_BYTES);
    }
    if (!ts_text_is_plain(name)) {
        return ts_error_set(error, TERSE_EINVAL, "tensor \"%s\": not a name; allowed: 1 to %d bytes of UTF-8 without control "
                            "characters", ts_text_escape(name, shown, sizeof shown), TS_CONTRACT_NAME_BYTES);
    }
    if (strlen(name) > TS_CONTRACT_NAME_BYTES) {
        return ts_error_set(error, TERSE_ELIMIT, "tensor %s: a name of %zu bytes; allowed: at most %d",
                            ts_text_escape(name, shown, sizeof shown), strlen(name), TS_CONTRACT_NAME_BYTES);
    }
    return TERSE_OK;
}

static terse_status check_unique(const ts_contract *contract, const char *name, ts_error *error) {
    if (contract->name_slots > 0 && contract->names[name_slot(contract, name)] != 0) {
        return ts_error_set(error, TERSE_EINVAL, "tensor %s: the name is declared twice", name);
    }
    return TERSE_OK;
}

static terse_status check_shape(const char *name, const int64_t *shape, unsigned ndim, size_t *n, ts_error *error) {
    if (ndim > TS_TENSOR_DIMS) {
        return ts_error_set(error, TERSE_EINVAL, "tensor %s: %u extents; allowed: at most %d", name, ndim,
                            TS_TENSOR_DIMS);
    }
    size_t product = 1;
    for (unsigned i = 0; i < ndim; i++) {
        if (shape[i] < 1) {
            return ts_error_set(error, TERSE_EINVAL, "tensor %s: extent %u is %lld; allowed: at least 1", name, i,
                                (long long)shape[i]);
        }
        if (!ts_mem_mul(product, (size_t)shape[i], &product) || product > TS_CONTRACT_TENSOR_ELEMS) {
            return ts_error_set(error, TERSE_ELIMIT, "tensor %s: more than %llu elements", name,
                                (unsigned long long)TS_CONTRACT_TENSOR_ELEMS);
        }
    }
    *n = product;
    return TERSE_OK;
}

/* Room for one more tensor and its name: both arrays double when the count reaches a power of two. */
static terse_status reserve(ts_contract *contract, ts_error *error) {
    uint32_t count = contract->tensor_count;
    if (count >= TS_CONTRACT_TENSORS) {
        return ts_error_set(error, TERSE_ELIMIT, "more than %u tensors", (unsigned)TS_CONTRACT_TENSORS);
    }
    if ((count & (count - 1)) != 0) return TERSE_OK;
    uint32_t room = count == 0 ? 1 : count * 2, slots = room * 2;
    ts_tensor *tensors = ts_mem_realloc(contract->tensors, room, sizeof *tensors);
    TS_REQUIRE(tensors, ts_error_set(error, TERSE_ENOMEM, "out of memory"));
    contract->tensors = tensors;
    if (slots <= contract->name_slots) return TERSE_OK; /* after a failure the table may be ahead */
    uint32_t *names = ts_mem_calloc(slots, sizeof *names);
    TS_REQUIRE(names, ts_error_set(error, TERSE_ENOMEM, "out of memory"));
    ts_mem_free(contract->names);
    contract->names = names;
    contract->name_slots = slots;
    for (uint32_t i = 0; i < count; i++) names[name_slot(contract, tensors[i].name)] = i + 1;
    return TERSE_OK;
}

terse_status ts_contract_add(ts_contract *contract, const char *name, const int64_t *shape, unsigned ndim,
                             const ts_pipeline *push, const ts_pipeline *pull, bool worker_momentum, uint32_t *id,
                             ts_error *error) {
    size_t n = 0;
    TS_TRY(ts_contract_check_name(contract->tensor_count, name, error));
    if (contract->servers > 0) {
        return ts_error_set(error, TERSE_ESTATE, "tensor %s: declared after the contract was closed", name);
    }
    TS_TRY(check_unique(contract, name, error));
    TS_TRY(check_shape(name, shape, ndim, &n, error));
    if (ts_pipeline_is_stateful(pull)) {
        return ts_error_set(error, TERSE_EINVAL, "tensor %s: pull pipeline `%s`: `%s` needs a receiver that gets every "
                            "packet; allowed for push", name, pull->text, pull->transform->info.name);
    }
    if (ts_pipeline_replaces(push)) {
        return ts_error_set(error, TERSE_EINVAL, "tensor %s: push pipeline `%s`: `%s` compares with what the receiver holds, "
                            "and a push has no such reference; allowed for pull", name, push->text, push->select->info.name);
    }
    if (ts_pipeline_replaces(pull) && strncmp(contract->optimizer, "name=none", strlen("name=none")) == 0) {
        return ts_error_set(error, TERSE_EINVAL, "tensor %s: pull pipeline `%s`: with optimizer none a pull carries a round's "
                            "average, and there is nothing to compare it with; allowed: all others", name, pull->text);
    }
    TS_TRY(reserve(contract, error));
    ts_tensor tensor = {.ndim = ndim, .n = n, .push = *push, .pull = *pull, .worker_momentum = worker_momentum};
    for (unsigned i = 0; i < ndim; i++) tensor.shape[i] = shape[i];
    tensor.name = ts_mem_strdup(name);
    TS_REQUIRE(tensor.name, ts_error_set(error, TERSE_ENOMEM, "out of memory"));
    if (id) *id = contract->tensor_count;
    uint32_t slot = name_slot(contract, name);
    contract->tensors[contract->tensor_count++] = tensor;
    contract->names[slot] = contract->tensor_count;
    return TERSE_OK;
}

size_t ts_contract_slice_elems(const ts_contract *contract, uint32_t tensor) {
    const ts_tensor *t = &contract->tensors[tensor];
    if (contract->whole_tensors) return t->n;
    size_t push = ts_codec_cut_elems(&t->push, t->shape, t->ndim, t->n, contract->slice_elems);
    size_t pull = ts_codec_cut_elems(&t->pull, t->shape, t->ndim, t->n, contract->slice_elems);
    return push > pull ? push : pull;
}

ts_codec_spec ts_contract_push_spec(const ts_contract *contract, uint32_t tensor, uint32_t worker) {
    const ts_tensor *t = &contract->tensors[tensor];
    return (ts_codec_spec){.pipeline = &t->push,
                           .n = t->n,
                           .slice_elems = ts_contract_slice_elems(contract, tensor),
                           .shape = t->shape,
                           .ndim = t->ndim,
                           .seed = contract->seed,
                           .tensor = tensor,
                           .worker = worker,
                           .direction = TS_PUSH};
}

ts_codec_spec ts_contract_pull_spec(const ts_contract *contract, uint32_t slice) {
    const ts_slice *s = &contract->slices[slice];
    const ts_tensor *t = &contract->tensors[s->tensor];
    return (ts_codec_spec){.pipeline = &t->pull,
                           .n = s->n,
                           .slice_elems = ts_contract_slice_elems(contract, s->tensor),
                           .origin = s->first,
                           .shape = t->shape,
                           .ndim = t->ndim,
                           .seed = contract->seed,
                           .tensor = s->tensor,
                           .worker = TS_CODEC_SERVER,
                           .direction = TS_PULL};
}
