"""Exports with open dimensions: their names, inputs of other sizes, and the sizes for which an export is right.

A dimension is open if the module itself takes other sizes of it and the exported graph, run by ONNX Runtime, then gives what
the module gives: exporters write sizes of the example into graphs without a word. A dimension that is not open in that sense
is exported again with the example's size, so that what remains is an export that is right within the bounds in its file `dims`."""

import collections
import inspect
import re

import numpy
import onnx
import onnxruntime
import torch

from open_sizes import Span, axes_of, resized, sizes_of

SPATIAL = ("height", "width")
STEPS = (1, 2, 4, 8, 16, 32)  # of the sizes of an image
NEAR = 1e-3  # of the largest value, between ONNX Runtime and PyTorch: what a wrong size does is more

# Why a dimension is not open.
OWN = "the module takes no other size"
WRITTEN = "the exporter writes the size of the example"
WRONG = "the exported graph is wrong at other sizes"


def computed(module, inputs):
    """What the module gives; None: it does not take these inputs."""
    try:
        with torch.no_grad():
            return module(*(torch.from_numpy(array) for array in inputs.values())).numpy()
    except Exception:
        return None


def example_of(module, inputs, random):
    """An example no two open sizes of which are equal, and none 0 or 1: exporters take such sizes for the same, or for fixed.
    Images are wider than high, unless the module takes none that are."""
    sizes = sizes_of(inputs)
    sizes["batch"] = max(2, sizes.get("batch", 2))
    wide = resized(inputs, {**sizes, "width": sizes.get("height", 0) * 3 // 2}, random)
    return resized(inputs, sizes, random) if computed(module, wide) is None else wide


class Probe:
    """A module and its example, at other sizes. `session`: of the exported model, once there is one."""

    def __init__(self, module, inputs, random):
        self.module, self.inputs, self.random, self.session = module, inputs, random, None
        self.example = sizes_of(inputs)

    def works(self, **sizes):
        inputs = resized(self.inputs, {**self.example, **sizes}, self.random)
        wanted = computed(self.module, inputs)
        if wanted is None or self.session is None:
            return wanted is not None
        try:
            got = self.session.run(None, {given.name: inputs[given.name] for given in self.session.get_inputs()})[0]
        except Exception:
            return False
        return got.shape == wanted.shape and numpy.allclose(got, wanted, 0, NEAR * numpy.abs(wanted).max(), equal_nan=True)

    def span(self, dim):
        """The sizes that work, the others being the example's; None: few other sizes do."""
        size = self.example[dim]
        for step in STEPS if dim in SPATIAL else STEPS[:1]:
            if size % step == 0 and self.works(**{dim: size + step}):
                break
        else:
            return None
        below = [1, 2, size // 2] if step == 1 and dim not in SPATIAL else [size // 2 // step * step, size - step]
        least = next((small for small in below if 0 < small < size and self.works(**{dim: small})), size)
        most = next((great for great in (2 * size + step, size + step) if self.works(**{dim: great})), None)
        return Span(least, most, step, size) if most and most - least > size // 2 else None


def paired(dims):
    """Without height and width unless both are there: a network takes images of other sizes or not."""
    return [dim for dim in dims if dim not in SPATIAL or {*SPATIAL} <= {*dims}]


def open_dims(probe, dims):
    """name -> Span of the dimensions that are open, alone and all at once at their least and most."""
    found = {dim: probe.span(dim) for dim in dims}
    bounds = {dim: found[dim] for dim in paired([dim for dim in dims if found[dim]])}
    if all(probe.works(**{dim: span[end] for dim, span in bounds.items()}) for end in (0, 1)):
        return bounds
    return {dim: span for dim, span in bounds.items() if dim == "batch"}


def session_of(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def dynamic_shapes(module, inputs, dims):
    """For torch.export: it may decide that a size is fixed after all."""
    hints = [{axis: torch.export.Dim.AUTO for axis, dim in axes_of(*given).items() if dim in dims} for given in inputs.items()]
    kinds = [parameter.kind for parameter in inspect.signature(module.forward).parameters.values()]
    return (tuple(hints),) if kinds[0] == inspect.Parameter.VAR_POSITIONAL else tuple(hints)


def dynamic_axes(inputs, dims):
    """For the legacy exporter, which takes names."""
    return {name: {axis: dim for axis, dim in axes_of(name, array).items() if dim in dims} for name, array in inputs.items()}


def rename(path, inputs, dims):
    """Gives the open dimensions of the exported model their names; returns those."""
    model = onnx.load(path)
    names, symbols = {}, {}
    for given in model.graph.input:
        for axis, dim in axes_of(given.name, inputs[given.name]).items():
            symbol = given.type.tensor_type.shape.dim[axis].dim_param
            if symbol and dim in dims:
                names[dim] = symbols.setdefault(symbol, dim)
    for value in [*model.graph.input, *model.graph.output]:
        for extent in value.type.tensor_type.shape.dim:
            if extent.dim_param:
                extent.dim_param = re.sub(r"[A-Za-z_]\w*", lambda name: symbols.get(name[0], name[0]), extent.dim_param)
    onnx.save(model, path)
    return set(names.values())


def export_open(exporter, probe, path, fixed):
    """Exports with as many open dimensions as are right. Returns name -> Span; `fixed` gets name -> why it is not open."""
    module, inputs = probe.module, probe.inputs
    dims = paired([dim for dim in probe.example if probe.span(dim)])
    fixed |= {dim: OWN for dim in probe.example if dim not in dims}
    while dims:
        exporter(tuple(torch.from_numpy(array) for array in inputs.values()), path, list(inputs),
                 dynamic_shapes=dynamic_shapes(module, inputs, dims), dynamic_axes=dynamic_axes(inputs, dims))
        named = rename(path, inputs, dims)
        probe.session = session_of(path)
        bounds = open_dims(probe, [dim for dim in dims if dim in named])
        probe.session = None
        fixed |= {dim: WRITTEN for dim in dims if dim not in named}
        fixed |= {dim: WRONG for dim in dims if dim in named and dim not in bounds}
        if {*bounds} == {*named}:
            return bounds
        dims = [dim for dim in dims if dim in bounds]
    raise RuntimeError("no dimension is open: " + "; ".join(f"{dim}: {why}" for dim, why in fixed.items()))


def export(exporter, module, inputs, folder, random):
    """exporter(arguments, path, input names, dynamic_shapes=, dynamic_axes=) is one of the exporters, and raises what they do.
    Writes model.onnx, `dims`, as --dim takes them, and `fixed`, a line for each dimension that is not open. Returns the former."""
    probe, fixed = Probe(module, inputs, random), {}
    try:
        bounds = export_open(exporter, probe, str(folder / "model.onnx"), fixed)
    finally:
        (folder / "fixed").write_text("".join(f"{dim}: {why}\n" for dim, why in fixed.items()))
    dims = [f"{dim}={span}" for dim, span in bounds.items()]
    (folder / "dims").write_text("\n".join(dims) + "\n")
    return " ".join(dims)


def counts_of(folders):
    """What became of the exports, in words -> how many."""
    counts = collections.Counter()
    for folder in folders:
        fixed = (folder / "fixed").read_text().splitlines() if (folder / "fixed").exists() else []
        if (folder / "model.onnx").exists():
            counts.update(["exported", *(f"exported, but {line}" for line in fixed)])
        else:
            counts["refused by the exporter" if not fixed else "not exported: no dimension open"] += 1
    return counts


def print_counts(folders):
    for words, count in sorted(counts_of(folders).items()):
        print(f"{count} {words}")
