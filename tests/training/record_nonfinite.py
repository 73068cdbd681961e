#!/usr/bin/env python3
"""Export models that give values which are not finite, and record what PyTorch makes of their parameters.

    record_nonfinite.py [NAME...]

writes, per case, beside this file

    nonfinite/NAME.onnx    the forward pass and the loss, with the initial values of the parameters
    nonfinite/NAME.json    the inputs; the first node whose value is not finite ("": none is); and for each optimizer the
                           parameters after one step

Numbers are written as text, since JSON has none that are not finite. It needs PyTorch (written for 1.13, Debian's
python3-torch) and numpy."""
import json
import pathlib
import sys

import numpy
import torch
from torch import nn

FOLDER = pathlib.Path(__file__).resolve().parent / "nonfinite"
OPTIMIZERS = {
    "sgd:lr=0.1": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd:lr=0.1,momentum=0.9,weight_decay=0.1": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "adam:lr=0.1": lambda p: torch.optim.Adam(p, lr=0.1),
    "adamw:lr=0.1": lambda p: torch.optim.AdamW(p, lr=0.1),
    "adagrad:lr=0.1": lambda p: torch.optim.Adagrad(p, lr=0.1),
}


class Model(nn.Module):
    """A linear layer, and a second parameter that `loss` does something with."""

    def __init__(self, values, loss):
        super().__init__()
        random = numpy.random.default_rng(1)
        self.linear = nn.Linear(3, 2)
        self.linear.weight = nn.Parameter(torch.from_numpy(random.normal(size=(2, 3)).astype("f4")))
        self.linear.bias = nn.Parameter(torch.from_numpy(random.normal(size=2).astype("f4")))
        self.other = nn.Parameter(torch.tensor(values))
        self.loss, self.note = loss, no_note

    def forward(self, x):
        return self.loss(self.linear(x), self.other, self.note)


def no_note(name, value):
    return value


# Name: the second parameter, and the loss; what it notes has the name of the exported node.
CASES = {
    # 0 * inf in one element of one parameter, the loss is finite
    "root": ([0.0, 4.0], lambda y, other, note: (y ** 2).mean() + torch.sqrt(other * other).sum()),
    # an infinite gradient of one element
    "infinite": ([0.0, 4.0], lambda y, other, note: (y ** 2).mean() + torch.sqrt(other).sum()),
    # log(0) and 0 / 0 where y is negative
    "log": ([1.0, 1.0], lambda y, other, note: note("/Log", torch.log(note("/Relu", torch.relu(y)))).mean() + other.sum()),
    "quotient": ([1.0, 1.0],
                 lambda y, other, note: note("/Div", note("/Relu", torch.relu(y)) / torch.relu(y)).mean() + other.sum()),
    # a parameter that is not finite before the step
    "parameter": ([float("nan"), 1.0], lambda y, other, note: (y ** 2).mean() + torch.relu(other).sum()),
    # a softmax written by hand, without subtracting the largest value
    "softmax": ([1000.0, 1000.0], lambda y, other, note: softmax(y * other, note)),
}


def softmax(x, note):
    e = note("/Exp", torch.exp(note("/Mul", x)))
    return note("/Div", e / note("/ReduceSum", e.sum(1, keepdim=True)))[:, 0].mean()


def text(array):
    return [repr(float(value)) for value in numpy.asarray(array).ravel()]


def first_of(model, x):
    """The first node whose value is not finite."""
    bad = []

    def note(name, value):
        if not torch.isfinite(value).all():
            bad.append(name)
        return value
    model.note = note
    model(x)
    return bad[0] if bad else ""


def record(name):
    values, loss = CASES[name]
    x = torch.from_numpy(numpy.random.default_rng(2).normal(size=(4, 3)).astype("f4"))
    reference = {"inputs": {"x": {"shape": list(x.shape), "values": text(x)}}, "steps": {}}
    torch.onnx.export(Model(values, loss), (x,), str(FOLDER / f"{name}.onnx"), input_names=["x"], output_names=["loss"],
                      do_constant_folding=False)
    reference["first"] = first_of(Model(values, loss), x)
    for option, make in OPTIMIZERS.items():
        model = Model(values, loss)
        optimizer = make(model.parameters())
        model(x).backward()
        optimizer.step()
        reference["steps"][option] = {key: text(p.detach()) for key, p in model.named_parameters()}
    (FOLDER / f"{name}.json").write_text(json.dumps(reference, indent=1) + "\n")


def main():
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or CASES:
        record(name)


if __name__ == "__main__":
    main()
