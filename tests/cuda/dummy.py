#!/usr/bin/python3
"""A dummy batch of one unit counts for nothing, on both targets (dummy.c): what a rank sends then is decided where the controls of the
step are, in the GPU's memory.

    dummy.py --rankc RANKC --include DIR --library FILE [--libs "-l..."]"""
import os
import sys

from stand_in import COMPILER, HERE, TESTS, call, parser_of, report

MODEL = os.path.join(TESTS, "training", "mlp", "model.onnx")


def check(args, work, target, options):
    out = os.path.join(work, target)
    call(args.rankc, "compile", MODEL, "-o", out, "-q", "--no-build", "--train", "--optimizer", "sgd:lr=0.1", "--runtime-ngpus", "2",
         "--target", target, *options)
    program, libraries = os.path.join(out, "model", "_"), [os.path.abspath(args.library), *args.libs.split()]
    call("make", "-s", "-C", program, "build/model.a", f"RANKC_CFLAGS=-I{args.include}", timeout=600)
    call(*COMPILER, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I", program, "-I", args.include, "-o",
         f"{work}/dummy", os.path.join(HERE, "dummy.c"), f"{program}/build/model.a", *libraries, "-lstdc++", "-lgomp", "-ldl")
    return call(f"{work}/dummy", program).stdout.strip()


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--include", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--libs", default="-lm -lpthread")
    args = parser.parse_args()
    cases = [("c", []), ("cuda", []), ("cuda", ["--use-async-reducer", "1"])]
    return report((" ".join([target, *options]), lambda work, case=(target, options): check(args, work, *case)) for target, options in cases)


if __name__ == "__main__":
    sys.exit(main())
