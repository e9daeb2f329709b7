/* SPDX-License-Identifier: Apache-2.0 */
/* The hex examples of proto/WIRE.md are what the code builds, and the document keeps up with the code's constants. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire/bundle.h"
#include "common/wire/frame.h"
#include "tests/unit/unit.h"

#define DOCUMENT "proto/WIRE.md"

/* The whole document, with a NUL behind it; free(). */
static char *read_document(void) {
    FILE *file = fopen(DOCUMENT, "rb");
    ck_assert_msg(file != NULL, "%s cannot be opened; run the tests from the repository's root", DOCUMENT);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    long len = ftell(file);
    ck_assert_int_gt(len, 0);
    rewind(file);
    char *text = malloc((size_t)len + 1);
    ck_assert_ptr_nonnull(text);
    ck_assert_uint_eq(fread(text, 1, (size_t)len, file), (size_t)len);
    text[len] = 0;
    fclose(file);
    return text;
}

/*
 * The bytes of the fenced block behind "<!-- example: NAME -->". In each line, what stands behind two blanks is for
 * people.
 */
static size_t read_example(const char *document, const char *name, uint8_t *bytes, size_t capacity) {
    char marker[64];
    snprintf(marker, sizeof marker, "<!-- example: %s -->", name);
    const char *at = strstr(document, marker);
    ck_assert_msg(at != NULL, "%s has no %s", DOCUMENT, marker);
    at = strstr(at, "```\n");
    ck_assert_ptr_nonnull(at);
    size_t len = 0;
    bool comment = false;
    for (at += 4; *at && strncmp(at, "```", 3) != 0; at++) {
        if (*at == '\n') comment = false;
        else if (at[0] == ' ' && at[1] == ' ') comment = true;
        if (comment || !isxdigit((unsigned char)*at)) continue;
        unsigned value;
        ck_assert_int_eq(sscanf(at, "%2x", &value), 1);
        ck_assert_uint_lt(len, capacity);
        bytes[len++] = (uint8_t)value;
        at++;
    }
    return len;
}

static void assert_is_example(const char *name, const ts_buffer *frame) {
    char *document = read_document();
    uint8_t bytes[512];
    size_t len = read_example(document, name, bytes, sizeof bytes);
    char built[3 * 512 + 1] = "";
    for (size_t i = 0; i < frame->len && i < 512; i++) snprintf(built + 3 * i, 4, "%02x ", frame->data[i]);
    ck_assert_msg(len == frame->len && memcmp(bytes, frame->data, len) == 0, "example %s should be: %s", name, built);
    free(document);
}

START_TEST(the_push_is_what_the_code_builds) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Push push = TERSE__PUSH__INIT;
    push.step = 300;
    push.pull = 1;
    header.body_case = TERSE__HEADER__BODY_PUSH;
    header.push = &push;
    ts_buffer *frame;
    ck_assert_ok(ts_frame_begin(&header, 32, &frame));
    ts_bundle_writer writer = ts_bundle_write(frame);
    ck_assert_ok(ts_bundle_add(&writer, 0, (const uint8_t[]){0x0a, 0x0b, 0x0c}, 3));
    ck_assert_ok(ts_bundle_add(&writer, 1, NULL, 0));
    ck_assert_ok(ts_bundle_add(&writer, 5, (const uint8_t[]){0x0d}, 1));
    ck_assert_ok(ts_frame_finish(frame));
    assert_is_example("push", frame);
    ts_buffer_unref(frame);
}
END_TEST

START_TEST(the_acknowledgement_is_what_the_code_builds) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Ack ack = TERSE__ACK__INIT;
    uint32_t slices[] = {0, 1, 5};
    ack.step = 300;
    ack.status = TERSE_EDUPLICATE;
    ack.slices = slices;
    ack.n_slices = 3;
    header.body_case = TERSE__HEADER__BODY_ACK;
    header.ack = &ack;
    header.job = 2;
    ts_buffer *frame;
    ck_assert_ok(ts_frame_control(&header, &frame));
    assert_is_example("ack", frame);
    ts_buffer_unref(frame);
}
END_TEST

START_TEST(the_example_parses_to_what_the_document_says) {
    char *document = read_document();
    ts_buffer *buffer;
    ck_assert_ok(ts_buffer_create(512, &buffer));
    buffer->len = read_example(document, "push", buffer->data, 512);
    free(document);
    ts_frame frame;
    ck_assert_ok(ts_frame_parse(buffer, &frame));
    ck_assert_int_eq(frame.header->body_case, TERSE__HEADER__BODY_PUSH);
    ck_assert_uint_eq(frame.header->push->step, 300);
    static const uint32_t slices[] = {0, 1, 5};
    static const size_t sizes[] = {3, 0, 1};
    ts_bundle_reader reader = ts_bundle_read(frame.payload, frame.payload_bytes, 6);
    uint32_t slice;
    const uint8_t *packet;
    size_t len;
    for (int i = 0; i < 3; i++) {
        ck_assert_ok(ts_bundle_next(&reader, &slice, &packet, &len));
        ck_assert_uint_eq(slice, slices[i]);
        ck_assert_uint_eq(len, sizes[i]);
    }
    ck_assert_status(ts_bundle_next(&reader, &slice, &packet, &len), TERSE_EAGAIN);
    ts_frame_release(&frame);
    ts_buffer_unref(buffer);
}
END_TEST

START_TEST(versions_limits_and_messages_are_the_codes) {
    char *document = read_document();
    char line[128];
    snprintf(line, sizeof line, "wire version %u", TS_WIRE_VERSION);
    ck_assert_msg(strstr(document, line) != NULL, "no \"%s\"", line);
    snprintf(line, sizeof line, "protocol version %u", TS_PROTOCOL_VERSION);
    ck_assert_msg(strstr(document, line) != NULL, "no \"%s\"", line);
    snprintf(line, sizeof line, "%u bytes of header", TS_FRAME_HEADER_MAX_BYTES);
    ck_assert_msg(strstr(document, line) != NULL, "no \"%s\"", line);
    const ProtobufCMessageDescriptor *header = &terse__header__descriptor;
    for (unsigned i = 0; i < header->n_fields; i++) {
        if (header->fields[i].type != PROTOBUF_C_TYPE_MESSAGE) continue;
        const ProtobufCMessageDescriptor *body = header->fields[i].descriptor;
        snprintf(line, sizeof line, "| `%s` |", body->short_name);
        ck_assert_msg(strstr(document, line) != NULL, "no row for message %s", body->short_name);
    }
    free(document);
}
END_TEST

TCase *test_wire_doc(void);
TCase *test_wire_doc(void) {
    TCase *tests = tcase_create("wire_doc");
    tcase_add_test(tests, the_push_is_what_the_code_builds);
    tcase_add_test(tests, the_acknowledgement_is_what_the_code_builds);
    tcase_add_test(tests, the_example_parses_to_what_the_document_says);
    tcase_add_test(tests, versions_limits_and_messages_are_the_codes);
    return tests;
}
