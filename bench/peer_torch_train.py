#!/usr/bin/env python3
"""Times PyTorch on training steps of models.py's gpt2_train: peer_torch_train.py THREADS STEPS BATCH [PROCESSES]. Prints like
`rankc run --json`.

Several processes train with DistributedDataParallel over gloo, and rank 0 prints. AdamW, eager mode, buckets as views of
gradients; run it with glibc's malloc told to keep memory (cases.py), or it is a third slower."""
import json
import os
import socket
import subprocess
import sys
import time

import torch
import torch.distributed
from torch import nn
from torch.nn import functional

from peer_torch import LAYERS, WIDTH, Block, peak_rss

VOCABULARY, LENGTH = 50257, 64


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.last = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), -1e9).triu(1), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0, 0.02)

    def forward(self, ids, labels):
        x = self.wte(ids) + self.wpe.weight
        for block in self.blocks:
            x = block(x, self.mask)
        logits = functional.linear(self.last(x), self.wte.weight)
        return functional.cross_entropy(logits.view(-1, VOCABULARY), labels.view(-1))


def launch(processes):
    """This program, once per rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = dict(os.environ, WORLD_SIZE=str(processes), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env=dict(shared, RANK=str(r))) for r in range(processes)]
    return max(rank.wait() for rank in ranks)


def main(threads, steps, batch, processes=1):
    if processes > 1 and "RANK" not in os.environ:
        sys.exit(launch(processes))
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    world, rank, idle = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0)), peak_rss()
    model = Gpt2()
    if world > 1:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0)
    ids = torch.randint(0, VOCABULARY, (batch, LENGTH))
    labels, taken = ids.roll(-1), []
    for _ in range(steps):
        begin = time.perf_counter()
        loss = model(ids, labels)
        optimizer.zero_grad(set_to_none=world == 1)
        loss.backward()
        optimizer.step()
        taken.append((time.perf_counter() - begin) * 1e3)
    taken.sort()
    if rank == 0:
        print(json.dumps({
            "version": torch.__version__,
            "step_ms": {"min": taken[0], "median": taken[len(taken) // 2], "max": taken[-1]},
            "load_ms": 0, "peak_rss": [peak_rss()] * world, "idle_rss": idle * world}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
