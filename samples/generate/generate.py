"""Writes tokens with a compiled writer.onnx, with any number of ranks, each a thread: generate.py DIR COUNT ID...

DIR is the output directory of `rankc compile --state auto --dim batch=1`; `make -C DIR build/model.so` builds the library. Prints the
COUNT tokens that follow the prompt's."""
import ctypes
import json
import sys

import numpy as np

directory, count, *prompt = sys.argv[1], *map(int, sys.argv[2:])
with open(f"{directory}/manifest.json") as file:
    manifest = json.load(file)
vocabulary, rows = manifest["outputs"][0]["shape"][-1], manifest["sizes"][0]["most"]
model = ctypes.CDLL(f"{directory}/build/model.so")
model.rt_error.restype = ctypes.c_char_p


class Tensors(ctypes.Structure):
    """struct writer_tensors, behind its sizes"""
    _fields_ = [("sequence", ctypes.c_int64), ("past", ctypes.c_int64),
                *((name, ctypes.c_void_p) for name in ("input_ids", "attention_mask", "position_ids", "logits"))]


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
def run_rank(rt, _):
    rt, tokens, done = ctypes.c_void_p(rt), prompt.copy(), 0
    while len(tokens) < len(prompt) + count:
        new = np.array(tokens[done:done + rows])  # a long prompt takes several steps
        mask, positions = np.ones(done + len(new), np.int64), np.arange(done, done + len(new))
        logits = np.empty((len(new), vocabulary), np.float32)
        tensors = Tensors(len(new), 0, *(array.ctypes.data for array in (new, mask, positions, logits)))
        if status := model.writer_infer(rt, ctypes.byref(tensors)):
            return status
        done += len(new)
        if done == len(tokens):
            tokens.append(int(logits[-1].argmax()))
            if model.rt_rank(rt) == 0:
                print(tokens[-1])
    return 0


if model.writer_run_threads(directory.encode(), 0, run_rank, None):
    sys.exit(model.rt_error(None).decode())
