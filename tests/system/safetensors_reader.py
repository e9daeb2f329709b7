# SPDX-License-Identifier: Apache-2.0
"""An independent reader of safetensors files, from the format's public description: 8 bytes little-endian length of a
JSON header, the header, then the data; offsets are relative to the data's begin and must cover it without holes."""
import json
import math
import struct


def read_safetensors(path):
    with open(path, "rb") as file:
        raw = file.read()
    (length,) = struct.unpack("<Q", raw[:8])
    assert 2 <= length <= 100_000_000 and 8 + length <= len(raw), f"{path}: header length {length}"
    header = json.loads(raw[8:8 + length])
    data = raw[8 + length:]
    tensors, spans = {}, []
    for name, entry in header.items():
        if name == "__metadata__":
            assert all(isinstance(v, str) for v in entry.values()), f"{path}: metadata must be strings"
            continue
        begin, end = entry["data_offsets"]
        elements = math.prod(entry["shape"])
        assert entry["dtype"] == "F32" and end - begin == 4 * elements, f"{path}: {name}: {entry}"
        spans.append((begin, end))
        tensors[name] = {"shape": entry["shape"], "elements": elements, "bytes": data[begin:end]}
    at = 0
    for begin, end in sorted(spans):
        assert begin == at, f"{path}: a hole or an overlap at {at}"
        at = end
    assert at == len(data), f"{path}: {len(data) - at} bytes behind the last tensor"
    return tensors
