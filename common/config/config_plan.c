/* SPDX-License-Identifier: Apache-2.0 */
#include "common/config/config_plan.h"

#include "common/base/mem.h"
#include "common/contract/contract_work.h"

#define LOG_PART 16u /* as TS_LOG_PART of the server's store */

unsigned ts_plan_optimizer_arrays(const ts_config *config, bool worker_momentum) {
    bool momentum = config->optimizer.momentum > 0;
    switch (config->optimizer.name) {
    case TS_OPTIMIZER_NONE: return 0;
    case TS_OPTIMIZER_SGD: return momentum && !worker_momentum ? 1 : 0;
    case TS_OPTIMIZER_ADAGRAD: return 1;
    case TS_OPTIMIZER_RMSPROP: return 1u + (config->optimizer.centered ? 1u : 0u) + (momentum ? 1u : 0u);
    default: return 2;
    }
}

terse_status ts_plan_contract(const ts_config *config, const ts_shapes *shapes, uint32_t servers, ts_contract **out,
                              ts_error *error) {
    ts_contract *contract;
    terse_status status = ts_config_contract(config, &contract);
    TS_REQUIRE(status == TERSE_OK, ts_error_set(error, status, "%s", terse_strerror(status)));
    for (uint32_t t = 0; status == TERSE_OK && t < shapes->count; t++) {
        const ts_shape *shape = &shapes->tensors[t];
        const ts_pipeline *push = ts_config_pipeline(&config->push, shape->name, shape->shape, shape->ndim);
        const ts_pipeline *pull = ts_config_pipeline(&config->pull, shape->name, shape->shape, shape->ndim);
        status = ts_contract_add(contract, shape->name, shape->shape, shape->ndim, push, pull,
                                 ts_config_worker_momentum(config, push), NULL, error);
    }
    if (status == TERSE_OK) {
        status = ts_contract_seal(contract, servers);
        if (status != TERSE_OK) status = ts_error_set(error, status, "%s", terse_strerror(status));
    }
    if (status == TERSE_OK) *out = contract;
    else ts_contract_destroy(contract);
    return status;
}

static bool keeps_reference(const ts_config *config, const ts_tensor *tensor) {
    return config->optimizer.name == TS_OPTIMIZER_NONE || !ts_pipeline_is_lossless(&tensor->pull);
}

/* Frames grow by halves, so what is kept can be half as large again; the last packet always stays. */
static uint64_t log_bytes(const ts_config *config, uint64_t packet, uint64_t array, uint32_t workers) {
    uint64_t entries = config->servers.history > 0 ? config->servers.history : 1;
    if (config->consistency.mode != TS_MODE_BSP) entries *= workers;
    uint64_t most = array / LOG_PART > packet ? array / LOG_PART : packet;
    uint64_t all = entries * packet < most ? entries * packet : most;
    return all + all / 2;
}

static void add_slice(const ts_plan *plan, const ts_contract *contract, const ts_config *config, const ts_slice *slice,
                      uint64_t work) {
    ts_plan_server *server = &plan->server[slice->server];
    const ts_tensor *tensor = &contract->tensors[slice->tensor];
    uint64_t array = slice->n * sizeof(float), pull = ts_work_packet_bytes(tensor, &tensor->pull, slice->n);
    bool reference = keeps_reference(config, tensor);
    server->slices++;
    server->elems += slice->n;
    server->work_ps += work;
    server->push += ts_work_packet_bytes(tensor, &tensor->push, slice->n);
    server->pull += pull;
    server->params += array;
    server->optimizer += array * ts_plan_optimizer_arrays(config, tensor->worker_momentum);
    if (ts_config_estimates(config)) server->estimates += array;
    if (ts_pipeline_is_stateful(&tensor->push)) server->receivers += array * plan->workers;
    if (reference) {
        server->reference += array;
        server->log += log_bytes(config, pull, array, plan->workers);
    }
    /* Sum, its bitmap, what is left to say, and packets taken apart: 8 bytes a value. */
    uint64_t scratch = 2 * array + slice->n / 8 + 2 * pull + 2 * ts_work_packet_bytes(tensor, &tensor->push, slice->n);
    if (ts_pipeline_replaces(&tensor->pull)) scratch += 2 * array; /* every element may have changed: number, place, value */
    if (scratch > server->scratch) server->scratch = scratch;
}

static void add_worker(ts_plan_worker *worker, const ts_config *config, const ts_tensor *tensor) {
    uint64_t array = tensor->n * sizeof(float);
    worker->residual += config->error_feedback.residual == TS_RESIDUAL_BF16 ? array / 2 : array;
    if (tensor->worker_momentum) worker->velocity += array;
    if (ts_config_estimates(config)) worker->estimate += array;
    if (ts_pipeline_is_stateful(&tensor->push)) worker->delta += array;
    worker->outbox += ts_work_packet_bytes(tensor, &tensor->push, tensor->n);
}

static void fill(ts_plan *plan, const ts_contract *contract, const ts_config *config) {
    uint64_t heaviest = 0, work = 0;
    for (uint32_t s = 0; s < contract->slice_count; s++) {
        const ts_slice *slice = &contract->slices[s];
        if (s == 0 || slice->tensor != slice[-1].tensor || slice->n != slice[-1].n)
            work = ts_contract_work(contract, slice->tensor, slice->n);
        add_slice(plan, contract, config, slice, work);
        if (slice->n > contract->slice_elems && work > heaviest) {
            heaviest = work;
            plan->largest_whole = slice->tensor;
            plan->has_whole = true;
        }
    }
    for (uint32_t t = 0; t < contract->tensor_count; t++) {
        const ts_tensor *tensor = &contract->tensors[t];
        for (uint32_t s = 0; s < plan->servers; s++) {
            bool owns = false;
            for (uint32_t i = 0; i < tensor->slices && !owns; i++)
                owns = contract->slices[tensor->first_slice + i].server == s;
            plan->server[s].tensors += owns;
        }
        add_worker(&plan->worker, config, tensor);
    }
    for (uint32_t s = 0; s < plan->servers; s++) {
        ts_plan_server *server = &plan->server[s];
        server->scratch *= server->slices < TS_PLAN_THREADS ? server->slices : TS_PLAN_THREADS;
        server->memory = server->params + server->reference + server->optimizer + server->estimates + server->receivers +
                         server->log + server->scratch;
    }
    for (uint32_t s = 0; s < plan->servers && config->servers.replicas > 0 && plan->servers > 1; s++) {
        const ts_plan_server *owner = &plan->server[(s + plan->servers - 1) % plan->servers];
        plan->server[s].standin = owner->memory - owner->standin;
        plan->server[s].memory += plan->server[s].standin;
    }
    ts_plan_worker *worker = &plan->worker;
    worker->memory = worker->residual + worker->velocity + worker->estimate + worker->delta + worker->outbox;
}

terse_status ts_plan_make(const ts_config *config, const ts_shapes *shapes, uint32_t servers, uint32_t workers,
                          ts_plan *out, ts_error *error) {
    ts_contract *contract;
    TS_TRY(ts_plan_contract(config, shapes, servers, &contract, error));
    terse_status status = ts_plan_of(config, contract, workers, out);
    if (status != TERSE_OK) {
        ts_contract_destroy(contract);
        return ts_error_set(error, status, "%s", terse_strerror(status));
    }
    out->contract = contract;
    return TERSE_OK;
}

terse_status ts_plan_of(const ts_config *config, const ts_contract *contract, uint32_t workers, ts_plan *out) {
    ts_plan plan = {.servers = contract->servers, .workers = workers};
    plan.server = ts_mem_calloc(contract->servers, sizeof *plan.server);
    TS_REQUIRE(plan.server, TERSE_ENOMEM);
    fill(&plan, contract, config);
    *out = plan;
    return TERSE_OK;
}

void ts_plan_free(ts_plan *plan) {
    ts_contract_destroy(plan->contract);
    ts_mem_free(plan->server);
    *plan = (ts_plan){0};
}
