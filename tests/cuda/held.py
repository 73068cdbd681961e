#!/usr/bin/python3
"""Updates of parameters, and sums of their gradients' squares, that are launched together (Note [Held launches] in
runtime/cuda/held.cuh).

    held.py --rankc RANKC [CASE...]

While a trace is written every call is launched at once: parameters of a run without one have the same bits in every step, so losses
have. The norm of the gradients adds in another order: 1e-12 of it. The stand-in counts launches (HOST_LOG in host/device.h)."""
import json
import os
import sys

from stand_in import STAND_IN, TESTS, call, expect, parser_of, plan_of, report

ADAMW = ["--optimizer", "adamw:lr=0.002", "--param", "*bias:weight_decay=0", "--clip-grad-norm", "0.5"]
# model, plan, options, launches that are saved at least: of GPT-2 28 parameters are updated, and two launches each are sums of squares.
# None: ranks of a process communicate by launches between graphs, in every step
CASES = {
    "adamw": ("gpt2", "one", ADAMW, 60),
    "amp": ("gpt2", "one", [*ADAMW, "--amp", "bf16", "--accumulate", "2"], 60),
    "zero": ("gpt2", "dp2+use-zero=2", [*ADAMW, "--accumulate", "2"], None),
    "mesh": ("gpt2", "tp2pp2", [*ADAMW, "--ema", "0.9"], None),
    "blocks": ("mlp_blocks", "one", [*ADAMW, "--moments-dtype", "int8"], 0),
    "muon": ("gpt2", "one", ["--optimizer", "muon:lr=0.01"], 30),
}
STEPS = 3
NEAR = 1e-12


def run(rankc, work, out, model, name, *words):
    """Lines of its log; launches."""
    folder, log, launches = os.path.join(TESTS, "training", model), f"{work}/{name}.jsonl", f"{work}/{name}.launches"
    with open(os.path.join(folder, "reference.json"), encoding="utf-8") as reference:
        inputs = json.load(reference)["inputs"]
    data = [word for key in inputs for word in ("--data", f"{key}={folder}/{key}.npy")]
    call(rankc, "train", out, *data, "--steps", STEPS, "--log", log, "--threads", "1", "--comm", "loopback", "-q", *words,
         env={"HOST_LOG": launches})
    count = open(launches, encoding="ascii").read().split().count("kernel") if STAND_IN else 0
    return [json.loads(line) for line in open(log, encoding="utf-8")], count


def check(rankc, work, model, plan, options, saves):
    call(rankc, "compile", os.path.join(TESTS, "training", model, "model.onnx"), "-o", f"{work}/out", "-q", "--train", "--target", "cuda",
         *plan_of(plan).options, *options)
    held, few = run(rankc, work, f"{work}/out", model, "held")
    # a graph is captured once, in the first step; traced steps are launched call by call
    once, many = run(rankc, work, f"{work}/out", model, "once", "--trace", f"{work}/trace", "--trace-steps", f"1:{STEPS}")
    expect([line["loss"] for line in held] == [line["loss"] for line in once], f"losses {held}, call by call {once}")
    for a, b in zip(held, once):
        expect(abs(a["grad_norm"] - b["grad_norm"]) <= NEAR * b["grad_norm"], f"norms {a}, call by call {b}")
    expect(not STAND_IN or saves is None or many / STEPS - few >= saves, f"{few} launches, call by call {many / STEPS} a step")
    return f"{few} launches, call by call {many / STEPS:.0f}"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    args = parser.parse_args()
    return report((case, lambda work, case=case: check(args.rankc, work, *CASES[case])) for case in args.cases)


if __name__ == "__main__":
    sys.exit(main())
