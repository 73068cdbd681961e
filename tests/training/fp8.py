#!/usr/bin/python3
"""Trains with linear layers in 8-bit floats (--fp8) under plans.

    fp8.py --rankc RANKC [--target c|cuda] [--plans PLAN;...] [CHECK...]

  curves   losses and gradient norms are those of PyTorch's emulation (record_fp8.py), to 1e-7 mostly, until a rounding falls to the
           other side because a sum was taken in another order, and soon others with it. So in the first steps they differ at most a
           tenth as much as 8-bit floats make them differ, and at most as much in all. Tensor cores of Hopper add products of 8-bit
           floats with about 14 bits (DeepSeek-V3 technical report, 3.3.2: up to 2 % of sums of 4096 terms), so roundings differ at
           once: with --library the tenth holds for the loss of the first step alone, of what 8-bit floats make in any step
  exact    two units compute what one computes of the same micro-batches, bit for bit; so does a program that recomputes (on target
           cuda, where kernels are fused otherwise then, gradient norms are added in another order)
  resumed  a run that goes on from a checkpoint has the numbers and files of one that was not stopped
  mixed    --amp bf16 and fp16 beside it
  told     what stays as it is, and what is refused"""
import filecmp
import os
import re
import sys

from harness import COMM, call, compile_case, data_of, expect, lines_of, model_of, names_of, parser_of, plan_of, recorded, report

PLANS = ["one", "dp2", "tp2", "data2", "tp2data2"]
KEYS = ("loss", "grad_norm")
REFERENCE = {"c": [], "cuda": ["--kernels", "reference"]}
FIRST = {"mlp_fp8": 10, "gpt2_fp8": 2, "llama_fp8": 2}  # steps


class Run:
    def __init__(self, options, work):
        self.rankc, self.target, self.library, self.work = options.rankc, options.target, options.library, work

    def path(self, name):
        return os.path.join(self.work, name)

    def compile(self, case, plan, accumulate, *options, name="out"):
        options = [*recorded(case)["options"], *options]
        compile_case(self.rankc, case, plan, accumulate, self.path(name), options, target=self.target)

    def train(self, case, *options, steps=20, name="out"):
        """The metrics of a compiled program."""
        log = self.path("log.jsonl")
        if os.path.exists(log):
            os.remove(log)
        call(self.rankc, "train", self.path(name), *data_of(case, recorded(case)["inputs"]), "--steps", str(steps), "--log", log,
             "--threads", "1", *COMM[self.target], *([] if self.library else REFERENCE[self.target]), *options)
        return lines_of(log)

    def __call__(self, case, plan, accumulate, *options, steps=20):
        self.compile(case, plan, accumulate, *options)
        return self.train(case, steps=steps)


def differences(metrics, expected, key):
    return [abs(line[key] - value) / abs(value) for line, value in zip(metrics, expected[key])]


def counts_of(case, plan):
    """Micro-batches a step, and how many of them a unit has."""
    units = plan_of(plan).units
    return [(count, int(count) // units) for count in recorded(case)["steps"] if int(count) % units == 0]


def check_curves(run, plans):
    worst = {}
    for case, first in dict.fromkeys(FIRST, 1).items() if run.library else FIRST.items():
        for plan in plans:
            for count, accumulate in counts_of(case, plan):
                metrics, theirs = run(case, plan, accumulate), recorded(case)["steps"][count]
                for key in KEYS:
                    apart = differences(metrics, theirs["f32"], key)
                    effect = [abs(a - b) / abs(b) for a, b in zip(theirs["plain"][key], theirs["f32"][key])]
                    part = max(apart[:first]) / max(effect if run.library else effect[:first])
                    part = 0 if run.library and key != "loss" else part
                    worst[case] = max(worst.get(case, 0), part)
                    expect(part <= 0.1 and max(apart) <= max(effect),
                           f"{case} {plan}, {count} micro-batches: {key} differs by {apart}, 8-bit floats' effect is {effect}")
    return ", ".join(f"{case} {part:.1e}" for case, part in worst.items()) + " of the effect"


def numbers(metrics):
    return [[line[key] for key in KEYS] for line in metrics]


def same(ours, one, target):
    """Bit for bit; gradient norms of target cuda to what sums in f64 differ by."""
    return len(ours) == len(one) and all(a == b and abs(c - d) <= (1e-8 * d if target == "cuda" else 0) for (a, c), (b, d) in zip(ours, one))


def check_exact(run, plans):
    for case in ("gpt2_fp8", "mlp_fp8"):
        one = numbers(run(case, "one", 2, steps=8))
        expect(numbers(run(case, "dp2", 1, steps=8)) == one, f"{case}: two units differ from one")
        again = numbers(run(case, "one", 2, "--recompute", "full", steps=8))
        expect(same(again, one, run.target), f"{case}: recomputed, it differs: {again}, not {one}")
    return "the same bits"


def check_resumed(run, plans):
    case, checkpoints = "mlp_fp8", ["--checkpoint-every", "4", "--checkpoint-dir"]
    for plan in plans:
        run.compile(case, plan, 1)
        whole = run.train(case, *checkpoints, run.path(f"whole {plan}"), steps=8)
        first = run.train(case, *checkpoints, run.path(f"parts {plan}"), steps=4)
        second = run.train(case, *checkpoints, run.path(f"parts {plan}"), "--resume", "latest", steps=8)
        expect(numbers(first + second) == numbers(whole), f"{plan}: other numbers")
        names = [os.path.join("step-8", name) for name in os.listdir(run.path(f"whole {plan}/step-8")) if name.endswith(".safetensors")]
        _, other, missing = filecmp.cmpfiles(run.path(f"whole {plan}"), run.path(f"parts {plan}"), names, shallow=False)
        expect(not other and not missing, f"{plan}: other files: {other} {missing}")
        states = b"".join(open(run.path(f"whole {plan}/{name}"), "rb").read() for name in names)
        for what in (b".fp8.scale", b".fp8.history"):
            expect(states.count(what) >= 6, f"{plan}: no {what} in the checkpoint")
    return "the same bits"


def check_mixed(run, plans):
    case, worst = "mlp_fp8", 0
    theirs = recorded(case)["steps"]["1"]
    effect = max(abs(a - b) / b for a, b in zip(theirs["plain"]["loss"], theirs["f32"]["loss"]))
    for plan in [plan for plan in plans if plan_of(plan).units == 1]:
        for amp in ("bf16", "fp16:init_scale=256"):
            metrics = run(case, plan, 1, "--amp", amp)
            apart = max(differences(metrics, theirs["f32"], "loss"))
            worst = max(worst, apart / effect)
            expect(apart <= effect, f"{plan} {amp}: losses differ by {apart:g}")
    return f"{worst:.2f} of the effect of 8-bit floats"


# Case, policy, --fp8, other words of the command line, exit code, what is said.
TOLD = [
    ("gpt2_fp8", "dp", "hybrid", [], 0, r"not converted to 8-bit floats: it is the last layer.*\n  --> /model/lm_head/MatMul"),
    ("gpt2_fp8", "dp", "hybrid", [], 0, r"8 linear layers, with 24 scales"),
    ("llama_fp8", "dp", "hybrid", [], 0, r"7 linear layers, with 18 scales"),
    ("gpt2_fp8", "tp:tensor=4", "hybrid", [], 0, r"not converted to 8-bit floats: a rank's shard of .*attn/c_proj.* has an extent of 8, which is not a multiple of 16"),
    ("gpt2_fp8", "data:data=2", "hybrid", [], 0, r"8 linear layers"),
    ("gpt2_fp8", "tp:tensor=4", "hybrid:include=*attn*", [], 5, r"error\[E0425\]: --fp8 includes this layer: a rank's shard of"),
    ("gpt2_fp8", "dp", "hybrid:include=*lm_head*", [], 5, r"error\[E0425\]: --fp8 includes this layer: it has 101 outputs, which is not a multiple of 16"),
    ("gpt2_fp8", "dp", "hybrid:include=*mlp*,exclude=*c_proj*", [], 0, r"2 linear layers"),
    ("gpt2_fp8", "dp", "hybrid:exclude=*nothing*", [], 2, r"error\[E0424\]: no linear layer's name matches '\*nothing\*'"),
    ("mlp_fp8", "tp:tensor=8", "hybrid", [], 4, r"error\[E0426\]: --fp8: under this plan none of the 2 linear layers"),
    ("gpt2", "dp", "hybrid", [], 4, r"it has 22 rows, which is not a multiple of 16[^$]*error\[E0426\]: --fp8: none of the"),
    ("mlp_fp8", "dp", "hybrid", ["--dtype", "f64"], 4, r"it computes in f64"),
    ("mlp_fp8", "dp", "fp4", [], 2, r"error\[E0202\]: 'fp4' is neither hybrid nor e4m3"),
    ("mlp_fp8", "dp", "hybrid:history=0", [], 2, r"error\[E0205\]: --fp8 has no option 'history=0'"),
    ("mlp_fp8", "dp", "e4m3:include=", [], 2, r"error\[E0205\]: --fp8 has no option 'include='"),
]


def check_told(run, plans):
    for case, policy, fp8, more, status, says in TOLD:
        done = call(run.rankc, "compile", model_of(case), "-o", run.path("told"), "--no-build", "--reuse", "override", "--train", "--pas",
                    policy, "--fp8", fp8, *more, status=status)
        expect(re.search(says, done.stderr, re.S), f"{case} {policy} --fp8 {fp8}: no '{says}' in\n{done.stderr}")
    done = call(run.rankc, "compile", model_of("mlp_fp8"), "-o", run.path("told"), "--reuse", "override", "--fp8", "hybrid", status=2)
    expect("--fp8 needs --train" in done.stderr, done.stderr)
    return f"{len(TOLD) + 1} command lines"


CHECKS = {name[6:]: check for name, check in list(globals().items()) if name.startswith("check_")}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--target", default="c", choices=COMM)
    parser.add_argument("--plans", default=" ".join(PLANS), help="their names: rankc_plans.py")
    parser.add_argument("--library", action="store_true", help="target cuda: products by the library, not by rankc's kernels")
    parser.add_argument("checks", nargs="*", default=list(CHECKS))
    options = parser.parse_args()
    plans = names_of(options.plans)
    return report((name, lambda work, name=name: CHECKS[name](Run(options, work), plans)) for name in options.checks)


if __name__ == "__main__":
    sys.exit(main())
