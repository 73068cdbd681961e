#!/usr/bin/env python3
"""Prints what train.c prints, computed by PyTorch (1.13, Debian's python3-torch) from samples/models/gpt2.onnx:

    samples/train/reference.py [STEPS]

tests/install/install.sh has the losses."""
import sys
from pathlib import Path

import numpy
import onnx.numpy_helper
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "models"))
from export import Gpt2Config, Gpt2LmHead  # noqa: E402

weights = {tensor.name: torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy())
           for tensor in onnx.load(ROOT / "samples/models/gpt2.onnx").graph.initializer}
tokens = torch.from_numpy(numpy.load(ROOT / "samples/models/gpt2.input_ids.npy"))
model = Gpt2LmHead(Gpt2Config(hidden=48, heads=6, layers=2))
model.load_state_dict(weights, strict=False)
# lm_head and the embedding share a weight. The export has a transposed copy; rankc trains both as one.
model.double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 4):
    optimizer.zero_grad()
    logits = model(tokens)[:, :-1]
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(f"step {step + 1}: loss {loss.item():.9g}, gradient norm {norm.item():.9g}")
