"""G. The command line, rule files, plan files. The model is right: an MLP of two layers of hidden size 8."""
import json
import re
from pathlib import Path

import models as m
from case import Row
from models import model, node, tensor, value


def mlp(d):
    """Gemm fc1 (4 -> 8), Relu act, Gemm fc2 (8 -> 6) on a batch of 5."""
    weights = [tensor("w1", [4, 8], [0.1] * 32), tensor("b1", [8], [0] * 8), tensor("w2", [8, 6], [0.1] * 48)]
    made = model([node("Gemm", "x w1 b1", "h", name="fc1"), node("Relu", "h", "a", name="act"),
                  node("MatMul", "a w2", "y", name="fc2")], [value("x", (5, 4))], [value("y", (5, 6))], weights)
    (d / "m.onnx").write_bytes(made.SerializeToString())


def gpt2(d):
    """A small transformer, as PyTorch exports it."""
    return (Path(__file__).parents[2] / "samples" / "models" / "gpt2.onnx").read_bytes()


def wide(d):
    """A product that 16,384 ranks can divide."""
    return model([node("MatMul", "x w", "y")], [value("x", (1, 8))], [value("y", (1, 32768))],
                 [m.raw("w", [8, 32768], bytes(4 * 8 * 32768))])


def learner(d):
    """Its mean square, for training."""
    weights = [tensor("w1", [4, 8], [0.1] * 32)]
    return model([node("MatMul", "x w1", "h", name="fc1"), node("Mul", "h h", "s"), node("ReduceMean", "s", "y", keepdims=0)],
                 [value("x", (5, 4))], [value("y", ())], weights)


def training(id, text, *args, exit=2, **how):
    return Row(id, learner, exit, text, ["--train", *args], place=None, **how)


def beside(name, content):
    """The model, and a file beside it: text, bytes, or what JSON is made of."""
    def make(d):
        mlp(d)
        text = content if isinstance(content, (bytes, str)) else json.dumps({"format": 1, "mesh": MESH, **content})
        (d / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return make


def by_rules(id, text, exit=3, says=r"E0424\]", place=r"p\.rules:\d+:\d+", **how):
    return Row(f"G08 rules {id}", beside("p.rules", text), exit, says, ["--pas", "manual:p.rules"], place=place, **how)


def by_constraints(id, text, exit=3, says=r"E0437\]", place=r"c\.yaml:\d+:\d+", args=("--pas", "tp:tensor=2"), **how):
    return Row(f"constraints {id}", beside("c.yaml", text), exit, says, [*args, "--constraints", "c.yaml"], place=place, **how)


CUT = {"tensor": "w1", "dim": 1, "ways": 2, "axis": "tensor"}
MESH = [{"axis": "tensor", "size": 2}]


def nodes(**changes):
    """Entries of the model's nodes; of the first with other keys."""
    made = [{"name": "fc1", "op": "MatMul", "partition": [CUT]}, {"name": "fc1", "op": "Add", "partition": "replicate"},
            {"name": "act", "op": "Relu", "partition": "replicate"}, {"name": "fc2", "op": "MatMul", "partition": "replicate"}]
    made[0].update(changes)
    return made


def cut(**changes):
    return {"nodes": nodes(partition=[{**CUT, **changes}])}


def by_plan(id, content, exit=3, says=r"E0424\]", place=r"p\.json:\d+:\d+", **how):
    return Row(f"G08 plan {id}", beside("p.json", content), exit, says, ["--load-plan", "p.json"], place=place, **how)


def usage(id, code, *args, text="", **how):
    return Row(id, mlp, how.pop("exit", 2), rf"E0{code}\]{text}", list(args), place=None, **how)


def verb(id, exit, text, *words):
    return Row(id, mlp, exit, text, verb=list(words), place=None)


def response(id, content, text=r"E0206\]", place=r"a\.args:\d+:\d+", errors=1):
    def make(d):
        mlp(d)
        (d / "a.args").write_bytes(content)
    return Row(f"G13 {id}", make, 2, text, ["@a.args"], place=place, errors=errors)


def reading(name, content, exit=3, text=r"E0915\]"):
    """--bind of a file; None: there is none."""
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


ENTRY = "- name: MatMul\n  allowed_partition_dims: "
# content of a constraint file -> what is said of it
BAD_CONSTRAINTS = {
    "[]\n[]\n": "a list of entries", "name: MatMul\n": "a list of entries", "-\n": "a list of entries",
    "\t- name: MatMul\n": "a tab", "- name: MatMul\n": "no allowed_partition_dims", ENTRY + "[0,0]\n": "texts in quotes",
    ENTRY + '["0,0"\n': "',' or ']'", ENTRY + '["0,0",\n': "texts in quotes", ENTRY + "[\n": "texts in quotes",
    ENTRY + "[] x\n": "unexpected text", ENTRY + "\n    - 0,0\n      - 1,1\n": "the same indentation", ENTRY + "\n- 0,0\n": "is a list",
    ENTRY + "\n  - 0,0,0\n": "INPUT,DIM", ENTRY + "\n  - 100,0\n": "INPUT,DIM", ENTRY + "\n  - -1,0\n": "INPUT,DIM",
    ENTRY + "\n  - 0\n": "INPUT,DIM", ENTRY + "\n  - ,\n": "INPUT,DIM", ENTRY + "[]\n  replica_allowed: no\n": "true or false",
    ENTRY + "[]\n  name: x\n": "given twice", ENTRY + "[]\n   parent_module: x\n": "the same indentation",
    "- allowed_partition_dims: []\n": "has no name", '- name: ""\n': "name of an operator", '- name: "x\n': "unclosed quotes",
    "- name: 'a''b'\n": "inside a text", "- name: *x\n": "a word, a text in quotes", "- name: |\n    x\n": "a word, a text in quotes",
    "- {name: x}\n": "unknown key", "- name\n": "KEY: VALUE", b"- name: M\0\n": "a NUL byte", "-" * 5000000: "a list of entries",
}
UNMET_CONSTRAINTS = {
    "- name: MatMull\n  allowed_partition_dims: []\n": (3, "E0437\\].*no node matches"),
    ENTRY + "[]\n  parent_module: attn\n": (3, "E0437\\].*no node matches"),
    ENTRY + "\n  - 0,7\n": (3, "E0437\\].*dimension 7 of input 0"), ENTRY + "\n  - 9,0\n": (3, "E0437\\].*of input 9"),
    ENTRY + "[]\n  replica_allowed: false\n": (5, "E0438\\].*whole on every rank"),
}
BAD_RULES = {
    "mesh": "mesh tensor=2\nmesh data=2\n",
    "mesh size": "mesh tensor=20000\n",
    "mesh twice": "mesh tensor=2 tensor=2\n",
    "mesh none": "mesh\n",
    "mesh many": "mesh a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1\n",
    "word": 'mach "fc1" replicate\n',
    "action": 'match "fc1" frobnicate\n',
    "rest": 'match "fc1" replicate now\n',
    "number": 'match "fc1" split in1.99999999999\n',
    "stride": 'match "fc1" split in1.1 stride=0\n',
}

RULES_OF_OTHERS = {  # that do not fit the model or the mesh
    "whole": 'mesh tensor=2\nmatch "fc1" split in0.7\n',
    "axis": 'mesh tensor=2\nmatch "fc1" split in1.1 axis=data\n',
    "stage": 'mesh pipeline=2\nmatch "fc2" stage 2\n',
    "K08 pipeline": 'mesh pipeline=2\nmatch "fc1" split in1.1 axis=pipeline\n',
    "escapes": b'match "\x1b]0;title\x07" replicate\n',
    "glob": 'match "' + "*a" * 2000 + '" replicate\n',
}

BAD_PLANS = {
    "unassigned": {"nodes": nodes()[:3]},
    "twice": {"nodes": nodes() + nodes()[:1]},
    "dim": cut(dim=2),
    "dim negative": cut(dim=-1),
    "dim least": cut(dim=-(1 << 63)),
    "tensor": cut(tensor="w9"),
    "axis": cut(axis="data"),
    "ways": cut(ways=3),
    "blocks": cut(blocks=0),
    "blocks negative": cut(blocks=-2),
    "mirrored odd": cut(blocks=3, mirrored=True),
    "mirrored text": cut(blocks=2, mirrored="yes"),
    "partition": {"nodes": nodes(partition="cut")},
    "stage": {"nodes": nodes(stage=1)},
    "stage text": {"nodes": nodes(stage="x")},
    "escapes": {"nodes": nodes(name="\x1b]0;title\x07")},
    "long": {"nodes": nodes(name="x" * 1000000)},
}

REFINED = ("unassigned",)  # partial plans need not have every node

NO_PLANS = {
    "no nodes": {},
    "list": "[]",
    "format": {"format": 99, "nodes": nodes()},
    "mesh": {"mesh": [{"axis": "tensor", "size": 0}], "nodes": nodes()},
    "mesh huge": {"mesh": [{"axis": "tensor", "size": 1 << 62}], "nodes": nodes()},
    "mesh missing": '{"format": 1, "nodes": []}',
    "empty": "",
    "duplicate": '{"format": 1, "format": 1}',
    "number": '{"format": 99999999999999999999999}',
    "nan": '{"format": NaN}',
    "deep": "[" * 100000,
    "utf8": b'{"\xff": 1}',
}

BAD_ARRAYS = {
    "empty.npy": b"",
    "text.npy": b"no array\n" * 20,
    "short.npy": npy(b"2,", bytes(8)),
    "huge.npy": npy(b"4611686018427387904, 4", bytes(16)),
    "negative.npy": npy(b"-2,", bytes(16)),
    "object.npy": npy(b"", bytes(16), b"{'descr': '|O', 'fortran_order': False, 'shape': (2,), }"),
    "code.npy": npy(b"", bytes(16), b"__import__('os').system('touch pwn')"),
    "other.pb": b"\x08\x02\x10\xff",
}

ROWS = [
    verb("G01", 2, r"E0200\]"),
    verb("G01 verb", 2, r"E0200\].*(.|\n)*did you mean 'compile'", "compil", "m.onnx"),
    usage("G01 flag", 200, "--frobnicate", text=": unknown option"),
    usage("G01 twice", 200, "--no-build", text=".* twice"),
    verb("G01 value", 2, r"E0200\].*needs a value", "compile", "m.onnx", "--pas"),
    verb("G01 model", 2, r"E0200\]", "compile"),
    usage("G02", 202, "--pas", "foo", text=": unknown policy 'foo' \\(dp tp pp data context expert hybrid fsdp autodist manual annotated plugin\\)"),
    *[usage(f"G03 {n}", 204, "--plan-ngpus", n) for n in ("0", "-1", "4000000000", "8x", "", "1e1", "0x2")],
    *[usage(f"K13 {n}", 204, "--plan-ngpus", n, text=f": --plan-ngpus must be a whole number from 1 to 16384, not '{n}'")
      for n in ("16385", "20000", "65536")],
    *[Row(f"K13 16384 {made.__name__}", made, 0, args=["--pas", "tp", "--plan-ngpus", "16384"], seconds=10, mebibytes=100)
      for made in (gpt2, wide)],
    Row("K13 16384 mesh", gpt2, 0, args=["--pas", "hybrid:tensor=2,data=16,pipeline=8", "--runtime-ngpus", "16384"],
        seconds=10, mebibytes=100),
    *[usage(f"K11 {name}", 205, "--instance-name", name, text=f": --instance-name must be .*, not '{re.escape(name)}'")
      for name in (".", "..")],
    usage("G03 multiple", 204, "--plan-ngpus", "7", "--runtime-ngpus", "4"),
    usage("G03 mesh", 204, "--pas", "hybrid:tensor=2,data=2", "--plan-ngpus", "3"),
    *[usage(f"G02 {k}", r"20\d", "--pas", k) for k in ("tp:", "tp:tensor", "tp:tensor=0", "tp:tensor=x", "tp:data=2",
                                                  "hybrid:tensor=2,tensor=2", "hybrid:tensor=20000", "dp:x=1")],
    *[by_constraints(n, text, says=rf"E0437\].*{re.escape(says)}") for n, (text, says) in enumerate(BAD_CONSTRAINTS.items())],
    *[by_constraints(f"unmet {n}", text, exit, says, r"c\.yaml:1$") for n, (text, (exit, says)) in enumerate(UNMET_CONSTRAINTS.items())],
    by_constraints("help", "- name: MatMul\n  parent_modul: x\n", says="did you mean 'parent_module'"),
    by_constraints("none", "# nothing\n---\n", 0, ""),
    by_constraints("crlf", "\ufeff---\r\n- name: MatMul  # c\r\n  allowed_partition_dims: ['0,0', \"1,1\"]\r\n  parent_module: ''\r\n", 0, ""),
    Row("constraints missing", mlp, 6, r"E0601\]", ["--constraints", "none.yaml"], place=None),
    by_constraints("plan", "[]", 2, r"E0200\]", args=("--load-plan", "c.yaml"), place=None),
    *[usage(f"require {word}", 205, "--pas", "autodist", "--require", word) for word in ("*:in1", ":in0.0", "*:in0.0@", "*:.0", "*:x.y", "*:replicate@tensor")],
    *[Row(f"require *:{tensor}.0", mlp, 3, rf"E0437\].*no node that it decides has a dimension 0 of '{tensor}'",
          ["--pas", "autodist", "--require", f"*:{tensor}.0"], place="--require") for tensor in ("x1", "in", "in9")],
    usage("require axis", 205, "--pas", "autodist", "--require", "*:in0.0@pipeline", text=".*tensor, context, expert or data"),
    usage("forbid axis", 205, "--pas", "autodist", "--forbid", "*:in0.0@tensor"),
    Row("require nothing", mlp, 3, r"E0437\].*no node matches", ["--pas", "autodist", "--require", "fc9:in1.1"], place="--require"),
    Row("require against forbid", mlp, 5, r"E0430\].*not split so", ["--pas", "autodist", "--runtime-ngpus", "2", "--require", "fc1:in1.1", "--forbid", "fc1:in1.1"], place="--pas autodist"),
    *[Row(f"refine {id}", beside("p.json", content), 3, r"E0424\]", ["--refine", "p.json", "--pas", "tp:tensor=2"], place=r"'?p\.json")
      for id, content in {**BAD_PLANS, **NO_PLANS}.items() if id not in REFINED],
    Row("refine missing", mlp, 6, r"E0601\]", ["--refine", "none.json"], place=None),
    usage("refine load", 200, "--load-plan", "p.json", "--refine", "p.json"),
    Row("refine plugin", beside("p.rules", "mesh tensor=2\n"), 2, r"E0200\]", ["--refine", "p.json", "--pas", "manual:p.rules"], place=None),
    *[by_rules(id, text) for id, text in BAD_RULES.items()],
    *[by_rules(id, text, place=r"p\.rules:\d+") for id, text in RULES_OF_OTHERS.items()],
    by_rules("ways", 'mesh tensor=9\nmatch "fc1" split in1.1\n', 5, r"E0420\].*dimension 1 of 'in1'(.|\n)*fc1", place=".*fc1"),
    by_rules("K08 twice", 'mesh tensor=2 data=2\nmatch "fc1" split in1.1\nmatch "fc1" split in1.1 axis=data\n', 0, ""),
    by_rules("stride wraps", 'mesh tensor=2\nmatch "fc1" split in1.1 stride=999999999\n', 5, r"E0420\]", place=".*fc1"),
    by_rules("node", 'match "nothing" replicate\n', says=r"E0424\].*no node matches 'nothing'", place=r"p\.rules:1"),
    by_rules("quotes", 'match "fc1 replicate\n', says=r"E0424\].*quotes"),
    by_rules("nul", b'match "fc1" replicate\n\0', says=r"E0424\].*a NUL byte"),
    by_rules("many", 'bad\n' * 1000, errors=20),
    by_rules("long", '#' * 5000000 + '\nmatch "fc1" bad\n', place=r"p\.rules:2:"),
    by_rules("crlf", 'mesh tensor=2\r\nmatch "fc1" split in1.1\r\n', 0, ""),
    by_rules("empty", "", 0, ""),
    Row("G08 rules missing", mlp, 6, r"E0601\]", ["--pas", "manual:none.rules"], place=None),
    Row("G08 rules directory", mlp, 6, r"E0601\]", ["--pas", "manual:out"], place=None),
    *[by_plan(id, content) for id, content in BAD_PLANS.items()],
    *[by_plan(id, content, place=r"'?p\.json") for id, content in NO_PLANS.items()],
    by_plan("right", {"nodes": nodes()}, 0, ""),
    by_plan("unknown", {"nodes": nodes(name="fc9")}, says=r"E0424\].*no node 'fc9'(.|\n)*no entry for node 'fc1'", place=r"p\.json:1:\d+"),
    Row("plan of other ranks", beside("p.json", {"nodes": nodes()}), 2, r"E0204\].*2.*--plan-ngpus is 4", ["--load-plan", "p.json", "--plan-ngpus", "4"], place=None),
    Row("plan of as many ranks", beside("p.json", {"nodes": nodes()}), 0, args=["--load-plan", "p.json", "--plan-ngpus", "2"]),
    by_plan("missing", {"nodes": nodes()[1:]}, says=r"E0424\].*not every node(.|\n)*no entry for node 'fc1'", place=r"p\.json:1:\d+"),
    by_plan("twice", {"nodes": nodes() + nodes()[:1]}, says=r"E0424\].*more entries 'fc1'", place=r"p\.json:1:\d+"),
    by_plan("mirrored", cut(blocks=2, mirrored=True), 0, ""),
    by_plan("mirrored uneven", cut(blocks=2, unit=4, mirrored=True), 5, r"E0420\]", place=".*fc1"),
    by_plan("blocks huge", cut(blocks=(1 << 63) - 1, unit=(1 << 63) - 1), 5, r"E0420\]", place=".*fc1"),
    by_plan("nested", {"mesh": [*MESH, {"axis": "data", "size": 2}], "nodes": nodes(partition=[CUT, {**CUT, "axis": "data"}])}, 0, ""),
    by_plan("K08 twice", {"mesh": [*MESH, {"axis": "data", "size": 2}],
                          "nodes": nodes(partition=[CUT, {**CUT, "axis": "data", "unit": 2}])}, 5,
            r"E0420\].*along data: the parts along tensor are too small or too unlike to be divided again", place=".*fc1"),
    by_plan("K08 pipeline", {"mesh": [{"axis": "pipeline", "size": 2}], **cut(axis="pipeline")},
            says=r"E0424\].*fc1.*cannot be split along 'pipeline', the axis of the pipeline stages"),
    by_plan("unit", cut(unit=3), 5, r"E0420\]", place=".*fc1"),
    by_plan("few", {"mesh": [{"axis": "tensor", "size": 16}], **cut(ways=16)}, 5, r"E0420\].*dimension 1 of 'w1'", place=".*fc1"),
    by_plan("syntax", '{"format": 1,\n  "mesh": [}', says=r"E0424\].*line 2, column 12", place=r"'?p\.json"),
    Row("G08 plan missing", mlp, 6, r"E0601\]", ["--load-plan", "none.json"], place=None),
    usage("G08 both", 200, "--load-plan", "p.json", "--pas", "tp"),
    Row("G05 stages", mlp, 5, r"E0421\]|E0420\]", ["--pas", "pp:pipeline=64"], errors=None, place=None),
    Row("G05 batch", mlp, (0, 5), r"E042\d\]", ["--pas", "data:data=6"], place=None),
    Row("G04 policy", mlp, 0, args=["--pas", "tp:tensor=7"]),
    training("G06 schedule", r"E0202\].*gpipe", "--pas", "pp:pipeline=2", "--schedule", "gpip", exit=2),
    usage("G09 no memory", 205, "--mem-limit", "0"),
    Row("G09 mem-limit", mlp, 5, r"E0431\]", ["--mem-limit", "1K"], place=None),
    Row("G09 autodist", mlp, 5, r"E0430\]", ["--pas", "autodist", "--mem-limit", "1K"], place=None),
    usage("G11 stage", 205, "--use-zero", "4"),
    training("G11 groups", r"E0200\]", "--zero-ngroups", "2", exit=2),
    training("G11 units", r"E0503\]", "--use-zero", "2", "--zero-ngroups", "3", "--runtime-ngpus", "4", exit=5),
    training("G11 few units", "", "--use-zero", "1", "--zero-ngroups", "3", "--runtime-ngpus", "2", "--mem-limit", "1G", exit=0),
    training("G11 search", r"E0430\].*4 scale units cannot be divided into 3", "--use-zero", "1", "--zero-ngroups", "3", "--runtime-ngpus", "4",
             "--pas", "autodist", "--plan-ngpus", "1", exit=5),
    training("G11 whole", "", "--use-zero", "3", "--param", "*:whole", exit=0),
    training("G12 right", "", "--optimizer", "adamw:lr=0.1,beta1=0,beta2=0.5,eps=0,weight_decay=0", exit=0),
    *[training(f"G12 {o}", r"E0205\]", "--optimizer", o)
      for o in ("sgd:lr=nan", "sgd:lr=-1", "sgd:lr=inf", "sgd:lr=1e39", "sgd:lr=", "sgd:lr", "sgd:lr=1x",
                "adam:beta1=1", "adamw:beta2=1.5", "adam:beta1=-0.1", "adam:eps=nan", "adamw:weight_decay=-1", "sgd:momentum=1e999",
                "adagrad:beta1=0.5", "adam:=1", "muon:ns_steps=100", "adafactor:beta2_decay=0.1", "adafactor:d=0.5", "muon:ns_steps=2.5", "muon:adjust_lr_fn=0", "muon:ns_b=-1e10")],
    training("G12 muon right", "", "--optimizer", "muon:ns_b=-4,adjust_lr_fn=match_rms_adamw,ns_steps=0", exit=0),
    training("G12 param optimizer", "", "--param", "*:optimizer=sgd,momentum=0.9", "--param", "*:optimizer=lion", exit=0),
    training("G12 param optimizer unknown", r"E0202\].*unknown optimizer 'adamy'", "--param", "*:optimizer=adamy"),
    training("G12 param optimizer last", r"E0205\].*no option 'optimizer'", "--param", "*:lr=1,optimizer=sgd"),
    training("G12 nesterov right", "", "--optimizer", "sgd:momentum=0.9,nesterov=1", exit=0),
    *[training(f"G12 {o} right", "", "--optimizer", o, exit=0) for o in ("adam:amsgrad=true", "muon:nesterov=false")],
    *[training(f"G12 {o}", r"E0205\].*must be one of false\|true", "--optimizer", o) for o in ("adam:amsgrad=2", "sgd:nesterov=", "rmsprop:centered=yes")],
    *[training(f"G12 {o}", r"E0205\].*momentum > 0 && dampening == 0", "--optimizer", o)
      for o in ("sgd:nesterov=1", "sgd:momentum=0.9,dampening=0.1,nesterov=1")],
    training("G12 param nesterov", r"E0205\].*momentum > 0", "--param", "*:nesterov=1", "--optimizer", "sgd"),
    *[training(f"G12 param {o}", r"E0205\]", "--param", f"*:{o}")
      for o in ("lr=nan", "lr=1e39", "weight_decay=-1", "beta1=1", "")],
    training("G12 param moments", r"E0205\].*moments_dtype must be f32, not 'f16'", "--param", "*:moments_dtype=f16"),
    training("G12 param padding", r"E0205\].*padding_idx must be the number of a row, not '1x'", "--param", "*:padding_idx=1x"),
    training("G12 param word", r"E0205\].*did you mean 'frozen'", "--param", "*:frozn"),
    training("adapter option", r"E0205\].*an adapter has no option 'nme=x'", "--adapter", "adapter:nme=x"),
    training("G12 unknown", r"E0202\]", "--optimizer", "adamz"),
    *[training(f"G12 schedule {s}", r"E020[25]\]", "--lr-schedule", s)
      for s in ("sine", "cosine", "cosine:steps=nan", "cosine:steps=1.5", "cosine:steps=10,warmup=10",
                "cosine:steps=10,min=2", "cosine:steps=10,min=nan")],
    *[training(f"G12 clip {x}", r"E0205\]", "--clip-grad-norm", x) for x in ("0", "nan", "-1", "1x")],
    training("G12 accumulate", r"E0205\]", "--accumulate", "0"),
    *[usage(f"G12 async tp {x}", 204, f"--async-tp={x}", text=".*auto or a whole number from 1 to 64") for x in ("0", "65", "x")],
    verb("G12 steps", 2, r"E0205\]", "train", "out", "--steps", "0"),
    usage("G12 without", 200, "--optimizer", "adam", text=".*--train"),
    response("quote", b"--pas 'tp\n"),
    response("nul", b"--pas\0tp"),
    response("backslash", b"--pas \\"),
    response("nested", b"@a.args", place="a.args"),
    response("bom", b"\xef\xbb\xbf--pas tp", text=r"E0200\]", place=None, errors=2),
    response("large", b"x" * (100 << 20), text=r"E0\d\d\d\]", place=None),
    response("unknown", b"--pas\r\nfoo", text=r"E0202\]", place=None),
    *[reading(name, content) for name, content in BAD_ARRAYS.items()],
    reading("none.npy", None, 6, r"E0601\]"),
    reading("6,2", None, 0, ""),
    reading("6,2", b"a file of that name is read", text=r"E0915\]"),
    reading("6,2,", None, 6, r"E0601\]"),
    reading("wrong.npy", npy(b"3,", bytes(24)), text=r"E0915\]|E0342\]"),
]
