#!/usr/bin/env python3
"""Programs with open sizes are verified: graph.rir, read again, gives the same files (Note [Specimens] in ir/open.h).

    verified.py --rankc RANKC

Models with the shapes of optical flow (images in steps of eight, halved three times) and of video (batch, frames, height and width of
512 channels, halved four times: numbers become so large that specimens are small, and a quotient of a quotient is one of the size),
under plans of several ranks."""
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, needed, rankc_of, report  # noqa: E402

with needed():
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper

CHANNELS = 4


class Model:
    """A chain of nodes; each method adds one to the last."""

    def __init__(self, spatial):
        self.input = ["batch", CHANNELS, *spatial]
        self.random, self.nodes, self.stored, self.channels = numpy.random.default_rng(1), [], [], CHANNELS

    def add(self, op, weights=(), **attributes):
        names = []
        for shape in weights:
            names.append(f"w{len(self.stored)}")
            self.stored.append(numpy_helper.from_array(self.random.standard_normal(shape).astype("f4"), names[-1]))
        last = f"t{len(self.nodes)}" if self.nodes else "x"
        self.nodes.append(helper.make_node(op, [last, *names], [f"t{len(self.nodes) + 1}"], **attributes))

    def conv(self, to, kernel, stride):
        n = len(self.input) - 2
        strides = [stride] * n if isinstance(stride, int) else stride
        self.add("Conv", [(to, self.channels) + (kernel,) * n], kernel_shape=[kernel] * n, strides=strides, pads=[kernel // 2] * 2 * n)
        self.channels = to

    def save(self, path):
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.input)
        y = helper.make_tensor_value_info(self.nodes[-1].output[0], TensorProto.FLOAT, None)
        made = helper.make_model(helper.make_graph(self.nodes, "model", [x], [y], self.stored),
                                 opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(made, path)


def flow():
    model = Model(["height", "width"])
    for stage in range(3):
        model.conv(8, 3, 2)
        model.add("InstanceNormalization", [(8,), (8,)])
        model.add("Relu")
        model.conv(8, 3, 1)
        model.add("InstanceNormalization", [(8,), (8,)])
    return model


def video():
    model = Model(["frames", "height", "width"])
    model.conv(64, 3, [1, 2, 2])
    for channels in (64, 128, 512):
        model.conv(channels, 3, 2)
        model.add("Relu")
    model.add("GlobalAveragePool")
    return model


CASES = {
    "flow": (flow, {"batch": "1..5@2", "height": "128..264:8@128", "width": "184..392:8@192"}, ["tp:tensor=2", "pp:pipeline=2"]),
    "video": (video, {"batch": "2..4:2@2", "frames": "1..17@8", "height": "16..65@32", "width": "24..97@48"}, ["hybrid:data=2"]),
}


def check(rankc, work, make, bounds, plans):
    path = os.path.join(work, "model.onnx")
    make().save(path)
    for number, plan in enumerate(plans):
        out = os.path.join(work, f"out{number}")
        dims = [word for dim, size in bounds.items() for word in ("--dim", f"{dim}={size}")]
        call(rankc, "compile", path, "-o", out, "-q", "--no-build", "--pas", plan, *dims)
        call(rankc, "verify", "-q", out)
    return f"{len(plans)} plans verified"


def main():
    rankc = rankc_of(__doc__)
    return report([(name, lambda work, case=case: check(rankc, work, *case)) for name, case in CASES.items()])


if __name__ == "__main__":
    sys.exit(main())
