#!/usr/bin/env python3
"""Compiles exports with open dimensions once, runs them at five sizes, and writes docs/measured/sizes-sweep.md.

    exports_open.py --rankc RANKC --results FILE.jsonl [--plans PLAN..] [--jobs N] [--timeout SECONDS] [--bits]
                    [--table PAGE.md] [DIR...]

DIR is a folder that a script tests/models/export_*today.py writes with --dynamic: `dims` has the bounds. Each plan is compiled
and verified once with them, and run with each dimension at LO, at HI, at a prime, at TYPICAL and at a random size. Under data2
the batch has a step of 2. Results are appended as by exports_today.py, one for each export and plan. A size is right if
  - every element is within rtol 1e-4 and atol 1e-5 of ONNX Runtime's, integers and booleans equal ("ort"); else
  - the program compiled for that size alone gives the same to the bit, both with reference kernels ("bits"); else
  - the error is within DESIGN 8's bound: max|open - ref| <= 2 max|fixed - ref| + 8 eps max|ref|, where fixed is the program of one
    rank compiled for that size alone and ref the same in f64 with reference kernels ("bound"). It is itself within 1e-4 of the largest
    value of ref, or as near to it as ONNX Runtime is.
--bits also asks for "bits" at the prime size where "ort" holds. Exits 1 if a result differs; what is refused is listed."""
import collections
import os
import re
import shutil
import sys
import tempfile

import numpy as np

import exports_today
from exports_today import EQUAL, Export, Outcome, load
from rankc_plans import plan_of
from rankc_test import bound_of, needed

sys.path.insert(0, os.path.join(exports_today.HERE, "..", "models"))
import open_sizes  # noqa: E402

with needed():
    import onnxruntime

PLANS = ["one", "tp2", "pp2", "data2"]
SIZES = ["LO", "HI", "prime", "TYPICAL", "random"]


def prime_of(span, taken):
    """The greatest prime among the sizes that is no bound, not typical and not taken, else the greatest such size."""
    sizes = range(span.most, span.least - 1, -span.step)
    free = [size for size in sizes if size not in (span.least, span.most, span.typical, *taken)] or sizes
    return next((size for size in free if size > 1 and all(size % n for n in range(2, size))), free[0])


def five_sizes(spans, random):
    """Name of the choice -> name of the dimension -> size."""
    primes = {}
    for dim, span in spans.items():
        primes[dim] = prime_of(span, primes.values())
    drawn = {dim: span.least + span.step * int(random.integers(0, (span.most - span.least) // span.step + 1)) for dim, span in spans.items()}
    choices = [{dim: span.least for dim, span in spans.items()}, {dim: span.most for dim, span in spans.items()}, primes,
               {dim: span.typical for dim, span in spans.items()}, drawn]
    return dict(zip(SIZES, choices))


def options_of(dims):
    return [word for dim, size in dims.items() for word in ("--dim", f"{dim}={size}")]


def session_of(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


class OpenExport(Export):
    """A folder with its spans. Inputs of the sizes and ONNX Runtime's outputs for them are kept for all plans."""

    def __init__(self, options, folder, work):
        super().__init__(options.rankc, folder, work, options.timeout)
        self.bits = options.bits
        with open(os.path.join(folder, "dims"), encoding="utf-8") as file:
            self.spans = open_sizes.spans_of(file.read())
        self.example = load(os.path.join(folder, "inputs"))
        self.session, self.known = None, {}

    def spans_under(self, plan):
        """None: the plan cuts a batch that is not open."""
        if plan != "data2":
            return self.spans
        if "batch" not in self.spans:
            return None
        most = max(4, self.spans["batch"].most // 2 * 2)
        return {**self.spans, "batch": open_sizes.Span(2, most, 2, 2)}

    def given(self, sizes):
        """The folder of inputs of these sizes, and what ONNX Runtime makes of them, None where it fails."""
        key = "_".join(f"{dim}{size}" for dim, size in sizes.items())
        if key not in self.known:
            folder = os.path.join(self.work, "inputs_" + key)
            os.makedirs(folder)
            inputs = open_sizes.resized(self.example, sizes, np.random.default_rng(list(key.encode())))
            for name, array in inputs.items():
                np.save(os.path.join(folder, name + ".npy"), array)
            self.known[key] = folder, self.onnx_runtime(inputs)
        return self.known[key]

    def onnx_runtime(self, inputs):
        try:
            self.session = self.session or session_of(self.model)
            names = [output.name for output in self.session.get_outputs()]
            return dict(zip(names, self.session.run(None, {given.name: inputs[given.name] for given in self.session.get_inputs()})))
        except Exception:  # ONNX Runtime's own
            return None

    def fixed(self, sizes, folder, plan, *extra, kernels="auto"):
        """Outputs of the program compiled for these sizes alone."""
        out, _ = self.compile("fixed", plan, *options_of(sizes), *extra)
        got = self.run(out, folder, kernels)
        shutil.rmtree(out)
        return got

    def how_equal(self, out, plan, sizes, bits):
        """By which of the three comparisons the outputs at these sizes are right."""
        folder, wanted = self.given(sizes)
        got = self.run(out, folder)
        if wanted and near(wanted, got) and not bits:
            return "ort"
        exact = self.run(out, folder, "reference")
        fixed = self.fixed(sizes, folder, plan, kernels="reference")
        if all(name in exact and exact[name].shape == value.shape and exact[name].tobytes() == value.tobytes()
               for name, value in fixed.items()):
            return "bits"
        ref = self.fixed(sizes, folder, [], "--dtype=f64", kernels="reference")
        one = self.fixed(sizes, folder, [])
        for name, value in one.items():
            check_bound(name, got[name], value, ref[name], (wanted or {}).get(name))
        return "bound"

    def check(self, plan):
        """The result of a plan: its status is the first of its sizes that is not equal."""
        spans = self.spans_under(plan)
        words = plan_of(plan).options if plan != "one" else []
        out, seconds = self.compile("open", words, *options_of(spans))
        rows = []
        for choice, sizes in five_sizes(spans, np.random.default_rng(list(self.folder.encode()))).items():
            row = {"choice": choice, "sizes": sizes, "status": EQUAL}
            try:
                row["how"] = self.how_equal(out, words, sizes, self.bits and choice == "prime")
            except Outcome as outcome:
                row |= {"status": outcome.status, "said": outcome.said}
            rows.append(row)
        wrong = next((row for row in rows if row["status"] != EQUAL), None)
        said = {"said": wrong["said"]} if wrong else {"worst": " ".join(row["how"] for row in rows)}
        return {"status": wrong["status"] if wrong else EQUAL, **said, "rows": rows, "seconds": round(seconds, 2)}


def check_bound(name, got, one, ref, wanted):
    """Raises the Outcome of a result that is not within the bound. `wanted`: ONNX Runtime's result, or None."""
    if got.shape != one.shape or got.dtype != one.dtype:
        raise Outcome("differs", f"{name}: {got.dtype}{got.shape}, expected {one.dtype}{one.shape}")
    if one.dtype.kind != "f":
        if not np.array_equal(got, one):
            raise Outcome("differs", f"{name}: {np.count_nonzero(got != one)} of {got.size} elements differ")
        return
    finite = np.isfinite(ref)
    if not all(np.array_equal(np.isfinite(value), finite) for value in (one, got)):
        raise Outcome("differs", f"{name}: infinities or NaN are elsewhere")
    largest = np.abs(ref[finite]).max(initial=0)
    error = lambda value: np.abs(value.astype("f8") - ref)[finite].max(initial=0)
    if error(one) > max(1e-4 * largest + 1e-5, 0 if wanted is None else error(wanted)):
        raise Outcome("differs", f"{name}: one rank differs from f64 by {error(one):g}, the largest value is {largest:g}")
    bound = bound_of(error(one), largest, np.finfo(one.dtype).eps)
    if error(got) > bound:
        raise Outcome("differs", f"{name}: error {error(got):g} is above the bound {bound:g}, the largest value is {largest:g}")


def near(wanted, got):
    return wanted.keys() == got.keys() and all(
        got[name].shape == value.shape and got[name].dtype == value.dtype and
        (np.allclose(got[name], value, 1e-4, 1e-5, equal_nan=True) if value.dtype.kind == "f" else np.array_equal(got[name], value))
        for name, value in wanted.items())


def results_of(options, folder, plans):
    """A result for each plan of one export that has none yet."""
    name = os.path.basename(os.path.normpath(folder))
    for plan in plans:
        with tempfile.TemporaryDirectory(prefix="rankc-open-") as work:
            export = OpenExport(options, folder, work)
            if export.spans_under(plan) is None:
                continue
            try:
                result = export.check(plan)
            except Outcome as outcome:
                result = {"status": outcome.status, "said": outcome.said}
            yield {"export": name, "plan": plan, **result}


# ---- table ----------------------------------------------------------------------------------------------------------

HEAD = """# Exports with open sizes

Does a program that is compiled once with bounds compute what one compiled for each size computes? Here are the models of
[exports-today.md](exports-today.md), and models that are used at many sizes, exported with dynamic batch and sequence, or batch, height
and width. This page is written by `tests/programs/exports_open.py --table`, which says how results are compared.
<!-- not run: they take hours and need PyTorch -->

    python3 tests/models/export_today.py --dynamic --out models --forms dynamo,legacy
    python3 tests/models/export_modules_today.py --dynamic --out models --forms dynamo,legacy
    python3 tests/models/export_diffusers_today.py --dynamic --out models --forms dynamo,legacy
    python3 tests/models/export_mixtures_today.py --dynamic --out models --forms dynamo,legacy
    python3 tests/models/export_families_today.py --dynamic --out models --forms dynamo
    python3 tests/models/export_open_today.py --dynamic --out models --forms dynamo,legacy
    python3 tests/programs/exports_open.py --rankc build/frontend/rankc --results open.jsonl --table docs/measured/sizes-sweep.md models/*/

Of the exports there, and of others that the exporters refuse:

{exports}

{summary}

A cell has the sizes of five that are equal, and what is wrong with the others. "data 2" cuts the batch, whose bounds then have a step of 2.
"""


def sizes_of(result):
    """The status of each of the five sizes."""
    return [row["status"] for row in result["rows"]] if "rows" in result else [result["status"]] * len(SIZES)


def cell(result):
    if not result:
        return ""
    counts = collections.Counter(sizes_of(result))
    return ", ".join(f"{counts[EQUAL]}" if status == EQUAL else f"**{count} {status}**" for status, count in counts.most_common())


def summary_of(results):
    lines = []
    for plan in PLANS:
        found = [plans[plan] for plans in results.values() if plan in plans]
        counts = collections.Counter(status for result in found for status in sizes_of(result))
        how = collections.Counter(row.get("how") for result in found for row in result.get("rows", []))
        total = sum(counts.values())
        lines.append(f"| {plan} | {len(found)} | {total} | {counts[EQUAL]} ({100 * counts[EQUAL] / max(1, total):.1f} %) | "
                     f"{how['ort']} / {how['bits']} / {how['bound']} | {counts['refused']} | {total - counts[EQUAL] - counts['refused']} |")
    head = "| plan | exports | sizes | equal | by ort / bits / bound | refused | wrong |\n" + "|---" * 7 + "|\n"
    return head + "\n".join(lines)


def kind_of(said):
    """A message without what is of one model."""
    said = re.sub(r"^rankc: |^rank \d+: ", "", said)
    said = re.sub(r"'[^']*'|\"[^\"]*\"", "'..'", said)
    return re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?", "#", re.sub(r"\[E\d+\]", lambda code: code[0].translate(DIGITS), said)).translate(BACK)


DIGITS = {ord(str(n)): chr(0x2080 + n) for n in range(10)}  # codes of errors keep theirs
BACK = {found: chr(digit) for digit, found in ((digit, ord(found)) for digit, found in DIGITS.items())}


def failures_of(results):
    """(status, kind of message) -> plan -> exports."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for name, plans in sorted(results.items()):
        for plan, result in plans.items():
            wrong = [row for row in result.get("rows", [result]) if row["status"] != EQUAL]
            for key in {(row["status"], kind_of(row["said"])) for row in wrong}:
                found[key][plan].append(name)
    return sorted(found.items(), key=lambda item: -sum(map(len, item[1].values())))


def exports_in(folders):
    """What the exporters made of the models, from what they left in the folders."""
    import dynamic
    import pathlib
    counts = dynamic.counts_of([pathlib.Path(folder) for folder in folders])
    with open(os.path.join(exports_today.HERE, "..", "..", "docs", "measured", "exports-today.md"), encoding="utf-8") as page:
        today = set(re.findall(r"^\| (\w[^ |]*) \|", page.read(), re.M)) - {"export"}
    counts["not tried yet"] = len(today - {os.path.basename(os.path.normpath(folder)) for folder in folders})
    return "\n".join(f"- {count} {words}" for words, count in sorted(counts.items()) if count)


def write_table(path, results, folders):
    with open(path, "w", encoding="utf-8") as page:
        page.write(HEAD.replace("{summary}", summary_of(results)).replace("{exports}", exports_in(folders)) + "\n")
        page.write("| export | " + " | ".join(PLANS) + " | compile |\n" + "|---" * (len(PLANS) + 2) + "|\n")
        for name, plans in sorted(results.items()):
            page.write(f"| {name} | " + " | ".join(cell(plans.get(plan)) for plan in PLANS) + f" | {plans.get('one', {}).get('seconds', '')} |\n")
        failures = failures_of(results)
        page.write("\n## Not equal\n\n" if failures else "")
        for (status, kind), plans in failures:
            where = "; ".join(f"{plan}: {len(names)} exports ({', '.join(names[:6])}{', ..' if len(names) > 6 else ''})"
                              for plan, names in plans.items())
            page.write(f"- {status}: {kind} - {where}\n")


def main():
    parser = exports_today.arguments(__doc__, PLANS)
    parser.add_argument("--bits", action="store_true", help="compare to the bit with the program of the prime size, always")
    options = parser.parse_args()
    results = exports_today.measured(options, results_of)
    print(summary_of(results))
    if options.table:
        write_table(options.table, results, options.folders)
    return any(status not in (EQUAL, "refused") for plans in results.values() for plan in plans.values() for status in sizes_of(plan))


if __name__ == "__main__":
    sys.exit(main())
