#!/usr/bin/env python3
"""A program of one's own that calls a model at one size after the other, on two ranks: embedded.c beside this, by tensor
parallelism and by pipeline stages, and the same from Python by ctypes.

    embedded.py --rankc RANKC

The sums of the logits are those of ONNX Runtime; embedded.py --record prints them, and needs onnxruntime."""
import ctypes
import os
import re
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import COMPILER, SAMPLES, call, expect, needed, parser_of, report  # noqa: E402

with needed():
    import numpy

MODEL = os.path.join(SAMPLES, "llama_any.onnx")
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "embedded.c")
VOCABULARY = 100
# batch, seq: the sum of the logits for token i * 7 % 100, by ONNX Runtime 1.32
SUMS = {(1, 1): -1.0603, (4, 64): 69.5407, (3, 17): 13.294, (1, 2): 0.0438, (2, 5): -0.7262}
FOURS = {(4, 64): 69.5407, (1, 4): -0.4795, (3, 20): 15.0282}  # the same, of multiples of four positions


def tokens(batch, seq):
    return (numpy.arange(batch * seq, dtype=numpy.int64) * 7 % VOCABULARY).reshape(batch, seq)


def record():
    import onnxruntime
    session = onnxruntime.InferenceSession(MODEL)
    print({sizes: round(float(session.run(None, {"input_ids": tokens(*sizes)})[0].astype("f8").sum()), 4)
           for sizes in {**SUMS, **FOURS}})


def compiled(rankc, work, pas, target):
    out = os.path.join(work, pas)
    call(rankc, "compile", MODEL, "--dim", "batch=1..4", "--dim", "seq=1..64", "--pas", pas, "--plan-ngpus", "2", "-o", out,
         "-q", "--no-build")
    program = os.path.join(out, "llama_any", "_")
    call("make", "-s", "-C", program, f"build/{target}")
    return program


def check_c(rankc, work, pas):
    program = compiled(rankc, work, pas, "model.a")
    flags = re.search(r"^RANKC_LIBS \?= (.*)$", open(os.path.join(program, "Makefile"), encoding="utf-8").read(), re.M)[1].split()
    own = os.path.join(work, f"embedded-{pas}")
    call(*COMPILER, "-O1", "-Wall", "-Wextra", "-Werror", "-fopenmp", "-I", program, "-I",
         os.path.join(program, "build/runtime/include"), SOURCE, os.path.join(program, "build/model.a"), "-o", own, *flags,
         cwd=program)
    done = call(own, program)
    found = {(int(b), int(t)): float(total) for b, t, total in re.findall(r"^(\d+) x (\d+): (\S+) in \1 x \2 x 100$", done.stdout, re.M)}
    expect(found.keys() == SUMS.keys(), f"sizes {sorted(found)}: {done.stdout}{done.stderr}")
    for sizes, total in SUMS.items():
        expect(abs(found[sizes] - total) <= 1e-4 * max(abs(total), 1), f"{sizes}: {found[sizes]}, not {total}")
    expect("sizes batch 2, seq" in done.stderr, f"ranks that differ: {done.stderr}")
    return f"{len(found)} sizes"


class Sizes(ctypes.Structure):
    """struct llama_any_sizes"""
    _fields_ = [("batch", ctypes.c_int64), ("seq", ctypes.c_int64)]


class Tensors(ctypes.Structure):
    """struct llama_any_tensors"""
    _fields_ = [("sizes", Sizes), ("input_ids", ctypes.c_void_p), ("logits", ctypes.c_void_p)]


def check_ctypes(rankc, work):
    program = compiled(rankc, work, "tp", "model.so")
    model = ctypes.CDLL(os.path.join(program, "build/model.so"))
    model.rt_error.restype = ctypes.c_char_p
    totals = {}

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    def run_rank(rt, _):
        rt = ctypes.c_void_p(rt)
        for sizes in SUMS:
            ids, logits = tokens(*sizes), numpy.empty((*sizes, VOCABULARY), numpy.float32)
            own = Tensors(Sizes(*sizes), ids.ctypes.data, logits.ctypes.data)
            status = model.llama_any_infer(rt, ctypes.byref(own))
            if status:
                return status
            totals[model.rt_rank(rt), sizes] = float(logits.astype("f8").sum())
        return 0

    expect(model.llama_any_run_threads(program.encode(), 0, run_rank, None) == 0, model.rt_error(None).decode())
    for (rank, sizes), total in totals.items():
        expect(abs(total - SUMS[sizes]) <= 1e-4 * max(abs(SUMS[sizes]), 1), f"rank {rank}, {sizes}: {total}, not {SUMS[sizes]}")
    expect(len(totals) == 2 * len(SUMS), f"{len(totals)} calls")
    return f"{len(SUMS)} sizes on 2 ranks"


def main():
    parser = parser_of(__doc__, rankc=None)
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    if given.record:
        return record()
    return report([("C, tp", lambda work: check_c(given.rankc, work, "tp")), ("C, pp", lambda work: check_c(given.rankc, work, "pp")),
                   ("ctypes, tp", lambda work: check_ctypes(given.rankc, work))])


if __name__ == "__main__":
    sys.exit(main())
