#!/usr/bin/env python3
"""Record how ml_dtypes converts f32 to 8-bit floats and back: writes recorded_fp8.h. Needs numpy and ml_dtypes (written for 0.6.0).

Of each format: what every code is as an f32, and of the codes of positive numbers the bits of the least f32 that becomes this code or
a later one. That is all there is to know: conversions keep the order of numbers, and the sign."""
import pathlib

import ml_dtypes
import numpy

FORMATS = {"e4m3": (ml_dtypes.float8_e4m3fn, 448), "e5m2": (ml_dtypes.float8_e5m2, 57344)}


def bits(values):
    return ", ".join(f"0x{value:08x}" for value in values)


def code_of(word, dtype, most):
    """What is too large becomes the largest."""
    value = numpy.uint32(word).view("f4")
    return int(numpy.minimum(value, numpy.float32(most)).astype(dtype).view("u1"))


def threshold(code, dtype, most):
    low, high = 0, 0x7F7FFFFF
    while low < high:
        middle = (low + high) // 2
        if code_of(middle, dtype, most) >= code:
            high = middle
        else:
            low = middle + 1
    return low


def lines(name, values):
    yield f"static const uint32_t {name}[] = {{"
    for i in range(0, len(values), 10):
        yield f"    {bits(values[i:i + 10])},"
    yield "};"


def main():
    text = [f"/* Written by record_fp8.py with ml_dtypes {ml_dtypes.__version__}; do not edit. */", "/* clang-format off */"]
    for name, (dtype, most) in FORMATS.items():
        values = numpy.arange(256, dtype="u1").view(dtype).astype("f4")
        last = code_of(0x7F7FFFFF, dtype, most)
        text += lines(f"{name}_values", values.view("u4").tolist())
        text += lines(f"{name}_thresholds", [threshold(code, dtype, most) for code in range(last + 1)])
    text.append("/* clang-format on */")
    (pathlib.Path(__file__).parent / "recorded_fp8.h").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
