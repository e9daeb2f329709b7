/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The constants are picoseconds on one core of a 2-core x86-64 machine with AVX2, taken from
 *   terse bench codec --pipeline P -n 1048576 --json     (decode_add_s, encode_s; sparse ones at a ratio of 0.01)
 *   make bench-optimizer                                  (64 MiB an array)
 * and scaled to a sweep of 300 ps an element, since other programs ran beside. Only their proportions matter; on other
 * machines they shift little against each other, and a placement that is 10 % off balance is still a placement.
 */
#include "common/contract/contract_work.h"

#include <string.h>

#include "common/codec/stage_list.h"
#include "common/codec/transform.h"

enum {
    PACKET = 1000000,    /* a packet's way from its frame into the sum, whatever its size (`-n 64`, and the round's books) */
    SLICE = 4000000,     /* closing a round: work item, frame, log */
    SCATTER = 6000,      /* a value of a sparse packet into the sum, beside decoding it */
    GATHER = 10000,      /* a value of a sparse pull out of the slice and its index written */
    COPY = 700,          /* an element of parameters into a frame */
    SUBTRACT = 900,      /* an element of parameters - reference */
    REGENERATE = 250,    /* an element of a selection that sends no indices */
    FACTORS = 260,       /* an element of a product of factors */
    FACTORS_RANK = 60,   /* and a rank */
    SINGULAR = 3000,     /* an element of a singular value decomposition, */
    SINGULAR_SIDE = 25,  /* and one more for each row or column, whichever are fewer, */
    SINGULAR_MOST = 1024, /* up to so many, above which it is done otherwise */
    DELTA = 1000         /* an element of state */
};

/* Stages by name. Of values: quantisers and indices. Of elements: selectors (encode) and transforms. Of bytes: packs. */
static const struct {
    const char *name;
    uint32_t decode, encode;
} costs[] = {
    {"fp32", 900, 900},      {"fp16", 540, 630},      {"bf16", 600, 670},       {"int8", 410, 520},
    {"int4", 480, 620},      {"linear", 510, 740},    {"log", 1490, 3290},      {"qsgd", 600, 1250},
    {"natural", 500, 870},   {"ternary", 480, 1100},  {"sign", 390, 610},       {"raw32", 5500, 1000},
    {"raw16", 4500, 1000},   {"raw8", 3000, 1500},    {"varint", 8500, 1500},   {"rice", 14000, 2000},
    {"rle", 9000, 3000},     {"block", 6000, 4000},   {"bitmap", 15000, 3000},  {"best", 14000, 4000},
    {"topk", 0, 680},        {"threshold", 0, 600},   {"adaptive", 0, 2900},    {"blocktopk", 0, 12000},
    {"randomk", 0, 640},     {"bernoulli", 0, 3800},  {"magnitude", 0, 5600},   {"exact", 0, 600},
    {"zstd", 800, 1500},     {"huffman", 4300, 3700}, {"rle8", 1200, 4800},    {"delta", DELTA, 2400},
    {"powersgd", FACTORS, 800}, {"svd", FACTORS, 0},  {"tucker", FACTORS, 2000},
};

/* Steps of optimizers, an element: a pass over their arrays. */
static const struct {
    const char *name;
    uint32_t step;
} steps[] = {{"none", 900},     {"sgd", 900},   {"adagrad", 1500}, {"rmsprop", 1500},
             {"adam", 1900},    {"adamw", 1900}, {"lamb", 3200}};
#define MOMENTUM_STEP 1500u

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static size_t row_of(const char *name) {
    size_t row = 0;
    while (row < COUNT(costs) && strcmp(costs[row].name, name) != 0) row++;
    return row;
}

bool ts_work_knows(const char *stage) { return row_of(stage) < COUNT(costs); }

/* A stage that nobody measured costs what int8 does. */
static uint64_t decode_of(const char *name) { return ts_work_knows(name) ? costs[row_of(name)].decode : 410u; }
static uint64_t encode_of(const char *name) { return ts_work_knows(name) ? costs[row_of(name)].encode : 520u; }

/* Values in a packet of n elements. */
static uint64_t values_of(const ts_pipeline *pipeline, size_t n) {
    const ts_select_stage *select = pipeline->select;
    if (!select) return n;
    size_t expected = select->expected ? select->expected(&pipeline->select_args, n) : 0;
    if (expected > 0) return expected;
    bool ratio = select != &ts_select_threshold; /* of which nobody knows what it lets through */
    double part = ratio && pipeline->select_args.count > 0 ? pipeline->select_args.value[0] : 1.0 / 16;
    return (uint64_t)((double)n * (part < 1 ? part : 1));
}

/* The factors of a tensor whose shape suits its pipeline's transform; .stage is NULL for others. */
static ts_transform_view view_of(const ts_tensor *tensor, const ts_pipeline *pipeline, size_t n) {
    ts_codec_spec spec = {.pipeline = pipeline, .n = n, .slice_elems = n > 0 ? n : 1, .shape = tensor->shape,
                          .ndim = tensor->ndim};
    return n == tensor->n && pipeline->transform ? ts_transform_view_of(&spec) : (ts_transform_view){0};
}

/* Bytes of k values and their scales. */
static uint64_t value_bytes(const ts_pipeline *pipeline, uint64_t k) {
    uint64_t block = pipeline->quantise->block_elems > 0 ? pipeline->quantise->block_elems : TS_BLOCK_ELEMS;
    uint64_t scales = pipeline->quantise->scales * (uint64_t)sizeof(float) * (k / block + (k % block != 0));
    return pipeline->quantise->bytes(&pipeline->quantise_args, (size_t)k) + scales;
}

/* Bits of an index among n / k: what its pack takes, or about the entropy of independent positions. */
static uint64_t index_bits(const ts_pipeline *pipeline, uint64_t k, size_t n) {
    const char *name = pipeline->index ? pipeline->index->info.name : "";
    if (k == 0 || !pipeline->index) return 0;
    if (strcmp(name, "raw32") == 0) return 32 * k;
    if (strcmp(name, "raw16") == 0) return 16 * k;
    if (strcmp(name, "bitmap") == 0) return n;
    uint64_t bits = 0;
    while (((uint64_t)n / k) >> (bits + 1) > 0) bits++;
    uint64_t close = strcmp(name, "raw8") == 0 || strcmp(name, "varint") == 0 ? (bits / 7 + 1) * 8 : bits + 2;
    return close * k < n ? close * k : n; /* the best pack is never above a bitmap */
}

uint64_t ts_work_packet_bytes(const ts_tensor *tensor, const ts_pipeline *pipeline, size_t n) {
    ts_transform_view view = view_of(tensor, pipeline, n);
    if (view.stage) return value_bytes(pipeline, view.values);
    uint64_t k = values_of(pipeline, n);
    return value_bytes(pipeline, k) + (index_bits(pipeline, k, n) + 7) / 8 + (pipeline->select ? 4 : 0);
}

static uint64_t byte_packs(const ts_pipeline *pipeline, uint64_t bytes, bool encode) {
    uint64_t cost = 0;
    for (unsigned i = 0; i < TS_PIPELINE_BYTE_STAGES && pipeline->bytes[i]; i++) {
        const char *name = pipeline->bytes[i]->info.name;
        cost += bytes * (encode ? encode_of(name) : decode_of(name));
    }
    return cost;
}

uint64_t ts_work_decode(const ts_tensor *tensor, size_t n) {
    const ts_pipeline *push = &tensor->push;
    ts_transform_view view = view_of(tensor, push, n);
    uint64_t value = decode_of(push->quantise->info.name);
    uint64_t packs = byte_packs(push, ts_work_packet_bytes(tensor, push, n), false);
    if (view.stage) return PACKET + packs + view.values * value + n * (FACTORS + FACTORS_RANK * (uint64_t)view.rank);
    uint64_t k = values_of(push, n), cost = PACKET + packs + k * value;
    if (push->transform && push->transform->differential) cost += n * decode_of(push->transform->info.name);
    if (!push->select) return cost;
    return cost + k * SCATTER + (push->index ? k * decode_of(push->index->info.name) : n * (uint64_t)REGENERATE);
}

/* The leading singular vectors of a matrix of n elements. */
static uint64_t singular_vectors(uint64_t n, uint64_t extent) {
    uint64_t rest = n / extent, fewer = extent < rest ? extent : rest;
    return n * (SINGULAR + SINGULAR_SIDE * (fewer < SINGULAR_MOST ? fewer : SINGULAR_MOST));
}

uint64_t ts_work_pull(const ts_tensor *tensor, size_t n) {
    const ts_pipeline *pull = &tensor->pull;
    ts_transform_view view = view_of(tensor, pull, n);
    uint64_t packs = byte_packs(pull, ts_work_packet_bytes(tensor, pull, n), true);
    uint64_t value = encode_of(pull->quantise->info.name) + decode_of(pull->quantise->info.name);
    if (ts_pipeline_is_lossless(pull)) return packs + n * (uint64_t)COPY;
    uint64_t cost = packs + (ts_pipeline_replaces(pull) ? 0 : n * (uint64_t)SUBTRACT);
    if (view.stage) {
        uint64_t rank = view.rank;
        if (pull->transform == &ts_transform_svd) cost += singular_vectors(n, view.rows);
        for (unsigned d = 0; d < view.dims; d++) cost += singular_vectors(n, view.extent[d]);
        return cost + view.values * value + n * (encode_of(pull->transform->info.name) + 2 * (FACTORS + rank * FACTORS_RANK));
    }
    if (!pull->select) return cost + n * value;
    uint64_t k = values_of(pull, n);
    uint64_t index = pull->index ? encode_of(pull->index->info.name) + decode_of(pull->index->info.name) : 0;
    return cost + n * encode_of(pull->select->info.name) + k * (value + index + GATHER + SCATTER);
}

/* Whether the canonical text says key=0; a key that it does not name is 0, too. */
static bool is_zero(const char *text, const char *key) {
    const char *at = strstr(text, key);
    if (!at) return true;
    at += strlen(key);
    return at[0] == '0' && (at[1] == ' ' || at[1] == '\0');
}

uint64_t ts_work_step(const ts_contract *contract, const ts_tensor *tensor, size_t n) {
    const char *text = contract->optimizer, *blank = strchr(text, ' ');
    size_t len = blank ? (size_t)(blank - text) : strlen(text), head = strlen("name=");
    uint64_t step = steps[1].step;
    for (size_t i = 0; i < COUNT(steps); i++)
        if (len == head + strlen(steps[i].name) && strncmp(text + head, steps[i].name, len - head) == 0) step = steps[i].step;
    if (strncmp(text, "name=sgd", strlen("name=sgd")) == 0) {
        bool plain = tensor->worker_momentum || (is_zero(text, " momentum=") && is_zero(text, " weight_decay="));
        bool touches = plain && ts_pipeline_is_sparse(&tensor->push); /* only what was pushed */
        if (touches) return TS_WORK_WORKERS * values_of(&tensor->push, n) * step;
        if (!tensor->worker_momentum && !is_zero(text, " momentum=")) step = MOMENTUM_STEP;
    }
    return n * step;
}

uint64_t ts_contract_work(const ts_contract *contract, uint32_t tensor, size_t n) {
    const ts_tensor *t = &contract->tensors[tensor];
    return SLICE + TS_WORK_WORKERS * ts_work_decode(t, n) + ts_work_step(contract, t, n) + ts_work_pull(t, n);
}
