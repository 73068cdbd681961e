#!/usr/bin/python3
"""Trains adapters of the models that record_lora.py recorded, and compares every step, and the adapters after the last, with peft's.

    lora.py --rankc RANKC [--plans PLAN;...] [--options "OPTION..."] [MODEL/CASE...]

Losses, gradient norms and adapters are within 1e-5 of peft's in f64, whatever the plan, which `rankc verify` proves. Of an adapter
the difference is relative to the largest magnitude in its matrix. The adapters begin as peft's (--adapter)."""
import functools
import os
import sys

from harness import HERE, Failed, call, expect, lines_of, names_of, parser_of, plan_of, read_json, report
from train import tensors_of

CASES = ["gpt2/attention", "gpt2/all", "llama/attention", "llama/all"]
PLANS = ["one", "dp2", "tp2", "pp2", "dp2+use-zero=3", "tp2dp2+use-zero=2", "tp2pp2"]
BOUND = 1e-5
PREFIX = "base_model.model."


def folder_of(case):
    return os.path.join(HERE, "lora", *case.split("/"))


def train(rankc, options, case, plan, accumulate, reference, work):
    model, out, log = os.path.dirname(folder_of(case)), os.path.join(work, "out"), os.path.join(work, "log.jsonl")
    call(rankc, "compile", f"{model}/model.onnx", "-o", out, "-q", "--train", "--loss", "cross_entropy:logits=logits,labels=labels",
         "--adapter", f"{folder_of(case)}/start", "--optimizer", reference["optimizer"], "--accumulate", accumulate,
         "--clip-grad-norm", reference["clip_grad_norm"], *plan_of(plan).options, *options)
    call(rankc, "verify", out, "-q")
    data = [word for name in ("input_ids", "labels") for word in ("--data", f"{name}={model}/{name}.npy")]
    steps = len(reference["cases"][case.split("/")[1]]["steps"]["1"]["loss"])
    call(rankc, "train", out, *data, "--steps", steps, "--log", log, "--threads", 1, "--checkpoint-dir", f"{work}/checkpoints")
    call(rankc, "ckpt", "merge", f"{work}/checkpoints", f"{work}/trained.safetensors", "-q")
    return lines_of(log), tensors_of(f"{work}/trained.safetensors")


def differences(metrics, tensors, expected, trained):
    for key in ("loss", "grad_norm"):
        ours = [line[key] for line in metrics if "loss" in line]
        expect(len(ours) == len(expected[key]), f"{len(ours)} steps")
        yield from ((f"step {step + 1}: {key}", a, b, b) for step, (a, b) in enumerate(zip(ours, expected[key])))
    expect(sorted(PREFIX + name for name in tensors) == sorted(trained), f"trained are {sorted(tensors)}")
    for name, values in tensors.items():
        theirs = trained[PREFIX + name]
        expect(len(theirs) == len(values), f"{name} has {len(values)} values")
        yield from ((f"{name}[{i}]", a, b, max(map(abs, theirs))) for i, (a, b) in enumerate(zip(values, theirs)))


def check(rankc, options, case, plan, work):
    units, accumulate, worst = plan_of(plan).units, 2 if "pp" in plan else 1, 0
    reference = read_json(os.path.dirname(folder_of(case)), "reference.json")
    count = units * accumulate
    metrics, tensors = train(rankc, options, case, plan, accumulate, reference, work)
    expected = reference["cases"][case.split("/")[1]]["steps"][str(count)]
    trained = tensors_of(f"{folder_of(case)}/trained-{count}/adapter_model.safetensors")
    for name, ours, theirs, scale in differences(metrics, tensors, expected, trained):
        worst = max(worst, abs(ours - theirs) / abs(scale))
        if not abs(ours - theirs) <= BOUND * abs(scale):
            raise Failed(f"{name} {ours}, peft {theirs}")
    return f"{worst:.1e}"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--options", default="", help="further ones of `rankc compile`")
    parser.add_argument("--plans", default=" ".join(PLANS), help="their names: rankc_plans.py")
    parser.add_argument("cases", nargs="*", default=CASES)
    options = parser.parse_args()
    return report((f"{case} {plan}", functools.partial(check, options.rankc, options.options.split(), case, plan))
                  for case in options.cases for plan in names_of(options.plans))


if __name__ == "__main__":
    sys.exit(main())
