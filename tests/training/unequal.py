#!/usr/bin/python3
"""Training in pipeline stages with unequal numbers of ranks: losses and gradient norms of every step within BOUND of those of one rank, and the
files of a checkpoint loaded under another plan.

    unequal.py --rankc RANKC [--target c|cuda] [CASE...]"""
import argparse
import os
import sys

from harness import COMM, call, compile_case, data_of, expect, lines_of, ranks_of, recorded, report

STEPS, BOUND = 10, 1e-5
# Plan, micro-batches of a unit, further options. The gradients of stages with fewer ranks are received by several, and sent to one.
PLANS = {
    "gpt2": [("hybrid:tensor=2@0,pipeline=2@1", 4), ("hybrid:tensor=2@1,pipeline=2@1", 4), ("hybrid:tensor=3@1,pipeline=3@1", 3),
             ("hybrid:tensor=2@0-1,pipeline=3@1", 4), ("hybrid:data=2@0,pipeline=2@1", 2), ("hybrid:data=2@1,pipeline=2@2", 2),
             ("hybrid:tensor=2,data=2@0,pipeline=2@1", 2), ("hybrid:tensor=3@0,data=2@1,pipeline=2@1", 2),
             ("hybrid:tensor=2@1,data=2@1,pipeline=2@1", 2), ("hybrid:tensor=2@0,pipeline=2@2", 2, "--use-zero", "1"),
             ("hybrid:tensor=2@0,pipeline=2@2", 2, "--use-zero", "2"), ("hybrid:data=2@0,pipeline=2@1", 2, "--use-zero", "1"),
             ("hybrid:tensor=2@1,pipeline=2@1", 4, "--schedule", "interleaved"), ("hybrid:tensor=2@0,pipeline=2@1", 4, "--schedule", "zb-v"),
             ("hybrid:tensor=2@1-2,data=2@0-1,pipeline=4@1", 2, "--schedule", "1f1b"), ("hybrid:tensor=3@0,pipeline=2@2", 2, "--use-zero", "3"),
             ("hybrid:data=3@1,pipeline=2@1", 1, "--use-zero", "2"), ("hybrid:data=2@1,pipeline=2@2", 1, "--use-zero", "3"),
             ("hybrid:tensor=2@0,pipeline=2@4", 1, "--use-zero", "2", "--zero-ngroups", "2"),
             ("hybrid:tensor=2@0,pipeline=2@1", 4, "--schedule", "gpipe"), ("hybrid:tensor=2@1,pipeline=2@1", 1),
             ("hybrid:tensor=2@1,pipeline=2@1", 4, "--schedule", "zb-h1"), ("hybrid:tensor=2@1,pipeline=2@1", 4, "--recompute", "full"),
             ("hybrid:tensor=2@0,pipeline=2@1", 4, "--sequence-parallel"), ("hybrid:context=2@0,pipeline=2@1", 2)],
    "llama": [("hybrid:tensor=2@1,pipeline=2@1", 4), ("hybrid:data=2@0,pipeline=2@1", 2, "--use-zero", "3")],
    "mlp_dropout": [("hybrid:tensor=2@0,pipeline=2@1", 4), ("hybrid:tensor=2@1,pipeline=2@2", 2)],
    "cnn": [("hybrid:data=2@0,pipeline=2@1", 2)],
    "recurrent": [("hybrid:data=2@1,pipeline=3@1", 2)],
}


def losses(o, case, plan, accumulate, options, work):
    """Loss and norm of every step."""
    out, log = os.path.join(work, "out"), os.path.join(work, "log.jsonl")
    reference = recorded(case)
    compile_case(o.rankc, case, plan, accumulate, out, reference["options"] + options, target=o.target)
    call(o.rankc, "train", out, *data_of(case, reference["inputs"]), "--steps", str(STEPS), "--kernels", "reference", "--threads", "1",
         "--log", log, *COMM[o.target])
    return [(line["loss"], line["grad_norm"]) for line in lines_of(log)]


def check(o, case, row, work):
    plan, accumulate, *options = row
    units = int(plan.partition("@")[0] and plan.rpartition("@")[2])
    wanted = losses(o, case, "dp@1", accumulate * units, [x for x in options if x == "--amp"], work)
    got = losses(o, case, plan, accumulate, options, work)
    worst = max(abs(a - b) / abs(b) for x, y in zip(got, wanted) for a, b in zip(x, y))
    expect(len(got) == len(wanted) == STEPS and worst <= BOUND, f"{worst:.1e} from one rank: {got} instead of {wanted}")
    return f"{ranks_of(plan.rpartition('@')[0])} ranks, {units} units: {worst:.1e} from one rank"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--target", default="c")
    parser.add_argument("cases", nargs="*")
    o = parser.parse_args()
    o.rankc = os.path.abspath(o.rankc)
    return report((f"{case} {' '.join(map(str, row))}", lambda work, case=case, row=row: check(o, case, row, work))
                  for case, rows in PLANS.items() if not o.cases or case in o.cases for row in rows)


if __name__ == "__main__":
    sys.exit(main())
