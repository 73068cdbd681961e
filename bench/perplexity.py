#!/usr/bin/python3
"""The perplexity of a text with small weights and caches, as the table of docs/quantised-models.md.

    bench/perplexity.py --rankc RANKC [--steps 1000]

Trains samples/generate/writer.onnx, a decoder of characters, on samples/generate/sonnets.txt as samples/quickstart.sh does, then has
programs with each type of weights and caches compute the logits of that text, in pieces of 64 characters."""
import argparse
import pathlib
import subprocess
import tempfile

import numpy as np

SAMPLES = pathlib.Path(__file__).resolve().parent.parent / "samples" / "generate"
LENGTH, VOCABULARY = 64, 128
FORMS = {"f32": [], "bf16": ["--weight-dtype", "bf16"], "fp16": ["--weight-dtype", "fp16"], "int8": ["--weight-dtype", "int8"],
         "int8, activations int8": ["--weight-dtype", "int8:activations=int8"], "int4": ["--weight-dtype", "int4"],
         "int4, activations int8": ["--weight-dtype", "int4:activations=int8"], "f32, caches bf16": ["--cache-dtype", "bf16"],
         "f32, caches int8": ["--cache-dtype", "int8"], "int4, caches int8": ["--weight-dtype", "int4", "--cache-dtype", "int8"]}


def trained(rankc, work, steps):
    """The decoder with weights that were trained on the text."""
    text = work / "text.bin"
    text.write_bytes(b"".join((SAMPLES / "sonnets.txt").read_bytes() + b"\n" for _ in range(64)))
    places = ",".join(map(str, range(LENGTH)))
    rankc("compile", SAMPLES / "writer.onnx", "-o", work / "train", "--train", "-q", "--dim", "batch=16", "--dim", f"sequence={LENGTH}", "--dim",
          f"total={LENGTH}", "--dim", "past=0", "--bind", "attention_mask=1", "--bind", f"position_ids={places}", "--loss",
          "cross_entropy:logits=logits,labels=labels", "--optimizer", "adamw:lr=0.01", "--lr-schedule", f"cosine:warmup=20,steps={steps}")
    rankc("train", work / "train", "--data", f"input_ids={text}:u8", "--data", f"labels={text}:u8:shift=1", "--shuffle", 1, "--steps", steps,
          "--checkpoint-dir", work / "checkpoints", "-q")
    rankc("ckpt", "to-onnx", work / "checkpoints", SAMPLES / "writer.onnx", work / "writer.onnx")
    return work / "writer.onnx"


def perplexity(logits, labels):
    """e to the mean of -log p(label)."""
    logits = logits.astype("f8") - logits.max(-1, keepdims=True)
    chosen = np.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return float(np.exp(np.mean(np.log(np.exp(logits).sum(-1)) - chosen)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    rankc = lambda *words: subprocess.run([args.rankc, *map(str, words)], check=True)  # noqa: E731
    ids = np.frombuffer((SAMPLES / "sonnets.txt").read_bytes(), np.uint8).astype(np.int64)
    rows = (len(ids) - 1) // LENGTH
    given, labels = ids[:rows * LENGTH].reshape(rows, LENGTH), ids[1:rows * LENGTH + 1].reshape(rows, LENGTH)
    with tempfile.TemporaryDirectory() as name:
        work, inputs = pathlib.Path(name), []
        model, logits = trained(rankc, work, args.steps), {}
        for input_name, value in {"input_ids": given, "attention_mask": np.ones_like(given),
                                  "position_ids": np.broadcast_to(np.arange(LENGTH), given.shape)}.items():
            np.save(work / f"{input_name}.npy", value)
            inputs += ["--input", f"{input_name}={work / input_name}.npy"]
        print("| weights, caches | perplexity | logits differ by |\n| --- | ---: | ---: |")
        for form, words in FORMS.items():
            out = work / str(len(logits))
            rankc("compile", model, "-o", out, "--state", "auto", "--dim", f"batch={rows}", "--dim", f"sequence={LENGTH}", "--dim",
                  f"past=0..{LENGTH}", "-q", *words)
            rankc("run", out, *inputs, "--output-dir", out / "results", "-q")
            logits[form] = np.load(out / "results" / "logits.npy")
            difference = np.sqrt(np.mean((logits[form] - logits["f32"]) ** 2) / np.mean(logits["f32"] ** 2))
            print(f"| {form} | {perplexity(logits[form], labels):.4f} | {100 * difference:.3f} % |", flush=True)


if __name__ == "__main__":
    main()
