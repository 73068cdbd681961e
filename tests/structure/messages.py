#!/usr/bin/python3
"""What pipeline stages of GPT-2 (rankc's own configuration) send to each other in a training step, by hand: for each
micro-batch and boundary the residual stream and its gradient; from the last stage to the first the gradient of the
table of words, which both read, for each micro-batch or once a step (--tied-gradients), and back once its new value.
Beyond these, a few numbers of the norm. Each case is of a machine on which its stages end with layers.

    messages.py --rankc RANKC"""
import itertools
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import json_of, rankc_of  # noqa: E402

TOKENS, WIDTH, WORDS, FLOAT = 1024, 768, 50257, 4
NUMBERS = 100  # bytes of the numbers, at most
CASES = [(2, 4, "1f1b", "h100"), (4, 8, "1f1b", "b200"), (4, 8, "gpipe", "b200"), (4, 8, "zb-h1", "b200"), (3, 6, "1f1b", "h200")]


def sent(rankc, stages, micro_batches, schedule, machine, tied):
    plan = json_of(rankc, "plan", "--model-config", "gpt2", "--dim", "batch=1", "--pas", f"pp:pipeline={stages}", "--accumulate",
                   micro_batches, "--schedule", schedule, "--tied-gradients", tied, "--machine", machine, "--json", "-q")
    return sum(c["bytes"] for c in plan["communication"] if c["kind"] == "send_recv")


def main():
    rankc = rankc_of(__doc__)
    failed = 0
    for (stages, micro_batches, schedule, machine), tied in itertools.product(CASES, ("micro-batch", "step")):
        boundary, table = 2 * TOKENS * WIDTH * FLOAT, WORDS * WIDTH * FLOAT
        gradients = 1 if tied == "step" else micro_batches
        expected = micro_batches * (stages - 1) * boundary + (gradients + 1) * table
        got = sent(rankc, stages, micro_batches, schedule, machine, tied)
        if not expected <= got <= expected + NUMBERS:
            failed += 1
            print(f"{stages} stages, {micro_batches} micro-batches, {schedule}, {tied}: {got} bytes, not {expected}")
    print(f"{2 * len(CASES)} plans, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
