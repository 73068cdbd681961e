#!/usr/bin/python3
"""What steps of decoding take on target cuda: graphs that hold while caches grow, and how often the host waits.

    decode.py --rankc RANKC [CASE...]

The ids are those of target c; tests/generate/generate.py compares those of both with PyTorch's. Counts are of the stand-in (HOST_LOG in
host/device.h)."""
import json
import os
import sys

from stand_in import STAND_IN, TESTS, call, expect, parser_of, report

MODEL = os.path.join(TESTS, "..", "samples", "generate", "words", "model.onnx")
DIMS = ["--dim", "batch=1..4", "--dim", "sequence=1..16", "--dim", "past_sequence=0..240"]
NEW = 150
BUCKETS = 3  # of up to 64, 128 and 256 rows
MOST_WAITS = 60  # of all ranks: for weights, the prompt and the end
# Greedy, and draws, of tokens that are as likely too
DRAWS = [[], ["--temperature", "1.5", "--seed", "3"], ["--temperature", "0.9", "--top-k", "12", "--repetition-penalty", "1.3"],
         ["--temperature", "2", "--top-p", "0.7", "--seed", "11"], ["--temperature", "1.2", "--top-k", "30", "--top-p", "0.9", "--min-p", "0.05"]]

# case: options of compile, prompts, graphs of a step of all ranks: those of a rank are divided where ranks of a process communicate
CASES = {"one row": ([], ["cat"], 1),
         "rows": ([], ["cat", "owl pine bee", "day"], 1),
         "small": (["--weight-dtype", "int8", "--cache-dtype", "int8"], ["cat"], 1),
         "two ranks": (["--pas", "tp", "--plan-ngpus", "2"], ["cat"], 14),
         "stages": (["--pas", "pp", "--plan-ngpus", "2"], ["cat"], 6)}


def compiled(rankc, place, target, options):
    call(rankc, "compile", MODEL, "-o", place, "-q", "--target", target, "--state", "auto", *DIMS, *options, timeout=600)
    return place


def ids(rankc, program, prompts, *words, log=None):
    said = [word for prompt in prompts for word in ("--prompt", prompt)]
    done = call(rankc, "generate", program, *said, "--max-new-tokens", str(NEW), "--json", *words, env={"HOST_LOG": log} if log else {})
    said = json.loads(done.stdout)
    return said["ids"], said["tokens_per_s"]


def check(rankc, work, options, prompts, pieces):
    plain, device = compiled(rankc, f"{work}/c", "c", options), compiled(rankc, f"{work}/cuda", "cuda", options)
    for number, words in enumerate(DRAWS[:None if len(prompts) > 1 else 1]):
        want, _ = ids(rankc, plain, prompts, *words)
        expect(words or len(want[0]) == NEW, f"{len(want[0])} tokens end early")
        got, speed = ids(rankc, device, prompts, *words, "--comm", "loopback", log=f"{work}/log{number}")
        expect(got == want, f"{words}: {got}, not {want}")
    if not STAND_IN:
        return f"{speed:.0f} tokens/s"
    with open(f"{work}/log0", encoding="utf-8") as log:
        lines = log.read().split()
    graphs, waits = lines.count("graph"), lines.count("wait")
    expect(graphs == BUCKETS * pieces, f"{graphs} graphs, not {BUCKETS} times {pieces}")
    expect(waits < MOST_WAITS, f"the host waited {waits} times for {NEW} steps")
    return f"{graphs} graphs, {waits} waits, {number + 1} ways to choose"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    args = parser.parse_args()
    return report((case, lambda work, case=case: check(args.rankc, work, *CASES[case])) for case in args.cases)


if __name__ == "__main__":
    sys.exit(main())
