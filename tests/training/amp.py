#!/usr/bin/python3
"""Trains recorded models in mixed precision under plans (record_amp.py).

    amp.py --rankc RANKC [--target c|cuda] [--plans PLAN;...] [--cases "CASE..."] [--options OPTIONS] [CHECK...]

  bf16    losses and gradient norms differ from PyTorch's in f32 by at most twice as much as those of its autocast: the largest
          difference of all steps and numbers of micro-batches, since Adam makes a few steps' rounding grow by chance
  fp16    they are near PyTorch's in f64, by DESIGN 8 with half's precision: the largest difference of a plan is at most twice that
          of one rank and 8 eps; and the scale grows as it should
  normed  likewise --amp bf16 of a model with GroupNorm, which PyTorch's autocast does not train on a CPU
  scaled  GradScaler's sequence of scales and skipped steps, where some losses overflow; everything is computed in f32, so losses
          and norms are within 1e-5 of PyTorch's
  pure    --dtype bf16 and fp16, by DESIGN 8 against --dtype f64
  sums    --dtype bf16 and fp16: the gradients of many micro-batches are summed in f32, on pipeline stages and slices too
  static  a static scale changes f32 by rounding alone; a bf16 run without scaling goes on after skip_if_nonfinite"""
import itertools
import os
import sys

from harness import COMM, Failed, call, compile_case, data_of, lines_of, names_of, parser_of, plan_of, recorded, report

PLANS = ["one", "dp2", "tp2", "tp2data2"]
MODELS, MICRO_BATCHES = ["gpt2", "llama", "cnn_bn", "mlp_dropout"], ["1", "4"]
# Of a few images one ReLU that rounding turns on or off moves the gradient as much as all rounding does, and what follows with
# it: these are compared over the first steps, of several micro-batches.
IMAGES, IMAGE_STEPS = ["cnn", "cnn_bn"], 5
EPOCH = 14 # micro-batches after which the samples are complete
# Further plans that sum gradients, the type, and options.
SUMMED = [["dp2", "bf16", "--use-zero", "0"], ["dp2", "fp16", "--use-zero", "3", "--param", "*:whole"],
          ["data2", "bf16", "--use-zero", "2"], ["pp2", "bf16", "--tied-gradients", "micro-batch"],
          ["pp2", "bf16", "--tied-gradients", "step"]]
EPS = {"fp16": 2.0 ** -10, "bf16": 2.0 ** -7}


class Run:
    """Compiles and trains a case under a plan, with further options."""

    def __init__(self, options, work):
        self.rankc, self.target, self.work, self.chosen = options.rankc, options.target, work, options.cases.split()
        self.more = options.options.split()

    def cases(self, *lists):
        """Those of the lists that are asked for."""
        return [case for case in dict.fromkeys(itertools.chain(*lists)) if case in self.chosen]

    def __call__(self, case, plan, micro_batches, *options, steps=20, optimizer=None):
        accumulate = int(micro_batches) // plan_of(plan).units
        compile_case(self.rankc, case, plan, accumulate, os.path.join(self.work, "out"),
                     [*(options or recorded(case)["options"]), *self.more], optimizer, target=self.target)
        return self.train(case, plan, micro_batches, steps)

    def train(self, case, plan, micro_batches, steps):
        """Trains what was compiled last, with as many micro-batches."""
        out, log = os.path.join(self.work, "out"), os.path.join(self.work, "log.jsonl")
        call(self.rankc, "train", out, *data_of(case, recorded(case)["inputs"]), "--steps", str(steps), "--log", log, "--threads",
             "1", "--accumulate", str(int(micro_batches) // plan_of(plan).units), *COMM[self.target])
        return lines_of(log)


def column(metrics, key):
    return [line[key] for line in metrics]


def apart(a, b):
    return max(abs(x - y) for x, y in zip(a, b))


def fits(plans, micro_batches):
    return [plan for plan in plans if int(micro_batches) % plan_of(plan).units == 0]


def check_bf16(run, plans):
    worst = 0
    for case in run.cases(MODELS):
        steps, halves = recorded(case)["steps"], recorded(case, "amp.json")
        theirs_of = {key: max(apart(halves[count]["bf16"][key], steps[count]["f32"][key]) for count in MICRO_BATCHES)
                     for key in ("loss", "grad_norm")}
        for count in MICRO_BATCHES:
            for plan in fits(plans, count):
                metrics = run(case, plan, count, "--amp", "bf16")
                for key, theirs in theirs_of.items():
                    ours = apart(column(metrics, key), steps[count]["f32"][key])
                    worst = max(worst, ours / theirs)
                    if not ours <= 2 * theirs:
                        raise Failed(f"{case} {plan}, {count} micro-batches: {key} differs by {ours:g}, autocast's by {theirs:g}")
    return f"at most {worst:.2f} times autocast's difference"


def near_f64(run, plans, cases, dtype, amp, check_one=lambda case, metrics: None):
    """Losses and gradient norms by DESIGN 8."""
    worst = 0
    for case, count in itertools.product(cases, MICRO_BATCHES):
        if case in IMAGES and count == "1":
            continue
        steps = IMAGE_STEPS if case in IMAGES else 20
        reference = {key: values[:steps] for key, values in recorded(case)["steps"][count]["f64"].items()
                     if key in ("loss", "grad_norm")}
        one = run(case, "one", count, "--amp", amp, steps=steps)
        check_one(case, one)
        for plan in fits(plans, count):
            metrics = run(case, plan, count, "--amp", amp, steps=steps)
            for key, expected in reference.items():
                of_one, ours = apart(column(one, key), expected), apart(column(metrics, key), expected)
                bound = 8 * EPS[dtype] * max(expected)
                worst = max(worst, ours / bound)
                if not (of_one <= bound and ours <= 2 * of_one + bound):
                    raise Failed(f"{case} {plan}, {count} micro-batches: {key} differs by {ours:g}, one rank's by {of_one:g}")
    return f"at most {worst:.2f} of 8 eps"


def check_fp16(run, plans):
    def scales(case, metrics):
        if column(metrics, "loss_scale") != [256.0 * 2 ** (step // 4) for step in range(len(metrics))] or \
                any(column(metrics, "skipped")):
            raise Failed(f"{case}: scales {column(metrics, 'loss_scale')}")
    return near_f64(run, plans, run.cases(MODELS, IMAGES), "fp16", "fp16:init_scale=256,growth_interval=4", scales)


def check_normed(run, plans):
    return near_f64(run, plans, ["cnn"], "bf16", "bf16")


def check_scaled(run, plans):
    for count, expected in recorded("mlp_scaled")["steps"].items():
        for plan in fits(plans, count):
            metrics = run("mlp_scaled", plan, count)
            for key in ("loss_scale", "skipped"):
                if column(metrics, key) != expected[key]:
                    raise Failed(f"{plan}, {count} micro-batches: {key} {column(metrics, key)}, PyTorch {expected[key]}")
            for key in ("loss", "grad_norm"):
                for step, (ours, value) in enumerate(zip(column(metrics, key), expected[key])):
                    if (ours is None) != (value is None) or (ours is not None and abs(ours - value) > 1e-5 * abs(value)):
                        raise Failed(f"{plan}, {count} micro-batches: step {step + 1}: {key} {ours}, PyTorch {value}")
    return "as GradScaler"


def check_pure(run, plans):
    """By SGD: fp16 cannot hold Adam's second moments, neither here nor in PyTorch."""
    worst = 0
    for case in run.cases(MODELS, IMAGES):
        def losses(plan, dtype):
            return column(run(case, plan, "4", "--dtype", dtype, optimizer="sgd:lr=0.02",
                              steps=IMAGE_STEPS if case in IMAGES else 8), "loss")
        reference = losses("one", "f64")
        for dtype, eps in EPS.items():
            one, bound = losses("one", dtype), 8 * eps * max(reference)
            for plan in plans:
                ours = losses(plan, dtype)
                worst = max(worst, apart(ours, reference) / bound)
                if not (apart(one, reference) <= bound and apart(ours, reference) <= 2 * apart(one, reference) + bound):
                    raise Failed(f"{case} {plan} {dtype}: {ours}, in f64 {reference}")
    return f"at most {worst:.2f} of 8 eps"


def check_sums(run, plans):
    """16 epochs of 14 micro-batches have the mean gradient of one epoch, but for the rounding of sums in f32."""
    for plan, dtype, *options in [(plan, dtype) for plan in plans for dtype in EPS] + SUMMED:
        case = "gpt2" if "pp" in plan else "mlp"
        few = run(case, plan, EPOCH, "--dtype", dtype, *options, steps=1, optimizer="sgd:lr=0")[0]["grad_norm"]
        many = run.train(case, plan, 16 * EPOCH, 1)[0]["grad_norm"]
        if not abs(many - few) <= 16 * EPOCH * 2.0 ** -24 * few:
            raise Failed(f"{case} {plan} {options} {dtype}: norm {few} of an epoch, {many} of many")
    return "the same norm"


def check_static(run, plans):
    expected = recorded("mlp")["steps"]["4"]["f64"]
    for plan in plans:
        metrics = run("mlp", plan, "4", "--amp", "fp16:loss_scale=256,deny=*")
        for key in ("loss", "grad_norm"):
            if apart(column(metrics, key), expected[key]) > 1e-5 * max(expected[key]):
                raise Failed(f"{plan}: {key} {column(metrics, key)}")
        if set(column(metrics, "loss_scale")) != {256.0}:
            raise Failed(f"{plan}: scales {column(metrics, 'loss_scale')}")
    expected = recorded("mlp_scaled")["steps"]["1"]
    metrics = run("mlp_scaled", "one", "1", "--amp", "bf16:skip_if_nonfinite,deny=*")
    if column(metrics, "skipped") != expected["skipped"] or "loss_scale" in metrics[0]:
        raise Failed(f"skipped {column(metrics, 'skipped')}")
    return "within 1e-5; skipped as often"


CHECKS = {name[6:]: check for name, check in list(globals().items()) if name.startswith("check_")}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--target", default="c", choices=COMM)
    parser.add_argument("--plans", default=" ".join(PLANS), help="their names: rankc_plans.py")
    parser.add_argument("--cases", default=" ".join([*MODELS, *IMAGES]), help="of bf16, fp16 and pure")
    parser.add_argument("--options", default="", help="further ones of `rankc compile`")
    parser.add_argument("checks", nargs="*", default=list(CHECKS))
    options = parser.parse_args()
    plans = names_of(options.plans)
    return report((name, lambda work, name=name: CHECKS[name](Run(options, work), plans)) for name in options.checks)


if __name__ == "__main__":
    sys.exit(main())
