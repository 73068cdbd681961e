#!/usr/bin/python3
"""Ranks that are processes with a GPU each, where neither there need be: the runtime's calls of NCCL go to host/nccl.cpp, which
refuses what NCCL would refuse, and its streams, events and graphs to host/streams.h, which does everything as late as it may.

    nccl.py --rankc RANKC --include DIR [CASE...]

What processes compute equals, bit for bit, what ranks computed that are threads and read each other's memory, with streams that are
late and with a side stream that is early. What is called is counted: communicators only where the plan needs them, sums beside
computation, everything captured. Then one rank fails, or NCCL does, and the job ends, saying so once. Exit status 77 where
there is no nccl.h."""
import collections
import glob
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time

from stand_in import HERE, TESTS, Failed, build_library, call, parser_of, report, skip

GPT2 = [os.path.join(TESTS, "models", "gpt2", "model.onnx"), "--dim", "batch=2", "--dim", "seq=11"]
OPEN = [GPT2[0], "--dim", "batch=1..3", "--dim", "seq=1..12"]
SGD = ["--optimizer", "sgd:lr=0.1"]


class Bench:
    def __init__(self, args, work):
        self.args, self.work = args, work
        self.env = {"NVCC": os.path.join(HERE, "host", "nvcc"),
                    "NVCCFLAGS": os.environ.get("NVCCFLAGS", "-O0"), "HOST_GPUS": "64", "LD_LIBRARY_PATH": work}

    def call(self, *command, status=0, env=None, cwd=None):
        return call(*command, status=status, env={**self.env, **(env or {})}, cwd=cwd)

    def compile(self, name, *options):
        out = os.path.join(self.work, name)
        self.call(self.args.rankc, "compile", *options, "-o", out, "-q", "--target", "cuda")
        return out

    def logged(self, run):
        """What the ranks called in a run, counted, by rank."""
        for old in glob.glob(f"{self.work}/log/*"):
            os.remove(old)
        os.makedirs(f"{self.work}/log", exist_ok=True)
        run({"FAKE_NCCL_LOG": f"{self.work}/log"})
        counts = {}
        for path in sorted(glob.glob(f"{self.work}/log/*")):
            with open(path) as lines:
                counts[int(os.path.basename(path))] = collections.Counter(
                    re.sub(r"^((?:all|reduce|broadcast|send|receive)\S*) \d+$", r"\1", line.strip()) for line in lines)
        return counts


def outputs(folder):
    found = {}
    for path in glob.glob(f"{folder}/*.npy"):
        with open(path, "rb") as file:
            found[os.path.basename(path)] = file.read()
    return found


def check_counts(counts, **wanted):
    """Of every rank; a number, or None for some."""
    for rank, count in counts.items():
        for what, number in wanted.items():
            got = count[what.replace("_", " ")]
            if got != number if number is not None else not got:
                raise Failed(f"rank {rank} has {got} of '{what}', not {number if number is not None else 'some'}: {dict(count)}")


TIMINGS = {"late": {}, "early beside": {"HOST_EAGER": "1"}}


def infer(bench, name, plan, model=GPT2, launched=0, **counts):
    program = bench.compile(name, *model, "--pas", plan)
    inputs = ["--input", f"input_ids={TESTS}/models/gpt2/inputs/input_ids.npy", "--repeat", "3", "--output-dir"]
    bench.call(bench.args.rankc, "run", program, *inputs, f"{program}/threads", "--comm", "loopback")
    expected = outputs(f"{program}/threads")
    called = bench.logged(lambda env: bench.call(bench.args.rankc, "run", program, *inputs, f"{program}/processes", env=env))
    if not expected or outputs(f"{program}/processes") != expected:
        raise Failed("processes compute something else than threads")
    check_counts(called, launched=launched, **counts)


def train(bench, name, case, plan, options, launched=0, **counts):
    folder = os.path.join(TESTS, "training", case)
    program = bench.compile(name, os.path.join(folder, "model.onnx"), "--train", *SGD, "--pas", plan, *options)
    data = [word for path in glob.glob(f"{folder}/*.npy") for word in ("--data", f"{os.path.basename(path)[:-4]}={path}")]

    def numbers(log, *more, env=None):
        bench.call(bench.args.rankc, "train", program, *data, "--steps", "5", "--log", f"{program}/{log}", *more, env=env)
        with open(f"{program}/{log}") as lines:
            return [(item["loss"], item["grad_norm"]) for item in map(json.loads, lines)]

    expected = numbers("threads", "--comm", "loopback")
    if len(expected) != 5 or len(set(expected)) != 5:
        raise Failed(f"training goes nowhere: {expected}")
    for timing, env in TIMINGS.items():
        if env and numbers("threads-again", "--comm", "loopback", env=env) != expected:
            raise Failed(f"threads, {timing}: other numbers")
        got = []
        called = bench.logged(lambda log: got.extend(numbers("processes", env={**env, **log})))
        if got != expected:
            raise Failed(f"processes, {timing}: {got}, threads had {expected}")
        check_counts(called, launched=launched, **counts)
    return program, data


def tensor_of_three(bench):
    """Uneven parts: gathered by broadcasts of one group. The axis joins all ranks, so nothing is split."""
    infer(bench, "tp3", "tp:tensor=3", captured=None, **{"init of 3": 1, "split into 3": 0, "broadcast": None})


def sizes(bench):
    """Sizes that each call chooses, below the largest: the first step is launched, and those after it are captured."""
    infer(bench, "sizes", "tp:tensor=3", OPEN, launched=None, captured=None, **{"init of 3": 1, "split into 3": 0, "broadcast": None})


def tensor_and_pipeline(bench):
    infer(bench, "mesh", "hybrid:tensor=2,pipeline=2", captured=None, **{"init of 4": 1, "split into 2": 2})


def units(bench):
    """Sums over units in buckets of one gradient, beside backward."""
    train(bench, "units", "mlp", "tp:tensor=2", ["--runtime-ngpus", "4", "--reducer-bucket-cap-mb", "0.0001"],
          **{"init of 4": 1, "split into 2": 2, "beside captured": None})


def accumulated(bench):
    """Two units, two micro-batches each: of the phases that go backward, only the last begins sums."""
    train(bench, "accumulated", "mlp", "dp", ["--runtime-ngpus", "2", "--accumulate", "2"],
          **{"init of 2": 1, "split into 2": 0, "beside captured": None})


def data_of_three(bench):
    """Sums along a mesh axis, of which there are three."""
    train(bench, "data3", "mlp", "data:data=3", ["--reducer-bucket-cap-mb", "0.0001"], **{"init of 3": 1, "beside captured": None})


def stages(bench):
    """Messages between stages are posted, outside of graphs: two communicators between neighbours, one for each direction."""
    train(bench, "stages", "mlp", "hybrid:pipeline=2", ["--schedule", "1f1b", "--accumulate", "4"], launched=None,
          **{"init of 2": 1, "split into 2": 2, "send": None, "receive": None})


def stages_of_three(bench):
    """The middle stage posts to both sides; stages are divided along a tensor axis, too."""
    train(bench, "stages3", "mlp", "hybrid:tensor=2,pipeline=3", ["--schedule", "gpipe", "--accumulate", "4"], launched=None,
          **{"init of 6": 1, "split into 3": 1, "send": None, "receive": None})


def interleaved(bench):
    """Two parts of the model per stage: values of the forward and of the backward phase go both ways."""
    train(bench, "interleaved", "gpt2", "hybrid:pipeline=2", ["--schedule", "interleaved", "--accumulate", "4"], launched=None,
          **{"init of 2": 1, "split into 2": 2, "send": None, "receive": None})


def gathers(bench):
    """ZeRO 3: each gather that begins early is waited for alone."""
    train(bench, "gathers", "gpt2", "dp", ["--runtime-ngpus", "2", "--use-zero", "3", "--zero-prefetch", "2"],
          **{"init of 2": 1, "beside captured": None})


def runs(bench):
    """Products in runs of rows, operands and results of which are gathered and scattered beside the main stream."""
    train(bench, "runs", "llama", "tp:tensor=3", ["--sequence-parallel", "--async-tp=2"], **{"init of 3": 1, "beside captured": None})


def job_ends(bench, program, data, env, pattern):
    begin = time.monotonic()
    done = call(bench.args.rankc, "train", program, *data, "--steps", "1000000", status=None, env={**bench.env, **env}, timeout=120)
    if done.returncode not in (6, 9) or len(re.findall("rankc: error", done.stderr)) != 1 or not re.search(pattern, done.stderr):
        raise Failed(f"exit {done.returncode}: {done.stderr}")
    if time.monotonic() - begin > 60:
        raise Failed("the job took long to end")


def failures(bench):
    """NCCL fails on one rank in the midst of training: that one says so, and all abort what they wait for."""
    program, data = train(bench, "failures", "mlp", "data:data=2", [], **{"init of 2": 1})
    for rank in 0, 1:
        called = bench.logged(lambda env: job_ends(bench, program, data, {**env, "FAKE_NCCL_FAIL": f"{rank}:8"},
                                                   r"error\[E0906\]: NCCL: remote process exited"))
        check_counts(called, abort=1, destroy=0)


def callers(bench):
    """The ranks of a program use a communicator and a stream of their callers, which stay whole (rank_callers.cu)."""
    program = glob.glob(bench.compile("callers", *GPT2, "--pas", "tp:tensor=2") + "/*/_")[0]
    tokens, binary = f"{TESTS}/models/gpt2/inputs/input_ids.npy", f"{bench.work}/callers/callers"
    bench.call("make", "-s", "-C", program, "build/model.a")
    flags = bench.call("make", "-s", "-C", program, "--eval", "print:;@echo $(RANKC_CFLAGS) -- $(RANKC_LIBS)", "print").stdout.split()
    bench.call(bench.env["NVCC"], "-std=c++20", f"-I{program}", f"-I{bench.args.include}", "-c", "-o", f"{binary}.o", f"{HERE}/rank_callers.cu")
    bench.call(bench.env["NVCC"], "-fopenmp", "-o", binary, f"{binary}.o", "build/model.a", *flags[flags.index("--") + 1:],
               f"{bench.work}/libnccl.so.2", cwd=program)
    ranks = [subprocess.Popen([binary, program, tokens, f"{bench.work}/callers/place"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, **bench.env, "RANK": str(rank), "WORLD_SIZE": "2"}) for rank in range(2)]
    said = [rank.communicate(timeout=120) for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise Failed("\n".join(error for _, error in said))
    bench.call(bench.args.rankc, "run", program, "--input", f"input_ids={tokens}", "--output-dir", f"{program}/threads", "--comm", "loopback")
    (content,) = outputs(f"{program}/threads").values()
    first = "%.9g" % struct.unpack_from("<f", content, 10 + struct.unpack_from("<H", content, 8)[0])[0]
    if [out for out, _ in said] != [f"rank {rank}: {first}\n" for rank in range(2)]:
        raise Failed(f"{said}, not {first}")


CASES = [callers, tensor_of_three, sizes, tensor_and_pipeline, units, accumulated, data_of_three, stages, stages_of_three, interleaved, gathers, runs, failures]


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--include", required=True)
    parser.add_argument("cases", nargs="*", default=[case.__name__ for case in CASES])
    args = parser.parse_args()
    probe = call(os.environ.get("CXX", "g++"), "-E", "-x", "c++", "-I", os.path.join(HERE, "host"), "-", status=None,
                 input="#include <nccl.h>\n")
    if probe.returncode:
        skip("there is no nccl.h")
    with tempfile.TemporaryDirectory(prefix="rankc-nccl-") as work:
        bench = Bench(args, work)
        build_library(f"{work}/libnccl.so.2", "nccl.cpp", include=[f"{args.include}/rankc"])
        return report((case.__name__, lambda _, case=case: case(bench) or "ok") for case in CASES if case.__name__ in args.cases)


if __name__ == "__main__":
    sys.exit(main())
