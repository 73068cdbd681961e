#!/usr/bin/python3
"""8-bit floats on target cuda, where the library's stand-in (host/cublasLt.h) checks how it is called.

    fp8.py --rankc RANKC [CHECK...]

A model whose losses are PyTorch's emulation's, as of the C target (tests/training/fp8.py): on one rank, and on two with --amp bf16
beside it; and a GPU without products of 8-bit floats, which the program names."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training"))
import fp8  # noqa: E402
from harness import call, data_of, expect, parser_of, recorded, report  # noqa: E402

CASE = "mlp_fp8"


def check_curves(run):
    metrics, theirs = run(CASE, "one", 1), recorded(CASE)["steps"]["1"]
    for key in fp8.KEYS:
        apart = max(fp8.differences(metrics, theirs["f32"], key))
        expect(apart <= 1e-4, f"{key} differs by {apart:g}")
    return "PyTorch's"


def check_mixed(run):
    plan, options = "tp2", ["--amp", "bf16"]
    ours = run(CASE, plan, 1, *options, steps=8)
    run.target = "c"
    theirs = run(CASE, plan, 1, *options, steps=8)
    apart = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(ours, theirs))
    expect(apart <= 1e-2, f"losses differ from the C target's by {apart:g}")
    return f"{apart:.1e} from the C target's"


def check_old_gpu(run):
    run.compile(CASE, "one", 1)
    data = data_of(CASE, recorded(CASE)["inputs"])
    done = call(run.rankc, "train", run.path("out"), *data, "--steps", "1", status=None, env={"HOST_CAPABILITY": "80"})
    expect(done.returncode and re.search(r"compute capability 8\.0; products of 8-bit floats need at least 8\.9", done.stderr), done.stderr)
    return "named"


def main():
    parser = parser_of(__doc__)
    checks = {check.__name__[6:]: check for check in (check_curves, check_mixed, check_old_gpu)}
    parser.add_argument("checks", nargs="*", default=list(checks))
    options = parser.parse_args()
    options.target, options.library = "cuda", True
    return report((name, lambda work, name=name: checks[name](fp8.Run(options, work))) for name in options.checks)


if __name__ == "__main__":
    sys.exit(main())
