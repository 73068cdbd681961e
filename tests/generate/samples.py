#!/usr/bin/env python3
"""samples/generate: the loops in C and in Python, and speculation, write what PyTorch's generate() writes, on one rank and on several.

    samples.py --rankc RANKC [CHECK...]

samples.json is recorded by record_samples.py."""
import os
import re
import shutil
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import COMPILER, SOURCE, call, expect, needed, parser_of, read_json, report  # noqa: E402

with needed():
    import numpy  # noqa: F401  generate.py needs it

SAMPLE = os.path.join(SOURCE, "samples", "generate")
WRITTEN = read_json(os.path.dirname(os.path.abspath(__file__)), "samples.json")
PLANS = {"one": [], "tp": ["--pas", "tp", "--plan-ngpus", "2"], "pp": ["--pas", "pp", "--plan-ngpus", "2"]}
CAPACITY = 128


def compiled(rankc, model, out, *words):
    call(rankc, "compile", model, "--state", "auto", "--dim", "batch=1", "--dim", "sequence=1..16", "--dim", f"past=0..{CAPACITY}",
         *words, "-o", out, "-q", "--no-build")
    return os.path.join(out, os.path.basename(model)[:-len(".onnx")], "_")


def linked(work, name, include, *programs):
    """A sample's program."""
    for program in programs:
        call("make", "-s", "-C", program, "build/model.a")
    flags = call("make", "-s", "-C", programs[0], "--eval", "print:;@echo $(RANKC_CFLAGS) -- $(RANKC_LIBS)", "print").stdout.split()
    cut = flags.index("--")
    out = os.path.join(work, name)
    call(*COMPILER, "-O1", "-Wall", "-Wextra", "-Werror", "-fopenmp", "-I", include, *flags[:cut],
         os.path.join(SAMPLE, f"{name}.c"), *(os.path.join(program, "build/model.a") for program in programs), "-o", out, *flags[cut + 1:],
         cwd=programs[0])
    return out


def check_ids(*command):
    """Runs a sample with every prompt; what it prints on stderr."""
    said = []
    for written in WRITTEN:
        for count in (1, len(written["ids"])):
            done = call(*command, count, *written["prompt"])
            expect(list(map(int, done.stdout.split())) == written["ids"][:count], f"{written['prompt']}: {done.stdout.split()}")
            said.append(done.stderr)
    return said


def check_full(*command):
    """More than the caches hold is refused, in a message that names the dimension."""
    said = call(*command, CAPACITY + 1, 1, 2, status=1).stderr
    expect("past" in said and str(CAPACITY) in said, said)


def check_loop(rankc, work):
    for plan, words in PLANS.items():
        program = compiled(rankc, os.path.join(SAMPLE, "writer.onnx"), os.path.join(work, plan), *words)
        own = linked(work, "generate", program, program)
        check_ids(own, program)
        check_full(own, program)
    return f"{len(PLANS)} plans"


def check_ctypes(rankc, work):
    for plan in ("one", "tp"):
        program = compiled(rankc, os.path.join(SAMPLE, "writer.onnx"), os.path.join(work, plan), *PLANS[plan])
        call("make", "-s", "-C", program, "build/model.so")
        own = sys.executable, os.path.join(SAMPLE, "generate.py"), program
        check_ids(*own)
        check_full(*own)
    return "2 plans"


def check_speculation(rankc, work):
    """With a draft that guesses otherwise, and with one that is the model and so is always right: 5 tokens of a step."""
    for draft in ("draft", "writer"):
        model = shutil.copy(os.path.join(SAMPLE, f"{draft}.onnx"), os.path.join(work, "draft.onnx"))
        out = os.path.join(work, f"of_{draft}")
        other = compiled(rankc, model, out)
        for plan in ("one", "tp"):
            program = compiled(rankc, os.path.join(SAMPLE, "writer.onnx"), out, *PLANS[plan], "--reuse", "override")
            said = check_ids(linked(work, "speculate", out, program, other), out)
            steps = [int(re.search(r"^(\d+) steps$", text, re.M)[1]) for text in said]
            new = [count for written in WRITTEN for count in (1, len(written["ids"]))]
            least = [(count + 4) // 5 for count in new]
            expect(steps == least if draft == "writer" else all(n >= l for n, l in zip(steps, least)), f"{draft}: {steps} steps, {least}")
    return "2 drafts, 2 plans"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("checks", nargs="*")
    given = parser.parse_args()
    checks = {"loop": check_loop, "ctypes": check_ctypes, "speculation": check_speculation}
    return report([(name, lambda work, check=check: check(given.rankc, work)) for name, check in checks.items()
                   if not given.checks or name in given.checks])


sys.exit(main())
