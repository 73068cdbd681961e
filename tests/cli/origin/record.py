#!/usr/bin/env python3
"""Records model.onnx: a small model with the metadata of PyTorch's dynamo exporter.

    tests/cli/origin/record.py

Needs torch and onnxscript. Paths of stack traces become /home/user/net.py and /usr/lib/python3/.."""
import re
from pathlib import Path

import onnx
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.up = nn.Linear(size, 2 * size)
        self.down = nn.Linear(2 * size, size)

    def forward(self, x):
        h = torch.relu(self.up(self.norm(x)))
        return x + self.down(h * torch.sigmoid(h))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.layers = nn.ModuleList(Block(8) for _ in range(4))
        self.head = nn.Linear(8, 16, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x).softmax(-1)


def plain(text):
    text = text.replace(__file__, "/home/user/net.py").replace(str(Path(__file__).resolve()), "/home/user/net.py")
    return re.sub(r'"[^"]*/(torch/[^"]*)"', r'"/usr/lib/python3/\1"', text)


def main():
    torch.manual_seed(0)
    path = Path(__file__).with_name("model.onnx")
    torch.onnx.export(Net().eval(), (torch.randint(0, 16, (2, 3)),), path, dynamo=True, external_data=False,
                      output_names=["probabilities"])
    model = onnx.load(path)
    for node in model.graph.node:
        kept = [(p.key, plain(p.value)) for p in node.metadata_props if re.search("name_scopes|class_h|stack_trace", p.key)]
        del node.metadata_props[:]
        for key, value in kept:
            node.metadata_props.add(key=key, value=value)
    del model.graph.metadata_props[:]
    for value in model.graph.value_info:
        del value.metadata_props[:]
    onnx.save(model, path)


if __name__ == "__main__":
    main()
