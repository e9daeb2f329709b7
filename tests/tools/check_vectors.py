#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/vectors/stages through `terse codec`: the .tp file byte for byte, and what decoding it gives.

Usage: check_vectors.py path/to/terse. Byte packs whose encoder is free in what it writes (huffman, zstd) are undone here,
by their description, and must give the packet that is known. zstd needs the python module or the program; without
either those cases are counted as left out.
"""
import array
import json
import os
import shutil
import subprocess
import sys
import tempfile

STAGES = "tests/vectors/stages"
ZSTD_MAGIC = bytes.fromhex("28b52ffd")


def varint(v):
    out = bytearray()
    while v >= 128:
        out.append(v & 127 | 128)
        v >>= 7
    return bytes(out) + bytes([v])


def read_varint(data, at):
    v = shift = 0
    while True:
        v |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return v, at


def undo_huffman(data, length):
    value, at = int.from_bytes(data, "little"), 0

    def take(bits):
        nonlocal at
        at += bits
        return value >> (at - bits) & ((1 << bits) - 1)

    row = []
    while len(row) < 256:
        what = take(4)
        if what <= 12:
            row.append(what)
        elif what == 13:
            row += [0] * (take(4) + 3)
        elif what == 14:
            row += [0] * (take(8) + 19)
        else:
            row += [row[-1]] * (take(4) + 3)
    assert len(row) == 256
    used = [b for b in range(256) if row[b]]
    if len(used) == 1:
        return bytes(used * length)
    code, symbols = 0, {}
    for bits in range(1, 13):
        for b in used:
            if row[b] == bits:
                symbols[bits, code] = b
                code += 1
        code <<= 1
    out = bytearray()
    while len(out) < length:
        code, bits = 0, 0
        while (bits, code) not in symbols:
            code, bits = code << 1 | take(1), bits + 1
        out.append(symbols[bits, code])
    assert (at + 7) // 8 == len(data)
    return bytes(out)


def inflate(frame):
    try:
        import zstandard
        return zstandard.ZstdDecompressor().decompressobj().decompress(ZSTD_MAGIC + frame)
    except ImportError:
        return subprocess.run(["zstd", "-dcq"], input=ZSTD_MAGIC + frame, capture_output=True, check=True).stdout


def undo_zstd(data, length):
    way, body = data[0], inflate(data[1:])
    width = 4 if way == 5 else way
    words = length // width
    lanes = [body[lane * words:(lane + 1) * words] for lane in range(width)]
    out = bytes(b for word in zip(*lanes) for b in word) + body[words * width:]
    if way != 5:
        return out
    wide = [int.from_bytes(out[i:i + 4], "little") for i in range(0, words * 4, 4)]
    return b"".join((v >> 1 | (v & 1) << 31).to_bytes(4, "little") for v in wide) + out[words * 4:]


def undo_rle8(data, length):
    out, at = bytearray(), 0
    while at < len(data):
        if data[at] < 128:
            out += data[at + 1:at + 2 + data[at]]
            at += 2 + data[at]
        else:
            out += bytes([data[at + 1]]) * (data[at] - 125)
            at += 2
    assert len(out) == length
    return bytes(out)


UNDO = {"huffman": undo_huffman, "zstd": undo_zstd, "rle8": undo_rle8}


def undo(pipeline, packet):
    """The packet before its byte packs."""
    for stage in reversed([s.strip().split(":")[0] for s in pipeline.split("|")]):
        if stage in UNDO and packet:
            said, at = read_varint(packet, 0)
            packet = UNDO[stage](packet[at:], said >> 1) if said & 1 else packet[at:]
            assert len(packet) == said >> 1
    return packet


def floats(data):
    return array.array("f", data)


class Check:
    def __init__(self, terse, folder):
        self.terse, self.folder = terse, folder

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, *words):
        done = subprocess.run([self.terse, "codec", *words], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"terse codec {' '.join(words)}: exit {done.returncode}\n{done.stderr}"

    def case(self, case):
        n, step = case["n"], case["steps"][0]
        with open(os.path.join(STAGES, case["file"]), "rb") as file:
            data = file.read()
        source, sent, packets = data[:4 * n], data[4 * n:8 * n], []
        at = 8 * n
        for length in step["lengths"]:
            packets.append(data[at:at + length])
            at += length
        with open(self.path("in.f32"), "wb") as file:
            file.write(source)
        if os.path.exists(self.path("r.f32")):
            os.remove(self.path("r.f32"))
        kept = [] if case["unbiased"] else ["--residual", self.path("r.f32")]
        self.run("encode", "--pipeline", case["pipeline"], "--slice-elems", str(case["slice"]), "--seed", case["seed"],
                 "--step", str(step["step"]), *kept, self.path("in.f32"), self.path("out.tp"))
        with open(self.path("out.tp"), "rb") as file:
            got = file.read()
        self.file(case, step, got[:-4], packets)
        self.run("decode", self.path("out.tp"), self.path("out.f32"))
        with open(self.path("out.f32"), "rb") as file:
            assert floats(file.read()) == floats(sent), f"{case['name']}: other values"

    def file(self, case, step, got, packets):
        text, at = got[9:], 0
        length, at = read_varint(text, 0)
        head = b"TERSE.TP" + varint(1) + varint(length) + text[at:at + length] + varint(1) + varint(case["n"])
        head += varint(case["slice"]) + varint(int(case["seed"])) + varint(step["step"])
        assert got.startswith(head), f"{case['name']}: another head"
        at = len(head)
        for number, packet in enumerate(packets):
            length, at = read_varint(got, at)
            found = got[at:at + length]
            at += length
            if case["match"] == "decode":
                found, packet = undo(case["pipeline"], found), undo(case["pipeline"], packet)
            assert found == packet, f"{case['name']}, slice {number}: other bytes"
        assert at == len(got), f"{case['name']}: bytes behind the last packet"


def main():
    can_inflate = shutil.which("zstd") is not None
    try:
        import zstandard  # noqa: F401
        can_inflate = True
    except ImportError:
        pass
    with open(os.path.join(STAGES, "manifest.json"), encoding="utf-8") as file:
        cases = json.load(file)["cases"]
    ran = left_out = 0
    with tempfile.TemporaryDirectory() as folder:
        check = Check(sys.argv[1], folder)
        for case in cases:
            # What a .tp file can say: one step of worker 0's tensor 0; without a residual under no error feedback.
            simple = not (case["tensor"] or case["worker"] or case["direction"] or "shape" in case)
            if not simple or case["match"] == "adaptive":
                continue
            if "zstd" in case["pipeline"] and not can_inflate:
                left_out += 1
                continue
            check.case(case)
            ran += 1
    print(f"vectors: {ran} cases through terse codec" + (f", {left_out} left out for want of zstd" if left_out else ""))
    return 0 if ran + left_out >= 119 and ran >= 113 else 1


if __name__ == "__main__":
    sys.exit(main())
