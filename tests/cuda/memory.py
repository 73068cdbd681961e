#!/usr/bin/python3
"""The GPU's memory that programs take at their peak is what `rankc show` says.

    memory.py --rankc RANKC [PROGRAM...]

By CUPTI, which sees every allocation (bench/device_trace.cpp). What libraries allocate for themselves comes on top, at most LIBRARIES. Exit
status 77 where there is no CUPTI."""
import functools
import os
import sys
import tempfile

from program import LOOPBACK, infer, planned, train
from stand_in import TESTS, Failed, parser_of, plan_of, report, skip

sys.path.insert(0, os.path.join(TESTS, "..", "bench"))
from device_trace import NoTrace, build_trace, traced  # noqa: E402

LIBRARIES = 8 << 20
# How a program is made, of what, with which options.
PROGRAMS = {
    "gpt2": (infer, "gpt2", []),
    "gpt2 tp2pp2": (infer, "gpt2", plan_of("tp2pp2").options),
    "resnet": (infer, "resnet", []),
    "train gpt2 bf16 flash": (train, "gpt2", ["--amp", "bf16", "--attention", "flash"]),
    "train gpt2 offload": (train, "gpt2", ["--amp", "bf16", "--offload", "weights"]),
    "train llama data2": (train, "llama", plan_of("data2").options),
}


def check(library, rankc, program, work):
    make, name, options = PROGRAMS[program]
    command = make(rankc, name, f"{work}/program", *options)
    wanted, taken = planned(rankc, f"{work}/program"), traced(library, [*command, *LOOPBACK])["device_peak"]
    if not wanted <= taken <= wanted + LIBRARIES:
        raise Failed(f"{taken} bytes at the peak, planned {wanted}")
    return f"{taken} bytes, planned {wanted}"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rankc-memory-") as work:
        try:
            library = build_trace(work)
            return report((name, functools.partial(check, library, args.rankc, name)) for name in args.programs)
        except NoTrace as why:
            skip(f"{why}")


if __name__ == "__main__":
    sys.exit(main())
