#!/usr/bin/python3
"""--dump-tensors of target cuda: all values that both targets compute are those of target C.

    dump.py --rankc RANKC [CASE...]"""
import os
import re
import sys

from stand_in import TESTS, Failed, call, parser_of, read_json, report

GPT2 = os.path.join(TESTS, "training", "gpt2")
# options of compile; the verb; options of a run
CASES = {
    "tensor of two": (["--pas", "tp", "--plan-ngpus", "2"], "run", ["--random-inputs"]),
    "stages of two": (["--train", "--optimizer", "sgd:lr=0.01", "--pas", "hybrid:tensor=2,pipeline=2", "--accumulate", "2",
                       "--tied-gradients", "step"], "train", ["--steps", "2"]),
}


def dump(rankc, work, target, case):
    """Compiles the case and runs it with a dump of all tensors; the dump's directory."""
    options, verb, run = CASES[case]
    directory = os.path.join(work, target)
    call(rankc, "compile", os.path.join(GPT2, "model.onnx"), "-q", "-o", directory, "--target", target, *options)
    program = os.path.join(directory, "model", "_")
    names = [entry["name"] for entry in read_json(program, "manifest.json")["inputs"]]
    data = [word for name in names for word in ("--data", f"{name}={GPT2}/{name}.npy")] if verb == "train" else []
    call(rankc, verb, program, "--comm", "loopback", *run, *data, "-q", "--dump-tensors", "*", "--dump-dir", f"{directory}.dump")
    return f"{directory}.dump"


def check(rankc, work, case):
    said = call(rankc, "compare", *(dump(rankc, work, target, case) for target in ("c", "cuda"))).stdout
    found = re.search(r"^0 of (\d+) tensors differ", said, re.M)
    if not found or int(found[1]) < 40: # two layers, each with about twenty
        raise Failed(said)
    return f"{found[1]} tensors"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    args = parser.parse_args()
    rankc = args.rankc
    return report((case, lambda work, case=case: check(rankc, work, case)) for case in args.cases)


if __name__ == "__main__":
    sys.exit(main())
