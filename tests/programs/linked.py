#!/usr/bin/python3
"""Two compiled models in one C program, whose functions need different names: linked.py --rankc RANKC

Instance `tp` of mlp.onnx and the model mlp_tp.onnx both have functions mlp_tp_..: a source that includes both headers is refused by
the compiler. Linked from sources that include one each, the functions are those of one model, which refuses the directory of the
other. Under another instance name both compute PyTorch's outputs (tests/models)."""
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "training"))
from harness import call, expect, needed, rankc_of, report  # noqa: E402
from nonfinite import flags  # noqa: E402

with needed():
    import numpy as np

MODEL, PARTS = os.path.join(HERE, "..", "models", "mlp"), os.path.join(HERE, "linked")
BOUND = 1e-5  # of the largest output: f32 sums of at most 61 terms
TWO_RANKS = ["--instance-name", "tp", "--pas", "tp", "--plan-ngpus", "2"]


def compile_model(rankc, work, name, *options):
    """The directory of the result, which is the only one below a directory of its own."""
    model, out = os.path.join(work, f"{name}.onnx"), os.path.join(work, "-".join([name, *options[1:2]]))
    shutil.copy(os.path.join(MODEL, "model.onnx"), model)
    call(rankc, "compile", model, "-o", out, "-q", "--no-build", *options)
    directory = os.path.join(out, name, options[1] if options else "_")
    call("make", "-s", "-C", directory, "build/model.a", "RANKC_CFLAGS=" + flags(rankc)[0], "CFLAGS=-O0")
    return directory


def link(rankc, work, *models):
    """A program of main.c and part.c for two models, (prefix, directory) each."""
    objects = []
    for run, (prefix, directory) in zip(("first", "second"), models):
        objects.append(os.path.join(work, f"{run}.o"))
        call("cc", "-Wall", "-Werror", "-I", directory, flags(rankc)[0], f"-DRUN={run}", f"-DPREFIX={prefix}", f"-DDIRECTORY={directory}",
             "-c", os.path.join(PARTS, "part.c"), "-o", objects[-1])
    program = os.path.join(work, "program")
    call("cc", os.path.join(PARTS, "main.c"), *objects, *[os.path.join(directory, "build", "model.a") for _, directory in models],
         *flags(rankc), "-fopenmp", "-o", program)
    return program


def execute(program, status):
    """Lines that the two models print."""
    np.load(os.path.join(MODEL, "inputs", "x.npy")).tofile(program + ".x")
    return call(program, program + ".x", status=status).stdout.splitlines()


def check_output(line):
    expected = np.load(os.path.join(MODEL, "outputs", "y.npy")).ravel()
    found = np.array(line.split(), dtype="f8")
    expect(found.shape == expected.shape and np.abs(found - expected).max() <= BOUND * np.abs(expected).max(), f"{found}, not {expected}")


def both(rankc, work):
    models = [("mlp_tp", compile_model(rankc, work, "mlp", *TWO_RANKS)),
              ("mlp_tp_one", compile_model(rankc, work, "mlp_tp", "--instance-name", "one"))]
    for line in execute(link(rankc, work, *models), 0):
        check_output(line)
    return "two models under names of their own"


def alike(rankc, work):
    directories = [compile_model(rankc, work, "mlp", *TWO_RANKS), compile_model(rankc, work, "mlp_tp")]
    lines = execute(link(rankc, work, *[("mlp_tp", directory) for directory in directories]), 1)
    check_output(lines[0])
    expect(lines[1].endswith("manifest.json belongs to another program than 'mlp/tp'"), lines[1])
    headers = [f"-include{directory}/model.h" for directory in directories]
    for pair, status in ((headers, 1), (headers[:1] * 2, 0)):
        said = call("cc", "-fsyntax-only", flags(rankc)[0], *pair, os.path.join(PARTS, "main.c"), status=status).stderr
        expect(("two programs have functions mlp_tp_..: compile one of them with another --instance-name" in said) == status, said)
    return "two models under the same names are refused"


def main():
    rankc = rankc_of(__doc__)
    sys.exit(report([(check.__name__, lambda work, check=check: check(rankc, work)) for check in (both, alike)]))


main()
