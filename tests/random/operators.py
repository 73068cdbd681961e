"""The operators of random graphs: a row each, and how each shape of row draws its operands and attributes.

A row names the operator, the first opset of the form that is written here, the types of its operands, and the range in which it is
defined and well conditioned. `decides` marks operators whose result jumps: they take only values that were not rounded, or that
are far from the jump. Rows without an operator's name are small groups of nodes as exporters write them.
"""
from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto, helper

from graphs import MARGIN, Value, reject_unless

FLOATS = ["f4"] * 6 + ["f8"]
INTEGERS = ["i8"] * 3 + ["i4"] * 2
SMALL = ["i1", "i2", "u1", "u2", "u4", "u8"]
TYPES = {
    "f": FLOATS,
    "4": ["f4"],
    "i": INTEGERS,
    "n": FLOATS + INTEGERS,
    "s": FLOATS * 2 + INTEGERS * 2 + SMALL,
    "a": FLOATS * 2 + INTEGERS * 2 + SMALL + ["?"] * 2,
    "b": ["?"],
}
TYPES = {letter: [np.dtype({"i8": "int64", "i4": "int32", "i1": "int8", "i2": "int16", "u1": "uint8", "u2": "uint16",
                            "u4": "uint32", "u8": "uint64", "f4": "float32", "f8": "float64", "?": "bool"}[name])
                  for name in names] for letter, names in TYPES.items()}


@dataclass
class Row:
    op: str
    make: callable
    types: str = "f"
    since: int = 13
    within: tuple = None
    options: dict = field(default_factory=dict)
    weight: float = 1
    domain: str = ""

    @property
    def dtypes(self):
        return TYPES[self.types]


# What decides ---------------------------------------------------------------------------------------------------------

def is_far(value, distance):
    """Whether rounding errors of the value cannot carry it over a jump; `distance`: of its elements from the nearest one."""
    return value.settled or not value.array.size or bool((distance(value.array.astype("f8")) > MARGIN *
                                                          np.maximum(1, np.abs(value.array))).all())


def far_from_integers(value):
    return is_far(value, lambda x: np.abs(x - np.round(x)))


def far_from_halves(value):
    return is_far(value, lambda x: np.abs(x - np.floor(x) - 0.5))


def far_from(*points):
    return lambda value: is_far(value, lambda x: np.min([np.abs(x - p) for p in points], axis=0))


def far_apart(a, b):
    if (a.settled and b.settled) or a.dtype.kind != "f":
        return True
    difference = np.abs(a.array.astype("f8") - b.array.astype("f8"))
    return difference.size == 0 or difference.min() > MARGIN * max(1, np.abs(a.array).max(initial=0))


def ranked_apart(value, axis):
    """Whether the elements along the axis have an order that rounding does not change."""
    if value.settled or value.ndim == 0 or value.shape[axis] < 2 or not value.array.size:
        return True
    return float(np.diff(np.sort(value.array, axis=axis), axis=axis).min()) > MARGIN * max(1, np.abs(value.array).max())


DECIDES = {"integers": far_from_integers, "halves": far_from_halves, "zero": far_from(0)}

# Elementwise ----------------------------------------------------------------------------------------------------------


def settled_by(row, *operands):
    """Selections and signs do not round."""
    return all(o.settled for o in operands) if row.options.get("exact") else False


def unary(g, row):
    accepts = DECIDES.get(row.options.get("decides"))
    x = g.operand(row.dtypes, within=row.within, accepts=accepts)
    attributes = {name: round(g.random.uniform(*limits), 2) for name, limits in row.options.get("floats", {}).items()
                  if g.random.random() < 0.6}
    attributes |= {name: g.random.choice(words) for name, words in row.options.get("words", {}).items()}
    return g.emit(row.op, [x], domain=row.domain, settled=settled_by(row, x), **attributes)


def jumping(g, row):
    """Shrink and ThresholdedRelu: the jump is at an attribute."""
    at = round(g.random.uniform(0.3, 1.2), 2)
    x = g.operand(row.dtypes, within=(-20, 20), accepts=far_from(at, -at))
    attributes = {"lambd": at, "bias": g.random.choice([0.0, 0.25])} if row.op == "Shrink" else {"alpha": at}
    return g.emit(row.op, [x], settled=False, **attributes)


def special_values(g, row):
    """IsNaN, IsInf, and what takes the values that they tell."""
    dtype = g.dtype(row.dtypes)
    shape = g.shape(1)
    x = g.add_input(g.random.choice([1, 1, 1]) * g.numbers.choice(
        np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2]), shape).astype(dtype))
    attributes = {}
    if row.op == "IsInf":
        attributes = {name: g.random.choice([0, 1]) for name in ("detect_negative", "detect_positive")
                      if g.random.random() < 0.5}
    mask = g.emit(row.op, [x], **attributes)
    g.values.remove(x)  # no other node reads what is not a number
    if row.op == "IsNaN" and g.random.random() < 0.6:
        return g.emit("Where", [mask, g.constant(np.array(0.5, dtype)), x], limit=None) if not np.isinf(x.array).any() else mask
    return mask


def partner_shape(g, shape):
    """A shape that broadcasts with it, in one direction or both."""
    shape = list(shape)
    if g.random.random() < 0.35:
        return tuple(shape)
    if shape and g.random.random() < 0.4:
        shape = shape[g.random.randrange(len(shape)):]
    shape = [1 if g.random.random() < 0.3 else n for n in shape]
    if g.random.random() < 0.15 and len(shape) < 4:
        shape = [g.extent(), *shape]
    return () if g.random.random() < 0.1 else tuple(shape)


def can_broadcast(a, b):
    return all(m == n or m == 1 or n == 1 for m, n in zip(a[::-1], b[::-1]))


def partner(g, x, within=None, accepts=None, dtype=None):
    """An operand of x's type that broadcasts with it."""
    dtype = dtype or x.dtype
    return (g.random.random() < 0.6 and g.existing(
        lambda v: v.dtype == dtype and v is not x and can_broadcast(v.shape, x.shape) and
        (within is None or (v.array.size and v.array.min() >= within[0] and v.array.max() <= within[1])) and
        (accepts is None or accepts(v)))) or g.fresh(partner_shape(g, x.shape), dtype, within)


def binary(g, row):
    x = g.operand(row.dtypes, within=row.within)
    second = row.options.get("second")
    if second and x.dtype.kind in "iu":
        second = row.options.get("second_integer", second)
    y = partner(g, x, within=second)
    if "decides" in row.options:
        reject_unless(far_apart(x, y))
    attributes = {}
    if row.op == "Mod":
        attributes = {"fmod": 1 if x.is_float else g.random.choice([0, 0, 1])}
        reject_unless(x.settled and y.settled)
    operands = [x, y]
    if second is None and g.random.random() < 0.4:
        operands.reverse()
    return g.emit(row.op, operands, settled=settled_by(row, x, y) or None if row.options.get("exact") else
                  not x.is_float, **attributes)


def power(g, row):
    x = g.operand(TYPES["n"], within=(0.1, 4))
    if x.dtype.kind == "f" and g.random.random() < 0.6:
        y = g.constant(np.array(g.random.choice([2.0, 3.0, 0.5, -0.5, -1.0, 1.0, 0.0]), x.dtype))
    else:
        y = partner(g, x, within=(0, 3))
    return g.emit("Pow", [x, y], settled=False)


def variadic(g, row):
    x = g.operand(row.dtypes)
    rest = [partner(g, x) for _ in range(g.random.choice([0, 1, 1, 2, 3]))]
    return g.emit(row.op, [x, *rest], settled=settled_by(row, x, *rest))


def where(g, row):
    x = g.operand(row.dtypes)
    y = partner(g, x)
    condition = partner(g, x, dtype=np.dtype(bool))
    return g.emit("Where", [condition, x, y], settled=x.settled and y.settled)


def clip(g, row):
    x = g.operand(TYPES["n"])
    low, high = sorted(g.numbers_of((2,), x.dtype))
    bounds = [g.constant(np.array(bound, x.dtype)) if g.random.random() < 0.75 else None for bound in (low, high)]
    return g.emit("Clip", [x, *bounds], settled=x.settled)


def prelu(g, row):
    x = g.operand(row.dtypes, least=1)
    slope = g.fresh(tuple(n if g.random.random() < 0.5 else 1 for n in x.shape[g.random.randrange(x.ndim):]), x.dtype,
                    weight=True)
    return g.emit("PRelu", [x, slope], settled=not x.is_float)


def cast(g, row):
    to = g.dtype(TYPES["a"])
    within = (0, 100) if to.kind == "u" else (-100, 100)
    decides = {"b": far_from(0), "i": far_from_integers, "u": far_from_integers}.get(to.kind)
    x = g.operand(TYPES["a"], within=None if to.kind in "fb" else within, accepts=lambda v: not v.is_float or not decides or decides(v))
    if row.op == "CastLike":
        return g.emit("CastLike", [x, g.fresh(g.shape(), to)], settled=x.settled)
    return g.emit("Cast", [x], settled=x.settled, to=helper.np_dtype_to_tensor_dtype(to))


# Products -------------------------------------------------------------------------------------------------------------


def matmul(g, row):
    x = g.operand(row.dtypes, least=1, within=(-50, 50))
    k = x.shape[-1]
    y = g.random.random() < 0.4 and g.existing(
        lambda v: v.dtype == x.dtype and v.ndim >= 1 and (v.shape[0] if v.ndim == 1 else v.shape[-2]) == k and
        can_broadcast(v.shape[:-2], x.shape[:-2]))
    if not y:
        columns = (g.extent(),) if g.random.random() < 0.9 else ()
        batch = partner_shape(g, x.shape[:-2]) if columns and x.ndim > 2 and g.random.random() < 0.4 else ()
        y = g.fresh((*batch, k, *columns), x.dtype, weight=g.random.random() < 0.6)
    return g.emit("MatMul", [x, y], settled=not x.is_float)


def gemm(g, row):
    a = g.operand(row.dtypes, least=2, most=2, within=(-50, 50))
    transpose = [g.random.choice([0, 1]) for _ in range(2)]
    k, m = a.shape if transpose[0] else a.shape[::-1]
    reject_unless(k)  # of no products ONNX Runtime 1.31 gives C without beta
    n = g.extent()
    b = g.fresh((n, k) if transpose[1] else (k, n), a.dtype, weight=g.random.random() < 0.7)
    c = g.fresh(g.random.choice([(n,), (1, n), (m, 1), (m, n), (), (1,)]), a.dtype) if g.random.random() < 0.7 else None
    scale = {name: g.random.choice([1.0, 0.5, -2.0]) for name in ("alpha", "beta") if g.random.random() < 0.4}
    return g.emit("Gemm", [a, b, c], settled=False, transA=transpose[0], transB=transpose[1], **scale)


EQUATIONS = ["ij,jk->ik", "bij,bjk->bik", "bij,bkj->bik", "ij,kj", "ij->ji", "ij->i", "ij->", "i,j->ij", "bhqd,bhkd->bhqk",
             "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "ii->i", "...ij,...jk->...ik", "bi,ij,bj->b", "abc,cd->abd", "ij,ij->ij",
             "ijk->kji", "bij,j->bi", "ij,jk,kl->il", "...i->...", "i,i->", "bsd,hdk->bshk"]


def einsum(g, row):
    equation = g.random.choice(EQUATIONS)
    dtype, sizes, batch = g.dtype(row.dtypes), {}, g.shape(0, 2)
    operands = []
    for term in equation.split("->")[0].split(","):
        letters = term.replace("...", "")
        shape = tuple(sizes.setdefault(letter, g.extent()) for letter in letters)
        shape = (batch + shape) if "..." in term else shape
        operands.append(g.operand([dtype], shape=shape, within=(-20, 20)))
    return g.emit("Einsum", operands, settled=False, equation=equation)


# Moves ----------------------------------------------------------------------------------------------------------------


def transpose(g, row):
    x = g.operand(row.dtypes)
    perm = list(range(x.ndim))
    g.random.shuffle(perm)
    return g.emit("Transpose", [x], perm=perm if g.random.random() < 0.8 and perm else None)


def factorized(g, count):
    """A list of sizes of that product."""
    sizes = []
    for prime in (2, 2, 2, 3, 3, 5, 7, 2, 3):
        if count % prime == 0 and count and g.random.random() < 0.6:
            sizes.append(prime)
            count //= prime
    sizes.append(count)
    g.random.shuffle(sizes)
    while len(sizes) > 5:
        sizes[-2:] = [sizes[-2] * sizes[-1]]
    if g.random.random() < 0.2:
        sizes.insert(g.random.randrange(len(sizes) + 1), 1)
    return sizes


def reshape(g, row):
    x = g.operand(row.dtypes)
    sizes = factorized(g, x.array.size)
    if x.array.size and g.random.random() < 0.3:
        sizes[g.random.randrange(len(sizes))] = -1
    if x.ndim and x.array.size and g.random.random() < 0.2 and x.shape[0] == sizes[0]:
        sizes[0] = 0
    zero = 1 if 0 in sizes and x.array.size == 0 and -1 not in sizes else None
    return g.emit("Reshape", [x, g.constant(np.array(sizes, "i8"))], allowzero=zero if g.opset >= 14 else None)


def flatten(g, row):
    x = g.operand(row.dtypes)
    return g.emit("Flatten", [x], axis=g.random.randint(-x.ndim, x.ndim))


def squeeze(g, row):
    x = g.operand(row.dtypes, accepts=lambda v: 1 in v.shape, shape=None)
    ones = [i - x.ndim * g.random.choice([0, 1]) for i, n in enumerate(x.shape) if n == 1]
    axes = g.random.sample(ones, g.random.randint(1, len(ones)))
    return g.emit("Squeeze", [x, g.constant(np.array(axes, "i8")) if g.random.random() < 0.8 else None])


def unsqueeze(g, row):
    x = g.operand(row.dtypes, most=3)
    n = g.random.randint(1, 2)
    axes = g.random.sample(range(x.ndim + n), n)
    axes = [a - (x.ndim + n) * g.random.choice([0, 1]) for a in axes]
    return g.emit("Unsqueeze", [x, g.constant(np.array(axes, "i8"))])


def expand(g, row):
    x = g.operand(row.dtypes, most=4)
    sizes = [g.extent() if n == 1 and g.random.random() < 0.7 else g.random.choice([1, n]) for n in x.shape]
    if g.random.random() < 0.3:
        sizes = [g.extent(), *sizes]
    elif sizes and g.random.random() < 0.2:
        sizes = sizes[1:]
    return g.emit("Expand", [x, g.constant(np.array(sizes, "i8"))])


def tile(g, row):
    x = g.operand(row.dtypes, least=1, most=4)
    return g.emit("Tile", [x, g.constant(np.array([g.random.choice([1, 1, 2, 3, 0] if i == 0 else [1, 2, 3])
                                                   for i in range(x.ndim)], "i8"))])


def axis_of(g, x):
    return g.random.randrange(x.ndim) - x.ndim * g.random.choice([0, 1])


def slice_(g, row):
    x = g.operand(row.dtypes, least=1)
    axes = g.random.sample(range(x.ndim), g.random.randint(1, x.ndim))
    starts, ends, steps = [], [], []
    for axis in axes:
        n, step = x.shape[axis], g.random.choice([1, 1, 1, 2, 3, -1, -1, -2, -3])
        places = [g.random.randint(-n - 3, n + 3) for _ in range(2)] + [-(1 << 31), (1 << 31) - 1, 0, n]
        start, end = sorted(g.random.sample(places[:4], 2)) if g.random.random() < 0.7 else g.random.sample(places, 2)
        starts.append(start if step > 0 else end)
        ends.append(end if step > 0 else start)
        reject_unless(step > 0 or ends[-1] < (1 << 31) - 1)  # ONNX Runtime takes that end for the beginning
        steps.append(step)
    dtype = g.random.choice(["i8", "i4"])
    signed = [a - x.ndim * g.random.choice([0, 1]) for a in axes]
    whole = len(axes) == x.ndim and axes == sorted(axes)
    operands = [starts, ends, None if whole and g.random.random() < 0.5 else signed,
                None if all(s == 1 for s in steps) and g.random.random() < 0.7 else steps]
    return g.emit("Slice", [x, *(None if o is None else g.constant(np.array(o, dtype)) for o in operands)])


def pad(g, row):
    x = g.operand(row.dtypes, least=1)
    mode = g.random.choice(["constant", "constant", "constant", "reflect", "edge"] + (["wrap"] if g.opset >= 19 else []))
    axes = sorted(g.random.sample(range(x.ndim), g.random.randint(1, x.ndim)))
    some = g.opset >= 18 and g.random.random() < 0.5
    if not some:
        axes = list(range(x.ndim))
    most = [min(3, x.shape[a] - 1) if mode == "reflect" else min(3, x.shape[a]) if mode != "constant" else 3 for a in axes]
    reject_unless(min(most) >= 0)
    least = [-min(1, x.shape[a] // 3) if mode == "constant" else 0 for a in axes]
    pads = [g.random.randint(l, m) for _ in range(2) for l, m in zip(least, most)]
    value = g.constant(g.numbers_of((), x.dtype)) if mode == "constant" and g.random.random() < 0.5 else None
    return g.emit("Pad", [x, g.constant(np.array(pads, "i8")), value, g.constant(np.array(axes, "i8")) if some else None],
                  mode=mode)


def concat(g, row):
    x = g.operand(row.dtypes, least=1)
    axis = axis_of(g, x)
    others = []
    for _ in range(g.random.choice([0, 1, 1, 2, 3])):
        like = lambda v: v.dtype == x.dtype and v.ndim == x.ndim and all(
            m == n or i == axis % x.ndim for i, (m, n) in enumerate(zip(v.shape, x.shape)))
        shape = list(x.shape)
        shape[axis] = g.extent()
        others.append((g.random.random() < 0.6 and g.existing(like)) or g.fresh(tuple(shape), x.dtype))
    operands = [x, *others]
    g.random.shuffle(operands)
    return g.emit("Concat", operands, axis=axis)


def split(g, row):
    x = g.operand(row.dtypes, least=1)
    axis = axis_of(g, x)
    n = x.shape[axis]
    parts = g.random.randint(1, min(4, max(n, 1)))
    if g.random.random() < 0.6:
        marks = sorted(g.random.randint(0, n) for _ in range(parts - 1))
        sizes = np.diff([0, *marks, n])
        return g.emit("Split", [x, g.constant(np.array(sizes, "i8"))], outputs=parts, axis=axis)
    if g.opset >= 18:
        return g.emit("Split", [x], outputs=parts, axis=axis, num_outputs=parts)
    reject_unless(n % parts == 0)
    return g.emit("Split", [x], outputs=parts, axis=axis)


def indices(g, n, shape, dtype=None):
    """Indices into a dimension of n elements, some of them negative; known or not."""
    reject_unless(n > 0)
    array = np.asarray(g.numbers.integers(-n, n, shape), dtype or g.random.choice(["i8", "i4"]))
    return g.constant(array) if g.random.random() < 0.4 else g.add_input(array)


def gather(g, row):
    x = g.operand(row.dtypes, least=1)
    axis = axis_of(g, x)
    return g.emit("Gather", [x, indices(g, x.shape[axis], g.shape(0, 2))], axis=axis, settled=x.settled)


def gather_elements(g, row):
    x = g.operand(row.dtypes, least=1)
    axis = axis_of(g, x)
    shape = [g.random.randint(1, n) if n else 0 for n in x.shape]
    shape[axis] = g.extent()
    return g.emit("GatherElements", [x, indices(g, x.shape[axis], shape)], axis=axis, settled=x.settled)


def gather_nd(g, row):
    x = g.operand(row.dtypes, least=1)
    batch = g.random.randint(0, min(1, x.ndim - 1))
    depth = g.random.randint(1, x.ndim - batch)
    reject_unless(x.array.size > 0)
    lead = (*x.shape[:batch], *g.shape(1, 2))
    limits = np.array(x.shape[batch:batch + depth])
    array = np.asarray(g.numbers.integers(-limits, limits, (*lead, depth)), "i8")
    where_ = g.constant(array) if g.random.random() < 0.4 else g.add_input(array)
    return g.emit("GatherND", [x, where_], batch_dims=batch or None, settled=x.settled)


def distinct(g, n, count):
    """Indices of which none comes twice: the order of writes does not matter."""
    array = g.numbers.permutation(n)[:count]
    return np.where(g.numbers.random(array.shape) < 0.3, array - n, array)


def scatter_elements(g, row):
    x = g.operand(row.dtypes, least=1)
    axis = axis_of(g, x) % x.ndim
    n = x.shape[axis]
    reject_unless(x.array.size > 0)
    reduction = g.random.choice(["none", "add"] if g.opset >= 16 and x.is_float else ["none"])
    count = g.random.randint(1, n)
    shape = [g.random.randint(1, m) for m in x.shape]
    shape[axis] = count
    rest = shape[:axis] + shape[axis + 1:]
    if reduction == "none":
        rows = np.stack([distinct(g, n, count) for _ in range(int(np.prod(rest)))]).reshape((*rest, count))
    else:
        rows = g.numbers.integers(-n, n, (*rest, count))
    array = np.moveaxis(rows, -1, axis).astype("i8")
    where_ = g.constant(array) if g.random.random() < 0.5 else g.add_input(array)
    return g.emit("ScatterElements", [x, where_, g.fresh(tuple(shape), x.dtype)], axis=axis,
                  settled=x.settled and reduction == "none", reduction=None if reduction == "none" else reduction)


def scatter_nd(g, row):
    x = g.operand(row.dtypes, least=1, accepts=lambda v: v.array.size > 0)
    reject_unless(x.array.size > 0)
    depth = g.random.randint(1, x.ndim)
    reduction = g.random.choice(["none", "add"] if g.opset >= 16 and x.is_float else ["none"])
    places = int(np.prod(x.shape[:depth]))
    count = g.random.randint(1, places)
    flat = g.numbers.permutation(places)[:count]
    array = np.stack(np.unravel_index(flat, x.shape[:depth]), -1).astype("i8")
    where_ = g.constant(array) if g.random.random() < 0.5 else g.add_input(array)
    return g.emit("ScatterND", [x, where_, g.fresh((count, *x.shape[depth:]), x.dtype)],
                  settled=x.settled and reduction == "none", reduction=None if reduction == "none" else reduction)


def one_hot(g, row):
    n = g.extent()
    at = indices(g, n, g.shape(0, 3), "i8")
    values = g.fresh((2,), g.dtype(TYPES["n"]))
    return g.emit("OneHot", [at, g.constant(np.array(n, "i8")), values], axis=g.random.randint(-at.ndim - 1, at.ndim))


def trilu(g, row):
    x = g.operand(row.dtypes, least=2)
    k = g.constant(np.array(g.random.randint(-4, 4), "i8")) if g.random.random() < 0.7 else None
    return g.emit("Trilu", [x, k], upper=g.random.choice([0, 1]))


def blocks_moved(g, row):
    """DepthToSpace and SpaceToDepth."""
    block = g.random.choice([1, 2, 2, 3])
    n, c, h, w = (g.random.randint(1, 3) for _ in range(4))
    if row.op == "DepthToSpace":
        x = g.operand([np.dtype("f4")], shape=(n, c * block * block, h, w))
        return g.emit(row.op, [x], blocksize=block, mode=g.random.choice(["DCR", "CRD", None]))
    return g.emit(row.op, [g.operand([np.dtype("f4")], shape=(n, c, h * block, w * block))], blocksize=block)


def compress(g, row):
    x = g.operand(row.dtypes, least=1)
    axis = axis_of(g, x) if g.random.random() < 0.7 else None
    n = x.shape[axis] if axis is not None else x.array.size
    reject_unless(n)
    condition = g.constant(g.numbers.random(g.random.randint(1, n)) < 0.6)
    return g.emit("Compress", [x, condition], axis=axis)


# Made of nothing ------------------------------------------------------------------------------------------------------


def shape_of(g, row):
    x = g.operand(row.dtypes)
    attributes = {}
    if row.op == "Shape" and g.opset >= 15 and g.random.random() < 0.4:
        attributes = {"start": g.random.randint(-3, 2), "end": g.random.randint(-1, 4)}
    return g.emit(row.op, [x], **attributes)


def constant_of_shape(g, row):
    value = g.numbers_of((1,), g.dtype(TYPES["a"]))
    tensor = helper.make_tensor("", helper.np_dtype_to_tensor_dtype(value.dtype), [1], value)
    return g.emit("ConstantOfShape", [g.constant(np.array(g.shape(), "i8"))], value=tensor)


def range_(g, row):
    dtype = g.dtype([np.dtype("int64"), np.dtype("int32"), np.dtype("float32")])
    start, step = g.random.randint(-5, 5), g.random.choice([1, 2, -1, 3])
    bounds = [np.array(number, dtype) for number in (start, start + step * g.extent(), step)]
    return g.emit("Range", [g.constant(b) for b in bounds])


def eye_like(g, row):
    x = g.operand(TYPES["n"], least=2, most=2)
    return g.emit("EyeLike", [x], k=g.random.choice([None, 1, -1, 0]),
                  dtype=g.random.choice([None, TensorProto.FLOAT, TensorProto.INT64]), settled=True)


# Along dimensions -----------------------------------------------------------------------------------------------------


def reduction(g, row):
    accepts = (lambda v: v.array.size and 1 < v.array.size < 40) if row.op == "ReduceProd" else None
    x = g.operand(row.dtypes, within=row.within, accepts=accepts)
    reject_unless(x.array.size)  # of nothing ONNX Runtime gives other shapes than the text says
    axes = g.random.sample(range(x.ndim), g.random.randint(0, x.ndim))
    axes = [a - x.ndim * g.random.choice([0, 1]) for a in axes]
    keep = g.random.choice([None, 0, 1])
    settled = x.settled and row.op in ("ReduceMax", "ReduceMin") or not x.is_float
    if g.opset < 18 and row.op != "ReduceSum":
        return g.emit(row.op, [x], axes=axes or None, keepdims=keep, settled=settled)
    operand = g.constant(np.array(axes, "i8")) if axes or g.random.random() < 0.5 else None
    return g.emit(row.op, [x, operand], keepdims=keep, settled=settled,
                  noop_with_empty_axes=g.random.choice([None, 0, 1]))


def arg(g, row):
    x = g.operand(TYPES["n"], least=1)
    axis = axis_of(g, x)
    reject_unless(ranked_apart(x, axis) and x.array.size)  # of nothing ONNX Runtime keeps the dimension whatever keepdims says
    return g.emit(row.op, [x], axis=axis, keepdims=g.random.choice([None, 0, 1]), select_last_index=g.random.choice([None, 0, 1]))


def softmax(g, row):
    x = g.operand(row.dtypes, least=1, within=(-30, 30))
    axis = axis_of(g, x)
    if row.op == "Hardmax":
        reject_unless(ranked_apart(x, axis))
    return g.emit(row.op, [x], axis=axis if g.random.random() < 0.7 else None,
                  settled=row.op == "Hardmax") if row.op != "Hardmax" else g.emit(row.op, [x], axis=axis, settled=True)


def cumsum(g, row):
    x = g.operand(TYPES["n"], least=1)
    return g.emit("CumSum", [x, g.constant(np.array(axis_of(g, x), g.random.choice(["i8", "i4"])))], settled=not x.is_float,
                  exclusive=g.random.choice([None, 0, 1]), reverse=g.random.choice([None, 0, 1]))


# Normalization --------------------------------------------------------------------------------------------------------


def batch_norm(g, row):
    x = g.operand(row.dtypes, least=2)
    c = x.shape[1]
    operands = [g.fresh((c,), x.dtype, within, weight=True) for within in ((-2, 2), (-1, 1), (-1, 1), (0.3, 2))]
    return g.emit("BatchNormalization", [x, *operands], epsilon=g.random.choice([None, 1e-3]), settled=False)


def layer_norm(g, row):
    x = g.operand(row.dtypes, least=1, accepts=lambda v: v.array.size > 0)
    axis = g.random.randrange(x.ndim)
    shape = x.shape[axis:]
    if row.op == "LayerNormalization" and g.opset >= 17 and g.random.random() < 0.15:
        shape = tuple(1 if g.random.random() < 0.4 else n for n in shape)
    scale = g.fresh(shape, x.dtype, (0.3, 2), weight=g.random.random() < 0.8)
    bias = g.fresh(shape, x.dtype) if row.op == "LayerNormalization" and g.random.random() < 0.7 else None
    return g.emit(row.op, [x, scale, bias], axis=axis - x.ndim * g.random.choice([0, 1]),
                  epsilon=g.random.choice([None, 1e-2]), settled=False)


def skip_norm(g, row):
    n = g.extent() + 1
    shape = (g.random.randint(1, 3), g.extent(), n)
    operands = [g.operand([np.dtype("f4")], shape=shape) for _ in range(2)]
    weights = [g.fresh((n,), weight=True) for _ in range(g.random.randint(1, 3 if row.op.startswith("SkipLayer") else 1))]
    return g.emit(row.op, operands + weights, domain=row.domain, epsilon=1e-5, settled=False)


def channel_norm(g, row):
    """InstanceNormalization and GroupNormalization: x [n, c, ..]."""
    x = g.operand(row.dtypes, least=3, accepts=lambda v: v.array.size > 0)
    c = x.shape[1]
    if row.op == "InstanceNormalization":
        return g.emit(row.op, [x, *(g.fresh((c,), x.dtype, weight=True) for _ in range(2))], settled=False)
    groups = g.random.choice([n for n in range(1, c + 1) if c % n == 0])
    n = c if g.opset >= 21 else groups
    return g.emit(row.op, [x, *(g.fresh((n,), x.dtype, weight=True) for _ in range(2))], num_groups=groups, settled=False)


def lp_norm(g, row):
    x = g.operand(row.dtypes, least=1, accepts=lambda v: v.array.size > 0 and np.abs(v.array).min() > 0.05)
    return g.emit(row.op, [x], axis=axis_of(g, x), p=g.random.choice([1, 2]), settled=False)


def mean_variance(g, row):
    x = g.operand([np.dtype("f4")], least=2, accepts=lambda v: v.array.size > 0)
    axes = sorted(g.random.sample(range(x.ndim), g.random.randint(1, x.ndim)))
    # The text divides by deviation + 1e-9, ONNX Runtime 1.31 by the deviation.
    reject_unless(x.array.std(axis=tuple(axes)).min() > 1e-2, "deviation near MeanVarianceNormalization's epsilon")
    return g.emit(row.op, [x], axes=axes, settled=False)


def lrn(g, row):
    x = g.operand([np.dtype("f4")], least=4, most=4)
    return g.emit(row.op, [x], size=g.random.choice([1, 3, 5]), alpha=g.random.choice([None, 0.5]),
                  beta=g.random.choice([None, 0.5]), settled=False)


# Windows --------------------------------------------------------------------------------------------------------------


def window(g, sizes, dilated=True):
    """Attributes of a window over spatial sizes: kernel, strides, pads, dilations."""
    n = len(sizes)
    kernel = [g.random.randint(1, min(3, size)) for size in sizes]
    attributes = {"kernel_shape": kernel}
    if g.random.random() < 0.6:
        attributes["strides"] = [g.random.choice([1, 1, 2, 3]) for _ in range(n)]
    if dilated and g.random.random() < 0.3:
        attributes["dilations"] = [g.random.choice([1, 2]) if (k - 1) * 2 < size else 1 for k, size in zip(kernel, sizes)]
    if g.random.random() < 0.25:
        attributes["auto_pad"] = g.random.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
        if attributes["auto_pad"] != "VALID":
            attributes.pop("dilations", None)
    elif g.random.random() < 0.6:
        attributes["pads"] = [g.random.randint(0, k - 1) for _ in range(2) for k in kernel]
    return attributes


def images(g, channels=None, dims=None):
    dims = dims or g.random.choice([1, 2, 2, 2, 3])
    accepts = lambda v: v.array.size > 0 and (channels is None or v.shape[1] == channels)
    found = g.random.random() < 0.6 and g.existing(lambda v: v.dtype == np.float32 and v.ndim == dims + 2 and accepts(v))
    if found:
        return found
    sizes = [g.random.choice([3, 4, 5, 6, 7, 8, 9]) for _ in range(dims)]
    return g.fresh((g.random.choice([1, 2, 3]), channels or g.random.choice([1, 2, 3, 4, 6]), *sizes), weight=False)


def conv(g, row):
    x = images(g)
    c = x.shape[1]
    attributes = window(g, x.shape[2:])
    group = g.random.choice([1, 1, g.random.choice([n for n in range(1, c + 1) if c % n == 0])])
    filters = group * g.random.choice([1, 2, 3])
    w = g.fresh((filters, c // group, *attributes["kernel_shape"]), weight=g.random.random() < 0.8)
    if g.random.random() < 0.3:
        attributes.pop("kernel_shape")
    bias = g.fresh((filters,)) if g.random.random() < 0.5 else None
    return g.emit("Conv", [x, w, bias], group=group, settled=False, **attributes)


def conv_transpose(g, row):
    x = images(g)
    c = x.shape[1]
    attributes = window(g, x.shape[2:])
    group = g.random.choice([1, 1, g.random.choice([n for n in range(1, c + 1) if c % n == 0])])
    if attributes.get("auto_pad", "VALID") != "VALID" and "strides" in attributes:  # smaller kernels: padding below 0
        attributes["strides"] = [min(s, k) for s, k in zip(attributes["strides"], attributes["kernel_shape"])]
    w = g.fresh((c, g.random.choice([1, 2, 3]), *attributes["kernel_shape"]), weight=g.random.random() < 0.8)
    bias = g.fresh((w.shape[1] * group,)) if g.random.random() < 0.5 else None
    if "strides" in attributes and "auto_pad" not in attributes and g.random.random() < 0.4:
        attributes["output_padding"] = [g.random.randrange(s) for s in attributes["strides"]]
    return g.emit("ConvTranspose", [x, w, bias], group=group, settled=False, **attributes)


def pool(g, row):
    x = images(g)
    dilated = row.op == "MaxPool" or (g.opset >= 19 if row.op == "AveragePool" else g.opset >= 18)
    attributes = window(g, x.shape[2:], dilated)
    if "auto_pad" in attributes and "strides" in attributes:  # else padding may be negative
        attributes["strides"] = [min(s, k) for s, k in zip(attributes["strides"], attributes["kernel_shape"])]
    if row.op != "LpPool" and "auto_pad" not in attributes:
        attributes["ceil_mode"] = g.random.choice([None, 0, 1])
    if row.op == "AveragePool":
        attributes["count_include_pad"] = g.random.choice([None, 0, 1])
    if row.op == "LpPool":
        attributes["p"] = g.random.choice([1, 2, 3])
    return g.emit(row.op, [x], settled=x.settled and row.op == "MaxPool", **attributes)


def global_pool(g, row):
    return g.emit(row.op, [images(g)], p=g.random.choice([1, 2]) if row.op == "GlobalLpPool" else None, settled=False)


def resize(g, row):
    x = images(g, dims=2)
    mode = g.random.choice(["nearest", "nearest", "linear", "cubic"])
    coordinates = g.random.choice(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    sizes = [*x.shape[:2], *(g.random.randint(1, 9) for _ in range(2))]
    reject_unless(mode != "nearest" or coordinates in ("asymmetric", "half_pixel"))
    attributes = {"nearest_mode": g.random.choice(["floor", "round_prefer_floor", "ceil"])} if mode == "nearest" else {}
    if g.random.random() < 0.5:
        return g.emit("Resize", [x, None, None, g.constant(np.array(sizes, "i8"))], mode=mode, settled=False,
                      coordinate_transformation_mode=coordinates, **attributes)
    scales = [1.0, 1.0, *(g.random.choice([0.5, 1.0, 2.0, 1.5, 3.0]) for _ in range(2))]
    reject_unless(all(float(n * s).is_integer() for n, s in zip(x.shape, scales)))
    return g.emit("Resize", [x, None, g.constant(np.array(scales, "f4"))], mode=mode, settled=False,
                  coordinate_transformation_mode=coordinates, **attributes)


# Attention ------------------------------------------------------------------------------------------------------------


def attention(g, row):
    heads, kv = g.random.choice([(1, 1), (2, 2), (3, 3), (4, 2), (6, 2), (4, 1), (5, 5)])
    b, q, k, d = g.random.randint(1, 3), g.extent(), g.extent(), g.random.choice([1, 2, 3, 4, 8])
    flat = g.random.random() < 0.5
    shapes = [(b, q, heads * d), (b, k, kv * d), (b, k, kv * d)] if flat else [(b, heads, q, d), (b, kv, k, d), (b, kv, k, d)]
    operands = [g.operand([np.dtype("f4")], shape=shape, within=(-8, 8)) for shape in shapes]
    causal = g.random.choice([None, 0, 1])
    mask = None
    if g.random.random() < 0.4:
        mask = g.fresh(g.random.choice([(q, k), (1, 1, q, k), (b, 1, q, k)]), within=(-2, 0))
    return g.emit("Attention", [*operands, mask], is_causal=causal, scale=g.random.choice([None, 0.5]), settled=False,
                  softcap=g.random.choice([None, None, 5.0]),
                  q_num_heads=heads if flat else None, kv_num_heads=kv if flat else None)


def rotary(g, row):
    b, h, s, half = g.random.randint(1, 3), g.random.randint(1, 4), g.random.randint(1, 6), g.random.randint(1, 4)
    x = g.operand([np.dtype("f4")], shape=(b, h, s, 2 * half))
    positions = s + 3
    angles = g.numbers.uniform(-3, 3, (positions, half))
    tables = [g.add_input(f(angles).astype("f4"), weight=True) for f in (np.cos, np.sin)]
    at = g.add_input(np.asarray(g.numbers.integers(0, positions, (b, s)), "i8"))
    return g.emit("RotaryEmbedding", [x, *tables, at], interleaved=g.random.choice([None, 0, 1]), settled=False)


def attention_block(g, row):
    """Attention in products, as exporters decompose it: projections, heads, scores, mask, softmax, values."""
    b, s, heads, d = g.random.randint(1, 3), g.extent(), g.random.choice([1, 2, 3, 4]), g.random.choice([2, 3, 4])
    width = heads * d
    x = g.operand([np.dtype("f4")], shape=(b, s, width), within=(-10, 10))

    def project(value):
        made = g.emit("MatMul", [value, g.fresh((width, width), within=(-0.6, 0.6), weight=True)], settled=False)
        return g.emit("Add", [made, g.fresh((width,), weight=True)], settled=False) if g.random.random() < 0.5 else made

    def split_heads(value, perm):
        parts = g.emit("Reshape", [value, g.constant(np.array([b, s, heads, d], "i8"))])
        return g.emit("Transpose", [parts], perm=perm)
    q, k, v = (split_heads(project(x), perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    scores = g.emit("MatMul", [q, k], settled=False)
    scores = g.emit(*g.random.choice([("Mul", [scores, g.constant(np.array(d ** -0.5, "f4"))]),
                                      ("Div", [scores, g.constant(np.array(d ** 0.5, "f4"))])]), settled=False)
    if g.random.random() < 0.5:
        mask = np.triu(np.full((s, s), -1e9 if g.random.random() < 0.5 else -3, "f4"), 1)
        scores = g.emit("Add", [scores, g.constant(mask)], settled=False, limit=1e10)
        g.values.remove(scores)
    weights = g.emit("Softmax", [scores], axis=-1, settled=False)
    joined = g.emit("Transpose", [g.emit("MatMul", [weights, v], settled=False)], perm=[0, 2, 1, 3])
    out = project(g.emit("Reshape", [joined, g.constant(np.array([b, s, width], "i8"))]))
    return g.emit("Add", [out, x], settled=False) if g.random.random() < 0.6 else out


def mlp_block(g, row):
    x = g.operand([np.dtype("f4")], least=2, most=3, within=(-20, 20))
    hidden = g.random.choice([3, 5, 7, 8, 12])
    for n in (hidden, x.shape[-1]):
        y = g.emit("MatMul", [x, g.fresh((x.shape[-1], n), within=(-0.7, 0.7), weight=True)], settled=False)
        y = g.emit("Add", [y, g.fresh((n,), weight=True)], settled=False)
        x = g.emit(g.random.choice(["Relu", "Tanh", "Sigmoid", "Erf", "HardSwish"]), [y], settled=False) if n == hidden else y
    return x


def norm_block(g, row):
    """LayerNorm or RMSNorm as exporters decompose them."""
    x = g.operand([np.dtype("f4")], least=2, accepts=lambda v: v.array.size > 0 and v.shape[-1] > 1)
    reject_unless(x.shape[-1] > 1)
    mean = lambda v: (g.emit("ReduceMean", [v], axes=[-1], settled=False) if g.opset < 18 else
                      g.emit("ReduceMean", [v, g.constant(np.array([-1]))], settled=False))
    if g.random.random() < 0.6:
        x = g.emit("Sub", [x, mean(x)], settled=False)
    square = g.emit("Pow", [x, g.constant(np.array(2, "f4"))], settled=False)
    deviation = g.emit("Sqrt", [g.emit("Add", [mean(square), g.constant(np.array(1e-2, "f4"))], settled=False)], settled=False)
    y = g.emit("Div", [x, deviation], settled=False)
    y = g.emit("Mul", [y, g.fresh((x.shape[-1],), weight=True)], settled=False)
    return g.emit("Add", [y, g.fresh((x.shape[-1],), weight=True)], settled=False) if g.random.random() < 0.6 else y


def gelu_block(g, row):
    x = g.operand([np.dtype("f4")], within=(-20, 20))
    number = lambda n: g.constant(np.array(n, "f4"))
    e = g.emit("Erf", [g.emit("Div", [x, number(2 ** 0.5)], settled=False)], settled=False)
    return g.emit("Mul", [g.emit("Mul", [x, g.emit("Add", [e, number(1)], settled=False)], settled=False), number(0.5)],
                  settled=False)


def conv_block(g, row):
    """Conv, BatchNormalization, activation, and a residual where shapes allow."""
    x = images(g, dims=2)
    c = x.shape[1]
    filters = g.random.choice([c, 2, 3, 5])
    y = g.emit("Conv", [x, g.fresh((filters, c, 3, 3), within=(-0.5, 0.5), weight=True)], pads=[1, 1, 1, 1], settled=False)
    operands = [g.fresh((filters,), within=w, weight=True) for w in ((-2, 2), (-1, 1), (-1, 1), (0.3, 2))]
    y = g.emit("BatchNormalization", [y, *operands], settled=False)
    if filters == c:
        y = g.emit("Add", [y, x], settled=False)
    return g.emit(g.random.choice(["Relu", "HardSwish", "Sigmoid", "LeakyRelu"]), [y], settled=False)


# Losses, contributed operators ----------------------------------------------------------------------------------------


def loss(g, row):
    n, c, rest = g.random.randint(1, 5), g.random.randint(2, 6), g.shape(0, 2)
    reject_unless(0 not in rest)
    x = g.operand([np.dtype("f4")], shape=(n, c, *rest), within=(-20, 20))
    labels = g.add_input(np.asarray(g.numbers.integers(0, c, (n, *rest)), "i8"))
    weights = g.fresh((c,), within=(0.3, 2)) if g.random.random() < 0.4 else None
    return g.emit(row.op, [x, labels, weights], reduction=g.random.choice(["none", "sum", "mean"]), settled=False,
                  ignore_index=g.random.choice([None, None, 1]))


def dropout(g, row):
    return g.emit("Dropout", [g.operand(row.dtypes)])


def fused_matmul(g, row):
    a = g.operand([np.dtype("f4")], least=2, most=3, within=(-50, 50))
    flags = {name: g.random.choice([None, 0, 1]) for name in ("transA", "transB")}
    k = a.shape[-2] if flags["transA"] else a.shape[-1]
    n = g.extent()
    b = g.fresh((n, k) if flags["transB"] else (k, n))
    return g.emit("FusedMatMul", [a, b], domain=row.domain, alpha=g.random.choice([None, 0.5]), settled=False, **flags)


def bias_gelu(g, row):
    x = g.operand([np.dtype("f4")], least=1, within=(-20, 20))
    return g.emit(row.op, [x, g.fresh(x.shape[-1:], weight=True)], domain=row.domain, settled=False)


def if_(g, row):
    """If with a condition that is known; each branch reads an outer value."""
    x = g.operand([np.dtype("f4")])
    branches = {}
    for which, op in (("then_branch", "Relu"), ("else_branch", "Neg")):
        out = g.name("b")
        branches[which] = helper.make_graph([helper.make_node(op, [x.name], [out])], which, [],
                                            [helper.make_tensor_value_info(out, TensorProto.FLOAT, x.shape)])
    condition = g.constant(np.array(g.random.random() < 0.5))
    chosen = np.maximum if condition.array else lambda a, zero: -a
    x.uses += 1
    g.nodes.append(helper.make_node("If", [condition.name], [g.name("y")], **branches))
    g.values.append(Value(g.nodes[-1].output[0], chosen(x.array, np.float32(0)), chosen(x.exact, 0.0), x.settled, x.eps))


MS = "com.microsoft"

ROWS = [
    # elementwise, one operand
    Row("Abs", unary, "s", options={"exact": 1}),
    Row("Acos", unary, within=(-0.95, 0.95)),
    Row("Acosh", unary, within=(1.1, 20)),
    Row("Asin", unary, within=(-0.95, 0.95)),
    Row("Asinh", unary, within=(-20, 20)),
    Row("Atan", unary),
    Row("Atanh", unary, within=(-0.9, 0.9)),
    Row("Ceil", unary, options={"decides": "integers", "exact": 1}),
    Row("Celu", unary, within=(-20, 20), options={"floats": {"alpha": (0.5, 2)}}),
    Row("Cos", unary, within=(-20, 20)),
    Row("Cosh", unary, within=(-5, 5)),
    Row("Elu", unary, within=(-20, 20), options={"floats": {"alpha": (0.5, 2)}}),
    Row("Erf", unary),
    Row("Exp", unary, within=(-20, 5)),
    Row("Floor", unary, options={"decides": "integers", "exact": 1}),
    Row("Gelu", unary, "4", since=20, options={"words": {"approximate": ["none", "tanh"]}}),
    Row("HardSigmoid", unary, options={"floats": {"alpha": (0.1, 0.5), "beta": (0.2, 0.6)}}),
    Row("HardSwish", unary, "4", since=17),
    Row("Identity", unary, "a", options={"exact": 1}),
    Row("IsInf", special_values, "f", weight=0.7),
    Row("IsNaN", special_values, "f"),
    Row("LeakyRelu", unary, options={"floats": {"alpha": (0.01, 0.5)}}),
    Row("Log", unary, within=(0.1, 1000)),
    Row("Mish", unary, since=18, within=(-20, 20)),
    Row("Neg", unary, "n", options={"exact": 1}),
    Row("Not", unary, "b"),
    Row("Reciprocal", unary, within=(0.2, 100)),
    Row("Relu", unary, "n", options={"exact": 1}),
    Row("Round", unary, options={"decides": "halves", "exact": 1}),
    Row("Selu", unary, within=(-20, 20), options={"floats": {"alpha": (0.5, 2), "gamma": (0.5, 2)}}),
    Row("Shrink", jumping, "4"),
    Row("Sigmoid", unary),
    Row("Sign", unary, "n", options={"decides": "zero", "exact": 1}),
    Row("Sin", unary, within=(-20, 20)),
    Row("Sinh", unary, within=(-5, 5)),
    Row("Softplus", unary, within=(-20, 20)),
    Row("Softsign", unary),
    Row("Sqrt", unary, within=(0.01, 1000)),
    Row("Swish", unary, since=24),
    Row("Tan", unary, within=(-1.3, 1.3)),
    Row("Tanh", unary),
    Row("ThresholdedRelu", jumping),
    # elementwise, several operands
    Row("Add", binary, "s", weight=2),
    Row("And", binary, "b"),
    Row("Div", binary, "n", options={"second": (0.3, 20), "second_integer": (1, 9)}, weight=2),
    Row("Equal", binary, "a", options={"decides": 1}),
    Row("Greater", binary, "s", options={"decides": 1}),
    Row("GreaterOrEqual", binary, "s", options={"decides": 1}),
    Row("Less", binary, "s", options={"decides": 1}),
    Row("LessOrEqual", binary, "s", options={"decides": 1}),
    Row("Max", variadic, "n", options={"exact": 1}),
    Row("Mean", variadic, "f"),
    Row("Min", variadic, "n", options={"exact": 1}),
    Row("Mod", binary, "s", options={"second": (1, 9)}),
    Row("Mul", binary, "s", weight=2),
    Row("Or", binary, "b"),
    Row("PRelu", prelu, "n"),
    Row("Pow", power, "n"),
    Row("Sub", binary, "n", weight=2),
    Row("Sum", variadic, "f"),
    Row("Where", where, "a", weight=2),
    Row("Xor", binary, "b"),
    Row("Clip", clip, "n"),
    Row("Cast", cast, "a", weight=2),
    Row("CastLike", cast, "a", since=17),
    Row("Dropout", dropout),
    # products
    Row("MatMul", matmul, "n", weight=5),
    Row("Gemm", gemm, "f", weight=3),
    Row("Einsum", einsum, "f", weight=2),
    # moves
    Row("Transpose", transpose, "a", weight=2),
    Row("Reshape", reshape, "a", weight=3),
    Row("Flatten", flatten, "a"),
    Row("Squeeze", squeeze, "a"),
    Row("Unsqueeze", unsqueeze, "a"),
    Row("Expand", expand, "a"),
    Row("Tile", tile, "a"),
    Row("Slice", slice_, "a", weight=3),
    Row("Pad", pad, "a", weight=2),
    Row("Concat", concat, "a", weight=2),
    Row("Split", split, "a", weight=2),
    Row("Gather", gather, "a", weight=2),
    Row("GatherElements", gather_elements, "a"),
    Row("GatherND", gather_nd, "a"),
    Row("ScatterElements", scatter_elements, "n"),
    Row("ScatterND", scatter_nd, "n"),
    Row("OneHot", one_hot, "n"),
    Row("Trilu", trilu, "n", since=17),
    Row("DepthToSpace", blocks_moved, weight=0.5),
    Row("SpaceToDepth", blocks_moved, weight=0.5),
    Row("Compress", compress, "n", weight=0.5),
    # made of nothing
    Row("Shape", shape_of, "a", weight=0.5),
    Row("Size", shape_of, "a", weight=0.3),
    Row("ConstantOfShape", constant_of_shape, weight=0.5),
    Row("Range", range_, weight=0.5),
    Row("EyeLike", eye_like, weight=0.3),
    # along dimensions
    *(Row("Reduce" + kind, reduction, types, within=within, weight=0.8) for kind, types, within in (
        ("L1", "n", None), ("L2", "f", (-50, 50)), ("LogSum", "f", (0.1, 50)), ("LogSumExp", "f", (-20, 20)), ("Max", "n", None),
        ("Mean", "f", None), ("Min", "n", None), ("Prod", "n", (-1.8, 1.8)), ("Sum", "n", None), ("SumSquare", "n", (-50, 50)))),
    Row("ArgMax", arg),
    Row("ArgMin", arg),
    Row("Softmax", softmax, weight=2),
    Row("LogSoftmax", softmax),
    Row("Hardmax", softmax, weight=0.5),
    Row("CumSum", cumsum),
    # normalization
    Row("BatchNormalization", batch_norm),
    Row("LayerNormalization", layer_norm, since=17, weight=2),
    Row("RMSNormalization", layer_norm, since=23, weight=2),
    Row("GroupNormalization", channel_norm, "4", since=18),  # f64 has its statistics in f32 (stash_type)
    Row("InstanceNormalization", channel_norm),
    Row("LpNormalization", lp_norm),
    Row("MeanVarianceNormalization", mean_variance),
    Row("LRN", lrn, weight=0.5),
    # windows
    Row("Conv", conv, weight=4),
    Row("ConvTranspose", conv_transpose, weight=2),
    Row("MaxPool", pool, weight=2),
    Row("AveragePool", pool, weight=2),
    Row("LpPool", pool),
    Row("GlobalAveragePool", global_pool, weight=0.5),
    Row("GlobalMaxPool", global_pool, weight=0.5),
    Row("GlobalLpPool", global_pool, weight=0.5),
    Row("Resize", resize, since=13),
    # attention
    Row("Attention", attention, since=23, weight=3),
    Row("RotaryEmbedding", rotary, since=23, weight=2),
    # losses
    Row("SoftmaxCrossEntropyLoss", loss),
    Row("NegativeLogLikelihoodLoss", loss),
    # of ONNX Runtime
    Row("BiasGelu", bias_gelu, domain=MS, weight=0.5),
    Row("FastGelu", bias_gelu, domain=MS, weight=0.5),
    Row("Gelu", unary, "4", domain=MS, weight=0.5),
    Row("QuickGelu", unary, "4", domain=MS, weight=0.5),
    Row("FusedMatMul", fused_matmul, domain=MS),
    Row("SkipLayerNormalization", skip_norm, domain=MS),
    Row("SkipSimplifiedLayerNormalization", skip_norm, domain=MS),
    Row("If", if_, weight=0.5),
    # groups of nodes
    Row("attention block", attention_block, weight=2),
    Row("perceptron block", mlp_block, weight=3),
    Row("norm block", norm_block, weight=2),
    Row("gelu block", gelu_block),
    Row("convolution block", conv_block, weight=2),
]


def rows_of(opset):
    return [row for row in ROWS if row.since <= opset]
