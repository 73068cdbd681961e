#!/usr/bin/env python3
"""Times PyTorch on the stack of models.py's gpt2_12: peer_torch.py THREADS REPEAT WARMUP. Prints like `rankc run --json`.

Eager mode: attention by scaled products and softmax, the tanh GELU of torch.nn.functional."""
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional

LAYERS, LENGTH, WIDTH, HEADS = 12, 128, 768, 12


def peak_rss():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attention(self, x, mask):
        heads = x.shape[:2] + (HEADS, WIDTH // HEADS)
        q, k, v = (part.view(heads).transpose(1, 2) for part in self.qkv(x).split(WIDTH, 2))
        scores = q @ k.transpose(-2, -1) * (WIDTH // HEADS) ** -0.5
        mixed = (functional.softmax(scores + mask, -1) @ v).transpose(1, 2)
        return self.proj(mixed.reshape(x.shape))

    def forward(self, x, mask):
        x = x + self.attention(self.ln1(x), mask)
        return x + self.fc2(functional.gelu(self.fc(self.ln2(x)), approximate="tanh"))


def main(threads, repeat, warmup):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    idle = peak_rss()
    begin = time.perf_counter()
    blocks, last = [Block().eval() for _ in range(LAYERS)], nn.LayerNorm(WIDTH)
    mask = torch.full((LENGTH, LENGTH), -1e9).triu(1)
    load = time.perf_counter() - begin
    given, steps = torch.randn(1, LENGTH, WIDTH), []
    with torch.no_grad():
        for _ in range(warmup + repeat):
            begin, x = time.perf_counter(), given
            for block in blocks:
                x = block(x, mask)
            last(x)
            steps.append((time.perf_counter() - begin) * 1e3)
    steps = sorted(steps[warmup:])
    print(json.dumps({
        "version": torch.__version__,
        "step_ms": {"min": steps[0], "median": steps[len(steps) // 2], "max": steps[-1]},
        "load_ms": load * 1e3, "peak_rss": [peak_rss()], "idle_rss": idle}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
