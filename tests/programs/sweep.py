#!/usr/bin/python3
"""Compiles and runs models under plans, and compares what the ranks give.

    sweep.py --rankc RANKC [--target c|cuda] [--kernels K] [--plans "P P..."] [--work DIR] [--comm shm|loopback] MODEL_DIR...

A model directory holds model.onnx, inputs/<name>.npy, outputs/<name>.npy as PyTorch gave them, and dims ("batch=2" a
line). Every plan is checked twice:
  - against PyTorch's saved outputs: rtol 1e-4, atol 1e-5;
  - against one rank, by DESIGN 8's bound per tensor: max|p - ref| <= 2 max|one - ref| + 8 eps max|ref|, ref = the graph in
    f64 on one rank with reference kernels of target c.
Plans are named as in rankc_plans.py, rule files lie in the model directory; and "rows2" is the rule that cuts the first convolution by rows
and with it what follows, but for reductions and products: no sum is cut, so reference kernels must give one rank's bits. Prints a line per model and plan, and exits 1 if any fails.
"""
import glob
import json
import os
import re
import shutil
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_plans import plan_of  # noqa: E402
from rankc_test import Failed, bound_of, call, dims_of, given, needed, parser_of  # noqa: E402

with needed():
    import numpy as np

ALL = "all"
HEAD = """# Models under plans

Written by `tests/programs/sweep.py --table`. Each model is compiled under each plan (tp2: `--pas tp:tensor=2`), run and
verified. The outputs of every entry with a number equal PyTorch's (rtol 1e-4, atol 1e-5); **failed** means that they do
not. The number is the largest error divided by its bound, `2 max|one - ref| + 8 eps max|ref|`, where `one` is the result
of one rank and `ref` that of the graph in f64 on one rank.

"""


def row_rule(one, plan, ranks):
    """A rule file beside the one-rank program `one`: its first convolution in parts of rows; sums over rows stay whole."""
    nodes = json.load(open(glob.glob(one + "/*/_/plan.json")[0]))["nodes"]
    first = next((node["name"] for node in nodes if node["op"] == "Conv"), None)
    if first is None:
        raise Failed("the model has no convolution")
    path = f"{one}/{plan}.rules"
    with open(path, "w") as rules:
        rules.write(f'mesh tensor={ranks}\nmatch "{first}" split out0.2\n')
        rules.writelines(f'match "{name}" replicate\n'
                         for name in dict.fromkeys(node["name"] for node in nodes if re.match("Reduce|MatMul", node["op"])))
    return ["--pas", "manual:" + path]


def plan_options(plan, one, model):
    """Options of `rankc compile` for a plan's name; `one` is the directory of the program of one rank."""
    return row_rule(one, plan, plan[4:]) if plan.startswith("rows") else plan_of(plan, model).options


def load(folder):
    return {f[:-4]: np.load(os.path.join(folder, f)) for f in sorted(os.listdir(folder)) if f.endswith(".npy")}


class Sweep:
    def __init__(self, args, work):
        self.args, self.work, self.results, self.made = args, work, {}, set()

    def program(self, model, plan, *extra, target=None):
        """The directory of the model under a plan, compiled when it is first asked for."""
        name = os.path.basename(os.path.normpath(model))
        out = os.path.join(self.work, name, plan + "".join(extra))
        if out not in self.made:
            shutil.rmtree(out, ignore_errors=True)
            call(self.args.rankc, "compile", os.path.join(model, "model.onnx"), "-o", out, "-q", "--target", target or self.args.target,
                 *dims_of(model), *plan_options(plan, os.path.join(self.work, name, "one"), model), *extra)
            self.made.add(out)
        return out

    def run(self, model, plan, *extra, kernels=None, target=None, comm=None):
        """Outputs of the model under a plan, by name."""
        out, comm = self.program(model, plan, *extra, target=target), comm or self.args.comm
        run = [self.args.rankc, "run", out, "--output-dir", out + "/out", "--kernels", kernels or self.args.kernels, "--threads", "1"]
        if comm and plan != "one":
            run += ["--comm", comm]
        call(*run, *given(os.path.join(model, "inputs")))
        return load(out + "/out")

    def checks(self, model, plan):
        """The outputs to be compared: as the ranks communicate by default, and among threads for plans of --loopback."""
        yield self.run(model, plan)
        if plan in self.args.loopback.split():
            yield self.run(model, plan, comm="loopback")
        if plan != "one" and (self.args.verify == ALL or plan in self.args.verify.split()):
            call(self.args.rankc, "verify", "--numeric", "-q", self.program(model, plan))

    def note(self, model, plan, result):
        self.results[os.path.basename(os.path.normpath(model)), plan] = result

    def write_table(self, path):
        """The results as a table of Markdown: the largest error as a share of the bound, per model and plan."""
        plans = list(dict.fromkeys(plan for _, plan in self.results))
        models = list(dict.fromkeys(model for model, _ in self.results))
        with open(path, "w") as table:
            table.write(HEAD)
            table.write("| model | " + " | ".join(plans) + " |\n|" + "---|" * (len(plans) + 1) + "\n")
            for model in models:
                table.write(f"| {model} | " + " | ".join(self.results.get((model, p), "") for p in plans) + " |\n")

    def check(self, model, plans):
        want = load(os.path.join(model, "outputs"))
        exact = one = None
        failures = 0
        for plan in plans:
            try:
                if exact is None:
                    exact = self.run(model, "one", "--dtype=f64", kernels="reference", target="c")
                    one = self.run(model, "one")
                worst = max(self.compare(want, exact, one, got) for got in ([one] if plan == "one" else self.checks(model, plan)))
                if plan.startswith("rows"):
                    self.compare_bits(model, plan)
                self.note(model, plan, f"{worst:.2f}")
                print(f"ok   {model} {plan}  {worst:.2f} of the bound")
            except Failed as failure:
                failures += 1
                self.note(model, plan, "**failed**")
                print(f"FAIL {model} {plan}: {failure}")
            sys.stdout.flush()
        return failures

    def compare_bits(self, model, plan):
        """One rank's bits, with reference kernels."""
        one, got = (self.run(model, p, kernels="reference") for p in ("one", plan))
        for name in one:
            if one[name].tobytes() != got[name].tobytes():
                raise Failed(f"{name}: other bits than one rank's")

    @staticmethod
    def compare(want, exact, one, got):
        """The largest error as a share of DESIGN 8's bound; Failed if an output is wrong."""
        worst = 0.0
        if set(want) != set(got):
            raise Failed(f"outputs {sorted(got)}, expected {sorted(want)}")
        for name, value in want.items():
            mine, ref = got[name], exact[name]
            if mine.shape != value.shape or mine.dtype != value.dtype:
                raise Failed(f"{name}: {mine.dtype}{mine.shape}, expected {value.dtype}{value.shape}")
            if not np.allclose(mine, value, rtol=1e-4, atol=1e-5, equal_nan=True):
                raise Failed(f"{name}: differs from PyTorch by {np.abs(mine.astype('f8') - value.astype('f8')).max():g}")
            if value.dtype.kind != "f" or not value.size:
                continue
            finite = np.isfinite(ref)
            distance = lambda x: np.abs(x.astype("f8") - ref)[finite].max() if finite.any() else 0.0
            bound = bound_of(distance(one[name]), np.abs(ref[finite]).max(initial=0), np.finfo(value.dtype).eps)
            if distance(mine) > bound:
                raise Failed(f"{name}: error {distance(mine):g} is above the bound {bound:g}")
            worst = max(worst, distance(mine) / bound if bound else 0)
        return worst


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--target", default="c")
    parser.add_argument("--kernels", default="auto")
    parser.add_argument("--plans", default="one dp2 data2 tp2 tp3 tp4")
    parser.add_argument("--work")
    parser.add_argument("--comm")
    parser.add_argument("--verify", nargs="?", const=ALL, default="", metavar="PLANS", help="run `rankc verify --numeric` on these, or on all")
    parser.add_argument("--loopback", default="", metavar="PLANS", help="run these as threads of one process, too")
    parser.add_argument("--table", help="write the results to this file, as Markdown")
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    work = args.work or tempfile.mkdtemp(prefix="rankc-sweep-")
    sweep = Sweep(args, work)
    failures = sum(sweep.check(model, args.plans.split()) for model in args.models)
    if args.table:
        sweep.write_table(args.table)
    if not args.work:
        shutil.rmtree(work)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
