#!/usr/bin/python3
"""cuDNN's own word on the graphs of attention, which needs no GPU: what an H200 and an A100 are like is told to it (its deviceless
compilation, from 9.8 on), and host/libcuda.c stands in for the driver.

    engines.py [--quick]

For heads that are a multiple of 8 there are plans, forward and backward, for the shapes and masks that programs leave to it; they
want no more workspace than the compiler plans. Other heads are refused. --quick: each shape on one of the two. Exit status 77 where there is no cuDNN 9.8."""
import json
import os
import subprocess
import sys
import tempfile

from stand_in import COMPILER, CXX, HERE, call, has_cudnn, skip

ROOT = os.path.dirname(os.path.dirname(HERE))
# As the driver would say: CUDA's table of compute capabilities, and what the boards are sold as.
SM = {"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536, "warpSize": 32,
      "maxSharedMemoryPerBlock": 49152, "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
      "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "cudaDeviceId": 0,
      "driverVer": 13000}
GPUS = {
    "H200": {**SM, "deviceName": "NVIDIA H200", "deviceVer": 900, "multiProcessorCount": 132, "maxSharedMemoryPerBlockOptin": 232448,
             "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "l2CacheSize": 62914560, "totalGlobalMem": 150000000000},
    "A100": {**SM, "deviceName": "NVIDIA A100-SXM4-80GB", "deviceVer": 800, "multiProcessorCount": 108,
             "maxSharedMemoryPerBlockOptin": 166912, "smClockRateKHz": 1410000, "memClockRateKHz": 1593000, "l2CacheSize": 41943040, "totalGlobalMem": 85000000000},
}
# batch, heads, kv, t, s, d, e, causal, diagonal, extents of a bias
TAKEN = [
    (128, 1, 1, 1024, 1024, 64, 64, 1, 0),                  # GPT-2, of which as many heads as a call takes
    (1, 4, 1, 4096, 4096, 128, 128, 1, 0),                  # a Llama's that share one of k and v
    (16, 4, 1, 1, 512, 128, 128, 1, 511),                   # one token behind others
    (3, 1, 1, 1000, 1000, 64, 64, 0, 0),
    (2, 2, 1, 70, 130, 16, 24, 1, 60),
    (1, 1, 1, 1, 1, 128, 128, 0, 0),
    (2, 4, 2, 65, 130, 64, 64, 0, 0, 1, 1, 65, 130),
    (2, 4, 4, 128, 128, 64, 64, 1, 0, 2, 4, 128, 128),
    (2, 4, 4, 128, 100, 64, 64, 0, 0, 2, 1, 1, 100),
]
WAYS = ("forward", "backward", "backward, atomic")
BARE = 9 # numbers of a shape without a bias, with which gradients are not asked for
QUICK = {"H200": TAKEN[::2], "A100": TAKEN[1::2]}
REFUSED = [(2, 2, 1, 64, 64, 12, 12, 0, 0), (2, 2, 2, 64, 64, 64, 20, 0, 0)]


def line(way, shape):
    return " ".join(map(str, [way, *shape, *[0] * (13 - len(shape))]))


def build(work):
    host = os.path.join(HERE, "host")
    subprocess.run([*COMPILER, "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", f"{work}/libcuda.so.1",
                    os.path.join(host, "libcuda.c")], check=True)
    subprocess.run([CXX, "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-I", host, "-I", ROOT,
                    "-include", "cuda_runtime.h", "-o", f"{work}/ask", os.path.join(HERE, "ask_cudnn.cpp"), "-ldl"], check=True)


def check(work, name, shapes):
    """What is wrong, a line each; None: there is no library to ask."""
    with open(f"{work}/gpu.json", "w") as out:
        json.dump(GPUS[name], out)
    asked = [(way, shape) for shape in shapes for way in range(len(WAYS)) if not way or len(shape) == BARE]
    path = ":".join(filter(None, [work, os.environ.get("LD_LIBRARY_PATH")]))
    done = call(f"{work}/ask", f"{work}/gpu.json", status=None, env={"LD_LIBRARY_PATH": path},
                input="".join(line(*row) + "\n" for row in asked), timeout=600)
    if done.returncode == 77:
        print("skipped:", done.stdout.strip())
        return None
    answers = done.stdout.splitlines()
    if done.returncode or len(answers) != 2 * len(asked):
        return [f"{name}: exit {done.returncode}, {len(answers)} answers\n{done.stderr[-1000:]}"]
    failures = []
    for (way, shape), *both in zip(asked, answers[::2], answers[1::2]):
        for dtype, answer in zip(("fp16", "bf16"), both):
            wanted, _, planned = answer.partition(" ")
            print(f"{name} {dtype} {WAYS[way]} {shape}: {answer}")
            if (answer == "refused") != (shape in REFUSED) or (planned and int(wanted) > int(planned)):
                failures.append(f"{name} {dtype} {WAYS[way]} {shape}: {answer}")
    return failures


def main():
    if not has_cudnn():
        skip("there is no cudnn.h")
    with tempfile.TemporaryDirectory(prefix="rankc-engines-") as work:
        build(work)
        quick = QUICK if "--quick" in sys.argv[1:] else {}
        found = [check(work, name, quick.get(name, TAKEN) + REFUSED) for name in GPUS]
    if None in found:
        return 77
    for failure in sum(found, []):
        print("FAILED:", failure)
    return any(found)


if __name__ == "__main__":
    sys.exit(main())
