"""What every core operator computes, by NumPy and PyTorch: a row per operator of ir/ops.def.

A function takes the inputs (floats as f64, whatever the sample's type; None where left out) and the attributes, and gives
the result."""
import math
import re

import numpy as np
import torch

DTYPES = {"f32": "f4", "f64": "f8", "fp16": "f2", "bf16": "f4", "i64": "i8", "i32": "i4", "u8": "u1",
          "i8": "i1", "u4": "u1", "bool": "?"}  # bf16: what holds it


def round_to_bf16(x):
    """By PyTorch; as f32."""
    return torch.from_numpy(np.array(x, "f4")).to(torch.bfloat16).float().numpy()


def bits_of_bf16(x):
    """As .npy has them."""
    return (np.ascontiguousarray(x).reshape(np.shape(x)).view("u4") >> 16).astype("u2").view("V2")


def by_torch(function):
    return lambda x, a: function(torch.from_numpy(np.array(x))).numpy()


def activation(name, **renamed):
    """A function of torch.nn.functional; renamed: its arguments by the names of our attributes."""
    def call(x, a):
        arguments = {theirs: a[ours] for theirs, ours in renamed.items()}
        return getattr(torch.nn.functional, name)(torch.from_numpy(np.array(x)), **arguments).numpy()
    return call


def divide(a, b, _):
    if a.dtype.kind == "f":
        return a / b
    return torch.div(torch.from_numpy(a), torch.from_numpy(np.array(b)), rounding_mode="trunc").numpy()


def is_infinite(x, a):
    return (np.isposinf(x) & bool(a["positive"])) | (np.isneginf(x) & bool(a["negative"]))


def cast(x, a):
    return x.astype(DTYPES[a["to"]])


def matmul(a, b, attributes):
    if attributes.get("trans_a"):
        a = np.swapaxes(a, -1, -2)
    if attributes.get("trans_b"):
        b = np.swapaxes(b, -1, -2)
    return np.matmul(a, b)


def unpack(x, a):
    """Codes of fewer than 8 bits, the first in the lowest bits."""
    width = int(re.search(r"\d", a["to"])[0]) if a["to"][0] in "iu" else {"e3m2": 6, "e2m3": 6, "e2m1": 4}[a["to"]]
    bits = np.unpackbits(x.astype("u1"), axis=-1, bitorder="little")
    bits = bits.reshape(*x.shape[:-1], -1, width)
    return (bits << np.arange(width, dtype="u1")).sum(-1).astype("u1")


def dequantised(w, scale, zero, a):
    """Weights (k, n), of each matrix of a stack, that are stored as (k, n) or, with trans_b, (n, k); with scales and zero points per
    group along k, or, with across, along n."""
    width = int(re.search(r"\d+", a["codes"])[0])
    codes = unpack(w, {"to": a["codes"]}).astype("f8") if width < 8 else w.astype("f8")
    if width < 8 and a["codes"][0] == "i":
        codes = np.where(codes >= 2 ** (width - 1), codes - 2 ** width, codes)
    along = -1 if a["trans_b"] != a.get("across", 0) else -2
    spread = lambda values: np.repeat(values, codes.shape[along] // values.shape[along], along)
    weights = codes - (a["offset"] if zero is None else spread(zero))
    weights = weights if scale is None else weights * spread(scale)
    return np.swapaxes(weights, -1, -2) if a["trans_b"] else weights


def dequant_matmul(x, w, scale, *rest):
    """Of a stack each matrix multiplies the rows with its index in the first dimension of x."""
    weights = dequantised(w, scale, rest[0] if len(rest) > 1 else None, rest[-1])
    rows = x.reshape(*weights.shape[:-2], -1, x.shape[-1])
    return (rows @ weights).reshape(*x.shape[:-1], weights.shape[-1])


def dequant_expert_matmul(x, w, scale, index, a):
    return np.einsum("...k,...kn->...n", x, dequantised(w, scale, None, a)[index])


def finished(product, rest):
    """What the epilogue of a product makes of it, in f32 as the kernels."""
    a = rest[-1]
    if "expr" not in a:
        return product
    beside = list(rest[3:-1])
    beside.insert(a["result"], product.astype("f4"))
    return fused(*beside, a).astype({"u8": "u1", "i8": "i1", "f32": "f4"}[a["to"]])


def int_matmul(x, w, *rest):
    bias = rest[2] if len(rest) > 3 and rest[2] is not None else 0
    return finished(int_product(x, w, *rest) + bias, rest)


def int_product(x, w, *rest):
    zeros = [*rest[:-1], 0, 0][:2]
    return matmul(x.astype("i4") - zeros[0], w.astype("i4") - np.expand_dims(zeros[1], -1 if rest[-1].get("trans_b") else 0)
                  if np.ndim(zeros[1]) else w.astype("i4") - zeros[1], rest[-1]).astype("i4")


def int_conv(x, w, *rest):
    """Padding counts as 0."""
    zeros = [*rest[:-1], 0, 0][:2]
    shift = np.reshape(zeros[1], (-1,) + (1,) * (w.ndim - 1)) if np.ndim(zeros[1]) else zeros[1]
    return conv(x.astype("f8") - zeros[0], w.astype("f8") - shift, rest[-1]).round().astype("i4")


def int_max_pool(x, a):
    last = a.get("channels_last", 0)
    first = np.moveaxis(x, -1, 1) if last else x
    y = max_pool(first.astype("f4"), a).astype(x.dtype)
    return np.moveaxis(y, 1, -1) if last else y


def decoded(codes, form):
    """Numbers of 8-bit floats, by their definition: sign, exponent, mantissa."""
    mantissa, bias = {"e4m3": (3, 7), "e5m2": (2, 15)}[form]
    codes = codes.astype("i8")
    exponent, fraction = codes % 0x80 >> mantissa, codes % (1 << mantissa)
    size = np.where(exponent == 0, fraction, fraction + (1 << mantissa)) * 2.0 ** (np.maximum(exponent, 1) - bias - mantissa)
    return np.where(codes < 0x80, size, -size)


def scaled_matmul(a, b, unscale_a, unscale_b, attributes):
    return decoded(a, attributes["a"]) @ decoded(b, attributes["b"]).T * unscale_a * unscale_b


def values_of_moments(has_sign):
    """create_dynamic_map of bitsandbytes 0.45, with signed=has_sign, max_exponent_bits=7 and total_bits=8."""
    values = [0.0, 1.0]
    for i in range(7):
        ends = np.linspace(0.1, 1, 2 ** (i + 1 - has_sign) + 1)
        means = 10.0 ** (i - 6) * (ends[:-1] + ends[1:]) / 2
        values += [*means, *-means] if has_sign else [*means]
    return np.array(sorted(values), "f4").astype("f8")


def dequantize_blocks(codes, scales, a):
    return values_of_moments(a["has_sign"])[codes] * np.repeat(scales, 256).reshape(codes.shape)


def quantize_blocks(codes, scales, x, *rest):
    """Codes of the nearest values, and the largest magnitude of each 256 elements."""
    if len(rest) > 1 and not rest[0]:
        return codes, scales
    blocks = x.reshape(-1, 256)
    most = abs(blocks).max(1, keepdims=True)
    distance = abs((blocks / most)[..., None] - values_of_moments(rest[-1]["has_sign"]))
    return distance.argmin(-1).astype("u1").reshape(codes.shape), most.reshape(scales.shape)


def padded(x, a, value):
    """The input with begin and end, which may cut off, put on its spatial dimensions."""
    zeros = [0] * (x.ndim - len(a["begin"]))
    return pad(x, value, {"begin": zeros + a["begin"], "end": zeros + a["end"]})


def convolution(ndim):
    return [torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d][ndim - 3]


def conv(x, w, a):
    x, w = torch.from_numpy(padded(x, a, 0)), torch.from_numpy(w)
    return convolution(x.ndim)(x, w, None, a["stride"], 0, a["dilation"], a["group"]).numpy()


def conv_transpose(x, w, a):
    function = [torch.nn.functional.conv_transpose1d, torch.nn.functional.conv_transpose2d][x.ndim - 3]
    y = function(torch.from_numpy(x), torch.from_numpy(w), None, a["stride"], 0, 0, a["group"], a["dilation"]).numpy()
    return padded(y, {"begin": [-b for b in a["begin"]], "end": [-e for e in a["end"]]}, 0)


def conv_weight_grad(x, dy, a):
    """By PyTorch's autograd."""
    w = torch.zeros((dy.shape[1], x.shape[1] // a["group"], *a["window"]), dtype=torch.float64, requires_grad=True)
    y = convolution(x.ndim)(torch.from_numpy(padded(x, a, 0)), w, None, a["stride"], 0, a["dilation"], a["group"])
    return torch.autograd.grad(y, w, torch.from_numpy(dy))[0].numpy()


def overhang(x, a, spans):
    """With ceil: what the last window of each dimension may take beyond the padding, if it starts before that."""
    ends = []
    for extent, begin, end, span, stride in zip(x.shape[-len(spans):], a["begin"], a["end"], spans, a["stride"]):
        room = extent + begin + end - span
        starts = (room // stride + 1) * stride < extent + begin
        ends.append(-room % stride if a["ceil"] and starts else 0)
    return {"begin": [0] * x.ndim, "end": [0] * (x.ndim - len(spans)) + ends}


def windows(x, a, value, beyond):
    """All windows, their elements in the last dimensions; `beyond` is what lies behind the padding."""
    spans, n = [(w - 1) * d + 1 for w, d in zip(a["window"], a["dilation"])], len(a["window"])
    x = pad(padded(x, a, value), beyond, overhang(x, a, spans))
    views = np.lib.stride_tricks.sliding_window_view(x, spans, tuple(range(x.ndim - n, x.ndim)))
    return views[(...,) + tuple(slice(None, None, s) for s in a["stride"]) +
                 tuple(slice(None, None, d) for d in a["dilation"])]


def max_pool(x, a):
    return windows(x, a, -np.inf, -np.inf).max(tuple(range(-len(a["window"]), 0)))


def max_pool_grad(x, dy, a):
    """By PyTorch's autograd, which knows equal elements and NaN; what is around x is smaller than all of it."""
    function = [torch.nn.functional.max_pool1d, torch.nn.functional.max_pool2d][x.ndim - 3]
    behind = overhang(x, a, [(w - 1) * d + 1 for w, d in zip(a["window"], a["dilation"])])["end"][2:]
    around = [n for b, e, more in zip(a["begin"], a["end"], behind) for n in (e + more, b)][::-1]
    x = torch.from_numpy(np.array(x)).requires_grad_()
    y = function(torch.nn.functional.pad(x, around, value=-np.inf), a["window"], a["stride"], 0, a["dilation"])
    return torch.autograd.grad(y, x, torch.from_numpy(dy))[0].numpy()


def average_pool(x, a):
    axes = tuple(range(-len(a["window"]), 0))
    counted_ones = windows(np.ones_like(x), a, a["count_include_pad"], 0).sum(axes)
    return windows(x, a, 0, 0).sum(axes) / counted_ones


def softmax(x, a):
    return torch.softmax(torch.from_numpy(x), a["axis"]).numpy()


def log_softmax(x, a):
    return torch.log_softmax(torch.from_numpy(x), a["axis"]).numpy()


def shifted(shift):
    """Shifts by negative numbers and by all bits or more move all bits out (ONNX BitShift-28)."""
    def call(x, by, a):
        bits = 8 * x.dtype.itemsize
        near = (by >= 0) & (by < bits)
        out = np.where(x < 0, -1, 0) if shift is np.right_shift else 0
        return np.where(near, shift(x, np.where(near, by, 0)), out).astype(x.dtype)
    return call


def bit_cast(x, a):
    was, to = {"i32": ("f4", "i4"), "f64": ("i8", "f8")}[a["to"]]
    return np.ascontiguousarray(x.astype(was)).view(to)


def append(x, rows, a):
    out = x.copy()
    np.moveaxis(out, a["axis"], 0)[a["at"]:a["at"] + rows.shape[a["axis"]]] = np.moveaxis(rows, a["axis"], 0)
    return out


def cumprod(x, a):
    axis = a["axis"]
    x = np.flip(x, axis) if a["reverse"] else x
    if a["exclusive"]:
        x = np.concatenate([np.ones_like(np.take(x, [0], axis)), np.take(x, range(x.shape[axis] - 1), axis)], axis)
    y = np.cumprod(x, axis, dtype=x.dtype)
    return np.flip(y, axis) if a["reverse"] else y


def cumprod_grad(x, dy, a):
    """By PyTorch's autograd."""
    axis, x = a["axis"], torch.from_numpy(np.array(x)).requires_grad_()
    ordered = x.flip(axis) if a["reverse"] else x
    if a["exclusive"]:
        kept = ordered.narrow(axis, 0, x.shape[axis] - 1)
        ordered = torch.cat([torch.ones_like(x.narrow(axis, 0, 1)), kept], axis)
    y = torch.cumprod(ordered, axis)
    (y.flip(axis) if a["reverse"] else y).backward(torch.from_numpy(np.array(dy)))
    return x.grad.numpy()


def cumsum(x, a):
    axis = a["axis"]
    if a["reverse"]:
        x = np.flip(x, axis)
    y = np.cumsum(x, axis, dtype=x.dtype)
    if a["exclusive"]:
        y = y - x
    return np.flip(y, axis) if a["reverse"] else y


def layer_norm(x, scale, bias, a):
    x, scale = torch.from_numpy(x), torch.from_numpy(scale)
    bias = None if bias is None else torch.from_numpy(bias)
    return torch.nn.functional.layer_norm(x, x.shape[-1:], scale, bias, a["epsilon"]).numpy()


def rms_norm(x, scale, a):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + a["epsilon"]) * scale


def attention(*inputs):
    (q, k, v, keep, bias, sink, *scales), a = (list(inputs[:-1]) + [None] * 3)[:8], inputs[-1]
    if len(scales) == 2 and scales[0] is not None:
        k, v = k * scales[0], v * scales[1]
    heads = q.shape[-3] // k.shape[-3]
    scores = a["scale"] * q @ np.swapaxes(np.repeat(k, heads, -3), -1, -2)
    t, s = scores.shape[-2:]
    if a.get("cap"):
        scores = a["cap"] * np.tanh(scores / a["cap"])
    masked = np.zeros_like(scores, "?")
    if keep is not None:
        masked = masked | (keep if a.get("drop") else ~keep)
    if a.get("causal"):
        last = np.arange(t)[:, None] + a.get("offset", 0)
        masked = masked | (np.arange(s) > last)
        if a.get("window"):
            masked = masked | (np.arange(s) <= last - a["window"])
    if bias is not None and a.get("bias_first"):
        scores = scores + bias
    scores = np.where(masked, a.get("fill", 0), scores)
    if bias is not None and not a.get("bias_first"):
        scores = scores + bias
    if a.get("clamp"):
        scores = np.maximum(scores, np.finfo("f4").min)
    if sink is not None:
        scores = np.concatenate([scores, np.broadcast_to(sink, (*scores.shape[:-1], 1))], -1)
    weights = softmax(scores, {"axis": -1})[..., :s]
    if a.get("nan_to_zero"):
        none = (scores == -np.inf).all(-1, keepdims=True) if a["nan_to_zero"] == 2 else np.isnan(weights)
        weights = np.where(none, 0, weights)
    return weights @ np.repeat(v, heads, -3)


def rope(x, cos, sin, a):
    rotated = np.empty_like(x)
    if a["interleaved"]:
        rotated[..., 0::2], rotated[..., 1::2] = -x[..., 1::2], x[..., 0::2]
    else:
        half = x.shape[-1] // 2
        rotated[..., :half], rotated[..., half:] = -x[..., half:], x[..., :half]
    return x * cos + rotated * sin


def fused(*inputs):
    """The chain "v0 = a + b; v0 * exp(c)" as Python: of the functions, those that samples use."""
    names = dict(zip("abcdefgh", inputs[:-1]), exp=np.exp, sigmoid=by_sigmoid, round=np.round, min=np.minimum,
                 max=np.maximum)
    *named, value = inputs[-1]["expr"].split(";")
    for statement in named:
        name, text = statement.split("=", 1)
        names[name.strip()] = eval(text.strip(), names)  # of samples.def, which is ours
    choice = re.fullmatch(r"(.*)\?(.*):(.*)", value)
    return np.where(*(eval(part.strip(), names) for part in choice.groups())) if choice else eval(value.strip(), names)


def by_sigmoid(x):
    return torch.sigmoid(torch.from_numpy(x)).numpy()


def reduction(function):
    def call(x, a):
        extra = {"dtype": x.dtype} if function in (np.sum, np.prod) else {}
        return function(x, tuple(a["axes"]), keepdims=bool(a["keepdims"]), **extra)
    return call


def reduction_pair(x, a):
    by_name = {"sum": np.sum, "max": np.max, "min": np.min}
    return tuple(reduction(by_name[a[which]])(x, a) for which in ("first", "second"))


def argument(function):
    def call(x, a):
        axis = a["axes"][0]
        if not a["select_last"]:
            return function(x, axis, keepdims=bool(a["keepdims"]))
        return x.shape[axis] - 1 - function(np.flip(x, axis), axis, keepdims=bool(a["keepdims"]))
    return call


def topk(x, a):
    """As NumPy sorts: NaN behind all numbers, equal elements in their order."""
    axis, n = a["axis"], x.shape[a["axis"]]
    if a["largest"]:
        last_first = np.argsort(np.flip(x, axis), axis, kind="stable")
        order = np.flip(n - 1 - last_first, axis)
    else:
        order = np.argsort(x, axis, kind="stable")
    return np.take(order, range(a["k"]), axis)


def slice_of(x, a):
    for axis, (start, step, size) in enumerate(zip(a["start"], a["step"], a["size"])):
        x = np.take(x, [start + i * step for i in range(size)], axis)
    return x


def pad(x, value, a):
    for axis, (begin, end) in enumerate(zip(a["begin"], a["end"])):
        x = np.take(x, range(max(0, -begin), x.shape[axis] - max(0, -end)), axis)
    amounts = [(max(0, b), max(0, e)) for b, e in zip(a["begin"], a["end"])]
    return np.pad(x, amounts, constant_values=value)


def trilu(x, a):
    return np.triu(x, a["k"]) if a["upper"] else np.tril(x, a["k"])


def philox(counter, key):
    """Philox4x32-10 of arrays of four counter words and of two key words (Salmon et al. 2011)."""
    c, k = [np.asarray(word, "u8") for word in counter], [np.uint64(word) for word in key]
    low, bits = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> bits) ^ c[1] ^ k[0], b & low, (a >> bits) ^ c[3] ^ k[1], a & low]
        k = [(word + np.uint64(bump)) & low for word, bump in zip(k, (0x9E3779B9, 0xBB67AE85))]
    return c


def class_terms(x, most, index, a):
    """Of tensors, so that the gradient can be taken."""
    distance, classes = x - most, torch.arange(x.shape[a["axis"]]).reshape([-1] + [1] * (x.ndim - a["axis"] - 1))
    own = torch.where(index.unsqueeze(a["axis"]) == classes, distance, torch.zeros_like(distance))
    return torch.stack([of.sum(a["axis"]) for of in (distance.exp(), own, distance)])


def class_terms_grad(x, most, index, dy, a):
    x = torch.from_numpy(x).requires_grad_()
    class_terms(x, torch.from_numpy(most), torch.from_numpy(np.array(index)), a).backward(torch.from_numpy(dy))
    return x.grad.numpy()


def dropout(x, training, step, micro, a):
    place, key = np.arange(x.size), a["key"]
    words = philox([place // 4, 0 * place, 0 * place + int(micro), 0 * place + int(step)],
                   [key & 0xFFFFFFFF, key >> 32])
    kept = np.choose(place % 4, words).reshape(x.shape) >= a["ratio"] * 2**32
    return x * kept / (1 - a["ratio"]) if training else x


def uniform(x, step, micro, a):
    """The parts of [0, 1) are fewer for f32: a sample's results are compared within its precision."""
    place, key = np.arange(x.size), a["key"]
    words = philox([place // 4, 0 * place, 0 * place + int(micro), 0 * place + int(step)],
                   [key & 0xFFFFFFFF, key >> 32])
    return ((np.choose(place % 4, words).astype("f8") + 0.5) / 2**32).reshape(x.shape)


def counted(index, extent):
    """Indices from the end counted from the start."""
    return np.where(index < 0, index + extent, index)


def gather_grad(dy, index, a):
    """PyTorch's index_add: rows of dy added where the indices say."""
    axis, indices = a["axis"], counted(index, a["size"])
    shape = dy.shape[:axis] + (a["size"],) + dy.shape[axis + index.ndim:]
    rows = dy.reshape(dy.shape[:axis] + (-1,) + dy.shape[axis + index.ndim:])
    return torch.zeros(shape, dtype=torch.float64).index_add_(
        axis, torch.from_numpy(np.ravel(indices).astype("i8")), torch.from_numpy(np.array(rows))).numpy()


def expert_matmul(x, w, index, a):
    w = w[counted(index, w.shape[0])]
    return np.einsum("...k,...nk->...n" if a["trans_b"] else "...k,...kn->...n", x, w)


def expert_weight_grad(x, dy, index, a):
    chosen = counted(index, a["experts"]).reshape(-1, 1) == np.arange(a["experts"])
    return np.einsum("rk,rn,re->ekn", x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1]), chosen.astype(x.dtype))


def expert_places(index, experts, capacity):
    """(group, row, expert, place) of the rows that have a place in the buffer of their expert."""
    for group, chosen in enumerate(counted(index, experts)):
        for expert in range(experts):
            for place, row in enumerate(np.flatnonzero(chosen == expert)[:capacity]):
                yield group, row, expert, place


def expert_dispatch(x, index, a):
    y = np.zeros((a["experts"], x.shape[0], a["capacity"], x.shape[2]), x.dtype)
    choices = index.shape[1] // x.shape[1]
    for group, row, expert, place in expert_places(index, a["experts"], a["capacity"]):
        y[expert, group, place] = x[group, row // choices]
    return y


def expert_combine(x, index, a):
    y = np.zeros((index.shape[0], index.shape[1] // a["choices"], x.shape[3]), x.dtype)
    for group, row, expert, place in sorted(expert_places(index, x.shape[0], x.shape[2])):
        y[group, row // a["choices"]] += x[expert, group, place]
    return y


def gather_elements(x, index, a):
    return np.take_along_axis(x, counted(index, x.shape[a["axis"]]), a["axis"])


def gather_nd(x, index, a):
    batch, depth = a["batch_dims"], a["depth"]
    y = np.empty(index.shape[:-1] + x.shape[batch + depth:], x.dtype)
    for at in np.ndindex(index.shape[:-1]):
        y[at] = x[at[:batch] + tuple(index[at])]
    return y


def scatter_elements(x, index, updates, a):
    y = x.copy()
    np.put_along_axis(y, counted(index, x.shape[a["axis"]]), updates, a["axis"])
    return y


def scatter_nd(x, index, updates, a):
    y = x.copy()
    for at in np.ndindex(index.shape[:-1]):
        y[tuple(index[at])] = updates[at]
    return y


def scatter_elements_add(x, index, updates, a):
    places = torch.from_numpy(counted(index, x.shape[a["axis"]]).astype("i8"))
    return torch.from_numpy(x).scatter_add(a["axis"], places, torch.from_numpy(updates)).numpy()


def scatter_fold(ufunc):
    """NumPy's ufunc.at along an axis."""
    def call(x, index, updates, a):
        y, at = x.copy(), list(np.indices(index.shape))
        at[a["axis"]] = counted(index, x.shape[a["axis"]])
        ufunc.at(y, tuple(at), updates)
        return y
    return call


def scatter_nd_fold(ufunc):
    def call(x, index, updates, a):
        y = x.copy()
        ufunc.at(y, tuple(counted(index[..., d], x.shape[d]) for d in range(a["depth"])), updates)
        return y
    return call


def scatter_nd_add(x, index, updates, a):
    """PyTorch's index_put; the dimensions of the batch become indices of their own."""
    batch, depth = a.get("batch_dims", 0), a["depth"]
    where = np.indices(index.shape[:-1])[:batch]
    places = [counted(index[..., d], x.shape[batch + d]) for d in range(depth)]
    indices = [torch.from_numpy(np.array(i)) for i in [*where, *places]]
    return torch.from_numpy(x).index_put(indices, torch.from_numpy(updates), accumulate=True).numpy()


GATES = {
    "sigmoid": lambda x, a, b: torch.sigmoid(x), "tanh": lambda x, a, b: torch.tanh(x), "softsign": lambda x, a, b: x / (1 + x.abs()),
    "elu": lambda x, a, b: torch.where(x < 0, a * (torch.exp(x) - 1), x), "softplus": lambda x, a, b: torch.nn.functional.softplus(x),
    "scaledtanh": lambda x, a, b: a * torch.tanh(b * x)}


def recurrence_of(x, weights, states, vector, lengths, a, given=None, scale=None):
    """The states after every step, and of a GRU what the reset gate is multiplied with, or multiplies, by ONNX's equations. `given`: the
    values of the states, of which only the derivatives are then computed."""
    def squash(name, pre):
        if a.get("clip"):
            pre = pre.clamp(-a["clip"], a["clip"])
        return gate(name, pre)

    def gate(name, pre):
        return GATES[a[name]](pre, a.get(name + "_alpha", 0), a.get(name + "_beta", 0))

    def lstm(x, w, state):
        (h, c), p = state, vector.chunk(3) if vector is not None else [0, 0, 0]
        sums = h @ w.T if scale is None else quantised(h) @ w.T * scale
        i, o, f, g = (x + sums).chunk(4, -1)
        i = squash("gate", i + p[0] * c)
        f = 1 - i if a.get("coupled") else squash("gate", f + p[2] * c)
        c = f * c + i * squash("candidate", g)
        c = c if given is None else c + (given[1, at] - c).detach()
        return torch.stack([squash("gate", o + p[1] * c) * gate("output", c), c])

    def quantised(h):
        """What DynamicQuantizeLinear makes of the sequences that have not ended before."""
        some = h if lengths is None or a.get("reverse") else h[at - 1 < lengths]
        low, high = (x.min().clamp(max=0) for x in (some, -some)) if len(some) else (0, 0)
        step = -(high + low) / 255 if -high > low else torch.ones((), dtype=h.dtype)
        zero = torch.round(-low / step)
        return ((torch.round(h / step) + zero).clamp(0, 255) - zero) * step

    def gru(x, w, state):
        h = state[0]
        (xz, xr, xh), (wz, wr, wh) = x.chunk(3, -1), w.chunk(3)
        z, r = squash("gate", xz + h @ wz.T), squash("gate", xr + h @ wr.T)
        if a.get("reset_after"):
            candidate = r * mark(h @ wh.T + (0 if vector is None else vector))
        else:
            candidate = mark(r * h) @ wh.T
        return ((1 - z) * squash("candidate", xh + candidate) + z * h)[None]

    def rnn(x, w, state):
        return squash("gate", x + state[0] @ w.T)[None]

    def mark(tensor):
        if tensor.requires_grad:
            tensor.retain_grad()
        mixed[at] = tensor
        return tensor

    steps = len(x)
    after, mixed = [None] * steps, [None] * steps
    for step in range(steps):
        at = steps - 1 - step if a.get("reverse") else step
        new = {"lstm": lstm, "gru": gru, "rnn": rnn}[a["cell"]](x[at], weights, states)
        states = after[at] = new if lengths is None else torch.where((at < lengths)[:, None], new, states)
        if given is not None:
            states = states + (given[:, at] - states).detach()
    return torch.stack(after, 1), mixed


def sample(x, points, a):
    """By grid_sample, whose points are in [-1, 1], the edges or centres of the first and last elements; one dimension is a row of two."""
    size = torch.tensor(x.shape[:1:-1], dtype=points.dtype)
    grid = 2 * points / (size - 1) - 1 if a["align"] else (2 * points + 1) / size - 1
    shape, one = (*x.shape[:2], *points.shape[1:-1]), x.ndim == 3
    if one:
        return sample_row(x, points, a)
    lead = [1] * (x.ndim - 2 - (points.ndim - 2))
    grid = grid.reshape(grid.shape[0], *lead, *grid.shape[1:])
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(a["mode"], a["mode"])
    return torch.nn.functional.grid_sample(x, grid, mode, a["padding"], bool(a["align"])).reshape(shape)


def sample_row(x, points, a):
    """Cubic convolution of one dimension, zeros outside."""
    at = points[..., 0]
    result = torch.zeros(*x.shape[:2], *at.shape[1:], dtype=x.dtype)
    for tap in range(-1, 3):
        index = torch.floor(at) + tap
        d, inside = (at - index).abs(), (index >= 0) & (index < x.shape[2])
        weight = torch.where(d <= 1, (1.25 * d - 2.25) * d * d + 1, -0.75 * (((d - 5) * d + 8) * d - 4)) * inside
        values = torch.stack([row[:, i] for row, i in zip(x, index.clamp(0, x.shape[2] - 1).long())])
        result += values * weight[:, None]
    return result


def sample_grad(dy, points, a):
    x = torch.zeros(*dy.shape[:2], *a["spatial"], dtype=dy.dtype, requires_grad=True)
    sample(x, points, a).backward(dy)
    return x.grad


def sample_points_grad(dy, x, points, a):
    points.requires_grad_()
    sample(x, points, a).backward(dy)
    return points.grad


def in_torch(function):
    """A function of tensors, for arrays."""
    return lambda *x: function(*(torch.from_numpy(np.array(t)) for t in x[:-1]), x[-1]).numpy()


def bilinear(plane, y, x):
    """The four weighted elements that RoiAlign makes a sample of; zeros outside."""
    h, w = plane.shape
    if not (-1 <= y <= h and -1 <= x <= w):
        return np.zeros(4)
    y, x = min(max(y, 0), h - 1), min(max(x, 0), w - 1)
    top, left = int(y), int(x)
    bottom, right, v, u = min(top + 1, h - 1), min(left + 1, w - 1), y - top, x - left
    return np.array([plane[top, left] * (1 - v) * (1 - u), plane[top, right] * (1 - v) * u, plane[bottom, left] * v * (1 - u),
                     plane[bottom, right] * v * u])


def aligned_samples(plane, corners, row, column, a):
    x1, y1, x2, y2 = corners * a["scale"] - a["shift"]
    h, w = (max(e, 1) if a["shift"] == 0 else e for e in (y2 - y1, x2 - x1))
    h, w, n = h / a["rows"], w / a["columns"], a["samples"]
    return np.concatenate([bilinear(plane, y1 + (row + (i + 0.5) / n) * h, x1 + (column + (j + 0.5) / n) * w)
                           for i in range(n) for j in range(n)])


def elements_of_bin(plane, corners, row, column, a):
    def span(first, last, bin, bins, size):
        start = math.floor(first * a["scale"] + 0.5)
        extent = max(math.floor(last * a["scale"] + 0.5) - start + 1, 1) / bins
        return slice(*np.clip([math.floor(bin * extent) + start, math.ceil((bin + 1) * extent) + start], 0, size))
    return plane[span(corners[1], corners[3], row, a["rows"], plane.shape[0]),
                 span(corners[0], corners[2], column, a["columns"], plane.shape[1])].reshape(-1)


def candidates(*bin_and_attributes):
    """What a bin is the mean or the largest of."""
    return (elements_of_bin if bin_and_attributes[-1]["mode"] == "bins" else aligned_samples)(*bin_and_attributes)


def roi_pool(x, rois, images, a):
    def pooled(values):
        return values.sum() / a["samples"] ** 2 if a["mode"] == "avg" else values.max(initial=-np.inf) if values.size else 0
    return np.array([[[[pooled(candidates(plane, corners, i, j, a)) for j in range(a["columns"])] for i in range(a["rows"])]
                      for plane in x[image]] for corners, image in zip(rois, images)])


def largest_grad(dy, rois, images, x, a):
    """A bin is one of its candidates, which are linear: the gradient of each element is what a one there adds to that."""
    dx = np.zeros(x.shape)
    units = np.eye(x[0, 0].size).reshape(-1, *x.shape[2:])
    for r, i, j in np.ndindex(dy.shape[0], *dy.shape[2:]):
        weights = np.stack([candidates(unit, rois[r], i, j, a) for unit in units])
        for channel, plane in enumerate(x[images[r]] if weights.size else []):
            chosen = weights[:, candidates(plane, rois[r], i, j, a).argmax()]
            dx[images[r], channel] += dy[r, channel, i, j] * chosen.reshape(plane.shape)
    return dx


def roi_pool_grad(dy, rois, images, *rest):
    """The mean is linear: the gradient of each element is what a one there adds."""
    a = rest[-1]
    if a["mode"] != "avg":
        return largest_grad(dy, rois, images, *rest)
    n, h, w = a["spatial"]
    dx = np.zeros((n, dy.shape[1], h, w))
    for place in np.ndindex(h, w):
        unit = np.zeros((n, 1, h, w))
        unit[:, :, place[0], place[1]] = 1
        weights = roi_pool(unit, rois, images, a)
        for r, image in enumerate(images):
            dx[image, :, place[0], place[1]] += (dy[r] * weights[r]).sum((1, 2))
    return dx


def max_pool_places(x, a):
    """The index of the maximum by ONNX's rule, the first of equals, in a padded image of which each element knows its place."""
    planes, places = x.reshape(-1, *x.shape[2:]), np.arange(np.prod(x.shape[2:])).reshape(x.shape[2:])
    pads = list(zip(a["begin"], a["end"]))
    padded, known = np.pad(planes, [(0, 0), *pads], constant_values=-np.inf), np.pad(places, pads, constant_values=-1)
    shape = [(n - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(known.shape, a["window"], a["dilation"], a["stride"])]
    result = np.zeros((len(planes), *shape), "i8")
    for o in np.ndindex(*shape):
        window = tuple(slice(i * s, i * s + (k - 1) * d + 1, d) for i, k, d, s in zip(o, a["window"], a["dilation"], a["stride"]))
        result[(slice(None), *o)] = known[window].reshape(-1)[padded[(slice(None), *window)].reshape(len(planes), -1).argmax(1)]
    return result.reshape(*x.shape[:2], *shape)


def suppress(boxes, candidates, most, a):
    """ONNX NonMaxSuppression-11 from candidates in order."""
    corners = np.concatenate([boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2], -1) if a["center"] else boxes
    low, high = np.minimum(corners[..., :2], corners[..., 2:]), np.maximum(corners[..., :2], corners[..., 2:])
    area, keep = np.prod(high - low, -1), np.zeros(candidates.shape, "?")
    for image, group in np.ndindex(candidates.shape[:2]):
        kept = []
        for i, box in enumerate(candidates[image, group]):
            sides = np.minimum(high[image][kept], high[image, box]) - np.maximum(low[image][kept], low[image, box])
            common = np.prod(np.maximum(sides, 0), -1)
            if not (common / (area[image][kept] + area[image, box] - common) > most).any():
                keep[image, group, i] = True
                kept.append(box)
    return keep


def linear_attention_grad(dy, *operands):
    """By PyTorch's autograd, of the steps as they are written above."""
    *given, a = operands
    leaves = [None if x is None else torch.tensor(x, requires_grad=True) for x in (*given, *[None] * (6 - len(given)))]
    q, key, value, state, decay, rate = leaves
    results = []
    for t in range(q.shape[1]):
        if decay is not None:
            state = state * torch.exp(decay[:, t])[..., None]
        u = value[:, t]
        if rate is not None:
            u = rate[:, t, :, None] * (u - torch.einsum("bhkv,bhk->bhv", state, key[:, t]))
        state = state + key[:, t, :, :, None] * u[:, :, None]
        results.append(a["scale"] * torch.einsum("bhkv,bhgk->bhgv", state, q[:, t]))
    torch.stack(results, 1).backward(torch.tensor(dy))
    return tuple(None if x is None else x.grad.numpy() for x in leaves)


def det_grad(dy, x, _):
    """By PyTorch's autograd."""
    x = torch.tensor(x, requires_grad=True)
    return torch.autograd.grad(torch.linalg.det(x), x, torch.tensor(dy))[0].numpy()


def ngram_count(x, grams, a):
    """Occurrences with the elements 1, 2 .. distances apart; of one element, once."""
    length, counts = grams.shape[1], np.zeros((len(x), len(grams)), "i8")
    for step in range(1, (a["distances"] if length > 1 else 1) + 1):
        for start in range(x.shape[1] - (length - 1) * step):
            piece = x[:, start:start + (length - 1) * step + 1:step]
            counts += (piece[:, None] == grams).all(-1)
    return counts


def linear_attention(*operands):
    """ONNX LinearAttention-27, step by step."""
    *given, a = operands
    q, key, value, state, decay, rate = (*given, *[None] * (6 - len(given)))
    state, results = np.array(state), []
    for t in range(q.shape[1]):
        if decay is not None:
            state = state * np.exp(decay[:, t])[..., None]
        u = value[:, t]
        if rate is not None:
            u = rate[:, t, :, None] * (u - np.einsum("bhkv,bhk->bhv", state, key[:, t]))
        state = state + key[:, t, :, :, None] * u[:, :, None]
        results.append(a["scale"] * np.einsum("bhkv,bhgk->bhgv", state, q[:, t]))
    return np.stack(results, 1), state


def tensors_of(operands, n):
    """As many operands, None for those left out at the end, and the attributes."""
    *given, attributes = operands
    given = [None if x is None else torch.from_numpy(np.array(x)) for x in given]
    return (*given, *[None] * (n - len(given)), attributes)


def recurrence(*operands):
    *given, scale, attributes = tensors_of(operands, 6)
    return recurrence_of(*given, attributes, scale=scale)[0].numpy()


def recurrence_grad(*operands):
    dy, y, x, weights, initial, vector, lengths, a = tensors_of(operands, 7)
    x.requires_grad_()
    initial.requires_grad_()
    states, mixed = recurrence_of(x, weights, initial, vector, lengths, a, y)
    states.backward(dy)
    results = [x.grad, initial.grad]
    if a["cell"] == "gru":
        mixed = torch.stack([m.grad if a.get("reset_after") else m.detach() for m in mixed])
        results.append(mixed if lengths is None else mixed * (torch.arange(len(x))[:, None] < lengths)[..., None])
    return tuple(result.numpy() for result in results)


REFERENCE = {
    "Abs": lambda x, a: np.abs(x),
    "Acos": lambda x, a: np.arccos(x),
    "Acosh": lambda x, a: np.arccosh(x),
    "Asin": lambda x, a: np.arcsin(x),
    "Asinh": lambda x, a: np.arcsinh(x),
    "Atan": lambda x, a: np.arctan(x),
    "Atanh": lambda x, a: np.arctanh(x),
    "Ceil": lambda x, a: np.ceil(x),
    "Celu": activation("celu", alpha="alpha"),
    "Cos": lambda x, a: np.cos(x),
    "Cosh": lambda x, a: np.cosh(x),
    "Elu": activation("elu", alpha="alpha"),
    "Erf": by_torch(torch.erf),
    "Exp": lambda x, a: np.exp(x),
    "Floor": lambda x, a: np.floor(x),
    "HardSigmoid": lambda x, a: np.clip(a["alpha"] * x + a["beta"], 0, 1),
    "HardSwish": activation("hardswish"),
    "LeakyRelu": activation("leaky_relu", negative_slope="alpha"),
    "Log": lambda x, a: np.log(x),
    "Mish": activation("mish"),
    "Neg": lambda x, a: -x,
    "Reciprocal": lambda x, a: 1 / x,
    "Relu": by_torch(torch.relu),
    "Round": lambda x, a: np.rint(x),
    "Selu": activation("selu"),
    "Shrink": lambda x, a: np.where(x < -a["lambd"], x + a["bias"], np.where(x > a["lambd"], x - a["bias"], 0)),
    "Sigmoid": by_torch(torch.sigmoid),
    "Sign": lambda x, a: np.sign(x),
    "Silu": activation("silu"),
    "Sin": lambda x, a: np.sin(x),
    "Sinh": lambda x, a: np.sinh(x),
    "Softplus": lambda x, a: np.logaddexp(x, 0),
    "Softsign": activation("softsign"),
    "Sqrt": lambda x, a: np.sqrt(x),
    "Swish": lambda x, a: x / (1 + np.exp(-a["alpha"] * x)),
    "Tan": lambda x, a: np.tan(x),
    "Tanh": lambda x, a: np.tanh(x),
    "ThresholdedRelu": lambda x, a: np.where(x > a["alpha"], x, 0),
    "Gelu": activation("gelu"),
    "GeluTanh": lambda x, a: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3))),
    "IsNaN": lambda x, a: np.isnan(x),
    "IsInf": is_infinite,
    "Not": lambda x, a: ~x,
    "BitwiseNot": lambda x, a: ~x,
    "BitwiseAnd": lambda x, y, a: x & y,
    "BitwiseOr": lambda x, y, a: x | y,
    "BitwiseXor": lambda x, y, a: x ^ y,
    "ShiftLeft": shifted(np.left_shift),
    "ShiftRight": shifted(np.right_shift),
    "Cast": cast,
    "Add": lambda x, y, a: x + y,
    "Sub": lambda x, y, a: x - y,
    "Mul": lambda x, y, a: x * y,
    "Div": divide,
    "Max": lambda x, y, a: np.maximum(x, y),
    "Min": lambda x, y, a: np.minimum(x, y),
    "Pow": lambda x, y, a: np.power(x, y),
    "Mod": lambda x, y, a: np.mod(x, y),
    "Fmod": lambda x, y, a: np.fmod(x, y),
    "PRelu": lambda x, slope, a: np.where(x < 0, slope * x, x),
    "Equal": lambda x, y, a: x == y,
    "Less": lambda x, y, a: x < y,
    "LessOrEqual": lambda x, y, a: x <= y,
    "Greater": lambda x, y, a: x > y,
    "GreaterOrEqual": lambda x, y, a: x >= y,
    "And": lambda x, y, a: x & y,
    "Or": lambda x, y, a: x | y,
    "Xor": lambda x, y, a: x ^ y,
    "Accumulate": lambda total, x, real, a: total + x if real > 0 else total,
    "Fma": lambda x, y, z, a: x * y + z,
    "Where": lambda c, x, y, a: np.where(c, x, y),
    "Fused": fused,
    "MatMul": matmul,
    "Unpack": unpack,
    "DequantMatMul": dequant_matmul,
    "IntMatMul": int_matmul,
    "IntConv": int_conv,
    "IntMaxPool": int_max_pool,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "ConvWeightGrad": conv_weight_grad,
    "MaxPool": max_pool,
    "MaxPoolGrad": max_pool_grad,
    "AveragePool": average_pool,
    "Softmax": softmax,
    "LogSoftmax": log_softmax,
    "CumSum": cumsum,
    "CumProd": cumprod,
    "CumProdGrad": cumprod_grad,
    "LayerNorm": layer_norm,
    "RMSNorm": rms_norm,
    "Attention": attention,
    "Rope": rope,
    "LinearAttention": linear_attention,
    "LinearAttentionGrad": linear_attention_grad,
    "Sample": in_torch(sample),
    "SampleGrad": in_torch(sample_grad),
    "SamplePointsGrad": in_torch(sample_points_grad),
    "RoiPool": roi_pool,
    "RoiPoolGrad": roi_pool_grad,
    "MaxPoolPlaces": max_pool_places,
    "Recurrence": recurrence,
    "RecurrenceGrad": recurrence_grad,
    "Det": lambda x, a: np.linalg.det(x),
    "DetGrad": det_grad,
    "NgramCount": ngram_count,
    "Suppress": suppress,
    "ReduceSum": reduction(np.sum),
    "ReduceMax": reduction(np.max),
    "ReduceMin": reduction(np.min),
    "ReduceProd": reduction(np.prod),
    "ReducePair": reduction_pair,
    "SumSquares": lambda x, a: np.square(x).sum(),
    "AddSquares": lambda total, x, a: total + np.square(x).sum(),
    "ArgMax": argument(np.argmax),
    "ArgMin": argument(np.argmin),
    "TopK": topk,
    "Reshape": lambda x, a: x.reshape(a["shape"]),
    "Append": append,
    "BitCast": bit_cast,
    "Transpose": lambda x, a: x.transpose(a["perm"]),
    "Expand": lambda x, a: np.broadcast_to(x, a["shape"]),
    "Slice": slice_of,
    "Concat": lambda *x: np.concatenate(x[:-1], x[-1]["axis"]),
    "Pad": pad,
    "Trilu": trilu,
    "Gather": lambda x, index, a: np.take(x, counted(index, x.shape[a["axis"]]), a["axis"]),
    "DequantExpertMatMul": dequant_expert_matmul,
    "ExpertMatMul": expert_matmul,
    "ExpertWeightGrad": expert_weight_grad,
    "ExpertDispatch": expert_dispatch,
    "ExpertCombine": expert_combine,
    "GatherGrad": gather_grad,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "ScatterElementsAdd": scatter_elements_add,
    "ScatterElementsMul": scatter_fold(np.multiply),
    "ScatterElementsMax": scatter_fold(np.maximum),
    "ScatterElementsMin": scatter_fold(np.minimum),
    "ScatterNDAdd": scatter_nd_add,
    "ScatterNDMul": scatter_nd_fold(np.multiply),
    "ScatterNDMax": scatter_nd_fold(np.maximum),
    "ScatterNDMin": scatter_nd_fold(np.minimum),
    "ClassIndex": lambda x, a: x.astype("i8"),
    "Divisor": lambda x, a: x,
    "ClassTerms": lambda *x: class_terms(*(torch.from_numpy(np.array(t)) for t in x[:-1]), x[-1]).numpy(),
    "ClassTermsGrad": class_terms_grad,
    "Dropout": dropout,
    "Uniform": uniform,
    "Detach": lambda x, a: x,
    "Whole": lambda x, a: x,
    "ScaledMatMul": scaled_matmul,
    "DequantizeBlocks": dequantize_blocks,
    "QuantizeBlocks": quantize_blocks,
}
