#!/usr/bin/python3
"""Trains models with the optimizers of record_optimizers.py under plans, and compares every step with PyTorch's.

    optimizers.py --rankc RANKC [--target c|cuda] [--plans PLAN;...] [OPTIMIZER...]

Losses and gradient norms are within 1e-5 of PyTorch's in f64 at every step, whatever the plan, which `rankc verify` proves."""
import functools
import os
import sys

from harness import COMM, HERE, Failed, call, compile_case, data_of, lines_of, names_of, parser_of, plan_of, read_json, report
from train import BOUND, differences

NAMES = sorted(os.path.splitext(name)[0] for name in os.listdir(os.path.join(HERE, "optimizers")))
PLANS = ["one", "dp2", "tp2", "pp2", "dp2+use-zero=1", "dp2+use-zero=3"]


def check(rankc, target, name, plan, work):
    """The largest relative difference of any step."""
    reference, accumulate, worst = read_json(HERE, "optimizers", f"{name}.json"), 2 if "pp" in plan else 1, 0
    model, out, log = reference["model"], os.path.join(work, "out"), os.path.join(work, "log.jsonl")
    compile_case(rankc, model, plan, accumulate, out, reference["options"], reference["optimizer"], target)
    expected = reference["steps"][str(plan_of(plan).units * accumulate)]["f64"]
    call(rankc, "train", out, *data_of(model, reference["inputs"]), "--steps", str(len(expected["loss"])), "--log", log, "--threads", "1",
         *COMM[target])
    for what, ours, theirs, scale in differences(lines_of(log), expected, False, {}):
        worst = max(worst, abs(ours - theirs) / (abs(scale) or 1))
        if not worst <= BOUND:
            raise Failed(f"{what} {ours}, PyTorch {theirs}")
    return f"{worst:.1e}"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--target", default="c", choices=COMM)
    parser.add_argument("--plans", default=";".join(PLANS), help="their names: rankc_plans.py")
    parser.add_argument("names", metavar="OPTIMIZER", nargs="*", default=NAMES)
    options = parser.parse_args()
    return report((f"{name} {plan}", functools.partial(check, options.rankc, options.target, name, plan))
                  for name in options.names for plan in names_of(options.plans))


if __name__ == "__main__":
    sys.exit(main())
