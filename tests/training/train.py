#!/usr/bin/python3
"""Trains the recorded models under plans and compares every step with PyTorch's (record.py).

    train.py --rankc RANKC [--target c|cuda] [--options "OPTION..."] [--plans PLAN;...] [--table FILE] [CASE...]

A case is a name, or a directory that record.py or record_transformers.py wrote.

Losses, gradient norms and learning rates are within 1e-5 of PyTorch's in f64 at every step, whatever the plan, which `rankc
verify` proves. So is the loss in evaluation after the last step, and so are running statistics, where the case has them and
there is one unit: others have statistics of their own. A plan is "policy@units"; each unit has 1 or 4 micro-batches a step, or
what --accumulate says."""
import functools
import glob
import json
import os
import struct
import sys

from harness import COMM, Failed, call, compile_case, data_of, lines_of, names_of, parser_of, plan_of, recorded, report, \
    whole_micro_batches

CASES = ["mlp", "mlp_nesterov", "mlp_adagrad", "mlp_cosine", "mlp_linear", "mlp_annealed", "mlp_dropout", "mlp_batch_norm", "cnn", "cnn_bn",
         "cnn_bn_13", "resnet", "vit", "recurrent", "bert", "gpt2", "llama"]
PLANS = ["one", "dp2", "dp3", "tp2", "tp4", "data2",
         "tp2data2", "tp2dp2"]
BOUND = 1e-5


def train(rankc, target, options, case, plan, accumulate, reference, work):
    out, log = os.path.join(work, "out"), os.path.join(work, "log.jsonl")
    compile_case(rankc, case, plan, accumulate, out, reference["options"] + options, target=target)
    data = data_of(case, reference["inputs"])
    steps = len(next(iter(reference["steps"].values()))["f32"]["loss"])
    if "eval_loss" in next(iter(reference["steps"].values()))["f64"]:
        data += data_of(case, reference["inputs"], "--eval-data")
        data += [*whole_micro_batches(out), "--eval-every", str(steps), "--checkpoint-dir", os.path.join(work, f"checkpoints{accumulate}")]
    call(rankc, "train", out, *data, "--steps", str(steps), "--log", log, "--threads", "1", *COMM[target])
    return lines_of(log)


def tensors_of(path):
    """The f32 and f64 tensors of a safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    header.pop("__metadata__", None)
    types = {"F32": (4, "f"), "F64": (8, "d")}
    return {name: struct.unpack(f"<{(e['data_offsets'][1] - e['data_offsets'][0]) // types[e['dtype']][0]}{types[e['dtype']][1]}",
                                data[slice(*e["data_offsets"])]) for name, e in header.items()}


def kept(work, accumulate):
    """What the last checkpoint has of the parameters."""
    tensors = {}
    for path in glob.glob(os.path.join(work, f"checkpoints{accumulate}", "step-*", "parameters-*.safetensors")):
        tensors.update(tensors_of(path))
    return tensors


def differences(metrics, expected, whole, tensors):
    """What is compared: the name, our number, PyTorch's, and what the difference is relative to."""
    steps = [line for line in metrics if "loss" in line]
    for key in ("loss", "grad_norm", "lr"):
        if len(steps) != len(expected[key]):
            raise Failed(f"{len(steps)} steps")
        for step, (line, value) in enumerate(zip(steps, expected[key])):
            yield f"step {step + 1}: {key}", line[key], value, value
    if "eval_loss" not in expected or (expected["running"] and not whole):
        return
    loss = [line["eval_loss"] for line in metrics if "eval_loss" in line][-1]
    yield "evaluation", loss, expected["eval_loss"], expected["eval_loss"]
    for name, values in expected["running"].items():
        found = tensors[name]
        if len(found) == len(values):  # not a part
            yield from ((f"{name}[{i}]", a, b, max(map(abs, values))) for i, (a, b) in enumerate(zip(found, values)))


def check(rankc, target, options, case, plan, work, counts=(1, 4)):
    """Largest relative difference of any step; counts: of micro-batches a unit has per step."""
    reference, units, worst = recorded(case), plan_of(plan).units, 0
    for accumulate in counts:
        micro_batches = units * accumulate
        expected = reference["steps"][str(micro_batches)]["f64"]
        metrics = train(rankc, target, options, case, plan, accumulate, reference, work)
        for name, ours, value, scale in differences(metrics, expected, units == 1, kept(work, accumulate)):
            difference = abs(ours - value) / (abs(scale) or 1)
            worst = max(worst, difference)
            if not difference <= BOUND:
                raise Failed(f"{micro_batches} micro-batches: {name} {ours}, PyTorch {value}")
    return f"{worst:.1e}"


def own_distance(case):
    """Largest relative difference between PyTorch's losses and norms in f32 and in f64."""
    return max(abs(a - b) / abs(b) for runs in recorded(case)["steps"].values() for key in ("loss", "grad_norm")
               for a, b in zip(runs["f32"][key], runs["f64"][key]) if b)


def write_table(path, cases, plans, results):
    with open(path, "w") as table:
        table.write("# Models in training\n\nWritten by `tests/training/train.py --table`. Every entry is the largest relative "
                    "difference of a loss\nor gradient norm from PyTorch's in f64, in 20 steps with 1 and with 4 micro-batches; "
                    f"at most {BOUND:g} is\nallowed. The last column is PyTorch in f32.\n\n"
                    f"| model | {' | '.join(plans)} | PyTorch |\n|{'---|' * (len(plans) + 2)}\n")
        for case in cases:
            cells = " | ".join(results.get((case, plan), "**above**") for plan in plans)
            table.write(f"| {os.path.basename(case.rstrip('/'))} | {cells} | {own_distance(case):.1e} |\n")


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--target", default="c", choices=COMM)
    parser.add_argument("--options", default="", help="further ones of `rankc compile`")
    parser.add_argument("--plans", default=" ".join(PLANS), help="their names: rankc_plans.py")
    parser.add_argument("--accumulate", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--table", help="where to write a table of the results")
    parser.add_argument("cases", nargs="*", default=CASES)
    options = parser.parse_args()
    plans, results = names_of(options.plans), {}

    def run(case, plan, work):
        results[case, plan] = check(options.rankc, options.target, options.options.split(), case, plan, work, options.accumulate)
        return results[case, plan]

    failed = report((f"{case} {plan}", functools.partial(run, case, plan)) for case in options.cases for plan in plans)
    if options.table:
        write_table(options.table, options.cases, plans, results)
    return failed


if __name__ == "__main__":
    sys.exit(main())
