#!/usr/bin/python3
"""A rank holds each trained parameter in one layout: where tensor parallelism divides a parameter, its gradient and its update are
divided likewise, so that no rank holds the whole parameter, or another part, beside the part that it computes with.

    held_once.py --rankc RANKC

Checks the recorded models under tp with 2 and 3 ways for both targets, and that attention of grouped heads is divided."""
import argparse
import collections
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = ["bert", "cnn", "cnn_bn", "experts", "gpt2", "llama", "resnet", "vit"]
# Three ways are more than Llama's two heads of keys: attention by FlashAttention then stays whole.
PLANS = [("c", 2), ("c", 3), ("cuda", 2)]
ATTENTION = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight")


def parameters(rankc, model, target, ways):
    command = [rankc, "plan", f"{HERE}/{model}/model.onnx", "--train", "--json", "--target", target, "--pas", f"tp:tensor={ways}"]
    if target == "cuda":
        command += ["--attention", "flash"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return [p for p in json.loads(done.stdout)["parameters"] if p["trained"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    rankc = parser.parse_args().rankc
    wrong = []
    for model in MODELS:
        for target, ways in PLANS:
            found = parameters(rankc, model, target, ways)
            counts = collections.Counter(p["name"] for p in found)
            wrong += [f"{model}, {target}, tp {ways}: {name} is held {n} times" for name, n in counts.items() if n > 1]
            if model == "llama" and ways == 2:
                wrong += [f"{model}, {target}, tp {ways}: {p['name']} is whole"
                          for p in found if p["name"].endswith(ATTENTION) and p["partition"] == "replicate"]
    print("\n".join(wrong) or "every parameter is held once")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
