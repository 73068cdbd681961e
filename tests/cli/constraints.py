#!/usr/bin/python3
"""Constraints on single nodes: constraint files in nnScaler's form, and patterns of --require and --forbid. What plans
say of the nodes is compared with what was asked for, under every policy and in the search.

    constraints.py --rankc RANKC --model gpt2.onnx --training gpt2.onnx"""
import argparse
import fnmatch
import json
import subprocess
import tempfile
from pathlib import Path

A = None  # arguments
FOLDER = Path()


def run(*args, model=None):
    return subprocess.run([A.rankc, "plan", model or A.model, "--json", "-q", *args], capture_output=True, text=True, check=False)


def splits(*args, **how):
    """(node, operator) -> its splits; nodes that came from one ONNX node and have one operator are taken together."""
    done = run(*args, **how)
    assert done.returncode == 0, (args, done.stderr)
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
    refused = run("--pas", "tp:tensor=2", *batch)
    assert refused.returncode == 5 and "E0438" in refused.stderr and "constraints.yaml:1" in refused.stderr, refused.stderr
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


def programs():
    """A training program whose plan meets constraints is proved like any other."""
    some = constraints("- name: MatMul\n  allowed_partition_dims: []\n  parent_module: attn\n")
    for pas in (["--pas", "hybrid:tensor=2,data=2,pipeline=2", *some],
                ["--pas", "autodist", "--plan-ngpus", "2", "--require", "*c_fc*:in0.2"]):
        out = FOLDER / "out"
        for words in (["compile", A.training, "--train", "-o", out, "--no-build", "--reuse", "override", *pas], ["verify", out]):
            done = subprocess.run([A.rankc, *words, "-q"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
    # the file is part of the key of the plan
    constraints("- name: MatMul\n  allowed_partition_dims: []\n  parent_module: mlp\n")
    words = ["compile", A.training, "--train", "-o", FOLDER / "out", "--no-build", "--pas", "tp:tensor=2", *some, "-q"]
    subprocess.run([A.rankc, *words, "--reuse", "override"], check=True)
    constraints("- name: MatMul\n  allowed_partition_dims: []\n  parent_module: attn\n")
    done = subprocess.run([A.rankc, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 8 and "constraints" in done.stderr, done.stderr


def main():
    global A, FOLDER
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--rankc", "--model", "--training"):
        parser.add_argument(name, required=True)
    A = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        FOLDER = Path(directory)
        for case in (modules, data_alone, pins, programs):
            case()


if __name__ == "__main__":
    main()
