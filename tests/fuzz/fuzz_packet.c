/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole packets. Input: three bytes that name pipeline, tensor and slice, then the packet. A packet that is refused
 * must leave the sum alone; one that is accepted must add what ts_decode says, and that must be finite; or, of a pipeline
 * that replaces, put it there, whatever it is.
 *     first    below 192: one of the pipelines below; else, with the high bits of the third: a generated one
 *     second   tensor size; from 128 on: the receiver of `delta` has a state
 *     third    slice in its low three bits
 */
#include <math.h>
#include <string.h>

#include "common/codec/codec.h"
#include "common/codec/delta.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/pipeline_generator.h"

#define HEAD_BYTES 3
#define SLICE_ELEMS 17000u
#define SCRATCH_LIMIT ((size_t)64 << 20)
#define GENERATED 0xC0u /* first bytes from here on name generated pipelines */
#define GENERATED_SEED 20
#define STATEFUL 0x80u
#define STEP 7

static const char *const pipelines[] = {"fp32",
                                        "fp16",
                                        "int8",
                                        "int8:tensor",
                                        "topk:0.01 | fp32 | raw32",
                                        "topk:0.01 | int8 | rice",
                                        "topk:0.1 | int8 | best",
                                        "topk:0.01 | fp16 | varint",
                                        "topk:0.5 | int8 | bitmap",
                                        "topk:0.01 | fp16 | raw16",
                                        "topk:0.01 | int8 | raw8",
                                        "topk:0.01 | int8 | block",
                                        "topk:0.01 | int8 | rle",
                                        "randomk:0.1 | int8",
                                        "topk:0.1 | int8:tensor | rice",
                                        "fp32 | huffman",
                                        "fp32 | zstd:1",
                                        "topk:0.01 | int8 | rice | huffman",
                                        "fp16 | rle8 | huffman",
                                        "fp32 | rle8",
                                        "bf16",
                                        "int4",
                                        "linear:4",
                                        "linear:1",
                                        "log:8",
                                        "qsgd:4",
                                        "natural",
                                        "ternary",
                                        "sign",
                                        "sign:tensor",
                                        "adaptive:0.01 | int4 | rice",
                                        "threshold:0.01 | int8 | rice",
                                        "bernoulli:0.1 | int8 | rice",
                                        "magnitude:0.1 | int8 | rice",
                                        "blocktopk:0.1:256 | int8 | best",
                                        "topk:0.01 | qsgd:4 | rice | zstd:3",
                                        "powersgd:2 | fp16",
                                        "svd:1",
                                        "tucker:2",
                                        "delta:64 | linear:4",
                                        "delta:4 | int8 | huffman",
                                        "exact | rice",
                                        "exact | bitmap | zstd:3",
                                        "exact"};
#define PIPELINE_COUNT (sizeof pipelines / sizeof pipelines[0])
static const size_t sizes[] = {0, 1, 2, 63, 64, 65, 1000, 16384, 16385, 20000};
#define SIZE_COUNT (sizeof sizes / sizeof sizes[0])

/* sum[i] must be start + value, or start; with pipelines that replace, value or start. */
static void check_sum(const float *sum, size_t n, const ts_decoded *decoded, bool replaces) {
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        float value = replaces ? 1 : 0;
        if (decoded->dense) {
            value = decoded->value[i];
        } else if (at < decoded->count && decoded->index[at] == i) {
            value = decoded->value[at++];
        }
        float expected = replaces ? value : 1.0f + value;
        FUZZ_CHECK(replaces || isfinite(value));
        FUZZ_CHECK(memcmp(&sum[i], &expected, sizeof expected) == 0);
    }
    FUZZ_CHECK(decoded->dense ? decoded->count == n : at == decoded->count);
}

static const char *pipeline_of(const uint8_t *head) {
    static ts_generated generated;
    if (head[0] < GENERATED) return pipelines[head[0] % PIPELINE_COUNT];
    if (generated.count == 0) ts_generate_pipelines(&generated, GENERATED_SEED);
    return generated.text[((head[0] - GENERATED) << 5 | head[2] >> 3) % generated.count];
}

/* Zeros as of the step before. */
static bool open_state(const ts_codec_spec *spec, uint32_t slice, bool known, ts_decode_state **state) {
    if (slice >= ts_codec_slices(spec) || !ts_pipeline_is_stateful(spec->pipeline)) return true;
    if (ts_decode_state_create(spec, slice, state) != TERSE_OK) return false;
    (*state)->known = known;
    (*state)->step = known ? STEP - 1 : 0;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    static ts_scratch *scratch; /* kept between inputs, as a server keeps it */
    ts_pipeline pipeline;
    if (len < HEAD_BYTES || (!scratch && ts_scratch_create(&scratch) != TERSE_OK)) return 0;
    if (ts_pipeline_parse(pipeline_of(data), &pipeline, NULL) != TERSE_OK) return 0;
    size_t elems = sizes[(data[1] & ~STATEFUL) % SIZE_COUNT], rows = elems % 8 == 0 ? 8 : 1;
    unsigned ndim = data[0] >= GENERATED && elems % 40 == 0 ? 3 : 2;
    const int64_t shape[] = {(int64_t)rows, ndim == 3 ? 5 : (int64_t)(elems / rows), (int64_t)(elems / 40)};
    ts_codec_spec spec = {.pipeline = &pipeline,
                          .n = elems,
                          .slice_elems = ts_codec_cut_elems(&pipeline, shape, ndim, elems, SLICE_ELEMS),
                          .shape = shape,
                          .ndim = ndim,
                          .seed = 1};
    uint32_t slice = data[2] % 8;
    const uint8_t *packet = data + HEAD_BYTES;
    size_t packet_len = len - HEAD_BYTES;
    bool exists = slice < ts_codec_slices(&spec);
    size_t n = exists ? ts_codec_slice_elems(&spec, slice) : 0;
    ts_decode_state *state = NULL;
    if (!open_state(&spec, slice, data[1] >= STATEFUL, &state)) return 0;
    float *sum = malloc((n + 1) * sizeof *sum);
    if (!sum) abort();
    for (size_t i = 0; i < n; i++) sum[i] = 1.0f;
    terse_status status = ts_decode_apply(scratch, &spec, state, slice, STEP, packet, packet_len, sum);
    bool goes_on = ts_pipeline_is_stateful(&pipeline) && status == TERSE_ESTALE; /* from another packet */
    FUZZ_CHECK(status == TERSE_OK || status == TERSE_ECORRUPT || status == TERSE_ENOMEM || goes_on);
    FUZZ_CHECK(ts_scratch_bytes(scratch) <= SCRATCH_LIMIT);
    ts_decoded decoded = {.dense = false};
    if (status == TERSE_OK) {
        FUZZ_CHECK(exists);
        FUZZ_CHECK(ts_decode(scratch, &spec, state, slice, STEP, packet, packet_len, &decoded) == TERSE_OK);
    }
    check_sum(sum, n, &decoded, ts_pipeline_replaces(&pipeline));
    ts_decode_state_destroy(state);
    free(sum);
    return 0;
}
