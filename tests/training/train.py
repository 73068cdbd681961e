#!/usr/bin/python3
"""Trains the recorded models under plans and compares every step with PyTorch's (record.py).

    train.py --rankc RANKC [--plans PLAN,...] [CASE...]

Losses, gradient norms and learning rates are within 1e-5 of PyTorch's in f64 at every step, whatever the plan, which `rankc
verify` proves. A plan is "policy@units"; each unit has 1 or 4 micro-batches a step."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = ["mlp", "mlp_nesterov", "mlp_adagrad", "mlp_cosine", "mlp_linear", "mlp_annealed", "cnn", "vit", "gpt2", "llama"]
PLANS = ["dp@1", "dp@2", "dp@3", "tp:tensor=2@1", "tp:tensor=4@1", "data:data=2@1",
         "hybrid:tensor=2,data=2@1", "tp:tensor=2@2"]
ACCUMULATE, BOUND = (1, 4), 1e-5


class Wrong(Exception):
    pass


def call(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise Wrong(f"exit {done.returncode}: {' '.join(command)}\n{done.stderr.strip()}")


def ranks_of(policy):
    product = 1
    for axis in policy.partition(":")[2].split(","):
        product *= int(axis.partition("=")[2] or 1)
    return product


def train(rankc, case, policy, units, accumulate, reference, work):
    folder, out, log = os.path.join(HERE, case), os.path.join(work, "out"), os.path.join(work, "log.jsonl")
    clip = ["--clip-grad-norm", str(reference["clip_grad_norm"])] if reference["clip_grad_norm"] else []
    call(rankc, "compile", os.path.join(folder, "model.onnx"), "-o", out, "-q", "--reuse", "override", "--train", "--pas", policy,
         "--runtime-ngpus", str(ranks_of(policy) * units), "--optimizer", reference["optimizer"],
         "--accumulate", str(accumulate), *clip, *reference["options"])
    call(rankc, "verify", out, "-q")
    data = [word for name in reference["inputs"] for word in ("--data", f"{name}={folder}/{name}.npy")]
    steps = len(next(iter(reference["steps"].values()))["f32"]["loss"])
    call(rankc, "train", out, *data, "--steps", str(steps), "--log", log, "--threads", "1")
    with open(log) as lines:
        return [json.loads(line) for line in lines]


def check(rankc, case, plan, work):
    """Largest relative difference of any step."""
    with open(os.path.join(HERE, case, "reference.json")) as file:
        reference = json.load(file)
    policy, _, units = plan.partition("@")
    worst = 0
    for accumulate in ACCUMULATE:
        micro_batches = int(units) * accumulate
        expected = reference["steps"][str(micro_batches)]["f64"]
        metrics = train(rankc, case, policy, int(units), accumulate, reference, work)
        for key in ("loss", "grad_norm", "lr"):
            if len(metrics) != len(expected[key]):
                raise Wrong(f"{len(metrics)} steps")
            for step, (line, value) in enumerate(zip(metrics, expected[key])):
                difference = abs(line[key] - value) / abs(value) if value else abs(line[key])
                worst = max(worst, difference)
                if not difference <= BOUND:
                    raise Wrong(f"step {step + 1} of {micro_batches} micro-batches: {key} {line[key]}, PyTorch {value}")
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--plans", default=";".join(PLANS), help="separated by semicolons")
    parser.add_argument("cases", nargs="*", default=CASES)
    options = parser.parse_args()
    failed = 0
    for case in options.cases:
        for plan in options.plans.split(";"):
            with tempfile.TemporaryDirectory(prefix="rankc-train-") as work:
                try:
                    print(f"{case} {plan}: {check(options.rankc, case, plan, work):.1e}", flush=True)
                except Wrong as wrong:
                    failed += 1
                    print(f"{case} {plan}: FAILED: {wrong}", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
