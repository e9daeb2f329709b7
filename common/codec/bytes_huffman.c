/* SPDX-License-Identifier: Apache-2.0 */
/*
 * huffman: a canonical code over bytes (Huffman 1952), lengths at most 12 bits. The lengths come first, 4 bits a symbol
 * in the order 0 ... 255, with
 *   0 ... 12  the symbol's length, 0 when it does not occur
 *   13, then 4 bits    v + 3 symbols that do not occur
 *   14, then 8 bits    v + 19 symbols that do not occur
 *   15, then 4 bits    v + 3 more symbols of the length before
 * then the codes, each with its first bit lowest. Where one byte is all there is, its length is 1 and no code is sent.
 *
 * encode() says in_len and leaves `out` undefined when the result would not be smaller.
 */
#include <stdlib.h>
#include <string.h>

#include "common/codec/bits.h"
#include "common/codec/stage_list.h"

#define SYMBOLS 256
#define MOST_BITS 12u
#define ZEROS_SHORT 13u
#define ZEROS_LONG 14u
#define REPEAT 15u
#define RUN_LEAST 3u
#define SHORT_MOST (RUN_LEAST + 15)
#define LONG_LEAST (SHORT_MOST + 1)
#define LONG_MOST (LONG_LEAST + 255)
#define COUNT_LANES 4
#define AT_ONCE 4 /* codes in one put or peek */

static size_t huffman_bound(size_t len, const ts_stage_args *args) {
    (void)args;
    return len;
}

static void count_bytes(const uint8_t *in, size_t len, uint64_t counts[SYMBOLS]) {
    uint32_t lanes[COUNT_LANES][SYMBOLS] = {{0}}; /* equal neighbours would wait for each other in one table */
    size_t i = 0;
    for (; i + COUNT_LANES <= len; i += COUNT_LANES) {
        for (size_t lane = 0; lane < COUNT_LANES; lane++) lanes[lane][in[i + lane]]++;
    }
    for (; i < len; i++) lanes[0][in[i]]++;
    for (size_t s = 0; s < SYMBOLS; s++) {
        counts[s] = 0;
        for (size_t lane = 0; lane < COUNT_LANES; lane++) counts[s] += lanes[lane][s];
    }
}

/* A symbol with its count above it, so that equal counts sort by symbol. */
static int by_count(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/*
 * Depths of the leaves of a Huffman tree over ascending weights w[m], m >= 2, deepest first, in place.
 * Algorithm: Moffat and Katajainen 1995.
 */
static void tree_depths(uint64_t *w, size_t m) {
    size_t root = 0, leaf = 2;
    w[0] += w[1];
    for (size_t next = 1; next < m - 1; next++) {
        for (int child = 0; child < 2; child++) {
            uint64_t weight;
            if (leaf >= m || (root < next && w[root] < w[leaf])) {
                weight = w[root];
                w[root++] = next;
            } else {
                weight = w[leaf++];
            }
            w[next] = child ? w[next] + weight : weight;
        }
    }
    w[m - 2] = 0;
    for (size_t next = m - 2; next-- > 0;) w[next] = w[w[next]] + 1;
    size_t available = 1, used = 0, next = m;
    uint64_t depth = 0;
    for (size_t node = m - 1; available > 0; depth++) {
        while (node > 0 && w[node - 1] == depth) {
            used++;
            node--;
        }
        for (; available > used; available--) w[--next] = depth;
        available = 2 * used;
        used = 0;
    }
}

/* Lengths of at most MOST_BITS whose code is complete; 1 for a symbol that is alone. */
static void code_lengths(const uint64_t counts[SYMBOLS], uint8_t lengths[SYMBOLS]) {
    uint64_t sorted[SYMBOLS], weights[SYMBOLS];
    size_t m = 0, of_length[64] = {0};
    memset(lengths, 0, SYMBOLS);
    for (size_t s = 0; s < SYMBOLS; s++) {
        if (counts[s] > 0) sorted[m++] = counts[s] << 8 | s;
    }
    if (m == 1) lengths[sorted[0] & 0xFF] = 1;
    if (m < 2) return;
    qsort(sorted, m, sizeof *sorted, by_count);
    for (size_t i = 0; i < m; i++) weights[i] = sorted[i] >> 8;
    tree_depths(weights, m);
    for (size_t i = 0; i < m; i++) of_length[weights[i] < MOST_BITS ? weights[i] : MOST_BITS]++;
    /* Cut lengths overfill the code: lengthen the longest code that can be, until the sum of 2^-length is 1. */
    uint64_t total = 0;
    for (unsigned bits = 1; bits <= MOST_BITS; bits++) total += (uint64_t)of_length[bits] << (MOST_BITS - bits);
    for (; total > (uint64_t)1 << MOST_BITS; total--) {
        unsigned bits = MOST_BITS - 1;
        while (of_length[bits] == 0) bits--;
        of_length[bits]--;
        of_length[bits + 1] += 2;
        of_length[MOST_BITS]--;
    }
    size_t i = 0;
    for (unsigned bits = MOST_BITS; bits > 0; bits--) {
        for (size_t left = of_length[bits]; left > 0; left--) lengths[sorted[i++] & 0xFF] = (uint8_t)bits;
    }
}

/* Canonical codes, first bit lowest. */
static void make_codes(const uint8_t lengths[SYMBOLS], uint16_t codes[SYMBOLS]) {
    unsigned code = 0;
    for (unsigned bits = 1; bits <= MOST_BITS; bits++) {
        for (size_t s = 0; s < SYMBOLS; s++) {
            if (lengths[s] != bits) continue;
            unsigned reversed = 0;
            for (unsigned b = 0; b < bits; b++) reversed |= (code >> b & 1) << (bits - 1 - b);
            codes[s] = (uint16_t)reversed;
            code++;
        }
        code <<= 1;
    }
}

static void write_zeros(ts_bit_writer *writer, size_t run) {
    while (run > 0) {
        size_t now = run < LONG_MOST ? run : LONG_MOST;
        if (run >= LONG_LEAST) {
            ts_bits_put(writer, ZEROS_LONG | (now - LONG_LEAST) << 4, 12);
        } else if (run >= RUN_LEAST) {
            ts_bits_put(writer, ZEROS_SHORT | (now - RUN_LEAST) << 4, 8);
        } else {
            ts_bits_put(writer, 0, 4);
            now = 1;
        }
        run -= now;
    }
}

static void write_repeats(ts_bit_writer *writer, unsigned length, size_t run) {
    while (run > 0) {
        size_t now = run < SHORT_MOST ? run : SHORT_MOST;
        if (run >= RUN_LEAST) {
            ts_bits_put(writer, REPEAT | (now - RUN_LEAST) << 4, 8);
        } else {
            ts_bits_put(writer, length, 4);
            now = 1;
        }
        run -= now;
    }
}

static void write_lengths(ts_bit_writer *writer, const uint8_t lengths[SYMBOLS]) {
    for (size_t s = 0; s < SYMBOLS;) {
        size_t run = 1;
        while (s + run < SYMBOLS && lengths[s + run] == lengths[s]) run++;
        if (lengths[s] == 0) {
            write_zeros(writer, run);
        } else {
            ts_bits_put(writer, lengths[s], 4);
            write_repeats(writer, lengths[s], run - 1);
        }
        s += run;
    }
}

/* Exactly SYMBOLS lengths of a complete code, or of one symbol (*alone, else SYMBOLS). */
static terse_status read_lengths(ts_bit_reader *reader, uint8_t lengths[SYMBOLS], size_t *alone) {
    size_t s = 0, used = 0;
    uint64_t total = 0;
    while (s < SYMBOLS) {
        uint64_t word = ts_bits_peek(reader);
        unsigned what = (unsigned)(word & 15);
        size_t run = 1;
        uint8_t length = 0;
        reader->at += 4;
        if (what <= MOST_BITS) {
            length = (uint8_t)what;
        } else if (what == ZEROS_LONG) {
            run = (size_t)(word >> 4 & 0xFF) + LONG_LEAST;
            reader->at += 8;
        } else {
            TS_REQUIRE(what == ZEROS_SHORT || s > 0, TERSE_ECORRUPT);
            run = (size_t)(word >> 4 & 15) + RUN_LEAST;
            if (what == REPEAT) length = lengths[s - 1];
            reader->at += 4;
        }
        TS_REQUIRE(run <= SYMBOLS - s, TERSE_ECORRUPT);
        memset(lengths + s, length, run);
        if (length > 0) {
            used += run;
            total += (uint64_t)run << (MOST_BITS - length);
            *alone = s;
        }
        s += run;
    }
    if (used == 1) return total == 1u << (MOST_BITS - 1) ? TERSE_OK : TERSE_ECORRUPT;
    *alone = SYMBOLS;
    return total == 1u << MOST_BITS ? TERSE_OK : TERSE_ECORRUPT;
}

static terse_status huffman_encode(struct ts_scratch *scratch, const ts_stage_args *args, const uint8_t *in,
                                   size_t in_len, uint8_t *out, size_t capacity, size_t *out_len) {
    uint64_t counts[SYMBOLS], bits = 0;
    uint8_t lengths[SYMBOLS];
    uint16_t codes[SYMBOLS] = {0};
    (void)scratch;
    (void)args;
    TS_REQUIRE(capacity >= in_len, TERSE_ENOSPACE);
    *out_len = in_len;
    if (in_len < 2) return TERSE_OK;
    count_bytes(in, in_len, counts);
    code_lengths(counts, lengths);
    make_codes(lengths, codes);
    for (size_t s = 0; s < SYMBOLS; s++) bits += counts[s] * lengths[s];
    if (bits >= (uint64_t)in_len * 8) return TERSE_OK;
    ts_bit_writer writer = ts_bits_write(out, in_len - 1);
    write_lengths(&writer, lengths);
    if (counts[in[0]] == in_len) {
        size_t wrote;
        if (ts_bits_finish(&writer, &wrote)) *out_len = wrote;
        return TERSE_OK;
    }
    size_t i = 0;
    for (; i + AT_ONCE <= in_len && !writer.full; i += AT_ONCE) {
        uint64_t joined = 0;
        unsigned at = 0;
        for (size_t j = i; j < i + AT_ONCE; j++) {
            joined |= (uint64_t)codes[in[j]] << at;
            at += lengths[in[j]];
        }
        ts_bits_put(&writer, joined, at);
    }
    for (; i < in_len && !writer.full; i++) ts_bits_put(&writer, codes[in[i]], lengths[in[i]]);
    size_t wrote;
    if (ts_bits_finish(&writer, &wrote)) *out_len = wrote;
    return TERSE_OK;
}

/* What the next MOST_BITS bits begin with: symbol, and length above it. */
static void make_table(const uint8_t lengths[SYMBOLS], uint16_t table[1u << MOST_BITS]) {
    uint16_t codes[SYMBOLS] = {0};
    make_codes(lengths, codes);
    for (size_t s = 0; s < SYMBOLS; s++) {
        if (lengths[s] == 0) continue;
        for (size_t at = codes[s]; at < 1u << MOST_BITS; at += (size_t)1 << lengths[s]) {
            table[at] = (uint16_t)(s | (unsigned)lengths[s] << 8);
        }
    }
}

static terse_status huffman_decode(struct ts_scratch *scratch, const ts_stage_args *args, const uint8_t *in,
                                   size_t in_len, uint8_t *out, size_t out_len) {
    uint8_t lengths[SYMBOLS];
    uint16_t table[1u << MOST_BITS];
    size_t alone, i = 0;
    (void)scratch;
    (void)args;
    ts_bit_reader reader = ts_bits_read(in, in_len);
    TS_TRY(read_lengths(&reader, lengths, &alone));
    if (alone < SYMBOLS) {
        memset(out, (int)alone, out_len);
        return ts_bits_at_end(&reader) ? TERSE_OK : TERSE_ECORRUPT;
    }
    make_table(lengths, table);
    for (; i + AT_ONCE <= out_len; i += AT_ONCE) {
        uint64_t word = ts_bits_peek(&reader);
        unsigned at = 0;
        for (size_t j = i; j < i + AT_ONCE; j++) {
            unsigned entry = table[word >> at & ((1u << MOST_BITS) - 1)];
            out[j] = (uint8_t)entry;
            at += entry >> 8;
        }
        reader.at += at;
    }
    for (; i < out_len; i++) {
        unsigned entry = table[ts_bits_peek(&reader) & ((1u << MOST_BITS) - 1)];
        out[i] = (uint8_t)entry;
        reader.at += entry >> 8;
    }
    return ts_bits_at_end(&reader) ? TERSE_OK : TERSE_ECORRUPT;
}

const ts_bytes_stage ts_bytes_huffman = {
    .info = {.name = "huffman",
             .args = "",
             .summary = "a canonical Huffman code over the packet's bytes, at most 12 bits each",
             .formula = "sum of count(b) length(b) bits, and the lengths",
             .source = "Huffman 1952; Moffat and Katajainen 1995"},
    .bound = huffman_bound,
    .encode = huffman_encode,
    .decode = huffman_decode,
};
