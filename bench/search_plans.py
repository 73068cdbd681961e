#!/usr/bin/env python3
"""What two compilers choose with --pas autodist, both plans by the clock of the second.

    search_plans.py --before RANKC --after RANKC [--rows FILE.csv --every N] [--jobs N]

Cases are the models of `--model-config` on several machines and numbers of devices, in training and inference, with and
without a limit of memory; with --rows also each N-th published run that bench/published.py reads. stdout has a line for
each case: how much longer a step of the second compiler's plan takes (`rankc plan` of the second, for both), seconds of
the processor of both searches, and both plans where they differ. Exit status 1 if a plan is slower by more than 0.5 %."""
import argparse
import concurrent.futures
import json
import os
import re
import statistics
import sys
import tempfile

from published import Refused, Run, execute, read

WORSE = 1.005


def cases(path, every, directory):
    """Names, and options of `rankc plan` but for those of a plan."""
    for model, batch in (("gpt2", 64), ("llama2-7b", 256), ("llama3-8b", 1024), ("llama3-70b", 1024), ("llama3-405b", 2048), ("gpt3-175b", 1536),
                         ("mixtral-8x7b", 256)):
        words = ["--model-config", model, "--amp", "bf16"]
        for machine, devices in (("h100", 8), ("h100", 64), ("h100", 512), ("a100-40", 16), ("v100-32", 4)):
            large = re.search(r"\d\d+b", model) and model != "llama3-8b"
            if devices < 64 and large or (devices == 512 and not large):
                continue
            step = ["--machine", machine, "--runtime-ngpus", str(devices)]
            yield f"{model}, {devices} {machine}", words + step + ["--global-batch", str(batch)]
        if not large:
            yield f"{model}, inference, 8 h100", ["--model-config", model, "--inference", "--machine", "h100", "--runtime-ngpus", "8", "--dim", "batch=8"]
            yield f"{model}, 5 h100", words + ["--machine", "h100", "--runtime-ngpus", "5", "--global-batch", "420"]
            yield f"{model}, 4 h100, 24G", words + ["--machine", "h100", "--runtime-ngpus", "4", "--global-batch", "64", "--mem-limit", "24G"]
    seen = set()
    for i, row in enumerate(read(path) if path else ()):
        try:
            run = Run(row)
            config = json.dumps(run.configuration())
            words = run.search()[2:]
        except Refused:
            continue
        if not run.global_batch or (config, *words) in seen:
            continue
        seen.add((config, *words))
        if len(seen) % every:
            continue
        file = os.path.join(directory, f"{i}.json")
        with open(file, "w", encoding="ascii") as out:
            out.write(config)
        yield f"row {i + 1}, {row['model']} on {run.ngpus:.0f} {row['gpu']}", ["--model-config", file, *words]


def plan(rankc, words, limit):
    """Seconds of a step, the options of the plan, seconds of the processor; None: refused."""
    status, out, said, seconds = execute([rankc, "plan", *words, "--json", "-q"], limit)
    if status:
        return None, (re.findall(r"needs [0-9]+", said) or [said])[-1][:120], seconds
    found = json.loads(out)
    chosen = found["search"]["plans"][0]["options"] if "search" in found else ""
    return found["estimate"]["step_s"], chosen, seconds


def compare(given, case):
    """The line of a case, and its ratio."""
    name, words = case
    chosen = {rankc: plan(rankc, [*words, "--pas", "autodist"], given.limit) for rankc in (given.before, given.after)}
    before, after = (chosen[rankc] for rankc in (given.before, given.after))
    took = f"{before[2]:.1f} -> {after[2]:.1f} s"
    if before[0] is None or after[0] is None:
        same = before[0] is None and after[0] is None
        return f"{name}: {'both refuse' if same else 'ONE REFUSES'}, {took}: {before[1]} | {after[1]}", 1 if same or after[0] else 9
    ratio = 1.0
    if before[1] != after[1]:
        # --global-batch decides the micro-batches unless the plan's options give them
        again = plan(given.after, [*without_ranks(words, before[1]), *before[1].split()], given.limit)
        ratio = after[0] / again[0] if again[0] else 1
    differ = "" if before[1] == after[1] else f": {before[1]} | {after[1]}"
    own = f", {before[0]:.5g} s by the clock and the policies of the first" if abs(after[0] / before[0] / ratio - 1) > 1e-4 else ""
    return f"{name}: {ratio:.4f}, {after[0]:.5g} s{own}, {took}{differ}", ratio


def without_ranks(words, options):
    """Without the options that a plan gives itself."""
    out, skip = [], False
    for word, following in zip(words, [*words[1:], ""]):
        doubled = word == "--runtime-ngpus" or (word == "--dim" and following.startswith("batch=") and "batch=" in options)
        if not doubled and not skip:
            out.append(word)
        skip = doubled
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True)
    parser.add_argument("--after", required=True)
    parser.add_argument("--rows")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=60)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        ratios = []
        for line, ratio in pool.map(lambda case: compare(given, case), cases(given.rows, given.every, directory)):
            print(line, flush=True)
            ratios.append(ratio)
    worse = [r for r in ratios if r > WORSE]
    print(f"{len(ratios)} plans: {sum(r < 1 / WORSE for r in ratios)} faster, {len(worse)} slower; geometric mean {statistics.geometric_mean(ratios):.4f}, "
          f"from {min(ratios):.3f} to {max(ratios):.3f}")
    sys.exit(bool(worse))


if __name__ == "__main__":
    main()
