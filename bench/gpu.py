#!/usr/bin/env python3
"""Times target cuda against PyTorch, and against what its matrix products alone take; tests/gpu.sh calls it.

    gpu.py --rankc RANKC [--profile] [--rounds R] [--steps S] [--options "OPTION..."] [--work DIR] NAME...

NAME is one of sizes.py. Both sides have the same weights, written here, and turns: S steps of one, S of the other, in R rounds of one
run; neither computes while the other does. PyTorch is one process all the time, compiled once (peer_torch_gpu.py); rankc's program is
started anew. Losses of the first steps must agree first. Prints figures as lines of JSON, {"figure": ...}:

  training    tokens per second and milliseconds per step, of each side the median of rounds and their spread; the ratio; the time of the
              step's products by cuBLASLt alone (products.cu), and its share of the step; MFU, flops being those of the compiled
              graph's products and attention, a causal one counted whole, over PEAKS; the memory of both
  inference   the same of one batch, from memory of the host to memory of the host; PyTorch with CUDA graphs (--mode). "start_s" is the
              time of a process from its start to the first result, of programs that are compiled and files that are cached
  decoding    tokens per second of --prompt tokens, and of --new ones behind them, chosen greedily; bytes of weights per second that
              steps read then; how many ids are equal, as bf16 rounds otherwise in each

--profile instead says which kernels the time of rankc's step goes to (device_trace.cpp). Exit status 77 where PyTorch, onnx or the library
for profiles is missing."""
import argparse
import contextlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from statistics import median

import numpy as np

from measure import Failed, run
from sizes import SIZES
from device_trace import NoTrace, build_trace, traced

HERE = os.path.dirname(os.path.abspath(__file__))
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12} # flops per second in bf16, dense, by NVIDIA's data sheets
APART = 5e-3 # losses of the first steps: bf16 rounds otherwise in each; of their size
OUTPUTS_APART = {"bf16": 0.05, "f32": 1e-3} # of the largest, of some dozen layers
WARM = 3     # steps of a round that do not count


class Missing(Exception):
    """What this needs and is not here."""


def say(**figures):
    print(json.dumps({"figure": figures}), flush=True)


def python_with(module):
    for python in (sys.executable, "python3", "/usr/bin/python3"):
        with contextlib.suppress(Failed):
            run([python, "-c", f"import {module}"], 120)
            return python
    raise Missing(f"no Python with {module}")


# Programs

TRAINING = ["--train", "--optimizer", "adamw:lr=1e-4,weight_decay=0", "--amp", "bf16"]


def write_model(work, name):
    """A model of sizes.py, if it is not there yet."""
    model = f"{work}/{name}.onnx"
    if not os.path.exists(model):
        run([python_with("onnx"), "-B", f"{HERE}/models.py", name, work], 500)
    return model


class Rankc:
    """A compiled model of sizes.py."""

    def __init__(self, args, name, place=None):
        """place: of its program, if there is another of the model."""
        self.args, self.name, self.size, self.work = args, name, SIZES[name], args.work
        self.options = [*(TRAINING if self.size.trains else ["--dtype", self.size.dtype]), *self.sizes(), *args.options.split(), "--target",
                        "cuda"]
        self.model = write_model(self.work, name)
        self.out = f"{self.work}/compiled/{place or name}"
        run([args.rankc, "compile", self.model, "-o", self.out, "-q", "--reuse", "moo", *self.options], 500)
        self.program = f"{self.out}/{name}/_/build/run"

    def sizes(self):
        """Of steps and caches of a decoder."""
        if not self.size.decodes:
            return []
        return ["--state", "auto", "--logits", "last", "--dim", f"sequence=1..{self.args.prompt}", "--dim", f"past_sequence=0..{self.size.length}"]

    def graph(self):
        """The whole step as text IR."""
        return run([self.args.rankc, "compile", self.model, "-o", self.out, "-q", *self.options, "--dump-after", "fuse_sums"], 300)

    def tied(self):
        """Whether a step reads all embeddings, as the head."""
        return self.size.kind == "gpt2"

    def memory(self):
        return json.loads(run([self.args.rankc, "show", self.out, "--json"], 60))["ranks"][0]["memory"]["peak"]

    def command(self, count):
        if not self.size.trains:
            return [self.program, "--input", f"x={given_file(f'{self.work}/{self.name}.x.npy', self.size.dtype)}", "--warmup",
                    str(WARM if count > 1 else 0), "--repeat", str(count), "--json", "--output-dir", f"{self.work}/out/{self.name}"]
        return [self.program, "--data", f"x={self.work}/{self.name}.x.npy", "--data", f"labels={self.work}/{self.name}.labels.npy",
                "--steps", str(WARM + count), "--log", f"{self.work}/log"]

    def round(self, count):
        """{"ms": median of a step, "loss": of every step}"""
        if not self.size.trains:
            return {"ms": json.loads(run(self.command(count), 300))["step_ms"]["median"]}
        with contextlib.suppress(FileNotFoundError):
            os.remove(f"{self.work}/log")
        run(self.command(count), 500)
        with open(f"{self.work}/log") as lines:
            steps = [json.loads(line) for line in lines]
        return {"ms": median(step["ms"] for step in steps[WARM:]), "loss": [step["loss"] for step in steps]}


class Torch:
    """PyTorch's process, which computes when it is told to."""

    def __init__(self, args, name):
        mode = [] if SIZES[name].trains else [args.mode]
        self.process = subprocess.Popen([python_with("torch"), "-B", f"{HERE}/peer_torch_gpu.py", name, args.work, *mode], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def steps(self, *counts):
        self.process.stdin.write(" ".join(map(str, counts)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"PyTorch ended with {self.process.wait()}")
        return json.loads(line)

    def round(self, count):
        said = self.steps(WARM + count)
        return {**said, "ms": median(said["ms"][WARM:])}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def bits_of_bf16(x):
    bits = x.astype("f4").view("u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("u2").view("V2")


def given_file(path, dtype):
    """The same input as rankc reads it."""
    given = np.load(path)
    if dtype == "f32" or given.dtype != np.float32:
        return path
    halves = path.replace(".npy", ".bf16.npy")
    np.save(halves, bits_of_bf16(given))
    return halves


# What a step computes

TENSOR = re.compile(r'(%\d+) "(?:[^"\\]|\\.)*" (\w+)\[([\d,]*)\]')


def nodes_of(graph):
    """(operator, operands as (type, shape), results likewise, text) of every node of text IR."""
    tensors = {}
    for line in graph.splitlines():
        made, _, does = line.partition(" = ") if re.match(r'%\d+ ', line) else (line, "", "")
        results = []
        for name, dtype, shape in TENSOR.findall(made):
            tensors[name] = (dtype, [int(n) for n in shape.split(",") if n])
            results.append(tensors[name])
        call = re.match(r"(\w+)\(([^)]*)\)(.*)", does)
        if call:
            yield call[1], [tensors.get(operand) for operand in call[2].split(", ")], results, call[3]


def product_of(operands, result, text):
    """(type, batch, m, k, n, trans_a, trans_b)"""
    (dtype, a), (_, b) = operands[:2]
    trans_a, trans_b = (int(f"trans_{x}=1" in text) for x in "ab")
    k, n = a[-2] if trans_a else a[-1], result[1][-1]
    batch = math.prod(b[:-2])
    return dtype, batch, math.prod(result[1]) // n // batch, k, n, trans_a, trans_b


def attention_of(operands, factor):
    """The products that attention makes, as if scores were kept: forward 2, backward 4."""
    dtype, (*lead, t, d) = operands[0]
    s, e, batch = operands[1][1][-2], operands[2][1][-1], math.prod(lead)
    return {(dtype, batch, t, d, s, 0, 1): factor, (dtype, batch, t, s, e, 0, 0): factor}


def products_of(graph):
    """Counts of the products of a step: those by themselves, and those of attention."""
    linear, attention = Counter(), Counter()
    for op, operands, results, text in nodes_of(graph):
        if op == "MatMul":
            linear[product_of(operands, results[0], text)] += 1
        elif op == "FlashAttention":
            attention.update(attention_of(operands, 1))
        elif op == "FlashAttentionGrad":
            attention.update(attention_of(operands[1:], 2))
    return linear, attention


def flops_of(products):
    return sum(count * 2 * batch * m * k * n for (_, batch, m, k, n, _, _), count in products.items())


def products_program(args):
    program, build = f"{args.work}/products", os.path.dirname(os.path.dirname(os.path.abspath(args.rankc)))
    nvcc = [os.environ.get("NVCC", "nvcc"), "-std=c++20", "-O3", "-arch=native"]
    run([*nvcc, "-I", f"{build}/frontend/include", "-c", "-o", f"{program}.o", f"{HERE}/products.cu"], 300)
    # the runtime for what stands in for the library where there is no GPU
    run([*nvcc, "-o", program, f"{program}.o", f"{build}/runtime/librankc-rt.a", "-lcublasLt", "-lgomp", "-ldl"], 300)
    return program


def least_ms(args, products):
    """By products.cu."""
    program = products_program(args)
    lines = "".join(" ".join(map(str, (count, *product))) + "\n" for product, count in products.items())
    done = subprocess.run([program], input=lines, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise Failed(f"products: {done.stderr.strip()}")
    return json.loads(done.stdout)["ms"]


def gpu_name():
    """As the driver says; "" without one."""
    try:
        return subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True).stdout
    except OSError:
        return ""


def peak_of_gpu():
    return next((flops for known, flops in PEAKS.items() if known in gpu_name()), None)


# Figures

def spread(values):
    return {"median": median(values), "least": min(values), "most": max(values)}


def check_losses(ours, theirs):
    worst = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
    if not worst <= APART:
        raise Failed(f"losses are {ours}, PyTorch's {theirs}: not the same computation")
    return worst


def check_outputs(args, name):
    out = f"{args.work}/out/{name}"
    with open(f"{out}/outputs.json") as file:
        path = f"{out}/{json.load(file)['outputs'][0]['file']}"
    ours, theirs = np.load(path), np.load(f"{args.work}/{name}.torch.npy")
    if SIZES[name].dtype == "bf16":
        ours = (ours.view("u2").astype("u4") << 16).view("f4")
    apart = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    if not apart <= OUTPUTS_APART[SIZES[name].dtype]:
        raise Failed(f"outputs differ by {apart:g} of the largest: not the same computation")
    return apart


def compare(args, name):
    rankc = Rankc(args, name)
    with Torch(args, name) as torch:
        first, peer = rankc.round(1), torch.steps(WARM + 1)
        trains = rankc.size.trains
        apart = check_losses(first["loss"], peer["loss"]) if trains else check_outputs(args, name)
        rounds = [(rankc.round(args.steps), torch.round(args.steps)) for _ in range(args.rounds)]
    ours, theirs = ([side["ms"] for side in sides] for sides in zip(*rounds))
    return rankc, {
        "name": name, "steps": args.steps, "rounds": args.rounds, "options": " ".join(rankc.options), "apart": apart,
        "rankc_ms": spread(ours), "torch_ms": spread(theirs), "torch_over_rankc": spread([b / a for a, b in zip(ours, theirs)]),
        "rankc_memory": rankc.memory(), "torch_memory": rounds[-1][1]["memory"], "torch": rounds[-1][1]["version"]}


def seconds_of(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def first_result_of_torch(args, name):
    with Torch(args, name) as torch:
        torch.steps(1)


def decode(args, name):
    rankc = Rankc(args, name)
    ids = f"{args.work}/{name}.prompt{args.prompt}.npy"
    np.save(ids, np.load(f"{args.work}/{name}.x.npy")[:, :args.prompt])
    command = [args.rankc, "generate", rankc.out, "--input", f"input_ids={ids}", "--max-new-tokens", str(args.new), "--json", "-q"]
    with Torch(args, name) as torch:
        torch.steps(args.prompt, args.new)  # compiles
        rounds = [(json.loads(run(command, 300)), torch.steps(args.prompt, args.new)) for _ in range(args.rounds)]
    ours, theirs = zip(*rounds)
    with open(f"{args.work}/{name}.weights.json") as places:
        weights = sum(math.prod(place["shape"]) for key, place in json.load(places).items() if key != "wpe" and (key != "wte" or rankc.tied()))
    for key in ("prompt_tokens_per_s", "tokens_per_s"):
        sides = {"rankc": spread([side[key] for side in ours]), "torch": spread([side[key] for side in theirs])}
        say(name=name, prompt=args.prompt, new=args.new, options=" ".join(rankc.options), torch=theirs[-1]["version"], **{key: sides},
            **{f"rankc_over_torch_{key}": spread([a[key] / b[key] for a, b in rounds])})
    equal = next((at for at, (a, b) in enumerate(zip(ours[0]["ids"][0], theirs[0]["ids"])) if a != b), args.new)
    say(name=name, equal_ids=equal, weight_bytes_per_s={side: 2 * weights * median(one["tokens_per_s"] for one in found)
                                                        for side, found in (("rankc", ours), ("torch", theirs))}, memory=rankc.memory())
    if not equal:
        raise Failed("the first ids differ: not the same computation")


def bench(args, name):
    if SIZES[name].decodes:
        decode(args, name)
        return
    rankc, figures = compare(args, name)
    say(**figures)
    if not rankc.size.trains:
        starts = {"rankc": min(seconds_of(lambda: run(rankc.command(1), 120)) for _ in range(2)),
                  "torch": seconds_of(lambda: first_result_of_torch(args, name))}
        say(name=name, start_s=starts, load_ms=json.loads(run(rankc.command(1), 120))["load_ms"])
        return
    tokens, ms, peak = rankc.size.batch * rankc.size.length, figures["rankc_ms"]["median"], peak_of_gpu()
    linear, attention = products_of(rankc.graph())
    flops, least = flops_of(linear + attention), least_ms(args, linear)
    say(name=name, tokens_per_s={"rankc": tokens / ms * 1e3, "torch": tokens / figures["torch_ms"]["median"] * 1e3}, flops=flops,
        mfu={"rankc": flops / ms * 1e3 / peak, "torch": flops / figures["torch_ms"]["median"] * 1e3 / peak} if peak else None,
        products_ms=least, share_of_products=least / ms)
    whole = least + least_ms(args, attention)
    say(name=name, products_with_attention_ms=whole, share_of_products_with_attention=whole / ms)


def profile(args, name, kernels=25):
    rankc = Rankc(args, name)
    steps = WARM + args.steps
    ms = rankc.round(args.steps)["ms"]
    found = traced(build_trace(args.work), rankc.command(args.steps))
    names = run(["c++filt", *(kernel["name"] for kernel in found["kernels"])], 60).splitlines()
    rows = sorted(({"kernel": demangled.removeprefix("void ")[:110], "ms": kernel["ns"] / steps / 1e6, "count": kernel["count"] / steps,
                    "idle": kernel["idle_ns"] / steps / 1e6} for kernel, demangled in zip(found["kernels"], names)), key=lambda row: -row["ms"])
    busy, idle = (sum(row[key] for row in rows if not row["kernel"].startswith("mem")) for key in ("ms", "idle"))
    say(name=name, step_ms=ms, kernels_ms=busy, idle_before_kernels_ms=idle, kernels=sum(row["count"] for row in rows),
        device_peak=found["device_peak"], planned_peak=rankc.memory())
    print(f"{'a step':>12} {'of it':>6} {'times':>7} {'idle before':>14}")
    for row in rows[:kernels]:
        print(f"{row['ms']:9.3f} ms {row['ms'] / ms:6.1%} {row['count']:7.1f} {row['idle']:11.3f} ms  {row['kernel']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--mode", default="reduce-overhead", help="of torch.compile for inference [%(default)s]")
    parser.add_argument("--prompt", type=int, default=128, help="tokens that decoders begin with [%(default)s]")
    parser.add_argument("--new", type=int, default=128, help="tokens that they write [%(default)s]")
    parser.add_argument("--options", default="", help="further ones of `rankc compile`")
    parser.add_argument("--work", default=f"{tempfile.gettempdir()}/rankc-bench-gpu", help="models and programs [%(default)s]")
    parser.add_argument("names", nargs="+", choices=SIZES, metavar="NAME")
    args = parser.parse_args()
    os.makedirs(f"{args.work}/out", exist_ok=True)
    try:
        for name in args.names:
            (profile if args.profile else bench)(args, name)
    except (Missing, NoTrace) as why:
        print(f"skipped: {why}")
        return 77
    except Failed as why:
        print(f"FAILED: {why}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
