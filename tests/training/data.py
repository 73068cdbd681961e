#!/usr/bin/python3
"""Labels that do not all count, and documents one behind the other: against what record_data.py recorded of PyTorch.

    data.py --rankc RANKC [--plans PLAN;...] [--options "OPTION..."] [MODEL/CASE...]

Losses and gradient norms of every step, and the loss in evaluation after the last, are within 1e-5 of PyTorch's in f64, whatever
the plan, which `rankc verify` proves. A step has four micro-batches, which the plan's units share. The last micro-batch of the
evaluation has one sample, and the others two."""
import functools
import os
import sys

from harness import HERE, Failed, call, expect, lines_of, names_of, parser_of, plan_of, read_json, report

CASES = [f"{model}/{case}" for model in ("gpt2", "llama") for case in ("tokens", "weighted", "padding", "packed")]
PLANS = ["one", "dp4", "data2", "context2", "tp2dp2", "pp2", "dp2+use-zero=3", "tp2pp2dp2"]
BOUND, MICRO_BATCHES = 1e-5, 4
INPUTS = ("input_ids", "position_ids", "labels")


def train(rankc, options, model, case, plan, reference, work):
    out, log = os.path.join(work, "out"), os.path.join(work, "log.jsonl")
    weight = f",weight={model}/weights.npy" if case == "weighted" else ""
    padding = ["--param", "lm_head.weight:padding_idx=3", "--param", "*embed_tokens.weight:padding_idx=-64"]
    options = options + (padding[:2] if "gpt2" in model else padding[2:]) * (case == "padding")
    samples = os.path.join(model, "packed" if case == "packed" else "tokens")
    call(rankc, "compile", f"{model}/model.onnx", "-o", out, "-q", "--train", "--loss",
         f"cross_entropy:logits=logits,labels=labels,mean=tokens{weight}", "--optimizer", reference["optimizer"],
         "--accumulate", MICRO_BATCHES // plan_of(plan).units, "--clip-grad-norm", reference["clip_grad_norm"], *plan_of(plan).options, *options)
    call(rankc, "verify", out, "-q")
    data = [word for option, before in (("--data", ""), ("--eval-data", "eval_")) for name in INPUTS
            for word in (option, f"{name}={samples}/{before}{name}.npy")]
    steps = len(reference["cases"][case]["loss"])
    call(rankc, "train", out, *data, "--steps", steps, "--log", log, "--threads", 1)
    return lines_of(log)


def check(rankc, options, name, plan, work):
    model, case = os.path.join(HERE, "data", name.split("/")[0]), name.split("/")[1]
    reference = read_json(model, "reference.json")
    expected, worst = reference["cases"][case], 0
    lines = train(rankc, options, model, case, plan, reference, work)
    ours = {key: [line[key] for line in lines if key in line] for key in ("loss", "grad_norm", "eval_loss")}
    expect(len(ours["loss"]) == len(expected["loss"]) and len(ours["eval_loss"]) == 1, f"{lines}")
    for key in "loss", "grad_norm", "eval_loss":
        theirs = expected[key] if key != "eval_loss" else [expected[key]]
        for step, (a, b) in enumerate(zip(ours[key], theirs)):
            worst = max(worst, abs(a - b) / abs(b))
            if not abs(a - b) <= BOUND * abs(b):
                raise Failed(f"{plan}: step {step + 1}: {key} {a}, PyTorch {b}")
    return f"{worst:.1e}"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--plans", default=" ".join(PLANS), help="their names: rankc_plans.py")
    parser.add_argument("--options", default="", help="further ones of `rankc compile`")
    parser.add_argument("cases", nargs="*", default=CASES)
    options = parser.parse_args()
    return report((f"{name} {plan}", functools.partial(check, options.rankc, options.options.split(), name, plan))
                  for name in options.cases for plan in names_of(options.plans))


if __name__ == "__main__":
    sys.exit(main())
