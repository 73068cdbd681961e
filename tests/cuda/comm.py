#!/usr/bin/python3
"""The conformance suite of transports over the loopback of target cuda, on the stand-in for a GPU (comm_device.c).

    comm.py --include DIR --library FILE [--libs "-l..."]"""
import os
import sys

from stand_in import COMPILER, HERE, TESTS, call, parser_of, report

ROOT = os.path.dirname(TESTS)
SOURCES = [f"{TESTS}/runtime/{name}.c" for name in ("test_comm", "ranks", "ranks_mpi")] + [f"{HERE}/comm_device.c"]


def check(args, work):
    with open(f"{work}/device.cu", "w") as source: # compiled as in generated programs, so that it is shared with them
        source.write("#include <rankc/cuda/device.cu>\n")
    call(f"{HERE}/host/nvcc", "-Xcompiler", "-fstack-protector-strong", "-std=c++20", "-I", args.include, "-c", "-o", "device.o", "device.cu",
         cwd=work, timeout=600)
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-I", f"{ROOT}/runtime", "-I", f"{TESTS}/runtime"]
    call(*COMPILER, *flags, "-o", f"{work}/comm", *SOURCES, f"{work}/device.o", os.path.abspath(args.library),
         *args.libs.split(), "-lcmocka", "-lstdc++", "-lgomp", "-ldl", timeout=600)
    call(f"{work}/comm", timeout=600)
    return "ok"


def main():
    parser = parser_of(__doc__, rankc=False)
    parser.add_argument("--include", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--libs", default="-lm -lpthread")
    args = parser.parse_args()
    os.environ["HOST_AT_ONCE"] = "1"
    return report([("loopback", lambda work: check(args, work))])


if __name__ == "__main__":
    sys.exit(main())
