#!/usr/bin/python3
"""Programs over rows and columns on target c (passes/rewrite/fuse_rows.c): every bit of NumPy, which rounds each operator's result and sums
in the order that Note [Order of sums] of runtime/kernels/c/kernels.h states.

    rows.py --rankc RANKC [DTYPE...]

Gradients of LayerNorm and RMSNorm with those of scale and bias, the gradient of softmax, and differences from the largest and the least
element: rows of no whole number of partial sums and of no elements, no rows, and rows that are
not fused. By one thread and
two, and by three ranks that have uneven parts."""
import os
import re
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training"))
from elements import narrow, wide # noqa: E402
from harness import Failed, call, parser_of, plan_of, report # noqa: E402

SHAPES = [(4, 1, 3), (3, 5, 5), (1, 7, 17), (2, 3, 64), (6, 11, 768), (1, 3, 1023), (1, 0, 5), (1, 3, 0)]
ALONE = [(2, 3, 1), (1, 2, 70001)] # no tensor would be saved; a core's cache does not hold a row
DTYPES = ["f32", "f64", "bf16", "fp16"]
LANES = 8


def summed(x):
    """Sums along the first dimension."""
    parts = [np.zeros(x.shape[1:], "f8") for _ in range(LANES)]
    for i, element in enumerate(x.astype("f8")):
        parts[i % LANES] += element
    return (((parts[0] + parts[4]) + (parts[2] + parts[6])) + ((parts[1] + parts[5]) + (parts[3] + parts[7]))).astype(x.dtype)


class Graph:
    """IR text of named results, beside the values that NumPy gives; computed in `wide`, stored in `dtype`."""

    def __init__(self, dtype):
        self.lines, self.inputs, self.results, self.count = ["rankc-ir 1", 'graph "rows" level=TYPED'], {}, [], 0
        self.dtype, self.wide = dtype, "f64" if dtype == "f64" else "f32"
        self.random = np.random.default_rng(7)

    def add(self, text, value):
        self.lines.append(text.replace("%", f"%{self.count}", 1))
        self.count += 1
        return f"%{self.count - 1}", value

    def apply(self, op, value, *operands, attrs=""):
        return self.add(f'% "v" = {op}({", ".join(o[0] for o in operands)}) {attrs}', value)

    def given(self, *dims, dtype=None):
        name, dtype = f"x{len(self.inputs)}", dtype or self.dtype
        value = narrow(self.random.standard_normal(dims), dtype)
        self.inputs[name] = value
        tensor = self.add(f'input % "{name}" {dtype}[{",".join(map(str, dims))}]', wide(value).astype("f8" if dtype == "f64" else "f4"))
        return tensor if dtype == self.wide else self.apply("Cast", tensor[1], tensor, attrs=f'to="{self.wide}"')

    def number(self, x):
        return self.add(f'const % "c" {self.wide}[] = [{x}]', np.array(x, "f8" if self.wide == "f64" else "f4"))

    def result(self, *tensors):
        """Each in the wide type, and the first in that of the inputs too."""
        self.results += tensors
        if self.dtype != self.wide:
            self.results.append(self.apply("Cast", narrow(tensors[0][1], self.dtype), tensors[0], attrs=f'to="{self.dtype}"'))

    def text(self):
        return "\n".join(self.lines + [f'output {o} "y{i}"' for i, (o, _) in enumerate(self.results)]) + "\n"

    def sub(self, a, b):
        return self.apply("Sub", a[1] - b[1], a, b)

    def plus(self, a, b):
        return self.apply("Add", a[1] + b[1], a, b)

    def mul(self, a, b):
        return self.apply("Mul", a[1] * b[1], a, b)

    def over(self, a, b):
        return self.apply("Div", a[1] / b[1], a, b)

    def reduced(self, op, of, x):
        return self.apply(op, of(x[1]), x, attrs=f"axes=[{x[1].ndim - 1}] keepdims=1")

    def total(self, x):
        return self.reduced("ReduceSum", lambda v: summed(np.moveaxis(v, -1, 0))[..., None], x)

    def columns(self, x, keep):
        def value(v):
            return summed(v.reshape(int(np.prod(v.shape[:-1])), v.shape[-1])).reshape([1] * (v.ndim - 1) * keep + [v.shape[-1]])
        return self.apply("ReduceSum", value(x[1]), x, attrs=f"axes={list(range(x[1].ndim - 1))} keepdims={int(keep)}")


def gradient_of_norm(g, shape, centred):
    """As ir/ops/grad_math.c has it, then added to another gradient; and those of scale and bias."""
    x, dy, rest, scale = g.given(*shape), g.given(*shape), g.given(*shape), g.given(shape[-1])
    n = g.number(shape[-1])
    d = g.sub(x, g.over(g.total(x), n)) if centred else x
    variance = g.plus(g.over(g.total(g.mul(d, d)), n), g.number(1e-5))
    r = g.over(g.number(1), g.apply("Sqrt", np.sqrt(variance[1]), variance))
    z, u = g.mul(d, r), g.mul(dy, scale)
    inner = g.sub(u, g.mul(z, g.over(g.total(g.mul(u, z)), n)))
    inner = g.sub(inner, g.over(g.total(u), n)) if centred else inner
    g.result(g.plus(rest, g.mul(r, inner)), g.columns(g.mul(dy, z), centred), g.columns(dy, centred))


def gradient_of_softmax(g, shape):
    """With masked elements."""
    dy, y, keep = g.given(*shape), g.given(*shape), g.given(shape[-1])
    dx = g.mul(g.sub(dy, g.total(g.mul(dy, y))), y)
    zero = g.number(0)
    above = g.apply("Greater", keep[1] > zero[1], keep, zero)
    g.result(g.apply("Where", np.where(above[1], dx[1], zero[1]), above, dx, zero))


def differences(g, shape):
    x = g.given(*shape)
    for op, of in (("ReduceMax", np.maximum), ("ReduceMin", np.minimum)):
        g.result(g.sub(x, g.reduced(op, lambda v: of.reduce(v, -1, keepdims=True, initial=-np.inf if op == "ReduceMax" else np.inf), x)))


def same(got, expected):
    """NaNs have no particular bits."""
    if got.dtype.kind == "V" or expected.dtype.kind == "V":
        a, b = wide(got), wide(expected)
        return np.array_equal(a, b, equal_nan=True)
    return got.dtype == expected.dtype and got.shape == expected.shape and np.array_equal(got, expected, equal_nan=True)


def check_source(path, fused):
    with open(path) as source:
        text = source.read()
    calls, functions = len(re.findall(r"rt_reduce_\w+\(", text)), len(re.findall(r"static void rows_\d+\(", text))
    if fused != (functions > 0) or fused == (calls > 0):
        raise Failed(f"{path} has {functions} functions over rows, and {calls} calls that reduce")


def check(args, work, dtype, shapes, plan="one", fused=True):
    g = Graph(dtype)
    with np.errstate(all="ignore"):
        for shape in shapes:
            gradient_of_norm(g, shape, True)
            gradient_of_norm(g, shape, False)
            gradient_of_softmax(g, shape)
            differences(g, shape)
    given = []
    for name, value in g.inputs.items():
        np.save(f"{work}/{name}.npy", value)
        given.append(f"--input={name}={work}/{name}.npy")
    with open(f"{work}/rows.rir", "w") as out:
        out.write(g.text())
    call(args.rankc, "compile", f"{work}/rows.rir", "-o", f"{work}/out", "-q", "--reuse", "override", *plan_of(plan).options, timeout=600)
    check_source(f"{work}/out/rows/_/rank_0.c", fused)
    for threads in (1, 2):
        call(args.rankc, "run", f"{work}/out", *given, "--threads", str(threads), "--output-dir", f"{work}/results")
        for i, (_, value) in enumerate(g.results):
            if not same(np.load(f"{work}/results/y{i}.npy"), value) and not (plan != "one" and value.size == value.shape[-1]):
                raise Failed(f"{plan}, {threads} threads: other bits of result {i}, {value.shape}")


def check_type(args, work, dtype):
    check(args, work, dtype, SHAPES)
    check(args, work, dtype, ALONE, fused=False)
    check(args, work, dtype, [shape for shape in SHAPES if shape[0] >= 3], "data3") # which adds its sums of columns in another order
    return f"{len(SHAPES)} shapes, and by three ranks"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("dtypes", nargs="*", default=DTYPES, metavar="DTYPE")
    args = parser.parse_args()
    return report((dtype, lambda work, dtype=dtype: check_type(args, work, dtype)) for dtype in args.dtypes)


if __name__ == "__main__":
    sys.exit(main())
