#!/usr/bin/env python3
"""Measures a step of full training beside steps with low-rank adapters: the table of docs/fine-tune.md.

    fine_tuning.py --rankc RANKC [--rounds 7] [--threads 2] [--work DIR]

Exports a Llama of 4 layers of width 1024, compiles each of PROGRAMS, and runs 6 steps of each in turn, once a round; the first step is
left out. Needs torch, onnxscript and transformers for the export, which DIR keeps."""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

import numpy

VOCABULARY, TOKENS = 16000, 128
PROGRAMS = {"full": [], "attention": ["--lora", "*q_proj,*k_proj,*v_proj,*o_proj:r=8"], "all": ["--lora", "*_proj:r=8"],
            "all-int4": ["--lora", "*_proj:r=8", "--weight-dtype", "int4"]}


def export(path):
    import torch
    import transformers
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=1024, intermediate_size=4096, num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=4,
        head_dim=64, max_position_embeddings=TOKENS, tie_word_embeddings=True, attn_implementation="eager"))
    forward = type(model).forward
    model.forward = lambda input_ids: forward(model, input_ids=input_ids, use_cache=False).logits
    torch.onnx.export(model, (torch.zeros(1, TOKENS, dtype=torch.int64),), path, input_names=["input_ids"], output_names=["logits"],
                      external_data=True, verbose=False, optimize=False)


def step_ms(options, work, name):
    """The median of the steps behind the first."""
    log = f"{work}/log.jsonl"
    if os.path.exists(log):
        os.remove(log)
    subprocess.run([options.rankc, "train", f"{work}/{name}", "--data", f"input_ids={work}/ids.npy", "--data", f"labels={work}/labels.npy",
                    "--steps", "6", "--log", log, "--threads", str(options.threads), "-q"], check=True, stdout=subprocess.DEVNULL)
    with open(log, encoding="utf-8") as lines:
        return statistics.median(line["ms"] for line in map(json.loads, lines) if line.get("step", 0) > 1)


def measure(options, work):
    tokens = numpy.random.default_rng(0).integers(0, VOCABULARY, (8, TOKENS + 1))
    numpy.save(f"{work}/ids.npy", tokens[:, :-1].copy())
    numpy.save(f"{work}/labels.npy", tokens[:, 1:].copy())
    if not os.path.exists(f"{work}/model.onnx"):
        export(f"{work}/model.onnx")
    for name, lora in PROGRAMS.items():
        subprocess.run([options.rankc, "compile", f"{work}/model.onnx", "-o", f"{work}/{name}", "-q", "--train", "--loss",
                        "cross_entropy:logits=logits,labels=labels", "--optimizer", "adamw:lr=0.0001", *lora], check=True)
    times = {name: [] for name in PROGRAMS}
    for _ in range(options.rounds):
        for name in PROGRAMS:
            times[name].append(step_ms(options, work, name))
    for name, ms in times.items():
        of_full = [mine / full for mine, full in zip(ms, times["full"])]
        print(f"{name:10} {statistics.median(ms):.0f} ms ({min(ms):.0f} - {max(ms):.0f}), {min(of_full):.2f} - {max(of_full):.2f} of full training")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        measure(options, options.work or work)


if __name__ == "__main__":
    main()
