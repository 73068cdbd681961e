#!/usr/bin/env python3
"""Times of a step of decoding: against the bound of the caches, against what is in them, against a program of fixed sizes, and
of two ranks against two threads.

    decoding.py --rankc RANKC MODEL.onnx [--vocabulary N] [--bounds LEAST,MOST] [--fills N,..] [--rounds R] [--steps N]

MODEL.onnx is a decoder with inputs past_key_values.N.key of [batch, heads, past_sequence_length, d] and input_ids of
[batch, sequence]. What is compared takes turns; a line has medians over the rounds, in milliseconds, and the median of the
ratios with the least and the most. Prompts are random ids, and a step's caches have `fill` tokens at first."""
import argparse
import json
import random
import statistics
import struct
import subprocess
import tempfile
from pathlib import Path


def write_ids(path, count, vocabulary):
    """An .npy file of [1, count] int64."""
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': (1, {count}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    draw = random.Random(count)
    ids = [draw.randrange(vocabulary) for _ in range(count)]
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{count}q", *ids))
    return path


class Bench:
    def __init__(self, given, work):
        self.given, self.work, self.programs = given, Path(work), {}

    def program(self, *options):
        if options not in self.programs:
            out = self.work / f"program{len(self.programs)}"
            subprocess.run([self.given.rankc, "compile", self.given.model, "--dim", "batch=1", *options, "-o", out, "-q"], check=True)
            self.programs[options] = out
        return self.programs[options]

    def decoder(self, bound, *options):
        """With state for `bound` tokens."""
        return self.program("--state", "auto", "--dim", "sequence=1..128", "--dim", f"past_sequence_length=0..{bound}", *options)

    def generated(self, program, fill, threads=1):
        """Median of the steps after a prompt of `fill` tokens."""
        ids = write_ids(self.work / f"ids{fill}.npy", fill, self.given.vocabulary)
        return self.median("generate", program, "--input", f"input_ids={ids}", "--max-new-tokens", self.given.steps + 1, "--threads", threads)

    def repeated(self, program, threads=1):
        """Median of the steps of a program of fixed sizes."""
        return self.median("run", program, "--random-inputs=1", "--threads", threads, "--repeat", self.given.steps + 1)

    def median(self, *words):
        said = subprocess.run([self.given.rankc, *map(str, words), "--json"], check=True, capture_output=True, text=True).stdout
        return statistics.median(json.loads(said)["step_ms"]["all"][1:])

    def compare(self, name, one, other):
        """one, other: functions that give milliseconds."""
        times = [(one(), other()) for _ in range(self.given.rounds)]
        ratios = [a / b for a, b in times]
        first, second = (statistics.median(column) for column in zip(*times))
        print(f"| {name} | {first:.2f} | {second:.2f} | {statistics.median(ratios):.3f} | {min(ratios):.3f}, {max(ratios):.3f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("model")
    parser.add_argument("--vocabulary", type=int, default=1000)
    parser.add_argument("--bounds", default="64,32768")
    parser.add_argument("--fills", default="16,256,512,1024,2048,4000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=16)
    given = parser.parse_args()
    least, most = (int(bound) for bound in given.bounds.split(","))
    fills = [int(fill) for fill in given.fills.split(",")]
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(given, work)
        fixed = bench.program("--dim", "sequence=1", "--dim", "past_sequence_length=16", "--dim", "total_sequence_length=17")
        small, large = bench.decoder(least), bench.decoder(most)
        ranks = bench.decoder(least, "--pas", "tp:tensor=2", "--plan-ngpus", "2")
        print("| | ms | ms | ratio | least, most |\n|---|---|---|---|---|")
        bench.compare(f"bound {most} / bound {least}, 16 tokens", lambda: bench.generated(large, 16), lambda: bench.generated(small, 16))
        for threads in 1, 2:
            bench.compare(f"with state / fixed sizes, threads {threads}", lambda n=threads: bench.generated(small, 16, n),
                          lambda n=threads: bench.repeated(fixed, n))
        bench.compare("two threads / two ranks", lambda: bench.generated(small, 16, 2), lambda: bench.generated(ranks, 16))
        curve = bench.decoder(max(fills) + given.steps + 1)
        print("\n| tokens in the caches | ms |\n|---|---|")
        for fill in fills:
            print(f"| {fill} | {statistics.median(bench.generated(curve, fill) for _ in range(given.rounds)):.2f} |", flush=True)


if __name__ == "__main__":
    main()
