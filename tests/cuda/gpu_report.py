#!/usr/bin/env python3
"""Writes a page with the results of the GPU checks: gpu_report.py results/*.jsonl > docs/measured/gpu-results.md

Results are written by `gpu.sh run`: lines of JSON, which begin with the machine that the next ones are of. If a check ran several
times on a GPU, its last result counts. Among them may be what `bench/gpu_predictions.py --estimate MACHINE` prints: estimates of now,
for what was measured earlier. results/ has those of the page; what was run by hand there has the name of what it does."""
import json
import sys

INTRODUCTION = """# Results on a GPU

Written by `tests/cuda/gpu_report.py` from the results of `tests/gpu.sh run`; do not edit.
"""
STAND_IN = "**Compiled for the CPU**, with stand-ins for the CUDA libraries: the times are meaningless."


def gpu_of(machine):
    """H200, H100 80GB HBM3"""
    return machine["gpu"].split(",")[0].removeprefix("NVIDIA ")


def read_results(paths):
    """What the runs say of machines by GPU, the last result of each check by (GPU, part, name), and estimates by (machine, name)."""
    machines, checks, estimates = {}, {}, {}
    for path in paths:
        gpu = None
        with open(path) as lines:
            for line in map(json.loads, lines):
                if "part" not in line:
                    estimates[line["machine"], line["name"]] = line["predicted_ms"]
                elif line["part"] == "machine":
                    gpu = gpu_of(line)
                    machines[gpu] = line
                else:
                    checks[gpu, line["part"], line["name"]] = {**line, "gpu": gpu}
    return machines, checks, estimates


def table(header, rows):
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in [header, ["---"] * len(header), *rows])


def said_of(check):
    return check["said"][-1].replace("|", "\\|")[:120] if check["said"] else ""


def is_unfinished(check):
    return check["status"] == "FAILED" and said_of(check).startswith("ended after")


def checks_text(checks):
    ended = [check for check in checks.values() if not is_unfinished(check)]
    counts = {status: sum(check["status"] == status for check in ended) for status in ("ok", "FAILED", "skipped")}
    rows = [[check["gpu"], check["part"], check["name"], check["status"], f"{check['seconds']:.0f} s", said_of(check)] for check in ended]
    text = (f"## Checks\n\n{counts['ok']} passed, {counts['FAILED']} failed, {counts['skipped']} skipped.\n\n"
            + table(["GPU", "part", "check", "result", "time", "last line"], rows))
    rows = [[check["gpu"], check["part"], check["name"], f"{check['seconds']:.0f} s", passed_of(check)]
            for check in checks.values() if is_unfinished(check)]
    return text + ("\n\nNot finished in the time there was; nothing had failed until then:\n\n"
                   + table(["GPU", "part", "check", "ended after", "last line"], rows) if rows else "")


def passed_of(check):
    lines = [line for line in check["said"][:-1] if line.strip()]
    return lines[-1].replace("|", "\\|")[:120] if lines else ""


def predictions_text(checks, estimates):
    """Estimated and measured steps (bench/gpu_predictions.py)."""
    rows = []
    for gpu, one in ((check["gpu"], figure["figure"]) for check in checks.values() for figure in check["figures"]):
        if "predicted_ms" not in one:
            continue
        predicted, measured = estimates.get((one["machine"], one["name"]), one["predicted_ms"]), one["measured_ms"]
        rows.append([gpu, one["name"], f"{predicted:.1f}", f"{measured:.1f}", f"{predicted / measured - 1:+.1%}",
                     f"{one['memory'] / 2**30:.1f}"])
    if not rows:
        return ""
    return "## Estimated and measured steps\n\n" + table(["GPU", "training", "estimated, ms", "measured, ms", "apart", "GiB"], rows)


def number(value):
    if isinstance(value, dict) and "median" in value:
        return f"{value['median']:.4g} ({value['least']:.4g} to {value['most']:.4g})"
    if isinstance(value, dict):
        return ", ".join(f"{name} {number(part)}" for name, part in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def figures_text(check):
    """A row per figure; medians with the least and the most."""
    merged = {}
    if "predicted_ms" in check["figures"][0]["figure"]:
        return ""
    for figure in check["figures"]:
        merged.update(figure["figure"])
    rows = [[name.replace("_", " "), number(value)] for name, value in merged.items() if name != "name"]
    return f"## {check['gpu']}, {check['part']}: {check['name']}\n\n" + table(["figure", "value"], rows) + "".join(
        f"\n\n```\n{text}\n```" for text in ["\n".join(check["said"])] if text)


def machine_text(machine):
    return "\n".join(f"- {key}: {machine[key]}" for key in ("gpu", "nvcc", "rankc", "date") if key in machine)


def main(paths):
    machines, checks, estimates = read_results(paths)
    parts = [INTRODUCTION.strip()]
    if any(machine.get("stand_in") for machine in machines.values()):
        parts.append(STAND_IN)
    parts += map(machine_text, machines.values())
    parts += [checks_text(checks), predictions_text(checks, estimates)]
    parts += [figures_text(check) for check in checks.values() if check["figures"]]
    print("\n\n".join(filter(None, parts)))


if __name__ == "__main__":
    main(sys.argv[1:])
