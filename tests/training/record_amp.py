#!/usr/bin/env python3
"""Record how PyTorch trains in mixed precision.

    record_amp.py [--out DIR] [NAME...]

writes DIR/<case>/amp.json for cases of record.py: losses and gradient norms under torch.autocast on the CPU, bf16, for each number
of micro-batches per step; and DIR/mlp_scaled/ as record.py does for its cases, but trained with GradScaler: at some steps a target
is so large that the loss overflows. A loss or norm that is not finite is null there, and beside them are the loss scales and
whether the step was skipped.

GradScaler of PyTorch 1.13 wants CUDA: its two native functions are replaced by what PyTorch documents of them
(aten/src/ATen/native/cuda/AmpKernels.cu); all else is PyTorch's."""
import copy
import json
import math
import pathlib
import warnings
from functools import partial
from unittest import mock

import numpy
import torch
from torch import nn
from torch.cuda.amp import GradScaler
from torch.cuda.amp import grad_scaler

from harness import parser_of
import record
from record import CASES, SAMPLES, STEPS

AUTOCAST, MICRO_BATCHES = ["gpt2", "llama", "cnn_bn", "mlp_dropout"], (1, 4)
SCALE, INTERVAL, HUGE = 1024.0, 3, 7  # first scale, good steps until it grows, the sample that overflows


class Autocast(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *arguments):
        with torch.autocast("cpu", torch.bfloat16):
            return self.module(*arguments)


def record_autocast(name, folder):
    _, (batch, _), _, _, make_optimizer, clip, *_ = CASES[name]
    module, data = record.make(name)
    runs = {count: {"bf16": record.train(Autocast(copy.deepcopy(module)), make_optimizer, data, batch, count, clip, None)}
            for count in MICRO_BATCHES}
    (folder / "amp.json").write_text(json.dumps(runs) + "\n")
    print(name)


def check_and_unscale(gradients, found_inf, inverse):
    for gradient in gradients:
        if not torch.isfinite(gradient).all():
            found_inf.fill_(1)
        gradient.mul_(inverse)


def update_scale(scale, tracker, found_inf, growth, backoff, interval):
    if found_inf.item():
        scale.mul_(backoff)
        tracker.fill_(0)
        return
    tracker.add_(1)
    if tracker.item() == interval:
        scale.mul_(growth)
        tracker.fill_(0)


class Replicator:
    """Tensors of one device."""

    def __init__(self, tensor):
        self._per_device_tensors = {tensor.device: tensor}

    def get(self, device):
        return self._per_device_tensors[device]


class Scaler(GradScaler):
    def scale(self, loss):
        if self._scale is None:
            self._lazy_init_scale_growth_tracker(loss.device)
        return loss * self._scale


def known(value):
    return value if math.isfinite(value) else None


def train_scaled(module, make_optimizer, data, batch, micro_batches):
    module = copy.deepcopy(module)
    optimizer, scaler = make_optimizer(module), Scaler(init_scale=SCALE, growth_interval=INTERVAL)
    run, at = {"loss": [], "grad_norm": [], "loss_scale": [], "skipped": []}, 0
    for _ in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(micro_batches):
            rows = [(at + i) % SAMPLES for i in range(batch)]
            at += batch
            loss = module(*[torch.from_numpy(value[rows]) for value in data.values()]) / micro_batches
            scaler.scale(loss).backward()
            total += loss.item()
        run["loss_scale"].append(scaler.get_scale())
        scaler.unscale_(optimizer)
        norm = torch.sqrt(sum((p.grad.double() ** 2).sum() for p in module.parameters())).item()
        scaler.step(optimizer)
        scaler.update()
        run["loss"].append(known(total))
        run["grad_norm"].append(known(norm))
        run["skipped"].append(not math.isfinite(norm))
    return run


def record_scaled(folder):
    module, data = record.make("mlp")
    _, (batch, _), opset, *_ = CASES["mlp"]
    data["target"][HUGE] = numpy.inf  # not a large number: how large it may be depends on the order of products
    folder.mkdir(parents=True, exist_ok=True)
    for key, value in data.items():
        numpy.save(folder / f"{key}.npy", value)
    arguments = tuple(torch.from_numpy(value[:batch]) for value in data.values())
    torch.onnx.export(module, arguments, str(folder / "model.onnx"), input_names=list(data), output_names=["loss"],
                      opset_version=opset, do_constant_folding=False, training=torch.onnx.TrainingMode.TRAINING)
    reference = {"inputs": list(data), "optimizer": "adam:lr=0.01", "clip_grad_norm": 0,
                 "options": ["--amp", f"fp16:init_scale={SCALE:g},growth_interval={INTERVAL},deny=*"], "steps": {}}
    with mock.patch.object(torch, "_amp_foreach_non_finite_check_and_unscale_", check_and_unscale), \
            mock.patch.object(torch, "_amp_update_scale_", update_scale), \
            mock.patch.object(grad_scaler, "_MultiDeviceReplicator", Replicator), \
            mock.patch.object(grad_scaler, "amp_definitely_not_available", lambda: False):
        for count in MICRO_BATCHES:
            reference["steps"][count] = train_scaled(module, lambda m: torch.optim.Adam(m.parameters(), lr=0.01), data,
                                                     batch, count)
    (folder / "reference.json").write_text(json.dumps(reference) + "\n")
    print("mlp_scaled", *(sum(run["skipped"]) for run in reference["steps"].values()), "steps skipped")


def main():
    parser = parser_of(__doc__, rankc=False)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("names", metavar="NAME", nargs="*", default=[*AUTOCAST, "mlp_scaled"])
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in options.names:
        (record_scaled if name == "mlp_scaled" else partial(record_autocast, name))(options.out / name)


if __name__ == "__main__":
    main()
