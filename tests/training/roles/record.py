"""Records the models of roles.py, and what PyTorch says of them.

    record.py          (torch 2.15, onnx and onnxscript; nothing of the suite needs them)

A small transformer with all that an export turns into initializers though it is no parameter: a causal mask, a lower triangle of
ones, RoPE's frequencies, scales, exponents, epsilons; and with parameters that look like such: a bias of the scores, LayerScale,
a scale of the logits, an exponent, slopes of PReLU, a scale that is a parameter of RMSNorm. By PyTorch's four ways to export:

    dynamo.onnx        torch.onnx.export(.., dynamo=True), the default
    dynamo_plain.onnx  likewise with optimize=False
    legacy.onnx        dynamo=False, which folds constants
    legacy_plain.onnx  dynamo=False, do_constant_folding=False, TrainingMode.TRAINING

reference.json: named_parameters, named_buffers, and losses of SGD; ids.npy, labels.npy. Metadata of nodes, of which rankc reads
nothing, is taken out of the models."""
import json
import math
import os
import warnings

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
WIDTH, HEADS, TIME, TOKENS, BATCH, STEPS, RATE = 16, 2, 8, 32, 4, 6, 0.1


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mask", torch.full((TIME, TIME), -1e9).triu(1))
        self.register_buffer("bias", torch.tril(torch.ones(TIME, TIME)).view(1, 1, TIME, TIME))
        self.register_buffer("inv_freq", 1 / (10000 ** (torch.arange(0, WIDTH // HEADS, 2) / (WIDTH // HEADS))))
        self.score_bias = nn.Parameter(torch.randn(HEADS, TIME, TIME) * 0.1)
        self.layer_scale = nn.Parameter(torch.rand(WIDTH))

    def rotate(self, x):
        angles = torch.outer(torch.arange(TIME).float(), self.inv_freq)
        angles = torch.cat([angles, angles], -1)
        half = x.shape[-1] // 2
        return x * angles.cos() + torch.cat([-x[..., half:], x[..., :half]], -1) * angles.sin()

    def forward(self, x):
        q, k, v = (self.qkv(x).view(BATCH, TIME, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)[i] for i in range(3))
        scores = self.rotate(q) @ self.rotate(k).transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        scores = scores + self.mask + self.score_bias
        scores = torch.where(self.bias == 0, torch.finfo(scores.dtype).min, scores)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(BATCH, TIME, WIDTH)
        return self.layer_scale * self.proj(y)


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(TOKENS, WIDTH)
        self.pos = nn.Parameter(torch.randn(1, TIME, WIDTH) * 0.02)
        self.ln = nn.LayerNorm(WIDTH)
        self.rms = RMSNorm()
        self.attn = Attention()
        self.fc = nn.Linear(WIDTH, 2 * WIDTH)
        self.out = nn.Linear(2 * WIDTH, WIDTH)
        self.logit_scale = nn.Parameter(torch.tensor(2.6))
        self.p = nn.Parameter(torch.ones(1) * 3)
        self.prelu = nn.PReLU()
        self.register_buffer("table", sinusoids())

    def forward(self, ids):
        x = self.emb(ids) * math.sqrt(WIDTH) + self.pos + self.table
        x = x + self.attn(self.ln(x))
        x = self.prelu(x + self.out(gelu(self.fc(self.rms(x)))))
        pooled = x.clamp(min=1e-6).pow(self.p).mean(1).pow(1 / self.p)
        pooled = pooled / pooled.norm(dim=-1, keepdim=True)
        return (pooled @ self.emb.weight.t()) * self.logit_scale.exp()


def sinusoids():
    angles = torch.outer(torch.arange(TIME).float(), 1 / (100 ** (torch.arange(0, WIDTH, 2) / WIDTH)))
    return torch.stack([angles.sin(), angles.cos()], -1).reshape(TIME, WIDTH)


def strip(path):
    model = onnx.load(path)
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    initializers = {tensor.name for tensor in model.graph.initializer}
    kept = [info for info in model.graph.value_info if info.name in initializers]
    del model.graph.value_info[:]
    model.graph.value_info.extend(kept)
    onnx.save(model, path)


def export(net, ids):
    ways = {"dynamo": {"dynamo": True, "external_data": False},
            "dynamo_plain": {"dynamo": True, "external_data": False, "optimize": False},
            "legacy": {"dynamo": False},
            "legacy_plain": {"dynamo": False, "do_constant_folding": False, "training": torch.onnx.TrainingMode.TRAINING}}
    for name, options in ways.items():
        path = os.path.join(HERE, name + ".onnx")
        torch.onnx.export(net, (ids,), path, input_names=["ids"], output_names=["logits"], **options)
        strip(path)


def train(net, ids, labels):
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(ids), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    net = Net()
    with torch.no_grad():
        net.ln.weight.add_(torch.randn(WIDTH) * 0.1)
        net.ln.bias.add_(torch.randn(WIDTH) * 0.1)
    ids, labels = torch.randint(0, TOKENS, (BATCH, TIME)), torch.randint(0, TOKENS, (BATCH,))
    np.save(os.path.join(HERE, "ids.npy"), ids.numpy())
    np.save(os.path.join(HERE, "labels.npy"), labels.numpy())
    export(net, ids)
    reference = {"torch": torch.__version__, "rate": RATE,
                 "parameters": {name: list(p.shape) for name, p in net.named_parameters()},
                 "buffers": [name for name, _ in net.named_buffers()]}
    reference["losses"] = train(net, ids, labels)
    with open(os.path.join(HERE, "reference.json"), "w") as file:
        json.dump(reference, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
