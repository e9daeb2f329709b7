#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/vectors/stages: for each stage inputs, what is sent of them, and the packets, by reference_codec.py.

Needs python3-numpy and python3-zstandard. manifest.json lists the cases; NAME.bin holds for each step the input (n
float32), what the receiver adds (n float32) and the packets of the slices. `match` says what a codec has to do:
  bytes     write these packets, read them, and keep input - sent in the residual
  decode    read these packets; its own of the same input say the same, whatever their bytes
  packet    read these packets; nothing was encoded
  adaptive  send the largest elements as they are, a number within a tenth of `k`
  replace   write these packets of new values, and read them into what the receiver has of the step before, to the bit
"""
import json
import math
import os
import sys

import numpy

import reference_codec as ref

F32 = numpy.float32
OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "vectors", "stages")
VALUES, INDICES = 0x76616C75, 0x696E6478


class Tensor:
    """One tensor of one sender, as the test builds it, too."""
    def __init__(self, case):
        self.pipeline = [s.strip().split(":") for s in case["pipeline"].split("|")]
        self.n, self.slice, self.case = case["n"], case["slice"], case
        self.byte_packs = [s for s in self.pipeline if s[0] in ("huffman", "rle8", "zstd")]
        self.quantiser = next((s for s in self.pipeline if s[0] in ref.QUANTISERS), ["fp32"])
        self.selector = next((s for s in self.pipeline if s[0] in SELECTORS), None)
        self.index = next((s[0] for s in self.pipeline if s[0] in ref.INDEX_PACKS), "best")
        self.delta = next((int(s[1]) for s in self.pipeline if s[0] == "delta"), 0)
        self.state, self.state_step = numpy.zeros(self.n, F32), None

    def key(self, step, tail, purpose):
        return ref.make_key(self.case["seed"], step, self.case["tensor"], tail, purpose + self.case["direction"])

    def slices(self):
        return [(at, min(at + self.slice, self.n)) for at in range(0, self.n, self.slice)]

    def wrap(self, data):
        for s in self.byte_packs:
            packed = {"huffman": ref.huffman, "rle8": ref.rle8}.get(s[0], lambda d: ref.zstd(d, self.case["way"]))(data)
            data = ref.wrapped(data, packed)
        return data

    def blocks(self, x, elements, step, sparse, most):
        key = self.key(step, self.case["worker"], VALUES)
        return ref.value_blocks(self.quantiser, x, elements, key, sparse, self.case["unbiased"],
                                self.case.get("exact", False), most)

    def encode(self, x, step):
        return self.encode_sparse(x, step) if self.selector else self.encode_dense(x, step)

    def encode_dense(self, x, step):
        packets, sent, behind, what = [], [], 0, x
        if self.delta and self.state_step is not None and step % self.delta:
            behind = step - self.state_step
            what = (x - self.state).astype(F32)
        whole = float(numpy.abs(what).max()) if "tensor" in self.quantiser else None
        for first, end in self.slices():
            data, back = self.blocks(what[first:end], range(first, end), step, False, whole)
            packets.append(self.wrap(bytes([behind]) + data if self.delta else data))
            sent.append(back)
        sent = numpy.concatenate(sent)
        if self.delta:
            sent = (self.state + sent).astype(F32) if behind else sent
            self.state, self.state_step = sent, step
        return packets, sent

    def encode_sparse(self, x, step):
        name, key = self.selector[0], self.key(step, self.case["worker"], VALUES)
        total, picked = SELECTORS[name](self, x, key, step)
        sent, packets = numpy.zeros(self.n, F32), []
        values = {i: v for i, v in picked}
        whole = max(abs(float(v)) for v in values.values()) if "tensor" in self.quantiser else None
        for first, end in self.slices():
            index = [i for i in sorted(values) if first <= i < end]
            share = total * end // self.n - total * first // self.n
            packets.append(self.wrap(self.sparse_packet(index, values, share, first, end, step, whole, sent)))
        return packets, sent

    def sparse_packet(self, index, values, share, first, end, step, whole, sent):
        k = len(index)
        if k == 0:
            return b""
        data, back = self.blocks(numpy.array([values[i] for i in index], F32), index, step, True, whole)
        sent[index] = back
        number, indices = 0, b""
        if self.selector[0] != "randomk":
            number, indices = ref.pack_indices(self.index, [i - first for i in index], end - first)
        more = k - share
        head = bytes([number | 16]) if more == 0 else bytes([number]) + ref.varint(2 * more if more > 0 else -2 * more - 1)
        return head + data + indices


def count_of(ratio, n):
    return min(n, max(1, math.ceil(ratio * n)))


def largest(x, elements, k, key):
    order = sorted(elements, key=lambda i: (-abs(float(x[i])), ref.mix(key ^ i) >> 32, i))
    return [(i, x[i]) for i in order[:k]]


def topk(t, x, key, _step):
    k = count_of(float(t.selector[1]), t.n)
    return k, largest(x, range(t.n), k, key)


def blocktopk(t, x, key, _step):
    ratio, size, out = float(t.selector[1]), int(t.selector[2]), []
    for at in range(0, t.n, size):
        end = min(at + size, t.n)
        out += largest(x, range(at, end), count_of(ratio, end - at), key)
    return len(out), out


def threshold(t, x, _key, _step):
    border = F32(float(t.selector[1]))
    return 0, [(i, v) for i, v in enumerate(x) if abs(v) >= border and v != 0]


def adaptive(t, x, _key, _step):
    k = count_of(float(t.selector[1]), t.n)
    t.case["k"] = k
    return 0, largest(x, range(t.n), k, 0)


def bernoulli(t, x, key, _step):
    p = float(t.selector[1])
    gain = F32(1 / p) if t.case["unbiased"] else F32(1)
    return 0, [(i, v * gain) for i, v in enumerate(x) if ref.mix(key ^ i) >> 32 < math.floor(p * 2 ** 32)]


def magnitude(t, x, key, _step):
    """Wangni et al. 2018: p = min(1, a |g|), the factor found from the sorted magnitudes in closed form."""
    k, wide = count_of(float(t.selector[1]), t.n), numpy.abs(x.astype(numpy.float64))
    order, certain = -numpy.sort(-wide), 0
    while (k - certain) * order[certain] > order[certain:].sum():
        certain += 1
    a = (k - certain) / order[certain:].sum()
    p = numpy.minimum(1, a * wide)
    assert abs(p.sum() - k) < 1e-6 * k
    out = []
    for i, v in enumerate(x):
        u = (ref.mix(key ^ i) >> 11) * 2.0 ** -53
        if abs(u - p[i]) < 1e-9 and p[i] < 1:
            raise ref.Margin
        if u < p[i]:
            out.append((i, F32(float(v) / p[i]) if t.case["unbiased"] else v))
    return 0, out


def randomk(t, x, _key, step):
    k, out = count_of(float(t.selector[1]), t.n), []
    for first, end in t.slices():
        n, share = end - first, k * end // t.n - k * first // t.n
        stream, taken = ref.Stream(t.key(step, first, INDICES)), set()
        drop = share > n // 2
        drawn = n - share if drop else share
        for j in range(n - drawn, n):
            pick = stream.below(j + 1)
            taken.add(j if pick in taken else pick)
        chosen = [i for i in range(n) if (i in taken) != drop]
        gain = F32(n / share) if t.case["unbiased"] and share else F32(1)
        out += [(first + i, x[first + i] * gain) for i in chosen]
    return k, out


SELECTORS = {"topk": topk, "blocktopk": blocktopk, "threshold": threshold, "adaptive": adaptive,
             "bernoulli": bernoulli, "magnitude": magnitude, "randomk": randomk}

# ---- inputs ------------------------------------------------------------------------------------------------------------------


def inputs(kind, n, random):
    normal, at = random.standard_normal(n), numpy.arange(n)
    x = {"normal": lambda: normal,
         "tail": lambda: normal ** 3 * 0.01,
         "positive": lambda: 3 + normal.clip(-2.5, 2.5) * 0.1,
         "negative": lambda: -2 - numpy.abs(normal),
         "sparse": lambda: normal * (random.random(n) < 0.02),
         "steps": lambda: numpy.rint(normal * 2) / 4,
         "wide": lambda: normal * 10.0 ** random.integers(-6, 7, n),
         "huge": lambda: normal * 1e5,
         "zeros": lambda: normal * 0,
         "equal": lambda: normal * 0 + 0.375,
         "clusters": lambda: normal * (1e-3 + (numpy.sin(at / 40) > 0.9)),
         "odd 512": lambda: random.choice([-1, 1], n) * (257 + 2 * random.integers(0, 127, n)),
         "odd 4096": lambda: random.choice([-1, 1], n) * (2049 + 2 * random.integers(0, 1023, n)),
         "two levels": lambda: numpy.where(random.random(n) < 0.03, 5 + normal * 0.01, normal * 0.01),
         "ends": lambda: normal * ((at == 3) | (at == n - 2)),
         "halves": lambda: numpy.concatenate([[127, -127], random.integers(-250, 251, n)[2:] / 2])}[kind]()
    return x.astype(F32) + F32(0)


DEFAULTS = {"seed": 7, "tensor": 0, "worker": 0, "direction": 0, "unbiased": False, "match": "bytes"}


def run(case, input_kind, steps, tries=400):
    """Packets and values of every step; another input until none lies on a border."""
    for attempt in range(tries):
        random = numpy.random.default_rng([len(case["name"]), case["n"], attempt])
        tensor, residual, estimate = Tensor(case), numpy.zeros(case["n"], F32), numpy.zeros(case["n"], F32)
        rows, blob = [], b""
        try:
            for step in steps:
                g = inputs(input_kind, case["n"], random)
                if case.get("ef21"):
                    residual = -estimate
                residual = (residual * F32(case.get("decay", 1))).astype(F32)
                residual = (residual + g).astype(F32)
                packets, sent = tensor.encode(residual, step)
                residual = (residual - sent).astype(F32)
                estimate = (estimate + sent).astype(F32)
                rows.append({"step": step, "lengths": [len(p) for p in packets]})
                blob += g.tobytes() + sent.tobytes() + b"".join(packets)
        except ref.Margin:
            continue
        return rows, blob
    raise SystemExit(f"{case['name']}: no input found that is clear of all borders")


def low_rank(case, shape, stage, rank):
    """Factors chosen here, and what they stand for."""
    random = numpy.random.default_rng([len(case["name"]), rank])
    if stage == "tucker":
        ranks = [min(rank, d, case["n"] // d) for d in shape]
        us = [random.standard_normal((r, d)).astype(F32) for r, d in zip(ranks, shape)]
        core = random.standard_normal(ranks).astype(F32)
        factors, out = [us[0], core] + us[1:], core.astype(numpy.float64)
        for mode, u in enumerate(us):
            out = numpy.moveaxis(numpy.tensordot(u.T.astype(numpy.float64), out, axes=(1, mode)), 0, mode)
        case["tolerance"] = 1e-4
    else:
        rows, cols = shape[0], case["n"] // shape[0]
        p = random.standard_normal((rank, rows)).astype(F32)
        q = random.standard_normal((rank, cols)).astype(F32)
        factors, out = [p, q], (p[0][:, None] * q[0][None, :]).astype(F32)
        for a in range(1, rank):
            out = (out + (p[a][:, None] * q[a][None, :]).astype(F32)).astype(F32)
    packet = b"".join(f.tobytes() for f in factors)
    zeros = numpy.zeros(case["n"], F32)
    return [{"step": 0, "lengths": [len(packet)]}], zeros.tobytes() + out.astype(F32).tobytes() + packet


def replacing(case, steps):
    """`exact`: values of which some change their bits in each step, zeros' signs and NaNs' payloads among them."""
    random = numpy.random.default_rng([len(case["name"]), case["n"]])
    tensor, n = Tensor(case), case["n"]
    held, rows, blob = numpy.zeros(n, numpy.uint32), [], b""
    for step in steps:
        new, share = held.copy(), [1, 0.03, 0, 0.002, 0.8][step]
        at = random.random(n) < share
        new[at] = random.standard_normal(n).astype(F32).view(numpy.uint32)[at]
        if step == 3:
            new[[5, 6, n - 1]] = [0x80000000, 0x7FC12345, 0xFF800000]  # -0, a NaN, -infinity
        packets = []
        for first, end in tensor.slices():
            index = [i for i in range(end - first) if held[first + i] != new[first + i]]
            values = new[first:end][index].tobytes()
            number, indices = ref.pack_indices(tensor.index, index, end - first) if index else (0, b"")
            packet = bytes([number]) + ref.varint(2 * len(index)) + values + indices if index else b""
            whole = b"\x10" + new[first:end].tobytes()
            packets.append(tensor.wrap(packet if len(packet) < len(whole) else whole))
        rows.append({"step": step, "lengths": [len(p) for p in packets]})
        blob += new.tobytes() + new.tobytes() + b"".join(packets)
        held = new
    return rows, blob


def case_list():
    """name, pipeline, input, n, elements of a slice, steps, more."""
    one = [0]
    for quantiser in ["fp16", "bf16", "int8", "int4", "linear:1", "linear:3", "linear:8", "log:2", "log:5", "log:8", "sign",
                      "qsgd:2", "qsgd:4", "qsgd:8", "natural", "ternary"]:
        yield "dense " + quantiser, quantiser, "tail", 1500, 1500, one, {}
        yield "sliced " + quantiser, quantiser, "normal", 700, 333, [5], {}
    yield "fp16 huge", "fp16", "huge", 500, 500, one, {}
    yield "bf16 wide", "bf16", "wide", 500, 500, one, {}
    yield "fp16 ties", "fp16", "odd 4096", 300, 300, one, {}
    yield "bf16 ties", "bf16", "odd 512", 300, 300, one, {}
    yield "natural wide", "natural", "wide", 2500, 2500, [9], {"unbiased": True}
    yield "int8 halves", "int8", "halves", 600, 600, one, {"exact": True}
    yield "int8 blocks", "int8", "normal", 16700, 16700, one, {}
    yield "int8 tensor", "int8:tensor", "tail", 800, 300, one, {}
    yield "int4 zeros", "int4", "zeros", 33, 33, one, {}
    yield "linear equal", "linear:4", "equal", 65, 65, one, {}
    yield "linear negative", "linear:5", "negative", 400, 400, one, {}
    yield "sign sparse", "sign", "sparse", 900, 900, one, {}
    yield "qsgd unbiased", "qsgd:3", "tail", 1300, 700, [2], {"unbiased": True}
    yield "ternary unbiased", "ternary", "normal", 900, 500, [3], {"unbiased": True}
    yield "qsgd of worker 5", "qsgd:4", "normal", 600, 600, [11], {"worker": 5, "tensor": 9, "seed": 2 ** 63 + 11}
    yield "ternary of a server", "ternary", "normal", 600, 600, [12], {"worker": 2 ** 32 - 1, "direction": 1, "tensor": 2}

    for pack in list(ref.INDEX_PACKS) + ["best"]:
        yield f"topk {pack}", f"topk:0.1 | {pack}", "clusters", 2000, 900, one, {}
        yield f"topk few {pack}", f"topk:0.002 | fp32 | {pack}", "tail", 4000, 1500, one, {}
        yield f"topk all {pack}", f"topk:1 | int8 | {pack}", "normal", 150, 100, one, {}
    yield "topk far raw16", "topk:0.00003 | raw16", "ends", 66000, 66000, one, {}
    yield "topk ties", "topk:0.2 | rice", "steps", 1000, 300, [4], {}
    yield "topk int8", "topk:0.05 | int8 | rice", "tail", 2000, 2000, one, {}
    yield "topk int4 tensor", "topk:0.05 | int4:tensor | rice", "tail", 2000, 777, one, {}
    yield "topk linear", "topk:0.05 | linear:6 | varint", "tail", 2000, 2000, one, {}
    yield "topk log", "topk:0.05 | log:6 | best", "tail", 2000, 2000, one, {}
    yield "topk qsgd", "topk:0.5 | qsgd:4 | rice", "normal", 1500, 800, [6], {}
    yield "topk natural", "topk:0.1 | natural | rice", "tail", 2000, 800, [6], {}
    yield "topk ternary", "topk:0.1 | ternary | rice", "tail", 2000, 800, [6], {}
    yield "topk sign", "topk:0.1 | sign | rice", "tail", 2000, 800, one, {}
    yield "topk wide scale", "topk:0.9 | int8 | bitmap", "normal", 5000, 5000, one, {}
    yield "topk alone", "topk:0.001 | int8 | varint", "normal", 900, 900, one, {}
    yield "blocktopk", "blocktopk:0.05:64 | best", "clusters", 1500, 400, one, {}
    yield "blocktopk ties", "blocktopk:0.3:50 | int8 | rice", "steps", 730, 730, [2], {}
    yield "threshold", "threshold:1.5 | rice", "normal", 1500, 400, one, {}
    yield "threshold none", "threshold:100 | rice", "normal", 200, 90, one, {}
    yield "adaptive", "adaptive:0.05 | rice", "tail", 5000, 5000, one, {"match": "adaptive"}
    yield "adaptive few", "adaptive:0.01 | rice", "normal", 6000, 6000, one, {"match": "adaptive"}
    yield "adaptive levels", "adaptive:0.02 | rice", "two levels", 6000, 6000, one, {"match": "adaptive"}
    for selector in ["bernoulli:0.1", "magnitude:0.1", "randomk:0.1", "randomk:0.8"]:
        yield selector, selector, "tail", 1500, 400, [3], {}
        yield selector + " unbiased", selector + " | fp16", "tail", 1500, 1500, [8], {"unbiased": True}
    yield "magnitude clusters", "magnitude:0.3 | int8 | best", "clusters", 900, 900, [4], {}
    yield "randomk qsgd", "randomk:0.3 | qsgd:4", "normal", 900, 380, [4], {}

    yield "rle8", "topk:0.02 | rle8", "sparse", 1500, 700, one, {}
    yield "rle8 int8", "int8 | rle8", "sparse", 1500, 700, one, {}
    yield "rle8 stored", "fp32 | rle8", "normal", 60, 60, one, {}
    yield "huffman", "int8 | huffman", "tail", 2500, 2500, one, {"match": "decode"}
    yield "huffman few", "int4 | huffman", "sparse", 2500, 2500, one, {"match": "decode"}
    yield "huffman one", "int8 | huffman", "zeros", 400, 400, one, {"match": "decode"}
    for way in (1, 2, 4, 5):
        yield f"zstd {way}", "fp32 | zstd:3", "steps", 1001, 1001, one, {"match": "decode", "way": way}
    yield "zstd sparse", "topk:0.1 | int4 | rice | zstd:1", "clusters", 2000, 2000, one, {"match": "decode", "way": 1}
    yield "rle8 and zstd", "int4 | rle8 | zstd:1", "sparse", 3000, 3000, one, {"match": "decode", "way": 1}

    yield "delta", "delta:4 | int8", "tail", 500, 300, [0, 1, 2, 3, 4, 5, 7], {}
    yield "delta linear", "delta:100 | linear:6", "normal", 400, 400, [3, 4, 6], {}
    yield "error feedback int8", "topk:0.05 | int8 | rice", "tail", 800, 500, [0, 1, 2, 3], {}
    yield "error feedback ternary", "ternary", "tail", 500, 500, [0, 1, 2], {}
    yield "decayed", "topk:0.05 | int8 | rice", "tail", 800, 800, [0, 1, 2, 3], {"decay": 0.75}
    yield "decayed sign", "sign", "normal", 300, 300, [0, 1, 2], {"decay": 0.9}
    yield "ef21", "topk:0.1 | rice", "tail", 800, 500, [0, 1, 2, 3], {"ef21": True}
    yield "ef21 int8", "int8", "tail", 400, 400, [0, 1, 2, 3], {"ef21": True}


def main():
    os.makedirs(OUT, exist_ok=True)
    for old in os.listdir(OUT):
        os.remove(os.path.join(OUT, old))
    manifest = []
    for name, pipeline, kind, n, slice_elems, steps, more in case_list():
        case = {**DEFAULTS, "name": name, "pipeline": pipeline, "n": n, "slice": slice_elems, **more}
        rows, blob = run(case, kind, steps)
        save(manifest, case, rows, blob)
    for stage, rank, shape in [("powersgd", 1, [12, 20]), ("powersgd", 3, [7, 5, 3]), ("svd", 2, [30, 9]),
                               ("tucker", 2, [5, 6, 7]), ("tucker", 3, [4, 2, 6, 5])]:
        case = {**DEFAULTS, "name": f"{stage} {rank} of {len(shape)}", "pipeline": f"{stage}:{rank}", "match": "packet",
                "n": math.prod(shape), "slice": math.prod(shape), "shape": shape}
        save(manifest, case, *low_rank(case, shape, stage, rank))
    for pipeline in ("exact | raw32", "exact | rice", "exact | bitmap", "exact", "exact | varint | rle8"):
        case = {**DEFAULTS, "name": pipeline.replace(" |", ""), "pipeline": pipeline, "match": "replace", "n": 1300, "slice": 500,
                "direction": 1, "worker": 2 ** 32 - 1}
        save(manifest, case, *replacing(case, range(5)))
    with open(os.path.join(OUT, "manifest.json"), "w", encoding="utf-8") as file:
        file.write("{\"cases\": [\n" + ",\n".join(json.dumps(c) for c in manifest) + "\n]}\n")
    print(f"{len(manifest)} cases")
    return 0


def save(manifest, case, rows, blob):
    case["file"] = case["name"].replace(" ", "-").replace(":", "-") + ".bin"
    with open(os.path.join(OUT, case["file"]), "wb") as file:
        file.write(blob)
    manifest.append({**case, "seed": str(case["seed"]), "steps": rows})


if __name__ == "__main__":
    sys.exit(main())
