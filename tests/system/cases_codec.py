# SPDX-License-Identifier: Apache-2.0
"""terse codec and terse bench codec on files: what users type, and the golden vectors through it."""
import array
import json
import math
import os
import re
import subprocess

from launch import BUILD

TERSE = os.path.join(BUILD, "terse")
VECTORS = "tests/vectors"


def terse(*words, code=0):
    done = subprocess.run([TERSE, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, f"terse {' '.join(words)}: exit {done.returncode}, not {code}\n{done.stderr}"
    return done


def read(path):
    values = array.array("f")
    with open(path, "rb") as file:
        values.frombytes(file.read())
    return values


def write(path, values):
    with open(path, "wb") as file:
        array.array("f", values).tofile(file)


def content(path):
    with open(path, "rb") as file:
        return file.read()


def flat(a, b):
    """float32 of a + b."""
    return array.array("f", [a + b])[0]


def encode(folder, pipeline, source, *words, **wanted):
    packet = os.path.join(folder, "g.tp")
    terse("codec", "encode", "--pipeline", pipeline, *words, source, packet, **wanted)
    return packet


def decode(folder, packet):
    sent = os.path.join(folder, "sent.f32")
    terse("codec", "decode", packet, sent)
    return read(sent)


def stages():
    return {row["name"]: row for row in json.loads(terse("codec", "list").stdout)}


def has(pipeline):
    known = stages()
    return all(word.strip().split(":")[0] in known for word in pipeline.split("|"))


def vectors(folder, _seconds):
    """The published vectors through the command line; those of error feedback are in the next case."""
    def pipeline_of(case):
        params = case["params"]
        if case["op"] == "topk":
            return f"topk:{params['ratio']:g} | fp32"
        if case["op"] == "int":
            return f"int{params['bits']}"
        if case["op"] in ("linear", "log"):
            return f"{case['op']}:{params['bits']}"
        return "sign" if case["op"] == "sign" else None

    with open(os.path.join(VECTORS, "manifest.json"), encoding="utf-8") as file:
        cases = json.load(file)["cases"]
    ran = 0
    for case in cases:
        pipeline = pipeline_of(case)
        if pipeline is None:
            assert case["op"] == "error-feedback", case
            continue
        source = os.path.join(VECTORS, case["input"] + ".f32")
        entered, expected = read(source), read(os.path.join(VECTORS, case["expect"] + ".f32"))
        sent = decode(folder, encode(folder, pipeline, source))
        assert len(sent) == len(expected), case
        if case["op"] == "topk":  # equal magnitudes may be kept at other places
            assert sorted(map(abs, sent)) == sorted(map(abs, expected)), case
            assert all(s in (0, e) for s, e in zip(sent, entered)), case
        else:
            assert all(abs(s - e) <= case["max_abs_err"] for s, e in zip(sent, expected)), case
        ran += 1
    assert (ran, len(cases)) == (108, 110), f"{ran} vectors of {len(cases)}"


def error_feedback(folder, _seconds):
    """Five steps with a residual file give the published packets and residuals, bit for bit."""
    for name in ("gauss", "heavy"):
        residual = os.path.join(folder, name + "-residual.f32")
        for step in range(5):
            packet = encode(folder, "topk:0.01 | fp32", os.path.join(VECTORS, f"ef-{name}-g{step}.f32"), "--residual",
                            residual, "--step", str(step))
            sent, kept = decode(folder, packet), read(residual)
            assert sent == read(os.path.join(VECTORS, f"ef-{name}-topk-sent{step}.f32")), (name, step)
            assert kept == read(os.path.join(VECTORS, f"ef-{name}-topk-residual{step}.f32")), (name, step)


def conservation(folder, _seconds):
    """sent + residual is gradient + old residual for quantised values too."""
    source, residual = os.path.join(VECTORS, "heavy.f32"), os.path.join(folder, "r.f32")
    gradient = read(source)
    old = [0.0] * len(gradient)
    for step in range(3):
        packet = encode(folder, "topk:0.1 | int8 | rice", source, "--residual", residual, "--step", str(step))
        sent, kept = decode(folder, packet), read(residual)
        for g, o, s, k in zip(gradient, old, sent, kept):
            assert abs(flat(g, o) - (s + k)) <= 1e-6 * (abs(g) + abs(o) + abs(s) + abs(k)), step
        old = kept


def without_feedback(folder, _seconds):
    """Without a residual nobody sends the rest later, so stages that draw keep the expectation; with one they send values as
    they are, or damped."""
    source, residual = os.path.join(VECTORS, "gauss.f32"), os.path.join(folder, "r.f32")
    gradient = read(source)
    n = len(gradient)
    for pipeline, k in (("bernoulli:0.1", 0), ("randomk:0.1", math.ceil(n / 10)), ("magnitude:0.1", 0)):
        sent = decode(folder, encode(folder, pipeline, source))
        drawn = [i for i, value in enumerate(sent) if value]
        gain = n / k if k else 10
        if pipeline.startswith("magnitude"):  # what is drawn by chance is sent as +- 1 / a, what is certain as it is
            least = min(abs(sent[i]) for i in drawn)
            assert all(abs(sent[i]) == abs(gradient[i]) or abs(abs(sent[i]) - least) < 1e-5 * least for i in drawn), pipeline
            assert sum(abs(sent[i]) > 1.5 * abs(gradient[i]) for i in drawn) > n // 50, pipeline
        else:
            assert all(abs(sent[i] - gain * gradient[i]) <= 1e-5 * abs(sent[i]) for i in drawn), pipeline
        assert k in (0, len(drawn)) and abs(len(drawn) - n / 10) < n / 25, (pipeline, len(drawn))
        write(residual, [0.0] * n)
        kept = decode(folder, encode(folder, pipeline, source, "--residual", residual))
        assert [i for i, value in enumerate(kept) if value] == drawn, pipeline
        assert all(kept[i] == gradient[i] for i in drawn), pipeline
    norm = math.sqrt(sum(g * g for g in gradient[:512]))
    least = min(abs(s) for s in decode(folder, encode(folder, "qsgd:4", source))[:512] if s)
    assert abs(least - norm / 7) < 1e-3 * norm, (least, norm)  # a level of Alistarh et al. 2017
    write(residual, [0.0] * n)
    damped = min(abs(s) for s in decode(folder, encode(folder, "qsgd:4", source, "--residual", residual))[:512] if s)
    assert abs(damped - least / (1 + math.sqrt(512) / 7)) < 1e-3 * least, (damped, least)


STACKS = {"topk:0.01 | qsgd:4 | rice": 150, "powersgd:2 | fp16": 50, "delta:64 | linear:4 | huffman": 7,
          "topk:0.001 | int4 | rice | zstd:3": 1500}  # and how much smaller at least


def stacks(folder, _seconds):
    """Stages of all kinds one after the other, three steps with a residual: nothing is lost, and it is as small as it says."""
    source, residual = os.path.join(VECTORS, "gradients/cnn-step1-7.weight.f32"), os.path.join(folder, "r.f32")
    gradient = read(source)
    for pipeline, least in STACKS.items():
        old = [0.0] * len(gradient)
        write(residual, old)
        for step in range(3):
            packet = encode(folder, pipeline, source, "--shape", "128,1568", "--residual", residual, "--step", str(step))
            got = json.loads(terse("codec", "inspect", packet).stdout)
            assert got["pipeline"] == pipeline and got["ratio"] > least, (pipeline, got["ratio"])
            sent, kept = decode(folder, packet), read(residual)
            most = max(map(abs, gradient)) + max(map(abs, old))
            assert max(abs(g + o - s - k) for g, o, s, k in zip(gradient, old, sent, kept)) <= 1e-6 * most, (pipeline, step)
            old = kept


def lossless(folder, _seconds):
    """Every bit comes back; Zstandard takes a quarter off the bytes of four real gradients."""
    dense = {}
    packed = {}
    for name in sorted(os.listdir(os.path.join(VECTORS, "gradients"))):
        source = os.path.join(VECTORS, "gradients", name)
        if not name.endswith(".f32"):
            continue
        for pipeline in ("dense", "fp32 | zstd:1", "fp32 | zstd:9", "fp32 | huffman", "fp32 | rle8 | huffman"):
            packet = encode(folder, pipeline, source)
            assert decode(folder, packet) == read(source), (pipeline, name)
            dense[pipeline] = dense.get(pipeline, 0) + os.path.getsize(source)
            packed[pipeline] = packed.get(pipeline, 0) + json.loads(terse("codec", "inspect", packet).stdout)["bytes"]
    ratio = {pipeline: dense[pipeline] / packed[pipeline] for pipeline in dense}
    assert ratio["dense"] == 1 and min(ratio["fp32 | zstd:1"], ratio["fp32 | zstd:9"]) >= 1.25, ratio
    assert ratio["fp32 | huffman"] > 1.1 and ratio["fp32 | rle8 | huffman"] > 1.15, ratio


def exact(folder, _seconds):
    """A reference on both sides: what differs travels, zeros' signs and NaNs too, and the bits are the same then."""
    source = os.path.join(VECTORS, "gradients/cnn-step1-7.weight.f32")
    new, held, packet, out = (os.path.join(folder, name) for name in ("w.f32", "r.f32", "p.tp", "out.f32"))
    values = array.array("I")
    values.frombytes(content(source))
    for pipeline in ("exact", "exact | rice", "exact | bitmap | zstd:3"):
        with open(held, "wb") as file:
            file.write(content(source))
        changed = array.array("I", values)
        for i in range(0, len(values), 1000):
            changed[i] ^= 0x80000000 if i % 2000 else 1
        changed[7] = 0x7FC12345
        with open(new, "wb") as file:
            changed.tofile(file)
        before = content(held)
        terse("codec", "encode", "--pipeline", pipeline, "--reference", held, new, packet)
        assert content(held) == content(new), pipeline
        got = json.loads(terse("codec", "inspect", packet).stdout)
        assert got["values"] == sum(a != b for a, b in zip(values, changed)) and got["ratio"] > 300, got
        with open(held, "wb") as file:
            file.write(before)
        terse("codec", "decode", "--reference", held, packet, out)
        assert content(out) == content(new) and content(held) == before, pipeline
    terse("codec", "encode", "--pipeline", "exact", new, packet)  # nothing known: all of it
    got = json.loads(terse("codec", "inspect", packet).stdout)
    assert got["values"] == sum(bits != 0 for bits in changed) and got["bytes"] < 4 * len(values), got
    terse("codec", "decode", packet, out)
    assert content(out) == content(new)
    told = terse("codec", "encode", "--pipeline", "exact", "--residual", held, new, packet, code=2).stderr
    assert "--reference" in told, told
    told = terse("codec", "encode", "--pipeline", "int8", "--reference", held, source, packet, code=2).stderr
    assert "exact" in told, told
    terse("codec", "encode", "--pipeline", "int8", source, packet)
    told = terse("codec", "decode", "--reference", held, packet, out, code=2).stderr
    assert "exact" in told, told


def inspect(folder, _seconds):
    source = os.path.join(VECTORS, "gradients/cnn-step1-7.weight.f32")
    packet = encode(folder, "topk:0.01 | int8 | rice", source, "--shape", "128,1568", "--slice-elems", "65536", "--seed",
                    "7", "--step", "3")
    got = json.loads(terse("codec", "inspect", packet).stdout)
    assert got["pipeline"] == "topk:0.01 | int8 | rice" and got["shape"] == [128, 1568], got
    assert (got["seed"], got["step"], got["slice_elems"], got["elements"]) == (7, 3, 65536, 200704), got
    assert got["values"] == 2008 == sum(s["values"] for s in got["slices"]) and len(got["slices"]) == 4, got
    assert got["bytes"] == sum(s["bytes"] for s in got["slices"]) < got["file_bytes"] == os.path.getsize(packet), got
    assert {s["index_pack"] for s in got["slices"] if s["values"]} == {"rice"} and abs(got["ratio"] * got["bytes"] - 802816) < 1, got


def refusals(folder, _seconds):
    """NaN, wrong shapes and damaged files are refused and leave everything as it was."""
    gradient = list(read(os.path.join(VECTORS, "skew.f32")))
    source, residual = os.path.join(folder, "g.f32"), os.path.join(folder, "r.f32")
    write(source, gradient)
    packet = encode(folder, "int8", source, "--residual", residual)
    before, before_packet = content(residual), content(packet)
    gradient[123], gradient[500] = float("nan"), float("inf")
    write(source, gradient)
    told = terse("codec", "encode", "--pipeline", "int8", "--residual", residual, source, packet, code=1).stderr
    assert "2 values" in told and "123" in told, told
    assert content(residual) == before and content(packet) == before_packet
    assert sorted(os.listdir(folder)) == ["g.f32", "g.tp", "r.f32"], os.listdir(folder)
    encode(folder, "int8", source, "--nonfinite", "zero")
    assert decode(folder, packet)[123] == 0
    terse("codec", "encode", "--pipeline", "sign | topk:0.1", source, packet, code=2)
    terse("codec", "encode", "--pipeline", "int8", "--shape", "3,4", source, packet, code=2)
    terse("codec", "encode", "--pipeline", "int8", os.path.join(folder, "none.f32"), packet, code=1)
    terse("codec", "encode", "--pipeline", "int8", source, os.path.join(folder, "no/where.tp"), code=1)
    terse("codec", "nonsense", code=2)
    damaged = os.path.join(folder, "damaged.tp")
    whole = content(packet)
    for at in (0, 9, 30, len(whole) // 2, len(whole) - 1):
        with open(damaged, "wb") as file:
            file.write(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
        terse("codec", "decode", damaged, os.path.join(folder, "x.f32"), code=1)
        with open(damaged, "wb") as file:
            file.write(whole[:at])
        terse("codec", "inspect", damaged, code=1)
    assert not os.path.exists(os.path.join(folder, "x.f32"))


def same_files(folder, _seconds):
    """A file that is named twice is refused, by whatever names, and nothing is changed."""
    source, residual = os.path.join(folder, "g.f32"), os.path.join(folder, "r.f32")
    write(source, list(read(os.path.join(VECTORS, "skew.f32"))))
    packet = encode(folder, "int8", source, "--residual", residual)
    for name, made in (("soft.f32", os.symlink), ("hard.f32", os.link)):
        made(source, os.path.join(folder, name))
    os.symlink(folder, os.path.join(folder, "here"))
    before = {name: content(os.path.join(folder, name)) for name in os.listdir(folder) if name != "here"}
    new = os.path.join(folder, "new")
    encodings = [(residual, source, residual), (residual, source, os.path.join(folder, ".", "r.f32")), (source, source, new),
                 (new, source, os.path.join(folder, "here", "new")), (new, source, os.path.relpath(new))]
    encodings += [(residual, source, os.path.join(folder, other)) for other in ("g.f32", "./g.f32", "here/g.f32", "soft.f32", "hard.f32")]
    for kept, of, to in encodings:
        told = terse("codec", "encode", "--pipeline", "int8", "--residual", kept, of, to, code=2).stderr
        assert "are the same file; allowed: a file each" in told, (told, kept, of, to)
    told = terse("codec", "encode", "--pipeline", "exact", "--reference", source, source, new, code=2).stderr
    assert f"IN.f32 {source} and --reference {source} are the same file" in told, told
    terse("codec", "decode", packet, os.path.join(folder, "here/g.tp"), code=2)
    held, changes = os.path.join(folder, "held.f32"), os.path.join(folder, "changes.tp")
    terse("codec", "encode", "--pipeline", "exact", "--reference", held, source, changes)
    told = terse("codec", "decode", "--reference", held, changes, held, code=2).stderr
    assert "OUT.f32" in told and "--reference" in told, told
    assert all(content(os.path.join(folder, name)) == raw for name, raw in before.items())
    assert not os.path.exists(new)


def helps(_folder, _seconds):
    """Pages with the parts of a man page, which leave out no option that the program takes."""
    for words in (["codec"], ["bench"]):
        assert len(terse(*words, "--help").stdout) > 100, words
    for words in (["codec", "encode"], ["codec", "decode"], ["codec", "inspect"], ["codec", "list"], ["bench", "codec"]):
        page = terse(*words, "--help").stdout
        assert all(f"{part}\n" in page for part in ("NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS")), (words, page)
        assert f"terse {' '.join(words)} - " in page and max(map(len, page.splitlines())) <= 115, (words, page)
        with open(f"common/cli/cmd_{words[0]}_{words[1]}.c", encoding="utf-8") as file:
            taken = re.findall(r'\{"([a-z-]+)", (?:required|no)_argument', file.read())
        assert all(f"--{option}" in page for option in taken if option not in ("help", "version")), (words, taken)
        assert terse(*words, "--version").stdout.startswith("terse "), words
    for row in stages().values():
        assert row["kind"] and row["summary"] and row["formula"] and row["source"], row


def tables(_folder, _seconds):
    """README's sizes and the page of stages are what the programs say."""
    for tool in ("stages_table.py", "codec_sizes_table.py"):
        done = subprocess.run(["python3", f"tests/tools/{tool}", "--check"], capture_output=True, text=True, timeout=110, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def sentences(folder, _seconds):
    """What is wrong is named: option, value and range; the user's path, not the one beside it."""
    gauss, numpy = os.path.join(VECTORS, "gauss.f32"), os.path.join(folder, "g.npy")
    with open(numpy, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + bytes(120))
    for words, code, parts in (
            (["bench", "codec", "--runs", "9"], 2, ["--runs", '"9"', "10 to 1000"]),
            (["bench", "codec", "-n", "0"], 2, ["-n", '"0"', "1 to"]),
            (["bench", "codec", "--runz", "9"], 2, ["--runz"]),
            (["bench", "codec", "-x"], 2, ["-x: no such option"]),
            (["bench", "codec", "--runs"], 2, ["--runs: its value is missing"]),
            (["codec", "encode", "--step", "x", "--pipeline", "int8", gauss, "y"], 2, ["--step", '"x"', "0 to"]),
            (["codec", "encode", "--nonfinite", "x"], 2, ["--nonfinite", '"x"', "error, skip or zero"]),
            (["codec", "decode", "--limit-elems", "-1"], 2, ["--limit-elems", '"-1"']),
            (["codec", "inspect", "--foo"], 2, ["--foo"]),
            (["check", "--foo"], 2, ["--foo"]),
            (["check", ""], 2, ["path of the config is empty"]),
            (["check", "configs/linear.yaml", "--set", "servers.replicas=1", "--servers", "1"], 2, ["servers.replicas", "--servers 2"]),
            (["check", "configs/linear.yaml", "--set", f"checkpoint.dir={gauss}"], 2, ["checkpoint.dir", "not a folder"]),
            (["check", "configs/linear.yaml", "--set", f"error_feedback.keep={gauss}"], 2, ["error_feedback.keep", "not a folder"]),
            (["ckpt", "ls", f"{folder}/nowhere"], 1, [f"{folder}/nowhere: No such file"]),
            (["codec", "encode", "--pipeline", "fp32", numpy, f"{folder}/y"], 1, [f"{numpy} is a NumPy file", "tofile"]),
            (["codec", "encode", "--pipeline", "topk:1e-400", gauss, "y"], 2, ["1e-400", "5e-324"]),
            (["codec", "encode", "--pipeline", "int8", gauss, "/nowhere/x.tp"], 1, ["/nowhere/x.tp: cannot be written"])):
        told = terse(*words, code=code).stderr
        assert all(part in told for part in parts), f"{words}: {told}"


def configs_that_cannot_be_read(folder, _seconds):
    """Code 2 from every program, those of a user's own that end by what terse_open says included."""
    missing = os.path.join(folder, "no.yaml")
    for words in ([TERSE, "check"], [f"{BUILD}/terse-server"], [f"{BUILD}/terse-worker"], [f"{BUILD}/examples/linear"],
                  [f"{BUILD}/examples/quadratic"]):
        for extra in ([missing], [folder], [missing, "--set"]):
            done = subprocess.run(words + extra, capture_output=True, text=True, timeout=30, check=False)
            assert done.returncode == 2 and (extra[0] in done.stderr or "--set" in done.stderr), (words, extra, done)


def full_output(_folder, _seconds):
    """No program succeeds when what it had to say could not be written."""
    programs = [[TERSE, *words] for words in (
        ["check", "configs/linear.yaml"], ["check", "--docs"], ["--help"], ["--version"], ["codec", "list"],
        ["codec", "encode", "--help"], ["bench", "codec", "--version"])]
    programs += [[os.path.join(BUILD, name), word] for name in ("terse-server", "terse-worker")
                 for word in ("--help", "--version")]
    for words in programs:
        with open("/dev/full", "wb") as full:
            done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, check=False)
        assert done.returncode == 1 and "standard output cannot be written" in done.stderr, f"{words}: {done}"


def bench(folder, _seconds):
    keys = ("pipeline n bytes ratio relative_error encode_s decode_add_s sweep_s encode_over_sweep "
            "decode_add_over_sweep threads simd").split()
    got = json.loads(terse("bench", "codec", "--pipeline", "topk:0.01 | int8 | rice", "-n", "300000", "--json").stdout)
    assert all(key in got for key in keys), got
    assert got["n"] == 300000 and got["threads"] == 1 and got["values"] == 3000, got
    assert abs(got["ratio"] - 1200000 / got["bytes"]) < 1 and 150 < got["ratio"] < 250, got
    for what in ("encode", "decode_add"):  # the median of the runs' ratios, and the ratio of the medians
        assert got[what + "_s"] > 0 and got["sweep_s"] > 0, got
        assert 0.3 < got[what + "_over_sweep"] / (got[what + "_s"] / got["sweep_s"]) < 3, (what, got)
    assert 0 < got["relative_error"] < 1 and got["conservation_error"] < 1e-6, got
    rows = json.loads(terse("bench", "codec", "--pipeline", "fp16", "--pipeline", "dense", "--input",
                            os.path.join(VECTORS, "gradients/cnn-step300-3.weight.f32"), "--json").stdout)
    assert [row["bytes"] for row in rows] == [2 * 12800, 4 * 12800], rows
    assert rows[1]["relative_error"] == 0, rows
    large = os.path.join(folder, "large.f32")  # finite, but not four times as large
    write(large, [value * 1e37 for value in (34, -33, 1, 0)] * 100)
    done = terse("bench", "codec", "--pipeline", "int8", "--input", large, "--runs", "10", "--json")
    got = json.loads(done.stdout)
    assert got["n"] == 400 and got["relative_error"] < 0.01 and got["conservation_error"] < 1e-6, got
    assert f"{large}: holds values up to 3.4e+38: all are divided by 2^128" in done.stderr, done.stderr


def bench_families(_folder, _seconds):
    """Without a pipeline all families are printed, and none is left out: every transform, selector and quantiser."""
    rows = json.loads(terse("bench", "codec", "-n", "20000", "--runs", "10", "--json").stdout)
    used = {stage.strip().split(":")[0] for row in rows for stage in row["pipeline"].split("|")}
    listed = {stage["name"] for stage in json.loads(terse("codec", "list").stdout)
              if stage["kind"] in ("transform", "select", "quantise")}
    assert listed <= used, listed - used
    for row in rows:
        assert row["bytes"] > 0 and row["encode_s"] > 0 and row["decode_add_s"] > 0 and row["sweep_s"] > 0, row
        assert row["conservation_error"] < 1e-6, row
    table = terse("bench", "codec", "-n", "20000", "--runs", "10").stdout
    assert all(row["pipeline"] in table for row in rows), table


def bench_ladder(_folder, _seconds):
    """110 M parameters: dense, half, and what is left of that, indices included."""
    rungs = {row["pipeline"]: row for row in json.loads(terse("bench", "codec", "--ladder", "--json").stdout)}
    elems = 110_000_000
    assert rungs["fp32"]["bytes"] == 4 * elems and rungs["fp16"]["bytes"] == 2 * elems, rungs
    for share, pack in ((0.1, "topk:0.1 | fp16 | best"), (0.01, "topk:0.01 | int8 | rice"), (0.001, "topk:0.001 | int8 | rice")):
        row = rungs[pack]
        width = 2 if "fp16" in pack else 1
        entropy = -(share * math.log2(share) + (1 - share) * math.log2(1 - share)) / share / 8  # bytes an index
        assert row["n"] == elems and row["values"] == round(share * elems), row
        least, most = row["values"] * (width + entropy - 0.01), row["values"] * (width + entropy + 0.15 / 8) * 1.01
        assert least <= row["bytes"] <= most, (least, row, most)
    assert rungs["topk:0.001 | int8 | rice"]["ratio"] >= 1600, rungs


CASES = [
    ("codec-vectors", 60, vectors),
    ("codec-error-feedback", 30, error_feedback),
    ("codec-conservation", 30, conservation),
    ("codec-without-feedback", 30, without_feedback),
    ("codec-stacks", 60, stacks),
    ("codec-lossless", 60, lossless),
    ("codec-exact", 30, exact),
    ("codec-inspect", 10, inspect),
    ("codec-refusals", 30, refusals),
    ("codec-same-files", 30, same_files),
    ("codec-help", 10, helps),
    ("codec-tables", 120, tables),
    ("codec-bench", 60, bench),
    ("codec-bench-families", 60, bench_families),
    ("codec-bench-ladder", 120, bench_ladder),
    ("command-lines-say-what-is-wrong", 30, sentences),
    ("configs-that-cannot-be-read", 60, configs_that_cannot_be_read),
    ("full-output-is-an-error", 30, full_output),
]
