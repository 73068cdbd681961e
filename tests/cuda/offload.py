#!/usr/bin/python3
"""--offload changes where states lie, and nothing else.

    offload.py --rankc RANKC [CASE...]

Losses and gradient norms of a run are those without the option, bit for bit, also when a run with it resumes one without it, and the
other way round. `show` says less of the device by the bytes of the states that it says of the host, and so do the allocations of the
program, which the stand-in reports. What the states should be is computed from the shapes of the parameters."""
import json
import os
import sys

from stand_in import STAND_IN, TESTS, call, expect, json_of, parser_of, plan_of, report

CASE, SMALL = os.path.join(TESTS, "training", "mlp_blocks"), 1024
# what is offloaded; plan; options; bytes on the host for an element of a parameter: two moments, and itself in f32
CASES = {
    "one": ("optimizer", "one", [], 8),
    "bf16": ("optimizer", "one", ["--amp", "bf16", "--accumulate", "2"], 8),
    "zero1": ("optimizer", "dp2+use-zero=1", [], 8),
    "tp2": ("optimizer", "tp2", [], 8),
    "int8": ("optimizer", "one", ["--moments-dtype", "int8"], 2),
    "weights": ("weights", "one+use-zero=3", [], 12),
    "weights zero3": ("weights", "dp2+use-zero=3", ["--accumulate", "2", "--zero-prefetch", "2"], 12),
    "weights bf16": ("weights", "one+use-zero=3", ["--amp", "bf16"], 12),
    "weights tp2": ("weights", "tp2dp2+use-zero=3", [], 12),
}
MODEL = os.path.join(CASE, "model.onnx")
DATA = [word for name in ("x", "target") for word in ("--data", f"{name}={CASE}/{name}.npy")]


class Program:
    def __init__(self, rankc, work, case, *words):
        _, plan, more, self.bytes = CASES[case]
        os.makedirs(work, exist_ok=True)
        self.rankc, self.work, self.out = rankc, work, os.path.join(work, "-".join(["program", *words]).replace("--", ""))
        options = ["--train", "--target", "cuda", "--optimizer", "adamw:lr=0.002", *plan_of(plan).options, *more, *words]
        call(rankc, "compile", MODEL, "-o", self.out, "-q", *options)
        call(rankc, "verify", self.out, "-q")
        self.shown = json_of(rankc, "show", self.out, "--json")
        self.memory = [rank["memory"] for rank in self.shown["ranks"]]

    def train(self, steps, *words):
        """Lines of the log, without times; bytes that were allocated, by kind."""
        log, allocations = os.path.join(self.work, "log.jsonl"), os.path.join(self.work, "allocations")
        for path in (log, allocations):
            if os.path.exists(path):
                os.remove(path)
        call(self.rankc, "train", self.out, *DATA, "--steps", steps, "--log", log, "--threads", "1", "--comm", "loopback", "-q", *words,
             env={"ALLOCATIONS": allocations})
        bytes_of = {"device": 0, "pinned": 0}
        for line in open(allocations, encoding="ascii") if STAND_IN else ():
            kind, count = line.split()
            bytes_of[kind] += int(count)
        return [numbers for numbers in map(without_times, open(log, encoding="utf-8")) if numbers], bytes_of


def without_times(line):
    return {key: value for key, value in json.loads(line).items() if key in ("step", "loss", "grad_norm")}


def elements_of(shape):
    elements = 1
    for extent in shape:
        elements *= extent
    return elements


def check_shown(plain, program, moved):
    """What is on the host is missing on the device, of those kinds of memory alone; it is what large parameters need."""
    for before, after in zip(plain.memory, program.memory):
        expect(sum(before[kind] - after[kind] for kind in moved) == after["host"], f"{before} {after}")
        expect(before["peak"] - after["peak"] == after["host"] and not before["host"], f"{before} {after}")
        expect(all(before[kind] == after[kind] for kind in before if kind not in (*moved, "peak", "host")), f"{before} {after}")
    large = [n for n in (elements_of(p["shape"]) for p in program.shown["parameters"]) if n >= SMALL]
    wanted, got = sum(program.bytes * n for n in large), sum(memory["host"] for memory in program.memory)
    expect(wanted <= got <= wanted + 3 * 16 * 4 * len(plain.memory) * len(large), f"{got}, not {wanted}") # slices of 16 elements
    return got


def losses_of(lines):
    return [line["loss"] for line in lines]


def losses_of_one(rankc, work, case):
    """Those of a run on one rank without ZeRO, which changes no loss there; squares of gradients are added in another order."""
    CASES["plain"] = (None, "one", *CASES[case][2:])
    return losses_of(Program(rankc, os.path.join(work, "one"), "plain").train(6)[0])


def check(rankc, work, case):
    offload, plan = CASES[case][:2]
    plain, program = Program(rankc, work, case), Program(rankc, work, case, "--offload", offload)
    host, ranks = check_shown(plain, program, ("optimizer", "weights")[:1 + (offload == "weights")]), len(plain.memory)
    first, second = os.path.join(work, "plain"), os.path.join(work, "offloaded")
    expected, before = plain.train(6, "--checkpoint-dir", first, "--checkpoint-every", "3")
    found, after = program.train(6, "--checkpoint-dir", second, "--checkpoint-every", "3")
    expect(len(expected) == 6 and found == expected, f"{found}, not {expected}")
    expect(plan != "one+use-zero=3" or losses_of(found) == losses_of_one(rankc, work, case), f"{found} with ZeRO")
    # an arena has one byte more, which one that is empty takes of the device
    expect(not STAND_IN or before["device"] - after["device"] == after["pinned"] - before["pinned"] == host + ranks, f"{before} {after}, on the host {host}")
    resumed = [plain.train(6, "--checkpoint-dir", second, "--resume", "3")[0], program.train(6, "--checkpoint-dir", first, "--resume", "3")[0]]
    expect(resumed == [expected[3:]] * 2, f"resumed {resumed}, not {expected[3:]}")
    return f"{host} bytes on the host, {after['device']} of {before['device']} on the device"


def refused(rankc, work):
    """Without a GPU there is nothing to offload, and without training no states."""
    del work
    said = call(rankc, "plan", MODEL, "--train", "--offload", "optimizer", status=2).stderr
    expect("--offload is for --target cuda" in said, said)
    said = call(rankc, "plan", MODEL, "--target", "cuda", "--offload", "optimizer", status=2).stderr
    expect("--offload needs --train" in said, said)
    return "said so"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    args = parser.parse_args()
    return report([(case, lambda work, case=case: check(args.rankc, work, case)) for case in args.cases]
                  + [("refused", lambda work: refused(args.rankc, work))])


if __name__ == "__main__":
    sys.exit(main())
