"""Runs a compiled samples/models/gpt2.onnx, with any number of ranks, each a thread: embed.py DIR TOKENS.npy

`make -C DIR build/model.so` builds the library; DIR/model.h says what it has, and
DIR/manifest.json the names, types and shapes of inputs and outputs."""
import ctypes
import json
import sys

import numpy as np

directory, tokens = sys.argv[1], np.load(sys.argv[2])
with open(f"{directory}/manifest.json") as manifest:
    logits = np.empty(json.load(manifest)["outputs"][0]["shape"], np.float32)
model = ctypes.CDLL(f"{directory}/build/model.so")
model.rt_error.restype = ctypes.c_char_p


class Tensors(ctypes.Structure):
    """struct gpt2_tensors"""
    _fields_ = [("input_ids", ctypes.c_void_p), ("logits", ctypes.c_void_p)]


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
def run_rank(rt, _):
    rt = ctypes.c_void_p(rt)
    tensors = Tensors(tokens.ctypes.data, None if model.rt_rank(rt) else logits.ctypes.data)
    return model.gpt2_infer(rt, ctypes.byref(tensors))


if model.gpt2_run_threads(directory.encode(), 0, run_rank, None):
    sys.exit(model.rt_error(None).decode())
print(*(f"{x:g}" for x in logits.flat[:3]), "...")
