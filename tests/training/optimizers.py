#!/usr/bin/python3
"""Trains models with the optimizers of record_optimizers.py under plans, and compares every step with PyTorch's.

    optimizers.py --rankc RANKC [--target c|cuda] [--plans PLAN;...] [OPTIMIZER...]

Losses and gradient norms are within 1e-5 of PyTorch's in f64 at every step, whatever the plan, which `rankc verify` proves. So is,
with --ema, the loss of the first micro-batch that the model has with the averages after the last step, and the evaluations of the run
and of a checkpoint, whose averages leave the steps between them as they are bit for bit. Moments in 8 bits that a run
under the plan has saved are resumed by one rank."""
import functools
import itertools
import os
import sys

from harness import (COMM, HERE, Failed, call, compile_case, data_of, expect, folder_of, json_of, lines_of, model_of, names_of, needed,
                     parser_of, plan_of, read_json, report, whole_micro_batches)
from train import BOUND, differences

with needed():
    import numpy as np

NAMES = sorted(os.path.splitext(name)[0] for name in os.listdir(os.path.join(HERE, "optimizers")))
PLANS = ["one", "dp2", "tp2", "pp2", "dp2+use-zero=1", "dp2+use-zero=3"]


def averaged_loss(rankc, model, reference, work):
    """The loss of the first micro-batch with the averages of the last checkpoint, in a program of its own."""
    call(rankc, "ckpt", "to-onnx", f"{work}/checkpoints", model_of(model), f"{work}/averaged.onnx", "--averaged", "-q")
    call(rankc, "compile", f"{work}/averaged.onnx", "-o", f"{work}/run", "-q")
    inputs = []
    for name in reference["inputs"]:
        samples = np.load(f"{folder_of(model)}/{name}.npy")
        np.save(f"{work}/{name}.npy", samples[:reference["batch"]])
        inputs += ["--input", f"{name}={work}/{name}.npy"]
    call(rankc, "run", f"{work}/run", *inputs, "--output-dir", f"{work}/out", "-q")
    return float(np.load(f"{work}/out/loss.npy"))


def evaluation_of(model, reference, out):
    return [*data_of(model, reference["inputs"], "--eval-data"), *whole_micro_batches(out)]


def steps_of(lines):
    return [(line["loss"], line["grad_norm"]) for line in lines if "loss" in line]


def check_evaluations(rankc, target, reference, out, log, work):
    """The evaluations leave the run as it is, and that of a checkpoint is that of its step."""
    model, plain, alone = reference["model"], f"{work}/plain.jsonl", f"{work}/alone.jsonl"
    words, lines = [*COMM[target], "--threads", "1", "-q"], lines_of(log)
    call(rankc, "train", out, *data_of(model, reference["inputs"]), "--steps", len(steps_of(lines)), "--log", plain, *words)
    expect(steps_of(lines) == steps_of(lines_of(plain)), "evaluations with averages change training")
    call(rankc, "train", out, *evaluation_of(model, reference, out), "--eval-only", "--checkpoint-dir", f"{work}/checkpoints", "--resume",
         "10", "--log", alone, *words)
    expect([line for line in lines if "eval_loss" in line and line["step"] == 10] == lines_of(alone), "another loss of the checkpoint")


def evaluations(log, expected):
    losses = [line["eval_loss"] for line in lines_of(log) if "eval_loss" in line]
    expect(len(losses) == len(expected), f"{len(losses)} evaluations")
    return [(f"evaluation {i}", ours, theirs, theirs) for i, (ours, theirs) in enumerate(zip(losses, expected))]


def bytes_of_states(rankc, reference, plan):
    shown = json_of(rankc, "show", model_of(reference["model"]), "--train", "--optimizer", reference["optimizer"], *reference["options"],
                    *plan_of(plan).options, "--json", "-q")
    return shown["ranks"][0]["memory"]["optimizer"]


def check_division(rankc, reference, plan):
    """Two units divide the states by ZeRO, but for those of small parameters; factors of Adafactor are all small."""
    divided, whole = (bytes_of_states(rankc, reference, text) for text in (plan, plan.split("+")[0]))
    if not reference["optimizer"].startswith("adafactor"):
        expect(whole / 2 <= divided < 0.6 * whole, f"{divided} bytes of {whole}")


def resumed(rankc, target, reference, micro_batches, expected, work):
    """What one rank computes from the middle of the run on."""
    model, out, log = reference["model"], f"{work}/one", f"{work}/resumed.jsonl"
    compile_case(rankc, model, "one", micro_batches, out, reference["options"], reference["optimizer"], target)
    call(rankc, "train", out, *data_of(model, reference["inputs"]), "--steps", "20", "--log", log, "--threads", "1", *COMM[target],
         "--checkpoint-dir", f"{work}/checkpoints", "--resume", "10")
    return differences(lines_of(log), {key: expected[key][10:] for key in ("loss", "grad_norm", "lr")}, False, {})


def check(rankc, target, name, plan, work):
    """The largest relative difference of any step."""
    reference, worst = read_json(HERE, "optimizers", f"{name}.json"), 0
    sums = "--grad-accum-dtype" in reference["options"] and plan_of(plan).units == 1
    accumulate = 2 if "pp" in plan else 4 if sums else 1
    model, out, log = reference["model"], os.path.join(work, "out"), os.path.join(work, "log.jsonl")
    compile_case(rankc, model, plan, accumulate, out, reference["options"], reference["optimizer"], target)
    if "use-zero" in plan and not ("tp" in plan and model == "mlp_blocks"):  # of whose parts small parameters are much
        check_division(rankc, reference, plan)
    expected = reference["steps"][str(plan_of(plan).units * accumulate)]["f64"]
    averages, in_blocks = "averaged_loss" in expected, "--moments-dtype" in reference["options"]
    saved = ["--checkpoint-dir", f"{work}/checkpoints", "--checkpoint-every", "10"] if averages or in_blocks else []
    evaluates = [*evaluation_of(model, reference, out), "--eval-every", "5"] if averages else []
    call(rankc, "train", out, *data_of(model, reference["inputs"]), "--steps", str(len(expected["loss"])), "--log", log, "--threads", "1",
         *COMM[target], *saved, *evaluates)
    found = differences(lines_of(log), expected, False, {})
    if averages:
        loss, theirs = averaged_loss(rankc, model, reference, work), expected["averaged_loss"]
        found = itertools.chain(found, [("averages: loss", loss, theirs, theirs)], evaluations(log, expected["averaged_eval_loss"]))
        check_evaluations(rankc, target, reference, out, log, work)
    if in_blocks:
        units = plan_of(plan).units * accumulate
        found = itertools.chain(found, resumed(rankc, target, reference, units, expected, work))
    for what, ours, theirs, scale in found:
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
