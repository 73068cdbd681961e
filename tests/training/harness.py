"""What the training tests share: what was recorded of a case, what a run logs, and compiling a case under a plan."""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, ".."))
from rankc_plans import names_of, plan_of, ranks_of # noqa: E402, F401
from rankc_test import (COMPILER, Bench, Failed, bound_of, call, dims_of, expect, given, json_of, manifest_of, needed, # noqa: E402, F401
                        parser_of, rankc_of, read_json, report, skip)

COMM = {"c": [], "cuda": ["--comm", "loopback"]} # how ranks of a target communicate here: on one GPU they are threads
SAMPLES = 14  # of a case of record.py


def folder_of(case):
    return os.path.join(HERE, case)


def model_of(case):
    return os.path.join(HERE, case, "model.onnx")


def recorded(case, name="reference.json"):
    return read_json(HERE, case, name)


def data_of(case, inputs, option="--data"):
    return [word for name in inputs for word in (option, f"{name}={folder_of(case)}/{name}.npy")]


def whole_micro_batches(out):
    """--eval-steps that take what record.py evaluates: the whole micro-batches of its samples."""
    return ["--eval-steps", str(SAMPLES // manifest_of(out)["inputs"][0]["shape"][0])]


def lines_of(log):
    """The metrics, an object per line."""
    with open(log) as lines:
        return [json.loads(line) for line in lines]


def compile_case(rankc, case, plan, accumulate, out, options=None, optimizer=None, target="c"):
    """Compiles a recorded case under a plan, and proves the plan; `options` and `optimizer` in place of its own."""
    reference = recorded(case)
    clip = ["--clip-grad-norm", str(reference["clip_grad_norm"])] if reference["clip_grad_norm"] else []
    call(rankc, "compile", model_of(case), "-o", out, "-q", "--reuse", "override", "--train", "--target", target, *plan_of(plan).options,
         "--optimizer", optimizer or reference["optimizer"], "--accumulate", accumulate, *clip,
         *(reference["options"] if options is None else options))
    call(rankc, "verify", out, "-q")
