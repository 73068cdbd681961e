#!/usr/bin/python3
"""Plans the training of transformers with sequence and context parallelism and compares the activations with the formulas of
Korthikanti et al. (arXiv 2205.05198, sections 4.1 and 4.2.3).

    sequence.py --rankc RANKC

Per layer, tensor parallelism keeps (A - W) / t + W bytes, where A is what one rank keeps and W what stays whole; with sequence
parallelism it is A / t, and so it is with context parallelism. The bytes of a layer are the difference between plans of more and
of fewer layers.

A layer then needs 4 reduce-scatters and 6 all-gathers in a micro-batch: one of each before and behind attention and the MLP, in both
phases, and two gathers of what the backward phase reads again, of which a rank keeps only its part (section 4.2.2)."""
import json
import os
import sys
import tempfile

from harness import Failed, call, expect, rankc_of

SIZES = {
    "gpt2": {"model_type": "gpt2", "n_embd": 64, "n_head": 8, "vocab_size": 64, "n_positions": 512},
    "llama": {"model_type": "llama", "hidden_size": 64, "intermediate_size": 256, "num_attention_heads": 8, "num_key_value_heads": 4,
              "vocab_size": 64, "max_position_embeddings": 512}}
LAYERS = {"gpt2": "n_layer", "llama": "num_hidden_layers"}
NEAR = {"tensor": 0.001, "context": 0.07} # context keeps a contiguous copy of keys or values, of which the backward phase gathers


def planned(rankc, model, layers, pas, work):
    """Two micro-batches: gradients are not in the memory of activations."""
    config = os.path.join(work, "config.json")
    with open(config, "w", encoding="utf-8") as file:
        json.dump({**SIZES[model], LAYERS[model]: layers}, file)
    return json.loads(call(rankc, "plan", "--model-config", config, "--dim", "batch=4", "--accumulate", "2", "--json", "--pas", *pas).stdout)


def activations(rankc, model, layers, pas, work):
    """Of the rank that has the most, with those that are communicated."""
    return max(rank["memory"]["activations"] + rank["memory"]["communication"] for rank in planned(rankc, model, layers, pas, work)["ranks"])


def collectives(rankc, model, work):
    """All-gathers and reduce-scatters of a layer in a micro-batch, with tensor and sequence parallelism."""
    def count(layers, kind):
        plan = planned(rankc, model, layers, ["tp:tensor=2", "--sequence-parallel"], work)
        return sum(item["count"] for item in plan["communication"] if item["kind"] == kind)
    return tuple((count(6, kind) - count(3, kind)) / 6 for kind in ("all_gather", "reduce_scatter"))


def layer(rankc, model, pas, work):
    return (activations(rankc, model, 6, pas, work) - activations(rankc, model, 3, pas, work)) / 3


def main():
    rankc = rankc_of(__doc__)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="rankc-check-") as work:
        for model in SIZES:
            one = layer(rankc, model, ["dp"], work)
            print(f"{model} one rank: {one:.0f} bytes of activations per layer")
            for pas in (["tp:tensor=2", "--sequence-parallel"], ["tp:tensor=4", "--sequence-parallel"], ["context:context=2"],
                        ["context:context=4"], ["hybrid:tensor=2,context=2", "--sequence-parallel"]):
                try:
                    ways = 4 if "4" in pas[0] or "," in pas[0] else 2
                    got = layer(rankc, model, pas, work)
                    print(f"{model} {' '.join(pas)}: {got:.0f} bytes, {got * ways / one:.3f} of one rank's / {ways}")
                    near = NEAR["context" if "context" in pas[0] else "tensor"]
                    expect(abs(got * ways / one - 1) < near, f"not within {near}")
                except Failed as why:
                    wrong += 1
                    print(f"{model} {' '.join(pas)}: FAILED: {why}")
            counts = collectives(rankc, model, work)
            print(f"{model} tp:tensor=2 --sequence-parallel: {counts} all-gathers and reduce-scatters of a layer")
            wrong += counts != (6, 4)
            whole = layer(rankc, model, ["tp:tensor=4"], work)
            print(f"{model} tp:tensor=4: {whole * 4 / one:.3f} of one rank's / 4")
            wrong += not whole * 4 / one > 1.3 # what sequence parallelism is for
    sys.exit(wrong > 0)


main()
