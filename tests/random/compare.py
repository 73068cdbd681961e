"""Compiles and runs a model of random graphs under a plan, and compares what the ranks give. Needs NumPy, no ONNX.

A case is a directory: model.onnx, arrays.npz with the inputs "x0", "x1", .. and what is expected of the outputs, "y0", .. (floats in
f64), and case.json, which has their names, the outputs' types, and how far from the expected values a right result may be
(expected.py).
"""
import json
import os
import random
import re
import sys

import numpy as np

from shuffle import shuffled

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import rankc_test  # noqa: E402
from rankc_plans import plan_of  # noqa: E402

PLANS = ["one", "tp2", "tp3", "data2", "pp2", "tp2pp2", "search", "searched_stages"]
SEARCHES = {
    "search": ["--pas", "autodist", "--plan-ngpus", "4", "--machine", "h100"],
    "searched_stages": ["--pas", "autodist", "--plan-ngpus", "3", "--require", "pipeline=3"],
}
SECONDS = 300  # for a model of many graphs on a machine that does other things too


class Failure(Exception):
    """A command failed: what it was, its exit status and its last words."""

    def __init__(self, kind, why, status=None):
        super().__init__(f"{kind}: {why}")
        self.kind, self.status = kind, status

    refused = property(lambda self: self.status in (4, 5))  # not supported, or no such plan: valid, but not here


def call(kind, command):
    quick = {"CFLAGS": os.environ.get("CFLAGS", "-O0")}  # what is compiled once and run once need not be fast
    try:
        done = rankc_test.call(*command, status=None, timeout=SECONDS, env=quick)
    except rankc_test.Failed:
        raise Failure(kind, f"takes longer than {SECONDS} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        errors = [line for line in lines if re.search(r"error\b|BUG|-->", line)] or lines[-3:]
        raise Failure(kind, f"exit {done.returncode}: " + " ".join(errors)[:600], done.returncode)


class Case:
    def __init__(self, directory):
        self.directory = directory
        with open(os.path.join(directory, "case.json")) as file:
            self.names = json.load(file)
        with np.load(os.path.join(directory, "arrays.npz")) as arrays:
            self.arrays = dict(arrays)

    def with_shuffled_nodes(self, directory, seed):
        """A case of the same graph with its nodes in another order, and so the same results."""
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(self.directory, "model.onnx"), "rb") as file, open(os.path.join(directory, "model.onnx"), "wb") as to:
            to.write(shuffled(file.read(), random.Random(seed)))
        case = Case(self.directory)
        case.directory = directory
        return case

    def check_shuffled(self, rankc, plan, out, seed):
        """(output, what is wrong with it) of those that are not, to the bit, what the model gives with its nodes in order."""
        wanted = self.run(rankc, plan, out)
        got = self.with_shuffled_nodes(out + ".model", seed).run(rankc, plan, out + ".shuffled")
        return [(name, "differs from that of the model with its nodes in order") for name, array in wanted.items()
                if got[name].dtype != array.dtype or got[name].shape != array.shape or got[name].tobytes() != array.tobytes()]

    def compile(self, rankc, plan, out, *options):
        call("compile", [rankc, "compile", os.path.join(self.directory, "model.onnx"), "-o", out, "-q", "--reuse", "override",
                         *(SEARCHES.get(plan) or plan_of(plan).options), *options])

    def run(self, rankc, plan, out):
        """Outputs by name."""
        self.compile(rankc, plan, out)
        return self.run_compiled(rankc, out, self.arrays)

    def run_compiled(self, rankc, out, arrays):
        command = [rankc, "run", out, "--output-dir", out + "/out", "--comm", "loopback", "--threads", "1"]
        for i, name in enumerate(self.names["inputs"]):
            np.save(f"{out}/x{i}.npy", arrays[f"x{i}"])
            command += ["--input", f"{name}={out}/x{i}.npy"]
        call("run", command)
        with open(out + "/out/outputs.json") as file:
            listed = json.load(file)["outputs"]
        return {entry["name"]: np.load(os.path.join(out, "out", entry["file"])) for entry in listed}

    def check(self, rankc, plan, out):
        """(output, what is wrong with it) of those that are not right. Failure: there are none."""
        return wrong_in(self.run(rankc, plan, out), self.arrays, self.names["outputs"])


class OpenCase(Case):
    """A model with open dimensions: compiled once, with the bounds case.json has, and run at each of its choices of sizes."""

    def compile(self, rankc, plan, out, *options):
        bounds = [word for dim, (least, most) in self.names["dims"].items() for word in ("--dim", f"{dim}={least}..{most}")]
        super().compile(rankc, plan, out, *bounds, *options)

    def check(self, rankc, plan, out):
        wrong = {}  # by output, at the first sizes at which it is
        self.compile(rankc, plan, out)
        for k, choice in enumerate(self.names["choices"]):
            arrays = {name.removesuffix(f"@{k}"): array for name, array in self.arrays.items() if name.endswith(f"@{k}")}
            at = " ".join(f"{dim}={size}" for dim, size in choice["sizes"].items())
            try:
                found = wrong_in(self.run_compiled(rankc, out, arrays), arrays, choice["outputs"])
            except Failure as failure:  # not a Failure of the whole: other sizes may be right
                found = [(choice["outputs"][0]["name"], failure)]
            for name, why in found:
                wrong.setdefault(name, f"{why} at {at}")
        return list(wrong.items())


def case_of(directory):
    """The case that is recorded there."""
    case = Case(directory)
    return OpenCase(directory) if "dims" in case.names else case


def wrong_in(got, arrays, outputs):
    """(output, what is wrong with it) of those that are not right."""
    wrong = [(output["name"], difference(got.get(output["name"]), arrays[f"y{i}"], output)) for i, output in enumerate(outputs)]
    return [(name, why) for name, why in wrong if why]


def difference(got, wanted, output):
    """What is wrong with an output; None: nothing is."""
    if got is None:
        return "is not there"
    if got.shape != wanted.shape or got.dtype.name != output["dtype"]:
        return f"{got.dtype.name}{list(got.shape)}, expected {output['dtype']}{list(wanted.shape)}"
    if got.dtype.kind != "f":
        wrong = got != wanted
        return f"{int(wrong.sum())} of {got.size} elements differ" if wrong.any() else None
    finite = np.isfinite(wanted)
    if not np.array_equal(got[~finite], wanted[~finite].astype(got.dtype), equal_nan=True):
        return "what is not finite differs"
    if not finite.any():
        return None
    error = np.abs(got.astype("f8") - wanted)[finite].max()
    return None if error <= output["bound"] else f"error {error:g}, bound {output['bound']:g}"


def arrays_of(inputs, outputs, suffix=""):
    """As a case keeps them."""
    arrays = {f"x{i}{suffix}": np.asarray(array, order="C") for i, array in enumerate(inputs.values())}
    return arrays | {f"y{i}{suffix}": array for i, (array, _, _) in enumerate(outputs.values())}


def entries_of(outputs):
    return [{"name": name, "dtype": dtype, "bound": float(bound)} for name, (_, dtype, bound) in outputs.items()]


def write(directory, model, arrays, names):
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "model.onnx"), "wb") as file:
        file.write(model)
    np.savez_compressed(os.path.join(directory, "arrays.npz"), **arrays)
    with open(os.path.join(directory, "case.json"), "w") as file:
        json.dump(names, file, indent=1)
    return case_of(directory)


def write_case(directory, model, inputs, outputs):
    """`model`: bytes; `inputs`: arrays by name; `outputs`: (expected, type, bound) by name."""
    return write(directory, model, arrays_of(inputs, outputs), {"inputs": list(inputs), "outputs": entries_of(outputs)})


def write_open_case(directory, model, dims, choices):
    """`dims`: name -> (least, most); `choices`: (sizes by name, inputs, outputs) for each choice of sizes, as for write_case."""
    arrays = {name: array for k, (_, inputs, outputs) in enumerate(choices) for name, array in arrays_of(inputs, outputs, f"@{k}").items()}
    return write(directory, model, arrays, {"inputs": list(choices[0][1]), "dims": dims, "choices": [
        {"sizes": sizes, "outputs": entries_of(outputs)} for sizes, _, outputs in choices]})
