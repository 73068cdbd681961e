#!/usr/bin/env python3
"""Inference of 16-bit models against f32: GPT-2 124M and a small Llama (models.py) of several lengths, in rounds: each
round runs the programs of all three types once.

    sixteen_bits.py --rankc RANKC [--lengths 64,128,256,512,1024] [--threads 1,2] [--rounds 3] [--limit SECONDS] [--processor]

Prints a table: the smallest step of all rounds, the ratio to that of f32, its smallest and largest value in one round,
and the memory that `show` states. --processor: a step's user time instead, for one thread of a busy machine. No length is begun after --limit seconds. Needs onnx and numpy."""
import argparse
import json
import os
import resource
import subprocess
import tempfile
import time

import models
from sizes import Size

DTYPES = ("f32", "bf16", "fp16")
MODELS = {
    "gpt2": lambda *at, length: models.gpt2(*at, layers=12, vocabulary=50257, length=length),
    "llama": lambda *at, length: models.llama(*at, Size("llama", 8, 1024, 16, 1, length, 8192, kv_heads=4, hidden=2752), 0),
}


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def step(rankc, program, given, threads):
    out = run(rankc, "run", program, "--input", f"x={given}", "--threads", str(threads), "--repeat", "3", "--warmup", "1",
              "--json", "-q")
    return json.loads(out)["step_ms"]["min"]


def user_seconds(*words):
    begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    run(*words)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin


def processor_step(rankc, program, given, threads):
    """What four more steps cost."""
    words = (rankc, "run", program, "--input", f"x={given}", "--threads", str(threads), "--warmup", "0", "-q", "--repeat")
    once = user_seconds(*words, "1")
    return (user_seconds(*words, "5") - once) / 4 * 1000


def memory(rankc, program):
    """Weights and activations in MiB."""
    of_rank = json.loads(run(rankc, "show", program, "--json"))["ranks"][0]["memory"]
    return [of_rank[kind] / 2**20 for kind in ("weights", "activations")]


def rows(args, directory, name, length):
    """Prints the rows of a model of that length."""
    MODELS[name](directory, name, length=length)
    programs = {dtype: os.path.join(directory, dtype) for dtype in DTYPES}
    for dtype, program in programs.items():
        run(args.rankc, "compile", f"{directory}/{name}.onnx", "--dtype", dtype, "-o", program, "-q")
    sizes = {dtype: memory(args.rankc, program) for dtype, program in programs.items()}
    for threads in args.threads:
        measure = processor_step if args.processor else step
        rounds = [{dtype: measure(args.rankc, program, f"{directory}/{name}.x.npy", threads) for dtype, program in programs.items()}
                  for _ in range(args.rounds)]
        least = {dtype: min(times[dtype] for times in rounds) for dtype in DTYPES}
        for dtype in DTYPES:
            ratios = [times[dtype] / times["f32"] for times in rounds]
            print(f"| {name} | {length} | {threads} | {dtype} | {least[dtype]:.0f} | {least[dtype] / least['f32']:.2f} | "
                  f"{min(ratios):.2f} to {max(ratios):.2f} | {sizes[dtype][0]:.0f} | {sizes[dtype][1]:.1f} |", flush=True)


def numbers(text):
    return [int(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--lengths", type=numbers, default=[64, 128, 256, 512, 1024])
    parser.add_argument("--threads", type=numbers, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=float("inf"))
    parser.add_argument("--processor", action="store_true")
    args = parser.parse_args()
    end = time.monotonic() + args.limit
    print("| model | T | threads | type | step, ms | to f32 | in one round | weights, MiB | activations, MiB |\n"
          "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for length in args.lengths:
        for name in MODELS:
            if time.monotonic() > end:
                return
            with tempfile.TemporaryDirectory() as directory:
                rows(args, directory, name, length)


if __name__ == "__main__":
    main()
