/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rice: gaps between indices in a Golomb-Rice code (Golomb 1966, Rice and Plaunt 1971) whose parameter follows the
 * gaps, so that no parameter is sent and clusters get short codes.
 *
 * A gap is g = index - previous - 1 (previous = -1 at first); `limit` is the largest g that leaves room for the other
 * indices. Both ends keep a mean m of log2(2 g + 1), starting with g = n / k and moving towards each gap's by 1/16 of
 * the difference (1/4 for the first 8 gaps, 1/8 for the next 56), and take the parameter r = max(0, floor(m + 13/16) -
 * 1). Logarithms are linear between powers of two, 16 bits behind the point, 20 in m; divisions round down. Bits, the
 * first one lowest in its byte, q = g >> r:
 *
 *   q < 4, limit >> r > 4    q zeros, a one, the low r bits of g
 *   q >= 4, limit >> r > 4   4 zeros, then x = g - 4 * 2^r in an exponential Golomb code of order r (Teuhola 1978):
 *                            e = floor(log2((x >> r) + 1)) zeros, a one, the low e + r bits of x - (2^e - 1) * 2^r;
 *                            no one when e is the largest possible, that of limit
 *   limit >> r <= 4          q zeros, a one unless q = limit >> r, the low r bits of g;
 *                            when limit >> r = 0: g in as many bits as limit has
 *
 * The exponential tail keeps the jump from one cluster to the next cheap, and every code below 70 bits. Averaging the
 * logarithm instead of the gap keeps one jump from spoiling the parameter: on the top 1 % of a real gradient
 * 5.7 bits an index, 7.1 with averaged gaps and no tail; unclustered indices cost at most 0.14 bit above their entropy.
 */
#include "common/codec/bits.h"
#include "common/codec/stage_list.h"

#define UNARY 4u      /* quotients below it are unary */
#define GAP_BYTES 9u  /* 4 zeros, 32 zeros and a one, 31 bits: 68 bits */
#define RATE 4        /* the mean moves by 2^-RATE of the difference, faster at first */
#define FAST_GAPS 8   /* by 2^-2 so many times */
#define BRISK_GAPS 64 /* then by 2^-3 until so many gaps are known */
#define FRACTION 16   /* bits of a logarithm behind the point */
#define ROUNDING (13u << (FRACTION + RATE - 4))

/* The mean logarithm, FRACTION + RATE bits behind the point. */
typedef struct {
    uint32_t mean;
} rice_state;

/*
 * log2(2 g + 1), linear between powers of two: exponent and mantissa of a double, which holds any such number exactly.
 * Faster than counting leading zeros where the compiler may not count on lzcnt.
 */
static inline uint32_t log_of(uint64_t gap) {
    double x = (double)(int64_t)(2 * gap + 1);
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint32_t)(bits >> (52 - FRACTION)) - (1023u << FRACTION);
}

static inline rice_state rice_start(size_t k, size_t n) { return (rice_state){log_of(n / k) << RATE}; }

static inline unsigned parameter(const rice_state *s) {
    unsigned whole = (s->mean + ROUNDING) >> (FRACTION + RATE);
    return whole - (whole > 0);
}

/* Takes in a gap. */
static inline void learn(rice_state *s, uint64_t gap, unsigned rate) {
    s->mean += (log_of(gap) << (RATE - rate)) - (s->mean >> rate);
}

/* How fast gap number i is learnt, and the first one behind it that is not learnt like that, of k. */
static inline unsigned rate_of(size_t i, size_t k, size_t *end) {
    size_t until = i < FAST_GAPS ? FAST_GAPS : i < BRISK_GAPS ? BRISK_GAPS : k;
    *end = until < k ? until : k;
    return i < FAST_GAPS ? 2 : i < BRISK_GAPS ? 3 : RATE;
}

/* One gap's bits: `head` zeros and ones of at most TS_BITS_AT_ONCE bits, then `tail` of at most 32. */
typedef struct {
    uint64_t head, tail;
    unsigned head_bits, tail_bits;
} rice_code;

static inline unsigned exponent_of(uint64_t x, unsigned r) { return ts_bits_length((x >> r) + 1) - 1; }

static rice_code code_near(uint64_t gap, unsigned r) {
    unsigned q = (unsigned)(gap >> r);
    return (rice_code){(uint64_t)1 << q, ts_bits_low(gap, r), q + 1, r};
}

static rice_code code_far(uint64_t gap, unsigned r, uint64_t limit) {
    uint64_t base = (uint64_t)UNARY << r, x = gap - base;
    unsigned e = exponent_of(x, r), stop = e < exponent_of(limit - base, r);
    x -= (((uint64_t)1 << e) - 1) << r;
    return (rice_code){(uint64_t)stop << (UNARY + e), x, UNARY + e + stop, e + r};
}

static rice_code code_near_end(uint64_t gap, unsigned r, uint64_t limit) {
    unsigned q = (unsigned)(gap >> r), most = (unsigned)(limit >> r), stop = q < most;
    if (most == 0) return (rice_code){0, gap, 0, ts_bits_length(limit)};
    return (rice_code){(uint64_t)stop << q, ts_bits_low(gap, r), q + stop, r};
}

static rice_code any_code(uint64_t gap, unsigned r, uint64_t limit) {
    if (limit >> r <= UNARY) return code_near_end(gap, r, limit);
    return gap >> r < UNARY ? code_near(gap, r) : code_far(gap, r, limit);
}

/*
 * The codes of quotients below USUAL, which all have the form: zeros, a one, the low bits of gap - (base << r), r of them
 * more than the table says. Near the end of the indices, where a one may be missing, limit >> r is below FAR_FROM_END.
 * One branch that is nearly always right instead of one on the quotient that is wrong at every tenth gap.
 */
#define USUAL 68u
#define FAR_FROM_END 132u

typedef struct {
    uint8_t zeros, base, bits; /* bits: zeros, the one and what is beyond r */
} usual_code;

#define UP_TO(e) {UNARY + (e), UNARY - 1 + (1u << (e)), UNARY + 1 + 2 * (e)}
#define TWO(e) UP_TO(e), UP_TO(e)
#define FOUR(e) TWO(e), TWO(e)
#define EIGHT(e) FOUR(e), FOUR(e)
#define SIXTEEN(e) EIGHT(e), EIGHT(e)
static const usual_code usual_of_quotient[USUAL] = {
    {0, 0, 1}, {1, 1, 2}, {2, 2, 3}, {3, 3, 4}, UP_TO(0), TWO(1), FOUR(2), EIGHT(3), SIXTEEN(4), SIXTEEN(5), SIXTEEN(5),
    UP_TO(6)};

/* The same by their zeros. */
#define USUAL_ZEROS 11u
static const usual_code usual_of_zeros[USUAL_ZEROS] = {{0, 0, 1}, {1, 1, 2}, {2, 2, 3}, {3, 3, 4}, UP_TO(0), UP_TO(1),
                                                       UP_TO(2),  UP_TO(3),  UP_TO(4),  UP_TO(5),  UP_TO(6)};

static inline bool is_usual(uint64_t gap, unsigned r, uint64_t limit) {
    return gap >> r < USUAL && limit >> r >= FAR_FROM_END;
}

static size_t rice_bound(size_t k, size_t n) {
    (void)n;
    return GAP_BYTES * k;
}

static size_t rice_size(const uint32_t *index, size_t k, size_t n) {
    if (k == 0) return 0;
    rice_state state = rice_start(k, n);
    uint64_t bits = 0, next = 0;
    for (size_t i = 0, end; i < k;) {
        for (unsigned rate = rate_of(i, k, &end); i < end; i++) {
            uint64_t gap = index[i] - next, limit = n - (k - i) - next;
            unsigned r = parameter(&state);
            if (__builtin_expect(is_usual(gap, r, limit), 1)) {
                bits += usual_of_quotient[gap >> r].bits + r;
            } else {
                rice_code code = any_code(gap, r, limit);
                bits += code.head_bits + code.tail_bits;
            }
            learn(&state, gap, rate);
            next = (uint64_t)index[i] + 1;
        }
    }
    return (size_t)((bits + 7) / 8);
}

/* Gaps i to end - 1, all learnt at one rate. `near` NULL: nothing is asked for. */
static inline __attribute__((always_inline)) void encode_run(ts_bit_writer *to, rice_state *state, size_t i, size_t end,
                                                             unsigned rate, const uint32_t *index, size_t k, size_t n,
                                                             const float *near) {
    uint64_t next = i > 0 ? (uint64_t)index[i - 1] + 1 : 0;
    ts_bit_writer writer = *to;
    for (; i < end; i++) {
        uint64_t gap = index[i] - next, limit = n - (k - i) - next;
        unsigned r = parameter(state);
        if (near) __builtin_prefetch(near + index[i], 0, 2);
        if (__builtin_expect(is_usual(gap, r, limit), 1)) {
            usual_code code = usual_of_quotient[gap >> r];
            uint64_t low = gap - ((uint64_t)code.base << r);
            ts_bits_put(&writer, (low << 1 | 1) << code.zeros, code.bits + r);
        } else {
            rice_code code = any_code(gap, r, limit);
            ts_bits_put(&writer, code.head, code.head_bits);
            ts_bits_put(&writer, code.tail, code.tail_bits);
        }
        learn(state, gap, rate);
        next = (uint64_t)index[i] + 1;
    }
    *to = writer;
}

static terse_status rice_encode_near(const uint32_t *index, size_t k, size_t n, uint8_t *out, size_t capacity,
                                     size_t *len, const float *near) {
    ts_bit_writer writer = ts_bits_write(out, capacity);
    rice_state state = rice_start(k ? k : 1, n);
    for (size_t i = 0, end; i < k; i = end) {
        unsigned rate = rate_of(i, k, &end);
        if (rate != RATE) encode_run(&writer, &state, i, end, rate, index, k, n, near);
        else if (near) encode_run(&writer, &state, i, end, RATE, index, k, n, near);
        else encode_run(&writer, &state, i, end, RATE, index, k, n, NULL);
    }
    return ts_bits_finish(&writer, len) ? TERSE_OK : TERSE_ENOSPACE;
}

static terse_status rice_encode(const uint32_t *index, size_t k, size_t n, uint8_t *out, size_t capacity, size_t *len) {
    return rice_encode_near(index, k, n, out, capacity, len, NULL);
}

/* Zeros before the next one, at most `most`. */
static unsigned zeros_at(const ts_bit_reader *reader, unsigned most) {
    uint64_t word = ts_bits_peek(reader) | (uint64_t)1 << most;
    return (unsigned)__builtin_ctzll(word);
}

static uint64_t take(ts_bit_reader *reader, unsigned bits) {
    uint64_t value = ts_bits_low(ts_bits_peek(reader), bits);
    reader->at += bits;
    return value;
}

/* Behind UNARY zeros. */
static uint64_t gap_far(ts_bit_reader *reader, unsigned r, uint64_t limit) {
    uint64_t base = (uint64_t)UNARY << r;
    unsigned most = exponent_of(limit - base, r);
    reader->at += UNARY;
    unsigned e = zeros_at(reader, most);
    reader->at += e + (e < most);
    return base + ((((uint64_t)1 << e) - 1) << r) + take(reader, e + r);
}

static uint64_t gap_near_end(ts_bit_reader *reader, unsigned r, uint64_t limit) {
    unsigned most = (unsigned)(limit >> r);
    if (most == 0) return take(reader, ts_bits_length(limit));
    unsigned q = zeros_at(reader, most);
    reader->at += q + (q < most);
    return (uint64_t)q << r | take(reader, r);
}

/* Any gap; the reader stands behind its code then. */
static uint64_t any_gap(ts_bit_reader *reader, unsigned r, uint64_t limit) {
    if (limit >> r <= UNARY) return gap_near_end(reader, r, limit);
    uint64_t word = ts_bits_peek(reader);
    if ((word & ((1u << UNARY) - 1)) == 0) return gap_far(reader, r, limit);
    unsigned q = (unsigned)__builtin_ctzll(word);
    reader->at += q + 1 + r;
    return (uint64_t)q << r | ts_bits_low(word >> q >> 1, r);
}

/* `near` NULL: nothing is asked for. */
static inline __attribute__((always_inline)) terse_status decode_all(const uint8_t *in, size_t len, size_t k, size_t n,
                                                                    uint32_t *index, const float *near) {
    TS_REQUIRE(k <= n, TERSE_ECORRUPT);
    if (k == 0) return len == 0 ? TERSE_OK : TERSE_ECORRUPT;
    ts_bit_reader reader = ts_bits_read(in, len);
    rice_state state = rice_start(k, n);
    uint64_t next = 0, end = (uint64_t)len * 8;
    for (size_t i = 0, stop; i < k;) {
        for (unsigned rate = rate_of(i, k, &stop); i < stop; i++) {
            uint64_t limit = n - (k - i) - next, word = ts_bits_peek(&reader), gap;
            unsigned r = parameter(&state), zeros = (unsigned)__builtin_ctzll(word | (uint64_t)1 << USUAL_ZEROS);
            if (__builtin_expect(zeros < USUAL_ZEROS && limit >> r >= FAR_FROM_END, 1)) {
                usual_code code = usual_of_zeros[zeros];
                unsigned low = code.bits - 1 - zeros + r;
                gap = ((uint64_t)code.base << r) + ts_bits_low(word >> zeros >> 1, low);
                reader.at += zeros + 1 + low;
            } else {
                gap = any_gap(&reader, r, limit);
            }
            TS_REQUIRE(gap <= limit && reader.at <= end, TERSE_ECORRUPT);
            index[i] = (uint32_t)(next + gap);
            if (near) __builtin_prefetch(near + next + gap, 0, 2);
            learn(&state, gap, rate);
            next += gap + 1;
        }
    }
    return ts_bits_at_end(&reader) ? TERSE_OK : TERSE_ECORRUPT;
}

static terse_status rice_decode(const uint8_t *in, size_t len, size_t k, size_t n, uint32_t *index) {
    return decode_all(in, len, k, n, index, NULL);
}

static terse_status rice_decode_near(const uint8_t *in, size_t len, size_t k, size_t n, uint32_t *index,
                                     const float *near) {
    return decode_all(in, len, k, n, index, near);
}

const ts_index_stage ts_index_rice = {
    .info = {.name = "rice",
             .args = "",
             .summary = "gaps in a Golomb-Rice code whose parameter follows them; nothing but the codes is sent",
             .formula = "r = max(0, floor(mean of log2(2 gap + 1) + 13/16) - 1)",
             .source = "Golomb 1966; Rice and Plaunt 1971; exponential tail after Teuhola 1978"},
    .bound = rice_bound,
    .size = rice_size,
    .encode = rice_encode,
    .encode_near = rice_encode_near,
    .decode = rice_decode,
    .decode_near = rice_decode_near,
};
