# SPDX-License-Identifier: Apache-2.0
"""An independent reader of safetensors files, from the format's public description: 8 bytes little-endian length of a
JSON header, the header, then the data; offsets are relative to the data's begin and must cover it without holes."""
import json
import math
import struct

BYTES = {"F32": 4, "BF16": 2, "U64": 8}


def read_safetensors(path):
    with open(path, "rb") as file:
        raw = file.read()
    (length,) = struct.unpack("<Q", raw[:8])
    assert 2 <= length <= 100_000_000 and 8 + length <= len(raw), f"{path}: header length {length}"
    header = json.loads(raw[8:8 + length])
    data = raw[8 + length:]
    tensors, spans = {}, []
    assert (8 + length) % 8 == 0, f"{path}: the data is not aligned"
    for name, entry in header.items():
        if name == "__metadata__":
            assert all(isinstance(v, str) for v in entry.values()), f"{path}: metadata must be strings"
            continue
        begin, end = entry["data_offsets"]
        elements = math.prod(entry["shape"])
        assert end - begin == BYTES[entry["dtype"]] * elements, f"{path}: {name}: {entry}"
        assert begin % BYTES[entry["dtype"]] == 0, f"{path}: {name} is not aligned"
        spans.append((begin, end))
        tensors[name] = {"shape": entry["shape"], "dtype": entry["dtype"], "elements": elements, "bytes": data[begin:end]}
    at = 0
    for begin, end in sorted(spans):
        assert begin == at, f"{path}: a hole or an overlap at {at}"
        at = end
    assert at == len(data), f"{path}: {len(data) - at} bytes behind the last tensor"
    return tensors


def read_metadata(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length)).get("__metadata__", {})
