/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames: the input as it is, then with version and checksum put right (no fuzzer finds those), header and bundle
 * read as server and client do.
 */
#include <string.h>
#include <xxhash.h>

#include "common/base/bytes.h"
#include "common/wire/bundle.h"
#include "common/wire/frame.h"
#include "tests/fuzz/fuzz.h"

#define SLICES 1000u
#define CHECKSUM_BYTES 4

static void read_bundle(const ts_frame *frame) {
    ts_bundle_reader reader = ts_bundle_read(frame->payload, frame->payload_bytes, SLICES);
    int64_t previous = -1;
    for (;;) {
        uint32_t slice;
        const uint8_t *packet;
        size_t len;
        terse_status status = ts_bundle_next(&reader, &slice, &packet, &len);
        if (status != TERSE_OK) {
            FUZZ_CHECK(status == TERSE_EAGAIN || status == TERSE_ECORRUPT);
            return;
        }
        FUZZ_CHECK(slice < SLICES && (int64_t)slice > previous);
        FUZZ_CHECK(packet >= frame->payload && len <= frame->payload_bytes);
        FUZZ_CHECK(packet + len <= frame->payload + frame->payload_bytes);
        previous = slice;
    }
}

static void parse(const uint8_t *data, size_t len) {
    ts_buffer buffer = {.data = malloc(len ? len : 1), .len = len, .capacity = len, .references = 1};
    if (!buffer.data) return;
    if (len > 0) memcpy(buffer.data, data, len);
    ts_frame frame = {0};
    terse_status status = ts_frame_parse(&buffer, &frame);
    if (status == TERSE_OK) {
        FUZZ_CHECK(frame.header != NULL && frame.header->body_case != TERSE__HEADER__BODY__NOT_SET);
        FUZZ_CHECK(frame.payload_bytes <= len);
        read_bundle(&frame);
    } else {
        FUZZ_CHECK(frame.header == NULL);
    }
    ts_frame_release(&frame);
    free(buffer.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    parse(data, len);
    if (len < 1) return 0;
    uint8_t *right = malloc(len + CHECKSUM_BYTES);
    if (!right) return 0;
    memcpy(right, data, len);
    right[0] = TS_WIRE_VERSION;
    ts_store_u32(right + len, (uint32_t)XXH3_64bits(right, len));
    parse(right, len + CHECKSUM_BYTES);
    free(right);
    return 0;
}
