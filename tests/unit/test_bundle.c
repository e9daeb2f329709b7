/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/wire/bundle.h"
#include "tests/unit/unit.h"

static ts_buffer *empty(void) {
    ts_buffer *buffer;
    ck_assert_ok(ts_buffer_create(8, &buffer)); /* small, so that it has to grow */
    return buffer;
}

START_TEST(packets_come_back_with_their_slices) {
    static const uint32_t slices[] = {0, 1, 2, 5, 6, 300, 70000, 70001};
    static const size_t sizes[] = {3, 0, 64, 200, 1, 9000, 2, 0};
    static uint8_t bytes[9000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 31);
    ts_buffer *frame = empty();
    ts_bundle_writer writer = ts_bundle_write(frame);
    for (size_t i = 0; i < 8; i++) ck_assert_ok(ts_bundle_add(&writer, slices[i], bytes, sizes[i]));
    ts_bundle_reader reader = ts_bundle_read(frame->data, frame->len, 70002);
    for (size_t i = 0; i < 8; i++) {
        uint32_t slice;
        const uint8_t *packet;
        size_t len;
        ck_assert_ok(ts_bundle_next(&reader, &slice, &packet, &len));
        ck_assert_uint_eq(slice, slices[i]);
        ck_assert_uint_eq(len, sizes[i]);
        ck_assert(len == 0 || memcmp(packet, bytes, len) == 0);
    }
    uint32_t slice;
    const uint8_t *packet;
    size_t len;
    ck_assert_status(ts_bundle_next(&reader, &slice, &packet, &len), TERSE_EAGAIN);
    ts_buffer_unref(frame);
}
END_TEST

/* Room for a packet is what a packet would have taken. */
START_TEST(packets_may_be_written_in_place) {
    ts_buffer *frames[2] = {empty(), empty()};
    ts_bundle_writer by_copy = ts_bundle_write(frames[0]), in_place = ts_bundle_write(frames[1]);
    static uint8_t bytes[5000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 31);
    const uint32_t slices[] = {2, 3, 900};
    const size_t sizes[] = {5000, 0, 77};
    for (size_t i = 0; i < 3; i++) {
        uint8_t *room;
        ck_assert_ok(ts_bundle_add(&by_copy, slices[i], bytes, sizes[i]));
        ck_assert_ok(ts_bundle_room(&in_place, slices[i], sizes[i], &room));
        memcpy(room, bytes, sizes[i]);
    }
    ck_assert_uint_eq(frames[0]->len, frames[1]->len);
    ck_assert_mem_eq(frames[0]->data, frames[1]->data, frames[0]->len);
    uint8_t *room;
    ck_assert_status(ts_bundle_room(&in_place, 900, 1, &room), TERSE_EINVAL);
    ts_buffer_unref(frames[0]);
    ts_buffer_unref(frames[1]);
}
END_TEST

START_TEST(consecutive_slices_cost_one_byte_each) {
    const uint8_t packet[63] = {0};
    ts_buffer *frame = empty();
    ts_bundle_writer writer = ts_bundle_write(frame);
    for (uint32_t i = 0; i < 100; i++) ck_assert_ok(ts_bundle_add(&writer, i, packet, sizeof packet));
    ck_assert_uint_eq(frame->len, 100 * (sizeof packet + 1));
    ts_buffer_unref(frame);
}
END_TEST

START_TEST(slices_must_ascend) {
    const uint8_t packet[2] = {0};
    ts_buffer *frame = empty();
    ts_bundle_writer writer = ts_bundle_write(frame);
    ck_assert_ok(ts_bundle_add(&writer, 4, packet, 2));
    size_t before = frame->len;
    ck_assert_status(ts_bundle_add(&writer, 4, packet, 2), TERSE_EINVAL);
    ck_assert_status(ts_bundle_add(&writer, 3, packet, 2), TERSE_EINVAL);
    ck_assert_uint_eq(frame->len, before);
    ck_assert_ok(ts_bundle_add(&writer, UINT32_MAX, packet, 2));
    ts_buffer_unref(frame);
}
END_TEST

static terse_status first_of(const uint8_t *bytes, size_t len, uint32_t slices) {
    uint32_t slice = 77;
    const uint8_t *packet = NULL;
    size_t packet_len = 0;
    ts_bundle_reader reader = ts_bundle_read(bytes, len, slices);
    terse_status status = ts_bundle_next(&reader, &slice, &packet, &packet_len);
    if (status != TERSE_OK) ck_assert_uint_eq(slice, 77);
    return status;
}

START_TEST(malformed_entries_are_refused) {
    ck_assert_status(first_of((const uint8_t *)"", 0, 4), TERSE_EAGAIN);
    ck_assert_status(first_of((const uint8_t[]){2 << 1, 9}, 2, 4), TERSE_ECORRUPT);         /* longer than the bundle */
    ck_assert_status(first_of((const uint8_t[]){0x80}, 1, 4), TERSE_ECORRUPT);              /* half a number */
    ck_assert_status(first_of((const uint8_t[]){0x82, 0x00, 9}, 3, 4), TERSE_ECORRUPT);     /* a number spelt longer */
    ck_assert_status(first_of((const uint8_t[]){1 << 1 | 1, 0, 9}, 3, 4), TERSE_ECORRUPT);  /* a gap of nothing */
    ck_assert_status(first_of((const uint8_t[]){1 << 1 | 1}, 1, 4), TERSE_ECORRUPT);        /* a gap that is missing */
    ck_assert_status(first_of((const uint8_t[]){1 << 1 | 1, 4, 9}, 3, 4), TERSE_ECORRUPT);  /* a slice that is not there */
    ck_assert_status(first_of((const uint8_t[]){1 << 1 | 1, 3, 9}, 3, 4), TERSE_OK);
    ck_assert_status(first_of((const uint8_t[]){1 << 1, 9}, 2, 0), TERSE_ECORRUPT);
    const uint8_t huge[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 1};
    ck_assert_status(first_of(huge, sizeof huge, 4), TERSE_ECORRUPT);
    const uint8_t far[] = {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01};
    ck_assert_status(first_of(far, sizeof far, UINT32_MAX), TERSE_ECORRUPT);
}
END_TEST

TCase *test_bundle(void);
TCase *test_bundle(void) {
    TCase *tests = tcase_create("bundle");
    tcase_add_test(tests, packets_come_back_with_their_slices);
    tcase_add_test(tests, packets_may_be_written_in_place);
    tcase_add_test(tests, consecutive_slices_cost_one_byte_each);
    tcase_add_test(tests, slices_must_ascend);
    tcase_add_test(tests, malformed_entries_are_refused);
    return tests;
}
