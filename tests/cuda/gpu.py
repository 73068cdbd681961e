#!/usr/bin/env python3
"""The checks of target cuda that need a GPU, side by side as there are processors; tests/gpu.sh packs them.

    gpu.sh run [--build BUILD] [--results FILE] [--within SECONDS] [--stand-in] [--only GLOB]... [PART...]

The tests of suite cuda and those of programs and training, on a GPU: what PARTS lists. A line per check; --results has the same as
lines of JSON, written as checks end, of which `gpu_report.py` makes a page. With --stand-in everything is compiled for the CPU
(host/cuda_runtime.h), which tries the checks themselves. Objects that programs share are compiled once, and kept in COMPILED
(../compile_once). Exit status 1 if one fails, 77 without a GPU."""
import concurrent.futures
import fnmatch
import glob
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import typing

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import parser_of, skip  # noqa: E402

import decode
import nccl_gpu  # finds tests/training too
import offload
import pipeline
import sanitizer

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
import gpu_predictions # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
ROOT = os.path.dirname(TESTS)

MODELS = ["mlp", "gpt2", "llama", "bert", "vit", "swin", "resnet", "unet", "mobilenet_v3", "convnext"]
IMAGES = ["resnet", "unet", "mobilenet_v3", "convnext", "vit"]
SOME_PLANS = "one data2 tp2 tp3 pp2 tp2data2 tp2pp2"
CURVES = ["mlp", "mlp_nesterov", "mlp_adagrad", "mlp_cosine", "mlp_linear", "mlp_annealed", "mlp_dropout", "mlp_batch_norm", "cnn",
          "cnn_bn", "cnn_bn_13", "resnet", "vit", "bert", "gpt2", "llama"]
CUT_CURVES = ["gpt2", "llama", "bert", "cnn_bn", "mlp_dropout"]
UNITS, TENSOR, DATA, MESH = "dp2", "tp2", "data2", "tp2data2"
VARIANTS = ["--recompute full", "--attention flash", "--attention flash --recompute full", "--use-async-reducer 0"]
AMP_CASES = ["gpt2", "llama", "cnn_bn", "mlp_dropout", "cnn"]


class Check(typing.NamedTuple):
    part: str
    name: str
    words: list # a script of the tree, and its arguments


def operators(build):
    opcheck = ["tests/programs/opcheck/opcheck.py", "--generate", f"{build}/tests/programs/opcheck_generate", "--target", "cuda", "--bounded"]
    for kinds in ("full", "halves"):
        for programs in ("whole cut2", "whole cut3", "whole stages"):
            yield f"{kinds} {programs}", [*opcheck, "--set", kinds, "--programs", programs]
    yield "halves whole, library", [*opcheck, "--set", "halves", "--programs", "whole", "--kernels", "auto"]
    for dtype in ("f32", "f64"):
        yield f"large {dtype}", ["tests/cuda/large.py", dtype]
    for dtype in ("f32", "f64", "bf16", "fp16"):
        yield f"rows {dtype}", ["tests/cuda/rows.py", dtype]


def products(_):
    for dtype in ("f32", "f64", "bf16", "fp16"):
        yield dtype, ["tests/cuda/finish.py", dtype]
    yield "fp8", ["tests/cuda/fp8.py", "mixed"]
    yield "small weights", ["tests/cuda/small_weights.py"]


def attention(_):
    for row in ("f32", "bf16", "fp16", "bf16 cudnn", "fp16 cudnn forward", "bf16 cudnn backward", "bf16 cudnn atomic"):
        yield row, ["tests/cuda/attention.py", row]


def decoding(_):
    for check in ("greedy", "caches", "draws"):
        yield check, ["tests/generate/generate.py", "--target", "cuda", check]
    for case in decode.CASES:
        yield f"tokens/s, {case}", ["tests/cuda/decode.py", case]


def models(_):
    sweep = ["tests/programs/sweep.py", "--target", "cuda", "--comm", "loopback"]
    for model in MODELS:
        yield model, [*sweep, "--plans", SOME_PLANS, f"tests/models/{model}"]
    for model in IMAGES:
        yield f"{model}, reference kernels", [*sweep, "--kernels", "reference", "--plans", "one", f"tests/models/{model}"]


def training(_):
    train = ["tests/training/train.py", "--target", "cuda", "--plans"]
    for case in CURVES:
        yield case, [*train, "one", case]
    for case in CUT_CURVES:
        for plan in (UNITS, TENSOR, DATA, MESH):
            yield f"{case} {plan}", [*train, plan, case]
    for case in ("gpt2", "llama"):
        for options in VARIANTS:
            plan = UNITS if "reducer" in options else TENSOR
            yield f"{case} {plan} {options}", [*train, plan, case, f"--options= {options}"]


def stages(_):
    for case in pipeline.QUICK["cuda"]:
        yield case, ["tests/training/pipeline.py", "--target", "cuda", case]


def amp(_):
    run = ["tests/training/amp.py", "--target", "cuda", "--plans"]
    for case in AMP_CASES:
        yield f"fp16 {case}", [*run, TENSOR, "--cases", case, "fp16"]
        yield f"pure {case}", [*run, TENSOR, "--cases", case, "pure"]
        if case != "cnn":
            yield f"bf16 {case}", [*run, f"one {TENSOR}", "--cases", case, "bf16"]
    for check in ("normed", "scaled", "static"):
        yield check, [*run, f"one {UNITS}", check]


def fp8(_):
    run = ["tests/training/fp8.py", "--target", "cuda", "--plans"]
    for plan in ("one", UNITS, TENSOR, DATA):
        yield f"curves {plan}", [*run, plan, "curves"]
        yield f"curves {plan}, library", [*run, plan, "--library", "curves"]
    for check in ("exact", "resumed", "mixed"):
        yield check, [*run, "one", "--library", check]


def nccl(_):
    for case in nccl_gpu.CASES:
        yield f"ranks on one GPU, {case}", ["tests/cuda/nccl_gpu.py", case]


def under_sanitizer(_):
    for program in sanitizer.PROGRAMS:
        yield program, ["tests/cuda/sanitizer.py", program]


def memory(_):
    yield "as planned", ["tests/cuda/memory.py"]


def bench(_):
    for size in ("gpu_gpt2", "gpu_llama", "gpu_gpt2_odd"):
        yield size, ["bench/gpu.py", size]
    yield "gpu_llama, atomic gradients", ["bench/gpu.py", "--options= --attention cudnn-atomic", "--work", "/tmp/rankc-bench-atomic", "gpu_llama"]
    for size in ("gpu_gpt2_tiny", "gpu_llama_tiny", "gpu_stack_tiny"):
        yield size, ["bench/gpu.py", "--rounds", "2", "--steps", "2", "--work", "/tmp/rankc-bench-tiny", size]


def inference(_):
    run = ["bench/gpu.py", "--rounds", "3", "--steps", "30"]
    for dtype in ("bf16", "f32"):
        for batch in (1, 32):
            for kind in ("gpt2", "llama", "resnet50", "bert"):
                yield f"gpu_{kind}_{batch}_{dtype}", [*run, f"gpu_{kind}_{batch}_{dtype}"]
    yield "gpu_gpt2_1_bf16, max-autotune", [*run, "--mode", "max-autotune", "gpu_gpt2_1_bf16"]
    for size in ("gpu_stack_128", "gpu_stack_1"):
        yield size, [*run, size]
    for kind in ("gpt2", "llama", "resnet50", "bert"):
        for dtype in ("bf16", "f32"):
            yield f"gpu_{kind}_{dtype}_tiny", ["bench/gpu.py", "--rounds", "1", "--steps", "1", "--work", "/tmp/rankc-bench-tiny", f"gpu_{kind}_{dtype}_tiny"]


def generation(_):
    run = ["bench/gpu.py", "--rounds", "3", "--prompt"]
    for kind in ("llama", "gpt2"):
        for prompt in ("128", "2048"):
            yield f"gpu_{kind}_decoder, {prompt} tokens before", [*run, prompt, f"gpu_{kind}_decoder"]
    for kind in ("llama", "gpt2"):
        yield f"gpu_{kind}_decoder_tiny", [*run, "16", "--new", "8", "--rounds", "1", "--work", "/tmp/rankc-bench-tiny", f"gpu_{kind}_decoder_tiny"]


def offloaded(_):
    for case in offload.CASES:
        yield case, ["tests/cuda/offload.py", case]
    for kind in "optimizer", "weights":
        yield f"gpu_gpt2, {kind}", ["bench/gpu.py", "--rounds", "2", f"--options= --offload {kind}", "--work", f"/tmp/rankc-bench-{kind}", "gpu_gpt2"]


def predictions(_):
    for row in gpu_predictions.ROWS:
        yield row, ["bench/gpu_predictions.py", row]


def profile(_):
    for size in ("gpu_gpt2", "gpu_llama", "gpu_gpt2_tiny"):
        yield size, ["bench/gpu.py", "--profile", size]
    yield "machine file", ["tests/cuda/profile_gpu.py"]


# Checks of a part run side by side, or one at a time where the GPU is measured.
PARALLEL = {"operators": operators, "products": products, "attention": attention, "models": models, "training": training, "stages": stages,
            "amp": amp, "decoding": decoding, "fp8": fp8, "sanitizer": under_sanitizer, "memory": memory}
ALONE = {"nccl": nccl, "bench": bench, "inference": inference, "generation": generation, "offload": offloaded, "predictions": predictions, "profile": profile}
PARTS = {**PARALLEL, **ALONE}
LIMITS = {"inference": 60, "generation": 120} # seconds for a check of these parts on a GPU
LEAST = 10 # seconds that a check needs at least
LARGE = "gpu_*[!y]" # for a GPU alone: what is not tiny


def pip_libraries():
    """Where pip put what an image's toolkit may lack: headers and libraries."""
    found = [folder for path in sys.path for name in ("cudnn", "nccl") for folder in glob.glob(f"{path}/nvidia/{name}")]
    return [f"{folder}/include" for folder in found], [f"{folder}/lib" for folder in found]


def output_of(command, env=None):
    """What it prints; of one that is not there, that."""
    try:
        return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120).stdout.strip()
    except OSError as error:
        return f"{command[0]}: {error.strerror}"


def gpu_arch():
    """Of the GPU that is here, with what only it has."""
    major, _, minor = output_of(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]).split("\n")[0].partition(".")
    return f"sm_{major}{minor}{'a' * (int(major) >= 9)}" if major.isdigit() else "native"


def environment(stand_in):
    """Programs are made for the GPU that is here; those of target C are only compared with."""
    includes, libraries = pip_libraries()
    env = {"CFLAGS": "-O1", "GPU_ARCH": gpu_arch(), **os.environ}
    for name, folders in (("CPATH", includes), ("LD_LIBRARY_PATH", libraries)):
        env[name] = os.pathsep.join([*folders, *filter(None, [env.get(name)])])
    env.setdefault("COMPILED", os.path.join(tempfile.gettempdir(), f"rankc-compiled-{os.getuid()}"))
    if stand_in:
        env.update(NVCC=os.path.join(HERE, "host", "nvcc"), NVCCFLAGS="-O0")
    else:
        env.setdefault("NVCC", os.path.join(HERE, "nvcc_once"))
    return env


def finish(command, env, timeout):
    """How a check ended, and what it printed. One that takes too long is ended with all that it started."""
    process = subprocess.Popen(command, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        said, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return "FAILED", f"{process.communicate()[0]}\nended after {timeout:.0f} s"
    return {0: "ok", 77: "skipped"}.get(process.returncode, "FAILED"), said


class Runner:
    def __init__(self, options):
        self.options, self.env = options, environment(options.stand_in)
        self.rankc = f"{options.build}/frontend/rankc"
        self.counts, self.begin, self.late = {"ok": 0, "FAILED": 0, "skipped": 0}, time.monotonic(), 0

    def run(self, check):
        begin = time.monotonic()
        left = self.options.within - (begin - self.begin)
        if left < LEAST:
            self.late += 1
            return
        status, said = finish([sys.executable, "-B", *check.words, "--rankc", self.rankc], self.env,
                              min(self.options.timeout, math.inf if self.options.stand_in else LIMITS.get(check.part, math.inf), left))
        self.note(check, status, said, time.monotonic() - begin)

    def note(self, check, status, said, seconds):
        lines = said.strip().splitlines()
        self.counts[status] += 1
        print(f"{check.part:10} {check.name:60} {status:8} {seconds:6.1f} s", flush=True)
        if status != "ok":
            print("".join(f"    {line[:300]}\n" for line in lines[-12:]), end="", flush=True)
        figures = [json.loads(line) for line in lines if line.startswith('{"figure')]
        with open(self.options.results, "a") as out:
            out.write(json.dumps({"part": check.part, "name": check.name, "status": status, "seconds": round(seconds, 1),
                                  "figures": figures, "said": [line for line in lines if not line.startswith('{"figure')][-60:]}) + "\n")


def note_machine(runner):
    """What the results depend on: the first line of a run."""
    nvcc = output_of([runner.env.get("NVCC", "nvcc"), "--version"], runner.env).splitlines()
    gpu = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm", "--format=csv,noheader"]
    said = {"gpu": output_of(gpu), "nvcc": next((line for line in nvcc if "release" in line), nvcc[0]),
            "rankc": output_of([runner.rankc, "--version"]), "doctor": output_of([runner.rankc, "doctor"], runner.env).splitlines(),
            "python": sys.version.split()[0], "date": time.strftime("%Y-%m-%d")}
    with open(runner.options.results, "a") as out:
        out.write(json.dumps({"part": "machine", "stand_in": runner.options.stand_in, **said}) + "\n")


def chosen(options):
    for part in options.parts or PARTS:
        for name, words in PARTS[part](options.build):
            wanted = any(fnmatch.fnmatch(name, pattern) for pattern in options.only or "*")
            if wanted and not (options.stand_in and fnmatch.fnmatch(name, LARGE)):
                yield Check(part, name, words)


def options_of():
    parser = parser_of(__doc__, rankc=False)
    parser.prog = "gpu.sh run"
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="meson's build directory, or a bundle's")
    parser.add_argument("--results", default="gpu-results.jsonl", help="lines are added [%(default)s]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="checks at a time [%(default)s]")
    parser.add_argument("--timeout", type=float, default=540, help="seconds for a check [%(default)s]")
    parser.add_argument("--within", type=float, default=math.inf, metavar="SECONDS",
                        help="when all are to have ended: those that run are ended then, and none is started shortly before")
    parser.add_argument("--stand-in", action="store_true", help="without a GPU: compile for the CPU")
    parser.add_argument("--only", action="append", metavar="GLOB", help="checks whose name matches; repeatable")
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {' '.join(PARTS)} [all]")
    options = parser.parse_args()
    options.build, options.results = os.path.abspath(options.build), os.path.abspath(options.results)
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"there is no part '{part}'")
    return options


def main():
    options, begin = options_of(), time.monotonic()
    checks = list(chosen(options))
    if options.list:
        print("".join(f"{check.part:10} {check.name}\n" for check in checks), end="")
        return 0
    if not options.stand_in and not glob.glob("/dev/nvidia[0-9]*"):
        skip("there is no GPU")
    runner = Runner(options)
    note_machine(runner)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(runner.run, [check for check in checks if check.part in PARALLEL]))
    for check in checks:
        if check.part in ALONE:
            runner.run(check)
    counts = runner.counts
    late = f", {runner.late} not started" if runner.late else ""
    print(f"{counts['ok']} passed, {counts['FAILED']} failed, {counts['skipped']} skipped{late} in {time.monotonic() - begin:.0f} s")
    return counts["FAILED"] > 0


if __name__ == "__main__":
    sys.exit(main())
