#!/usr/bin/python3
"""Elementwise operators that read the same tensor and become one kernel (passes/rewrite/fuse_siblings.c), against NumPy in f64.

    siblings.py --rankc RANKC [--target c|cuda] [DTYPE...]

Rows of 8 elements are read as vectors on GPUs, of 7 one by one; one rank and three."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training"))
from elements import narrow, wide # noqa: E402
from harness import Failed, call, parser_of, plan_of, report # noqa: E402

# The results of one kernel, after the tensor x = a * b; r is a column, c is a row.
GRAPH = """rankc-ir 1
graph "siblings" level=TYPED
input %0 "a" {dtype}[3,5,{columns}]
input %1 "b" {dtype}[3,5,{columns}]
input %2 "r" {dtype}[5,1]
input %3 "c" {dtype}[{columns}]
%4 "x" {dtype}[3,5,{columns}] = Mul(%0, %1)
%5 "t" {dtype}[3,5,{columns}] = Tanh(%4)
%6 "y" {dtype}[3,5,{columns}] = Add(%5, %2)
%7 "e" {dtype}[3,5,{columns}] = Exp(%4)
%8 "z" {dtype}[3,5,{columns}] = Mul(%7, %3)
%9 "d" {dtype}[3,5,{columns}] = Sub(%4, %2)
%10 "w" {dtype}[3,5,{columns}] = Mul(%9, %9)
%11 "yt" {dtype}[3,{columns},5] = Transpose(%6) perm=[0,2,1]
%12 "zt" {dtype}[3,{columns},5] = Transpose(%8) perm=[0,2,1]
%13 "wt" {dtype}[3,{columns},5] = Transpose(%10) perm=[0,2,1]
output %11 "yt"
output %12 "zt"
output %13 "wt"
"""
BOUNDS = {"f32": 1e-6, "f64": 1e-14, "bf16": 3e-2, "fp16": 3e-3} # of the largest element; every step rounds
PLANS = ["one", "data3"]


def expected(a, b, r, c):
    x = a * b
    return {name: value.transpose(0, 2, 1) for name, value in (("yt", np.tanh(x) + r), ("zt", np.exp(x) * c), ("wt", (x - r) ** 2))}


def compile_siblings(args, path, plan):
    words = [args.rankc, "compile", f"{path}.rir", "-o", f"{path}.out", "-q", "--reuse", "override", "--target", args.target, *plan]
    made = [line for line in call(*words, "--dump-after", "fuse_siblings", "--no-build").stdout.splitlines() if " = Fused(" in line]
    if len(made) != 1 or made[0].split(" = ")[0].count("%") != 3:
        raise Failed(f"not one kernel of three results: {made}")
    call(*words, timeout=600)


def check(args, work, dtype):
    worst = 0
    for columns in (7, 8):
        rng = np.random.default_rng(columns)
        shapes = {"a": (3, 5, columns), "b": (3, 5, columns), "r": (5, 1), "c": (columns,)}
        given = {name: narrow(rng.standard_normal(shape), dtype) for name, shape in shapes.items()}
        for name, value in given.items():
            np.save(f"{work}/{name}.npy", value)
        with open(f"{work}/siblings.rir", "w") as out:
            out.write(GRAPH.format(dtype=dtype, columns=columns))
        for plan in PLANS:
            compile_siblings(args, f"{work}/siblings", plan_of(plan).options)
            call(args.rankc, "run", f"{work}/siblings.out", *(f"--input={name}={work}/{name}.npy" for name in given), "--comm", "loopback",
                 "--output-dir", f"{work}/results")
            for name, value in expected(*map(wide, given.values())).items():
                apart = np.abs(wide(np.load(f"{work}/results/{name}.npy")) - value).max() / np.abs(value).max()
                worst = max(worst, apart)
                if not apart <= BOUNDS[dtype]:
                    raise Failed(f"rows of {columns}, {plan}: {name} differs by {apart:.1e} of the largest element")
    return f"at most {worst:.1e} of the largest element"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--target", choices=("c", "cuda"), default="c")
    parser.add_argument("dtypes", nargs="*", default=list(BOUNDS), metavar="DTYPE")
    args = parser.parse_args()
    return report((dtype, lambda work, dtype=dtype: check(args, work, dtype)) for dtype in args.dtypes)


if __name__ == "__main__":
    sys.exit(main())
