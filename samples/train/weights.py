#!/usr/bin/env python3
"""Joins the parameter shards of a checkpoint, under any plan, into one safetensors file or into the model.

    weights.py CHECKPOINT OUT.safetensors
    weights.py CHECKPOINT MODEL.onnx OUT.onnx

CHECKPOINT is a directory step-K that `rankc train --checkpoint-dir` wrote. The second form needs the onnx package."""
import json
import math
import struct
import sys
from pathlib import Path


def read(path):
    """(metadata, tensors, bytes of the tensors) of a safetensors file."""
    content = path.read_bytes()
    length, = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    return header.pop("__metadata__", {}), header, content[8 + length:]


def indices(extent, cut):
    """The index ranges of a shard in a dimension: its share of each block, in whole units, larger shares first."""
    block, unit = extent // cut["blocks"], cut["unit"]
    share, larger = divmod(block // unit, cut["parts"])
    first, end = (i * share + min(i, larger) for i in (cut["part"], cut["part"] + 1))
    return [b * block + i for b in range(cut["blocks"]) for i in range(first * unit, end * unit)]


def place(whole, part, shape, chosen, size):
    """Copies a shard into the complete tensor, row by row of the last dimension."""
    rows, last = [0], chosen[-1] if chosen else [0]
    for extent, keep in zip(shape[:-1], chosen[:-1]):
        rows = [row * extent + index for row in rows for index in keep]
    at = 0
    for row in rows:
        for index in last:
            to = (row * (shape[-1] if shape else 1) + index) * size
            whole[to:to + size] = part[at:at + size]
            at += size


def merge(checkpoint):
    """{name: (dtype, shape, bytes)} of all parameters."""
    tensors = {}
    for file in sorted(Path(checkpoint).glob("parameters-*.safetensors")):
        metadata, header, content = read(file)
        for name, text in metadata.items():
            described, entry = json.loads(text), header[name]
            if "copy_of" in described:  # cut in another way
                continue
            begin, end = entry["data_offsets"]
            shape, part = described["shape"], content[begin:end]
            size = len(part) // max(1, math.prod(entry["shape"]))
            _, _, whole = tensors.setdefault(name, (entry["dtype"], shape, bytearray(math.prod(shape) * size)))
            chosen = [range(extent) for extent in shape]
            for cut in described["slices"]:
                chosen[cut["dim"]] = indices(shape[cut["dim"]], cut)
            place(whole, part, shape, chosen, size)
    return tensors


def write_safetensors(tensors, path):
    header, at = {}, 0
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(content)]}
        at += len(content)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(content for _, _, content in tensors.values()))


def transposed_copies(initializers, trained):
    """{name: name of the parameter} of transposed copies that the exporter made; rankc trains a weight and its copy as one."""
    from onnx import numpy_helper

    matrices = {i.name: numpy_helper.to_array(i) for i in initializers if len(i.dims) == 2}
    return {copy: name for copy, values in matrices.items() if copy not in trained for name in set(matrices) & set(trained)
            if values.size > 1 and values.shape == matrices[name].shape[::-1] and (values != values[0, 0]).any() and
            (values == matrices[name].T).all()}


def transpose(content, rows, columns):
    size = len(content) // max(1, rows * columns)
    return b"".join(content[(r * columns + c) * size:(r * columns + c + 1) * size] for c in range(columns) for r in range(rows))


def write_onnx(tensors, model, path):
    import onnx

    loaded = onnx.load(model)
    for copy, name in transposed_copies(loaded.graph.initializer, tensors).items():
        dtype, shape, content = tensors[name]
        tensors[copy] = dtype, shape[::-1], transpose(content, *shape)
    for initializer in loaded.graph.initializer:
        if initializer.name not in tensors:
            continue
        dims, name, dtype = list(initializer.dims), initializer.name, initializer.data_type
        initializer.Clear()
        initializer.name, initializer.data_type, initializer.raw_data = name, dtype, bytes(tensors[name][2])
        initializer.dims.extend(dims)
    onnx.save(loaded, path)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    tensors = merge(sys.argv[1])
    if len(sys.argv) == 3:
        write_safetensors(tensors, Path(sys.argv[2]))
    else:
        write_onnx(dict(tensors), sys.argv[2], sys.argv[3])
    print(f"{len(tensors)} parameters")


if __name__ == "__main__":
    main()
