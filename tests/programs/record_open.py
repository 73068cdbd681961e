#!/usr/bin/env python3
"""Records the tests of tests/programs/recorded whose dimensions are open: a file `dims` has their bounds, and each data set has other
sizes. Expected results are ONNX Runtime's.

    record_open.py DIR [GROUP...]      (with the newest onnx and onnxruntime; tests/programs/backend.py runs the result)"""
import os
import sys

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnx import numpy_helper

# Operators that compute with extents: filters as wide as an image shrinks, grids, windows with offsets, and what exporters slice
# tables of positions by.
IMAGES = """
<ir_version: 10, opset_import: ["": 20]>
images (float[batch, 2, height, width] x, float[batch, 2, 3] theta, float[batch, 18, height, width] offsets)
    => (float[] linear, float[] cubic, float[] inside, float[] cubic_inside, float[] halved, float[] moved, float[] aligned,
        float[] deformed, float[] places)
<float[4] halves = {1, 1, 0.4, 0.5}, int64[2] seven = {7, 6}, float[2, 2, 3, 3] weights = {
 0.1, -0.2, 0.3, 0.4, 0.5, -0.6, 0.7, 0.8, 0.9, 0.2, 0.1, -0.4, 0.3, 0.6, 0.5, 0.8, -0.7, 1,
 0.3, 0.2, -0.1, 0.4, 0.5, 0.9, -0.7, 0.8, 0.6, 0.2, 0.3, 0.4, 0.3, -0.6, 0.5, 0.1, 0.7, 1},
 int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] last = {9223372036854775807}, int64[1] rows = {40}, float four = {4},
 float[40] table = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30,
 31, 32, 33, 34, 35, 36, 37, 38, 39}>
{
    shape = Shape (x)
    planes = Slice (shape, zero, two)
    image = Slice (shape, two, last)
    to = Concat <axis = 0> (planes, seven)
    linear = Resize <mode = "linear", antialias = 1> (x, , , to)
    cubic = Resize <mode = "cubic", antialias = 1> (x, , , to)
    inside = Resize <mode = "linear", antialias = 1, exclude_outside = 1> (x, , , to)
    cubic_inside = Resize <mode = "cubic", antialias = 1, exclude_outside = 1, cubic_coeff_a = -0.5> (x, , , to)
    halved = Resize <mode = "linear", antialias = 1> (x, , halves)
    moved_grid = AffineGrid (theta, shape)
    moved = Add (moved_grid, four)
    aligned_grid = AffineGrid <align_corners = 1> (theta, shape)
    aligned = Add (aligned_grid, four)
    deformed = DeformConv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, weights, offsets)
    height = Gather (image, zero)
    before = Sub (rows, height)
    first = Max (before, zero)
    below = Sub (one, height)
    nothing = Max (below, zero)
    behind = Slice (table, first, last)
    places = Slice (behind, nothing, last)
}
"""

# Numbers that exporters compute from a size: ranges that count down, also from floats and from a negative size, a size rounded up,
# rests of negative numbers, as torch.roll has them.
NUMBERS = """
<ir_version: 10, opset_import: ["": 20]>
numbers (float[batch, length] x) => (int64[] down, int64[] in_threes, int64[] between, int64[] even, int64[] thirds, float[] resized, float[] farther,
        float[] turned, int64[] rest, int64[] rest_of_square)
<int64 zero = {0}, int64 one = {1}, int64 less = {-1}, int64 three = {3}, int64 threes = {-3}, float two = {2}, float negative = {-1},
 int64[1] all = {-1}, int64[1] zero_list = {0}, int64[1] one_list = {1}, int64[4] image = {1, 1, -1, 1}, int64[3] planes = {1, 1, 1}>
{
    shape = Shape (x)
    length = Gather (shape, one)
    down = Range (length, less, less)
    in_threes = Range (length, zero, threes)
    before = Add (length, less)
    before_float = Cast <to = 1> (before)
    farther = Range (before_float, negative, negative)
    back = Neg (length)
    back_float = Cast <to = 1> (back)
    length_float = Cast <to = 1> (length)
    apart = Sub (back_float, length_float)
    steps = Div (apart, negative)
    steps_up = Ceil (steps)
    limit = Cast <to = 7> (steps_up)
    places = Range (zero, limit, one)
    between = Sub (length, places)
    halves = Div (length_float, two)
    halves_up = Ceil (halves)
    rounded = Mul (halves_up, two)
    rounded_up = Cast <to = 7> (rounded)
    even = Range (zero, rounded_up, one)
    third = Div (length, three)
    thirds = Range (zero, third, one)
    first = Gather (x, zero)
    column = Reshape (first, image)
    tall = Reshape (rounded_up, all)
    ones = Slice (planes, zero_list, one_list)
    to = Concat <axis = 0> (ones, ones, tall, ones)
    resized = Resize <mode = "linear"> (column, , , to)
    list = Reshape (length, all)
    last = Reshape (less, all)
    at = Mod (last, list)
    end = Slice (x, at, list, one_list)
    begin = Slice (x, zero_list, at, one_list)
    turned = Concat <axis = 1> (end, begin)
    rest = Mod (back, three)
    square = Mul (length, length)
    under = Sub (three, square)
    rest_of_square = Mod (under, three)
}
"""

# Fourier transforms over the sequence and the features, and back.
TRANSFORMS = """
<ir_version: 10, opset_import: ["": 20]>
transforms (float[batch, length, 6] x) => (double[] whole, double[] half, double[] back)
<int64 one = {1}, int64 two = {2}, int64[1] last = {3}>
{
    double = Cast <to = 11> (x)
    real = Unsqueeze (double, last)
    rows = DFT (real, , two)
    spectrum = DFT (rows, , one)
    whole = Identity (spectrum)
    parts = DFT <onesided = 1> (real, , one)
    half = Identity (parts)
    back = DFT <inverse = 1> (spectrum, , one)
}
"""

# Sizes that depend on data along dimensions that are open: slices between such bounds, some of fewer elements than others, the first few
# of the largest, boxes that do not overlap, kinds of elements.
CHOICES = """
<ir_version: 10, opset_import: ["": 20]>
choices (float[length, 3] x, int64[1] start, int64[1] end, bool[length] chosen, float[1, length, 4] boxes, float[1, 2, length] scores,
         int64[length] kinds)
    => (float[] between, float[] sum, float[] until, float[] behind, float[] first_five, float[] last_two, float[] few, int64[] where_few,
        int64[] kept, int64[] unique, int64[] first, int64[] kind, int64[] times, float[] half, float[] from_last, float[] without_last)
<int64[1] zero = {0}, int64[1] two = {2}, int64[1] minus_two = {-2}, int64[1] three = {3}, int64[1] five = {5}, int64[1] far = {100},
 float third = {0.3}, float[1] halves = {2}>
{
    between = Slice (x, start, end, zero)
    sum = ReduceSum <keepdims = 0> (between, zero)
    until = Slice (x, zero, end, zero)
    behind = Slice (x, two, end, zero)
    rows = Compress <axis = 0> (x, chosen)
    five_rows = Slice (rows, zero, five, zero)
    first_five = ReduceSum <keepdims = 0> (five_rows, zero)
    two_rows = Slice (rows, minus_two, far, zero)
    last_two = ReduceSum <keepdims = 0> (two_rows, zero)
    size = Shape <end = 1> (x)
    most = Min (size, three)
    few, where_few = TopK <axis = 0> (x, most)
    kept = NonMaxSuppression (boxes, scores, three, third)
    unique, first, kind, times = Unique (kinds)
    back = Neg (size)
    back_float = Cast <to = 1> (back)
    half_back = Div (back_float, halves)
    down = Floor (half_back)
    down_int = Cast <to = 7> (down)
    up = Neg (down_int)
    half = Slice (x, zero, up, zero)
    from_last = Slice (x, minus_two, end, zero)
    without_last = Slice (x, start, minus_two, zero)
}
"""

# group -> text of the model, bounds, shapes of the inputs, sizes
GROUPS = {
    "open_images": (IMAGES, {"batch": "1..3", "height": "5..24@12", "width": "4..24"},
                    [(12, 9, 2), (24, 24, 3), (5, 4, 1), (13, 17, 1), (7, 6, 2)], ["height", "width", "batch"]),
    "open_numbers": (NUMBERS, {"batch": "1..3", "length": "1..17@8"}, [(1, 1), (17, 3), (8, 2), (5, 1), (11, 2)], ["length", "batch"]),
    "open_choices": (CHOICES, {"length": "1..9@5"}, [(1,), (9,), (2,), (5,), (4,)], ["length"]),
    "open_transforms": (TRANSFORMS, {"batch": "1..3", "length": "1..17@8"}, [(1, 1), (17, 3), (8, 2), (5, 1), (11, 2)], ["length", "batch"]),
}


def inputs_of(model, sizes, random):
    for value in model.graph.input:
        shape = [sizes.get(dim.dim_param, dim.dim_value) for dim in value.type.tensor_type.shape.dim]
        kind = value.type.tensor_type.elem_type
        drawn = random.uniform(1, 2, shape).astype("f4") if kind == onnx.TensorProto.FLOAT else random.integers(-4, 7, shape)
        yield value.name, drawn > 0 if kind == onnx.TensorProto.BOOL else drawn


def write(path, values):
    with open(path, "wb") as file:
        file.write(numpy_helper.from_array(values).SerializeToString())


def record(folder, text, bounds, all_sizes, names):
    model, random = onnx.parser.parse_model(text), np.random.default_rng(7)
    os.makedirs(folder, exist_ok=True)
    onnx.save(model, os.path.join(folder, "model.onnx"))
    with open(os.path.join(folder, "dims"), "w", encoding="utf-8") as file:
        file.write("".join(f"{name}={bound}\n" for name, bound in bounds.items()))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for number, sizes in enumerate(all_sizes):
        data = os.path.join(folder, f"test_data_set_{number}")
        os.makedirs(data, exist_ok=True)
        given = dict(inputs_of(model, dict(zip(names, sizes)), random))
        for kind, arrays in ("input", given.values()), ("output", session.run(None, given)):
            for i, values in enumerate(arrays):
                write(os.path.join(data, f"{kind}_{i}.pb"), values)


def main():
    for group in sys.argv[2:] or GROUPS:
        record(os.path.join(sys.argv[1], group), *GROUPS[group])


if __name__ == "__main__":
    main()
