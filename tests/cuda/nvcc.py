#!/usr/bin/python3
"""Compiles generated CUDA with nvcc, every warning an error, where there need not be a GPU.

    nvcc.py --rankc RANKC --models DIR --training DIR [CASE...]

Every case is a model under a policy: its ranks' sources compile; the first case's program links, in at most 30 s of nvcc's time
for GPT-2, and without a GPU says so in one line, with exit code 6. The kernels in GPT-2's sources are as many for four layers
as for two. Exit status 77 where there is no nvcc."""
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
    "train cnn": ["training/cnn_bn", "--train"],
}
MOST_SECONDS = 30
FLAGS = ("-O3 -Werror all-warnings "
         "-Xcompiler -Wall,-Wextra,-Wno-missing-field-initializers,-Wno-unused-function,-Werror")


class Wrong(Exception):
    pass


def call(command, expected=0):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != expected:
        raise Wrong(f"exit {done.returncode}: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stderr


def generate(args, case, out):
    folder, *options = CASES[case]
    folder = os.path.join(args.training if folder.startswith("training/") else args.models, os.path.basename(folder))
    call([args.rankc, "compile", os.path.join(folder, "model.onnx"), "-o", out, "-q", "--no-build", "--target", "cuda",
          "--arch", "sm_90a", *options])
    return os.path.join(out, "model", "_")


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


def check(args, case, first, work):
    directory = generate(args, case, work)
    goals = ["all"] if first else [f"build/{f[:-3]}.o" for f in os.listdir(directory) if re.fullmatch(r"rank_\d+\.cu", f)]
    seconds = make(args, directory, *goals)
    if first:
        check_program(args, directory, seconds)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--models", required=True)
    parser.add_argument("--training", required=True)
    parser.add_argument("--include", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--libs", default="-lm -lpthread")
    parser.add_argument("cases", nargs="*", default=list(CASES))
    args = parser.parse_args()
    if not shutil.which("nvcc"):
        print("skipped: there is no nvcc")
        return 77
    failed = 0
    for case in args.cases:
        with tempfile.TemporaryDirectory(prefix="rankc-nvcc-") as work:
            try:
                print(f"{case}: {check(args, case, case == args.cases[0], work):.1f} s", flush=True)
            except Wrong as wrong:
                failed += 1
                print(f"{case}: FAILED: {wrong}", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
