/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets that no encoder wrote, for every pipeline of the contract test: each truncation, each flipped bit, counts and
 * lengths that lie, bytes too many, noise. All give a status; a refused packet leaves the sum and the receiver's state
 * alone, an accepted one puts in finite values; and the decoder's memory stays within what the tensor's size explains.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"
#include "common/base/cpu.h"
#include "common/base/random.h"
#include "common/codec/delta.h"
#include "tests/unit/contract_case.h"

#define MOST_ELEMS 400u
#define SMALL_PACKET 400u                /* bytes; of longer ones some bits are flipped, unless all are wanted */
#define MEMORY_MOST ((size_t)512 << 10)  /* a decoder's, for that many elements; most of it is Zstandard's */
#define LONGER 16u

/* A receiver under attack. */
typedef struct {
    ts_unit_tensor *t;
    ts_scratch *scratch; /* of the decoder alone */
    uint32_t slice;
    size_t n;
    const float *known; /* `delta`: what the receiver holds of the slice */
    bool lengths_differ; /* every packet of another length is refused: all lengths follow from n */
    size_t accepted;
} victim;

static ts_decode_state *state_of(const victim *v, uint64_t step) {
    ts_decode_state *state = NULL;
    if (!ts_pipeline_is_stateful(&v->t->pipeline)) return NULL;
    if (ts_decode_state_create(&v->t->spec, v->slice, &state) != TERSE_OK) ck_abort_msg("no memory");
    memcpy(state->value, v->known, v->n * sizeof *v->known);
    state->known = step > 0;
    state->step = step > 0 ? step - 1 : 0;
    return state;
}

static void check_state(const victim *v, uint64_t step, terse_status status, const ts_decode_state *state) {
    if (!state || status == TERSE_OK) return;
    bool same = state->known == (step > 0) && state->step == (step > 0 ? step - 1 : 0) &&
                memcmp(state->value, v->known, v->n * sizeof *v->known) == 0;
    if (!same) ck_abort_msg("%s: a refused packet changed the state", v->t->pipeline.text);
}

/* What a bent packet leaves unwritten must not be what the packet before has left there. */
static void poison(ts_scratch *scratch) {
    static const ts_scratch_slot slots[] = {TS_SLOT_DECODED_INDEX, TS_SLOT_DECODED_VALUE};
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
        void *memory = ts_scratch_reserve(scratch, slots[i], MOST_ELEMS * sizeof(uint32_t));
        if (!memory) ck_abort_msg("no memory");
        memset(memory, 0xFF, MOST_ELEMS * sizeof(uint32_t));
    }
}

/* What was accepted: added[n] to ones, by decode_add. */
static void check_accepted(const victim *v, ts_decode_state *state, const uint8_t *bytes, size_t len,
                           const float *added, const char *how) {
    float sum[MOST_ELEMS];
    ts_decoded d;
    const char *pipeline = v->t->pipeline.text;
    poison(v->scratch);
    if (ts_decode(v->scratch, &v->t->spec, state, v->slice, v->t->input.step, bytes, len, &d) != TERSE_OK)
        ck_abort_msg("%s, %s: decode refuses what decode_add takes", pipeline, how);
    for (size_t i = 0; i < v->n; i++) sum[i] = 1.0f;
    for (size_t i = 0, next = 0; i < d.count; i++) {
        size_t at = d.dense ? i : d.index[i];
        if (at < next || at >= v->n) ck_abort_msg("%s, %s: index %zu is accepted", pipeline, how, at);
        sum[at] = ts_pipeline_replaces(&v->t->pipeline) ? d.value[i] : sum[at] + d.value[i];
        next = at + 1;
    }
    if (d.dense && d.count != v->n) ck_abort_msg("%s, %s: %zu values of %zu", pipeline, how, d.count, v->n);
    if (memcmp(sum, added, v->n * sizeof *sum) != 0) ck_abort_msg("%s, %s: decode says something else", pipeline, how);
}

/* Bytes that came from somewhere. */
static void attack(victim *v, const uint8_t *bytes, size_t len, const char *how) {
    float sum[MOST_ELEMS];
    const char *pipeline = v->t->pipeline.text;
    uint64_t step = v->t->input.step;
    uint8_t *exact = malloc(len ? len : 1);
    if (!exact) ck_abort_msg("no memory");
    memcpy(exact, bytes, len);
    for (size_t i = 0; i < v->n; i++) sum[i] = 1.0f;
    ts_decode_state *state = state_of(v, step);
    poison(v->scratch);
    terse_status status = ts_decode_apply(v->scratch, &v->t->spec, state, v->slice, step, exact, len, sum);
    if (status != TERSE_OK && status != TERSE_ECORRUPT && (!state || status != TERSE_ESTALE))
        ck_abort_msg("%s, %s: %s", pipeline, how, terse_status_name(status));
    bool any = status == TERSE_OK && ts_pipeline_replaces(&v->t->pipeline); /* new values may be anything */
    for (size_t i = 0; i < v->n && !any; i++) {
        if (!isfinite(sum[i])) ck_abort_msg("%s, %s: element %zu becomes %g", pipeline, how, i, (double)sum[i]);
        if (status != TERSE_OK && sum[i] != 1.0f) ck_abort_msg("%s, %s: refused, and changed the sum", pipeline, how);
    }
    if (status == TERSE_OK && v->lengths_differ && len != v->t->len[v->slice])
        ck_abort_msg("%s, %s: accepted at another length", pipeline, how);
    check_state(v, step, status, state);
    if (status == TERSE_OK) check_accepted(v, state, exact, len, sum, how);
    v->accepted += status == TERSE_OK;
    ts_decode_state_destroy(state);
    free(exact);
}

static void truncate_and_flip(victim *v) {
    size_t len = v->t->len[v->slice], stride = len <= SMALL_PACKET || ts_contract_long() ? 1 : 8 * len / 2000 | 1;
    uint8_t *bent = malloc(len + LONGER);
    if (!bent) ck_abort_msg("no memory");
    memcpy(bent, v->t->packet[v->slice], len);
    for (size_t cut = 0; cut < len; cut++) attack(v, bent, cut, "cut short");
    for (size_t bit = 0; bit < 8 * len; bit += stride) {
        bent[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        attack(v, bent, len, "one bit flipped");
        bent[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    for (size_t more = 1; more <= LONGER; more++) {
        memset(bent + len, more % 2 ? 0 : 0xFF, more);
        attack(v, bent, len + more, "bytes behind");
    }
    free(bent);
}

/* Numbers in place of the first bytes, where counts and lengths are. */
static void lie(victim *v) {
    const uint64_t n = v->n, most = UINT32_MAX;
    const uint64_t lies[] = {0,    1,        2,            n,         2 * n - 1,      2 * n,     2 * n + 1, 2 * n + 2,
                             most, 2 * most, 2 * most + 1, INT64_MAX, UINT64_MAX - 1, UINT64_MAX};
    size_t len = v->t->len[v->slice];
    const uint8_t *packet = v->t->packet[v->slice];
    uint8_t *bent = malloc(len + 2 * TS_VARINT_MAX_BYTES);
    if (!bent) ck_abort_msg("no memory");
    for (size_t at = 0; at < len && at < 8; at++) {
        for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
            for (size_t replaced = 1; replaced <= 3 && at + replaced <= len; replaced++) {
                memcpy(bent, packet, at);
                size_t put = at + ts_varint_put(bent + at, lies[i]);
                memcpy(bent + put, packet + at + replaced, len - at - replaced);
                attack(v, bent, put + len - at - replaced, "a number that lies");
                attack(v, bent, put, "a number that lies, and nothing behind it");
            }
        }
    }
    free(bent);
}

static void noise(victim *v, uint64_t seed) {
    ts_random random = ts_random_start(seed);
    size_t len = v->t->len[v->slice];
    uint8_t bent[64], *copy = malloc(len + 1);
    if (!copy) ck_abort_msg("no memory");
    for (unsigned round = 0; round < (ts_contract_long() ? 2000u : 100u); round++) {
        size_t some = ts_random_below(&random, sizeof bent);
        for (size_t i = 0; i < some; i++) bent[i] = (uint8_t)ts_random_u32(&random);
        if (some > 0 && round % 2) bent[0] &= 0x1F; /* where tags are */
        attack(v, bent, some, "noise");
        if (len == 0) continue;
        memcpy(copy, v->t->packet[v->slice], len);
        for (unsigned i = 0; i < 4; i++) {
            copy[ts_random_below(&random, (uint32_t)len)] = (uint8_t)ts_random_u32(&random);
        }
        attack(v, copy, len, "some bytes changed");
    }
    free(copy);
}

/* Whether all of a pipeline's packets of a slice have one length. */
static bool has_one_length(const ts_pipeline *p) { return !p->select && !p->bytes[0]; }

static size_t besiege(ts_contract_bench *b, const ts_contract_case *c, ts_scratch *decoder) {
    ts_unit_tensor t;
    size_t accepted = 0;
    ts_simd simd = ts_cpu_simd();
    ts_unit_tensor_open_shaped(&t, c->pipeline, c->n, c->ndim, c->slice_elems, simd, b->scratch[simd]);
    memset(b->before, 0, c->n * sizeof *b->before);
    for (uint64_t step = 0; step < c->steps; step++) {
        ts_contract_gradient(b, c, (unsigned)step, b->gradient);
        ts_unit_encode(&t, b->gradient, step, TERSE_OK);
        for (uint32_t s = 0; s < t.slices; s++) {
            victim v = {.t = &t, .scratch = decoder, .slice = s, .n = ts_codec_slice_elems(&t.spec, s),
                        .known = b->before + ts_codec_slice_first(&t.spec, s),
                        .lengths_differ = has_one_length(&t.pipeline)};
            attack(&v, t.packet[s], t.len[s], "as it was sent");
            if (v.accepted != 1) ck_abort_msg("%s: an honest packet was refused", c->pipeline);
            truncate_and_flip(&v);
            lie(&v);
            noise(&v, ts_mix64(c->turn * 64 + s));
            accepted += v.accepted;
        }
        (void)ts_unit_decode(&t, b->before); /* of `delta`: what the receiver holds now */
    }
    ts_unit_tensor_close(&t);
    return accepted;
}

START_TEST(bent_packets_give_a_status) {
    static const size_t sizes[] = {1, 9, 40, MOST_ELEMS};
    ts_contract_bench *b = ts_contract_open(MOST_ELEMS);
    size_t accepted = 0;
    for (size_t i = 0; i < b->generated.count; i++) {
        ts_scratch *decoder;
        ck_assert_ok(ts_scratch_create(&decoder));
        for (size_t z = 0; z < sizeof sizes / sizeof sizes[0]; z++) {
            if (!ts_contract_long() && z == i % 2) continue;
            ts_contract_case c = {.pipeline = b->generated.text[i],
                                  .n = sizes[z],
                                  .kind = TS_UNIT_NORMAL,
                                  .ndim = 2 + (unsigned)i % 3,
                                  .slice_elems = 250,
                                  .turn = (unsigned)i};
            ts_pipeline parsed;
            ck_assert_ok(ts_pipeline_parse(c.pipeline, &parsed, NULL));
            c.steps = ts_pipeline_is_stateful(&parsed) ? 2 : 1;
            accepted += besiege(b, &c, decoder);
        }
        if (ts_scratch_bytes(decoder) > MEMORY_MOST)
            ck_abort_msg("%s: the decoder holds %zu bytes", b->generated.text[i], ts_scratch_bytes(decoder));
        ts_scratch_destroy(decoder);
    }
    ck_assert_uint_gt(accepted, b->generated.count); /* many bits are values, which nobody can check */
    ts_contract_close(b);
}
END_TEST

/* Slices that do not exist, packets of another slice, of another step. */
START_TEST(packets_out_of_place_give_a_status) {
    ts_contract_bench *b = ts_contract_open(MOST_ELEMS);
    float sum[MOST_ELEMS];
    for (size_t i = 0; i < b->generated.count; i++) {
        ts_unit_tensor t;
        ts_contract_case c = {
            .pipeline = b->generated.text[i], .n = MOST_ELEMS, .kind = TS_UNIT_NORMAL, .ndim = 2, .slice_elems = 150};
        ts_unit_tensor_open_shaped(&t, c.pipeline, c.n, c.ndim, c.slice_elems, ts_cpu_simd(), NULL);
        ts_contract_gradient(b, &c, 0, b->gradient);
        ts_unit_encode(&t, b->gradient, 0, TERSE_OK);
        static const uint32_t beyond[] = {0, 1, 1000, UINT32_MAX};
        for (uint32_t s = 0; s < t.slices; s++) {
            for (unsigned k = 0; k < sizeof beyond / sizeof beyond[0]; k++) {
                uint32_t there = beyond[k] < 2 ? t.slices + beyond[k] : beyond[k];
                terse_status status = ts_decode_apply(t.scratch, &t.spec, NULL, there, 0, t.packet[s], t.len[s], sum);
                if (status != TERSE_ECORRUPT) ck_abort_msg("%s: slice %u of %u exists", c.pipeline, there, t.slices);
            }
            for (uint32_t other = 0; other < t.slices; other++) {
                for (size_t j = 0; j < c.n; j++) sum[j] = 0;
                terse_status status =
                    ts_decode_apply(t.scratch, &t.spec, t.state[other], other, 3, t.packet[s], t.len[s], sum);
                if (status != TERSE_OK && status != TERSE_ECORRUPT && (!t.state[other] || status != TERSE_ESTALE))
                    ck_abort_msg("%s: %s", c.pipeline, terse_status_name(status));
            }
        }
        ts_unit_tensor_close(&t);
    }
    ts_contract_close(b);
}
END_TEST

TCase *test_codec_hostile(void);
TCase *test_codec_hostile(void) {
    TCase *tests = tcase_create("codec_hostile");
    tcase_set_timeout(tests, ts_contract_long() ? 3600 : 180);
    tcase_add_test(tests, bent_packets_give_a_status);
    tcase_add_test(tests, packets_out_of_place_give_a_status);
    return tests;
}
