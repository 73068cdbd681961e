#!/usr/bin/env python3
"""Times training steps beside PyTorch, eager and compiled.

    training.py --rankc RANKC [--work DIR] [--nets "GPT-2 ViT-B ResNet-50"] [--batch N] [--layers N] [--dtypes "f32 bf16"]
                [--peers "eager compiled"] [--threads "1 2"] [--rounds N] [--steps N] [--prepare]

RANKC is of a build with --buildtype release. Networks have PyTorch's structure and random weights and are exported with
their loss; bf16 is autocast there and --amp bf16 here. The loss of the first step is compared with PyTorch's before
anything is timed. Both take turns within a round: a figure is the median of a round's steps without the first, a ratio the
peer's time to rankc's, median of the rounds (least to most). --layers: of the two transformers, with the same widths, where
twelve take too long. --prepare exports and compiles only. Needs torch and torchvision; run it with glibc's malloc told to
keep memory (cases.py), or PyTorch is slower."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np
import torch
import torchvision
from torch import nn
from torch.nn import functional

from peer_torch import Block

VOCABULARY, LENGTH, WIDTH = 50257, 128, 768
ERROR = {"f32": 1e-5, "bf16": 2e-2}  # of the loss of the first step


class Gpt2(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.last = nn.ModuleList(Block() for _ in range(layers)), nn.LayerNorm(WIDTH)
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), -1e9).triu(1), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0, 0.02)

    def forward(self, x):
        x = self.wte(x) + self.wpe.weight
        for block in self.blocks:
            x = block(x, self.mask)
        return functional.linear(self.last(x), self.wte.weight).view(-1, VOCABULARY)


def vit(layers):
    return torchvision.models.VisionTransformer(224, 16, layers, 12, 768, 3072)


class WithLoss(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, labels):
        return functional.cross_entropy(self.net(x), labels.view(-1))


def images(batch):
    return torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))


def tokens(batch):
    ids = torch.randint(0, VOCABULARY, (batch, LENGTH))
    return ids, ids.roll(-1)


NETS = {  # what makes it of a number of layers, its samples, and the usual batch
    "GPT-2": (Gpt2, tokens, 2),
    "ViT-B": (vit, images, 2),
    "ResNet-50": (lambda layers: torchvision.models.resnet50(), images, 4),
}


class Net:
    """A network with its loss, and its files in the work directory."""

    def __init__(self, name, args):
        make, samples, usual = NETS[name]
        self.name, self.batch, self.layers = name, args.batch or usual, args.layers
        self.base = os.path.join(args.work, f"{name}-{self.batch}-{self.layers}")
        torch.manual_seed(0)
        self.net = WithLoss(make(args.layers)).train()
        self.samples = samples(self.batch)
        for key, value in zip(("x", "labels"), self.samples):
            np.save(f"{self.base}.{key}.npy", value.numpy())

    def export(self):
        if not os.path.exists(self.base + ".onnx"):
            torch.onnx.export(self.net, self.samples, self.base + ".onnx", dynamo=False, opset_version=17,
                              training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                              input_names=["x", "labels"], output_names=["loss"])

    def compile(self, rankc, dtype):
        amp = () if dtype == "f32" else ("--amp", dtype)
        subprocess.run([rankc, "compile", self.base + ".onnx", "-o", f"{self.base}-{dtype}", "-q", "--reuse", "override",
                        "--train", "--optimizer", "adamw:lr=1e-4,weight_decay=0", *amp], check=True)

    def train(self, rankc, dtype, threads, steps):
        """The times of the steps but the first in ms, and the loss of the first."""
        log = f"{self.base}-{dtype}.jsonl"
        data = [word for key in ("x", "labels") for word in ("--data", f"{key}={self.base}.{key}.npy")]
        subprocess.run([rankc, "train", f"{self.base}-{dtype}", *data, "--steps", str(steps + 1), "--threads", str(threads),
                        "--log", log, "-q"], check=True, stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in open(log)]
        steps = [line for line in lines if "step" in line and "loss" in line]
        return [line["ms"] for line in steps[1:]], steps[0]["loss"]

    def peer(self, mode, dtype):
        """A training step of PyTorch that returns its loss."""
        net = torch.compile(self.net) if mode == "compiled" else self.net
        optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-4, weight_decay=0.0, fused=True)

        def step():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
                loss = net(*self.samples)
            loss.backward()
            optimizer.step()
            return loss.item()
        return step


def timed(step, steps):
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def rounds_of(net, args, dtype, mode, threads):
    """Per round the times of rankc and of the peer."""
    torch.set_num_threads(threads)
    step = net.peer(mode, dtype)
    loss = step()
    step()
    for _ in range(args.rounds):
        own, first = net.train(args.rankc, dtype, threads, args.steps)
        if not abs(first - loss) <= ERROR[dtype] * abs(loss):
            sys.exit(f"{net.name}: the loss of the first step is {first}, PyTorch's {loss}")
        yield statistics.median(own), statistics.median(timed(step, args.steps))


def row_of(net, dtype, mode, threads, times):
    ratios = [theirs / ours for ours, theirs in times]
    own, peer = (statistics.median(side) for side in zip(*times))
    return (f"| {net.name} | {net.batch} | {dtype} | {threads} | {own:.0f} | {mode} {peer:.0f} | "
            f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f}) |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--work", default="training")
    parser.add_argument("--nets", default=" ".join(NETS))
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--dtypes", default="f32 bf16")
    parser.add_argument("--peers", default="eager compiled")
    parser.add_argument("--threads", default="1 2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--prepare", action="store_true")
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    for name in args.nets.split():
        for dtype in args.dtypes.split():
            if args.prepare:
                net = Net(name, args)
                net.export()
                net.compile(args.rankc, dtype)
            for mode in args.peers.split():
                for threads in map(int, args.threads.split()):
                    net = Net(name, args)
                    if args.prepare:
                        timed(net.peer(mode, dtype), 1)
                        continue
                    print(row_of(net, dtype, mode, threads, list(rounds_of(net, args, dtype, mode, threads))), flush=True)


if __name__ == "__main__":
    main()
