#!/usr/bin/python3
"""A rank holds each trained parameter in one layout: where tensor parallelism divides a parameter, its gradient and its update are
divided likewise, so that no rank holds the whole parameter, or another part, beside the part that it computes with.

    held_once.py --rankc RANKC

Checks the recorded models under tp with 2 and 3 ways for both targets, with and without --recompute full: also that attention of
grouped heads is divided, and that recomputed copies of products and of attention are divided as their originals are."""
import collections
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import json_of, rankc_of  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = ["bert", "cnn", "cnn_bn", "experts", "gpt2", "llama", "resnet", "vit"]
# Three ways are more than Llama's two heads of keys.
PLANS = [("c", 2), ("c", 3), ("cuda", 2)]
ATTENTION = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight")


def plan(rankc, model, target, ways, recompute):
    command = [rankc, "plan", f"{HERE}/{model}/model.onnx", "--train", "--json", "--target", target, "--pas", f"tp:tensor={ways}", "--recompute", recompute]
    if target == "cuda":
        command += ["--attention", "flash"]
    return json_of(*command)


def copies(nodes):
    """Recomputed copies that are whole where their originals are divided."""
    whole = {(n["name"], n["op"]): n["partition"] == "replicate" for n in nodes}
    return [name for (name, op), is_whole in whole.items()
            if name.endswith(".again") and is_whole and op in ("MatMul", "FlashAttention") and not whole.get((name[:-6], op), True)]


def main():
    rankc = rankc_of(__doc__)
    wrong = []
    for model in MODELS:
        for target, ways in PLANS:
            for recompute in ("none", "full"):
                where = f"{model}, {target}, tp {ways}, recompute {recompute}"
                found = plan(rankc, model, target, ways, recompute)
                trained = [p for p in found["parameters"] if p["trained"]]
                counts = collections.Counter(p["name"] for p in trained)
                wrong += [f"{where}: {name} is held {n} times" for name, n in counts.items() if n > 1]
                wrong += [f"{where}: {name} is whole" for name in copies(found["nodes"])]
                if model == "llama" and ways == 2:
                    wrong += [f"{where}: {p['name']} is whole" for p in trained
                              if p["name"].endswith(ATTENTION) and p["partition"] == "replicate"]
    print("\n".join(wrong) or "every parameter is held once, and copies are divided")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
