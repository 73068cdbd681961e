#!/usr/bin/python3
"""Convolutions by cuDNN, where it need not be: the runtime's calls go to host/cudnn.cpp, which refuses what cuDNN would refuse.

    cudnn.py --rankc RANKC

A CNN's losses are PyTorch's, and models' outputs (grouped and strided windows, uneven paddings) ONNX Runtime's, as with the kernels
of rankc; and the library was called: forward, and for both gradients. Exit status 77 where there is no cudnn.h."""
import argparse
import collections
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
CXX = os.environ.get("CXX", "g++")
# What runs with the library, and which of its calls are made.
RUNS = {
    "train cnn": (["training/train.py", "--target", "cuda", "--plans", "dp@1", "cnn"], {"forward", "data", "filter"}),
    "mobilenet_v3": (["programs/sweep.py", "--target", "cuda", "--comm", "loopback", "--plans", "one", "models/mobilenet_v3"],
                     {"forward"}),
    "unet": (["programs/sweep.py", "--target", "cuda", "--comm", "loopback", "--plans", "one", "models/unet"], {"forward", "data"}),
}


def run(rankc, name, work):
    (script, *words), wanted = RUNS[name]
    log = os.path.join(work, name.replace(" ", "-"))
    env = {**os.environ, "NVCC": os.path.join(HERE, "host", "nvcc"), "NVCCFLAGS": "-O0", "HOST_CUDNN": "1", "LD_LIBRARY_PATH": work,
           "FAKE_CUDNN_LOG": log}
    words = [os.path.join(TESTS, word) if word.startswith("models/") else word for word in words]
    done = subprocess.run([sys.executable, "-B", os.path.join(TESTS, script), "--rankc", rankc, *words], env=env, capture_output=True,
                          text=True)
    called = collections.Counter(open(log).read().split()) if os.path.exists(log) else {}
    print(f"{name}: exit {done.returncode}, {dict(called)}", flush=True)
    if done.returncode or set(called) != wanted:
        print(f"  wanted calls {sorted(wanted)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("names", nargs="*", default=list(RUNS))
    args = parser.parse_args()
    host = ["-I", os.path.join(HERE, "host")]
    probe = subprocess.run([CXX, "-std=c++20", "-E", "-x", "c++", *host, "-"], capture_output=True, text=True,
                           input="#include <cuda_runtime.h>\n#include <cudnn.h>\n")
    if probe.returncode:
        print("skipped: there is no cudnn.h")
        return 77
    with tempfile.TemporaryDirectory(prefix="rankc-cudnn-") as work:
        subprocess.run([CXX, "-std=c++20", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers",
                        *host, "-o", os.path.join(work, "libcudnn.so.9"), os.path.join(HERE, "host", "cudnn.cpp")], check=True)
        return not all([run(args.rankc, name, work) for name in args.names])


if __name__ == "__main__":
    sys.exit(main())
