#!/usr/bin/env python3
"""Times decoders beside llama.cpp and onnxruntime-genai, and writes docs/measured/decoding-speed.md:

    bench/decoding.py prepare --build BUILD --work DIR --python PYTHON [--only GLOB]
    bench/decoding.py time --build BUILD --work DIR --python PYTHON [--only GLOB] [--rounds N]
    bench/decoding.py page --work DIR --page FILE.md [--rounds N]

Models have random weights (decoding_models.py): GPT-2 124M, and a Llama of the sizes of one of 1B parameters with 4 of its 16 layers. A case
has sides that take turns in rounds, each a process of its own, and a ratio is that within a round. DIR keeps models, programs and rounds, so
that a few cases can be timed at a time: their names are those of CASES. The page has the last N rounds of each in which others left the
machine alone. PYTHON has torch,
transformers, onnxscript, gguf, llama-cpp-python, which is built for the processor when it is installed, and onnxruntime-genai."""
import argparse
import fnmatch
import json
import os
import shutil
import statistics
import sys
import time as clock
from dataclasses import dataclass

import numpy

from bench import processor
from measure import Failed, busy_seconds, own_seconds, run

HERE = os.path.dirname(os.path.abspath(__file__))
PROMPT, NEW = 128, 128
MOST_FOREIGN = 0.15  # processors' worth of others' load in a round that counts
LLAMA = "llama-4"
TITLES = {"gpt2": "GPT-2 124M", LLAMA: "Llama"}
BITS = {"f32": 32, "bf16": 16, "int8": 8 + 1, "int4": 4 + 1}  # of a weight and of its part of a scale
KINDS = {"f32": [], "bf16": ["--weight-dtype", "bf16:activations=bf16"], "int8": ["--weight-dtype", "int8:activations=int8"],
         "int4": ["--weight-dtype", "int4:activations=int8"]}
TP = ("--pas", "tp:tensor=2", "--plan-ngpus", "2")


@dataclass(frozen=True)
class Program:
    """With caches for `bound` tokens and steps of at most `chunk`."""
    name: str
    kind: str = "f32"
    bound: int = 384
    chunk: int = PROMPT
    plan: tuple = ()
    logits: str = "last"


@dataclass(frozen=True)
class Rankc:
    program: Program
    threads: int
    prompt: int = PROMPT
    new: int = NEW

    def sample(self, bench):
        said = json.loads(run([bench.rankc, "generate", bench.made(self.program), "--input", f"input_ids={bench.ids(self.prompt)}",
                               "--max-new-tokens", str(self.new), "--threads", str(self.threads), "--json"], 85))
        chunk = 1e3 * min(self.program.chunk, self.prompt) / said["prompt_tokens_per_s"]
        return {"prompt": said["prompt_tokens_per_s"], "decode": said["tokens_per_s"], "ids": said["ids"][0],
                "ms": chunk if self.new == 1 else statistics.median(said["step_ms"]["all"])}


@dataclass(frozen=True)
class Peer:
    runtime: str
    model: str
    threads: int

    def sample(self, bench):
        said = json.loads(run([bench.given.python, f"{HERE}/peer_decoding.py", self.runtime, f"{bench.work}/{self.model}", str(self.threads),
                               bench.ids(PROMPT), str(NEW)], 85))
        return {"prompt": said["prompt_tokens_per_s"], "decode": said["tokens_per_s"], "ids": said["ids"][0]}


@dataclass(frozen=True)
class Stream:
    threads: int

    def sample(self, bench):
        return {"rate": float(run([bench.stream(), str(self.threads)], 60))}


class Bench:
    """Where things are; programs are made at their first use."""

    def __init__(self, given):
        self.given, self.work = given, os.path.abspath(given.work)
        self.rankc = f"{os.path.abspath(given.build)}/frontend/rankc"

    def models(self, names, *options):
        run([self.given.python, f"{HERE}/decoding_models.py", self.work, *names, *options], 3600)

    def ids(self, count):
        path = f"{self.work}/ids{count}.npy"
        if not os.path.exists(path):
            numpy.save(path, numpy.random.default_rng(count).integers(3, 30000, (1, count)))
        return path

    def made(self, program):
        out = f"{self.work}/programs/{program.name}-{program.kind}-{program.bound}-{program.chunk}-{program.logits}{'-tp' if program.plan else ''}"
        if not os.path.exists(f"{out}/done") or os.path.getmtime(f"{out}/done") < os.path.getmtime(self.rankc):
            shutil.rmtree(out, ignore_errors=True)
            sizes = {"batch_size": 1, "sequence_length": f"1..{program.chunk}", "past_sequence_length": f"0..{program.bound}",
                     **({} if program.name.startswith("gpt2") else {"kv_cache_dim": 64})}
            run([self.rankc, "compile", f"{self.work}/{program.name}/f32/model.onnx", "-o", out, "-q", "--state", "auto", "--logits", program.logits,
                 *(word for size in sizes.items() for word in ("--dim", "%s=%s" % size)), *KINDS[program.kind], *program.plan], 600)
            open(f"{out}/done", "w", encoding="ascii").close()
        return out

    def stream(self):
        if not os.path.exists(f"{self.work}/stream"):
            run(["cc", "-O3", "-march=native", "-fopenmp", f"{HERE}/stream.c", "-o", f"{self.work}/stream"], 60)
        return f"{self.work}/stream"


# Cases -------------------------------------------------------------------------------------------------------------------

def beside_peers(name, kind, threads):
    sides = {"rankc": Rankc(Program(name, kind), threads), "llama.cpp": Peer("llama.cpp", f"{name}/{kind}.gguf", threads), "stream": Stream(threads)}
    return sides if name == "gpt2" or kind == "bf16" else {**sides, "genai": Peer("genai", f"{name}/{kind}", threads)}


def curve(what, *sides):
    return {f"{number}{what}": side for number, side in sides}


# Name: what the lines of its table are, and the sides.
SAID = {"cache": "A step by what is in the caches, of the Llama with 4-bit weights on 2 threads",
        "bound": "A step by the bound of the caches, with 16 tokens in them",
        "layers": "A step by layers, of GPT-2 in f32 on 2 threads",
        "rows": "A step by its rows, of a prompt in chunks, of the Llama in f32 on 2 threads",
        "ranks": "A step by ranks, of the Llama in f32"}
CURVES = {
    "cache": ("tokens in the caches", curve("", *((fill, Rankc(Program(LLAMA, "int4", 4032), 2, fill, 24)) for fill in (64, 512, 1024, 2048, 4000)))),
    "bound": ("bound of the caches", curve("", *((bound, Rankc(Program(LLAMA, "int4", bound), 2, 16, 48)) for bound in (64, 1024, 32768)))),
    "layers": ("layers of GPT-2", curve("", *((n, Rankc(Program("gpt2" if n == 12 else f"gpt2-{n}"), 2, 16, 64)) for n in (2, 4, 8, 12)))),
    "rows": ("rows of a step", curve("", *((rows, Rankc(Program(LLAMA, bound=640, chunk=rows, logits="all"), 2, 512 if rows > 16 else 128, 1))
                                           for rows in (1, 2, 4, 8, 16, 128)))),
    "ranks": ("ranks and threads", {"1 rank, 1 thread": Rankc(Program(LLAMA), 1, new=48), "1 rank, 2 threads": Rankc(Program(LLAMA), 2, new=48),
                                    "2 ranks, 1 thread each": Rankc(Program(LLAMA, plan=TP), 1, new=48)}),
}
CASES = {**{f"{name}-{kind}-{threads}": beside_peers(name, kind, threads) for name in TITLES for kind in KINDS for threads in (1, 2)},
         **{name: sides for name, (_, sides) in CURVES.items()}}


def prepare(bench):
    chosen = [side for name in fnmatch.filter(CASES, bench.given.only) for side in CASES[name].values()]
    bench.models(TITLES)
    bench.models(sorted({side.program.name for side in chosen if isinstance(side, Rankc)} - set(TITLES)) or ["gpt2"], "--onnx")
    bench.stream()
    for side in chosen:
        if isinstance(side, Rankc):
            bench.made(side.program)


def equal(ids, other):
    return next((at for at, (a, b) in enumerate(zip(ids, other)) if a != b), len(other))


def time(bench):
    for name in fnmatch.filter(CASES, bench.given.only):
        for _ in range(bench.given.rounds):
            row = {"case": name, "cpu": processor(), "sides": {}}
            begin, others = clock.monotonic(), busy_seconds() - own_seconds()
            for side, sample in CASES[name].items():
                try:
                    row["sides"][side] = sample.sample(bench)
                except Failed as reason:
                    print(f"{name}: without {side}: {reason}", flush=True)
            ids = {side: figures.pop("ids") for side, figures in row["sides"].items() if "ids" in figures}
            row["equal"] = {side: equal(ids["rankc"], other) for side, other in ids.items() if "rankc" in ids}
            row["foreign"] = round((busy_seconds() - own_seconds() - others) / (clock.monotonic() - begin), 3)
            with open(f"{bench.work}/rounds.jsonl", "a", encoding="ascii") as out:
                out.write(json.dumps(row) + "\n")
            print(name, {side: {key: round(value, 2) for key, value in s.items()} for side, s in row["sides"].items()}, row["equal"],
                  f"others {row['foreign']:.2f}", flush=True)


# The page ----------------------------------------------------------------------------------------------------------------

def table(head, rows):
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def figure(value):
    return f"{value:.0f}" if value >= 99.5 else f"{value:.3g}"


def middle(rounds, side, key):
    values = [row[side][key] for row in rounds if side in row]
    return statistics.median(values) if values else None


def spread(ratios, text="{:.2f}"):
    return f"**{text.format(statistics.median(ratios))}** ({text.format(min(ratios))} to {text.format(max(ratios))})" if ratios else ""


def beside(rounds, peer, key):
    """The cells of a peer."""
    ratios = [row["rankc"][key] / row[peer][key] for row in rounds if peer in row and "rankc" in row]
    return [figure(middle(rounds, peer, key)), spread(ratios)] if ratios else ["", ""]


def share(rounds, bytes_read):
    """Of what a plain read of memory reached in the same round."""
    return spread([bytes_read * row["rankc"]["decode"] / row["stream"]["rate"] / 1e9 for row in rounds if "stream" in row and "rankc" in row])


def main_table(bench, known, key):
    rows = []
    for name in TITLES:
        with open(f"{bench.work}/{name}/weights.json", encoding="ascii") as file:
            weights = json.load(file)
        for kind in KINDS:
            for threads in (1, 2):
                rounds = known.get(f"{name}-{kind}-{threads}")
                if not rounds:
                    continue
                cells = [TITLES[name], kind, str(threads), str(len(rounds)), figure(middle(rounds, "rankc", key)), *beside(rounds, "llama.cpp", key),
                         *beside(rounds, "genai", key)]
                rows.append(cells + ([share(rounds, weights * BITS[kind] / 8)] if key == "decode" else []))
    head = ["model", "weights", "threads", "rounds", "rankc", "llama.cpp", "ratio", "onnxruntime-genai", "ratio"]
    return table(head + (["of a read"] if key == "decode" else []), rows)


def curve_table(known, name):
    rounds, (what, sides) = known.get(name, []), CURVES[name]
    first, rows = next(iter(sides)), []
    for side in sides:
        ratios = [row[side]["ms"] / row[first]["ms"] for row in rounds if side in row and first in row]
        if ratios:
            rows.append([side, f"{middle(rounds, side, 'ms'):.2f}", spread(ratios, "{:.3f}")])
    return table([what, "ms of a step", "to the first"], rows)


PAGE = """# Speed of decoding

Decoders on a CPU beside [llama.cpp](https://github.com/ggml-org/llama.cpp) and
[onnxruntime-genai](https://github.com/microsoft/onnxruntime-genai), and beside a plain read of memory. This page is written by
`bench/decoding.py`, whose head says how to repeat the measurements.

Processor: {cpu}, {cores} cores. Models have random weights: GPT-2 124M, and a Llama of the sizes of one of 1B parameters (2048 features, 32 heads, 8
of keys and values, 8192 features inside of feed-forward layers, a vocabulary of 32000), with 4 of its 16 layers. A run computes a prompt of {prompt}
tokens and writes {new} more, the most probable ones. Programs take turns; a ratio is rankc's speed to the other's within a round, given as the median
of the rounds, {rounds} at most (least to most): **above 1, rankc is faster**. Weights of 8 and 4 bits have a scale for every 32, and kernels round the other
operand to 8 bits: Q8_0 and Q4_0 of llama.cpp, accuracy level 4 of onnxruntime-genai, `--weight-dtype int8:activations=int8` and `int4` likewise of
rankc; bf16 is `bf16:activations=bf16`, since llama.cpp rounds so too. Programs are compiled with `--logits last`. onnxruntime-genai has no GPT-2, and no bf16 on CPUs. "of a read" is the rate at which
weights are read, scales included, to that of a plain read of memory by as many threads in the same round; a step reads its caches besides, of
GPT-2 with 192 tokens in them 14 MB. The machine is a virtual one, whose memory two threads read at 50 GB/s at one time and at 80 at another.

## Tokens per second, one after the other

{decode}

## Tokens per second of the prompt

{prefill}

{curves}"""


def page(bench):
    known, row = {}, {}
    with open(f"{bench.work}/rounds.jsonl", encoding="ascii") as file:
        for line in file:
            row = json.loads(line)
            if row["foreign"] <= MOST_FOREIGN:
                known.setdefault(row["case"], []).append(row["sides"])
    known = {name: rounds[-bench.given.rounds:] for name, rounds in known.items()}
    with open(bench.given.page, "w", encoding="utf-8") as out:
        out.write(PAGE.format(cpu=row["cpu"], cores=os.cpu_count(), rounds=bench.given.rounds, prompt=PROMPT, new=NEW,
                              decode=main_table(bench, known, "decode"), prefill=main_table(bench, known, "prompt"),
                              curves="".join(f"## {said}\n\n{curve_table(known, name)}\n\n" for name, said in SAID.items() if name in known)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prepare", "time", "page"))
    parser.add_argument("--build", default=f"{HERE}/../build")
    parser.add_argument("--work", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", default="*", help="cases whose name matches GLOB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--page", default=f"{HERE}/../docs/measured/decoding-speed.md")
    given = parser.parse_args()
    {"prepare": prepare, "time": time, "page": page}[given.what](Bench(given))


if __name__ == "__main__":
    main()
