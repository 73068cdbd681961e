#!/usr/bin/python3
"""The ONNX backend tests as compiled programs: rankc compile, rankc run, and the outputs that ONNX expects.

    backend.py --rankc RANKC [--data DIR] [--table FILE.md] [--verbose] [TEST...]

DIR is the data of ONNX's backend tests (Debian: libonnx-testdata); a TEST is a directory below it, "node/test_relu"; without
any, all of node, simple, pytorch-operator and pytorch-converted. Outputs are compared with rtol 1e-3 and atol 1e-7, ONNX's own
bounds. Outcomes:
  passed        also "passed, bound": where an operand must be known to compile, it is given with --bind
  unsupported   exit status 4 with a reason
  needs --bind  as above, while rankc has no --bind
  bad data      the test's own tensors are not of the model's shapes, or not what the operator's text says
  failed        anything else: wrong values, any other exit status, a crash
Prints what failed and the counts; --table writes them as a document. The exit status is 1 if a test failed, 77 without the data
or python3-onnx."""
import argparse
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnx import numpy_helper
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

DATA = "/usr/share/libonnx-testdata/data"
GROUPS = ["node", "simple", "pytorch-operator", "pytorch-converted"]
RTOL, ATOL = 1e-3, 1e-7
OUTCOMES = ["passed", "passed, bound", "unsupported", "needs --bind", "bad data", "failed"]

# ONNX 1.12 computed these with an output length that is no whole number (2.4 for 0.6 x 4); ONNX Runtime excludes them too.
UNROUNDED = {"node/test_resize_downsample_scales_cubic_align_corners", "node/test_resize_downsample_scales_linear_align_corners"}

# Diagnostics that say: this must be known at compile time.
MUST_BE_KNOWN = {"E0343", "E0405", "E0409", "E0410"}


class Outcome(Exception):
    def __init__(self, kind, why=""):
        super().__init__(kind)
        self.kind, self.why = kind, why


def call(command):
    # what is compiled once and run once need not be fast
    environment = dict(os.environ, CFLAGS="-O0", NO_COLOR="1")
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120, env=environment)
    return done.returncode, done.stderr


def error_of(stderr):
    """The first error's code and text, a line."""
    found = re.search(r"error\[(E\d+)\]: (.*)", stderr)
    lines = stderr.strip().splitlines()
    return found.groups() if found else ("", lines[0] if lines else "no diagnostic")


class Test:
    def __init__(self, args, name, work):
        self.args, self.name, self.work = args, name, work
        self.directory = os.path.join(args.data, name)
        self.model = onnx.load(os.path.join(self.directory, "model.onnx"), load_external_data=False)
        given = {tensor.name for tensor in self.model.graph.initializer}
        self.inputs = [value for value in self.model.graph.input if value.name not in given]

    def operator(self):
        """What a test of one node tests: its last node that is more than a constant."""
        names = [node.op_type for node in self.model.graph.node if node.op_type != "Constant"]
        return names[-1] if names else "Constant"

    def data(self, number, kind, i):
        return os.path.join(self.directory, f"test_data_set_{number}", f"{kind}_{i}.pb")

    def tensor(self, number, kind, i, value):
        if value.type.WhichOneof("value") != "tensor_type":
            raise Outcome("unsupported", f"an {kind} is no tensor")
        with open(self.data(number, kind, i), "rb") as file:
            return numpy_helper.to_array(onnx.TensorProto.FromString(file.read()))

    def dims(self):
        """Sizes of the symbolic dimensions, from the first data set."""
        sizes = {}
        for i, value in enumerate(self.inputs):
            if value.type.WhichOneof("value") != "tensor_type" or not value.type.tensor_type.HasField("shape"):
                continue
            dims = value.type.tensor_type.shape.dim
            for dim, size in zip(dims, self.tensor(0, "input", i, value).shape if dims else ()):
                if dim.dim_param and size == 0:
                    raise Outcome("unsupported", f"dimension '{dim.dim_param}' of size 0")
                if dim.dim_param:
                    sizes.setdefault(dim.dim_param, size)
        return [option for name, size in sizes.items() for option in ("--dim", f"{name}={size}")]

    def files(self, number):
        return [(value, self.file(number, i, value)) for i, value in enumerate(self.inputs)]

    def file(self, number, i, value):
        """The input's file. ONNX 1.12 wrote bf16 as u16, which NumPy has: such a tensor is written anew."""
        path = self.data(number, "input", i)
        if value.type.WhichOneof("value") != "tensor_type":
            return path
        tensor, declared = self.tensor(number, "input", i, value), value.type.tensor_type
        sizes = [dim.dim_value for dim in declared.shape.dim]
        if declared.HasField("shape") and (len(sizes) != tensor.ndim or
                                           any(size and size != has for size, has in zip(sizes, tensor.shape))):
            raise Outcome("bad data", f"{value.name} is {list(tensor.shape)}, the model has {sizes}")
        if declared.elem_type == onnx.TensorProto.BFLOAT16 and tensor.dtype == np.uint16:
            path = os.path.join(self.work, f"input_{i}.npy")
            np.save(path, tensor.view("V2"))
        return path

    def compile(self):
        """Compiles; returns the names that had to be bound."""
        is_float = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
        integers = [value.name for value in self.inputs if value.type.tensor_type.elem_type not in is_float]
        for bound in [[], integers, [value.name for value in self.inputs]]:
            binds = [f"--bind={value.name}={path}" for value, path in self.files(0) if value.name in bound]
            status, stderr = call([self.args.rankc, "compile", os.path.join(self.directory, "model.onnx"), "-o",
                                   self.work, "-q", *self.dims(), *binds])
            code, text = error_of(stderr)
            if status == 0:
                return bound
            if code in MUST_BE_KNOWN and not self.args.can_bind:
                raise Outcome("needs --bind")
            if code not in MUST_BE_KNOWN:
                break
        raise Outcome("unsupported" if status == 4 else "failed", f"exit {status} {code} {text}")

    def run(self, number, bound):
        out = os.path.join(self.work, "out")
        inputs = [f"--input={value.name}={path}" for value, path in self.files(number) if value.name not in bound]
        status, stderr = call([self.args.rankc, "run", self.work, "--threads", "1", "--output-dir", out, *inputs])
        if status:
            raise Outcome("failed", f"run: exit {status} {' '.join(error_of(stderr))}")
        return out

    def compare(self, number, out):
        listed = {entry["name"]: entry["file"] for entry in json_of(out)["outputs"]}
        for i, value in enumerate(self.model.graph.output):
            expected = self.tensor(number, "output", i, value)
            got = np.load(os.path.join(out, listed[value.name]))
            self.compare_output(value, got, expected)

    def compare_output(self, value, got, expected):
        rtol = RTOL
        if value.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16:
            # NumPy has no such type: the upper halves of f32. ONNX 1.12 wrote the expected ones cut off, not rounded.
            got, expected = (np.asarray(x).view("<u2").astype("<u4") << 16 for x in (got, expected))
            got, expected, rtol = got.view("<f4"), expected.view("<f4"), 2.0 ** -7
        if got.shape != expected.shape or got.dtype != expected.dtype:
            raise Outcome("failed", f"{value.name}: {got.dtype}{got.shape}, expected {expected.dtype}{expected.shape}")
        if got.dtype.kind in "fc":
            same = np.allclose(got, expected, rtol=rtol, atol=ATOL, equal_nan=True)
        else:
            same = np.array_equal(got, expected)
        if not same and self.name in UNROUNDED:
            raise Outcome("bad data", f"{value.name}: of a length that is no whole number")
        if not same:
            raise Outcome("failed", f"{value.name}: other values")

    def check(self):
        try:
            bound, number = self.compile(), 0
            while os.path.isdir(os.path.join(self.directory, f"test_data_set_{number}")):
                self.compare(number, self.run(number, bound))
                number += 1
            return Outcome("passed, bound" if bound else "passed")
        except Outcome as outcome:
            return outcome
        except subprocess.TimeoutExpired:
            return Outcome("failed", "timeout")


def json_of(out):
    with open(os.path.join(out, "outputs.json")) as file:
        return json.load(file)


def check(args, name):
    with tempfile.TemporaryDirectory(prefix="rankc-backend-") as work:
        test = Test(args, name, work)
        outcome = test.check()
        return name, test.operator(), outcome


def reason(why):
    """A reason without what is particular to one model."""
    return re.sub(r"'[^']*'|\"[^\"]*\"", "...", re.sub(r"^exit \d+ ", "", why))


def counted(outcomes):
    counts = collections.Counter(outcome.kind for outcome in outcomes)
    return [counts[kind] for kind in OUTCOMES]


def table(results):
    """The document: counts by group, by operator, and reasons."""
    lines = ["# ONNX backend tests", "",
             "Written by `tests/programs/backend.py --table`. Every model of ONNX's backend tests that has reference data is",
             "compiled, run, and compared with rtol 1e-3 and atol 1e-7. \"passed, bound\" means that `--bind` gave the value of",
             "an operand that must be known at compile time; \"needs --bind\", that this was not tried. \"bad data\" means that",
             "the test's data contradicts the model's shapes or the operator's specification.", ""]
    head = ["| " + " | ".join(row) + " |" for row in (["tests", *OUTCOMES], ["---"] * (len(OUTCOMES) + 1))]
    row = lambda name, outcomes: "| " + " | ".join([name, *(str(n) if n else "" for n in counted(outcomes))]) + " |"
    groups, operators = collections.defaultdict(list), collections.defaultdict(list)
    for name, operator, outcome in results:
        groups[name.split("/")[0]].append(outcome)
        if name.startswith("node/"):
            operators[operator].append(outcome)
    lines += head + [row(group, groups[group]) for group in GROUPS if group in groups]
    lines += [row("all", [outcome for _, _, outcome in results]), "", "## Results by operator (single-node tests)", ""]
    lines += [head[0].replace("tests", "operator", 1), head[1]]
    lines += [row(operator, operators[operator]) for operator in sorted(operators)]
    reasons = collections.Counter(reason(outcome.why) for _, _, outcome in results if outcome.kind == "unsupported")
    lines += ["", "## Reasons for unsupported models", "", "| models | reason |", "| --- | --- |"]
    lines += [f"| {n} | {why} |" for why, n in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))]
    return "\n".join(lines) + "\n"


def all_tests(data):
    return [f"{group}/{name}" for group in GROUPS for name in sorted(os.listdir(os.path.join(data, group)))
            if os.path.exists(os.path.join(data, group, name, "model.onnx"))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--data", default=DATA)
    parser.add_argument("--table", metavar="FILE")
    parser.add_argument("--verbose", action="store_true", help="say what is not supported, too")
    parser.add_argument("tests", nargs="*", metavar="TEST")
    args = parser.parse_args()
    if not os.path.isdir(args.data):
        print(f"skipped: no {args.data}")
        return 77
    status, stderr = call([args.rankc, "compile", "--bind=x=y", "/dev/null/none.onnx"])
    args.can_bind = "E0400" not in stderr
    results = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, operator, outcome in pool.map(lambda name: check(args, name), args.tests or all_tests(args.data)):
            results.append((name, operator, outcome))
            if outcome.kind == "failed" or (args.verbose and not outcome.kind.startswith("passed")):
                print(f"{name}: {outcome.kind} {outcome.why}", flush=True)
    if args.table:
        with open(args.table, "w") as out:
            out.write(table(results))
    counts = counted([outcome for _, _, outcome in results])
    print(", ".join(f"{n} {kind}" for n, kind in zip(counts, OUTCOMES)))
    return 1 if counts[OUTCOMES.index("failed")] else 0


if __name__ == "__main__":
    sys.exit(main())
