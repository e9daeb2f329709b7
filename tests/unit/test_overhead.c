/* SPDX-License-Identifier: Apache-2.0 */
/* What a push costs beside its values and positions: ResNet-50 at 0.1 %, 25.5 M parameters in 161 tensors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/codec/stage_list.h"
#include "common/wire/bundle.h"
#include "common/wire/frame.h"
#include "tests/unit/codec_support.h"

#define SLICE_ELEMS 262144u
#define SERVERS 2u

typedef struct {
    size_t tensors, parameters, slices, values, positions;
    ts_buffer *frame[SERVERS];
    ts_bundle_writer writer[SERVERS];
    uint32_t local[SERVERS];
} sums;

/* As the client begins a push. */
static void open_frames(sums *s) {
    Terse__Push push = TERSE__PUSH__INIT;
    Terse__Header header = TERSE__HEADER__INIT;
    push.step = 1000;
    push.pull = true;
    header.body_case = TERSE__HEADER__BODY_PUSH;
    header.push = &push;
    for (unsigned i = 0; i < SERVERS; i++) {
        ck_assert_ok(ts_frame_begin(&header, 0, &s->frame[i]));
        s->writer[i] = ts_bundle_write(s->frame[i]);
    }
}

static void count_tensor(size_t n, uint64_t seed, sums *s) {
    ts_unit_tensor t;
    ts_unit_tensor_open(&t, "topk:0.001 | int8 | rice", n, SLICE_ELEMS, ts_cpu_simd());
    float *g = malloc(n * sizeof *g);
    ck_assert_ptr_nonnull(g);
    ts_unit_input(8, g, n, seed);
    ts_unit_encode(&t, g, 0, TERSE_OK);
    unsigned server = s->tensors % SERVERS;
    for (uint32_t slice = 0; slice < t.slices; slice++) {
        ts_decoded decoded;
        ck_assert_ok(ts_bundle_add(&s->writer[server], s->local[server]++, t.packet[slice], t.len[slice]));
        ck_assert_ok(ts_decode(t.scratch, &t.spec, NULL, slice, 0, t.packet[slice], t.len[slice], &decoded));
        s->values += decoded.count;
        s->positions += ts_index_rice.size(decoded.index, decoded.count, ts_codec_slice_elems(&t.spec, slice));
    }
    s->slices += t.slices;
    s->parameters += n;
    s->tensors++;
    free(g);
    ts_unit_tensor_close(&t);
}

START_TEST(headers_take_at_most_two_percent) {
    FILE *file = fopen("configs/resnet50.shapes", "r");
    ck_assert_ptr_nonnull(file);
    sums s = {0};
    open_frames(&s);
    char line[256];
    while (fgets(line, sizeof line, file)) {
        size_t n = 1;
        if (line[0] == '#') continue;
        (void)strtok(line, " \n");
        for (char *word; (word = strtok(NULL, " \n"));) n *= strtoul(word, NULL, 10);
        count_tensor(n, s.tensors, &s);
    }
    (void)fclose(file);
    ck_assert_uint_eq(s.tensors, 161);
    ck_assert_uint_eq(s.parameters, 25557032);
    size_t bytes = 0;
    for (unsigned i = 0; i < SERVERS; i++) {
        ck_assert_ok(ts_frame_finish(s.frame[i]));
        bytes += s.frame[i]->len;
        ts_buffer_unref(s.frame[i]);
    }
    size_t headers = bytes - s.values - s.positions;
    ck_assert_msg(headers * 50 <= bytes, "%zu of %zu bytes are headers", headers, bytes);
}
END_TEST

TCase *test_overhead(void);
TCase *test_overhead(void) {
    TCase *tests = tcase_create("overhead");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, headers_take_at_most_two_percent);
    return tests;
}
