#!/usr/bin/python3
"""How long --pas autodist takes, by the number of layers and of devices.

    search_times.py --rankc RANKC --page docs/measured/search-times.md

Writes the page and, beside it, its curves (search-times.svg). Each time is the least of some runs of `rankc
plan`, which searches, plans and prints: seconds of processor time."""
import argparse
import json
import math
import os
import re
import resource
import subprocess
import tempfile

MODEL = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
         "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192}


def processor_seconds():
    """Of all processes that have ended: rankc has one thread, so that this is the time it takes on an idle machine."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(rankc, config, devices, batch, runs):
    words = [rankc, "plan", "--model-config", config, "--pas", "autodist", "--runtime-ngpus", str(devices), "--amp", "bf16",
             "--global-batch", str(batch), "--machine", "h100"]
    times = []
    for _ in range(runs):
        begin = processor_seconds()
        done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
        times.append(processor_seconds() - begin)
    chosen = next(line for line in done.stderr.splitlines() if "--pas" in line)
    plan, numbers = chosen.split("note: ")[1].split(": ", 1)
    return min(times), re.sub(" --runtime-ngpus [0-9]+", "", plan), re.search(r"([0-9.]+ GiB) a rank", numbers)[1]


def curve(points, left, label):
    """A curve over the logarithm of x, in a frame of 300 x 200."""
    xs, ys = [math.log2(x) for x, _ in points], [y for _, y in points]
    top = max(ys) * 1.1
    at = [(left + 40 + 240 * (x - xs[0]) / (xs[-1] - xs[0]), 190 - 160 * y / top) for x, y in zip(xs, ys)]
    lines = [f'<polyline fill="none" stroke="#1f77b4" stroke-width="2" points="{" ".join(f"{x:.0f},{y:.0f}" for x, y in at)}"/>',
             f'<path stroke="#888" fill="none" d="M{left + 40} 20V190H{left + 290}"/>',
             f'<text x="{left + 160}" y="228" text-anchor="middle">{label}</text>',
             f'<text x="{left + 45}" y="15">seconds</text>']
    for (x, y), (px, py) in zip(points, at):
        lines += [f'<circle cx="{px:.0f}" cy="{py:.0f}" r="3" fill="#1f77b4"/>',
                  f'<text x="{px:.0f}" y="{py - 8:.0f}" text-anchor="middle">{y:.1f}</text>',
                  f'<text x="{px:.0f}" y="206" text-anchor="middle">{x}</text>']
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--page", required=True)
    parser.add_argument("--runs", type=int, default=3, help="of which the quickest counts")
    args = parser.parse_args()
    rows, layers, devices = [], [], []
    with tempfile.TemporaryDirectory() as directory:
        for n in (16, 32, 64, 128):
            config = os.path.join(directory, f"{n}.json")
            with open(config, "w") as file:
                json.dump({**MODEL, "num_hidden_layers": n}, file)
            seconds, plan, memory = measure(args.rankc, config, 64, 1024, args.runs)
            layers.append((n, seconds))
            rows.append(("Llama 3 8B" if n == 32 else f"Llama 3 8B with {n} layers", 64, seconds, plan, memory))
    for n in (8, 64, 512, 4096, 16384):
        seconds, plan, memory = measure(args.rankc, "llama3-8b", n, 16384, args.runs)
        devices.append((n, seconds))
        rows.append(("Llama 3 8B, batch 16384", n, seconds, plan, memory))
    for name, title, n, batch in (("llama3-70b", "Llama 3 70B", 512, 1024), ("llama3-405b", "Llama 3 405B", 16384, 16384),
                                  ("gpt3-175b", "GPT-3 175B", 1024, 1536)):
        seconds, plan, memory = measure(args.rankc, name, n, batch, args.runs)
        rows.append((title, n, seconds, plan, memory))
    picture = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 620 240" font-family="sans-serif" font-size="11">',
               '<rect width="620" height="240" fill="white"/>', *curve(layers, 0, "layers, 64 devices"),
               *curve(devices, 310, "devices, 32 layers"), "</svg>"]
    with open(os.path.splitext(args.page)[0] + ".svg", "w") as file:
        file.write("\n".join(picture) + "\n")
    table = "\n".join(f"| {model} | {n} | {seconds:.1f} | `{plan}` | {memory} |" for model, n, seconds, plan, memory in rows)
    with open(args.page, "w") as file:
        file.write(f"""# How long the search for a plan takes

Written by `bench/search_times.py`: seconds of processor time of `rankc plan --pas autodist --machine h100 --amp bf16`,
which has one thread, the least of {args.runs} runs. Candidates are measured on models with few layers
([search.h](../../frontend/driver/search/search.h)), so the time that grows with the number of layers and of stages is mostly that
of the complete plan of the chosen candidate. [autodist.md](../autodist.md) describes the search.

![seconds by layers and by devices](search-times.svg)

| model | devices | seconds | plan | memory |
| --- | ---: | ---: | --- | ---: |
{table}
""")


if __name__ == "__main__":
    main()
