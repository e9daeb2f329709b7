# SPDX-License-Identifier: Apache-2.0
"""A second implementation of the packets, from proto/WIRE.md and the published formulas alone: slow, plain, in numpy.

Whatever the document leaves open must not be decided here. Results that a correct float32 implementation may round
the other way raise Margin; whoever makes vectors then takes another input.
"""
import heapq
import math

import numpy

F32 = numpy.float32
MASK = (1 << 64) - 1
MARGIN = 1e-4


class Margin(Exception):
    """The input lies too close to a border of rounding to tell right from wrong."""


# ---- keys and random numbers ------------------------------------------------------------------------------------------

def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


def make_key(*parts):
    out = 0
    for part in parts:
        out = mix(out ^ part)
    return out


def philox(key, counter):
    """Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011); the upper half of the counter is 0."""
    c = [counter & 0xFFFFFFFF, counter >> 32, 0, 0]
    k = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        low, high = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(high >> 32) ^ c[1] ^ k[0], high & 0xFFFFFFFF, (low >> 32) ^ c[3] ^ k[1], low & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


class Stream:
    def __init__(self, key):
        self.key, self.at = key, 0

    def word(self):
        out = philox(self.key, self.at // 4)[self.at % 4]
        self.at += 1
        return out

    def below(self, b):
        product = self.word() * b
        while product & 0xFFFFFFFF < (1 << 32) % b:
            product = self.word() * b
        return product >> 32


def element_word(key, element):
    x = (element ^ key) & 0xFFFFFFFF
    x = ((x ^ x >> 16) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ x >> 15 ^ key >> 32) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ x >> 16


# ---- bits and bytes -----------------------------------------------------------------------------------------------------

def varint(v):
    out = bytearray()
    while v >= 128:
        out.append(v & 127 | 128)
        v >>= 7
    return bytes(out) + bytes([v])


class Bits:
    """The first bit lowest in its byte."""
    def __init__(self):
        self.value, self.count = 0, 0

    def put(self, value, bits):
        self.value |= (value & ((1 << bits) - 1)) << self.count
        self.count += bits

    def data(self):
        return self.value.to_bytes((self.count + 7) // 8, "little")


def pack_codes(codes, bits):
    out = Bits()
    for c in codes:
        out.put(int(c), bits)
    return out.data()


def bits_of(x):
    return numpy.asarray(x, F32).view(numpy.uint32)


def from_bits(b):
    return numpy.asarray(b, numpy.uint32).view(F32)


# ---- quantisers: values, their elements and the block's surroundings to scales, bytes and what they decode to -----------

def rounded(y, exact):
    """To nearest even; refuses what lies near a half unless `exact` says that y has no error."""
    y = numpy.asarray(y, numpy.float64)
    away = numpy.abs(numpy.abs(y - numpy.floor(y)) - 0.5)
    if not exact and len(y) and away.min() < MARGIN:
        raise Margin
    return numpy.rint(y)


def floored(y, most):
    y = numpy.minimum(numpy.asarray(y, numpy.float64), most)
    away = numpy.abs(y - numpy.rint(y))
    if len(y) and away[(y > 0) & (y < most)].size and away[(y > 0) & (y < most)].min() < MARGIN / 10:
        raise Margin
    return numpy.floor(y)


class Block:
    """One block on its way: `scale` makes what travels out of a scale, and gives back what the receiver reads."""
    def __init__(self, x, elements, key, unbiased, scale, exact, most):
        self.x, self.elements, self.key, self.unbiased, self.exact = x, elements, key, unbiased, exact
        self.wide = x.astype(numpy.float64)
        self.scale = scale
        self.most = float(numpy.abs(self.wide).max()) if most is None else most

    def words(self):
        return numpy.array([element_word(self.key, int(e)) for e in self.elements], numpy.uint64)

    def uniform(self):
        return (self.words() >> numpy.uint64(8)).astype(numpy.float64) * 2.0 ** -24


def store_wide(s):
    s = F32(s) if s >= 2.0 ** -126 else F32(0)
    return s.tobytes(), s


def store_short(s):
    bits = (int(bits_of(store_wide(s)[1])) + 0x7FFF) >> 15
    return bits.to_bytes(2, "little"), from_bits(bits << 15)[()]


def signed(q, s, bits):
    q = q.astype(numpy.int64)
    data = (q & 0xFF).astype(numpy.uint8).tobytes() if bits == 8 else pack_codes(q & ((1 << bits) - 1), bits)
    return data, (q.astype(F32) * s).astype(F32)


def symmetric(b, bits):
    levels = 2 ** (bits - 1) - 1
    head, s = b.scale(b.most / levels)
    q = rounded(b.wide / float(s), b.exact) if s > 0 else b.wide * 0
    data, back = signed(numpy.clip(q, -levels, levels), s, bits)
    return head + data, back


def linear(b, bits):
    low = b.x.min() + F32(0)
    step_head, s = store_wide((b.x.max() - low) / F32(2 ** bits - 1))
    q = rounded((b.wide - float(low)) / float(s), b.exact) if s > 0 else b.wide * 0
    q = numpy.clip(q, 0, 2 ** bits - 1)
    back = (low + (q.astype(F32) * s).astype(F32)).astype(F32)
    return low.tobytes() + step_head + pack_codes(q.astype(int), bits), back


def logarithmic(b, bits):
    levels = 2 ** (bits - 1) - 1
    head, s = store_wide(math.log1p(b.most) / levels)
    q = rounded(numpy.log1p(numpy.abs(b.wide)) / float(s), b.exact) if s > 0 else b.wide * 0
    q = numpy.minimum(q, levels)
    back = numpy.copysign(numpy.expm1(float(s) * q), b.wide).astype(F32)
    back[q == 0] = 0
    data, _ = signed(numpy.where(b.wide < 0, -q, q), s, bits)
    return head + data, back


def by_chance(b, magnitude, most, s, bits):
    level = floored(magnitude + b.uniform(), most)
    return signed(numpy.where(b.wide < 0, -level, level), s, bits)


def qsgd(b, bits):
    n, levels = len(b.x), 2 ** (bits - 1) - 1
    c = 1 if b.unbiased else 1 / (1 + min(n / levels ** 2, math.sqrt(n) / levels))
    head, s = store_wide(math.sqrt(float((b.wide ** 2).sum())) / levels * c)
    data, back = by_chance(b, numpy.abs(b.wide) * c / float(s) if s > 0 else b.wide * 0, levels, s, bits)
    return head + data, back


def ternary(b, _bits):
    total = float(numpy.abs(b.wide).sum())
    c = 1 if b.unbiased or total == 0 else float((b.wide ** 2).sum()) / (b.most * total)
    head, s = store_wide(b.most * c)
    data, back = by_chance(b, numpy.abs(b.wide) / b.most if s > 0 else b.wide * 0, 1, s, 2)
    return head + data, back


def natural(b, _bits):
    bits = bits_of(b.x).astype(numpy.uint64)
    minus = bits >> numpy.uint64(31)
    exponent = numpy.minimum(((bits & numpy.uint64(0x7FFFFFFF)) + (b.words() >> numpy.uint64(9))) >> numpy.uint64(23),
                             numpy.uint64(254))
    back = from_bits((exponent << numpy.uint64(23) | minus << numpy.uint64(31)).astype(numpy.uint32))
    return exponent.astype(numpy.uint8).tobytes() + pack_codes(minus, 1), back


def sign(b, _bits):
    head, s = b.scale(float(numpy.abs(b.wide).mean()))
    minus = b.x < 0
    return head + pack_codes(minus, 1), numpy.where(minus, -s, s).astype(F32)


def fp16(b, _bits):
    half = numpy.clip(b.x, F32(-65504), F32(65504)).astype(numpy.float16)
    return half.tobytes(), half.astype(F32)


def bf16_bits(x):
    out = []
    for bits in bits_of(x).tolist():
        magnitude = bits & 0x7FFFFFFF
        upper, lower = magnitude >> 16, magnitude & 0xFFFF
        upper += lower > 0x8000 or (lower == 0x8000 and upper & 1)
        out.append(min(upper, 0x7F7F) | bits >> 31 << 15)
    return numpy.array(out, numpy.uint32)


def bf16(b, _bits):
    upper = bf16_bits(b.x)
    return upper.astype("<u2").tobytes(), from_bits(upper << numpy.uint32(16))


def fp32(b, _bits):
    return b.x.tobytes(), b.x.copy()


# name: function, has short scales, has scales, values to a block
QUANTISERS = {
    "fp32": (fp32, False, False, 16384), "fp16": (fp16, False, False, 16384), "bf16": (bf16, False, False, 16384),
    "int8": (lambda b, _: symmetric(b, 8), True, True, 16384), "int4": (lambda b, _: symmetric(b, 4), True, True, 16384),
    "linear": (linear, False, True, 16384), "log": (logarithmic, False, True, 16384), "qsgd": (qsgd, False, True, 512),
    "natural": (natural, False, False, 2048), "ternary": (ternary, False, True, 16384), "sign": (sign, True, True, 16384),
}


def value_blocks(stage, x, elements, key, sparse, unbiased=False, exact=False, most=None):
    """stage: name and arguments; most: of the tensor, when that has one scale. Returns bytes and decoded values."""
    function, short, scaled, size = QUANTISERS[stage[0]]
    if most is not None:
        size = max(1, len(x))
    data, back = b"", []
    for at in range(0, len(x), size):
        part = x[at:at + size]
        if sparse and scaled and len(part) == 1:
            upper = bf16_bits(part)
            one, decoded = upper.astype("<u2").tobytes(), from_bits(upper << numpy.uint32(16))
        else:
            store = store_short if sparse and short and len(part) < 4096 else store_wide
            block = Block(part, elements[at:at + size], key, unbiased, store, exact, most)
            one, decoded = function(block, int(stage[1]) if stage[1:] and most is None else 0)
        data += one
        back.append(decoded)
    return data, numpy.concatenate(back) if back else x[:0]


# ---- index packs ---------------------------------------------------------------------------------------------------------

def gaps_of(index):
    return [i - p - 1 for i, p in zip(index, [-1] + index[:-1])]


def escaped(gaps, size):
    most = (1 << 8 * size) - 1
    return b"".join(g.to_bytes(size, "little") if g < most else most.to_bytes(size, "little") + g.to_bytes(4, "little")
                    for g in gaps)


def bitmap(index, n):
    out = bytearray((n + 7) // 8)
    for i in index:
        out[i // 8] |= 1 << i % 8
    return bytes(out)


def in_blocks(index, n):
    blocks = {}
    for i in index:
        blocks.setdefault(i // 256, []).append(i % 256)
    out = bitmap(sorted(blocks), (n + 255) // 256)
    for b in sorted(blocks):
        out += bytes([len(blocks[b]) - 1]) + bytes(blocks[b])
    return out


def runs(index, _n):
    out, at, first = b"", 0, True
    while at < len(index):
        end = at
        while end + 1 < len(index) and index[end + 1] == index[end] + 1:
            end += 1
        before = index[at] if first else index[at] - index[at - 1] - 2
        out += varint(before) + varint(end - at)
        at, first = end + 1, False
    return out


def log_fixed(g):
    """log2(2 g + 1), linear between powers of two, 16 bits behind the point."""
    x = 2 * g + 1
    e = x.bit_length() - 1
    return (e << 16) + ((x << 16) // (1 << e) - (1 << 16))


def rice(index, n):
    out, k = Bits(), len(index)
    mean = log_fixed(n // k) << 4
    for i, g in enumerate(gaps_of(index)):
        limit = n - (k - i) - (index[i] - g)
        r = max(0, ((mean + (13 << 16)) >> 20) - 1)
        q = g >> r
        if limit >> r > 4 and q < 4:
            out.put(1 << q, q + 1)
            out.put(g, r)
        elif limit >> r > 4:
            x, x_most = g - (4 << r), limit - (4 << r)
            e, e_most = ((x >> r) + 1).bit_length() - 1, ((x_most >> r) + 1).bit_length() - 1
            out.put(0, 4 + e)
            if e < e_most:
                out.put(1, 1)
            out.put(x - (((1 << e) - 1) << r), e + r)
        elif limit >> r == 0:
            out.put(g, limit.bit_length())
        else:
            out.put(0, q)
            if q < limit >> r:
                out.put(1, 1)
            out.put(g, r)
        rate = 2 if i < 8 else 3 if i < 64 else 4
        mean += (log_fixed(g) << 4 >> rate) - (mean >> rate)
    return out.data()


INDEX_PACKS = {
    "raw32": (1, lambda index, n: b"".join(i.to_bytes(4, "little") for i in index)),
    "varint": (2, lambda index, n: b"".join(varint(g) for g in gaps_of(index))), "bitmap": (3, bitmap),
    "rice": (4, rice), "raw16": (5, lambda index, n: escaped(gaps_of(index), 2)),
    "raw8": (6, lambda index, n: escaped(gaps_of(index), 1)), "block": (7, in_blocks), "rle": (8, runs),
}


def pack_indices(name, index, n):
    if name != "best":
        number, function = INDEX_PACKS[name]
        return number, function(index, n)
    return min(((number, function(index, n)) for number, function in INDEX_PACKS.values()),
               key=lambda choice: (len(choice[1]), choice[0]))


# ---- byte packs ------------------------------------------------------------------------------------------------------------

def rle8(data):
    out, at, plain = bytearray(), 0, bytearray()

    def flush():
        for start in range(0, len(plain), 128):
            part = plain[start:start + 128]
            out.extend(bytes([len(part) - 1]) + part)
        plain.clear()

    while at < len(data):
        run = 1
        while at + run < len(data) and run < 130 and data[at + run] == data[at]:
            run += 1
        if run >= 3:
            flush()
            out.extend([run + 125, data[at]])
            at += run
        else:
            plain.append(data[at])
            at += 1
    flush()
    return bytes(out)


def huffman_lengths(data):
    """Code lengths by Huffman's tree; a tree of more than 12 levels is not for this function."""
    counts = {}
    for b in data:
        counts[b] = counts.get(b, 0) + 1
    lengths = dict.fromkeys(counts, 0)
    heap = [(c, s, [s]) for s, c in counts.items()]
    heapq.heapify(heap)
    if len(heap) == 1:
        lengths[data[0]] = 1
    while len(heap) > 1:
        a, b = heapq.heappop(heap), heapq.heappop(heap)
        for s in a[2] + b[2]:
            lengths[s] += 1
        heapq.heappush(heap, (a[0] + b[0], min(a[1], b[1]), a[2] + b[2]))
    assert max(lengths.values()) <= 12
    return lengths


def huffman(data):
    lengths, out, s = huffman_lengths(data), Bits(), 0
    row = [lengths.get(b, 0) for b in range(256)]
    while s < 256:
        run = 1
        while s + run < 256 and row[s + run] == row[s]:
            run += 1
        if row[s] == 0 and run >= 19:
            run = min(run, 19 + 255)
            out.put(14, 4), out.put(run - 19, 8)
        elif row[s] == 0 and run >= 3:
            out.put(13, 4), out.put(run - 3, 4)
        elif s > 0 and row[s] == row[s - 1] and run >= 3:
            run = min(run, 18)
            out.put(15, 4), out.put(run - 3, 4)
        else:
            run = 1
            out.put(row[s], 4)
        s += run
    if len(lengths) == 1:
        return out.data()
    code, codes = 0, {}
    for bits in range(1, 13):
        for b in range(256):
            if row[b] == bits:
                codes[b] = int(format(code, f"0{bits}b")[::-1], 2)
                code += 1
        code <<= 1
    for b in data:
        out.put(codes[b], row[b])
    return out.data()


def shuffled(data, way):
    width = 4 if way == 5 else way
    words = len(data) // width
    body = numpy.frombuffer(data[:words * width], numpy.uint8)
    if way == 5:
        v = body.view("<u4")
        body = (v << numpy.uint32(1) | v >> numpy.uint32(31)).astype("<u4").view(numpy.uint8)
    return body.reshape(words, width).T.tobytes() + data[words * width:]


def zstd(data, way):
    import zstandard  # only whoever makes vectors needs it
    parameters = zstandard.ZstdCompressionParameters.from_level(
        3, format=zstandard.FORMAT_ZSTD1_MAGICLESS, write_content_size=False, write_checksum=False)
    return bytes([way]) + zstandard.ZstdCompressor(compression_params=parameters).compress(shuffled(data, way))


def wrapped(data, packed):
    if not data:
        return b""
    if len(packed) >= len(data):
        return varint(2 * len(data)) + data
    return varint(2 * len(data) + 1) + packed
