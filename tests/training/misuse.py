#!/usr/bin/python3
"""What the training interface of C cannot take, it refuses with a status (misuse.c).

    misuse.py --rankc RANKC"""
import os
import re
import sys
import tempfile

from harness import HERE, call, expect, model_of, rankc_of, report
from nonfinite import flags

ROOT = os.path.dirname(os.path.dirname(HERE))
USAGE, SYSTEM = 1, 3
# By call: status and text. Calls with NULL in place of the rank or of what they need are all of the second kind.
GONE = "there are no gradients: none were computed since they were set to zero or the parameters updated"
NULL = r"(rt|out|options|program|run|inputs|samples|an element of samples|directory|position|which) is NULL"
EXPECTED = {
    "model_step": [NULL, GONE, GONE, GONE], "model_scale_grads": ["the factor of gradients cannot be inf"],
    "model_clip_gnorm": ["the norm that gradients are clipped to cannot be -1", "the norm that gradients are clipped to cannot be nan"],
    "model_zero_grad": [None], "model_train": [NULL, NULL], "model_infer": [NULL, NULL], "model_train_step": [NULL, NULL],
    "model_save": [NULL, NULL, NULL, "a checkpoint cannot have step -1, 0 micro-batches and seed -1"], "model_load": [NULL, NULL],
    "rt_save_begin": ["a checkpoint cannot have step -1, 0 micro-batches and seed -1"], "rt_hold_checkpoints": [NULL],
    "rt_set_accumulate": ["the number of micro-batches cannot be 0"], "rt_set_learning_rate": ["the learning rate cannot be nan"],
    "rt_set_reduce_hooks": [None], "model_open": [NULL, NULL, r"options\.join_timeout is negative"], "rt_open": [NULL], "rt_run_threads": [NULL],
    "model_run_threads": [NULL, None, r"rank 1: rank 0 has left the job, and rank 1 waits for it \(E0905\), in node .*",
                          "rank 0: the rank was closed while it is used: .*", "rank [01]: the rank was closed while it is used: .*"],
}


def refused(rankc, work):
    call(rankc, "compile", model_of("mlp"), "-o", work, "-q", "--no-build", "--train", "--pas", "tp:tensor=2", "--optimizer", "sgd:lr=0.1")
    code, program = f"{work}/model/_", f"{work}/misuse"
    call("cc", "-O0", "-w", "-I", code, "-I", ROOT, os.path.join(HERE, "misuse.c"), f"{code}/model.c", *(f"{code}/rank_{r}.c" for r in range(2)), *flags(rankc), "-o", program)
    said = call(program, code, timeout=60).stdout
    found = {}
    for name, status, text in re.findall(r"^(\w+)\(.*\): (\d+) (.*)$", said, re.MULTILINE):
        found.setdefault(name, []).append((int(status), text))
    expect(set(found) == set(EXPECTED), f"{set(found) ^ set(EXPECTED)}\n{said}")
    for name, texts in EXPECTED.items():
        expect(len(found[name]) == len(texts), f"{name}: {found[name]}, not {texts}")
        for (status, text), pattern in zip(found[name], texts):
            kind = 0 if pattern is None else SYSTEM if "E0905" in pattern else USAGE
            expect(status == kind and re.fullmatch(pattern or "", text), f"{name}: {status} '{text}', not {kind} '{pattern}'")
    expect(re.search(r"^step: \d", said, re.MULTILINE), said)
    return f"{sum(map(len, found.values()))} calls"


def main():
    rankc = rankc_of(__doc__)
    with tempfile.TemporaryDirectory(prefix="rankc-misuse-") as work:
        return report([("misuse", lambda _: refused(rankc, work))])


if __name__ == "__main__":
    sys.exit(main())
