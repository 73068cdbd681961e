#!/usr/bin/env python3
"""Networks of torch, torchvision and transformers for the benchmarks: networks.py NAME DIRECTORY exports DIRECTORY/NAME.onnx, its
inputs NAME.INPUT.npy and PyTorch's result NAME.result.npy. NAME.qdq, NAME.qoperator and NAME.dynamic are that model as ONNX Runtime
quantises it (int8, weights per channel; of random weights, calibrated with the input).

Weights are random; BatchNormalization has statistics that are not trivial. Needs torch, torchvision, transformers and onnx,
for the quantised ones onnxruntime."""
import functools
import glob
import os
import sys
import tempfile
import warnings

import numpy as np
import onnx
import torch
import torchvision
import transformers
from torch import nn


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


def of_torchvision(name, **options):
    return lambda: torchvision.models.get_model(name, weights=None, **options)


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = transformers.BertModel(transformers.BertConfig(attn_implementation="sdpa"), add_pooling_layer=False)

    def forward(self, ids):
        return self.bert(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state


def image(extent):
    return {"x": torch.randn(1, 3, extent, extent)}


def tokens(length, vocabulary=30522):
    return {"ids": torch.randint(0, vocabulary, (1, length))}


NETS = {  # what makes it, and its inputs
    "bert": (Bert, functools.partial(tokens, 128)),
    "vit_b": (of_torchvision("vit_b_16"), functools.partial(image, 224)),
    **{name: (of_torchvision(name, **options), functools.partial(image, extent)) for name, extent, options in (
        ("resnet50", 224, {}), ("mobilenet_v2", 224, {}), ("mobilenet_v3_large", 224, {}), ("efficientnet_b0", 224, {}),
        ("convnext_tiny", 224, {}), ("densenet121", 224, {}), ("vgg16", 224, {}), ("resnext50_32x4d", 224, {}),
        ("shufflenet_v2_x1_0", 224, {}), ("squeezenet1_1", 224, {}),
        ("googlenet", 224, {"init_weights": True, "aux_logits": False}),
        ("inception_v3", 299, {"init_weights": True, "aux_logits": False}), ("regnet_y_400mf", 224, {}),
        ("lraspp_mobilenet_v3_large", 224, {"weights_backbone": None}))},
    "unet": (UNet, functools.partial(image, 256)),
    "detector": (Detector, functools.partial(image, 320)),
}


def made(name):
    """The network and its inputs, always the same."""
    make, inputs = NETS[name]
    torch.manual_seed(0)
    net, given = make().eval(), inputs()
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
        if isinstance(part, nn.Linear) and not part.weight.any():  # as ViT's last layer is made
            nn.init.normal_(part.weight, 0, 0.02)
    return net, given


def first(result):
    return next(iter(result.values())) if isinstance(result, dict) else result


def export(name, base):
    net, given = made(name)
    with torch.no_grad():
        np.save(f"{base}.result.npy", first(net(*given.values())).numpy())
    for key, value in given.items():
        np.save(f"{base}.{key}.npy", value.numpy())
    torch.onnx.export(net, tuple(given.values()), f"{base}.onnx", dynamo=False, opset_version=17, input_names=list(given))


def divide_vectors(graph):
    """A copy of a vector of weights for each node that reads it: as an exporter merges equal ones, one may be both a bias, which is
    quantised to 32 bits, and an operand of a sum, quantised to 8."""
    known = {tensor.name: tensor for tensor in graph.initializer if len(tensor.dims) == 1}
    for number, node in enumerate(graph.node):
        for k, name in enumerate(node.input):
            if name in known:
                graph.initializer.add().CopyFrom(known[name])
                node.input[k] = graph.initializer[-1].name = f"{name}.of{number}.{k}"
    for tensor in known.values():
        graph.initializer.remove(tensor)


PRODUCTS = {"qdq": ("QuantizeLinear",), "qoperator": ("QLinearConv", "QLinearMatMul"), "dynamic": ("MatMulInteger", "ConvInteger")}


def checked(path, kind):
    """That the model is valid and quantised."""
    onnx.checker.check_model(path, full_check=True)
    found = {node.op_type for node in onnx.load(path).graph.node}
    if not found.intersection(PRODUCTS[kind]):
        sys.exit(f"networks.py: the quantised model has none of {PRODUCTS[kind]}")


def quantise(kind, source, target):
    """From SOURCE.onnx, and its inputs go along."""
    from onnxruntime import quantization as q

    class Feed(q.CalibrationDataReader):
        def __init__(self):
            self.feeds = [inputs]

        def get_next(self):
            return self.feeds.pop() if self.feeds else None

    names = {path: path[len(source) + 1:-4] for path in glob.glob(f"{source}.*.npy")}
    inputs = {name: np.load(path) for path, name in names.items() if name not in ("result", "labels") and "." not in name}
    for name, value in inputs.items():
        np.save(f"{target}.{name}.npy", value)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(target)) as scratch:
        prepared, quantised = f"{scratch}/prepared.onnx", f"{scratch}/quantised.onnx"
        q.shape_inference.quant_pre_process(f"{source}.onnx", prepared)
        model = onnx.load(prepared)
        divide_vectors(model.graph)
        onnx.save(model, prepared)
        if kind == "dynamic":
            q.quantize_dynamic(prepared, quantised, per_channel=True)
        else:
            form = q.QuantFormat.QDQ if kind == "qdq" else q.QuantFormat.QOperator
            q.quantize_static(prepared, quantised, Feed(), quant_format=form, per_channel=True,
                              weight_type=q.QuantType.QInt8, activation_type=q.QuantType.QUInt8)
        checked(quantised, kind)
        os.replace(quantised, f"{target}.onnx")


def main(name, directory):
    warnings.filterwarnings("ignore")
    base, _, kind = name.partition(".")
    if kind:
        quantise(kind, os.path.join(directory, base), os.path.join(directory, name))
    else:
        export(name, os.path.join(directory, name))


if __name__ == "__main__":
    main(*sys.argv[1:])
