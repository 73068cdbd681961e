"""Open dimensions of exports: their names and bounds, and inputs of other sizes."""

import re
from typing import NamedTuple

import numpy

# Dimensions by the name of an input, else by its number of axes.
TEXT = {0: "batch", 1: "seq"}
AXES = {"decoder_input_ids": {0: "batch", 1: "target"}, "input_features": {0: "batch", 2: "frames"}, "c": {0: "batch", 1: "context"}}
AXES_BY_NDIM = {1: {0: "batch"}, 2: TEXT, 3: TEXT, 4: {0: "batch", 2: "height", 3: "width"},
                5: {0: "batch", 2: "frames", 3: "height", 4: "width"}}


class Span(NamedTuple):
    """The sizes of a dimension: least, least + step .. most."""

    least: int
    most: int
    step: int
    typical: int

    def __str__(self):
        return f"{self.least}..{self.most}" + f":{self.step}" * (self.step > 1) + f"@{self.typical}"


def spans_of(text):
    """name -> Span, of the words of a file `dims`."""
    spans = {}
    for word in text.split():
        name, least, most, step, typical = re.fullmatch(r"(\w+)=(\d+)\.\.(\d+)(?::(\d+))?@(\d+)", word).groups()
        spans[name] = Span(int(least), int(most), int(step or 1), int(typical))
    return spans


def axes_of(name, array):
    if name not in AXES and array.ndim == 3 and array.shape[1] == 1:
        return {0: "batch", 2: "length"}  # a sound
    return {axis: dim for axis, dim in AXES.get(name, AXES_BY_NDIM.get(array.ndim, {})).items() if axis < array.ndim}


def sizes_of(inputs):
    return {dim: array.shape[axis] for name, array in inputs.items() for axis, dim in axes_of(name, array).items()}


def mask_of(array, shape):
    """Hides as many of the last keys of each row as the example hides, but never all."""
    hidden = numpy.resize((array == 0).sum(-1), shape[0])[:, None]
    return numpy.asarray(numpy.arange(shape[1]) < numpy.maximum(1, shape[1] - hidden), array.dtype)


def resized(inputs, sizes, random):
    """Inputs of other sizes, with values drawn from those that they have."""

    def draw(name, array):
        shape = [sizes.get(axes_of(name, array).get(axis), extent) for axis, extent in enumerate(array.shape)]
        return mask_of(array, shape) if "mask" in name else random.choice(array.ravel(), shape)

    return {name: draw(name, array) for name, array in inputs.items()}
