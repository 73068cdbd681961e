"""What checks of target cuda where there need not be a GPU share, beside tests/training/harness.py."""
import functools
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(TESTS, "training"))

from harness import COMPILER, Failed, call, dims_of, expect, given, json_of, needed, parser_of, plan_of, rankc_of, read_json, report, skip # noqa: E402, F401

# Whether programs are made for the CPU.
STAND_IN = os.environ.get("NVCC", "").endswith("host/nvcc")
CXX = os.environ.get("CXX", "g++")


def has_cudnn():
    """Whether there is its header; the library need not be there."""
    probe = call(CXX, "-std=c++20", "-E", "-x", "c++", "-I", os.path.join(HERE, "host"), "-", status=None,
                 input="#include <cuda_runtime.h>\n#include <cudnn.h>\n")
    return probe.returncode == 0


def build_library(path, *sources, include=()):
    """Builds a library that stands in for one of NVIDIA's, of files of host/."""
    host, objects = os.path.join(HERE, "host"), []
    for source in sources:
        objects.append(f"{path}.{source}.o")
        subprocess.run([os.path.join(TESTS, "compile_once"), CXX, "-std=c++20", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror",
                        "-Wno-missing-field-initializers", *(f"-I{folder}" for folder in (host, *include)), "-c", "-o", objects[-1],
                        os.path.join(host, source)], check=True)
    subprocess.run([CXX, "-shared", "-o", path, *objects], check=True)


@functools.cache
def cudnn_folder():
    """The library that stands in for cuDNN, built once in a folder that lasts as long as the script."""
    folder = tempfile.TemporaryDirectory(prefix="rankc-test-")
    build_library(os.path.join(folder.name, "libcudnn.so.9"), "cudnn.cpp", "cudnn_graph.cpp")
    return folder


def build_cudnn():
    """The environment in which programs are compiled and run with the library that stands in for cuDNN."""
    return {"NVCC": os.path.join(HERE, "host", "nvcc"), "NVCCFLAGS": os.environ.get("NVCCFLAGS", "-O0"), "HOST_CUDNN": "1",
            "LD_LIBRARY_PATH": cudnn_folder().name}


def by_type(doc, dtypes, check):
    """main() of a check of kernels: check(rankc, work, dtype) prints what it measures and returns what is wrong, a line each."""
    parser = parser_of(__doc__)
    parser.add_argument("dtypes", nargs="*", default=list(dtypes))
    args = parser.parse_args()
    rankc = args.rankc

    def checked(work, dtype):
        failures = check(rankc, work, dtype)
        if failures:
            raise Failed("\n".join(failures))
        return "ok"

    return report((dtype, lambda work, dtype=dtype: checked(work, dtype)) for dtype in args.dtypes)
