#!/usr/bin/env python3
"""What open sizes cost: a program that was compiled once with bounds against those compiled for one size each.

    open_sizes.py --rankc RANKC MODEL.onnx --dim NAME=LO..HI.. --at NAME=SIZE,.. [--at ..] [--rounds R] [--repeat N] [--work DIR]
                  [-- OPTIONS]

For each --at, runs of both programs take turns, on one thread; a line says the median over the rounds of (step of the
program for that size) / (step of the open one), its spread, and what the first step of a process takes of the later
ones, of the open program and of the other. Inputs are random. Programs stay in DIR and are not compiled again: --rounds 0 compiles them."""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path


def compiled(rankc, model, dims, options, out):
    sizes = [word for name, size in dims.items() for word in ("--dim", f"{name}={size}")]
    if not os.path.exists(out):
        subprocess.run([rankc, "compile", model, "-o", out, "-q", *sizes, *options], check=True)
    return out


def steps(rankc, program, sizes, repeat):
    """Milliseconds of each step."""
    chosen = [word for name, size in sizes.items() for word in ("--dim", f"{name}={size}")]
    said = subprocess.run([rankc, "run", program, "--random-inputs=1", "--threads", "1", "--repeat", str(repeat),
                           "--json", *chosen], check=True, capture_output=True, text=True).stdout
    return json.loads(said)["step_ms"]["all"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("model")
    parser.add_argument("--dim", action="append", required=True)
    parser.add_argument("--at", action="append", required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--work", type=Path)
    parser.add_argument("options", nargs="*")
    given = parser.parse_args()
    bounds = dict(dim.rsplit("=", 1) for dim in given.dim)
    with tempfile.TemporaryDirectory() as directory:
        directory = given.work or Path(directory)
        program = compiled(given.rankc, given.model, bounds, given.options, directory / "open")
        print("| sizes | fixed / open | least, most | first / later call | of the fixed one |\n|---|---|---|---|---|")
        for at in given.at:
            sizes = dict(item.rsplit("=", 1) for item in at.split(","))
            fixed = compiled(given.rankc, given.model, {**bounds, **sizes}, given.options, directory / "fixed-{}".format(at.replace("=", "").replace(",", "-")))
            ratios, firsts, others = [], [], []
            for _ in range(given.rounds):
                alone = steps(given.rankc, fixed, {}, given.repeat)
                free = steps(given.rankc, program, sizes, given.repeat)
                ratios.append(statistics.median(alone[1:]) / statistics.median(free[1:]))
                firsts.append(free[0] / statistics.median(free[1:]))
                others.append(alone[0] / statistics.median(alone[1:]))
            if not ratios:
                continue
            print(f"| {at} | {statistics.median(ratios):.3f} | {min(ratios):.3f}, {max(ratios):.3f} | "
                  f"{statistics.median(firsts):.2f} | {statistics.median(others):.2f} |", flush=True)


if __name__ == "__main__":
    main()
