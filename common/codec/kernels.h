/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner loops: a plain C reference and vector variants that give the same
 * bytes. Every kernel works on its arguments alone; arrays need no alignment.
 *
 * Floating point: round to nearest even, no contraction, denormals honoured on
 * input. Sums over many elements run in TS_SUM_LANES lanes, element i in lane
 * i % TS_SUM_LANES, lanes added pairwise (lane l with l + half, halving).
 */
#ifndef TS_CODEC_KERNELS_H
#define TS_CODEC_KERNELS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cpu.h"
#include "common/codec/codec.h"
#include "common/codec/stage.h"

#define TS_SUM_LANES 16
#define TS_ABS_MASK 0x7FFFFFFFu
#define TS_INF_BITS 0x7F800000u
#define TS_MIN_NORMAL_BITS 0x00800000u

/*
 * Where select() copies the old values of what it is about to change, so that a kill leaves nothing half done: element i's
 * to residual[i - first]. Then `word` says how many lie there: first << TS_UNDO_BITS | count.
 */
typedef struct {
    float *residual, *velocity;
    size_t first;
    _Atomic uint64_t *word; /* NULL: not in use */
} ts_undo;
#define TS_UNDO_BITS 20u

/* Accumulation as codec.h defines it for one tensor; `gradient` NULL reads the residual alone and writes nothing. */
typedef struct ts_sweep {
    const float *gradient; /* [borrow] n */
    float scale;
    float *residual; /* [borrow] n */
    float *velocity; /* [borrow] n or NULL */
    float momentum;
    bool nesterov;
    const float *params; /* [borrow] n or NULL */
    float weight_decay;
    struct ts_guard *guard; /* [borrow] or NULL, see guard.h */
    const ts_undo *undo;    /* [borrow] two, or NULL */
    ts_nonfinite policy;
    bool blank;       /* sweep_floats with TS_FLOAT32 and without velocity and params: residual counts as 0, untouched */
    size_t bad_count; /* elements that were not finite */
    size_t bad_first;
} ts_sweep;

/* Floats of a packet, without scales. */
typedef enum { TS_FLOAT32, TS_FLOAT16, TS_BFLOAT16 } ts_float_kind;

/* Elements that may be selected: ascending index, value bits beside it. */
typedef struct {
    uint32_t *index;    /* [borrow] capacity */
    uint32_t *bits;     /* [borrow] capacity: the float's bits, sign included */
    uint32_t *order;    /* [borrow] capacity: work space for choosing */
    size_t count, capacity;
    uint32_t floor;     /* |value| bits at or above it are taken */
} ts_candidates;

/* What stochastic rounding needs. */
typedef struct {
    uint64_t key;
    const uint32_t *index; /* [borrow] as in ts_quantise_block */
    size_t first;
    float inverse, step, most;
} ts_stochastic;

/* A block in the cache that is encoded beside the sweep of the next one. The first is none. */
typedef enum { TS_BESIDE_NONE, TS_BESIDE_INT8, TS_BESIDE_SIGN, TS_BESIDE_CHANCE } ts_beside_kind;
typedef struct ts_beside {
    ts_beside_kind kind; /* int8_encode(), sign_bits(), or stochastic_codes() with pack() */
    float scale;
    ts_stochastic how;   /* by chance: without an index */
    unsigned bits;
    float *x;            /* [borrow] n, not of the elements that are swept */
    size_t n;
    uint8_t *out;
} ts_beside;

/* Room that a select kernel wants to have left before it takes another group. */
#define TS_SELECT_GROUP 64
/* And room that a vector may be written to behind what is kept. */
#define TS_KEEP_SPARE 8

typedef struct ts_kernels {
    ts_simd level;
    /* sum[i] += x[i]: the bare sweep, the yardstick of all speeds. */
    void (*add)(float *sum, const float *x, size_t n);
    /* The same from a packet's bytes at any address. fresh: sum counts as 0 and is only written. Returns whether all x are finite. */
    bool (*fp32_sum)(const uint8_t *in, size_t n, float *sum, bool fresh);
    /* out[i] = a[i] - b[i]; out may be a or b. */
    void (*sub)(float *out, const float *a, const float *b, size_t n);
    /* x[i] *= factor. */
    void (*scale)(float *x, float factor, size_t n);
    /* params[i] -= rate * gradient[i]. */
    void (*descend)(float *params, const float *gradient, float rate, size_t n);
    /* sum of x[i]^2 and of |x[i]| in double, by lanes. */
    double (*sum_squares)(const float *x, size_t n);
    double (*sum_abs)(const float *x, size_t n);
    void (*sums)(const float *x, size_t n, double *squares, double *abs); /* both */
    /* How many x[i] are NaN or infinite, and where the first one is. */
    size_t (*nonfinite)(const float *x, size_t n, size_t *first);
    /* Whether all x[i] are finite, and what is below FLT_MIN is +0: what taking them in would make of them. */
    bool (*plain)(const float *x, size_t n);
    /* Bits of the largest |x[i]|; 0 when n is 0. NaN counts above infinity. */
    uint32_t (*max_abs)(const float *x, size_t n);
    /* The smallest and largest value; n > 0, all finite, -0 counts as +0. */
    void (*min_max)(const float *x, size_t n, float *low, float *high);
    /* Accumulates elements first ... end - 1 whose input is finite; overflow saturates. Returns bits of max |residual|.
     */
    uint32_t (*sweep)(ts_sweep *sweep, size_t first, size_t end);
    /*
     * The same, with the sums of what is then in the residual, lanes counted from `first`; all must be finite.
     * wanted: TS_SUM_SQUARES | TS_SUM_ABS; sums[0] is of the squares, sums[1] of |x|, and 0 where it was not wanted.
     */
    uint32_t (*sweep_sums)(ts_sweep *sweep, size_t first, size_t end, unsigned wanted, double sums[2]);
    /* sweep(), or sweep_sums() when something is wanted, and the work beside it. */
    uint32_t (*sweep_beside)(ts_sweep *sweep, size_t first, size_t end, unsigned wanted, double sums[2],
                             const ts_beside *work);
    /*
     * The sweep and the writing of floats in one pass over memory: out gets end - first of them, the residual what they
     * do not say. beyond: [in, out] counts finite values above ts_float_most(). Not finite ones are 0 in `out`.
     */
    void (*sweep_floats)(ts_sweep *sweep, size_t first, size_t end, ts_float_kind kind, uint8_t *out, size_t *beyond);
    /*
     * The sweep and natural_codes() in one pass, in blocks of `block` elements, a multiple of 8: each block's exponents
     * and then its signs in `out`. how: without an index; its `first` is the number of element `first`.
     */
    void (*sweep_natural)(ts_sweep *sweep, size_t first, size_t end, const ts_stochastic *how, size_t block, uint8_t *out);
    /*
     * Accumulates (when there is a gradient) and appends candidates, from `first` on until `end` or until less than
     * TS_SELECT_GROUP room is left. Elements that are not finite are counted and treated by the policy.
     * Returns the first element that was not taken in.
     */
    size_t (*select)(ts_sweep *sweep, size_t first, size_t end, ts_candidates *candidates);
    /*
     * The same for elements [first, end) with candidates[0] and [half + first, half + end) with candidates[1], side by
     * side: memory serves two places at once faster than one. end <= half. Returns where both stopped, counted from the
     * start of the first.
     */
    size_t (*select_pair)(ts_sweep *sweep, size_t first, size_t end, size_t half, ts_candidates candidates[2]);
    /* Leaves the candidates of which |value| bits are at or above `level`, in their order. */
    void (*keep_above)(ts_candidates *candidates, uint32_t level);
    /*
     * Which v[i] & mask are in low ... high, both included, in their order, into between[room]; *above counts those
     * beyond high. Returns how many there are, or more than room - TS_KEEP_SPARE: too many, and some are missing.
     */
    size_t (*between)(const uint32_t *v, size_t n, uint32_t mask, uint32_t low, uint32_t high, uint32_t *between,
                      size_t room, size_t *above);
    /* Quantisers, see the files of the stages; x: in values, out remainders. */
    void (*fp16_encode)(float *x, size_t n, uint8_t *out);
    void (*fp16_decode)(const uint8_t *in, size_t n, float *x);
    void (*fp16_add)(const uint8_t *in, size_t n, float *sum);
    void (*int8_encode)(float scale, float *x, size_t n, uint8_t *out);
    void (*int8_decode)(float scale, const uint8_t *in, size_t n, float *x);
    void (*int8_add)(float scale, const uint8_t *in, size_t n, float *sum);
    void (*bf16_encode)(float *x, size_t n, uint8_t *out);
    void (*bf16_decode)(const uint8_t *in, size_t n, float *x);
    /*
     * Values to codes of a byte each, and codes to bits. Signed codes are two's complement; what is above their low
     * `bits` bits is not written. x: in values, out remainders.
     */
    void (*int_codes)(float scale, float most, float *x, size_t n, uint8_t *codes); /* q = round(x / scale) in ±most */
    void (*linear_codes)(float low, float step, float most, float *x, size_t n, uint8_t *codes);
    /* q = ±min(floor(|x| · inverse + u), most), u uniform by key and element; decoded is q · step. */
    void (*stochastic_codes)(const ts_stochastic *how, float *x, size_t n, uint8_t *codes);
    /* One bit a value, 1 where x < 0; decoded is scale or -scale. */
    void (*sign_bits)(float scale, float *x, size_t n, uint8_t *bits);
    /* Exponents of stochastic rounding to powers of two, and a bit of sign each. */
    void (*natural_codes)(const ts_stochastic *how, float *x, size_t n, uint8_t *exponents, uint8_t *signs);
    /* q = min(round(log(1 + |x|) · inverse), most) with the sign of x; decoded is values[|q|] with that sign. */
    void (*log_codes)(float inverse, float most, const float *values, float *x, size_t n, uint8_t *codes);
    /* And back: into x, or added to it. */
    void (*int_values)(float scale, unsigned bits, const uint8_t *codes, size_t n, float *x, bool add);
    void (*linear_values)(float low, float step, const uint8_t *codes, size_t n, float *x, bool add);
    void (*sign_values)(float scale, const uint8_t *bits, size_t n, float *x, bool add);
    void (*table_values)(const float *table, const uint8_t *codes, size_t n, float *x, bool add); /* table: 256 */
    /* Of blocks of `block` elements, the last one shorter: a block's exponents and then its signs. */
    void (*natural_values)(size_t block, const uint8_t *in, size_t n, float *x, bool add);
    /* n codes of `bits` bits (1 … 8), lowest first; unused bits of the last byte are 0. */
    void (*pack)(unsigned bits, const uint8_t *codes, size_t n, uint8_t *out);
    void (*unpack)(unsigned bits, const uint8_t *in, size_t n, uint8_t *codes);
    /* Whether no field of `bits` (2, 4, 8 or 16; lowest first) in in[bytes] has (field & mask) == code; mask & code == code.
     */
    bool (*fields_lack)(unsigned bits, uint16_t mask, uint16_t code, const uint8_t *in, size_t bytes);
} ts_kernels;

/* Kernels of that level, or of the next lower one that was built. Thread: any. */
const ts_kernels *ts_kernels_get(ts_simd level);

/* Element by element, every case: the reference that vector kernels call for tails and for values that are not finite.
 */
uint32_t ts_sweep_scalar(ts_sweep *sweep, size_t first, size_t end);
size_t ts_select_scalar(ts_sweep *sweep, size_t first, size_t end, ts_candidates *candidates);
void ts_keep_above_scalar(ts_candidates *candidates, uint32_t level);
size_t ts_between_scalar(const uint32_t *v, size_t n, uint32_t mask, uint32_t low, uint32_t high, uint32_t *between,
                         size_t room, size_t *above);
void ts_sweep_floats_scalar(ts_sweep *sweep, size_t first, size_t end, ts_float_kind kind, uint8_t *out, size_t *beyond);

/* The same one after the other: for levels where one pass of its own would gain nothing, and for the rest of others. */
void ts_sweep_then_natural(const ts_kernels *kernels, ts_sweep *sweep, size_t first, size_t end,
                           const ts_stochastic *how, size_t block, uint8_t *out);
/* Values to bits by chance: stochastic_codes() and pack(). */
void ts_chance_write(const ts_kernels *kernels, const ts_stochastic *how, unsigned bits, float *x, size_t n,
                     uint8_t *out);
uint32_t ts_sweep_then_beside(const ts_kernels *kernels, ts_sweep *sweep, size_t first, size_t end, unsigned wanted,
                              double sums[2], const ts_beside *work);
/* sweep_sums() where one pass of its own would gain nothing: that level's sweep, and its sums behind it. */
uint32_t ts_sweep_then_sums(const ts_kernels *kernels, ts_sweep *sweep, size_t first, size_t end, unsigned wanted,
                            double sums[2]);

extern const ts_kernels ts_kernels_scalar;
#if defined(__x86_64__)
extern const ts_kernels ts_kernels_avx2; /* only for CPUs that have it, as all of these */
extern const ts_kernels ts_kernels_avx512;
#elif defined(__aarch64__)
extern const ts_kernels ts_kernels_neon;
#endif

static inline uint32_t ts_float_bits(float x) {
    union { float f; uint32_t u; } both = {.f = x};
    return both.u;
}
static inline float ts_bits_float(uint32_t bits) {
    union { uint32_t u; float f; } both = {.u = bits};
    return both.f;
}
/* The largest magnitude that a float of that kind says, and its bytes. */
static inline float ts_float_most(ts_float_kind kind) {
    return kind == TS_FLOAT16 ? 65504.0f : kind == TS_BFLOAT16 ? 0x1.FEp127f : 0x1.FFFFFEp127f;
}
static inline size_t ts_float_bytes(ts_float_kind kind) { return kind == TS_FLOAT32 ? 4 : 2; }
/* `count` old values are copied; what comes next may change them. The compiler keeps the order, and that is all it takes. */
static inline void ts_undo_note(const ts_undo *undo, size_t count) {
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(undo->word, (uint64_t)undo->first << TS_UNDO_BITS | (uint64_t)count, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
}
/* Below the smallest normal number: +0. */
static inline float ts_flush(float x) {
    return (ts_float_bits(x) & TS_ABS_MASK) < TS_MIN_NORMAL_BITS ? 0.0f : x;
}
/* Round to nearest even for |x| < 2^22, without the C library. */
static inline float ts_round(float x) {
    return (x + 12582912.0f) - 12582912.0f;
}
/* IEEE half precision, round to nearest even; |x| above 65504 gives 65504. */
uint16_t ts_half_from_float(float x);
float ts_half_to_float(uint16_t half);

#endif
