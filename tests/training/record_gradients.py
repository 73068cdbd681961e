#!/usr/bin/env python3
"""Exports modules by PyTorch, and records their gradients in f64 and f32.

    record_gradients.py [--out DIR] [CASE...]

Cases are the tables in modules.py. Writes DIR/CASE: model.onnx, an array for each input with the samples of all
micro-batches, and gradients.npz: "start/PARAMETER" is the parameter, "2/PARAMETER" and "4/PARAMETER" are the mean gradients of
the first 2 and 4 micro-batches in f64. Parameters without a gradient are left out. It needs PyTorch, onnx and onnxscript from
pip (written for 2.15, 1.23 and 0.7)."""
import copy
import logging
import pathlib
import sys
import warnings

import numpy
import onnx
import torch
from torch import nn

from harness import parser_of
from modules import CASES, Integers, Positive, Signs

BATCH, MICRO_BATCHES = 4, (2, 4)


class WithLoss(nn.Module):
    """The mean square of the distance from a target, or the loss that the module gives."""

    def __init__(self, inner, targeted):
        super().__init__()
        self.inner, self.targeted = inner, targeted

    def forward(self, *inputs):
        if not self.targeted:
            return self.inner(*inputs)
        return ((self.inner(*inputs[:-1]) - inputs[-1]) ** 2).mean()


def samples(given):
    shape = (BATCH * max(MICRO_BATCHES), *(given if isinstance(given, tuple) and not hasattr(given, "shape") else given.shape))
    if isinstance(given, Integers):
        return torch.randint(0, given.high, shape)
    if isinstance(given, Signs):
        return torch.randint(0, 2, shape) * 2.0 - 1
    return torch.rand(shape) + 0.1 if isinstance(given, Positive) else torch.randn(shape)


def gradients(module, data, count):
    """The mean gradients of the first `count` micro-batches, by parameter."""
    module = copy.deepcopy(module).double()
    for k in range(count):
        rows = [value[k * BATCH : (k + 1) * BATCH] for value in data]
        module(*(value.double() if value.is_floating_point() else value for value in rows)).backward()
    return {name: value.grad.numpy() / count for name, value in module.named_parameters() if value.grad is not None}


def record(name, folder):
    case = CASES[name]
    torch.manual_seed(sum(name.encode()))
    inner = case.build()
    data = [samples(given) for given in case.inputs]
    made = inner(*(value[:BATCH] for value in data))
    if not case.loss:
        one = made.shape[1:] if made.ndim and made.shape[0] == BATCH else made.shape
        data.append(torch.randn(BATCH * max(MICRO_BATCHES), *one))
    module, names = WithLoss(inner, not case.loss), ["x", *(f"input{k}" for k in range(1, len(data)))]
    module.train()
    folder.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(module, tuple(value[:BATCH] for value in data), folder / "model.onnx", input_names=names, dynamo=True,
                      verbose=False, external_data=False, optimize=False)
    without_metadata(folder / "model.onnx")
    for key, value in zip(names, data):
        numpy.save(folder / f"{key}.npy", value.numpy())
    kept = {f"start/{key}": value.detach().numpy() for key, value in module.named_parameters()}
    for count in MICRO_BATCHES:
        kept.update({f"{count}/{key}": value for key, value in gradients(module, data, count).items()})
    numpy.savez_compressed(folder / "gradients.npz", **kept)


def without_metadata(path):
    """Leaves out stack traces, which are most of the bytes of a small export and name directories of the machine."""
    model = onnx.load(path)
    for node in [*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output, *model.graph.initializer,
                 *(node for function in model.functions for node in function.node)]:
        del node.metadata_props[:]
    del model.metadata_props[:], model.graph.metadata_props[:]
    onnx.save(model, path)


def folder_name(case):
    return "".join(c if c.isalnum() else "_" for c in case)


def main():
    parser = parser_of(__doc__, rankc=False)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "gradients")
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    failed = False
    for name in options.cases or CASES:
        try:
            record(name, options.out / folder_name(name))
        except Exception as error:  # of the exporter, whatever it is
            failed = True
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
