#!/usr/bin/env python3
"""Records what PyTorch's generate() writes with the model of samples/generate/writer.onnx: record_samples.py > samples.json

Needs torch, transformers and onnx."""
import json
import pathlib
import sys

import numpy as np
import onnx
import torch
from onnx import numpy_helper

SAMPLE = pathlib.Path(__file__).resolve().parents[2] / "samples" / "generate"
sys.path.append(str(SAMPLE))
from export import model_of  # noqa: E402

NEW = 48
TEXTS = ("S", "Shall I compare", "When to the sessions of sweet silent thought\nI summon up")


def main():
    model = model_of(layers=2)
    exported = {value.name: numpy_helper.to_array(value) for value in onnx.load(SAMPLE / "writer.onnx").graph.initializer}
    for name, weight in model.named_parameters():
        assert np.array_equal(exported["model." + name], weight.detach().numpy()), name
    written = []
    for text in TEXTS:
        prompt = [ord(character) for character in text]
        out = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.int64), max_new_tokens=NEW,
                             do_sample=False, eos_token_id=None, pad_token_id=0, return_dict_in_generate=True, output_logits=True)
        best = torch.cat(out.logits).topk(2).values
        assert (best[:, 0] - best[:, 1]).min() > 1e-3, "logits that rounding may exchange"
        written.append({"prompt": prompt, "ids": out.sequences[0, len(prompt):].tolist()})
    print("[" + ",\n".join(map(json.dumps, written)) + "]")


main()
