#!/usr/bin/python3
"""Sizes that each call chooses, on target cuda: kernels against target c with those sizes alone, GPT-2 against what PyTorch gave.

    sizes.py --rankc RANKC --include DIR --library FILE [--libs "-l..."] [CASE...]

One process takes the sizes in turn, twice (sizes.c): a segment is launched, then recorded, then repeated; and the graphs of the sizes that
were used last are kept, so that those of others are recorded anew."""
import os
import re
import sys

from stand_in import COMPILER, HERE, TESTS, call, expect, needed, parser_of, plan_of, report
from rankc_test import outputs_of # noqa: E402

with needed():
    import numpy as np

TURNS = 3  # of each size, one after the other

# Vectors of a fixed dimension, of a step, of neither, and of a sum of sizes whose specimen can be divided by 2; an index that is divided
# by a product of sizes; rows that a warp holds and rows that are read again; sums of columns in chunks; numbers that are read at run time.
KERNELS = """rankc-ir 1
graph "kernels" level=TYPED
size "b" 0..4
size "t" 1..8000@40
size "w" 8..64:8
extent "t" + 1
input %0 "x" f32["b","t",24]
input %1 "m" f32["b",1,"t"]
input %2 "v" f32["w"]
input %3 "u" f32["t","w"]
input %4 "one" f32["b",1,24]
input %5 "g" f32[24]
input %6 "image" f32["b",2,"t","w"]
input %7 "channel" f32[2,1,1]
%8 "a" = Mul(%0, %5)
%9 "n" = LayerNorm(%8, %5, %5) epsilon=1e-5
%10 "s" = Transpose(%9) perm=[0, 2, 1]
%11 "masked" = Add(%10, %1)
%12 "softmax" = Softmax(%11) axis=2
%13 "shifted" = Add(%3, %2)
%14 "cat" = Concat(%0, %4) axis=1
%15 "turned" = Transpose(%14) perm=[0, 2, 1]
%16 "tanh" = Tanh(%15)
%17 "columns" = ReduceSum(%13) axes=[0] keepdims=0
%18 "product" = Mul(%0, %9)
%19 "sums" = ReduceSum(%18) axes=[0, 1] keepdims=0
%20 "along" = Softmax(%13) axis=1
%21 "scaled" = Mul(%6, %7)
%22 "numbers" = Sizes() values=["b", "t" + 1, 3 * "w"]
output %12 "y0"
output %13 "y1"
output %16 "y2"
output %17 "y3"
output %19 "y4"
output %20 "y5"
output %21 "y6"
output %22 "y7"
"""
KERNEL_SIZES = [{"b": 2, "t": 7, "w": 16}, {"b": 1, "t": 1, "w": 8}, {"b": 3, "t": 299, "w": 64}, {"b": 0, "t": 3, "w": 8}, {"b": 1, "t": 700, "w": 24}]
GPT2_SIZES = [{"batch": 2, "seq": 11}, {"batch": 1, "seq": 1}, {"batch": 2, "seq": 4}, {"batch": 1, "seq": 11}, {"batch": 2, "seq": 9},
              {"batch": 2, "seq": 3}, {"batch": 1, "seq": 6}, {"batch": 2, "seq": 10}]
# plan; the ranges of batch and sequence
GPT2 = {"gpt2": ("one", "1..2"), "gpt2 by two": ("tp2", "1..2"), "gpt2 in stages": ("pp2", "1..2"), "gpt2 of parts": ("data2", "2..4:2"),
        "gpt2 by positions": ("context2", "1..2", "2..10:2"),
        "gpt2 in a ring": ("context:context=2,attention=ring --attention flash", "1..2", "2..10:2")}


def build(args, work, model, *options):
    """A program that takes steps from its input."""
    out = os.path.join(work, "open")
    call(args.rankc, "compile", model, "-o", out, "-q", "--no-build", "--target", "cuda", *options)
    program, libraries = os.path.join(out, "model", "_"), [os.path.abspath(args.library), *args.libs.split()]
    call("make", "-s", "-C", program, "build/model.a", f"RANKC_CFLAGS=-I{args.include}", timeout=600)
    call(*COMPILER, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I", program, "-I", args.include, "-o",
         f"{work}/sizes", os.path.join(HERE, "sizes.c"), f"{program}/build/model.a", *libraries, "-lstdc++", "-lgomp", "-ldl")
    return program


def take_steps(work, program, ranks, steps):
    """The outputs of steps of (sizes, inputs, outputs that are like those that are expected)."""
    numbers = lambda values: np.array(values, np.int64).tobytes()
    given = b"".join(numbers([*sizes, *(a.nbytes for a in (*inputs, *like))]) + b"".join(a.tobytes() for a in inputs)
                     for sizes, inputs, like in steps)
    with open(f"{work}/steps", "wb") as file:
        file.write(numbers([len(steps)]) + given)
    call("sh", "-c", f"{work}/sizes {program} {ranks} <{work}/steps >{work}/results")
    with open(f"{work}/results", "rb") as results:
        return [[np.frombuffer(results.read(a.nbytes), a.dtype).reshape(a.shape) for a in like] for _, _, like in steps]


def in_turn(sizes):
    return [s for s in sizes for _ in range(TURNS)] * 2


def worst_of(got, want, what):
    """The largest error as a share of rtol 1e-4, atol 1e-5."""
    worst = 0
    for i, (mine, value) in enumerate(zip(got, want)):
        error = np.abs(mine.astype(np.float64) - value) / (1e-5 + 1e-4 * np.abs(value.astype(np.float64)))
        expect(error.max(initial=0) <= 1, f"{what}: output {i} is {error.max(initial=0):.3g} of what it may be from the expected one")
        worst = max(worst, error.max(initial=0))
    return worst


# ---- kernels ----

def fixed(sizes):
    """The graph with numbers in place of sizes."""
    text = re.sub(r'^(size|extent) .*\n', "", KERNELS, flags=re.M)
    product = lambda found: str(eval(re.sub(r'"(\w)"', lambda name: str(sizes[name[1]]), found[0])))  # pylint: disable=eval-used
    return re.sub(r'(\d \* )?"[btw]"( \+ 1)?', product, text)


def inputs_of(text, seed):
    """Random arrays of the graph's inputs, by name."""
    random = np.random.default_rng(seed)
    shapes = re.findall(r'^input %\d+ "(\w+)" f32\[(.*)\]', text, re.M)
    return {name: random.standard_normal([int(d) for d in dims.split(",")], np.float32) for name, dims in shapes}


def expected(args, work, sizes, number):
    """Inputs and outputs of target c with these sizes alone."""
    folder = os.path.join(work, str(number))
    os.makedirs(folder)
    with open(f"{folder}/model.rir", "w") as file:
        file.write(fixed(sizes))
    inputs = inputs_of(fixed(sizes), number)
    for name, array in inputs.items():
        np.save(f"{folder}/{name}.npy", array)
    call(args.rankc, "compile", f"{folder}/model.rir", "-o", f"{folder}/c", "-q", env={"CFLAGS": "-O0"})
    call(args.rankc, "run", f"{folder}/c", "-q", "--output-dir", f"{folder}/out", *(w for n in inputs for w in ("--input", f"{n}={folder}/{n}.npy")))
    return list(inputs.values()), list(outputs_of(f"{folder}/out").values())


def check_kernels(args, work):
    with open(f"{work}/model.rir", "w") as file:
        file.write(KERNELS)
    program = build(args, work, f"{work}/model.rir")
    known = [expected(args, work, sizes, i) for i, sizes in enumerate(KERNEL_SIZES)]
    order = in_turn(range(len(KERNEL_SIZES)))
    got = take_steps(work, program, 1, [(KERNEL_SIZES[i].values(), *known[i]) for i in order])
    return f"{max(worst_of(mine, known[i][1], KERNEL_SIZES[i]) for mine, i in zip(got, order)):.1g} of the bound"


# ---- GPT-2 ----

def check_gpt2(args, work, plan, batch, seq="1..11"):
    """What a prefix gives is a prefix of what PyTorch gave: no position sees later ones."""
    model = os.path.join(TESTS, "models", "gpt2")
    ids = np.load(f"{model}/inputs/input_ids.npy")
    names = sorted(os.listdir(f"{model}/outputs"))
    want = [np.load(f"{model}/outputs/{name}") for name in names]
    program = build(args, work, f"{model}/model.onnx", "--dim", f"batch={batch}", "--dim", f"seq={seq}", *plan_of(plan).options)
    cut = lambda array, s: np.ascontiguousarray(array[:s["batch"], :s["seq"]])
    order = in_turn([s for s in GPT2_SIZES if s["batch"] >= int(batch[0]) and s["seq"] % int(seq[0]) == 0])
    steps = [(s.values(), [cut(ids, s)], [cut(array, s) for array in want]) for s in order]
    got = take_steps(work, program, plan_of(plan).world, steps)
    return f"{max(worst_of(mine, like, s) for mine, (_, _, like), s in zip(got, steps, order)):.1g} of the bound"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--include", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--libs", default="-lm -lpthread")
    parser.add_argument("cases", nargs="*", default=["kernels", *GPT2])
    args = parser.parse_args()
    checks = {"kernels": lambda work: check_kernels(args, work),
              **{case: lambda work, how=how: check_gpt2(args, work, *how) for case, how in GPT2.items()}}
    return report((case, checks[case]) for case in args.cases)


if __name__ == "__main__":
    sys.exit(main())
