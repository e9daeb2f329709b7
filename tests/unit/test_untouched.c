/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What no worker pushed costs nothing: while a sparse round is summed and stepped, the pages of the sum, of the parameters
 * and of the optimizer's state on which nothing was pushed can be neither read nor written.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/random.h"
#include "server/aggregate.h"
#include "server/round.h"
#include "server/slice_math.h"
#include "server/store.h"
#include "tests/unit/unit.h"

#define N ((size_t)1 << 18)
#define WORKERS 4u
#define SAID 27u /* of each worker: topk:0.0001 of N, rounded up */
#define OPEN 5u  /* pages on which something is pushed */

typedef struct {
    float *at[3]; /* the sum, the parameters, the state: mapped, N each */
    size_t page_elems, open[OPEN];
    ts_contract *contract;
    ts_round_item item;
    ts_slice_state slice;
    uint8_t *packet[WORKERS];
    ts_contribution from[WORKERS];
} field;

static void set_access(field *f, bool closed) {
    for (int a = 0; a < 3; a++) ck_assert_int_eq(mprotect(f->at[a], N * sizeof(float), closed ? PROT_NONE : PROT_READ | PROT_WRITE), 0);
    for (unsigned p = 0; p < OPEN && closed; p++)
        for (int a = 0; a < 3; a++)
            ck_assert_int_eq(mprotect(f->at[a] + f->open[p] * f->page_elems, f->page_elems * sizeof(float), PROT_READ | PROT_WRITE), 0);
}

static void make_contract(field *f) {
    ts_contract_options options = {.slice_elems = N, .seed = 3, .optimizer = "", .feedback = ""};
    ts_pipeline pipeline;
    uint32_t id;
    int64_t shape[] = {(int64_t)N};
    ck_assert_ok(ts_pipeline_parse("topk:0.0001 | fp32 | rice", &pipeline, NULL));
    ck_assert_ok(ts_contract_create(&options, &f->contract));
    ck_assert_ok(ts_contract_add(f->contract, "t", shape, 1, &pipeline, &pipeline, false, &id, NULL));
    ck_assert_ok(ts_contract_seal(f->contract, 1));
}

/* Its packet: values on the open pages, all others 0. */
static void say(field *f, uint32_t w, ts_random *random) {
    ts_codec_spec spec = ts_contract_push_spec(f->contract, 0, w);
    ts_encoder *encoder;
    float *residual = calloc(N, sizeof *residual);
    for (unsigned i = 0; i < 2 * SAID; i++)
        residual[f->open[i % OPEN] * f->page_elems + ts_random_below(random, (uint32_t)f->page_elems)] = 1.0f + (float)i;
    ts_encode_input input = {.gradient_scale = 1, .residual = residual, .step = 1};
    ck_assert_ok(ts_encoder_create(&spec, &encoder));
    ck_assert_ok(ts_encoder_begin(encoder, f->item.scratch, &input, NULL));
    size_t bound = ts_encoder_bound(encoder, f->item.scratch, 0), len;
    f->packet[w] = malloc(bound);
    ck_assert_ok(ts_encoder_slice(encoder, f->item.scratch, 0, f->packet[w], bound, &len));
    f->from[w] = (ts_contribution){.worker = w, .packet = f->packet[w], .len = len, .samples = 3 + w};
    ts_encoder_destroy(encoder);
    free(residual);
}

static void open_field(field *f, const ts_config *config, uint64_t seed) {
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 7));
    *f = (field){.page_elems = (size_t)sysconf(_SC_PAGESIZE) / sizeof(float)};
    for (unsigned p = 0; p < OPEN; p++) f->open[p] = ts_random_below(&random, (uint32_t)(N / f->page_elems));
    make_contract(f);
    f->item = (ts_round_item){.contract = f->contract, .config = config, .optimizer = ts_optimizer_find(config->optimizer.name)};
    ck_assert_ok(ts_scratch_create(&f->item.scratch));
    for (int a = 0; a < 3; a++) {
        f->at[a] = mmap(NULL, N * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(f->at[a], MAP_FAILED);
    }
    for (size_t i = 0; i < N; i++) f->at[1][i] = 0.5f;
    f->item.sum = (ts_sum){.value = f->at[0], .touched = calloc(ts_bitmap_words(N), sizeof(uint64_t)), .elems = N};
    f->slice = (ts_slice_state){.n = N, .params = f->at[1], .state = {f->at[2]}};
    for (uint32_t w = 0; w < WORKERS; w++) say(f, w, &random);
}

static void close_field(field *f) {
    for (int a = 0; a < 3; a++) munmap(f->at[a], N * sizeof(float));
    for (uint32_t w = 0; w < WORKERS; w++) free(f->packet[w]);
    free(f->item.sum.touched);
    ts_scratch_destroy(f->item.scratch);
    ts_contract_destroy(f->contract);
}

static void a_round(field *f) {
    ts_aggregate_place place = {.contract = f->contract, .slice = 0, .step = 1, .config = f->item.config};
    ts_aggregate_outcome outcome;
    ck_assert_ok(ts_aggregate(&f->item.sum, f->item.scratch, &place, f->from, WORKERS, &outcome));
    ck_assert_uint_eq(outcome.taken, WORKERS);
    ts_sum_scale(&f->item.sum, N, outcome.factor);
    ck_assert_ok(ts_round_optimize(&f->item, &f->slice, 1, 0.1, &outcome, NULL));
    ts_sum_clear(&f->item.sum, N);
}

/* How many parameters have moved, and whether the sum is 0 again. */
static size_t moved(const field *f) {
    size_t count = 0, left = 0;
    for (size_t i = 0; i < N; i++) {
        count += f->at[1][i] != 0.5f;
        left += f->at[0][i] != 0.0f;
    }
    ck_assert_uint_eq(left, 0);
    return count;
}

static const ts_optimizer_name optimizers[] = {TS_OPTIMIZER_SGD, TS_OPTIMIZER_ADAGRAD};
static const ts_aggregate_mode modes[] = {TS_AGGREGATE_MEAN, TS_AGGREGATE_SAMPLES, TS_AGGREGATE_SUM};

START_TEST(what_nobody_pushed_is_neither_read_nor_written) {
    for (size_t o = 0; o < 2; o++) {
        for (unsigned variant = 0; variant < 3 * 4; variant++) {
            ts_config config = {0};
            config.optimizer.name = optimizers[o];
            config.optimizer.eps = 1e-10;
            config.aggregation.mode = modes[variant % 3];
            config.aggregation.robust = variant / 3 == 1 ? TS_ROBUST_CLIP : TS_ROBUST_NONE;
            config.aggregation.clip_norm = 2;
            config.optimizer.clip_value = variant / 3 == 2 ? 4 : 0;
            config.optimizer.clip_norm = variant / 3 == 3 ? 1 : 0;
            field f;
            open_field(&f, &config, 1 + variant);
            set_access(&f, true);
            a_round(&f);
            a_round(&f); /* from whatever the first has left behind */
            set_access(&f, false);
            size_t count = moved(&f);
            ck_assert_msg(count >= SAID && count <= WORKERS * SAID, "%zu parameters have moved", count);
            close_field(&f);
        }
    }
}
END_TEST

TCase *test_untouched(void);
TCase *test_untouched(void) {
    TCase *tests = tcase_create("untouched");
    tcase_add_test(tests, what_nobody_pushed_is_neither_read_nor_written);
    return tests;
}
