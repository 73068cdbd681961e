#!/usr/bin/python3
"""Trains models with BatchNorm on several scale units and compares them with PyTorch's training (record_statistics.py).

    statistics.py --rankc RANKC [--target c|cuda] [--plans PLAN;...] [CHECK...]

A plan is of one unit. Losses, gradient norms and the loss in evaluation are within 1e-5 of
PyTorch's in f64, running statistics of a checkpoint within 1e-5 of their largest value.

  own      each unit has its own statistics in training; evaluation and checkpoints have those of unit 0
  shared   --sync-batch-norm: all units have the statistics of their micro-batches together, as torch.nn.SyncBatchNorm
  resumed  evaluation after a resumed run is that of one that was not stopped, bit for bit"""
import os
import sys

from harness import COMM, Failed, call, compile_case, data_of, lines_of, names_of, parser_of, plan_of, recorded, report, \
    whole_micro_batches
from train import BOUND, tensors_of

PLANS = ["one", "data2", "one+use-zero=3", "tp2", "pp3+use-zero=1"]
CASES = ["cnn_bn", "resnet", "mlp_batch_norm"]


class Bench:
    def __init__(self, options, work):
        self.rankc, self.target, self.plans, self.work = options.rankc, options.target, names_of(options.plans), work

    def compile(self, case, plan, run, *options):
        units = plan_of(plan)._replace(units=run["units"])
        compile_case(self.rankc, case, units, run["accumulate"], os.path.join(self.work, "out"), [*recorded(case)["options"], *options],
                     target=self.target)
        return units.world

    def train(self, case, steps, *options):
        """The metrics. The loss in evaluation is taken after the last step."""
        log, inputs = os.path.join(self.work, "log.jsonl"), recorded(case)["inputs"]
        out = os.path.join(self.work, "out")
        call(self.rankc, "train", out, *data_of(case, inputs), *data_of(case, inputs, "--eval-data"), *whole_micro_batches(out),
             "--steps", str(steps), "--log", log, "--threads", "1", *COMM[self.target], *options)
        return lines_of(log)


def compare(what, ours, theirs, scale):
    if not abs(ours - theirs) <= BOUND * scale:
        raise Failed(f"{what}: {ours}, PyTorch {theirs}")


def statistics_of(folder, names):
    """Running statistics in a checkpoint."""
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.startswith("parameters-"):
            tensors.update(tensors_of(os.path.join(folder, name)))
    return {name: tensors[name] for name in names}


def check_against(bench, kind, *options):
    count = 0
    for case in CASES:
        for run in recorded(case, "statistics.json"):
            for plan in bench.plans:
                what, expected = f"{case}, {run['units']} units, {run['accumulate']} micro-batches, {plan}", run[kind]
                checkpoints = os.path.join(bench.work, f"checkpoints-{count}")
                bench.compile(case, plan, run, *options)
                metrics = bench.train(case, len(expected["loss"]), "--checkpoint-dir", checkpoints)
                for key in ("loss", "grad_norm"):
                    ours = [line[key] for line in metrics if "loss" in line]
                    for step, (mine, theirs) in enumerate(zip(ours, expected[key])):
                        compare(f"{what}, step {step + 1}: {key}", mine, theirs, abs(theirs))
                compare(f"{what}: evaluation", metrics[-1]["eval_loss"], expected["eval_loss"], expected["eval_loss"])
                kept = statistics_of(f"{checkpoints}/step-{len(expected['loss'])}", expected["running"])
                for name, theirs in expected["running"].items():
                    for mine, value in zip(kept[name], theirs) if len(kept[name]) == len(theirs) else []: # not a part
                        compare(f"{what}: {name}", mine, value, max(map(abs, theirs)))
                count += 1
    return f"{count} runs as PyTorch's"


def check_own(bench):
    return check_against(bench, "own")


def check_shared(bench):
    """In f64: over few samples rounding to f32 grows from step to step."""
    return check_against(bench, "shared", "--sync-batch-norm", "--dtype", "f64")


def check_resumed(bench):
    for plan in bench.plans:
        bench.compile("cnn_bn", plan, {"units": 2, "accumulate": 2})
        whole = bench.train("cnn_bn", 4, "--eval-every", "2", "--checkpoint-dir", os.path.join(bench.work, f"whole {plan}"))
        parts = ["--checkpoint-dir", os.path.join(bench.work, f"parts {plan}")]
        found = bench.train("cnn_bn", 2, *parts)[-1:] + bench.train("cnn_bn", 4, *parts, "--resume", "latest")[-1:]
        if found != [line for line in whole if "eval_loss" in line]:
            raise Failed(f"{plan}: {found}, not stopped {whole}")
    return "the same bits"


CHECKS = {name[6:]: check for name, check in list(globals().items()) if name.startswith("check_") and name != "check_against"}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--target", default="c", choices=COMM)
    parser.add_argument("--plans", default=" ".join(PLANS), help="their names: rankc_plans.py")
    parser.add_argument("checks", nargs="*", default=list(CHECKS))
    options = parser.parse_args()
    return report((name, lambda work, name=name: CHECKS[name](Bench(options, work))) for name in options.checks)


if __name__ == "__main__":
    sys.exit(main())
