#!/usr/bin/python3
"""Products finished by the library (runtime/cuda/library.cuh), and by kernels of their own, are what the C target makes of them.

    finish.py --rankc RANKC [DTYPE...]

Shapes are odd, of one element, and multiples of 8; operands stored both ways, with NaN and infinities among them. Products in
tf32 are those of operands rounded to 10 bits of mantissa. In GPT-2's training the gradient of every bias of a linear layer is a
result of the product beside it, whatever the plan."""
import functools
import os
import sys

from stand_in import STAND_IN, TESTS, by_type, call, needed # noqa: E402
from elements import narrow, wide # noqa: E402

with needed():
    import numpy as np

# m, k, n, trans_a, trans_b
SHAPES = [(5, 7, 9, 0, 0), (1, 1, 1, 0, 1), (6, 3, 8, 0, 1), (17, 33, 16, 1, 0), (3, 5, 24, 0, 0),
          (9, 300, 40, 1, 0)]
CHAINS = ["bias", "gelu", "kept", "residual", "both", "slope", "erf"]
BOUND = {"f32": 2e-6, "f64": 1e-14, "bf16": 2e-2, "fp16": 4e-3} # of the largest: the library rounds a half once, C at every node
TF32_APART = 4e-3 # on a GPU: tensor cores may cut a mantissa where rounding goes up, in each operand
GPT2 = os.path.join(TESTS, "training", "gpt2", "model.onnx")
GPT2_LAYERS, GPT2_BIASES = 2, 4 # linear layers with a bias, in each


def summed_operands(trans_a, trans_b):
    """Of which there is a sum over rows beside the product: stored by rows of what that sums over."""
    return ["a"] * trans_a + ["b"] * (not trans_b)


def graph(dtype):
    """IR text: every chain and every sum on every shape; names and shapes of the inputs; what the outputs are."""
    lines, outputs, inputs, labels = ["rankc-ir 1", 'graph "finish" level=TYPED'], [], {}, []
    count = 0

    def value(text):
        nonlocal count
        lines.append(f"%{count} {text}")
        count += 1
        return f"%{count - 1}"

    def given(name, *dims):
        nonlocal count
        inputs[name] = dims
        lines.append(f'input %{count} "{name}" {dtype}[{",".join(map(str, dims))}]')
        count += 1
        return f"%{count - 1}"

    def apply(op, *operands):
        return value(f'"v" = {op}({", ".join(operands)})')

    def number(x):
        nonlocal count
        lines.append(f'const %{count} "c" {dtype}[] = [{x}]')
        count += 1
        return f"%{count - 1}"

    def slope(dy, x):
        """dy times the derivative of GELU by tanh at x, in the order of GeluTanh's row in ir/ops.def."""
        times = lambda *operands: functools.reduce(lambda a, b: apply("Mul", a, b), operands)
        inner, one = number(1.59576912160573071176), number(1)
        v0 = apply("Sigmoid", times(inner, apply("Add", x, times(number(0.044715), x, x, x))))
        far = apply("Add", inner, times(number(0.21406444881780076), x, x))
        return times(dy, v0, apply("Add", one, times(x, apply("Sub", one, v0), far)))

    for i, (m, k, n, ta, tb) in enumerate(SHAPES):
        a, b = given(f"a{i}", *((k, m) if ta else (m, k))), given(f"b{i}", *((n, k) if tb else (k, n)))
        bias, residual = given(f"c{i}", n), given(f"r{i}", m, n)
        for chain in CHAINS:
            last = value(f'"p" = MatMul({a}, {b}) trans_a={ta} trans_b={tb}')
            if chain in ("bias", "gelu", "kept", "both", "erf"):
                last = value(f'"s" = Add({last}, {bias})')
            if chain in ("residual", "both"):
                last = value(f'"s" = Add({residual}, {last})')
            if chain == "kept":
                outputs.append(last)
                labels.append(f"argument of {chain} {m}x{k}x{n}")
            if chain in ("gelu", "kept"):
                last = value(f'"y" = GeluTanh({last})')
            if chain == "erf":
                last = value(f'"y" = Gelu({last})')
            if chain == "slope":
                last = slope(last, residual)
            outputs.append(last)
            labels.append(f"{chain} {m}x{k}x{n}")
        for operand in summed_operands(ta, tb):
            columns = m if operand == "a" else n
            own = given(f"{operand}{i}summed", k, columns)
            outputs.append(value(f'"p" = MatMul({own if operand == "a" else a}, {own if operand == "b" else b}) trans_a={ta} trans_b={tb}'))
            row = value(f'"s" = ReduceSum({own}) axes=[0] keepdims={i % 2}')
            outputs.append(value(f'"row" = Reshape({row}) shape=[{columns}]') if i % 2 else row)
            labels += [f"product beside a sum {m}x{k}x{n}", f"sum of {operand} {m}x{k}x{n}"]
    lines += [f'output {o} "y{i}"' for i, o in enumerate(outputs)]
    return "\n".join(lines) + "\n", inputs, labels


def tf32(x):
    bits = x.astype("f4").view("u4")
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view("f4")


class Program:
    def __init__(self, rankc, work, dtype):
        self.rankc, self.work, self.dtype = rankc, work, dtype
        text, self.inputs, self.labels = graph(dtype)
        with open(f"{work}/finish.rir", "w") as out:
            out.write(text)
        for target in ("c", "cuda"):
            call(rankc, "compile", f"{work}/finish.rir", "-o", f"{work}/{target}", "-q", "--target", target, timeout=600)

    def run(self, target, values, *options):
        given = []
        for name, value in values.items():
            np.save(f"{self.work}/{name}.npy", value)
            given += ["--input", f"{name}={self.work}/{name}.npy"]
        call(self.rankc, "run", f"{self.work}/{target}", *given, "--output-dir", f"{self.work}/out", *options)
        return [np.load(f"{self.work}/out/y{i}.npy") for i in range(len(self.labels))]

    def source(self):
        return open(f"{self.work}/cuda/finish/_/rank_0.cu").read()


def distance(got, expected):
    got, expected = wide(got).astype("f8"), wide(expected).astype("f8")
    finite = np.isfinite(expected)
    if not np.array_equal(got[~finite], expected[~finite], equal_nan=True):
        return np.inf
    return np.abs(got[finite] - expected[finite]).max(initial=0) / max(np.abs(expected[finite]).max(initial=0), 1e-3)


def check_biases(rankc):
    failures = []
    for options in ([], ["--amp", "bf16"], ["--pas", "tp:tensor=3"], ["--pas", "hybrid:tensor=2,data=2"]):
        text = call(rankc, "compile", GPT2, "--train", "--target", "cuda", *options, "--dump-after", "fuse_sums").stdout
        joined = sum(" = MatMul(" in line and " sums=" in line for line in text.splitlines())
        print(f"gpt2 {' '.join(options)}: {joined} gradients of biases are results of products")
        if joined != GPT2_LAYERS * GPT2_BIASES:
            failures.append(f"gpt2 {options}: {joined}")
    return failures


def check(rankc, work, dtype):
    program = Program(rankc, work, dtype)
    rng = np.random.default_rng(7)
    values = {name: rng.standard_normal(dims) for name, dims in program.inputs.items()}
    values["r3"][2, :3] = [np.nan, np.inf, -np.inf]
    values["b4"][1, 3] = values["b4summed"][1, 3] = np.nan
    values = {name: narrow(x, dtype) for name, x in values.items()}
    expected = program.run("c", values, "--kernels", "reference")
    failures = check_biases(rankc) if dtype == "f32" else []
    for options in (["--kernels", "reference"], []):
        apart = sorted(zip(map(distance, program.run("cuda", values, *options), expected), program.labels), reverse=True)
        print(f"{dtype} {' '.join(options) or 'library'}: {', '.join(f'{worst:.1e} {label}' for worst, label in apart[:6])}")
        if not apart[0][0] <= BOUND[dtype]:
            failures.append(f"{dtype} {options}: {apart[0]}")
    finished = program.source().count("rt_matmul_finished_")
    # "erf" is one node with its bias, which the library has no form of; in halves the numbers of "slope" are others
    if finished != len(SHAPES) * (len(CHAINS) - (1 if dtype in ("f32", "f64") else 2)):
        failures.append(f"{finished} products are finished by the library")
    summed, pairs = program.source().count("rt_matmul_summed_"), sum(len(summed_operands(ta, tb)) for *_, ta, tb in SHAPES)
    if summed != pairs:
        failures.append(f"{summed} products sum an operand, of {pairs}")
    if dtype == "f32":
        rounded = {name: tf32(x) if name[0] in "ab" else x for name, x in values.items()}
        exact = max(map(distance, program.run("cuda", values, "--kernels", "tf32"), program.run("cuda", rounded)))
        other = max(map(distance, program.run("cuda", values, "--kernels", "tf32"), expected))
        print(f"tf32: {exact:.1e} from products of rounded operands, {other:.1e} from f32")
        if exact > (0 if STAND_IN else TF32_APART) or not 1e-5 < other < 1e-2:
            failures.append("tf32")
    return failures


if __name__ == "__main__":
    sys.exit(by_type(__doc__, BOUND, check))
