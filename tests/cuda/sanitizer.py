#!/usr/bin/python3
"""The smallest programs under NVIDIA's compute-sanitizer: kernels that read or write where they must not, race, or read what nothing
wrote.

    sanitizer.py --rankc RANKC [PROGRAM...]

Exit status 77 where there is no compute-sanitizer."""
import functools
import shutil
import sys

from program import LOOPBACK, infer, train
from stand_in import Failed, call, parser_of, plan_of, report, skip

TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]
FLASH = ["--attention", "flash"]
# How a program is made, of what, with which options.
PROGRAMS = {
    "mlp": (infer, "mlp", []),
    "gpt2 tp2": (infer, "gpt2", plan_of("tp2").options),
    "mobilenet_v3": (infer, "mobilenet_v3", []),
    "train gpt2": (train, "gpt2", []),
    "train gpt2 bf16 flash": (train, "gpt2", ["--amp", "bf16", *FLASH]),
    "train llama flash": (train, "llama", FLASH),
    "train cnn_bn": (train, "cnn_bn", []),
    "train gpt2_fp8": (train, "gpt2_fp8", ["--fp8", "hybrid"]),
}


def run_tool(sanitizer, tool, command):
    done = call(sanitizer, "--tool", tool, "--error-exitcode", "99", "--print-limit", "5", *command, *LOOPBACK, status=None, timeout=500)
    return [] if done.returncode == 0 else [f"{tool}: exit {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-1000:]}"]


def check(sanitizer, rankc, program, work):
    make, name, options = PROGRAMS[program]
    command = make(rankc, name, f"{work}/program", *options)
    found = [wrong for tool in TOOLS for wrong in run_tool(sanitizer, tool, command)]
    if found:
        raise Failed("\n".join(found))
    return "ok"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    args = parser.parse_args()
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if not sanitizer:
        skip("there is no compute-sanitizer")
    return report((name, functools.partial(check, sanitizer, args.rankc, name)) for name in args.programs)


if __name__ == "__main__":
    sys.exit(main())
