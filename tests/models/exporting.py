"""What the scripts that export test models share: a model's specification, its weights, its files and the command line.

A script keeps a table of Spec by name and calls main. The folders are described in README.md. Everything drawn at
random is seeded by the model's name, so adding or changing one model leaves the others as they are.
"""

import argparse
import math
import pathlib
import re
import warnings
from dataclasses import dataclass, field
from typing import Callable, Dict, Sequence

import numpy
import torch
from torch import nn


@dataclass
class Spec:
    """One exported model: how to make it and its inputs (by name, in forward's order), and how to export it."""

    build: Callable[[], nn.Module]
    inputs: Callable[[numpy.random.Generator], Dict[str, numpy.ndarray]]
    outputs: Sequence[str]
    opset: int
    # Constant folding by the exporter, and BatchNormalization put into the weights of the Conv before it.
    fold: bool = True
    fuse: bool = True
    # Dynamic axes: tensor name -> {axis: dimension name}. Empty: all shapes are static.
    dynamic: Dict[str, Dict[int, str]] = field(default_factory=dict)


def is_norm(module):
    return re.search(r"Norm(\dd)?$", type(module).__name__)


def weight_scale(shape):
    """Keeps the size of what passes through: a convolution's outputs sum over all but the first axis, a matrix is
    [in, out] or [out, in]."""
    return 1.5 / math.sqrt(math.prod(shape[1:]) if len(shape) > 3 else min(shape, default=1))


def randomize(module, random):
    """Draw every parameter (tied ones once) and the statistics of BatchNorm: norm scales and variances lie around 1,
    biases and means around 0."""
    scales = {id(getattr(m, "weight", None)) for m in module.modules() if is_norm(m)}
    for parameter in module.parameters():
        values = random.standard_normal(tuple(parameter.shape))
        if id(parameter) in scales:
            values = 1.0 + 0.25 * values
        elif parameter.dim() == 1:
            values = 0.25 * values
        else:
            values = values * weight_scale(parameter.shape)
        parameter.data = torch.from_numpy(numpy.asarray(values, numpy.float32))
    for norm in module.modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm) and norm.track_running_stats:
            shape = tuple(norm.running_mean.shape)
            norm.running_mean = torch.from_numpy((0.25 * random.standard_normal(shape)).astype(numpy.float32))
            norm.running_var = torch.from_numpy(random.uniform(0.5, 2.0, shape).astype(numpy.float32))


def dimension_sizes(spec, inputs):
    """Dynamic dimension name -> its size in the reference inputs."""
    return {dim: inputs[name].shape[axis] for name in inputs for axis, dim in spec.dynamic.get(name, {}).items()}


def save_tensors(folder, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in tensors.items():
        numpy.save(folder / f"{name}.npy", numpy.ascontiguousarray(value))


def record(module, spec, inputs, folder):
    """Write the module, whose weights are set, and what it makes of the inputs."""
    arguments = tuple(torch.from_numpy(value) for value in inputs.values())
    save_tensors(folder / "inputs", inputs)
    with torch.no_grad():
        results = module(*arguments)
    results = (results,) if isinstance(results, torch.Tensor) else results
    assert len(results) == len(spec.outputs)
    save_tensors(folder / "outputs", {name: value.numpy() for name, value in zip(spec.outputs, results)})
    # In EVAL the exporter fuses Conv with BatchNormalization; PRESERVE takes a module in evaluation mode as it is.
    mode = torch.onnx.TrainingMode.EVAL if spec.fuse else torch.onnx.TrainingMode.PRESERVE
    torch.onnx.export(
        module,
        arguments,
        str(folder / "model.onnx"),
        input_names=list(inputs),
        output_names=list(spec.outputs),
        opset_version=spec.opset,
        do_constant_folding=spec.fold,
        training=mode,
        dynamic_axes=spec.dynamic,
    )
    if spec.dynamic:
        sizes = dimension_sizes(spec, inputs)
        (folder / "dims").write_text("".join(f"{dim}={size}\n" for dim, size in sizes.items()))


def export(name, spec, folder):
    random = numpy.random.default_rng(list(name.encode()))
    module = spec.build().eval()
    randomize(module, random)
    record(module, spec, spec.inputs(random), folder)


def main(models, description, out=pathlib.Path(__file__).parent):
    """The command line of a script whose table is models. `out`: where they go unless --out says it; None: it must."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=pathlib.Path, default=out, required=out is None, help="where the model folders go")
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"models to export (default: all): {', '.join(models)}")
    options = parser.parse_args()
    for name in options.names:
        if name not in models:
            parser.error(f"no model named '{name}'; there are {', '.join(models)}")
    warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)
    warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\.onnx")
    for name in options.names or models:
        folder = options.out / name
        export(name, models[name], folder)
        print(f"{name}: {(folder / 'model.onnx').stat().st_size} bytes")
