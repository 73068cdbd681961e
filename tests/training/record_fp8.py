#!/usr/bin/env python3
"""Record how PyTorch trains with linear layers in 8-bit floats.

    record_fp8.py [--out DIR] [NAME...]

writes DIR/<case>/ as record.py does for its cases. The losses and gradient norms of "f32" and "f64" are those of layers that compute
in 8-bit floats, emulated here: operands are rounded, products are PyTorch's, of which "f64" are in f64; "plain" is without. Scaling
is delayed, as by TransformerEngine's DelayedScaling (margin 0, algorithm max), once a step of the optimizer: of each operand the
largest magnitudes of the last HISTORY steps are kept, in which all micro-batches of a step are one. The layer that makes the logits
stays as it is."""
import copy
import json
from unittest import mock

import numpy
import torch
from torch import nn

import record
from record import LanguageModelLoss, RegressionLoss, token_data
from export import Conv1D, Gpt2Config, Gpt2LmHead, LlamaConfig, LlamaForCausalLM, Mlp

HISTORY = 4
F32 = torch.float32  # whatever that name stands for later
MICRO_BATCHES = (1, 2, 4)


def rows_data(batch, rows, inputs, outputs):
    """Matrices of vectors."""
    def make(random):
        x = random.standard_normal((record.SAMPLES, rows, inputs)).astype("f4")
        return {"x": x, "target": numpy.tanh(x[..., :outputs] * 2).astype("f4")}

    return batch, make


# The fields of record.Case.
CASES = {
    "gpt2_fp8": (lambda: LanguageModelLoss(Gpt2LmHead(Gpt2Config(layers=2))), token_data(2, 16, 101), 14,
                 "adamw:lr=0.003,weight_decay=0.1", lambda m: torch.optim.AdamW(m.parameters(), lr=0.003, weight_decay=0.1), 1.0,
                 ["--fp8", f"hybrid:history={HISTORY}"]),
    "llama_fp8": (lambda: LanguageModelLoss(LlamaForCausalLM(LlamaConfig(hidden=64, heads=4, intermediate=96, layers=1))),
                  token_data(2, 16, 97), 14, "adam:lr=0.0002,beta2=0.95",
                  lambda m: torch.optim.Adam(m.parameters(), lr=0.0002, betas=(0.9, 0.95)), 0,
                  ["--fp8", f"hybrid:history={HISTORY}"]),
    "mlp_fp8": (lambda: RegressionLoss(Mlp([32, 32, 32, 5])), rows_data(2, 16, 32, 5), 13, "sgd:lr=0.02",
                lambda m: torch.optim.SGD(m.parameters(), lr=0.02), 0, ["--fp8", f"e4m3:history={HISTORY}"]),
}

# Bits of mantissa, exponent of the smallest normal number, largest number.
FORMATS = {"e4m3": (3, -6, 448.0), "e5m2": (2, -14, 57344.0)}


def rounded(x, form):
    """To nearest, ties to even; what is too large becomes the largest."""
    mantissa, least, most = FORMATS[form]
    exponent = torch.clamp(torch.frexp(x)[1] - 1, min=least)
    unit = torch.ldexp(torch.ones_like(x), exponent - mantissa)
    return torch.clamp(torch.round(x / unit) * unit, -most, most)


class Scale:
    """Of one operand of one layer."""

    def __init__(self, form):
        self.form, self.scale, self.seen, self.history = form, 1.0, 0.0, []

    def quantised(self, x):
        self.seen = max(self.seen, x.abs().max().item())
        scale = torch.tensor(self.scale, dtype=F32).to(x.dtype)
        return rounded(x * scale, self.form) / scale

    def step(self):
        self.history = [*self.history, self.seen][-HISTORY:]
        self.seen = 0.0
        if max(self.history) > 0:
            self.scale = (torch.tensor(FORMATS[self.form][2], dtype=F32) / torch.tensor(max(self.history), dtype=F32)).item()


class Product(torch.autograd.Function):
    """x(.., k) w(n, k)^T of rounded operands; so are the products of its gradients."""

    @staticmethod
    def forward(context, x, w, scales):
        x, w, context.dy = scales[0].quantised(x.detach()), scales[1].quantised(w.detach()), scales[2]
        context.save_for_backward(x, w)
        return x @ w.T

    @staticmethod
    def backward(context, dy):
        x, w = context.saved_tensors
        dy = context.dy.quantised(dy * Fp8.micro_batches) / Fp8.micro_batches
        return dy @ w, dy.flatten(0, -2).T @ x.flatten(0, -2), None


class Fp8(nn.Module):
    """A linear layer; of Conv1D the weight lies the other way round. Gradients are those of a micro-batch's own loss, not of its
    share of the mean, which a scale of 1 would round otherwise."""
    micro_batches = 1

    def __init__(self, layer, gradient):
        super().__init__()
        self.weight, self.bias, self.turned = layer.weight, layer.bias, isinstance(layer, Conv1D)
        self.scales = [Scale("e4m3"), Scale("e4m3"), Scale(gradient)]

    def forward(self, x):
        y = Product.apply(x, self.weight.T if self.turned else self.weight, self.scales)
        return y if self.bias is None else y + self.bias


def last_layer(module):
    return [m for m in module.modules() if isinstance(m, (nn.Linear, Conv1D))][-1]


def convert(module, last, gradient):
    for name, child in module.named_children():
        if isinstance(child, (nn.Linear, Conv1D)) and child is not last:
            setattr(module, name, Fp8(child, gradient))
        else:
            convert(child, last, gradient)
    return module


def scaled_after_steps(make_optimizer):
    """The optimizer, after each step of which the module's scales change."""
    def make(module):
        optimizer = make_optimizer(module)
        step = optimizer.step

        def step_and_scale():
            step()
            for layer in module.modules():
                for scale in layer.scales if isinstance(layer, Fp8) else []:
                    scale.step()
        optimizer.step = step_and_scale
        return optimizer
    return make


def train(module, case, data, count, dtype):
    module, Fp8.micro_batches = copy.deepcopy(module), count
    if case.options:
        convert(module, last_layer(module), "e4m3" if case.options[1].startswith("e4m3") else "e5m2")
    with mock.patch.object(torch, "float32", dtype):  # modules that compute in float32 by name
        return record.train(module.to(dtype), scaled_after_steps(case.make_optimizer), data, case.data[0], count, case.clip, None)


def record_case(name, folder):
    case = record.Case(*CASES[name])
    record.record(name, case, folder, ())
    module, data = record.make(name, case)
    reference = json.loads((folder / "reference.json").read_text())
    plain = case._replace(options=())
    for count in MICRO_BATCHES:
        reference["steps"][count] = {"f32": train(module, case, data, count, torch.float32),
                                     "f64": train(module, case, data, count, torch.float64),
                                     "plain": train(module, plain, data, count, torch.float32)}
    (folder / "reference.json").write_text(json.dumps(reference) + "\n")


if __name__ == "__main__":
    record.main(CASES, record_case, __doc__)
