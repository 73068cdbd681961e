#!/usr/bin/env python3
"""Times another runtime: peer.py RUNTIME MODEL.onnx THREADS OUTPUT.npy INPUT=FILE.npy...

Reads numbers of steps from stdin and answers each with a line like that of `rankc run --json`. "idle_rss" is the memory in use
before the model was loaded (Python and its modules), "first_ms" the time of loading the model and of the first run, without the
start of Python. The first output of that run is written to OUTPUT.npy. RUNTIME torch and compiled take a network of networks.py, by
the name of MODEL."""
import json
import os
import sys
import time

import numpy as np


def onnxruntime(model, threads):
    import onnxruntime as ort

    def load():
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return lambda given: session.run(None, given)[0]
    return load


def openvino(model, threads):
    import openvino as ov
    asked = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}

    def load():
        request = ov.Core().compile_model(model, "CPU", asked).create_infer_request()
        return lambda given: request.infer(given)[0]
    return load


def torch(model, threads, compiled=False):
    import torch as pytorch
    from networks import first, made
    pytorch.set_num_threads(threads)

    def load():
        net, _ = made(os.path.basename(model)[:-len(".onnx")])
        net = pytorch.compile(net) if compiled else net

        def step(given):
            with pytorch.no_grad():
                return first(net(*(pytorch.from_numpy(value) for value in given.values()))).numpy()
        return step
    return load


RUNTIMES = {"onnxruntime": onnxruntime, "openvino": openvino, "torch": torch,
            "compiled": lambda model, threads: torch(model, threads, True)}


def peak_rss():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024


def main(runtime, model, threads, output, *inputs):
    given = {name: np.load(file) for name, file in (word.split("=", 1) for word in inputs)}
    load = RUNTIMES[runtime](model, int(threads))
    idle, begin = peak_rss(), time.perf_counter()
    step = load()
    loaded = time.perf_counter()
    np.save(output, step(given))
    known = {"load_ms": (loaded - begin) * 1e3, "first_ms": (time.perf_counter() - begin) * 1e3, "idle_rss": idle}
    for line in sys.stdin:
        steps = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            step(given)
            steps.append((time.perf_counter() - begin) * 1e3)
        times = {"min": min(steps), "median": float(np.median(steps)), "max": max(steps)}
        print(json.dumps({"step_ms": times, "peak_rss": [peak_rss()], **known}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
