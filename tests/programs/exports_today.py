#!/usr/bin/env python3
"""Compiles and runs exports of the newest tools under plans, compares with PyTorch, and writes docs/measured/exports-today.md.

    exports_today.py --rankc RANKC --results FILE.jsonl [--plans PLAN..] [--jobs N] [--timeout SECONDS] [--table PAGE.md] [DIR...]

DIR is a folder that one of the scripts tests/models/export_*today.py writes. Each result is appended to FILE.jsonl
at once: the same command goes on where it stopped. An entry that is to be measured again is deleted from the file first.

ref is the graph in f64 on one rank with reference kernels. Three comparisons hold for every output:
  - PyTorch's output is near ref: max|pytorch - ref| <= 1e-4 max|ref| + 1e-5; so the graph means what PyTorch computes.
  - One rank equals PyTorch: every element within rtol 1e-4 and atol 1e-5, or the largest error within DESIGN 8's bound
    with PyTorch in place of one rank: max|one - ref| <= 2 max|pytorch - ref| + 8 eps max|ref|.
  - A plan equals one rank by that bound: max|plan - ref| <= 2 max|one - ref| + 8 eps max|ref|.
Integers and booleans are equal. A plan is also proved by `rankc verify`. Exits 1 if an export is refused or not equal."""
import collections
import concurrent.futures
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_plans import plan_of  # noqa: E402
from rankc_test import bound_of, given, parser_of  # noqa: E402

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "models"))
import recognised  # noqa: E402

PLANS = ["one", "tp2", "tp4", "pp2", "tp2data2pp2"]
KINDS = {**recognised.KINDS, "experts": ("ExpertMatMul",), "recurrences": ("Recurrence",)}
EQUAL = "equal"


class Outcome(Exception):
    """Why an export is not equal: `status` is refused, failed, differs or timeout."""

    def __init__(self, status, said):
        super().__init__(said)
        self.status, self.said = status, said


class Export:
    """One folder, its programs in a temporary directory, and a deadline for each call."""

    def __init__(self, rankc, folder, work, timeout):
        self.rankc, self.folder, self.work, self.timeout = rankc, folder, work, timeout
        self.model = os.path.join(folder, "model.onnx")
        self.ref = self.one = None

    def call(self, status, *command):
        # The whole session is ended at the deadline: a run has a process for each rank.
        process = subprocess.Popen([self.rankc, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True)
        try:
            out, said = process.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            raise Outcome("timeout", f"rankc {command[0]} took more than {self.timeout} s")
        if process.returncode:
            lines = [line for line in said.strip().splitlines() if line]
            raise Outcome(status, lines[0].replace(self.folder, ".") if lines else f"exit {process.returncode}")
        return out

    def compile(self, name, plan, *extra):
        """The program's directory, and the CPU seconds of `rankc compile`. A plan is verified."""
        out = os.path.join(self.work, name)
        before = cpu_seconds()
        self.call("refused", "compile", self.model, "-o", out, "-q", *plan, *extra)
        seconds = cpu_seconds() - before
        if plan:
            self.call("failed", "verify", "-q", out)
        return out, seconds

    def run(self, out, inputs, kernels="auto"):
        self.call("failed", "run", out, "--output-dir", out + "/out", "--kernels", kernels, "--threads", "1", *given(inputs))
        return load(out + "/out")

    def outputs(self, name, plan, *extra, kernels="auto"):
        """The outputs under a plan, and the CPU seconds of `rankc compile`."""
        out, seconds = self.compile(name, plan, *extra)
        got = self.run(out, os.path.join(self.folder, "inputs"), kernels)
        shutil.rmtree(out)
        return got, seconds

    def weights(self, plan):
        """Bytes of weights of the rank with most of them."""
        shown = json.loads(self.call("refused", "show", self.model, "--json", "-q", *plan))
        return max(rank["memory"]["weights"] for rank in shown["ranks"])

    def check(self, name):
        """The largest error as a share of its bound, the share of weights, and the CPU seconds of the compilation."""
        plan = plan_of(name).options
        if self.ref is None:
            self.one, one_seconds = self.outputs("one", [])
            self.ref, _ = self.outputs("ref", [], "--dtype=f64", kernels="reference")
        got, seconds = (self.one, one_seconds) if name == "one" else self.outputs(name, plan)
        wanted = load(os.path.join(self.folder, "outputs"))
        if set(wanted) != set(got):
            raise Outcome("differs", f"outputs {sorted(got)}, expected {sorted(wanted)}")
        worst = max(compare(key, value, self.ref[key], self.one[key], got[key], name == "one") for key, value in wanted.items())
        whole = self.weights([])
        return {"status": EQUAL, "worst": round(worst, 3), "share": round(self.weights(plan) / whole, 3) if whole else 1.0,
                "seconds": round(seconds, 2)}


def cpu_seconds():
    """Of the processes that this one has started and waited for, and theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def load(folder):
    return {file[:-4]: np.load(os.path.join(folder, file)) for file in sorted(os.listdir(folder)) if file.endswith(".npy")}


def compare(name, pytorch, ref, one, got, is_one):
    """The error of `got` as a share of its bound, 0 for integers; an Outcome if it is not equal."""
    if got.shape != pytorch.shape or got.dtype != pytorch.dtype:
        raise Outcome("differs", f"{name}: {got.dtype}{got.shape}, expected {pytorch.dtype}{pytorch.shape}")
    if pytorch.dtype.kind != "f":
        if not np.array_equal(got, pytorch):
            raise Outcome("differs", f"{name}: {np.count_nonzero(got != pytorch)} of {got.size} elements differ from PyTorch")
        return 0.0
    finite = np.isfinite(ref)
    if not all(np.array_equal(np.isfinite(value), finite) for value in (pytorch, got)):
        raise Outcome("differs", f"{name}: infinities or NaN are not where PyTorch has them")
    largest = np.abs(ref[finite]).max(initial=0)
    error = lambda value: np.abs(value.astype("f8") - ref)[finite].max(initial=0)
    if error(pytorch) > 1e-4 * largest + 1e-5:
        raise Outcome("differs", f"{name}: PyTorch differs from the graph in f64 by {error(pytorch):g}, the largest value is {largest:g}")
    bound = bound_of(error(pytorch if is_one else one), largest, np.finfo(pytorch.dtype).eps)
    near = is_one and np.allclose(got, pytorch, rtol=1e-4, atol=1e-5, equal_nan=True)
    if error(got) > bound and not near:
        raise Outcome("differs", f"{name}: error {error(got):g} is above the bound {bound:g}, the largest value is {largest:g}")
    return error(got) / bound if bound else 0.0


def results_of(options, folder, plans):
    """A result for each plan of one export that has none yet."""
    name = os.path.basename(os.path.normpath(folder))
    with tempfile.TemporaryDirectory(prefix="rankc-exports-") as work:
        export = Export(options.rankc, folder, work, options.timeout)
        for plan in plans:
            try:
                result = export.check(plan)
                if plan == "one":
                    result["counts"], _ = recognised.recognised(options.rankc, pathlib.Path(folder), KINDS)
            except Outcome as outcome:
                result = {"status": outcome.status, "said": outcome.said}
            yield {"export": name, "plan": plan, **result}


def sweep(results_of, options, folder, plans):
    """Appends the results of an export to the file, each in one write."""
    started = time.time()
    failures = 0
    for result in results_of(options, folder, plans):
        with open(options.results, "a") as file:
            file.write(json.dumps(result) + "\n")
        failures += result["status"] != EQUAL
        print(f"{result['export']} {result['plan']}: {result['status']} {result.get('worst', result.get('said'))} "
              f"({time.time() - started:.0f} s)", flush=True)
    return failures


# ---- table ----------------------------------------------------------------------------------------------------------

HEAD = """# Exports of today

Does rankc compile the models that PyTorch exports today? Here are small models with random weights, exported by the newest
tools, compiled under plans and compared with PyTorch. This page is written by `tests/programs/exports_today.py --table`,
which says how results are compared. `dynamo` is the default exporter of PyTorch 2.15, `legacy` is `dynamo=False`. Models are
those of transformers 5.23, torchvision 0.29, diffusers 0.42, and modules of PyTorch. Mixtures of experts are transformers' with `_experts_implementation` "batched_mm" or "eager".
<!-- not run: they take hours and need PyTorch -->

    python3 tests/models/export_today.py --out models --forms dynamo,legacy
    python3 tests/models/export_modules_today.py --out models --forms dynamo,legacy
    python3 tests/models/export_diffusers_today.py --out models --forms dynamo,legacy
    python3 tests/models/export_mixtures_today.py --out models --forms dynamo,legacy
    python3 tests/models/export_families_today.py --out models --forms dynamo
    python3 tests/programs/exports_today.py --rankc build/frontend/rankc --results exports.jsonl --table docs/measured/exports-today.md models/*/

{summary}

The column of a plan has the share of the model's weights that the fullest rank holds, if the outputs are equal, else what is
wrong. "hybrid 8" is `hybrid:tensor=2,data=2,pipeline=2`. "error" is the largest error on one rank as a share of its bound; above
1, all elements are within rtol 1e-4 and atol 1e-5. "compile" is CPU seconds of `rankc compile` for one rank, the C compiler at -O1 included. The operators are those after pass
`recognise`: a attention, n norms (LayerNorm, RMSNorm), r rotary embeddings, f activation functions, e products of experts,
u recurrences.
"""
LETTERS = {"attention": "a", "norms": "n", "rope": "r", "activations": "f", "experts": "e", "recurrences": "u"}


def latest(path):
    """The results by export and plan; the last of several counts."""
    results = collections.defaultdict(dict)
    if os.path.exists(path):
        with open(path) as lines:
            for line in map(json.loads, lines):
                results[line["export"]][line["plan"]] = line
    return results


def cell(results, plan):
    result = results.get(plan)
    if not result:
        return ""
    return f"{result['share']:.2f}" if result["status"] == EQUAL else f"**{result['status']}**"


def summary_of(results):
    ones = [plans["one"] for plans in results.values() if "one" in plans]
    equal = sum(one["status"] == EQUAL for one in ones)
    split = [plan for plans in results.values() for name, plan in plans.items()
             if name != "one" and plans.get("one", {}).get("status") != "refused"]
    return (f"{equal} of {len(ones)} exports equal PyTorch on one rank ({100 * equal / max(1, len(ones)):.1f} %), and "
            f"{sum(plan['status'] == EQUAL for plan in split)} of {len(split)} results of plans with several ranks are equal.")


def write_table(path, results):
    with open(path, "w") as page:
        page.write(HEAD.replace("{summary}", summary_of(results)) + "\n")
        page.write("| export | error | " + " | ".join(PLANS[1:]) + " | operators | compile |\n" + "|---" * (len(PLANS) + 3) + "|\n")
        wrong = {}
        for name, plans in sorted(results.items()):
            one = plans.get("one", {})
            found = " ".join(f"{count} {LETTERS[kind]}" for kind, count in one.get("counts", {}).items() if count)
            error = f"{one['worst']:.2f}" if one.get("status") == EQUAL else f"**{one.get('status', '')}**"
            cells = " | ".join(cell(plans, plan) for plan in PLANS[1:])
            page.write(f"| {name} | {error} | {cells} | {found} | {one.get('seconds', '')} |\n")
            for plan, result in plans.items():
                if result["status"] != EQUAL:
                    wrong.setdefault((name, result["said"]), []).append(plan)
        if wrong:
            page.write("\n## Not equal\n\nThe exports of mixtures of experts whose names have `eager_legacy` hold the routing of the "
                       "example, in numbers:\nthe legacy exporter traced a loop over the experts that the example chose.\n\n")
            page.writelines(f"- {name} ({', '.join(plans)}): {said}\n" for (name, said), plans in wrong.items())


def arguments(doc, plans):
    parser = parser_of(doc)
    parser.add_argument("--results", required=True, help="one JSON object per line; appended to")
    parser.add_argument("--plans", nargs="+", choices=plans, default=plans)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=int, default=300, help="seconds for each call of rankc")
    parser.add_argument("--table", help="write the page of all results in the file")
    parser.add_argument("folders", metavar="DIR", nargs="*")
    return parser


def measured(options, results_of):
    """All results, after those that are missing were measured: results_of(options, folder, plans) yields them."""
    os.environ.setdefault("CFLAGS", "-O1")  # results do not depend on it
    done = latest(options.results)
    todo = []
    for folder in options.folders:
        plans = [plan for plan in options.plans if plan not in done[os.path.basename(os.path.normpath(folder))]]
        if plans and os.path.exists(os.path.join(folder, "model.onnx")):
            todo.append((folder, plans))
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        for future in [pool.submit(sweep, results_of, options, *row) for row in todo]:
            future.result()
    return {name: plans for name, plans in latest(options.results).items() if plans}


def main():
    options = arguments(__doc__, PLANS).parse_args()
    results = measured(options, results_of)
    print(summary_of(results))
    if options.table:
        write_table(options.table, results)
    return any(plan["status"] != EQUAL for plans in results.values() for plan in plans.values())


if __name__ == "__main__":
    sys.exit(main())
