#!/usr/bin/python3
"""Constraints on single nodes: constraint files in nnScaler's form, patterns of --require and --forbid, and partial
plans (--refine). What plans say of the nodes is compared with what was asked for, under every policy and in the search.

    constraints.py --rankc RANKC --model gpt2.onnx --training gpt2.onnx"""
import fnmatch
import json
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from rankc_test import call, parser_of  # noqa: E402

A = None  # arguments
FOLDER = Path()


def run(*args, model=None, status=0):
    return call(A.rankc, "plan", model or A.model, "--json", "-q", *args, status=status)


def splits(*args, **how):
    """(node, operator) -> its splits; nodes that came from one ONNX node and have one operator are taken together."""
    done = run(*args, **how)
    found = {}
    for node in json.loads(done.stdout)["nodes"]:
        partition = [] if node["partition"] == "replicate" else node["partition"]
        found.setdefault((node["name"], node["op"]), []).append([(s["dim"], s["axis"]) for s in partition])
    return found


def of(found, glob, op):
    some = [split for (name, kind), all in found.items() if kind == op and fnmatch.fnmatch(name, glob) for split in all]
    assert some, (glob, op)
    return some


def constraints(text):
    path = FOLDER / "constraints.yaml"
    path.write_text(text)
    return "--constraints", str(path)


def modules():
    """An entry concerns the operators of a module, the closest one decides, and other nodes are split as before."""
    whole = constraints("- name: MatMul\n  allowed_partition_dims: []\n  parent_module: attn\n"
                        "- name: MatMul\n  allowed_partition_dims: ['1,1']\n  parent_module: h.1/attn/c_attn\n")
    plain, limited = (splits("--pas", "tp:tensor=2", *more) for more in ((), whole))
    assert all(of(plain, "*attn*", "MatMul"))
    assert of(limited, "*h.0/attn*", "MatMul") == [[], []] and of(limited, "*h.1/attn/c_proj*", "MatMul") == [[]]
    assert of(limited, "*h.1/attn/c_attn*", "MatMul") == [[(1, "tensor")]]
    assert of(limited, "*mlp*", "MatMul") == of(plain, "*mlp*", "MatMul")


def data_alone():
    """nnScaler's example of a purely data parallel plan: the batch of every operator, nothing whole. Tensor parallelism
    alone cannot keep it; the search takes what does."""
    batch = constraints('- name: "*"\n  allowed_partition_dims:\n  - 0,0\n  parent_module: mlp\n  replica_allowed: false\n')
    refused = run("--pas", "tp:tensor=2", *batch, status=5)
    assert "E0438" in refused.stderr and "constraints.yaml:1" in refused.stderr, refused.stderr
    for pas in (["--pas", "data:data=2"], ["--pas", "autodist", "--plan-ngpus", "2", "--forbid", "pipeline"]):
        assert all(split and split[0][0] == 0 for split in of(splits(*pas, *batch), "*mlp*", "MatMul")), pas
    # on a stage of one rank, and with scale units, there is nothing to divide
    for pas in (["--pas", "pp:pipeline=2"], ["--runtime-ngpus", "2"]):
        splits(*pas, *batch)


def pins():
    """--require and --forbid with the name of a node."""
    search = ["--pas", "autodist", "--runtime-ngpus", "2", "--machine", "h100"]
    rows = splits(*search, "--require", "*c_fc*:in0.2")
    assert of(rows, "*c_fc*", "MatMul") == [[(2, "tensor")]] * 2 and all(of(rows, "*attn*", "MatMul"))
    whole = splits(*search, "--require", "tensor,*c_fc*:replicate")
    assert of(whole, "*c_fc*", "MatMul") == [[], []]
    other = splits(*search, "--require", "tensor", "--forbid", "*c_fc*:in1.1")
    assert (1, "tensor") not in sum(of(other, "*c_fc*", "MatMul"), [])
    one = splits(*search, "--require", "*h.1/mlp/c_fc*:out0.0@data", "--plan-ngpus", "2")
    assert of(one, "*h.1/mlp/c_fc*", "MatMul") == [[(0, "data")]]


def partial(name, mesh, *entries, **program):
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps({"format": 1, "mesh": [{"axis": a, "size": s} for a, s in mesh.items()], "nodes": entries, **program}))
    return "--refine", str(path)


def refined():
    """--refine keeps what a partial plan gives and leaves the rest to the policy or the search; a whole plan is kept whole,
    with what it recomputes."""
    fc = "/transformer/h.0/mlp/c_fc/Gemm"
    rows = partial("rows", {"tensor": 2}, {"name": fc, "op": "MatMul", "partition": [{"tensor": "in0", "dim": 2, "ways": 2, "axis": "tensor"}]},
                   {"name": "/transformer/h.1/mlp/c_fc/Gemm", "op": "MatMul", "partition": "replicate"})
    plain = splits("--pas", "tp:tensor=2")
    for pas in (["--pas", "tp:tensor=2"], ["--pas", "hybrid:tensor=2,pipeline=2"], ["--pas", "autodist", "--runtime-ngpus", "4"]):
        found = splits(*pas, *rows)
        assert of(found, fc, "MatMul") == [[(2, "tensor")]] and of(found, "*h.1/mlp/c_fc*", "MatMul") == [[]], pas
        assert of(found, "*attn*", "MatMul") == of(plain, "*attn*", "MatMul"), pas
    # a split propagates to the neighbours that the plan leaves out
    columns = splits("--pas", "tp:tensor=2", *partial("columns", {"tensor": 2}, {"name": fc, "op": "MatMul", "partition": [
        {"tensor": "in1", "dim": 1, "ways": 2, "axis": "tensor"}]}))
    assert columns == plain
    # stages: the boundary moves to where it is given
    late = partial("late", {"pipeline": 2}, {"name": "/transformer/h.1/mlp/c_fc/Gemm", "op": "MatMul", "stage": 0})
    stages = json.loads(run("--pas", "pp:pipeline=2", *late).stdout)["nodes"]
    assert all(n["stage"] == 0 for n in stages if "/h.0/" in n["name"] or "/h.1/attn" in n["name"]) and any(n["stage"] for n in stages)
    never = partial("never", {"pipeline": 2}, {"name": "/lm_head/MatMul", "op": "MatMul", "stage": 0},
                    {"name": fc, "op": "MatMul", "stage": 1})
    refused = run("--pas", "pp:pipeline=2", *never, status=5)
    assert "E0421" in refused.stderr, refused.stderr
    for args, code, text in (((*rows, "--pas", "tp:tensor=4"), 3, "E0424"), ((*late, "--pas", "tp:tensor=2"), 3, "its mesh has pipeline=2"), ((*rows, "--pas", "autodist", "--runtime-ngpus", "3"), 5, "E0432"),
                             ((*partial("unknown", {"tensor": 2}, {"name": "x", "op": "Add"}), "--pas", "tp:tensor=2"), 3, "no node 'x'"),
                             ((*partial("unknown", {"tensor": 2}, {"name": "x", "op": "Add"}), "--pas", "autodist"), 3, "no node 'x'"),
                             ((*partial("grad", {}, {"name": "x.grad", "op": "Add"}),), 3, "no node 'x.grad'"),
                             ((*partial("no", {"tensor": 2}, {"name": fc, "op": "MatMul", "partition": [
                                 {"tensor": "in0", "dim": 7, "ways": 2, "axis": "tensor"}]}), "--pas", "tp:tensor=2"), 3, "E0424")):
        done = run(*args, status=code)
        assert text in done.stderr, (args, done.stderr)
    for pas, ranks, more in (("hybrid:tensor=2,pipeline=2", 4, ["--recompute", "full"]), ("hybrid:tensor=2,data=2", 4, ["--use-zero", "1", "--zero-ngroups", "2"]),
                             ("hybrid:tensor=2@1,pipeline=2", 3, []), ("hybrid:data=2@0,pipeline=2", 3, [])):
        whole, again = FOLDER / "whole.json", FOLDER / "again.json"
        program = ("--train", "--runtime-ngpus", str(2 * ranks), "--pas")
        for words in ([pas, *more, "--save-plan", whole], [pas, "--refine", whole, "--save-plan", again],
                      ["autodist", "--plan-ngpus", ranks, "--refine", whole, "--save-plan", again]):
            run(*program, *words, "--accumulate", "4", model=A.training)
            given, kept = json.loads(whole.read_text()), words[-1].exists() and json.loads(words[-1].read_text())
            assert all(given.get(key) == kept.get(key) for key in ("mesh", "nodes", "zero_level", "zero_ngroups", "micro_batches")), words
        done = run(*program, "autodist", "--accumulate", "2", "--plan-ngpus", str(ranks), "--refine", str(whole), model=A.training, status=2)
        assert "contradicts the plan" in done.stderr, done.stderr
    # two scale units: the plan's mesh and micro-batches are those of one of them
    half, found = FOLDER / "half.json", FOLDER / "found.json"
    words = ("--train", "--accumulate", "2", "--runtime-ngpus", "4", "--save-plan")
    run(*words, str(half), "--pas", "pp:pipeline=2", "--schedule", "chimera", model=A.training)
    plan = json.loads(half.read_text())
    forward = [n for n in plan["nodes"] if n["name"].startswith("/")]
    assert plan["mesh"] == [{"axis": "pipeline", "size": 2}] and forward
    half.write_text(json.dumps({**plan, "nodes": forward}))
    for pas in (["autodist"], ["pp:pipeline=2"]):
        done = run(*words, str(found), "--pas", *pas, "--refine", str(half), model=A.training)
        again = json.loads(found.read_text())
        assert done.returncode == 0 and all(again[k] == plan[k] for k in ("mesh", "schedule", "micro_batches", "nodes")), done.stderr


def programs():
    """A training program whose plan meets constraints is proved like any other."""
    some = constraints("- name: MatMul\n  allowed_partition_dims: []\n  parent_module: attn\n")
    for pas in (["--pas", "hybrid:tensor=2,data=2,pipeline=2", *some],
                ["--pas", "autodist", "--plan-ngpus", "2", "--require", "*c_fc*:in0.2"],
                ["--pas", "autodist", "--plan-ngpus", "2", *partial("one", {"tensor": 2}, {
                    "name": "/model/transformer/h.0/mlp/c_fc/Gemm", "op": "MatMul", "partition": "replicate", "recompute": True})]):
        out = FOLDER / "out"
        for words in (["compile", A.training, "--train", "-o", out, "--no-build", "--reuse", "override", *pas], ["verify", out]):
            call(A.rankc, *words, "-q")
    # the file is part of the key of the plan
    constraints("- name: MatMul\n  allowed_partition_dims: []\n  parent_module: mlp\n")
    words = ["compile", A.training, "--train", "-o", FOLDER / "out", "--no-build", "--pas", "tp:tensor=2", *some, "-q"]
    call(A.rankc, *words, "--reuse", "override")
    constraints("- name: MatMul\n  allowed_partition_dims: []\n  parent_module: attn\n")
    done = call(A.rankc, *words, status=8)
    assert "constraints" in done.stderr, done.stderr


def main():
    global A, FOLDER
    parser = parser_of(__doc__)
    for name in ("--model", "--training"):
        parser.add_argument(name, required=True)
    A = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        FOLDER = Path(directory)
        for case in (modules, data_alone, pins, refined, programs):
            case()


if __name__ == "__main__":
    main()
