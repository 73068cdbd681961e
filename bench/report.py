"""Writes the page of results."""
import os
import textwrap
from statistics import median

from measure import largest_load

INTRODUCTION = """# Benchmarks

The speed of compiled programs on CPUs beside ONNX Runtime, PyTorch and MPI, and the time of compiling and restarting. This
page is written by `bench/bench.py`; do not edit it. To repeat the measurements, build rankc with `--buildtype release`,
then run `bench/bench.py --build BUILD`; its `--help` says what else it needs.

Two programs are compared by running them alternately: A, B, A, B, and so on. *B / A* is the ratio of their times in one
such round, given as the median of all rounds (minimum to maximum): **above 1, A is faster**. Times are medians of many
steps in one process, after a warm-up. Absolute times vary by a third with the machine's clock and load, ratios by a few
hundredths. *% of peak* is relative to the speed of a loop of fused multiply-adds, measured just before each round with
the same number of threads. *Others* is the largest load, in processors, that other processes caused during a round; a
round whose load exceeds a limit is discarded and repeated. *Rounds* is the number of valid rounds, of all rounds.
"""

WIDTH = 120

GROUPS = {
    "model": ("Models", """Forward passes in f32, batch 1, random weights, with inputs and outputs in memory. GPT-2 has 128
        tokens and the sizes of the 124M model; its *stack* omits embeddings and logits. *% of peak* counts matrix
        products and convolutions only. MiB is the peak resident memory, for Python programs without the memory that the
        interpreter and its modules use before the model is loaded."""),
    "memory": ("Memory-bound graphs", """One input and one output tensor of 4096 x 1024 f32."""),
    "ranks": ("Several ranks", """The same model on two ranks with one thread each, compared with one rank with one thread."""),
    "training": ("Training", """Training steps of GPT-2 124M in f32: forward, backward and AdamW on 4 samples of 64 tokens, 2 per rank on
        two ranks. PyTorch runs eagerly, with OpenBLAS, and with glibc configured to keep freed memory. *% of peak* counts
        matrix products only."""),
    "allreduce": ("All-reduce", """Sum of f32, out of place, from a barrier to the end of the slowest rank. *symmetric*: buffers in the
        shared memory where compiled programs keep communicated tensors; *staged*: buffers in a rank's private memory. If
        a machine has fewer cores than ranks, the ranks share cores."""),
    "restart": ("Restart", """Time to the first result with all files in the page cache: for rankc from the start of the process to its
        end, for ONNX Runtime from `InferenceSession` to the end of the first run, without the start of Python. *from the
        model file* is `rankc run MODEL.onnx`, which hashes the model to find the compiled program."""),
    "compile": ("Compilation", """Wall time of `rankc compile` into an empty directory, including the hashing of the model's weights."""),
}


def table(header, rows):
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def middle(rounds, side, figure):
    return median(r[side][figure] for r in rounds)


def time_text(ms):
    return f"{ms * 1e3:.3g} µs" if ms < 1 else f"{ms:.3g} ms" if ms < 1000 else f"{ms:.0f} ms"


def short(ratio):
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"


def ratio_text(rounds, figure):
    ratios = [r["b"][figure] / r["a"][figure] for r in rounds]
    return f"**{short(median(ratios))}** ({short(min(ratios))} to {short(max(ratios))})"


def foreign_text(rounds):
    return f"{max(map(largest_load, rounds)):.2f}"


def rounds_text(result):
    return f"{len(result['clean'])} of {len(result['rounds'])}"


def share_text(rounds, case, side, figure):
    return f"{100 * median(case.gflop / r[side][figure] * 1e3 / r['peak'] for r in rounds):.0f}%" if case.gflop else "-"


def memory_text(rounds, side):
    return f"{middle(rounds, side, 'rss') / (1 << 20):.0f}" if "rss" in rounds[0][side] else "-"


COMPARED = ["what", "A", "B", "A, time", "B, time", "B / A", "A, % of peak", "B, % of peak", "A, MiB", "B, MiB",
            "largest difference", "others", "rounds"]


def compared_row(case, result):
    rounds = result["clean"]
    difference = result.get("difference")
    return [case.title, result["a_label"], result["b_label"], time_text(middle(rounds, "a", case.figure)),
            time_text(middle(rounds, "b", case.figure)), ratio_text(rounds, case.figure),
            share_text(rounds, case, "a", case.figure), share_text(rounds, case, "b", case.figure),
            memory_text(rounds, "a"), memory_text(rounds, "b"), "-" if difference is None else f"{difference:.0e}",
            foreign_text(rounds), rounds_text(result)]


COMPILED = ["what", "sources", "sources and programs", "difference: C compiler", "size of sources", "others", "rounds"]


def compiled_row(case, result):
    rounds = result["clean"]
    build = median(r["b"]["wall_ms"] - r["a"]["wall_ms"] for r in rounds)
    return [case.title, time_text(middle(rounds, "a", "wall_ms")), time_text(middle(rounds, "b", "wall_ms")),
            time_text(build), f"{result['source_bytes'] / 1024:.0f} KiB", foreign_text(rounds), rounds_text(result)]


def without_empty_columns(header, rows):
    kept = [i for i in range(len(header)) if any(row[i] != "-" for row in rows)]
    return [header[i] for i in kept], [[row[i] for i in kept] for row in rows]


def group_text(group, cases, results):
    title, text = GROUPS[group]
    measured = [(c, results[c.name]) for c in cases if c.group == group and c.name in results]
    header, row = (COMPILED, compiled_row) if group == "compile" else (COMPARED, compared_row)
    rows = [row(c, r) for c, r in measured if r.get("clean")]
    parts = [f"## {title}", textwrap.fill(" ".join(text.split()), WIDTH)]
    if rows:
        parts.append(table(*without_empty_columns(header, rows)))
    left_out = [f"- `{c.name}`: {r['skipped']}" for c, r in measured if "skipped" in r]
    left_out += [f"- `{c.name}`: others kept the machine busy in all {len(r['rounds'])} rounds" for c, r in measured
                 if "skipped" not in r and not r["clean"]]
    if left_out:
        parts.append("Not measured:\n\n" + "\n".join(left_out))
    return "\n\n".join(parts) if measured else None


def machine_text(machine, results):
    peaks = [r["peak"] for result in results.values() for r in result.get("clean", [])]
    lines = [f"{machine['cpu']}, {machine['cores']} cores ({', '.join(machine['vectors'])}), "
             f"{machine['memory_gib']} GiB; {machine['date']}, revision {machine['revision'] or 'unknown'}."]
    if peaks:
        lines.append(f"Peak in all rounds that count: {min(peaks):.0f} to {max(peaks):.0f} GFLOP/s.")
    versions = [f"- {name}: {version or 'not installed'}" for name, version in machine["versions"].items()]
    return "## Machine\n\n" + "\n".join(lines) + "\n\n" + "\n".join(versions)


def write_report(path, results, cases, max_foreign):
    for result in results["cases"].values():
        result["clean"] = [r for r in result.get("rounds", []) if largest_load(r) <= max_foreign]
    parts = [INTRODUCTION.strip()]
    parts += [text for group in GROUPS if (text := group_text(group, cases, results["cases"]))]
    parts.append(machine_text(results["machine"], results["cases"]))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write("\n\n".join(parts) + "\n")
