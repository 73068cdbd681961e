#!/usr/bin/python3
"""What a kernel for GPUs meets in its data ends the step, and is told as the C target tells it.

    faults.py --rankc RANKC"""
import os
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, needed, rankc_of  # noqa: E402

with needed():
    import numpy as np

GRAPH = """rankc-ir 1
graph "rows" level=IMPORTED
input %0 "index" i64[3]
const %1 "table" f32[4] = [1, 2, 3, 4]
%2 "picked" = Gather(%1, %0) axis=0 node="pick"
output %2 "picked"
"""


def main():
    rankc = rankc_of(__doc__)
    with tempfile.TemporaryDirectory(prefix="rankc-faults-") as work:
        def run(*index):
            np.save(work + "/index.npy", np.array(index, "i8"))
            return call(rankc, "run", work + "/out", "--input", f"index={work}/index.npy", "--output-dir", work + "/got", status=None,
                        timeout=300)

        with open(work + "/rows.rir", "w") as text:
            text.write(GRAPH)
        call(rankc, "compile", work + "/rows.rir", "-o", work + "/out", "-q", "--target", "cuda")
        good = run(-1, 0, 3)
        picked = np.load(work + "/got/picked.npy").tolist() if good.returncode == 0 else good.stderr
        bad = run(1, 4, 0)
    expected = ["index 4 at position 1 is outside [-4, 4)", "'pick' (Gather)"]
    wrong = [text for text in expected if text not in bad.stderr]
    if picked != [4, 1, 4] or bad.returncode != 3 or wrong:
        print(f"picked {picked}; exit {bad.returncode}, not said: {wrong}\n{bad.stderr}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
