"""Runs a program with device_trace.cpp, which tells what it does on its GPUs."""
import glob
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# Where a toolkit, and pip, have CUPTI.
HOMES = ["/usr/local/cuda", "/usr/local/cuda/extras/CUPTI", *(home for path in sys.path for home in glob.glob(f"{path}/nvidia/cu*"))]


class NoTrace(Exception):
    """There is no CUPTI, or it may not look: why."""


def build_trace(work):
    """The library that is loaded into programs."""
    command = ["g++", "-std=c++20", "-O2", "-shared", "-fPIC", "-o", f"{work}/device_trace.so", f"{HERE}/device_trace.cpp"]
    for home in HOMES:
        command += [f"-I{home}/include"]
        command += [f"-{kind}{home}/{name}" for name in ("lib", "lib64") for kind in ("L", "Wl,-rpath,")]
    done = subprocess.run([*command, "-lcupti"], capture_output=True, text=True)
    if done.returncode:
        raise NoTrace(f"no CUPTI: {done.stderr.strip().splitlines()[0]}")
    return f"{work}/device_trace.so"


def traced(library, command, timeout=300):
    """What device_trace.cpp says of a command that must succeed."""
    path = f"{library}.json"
    if os.path.exists(path):
        os.remove(path)
    subprocess.run(command, check=True, timeout=timeout, stdout=subprocess.DEVNULL,
                   env={**os.environ, "CUDA_INJECTION64_PATH": library, "RANKC_TRACE": path})
    if not os.path.exists(path):
        raise NoTrace("CUPTI was not loaded")
    with open(path) as file:
        return json.load(file)
