#!/usr/bin/python3
"""Compiles generated CUDA with nvcc, every warning an error, where there need not be a GPU.

    nvcc.py --rankc RANKC --models DIR --training DIR [CASE...]

Every case is a model under a policy: its ranks' sources compile; the first case's program links, in at most 30 s of nvcc's time
for GPT-2, and without a GPU says so in one line, with exit code 6. Case "depth" is a small transformer of 2, 12 and 24 layers: the
compilers take as long for all. Case "sweep" is every model and training case of the tests under the policies of PLANS, and
the table of docs/cuda.md; it takes an hour and more. Exit status 77 where there is no nvcc."""
import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile

GPT2 = ["gpt2", "--dim", "batch=2", "--dim", "seq=11"]
CASES = {
    "gpt2 dp": GPT2,
    "gpt2 tp": [*GPT2, "--pas", "tp:tensor=2"],
    "gpt2 data": [*GPT2, "--pas", "data:data=2"],
    "gpt2 hybrid": [*GPT2, "--pas", "hybrid:tensor=2,data=2,pipeline=2"],
    "train gpt2 hybrid": ["training/gpt2", "--train", "--pas", "hybrid:tensor=2,data=2", "--clip-grad-norm", "1"],
    "train gpt2 bf16": ["training/gpt2", "--train", "--pas", "tp:tensor=2", "--amp", "bf16"],
    "train gpt2 flash": ["training/gpt2", "--train", "--amp", "fp16", "--attention", "flash"],
    "train cnn": ["training/cnn_bn", "--train"],
}
MOST_SECONDS = 30
DEPTHS = [2, 12, 24]
PLANS = ["dp", "tp:tensor=2", "tp:tensor=3", "data:data=2", "hybrid:tensor=2,data=2,pipeline=2"]
FLAGS = ("-O3 -Werror all-warnings "
         "-Xcompiler -Wall,-Wextra,-Wno-missing-field-initializers,-Wno-unused-function,-Werror")


class Wrong(Exception):
    pass


def call(command, expected=0):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != expected:
        raise Wrong(f"exit {done.returncode}: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stderr


def generate(args, model, out, *options, status=0):
    """The program's directory; None where rankc says that it will not, and `status` permits that."""
    command = [args.rankc, "compile", model, "-o", out, "-q", "--no-build", "--target", "cuda", "--arch", args.arch, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode and done.returncode == status:
        return None
    if done.returncode:
        raise Wrong(f"exit {done.returncode}: {' '.join(command)}\n{done.stderr}")
    return os.path.join(out, os.path.splitext(os.path.basename(model))[0], "_")


def generate_case(args, case, out):
    folder, *options = CASES[case]
    folder = os.path.join(args.training if folder.startswith("training/") else args.models, os.path.basename(folder))
    return generate(args, os.path.join(folder, "model.onnx"), out, *options)


def make(args, directory, *goals):
    """Seconds that the compilers took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call(["make", "-s", "-C", directory, *goals, f"NVCCFLAGS={FLAGS}", f"RANKC_CFLAGS=-I{args.include}",
          f"RANKC_LIBS={os.path.abspath(args.library)} {args.libs}"])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def check_program(args, directory, seconds):
    run = [os.path.join(directory, "build", "run"), "--input", f"input_ids={args.models}/gpt2/inputs/input_ids.npy"]
    if seconds > MOST_SECONDS:
        raise Wrong(f"the compilers took {seconds:.1f} s")
    if os.path.exists("/dev/nvidia0"):
        return
    said = call(run, expected=6)
    if not re.fullmatch(r"rankc: error\[E0906\]: this program needs a GPU, and there is none: .*\n", said):
        raise Wrong(f"without a GPU the program says: {said}")


def sources(directory):
    return [f"build/{f[:-3]}.o" for f in sorted(os.listdir(directory)) if re.fullmatch(r"rank_\d+\.cu", f)]


def check(args, case, first, work):
    directory = generate_case(args, case, work)
    seconds = make(args, directory, *(["all"] if first else sources(directory)))
    if first:
        check_program(args, directory, seconds)
    return seconds


# ---- depth ----

class Text:
    """A graph in text IR, line by line."""

    def __init__(self, name):
        self.lines = ["rankc-ir 1", f'graph "{name}" level=TYPED', f'file "{name}.bin"']
        self.body, self.values, self.offset = [], 0, 0

    def new(self):
        self.values += 1
        return f"%{self.values - 1}"

    def weight(self, *dims):
        value, count = self.new(), 1
        for d in dims:
            count *= d
        self.lines.append(f'weight {value} "w{value[1:]}" f32[{",".join(map(str, dims))}] @1+{self.offset} as f32')
        self.offset += 4 * count
        return value

    def call(self, text):
        value = self.new()
        self.body.append(f'{value} "v{value[1:]}" = {text} node="n{value[1:]}"')
        return value


def write_transformer(path, layers, rows=8, width=16):
    """One head of attention and a feed-forward part in every layer."""
    text = Text("deep")
    x = text.new()
    text.lines.append(f'input {x} "x" f32[{rows},{width}]')
    for _ in range(layers):
        normed = text.call(f"LayerNorm({x}, {text.weight(width)}, {text.weight(width)}) epsilon=1e-5")
        q, k, v = (text.call(f"MatMul({normed}, {text.weight(width, width)})") for _ in range(3))
        scores = text.call(f"MatMul({q}, {text.call(f'Transpose({k}) perm=[1, 0]')})")
        mixed = text.call(f"MatMul({text.call(f'Softmax({scores}) axis=1')}, {v})")
        x = text.call(f"Add({x}, {text.call(f'MatMul({mixed}, {text.weight(width, width)})')})")
        normed = text.call(f"LayerNorm({x}, {text.weight(width)}, {text.weight(width)}) epsilon=1e-5")
        wide = text.call(f"Gelu({text.call(f'MatMul({normed}, {text.weight(width, 4 * width)})')})")
        x = text.call(f"Add({x}, {text.call(f'MatMul({wide}, {text.weight(4 * width, width)})')})")
    with open(os.path.join(path, "deep.bin"), "wb") as file:
        file.write(bytes(text.offset))
    with open(os.path.join(path, "deep.rir"), "w") as file:
        file.write("\n".join([*text.lines, *text.body, f'output {x} "y"']) + "\n")


def check_depth(args, work):
    seconds = {}
    for layers in DEPTHS:
        write_transformer(work, layers)
        directory = generate(args, os.path.join(work, "deep.rir"), os.path.join(work, str(layers)), "--pas", "tp:tensor=2")
        seconds[layers] = make(args, directory, *sources(directory))
        print(f"depth {layers}: {seconds[layers]:.1f} s", flush=True)
    if max(seconds.values()) > 1.25 * seconds[DEPTHS[0]] + 1:
        raise Wrong(f"the compilers' time grows with the layers: {seconds}")


# ---- sweep ----

def models_of(args):
    """(name, model, options)"""
    for folder, name, more in (args.models, "", []), (args.training, "train ", ["--train"]):
        for entry in sorted(os.listdir(folder)):
            model = os.path.join(folder, entry, "model.onnx")
            dims = os.path.join(folder, entry, "dims")
            if os.path.exists(model):
                bound = open(dims).read().split() if os.path.exists(dims) else []
                yield name + entry, model, [*more, *(word for dim in bound for word in ("--dim", dim))]


def sweep(args, work):
    """A row per model: the compilers' seconds under every policy; what a policy cannot do is said so by rankc."""
    print("| model | " + " | ".join(PLANS) + " |\n|---|" + "---|" * len(PLANS), flush=True)
    failed = 0
    for number, (name, model, options) in enumerate(models_of(args)):
        row = []
        for plan in PLANS:
            out = os.path.join(work, f"{number}-{len(row)}")
            try:
                directory = generate(args, model, out, *options, "--pas", plan, status=5)
                row.append(f"{make(args, directory, *sources(directory)):.1f}" if directory else "cannot be split")
            except Wrong as wrong:
                failed += 1
                row.append("FAILED")
                print(wrong, file=sys.stderr)
            shutil.rmtree(out, ignore_errors=True)
        print(f"| {name} | " + " | ".join(row) + " |", flush=True)
    if failed:
        raise Wrong(f"{failed} of them do not compile")


WHOLE = {"depth": check_depth, "sweep": sweep}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--models", required=True)
    parser.add_argument("--training", required=True)
    parser.add_argument("--include", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--libs", default="-lm -lpthread")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("cases", nargs="*", default=[*CASES, "depth"])
    args = parser.parse_args()
    if not shutil.which("nvcc"):
        print("skipped: there is no nvcc")
        return 77
    failed = 0
    for case in args.cases:
        with tempfile.TemporaryDirectory(prefix="rankc-nvcc-") as work:
            try:
                if case in WHOLE:
                    WHOLE[case](args, work)
                else:
                    print(f"{case}: {check(args, case, case == args.cases[0], work):.1f} s", flush=True)
            except Wrong as wrong:
                failed += 1
                print(f"{case}: FAILED: {wrong}", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
