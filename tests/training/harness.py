"""What the training tests share: calls of rankc, what was recorded of a case and what a run logs, and the report."""
import json
import math
import os
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
COMM = {"c": [], "cuda": ["--comm", "loopback"]} # how ranks of a target communicate here: on one GPU they are threads


class Wrong(Exception):
    """A check failed: why."""


def expect(condition, text):
    if not condition:
        raise Wrong(text)


def call(*command, status=0, env=None, timeout=300):
    """Runs a command, which is to exit so; None: however it likes."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env={**os.environ, **(env or {})})
    if status is not None and done.returncode != status:
        raise Wrong(f"exit {done.returncode}, not {status}: {' '.join(command)}\n{done.stderr.strip()}")
    return done


def folder_of(case):
    return os.path.join(HERE, case)


def model_of(case):
    return os.path.join(HERE, case, "model.onnx")


def recorded(case, name="reference.json"):
    with open(os.path.join(HERE, case, name)) as file:
        return json.load(file)


def data_of(case, inputs, option="--data"):
    return [word for name in inputs for word in (option, f"{name}={folder_of(case)}/{name}.npy")]


def lines_of(log):
    """The metrics, an object per line."""
    with open(log) as lines:
        return [json.loads(line) for line in lines]


def ranks_of(policy):
    """Of one unit. The mesh of "manual:FILE" is in the file. An axis may be of some stages alone: tensor=2@0-1."""
    axes = policy.partition(":")[2].split(",")
    if policy.startswith("manual:"):
        with open(policy.partition(":")[2], encoding="utf-8") as rules:
            axes = next(line for line in rules if line.startswith("mesh ")).split()[1:]
    everywhere, pipeline, some = 1, 1, []
    for axis in axes:
        name, _, size = axis.partition("=")
        size, _, stages = size.partition("@")
        if not size.isdigit() or name == "capacity": # attention=heads is no axis either
            continue
        if stages:
            some.append((int(size), int(stages.split("-")[0]), int(stages.split("-")[-1])))
        elif name == "pipeline":
            pipeline = int(size)
        else:
            everywhere *= int(size)
    return sum(everywhere * math.prod(size for size, first, last in some if first <= stage <= last) for stage in range(pipeline))


def split_plan(plan):
    """ "policy@units" as the policy and the number of units."""
    policy, _, units = plan.rpartition("@")
    return policy, int(units)


def compile_case(rankc, case, plan, accumulate, out, options=None, optimizer=None, target="c"):
    """Compiles a recorded case under "policy@units", and proves the plan; `options` and `optimizer` in place of its own."""
    policy, units = split_plan(plan)
    reference = recorded(case)
    clip = ["--clip-grad-norm", str(reference["clip_grad_norm"])] if reference["clip_grad_norm"] else []
    call(rankc, "compile", model_of(case), "-o", out, "-q", "--reuse", "override", "--train", "--pas", policy, "--target", target, "--runtime-ngpus",
         str(ranks_of(policy) * units), "--optimizer", optimizer or reference["optimizer"], "--accumulate", str(accumulate), *clip,
         *(reference["options"] if options is None else options))
    call(rankc, "verify", out, "-q")


def report(checks):
    """Runs (name, function of a work directory), prints what each returns or why it failed; whether any did."""
    failed = 0
    for name, check in checks:
        with tempfile.TemporaryDirectory(prefix="rankc-check-") as work:
            try:
                said = check(work)
            except Wrong as wrong:
                failed += 1
                said = f"FAILED: {wrong}"
        print(f"{name}: {said}", flush=True)
    return failed > 0
