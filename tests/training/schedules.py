#!/usr/bin/python3
"""Tables of a step other than the one that rankc fills: forward segments of several micro-batches before the first backward
segment, each with its own slot. The accumulation order is the same, so losses and norms must be equal bit for bit.

    schedules.py --rankc RANKC [--target c|cuda] [--plans "policy@units;.."] CASE

The table is written into the text IR after the last pass, which is compiled on. A run is the model's own program, under
the table that rankc fills; the others are compared with it."""
import os
import re
import shutil
import sys

from harness import COMM, call, compile_case, data_of, expect, lines_of, model_of, names_of, parser_of, plan_of, recorded, report

ACCUMULATE, STEPS = 4, 5
FILLED = re.compile(r"schedule (\d+) micro_batches=1 slots=1 repeat=0\.\.2\n(?:run .*\n){4}")


def table(head, rows):
    rows = [f"run {phase} \\1 micro={micro}\n" for phase, micro in rows]
    return f"schedule \\1 {head}\n" + "".join(rows) + "run reduce \\1\nrun update \\1\n"


TABLES = {
    # all forward segments, then all backward segments
    "gpipe": table(f"micro_batches={ACCUMULATE} slots={ACCUMULATE}",
                   [(phase, j) for phase in ("forward", "backward") for j in range(ACCUMULATE)]),
    # 1F1B on the first of three stages: two warm-up rows; forward and backward are repeated; slots go round
    "1f1b": table("micro_batches=3 slots=3 repeat=2..4",
                  [("forward", 0), ("forward", 1), ("forward", 2), ("backward", 0), ("backward", 1), ("backward", 2)]),
}


def write_text(rankc, target, case, plan, options, work):
    """Options for every compile of the text IR after the last pass, and the text, with weights in the model's file."""
    reference = recorded(case)
    words = ["--train", "--target", target, *plan_of(plan).options, "--optimizer", reference["optimizer"],
             "--accumulate", str(ACCUMULATE), *reference["options"], *options]
    if reference["clip_grad_norm"]:
        words += ["--clip-grad-norm", str(reference["clip_grad_norm"])]
    shutil.copy(model_of(case), os.path.join(work, "model.onnx"))
    text = call(rankc, "compile", model_of(case), "-q", "--dump-after", "schedule", *words).stdout
    head = re.compile(r"((?:.*\n){2}(?:mesh .*\n)?)")
    return words, head.sub(r'\1file "model.onnx"\n', text.replace(" @0+", " @1+"), count=1)


def losses(rankc, target, case, program, accumulate, work):
    log = os.path.join(work, "log.jsonl")
    call(rankc, "train", program, *data_of(case, recorded(case)["inputs"]), "--steps", str(STEPS), "--accumulate", str(accumulate),
         "--kernels", "reference", "--threads", "1", "--log", log, *COMM[target])
    return [(line["loss"], line["grad_norm"]) for line in lines_of(log)]


def refuse(rankc, target, case, program, options, accumulate):
    """A table without repeated rows fixes the number of micro-batches."""
    said = call(rankc, "train", program, *data_of(case, recorded(case)["inputs"]), "--steps", "1", *options, *COMM[target], status=8).stderr
    expect(f"does not allow {accumulate} micro-batches" in said, said)


def check(rankc, target, case, plan, options, work):
    words, text = write_text(rankc, target, case, plan, options, work)
    own = os.path.join(work, "own")
    compile_case(rankc, case, plan, ACCUMULATE, own, recorded(case)["options"] + options, target=target)
    for name, rows in TABLES.items():
        changed, n = FILLED.subn(rows, text)
        expect(n >= 1, "the text has no table that can be replaced")
        source, out = (os.path.join(work, name + end) for end in (".rir", ""))
        with open(source, "w") as file:
            file.write(changed)
        call(rankc, "compile", source, "-o", out, "-q", *words)
        for accumulate in (ACCUMULATE, ACCUMULATE + 3):
            if name == "gpipe" and accumulate != ACCUMULATE:
                refuse(rankc, target, case, out, ["--accumulate", str(accumulate)], accumulate)
                continue
            want, got = (losses(rankc, target, case, program, accumulate, work) for program in (own, out))
            expect(want == got, f"{name}, {accumulate} micro-batches: {got} instead of {want}")
    broken = os.path.join(work, "broken.rir")
    with open(broken, "w") as file:
        file.write(FILLED.sub(TABLES["gpipe"].replace(f"slots={ACCUMULATE}", f"slots={ACCUMULATE - 1}"), text))
    said = call(rankc, "compile", broken, "-o", os.path.join(work, "broken"), "-q", *words, status=8).stderr
    expect("E1101" in said and "two micro-batches are in one slot" in said, said)
    words[words.index("--accumulate") + 1] = str(ACCUMULATE - 1)
    call(rankc, "compile", os.path.join(work, "gpipe.rir"), "-o", os.path.join(work, "fewer"), "-q", *words)
    refuse(rankc, target, case, os.path.join(work, "fewer"), [], ACCUMULATE - 1)
    return f"{len(TABLES)} tables"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--target", default="c", choices=COMM)
    parser.add_argument("--plans", default="one;tp2;data2;dp2")
    parser.add_argument("--options", default="", help="of every compile, separated by spaces")
    parser.add_argument("case")
    args = parser.parse_args()
    rankc = args.rankc
    return report((f"{args.case} {plan}", lambda work, plan=plan: check(rankc, args.target, args.case, plan, args.options.split(), work))
                  for plan in names_of(args.plans))


if __name__ == "__main__":
    sys.exit(main())
