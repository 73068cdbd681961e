#!/usr/bin/env python3
"""The ONNX backend tests with open dimensions: each is compiled once with bounds, and run at its own sizes and at others.

    backend_open.py --rankc RANKC [--data DIR] [--table PAGE.md] [--results FILE.jsonl] [--verbose] [--jobs N] [TEST...]

DIR and TEST are backend.py's; without DIR the cases are those that the onnx package of the Python that runs this script collects.
Each dimension greater than 1 of an input that is not bound becomes open, from 1 to its size + 2, and outputs lose their shapes.
Where that is refused, as operators ask for equal sizes or for windows that fit, the next row of WAYS is tried, and at last one
size after the other, and one dimension, so that what is refused is one dimension. Results are compared
  - at the test's own sizes with the values that ONNX expects, as backend.py does;
  - at greater and at smaller sizes with those of the reference evaluator of the onnx package or of ONNX Runtime, if one of them takes
    such inputs: they are drawn from the values of the test's own.
Outcomes: those of backend.py; "nothing open" has no dimension greater than 1. Exits 1 if a test failed, 77 without onnx."""
import collections
import concurrent.futures
import json
import os
import re
import sys
import tempfile
import warnings

import backend
from backend import Outcome, Test, error_of, is_tensor, said_by
from rankc_test import needed, parser_of

with needed():
    import numpy as np
    import onnx
    from onnx import numpy_helper

MORE = 2  # how much greater than the test's own a size may be

# How all dimensions are open: the name of a dimension of this size, and the least size. The first that compiles is taken.
WAYS = {
    "each alone": (lambda name, axis, size: f"{name}.{axis}", lambda size: 1),
    "equal ones as one": (lambda name, axis, size: f"size{size}", lambda size: 1),
    "each alone, not smaller": (lambda name, axis, size: f"{name}.{axis}", lambda size: size),
    "equal ones as one, not smaller": (lambda name, axis, size: f"size{size}", lambda size: size),
}
SOME = "some"  # of the dimensions: one size after the other, what compiles with those before it

# Tests that are run at their own sizes alone: the reference evaluator takes slopes, which are per channel in opset 6, for those of the
# last dimension where that has one element.
OWN_SIZES = {"pytorch-converted/test_PReLU_2d_multiparam", "pytorch-converted/test_PReLU_3d_multiparam", "pytorch-converted/test_PReLU_1d_multiparam"}

# How a run refuses inputs that contradict each other: indices beyond a smaller size, and a size that is not the sum of two others.
CONTRADICTIONS = ["E0382", "E0915"]

# Where the sizes are greater, and where they are smaller: the first of each that the reference takes.
OTHERS = [[lambda size, least: size + 1, lambda size, least: size + 2], [lambda size, least: max(least, size - 1), lambda size, least: least]]


class OpenTest(Test):
    def __init__(self, args, name, work):
        super().__init__(args, name, work)
        self.way, self.bound = None, []
        self.opened = {}  # (input, axis) -> name of the dimension
        self.sizes, self.least = {}, {}  # by the name of a dimension: the test's own, and the least
        self.refused = []  # why dimensions are not open
        self.compared = 0  # other sizes
        self.trusted = None  # references

    def candidates(self, bound):
        """(input, axis) -> size, of what could be open."""
        shapes = {value.name: self.tensor(0, "input", i, value).shape for i, value in enumerate(self.inputs) if is_tensor(value)}
        return {(name, axis): size for name, shape in shapes.items() if name not in bound for axis, size in enumerate(shape) if size > 1}

    def open(self, dims, way):
        """Lets these candidates be open."""
        name_of, least_of = WAYS[way]
        self.opened = {(name, axis): name_of(name, axis, size) for (name, axis), size in dims.items()}
        self.sizes = {self.opened[at]: size for at, size in dims.items()}
        self.least = {self.opened[at]: least_of(size) for at, size in dims.items()}

    def source(self):
        """The model with the open dimensions, and their bounds."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        del model.graph.value_info[:]
        for value in model.graph.output:
            if is_tensor(value):
                value.type.tensor_type.ClearField("shape")
        given = {value.name: value for value in model.graph.input}
        for i, value in enumerate(self.inputs):
            if not is_tensor(value):
                continue
            declared = given[value.name].type.tensor_type.shape
            del declared.dim[:]
            for axis, size in enumerate(self.tensor(0, "input", i, value).shape):
                dim = declared.dim.add()
                if (value.name, axis) in self.opened:
                    dim.dim_param = self.opened[value.name, axis]
                else:
                    dim.dim_value = size
        path = os.path.join(self.work, "open.onnx")
        onnx.save(model, path)
        return path, [f"--dim={name}={self.least[name]}..{size + MORE}@{size}" for name, size in self.sizes.items()]

    def attempt(self, bound):
        """None: it compiles; else code and text of the refusal. Another end is a failure."""
        model, dims = self.source()
        binds = [f"--bind={value.name}={path}" for value, path in self.files(0) if value.name in bound and is_tensor(value)]
        status, stderr = said_by(self.args.rankc, "compile", model, "-o", self.work, "--reuse", "moo", "-q", *dims,
                                 *self.list_options(), *binds)
        if status not in (0, 3, 4) and "E0505" not in stderr:
            raise Outcome("failed", f"exit {status} {' '.join(error_of(stderr))}")
        return error_of(stderr) if status else None

    def opens_all(self, bound):
        """Whether all candidates can be open."""
        for self.way in WAYS:
            self.open(self.candidates(bound), self.way)
            if self.attempt(bound) is None:
                return True
        return False

    def opens_some(self, bound):
        """Opens all candidates of one size as one dimension, or else each of them alone. False: nothing compiles, as where an operand
        must be known."""
        self.way = SOME
        self.open({}, "each alone")
        if self.attempt(bound):
            return False
        groups = collections.defaultdict(list)
        for at, size in self.candidates(bound).items():
            groups[size].append(at)
        for size, group in groups.items():
            if len(group) > 1 and not self.adds(bound, group, f"size{size}", size):
                continue
            for name, axis in group:
                said = self.adds(bound, [(name, axis)], f"{name}.{axis}", size)
                if said:
                    self.refused.append(f"{name}.{axis}: {' '.join(said)}")
        return True

    def adds(self, bound, group, symbol, size):
        """Opens these candidates, too, as one dimension. What is said against it; None: nothing."""
        before = self.opened, self.sizes, self.least
        for least in (1, size):
            self.opened, self.sizes, self.least = ({**old, **new} for old, new in zip(
                before, (dict.fromkeys(group, symbol), {symbol: size}, {symbol: least})))
            said = self.attempt(bound)
            if said is None:
                return None
        self.opened, self.sizes, self.least = before
        return said

    def compile(self):
        """Compiles with as many open dimensions as there can be; returns the names that are bound."""
        is_float = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
        integers = [value.name for value in self.inputs if value.type.tensor_type.elem_type not in is_float]
        for self.bound in [[], integers, [value.name for value in self.inputs[1:]], [value.name for value in self.inputs]]:
            if not self.opens_all(self.bound) and not self.opens_some(self.bound):
                continue
            said = self.attempt(self.bound)
            if said:
                raise Outcome("failed", " ".join(said))
            if not self.sizes:
                raise Outcome("unsupported" if self.refused else "nothing open", self.refused[0] if self.refused else "")
            return self.bound
        raise Outcome("not compiled", " ".join(said))

    def run(self, number, bound):
        """Sizes of the test that are taken to be equal although they differ are refused by the run."""
        try:
            return super().run(number, bound)
        except Outcome as outcome:
            if "E0915" in outcome.why:
                self.refused.append(f"all: {outcome.why.split(' ', 3)[3]}")
                raise Outcome("unsupported", outcome.why) from outcome
            raise

    def compare(self, number, out):
        super().compare(number, out)
        if number == 0 and not self.is_random() and self.name not in OWN_SIZES:
            self.compare_others()

    def compare_others(self):
        """Runs at other sizes. All dimensions of one name have one size, and so have those of one size."""
        for choices in OTHERS:
            for choice in choices:
                sizes = {name: choice(size, self.least[name]) for name, size in self.sizes.items()}
                inputs = self.drawn(sizes)
                wanted = None if sizes == self.sizes or inputs is None else self.references(inputs)
                if not wanted:
                    continue
                try:
                    self.compare_with(wanted, self.run_with(self.written(inputs)), sizes)
                except Outcome as outcome:
                    if not any(code in outcome.why for code in CONTRADICTIONS):
                        raise
                    continue
                self.compared += 1
                break

    def drawn(self, sizes):
        """The test's inputs with these sizes, of the values that it has; None: not all are tensors."""
        random, inputs = np.random.default_rng(list(self.name.encode())), {}
        for i, value in enumerate(self.inputs):
            if not is_tensor(value):
                return None
            tensor = self.tensor(0, "input", i, value)
            shape = [sizes.get(self.opened.get((value.name, axis)), size) for axis, size in enumerate(tensor.shape)]
            same = list(tensor.shape) == shape
            inputs[value.name] = tensor if same else tensor.ravel()[random.integers(0, tensor.size, shape)]
        return inputs

    def written(self, inputs):
        """The inputs that are not bound, as files."""
        for i, name in enumerate(inputs):
            if name in self.bound:
                continue
            path = os.path.join(self.work, f"other_{i}.pb")
            with open(path, "wb") as file:
                file.write(numpy_helper.from_array(inputs[name], name).SerializeToString())
            yield name, path

    def references(self, inputs):
        """What those compute who take the inputs, and for the test's own give what ONNX expects: a list of outputs each."""
        if self.trusted is None:
            self.trusted = [evaluate for evaluate in (evaluator, runtime) if self.is_right(self.evaluated(evaluate, self.drawn(self.sizes)))]
        return [outputs for outputs in (self.evaluated(evaluate, inputs) for evaluate in self.trusted) if outputs]

    def evaluated(self, evaluate, inputs):
        """The outputs; None: it does not take the model or the inputs, or gives sequences."""
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                outputs = evaluate(self.model, inputs)
        except Exception:  # theirs, of any kind
            return None
        return outputs if all(isinstance(array, (np.ndarray, np.generic)) for array in outputs) else None

    def is_right(self, outputs):
        return outputs and not self.difference([np.asarray(array) for array in outputs], [array for _, array in self.results(0)])

    def difference(self, found, wanted):
        """What differs, in words; empty: nothing."""
        try:
            for value, array, expected in zip(self.model.graph.output, found, map(np.asarray, wanted)):
                if not is_close(array, expected):
                    self.compare_output(value, array, expected)
        except Outcome as wrong:
            return wrong.why
        return ""

    def compare_with(self, wanted, out, sizes):
        """The outputs must be those of one of the references."""
        listed = {entry["name"]: entry["file"] for entry in backend.read_json(out, "outputs.json")["outputs"]}
        found = [np.load(os.path.join(out, listed[value.name])) for value in self.model.graph.output]
        said = [self.difference(found, outputs) for outputs in wanted]
        if all(said):
            raise Outcome("failed", f"{sizes}: {' / '.join(said)}")


def is_close(found, expected):
    """True if real numbers differ by less than 8 roundings of the largest. Values that are drawn may nearly cancel out where those of
    the test do not."""
    if found.shape != expected.shape or found.dtype != expected.dtype or found.dtype not in (np.float32, np.float64) or not found.size:
        return False
    if not (np.isfinite(found).all() and np.isfinite(expected).all()):
        return False
    return bool((np.abs(found - expected) <= 8 * np.finfo(found.dtype).eps * np.abs(expected).max()).all())


def unshaped(model):
    """The model for other sizes than it declares."""
    free = onnx.ModelProto()
    free.CopyFrom(model)
    del free.graph.value_info[:]
    for value in [*free.graph.input, *free.graph.output]:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    return free


def evaluator(model, inputs):
    import onnx.reference
    return onnx.reference.ReferenceEvaluator(unshaped(model)).run(None, inputs)


def runtime(model, inputs):
    import onnxruntime
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(unshaped(model).SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def check(args, name):
    """The result of a test, as a row of the file of results."""
    with tempfile.TemporaryDirectory(prefix="rankc-backend-") as work:
        test = OpenTest(args, name, work)
        outcome = test.check()
    row = {"test": name, "operator": test.operator(), "outcome": outcome.kind, "why": outcome.why}
    return row | {"way": test.way, "open": len(test.opened), "names": len(test.sizes), "compared": test.compared, "refused": test.refused}


# ---- table ----------------------------------------------------------------------------------------------------------

OF_OPERANDS = [f"E{code:04}" for code in range(371, 391)]  # shapes and values of operands do not fit: what the model itself says

HEAD = """# Node tests with open sizes

Of ONNX's backend tests, here of the cases that onnx {version} collects, every model is compiled once with open dimensions, each from 1 to
its size + 2, and run at its own sizes and at greater and smaller ones. This page is written by `tests/programs/backend_open.py --table`,
which says how dimensions are chosen and results compared.
<!-- not run: it takes an hour and needs the newest onnx -->

    python3 tests/programs/backend_open.py --rankc build/frontend/rankc --table docs/measured/sizes-node-tests.md

Of {tests} tests, {excluded} are out of scope and {nothing} have nothing that could be open: no dimension greater than 1, or all of their
inputs are what must be known at compile time. Of the other {rest}, **{passed} pass ({share:.1f} %)**, {refused} are refused for every
dimension, and {failed} fail. The results of {compared} are those of the reference evaluator or of ONNX Runtime at other sizes, too, at
{sizes} in all.

| open dimensions | tests |
| --- | --- |
{ways}

Dimensions that are not open, by the reason that is given for each; most are sizes that the test's model writes into an attribute, a
constant or another input (E0371 to E0390).

| dimensions | reason | operators |
| --- | --- | --- |
{reasons}
"""


def reason(said):
    """The code of a refusal, and what it says without what is of one model."""
    said = re.sub(r"'[^']*'|\"[^\"]*\"", "..", said.split(": ", 1)[1])
    said = re.sub(r"\[[^]]*\]", "[..]", re.sub(r"[\w.]+\.\d+", "..", said))
    code, words = said.split(" ", 1) if " " in said else (said, "")
    return code, re.sub(r"-?\d+", "#", words).replace("|", " ")


def example(code, refusals):
    """What is said with this code most often."""
    return f"{code}, as in: {collections.Counter(words for words, _ in refusals).most_common(1)[0][0]}"


def table(rows):
    done = [row for row in rows if row["outcome"] not in ("excluded", "nothing open", "bad data")]
    passed = [row for row in done if row["outcome"].startswith("passed")]
    ways = collections.Counter(row["way"] for row in passed)
    found = collections.defaultdict(list)
    for row in done:
        for code, words in map(reason, row["refused"]):
            found[code if code in OF_OPERANDS else f"{code} {words}"].append((words, row["operator"]))
    reasons = [f"| {len(of)} | {said if ' ' in said else example(said, of)} | {', '.join(sorted({operator for _, operator in of}))} |"
               for said, of in sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))]
    kinds = collections.Counter(row["outcome"] for row in rows)
    return HEAD.format(version=onnx.__version__, tests=len(rows), excluded=kinds["excluded"] + kinds["bad data"],
                       nothing=kinds["nothing open"], rest=len(done), passed=len(passed), share=100 * len(passed) / max(len(done), 1),
                       refused=kinds["unsupported"] + kinds["not compiled"], failed=kinds["failed"],
                       compared=sum(row["compared"] > 0 for row in passed), sizes=sum(row["compared"] for row in passed),
                       ways="\n".join(f"| {way} | {count} |" for way, count in ways.most_common()), reasons="\n".join(reasons))


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--data")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--table", metavar="FILE")
    parser.add_argument("--results", metavar="FILE", help="one JSON object per line; what is there is not done again")
    parser.add_argument("--verbose", action="store_true", help="say what was refused, too")
    parser.add_argument("tests", nargs="*", metavar="TEST")
    args = parser.parse_args()
    args.pas, args.can_bind = None, True
    with tempfile.TemporaryDirectory(prefix="rankc-cases-") as cases:
        if not args.data:
            import backend_cases
            backend_cases.write_cases(cases)
        args.data = args.data or cases
        rows = measured(args)
    if args.table:
        with open(args.table, "w", encoding="utf-8") as file:
            file.write(table(rows))
    counts = collections.Counter(row["outcome"] for row in rows)
    print(", ".join(f"{n} {kind}" for kind, n in counts.most_common()))
    return bool(counts["failed"])


def measured(args):
    """All rows, after those were measured that the file of results does not have."""
    rows = {}
    if args.results and os.path.exists(args.results):
        with open(args.results, encoding="utf-8") as file:
            rows = {row["test"]: row for row in map(json.loads, file)}
    tests = args.tests or backend.all_tests(args.data)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for row in pool.map(lambda name: check(args, name), [name for name in tests if name not in rows]):
            rows[row["test"]] = row
            if args.results:
                with open(args.results, "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            if row["outcome"] == "failed" or (args.verbose and row["outcome"] != "passed"):
                print(f"{row['test']}: {row['outcome']} {row['why']}", flush=True)
    return [rows[name] for name in tests]


if __name__ == "__main__":
    sys.exit(main())
