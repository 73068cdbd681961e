#!/usr/bin/python3
"""Every type that ONNX allows: the node tests of the installed onnx package, with the inputs of each type variable of the operator's
schema in each of the variable's types.

    operator_types.py --rankc RANKC [--data DIR] [--table FILE.md] [--jobs N] [--verbose] [OPERATOR...]

DIR holds the collected cases, as for backend.py --collect. For each operator and type variable the smallest test of the newest
opset is taken and written anew for each type; all other variables keep the test's types. Expected values are those of onnx's
reference evaluator: in the type itself, for 16-bit floats in f32 from the rounded inputs. Outcomes:
  equal         within the bounds of 16-bit floats, else within those of backend.py
  not compared  compiled and run; the reference evaluator does not compute it
  refused       exit status 4 with a reason
  wrong         other values, any other exit status
Strings and complex numbers are left out. The exit status is 1 if something is wrong, 77 without onnx 1.16 or newer."""
import argparse
import collections
import concurrent.futures
import os
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import needed, parser_of  # noqa: E402

import backend
from backend import Outcome, Test, np, numpy_helper, onnx

with needed():
    from onnx import defs
    from onnx.reference import ReferenceEvaluator
    import ml_dtypes  # noqa: F401, the types that NumPy does not have

TYPES = onnx.TensorProto
HALVES = {TYPES.FLOAT16: 2.0 ** -10, TYPES.BFLOAT16: 2.0 ** -7}
FLOATS = {TYPES.FLOAT, TYPES.DOUBLE, *HALVES}
OUTCOMES = ["equal", "not compared", "refused", "wrong"]

# rankc's names, as in docs/operators.md.
NAMES = {"float": "f32", "double": "f64", "float16": "fp16", "bfloat16": "bf16", "float8e4m3fn": "e4m3fn",
         "float8e4m3fnuz": "e4m3fnuz", "float8e5m2": "e5m2", "float8e5m2fnuz": "e5m2fnuz", "float8e8m0": "e8m0",
         "float4e2m1": "e2m1", "float6e2m3": "e2m3", "float6e3m2": "e3m2"}


# Operators without samples here: another type would need other operands or other subgraphs. So do operators with subgraphs.
NO_SAMPLE = {"OptionalGetElement", "OptionalHasElement"}

# Types that fit the test's other operands and attributes, by operator and variable. BitCast keeps the number of bytes; a scale
# of e8m0 needs attribute output_dtype.
FITS = {("DequantizeLinear", "T2"): lambda was, to: to in FLOATS, ("BitCast", "T1"): lambda was, to: onnx.helper.tensor_dtype_to_np_dtype(to).itemsize == was.itemsize and
        TYPES.DataType.Name(to)[-1] not in "24"}

# The reference evaluator rounds weights of interpolation to integers.
NOT_COMPARED = {("GridSample", "T1"): lambda dtype: dtype not in FLOATS}


def short(dtype):
    name = TYPES.DataType.Name(dtype).lower()
    return NAMES.get(name, name.replace("uint", "u").replace("int", "i"))


def allowed(schema, variable):
    """The element types of tensors that a type variable, or a type without one, allows."""
    texts = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == variable), [variable])
    names = [text[len("tensor("):-1].upper() for text in texts if text.startswith("tensor(")]
    return [TYPES.DataType.Value(name) for name in names if name != "STRING" and not name.startswith("COMPLEX")]


def formal(parameters, i):
    """The formal parameter of operand i; the last one may be variadic."""
    return parameters[min(i, len(parameters) - 1)]


def greatest(dtype):
    """A bound of the values to convert to a type, all of which it holds: that of an integer type, or a small power of two."""
    to = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(dtype))
    if to.kind in "iu":
        return float(np.iinfo(to).max)
    return {"INT4": 7, "UINT4": 15, "INT2": 1, "UINT2": 3}.get(TYPES.DataType.Name(dtype), 4)


def converted(values, dtype, op):
    """The values in another type, such that they stay in its range; a divisor is not 0. Fractions are doubled for integers."""
    to = onnx.helper.tensor_dtype_to_np_dtype(dtype)
    if values.dtype == to:
        return values
    if dtype == TYPES.BOOL:
        return values > 0
    if dtype in FLOATS:
        return values.astype(to)
    wide = values.astype("f8")
    if (wide != np.round(wide)).any() and np.abs(wide).max(initial=0) <= 4:
        wide = np.round(wide * 2)
    most = greatest(dtype) if (wide == np.round(wide)).all() else min(100.0, greatest(dtype))
    wide = np.clip(np.abs(wide) if TYPES.DataType.Name(dtype).startswith("U") else wide, -most, most)
    if op in ("Div", "Mod"):
        wide[wide == 0] = 1
    return wide.astype(to)


def with_output_types(model, free):
    """The model with the types that onnx infers for the outputs `free`, whose type variable no input has."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for value in bare.graph.output:
        value.ClearField("type")
    inferred = {value.name: value.type for value in onnx.shape_inference.infer_shapes(bare).graph.output}
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
        if value.name in free and inferred[value.name].HasField("tensor_type"):
            value.type.tensor_type.elem_type = inferred[value.name].tensor_type.elem_type
    return model


class Sample:
    """A node test: its model, schema, and the inputs of its first data set."""

    def __init__(self, data, name):
        test = Test(argparse.Namespace(data=data), f"node/{name}", None)
        self.name, self.model, self.node = name, test.model, test.model.graph.node[0]
        version = {opset.domain: opset.version for opset in test.model.opset_import}.get(self.node.domain, 1)
        self.schema = defs.get_schema(self.node.op_type, version, self.node.domain)
        self.inputs = {value.name: test.tensor(0, "input", i, value) for i, value in enumerate(test.inputs)}
        self.size = sum(values.size for values in self.inputs.values())

    def type_of(self, variable):
        return self.inputs[min(self.variables()[variable])].dtype

    def variables(self):
        """Type variables of the inputs, each with the inputs that have it."""
        found = collections.defaultdict(set)
        for i, name in enumerate(self.node.input):
            if name:
                found[formal(self.schema.inputs, i).type_str].add(name)
        return found

    def variant(self, variable, dtype):
        """The model and inputs with the variable's inputs and outputs of another type."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        outputs = {name for i, name in enumerate(self.node.output)
                   if formal(self.schema.outputs, i).type_str == variable}
        inputs = self.variables()[variable]
        for value in [*model.graph.input, *model.graph.output]:
            if value.name in inputs | outputs:
                value.type.tensor_type.elem_type = dtype
        values = {name: converted(array, dtype, self.node.op_type) if name in inputs else array
                  for name, array in self.inputs.items()}
        for i, name in enumerate(self.node.input):  # a float's zero point is 0
            if "zero_point" in formal(self.schema.inputs, i).name and name in inputs and values[name].dtype.kind not in "iu":
                values[name] = np.zeros_like(values[name])
        if self.node.op_type == "CastLike":  # a negative float has no defined value in an unsigned type
            values[self.node.input[0]] = abs(values[self.node.input[0]])
        free = {name for i, name in enumerate(self.node.output)
                if formal(self.schema.outputs, i).type_str not in self.variables()}
        return with_output_types(model, free), values


def samples(data):
    """The best test of each operator and type variable: of the newest opset, and then the smallest."""
    best = {}
    for name in sorted(os.listdir(os.path.join(data, "node"))):
        model = onnx.load(os.path.join(data, "node", name, "model.onnx"))
        graph = model.graph
        values = [*graph.input, *graph.output]
        if len(graph.node) != 1 or model.functions or not all(map(backend.is_tensor, values)):
            continue
        if graph.node[0].op_type in NO_SAMPLE or any(attribute.HasField("g") for attribute in graph.node[0].attribute):
            continue
        if any(holds(model) for _, holds in backend.EXCLUDED) or graph.node[0].op_type in backend.PROPERTIES:
            continue
        sample = Sample(data, name)
        for variable in sample.variables():
            key, rank = (graph.node[0].op_type, variable), (-sample.schema.since_version, sample.size)
            if key not in best or rank < best[key][0]:
                best[key] = rank, sample
    return {key: sample for key, (_, sample) in best.items()}


def evaluate(model, inputs):
    """The reference evaluator's results; None if it does not compute the model."""
    try:
        with np.errstate(all="ignore"):
            return ReferenceEvaluator(model).run(None, inputs)
    except Exception:  # it raises whatever its NumPy code meets
        return None


def expected(sample, variable, dtype):
    """Model, inputs and expected results (None: unknown). In f32 for 16-bit floats."""
    model, inputs = sample.variant(variable, dtype)
    if dtype not in HALVES:
        return model, inputs, evaluate(model, inputs)
    wide, _ = sample.variant(variable, TYPES.FLOAT)
    names = sample.variables()[variable]
    results = evaluate(wide, {name: x.astype("f4") if name in names else x for name, x in inputs.items()})
    return model, inputs, results


class Variant(Test):
    """The case in a directory, whose expected results are in memory."""

    def __init__(self, args, directory, results):
        self.expected = results
        super().__init__(argparse.Namespace(rankc=args.rankc, can_bind=True, data=directory), "case",
                         os.path.join(directory, "work"))

    def results(self, number):
        for value, array in zip(self.model.graph.output, self.expected):
            dtype = value.type.tensor_type.elem_type
            # NumPy's sums of integers have 64 bits; results of 16-bit floats were computed in f32
            yield value, np.asarray(array) if dtype in HALVES else np.asarray(array).astype(
                onnx.helper.tensor_dtype_to_np_dtype(dtype))

    def compare_output(self, value, got, expected):
        dtype = value.type.tensor_type.elem_type
        if dtype not in HALVES:
            super().compare_output(value, got, expected)
            return
        if dtype == TYPES.BFLOAT16:
            got = (got.view("<u2").astype("<u4") << 16).view("<f4")
        got, expected = got.astype("f8"), expected.astype("f8")
        finite = np.abs(expected[np.isfinite(expected)]).max(initial=0)
        if got.shape != expected.shape:
            raise Outcome("failed", f"{value.name}: {got.shape}, expected {expected.shape}")
        if not np.allclose(got, expected, rtol=4 * HALVES[dtype], atol=HALVES[dtype] * finite, equal_nan=True):
            raise Outcome("failed", f"{value.name}: other values")


def write_case(directory, model, inputs):
    folder = os.path.join(directory, "case", "test_data_set_0")
    os.makedirs(folder)
    onnx.save(model, os.path.join(directory, "case", "model.onnx"))
    for i, value in enumerate(model.graph.input):
        with open(os.path.join(folder, f"input_{i}.pb"), "wb") as file:
            file.write(numpy_helper.from_array(inputs[value.name], value.name).SerializeToString())


def check(args, key, sample, dtype):
    """One operator, variable and type: an outcome of OUTCOMES and the reason."""
    with tempfile.TemporaryDirectory(prefix="rankc-types-") as directory:
        try:
            model, inputs, results = expected(sample, key[1], dtype)
            write_case(directory, model, inputs)
        except Exception as error:  # values that the type does not hold, by onnx's or ml_dtypes' own words
            return "not compared", f"no data: {error}"
        os.makedirs(os.path.join(directory, "work"))
        test = Variant(args, directory, results)
        try:
            bound = test.compile()
            out = test.run(0, bound)
            if results is None or NOT_COMPARED.get(key, lambda dtype: False)(dtype):
                return "not compared", ""
            test.compare(0, out)
            return "equal", ""
        except Outcome as outcome:
            return ("refused" if outcome.kind == "unsupported" else "wrong"), outcome.why


def table(results):
    counts = collections.Counter(kind for _, _, kind, _ in results)
    lines = ["# Types of operators", "",
             "The data types in which operators work, and in which they are refused. Written by `tests/programs/operator_types.py --table`:",
             f"for each operator of ONNX {onnx.__version__} and each type variable of its inputs, the smallest node test is compiled and run in each",
             "type that the schema allows, except strings and complex numbers. Expected values are those of onnx's reference evaluator;",
             "\"not compared\" are types in which it does not compute.",
             "", ", ".join(f"{counts[kind]} {kind}" for kind in OUTCOMES) + ".", "",
             "| operator | variable | " + " | ".join(OUTCOMES) + " |", "| --- " * 6 + "|"]
    cells = collections.defaultdict(lambda: collections.defaultdict(list))
    for key, dtype, kind, _ in results:
        cells[key][kind].append(short(dtype))
    for (op, variable), kinds in sorted(cells.items()):
        name = variable if "(" not in variable else "-"
        lines.append(f"| {op} | {name} | " + " | ".join(" ".join(kinds[kind]) for kind in OUTCOMES) + " |")
    reasons = collections.Counter(backend.reason(why) for _, _, kind, why in results if kind == "refused")
    lines += ["", "## Reasons for what is refused", "", "| types | reason |", "| --- | --- |"]
    lines += [f"| {n} | {why} |" for why, n in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))]
    return "\n".join(lines) + "\n"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--table", metavar="FILE")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--verbose", action="store_true", help="say what is refused, too")
    parser.add_argument("operators", nargs="*", metavar="OPERATOR")
    args = parser.parse_args()
    work = [(key, sample, dtype) for key, sample in sorted(samples(args.data).items())
            for dtype in allowed(sample.schema, key[1]) if not args.operators or key[0] in args.operators
            if key not in FITS or FITS[key](sample.type_of(key[1]), dtype)]
    results = []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for (key, _, dtype), (kind, why) in zip(work, pool.map(lambda item: check(args, *item), work)):
            results.append((key, dtype, kind, why))
            if kind == "wrong" or (args.verbose and kind != "equal"):
                print(f"{key[0]} {key[1]} {short(dtype)}: {kind} {why}", flush=True)
    if args.table:
        with open(args.table, "w") as out:
            out.write(table(results))
    counts = collections.Counter(kind for _, _, kind, _ in results)
    print(", ".join(f"{counts[kind]} {kind}" for kind in OUTCOMES))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
