#!/usr/bin/env python3
"""Exports models by the PyTorch of an environment, now, trains them by rankc and compares every step with PyTorch's.

    exports.py --rankc RANKC --python PYTHON [--optimizers sgd;adamw] [--plans PLAN;...] [--forms FORM...] [--table FILE] [-- MODEL...]
    exports.py --rankc RANKC

PYTHON is that of an environment with what record_exports.py needs: `python3 -m venv today && today/bin/pip install torch
torchvision transformers onnx onnxscript`. That is a command of its own, and no part of the test suite, which has recorded
exports (tests/training/exports). Losses and gradient norms are within train.py's bound of PyTorch's in f64, and rankc
trains as many parameters as PyTorch counts; where its exporter has merged some, a note names them. Without PYTHON only
the parameters of the recorded exports are counted."""
import functools
import json
import os
import subprocess
import sys
import tempfile

from harness import HERE, call, expect, model_of, names_of, parser_of, recorded, report
from train import check

PLANS = ["one", "dp2", "tp2", "data2", "tp2data2"]


def elements(shape):
    product = 1
    for extent in shape:
        product *= extent
    return product


def check_parameters(rankc, case):
    """As many numbers are trained as PyTorch has parameters, or notes name parameters that it has and the model has not."""
    reference = recorded(case)
    said = call(rankc, "plan", model_of(case), "--train", "--json", "--optimizer", reference["optimizer"], *reference["options"])
    ours = sum(elements(p["shape"]) for p in json.loads(said.stdout)["parameters"] if p["trained"])
    theirs = sum(elements(shape) for shape in reference["parameters"].values())
    if ours == theirs:
        return f"{ours} numbers in parameters"
    notes = [json.loads(line) for line in said.stderr.splitlines()]
    text = "\n".join(line for note in notes for line in (note["text"], *note["notes"]))
    named = [name for name in reference["parameters"] if f"'{name}'" in text]
    expect(named, f"{ours} numbers in parameters, PyTorch has {theirs}, and no note says why")
    return f"{ours} numbers in parameters, PyTorch has {theirs}; notes name {', '.join(named)}"


def kept(results, key, check):
    """The check, whose result is kept too."""
    def checked(work):
        results[key] = "failed"
        results[key] = check(work)
        return results[key]
    return checked

HEAD = """# Training PyTorch exports

Written by `tests/training/exports.py --table`. Models are exported by PyTorch, and trained for 20 steps by PyTorch in f64 and
by rankc in f32 (`rankc compile --train`). Every entry is the largest relative difference of a loss or gradient norm; the
bound is 1e-5. The suffix of an export names the exporter: PyTorch's with default options, with optimize=False (plain), or
the older one (legacy). `PLAN@U` is a plan with U scale units.

"""


def write_table(path, plans, results):
    """A row for each export and optimizer, a column for each plan."""
    with open(path, "w") as table:
        table.write(HEAD)
        table.write("| export | optimizer | " + " | ".join(plans) + " |\n|---|---|" + "---|" * len(plans) + "\n")
        for case, optimizer in dict.fromkeys((case, optimizer) for case, optimizer, _ in results):
            cells = " | ".join(results[case, optimizer, plan] for plan in plans)
            table.write(f"| {case} | {optimizer} | {cells} |\n")


def export_and_check(options, optimizer, folder, results):
    """Whether any check failed."""
    subprocess.run([options.python, "-B", os.path.join(HERE, "record_exports.py"), "--out", folder, "--optimizer", optimizer,
                    "--forms", *options.forms, "--", *options.models], check=True)
    cases = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    runs = [(os.path.basename(case), optimizer, plan, functools.partial(check, options.rankc, "c", [], case, plan, counts=[1]))
            for case in cases for plan in names_of(options.plans)]
    return report([(" ".join(key), kept(results, tuple(key), run)) for *key, run in runs]) | check_all_parameters(options.rankc, folder)


def check_all_parameters(rankc, folder):
    return report([(name, lambda work, name=name: check_parameters(rankc, os.path.join(folder, name)))
                   for name in sorted(os.listdir(folder))])


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--python")
    parser.add_argument("--optimizers", default="sgd;adamw", help="separated by semicolons")
    parser.add_argument("--plans", default=" ".join(PLANS), help="their names: rankc_plans.py")
    parser.add_argument("--forms", nargs="*", default=["default", "plain", "legacy"])
    parser.add_argument("--table", help="where to write a table of the results")
    parser.add_argument("models", nargs="*")
    options = parser.parse_args()
    if not options.python:
        return check_all_parameters(options.rankc, os.path.join(HERE, "exports"))
    failed, results = False, {}
    for optimizer in options.optimizers.split(";"):
        with tempfile.TemporaryDirectory(prefix="rankc-exports-") as folder:
            failed |= export_and_check(options, optimizer, folder, results)
    if options.table:
        write_table(options.table, names_of(options.plans), results)
    return failed


if __name__ == "__main__":
    sys.exit(main())
