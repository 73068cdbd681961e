#!/usr/bin/env python3
"""Times ONNX Runtime: peer_ort.py MODEL.onnx INPUT.npy THREADS REPEAT WARMUP [OUTPUT.npy].

The model's one input is read from INPUT.npy. Prints what `rankc run --json` prints, so that both are read alike;
"idle_rss" is the memory in use before the model was loaded (Python and its modules), "first_ms" the time of creating the
session and of the first run, without the start of Python."""
import json
import sys
import time

import numpy as np
import onnxruntime


def peak_rss():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024


def main(model, given, threads, repeat, warmup, output=None):
    x = np.load(given)
    idle = peak_rss()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = int(threads), 1
    begin = time.perf_counter()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    load = time.perf_counter() - begin
    feed = {session.get_inputs()[0].name: x}
    steps = []
    for _ in range(int(warmup) + int(repeat)):
        begin = time.perf_counter()
        result = session.run(None, feed)
        steps.append((time.perf_counter() - begin) * 1e3)
    first = load * 1e3 + steps[0]
    steps = steps[int(warmup):]
    if output:
        np.save(output, result[0])
    print(json.dumps({
        "version": onnxruntime.__version__,
        "step_ms": {"min": min(steps), "median": float(np.median(steps)), "max": max(steps)},
        "load_ms": load * 1e3, "first_ms": first, "peak_rss": [peak_rss()], "idle_rss": idle}))


if __name__ == "__main__":
    main(*sys.argv[1:])
