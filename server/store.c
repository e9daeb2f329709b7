/* SPDX-License-Identifier: Apache-2.0 */
#include "server/store.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/mem.h"

static void free_slice(ts_slice_state *slice, uint32_t workers) {
    for (uint32_t w = 0; slice->slots && w < workers; w++) ts_buffer_unref(slice->slots[w].frame);
    for (uint32_t i = 0; slice->log && i < slice->log_entries; i++) ts_buffer_unref(slice->log[i].frame);
    for (unsigned s = 0; s < TS_OPTIMIZER_STATES; s++) ts_mem_free(slice->state[s]);
    ts_buffer_unref(slice->values);
    ts_mem_free(slice->reference);
    ts_mem_free(slice->estimate);
    ts_encoder_destroy(slice->encoder);
    for (uint32_t w = 0; slice->push_states && w < slice->push_room; w++) ts_decode_state_destroy(slice->push_states[w]);
    ts_mem_free(slice->push_states);
    ts_mem_free(slice->slots);
    ts_mem_free(slice->retired);
    ts_mem_free(slice->log);
}

void ts_store_free(ts_store *store) {
    for (uint32_t s = 0; store->slices && s < store->count; s++) free_slice(&store->slices[s], store->workers);
    ts_mem_free(store->slices);
    if (store->books) ts_mem_free(store->books->held);
    ts_mem_free(store->books);
    *store = (ts_store){0};
}

static ts_downlink_kind kind_of(const ts_tensor *tensor, const ts_optimizer *optimizer) {
    if (optimizer->aggregates) return TS_DOWNLINK_AVERAGE;
    return ts_pipeline_is_lossless(&tensor->pull) ? TS_DOWNLINK_REPLACE : TS_DOWNLINK_REFERENCE;
}

/* What each worker's packets refer to. */
static terse_status fill_push_states(ts_slice_state *slice, const ts_contract *contract, uint32_t workers) {
    const ts_tensor *tensor = &contract->tensors[slice->tensor];
    TS_REQUIRE(workers <= slice->push_room, TERSE_ENOMEM);
    for (uint32_t w = 0; w < workers; w++) {
        if (slice->push_states[w]) continue;
        ts_codec_spec spec = ts_contract_push_spec(contract, slice->tensor, w);
        TS_TRY(ts_decode_state_create(&spec, slice->global - tensor->first_slice, &slice->push_states[w]));
    }
    return TERSE_OK;
}

static terse_status make_push_states(ts_slice_state *slice, const ts_contract *contract, uint32_t workers, uint32_t room) {
    if (!ts_pipeline_is_stateful(&contract->tensors[slice->tensor].push)) return TERSE_OK;
    slice->push_room = room > workers ? room : workers;
    slice->push_states = ts_mem_calloc(slice->push_room, sizeof(ts_decode_state *));
    TS_REQUIRE(slice->push_states, TERSE_ENOMEM);
    return fill_push_states(slice, contract, workers);
}

/* Parameters of n floats, zero, for a slice that gives up those it has. Returns TERSE_ENOMEM (as before). */
static terse_status make_params(ts_slice_state *slice) {
    ts_buffer *values;
    float *params = ts_mem_aligned(slice->n, sizeof(float));
    TS_REQUIRE(params, TERSE_ENOMEM);
    if (ts_buffer_adopt(params, slice->n * sizeof(float), &values) != TERSE_OK) {
        ts_mem_free(params);
        return TERSE_ENOMEM;
    }
    ts_buffer_unref(slice->values);
    slice->values = values;
    slice->params = params;
    return TERSE_OK;
}

terse_status ts_store_own_params(ts_slice_state *slice) {
    if (ts_buffer_sole(slice->values)) return TERSE_OK;
    ts_buffer *lent = ts_buffer_ref(slice->values);
    terse_status status = make_params(slice);
    if (status == TERSE_OK && slice->n) memcpy(slice->params, lent->data, slice->n * sizeof(float));
    ts_buffer_unref(lent);
    return status;
}

static terse_status make_slice(ts_slice_state *slice, const ts_contract *contract, const ts_config *config,
                               const ts_optimizer *optimizer, uint32_t global, uint32_t workers) {
    const ts_slice *place = &contract->slices[global];
    const ts_tensor *tensor = &contract->tensors[place->tensor];
    slice->local = place->local;
    slice->global = global;
    slice->tensor = place->tensor;
    slice->n = place->n;
    slice->kind = kind_of(tensor, optimizer);
    slice->alone = config->consistency.mode != TS_MODE_BSP;
    slice->pull = ts_contract_pull_spec(contract, global);
    TS_TRY(make_params(slice));
    slice->slots = ts_mem_calloc(workers, sizeof *slice->slots);
    TS_REQUIRE(slice->slots, TERSE_ENOMEM);
    TS_TRY(make_push_states(slice, contract, workers, config->limits.workers));
    unsigned states = optimizer->states(config, tensor->worker_momentum);
    for (unsigned s = 0; s < states; s++) {
        slice->state[s] = ts_mem_aligned(place->n, sizeof(float));
        TS_REQUIRE(slice->state[s], TERSE_ENOMEM);
    }
    if (ts_config_estimates(config)) {
        slice->estimate = ts_mem_aligned(place->n, sizeof(float));
        TS_REQUIRE(slice->estimate, TERSE_ENOMEM);
    }
    if (slice->kind == TS_DOWNLINK_REPLACE) return TERSE_OK;
    uint32_t entries = config->servers.history > 0 ? config->servers.history : 1;
    /* Without rounds each worker's pull makes a version, so a round's worth of them is one for each worker. */
    if (config->consistency.mode != TS_MODE_BSP) {
        slice->log_share = entries;
        entries *= workers;
    }
    slice->reference = ts_mem_aligned(place->n, sizeof(float));
    slice->log = ts_mem_calloc(entries, sizeof *slice->log);
    TS_REQUIRE(slice->reference && slice->log, TERSE_ENOMEM);
    slice->log_entries = entries;
    return ts_encoder_create(&slice->pull, &slice->encoder);
}

terse_status ts_store_create(ts_store *store, const ts_contract *contract, const ts_config *config,
                             const ts_optimizer *optimizer, uint32_t server, uint32_t workers) {
    TS_REQUIRE(server < contract->servers, TERSE_EINVAL);
    ts_store made = {.count = contract->server_slices[server], .workers = workers};
    made.uninitialised = made.count;
    made.books = ts_mem_calloc(1, sizeof *made.books);
    TS_REQUIRE(made.books, TERSE_ENOMEM);
    made.books->held = ts_mem_calloc(workers, sizeof *made.books->held);
    made.slices = ts_mem_calloc(made.count, sizeof *made.slices);
    if (!made.slices || !made.books->held) {
        ts_store_free(&made);
        return TERSE_ENOMEM;
    }
    for (uint32_t s = 0; s < contract->slice_count; s++) {
        if (contract->slices[s].server != server) continue;
        assert(contract->slices[s].local < made.count);
        made.slices[contract->slices[s].local].books = made.books;
        terse_status status =
            make_slice(&made.slices[contract->slices[s].local], contract, config, optimizer, s, workers);
        if (status != TERSE_OK) {
            ts_store_free(&made);
            return status;
        }
        made.elems += contract->slices[s].n;
        if (contract->slices[s].n > made.largest_elems) made.largest_elems = contract->slices[s].n;
    }
    *store = made;
    return TERSE_OK;
}

/* What a checkpoint is read from stays where it is until that is over. */
static terse_status grow_slots(ts_slice_state *slice, uint32_t from, uint32_t to) {
    TS_REQUIRE(!slice->saving || !slice->retired, TERSE_ENOMEM); /* a second time within one: the worker comes again */
    ts_slot *slots = ts_mem_calloc(to, sizeof *slots);
    TS_REQUIRE(slots, TERSE_ENOMEM);
    memcpy(slots, slice->slots, from * sizeof *slots);
    ts_mem_free(slice->retired);
    slice->retired = slice->saving ? slice->slots : NULL;
    if (!slice->saving) ts_mem_free(slice->slots);
    slice->slots = slots;
    return TERSE_OK;
}

/* Without rounds the log has places for a round's worth of versions: one a worker. */
static terse_status grow_log(ts_slice_state *slice, uint32_t workers) {
    uint32_t entries = slice->log_share * workers;
    if (entries <= slice->log_entries) return TERSE_OK;
    ts_log_entry *log = ts_mem_calloc(entries, sizeof *log);
    TS_REQUIRE(log, TERSE_ENOMEM);
    for (uint32_t i = 0; i < slice->log_entries; i++) {
        if (!slice->log[i].frame) continue;
        ts_log_entry *to = &log[slice->log[i].version % entries];
        assert(!to->frame); /* the ring holds versions that follow each other */
        *to = slice->log[i];
    }
    ts_mem_free(slice->log);
    slice->log = log;
    slice->log_entries = entries;
    return TERSE_OK;
}

terse_status ts_store_grow(ts_store *store, const ts_contract *contract, uint32_t workers) {
    if (workers <= store->workers) return TERSE_OK;
    size_t *held = ts_mem_realloc(store->books->held, workers, sizeof *held);
    TS_REQUIRE(held, TERSE_ENOMEM);
    store->books->held = held;
    memset(held + store->workers, 0, (workers - store->workers) * sizeof *held);
    for (uint32_t s = 0; s < store->count; s++) {
        ts_slice_state *slice = &store->slices[s];
        TS_TRY(grow_slots(slice, store->workers, workers)); /* those that have grown have room to spare */
        if (slice->push_states) TS_TRY(fill_push_states(slice, contract, workers));
        TS_TRY(grow_log(slice, workers));
    }
    store->workers = workers;
    return TERSE_OK;
}

bool ts_store_set(ts_store *store, uint32_t local, const uint8_t *raw) {
    ts_slice_state *slice = &store->slices[local];
    if (slice->initialised) return false;
    memcpy(slice->params, raw, slice->n * sizeof(float));
    if (slice->kind == TS_DOWNLINK_REFERENCE) memcpy(slice->reference, raw, slice->n * sizeof(float));
    slice->initialised = true;
    store->uninitialised--;
    return true;
}

void ts_store_loaded(ts_store *store, uint32_t local, uint64_t version) {
    ts_slice_state *slice = &store->slices[local];
    assert(!slice->initialised);
    slice->initialised = true;
    if (!slice->alone) slice->version = slice->steps = version; /* else they are in the checkpoint */
    for (uint32_t w = 0; w < store->workers; w++) slice->slots[w].next = version;
    store->uninitialised--;
}

/* A frame's memory counts from the first packet in it that is kept to the last. */
static void enter(ts_buffer *frame, size_t len, size_t *book) {
    if (frame->holders++ == 0) *book += frame->capacity;
    frame->useful += len;
}

static void leave(ts_buffer *frame, size_t len, size_t *book) {
    frame->useful -= len;
    if (--frame->holders == 0) *book -= frame->capacity;
    ts_buffer_unref(frame);
}

void ts_store_hold(ts_slice_state *slice, uint32_t worker, ts_buffer *frame, const uint8_t *packet, size_t len,
                   uint64_t step, uint64_t now_us) {
    ts_slot *slot = &slice->slots[worker];
    assert(!slot->frame);
    slot->frame = ts_buffer_ref(frame);
    slot->packet = packet;
    slot->len = len;
    slot->step = step;
    slot->arrived_us = now_us;
    slot->acked = false;
    slice->held++;
    enter(frame, len, &slice->books->held[worker]);
}

void ts_store_drop(ts_slice_state *slice, uint32_t worker) {
    ts_slot *slot = &slice->slots[worker];
    if (!slot->frame) return;
    leave(slot->frame, slot->len, &slice->books->held[worker]);
    slot->frame = NULL;
    slot->packet = NULL;
    slot->len = 0;
    slice->held--;
    if (slot->unconfirmed) slice->unconfirmed--;
    slot->unconfirmed = false;
}

void ts_store_compact(ts_store *store, uint32_t worker) {
    for (uint32_t s = 0; s < store->count; s++) {
        ts_slot *slot = &store->slices[s].slots[worker];
        ts_buffer *copy;
        if (!slot->frame || store->slices[s].busy || slot->frame->useful + 1024 >= slot->frame->capacity / 2) continue;
        if (ts_buffer_create(slot->len, &copy) != TERSE_OK) return;
        if (slot->len > 0) memcpy(copy->data, slot->packet, slot->len);
        copy->len = slot->len;
        leave(slot->frame, slot->len, &store->books->held[worker]);
        enter(copy, slot->len, &store->books->held[worker]);
        slot->frame = copy;
        slot->packet = copy->data;
    }
}

uint32_t ts_store_first_open(const ts_store *store) {
    uint32_t first = 0;
    for (uint32_t s = 1; s < store->count; s++)
        if (store->slices[s].version < store->slices[first].version) first = s;
    return first;
}

static void forget(ts_slice_state *slice, ts_log_entry *entry) {
    if (!entry->frame) return;
    slice->log_bytes -= entry->len;
    leave(entry->frame, entry->len, &slice->books->log);
    *entry = (ts_log_entry){0};
}

void ts_store_log(ts_slice_state *slice, uint64_t version, ts_buffer *frame, size_t offset, size_t len) {
    if (slice->log_entries == 0) return;
    ts_log_entry *entry = &slice->log[version % slice->log_entries];
    forget(slice, entry);
    *entry = (ts_log_entry){.frame = ts_buffer_ref(frame), .offset = offset, .len = len, .version = version};
    slice->log_bytes += len;
    enter(frame, len, &slice->books->log);
    /* A worker that is so far behind does as well with a snapshot; and memory is to be little more than the model's. */
    size_t limit = slice->n * sizeof(float) / TS_LOG_PART;
    for (uint32_t age = slice->log_entries - 1; age > 0 && slice->log_bytes > limit; age--)
        if (version >= age) forget(slice, &slice->log[(version - age) % slice->log_entries]);
}

const ts_log_entry *ts_store_logged(const ts_slice_state *slice, uint64_t version) {
    if (slice->log_entries == 0) return NULL;
    const ts_log_entry *entry = &slice->log[version % slice->log_entries];
    return entry->frame && entry->version == version ? entry : NULL;
}

uint64_t ts_store_version(const ts_store *store) {
    uint64_t lowest = UINT64_MAX;
    if (store->uninitialised > 0) return 0; /* which another thread may be loading */
    for (uint32_t s = 0; s < store->count; s++)
        if (store->slices[s].version < lowest) lowest = store->slices[s].version;
    return store->count ? lowest : 0;
}

uint64_t ts_store_hash(ts_slice_state *slice) {
    assert(!slice->busy);
    if (!slice->hashed || slice->hash_steps != slice->steps) {
        slice->hash = XXH3_64bits(slice->params, slice->n * sizeof(float));
        slice->hash_steps = slice->steps;
        slice->hashed = slice->initialised;
    }
    return slice->hash;
}

ts_store_memory ts_store_bytes(const ts_store *store) {
    ts_store_memory bytes = {.bookkeeping = store->count * sizeof *store->slices};
    if (!store->books) return bytes;
    bytes.log = store->books->log;
    for (uint32_t w = 0; w < store->workers; w++) bytes.held += store->books->held[w];
    for (uint32_t s = 0; s < store->count; s++) {
        const ts_slice_state *slice = &store->slices[s];
        size_t array = slice->n * sizeof(float);
        bytes.params += array;
        if (slice->reference) bytes.reference += array;
        if (slice->estimate) bytes.estimates += array;
        if (slice->encoder) bytes.encoders += ts_encoder_bytes(slice->encoder);
        for (unsigned i = 0; i < TS_OPTIMIZER_STATES; i++)
            if (slice->state[i]) bytes.optimizer += array;
        for (uint32_t w = 0; slice->push_states && w < store->workers; w++)
            bytes.receivers += sizeof slice->push_states[w] + ts_decode_state_bytes(slice->push_states[w]);
        bytes.bookkeeping += store->workers * sizeof *slice->slots + slice->log_entries * sizeof *slice->log;
    }
    return bytes;
}

size_t ts_store_total(const ts_store_memory *bytes) {
    return bytes->params + bytes->reference + bytes->optimizer + bytes->estimates + bytes->receivers + bytes->encoders +
           bytes->held + bytes->log + bytes->bookkeeping;
}
