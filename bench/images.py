#!/usr/bin/env python3
"""Times networks for images beside ONNX Runtime and OpenVINO, and writes docs/images-speed.md.

    images.py --rankc RANKC [--work DIR] [--rounds N] [--threads "1 2"] [--table FILE] [NET..]

RANKC is of a build with --buildtype release. The networks are torchvision's with random weights, and a U-Net and a
detector in the manner of YOLO below, exported for one image. Every network is checked against PyTorch's result first.
The three runtimes take turns within a round, in f32; a figure is the median of a round's steps, a ratio the median of
the rounds. Needs torch, torchvision, onnx, onnxruntime and openvino."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings

import numpy as np
import onnxruntime
import openvino
import torch
import torchvision
from torch import nn

STEPS = 10
ERROR = 1e-4  # of the largest element
HEAD = """# Networks for images on a CPU

Written by `bench/images.py`; do not edit. One image, f32, random weights; {rounds} rounds in turns. The ratio is the peer's
time to rankc's, so more is better: the median of the rounds, and the least and the most. ONNX Runtime {ort}, OpenVINO
{openvino}; machine: {machine}.

| network | threads | rankc, ms | ONNX Runtime, ms | ratio | OpenVINO, ms | ratio |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def twice(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(),
                         nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, c=32):
        super().__init__()
        self.down = nn.ModuleList([twice(3, c), twice(c, 2 * c), twice(2 * c, 4 * c), twice(4 * c, 8 * c)])
        self.middle = twice(8 * c, 16 * c)
        self.wider = nn.ModuleList([nn.ConvTranspose2d(2 ** (i + 1) * c, 2**i * c, 2, stride=2) for i in (3, 2, 1, 0)])
        self.up = nn.ModuleList([twice(2 ** (i + 1) * c, 2**i * c) for i in (3, 2, 1, 0)])
        self.head = nn.Conv2d(c, 2, 1)

    def forward(self, x):
        kept = []
        for block in self.down:
            kept.append(block(x))
            x = torch.max_pool2d(kept[-1], 2)
        x = self.middle(x)
        for wider, block in zip(self.wider, self.up):
            x = block(torch.cat([wider(x), kept.pop()], 1))
        return self.head(x)


def silu(a, b, k=3, stride=1):
    return nn.Sequential(nn.Conv2d(a, b, k, stride, k // 2, bias=False), nn.BatchNorm2d(b), nn.SiLU())


class Split(nn.Module):
    """YOLO v8's block: half of the channels pass through `n` pairs of convolutions, and all results are joined."""

    def __init__(self, c, n):
        super().__init__()
        self.first, self.last = silu(c, c, 1), silu((2 + n) * c // 2, c, 1)
        self.pairs = nn.ModuleList([nn.Sequential(silu(c // 2, c // 2), silu(c // 2, c // 2)) for _ in range(n)])

    def forward(self, x):
        parts = list(self.first(x).chunk(2, 1))
        for pair in self.pairs:
            parts.append(parts[-1] + pair(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(silu(3, 16, 3, 2), silu(16, 32, 3, 2), Split(32, 1), silu(32, 64, 3, 2), Split(64, 2))
        self.b = nn.Sequential(silu(64, 128, 3, 2), Split(128, 2))
        self.c = nn.Sequential(silu(128, 256, 3, 2), Split(256, 1))
        self.pools = nn.ModuleList([nn.MaxPool2d(5, 1, 2) for _ in range(3)])
        self.joined, self.up = silu(1024, 256, 1), nn.Upsample(scale_factor=2)
        self.to_b, self.to_a = silu(384, 128, 1), silu(192, 64, 1)
        self.heads = nn.ModuleList([nn.Conv2d(n, 144, 1) for n in (64, 128, 256)])

    def forward(self, x):
        a = self.a(x)
        b = self.b(a)
        pools = [self.c(b)]
        for pool in self.pools:
            pools.append(pool(pools[-1]))
        c = self.joined(torch.cat(pools, 1))
        b = self.to_b(torch.cat([self.up(c), b], 1))
        a = self.to_a(torch.cat([self.up(b), a], 1))
        return torch.cat([head(x).flatten(2) for head, x in zip(self.heads, (a, b, c))], 2)


MODELS = torchvision.models
NETS = {  # what makes it, and the extent of its image
    "ResNet-50": (MODELS.resnet50, 224),
    "MobileNet v2": (MODELS.mobilenet_v2, 224),
    "MobileNet v3 large": (MODELS.mobilenet_v3_large, 224),
    "EfficientNet B0": (MODELS.efficientnet_b0, 224),
    "ConvNeXt tiny": (MODELS.convnext_tiny, 224),
    "DenseNet-121": (MODELS.densenet121, 224),
    "VGG-16": (MODELS.vgg16, 224),
    "ResNeXt-50": (MODELS.resnext50_32x4d, 224),
    "ShuffleNet v2": (MODELS.shufflenet_v2_x1_0, 224),
    "SqueezeNet": (MODELS.squeezenet1_1, 224),
    "GoogLeNet": (lambda: MODELS.googlenet(init_weights=True, aux_logits=False), 224),
    "Inception v3": (lambda: MODELS.inception_v3(init_weights=True, aux_logits=False), 299),
    "RegNet Y 400MF": (MODELS.regnet_y_400mf, 224),
    "LR-ASPP MobileNet v3": (lambda: MODELS.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None), 224),
    "U-Net": (UNet, 256),
    "YOLO-like": (Detector, 320),
}


class Net:
    """A network's files in the work directory: model, image, and PyTorch's result."""

    def __init__(self, name, work):
        self.name, self.base = name, os.path.join(work, name.replace(" ", "_"))
        make, extent = NETS[name]
        torch.manual_seed(0)
        net, image = make().eval(), torch.randn(1, 3, extent, extent)
        for part in net.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.running_mean.normal_(0, 0.1)
                part.running_var.uniform_(0.5, 1.5)
        with torch.no_grad():
            result = net(image)
        self.result = (result["out"] if isinstance(result, dict) else result).numpy()
        self.image = image.numpy()
        torch.onnx.export(net, (image,), self.base + ".onnx", dynamo=False, opset_version=17, input_names=["x"], output_names=["y"])
        np.save(self.base + ".npy", self.image)

    def run(self, rankc, *options):
        return subprocess.run([rankc, "run", self.base, "--input", f"x={self.base}.npy", *options], check=True,
                              capture_output=True, text=True).stdout

    def check(self, rankc):
        subprocess.run([rankc, "compile", self.base + ".onnx", "-o", self.base, "-q", "--reuse", "override"], check=True)
        self.run(rankc, "--output-dir", self.base)
        error = np.abs(np.load(self.base + "/y.npy") - self.result).max() / np.abs(self.result).max()
        if not error <= ERROR:
            sys.exit(f"{self.name}: differs from PyTorch by {error:.2g} of the largest element")


def median_of(step):
    step()
    times = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        step()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def rounds_of(net, rankc, threads, rounds):
    """Per round the times of rankc, ONNX Runtime and OpenVINO."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(net.base + ".onnx", options, providers=["CPUExecutionProvider"])
    request = openvino.Core().compile_model(net.base + ".onnx", "CPU", {
        "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}).create_infer_request()
    given = {"x": net.image}
    for _ in range(rounds):
        own = json.loads(net.run(rankc, "--threads", str(threads), "--repeat", str(STEPS), "--warmup", "1", "--json"))
        yield own["step_ms"]["median"], median_of(lambda: session.run(None, given)), median_of(lambda: request.infer(given))


def row_of(net, threads, times):
    own, *peers = zip(*times)
    cells = [net.name, str(threads), f"{statistics.median(own):.2f}"]
    for peer in peers:
        ratios = [theirs / ours for ours, theirs in zip(own, peer)]
        cells += [f"{statistics.median(peer):.2f}", f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"]
    return "| " + " | ".join(cells) + " |\n"


def machine():
    return next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--work", default="images")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="1 2")
    parser.add_argument("--table")
    parser.add_argument("nets", nargs="*", metavar="NET")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.makedirs(args.work, exist_ok=True)
    text = HEAD.format(rounds=args.rounds, ort=onnxruntime.__version__, openvino=openvino.__version__.split("-")[0], machine=machine())
    for name in args.nets or NETS:
        net = Net(name, args.work)
        net.check(args.rankc)
        for threads in map(int, args.threads.split()):
            row = row_of(net, threads, list(rounds_of(net, args.rankc, threads, args.rounds)))
            print(row, end="", flush=True)
            text += row
    if args.table:
        open(args.table, "w").write(text)


if __name__ == "__main__":
    main()
