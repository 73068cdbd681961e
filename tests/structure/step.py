#!/usr/bin/python3
"""The function of a step in model.c executes the rows of the schedule, for any number of micro-batches.

    step.py --rankc RANKC --model LLAMA.onnx

The rows are those that --dump-after schedule prints, walked as Note [Repeated rows] in ir/step_table.h says: the repeated
ones once more for each further micro-batch. The calls of the function are executed here."""
import os
import re
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, parser_of  # noqa: E402

FURTHER = (0, 1, 2, 7)  # micro-batches beyond those that the schedule lists
TRAINING = ["--train", "--loss", "cross_entropy", "--optimizer", "sgd:lr=0.1"]
CASES = [
    ["--pas", "dp"],
    ["--pas", "pp:pipeline=2", "--accumulate", "2"],
    [*TRAINING, "--pas", "dp"],
    [*TRAINING, "--pas", "tp:tensor=2", "--accumulate", "3"],
    *([*TRAINING, "--pas", f"pp:pipeline={stages}", "--accumulate", str(micro), "--schedule", schedule]
      for schedule, stages, micro in (("1f1b", 2, 8), ("1f1b", 4, 9), ("1f1b", 4, 2), ("gpipe", 2, 6), ("interleaved", 2, 4),
                                      ("zb-h1", 4, 6), ("zb-h2", 2, 7), ("zb-v", 2, 6), ("chimera", 4, 4))),
]


def rankc(args, words):
    return call(args.rankc, "compile", args.model, *words, "-q").stdout


def tables(text):
    """By coordinate: rows (kind, what, micro; micro None for what is done once), micro-batches, repeated rows."""
    all = []
    for line in text.splitlines():
        words = line.split()
        if line.startswith("schedule "):
            fields = dict(word.split("=") for word in words[2:])
            first, end = (int(n) for n in fields.get("repeat", "0..0").split(".."))
            all.append(([], int(fields["micro_batches"]), first, end))
        elif all and words and words[0] in ("run", "post", "wait"):
            micro = int(words[3].split("=")[1]) if len(words) > 3 else None
            all[-1][0].append((words[0], " ".join(words[1:3]), micro))
        elif all and not line.startswith("#"):
            break
    return all


def walk(table, further):
    rows, _, first, end = table
    shifted = lambda part, by: [(kind, what, micro if micro is None else micro + by) for kind, what, micro in part]
    for i in range(further + 1):
        yield from shifted(rows[0 if i == 0 else first:end], i) if first < end else shifted(rows, 0)
    yield from shifted(rows[end:], further) if first < end else ()


def functions(text):
    """By coordinate: the function as Python. Every line of it is one of these forms."""
    forms = ((r"    (\(void\)micro_batches; /\* the schedule fixes their number \*/|return RT_OK;)", ""),
             (r"    for \(int i = 0; i < (.+); i\+\+\) \{", r"for i in range(\1):"),
             (r"    \}", ""),
             (r"(    |        )RT_TRY\(rt_run\(rt, (\w+), (.+)\)\);", r'\1run("\2", \3)'),
             (r"(    |        )RT_TRY\(rt_(post|wait)\(rt, (\d+), (\d+), (.+)\)\);(?:  // .+)?", r"\1\2(\3, \4, \5)"),
             (r" +// .+", ""))
    all = []
    for body in re.findall(r"^static int (?:train|infer)_step\w*\(struct rt \*rt, int micro_batches\) \{\n(.*?)^\}", text, re.M | re.S):
        code = []
        for line in body.splitlines():
            form = next((form for form in forms if re.fullmatch(form[0], line)), None)
            if not form:
                raise SystemExit(f"unknown line: {line}")
            code.append(re.sub(form[0], form[1], line))
        all.append("\n".join(line if line.startswith("        ") else line.strip() for line in code))
    return all


def execute(code, micro_batches):
    done = []
    transfers = lambda kind: lambda first, n, micro: done.extend((kind, i, micro) for i in range(first, first + n))
    exec(code, {"micro_batches": micro_batches, "run": lambda what, micro: done.append(("run", what, micro)),
                "post": transfers("post"), "wait": transfers("wait")})
    return done


def differs(expected, got):
    """Names of segments and numbers of transfers stand for what the dump calls them, always for the same."""
    if len(expected) != len(got):
        return f"{len(expected)} rows, but {len(got)} calls"
    names, seen = {}, {}
    for i, ((kind, what, micro), (call, name, of)) in enumerate(zip(expected, got)):
        if kind != call or (micro or 0) != of:
            return f"row {i} is {kind} {what} {micro}, but the call {call} {name} {of}"
        key = (call == "run", name)
        if names.setdefault(key, what) != what or seen.setdefault(what, key) != key:
            return f"row {i}: {name} stands for {what} and for {names[key]}"
    return None


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--model", required=True)
    args = parser.parse_args()
    failed = checks = 0
    for case in CASES:
        expected = tables(rankc(args, [*case, "--dump-after", "schedule"]))
        with tempfile.TemporaryDirectory(prefix="rankc-step-") as directory:
            rankc(args, [*case, "-o", directory, "--no-build"])
            code = functions(open(f"{directory}/llama/_/model.c").read())
        if len(code) != len(expected):
            raise SystemExit(f"{' '.join(case)}: {len(expected)} schedules, but {len(code)} functions")
        for c, table in enumerate(expected):
            for further in FURTHER if table[2] < table[3] else FURTHER[:1]:
                wrong = differs(list(walk(table, further)), execute(code[c], table[1] + further))
                checks += 1
                if wrong:
                    failed += 1
                    print(f"{' '.join(case)}, coordinate {c}, {further} further micro-batches: {wrong}")
    print(f"{checks} checks, {failed} failed")
    return failed > 0 or checks < len(CASES)


if __name__ == "__main__":
    sys.exit(main())
