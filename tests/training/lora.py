#!/usr/bin/python3
"""Trains adapters of the models that record_lora.py recorded, and compares every step, and the adapters after the last, with peft's.

    lora.py --rankc RANKC [--plans PLAN;...] [--options "OPTION..."] [--only "CHECK..."] [--references DIR] [--table FILE] [MODEL/CASE...]

Losses, gradient norms and adapters are within 1e-5 of peft's in f64, whatever the plan, which `rankc verify` proves. Of an adapter
the difference is relative to the largest magnitude in its matrix. The adapters begin as peft's (--adapter), and are compared as
`rankc ckpt to-peft` writes them. With the adapters that peft trained, logits are within 1e-5 of peft's, too. Some cases are trained
beside a base in fewer bits as well, which peft has dequantised, and of integers also with --amp. With --table the cases are all in
DIR, and only trained."""
import functools
import os
import re
import sys

from harness import HERE, Failed, call, expect, lines_of, names_of, needed, parser_of, plan_of, read_json, report
from train import tensors_of

with needed():
    import numpy as np

CASES = ["gpt2/attention", "gpt2/all", "gpt2/embedding", "llama/attention", "llama/all", "bert/attention", "bert/embedding", "vit/attention",
         "experts/experts", "tied/logits", "mixtral/stacks", "mixtral/down", "mixtral/router", "stacks/stacks", "nested/own"]
PLANS = ["one", "dp2", "tp2", "pp2", "dp2+use-zero=3", "tp2dp2+use-zero=2", "tp2pp2"]
BOUND = 1e-5
ROOT = os.path.join(HERE, "lora")
HEAD = """# Adapters beside peft's

Models of the tests with low-rank adapters on the products of attention and on all, with an r of 4 and of 8, trained for 20 steps of AdamW
by rankc and by peft in f64, from the same adapters. A cell is the largest relative difference of a loss, of a gradient norm, and of a
value of the adapters after the last step to the largest of its matrix. `frozen`: losses and norms beside a base of 4 bits, which PyTorch
has dequantised. `rankc verify` proves every plan. The bound is 1e-5.

Written by `tests/training/lora.py --references DIR/lora --table FILE --plans "PLAN .."`, from what
`tests/training/record_lora.py --out DIR --grid` records. The plans are words of `tests/rankc_plans.py`: tp4 and pp2 are 4 ranks of tensor
parallelism and 2 of pipeline parallelism, dp2 are 2 scale units.

"""
SAME = ("peft_type", "lora_dropout", "use_rslora", "bias")
OWN = {"r": "rank_pattern", "lora_alpha": "alpha_pattern"}


def folder_of(case):
    return os.path.join(ROOT, *case.split("/"))


def input_of(case):
    return "pixel_values" if case.startswith("vit/") else "input_ids"


def train(rankc, options, case, plan, accumulate, reference, work):
    model, out, log = os.path.dirname(folder_of(case)), os.path.join(work, "out"), os.path.join(work, "log.jsonl")
    call(rankc, "compile", f"{model}/model.onnx", "-o", out, "-q", "--train", "--loss", "cross_entropy:logits=logits,labels=labels",
         "--adapter", f"{folder_of(case)}/start", "--optimizer", reference["optimizer"], "--accumulate", accumulate,
         "--clip-grad-norm", reference["clip_grad_norm"], *plan_of(plan).options, *options)
    call(rankc, "verify", out, "-q")
    data = [word for name in (input_of(case), "labels") for word in ("--data", f"{name}={model}/{name}.npy")]
    steps = len(reference["cases"][case.split("/")[1]]["steps"]["1"]["loss"])
    call(rankc, "train", out, *data, "--steps", steps, "--log", log, "--threads", 1, "--checkpoint-dir", f"{work}/checkpoints")
    call(rankc, "ckpt", "to-peft", f"{work}/checkpoints", f"{work}/trained", "-q")
    return lines_of(log), tensors_of(f"{work}/trained/adapter_model.safetensors")


def step_differences(metrics, expected):
    for key in ("loss", "grad_norm"):
        ours = [line[key] for line in metrics if "loss" in line]
        expect(len(ours) == len(expected[key]), f"{len(ours)} steps")
        yield from ((f"step {step + 1}: {key}", a, b, b) for step, (a, b) in enumerate(zip(ours, expected[key])))


def differences(metrics, tensors, expected, trained):
    yield from step_differences(metrics, expected)
    expect(sorted(tensors) == sorted(trained), f"trained are {sorted(tensors)}")
    for name, values in tensors.items():
        theirs = trained[name]
        expect(len(theirs) == len(values), f"{name} has {len(values)} values")
        yield from ((f"{name}[{i}]", a, b, max(map(abs, theirs))) for i, (a, b) in enumerate(zip(values, theirs)))


def worst_of(differences):
    worst = 0
    for name, ours, theirs, scale in differences:
        worst = max(worst, abs(ours - theirs) / abs(scale))
        if not abs(ours - theirs) <= BOUND * abs(scale):
            raise Failed(f"{name} {ours}, peft {theirs}")
    return f"{worst:.1e}"


def reference_of_model(model):
    return read_json(ROOT, model, "reference.json")


def reference_of(case, plan):
    """Of a case: what was recorded of its model, of itself, the micro-batches that a rank accumulates, and those of a step."""
    reference = reference_of_model(case.split("/")[0])
    accumulate = 2 if "pp" in plan else 1
    return reference, reference["cases"][case.split("/")[1]], accumulate, plan_of(plan).units * accumulate


def said_of(config, tensors):
    """What a configuration says of all modules and of each, as peft finds it."""
    modules = {name.removeprefix("base_model.model.").rpartition(".lora_")[0] for name in tensors}
    own = {(module, key): next((value for name, value in config[pattern].items() if re.match(rf"(.*\.)?({name})$", module)), config[key])
           for module in modules for key, pattern in OWN.items()}
    return {**{key: config[key] for key in SAME}, **own}


def check_frozen(rankc, options, case, plan, work):
    """Beside a base in fewer bits."""
    reference, recorded, accumulate, count = reference_of(case, plan)
    frozen = recorded["frozen"]
    metrics, _ = train(rankc, [*options, "--weight-dtype", frozen["weight_dtype"]], case, plan, accumulate, reference, work)
    return worst_of(step_differences(metrics, frozen["steps"][str(count)]))


def check_autocast(rankc, options, case, plan, work):
    """The same with --amp bf16: losses and norms differ from those in f64 at most twice as much as those of PyTorch's autocast do, of
    any number of micro-batches."""
    reference, recorded, accumulate, count = reference_of(case, plan)
    frozen, worst = recorded["frozen"], 0
    metrics, _ = train(rankc, [*options, "--weight-dtype", frozen["weight_dtype"], "--amp", "bf16"], case, plan, accumulate, reference, work)
    for key in ("loss", "grad_norm"):
        apart = {n: max(abs(a - b) for a, b in zip(run[key], frozen["steps"][n][key])) for n, run in frozen["autocast"].items()}
        ours = max(abs(a - b) for name, a, b, _ in step_differences(metrics, frozen["steps"][str(count)]) if name.endswith(key))
        worst = max(worst, ours / max(apart.values()))
    expect(worst <= 2, f"differs by {worst} times as much as autocast")
    return f"{worst:.2f} times autocast's difference"


def check(rankc, options, case, plan, work):
    reference, recorded, accumulate, count = reference_of(case, plan)
    metrics, tensors = train(rankc, options, case, plan, accumulate, reference, work)
    trained = tensors_of(f"{folder_of(case)}/trained-{count}/adapter_model.safetensors")
    worst = worst_of(differences(metrics, tensors, recorded["steps"][str(count)], trained))
    ours, theirs = (read_json(folder, "adapter_config.json") for folder in (f"{work}/trained", f"{folder_of(case)}/trained-1"))
    expect(said_of(ours, tensors) == said_of(theirs, tensors), f"adapter_config.json: {ours}")
    return worst


def infer(rankc, case, plan, merge, work):
    """The logits with adapters that peft trained are those of peft, beside the weights or merged into them."""
    model, out = os.path.dirname(folder_of(case)), os.path.join(work, "out")
    np.save(f"{work}/x.npy", np.load(f"{model}/{input_of(case)}.npy")[:2])
    call(rankc, "compile", f"{model}/model.onnx", "-o", out, "-q", "--adapter", f"{folder_of(case)}/trained-1{merge}", *plan_of(plan).options)
    call(rankc, "verify", out, "-q")
    call(rankc, "run", out, "--input", f"{input_of(case)}={work}/x.npy", "--output-dir", f"{work}/outputs", "-q")
    ours, theirs = np.load(f"{work}/outputs/logits.npy"), np.load(f"{folder_of(case)}/logits.npy")
    expect(abs(ours - theirs).max() <= BOUND * abs(theirs).max(), f"logits differ by {abs(ours - theirs).max()}")
    return f"{abs(ours - theirs).max() / abs(theirs).max():.1e}"


def write_table(path, plans, results):
    with open(path, "w", encoding="utf-8") as table:
        table.write(HEAD + "| case | " + " | ".join(plans) + " |\n|---|" + "---|" * len(plans) + "\n")
        for case in dict.fromkeys(case for case, _ in results):
            table.write(f"| {case} | " + " | ".join(results[case, plan] for plan in plans) + " |\n")


def main():
    global ROOT
    parser = parser_of(__doc__)
    parser.add_argument("--references", default=ROOT, help="a directory of record_lora.py")
    parser.add_argument("--table", help="where to write a table of the differences")
    parser.add_argument("--options", default="", help="further ones of `rankc compile`")
    parser.add_argument("--plans", default=" ".join(PLANS), help="their names: rankc_plans.py")
    parser.add_argument("--only", default="", help="checks of these words: frozen, autocast, inference")
    parser.add_argument("cases", nargs="*", default=CASES)
    options = parser.parse_args()
    ROOT = os.path.abspath(options.references)
    cases, plans, more, results = options.cases, names_of(options.plans), options.options.split(), {}
    if options.table:
        cases = [f"{model}/{case}" for model in sorted(os.listdir(ROOT)) for case in reference_of_model(model)["cases"]]

    def kept(case, plan, function):
        def run(work):
            results[case, plan] = "failed"
            results[case, plan] = function(options.rankc, more, case.split(" ")[0], plan, work)
            return results[case, plan]
        return f"{case} {plan}", run

    checks = [(case, check) for case in cases] + [(f"{case} frozen", check_frozen)
                                                  for case in cases if "frozen" in reference_of(case, "one")[1]]
    checks += [(f"{case} autocast", check_autocast) for case in cases
               if not options.table and "autocast" in reference_of(case, "one")[1].get("frozen", {})]
    trained = [kept(case, plan, function) for case, function in checks for plan in plans]
    inferred = [(f"{case} {plan} inference{merge}", functools.partial(infer, options.rankc, case, plan, merge))
                for case in cases for plan in ("one", "tp2") for merge in ("", ":merge") if not options.table]
    only = set(options.only.split())
    failed = report([check for check in trained + inferred if not only or only & set(check[0].split())])
    if options.table:
        write_table(options.table, plans, results)
    return failed


if __name__ == "__main__":
    sys.exit(main())
