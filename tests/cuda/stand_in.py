"""What checks of target cuda where there need not be a GPU share, beside tests/training/harness.py."""
import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(TESTS, "training"))

from harness import Wrong, call, report # noqa: E402, F401

# Whether programs are made for the CPU.
STAND_IN = os.environ.get("NVCC", "").endswith("host/nvcc")


def by_type(doc, dtypes, check):
    """main() of a check of kernels: check(rankc, work, dtype) prints what it measures and returns what is wrong, a line each."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("dtypes", nargs="*", default=list(dtypes))
    args = parser.parse_args()
    rankc = os.path.abspath(args.rankc)

    def checked(work, dtype):
        failures = check(rankc, work, dtype)
        if failures:
            raise Wrong("\n".join(failures))
        return "ok"

    return report((dtype, lambda work, dtype=dtype: checked(work, dtype)) for dtype in args.dtypes)
