#!/usr/bin/python3
"""Programs over rows and columns (passes/rewrite/fuse_rows.c) compute what the C target does, one operator after the other.

    rows.py --rankc RANKC [DTYPE...]

Norms, softmax and reductions of rows and columns with what is elementwise around them, and the gradients of LayerNorm and RMSNorm
with those of their weights: of rows that a warp holds, several, and none, odd ones, of one element and of none, of no rows; with NaN and
infinities among them, masked rows, and LayerNorm of rows far from 0. By one rank, and by three that have uneven parts."""
import sys

from stand_in import by_type, call, needed # noqa: E402
from elements import narrow, wide # noqa: E402

with needed():
    import numpy as np

SHAPES = [(2, 3, 1), (4, 1, 3), (3, 5, 5), (1, 7, 17), (2, 3, 64), (1, 6, 96), (5, 7, 768), (1, 3, 1023), (2, 2, 4096), (1, 0, 5), (1, 3, 0)]
LONG = [(1, 2, 50257), (1, 70, 8)] # rows that are read again in every pass; columns of several chunks
FAR = 1e4
BOUND = {"f32": 3e-5, "f64": 1e-12, "bf16": 2e-2, "fp16": 3e-3} # of the largest: sums are in another order, and C rounds halves more often
FAR_BOUND = {"f32": 2 * FAR * 2.0**-23, "f64": 2 * FAR * 2.0**-52} # the mean of such rows is rounded, as PyTorch rounds it; deviations are about 1


class Graph:
    """IR text of named results; names and shapes of the inputs."""

    def __init__(self, dtype, level="TYPED"):
        self.lines, self.outputs, self.inputs, self.dtype, self.count = ["rankc-ir 1", f'graph "rows" level={level}'], [], {}, dtype, 0
        self.bounds = []

    def add(self, text):
        self.lines.append(text.replace("%", f"%{self.count}", 1))
        self.count += 1
        return f"%{self.count - 1}"

    def given(self, name, *dims, dtype=None):
        self.inputs[name] = (dims, dtype or self.dtype)
        return self.add(f'input % "{name}" {dtype or self.dtype}[{",".join(map(str, dims))}]')

    def apply(self, op, *operands, attrs=""):
        return self.add(f'% "v" = {op}({", ".join(operands)}) {attrs}')

    def number(self, x, dtype=None):
        return self.add(f'const % "c" {dtype or self.dtype}[] = [{x}]')

    def result(self, *tensors, bound=BOUND):
        self.outputs += tensors
        self.bounds += [bound[self.dtype]] * len(tensors)

    def text(self):
        return "\n".join(self.lines + [f'output {o} "y{i}"' for i, o in enumerate(self.outputs)]) + "\n"


def wide_type(dtype):
    return "f64" if dtype == "f64" else "f32"


def gradient_of_norm(g, shape, x, dy, scale, rest, centred):
    """As ir/ops/grad_math.c has it, then added to another gradient, wide and narrow; and those of scale and bias."""
    wide, c = wide_type(g.dtype), shape[-1]
    widen = lambda t: g.apply("Cast", t, attrs=f'to="{wide}"') if g.dtype != wide else t
    n, eps, one = g.number(c, wide), g.number(1e-5, wide), g.number(1, wide)
    total = lambda t: g.apply("ReduceSum", t, attrs=f"axes=[{len(shape) - 1}] keepdims=1")
    mean = lambda t: g.apply("Div", total(t), n)
    columns = lambda t, keep: g.apply("ReduceSum", t, attrs=f"axes=[{', '.join(map(str, range(len(shape) - 1)))}] keepdims={keep}")
    x, dy, scale, rest = map(widen, (x, dy, scale, rest))
    d = g.apply("Sub", x, mean(x)) if centred else x
    r = g.apply("Div", one, g.apply("Sqrt", g.apply("Add", mean(g.apply("Mul", d, d)), eps)))
    z, u = g.apply("Mul", d, r), g.apply("Mul", dy, scale)
    inner = g.apply("Sub", u, g.apply("Mul", z, mean(g.apply("Mul", u, z))))
    inner = g.apply("Sub", inner, mean(u)) if centred else inner
    dx = g.apply("Add", rest, g.apply("Mul", r, inner))
    g.result(dx, columns(g.apply("Mul", dy, z), 1), columns(dy, 1))
    if g.dtype != wide:
        g.result(g.apply("Cast", dx, attrs=f'to="{g.dtype}"'))


def norms(g, i, shape):
    c, wide = shape[-1], wide_type(g.dtype)
    x, b, scale, bias = g.given(f"x{i}", *shape), g.given(f"b{i}", *shape[1:]), g.given(f"s{i}", c), g.given(f"o{i}", c)
    dy, rest = g.given(f"d{i}", *shape), g.given(f"r{i}", *shape)
    far = g.given(f"far{i}", *shape)
    if g.dtype == wide:
        kept = g.apply("Add", x, b)
        g.result(kept, g.apply("Mul", g.apply("LayerNorm", kept, scale, bias, attrs="epsilon=1e-5"), dy))
        g.result(g.apply("RMSNorm", g.apply("Add", x, rest), scale, attrs="epsilon=1e-6"))
        g.result(g.apply("LayerNorm", far, scale, attrs="epsilon=1e-5"), bound=FAR_BOUND)
    for centred in (True, False):
        gradient_of_norm(g, shape, x, dy, scale, rest, centred)


def softmaxes(g, i, shape):
    x, mask = g.given(f"x{i}", *shape), g.given(f"m{i}", 1, *shape[1:], dtype="bool")
    if g.dtype in ("bf16", "fp16"):
        x = g.apply("Cast", x, attrs='to="f32"')
    wide = wide_type(g.dtype)
    last = len(shape) - 1
    kept = g.apply("Where", mask, g.apply("Mul", x, g.number(0.125, wide)), g.number(float("-1e30"), wide))
    y = g.apply("Softmax", kept, attrs=f"axis={last}")
    g.result(g.apply("Cast", y, attrs=f'to="{g.dtype}"') if g.dtype != wide else y)
    g.result(g.apply("Neg", g.apply("LogSoftmax", kept, attrs=f"axis={last}")))
    reduced = lambda op, t: g.apply(op, t, attrs=f"axes=[{last}] keepdims=1")
    g.result(g.apply("Sub", x, reduced("ReduceMax", x)), g.apply("Exp", reduced("ReduceMin", g.apply("Abs", x))))
    weighted = reduced("ReduceSum", g.apply("Mul", y, x))
    g.result(g.apply("Mul", g.apply("Sub", x, weighted), y))


def distance(got, expected):
    """Of the largest that the row has, or the columns have."""
    got, expected = wide(got), wide(expected)
    finite = np.isfinite(expected)
    if not np.array_equal(got[~finite], expected[~finite], equal_nan=True):
        return np.inf
    return np.abs(got[finite] - expected[finite]).max(initial=0) / max(np.abs(expected[finite]).max(initial=0), 1e-3)


def values_of(graph, special):
    rng = np.random.default_rng(5)
    values = {}
    for name, (dims, dtype) in graph.inputs.items():
        value = rng.standard_normal(dims) + (FAR if name.startswith("far") else 0)
        value = rng.random(dims) < 0.7 if dtype == "bool" else value
        if special and name[0] in "xd" and value.size > 4:
            value.reshape(-1)[[0, value.size - 1]] = [np.nan, np.inf if name[0] == "x" else 1]
        values[name] = narrow(value, dtype)
    return values


def run(rankc, work, target, graph, values, *options):
    given = []
    for name, value in values.items():
        np.save(f"{work}/{name}.npy", value)
        given += ["--input", f"{name}={work}/{name}.npy"]
    call(rankc, "run", f"{work}/{target}", *given, "--output-dir", f"{work}/out", *options, timeout=600)
    return [np.load(f"{work}/out/y{i}.npy") for i in range(len(graph.outputs))]


def compare(rankc, work, name, graph, *plan):
    with open(f"{work}/rows.rir", "w") as out:
        out.write(graph.text())
    failures = []
    for target, options in (("c", []), ("cuda", ["--target", "cuda", *plan])):
        call(rankc, "compile", f"{work}/rows.rir", "-o", f"{work}/{target}", "-q", "--reuse", "override", *options, timeout=600)
    for special in (False, True):
        values = values_of(graph, special)
        expected = run(rankc, work, "c", graph, values, "--kernels", "reference")
        got = run(rankc, work, "cuda", graph, values, "--comm", "loopback")
        distances = [distance(g, e) for g, e in zip(got, expected)]
        wrong = [(i, d) for i, (d, bound) in enumerate(zip(distances, graph.bounds)) if not d <= bound]
        print(f"{name} {graph.dtype} {' '.join(plan)} {'special ' if special else ''}{max(distances):.1e}", flush=True)
        failures += [f"{name} {plan} special={special}: {wrong}"] if wrong else []
    again = run(rankc, work, "cuda", graph, values, "--comm", "loopback")
    if any(a.tobytes() != b.tobytes() for a, b in zip(got, again)):
        failures.append(f"{name} {plan}: other bits at the second run")
    source = open(f"{work}/cuda/rows/_/rank_0.cu").read()
    for kernel in ("rt_layernorm", "rt_rmsnorm"):
        if kernel in source:
            failures.append(f"{name}: {kernel} is called")
    return failures


def check(rankc, work, dtype):
    failures = []
    for name, make in (("norms", norms), ("softmaxes", softmaxes)):
        graph = Graph(dtype)
        for i, shape in enumerate(SHAPES + (LONG if dtype == "f32" else [])):
            make(graph, i, shape)
        failures += compare(rankc, work, name, graph)
    graph = Graph(dtype)
    norms(graph, 0, (7, 5, 48))
    return failures + compare(rankc, work, "parts", graph, "--pas", "data:data=3")


if __name__ == "__main__":
    sys.exit(by_type(__doc__, BOUND, check))
