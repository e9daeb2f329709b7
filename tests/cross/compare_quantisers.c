/* SPDX-License-Identifier: Apache-2.0 */
/* Values to codes and back, and codes to bits. */
#include <string.h>

#include "tests/cross/compare.h"

static const size_t sizes[] = {0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 250, 256, 777};
#define SIZES (sizeof sizes / sizeof sizes[0])
#define BEHIND 32

/* Scales from too small for the input to none at all. */
static const float scales[] = {0.0f, 0x1p-126f, 1e-3f, 0.01f, 0.37f, 1e30f};
#define SCALES (sizeof scales / sizeof scales[0])

static void start(cross *c, size_t n) {
    memcpy(c->x.want, c->input, (n + BEHIND) * sizeof(float));
    memcpy(c->x.got, c->input, (n + BEHIND) * sizeof(float));
    memset(c->bytes.want, 0xA5, 4 * n + BEHIND);
    memset(c->bytes.got, 0xA5, 4 * n + BEHIND);
    memset(c->more.want, 0xA5, n + BEHIND);
    memset(c->more.got, 0xA5, n + BEHIND);
}

static void finish(cross *c, const char *kernel, size_t n, size_t detail) {
    bool same = cross_same(c->x.want, c->x.got, (n + BEHIND) * sizeof(float)) &&
                cross_same(c->bytes.want, c->bytes.got, 4 * n + BEHIND) &&
                cross_same(c->more.want, c->more.got, n + BEHIND);
    cross_expect(c, same, kernel, n, detail);
}

/* Runs a statement for the reference and for the level under test: k the table, w the side. */
#define BOTH(c, name, n, detail, call)                   \
    do {                                                 \
        start(c, n);                                     \
        {                                                \
            const ts_kernels *k = (c)->reference;        \
            float *x = (c)->x.want;                      \
            uint8_t *b = (c)->bytes.want, *m = (c)->more.want; \
            (void)x, (void)b, (void)m;                   \
            call;                                        \
        }                                                \
        {                                                \
            const ts_kernels *k = (c)->kernels;          \
            float *x = (c)->x.got;                       \
            uint8_t *b = (c)->bytes.got, *m = (c)->more.got; \
            (void)x, (void)b, (void)m;                   \
            call;                                        \
        }                                                \
        finish(c, name, n, detail);                      \
    } while (0)

static void floats(cross *c, unsigned kind, size_t n) {
    cross_input(c, kind, c->input, n + BEHIND);
    BOTH(c, "bf16_encode", n, kind, k->bf16_encode(x, n, b));
    for (size_t i = 0; i < n && c->no_half_ties; i++) c->input[i] = ts_bits_float(ts_float_bits(c->input[i]) | 1);
    BOTH(c, "fp16_encode", n, kind, k->fp16_encode(x, n, b));
    uint8_t halves[2 * 1024];
    for (size_t i = 0; i < 2 * n; i += 2) {
        halves[i] = (uint8_t)cross_random(c);
        halves[i + 1] = (uint8_t)((cross_random(c) & 0xFB)); /* never infinite */
    }
    BOTH(c, "fp16_decode", n, kind, k->fp16_decode(halves, n, x));
    BOTH(c, "bf16_decode", n, kind, k->bf16_decode(halves, n, x));
    BOTH(c, "fp16_add", n, kind, k->fp16_add(halves, n, x));
}

static void scaled(cross *c, unsigned kind, size_t n, size_t s) {
    float scale = scales[s];
    size_t detail = kind * 100 + s;
    cross_input(c, kind, c->input, n + BEHIND);
    BOTH(c, "int8_encode", n, detail, k->int8_encode(scale, x, n, b));
    BOTH(c, "int_codes", n, detail, k->int_codes(scale, 7.0f, x, n, b));
    BOTH(c, "sign_bits", n, detail, k->sign_bits(scale, x, n, b));
    BOTH(c, "linear_codes", n, detail, k->linear_codes(-0.6f, scale, 255.0f, x, n, b));
    uint8_t codes[1024], binary[1024], natural[1024 + 1024 / 8 + 1024 / 32];
    for (size_t i = 0; i < sizeof natural; i++) natural[i] = (uint8_t)cross_random(c);
    cross_input(c, kind, c->gradient, 256); /* as a table */
    for (size_t i = 0; i < n; i++) {
        codes[i] = (uint8_t)cross_random(c);
        binary[i] = (uint8_t)cross_random(c);
    }
    BOTH(c, "int8_decode", n, detail, k->int8_decode(scale, codes, n, x));
    BOTH(c, "int8_add", n, detail, k->int8_add(scale, codes, n, x));
    for (int add = 0; add < 2; add++) {
        for (unsigned bits = 2; bits <= 8; bits++) {
            BOTH(c, "int_values", n, detail, k->int_values(scale, bits, codes, n, x, add));
        }
        BOTH(c, "linear_values", n, detail, k->linear_values(-0.6f, scale, codes, n, x, add));
        BOTH(c, "sign_values", n, detail, k->sign_values(scale, binary, n, x, add));
        BOTH(c, "table_values", n, detail, k->table_values(c->gradient, codes, n, x, add));
        for (size_t block = 32; block <= 96; block += 16) {
            BOTH(c, "natural_values", n, detail * 100 + block, k->natural_values(block, natural, n, x, add));
        }
    }
}

static void by_chance(cross *c, unsigned kind, size_t n, size_t s, bool indexed) {
    static const float most[] = {1.0f, 7.0f, 127.0f};
    size_t detail = kind * 100 + s * 10 + indexed;
    uint32_t index[1024];
    for (size_t i = 0; i < n; i++) index[i] = cross_random(c);
    ts_stochastic how = {.key = (uint64_t)cross_random(c) << 32 | cross_random(c),
                         .index = indexed ? index : NULL,
                         .first = s == 1 ? UINT32_MAX - 5 : cross_random(c),
                         .inverse = s == 0 ? 0.0f : (float)s * 3.3f,
                         .step = s == 0 ? 0.0f : 0.29f,
                         .most = most[s % 3]};
    cross_input(c, kind, c->input, n + BEHIND);
    BOTH(c, "stochastic_codes", n, detail, k->stochastic_codes(&how, x, n, b));
    BOTH(c, "natural_codes", n, detail, k->natural_codes(&how, x, n, b, m));
}

static void logarithms(cross *c, unsigned kind, size_t n) {
    float values[256];
    for (size_t i = 0; i < 256; i++) values[i] = (float)i * 0.013f;
    cross_input(c, kind, c->input, n + BEHIND);
    for (size_t s = 0; s < 4; s++) {
        float inverse = s == 0 ? 0.0f : s == 1 ? 1.43f : s == 2 ? 91.0f : 4000.0f;
        BOTH(c, "log_codes", n, kind * 10 + s, k->log_codes(inverse, s == 1 ? 7.0f : 127.0f, values, x, n, b));
    }
}

static void bits(cross *c, size_t n) {
    uint8_t codes[1024];
    memset(c->input, 0, (n + BEHIND) * sizeof(float));
    for (size_t i = 0; i < n; i++) codes[i] = (uint8_t)cross_random(c);
    for (unsigned width = 1; width <= 8; width++) {
        BOTH(c, "pack", n, width, k->pack(width, codes, n, b));
        BOTH(c, "unpack", n, width, k->unpack(width, codes, n, b));
    }
}

/* Bytes without a certain field, then with one, at each place. */
static void fields(cross *c, size_t n) {
    static const struct {
        unsigned bits;
        uint16_t mask, code;
    } kinds[] = {{2, 0xFF, 2}, {4, 0xFF, 8}, {8, 0xFF, 0x80}, {8, 0xFF, 0xFF}, {16, 0x7C00, 0x7C00}, {16, 0x7F80, 0x7F80}};
    uint8_t in[1024];
    for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++) {
        unsigned bits = kinds[kind].bits, each = bits / 8 ? bits / 8 : 1;
        for (size_t i = 0; i < n; i++) in[i] = (uint8_t)(cross_random(c) & (bits == 16 ? 0x3B : 0x55));
        bool want = c->reference->fields_lack(bits, kinds[kind].mask, kinds[kind].code, in, n);
        cross_expect(c, want && c->kernels->fields_lack(bits, kinds[kind].mask, kinds[kind].code, in, n), "fields_lack", n,
                     kind);
        for (size_t at = 0; at + each <= n; at += each) {
            uint8_t before[2] = {in[at], in[at + each - 1]};
            in[at] = (uint8_t)kinds[kind].code;
            if (each == 2) in[at + 1] = (uint8_t)(kinds[kind].code >> 8);
            bool found = !c->reference->fields_lack(bits, kinds[kind].mask, kinds[kind].code, in, n) &&
                         !c->kernels->fields_lack(bits, kinds[kind].mask, kinds[kind].code, in, n);
            cross_expect(c, found, "fields_lack", n, kind * 10000 + at);
            in[at] = before[0];
            in[at + each - 1] = before[1];
        }
    }
}

void cross_quantisers(cross *c) {
    for (size_t i = 0; i < SIZES; i++) {
        bits(c, sizes[i]);
        fields(c, sizes[i]);
        for (unsigned kind = 0; kind < CROSS_FINITE; kind++) {
            floats(c, kind, sizes[i]);
            logarithms(c, kind, sizes[i]);
            for (size_t s = 0; s < SCALES; s++) scaled(c, kind, sizes[i], s);
            for (size_t s = 0; s < 5; s++) {
                by_chance(c, kind, sizes[i], s, false);
                by_chance(c, kind, sizes[i], s, true);
            }
        }
    }
}
