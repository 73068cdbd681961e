"""ONNX multi-device annotations: compile --onnx-out writes a plan to a model, --pas annotated reads it.

Messages are read and written here by their wire format (onnx.proto, IR version 11), since the installed onnx may be
older; where it is not, its checker must accept what was written."""
import json
import shutil
import struct
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from rankc_test import call, rankc_of  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
GPT2 = ROOT / "samples/models/gpt2.onnx"
TRAINED = ROOT / "tests/training/gpt2/model.onnx"
NAME = b"rankc"


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def message(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def take_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, value, all bytes) of each field."""
    at = 0
    while at < len(data):
        start = at
        tag, at = take_varint(data, at)
        if tag & 7 == 0:
            value, at = take_varint(data, at)
        else:
            length, at = {1: (8, at), 5: (4, at)}.get(tag & 7) or take_varint(data, at)
            value, at = data[at:at + length], at + length
        yield tag >> 3, value, data[start:at]


def without_annotations(data, version):
    """The model without messages of configuration NAME, with that ir_version."""
    def node(value):
        return b"".join(whole for f, v, whole in fields(value) if f not in (9, 10) or next(fields(v))[1] != NAME)

    def graph(value):
        return b"".join(message(1, node(v)) if f == 1 else whole for f, v, whole in fields(value))

    out = b""
    for f, v, whole in fields(data):
        if f == 26 and next(fields(v))[1] == NAME:
            continue
        out += number(1, version) if f == 1 else message(7, graph(v)) if f == 7 else whole
    return out


def spec(tensor, dims=(), devices=(), groups=()):
    """ShardingSpecProto; a dim is (axis, [(dim_value or None, num_shards)]), a group (key, devices)."""
    out = message(1, tensor) + b"".join(number(2, d) for d in devices)
    for key, group in groups:
        out += message(3, number(1, key) + b"".join(number(2, d) for d in group))
    for axis, simple in dims:
        parts = b"".join(message(2, (number(1, n) if n else message(2, "N")) + number(3, shards)) for n, shards in simple)
        out += message(4, number(1, axis) + parts)
    return out


def node(name, inputs, output, specs=(), stage=None, config="c"):
    out = b"".join(message(1, i) for i in inputs) + message(2, output) + message(3, name) + message(4, "MatMul")
    if specs or stage is not None:
        inner = message(1, config) + b"".join(message(2, s) for s in specs)
        out += message(10, inner + (number(3, stage) if stage is not None else b""))
    return out


def value(name, *dims):
    shape = b"".join(message(1, number(1, d)) for d in dims)
    return message(1, name) + message(2, message(1, number(1, 1) + message(2, shape)))


def weight(name):
    return number(1, 8) + number(1, 8) + number(2, 1) + message(8, name) + message(9, struct.pack("<64f", *[.5] * 64))


def model(nodes, configurations=(("c", 2, ()),)):
    graph = b"".join(message(1, n) for n in nodes) + message(2, "g") + message(5, weight("a")) + message(5, weight("b"))
    graph += message(11, value("x", 4, 8)) + message(12, value("y", 4, 8))
    out = number(1, 11) + message(7, graph) + message(8, message(1, "") + number(2, 17))
    for name, devices, names in configurations:
        out += message(26, message(1, name) + number(2, devices) + b"".join(message(3, n) for n in names))
    return out


def mlp(first=(), second=(), stages=(None, None), **kinds):
    return model([node("up", ["x", "a"], "h", first, stages[0]), node("down", ["h", "b"], "y", second, stages[1])], **kinds)


class Test:
    def __init__(self, rankc, directory):
        self.rankc, self.directory = rankc, Path(directory)

    def call(self, *words, status=0):
        return call(self.rankc, *words, status=status, cwd=self.directory)

    def plan(self, path, *words):
        """The plan, without the policy's name."""
        saved = self.directory / "plan.json"
        self.call("plan", path, *words, "--save-plan", saved, "-q")
        plan = json.loads(saved.read_text())
        del plan["pas"]
        return plan

    def round_trip(self, path, pas, *words):
        out = self.directory / "annotated.onnx"
        plan = self.plan(path, "--pas", pas, *words, "--onnx-out", out)
        assert self.plan(out, "--pas", "annotated", *words) == plan, (path, pas, words)
        data = path.read_bytes()
        version = next(v for f, v, _ in fields(data) if f == 1)
        assert without_annotations(out.read_bytes(), version) == data, "other bytes have changed"
        return out

    def partitions(self, data, pas="annotated"):
        path = self.directory / "made.onnx"
        path.write_bytes(data)
        plan = self.plan(path, "--pas", pas)
        splits = {n["name"]: n["partition"] for n in plan["nodes"]}
        return plan, {k: v if v == "replicate" else [(s["tensor"], s["dim"], s["axis"]) for s in v]
                      for k, v in splits.items()}

    def refused(self, data, code, status, *texts):
        path = self.directory / "made.onnx"
        path.write_bytes(data)
        done = self.call("plan", path, "--pas", "annotated", status=status)
        assert f"error[E0{code}]" in done.stderr, done.stderr
        for text in texts:
            assert text in done.stderr, (text, done.stderr)


def check_written(test):
    for pas in ["tp:tensor=3", "pp:pipeline=2", "hybrid:tensor=2,pipeline=2", "hybrid:data=2,tensor=2,pipeline=2", "hybrid:tensor=2@1,pipeline=2",
                "context:context=2"]:
        test.round_trip(GPT2, pas)
    test.round_trip(TRAINED, "hybrid:tensor=2,pipeline=2", "--train", "--accumulate", "4")
    test.round_trip(TRAINED, "hybrid:tensor=2,data=2", "--train", "--recompute", "full")
    out = test.round_trip(GPT2, "tp:tensor=2")
    again = test.directory / "again.onnx"
    test.plan(out, "--pas", "annotated", "--onnx-out", again)
    assert again.read_bytes() == out.read_bytes(), "its own configuration is replaced"
    check_newest(out)


def check_newest(path):
    try:
        import onnx
    except ImportError:
        return print("the checker of onnx is not installed")
    if onnx.IR_VERSION < 11:
        return print("the checker of onnx", onnx.__version__, "is older than annotations")
    onnx.checker.check_model(str(path), full_check=True)


def notes_of(path):
    """The annotation of each node in words, which viewers of models show as metadata."""
    graph = next(v for f, v, _ in fields(path.read_bytes()) if f == 7)
    found = {}
    for f, v, _ in fields(graph):
        if f == 1:
            entries = [dict((k, text.decode()) for k, text, _ in fields(entry)) for g, entry, _ in fields(v) if g == 9]
            found[next(name for g, name, _ in fields(v) if g == 3).decode()] = [e[2] for e in entries if e[1] == NAME.decode()]
    return found


def check_notes(test):
    """A linear layer that makes features is split by columns of its weight, the one behind it by rows (Megatron-LM)."""
    notes = notes_of(test.round_trip(GPT2, "hybrid:tensor=2,pipeline=2"))
    assert all(len(n) == 1 for n in notes.values()), notes
    for layer, stage in (0, 0), (1, 1):
        up, down = (notes[f"/transformer/h.{layer}/mlp/{name}/Gemm"][0] for name in ("c_fc", "c_proj"))
        assert "input 1 split in dimension 1 along tensor (2)" in up and up.endswith(f"; pipeline stage {stage}"), up
        assert "input 1 split in dimension 0 along tensor (2)" in down and down.endswith(f"; pipeline stage {stage}"), down
    assert notes["/transformer/h.0/ln_1/LayerNormalization"] == ["whole on every device; pipeline stage 0"], notes


def check_results(test):
    """A compile writes the model too, also when it reuses an earlier result; weights in other files are copied."""
    out, result = test.directory / "written/model.onnx", test.directory / "out"
    out.parent.mkdir()
    words = ["compile", TRAINED, "--pas", "tp:tensor=2", "-o", result, "--no-build", "--onnx-out", out]
    test.call(*words)
    first = out.read_bytes()
    out.unlink()
    test.call(*words)
    assert out.read_bytes() == first
    stored = ROOT / "tests/training/exports/lstm_default"
    shutil.copytree(stored, test.directory / "stored")
    words = ["plan", "stored/model.onnx", "--pas", "tp:tensor=2", "--onnx-out"]
    done = test.call(*words, "written/other.onnx")
    assert "are copied to" in done.stderr, done.stderr
    assert (out.parent / "model.onnx.data").read_bytes() == (stored / "model.onnx.data").read_bytes()
    done = test.call(*words, "stored/other.onnx")
    assert "copied" not in done.stderr, done.stderr
    (out.parent / "model.onnx.data").write_bytes(b"another's")
    for path, text in [("written/other.onnx", "exists, and is not the model's"), ("stored/model.onnx", "is the model itself")]:
        done = test.call(*words, path, status=2)
        assert "E0201" in done.stderr and text in done.stderr, done.stderr
    assert (out.parent / "model.onnx.data").read_bytes() == b"another's"
    done = test.call("plan", GPT2, "--onnx-out", "missing/x.onnx", status=6)
    assert "E0611" in done.stderr, done.stderr


def check_read(test):
    """Annotations as others may write them."""
    columns, rows = (1, [(8, 2)]), (0, [(8, 2)])
    megatron = {"up": [("a", 1, "tensor")], "down": [("h", 1, "tensor")]}
    for a, b in [(spec("a", [columns], [0, 1]), spec("b", [rows], [0, 1])), # as ONNX's documents have it
                 (spec("a", [(-1, [(None, 2)])]), spec("h", [(-1, [(None, 2)])])), # no devices, counted from the last axis
                 (spec("h", [columns], [0, 1]), spec("b", [(-2, [(8, 2)])], [-5, 0x7fff], [(-5, [0]), (0x7fff, [1])]))]:
        plan, found = test.partitions(mlp([a], [b]))
        assert plan["mesh"] == [{"axis": "tensor", "size": 2}] and found == megatron, found
    plan, found = test.partitions(mlp([spec("a", [(1, [(2, 1), (2, 2), (2, 1)])], [0, 1])]))
    split = plan["nodes"][0]["partition"][0]
    assert (split["blocks"], split["unit"]) == (2, 2), split
    plan, found = test.partitions(mlp(stages=(0, 1), configurations=[("c", 4, ())]))
    assert plan["mesh"] == [{"axis": "tensor", "size": 2}, {"axis": "pipeline", "size": 2}]
    assert [n["stage"] for n in plan["nodes"]] == [0, 1]
    grid = [f"tensor={d % 2},data={d // 2}" for d in range(4)]
    both = spec("x", [(0, [(4, 2)])], [-1, -2], [(-1, [0, 1]), (-2, [3, 2])])
    both = both, spec("a", [columns], [8, 9], [(8, [0, 2]), (9, [1, 3])])
    several = [("other", 3, ()), ("c", 4, grid)]
    plan, found = test.partitions(mlp(both, configurations=several), "annotated:config=c")
    assert found["up"] == [("a", 1, "tensor"), ("x", 0, "data")], found


def check_refused(test):
    columns, rows = (1, [(8, 2)]), (0, [(8, 2)])
    test.refused(GPT2.read_bytes(), 436, 8, "no multi-device annotations", "--onnx-out")
    test.refused(mlp(configurations=[("p", 2, ()), ("q", 2, ())]), 436, 8, "it has 'p'", "config=NAME")
    test.refused(mlp([spec("a", [columns]), spec("x", [(0, [(4, 2)])])]), 435, 5, "'up'", "divided in another way")
    test.refused(mlp([spec("a", [(1, [(3, 2)])])]), 435, 5, "do not make up the dimension")
    test.refused(mlp([spec("a", [(2, [(8, 2)])])]), 435, 5, "no such dimension")
    test.refused(mlp([spec("a", [columns], [1, 0])]), 435, 3, "not those of mesh axes")
    test.refused(mlp([spec("a", [columns], [0, 2])]), 435, 3, "not those of mesh axes")
    test.refused(mlp([spec("a", [(1, [(8, 3)])])]), 435, 3, "not those of mesh axes")
    test.refused(mlp([spec("a", [columns, columns])]), 435, 3, "an axis twice")
    test.refused(mlp([spec("a", [(1, [(2, 2), (4, 2)])])]), 435, 3, "several parts of one axis")
    test.refused(mlp([spec("a", [(1, [(8, 0)])])]), 435, 3, "num_shards")
    test.refused(mlp([spec("b", [rows])]), 435, 3, "no input or output")
    test.refused(mlp(configurations=[("c", 0, ())]), 435, 3, "num_devices")
    test.refused(mlp(stages=(0, 2)), 435, 3, "do not divide among")
    test.refused(mlp(stages=(0, -1)), 435, 3, "pipeline stage -1")
    test.refused(mlp([spec("a", [columns], [0, 1])], stages=(1, 0), configurations=[("c", 4, ())]), 435, 5, "coordinate 0")


def main():
    rankc = rankc_of(__doc__)
    with tempfile.TemporaryDirectory() as directory:
        test = Test(rankc, directory)
        check_notes(test)
        check_written(test)
        check_results(test)
        check_read(test)
        check_refused(test)


sys.exit(main())
