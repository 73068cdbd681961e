"""Writes the pages of results."""
import json
import os
import textwrap
from math import exp, log
from statistics import median

WIDTH = 120
HOW = """This page is written by `bench/bench.py`; do not edit it. To repeat the measurements, build rankc with `--buildtype release`, then
run `bench/bench.py --build BUILD`; its `--help` says what else it needs.

The programs of a row take turns: each runs once in a round. A ratio is the other's time to rankc's within a round, given as
the median of the rounds (least to most): **above 1, rankc is faster**. *faster peer* is that ratio for whichever of ONNX Runtime and
OpenVINO was the faster in the round. A time is the median of the rounds' medians of many steps, after a warm-up. *% of peak* is relative
to a loop of fused multiply-adds, measured just before each round with the same number of threads; it counts the multiply-adds of plain
products and convolutions, of which Winograd's algorithm needs fewer. A round in which other processes
caused a load of more than {max_foreign} processors does not count. Models have random weights, inputs and outputs are in memory, the
batch is 1 and numbers are f32 unless said otherwise; the other runtimes are asked for f32 too. *difference* is the largest one between
rankc's output and another's, relative to the largest value. MiB is the peak resident memory, for Python programs without the memory
that the interpreter and its modules use before the model is loaded.
"""

GROUPS = {
    "transformer": ("Transformers", ""),
    "image": ("Networks for images", """One image of 224 x 224 (Inception 299, U-Net 256, YOLO-like 320), statistics of BatchNormalization
        as after training."""),
    "file": ("Files of other people", """Models that Python packages ship, as they are (bench/files.py), with random inputs."""),
    "integer": ("Integers", """Quantised by ONNX Runtime: u8 activations, i8 weights per channel; QDQ, QOperator, and dynamic
        quantisation. Random weights spread results over many units, so outputs differ where a value is rounded the other way."""),
    "half": ("16 bits", """The same model compiled with `--dtype` bf16 or fp16 and in f32."""),
    "memory": ("Memory-bound graphs", "One input and one output tensor of 4096 x 1024 f32."),
    "ranks": ("Several ranks", "The same model on two ranks with one thread each, beside one rank, and the others with two threads."),
    "training": ("Training", """Training steps of GPT-2 124M in f32: forward, backward and AdamW on 4 samples of 64 tokens, 2 per rank on
        two ranks (PyTorch: DistributedDataParallel over gloo). PyTorch runs eagerly, with glibc configured to keep freed memory."""),
    "allreduce": ("All-reduce", """Sum of f32, out of place, from a barrier to the end of the slowest rank. rankc's buffers are in the
        shared memory where compiled programs keep communicated tensors; *staged*: in a rank's private memory. If a machine has fewer
        cores than ranks, the ranks share cores."""),
    "restart": ("Restart", """Time to the first result with two threads and all files in the page cache: for rankc from the start of the
        process to its end, for others from loading the model to the end of the first run, without the start of Python. *from the
        model file* is `rankc run MODEL.onnx`, which hashes the model to find the compiled program."""),
    "compile": ("Compilation", """Wall time of `rankc compile` into an empty directory, including the hashing of the model's weights;
        *sources alone* is without the C compiler."""),
}
PAGES = {  # title, what it is about, groups
    "images-speed.md": ("Networks for images on a CPU", "Networks for images beside ONNX Runtime and OpenVINO.", ("image",)),
    "benchmarks.md": ("Benchmarks", """The speed of compiled programs on CPUs beside ONNX Runtime, OpenVINO, PyTorch and MPI, and the time of
        restarting and compiling. [Networks for images](images-speed.md) and [single operators](operator-speeds.md) have pages of
        their own.""", tuple(group for group in GROUPS if group != "image")),
}
PEERS = ("ONNX Runtime", "OpenVINO")


def table(header, rows):
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def time_text(ms):
    return f"{ms * 1e3:.3g} µs" if ms < 1 else f"{ms:.3g} ms" if ms < 1000 else f"{ms:.0f} ms"


def short(ratio):
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"


def spread(ratios):
    return f"**{short(median(ratios))}** ({short(min(ratios))} to {short(max(ratios))})"


class Results:
    """Of a case on a processor: the rounds that count, and what was missing."""

    def __init__(self, case, rows, max_foreign):
        self.case, self.figure = case, case.figure
        self.all = [row for row in rows if "sides" in row]
        self.rows = [row for row in self.all if row["foreign"] <= max_foreign]
        self.missing = {name: reason for row in rows for name, reason in row["missing"].items()}
        self.own = next(iter(case.sides))

    def times(self, side):
        return [row["sides"][side][self.figure] for row in self.rows if side in row["sides"]]

    def ratios(self, side):
        return [row["sides"][side][self.figure] / row["sides"][self.own][self.figure] for row in self.rows if side in row["sides"]]

    def faster(self):
        return [min(times) for times in zip(*(r for r in map(self.ratios, PEERS) if r))]

    def share(self):
        if not self.case.gflop or not self.rows:
            return "-"
        return f"{100 * median(self.case.gflop / t * 1e3 / row['peak'] for t, row in zip(self.times(self.own), self.rows)):.0f}%"

    def memory(self, side):
        bytes_ = [row["sides"][side]["rss"] for row in self.rows if "rss" in row["sides"].get(side, {})]
        return f"{median(bytes_) / (1 << 20):.0f}" if bytes_ else "-"

    def difference(self):
        known = [d for row in self.rows for d in row["differences"].values()]
        return f"{max(known):.0e}" if known else "-"


def columns(group, sides):
    """Pairs of a header and a function of Results."""
    def pair(name):
        return [(name, lambda r: time_text(median(r.times(name))) if r.times(name) else "-"),
                ("ratio", lambda r: spread(r.ratios(name)) if r.ratios(name) else "-")]

    peers = [name for name in sides if not name.startswith("rankc") or group in ("ranks", "half") and name != sides[0]]
    peers += [name for name in sides[1:] if name not in peers]
    found = [("what", lambda r: r.case.title), ("threads", lambda r: str(r.case.threads)),
             ("rankc", lambda r: time_text(median(r.times(r.own)))), ("% of peak", Results.share)]
    for name in peers:
        found += pair(name)
    if all(name in sides for name in PEERS):
        found += [("faster peer", lambda r: spread(r.faster()) if r.faster() else "-")]
    return found + [("rankc, MiB", lambda r: r.memory(r.own))] + [
        (f"{name}, MiB", lambda r, name=name: r.memory(name)) for name in peers] + [("difference", Results.difference)]


def without_empty_columns(header, rows):
    kept = [i for i in range(len(header)) if i == 0 or any(row[i] != "-" for row in rows)]
    return [header[i] for i in kept], [[row[i] for i in kept] for row in rows]


def mean_of(ratios):
    return f"{exp(sum(map(log, ratios)) / len(ratios)):.2f}"


def mean_text(results, group):
    """The geometric means of the medians, where there are several rows."""
    means = {name: [median(r.ratios(name)) for r in results if r.ratios(name)] for name in PEERS}
    means["the faster of both"] = [median(r.faster()) for r in results if r.faster()]
    if len(means["the faster of both"]) < 4 or group in ("restart", "ranks"):
        return None
    return "Geometric means: " + ", ".join(f"{name} {mean_of(ratios)}" for name, ratios in means.items() if ratios) + "."


def group_text(group, measured):
    """measured: (processor, Results) of each row."""
    title, text = GROUPS[group]
    several = len({cpu for cpu, _ in measured}) > 1
    shown = [(cpu, r) for cpu, r in measured if r.rows]
    sides = list(dict.fromkeys(name for _, r in shown for name in r.case.sides))
    parts = [f"## {title}"] + ([textwrap.fill(" ".join(text.split()), WIDTH)] if text else [])
    if shown:
        found = columns(group, sides)
        header = [name for name, _ in found]
        rows = [[cell(r) for _, cell in found] for _, r in shown]
        if several:
            header[1:1], rows = ["processor"], [[row[0], cpu, *row[1:]] for row, (cpu, _) in zip(rows, shown)]
        parts += [table(*without_empty_columns(header, rows)), mean_text([r for _, r in shown], group)]
    left = [f"- {r.case.title}, {r.case.threads} threads, {name}: {reason}" for _, r in measured for name, reason in r.missing.items()]
    left += [f"- {r.case.title}, {r.case.threads} threads: others kept the machine busy in all {len(r.all)} rounds" for _, r in measured
             if r.all and not r.rows]
    if left:
        parts.append("Not measured:\n\n" + "\n".join(left))
    return "\n\n".join(part for part in parts if part)


def machine_text(machine, rows):
    peaks = [row["peak"] for row in rows if row["cpu"] == machine["cpu"]]
    revisions = sorted({row["revision"] for row in rows if row["cpu"] == machine["cpu"]})
    lines = [f"{machine['cpu']}, {machine['cores']} cores ({', '.join(machine['vectors'])}), {machine['memory_gib']} GiB; "
             f"{machine['date']}, revision {', '.join(revisions)}."]
    if peaks:
        lines.append(f"Peak in the rounds, with as many threads as the row: {min(peaks):.0f} to {max(peaks):.0f} GFLOP/s.")
    versions = [f"- {name}: {version or 'not installed'}" for name, version in machine["versions"].items()]
    return "\n".join(lines) + "\n\n" + "\n".join(versions)


def read(files):
    """The machines by processor, and for each (case, processor) the rows of the last revision."""
    machines, cases = {}, {}
    for file in files:
        with open(file, encoding="ascii") as lines:
            for row in map(json.loads, lines):
                if "machine" in row:
                    machines[row["machine"]["cpu"]] = row["machine"]
                    continue
                rows = cases.setdefault((row["case"], row["cpu"]), [])
                rows[:] = [*(r for r in rows if r["revision"] == row["revision"]), row]
    return machines, cases


def page(name, results, machines, max_foreign):
    title, about, groups = PAGES[name]
    paragraphs = [about, *HOW.format(max_foreign=max_foreign).split("\n\n")]
    parts = [f"# {title}"] + [textwrap.fill(" ".join(text.split()), WIDTH) for text in paragraphs]
    parts += [group_text(group, results[group]) for group in groups if results.get(group)]
    measured = [row for group in groups for _, r in results.get(group, []) for row in r.all]
    parts.append("## Machine\n\n" + "\n\n".join(machine_text(machine, measured) for machine in machines.values()))
    earlier = f"{os.path.dirname(os.path.abspath(__file__))}/earlier/{name}"
    if os.path.exists(earlier):
        with open(earlier, encoding="ascii") as file:
            parts.append(file.read().strip())
    return "\n\n".join(parts) + "\n"


def write_report(directory, files, cases, max_foreign):
    machines, rows = read(files)
    results = {case.group: [] for case in cases}
    for case in cases:
        results[case.group] += [(cpu, Results(case, rows[case.name, cpu], max_foreign)) for cpu in machines if (case.name, cpu) in rows]
    for name, (_, _, groups) in PAGES.items():
        if not any(results.get(group) for group in groups):
            continue
        text = page(name, results, machines, max_foreign)
        with open(f"{directory}/{name}", "w", encoding="utf-8") as file:
            file.write(text)
