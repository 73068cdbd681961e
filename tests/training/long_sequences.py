#!/usr/bin/python3
"""Trains a Llama with grouped attention (6 heads, 2 of keys and values) on sequences of 512 tokens whose positions are divided
among ranks, and compares it with one rank.

    long_sequences.py --rankc RANKC [--product] [--results FILE] [--table FILE]

Without --product: the plans of QUICK, for 3 steps. With it, 10 steps of every plan of product(). A plan whose result is in --results
is not run again, so that an interrupted run goes on.

Losses, gradient norms and the parameters after the last step are compared, with plain SGD. p is a plan's, `one` that of one rank, ref
that of one rank in f64; all compute with the reference kernels and see the same micro-batches, and `one` has flash attention if p has
ring attention, which is that. Required is

    max|p - ref| <= 2 max|one - ref| + 8 eps max|ref|

over the losses of all steps, over the norms of all steps, and over the elements of each parameter."""
import array
import itertools
import json
import os
import random
import struct
import sys
import tempfile

from harness import HERE, bound_of, call, expect, lines_of, parser_of, plan_of, report

MODEL = os.path.join(HERE, "..", "models", "llama", "model.onnx")
BATCH, LENGTH, VOCAB, SAMPLES, ACCUMULATE = 2, 512, 97, 16, 2

# How the sequence is divided in two and in four: policy without further axes, options. Two heads of keys cannot be exchanged among four.
DIVIDED = {
    2: [("context=2,attention=ring", []), ("context=2,attention=ring,cut=mirrored", []), ("tensor=2", ["--sequence-parallel"]), ("context=2", []), ("context=2,cut=mirrored", []), ("context=2,attention=heads", [])],
    4: [("context=4,attention=ring", []), ("context=4,attention=ring,cut=mirrored", []), ("tensor=2,context=2,attention=ring", []),
        ("tensor=2,context=2,attention=ring,cut=mirrored", ["--sequence-parallel"]), ("tensor=4", ["--sequence-parallel"]), ("context=4", []), ("context=4,cut=mirrored", []), ("tensor=2,context=2", []),
        ("tensor=2,context=2", ["--sequence-parallel"]), ("tensor=2,context=2,cut=mirrored", ["--sequence-parallel"]),
        ("tensor=2,context=2,attention=heads", ["--sequence-parallel"])],
}
# Axes, stages, units, ZeRO, schedule, recomputation, options
QUICK = [("context=4,cut=mirrored", 1, 1, 0, "-", "full"), ("context=3,attention=ring", 1, 1, 3, "-", "full"),
         ("tensor=2,context=2,attention=heads", 1, 1, 3, "-", "none", "--sequence-parallel"),
         ("tensor=3", 1, 1, 0, "-", "none", "--async-tp=5"), ("tensor=4", 1, 1, 0, "-", "full", "--sequence-parallel", "--async-tp=2")]


# Eight ranks that divide a sequence in four
EIGHT = [("context=4", 1, 2, 3, "-", "full"), ("tensor=2,context=2", 2, 1, 0, "1f1b", "full", "--sequence-parallel")]


def product():
    """Divided in 2: x stages 1, 2 x units 1, 2; ZeRO 0 to 3 if there is one stage, else 0 and 3; both schedules and full recomputation with
    ZeRO 0. Divided in 4: the same for one stage and one unit, and EIGHT."""
    for ways, divided in DIVIDED.items():
        more = (1, 2) if ways == 2 else (1,)
        for (axes, options), stages, units in itertools.product(divided, more, more):
            zeros = (0, 3) if stages > 1 else range(4)
            for zero in zeros if units > 1 or "context" in axes else (0,):
                schedules = ("1f1b", "zb-h1")[:1 if zero else 2] if stages > 1 else ("-",)
                for schedule, recompute in itertools.product(schedules, ("none",) if zero else ("none", "full")):
                    yield axes, stages, units, zero, schedule, recompute, *options
    yield from EIGHT
    for divided in ("tensor=2", "tensor=4"):
        for options in (["--async-tp=3"], ["--sequence-parallel", "--async-tp=2"]):
            for units, stages, zero in ((1, 1, 0), (1, 2, 0), (2, 1, 3)):
                yield divided, stages, units, zero, "1f1b" if stages > 1 else "-", "none", *options


def write_npy(path, rows):
    """Little-endian 64-bit integers, version 1.0 of the format."""
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({len(rows)}, {len(rows[0])}), }}".ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        for row in rows:
            file.write(struct.pack(f"<{len(row)}q", *row))


def write_data(work):
    """Tokens, and as labels the next ones; the options that name them."""
    source = random.Random(7)
    rows = [[source.randrange(VOCAB) for _ in range(LENGTH + 1)] for _ in range(SAMPLES)]
    files = {"input_ids": [row[:-1] for row in rows], "labels": [row[1:] for row in rows]}
    for name, values in files.items():
        write_npy(os.path.join(work, f"{name}.npy"), values)
    return [word for name in files for word in ("--data", f"{name}={os.path.join(work, name)}.npy")]


def tensors_of(path):
    """The tensors of a safetensors file as arrays, by name."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: array.array({"F32": "f", "F64": "d"}[entry["dtype"]], data[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def trained(rankc, steps, policy, units, accumulate, options, base):
    """The losses, the gradient norms, and each parameter after the last step. Works in a new directory under `base`."""
    work = tempfile.mkdtemp(dir=base)
    out, log, kept, merged = (os.path.join(work, name) for name in ("out", "log.jsonl", "checkpoints", "merged.safetensors"))
    call(rankc, "compile", MODEL, "-o", out, "-q", "--reuse", "override", "--dim", f"batch={BATCH}", "--dim", f"seq={LENGTH}", "--train",
         "--loss", "cross_entropy:logits=logits,labels=labels", "--optimizer", "sgd:lr=0.2", "--clip-grad-norm", "2",
         *plan_of(f"{policy}@{units}").options, "--accumulate", str(accumulate), *options)
    call(rankc, "verify", out, "-q")
    call(rankc, "train", out, *write_data(work), "--steps", str(steps), "--kernels", "reference", "--threads", "1", "--log", log,
         "--checkpoint-dir", kept, timeout=1800)
    call(rankc, "ckpt", "merge", os.path.join(kept, f"step-{steps}"), merged)
    metrics = [line for line in lines_of(log) if "loss" in line]
    return {"loss": [line["loss"] for line in metrics], "grad_norm": [line["grad_norm"] for line in metrics], **tensors_of(merged)}


def distance(values, reference):
    return max(abs(a - b) for a, b in zip(values, reference, strict=True))


def compare(plan, one, reference):
    """Raises Failed for what is outside the bound; the largest differences of losses and of norms from one rank, relative."""
    expect(plan.keys() == one.keys() == reference.keys(), "not the same parameters")
    for name, wanted in reference.items():
        allowed = bound_of(distance(one[name], wanted), max(map(abs, wanted)))
        found = distance(plan[name], wanted)
        expect(found <= allowed, f"{name}: {found:.2e} from f64, allowed are {allowed:.2e}")
    worst = (max(abs(a - b) / abs(b) for a, b in zip(plan[name], one[name])) for name in ("loss", "grad_norm"))
    return " ".join(f"{difference:.1e}" for difference in worst)


def check(o, known, row, work):
    axes, stages, units, zero, schedule, recompute, *options = row
    steps, micro_batches = 10 if o.product else 3, units * ACCUMULATE
    kernels = ["--attention", "flash"] if "ring" in axes else []
    for key, more in ((micro_batches, *kernels), kernels), (micro_batches, ["--dtype", "f64"]):
        if key not in known:
            known[key] = trained(o.rankc, steps, "dp", 1, micro_batches, more, work)
    policy = f"hybrid:{axes}" + (f",pipeline={stages}" if stages > 1 else "")
    options = options + ["--use-zero", str(zero)] + ([] if recompute == "none" else ["--recompute", recompute])
    options += ["--schedule", schedule] if stages > 1 else []
    return compare(trained(o.rankc, steps, policy, units, ACCUMULATE, options, work), known[micro_batches, *kernels], known[micro_batches])

HEAD = f"""# Training with divided sequences

Context parallelism and sequence parallelism ([sequence-parallel.md](../sequence-parallel.md)) compared with one rank. Written by
`tests/training/long_sequences.py --product --table`: a Llama with 6 heads, 2 of keys and values, is trained for 10 steps of
SGD on sequences of {LENGTH} tokens, with {ACCUMULATE} micro-batches of {BATCH} sequences per unit. Losses, gradient norms and
every parameter
after the last step of a plan (p) are compared with those of one rank in f64 (ref) and in f32 (one); the bound is
`max|p - ref| <= 2 max|one - ref| + 8 eps max|ref|`. The last columns are the largest relative differences of a loss and of a
norm from one rank in f32. Plans with ring attention use flash attention, and so does the one rank that they are compared with.
With `--sequence-parallel`, the axis tensor also divides the sequence.

| axes | options | pipeline | units | ZeRO | schedule | recompute | loss | norm |
|---|---|---|---|---|---|---|---|---|
"""


def write_table(path, results):
    with open(path, "w", encoding="utf-8") as table:
        table.write(HEAD)
        for (axes, stages, units, zero, schedule, recompute, *options), said in results.items():
            cells = [axes, " ".join(options), stages, units, zero, schedule, recompute, *said.split()]
            table.write(f"| {' | '.join(map(str, cells))} |\n")


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--product", action="store_true")
    parser.add_argument("--results", help="a file of lines, one per result")
    parser.add_argument("--table")
    o = parser.parse_args()
    known, results, done = {}, {}, {}
    if o.results and os.path.exists(o.results):
        done = {tuple(line["row"]): line["result"] for line in lines_of(o.results)}

    def run(row, work):
        if row not in done:
            done[row] = check(o, known, row, work)
            if o.results:
                with open(o.results, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"row": row, "result": done[row]}) + "\n")
        results[row] = done[row]
        return results[row]

    rows = list(product()) if o.product else QUICK
    failed = report((" ".join(map(str, row)), lambda work, row=row: run(row, work)) for row in rows)
    if o.table and not failed:
        write_table(o.table, results)
    return failed


if __name__ == "__main__":
    sys.exit(main())
