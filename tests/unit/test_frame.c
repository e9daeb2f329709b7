/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/bytes.h"
#include "common/base/mem.h"
#include "common/wire/bundle.h"
#include "common/wire/frame.h"
#include "tests/unit/unit.h"

/* A frame of whatever bytes, with a checksum that holds. */
static ts_buffer *sealed(const uint8_t *bytes, size_t len) {
    ts_buffer *buffer;
    ck_assert_ok(ts_buffer_create(len + 4, &buffer));
    memcpy(buffer->data, bytes, len);
    ts_store_u32(buffer->data + len, (uint32_t)XXH3_64bits(bytes, len));
    buffer->len = len + 4;
    return buffer;
}

static terse_status parse_sealed(const uint8_t *bytes, size_t len) {
    ts_buffer *buffer = sealed(bytes, len);
    ts_frame frame = {0};
    terse_status status = ts_frame_parse(buffer, &frame);
    if (status != TERSE_OK) ck_assert_ptr_null(frame.header);
    ts_frame_release(&frame);
    ts_buffer_unref(buffer);
    return status;
}

static ts_buffer *push_frame(uint64_t step, const uint8_t *payload, size_t len) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Push push = TERSE__PUSH__INIT;
    push.step = step;
    push.pull = 1;
    header.body_case = TERSE__HEADER__BODY_PUSH;
    header.push = &push;
    ts_buffer *buffer;
    ck_assert_ok(ts_frame_begin(&header, len, &buffer));
    ck_assert_uint_ge(buffer->capacity - buffer->len, len + 4);
    if (len) memcpy(buffer->data + buffer->len, payload, len);
    buffer->len += len;
    ck_assert_ok(ts_frame_finish(buffer));
    return buffer;
}

START_TEST(frames_come_back_as_they_went) {
    uint8_t payload[1000];
    for (size_t i = 0; i < sizeof payload; i++) payload[i] = (uint8_t)(i * 7);
    const size_t sizes[] = {0, 1, 999, 1000};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        ts_buffer *buffer = push_frame(1ull << 40, payload, sizes[s]);
        ts_frame frame;
        ck_assert_ok(ts_frame_parse(buffer, &frame));
        ck_assert_int_eq(frame.header->body_case, TERSE__HEADER__BODY_PUSH);
        ck_assert_uint_eq(frame.header->push->step, 1ull << 40);
        ck_assert_uint_eq(frame.payload_bytes, sizes[s]);
        ck_assert(sizes[s] == 0 || memcmp(frame.payload, payload, sizes[s]) == 0);
        ts_frame_release(&frame);
        ck_assert_ptr_null(frame.header);
        ts_buffer_unref(buffer);
    }
}
END_TEST

/* Memory that is used again gives the same frame as new memory, too small or not. */
START_TEST(a_frame_can_be_begun_over_another) {
    uint8_t payload[1000];
    for (size_t i = 0; i < sizeof payload; i++) payload[i] = (uint8_t)(i * 7);
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Push push = TERSE__PUSH__INIT;
    push.step = 7;
    push.pull = 1;
    header.body_case = TERSE__HEADER__BODY_PUSH;
    header.push = &push;
    const size_t sizes[] = {1000, 3, 999, 0};
    ts_buffer *buffer;
    ck_assert_ok(ts_buffer_create(10, &buffer));
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        ts_buffer *fresh = push_frame(7, payload, sizes[s]);
        ck_assert(ts_buffer_sole(buffer));
        ck_assert_ok(ts_frame_begin_over(buffer, &header, sizes[s]));
        memcpy(buffer->data + buffer->len, payload, sizes[s]);
        buffer->len += sizes[s];
        ck_assert_ok(ts_frame_finish(buffer));
        ck_assert_uint_eq(buffer->len, fresh->len);
        ck_assert_mem_eq(buffer->data, fresh->data, fresh->len);
        ts_buffer_unref(fresh);
    }
    ts_buffer *other = ts_buffer_ref(buffer);
    ck_assert(!ts_buffer_sole(buffer));
    ts_buffer_unref(other);
    ts_buffer_unref(buffer);
}
END_TEST

/* However a frame's bytes are told in pieces, its checksum is the same. */
START_TEST(checksums_can_be_made_on_the_way) {
    enum { BYTES = 20000 };
    static uint8_t payload[BYTES];
    static const size_t pieces[] = {1, 63, 1000, 8192, BYTES + 100};
    ts_frame_sum *sum;
    ck_assert_ok(ts_frame_sum_create(&sum));
    for (size_t i = 0; i < BYTES; i++) payload[i] = (uint8_t)(i * 31 + i / 256);
    for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++) {
        ts_buffer *plain = push_frame(7, payload, BYTES), *told = push_frame(7, payload, BYTES);
        plain->len -= 4;
        told->len -= 4;
        ck_assert_ok(ts_frame_finish(plain));
        ts_frame_sum_begin(sum);
        for (size_t at = 0; at < told->len; at += pieces[p]) {
            ts_frame_sum_reach(sum, told, at);
            ts_frame_sum_reach(sum, told, at / 2); /* is nothing new */
        }
        told->data[told->len - 1] ^= 1; /* not told yet, so it may change */
        plain->data[plain->len - 5] ^= 1;
        plain->len -= 4;
        ck_assert_ok(ts_frame_finish(plain));
        ck_assert_ok(ts_frame_sum_finish(sum, told));
        ck_assert_uint_eq(told->len, plain->len);
        ck_assert_mem_eq(told->data, plain->data, plain->len);
        ts_buffer_unref(plain);
        ts_buffer_unref(told);
    }
    ts_frame_sum_destroy(sum);
    ts_frame_sum_destroy(NULL);
}
END_TEST

/* Where a frame's bytes lie changes neither them nor their checksum. */
START_TEST(a_packet_may_lie_elsewhere) {
    enum { BYTES = 20000 };
    static uint8_t packet[BYTES];
    ts_frame_sum *sum;
    ts_buffer *copied, *parted, *owner, *flat;
    Terse__Push push = TERSE__PUSH__INIT;
    Terse__Header header = TERSE__HEADER__INIT;
    header.body_case = TERSE__HEADER__BODY_PUSH;
    header.push = &push;
    for (size_t i = 0; i < BYTES; i++) packet[i] = (uint8_t)(i * 31 + i / 256);
    ck_assert_ok(ts_frame_sum_create(&sum));
    ck_assert_ok(ts_buffer_create(1, &owner));
    ck_assert_ok(ts_frame_begin(&header, 0, &copied));
    ts_bundle_writer writer = ts_bundle_write(copied);
    ck_assert_ok(ts_bundle_add(&writer, 3, packet, BYTES));
    ck_assert_ok(ts_frame_finish(copied));
    for (int told = 0; told < 2; told++) {
        ck_assert_ok(ts_frame_begin(&header, 0, &parted));
        writer = ts_bundle_write(parted);
        ck_assert_ok(ts_bundle_outside(&writer, 3, packet, BYTES, owner));
        ck_assert_status(ts_bundle_outside(&writer, 4, packet, BYTES, owner), TERSE_EINVAL); /* once a frame */
        ts_frame_sum_begin(sum);
        ts_frame_sum_reach(sum, parted, parted->len);
        for (size_t at = 0; at < BYTES; at += 2500) ts_frame_sum_outside(sum, packet + at, 2500);
        ck_assert_ok(told ? ts_frame_sum_finish(sum, parted) : ts_frame_finish(parted));
        ck_assert_ok(ts_buffer_flat(parted, &flat));
        ck_assert_uint_eq(flat->len, copied->len);
        ck_assert_mem_eq(flat->data, copied->data, copied->len);
        ts_buffer_unref(flat);
        ck_assert_ok(ts_frame_begin_over(parted, &header, 0)); /* nothing of it is left */
        ck_assert_ptr_null(parted->outside);
        ck_assert(ts_buffer_sole(owner));
        ts_buffer_unref(parted);
    }
    ts_buffer_unref(copied);
    ts_buffer_unref(owner);
    ts_frame_sum_destroy(sum);
}
END_TEST

START_TEST(a_push_spends_few_bytes_on_its_frame) {
    ts_buffer *buffer = push_frame(2000, NULL, 0);
    ck_assert_uint_le(buffer->len, 13);
    ts_buffer_unref(buffer);
}
END_TEST

START_TEST(control_frames_have_no_payload) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Bye bye = TERSE__BYE__INIT;
    header.body_case = TERSE__HEADER__BODY_BYE;
    header.bye = &bye;
    header.job = 3;
    ts_buffer *buffer;
    ck_assert_ok(ts_frame_control(&header, &buffer));
    ts_frame frame;
    ck_assert_ok(ts_frame_parse(buffer, &frame));
    ck_assert_uint_eq(frame.header->job, 3);
    ck_assert_int_eq(frame.header->body_case, TERSE__HEADER__BODY_BYE);
    ck_assert_uint_eq(frame.payload_bytes, 0);
    ts_frame_release(&frame);
    ts_buffer_unref(buffer);
}
END_TEST

START_TEST(every_turned_bit_is_noticed) {
    const uint8_t payload[] = {1, 2, 3, 4, 5};
    ts_buffer *buffer = push_frame(77, payload, sizeof payload);
    for (size_t bit = 0; bit < 8 * buffer->len; bit++) {
        buffer->data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        ts_frame frame = {0};
        ck_assert_status(ts_frame_parse(buffer, &frame), TERSE_ECORRUPT);
        ck_assert_ptr_null(frame.header);
        buffer->data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    ts_buffer_unref(buffer);
}
END_TEST

START_TEST(every_truncation_is_noticed) {
    const uint8_t payload[] = {1, 2, 3, 4, 5};
    ts_buffer *buffer = push_frame(77, payload, sizeof payload);
    size_t whole = buffer->len;
    for (buffer->len = 0; buffer->len < whole; buffer->len++) {
        ts_frame frame = {0};
        ck_assert_status(ts_frame_parse(buffer, &frame), TERSE_ECORRUPT);
    }
    ts_buffer_unref(buffer);
}
END_TEST

START_TEST(what_a_sound_checksum_covers_is_checked_too) {
    const uint8_t other_version[] = {TS_WIRE_VERSION + 1, 2, 0x8a, 0x01, 0};
    ck_assert_status(parse_sealed(other_version, sizeof other_version), TERSE_EVERSION);
    const uint8_t no_body[] = {TS_WIRE_VERSION, 0};
    ck_assert_status(parse_sealed(no_body, sizeof no_body), TERSE_ECORRUPT);
    const uint8_t job_only[] = {TS_WIRE_VERSION, 2, 0x08, 0x05};
    ck_assert_status(parse_sealed(job_only, sizeof job_only), TERSE_ECORRUPT);
    const uint8_t longer_than_frame[] = {TS_WIRE_VERSION, 9, 0x08, 0x05};
    ck_assert_status(parse_sealed(longer_than_frame, sizeof longer_than_frame), TERSE_ECORRUPT);
    const uint8_t over_limit[] = {TS_WIRE_VERSION, 0x81, 0x80, 0x80, 0x08, 0};
    ck_assert_status(parse_sealed(over_limit, sizeof over_limit), TERSE_ELIMIT);
    const uint8_t endless_varint[] = {TS_WIRE_VERSION, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    ck_assert_status(parse_sealed(endless_varint, sizeof endless_varint), TERSE_ECORRUPT);
    const uint8_t bad_protobuf[] = {TS_WIRE_VERSION, 3, 0x22, 0x7f, 0x08};
    ck_assert_status(parse_sealed(bad_protobuf, sizeof bad_protobuf), TERSE_ECORRUPT);
}
END_TEST

/* Contract.tensors, repeated and empty: two bytes each on the wire, a hundred in memory. */
START_TEST(a_header_gets_memory_in_proportion_to_its_size) {
    const size_t tensors = 60000, body = 2 * tensors;
    uint8_t *bytes = calloc(1, body + 16);
    ck_assert_ptr_nonnull(bytes);
    size_t at = 0;
    bytes[at++] = TS_WIRE_VERSION;
    at += ts_varint_put(bytes + at, 1 + ts_varint_bytes(body) + body);
    bytes[at++] = 9 << 3 | 2;
    at += ts_varint_put(bytes + at, body);
    for (size_t i = 0; i < tensors; i++, at += 2) bytes[at] = 1 << 3 | 2;
    ck_assert_status(parse_sealed(bytes, at), TERSE_ECORRUPT);
    free(bytes);
}
END_TEST

START_TEST(the_densest_honest_headers_fit) {
    enum { COUNT = 20000 };
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Stats stats = TERSE__STATS__INIT;
    Terse__SliceHash *hashes = calloc(COUNT, sizeof *hashes);
    Terse__SliceHash **list = calloc(COUNT, sizeof *list);
    ck_assert(hashes && list);
    for (size_t i = 0; i < COUNT; i++) {
        terse__slice_hash__init(&hashes[i]);
        hashes[i].xxh3 = i; /* slice 0 is left out: nine bytes each */
        list[i] = &hashes[i];
    }
    stats.n_hashes = COUNT;
    stats.hashes = list;
    header.body_case = TERSE__HEADER__BODY_STATS;
    header.stats = &stats;
    ts_buffer *buffer;
    ck_assert_ok(ts_frame_control(&header, &buffer));
    ts_frame frame;
    ck_assert_ok(ts_frame_parse(buffer, &frame));
    ck_assert_uint_eq(frame.header->stats->n_hashes, COUNT);
    ts_frame_release(&frame);
    ts_buffer_unref(buffer);
    free(hashes);
    free(list);
}
END_TEST

START_TEST(allocations_may_fail_in_turn) {
    const uint8_t payload[] = {1, 2, 3};
    ts_buffer *buffer = push_frame(5, payload, sizeof payload);
    bool parsed = false;
    for (int64_t n = 0; n < 20 && !parsed; n++) {
        ts_frame frame = {0};
        ts_mem_fail_after(n);
        terse_status status = ts_frame_parse(buffer, &frame);
        ts_mem_fail_after(-1);
        parsed = status == TERSE_OK;
        if (!parsed) ck_assert_status(status, TERSE_ENOMEM);
        ts_frame_release(&frame);
    }
    ck_assert(parsed);
    ts_buffer_unref(buffer);
}
END_TEST

TCase *test_frame(void);
TCase *test_frame(void) {
    TCase *tests = tcase_create("frame");
    tcase_add_test(tests, frames_come_back_as_they_went);
    tcase_add_test(tests, a_frame_can_be_begun_over_another);
    tcase_add_test(tests, checksums_can_be_made_on_the_way);
    tcase_add_test(tests, a_packet_may_lie_elsewhere);
    tcase_add_test(tests, a_push_spends_few_bytes_on_its_frame);
    tcase_add_test(tests, control_frames_have_no_payload);
    tcase_add_test(tests, every_turned_bit_is_noticed);
    tcase_add_test(tests, every_truncation_is_noticed);
    tcase_add_test(tests, what_a_sound_checksum_covers_is_checked_too);
    tcase_add_test(tests, a_header_gets_memory_in_proportion_to_its_size);
    tcase_add_test(tests, the_densest_honest_headers_fit);
    tcase_add_test(tests, allocations_may_fail_in_turn);
    return tests;
}
