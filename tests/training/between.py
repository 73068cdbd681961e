#!/usr/bin/python3
"""An inference step between the gradients and their reduction (between.c).

    between.py --rankc RANKC

It gives what it gives elsewhere, although sums of gradients are under way when it begins. Gradients that are accumulated are reduced
afterwards as if nothing had happened: their norm is that of a training step of the same micro-batches (dummies.c). Those of a single
micro-batch are lost, and the reduction says so."""
import functools
import sys
import tempfile

from dummies import Bench
from harness import call, expect, plan_of, rankc_of, report

SMALL = ["--reducer-bucket-cap-mb", "0.001"]  # sums begin with the first gradients
CASES = [("gpt2", plan, accumulate, stage, SMALL) for plan, accumulate, stage in
         (("dp4", 1, 0), ("dp4", 1, 1), ("dp4", 1, 3), ("dp2", 2, 1), ("data2dp2", 2, 3))]


class Interrupted(Bench):
    source = "between.c"


def check(benches, case, _work):
    model, plan, accumulate, *_ = case
    units, (interrupted, whole) = plan_of(plan).units, benches
    directory, program = interrupted.build(*case)
    inference, norm = call(program, directory, str(units), *interrupted.data[model]).stdout.split()
    expect(inference == "same", "the inference step is disturbed")
    if accumulate == 1:
        expect(norm == "lost", f"gradients that were overwritten have a norm: {norm}")
        return "lost"
    expected = whole.run(whole.build(*case), model, units, "r" * units * accumulate)[0][0]
    expect(float(norm) == expected, f"norm {norm}, not {expected}")
    return "reduced"


def main():
    rankc = rankc_of(__doc__)
    with tempfile.TemporaryDirectory(prefix="rankc-between-") as one, tempfile.TemporaryDirectory(prefix="rankc-whole-") as other:
        benches = Interrupted(rankc, one), Bench(rankc, other)
        return report((" ".join(map(str, case[:4])), functools.partial(check, benches, case)) for case in CASES)


if __name__ == "__main__":
    sys.exit(main())
