#!/usr/bin/python3
"""Records what PyTorch computes for convolutions and pooling: ./record_conv.py > recorded_conv.h

Inputs are not recorded: element i of x is (7 i mod 23 - 11) / 8, of w, or of the gradient dy, (5 i mod 19 - 9) / 8, so that
sums are exact in f32.
Needs python3-torch; the tests do not.
"""
import torch
from torch.nn import functional as F

CONV, TRANSPOSE, MAX, AVERAGE = "RECORDED_CONV", "RECORDED_TRANSPOSE", "RECORDED_MAX", "RECORDED_AVERAGE"
WEIGHTS, MAX_GRAD = "RECORDED_WEIGHTS", "RECORDED_MAX_GRAD"
cases = []


def tensor(shape, factor, modulus, offset):
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * factor % modulus - offset).double() / 8).reshape(shape)


def x_of(shape):
    return tensor(shape, 7, 23, 11)


def w_of(shape):
    return tensor(shape, 5, 19, 9)


def braces(values):
    return "{" + ", ".join(str(v) for v in values) + "}"


def record(kind, x, w, y, group, stride, dilation, begin, end, flag=0, expected=None):
    """`expected` is what is computed, of y's shape if that is not y."""
    name = "recorded_%d" % len(cases)
    values = [{"nan": "NAN", "-inf": "-INFINITY"}.get(str(v), v.hex()) for v in (y if expected is None else expected).flatten().tolist()]
    lines = [", ".join(values[i:i + 6]) for i in range(0, len(values), 6)]
    print("static const double %s[] = {\n    %s,\n};" % (name, ",\n    ".join(lines)))
    cases.append("{%s, %d, %s, %s, %s, %d, %s, %s, %s, %s, %d, %s}" % (kind, y.dim(), braces(x), braces(w), braces(y.shape), group,
                 braces(stride), braces(dilation), braces(begin), braces(end), flag, name))


def conv(x, w, group, stride, dilation, begin, end):
    n = len(stride)
    pads = [p for d in reversed(range(n)) for p in (begin[d], end[d])]
    y = (F.conv1d, F.conv2d, F.conv3d)[n - 1](F.pad(x_of(x), pads), w_of(w), None, stride, 0, dilation, group)
    record(CONV, x, w, y, group, stride, dilation, begin, end)


def weights(x, w, group, stride, dilation, pad):
    by = w_of(w).requires_grad_()
    y = (F.conv1d, F.conv2d, F.conv3d)[len(stride) - 1](x_of(x), by, None, stride, pad, dilation, group)
    dw = torch.autograd.grad(y, by, w_of(list(y.shape)))[0]
    record(WEIGHTS, x, w, y, group, stride, dilation, pad, pad, expected=dw)


def transpose(x, w, group, stride, dilation, pad, more):
    f = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(stride) - 1]
    y = f(x_of(x), w_of(w), None, stride, pad, more, group, dilation)
    record(TRANSPOSE, x, w, y, group, stride, dilation, pad, [p - m for p, m in zip(pad, more)])


def max_pool(x, window, stride, dilation, pad, ceil):
    f = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(window) - 1]
    values = x_of(x)
    values.view(-1)[5] = float("nan")
    values.view(-1)[17] = float("-inf")
    values.requires_grad_()
    y = f(values, window, stride, pad, dilation, ceil_mode=ceil)
    record(MAX, x, [0, 0] + window, y, 1, stride, dilation, pad, pad)
    dx = torch.autograd.grad(y, values, w_of(list(y.shape)))[0]
    record(MAX_GRAD, x, [0, 0] + window, y, 1, stride, dilation, pad, pad, expected=dx)


def average_pool(x, window, stride, pad, ceil, include):
    f = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[len(window) - 1]
    y = f(x_of(x), window, stride, pad, ceil, include)
    record(AVERAGE, x, [0, 0] + window, y, 1, stride, [1] * len(window), pad, pad, int(include))


print("/* Written by record_conv.py with PyTorch %s; do not edit. */" % torch.__version__)
print("/* clang-format off */")
conv([2, 3, 9], [4, 3, 3], 1, [2], [1], [1], [0])
conv([1, 4, 5, 6], [6, 2, 3, 2], 2, [1, 2], [2, 1], [2, 0], [1, 1])
conv([2, 5, 4, 7], [5, 1, 3, 3], 5, [1, 1], [1, 1], [1, 1], [1, 1])
conv([1, 9, 6, 5], [3, 9, 2, 2], 1, [2, 2], [1, 2], [0, 1], [1, 2])
conv([1, 2, 3, 4, 5], [3, 2, 2, 1, 3], 1, [1, 2, 1], [1, 1, 2], [1, 0, 2], [0, 1, 1])
transpose([2, 3, 5], [3, 2, 4], 1, [3], [1], [1], [2])
transpose([1, 4, 3, 4], [4, 3, 3, 2], 2, [2, 1], [1, 2], [1, 0], [1, 0])
transpose([1, 2, 2, 3, 2], [2, 2, 2, 2, 3], 1, [2, 1, 2], [1, 2, 1], [0, 1, 1], [0, 0, 1])
weights([2, 3, 9], [4, 3, 3], 1, [2], [1], [1])
weights([3, 4, 5, 6], [6, 2, 3, 2], 2, [1, 2], [2, 1], [2, 0])
weights([2, 5, 4, 7], [5, 1, 3, 3], 5, [1, 1], [1, 1], [1, 1])
weights([2, 4, 3, 3], [3, 4, 1, 1], 1, [1, 1], [1, 1], [0, 0])
weights([1, 2, 3, 4, 5], [3, 2, 2, 1, 3], 1, [1, 2, 1], [1, 1, 2], [1, 0, 2])
max_pool([2, 1, 11], [3], [2], [1], [1], True)
max_pool([1, 2, 7, 6], [3, 2], [2, 2], [1, 2], [1, 1], True)
max_pool([1, 1, 4, 5, 6], [2, 3, 2], [1, 2, 2], [1, 1, 1], [0, 1, 1], False)
average_pool([2, 2, 9], [4], [3], [2], True, False)
average_pool([1, 2, 7, 6], [3, 4], [2, 3], [1, 2], True, True)
average_pool([1, 2, 7, 6], [3, 4], [2, 3], [1, 2], True, False)
average_pool([1, 1, 4, 5, 6], [2, 2, 3], [2, 2, 2], [1, 0, 1], False, True)
print("static const struct recorded recorded[] = {\n    %s,\n};" % ",\n    ".join(cases))
