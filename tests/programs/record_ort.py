#!/usr/bin/python3
"""Records tests/programs/recorded: models of ONNX Runtime's own operators (domain com.microsoft), of control flow, of sizes that
depend on data and of values without elements, with expected results.

    record_ort.py DIR          (with the newest onnx, onnxruntime, torch and torchvision; tests/programs/backend.py runs the result)

Every case below is one node. The nodes of a group are one model with one input, which holds all operands one after the other, and
one output, which holds all results. Expected results are ONNX Runtime's on CPU; of operators that it has on GPUs only, PyTorch's."""
import os
import sys
import tempfile

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import torch
import torch.nn.functional as F
import torchvision
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(17)
B, T, L, N, KV, H = 2, 5, 6, 4, 2, 16  # batch, queries, keys, heads, heads of keys, size of a head
D = N * H
UNDEFINED = 2
GROUPS = {"fused": [], "gpu": [], "attention": [], "multi_head": [], "group_query": [], "quantised": [],
          "experts": [], "experts_gated": [], "recurrent": [], "states": [], "nbits": []}
INTEGERS = {("EmbedLayerNormalization", 1), ("NhwcMaxPool", 0), ("QLinearConv", 0), ("QLinearSoftmax", 0)}  # results, by operator


def f(*shape):
    return RNG.standard_normal(shape).astype("f4") * 0.5


def i(values):
    return np.array(values, "i4")


def case(where, op, operands, results=1, by_torch=None, constant=(), **attributes):
    """results: their number, or flags: 0 has no name, 1 is compared, UNDEFINED is asked for and not compared, since parts of it are
    undefined; constant: operands that are initializers."""
    wanted = [1] * results if isinstance(results, int) else results
    GROUPS[where].append((op, operands, wanted, by_torch, constant, attributes))


def image(x):
    return x.permute(0, 3, 1, 2)


def pixels(x):
    return x.permute(0, 2, 3, 1)


X, MASK = f(B, T, D), i([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
case("fused", "BiasGelu", [X, f(D)])
case("fused", "FastGelu", [X, f(D)])
case("fused", "QuickGelu", [X], alpha=1.5)
IDS = i(RNG.integers(0, 9, (B, T)))
TABLES = [f(9, D), f(7, D), f(2, D), f(D), f(D)]
case("fused", "EmbedLayerNormalization", [IDS, i(RNG.integers(0, 2, (B, T))), *TABLES, MASK], 3)
case("fused", "EmbedLayerNormalization", [IDS, None, *TABLES[:2], None, *TABLES[3:], None, i([[1, 2, 3, 4, 5]])], [1, 0])
for name, values in [("Relu", None), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.3, 0.4])]:
    more = {"activation_params": values} if values else {}
    case("fused", "FusedConv", [f(1, 3, 6, 6), f(4, 3, 3, 3), f(4)], activation=name, pads=[1, 1, 1, 1], **more)
case("fused", "FusedConv", [f(1, 3, 6, 6), f(4, 3, 3, 3), f(4), f(1, 4, 6, 6)], activation="Relu", pads=[1, 1, 1, 1])
case("fused", "FusedGemm", [f(3, 4), f(5, 4), f(5)], transB=1, activation="Relu", alpha=0.5)
case("fused", "FusedGemm", [f(3, 4), f(4, 5), f(5)], activation="LeakyRelu", activation_alpha=0.3)
case("fused", "FusedMatMul", [f(2, 3, 4), f(2, 5, 4)], transB=1, alpha=0.25)
case("fused", "FusedMatMul", [f(3, 2, 6, 4), f(4, 2, 6, 5)], transBatchA=1, transBatchB=1)
case("fused", "FusedMatMul", [f(3, 2, 6, 4), f(2, 6, 3, 5)], transBatchA=1, transA=1)
case("fused", "SkipLayerNormalization", [X, f(B, T, D), f(D), f(D), f(D)], [1, 0, 0, 1])
case("fused", "SkipLayerNormalization", [X, f(1, T, D), f(D)], epsilon=1e-5)
case("fused", "SkipSimplifiedLayerNormalization", [X, f(T, D), f(D), f(D)], [1, 0, 0, 1])
case("fused", "RotaryEmbedding", [f(B, N, T, H), np.array([3], "i8"), np.cos(f(9, H // 2)), np.sin(f(9, H // 2))], interleaved=1)

case("gpu", "BiasAdd", [X, f(D), f(B, T, D)], by_torch=lambda x, bias, skip: x + bias + skip)
case("gpu", "BiasSplitGelu", [X, f(D)], by_torch=lambda x, b: (x + b)[..., :D // 2] * F.gelu((x + b)[..., D // 2:]))
case("gpu", "BiasSoftmax", [f(2, 4, 3, 6), f(2, 1, 1, 6)], by_torch=lambda x, b: torch.softmax(x + b, 3), axis=3, is_inner_broadcast=1)
case("gpu", "GemmFastGelu", [f(2, 3, 4), f(4, 5), f(5)], by_torch=lambda x, w, b: F.gelu(x @ w + b, approximate="tanh"))
case("gpu", "GroupNorm", [f(2, 5, 6, 8), f(8), f(8)],
     by_torch=lambda x, g, b: pixels(F.silu(F.group_norm(image(x), 4, g, b))), activation=1, groups=4)
case("gpu", "GroupNorm", [f(2, 8, 5, 6), f(8), f(8)], by_torch=lambda x, g, b: F.group_norm(x, 2, g, b), activation=0,
     groups=2, channels_last=0)
case("gpu", "SkipGroupNorm", [f(2, 5, 6, 8), f(8), f(8), f(2, 8), f(8)], 2,
     lambda x, g, b, s, more: (pixels(F.group_norm(image(x + s[:, None, None] + more), 4, g, b)), x + s[:, None, None] + more),
     activation=0, groups=4)
case("gpu", "NhwcConv", [f(1, 6, 7, 4), f(6, 3, 2, 4), f(6)],
     by_torch=lambda x, w, b: pixels(F.conv2d(image(x), image(w), b, stride=2)), kernel_shape=[3, 2], strides=[2, 2])
case("gpu", "NhwcFusedConv", [f(1, 6, 7, 4), f(6, 2, 3, 3), f(6), f(1, 6, 7, 6)],
     by_torch=lambda x, w, b, z: torch.relu(pixels(F.conv2d(image(x), w, b, padding=1, groups=2)) + z), group=2,
     pads=[1, 1, 1, 1], activation="Relu")

MERGED = [X, f(D, 3 * D), f(3 * D)]
PAST = [f(B, 2, D), *MERGED[1:]]
case("attention", "Attention", MERGED, num_heads=N)
case("attention", "Attention", [*MERGED, i([3, 5])], num_heads=N, unidirectional=1)
case("attention", "Attention", [*MERGED, i([3, 5, 1, 0])], num_heads=N)
case("attention", "Attention", [*MERGED, MASK[:, ::-1].copy()], num_heads=N, unidirectional=1)
case("attention", "Attention", [*MERGED, i(RNG.integers(0, 2, (B, T, T)))], num_heads=N, mask_filter_value=-5.0)
case("attention", "Attention", [*PAST, MASK, f(2, B, N, 3, H)], 2, num_heads=N, unidirectional=1)
case("attention", "Attention", [X, f(D, 80), f(80)], num_heads=N, qkv_hidden_sizes=[32, 32, 16], scale=0.3)
case("attention", "Attention", [*MERGED, None, None, f(1, N, T, T)], num_heads=N)

QKV = [X, f(B, L, D), f(B, L, D)]
OLD = [f(B, N, 3, H), f(B, N, 3, H)]
PADDED = i([[1, 1, 1, 0, 0, 0], [1] * 6])
case("multi_head", "MultiHeadAttention", [*QKV[:2], f(B, L, 32), f(2 * D + 32)], num_heads=N, scale=0.2)
case("multi_head", "MultiHeadAttention", [X, f(B, N, L, H), f(B, N, L, H), f(3 * D)], num_heads=N)
case("multi_head", "MultiHeadAttention", [*QKV, None, i([3, 6])], num_heads=N)
case("multi_head", "MultiHeadAttention", [*QKV, None, PADDED, f(B, 1, T, L)], num_heads=N)
case("multi_head", "MultiHeadAttention", [*QKV, None, i(RNG.integers(0, 2, (B, T, L)))], num_heads=N)
case("multi_head", "MultiHeadAttention", [f(B, 2, D), f(B, 2, D), f(B, 2, D), f(3 * D), MASK, None, *OLD], 3, num_heads=N, unidirectional=1)
case("multi_head", "DecoderMaskedMultiHeadAttention",
     [f(B, 1, D), f(B, 1, D), f(B, 1, D), i([[0, 1, 1, 1], [1] * 4]), None, f(B, N, 7, H), f(B, N, 7, H), i([3]), None, None,
      f(3 * D)], 3, num_heads=N, past_present_share_buffer=1)
case("multi_head", "DecoderMaskedMultiHeadAttention", [f(B, 1, D), f(B, N, L, H), f(B, N, L, H)], num_heads=N)

ANGLES = [np.cos(f(32, H // 2)), np.sin(f(32, H // 2))]


def group_query(steps, past, total, lengths, *more, results=(1, UNDEFINED, UNDEFINED), packed=False, **attributes):
    """With do_rotary unless the attribute is given. Caches beyond a sequence's length are undefined. ONNX Runtime attends to past keys
    only if the node also has the present ones as results."""
    width = (N + 2 * KV) * H
    qkv = [f(B, steps, width), None, None] if packed else [f(B, steps, D), f(B, steps, KV * H), f(B, steps, KV * H)]
    cache = [None, None] if past is None else [f(B, KV, past, H), f(B, KV, past, H)]
    rotary = attributes.setdefault("do_rotary", 1)
    case("group_query", "GroupQueryAttention", [*qkv, *cache, i(lengths), i(total), *(ANGLES if rotary else [None] * 2), *more],
         results, constant=(6,), num_heads=N, kv_num_heads=KV, **attributes)


group_query(5, None, 5, [4, 4], results=3)
group_query(5, 9, 5, [4, 4], packed=True, rotary_interleaved=1)
group_query(1, 6, 7, [6, 6], results=3, packed=True)
group_query(1, 6, 7, [6, 3])
group_query(1, 9, 7, [6, 3], local_window_size=3)
group_query(5, None, 5, [4, 4], local_window_size=2, softcap=2.0)
group_query(5, None, 5, [4, 4], do_rotary=0, smooth_softmax=1)
group_query(5, None, 5, [4, 4], None, f(1, N, 5, 5), f(N), softcap=3.0, scale=0.3)
group_query(5, None, 5, [4, 4], np.array([[2, 3, 4, 5, 6], [1, 2, 3, 4, 5]], "i8"))
group_query(1, 6, 7, [6, 6], np.array([[6], [3]], "i8"))
group_query(5, None, 5, [4, 4], do_rotary=0, causal=0)


# Drawn by a generator of their own: the cases above keep their values.
BYTES = np.random.default_rng(3)


def codes(*shape, least=0):
    return BYTES.integers(least, least + 256, shape).astype("i1" if least else "u1")


def spread(*shape):
    return (BYTES.standard_normal(shape) * 0.5).astype("f4")


def scale(value):
    return np.array(value, "f4")


def zero(value, dtype="u1"):
    return np.array(value, dtype)


IN_BYTES = [codes(B, T, D), codes(D, 3 * D, least=-128), spread(3 * D), scale(0.02), scale(0.01)]
case("quantised", "QAttention", [*IN_BYTES, None, zero(120), zero(0, "i1")], constant=(1, 2, 3, 4, 6, 7), num_heads=N)
case("quantised", "QAttention", [codes(B, 2, D), codes(D, 3 * D), *IN_BYTES[2:4], np.abs(spread(3 * D)) * scale(0.02), MASK, zero(120),
                                 codes(3 * D), spread(2, B, N, 3, H)], 2, constant=(1, 2, 3, 4, 6, 7), num_heads=N, unidirectional=1)
for bits in 2, 4, 8:
    case("quantised", "GatherBlockQuantized", [codes(11, 64 * bits // 8), i([[3, 10], [0, 3]]), spread(11, 4)], constant=(0, 2), bits=bits,
         block_size=16)
case("quantised", "GatherBlockQuantized", [codes(11, 3, 32), i([1, 10, 4]), spread(11, 3, 4), codes(11, 3, 2)], constant=(0, 2, 3), bits=4,
     block_size=16, quantize_axis=2)
case("quantised", "MatMulNBits", [spread(2, 3, 64), codes(12, 4, 8), spread(48), None, i(BYTES.integers(0, 4, 64)), spread(12)],
     constant=(1, 2, 4, 5), K=64, N=12, bits=4, block_size=16)
case("quantised", "NhwcMaxPool", [codes(2, 7, 6, 5)], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
case("quantised", "QLinearConv", [codes(2, 7, 6, 5), scale(0.05), zero(100), codes(8, 5, 3, 3, least=-128),
                                  np.abs(spread(8)) * scale(0.02) + scale(0.001), np.zeros(8, "i1"), scale(0.3), zero(110),
                                  BYTES.integers(-500, 500, 8).astype("i4")], constant=range(1, 9), channels_last=1, pads=[1, 1, 1, 1])
case("quantised", "QLinearSoftmax", [codes(20, 16), scale(0.5), zero(100), scale(0.0039), zero(0)], constant=(1, 2, 3, 4), axis=-1, opset=13)


# States of convolutions and of linear attention; drawn by a generator of their own.
STATES = np.random.default_rng(5)


def drawn(*shape):
    return (STATES.standard_normal(shape) * 0.5).astype("f4")


for past, bias, activation in (None, None, "none"), (drawn(B, 6, 3), None, "silu"), (drawn(B, 6, 3), drawn(6), "swish"):
    case("states", "CausalConvWithState", [drawn(B, 6, T), drawn(6, 1, 4), bias, past], 2, activation=activation, ndim=1, state_window=0)
case("states", "CausalConvWithState", [drawn(B, 6, 1), drawn(6, 1, 4), None, drawn(B, 6, 3)], 2)
for rule in "linear", "gated", "delta", "gated_delta":
    case("states", "LinearAttention",
         [drawn(B, T, D), drawn(B, T, KV * H), drawn(B, T, KV * 8), drawn(B, KV, H, 8), -np.abs(drawn(B, T, KV)) if "gated" in rule else None,
          np.abs(drawn(B, T, KV)) if "delta" in rule else None], 2, q_num_heads=N, kv_num_heads=KV, update_rule=rule, scale=0.3, state_window=0)


# Weights of 4 and 8 bits in blocks, the last of which may be shorter, at accuracy levels 0 and 4; drawn by a generator of their own.
BITS = np.random.default_rng(11)


def blocks_of(bits, block, k, n, has_zeros):
    of, bytes_of = (n, -(-k // block)), lambda *shape: BITS.integers(0, 256, shape, dtype="u1")
    return [bytes_of(*of, block * bits // 8), (BITS.random(of) * 0.02 + 0.01).astype("f4").reshape(-1),
            bytes_of(n, -(-of[1] * bits // 8)) if has_zeros else None]


for level in 0, 4:
    for bits, block, k, has_zeros in (4, 32, 96, False), (4, 16, 50, True), (4, 128, 256, True), (8, 32, 64, False), (8, 64, 130, True):
        case("nbits", "MatMulNBits", [BITS.standard_normal((2, 3, k)).astype("f4"), *blocks_of(bits, block, k, 37, has_zeros)],
             constant=(1, 2, 3) if has_zeros else (1, 2), K=k, N=37, bits=bits, block_size=block, accuracy_level=level)


# Both branches of an If; a Loop that its condition ends; a Scan with axes and directions.
CONTROL_FLOW = """<ir_version: 8, opset_import: ["" : 17]>
flow (float[12] data) => (float[N] results) {
  zero = Constant<value_float = 0.0>() ten = Constant<value_int = 10>()
  true = Constant<value = bool {1}>() flat = Constant<value_ints = [-1]>() square = Constant<value_ints = [3, 4]>()
  lowest = ReduceMin<keepdims = 0>(data) positive = Greater(lowest, zero) negative = Not(positive)
  a, b = If(positive) <then_branch = t () => (float[12] t1, float[12] t2) { t1 = Exp(data) t2 = Identity(data) },
                       else_branch = e () => (float[12] e1, float[12] e2) { e1 = Neg(data) e2 = Identity(data) }>
  c = If(negative) <then_branch = t () => (float[12] t3) { t3 = Sin(data) }, else_branch = e () => (float[12] e3) { e3 = Exp(data) }>
  d = Loop(ten, true, data) <body = l (int64 i, bool was, float[12] v) => (bool is, float[12] w) {
        w = Add(v, v) most = ReduceMax<keepdims = 0>(w) limit = Constant<value_float = 20.0>() is = Less(most, limit) }>
  e = Loop(ten, positive, data) <body = l (int64 i, bool before, float[12] v2) => (bool after, float[12] w2) {
        w2 = Add(v2, v2) after = Identity(before) }>
  x = Reshape(data, square) h = ReduceMax<axes = [0], keepdims = 0>(x)
  f, g = Scan<num_scan_inputs = 1, scan_input_directions = [1], scan_output_axes = [1], scan_output_directions = [1],
              body = s (float[4] h1, float[4] x1) => (float[4] h2, float[4] y1) { h2 = Add(h1, x1) y1 = Mul(h2, x1) }>(h, x)
  g1 = Reshape(g, flat)
  results = Concat<axis = 0>(a, b, c, d, e, f, g1)
}"""


# Sizes that depend on data, as results, and in operators that see only what is valid.
SIZES = """<ir_version: 8, opset_import: ["" : 17]>
sizes (float[12] data) => (int64[2, K] at, float[K] values, int64[2] shape, int64 size, float sum, float most, float mean,
                           float norm, float[R, 4] rows, float[R, 4] shares, int64[1, P] again, float[3, 4] changed, float[K] picked,
                           float[U] unique, int64[U] index, int64[12] number, int64[U] many, float[V] in_order, int64[12] kind, float[W, 12] steps) {
  square = Constant<value_ints = [3, 4]>() first = Constant<value_ints = [0]>() three = Constant<value_int = 3>()
  half = Constant<value_float = 0.5>() x0 = Reshape(data, square) small = Abs(x0) large = Greater(small, half)
  zero = Constant<value_float = 0.0>() x = Where(large, x0, zero)
  at = NonZero(x) place = Transpose<perm = [1, 0]>(at) v = GatherND(x, place) values = Exp(v)
  shape = Shape(at) size = Size(at)
  sum = ReduceSum<keepdims = 0>(v) most = ReduceMax<keepdims = 0>(v) mean = ReduceMean<keepdims = 0>(v) norm = ReduceL2<keepdims = 0>(v)
  big = ReduceMax<axes = [1], keepdims = 0>(x) takes = Greater(big, half) rows = Compress<axis = 0>(x, takes)
  back = Transpose<perm = [1, 0]>(x) scores = MatMul(rows, back) wide = MatMul(scores, x) shares = Softmax<axis = 1>(wide)
  positive = Greater(v, zero) again = NonZero(positive)
  less = Neg(v) changed = ScatterND(x, place, less)
  r0, c0 = Split<axis = 0>(at) r = Squeeze(r0, first) r1 = Add(r, three) picked = Gather(data, r1)
  true = Constant<value = bool {1}>() ten = Constant<value_int = 10>()
  last, steps = Loop(ten, true, data) <body = l (int64 i, bool was, float[12] o) => (bool is, float[12] n, float[12] step) {
        n = Add(o, o) step = Neg(n) peak = ReduceMax<keepdims = 0>(n) limit = Constant<value_float = 9.0>() is = Less(peak, limit) }>
  unique, index, number, many = Unique(x) in_order, i2, kind, m2 = Unique<sorted = 0>(x)
}"""

# Operators on values whose size, the number of positive elements of the data, is anything from 0 on.
COUNTS = """<ir_version: 8, opset_import: ["" : 17]>
counts (float[12] data) => (float[N] results) {
  half = Constant<value_float = 0.5>() zero = Constant<value_float = 0.0>() one = Constant<value_ints = [1]>()
  i0 = Constant<value_ints = [0]>() column = Constant<value_ints = [12, 1]>() m1 = Constant<value_ints = [-1]>()
  i2 = Constant<value_ints = [2]>() i3 = Constant<value_ints = [3]>() i4 = Constant<value_ints = [4]>() i9 = Constant<value_ints = [9]>()
  i12 = Constant<value_ints = [12]>() im2 = Constant<value_ints = [-2]>() big = Constant<value_ints = [9223372036854775807]>()
  w = Constant<value_floats = [1.0, -0.5, 0.25, 2.0]>() ones3 = Constant<value_floats = [1.0, 2.0, 3.0]>() s0 = Constant<value_int = 0>()
  s1 = Constant<value_int = 1>() true = Constant<value = bool {1}>()
  mask = Greater(data, half) nz = NonZero(mask) at = Squeeze(nz, i0) v = Gather(data, at) col = Reshape(data, column) table = Mul(col, w)
  rows = Gather(table, at)
  other = Not(mask) nz2 = NonZero(other) at2 = Squeeze(nz2, i0) u = Gather(data, at2)
  joined = Concat<axis = 0>(v, u, ones3, v) w0 = Concat<axis = 0>(u, v) whole = Neg(w0)
  from1 = Slice(v, one, big) to3 = Slice(v, i0, i3) last2 = Slice(v, im2, big) steps = Slice(v, one, i9, i0, i2)
  count = Shape(v) listed = ScatterElements<axis = 0>(i4, i0, count) filled = Expand(half, listed)
  n = Squeeze(count, i0) range = Range(s0, n, s1) zeros = ConstantOfShape(count) expanded = Expand(half, count)
  flat = Reshape(rows, m1) n2 = Mul(count, i2) sh = Concat<axis = 0>(n2, i2) pairs = Reshape(rows, sh)
  turned = Transpose<perm = [1, 0]>(rows) columns = Reshape(turned, m1)
  sh4 = Concat<axis = 0>(i4, m1) wide = Reshape(rows, sh4)
  all, alli = TopK(v, count) shares = Softmax<axis = 0>(v) sums = CumSum(v, s0) prod = ReduceProd<keepdims = 0>(v)
  gram = MatMul(turned, rows)
  left = Sub(i12, count) sizes = Concat<axis = 0>(count, left) part, rest = Split<axis = 0>(data, sizes)
  e1 = Exp(part) e2 = Neg(rest) parts = Concat<axis = 0>(e1, e2)
  idx = Unsqueeze(at, m1) back = ScatterND(data, idx, zeros)
  s4 = Constant<value_int = 4>() few = Less(n, s4)
  choice = If(few) <then_branch = t () => (float[3] t1) { t1 = Identity(ones3) }, else_branch = e () => (float[e] e3) { e3 = Neg(v) }>
  carried, grown, scans = Loop(n, true, zero, ones3)
  <body = l (int64 i, bool was, float c, float[g] grows) => (bool is, float d, float[h] more, float scan) {
  is = Identity(was) here = Gather(v, i) d = Add(c, here) scan = Mul(d, here) ii = Unsqueeze(here, i0) more = Concat<axis = 0>(grows, ii)
  }>
  mask2 = Greater(data, half) nzb = NonZero(mask2) atb = Squeeze(nzb, i0) vb = Gather(data, atb) both = Add(v, vb)
  half4 = ReduceMean<axes = [0], keepdims = 0>(rows) norms = ReduceL1<axes = [0], keepdims = 0>(rows)
  pooled = Sub(rows, w) k = Min(count, i3) top, topi = TopK<largest = 0>(v, k)
}"""
COUNTS_RESULTS = """joined whole from1 to3 last2 steps range zeros expanded filled flat pairs columns wide all shares sums prod gram part rest back
          choice carried scans grown both pooled top count norms parts"""

# The same where ONNX Runtime needs one element.
BOXES = """<ir_version: 8, opset_import: ["" : 17]>
boxes (float[12] data) => (float[N] results) {
  zero = Constant<value_float = 0.0>() i0 = Constant<value_ints = [0]>() i1 = Constant<value_ints = [1]>()
  i2 = Constant<value_ints = [2]>() i3 = Constant<value_ints = [3]>() i4 = Constant<value_ints = [4]>()
  m1 = Constant<value_ints = [-1]>() column = Constant<value_ints = [12, 1]>()
  big = Constant<value_ints = [9223372036854775807]>() s0 = Constant<value_int = 0>() sm1 = Constant<value_int = -1>()
  s1 = Constant<value_int = 1>() s3 = Constant<value_int = 3>()
  w = Constant<value_floats = [1.0, 0.5, 0.25, 2.0]>() base = Constant<value_floats = [0.0, 0.0, 2.5, 3.5]>()
  mask = Greater(data, zero) nz = NonZero(mask) at = Squeeze(nz, i0) v = Gather(data, at) col = Reshape(data, column) table = Mul(col, w)
  rows = Gather(table, at) count = Shape(v) n = Squeeze(count, i0)
  sh22 = Concat<axis = 0>(count, i2, m1) folded = Reshape(rows, sh22) last = Gather(v, sm1) tail = Slice(v, m1, big)
  boxes4 = Add(rows, base) b3 = Unsqueeze(boxes4, i0) sc = Unsqueeze(v, i0) s3d = Unsqueeze(sc, i0) lots = Constant<value_ints = [5]>()
  iou = Constant<value_floats = [0.6]>() thr = Constant<value_floats = [-1.0]>()
  kept = NonMaxSuppression(b3, s3d, lots, iou, thr) image4 = Constant<value_ints = [1, 1, 3, 4]>() image = Reshape(data, image4)
  izero = ConstantOfShape<value = int64[1] {0}>(count)
  pooled = RoiAlign<output_height = 2, output_width = 2, sampling_ratio = 2>(image, boxes4, izero)
  half1 = Constant<value_float = 0.75>() large = Greater(v, half1) nz2 = NonZero(large) at2 = Squeeze(nz2, i0) sub = Gather(rows, at2)
  subneg = Neg(sub)
  c4 = Concat<axis = 0>(m1, i4) at2c = Unsqueeze(at2, m1) shs = Shape(sub) at2e = Expand(at2c, shs)
  written = ScatterElements<axis = 0>(rows, at2e, subneg) added = ScatterND<reduction = "add">(rows, at2c, subneg)
  where = ArgMax<axis = 0, keepdims = 0>(v) first = ArgMin<axis = 0, keepdims = 0>(v)
  planes = Constant<value_ints = [-1, 1, 2, 2]>() maps = Reshape(rows, planes) k3 = Constant<value_floats = [0.5, -1.0, 2.0]>()
  kshape = Constant<value_ints = [3, 1, 1, 1]>() kernel = Reshape(k3, kshape) filtered = Conv(maps, kernel)
  t12 = Constant<value_ints = [3, 2]>() tiled = Tile(rows, t12) below = Sub(at, at) m1s = Sub(below, s1) pickidx = Unsqueeze(m1s, m1)
  picked = GatherND(rows, pickidx) shr = Shape(rows) eidx = Expand(pickidx, shr) element = GatherElements<axis = 0>(rows, eidx)
  mean = ReduceMean<keepdims = 0>(rows) averaged = ReduceMean<axes = [1], keepdims = 0>(rows)
  kk = Min(count, i2) topv, topi = TopK<axis = 0>(v, kk) best = Gather(rows, topi) order = Identity(topi) again = Identity(topv)
  s4 = Constant<value_int = 4>() small = Mod(at, s4) depth = Constant<value_int = 4>() offon = Constant<value_floats = [0.0, 1.0]>()
  hot = OneHot(small, depth, offon)
  most = ReduceMax<keepdims = 0>(v) least = ReduceMin<axes = [0], keepdims = 0>(rows) shlog = LogSoftmax<axis = 0>(rows)
  share = ReduceLogSumExp<axes = [0], keepdims = 0>(rows)
  two = Constant<value_int = 2>() h = Div(n, two) hs = Unsqueeze(h, i0) half = Slice(v, i0, hs) later = Slice(rows, hs, big)
  several = Concat<axis = 0>(later, shlog, rows)
  lefts = Sub(count, hs) sizes = Concat<axis = 0>(hs, lefts) split0, split1 = Split<axis = 0>(v, sizes) e0 = Exp(split0) e1 = Exp(split1)
  j = Concat<axis = 0>(e0, e1) even = Add(j, v)
  clipped = Clip(rows, zero, most) total = ReduceSumSquare(v) reversed = CumSum<reverse = 1, exclusive = 1>(v, s0)
  chosen = Compress<axis = 0>(rows, large) norm = Softmax<axis = 1>(rows)
}"""
BOXES_RESULTS = """folded last tail kept pooled written added where filtered tiled picked element mean averaged best order again hot first
          most least share half several split0 split1 even clipped total reversed chosen norm"""


# Counts of n-grams in all modes; determinants.
WORDS = """<ir_version: 8, opset_import: ["" : 17]>
words (float[48] data) => (float[4, 5] tf, float[4, 5] idf, float[4, 3] tfidf, float[6] row, float[3] det) {
  five = Constant<value_float = 2.5>() scaled = Mul(data, five) rows = Constant<value_ints = [4, 12]>()
  small = Cast<to = 6>(scaled) x = Reshape(small, rows)
  tf = TfIdfVectorizer<mode = "TF", min_gram_length = 1, max_gram_length = 2, max_skip_count = 2, ngram_counts = [0, 3],
                       ngram_indexes = [4, 0, 2, 3, 1], pool_int64s = [0, 1, -1, 0, 0, 1, 0]>(x)
  idf = TfIdfVectorizer<mode = "IDF", min_gram_length = 2, max_gram_length = 2, max_skip_count = 0, ngram_counts = [0, 3],
                        ngram_indexes = [4, 0, 2, 3, 1], weights = [1.0, 2.0, 3.0, 4.0, 5.0], pool_int64s = [0, 1, -1, 0, 0, 1, 0]>(x)
  tfidf = TfIdfVectorizer<mode = "TFIDF", min_gram_length = 1, max_gram_length = 1, max_skip_count = 3, ngram_counts = [0],
                          ngram_indexes = [2, 0, 0], weights = [0.5, 2.0, 3.0], pool_int64s = [0, 1, -1]>(x)
  flat = Cast<to = 7>(scaled)
  row = TfIdfVectorizer<mode = "TF", min_gram_length = 3, max_gram_length = 3, max_skip_count = 1, ngram_counts = [0, 0, 2],
                        ngram_indexes = [5, 1, 2], pool_int64s = [0, 1, 0, 0, 0, 1, -1, 0]>(flat)
  square = Constant<value_ints = [3, 4, 4]>() matrices = Reshape(data, square) det = Det(matrices)
}"""


# Values of no elements, an input among them; a Loop of no iterations, an LSTM of no steps, whose cells ONNX Runtime leaves undefined. And
# a sparse initializer.
EMPTY = """<ir_version: 8, opset_import: ["" : 18]>
empty (float[12] data, float[1, 2, 0, 3] past) => (float[1, 2, 2, 3] attended, float[1, 2, 2, 3] present, float[2, 3] product, float sum,
                       float most, float product_of_none, float norm, float log_sum, float[0] gathered, float[1, 2, 2, 3] shares, float[2, 4] padded,
                       float[12] looped, float[0, 12] steps, float[0, 12, 1] undeclared,
                       float[0, 1, 2, 5] states, float[1, 2, 5] hidden, int64[4, K] places, float[2, 0] best,
                       float[0] unique, float[3, 2] sparse) {
  one = Constant<value_ints = [1]>() four = Constant<value_ints = [1, 2, 2, 3]>()
  x = Reshape(data, four) present = Concat<axis = 2>(past, x) back = Transpose<perm = [0, 1, 3, 2]>(present)
  scores = MatMul(x, back) weights = Softmax<axis = -1>(scores) attended = MatMul(weights, present)
  wide = Constant<value_ints = [2, 0]>() tall = Constant<value_ints = [0, 3]>()
  a = Reshape<allowzero = 1>(past, wide) b = Reshape<allowzero = 1>(past, tall)
  three = Constant<value_floats = [1.0, 2.0, 3.0]>() p = MatMul(a, b) product = Add(p, three)
  sum = ReduceSum<keepdims = 0>(past) most = ReduceMax<keepdims = 0>(past) product_of_none = ReduceProd<keepdims = 0>(past)
  norm = ReduceL2<keepdims = 0>(past) log_sum = ReduceLogSumExp<keepdims = 0>(past)
  nowhere = Constant<value = int64[0] {}>() gathered = Gather(data, nowhere)
  both = Concat<axis = 2>(past, x) s0 = Constant<value_ints = [0]>() s1 = Constant<value_ints = [2]>() axis = Constant<value_ints = [2]>()
  shares = Slice(both, s0, s1, axis) pads = Constant<value_ints = [0, 1, 0, 3]>() fill = Constant<value_float = 0.5>()
  padded = Pad(a, pads, fill)
  size = Size(past)
  looped, steps, undeclared = Loop(size, , data) <body = l (int64 i, bool was, float[12] v) => (bool is, float[12] grown, float[12] step, float[12, 1] other) {
        grown = Exp(v) is = Identity(was) step = Neg(v) side = Constant<value_ints = [1]>() other = Unsqueeze(v, side) }>
  sequence_shape = Constant<value_ints = [0, 2, 3]>() sequence = Reshape<allowzero = 1>(past, sequence_shape)
  w_shape = Constant<value_ints = [1, 20, 3]>() r_shape = Constant<value_ints = [1, 20, 5]>() first = Slice(data, s0, one)
  w = Expand(first, w_shape) r = Expand(first, r_shape)
  states, hidden = LSTM<hidden_size = 5>(sequence, w, r)
  places = NonZero(past) k0 = Constant<value_ints = [0]>()
  rows6 = Constant<value_ints = [2, 6]>() x6 = Reshape(data, rows6) best, at = TopK(x6, k0)
  flat = Constant<value_ints = [0]>() line = Reshape<allowzero = 1>(past, flat) unique = Unique(line)
  rows4 = Constant<value_ints = [3, 4]>() x4 = Reshape(data, rows4) sparse = MatMul(x4, table)
}"""


def empty():
    data = np.random.default_rng(3).standard_normal(12).astype("f4") * 0.5
    model, inputs = onnx.parser.parse_model(EMPTY), [data, np.zeros((1, 2, 0, 3), "f4")]
    table = model.graph.sparse_initializer.add(dims=[4, 2])
    table.values.CopyFrom(numpy_helper.from_array(np.array([0.5, -2, 3], "f4"), "table"))
    table.indices.CopyFrom(numpy_helper.from_array(np.array([0, 3, 6])))
    return model, inputs, by_runtime(model, *inputs)


class Blocks(torch.nn.Module):
    """Convolutions of all kinds; the first has 12 input channels: less than a block of 16, and no multiple of 8."""

    def __init__(self):
        super().__init__()
        conv = torch.nn.Conv2d
        self.first, self.depthwise, self.pointwise = conv(12, 24, 3, padding=1), conv(24, 24, 3, padding=1, groups=24), conv(24, 40, 1)
        self.grouped, self.last, self.norm = conv(32, 32, 3, padding=1, groups=2), conv(40, 32, 1), torch.nn.BatchNorm2d(24)

    def forward(self, x):
        y = F.relu(self.first(x))
        y = self.norm(F.max_pool2d(F.hardswish(self.depthwise(y)) + y, 3, 2, 1))
        y = self.last(F.avg_pool2d(F.interpolate(self.pointwise(y), scale_factor=2), 2))
        return y.mean((2, 3)), F.relu(self.grouped(y) + y), F.adaptive_avg_pool2d(y, 1)


def experts(x, scores, up, up_bias, down, down_bias, linear=None, linear_bias=None):
    """MoE with the forms of SwiGLU that ONNX Runtime's kernel for CPUs refuses, after its documentation."""
    weights, chosen = scores.softmax(-1).topk(2)
    hidden = torch.einsum("th,ekh->tek", x, up) + up_bias
    gate, more = hidden.chunk(2, -1) if linear is None else (hidden, torch.einsum("th,ekh->tek", x, linear) + linear_bias)
    gate, more = gate.clamp(max=0.8), more.clamp(-0.8, 0.8)
    result = torch.einsum("tek,ehk->teh", gate * torch.sigmoid(1.5 * gate) * (more + 0.5), down) + down_bias
    return (result * torch.zeros_like(scores).scatter(1, chosen, weights)[..., None]).sum(1)


TOKENS, SCORES, UP, DOWN = f(6, 7), 3 * f(6, 5), [f(5, 8, 7), f(5, 8)], [f(5, 7, 8), f(5, 7)]
GATED = {"activation_type": "swiglu", "activation_alpha": 1.5, "activation_beta": 0.5, "swiglu_limit": 0.8, "k": 2}
for activation in ("relu", "gelu", "silu", "identity"):
    case("experts", "MoE", [TOKENS, SCORES, *UP, *DOWN], activation_type=activation, k=2, normalize_routing_weights=1)
case("experts", "MoE", [TOKENS, SCORES, UP[0], None, DOWN[0]], activation_type="silu", k=3)
case("experts", "MoE", [TOKENS, SCORES, *UP, *DOWN])
case("experts", "MoE", [TOKENS, SCORES, f(5, 16, 7), f(5, 16), *DOWN], swiglu_fusion=1, **GATED)
case("experts_gated", "MoE", [TOKENS, SCORES, f(5, 16, 7), f(5, 16), *DOWN], by_torch=experts, swiglu_fusion=2, **GATED)
case("experts_gated", "MoE", [TOKENS, SCORES, *UP, *DOWN, f(5, 8, 7), f(5, 8)], by_torch=experts, **GATED)


def blocks():
    """The network as ONNX Runtime's layout optimiser writes it."""
    torch.manual_seed(0)
    x = torch.randn(1, 12, 9, 8)
    with tempfile.TemporaryDirectory() as work:
        source, target = os.path.join(work, "source.onnx"), os.path.join(work, "target.onnx")
        torch.onnx.export(Blocks().eval(), (x,), source, input_names=["data"], dynamo=False, opset_version=17)
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = target
        session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        return onnx.load(target), x.numpy(), session.run(None, {"data": x.numpy()})


class Images(torch.nn.Module):
    """A backbone of two convolutions."""

    def __init__(self, channels):
        super().__init__()
        self.out_channels, self.first, self.last = channels, torch.nn.Conv2d(3, 8, 5, 4, 2), torch.nn.Conv2d(8, channels, 3, 2, 1)

    def forward(self, x):
        return self.last(F.relu(self.first(x)))


def detector():
    """torchvision's Faster R-CNN, small: the numbers of proposals, boxes and detections depend on data."""
    from torchvision.models.detection import FasterRCNN
    from torchvision.models.detection.rpn import AnchorGenerator
    from torchvision.ops import MultiScaleRoIAlign
    torch.manual_seed(0)
    backbone, pool = Images(12), MultiScaleRoIAlign(["0"], 3, 2)
    head = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12 * 9, 16), torch.nn.ReLU())
    predictor = torchvision.models.detection.faster_rcnn.FastRCNNPredictor(16, 4)
    model = FasterRCNN(backbone, rpn_anchor_generator=AnchorGenerator(((8, 16),), ((0.5, 1.0),)), box_roi_pool=pool, box_head=head,
                       box_predictor=predictor, min_size=40, max_size=48, rpn_pre_nms_top_n_test=30, rpn_post_nms_top_n_test=12,
                       box_detections_per_img=6, box_score_thresh=0.28, rpn_score_thresh=0.5).eval()
    for layer in [model.rpn.head.cls_logits, predictor.cls_score, model.rpn.head.bbox_pred, predictor.bbox_pred]:
        torch.nn.init.normal_(layer.weight, std=0.7)
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "model.onnx")
        torch.onnx.export(model, ([torch.rand(3, 40, 48)],), path, input_names=["data"], dynamo=False, opset_version=17)
        return onnx.load(path)


class Model:
    def __init__(self):
        self.nodes, self.initializers, self.names = [], [], 0

    def name(self):
        self.names += 1
        return f"v{self.names}"

    def add(self, op, inputs, outputs=1, **attributes):
        names = [self.name() for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names

    def constant(self, values):
        self.initializers.append(numpy_helper.from_array(np.array(values), self.name()))
        return self.initializers[-1].name


def operands_of(model, cases):
    """The operands as pieces of the input `data`: its values, and names by the operand's identity."""
    unique = {id(x): x for _, operands, _, _, constant, _ in cases for k, x in enumerate(operands)
              if x is not None and k not in constant}
    sizes = model.constant(np.array([x.size for x in unique.values()], "i8"))
    pieces, names = model.add("Split", ["data", sizes], len(unique), axis=0), {}
    for (key, x), piece in zip(unique.items(), pieces):
        names[key] = model.add("Reshape", [piece, model.constant(np.array(x.shape, "i8"))])[0]
        if x.dtype != np.float32:
            names[key] = model.add("Cast", [names[key]], to=helper.np_dtype_to_tensor_dtype(x.dtype))[0]
    return np.concatenate([x.reshape(-1).astype("f4") for x in unique.values()]), names


def build(cases):
    model, results = Model(), []
    data, names = operands_of(model, cases)
    flat = model.constant(np.array([-1], "i8"))
    for op, operands, wanted, _, constant, attributes in cases:
        inputs = [model.constant(x) if k in constant else "" if x is None else names[id(x)] for k, x in enumerate(operands)]
        outputs = [model.name() if want else "" for want in wanted]
        model.nodes.append(helper.make_node(op, inputs, outputs, domain="com.microsoft", **attributes))
        for k, output in enumerate(outputs):
            if output and (op, k) in INTEGERS:
                output = model.add("Cast", [output], to=TensorProto.FLOAT)[0]
            if wanted[k] == 1:
                results.append(model.add("Reshape", [output, flat])[0])
    model.nodes.append(helper.make_node("Concat", results, ["results"], axis=0))
    graph = helper.make_graph(model.nodes, "contrib", [helper.make_tensor_value_info("data", TensorProto.FLOAT, data.shape)],
                              [helper.make_tensor_value_info("results", TensorProto.FLOAT, [None])], model.initializers)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), data


def by_torch(cases):
    results = []
    for _, operands, _, function, _, _ in cases:
        got = function(*(torch.from_numpy(x).double() for x in operands))
        results += [x.float().numpy().reshape(-1) for x in (got if isinstance(got, tuple) else (got,))]
    return np.concatenate(results)


def write(path, values):
    with open(path, "wb") as file:
        file.write(numpy_helper.from_array(values).SerializeToString())


def joined(text, names):
    """The model of the text, with the values of these names, one after the other, as its result."""
    model, parts = onnx.parser.parse_model(text), []
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1]), "one.dimension"))
    for name in names.split():
        model.graph.node.append(helper.make_node("Cast", [name], [name + ".float"], to=TensorProto.FLOAT))
        model.graph.node.append(helper.make_node("Reshape", [name + ".float", "one.dimension"], [name + ".flat"]))
        parts.append(name + ".flat")
    model.graph.node.append(helper.make_node("Concat", parts, ["results"], axis=0))
    return model


def by_runtime(model, *inputs):
    options = onnxruntime.SessionOptions()
    options.enable_mem_pattern = False  # sizes differ from run to run
    options.intra_op_num_threads = 1  # DynamicQuantizeLSTM quantises the sequences of each thread on their own
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {value.name: array for value, array in zip(model.graph.input, inputs)})


def layer(directions, steps, batch, inputs, hidden, dtype, per_column=False, lengths=None, states=False, peepholes=False, **attributes):
    """DynamicQuantizeLSTM; weights are quantised for each direction, or for each of its columns."""
    rng, columns, of = np.random.default_rng(steps), 4 * hidden, (directions, 4 * hidden) if per_column else (directions,)
    low = -127 if dtype == "i1" else 0

    def draw(*shape):
        return rng.uniform(-1, 1, shape).astype("f4")

    def weights(rows):
        zero = np.zeros(of, dtype) + np.array(0 if dtype == "i1" else 120, dtype)
        return rng.integers(low, low + 255, (directions, rows, columns)).astype(dtype), [rng.uniform(0.002, 0.005, of).astype("f4"), zero]
    w, w_scale = weights(inputs)
    r, r_scale = weights(hidden)
    initial = [draw(directions, batch, hidden), draw(directions, batch, hidden)] if states else [None, None]
    case("recurrent", "DynamicQuantizeLSTM",
         [2 * draw(steps, batch, inputs), w, r, draw(directions, 2 * columns), lengths, *initial,
          draw(directions, 3 * hidden) if peepholes else None, *w_scale, *r_scale], 3, constant=(1, 2, 3, 8, 9, 10, 11),
         hidden_size=hidden, **attributes)


layer(1, 6, 3, 7, 20, "i1")
layer(1, 5, 2, 7, 20, "u1", states=True, direction="reverse", clip=0.75)
layer(2, 7, 1, 5, 9, "i1", per_column=True, states=True, peepholes=True, direction="bidirectional")
layer(1, 8, 3, 5, 9, "u1", per_column=True, lengths=i([8, 3, 6]), peepholes=True, input_forget=1)
layer(1, 1, 2, 5, 33, "i1", states=True)


def arrays(given):
    """One array, or several."""
    return [given] if isinstance(given, np.ndarray) else given


def record(group, model, inputs, results, number=0):
    folder = os.path.join(sys.argv[1], group, f"test_data_set_{number}")
    os.makedirs(folder, exist_ok=True)
    onnx.save(model, os.path.join(sys.argv[1], group, "model.onnx"))
    for kind, given in ("input", inputs), ("output", results):
        for i, values in enumerate(arrays(given)):
            write(os.path.join(folder, f"{kind}_{i}.pb"), values)


def main():
    for group, cases in GROUPS.items():
        model, data = build(cases)
        record(group, model, data, by_torch(cases) if cases[0][3] else by_runtime(model, data)[0])
    for group, text, size in [("control_flow", CONTROL_FLOW, 12), ("sizes", SIZES, 12), ("words", WORDS, 48)]:
        model, data = onnx.parser.parse_model(text), f(size)
        record(group, model, data, by_runtime(model, data))
    record("blocks", *blocks())
    for group, text, names, counts in [("counts", COUNTS, COUNTS_RESULTS, (0, 1, 5, 12)), ("boxes", BOXES, BOXES_RESULTS, (1, 7, 12))]:
        for number, count in enumerate(counts):
            model, data = joined(text, names), np.abs(f(12)) + np.float32(0.55)
            data[RNG.permutation(12)[count:]] *= -1
            record(group, model, data, by_runtime(model, data), number)
    model = detector()
    for number, scale in enumerate((0, 1, 3, 9)):
        data = scale * RNG.random((3, 40, 48), dtype="f4")
        record("detector", model, data, by_runtime(model, data), number)
    record("empty", *empty())


if __name__ == "__main__":
    main()
