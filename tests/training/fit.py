#!/usr/bin/python3
"""Training from C through the typed struct of model.h: samples/train/fit.c against PyTorch's recorded losses, and batch.c.

    fit.py --rankc RANKC [--target c|cuda] [CHECK...]

The sample trains 20 steps: losses, gradient norms and learning rates are PyTorch's in f64 within 1e-5, as in train.py. A run that is
stopped after 8 steps and goes on from its checkpoint prints the same lines. batch.c shows what each rank is given, and outputs.c
outputs beside the loss."""
import functools
import glob
import os
import re
import shutil
import sys

from harness import COMM, HERE, Failed, call, expect, folder_of, model_of, needed, parser_of, plan_of, recorded, report
from nonfinite import flags

with needed():
    import onnx

BOUND = 1e-5
ROOT = os.path.dirname(os.path.dirname(HERE))
SAMPLE = os.path.join(ROOT, "samples", "train", "fit.c")
RANKS, OUTPUTS = os.path.join(HERE, "batch.c"), os.path.join(HERE, "outputs.c")
# Plan, micro-batches of a unit, options.
CASES = [("one", 1, []), ("one", 4, []), ("tp2", 4, []), ("dp3", 4, ["--use-zero", "3"]),
         ("data2dp2", 1, ["--use-zero", "1"]), ("tp2pp2dp2", 4, ["--use-zero", "2"]),
         ("pp2", 4, ["--schedule", "interleaved"]), ("pp2", 4, ["--schedule", "zb-h1"])]
# Plan, options, ranks that compute the loss, the logits, and the first layer.
GIVEN = [("one", [], "1 1 1"), ("tp2pp2", [], "2 2 2"),
         ("pp2", ["--schedule", "interleaved"], "1 1 1"), ("pp2", ["--schedule", "zb-v"], "1 1 1"), ("pp2", ["--schedule", "gpipe"], "1 1 1")]
LINE = re.compile(r"step (\d+): loss (\S+), gradient norm (\S+), learning rate (\S+)")


def add_outputs(model):
    """Writes GPT-2 with two more outputs: the logits, and what attention adds in the first layer."""
    made = onnx.load(model_of("gpt2"))
    for name in ("/model/lm_head/MatMul_output_0", "/model/transformer/h.0/attn/c_proj/Reshape_1_output_0"):
        made.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    onnx.save(made, model)


def model_parts(rankc, target, code):
    """What a program is linked with to have the model: sources, or what make builds of them for GPUs."""
    if target == "c":
        return [os.path.join(code, "model.c"), *sorted(glob.glob(os.path.join(code, "rank_*.c"))), *flags(rankc)]
    include = next(flag for flag in flags(rankc) if flag.startswith("-I"))
    call("make", "-s", "-C", code, "build/model.a", f"RANKC_CFLAGS={include}")
    return [os.path.join(code, "build", "model.a"), *flags(rankc), "-lstdc++", "-lgomp"]


def build(rankc, target, source, plan, accumulate, options, work):
    """Compiles the recorded GPT-2 as gpt2, and the program with it; the directory of the first and the path of the second."""
    reference = recorded("gpt2")
    model, program = os.path.join(work, "gpt2.onnx"), os.path.join(work, "program")
    if not os.path.exists(model):
        shutil.copy(model_of("gpt2"), model)
    call(rankc, "compile", model, "-o", work, "-q", "--no-build", "--train", "--target", target, *plan_of(plan).options, "--accumulate", accumulate,
         "--optimizer", reference["optimizer"], "--clip-grad-norm", reference["clip_grad_norm"], *options)
    code = os.path.join(work, "gpt2", "_")
    call("cc", "-O0", "-Wall", "-Werror", "-I", code, "-I", ROOT, source, *model_parts(rankc, target, code), "-o", program)
    return code, program


def data_files():
    return [os.path.join(folder_of("gpt2"), f"{name}.npy") for name in ("input_ids", "labels")]


def train(built, steps, units, *checkpoints):
    return call(built[1], built[0], str(steps), *data_files(), str(units), *checkpoints).stdout.splitlines()


def check_pytorch(lines, expected):
    """Largest relative difference."""
    worst = 0
    expect(len(lines) == len(expected["loss"]), f"{len(lines)} steps")
    for number, line in enumerate(lines):
        step, *found = LINE.fullmatch(line).groups()
        expect(int(step) == number + 1, f"step {step} is line {number + 1}")
        for key, ours in zip(("loss", "grad_norm", "lr"), map(float, found)):
            value = expected[key][number]
            worst = max(worst, abs(ours - value) / abs(value))
            if not worst <= BOUND:
                raise Failed(f"step {step}: {key} {ours}, PyTorch {value}")
    return worst


def check(rankc, target, plan, accumulate, options, work):
    units, checkpoints = plan_of(plan).units, os.path.join(work, "checkpoints")
    built = build(rankc, target, SAMPLE, plan, accumulate, options, work)
    lines = train(built, 20, units)
    worst = check_pytorch(lines, recorded("gpt2")["steps"][str(units * accumulate)]["f64"])
    expect(train(built, 8, units, checkpoints) + train(built, 20, units, checkpoints) == lines, "a run that goes on prints other lines")
    return f"{worst:.1e}"


def check_ranks(rankc, target, work):
    plan = "tp2pp2dp2"
    code, program = build(rankc, target, RANKS, plan, 4, ["--use-zero", "3"], work)
    call("cc", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", code, "-I", ROOT, SAMPLE, RANKS, *flags(rankc))
    return call(program, code, *data_files()).stdout.strip()


def check_outputs(rankc, target, plan, options, expected, work):
    add_outputs(os.path.join(work, "gpt2.onnx"))
    code, program = build(rankc, target, OUTPUTS, plan, 4, options, work)
    ranks = plan_of(plan).ranks
    said = call(program, code, str(ranks), *data_files()).stdout.strip()
    expect(said == f"{expected} of {ranks} ranks, 0 wrong", said)
    return said


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--target", default="c", choices=COMM)
    parser.add_argument("checks", nargs="*", help="their names; else all")
    options = parser.parse_args()
    checks = [(" ".join([plan, str(accumulate), *further]), check, (plan, accumulate, further)) for plan, accumulate, further in CASES]
    checks.append(("ranks", check_ranks, ()))
    checks += [(" ".join(["outputs", plan, *further]), check_outputs, (plan, further, given)) for plan, further, given in GIVEN]
    unknown = set(options.checks) - {name for name, *_ in checks}
    if unknown:
        parser.error(f"no such check: {unknown}")
    return report((name, functools.partial(function, options.rankc, options.target, *arguments))
                  for name, function, arguments in checks if not options.checks or name in options.checks)


if __name__ == "__main__":
    sys.exit(main())
