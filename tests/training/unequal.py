#!/usr/bin/python3
"""Training in pipeline stages with unequal numbers of ranks: losses and gradient norms of every step within BOUND of those of one rank. A
checkpoint of such ranks is resumed under a plan of equal stages and the other way, also after `rankc ckpt reshard`.

    unequal.py --rankc RANKC [--target c|cuda] [--all] [CASE...]

Without --all: the first plans of each case, NUMBER of gpt2 and two of the others."""
import os
import shutil
import sys

from harness import COMM, call, compile_case, data_of, expect, lines_of, parser_of, plan_of, recorded, report

STEPS, BOUND, NUMBER = 10, 1e-5, 11
# Plan, micro-batches of a unit, further options. The gradients of stages with fewer ranks are received by several, and sent to one.
PLANS = {
    "gpt2": [("hybrid:tensor=2@0,pipeline=3@2", 2, "--use-zero", "2", "--tied-gradients", "step"),
             ("hybrid:tensor=2@1,pipeline=2@1", 4, "--tied-gradients", "step"), ("hybrid:tensor=3@1,pipeline=3@1", 3), ("hybrid:tensor=2@0-1,pipeline=3@1", 4), ("hybrid:data=2@1,pipeline=2@2", 1, "--use-zero", "3"),
             ("hybrid:tensor=3@0,data=2@1,pipeline=2@1", 2), ("hybrid:data=2@0,pipeline=2@1", 2, "--use-zero", "1"),
             ("hybrid:tensor=2@0,pipeline=2@4", 1, "--use-zero", "2", "--zero-ngroups", "2"),
             ("hybrid:tensor=2@1-2,data=2@0-1,pipeline=4@1", 2, "--schedule", "1f1b"),
             ("hybrid:tensor=2@1,pipeline=2@1", 4, "--schedule", "interleaved"), ("hybrid:tensor=2@0,pipeline=2@1", 4, "--schedule", "zb-v"),
             ("hybrid:tensor=2@0,pipeline=2@1", 4), ("hybrid:tensor=2@1,pipeline=2@1", 4), ("hybrid:data=2@0,pipeline=2@1", 2),
             ("hybrid:data=2@1,pipeline=2@2", 2), ("hybrid:tensor=2,data=2@0,pipeline=2@1", 2), ("hybrid:tensor=2@1,data=2@1,pipeline=2@1", 2),
             ("hybrid:tensor=2@0,pipeline=2@2", 2, "--use-zero", "1"), ("hybrid:tensor=2@0,pipeline=2@2", 2, "--use-zero", "2"),
             ("hybrid:tensor=3@0,pipeline=2@2", 2, "--use-zero", "3"), ("hybrid:data=3@1,pipeline=2@1", 1, "--use-zero", "2"),
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
    units = plan_of(plan).units
    wanted = losses(o, case, "one", accumulate * units, [], work)
    got = losses(o, case, plan, accumulate, options, work)
    worst = max(abs(a - b) / abs(b) for x, y in zip(got, wanted) for a, b in zip(x, y))
    expect(len(got) == len(wanted) == STEPS and worst <= BOUND, f"{worst:.1e} from one rank: {got} instead of {wanted}")
    return f"{plan_of(plan).ranks} ranks, {units} units: {worst:.1e} from one rank"


def checkpoints(o, work):
    reference = recorded("gpt2")
    out, steps = {name: os.path.join(work, name) for name in ("equal", "unequal")}, {}
    common = [*data_of("gpt2", reference["inputs"]), "--kernels", "reference", "--threads", "1", "-q"]
    for name, plan in (("equal", "tp2pp2"), ("unequal", "hybrid:tensor=2@0,data=2@1,pipeline=2@1")):
        compile_case(o.rankc, "gpt2", plan, 2, out[name])
        call(o.rankc, "train", out[name], *common, "--steps", "4", "--checkpoint-dir", out[name] + ".ck")
        call(o.rankc, "train", out[name], *common, "--steps", "8", "--log", out[name] + ".log")
        steps[name] = lines_of(out[name] + ".log")[4:]
    for name, other in (("equal", "unequal"), ("unequal", "equal")):
        written = os.path.join(out[name] + ".ck", "step-4")
        moved = os.path.join(out[name] + ".moved", "step-4")
        os.makedirs(os.path.dirname(moved))
        call(o.rankc, "ckpt", "verify", written)
        call(o.rankc, "ckpt", "reshard", written, out[other], moved)
        call(o.rankc, "ckpt", "verify", moved)
        call(o.rankc, "ckpt", "dedup", written, out[name] + ".once")
        for directory in (written, moved):
            call(o.rankc, "train", out[other], *common, "--steps", "8", "--resume", "latest", "--checkpoint-dir", os.path.dirname(directory), "--log",
                 out[name] + ".again")
            shutil.rmtree(os.path.join(os.path.dirname(directory), "step-8"))
            worst = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(lines_of(out[name] + ".again"), steps[name]))
            expect(len(lines_of(out[name] + ".again")) == 4 and worst <= BOUND, f"{directory} under {other}: {worst:.1e}")
    return "resumed under the other plan"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--target", default="c")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("cases", nargs="*")
    o = parser.parse_args()
    checks = [(f"{case} {' '.join(map(str, row))}", lambda work, case=case, row=row: check(o, case, row, work))
              for case, rows in PLANS.items() if not o.cases or case in o.cases
              for row in (rows if o.all else rows[:NUMBER if case == "gpt2" else 2])]
    return report(checks + [("checkpoints", lambda work: checkpoints(o, work))] * (o.target == "c"))


if __name__ == "__main__":
    sys.exit(main())
