"""G. The command line, rule files, plan files. The model is right: an MLP of two layers of hidden size 8."""
import json

import models as m
from case import Row
from models import model, node, tensor, value


def mlp(d):
    """Gemm fc1 (4 -> 8), Relu act, Gemm fc2 (8 -> 6) on a batch of 5."""
    weights = [tensor("w1", [4, 8], [0.1] * 32), tensor("b1", [8], [0] * 8), tensor("w2", [8, 6], [0.1] * 48)]
    made = model([node("Gemm", "x w1 b1", "h", name="fc1"), node("Relu", "h", "a", name="act"),
                  node("MatMul", "a w2", "y", name="fc2")], [value("x", (5, 4))], [value("y", (5, 6))], weights)
    (d / "m.onnx").write_bytes(made.SerializeToString())


def rules(text):
    def make(d):
        mlp(d)
        (d / "p.rules").write_bytes(text if isinstance(text, bytes) else text.encode())
    return make


def by_rules(id, text, exit, message, place=r"p\.rules:\d+:\d+", **how):
    return Row(f"G08 rules {id}", rules(text), exit, message, ["--pas", "manual:p.rules"], place=place, **how)


CUT = {"tensor": "w1", "dim": 1, "ways": 2, "axis": "tensor"}
MESH = [{"axis": "tensor", "size": 2}]


def nodes(**changes):
    """Entries of the model's nodes; of those in `changes` other keys."""
    made = [{"name": "fc1", "op": "MatMul", "partition": [CUT]}, {"name": "fc1", "op": "Add", "partition": "replicate"},
            {"name": "act", "op": "Relu", "partition": "replicate"}, {"name": "fc2", "op": "MatMul", "partition": "replicate"}]
    made[0].update(changes)
    return made


def plan(content):
    def make(d):
        mlp(d)
        text = content if isinstance(content, (bytes, str)) else json.dumps({"format": 1, "mesh": MESH, **content})
        (d / "p.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    return make


def by_plan(id, content, exit, message, place=r"'?p\.json", **how):
    return Row(f"G08 plan {id}", plan(content), exit, message, ["--load-plan", "p.json"], place=place, **how)


def cut(**changes):
    return {"nodes": nodes(partition=[{**CUT, **changes}])}


def usage(id, code, *args, text="", **how):
    return Row(id, mlp, how.pop("exit", 2), rf"E0{code}\]{text}", list(args), place=None, **how)


def verb(id, exit, text, *words):
    return Row(id, mlp, exit, text, verb=list(words), place=None)


def response(id, content, text=r"E0206\]", place=r"a\.args:\d+:\d+", errors=1):
    def make(d):
        mlp(d)
        (d / "a.args").write_bytes(content)
    return Row(f"G13 {id}", make, 2, text, ["@a.args"], place=place, errors=errors)


def reading(name, exit, text, content=None):
    """--bind of a file."""
    def make(d):
        made = m.one("Reshape", "x s", ((2, 6), (2,)))
        made.graph.input[1].type.tensor_type.elem_type = m.INT64
        (d / "m.onnx").write_bytes(made.SerializeToString())
        if content is not None:
            (d / name).write_bytes(content)
    return Row(f"G10 {name}", make, exit, text, ["--bind", f"s={name}"], place=None)


HEADER = b"\x93NUMPY\x01\x00\x46\x00"
SHAPE = b"{'descr': '<i8', 'fortran_order': False, 'shape': (%s), }"


def npy(shape, data, header=SHAPE):
    return HEADER + (header % shape if b"%" in header else header).ljust(69) + b"\n" + data


ROWS = [
    verb("G01", 2, r"E0200\]"),
    verb("G01 verb", 2, r"E0200\].*(.|\n)*did you mean 'compile'", "compil", "m.onnx"),
    usage("G01 flag", 200, "--frobnicate", text=": unknown option"),
    usage("G01 twice", 200, "--no-build", text=".* twice"),
    verb("G01 value", 2, r"E0200\].*needs a value", "compile", "m.onnx", "--pas"),
    verb("G01 model", 2, r"E0200\]", "compile"),
    usage("G02", 202, "--pas", "foo", text=": unknown policy 'foo' \\(dp tp pp data hybrid fsdp autodist manual\\)"),
    *[usage(f"G03 {n}", 204, "--plan-ngpus", n) for n in ("0", "-1", "4000000000", "8x", "", "1e1", "0x2")],
    usage("G03 multiple", 204, "--plan-ngpus", "7", "--runtime-ngpus", "4"),
    usage("G03 mesh", 204, "--pas", "hybrid:tensor=2,data=2", "--plan-ngpus", "3"),
    *[usage(f"G02 {k}", r"20\d", "--pas", k) for k in ("tp:", "tp:tensor", "tp:tensor=0", "tp:tensor=x", "tp:data=2",
                                                  "hybrid:tensor=2,tensor=2", "hybrid:tensor=5000", "dp:x=1")],
    by_rules("ways", 'mesh tensor=9\nmatch "fc1" split in1.1\n', 5, r"E0420\].*dimension 1 of 'in1'(.|\n)*fc1", place=".*fc1"),
    by_rules("whole", 'mesh tensor=2\nmatch "fc1" split in0.7\n', 3, r"E0424\]", place=r"p\.rules:2"),
    by_rules("node", 'match "nothing" replicate\n', 3, r"E0424\].*no node matches 'nothing'", place=r"p\.rules:1"),
    by_rules("axis", 'mesh tensor=2\nmatch "fc1" split in1.1 axis=data\n', 3, r"E0424\]", place=r"p\.rules:2"),
    by_rules("stage", 'mesh pipeline=2\nmatch "fc2" stage 2\n', 3, r"E0424\]", place=r"p\.rules:2"),
    by_rules("mesh", "mesh tensor=2\nmesh data=2\n", 3, r"E0424\]"),
    by_rules("mesh size", "mesh tensor=5000\n", 3, r"E0424\]"),
    by_rules("mesh twice", "mesh tensor=2 tensor=2\n", 3, r"E0424\]"),
    by_rules("mesh none", "mesh\n", 3, r"E0424\]"),
    by_rules("mesh many", "mesh a=1 b=1 c=1 d=1 e=1\n", 3, r"E0424\]"),
    by_rules("quotes", 'match "fc1 replicate\n', 3, r"E0424\].*quotes"),
    by_rules("word", 'mach "fc1" replicate\n', 3, r"E0424\]"),
    by_rules("action", 'match "fc1" frobnicate\n', 3, r"E0424\]"),
    by_rules("rest", 'match "fc1" replicate now\n', 3, r"E0424\]"),
    by_rules("number", 'match "fc1" split in1.99999999999\n', 3, r"E0424\]"),
    by_rules("stride", 'match "fc1" split in1.1 stride=0\n', 3, r"E0424\]"),
    by_rules("stride wraps", 'mesh tensor=2\nmatch "fc1" split in1.1 stride=999999999\n', 5, r"E0420\]", place=".*fc1"),
    by_rules("nul", b'match "fc1" replicate\n\0', 3, r"E0424\].*no text"),
    by_rules("escapes", b'match "\x1b]0;title\x07" replicate\n', 3, r"E0424\]", place=r"p\.rules:1"),
    by_rules("many", 'bad\n' * 1000, 3, r"E0424\]", errors=20),
    by_rules("long", '#' * 5000000 + '\nmatch "fc1" bad\n', 3, r"E0424\]", place=r"p\.rules:2:"),
    by_rules("glob", 'match "' + "*a" * 2000 + '" replicate\n', 3, r"E0424\]", place=r"p\.rules:1"),
    by_rules("crlf", 'mesh tensor=2\r\nmatch "fc1" split in1.1\r\n', 0, ""),
    by_rules("empty", "", 0, ""),
    Row("G08 rules missing", mlp, 6, r"E0601\]", ["--pas", "manual:none.rules"], place=None),
    Row("G08 rules directory", mlp, 6, r"E0601\]", ["--pas", "manual:out"], place=None),
    by_plan("right", {"nodes": nodes()}, 0, ""),
    by_plan("unknown", {"nodes": nodes(name="fc9")}, 3, r"E0424\].*no node 'fc9'", place=r"p\.json:1:\d+"),
    by_plan("unassigned", {"nodes": nodes()[:3]}, 3, r"E0424\]", place=r"p\.json:\d+:\d+"),
    by_plan("twice", {"nodes": nodes() + nodes()[:1]}, 3, r"E0424\]", place=r"p\.json:\d+:\d+"),
    by_plan("dim", cut(dim=2), 3, r"E0424\]", place=r"p\.json:\d+:\d+"),
    by_plan("dim negative", cut(dim=-1), 3, r"E0424\]"),
    by_plan("dim least", cut(dim=-(1 << 63)), 3, r"E0424\]"),
    by_plan("tensor", cut(tensor="w9"), 3, r"E0424\]"),
    by_plan("axis", cut(axis="data"), 3, r"E0424\]"),
    by_plan("ways", cut(ways=3), 3, r"E0424\]"),
    by_plan("blocks", cut(blocks=0), 3, r"E0424\]"),
    by_plan("blocks huge", cut(blocks=(1 << 63) - 1, unit=(1 << 63) - 1), 5, r"E0420\]", place=".*fc1"),
    by_plan("unit", cut(unit=3), 5, r"E0420\]", place=".*fc1"),
    by_plan("few", {"mesh": [{"axis": "tensor", "size": 16}], **cut(ways=16)}, 5, r"E0420\].*dimension 1 of 'w1'", place=".*fc1"),
    by_plan("partition", {"nodes": nodes(partition="cut")}, 3, r"E0424\]"),
    by_plan("stage", {"nodes": nodes(stage=1)}, 3, r"E0424\]"),
    by_plan("stage text", {"nodes": nodes(stage="x")}, 3, r"E0424\]"),
    by_plan("no nodes", {}, 3, r"E0424\]"),
    by_plan("list", "[]", 3, r"E0424\]"),
    by_plan("format", {"format": 99, "nodes": nodes()}, 3, r"E0424\]"),
    by_plan("mesh", {"mesh": [{"axis": "tensor", "size": 0}], "nodes": nodes()}, 3, r"E0424\]"),
    by_plan("mesh huge", {"mesh": [{"axis": "tensor", "size": 1 << 62}], "nodes": nodes()}, 3, r"E0424\]"),
    by_plan("mesh missing", '{"format": 1, "nodes": []}', 3, r"E0424\]"),
    by_plan("syntax", '{"format": 1,\n  "mesh": [}', 3, r"E0424\].*line 2, column 12"),
    by_plan("empty", "", 3, r"E0424\]"),
    by_plan("duplicate", '{"format": 1, "format": 1}', 3, r"E0424\]"),
    by_plan("number", '{"format": 99999999999999999999999}', 3, r"E0424\]"),
    by_plan("nan", '{"format": NaN}', 3, r"E0424\]"),
    by_plan("deep", "[" * 100000, 3, r"E0424\]"),
    by_plan("utf8", b'{"\xff": 1}', 3, r"E0424\]"),
    by_plan("escapes", {"nodes": nodes(name="\x1b]0;title\x07")}, 3, r"E0424\]"),
    by_plan("long", {"nodes": nodes(name="x" * 1000000)}, 3, r"E0424\]"),
    Row("G08 plan missing", mlp, 6, r"E0601\]", ["--load-plan", "none.json"], place=None),
    usage("G08 both", 200, "--load-plan", "p.json", "--pas", "tp"),
    Row("G05 stages", mlp, 5, r"E0421\]|E0420\]", ["--pas", "pp:pipeline=64"], errors=None, place=None),
    Row("G05 batch", mlp, (0, 5), r"E042\d\]", ["--pas", "data:data=6"], place=None),
    Row("G04 policy", mlp, 0, args=["--pas", "tp:tensor=7"]),
    response("quote", b"--pas 'tp\n"),
    response("nul", b"--pas\0tp"),
    response("backslash", b"--pas \\"),
    response("nested", b"@a.args", place="a.args"),
    response("bom", b"\xef\xbb\xbf--pas tp", text=r"E0200\]", place=None, errors=2),
    response("large", b"x" * (100 << 20), text=r"E0\d\d\d\]", place=None),
    response("unknown", b"--pas\r\nfoo", text=r"E0202\]", place=None),
    reading("none.npy", 6, r"E0601\]"),
    reading("empty.npy", 3, r"E0915\]", b""),
    reading("text.npy", 3, r"E0915\]", b"no array\n" * 20),
    reading("short.npy", 3, r"E0915\]", npy(b"2,", bytes(8))),
    reading("huge.npy", 3, r"E0915\]", npy(b"4611686018427387904, 4", bytes(16))),
    reading("negative.npy", 3, r"E0915\]", npy(b"-2,", bytes(16))),
    reading("object.npy", 3, r"E0915\]", npy(b"", bytes(16), b"{'descr': '|O', 'fortran_order': False, 'shape': (2,), }")),
    reading("code.npy", 3, r"E0915\]", npy(b"", bytes(16), b"__import__('os').system('touch pwn')")),
    reading("other.pb", 3, r"E0915\]", b"\x08\x02\x10\xff"),
    reading("wrong.npy", 3, r"E0915\]|E0342\]", npy(b"3,", bytes(24))),
]
