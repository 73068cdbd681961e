#!/usr/bin/python3
"""The ONNX backend tests as compiled programs: rankc compile, rankc run, and the outputs that ONNX expects.

    backend.py --rankc RANKC [--data DIR] [--collect] [--table FILE.md] [--verbose] [--pas POLICY] [--jobs N] [TEST...]

DIR is the data of ONNX's backend tests (Debian: libonnx-testdata); a TEST is a directory below it, "node/test_relu"; without
any, all of node, simple, pytorch-operator and pytorch-converted. With --collect the cases come from the onnx package of the
Python that runs this script: its case collector writes them into DIR if that is empty, by default a temporary directory. So
docs/measured/backend-tests.md is written in a virtual environment with the newest onnx:

    python3 -m venv today && today/bin/pip install onnx ml_dtypes
    today/bin/python tests/programs/backend.py --rankc build/frontend/rankc --collect --table docs/measured/backend-tests.md

Tolerances are those of the table TOLERANCE. The results of random operators are tested for the properties that the table
PROPERTIES names. Outcomes:
  passed        also "passed, bound": where an operand must be known to compile, it is given with --bind
  unsupported   exit status 4 with a reason
  excluded      by a rule of the table EXCLUDED
  needs --bind  as above, while rankc has no --bind
  bad data      the test's own tensors are not of the model's shapes, or not what the operator's text says
  failed        anything else: wrong values, any other exit status, a crash
Prints what failed and the counts; --table writes them as a document. The exit status is 1 if a test failed, 77 without the data
or python3-onnx."""
import collections
import concurrent.futures
import os
import re
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import Failed, call, needed, parser_of, read_json, skip  # noqa: E402

with needed():
    import numpy as np
    import onnx
    from onnx import numpy_helper

DATA = "/usr/share/libonnx-testdata/data"
GROUPS = ["node", "simple", "pytorch-operator", "pytorch-converted"]
OUTCOMES = ["passed", "passed, bound", "unsupported", "excluded", "needs --bind", "bad data", "failed"]

# Relative and absolute tolerance by type of the output; other types are compared exactly. For f64 and f32 those of ONNX's own
# tests; for 16-bit floats two units in the last place, because ONNX's expected values were computed and rounded step by step.
TOLERANCE = {onnx.TensorProto.DOUBLE: (1e-3, 1e-7), onnx.TensorProto.FLOAT: (1e-3, 1e-7),
             onnx.TensorProto.FLOAT16: (2.0 ** -9, 1e-6), onnx.TensorProto.BFLOAT16: (2.0 ** -6, 1e-6)}

# ONNX 1.12 computed these with an output length that is no whole number (2.4 for 0.6 x 4); ONNX Runtime excludes them too.
UNROUNDED = {"node/test_resize_downsample_scales_cubic_align_corners", "node/test_resize_downsample_scales_linear_align_corners"}

# Diagnostics that say: this must be known at compile time.
MUST_BE_KNOWN = {"E0343", "E0405", "E0409", "E0410"}


STRING = onnx.TensorProto.STRING


def element_types(model):
    """The element types of the values that a model's graph declares or computes."""
    def of(type_proto):
        kind = type_proto.WhichOneof("value")
        if kind in ("tensor_type", "sparse_tensor_type"):
            return {getattr(type_proto, kind).elem_type}
        return of(getattr(type_proto, kind).elem_type) if kind in ("sequence_type", "optional_type") else set()
    graph = model.graph
    types = [of(value.type) for value in [*graph.input, *graph.output, *graph.value_info]]
    return set().union(*types, {tensor.data_type for tensor in graph.initializer})


def domains(model):
    return {node.domain for node in [*model.graph.node, *(node for f in model.functions for node in f.node)]}


# Models that are out of scope, by rule.
EXCLUDED = [("strings", lambda model: STRING in element_types(model)),
            ("training operators (domain ai.onnx.preview.training)",
             lambda model: "ai.onnx.preview.training" in domains(model)),
            ("encoded images", lambda model: "ImageDecoder" in {node.op_type for node in model.graph.node})]


def is_likely(drawn, p):
    """True if the number of marked elements is within five standard deviations of its mean; p: the probability of each."""
    p = np.broadcast_to(np.asarray(p, "f8"), drawn.shape)
    return bool(abs(drawn.sum() - p.sum()) <= 5 * np.sqrt((p * (1 - p)).sum()))


def are_draws(inputs, outputs):
    """Bernoulli: 0 or 1; always 0 where the probability is 0, always 1 where it is 1."""
    p, y = inputs[0], outputs[0]
    return bool(np.isin(y, [0, 1]).all() and (y[p == 0] == 0).all() and (y[p == 1] == 1).all()) and is_likely(y == 1, p)


def are_dropped(inputs, outputs):
    """Dropout: an element is 0, or x / (1 - ratio) and then marked in the mask."""
    x, y, ratio = inputs[0], outputs[0], float(inputs[1]) if len(inputs) > 1 else 0.5
    mask = outputs[1] if len(outputs) > 1 else y != 0
    return bool(np.allclose(y, np.where(mask, x / (1 - ratio), 0), rtol=1e-3)) and is_likely(mask, 1 - ratio)


# What holds of the results of operators that draw random numbers, whose values ONNX does not fix.
PROPERTIES = {"Bernoulli": are_draws, "Dropout": are_dropped}


def exact_dft(model, inputs):
    """The discrete Fourier transform of complex f32 numbers, in f64; None for other forms."""
    node = model.graph.node[-1]
    given = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    x, operands = inputs[0].astype("f8"), list(node.input)
    if x.shape[-1] != 2 or given.get("onesided") or (len(operands) > 1 and operands[1]):
        return None
    axis = int(inputs[-1]) if len(operands) > 2 else given.get("axis", 1)
    transform = np.fft.ifft if given.get("inverse") else np.fft.fft
    y = transform(x[..., 0] + 1j * x[..., 1], axis=axis if axis >= 0 else axis + x.ndim)
    return np.stack([y.real, y.imag], -1)


# Operators whose expected values were computed in f32 and may have a rounding error above the tolerance where the result is 0
# or nearly so. If an expected value is not within the tolerance of the exact result in f64, the exact result is what counts.
EXACT = {"DFT": exact_dft}


class Outcome(Exception):
    def __init__(self, kind, why=""):
        super().__init__(kind)
        self.kind, self.why = kind, why


def said_by(*command):
    """Exit status and stderr; what is compiled once and run once need not be fast."""
    done = call(*command, status=None, env={"CFLAGS": os.environ.get("CFLAGS", "-O0")}, timeout=120)
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
        self.noisy = False  # an expected value is not within the tolerance of the exact result

    def operator(self):
        """What a test of one node tests: its last node that is more than a constant."""
        model = self.model
        whole = re.sub("_expanded.*", "", self.directory)  # the operator that a function was expanded of
        if whole != self.directory and os.path.exists(os.path.join(whole, "model.onnx")):
            model = onnx.load(os.path.join(whole, "model.onnx"), load_external_data=False)
        names = [node.op_type for node in model.graph.node if node.op_type != "Constant"]
        return names[-1] if names else "Constant"

    def is_random(self):
        """True if expected values are those of another generator's numbers: Bernoulli, or Dropout in training with a ratio."""
        if self.operator() == "Dropout":
            return "training" in self.name and "zero_ratio" not in self.name
        return self.operator() in PROPERTIES

    def data(self, number, kind, i):
        return os.path.join(self.directory, f"test_data_set_{number}", f"{kind}_{i}.pb")

    def tensor(self, number, kind, i, value):
        with open(self.data(number, kind, i), "rb") as file:
            return numpy_helper.to_array(onnx.TensorProto.FromString(file.read()))

    def lists(self, number, kind, i, value):
        """What a sequence or an optional consists of: a list of tensors, a tensor, or None for an optional without a value."""
        with open(self.data(number, kind, i), "rb") as file:
            return content(value.type, file.read())

    def list_options(self):
        """What rankc must be told of inputs that are sequences or optionals, from the first data set."""
        for i, value in enumerate(self.inputs):
            held = [] if is_tensor(value) else self.lists(0, "input", i, value)
            if held is None:
                yield f"--shape={value.name}=none"
            elif isinstance(held, list) and not held and not is_tensor(value):
                yield f"--shape={value.name}=empty"
            for k, item in enumerate(held if isinstance(held, list) else []):
                yield f"--shape={value.name}.{k}={','.join(map(str, item.dims)) or 'scalar'}"

    def dims(self):
        """Bounds of the symbolic dimensions, of a test with a file of them, or their sizes, from the first data set."""
        bounds, sizes = os.path.join(self.directory, "dims"), {}
        if os.path.exists(bounds):
            with open(bounds, encoding="utf-8") as file:
                return [word for dim in file.read().split() for word in ("--dim", dim)]
        for i, value in enumerate(self.inputs):
            if not is_tensor(value) or not value.type.tensor_type.HasField("shape"):
                continue
            dims = value.type.tensor_type.shape.dim
            for dim, size in zip(dims, self.tensor(0, "input", i, value).shape if dims else ()):
                if dim.dim_param and size:  # --dim takes sizes from 1 on; a bound input may have others
                    sizes.setdefault(dim.dim_param, size)
        return [option for name, size in sizes.items() for option in ("--dim", f"{name}={size}")]

    def files(self, number):
        return [(value, self.file(number, i, value)) for i, value in enumerate(self.inputs)]

    def ports(self, number):
        """The inputs of the program: tensors of a sequence are inputs of their own."""
        for i, (value, path) in enumerate(self.files(number)):
            if is_tensor(value):
                yield value.name, path
                continue
            held = self.lists(number, "input", i, value)
            for k, item in enumerate(held if isinstance(held, list) else [held] if held else []):
                path = os.path.join(self.work, f"input_{i}_{k}.pb")
                with open(path, "wb") as file:
                    file.write(item.SerializeToString())
                yield f"{value.name}.{k}" if isinstance(held, list) else value.name, path

    def file(self, number, i, value):
        """The input's file. ONNX 1.12 wrote bf16 as u16, which NumPy has: such a tensor is written anew."""
        path = self.data(number, "input", i)
        if not is_tensor(value):
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

    def source(self, bound):
        """The model's file and the options of its sizes, where the inputs `bound` are given by --bind."""
        return os.path.join(self.directory, "model.onnx"), self.dims()

    def compile(self):
        """Compiles; returns the names that had to be bound."""
        is_float = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
        integers = [value.name for value in self.inputs if value.type.tensor_type.elem_type not in is_float]
        for bound in [[], integers, [value.name for value in self.inputs]]:
            binds = [f"--bind={value.name}={path}" for value, path in self.files(0)
                     if value.name in bound and is_tensor(value)]
            policy = ["--pas", self.args.pas] if self.args.pas else []
            model, dims = self.source(bound)
            status, stderr = said_by(self.args.rankc, "compile", model, "-o", self.work, "-q", *policy, *dims, *self.list_options(),
                                     *binds)
            code, text = error_of(stderr)
            if status == 0:
                return bound
            if code in MUST_BE_KNOWN and not self.args.can_bind:
                raise Outcome("needs --bind")
            if code not in MUST_BE_KNOWN:
                break
        raise Outcome("unsupported" if status == 4 else "failed", f"exit {status} {code} {text}")

    def run(self, number, bound):
        return self.run_with([(name, path) for name, path in self.ports(number) if name not in bound])

    def run_with(self, inputs):
        """The folder of the outputs for inputs (name, file)."""
        out = os.path.join(self.work, "out")
        inputs = [f"--input={name}={path}" for name, path in inputs]
        status, stderr = said_by(self.args.rankc, "run", self.work, "--threads", "1", "--output-dir", out, *inputs)
        if status:
            raise Outcome("failed", f"run: exit {status} {' '.join(error_of(stderr))}")
        return out

    def compare(self, number, out):
        listed = {entry["name"]: entry["file"] for entry in read_json(out, "outputs.json")["outputs"]}
        wanted = list(self.results(number))
        if set(listed) != {value.name for value, _ in wanted}:
            raise Outcome("failed", f"outputs {sorted(listed)}")
        values = [(value, np.load(os.path.join(out, listed[value.name])), expected) for value, expected in wanted]
        if not self.is_random():
            for value, got, expected in values:
                self.compare_output(value, got, self.exact(number, value, expected))
            return
        inputs = [self.tensor(number, "input", i, value) for i, value in enumerate(self.inputs)]
        if any(got.shape != expected.shape or got.dtype != expected.dtype for _, got, expected in values):
            raise Outcome("failed", "other shapes or types")
        if not PROPERTIES[self.operator()](inputs, [got for _, got, _ in values]):
            raise Outcome("failed", f"not what {self.operator()} may draw")

    def results(self, number):
        """The outputs of the program, each with its declaration and expected value."""
        for i, value in enumerate(self.model.graph.output):
            if is_tensor(value):
                yield value, self.tensor(number, "output", i, value)
                continue
            held = self.lists(number, "output", i, value)
            for k, item in enumerate(held if isinstance(held, list) else [held] if held else []):
                name = f"{value.name}.{k}" if isinstance(held, list) else value.name
                yield onnx.helper.make_tensor_value_info(name, item.data_type, item.dims), numpy_helper.to_array(item)

    def exact(self, number, value, expected):
        """The expected value, or the exact result if the former is not within the tolerance of it (EXACT)."""
        if self.operator() not in EXACT:
            return expected
        inputs = [self.tensor(number, "input", i, value) for i, value in enumerate(self.inputs)]
        exact = EXACT[self.operator()](self.model, inputs)
        rtol, atol = TOLERANCE[value.type.tensor_type.elem_type]
        if exact is None or exact.shape != expected.shape or np.allclose(expected, exact, rtol=rtol, atol=atol):
            return expected
        self.noisy = True
        return exact.astype(expected.dtype)

    def compare_output(self, value, got, expected):
        dtype = value.type.tensor_type.elem_type
        if dtype == onnx.TensorProto.BFLOAT16:
            # NumPy has no such type: the upper halves of f32. ONNX 1.12 wrote the expected ones cut off, not rounded.
            got, expected = (np.asarray(x).view("<u2").astype("<u4") << 16 for x in (got, expected))
            got, expected = got.view("<f4"), expected.view("<f4")
        elif expected.dtype.kind not in "biufc" or expected.dtype.isbuiltin != 1:
            expected = expected.view(f"V{expected.dtype.itemsize}")  # types that NumPy does not have, as their bytes
        if got.shape != expected.shape or got.dtype != expected.dtype:
            raise Outcome("failed", f"{value.name}: {got.dtype}{got.shape}, expected {expected.dtype}{expected.shape}")
        if dtype in TOLERANCE:
            rtol, atol = TOLERANCE[dtype]
            same = np.allclose(got, expected, rtol=rtol, atol=atol, equal_nan=True)
        elif got.dtype.kind == "V":
            same = got.tobytes() == expected.tobytes()
        else:
            same = np.array_equal(got, expected)
        if not same and self.name in UNROUNDED:
            raise Outcome("bad data", f"{value.name}: of a length that is no whole number")
        if not same:
            raise Outcome("failed", f"{value.name}: other values")

    def check(self):
        try:
            for rule, holds in EXCLUDED:
                if holds(self.model):
                    raise Outcome("excluded", rule)
            bound, number = self.compile(), 0
            while os.path.isdir(os.path.join(self.directory, f"test_data_set_{number}")):
                self.compare(number, self.run(number, bound))
                number += 1
            return Outcome("passed, bound" if bound else "passed", "exact" if self.noisy else "")
        except Outcome as outcome:
            return outcome
        except Failed:
            return Outcome("failed", "timeout")


def is_tensor(value):
    return value.type.WhichOneof("value") == "tensor_type"


def content(declared, data):
    """Data of a sequence or optional of the declared type: a list of TensorProtos, a TensorProto or None."""
    if declared.WhichOneof("value") == "sequence_type":
        return list(onnx.SequenceProto.FromString(data).tensor_values)
    optional = onnx.OptionalProto.FromString(data)
    if optional.elem_type == onnx.OptionalProto.SEQUENCE:
        return list(optional.sequence_value.tensor_values)
    return optional.tensor_value if optional.elem_type == onnx.OptionalProto.TENSOR else None


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


def shares(results):
    """Of the models of a group that are not excluded: how many pass."""
    for group, chosen in [("tests of one node", lambda name: name.startswith("node/")), ("tests", lambda name: True)]:
        kinds = [outcome.kind for name, _, outcome in results if chosen(name) and outcome.kind != "excluded"]
        passed = sum(kind.startswith("passed") for kind in kinds)
        yield f"{passed} of {len(kinds)} {group} that are not excluded pass ({100 * passed / max(len(kinds), 1):.1f} %)."


def table(results, collected):
    """The document: counts by group, by operator, and reasons."""
    tests = f"the cases that onnx {onnx.__version__} collects" if collected else "ONNX's backend tests"
    lines = [f"# ONNX backend tests{' of today' if collected else ''}", "",
             "The onnx package has a test suite for programs that execute ONNX models. This page is written by `tests/programs/backend.py",
             f"{'--collect ' if collected else ''}--table`: of {tests}, every model that",
             "has reference data is compiled, run, and compared. Tolerances, relative and absolute: 1e-3 and 1e-7 for f32 and",
             "f64 (ONNX's own), 2^-9 and 1e-6 for f16, 2^-6 and 1e-6 for bf16; all other types must be equal. Results of",
             "operators that draw random numbers are tested for their properties.", "",
             "\"passed, bound\" means that `--bind` gave the value of an operand that must be known at compile time; \"needs",
             "--bind\", that this was not tried. \"bad data\" means that the test's data contradicts the model's shapes or the",
             "operator's specification. \"excluded\" are models with strings, of domain ai.onnx.preview.training, and with encoded",
             "images.", "", *shares(results), ""]
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
    rules = collections.Counter(outcome.why for _, _, outcome in results if outcome.kind == "excluded")
    lines += ["", "## Excluded models", "", "| models | rule |", "| --- | --- |"]
    lines += [f"| {n} | {rule} |" for rule, n in sorted(rules.items(), key=lambda item: (-item[1], item[0]))]
    noisy = [name for name, _, outcome in results if outcome.kind.startswith("passed") and outcome.why == "exact"]
    if noisy:
        lines += ["", "## Tests whose expected values are not exact enough", "",
                  "ONNX's expected values differ from the result in f64 by more than the tolerance. The results of these tests",
                  "are within the tolerance of the result in f64.", "", *(f"- {name}" for name in noisy)]
    return "\n".join(lines) + "\n"


def all_tests(data):
    return [f"{group}/{name}" for group in GROUPS for name in sorted(os.listdir(os.path.join(data, group)))
            if os.path.exists(os.path.join(data, group, name, "model.onnx"))]


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--data")
    parser.add_argument("--collect", action="store_true", help="the cases of this Python's onnx package")
    parser.add_argument("--pas", metavar="POLICY", help="compile for the ranks of this policy instead of one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--table", metavar="FILE")
    parser.add_argument("--verbose", action="store_true", help="say what is not supported, too")
    parser.add_argument("tests", nargs="*", metavar="TEST")
    args = parser.parse_args()
    if not args.collect:
        args.data = args.data or DATA
        return run_tests(args)
    with tempfile.TemporaryDirectory(prefix="rankc-cases-") as temporary:
        args.data = args.data or temporary
        if not os.path.isdir(args.data) or not os.listdir(args.data):
            import backend_cases
            backend_cases.write_cases(args.data)
        return run_tests(args)


def run_tests(args):
    if not os.path.isdir(args.data):
        skip(f"no {args.data}")
    status, stderr = said_by(args.rankc, "compile", "--bind=x=y", "/dev/null/none.onnx")
    args.can_bind = "E0400" not in stderr
    results = []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for name, operator, outcome in pool.map(lambda name: check(args, name), args.tests or all_tests(args.data)):
            results.append((name, operator, outcome))
            if outcome.kind == "failed" or (args.verbose and not outcome.kind.startswith("passed")):
                print(f"{name}: {outcome.kind} {outcome.why}", flush=True)
    if args.table:
        with open(args.table, "w") as out:
            out.write(table(results, args.collect))
    counts = counted([outcome for _, _, outcome in results])
    print(", ".join(f"{n} {kind}" for n, kind in zip(counts, OUTCOMES)))
    return 1 if counts[OUTCOMES.index("failed")] else 0


if __name__ == "__main__":
    sys.exit(main())
