#!/usr/bin/env python3
"""Published speeds of decoders on GPUs, and what rankc predicts for a step of the same model on the same machine.

    published_decoding.py --rankc RANKC [--page docs/measured/published-decoding.md]

A row becomes one `rankc plan --model-config --inference --decode --machine`, with one text and the tokens in its caches that the publication
names, else 128. stdout has a line for each row. Exit 1 if a prediction is not within what PAGE says."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

BAND, HALF_ONE_GPU = 2, 0.15
KEYS = ("model_type", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size",
        "max_position_embeddings", "tie_word_embeddings")
MODELS = {"Llama 2 7B": ("llama", 32, 4096, 32, 32, 11008, 32000, 4096, False), "Llama 2 70B": ("llama", 80, 8192, 64, 8, 28672, 32000, 4096, False),
          "Llama 3 8B": ("llama", 32, 4096, 32, 8, 14336, 128256, 8192, False), "Llama 3.2 1B": ("llama", 16, 2048, 32, 8, 8192, 128256, 8192, True),
          "Qwen 2.5 0.5B": ("qwen2", 24, 896, 14, 2, 4864, 151936, 8192, True), "Qwen 2.5 7B": ("qwen2", 28, 3584, 28, 4, 18944, 152064, 8192, False),
          "Mixtral 8x7B": ("mixtral", 32, 4096, 32, 8, 14336, 32000, 32768, False)}
GPT_FAST, GENAI = "gpt-fast, README", "onnx-genai"
# Source, model, machine, GPUs, weights, tokens per second
ROWS = [(GPT_FAST, "Llama 2 7B", "a100-80", 1, "bf16", 104.9), (GPT_FAST, "Llama 2 7B", "a100-80", 1, "int8", 155.58),
        (GPT_FAST, "Llama 2 7B", "a100-80", 1, "int4", 196.8), (GPT_FAST, "Llama 2 7B", "a100-80", 2, "bf16", 168.84),
        (GPT_FAST, "Llama 2 7B", "a100-80", 4, "bf16", 254.02), (GPT_FAST, "Llama 2 7B", "a100-80", 8, "bf16", 328.43),
        (GPT_FAST, "Llama 2 70B", "a100-80", 1, "int8", 19.13), (GPT_FAST, "Llama 2 70B", "a100-80", 1, "int4", 25.25),
        (GPT_FAST, "Llama 2 70B", "a100-80", 2, "bf16", 21.32), (GPT_FAST, "Llama 2 70B", "a100-80", 4, "bf16", 38.01),
        (GPT_FAST, "Llama 2 70B", "a100-80", 8, "bf16", 62.5), (GPT_FAST, "Llama 2 70B", "a100-80", 8, "int8", 80.44),
        (GPT_FAST, "Llama 2 70B", "a100-80", 8, "int4", 90.77), (GPT_FAST, "Mixtral 8x7B", "a100-80", 2, "bf16", 96.67),
        (GPT_FAST, "Mixtral 8x7B", "a100-80", 4, "bf16", 155.35), (GPT_FAST, "Mixtral 8x7B", "a100-80", 8, "bf16", 227.82),
        ("llama.cpp", "Llama 3 8B", "rtx3090", 1, "bf16", 58), ("llama.cpp, Q4_0", "Llama 3 8B", "rtx3090", 1, "int4", 157),
        ("Hazy Research, one kernel", "Llama 3.2 1B", "h100", 1, "bf16", 1057), ("vLLM, SGLang, at most", "Llama 3.2 1B", "h100", 1, "bf16", 677),
        (GENAI, "Qwen 2.5 0.5B", "h200", 1, "int4", 908), ("onnxruntime-genai", "Qwen 2.5 0.5B", "h200", 1, "int4", 583),
        ("onnxruntime-genai", "Qwen 2.5 7B", "h200", 1, "int4", 280)]


def configuration(model):
    experts = {"num_local_experts": 8, "num_experts_per_tok": 2} if MODELS[model][0] == "mixtral" else {}
    return {**dict(zip(KEYS, MODELS[model])), **experts}


def ask(rankc, row):
    _, model, machine, gpus, weights, _ = row
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "config.json")
        with open(path, "w", encoding="ascii") as file:
            json.dump(configuration(model), file)
        words = ["--inference", "--decode", "--dim", "past=128", "--dtype", "bf16", "--machine", machine, "--pas", "tp", "--plan-ngpus", str(gpus)]
        words += ["--weight-dtype", weights] if weights != "bf16" else []
        done = subprocess.run([rankc, "plan", "--model-config", path, *words, "--json", "-q"], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["estimate"]


def line_of(row, estimate):
    source, model, machine, gpus, weights, published = row
    predicted = estimate["tokens"] / estimate["step_s"]
    parts = [estimate[key] * 1e3 for key in ("products_s", "attention_s", "launching_s", "communicating_s")]
    cells = [source, model, f"{gpus} {machine}", weights, f"{published:g}", f"{predicted:.4g}", f"**{predicted / published:.2f}**",
             f"{estimate['step_s'] * 1e3:.2f}", *(f"{part:.2f}" for part in parts)]
    return f"| {' | '.join(cells)} |", predicted / published


PAGE = """# Published speeds of decoders, as plans of rankc

`bench/published_decoding.py --rankc RANKC --page docs/measured/published-decoding.md` writes this page. A row is a speed that
somebody published, of one text; beside it what `rankc plan --model-config --inference --decode --machine` predicts for a step of
rankc's program ([model-config.md](../model-config.md)), under tensor parallelism, with 128 tokens in the caches. Parts are milliseconds of a step.
No constant is of a system or of a row: machines are those of [machines.def](../../passes/plan/machine/machines.def), which were fitted to
published training runs. The prediction of gpt-fast's weights of 16 bits on one GPU is within 15 % of what is published; all are within
a factor of 2.

| source | model | GPUs | weights | published, tokens/s | predicted | ratio | step, ms | products | attention | launching | communicating |
|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|
{rows}

Speeds that are stated as a share of the memory's bandwidth (Hazy Research 78 %, vLLM and SGLang at most 50 %) are tokens per second of the
weights at that share. Why the ratios are as far from 1:

- Starting a kernel takes 4 microseconds, as in the training runs to which that was fitted. A step in one CUDA graph starts
  kernels faster, and the systems fuse more: this is most of a step of small models, and of 8 GPUs.
- Links take 20 microseconds to begin a sum over GPUs, as NCCL needs; gpt-fast has a kernel of its own for small ones, which
  takes a few.
- rankc's products of 8- and 4-bit weights compute in f32 on GPUs, with casts before and behind them.
- Kernels reach 85 % of the memory's bandwidth, as of HBM; llama.cpp reached 93 % of GDDR6X.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--page", help="write docs/measured/published-decoding.md here")
    given = parser.parse_args()
    lines, wrong = [], 0
    for row in ROWS:
        line, ratio = line_of(row, ask(given.rankc, row))
        closely = row[3] == 1 and row[4] == "bf16" and row[0] == GPT_FAST
        fits = abs(ratio - 1) <= HALF_ONE_GPU if closely else 1 / BAND <= ratio <= BAND
        print(line + ("" if fits else " not within the bounds"))
        lines.append(line)
        wrong += not fits
    if given.page:
        with open(given.page, "w", encoding="ascii") as file:
            file.write(PAGE.format(rows="\n".join(lines)))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
