#!/usr/bin/python3
"""Gradients of every parameter of modules of PyTorch, under several plans.

    gradients.py --rankc RANKC [--plans PLAN;...] [--table FILE] [--jobs N] [FOLDER...]

A folder is what record_gradients.py writes of one module; left out, all in gradients/, which is a part of its table. A
step of SGD with a rate of 2^20 turns a parameter into its gradient, but for the last bit. A plan is "policy@units" or
"policy@units+options", with one or two units and two micro-batches per unit. For every parameter, one rank is no further
from PyTorch in f64 than BOUND times the largest gradient, and a plan is within the bound

    max|plan - f64| <= 2 max|one rank - f64| + 8 eps max|f64|

with the same micro-batches. A gradient that is 0 but for rounding has the scale of the largest one of the module."""
import concurrent.futures
import functools
import glob
import os
import sys

import harness
from harness import HERE, Failed, bound_of, expect, names_of, needed, parser_of, plan_of, report
from long_sequences import tensors_of

with needed():
    import numpy

BOUND, RATE, ACCUMULATE = 1e-5, 2.0 ** 20, 2
PLANS = ["dp2", "tp2", "data2", "pp2", "dp2+use-zero=2"]
ROUNDING = 1e-9  # of a gradient beside the largest one of the module: it is a sum of terms that cancel


class Program:
    """A module compiled under a plan, with the recorded gradients of its folder."""

    def __init__(self, rankc, folder, plan, work):
        self.rankc, self.folder, self.plan, self.work, self.units = rankc, folder, plan, work, plan_of(plan).units
        self.recorded = dict(numpy.load(os.path.join(folder, "gradients.npz")))
        harness.call(rankc, "compile", os.path.join(folder, "model.onnx"), "-o", f"{work}/out", "-q", "--reuse", "override", "--train",
                     "--optimizer", f"sgd:lr={RATE}", *plan_of(plan).options, "--accumulate", ACCUMULATE, timeout=1200)
        harness.call(rankc, "verify", f"{work}/out", "-q", timeout=1200)

    def reference(self, count):
        """The mean gradients of `count` micro-batches in f64, by parameter."""
        return {key.partition("/")[2]: value for key, value in self.recorded.items() if key.startswith(f"{count}/")}

    def gradients(self, count):
        """The program's own."""
        data = [word for path in sorted(glob.glob(os.path.join(self.folder, "*.npy")))
                for word in ("--data", f"{os.path.basename(path)[:-4]}={path}")]
        kept, merged = f"{self.work}/checkpoints", f"{self.work}/merged.safetensors"
        harness.call("rm", "-rf", kept, merged)
        harness.call(self.rankc, "train", f"{self.work}/out", "-q", *data, "--steps", "1", "--threads", "1", "--kernels", "reference",
                     "--accumulate", str(count // self.units), "--checkpoint-dir", kept, timeout=1200)
        harness.call(self.rankc, "ckpt", "merge", kept, merged)
        made, wanted = tensors_of(merged), self.reference(count).keys()
        expect(wanted <= made.keys(), f"{self.plan}: not trained: {', '.join(sorted(wanted - made.keys()))}")
        return {name: (self.recorded[f"start/{name}"].ravel() - numpy.asarray(made[name], "f8")) / RATE for name in wanted}


def distance(values, reference):
    return numpy.abs(values - reference.ravel()).max() if reference.size else 0.0


def check_one(one, reference):
    """The largest distance of one rank from f64, as a part of the largest gradient."""
    largest = max(numpy.abs(wanted).max() for wanted in reference.values())
    worst = 0.0
    for name, wanted in reference.items():
        found = distance(one[name], wanted) / (largest or 1)
        expect(found <= BOUND, f"one rank: '{name}' is {found:.1e} of the largest gradient from f64")
        worst = max(worst, found)
    return worst


def check_plan(plan, made, one, reference):
    """The largest distance of the plan from f64, as a part of the bound."""
    largest, worst = max(numpy.abs(wanted).max() for wanted in reference.values()), 0.0
    for name, wanted in reference.items():
        own = numpy.abs(wanted).max()
        scale = largest if own <= ROUNDING * largest else own
        allowed = bound_of(distance(one[name], wanted), scale)
        found = distance(made[name], wanted)
        expect(found <= allowed, f"{plan}: '{name}' is {found:.2e} from f64, allowed are {allowed:.2e}")
        worst = max(worst, found / allowed if allowed else 0.0)
    return worst


def check(rankc, plans, folder, cells, work):
    """Fills cells by plan: the largest distance from f64 as a part of the largest gradient or of the bound."""
    single = Program(rankc, folder, "one", work)
    one = {count: single.gradients(count) for count in (ACCUMULATE, 2 * ACCUMULATE)}
    cells["one rank"] = f"{max(check_one(one[count], single.reference(count)) for count in one):.1e}"
    wrong = []
    for plan in plans:
        try:
            program = Program(rankc, folder, plan, work)
            count = ACCUMULATE * program.units
            cells[plan] = f"{check_plan(plan, program.gradients(count), one[count], program.reference(count)):.2f}"
        except Failed as why:
            cells[plan] = "**failed**"
            wrong.append(str(why))
    expect(not wrong, "\n".join(wrong))
    return " ".join(cells.values())


HEAD = """# Gradients of PyTorch's modules

Written by `tests/training/gradients.py --table` from what `tests/training/record_gradients.py` exports and differentiates by
PyTorch in f64: the modules and functions in `tests/training/modules.py`. `one rank` is the largest difference of a gradient from
f64 as a part of the module's largest gradient; the bound is 1e-5. A plan's entry is the largest difference of a gradient as a part
of the bound, 2 max|one rank - f64| + 8 eps max|f64|, and at most 1. Every scale unit has two micro-batches (`--accumulate 2`);
`PLAN@U` is a plan with U scale units.

"""


def write_table(path, plans, results):
    columns = ["one rank", *plans]
    with open(path, "w", encoding="utf-8") as table:
        table.write(HEAD)
        table.write("| module | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns) + "\n")
        for folder in sorted(results):
            cells = " | ".join(results[folder].get(column, "**failed**") for column in columns)
            table.write(f"| {os.path.basename(folder)} | {cells} |\n")


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--plans", default=" ".join(PLANS), help="their names: rankc_plans.py")
    parser.add_argument("--table", help="where to write a table of the results")
    parser.add_argument("--jobs", type=int, default=1, help="modules at a time [1]")
    parser.add_argument("folders", nargs="*")
    options = parser.parse_args()
    folders = options.folders or sorted(glob.glob(os.path.join(HERE, "gradients", "*")))
    plans, results = names_of(options.plans), {folder: {} for folder in folders}
    checks = [(os.path.basename(folder), functools.partial(check, options.rankc, plans, folder, results[folder])) for folder in folders]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        failed = any(list(pool.map(lambda one: report([one]), checks)))
    if options.table:
        write_table(options.table, plans, results)
    return failed


if __name__ == "__main__":
    sys.exit(main())
