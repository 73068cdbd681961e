#!/usr/bin/env python3
"""Export models that end in a loss, and record how PyTorch trains them.

    record.py [--out DIR] [NAME...]

writes, per case (all of them if no NAME is given),

    DIR/NAME/model.onnx       the forward pass and the loss, with the initial weights
    DIR/NAME/<input>.npy      SAMPLES samples
    DIR/NAME/reference.json   the options of `rankc compile`, and for each number of micro-batches per step the losses,
                              gradient norms (before clipping) and learning rates of STEPS steps, in f32 and in f64; of
                              models that know training from evaluation, also what they are in evaluation after them:
                              the mean loss over whole micro-batches, and running statistics

Dropout is done by masks of Philox, as rankc's are (opcheck/reference.py).

A step's micro-batches are taken in order, going on from the start when the samples end. The gradient is that of the mean
loss of the micro-batches. It needs PyTorch and torchvision (written for 1.13 and 0.14, Debian's python3-torch and
python3-torchvision) and numpy."""
import functools
import json
import math
import pathlib
import sys
import warnings
from typing import Callable, NamedTuple, Optional, Sequence, Tuple
from unittest import mock

import numpy
import torch
from torch import nn
from torchvision.models.vision_transformer import VisionTransformer

from harness import parser_of

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "models"))
from export import Gpt2Config, Gpt2LmHead, LlamaConfig, LlamaForCausalLM, Mlp, SparseLm  # noqa: E402
from exporting import randomize  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs" / "opcheck"))
from reference import dropout  # noqa: E402

STEPS, SAMPLES = 20, 14
MICRO_BATCHES = (1, 2, 3, 4, 8, 12)  # of 1 to 3 units that accumulate 1 or 4


class LanguageModelLoss(nn.Module):
    """The mean cross entropy of every next token."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, labels):
        logits = self.model(input_ids)
        return nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


class ClassifierLoss(nn.Module):
    """The mean cross entropy of every image."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images, labels):
        return nn.functional.cross_entropy(self.model(images), labels)


class NormedConv(nn.Sequential):
    def __init__(self, channels, width, kernel, norm_groups=4, **options):
        super().__init__(nn.Conv2d(channels, width, kernel, bias=False, **options), nn.GroupNorm(norm_groups, width))


class GroupNormNet(nn.Module):
    """What convolutional networks are made of: a stem with overlapping pooling, a residual block that halves the image, a
    depthwise and a pointwise convolution, and pooling to means."""

    def __init__(self, width=8, classes=5):
        super().__init__()
        self.stem = NormedConv(3, width, 3, padding=1)
        self.first = NormedConv(width, 2 * width, 3, stride=2, padding=1)
        self.second = NormedConv(2 * width, 2 * width, 3, padding=1)
        self.shortcut = NormedConv(width, 2 * width, 1, stride=2)
        self.depthwise = nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width)
        self.pointwise = NormedConv(2 * width, 4 * width, 1, norm_groups=8)
        self.fc = nn.Linear(4 * width, classes)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.stem(x)), 3, stride=2, padding=1)
        x = torch.relu(self.second(torch.relu(self.first(x))) + self.shortcut(x))
        x = nn.functional.silu(self.pointwise(self.depthwise(x)))
        x = nn.functional.avg_pool2d(x, 2, stride=1, padding=1, count_include_pad=False)
        return self.fc(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class BatchNormNet(nn.Module):
    """Normalised images and vectors; one layer is used twice, and updates its statistics twice."""

    def __init__(self, width=6, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width, momentum=0.3)
        self.conv = nn.Conv2d(width, width, 3, padding=1, groups=2)
        self.hidden = nn.Linear(6 * width, 16)
        self.hidden_norm = nn.BatchNorm1d(16)
        self.instance = nn.InstanceNorm2d(width, affine=True)
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        x = nn.functional.silu(self.instance(self.norm(self.conv(x))))
        x = self.hidden_norm(self.hidden(nn.functional.avg_pool2d(x, 3).flatten(1)))
        return self.fc(torch.relu(x))


class Dropout(nn.Module):
    """The number-th dropout of a model, at a place that training sets."""
    place = {"step": 0, "micro": 0}

    def __init__(self, number, ratio):
        super().__init__()
        self.number, self.ratio = number, ratio

    def forward(self, x):
        if torch.onnx.is_in_onnx_export():
            return nn.functional.dropout(x, self.ratio, True)
        if not self.training:
            return x
        ones, place = numpy.ones(x.shape), self.place
        mask = dropout(ones, 1, place["step"], place["micro"], {"key": self.number, "ratio": self.ratio})
        return x * torch.from_numpy(mask).to(x.dtype)


class EncoderLayer(nn.Module):
    """BERT's (Devlin et al. 2019): norms behind the residuals, a mask added to the scores, dropouts from number `first` on."""

    def __init__(self, hidden, heads, inner, first):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden) for _ in range(4))
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.attention_norm, self.output_norm = (nn.LayerNorm(hidden, eps=1e-12) for _ in range(2))
        self.drop_scores, self.drop_attention, self.drop_output = (Dropout(first + i, 0.1) for i in range(3))

    def split(self, x):
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, x, mask):
        query, key, value = (self.split(part(x)) for part in (self.query, self.key, self.value))
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + mask
        context = self.drop_scores(scores.softmax(-1)) @ value
        context = self.out(context.transpose(1, 2).reshape(x.shape))
        x = self.attention_norm(x + self.drop_attention(context))
        return self.output_norm(x + self.drop_output(self.down(nn.functional.gelu(self.up(x)))))


class TokenClassifier(nn.Module):
    """An encoder, and the mean cross entropy of the class of every token that is not padding."""

    def __init__(self, vocab=53, length=9, hidden=20, heads=4, inner=44, layers=2, classes=7):
        super().__init__()
        self.words, self.positions, self.types = (nn.Embedding(n, hidden) for n in (vocab, length, 2))
        self.norm, self.drop = nn.LayerNorm(hidden, eps=1e-12), Dropout(0, 0.1)
        self.layers = nn.ModuleList(EncoderLayer(hidden, heads, inner, 1 + 3 * i) for i in range(layers))
        self.classifier = nn.Linear(hidden, classes)

    def forward(self, input_ids, token_type_ids, attention_mask, labels):
        positions = torch.arange(input_ids.shape[1])[None]
        x = self.drop(self.norm(self.words(input_ids) + self.positions(positions) + self.types(token_type_ids)))
        mask = (1 - attention_mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, mask)
        logits = self.classifier(x)
        return nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


class Bottleneck(nn.Module):
    """ResNet's (He et al. 2016), version 1.5: the stride is that of the window of 3."""

    def __init__(self, channels, width, out, stride):
        super().__init__()
        self.reduce, self.norm1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv, self.norm2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width)
        self.expand, self.norm3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = torch.relu(self.norm1(self.reduce(x)))
        y = self.norm3(self.expand(torch.relu(self.norm2(self.conv(y)))))
        return torch.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(8)
        self.blocks = nn.Sequential(Bottleneck(8, 4, 16, 1), Bottleneck(16, 6, 20, 2))
        self.fc = nn.Linear(20, classes)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.stem(x))), 3, stride=2, padding=1)
        return self.fc(nn.functional.adaptive_avg_pool2d(self.blocks(x), 1).flatten(1))


class RecurrentNet(nn.Module):
    """Recurrent layers of every kind, in both directions and in several layers; the state after the last step of one is the initial state
    of the next."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.lstm = nn.LSTM(inputs, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(12, 6, batch_first=True)
        self.rnn = nn.RNN(6, 6, nonlinearity="relu")
        self.fc = nn.Linear(12, outputs)

    def forward(self, x):
        y, (hidden, cell) = self.lstm(x)
        y, last = self.gru(y, hidden[:1] + cell[1:2])
        y, _ = self.rnn(y.transpose(0, 1), last)
        return self.fc(torch.cat([y.mean(0), last[0]], 1))


class RegressionLoss(nn.Module):
    """The mean squared error, written out: this exporter does not know mse_loss."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, target):
        return ((self.model(x) - target) ** 2).mean()


def token_data(batch, length, vocab):
    def make(random):
        tokens = random.integers(0, vocab, (SAMPLES, length + 1), dtype=numpy.int64)
        return {"input_ids": tokens[:, :-1], "labels": tokens[:, 1:]}

    return batch, make


def padded_data(batch, length, vocab, classes):
    def make(random):
        shape, places = (SAMPLES, length), numpy.arange(length)
        within = places < random.integers(2, length + 1, (SAMPLES, 1))
        return {"input_ids": random.integers(0, vocab, shape) * within,
                "token_type_ids": (places >= random.integers(1, length, (SAMPLES, 1))).astype(numpy.int64) * within,
                "attention_mask": within.astype(numpy.int64),
                "labels": numpy.where(within, random.integers(0, classes, shape), -100)}

    return batch, make


def image_data(batch, height, width, classes):
    def make(random):
        labels = random.integers(0, classes, SAMPLES, dtype=numpy.int64)
        noise = random.standard_normal((SAMPLES, 3, height, width))
        return {"images": (noise + labels[:, None, None, None] / 2).astype("f4"), "labels": labels}

    return batch, make


def vector_data(batch, inputs, outputs):
    def make(random):
        x = random.standard_normal((SAMPLES, inputs)).astype("f4")
        return {"x": x, "target": numpy.tanh(x[:, :outputs] * 2).astype("f4")}

    return batch, make


def series_data(batch, steps, inputs, outputs):
    def make(random):
        x = random.standard_normal((SAMPLES, steps, inputs)).astype("f4")
        return {"x": x, "target": numpy.tanh(x[:, -1, :outputs] * 2).astype("f4")}

    return batch, make


def groups(module, *rules):
    """PyTorch's parameter groups for rules (part of a name, options): the last that fits holds; None freezes."""
    made = []
    for name, parameter in module.named_parameters():
        options = next((options for part, options in reversed(rules) if part in name), {})
        parameter.requires_grad = options is not None
        if options is not None:
            made.append({"params": [parameter], **options})
    return made


def cosine(warmup, steps, least):
    """transformers.get_cosine_with_min_lr_schedule_with_warmup, min_lr_rate = least."""
    def factor(step):
        if step < warmup:
            return step / max(1, warmup)
        progress = min(1, (step - warmup) / max(1, steps - warmup))
        return max(0, 0.5 * (1 + math.cos(math.pi * progress)) * (1 - least) + least)

    return lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def linear(warmup, steps):
    """transformers.get_linear_schedule_with_warmup."""
    def factor(step):
        if step < warmup:
            return step / max(1, warmup)
        return max(0, (steps - step) / max(1, steps - warmup))

    return lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def pytorch_cosine(steps, rate, least):
    return lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, rate * least)


class Case(NamedTuple):
    build: Callable[[], nn.Module]
    data: Tuple[int, Callable]  # samples of a micro-batch, and what makes SAMPLES of each input, by name
    opset: int
    optimizer: str  # as rankc takes it
    make_optimizer: Callable
    clip: float
    options: Sequence[str] = ()  # further ones of rankc
    make_schedule: Optional[Callable] = None
    initialize: Callable = randomize


# Name: the fields of a Case.
CASES = {
    "mlp": (lambda: RegressionLoss(Mlp([13, 29, 31, 5])), vector_data(3, 13, 5), 13, "sgd:lr=0.01,momentum=0.9",
            lambda m: torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9), 0),
    # parameters of 4096 elements and more in every way of being cut: into whole blocks of 256 elements or not
    "mlp_blocks": (lambda: RegressionLoss(Mlp([16, 512, 24, 288, 32, 5])), vector_data(3, 16, 5), 13, "adamw:lr=0.002",
                   lambda m: torch.optim.AdamW(m.parameters(), lr=0.002), 0),
    "mlp_nesterov": (lambda: RegressionLoss(Mlp([13, 29, 5])), vector_data(2, 13, 5), 13,
                     "sgd:lr=0.01,momentum=0.8,nesterov=1,weight_decay=0.01",
                     lambda m: torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.8, nesterov=True, weight_decay=0.01), 0),
    "mlp_adagrad": (lambda: RegressionLoss(Mlp([13, 29, 5])), vector_data(2, 13, 5), 13,
                    "adagrad:lr=0.02,lr_decay=0.1,weight_decay=0.01",
                    lambda m: torch.optim.Adagrad(m.parameters(), lr=0.02, lr_decay=0.1, weight_decay=0.01), 0.5),
    "cnn": (lambda: ClassifierLoss(GroupNormNet()), image_data(3, 13, 10, 5), 13, "adamw:lr=0.002",
            lambda m: torch.optim.AdamW(m.parameters(), lr=0.002), 0),
    "cnn_bn": (lambda: ClassifierLoss(BatchNormNet()), image_data(6, 9, 8, 5), 15, "sgd:lr=0.002,momentum=0.9",
               lambda m: torch.optim.SGD(m.parameters(), lr=0.002, momentum=0.9), 0),
    "cnn_bn_13": (lambda: ClassifierLoss(BatchNormNet()), image_data(6, 9, 8, 5), 13, "sgd:lr=0.005",
                  lambda m: torch.optim.SGD(m.parameters(), lr=0.005), 0),
    "mlp_dropout": (lambda: RegressionLoss(nn.Sequential(Dropout(0, 0.2), nn.Linear(13, 29), nn.ReLU(), Dropout(1, 0.5),
                                                         nn.Linear(29, 31), nn.Tanh(), Dropout(2, 0.1), nn.Linear(31, 5))),
                    vector_data(3, 13, 5), 13, "sgd:lr=0.02",
                    lambda m: torch.optim.SGD(m.parameters(), lr=0.02), 0),
    "mlp_batch_norm": (lambda: RegressionLoss(nn.Sequential(nn.Linear(13, 29), nn.BatchNorm1d(29, track_running_stats=False),
                                                            nn.ReLU(), nn.Linear(29, 5))), vector_data(6, 13, 5), 14,
                       "sgd:lr=0.01,momentum=0.9", lambda m: torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9), 0),
    "vit": (lambda: ClassifierLoss(VisionTransformer(image_size=12, patch_size=4, num_layers=2, num_heads=4, hidden_dim=24,
                                                     mlp_dim=44, num_classes=5)),
            image_data(3, 12, 12, 5), 14, "adamw:lr=0.0003", lambda m: torch.optim.AdamW(m.parameters(), lr=0.0003), 1.0),
    "gpt2": (lambda: LanguageModelLoss(Gpt2LmHead(Gpt2Config(layers=2))), token_data(2, 11, 101), 14,
             "adamw:lr=0.003,weight_decay=0.1", lambda m: torch.optim.AdamW(m.parameters(), lr=0.003, weight_decay=0.1), 1.0),
    "llama": (lambda: LanguageModelLoss(LlamaForCausalLM(LlamaConfig())), token_data(2, 9, 97), 14,
              "adam:lr=0.0002,beta2=0.95", lambda m: torch.optim.Adam(m.parameters(), lr=0.0002, betas=(0.9, 0.95)), 0),
    "experts": (lambda: LanguageModelLoss(SparseLm()), token_data(2, 9, 53), 14, "adamw:lr=0.003",
                lambda m: torch.optim.AdamW(m.parameters(), lr=0.003), 1.0),
    "bert": (TokenClassifier, padded_data(3, 9, 53, 7), 14, "adamw:lr=0.001",
             lambda m: torch.optim.AdamW(m.parameters(), lr=0.001), 1.0),
    "resnet": (lambda: ClassifierLoss(ResNet()), image_data(4, 19, 17, 5), 17, "sgd:lr=0.01,momentum=0.9,weight_decay=0.0001",
               lambda m: torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9, weight_decay=0.0001), 0),
    "recurrent": (lambda: RegressionLoss(RecurrentNet(5, 3)), series_data(3, 7, 5, 3), 14, "adamw:lr=0.003",
                  lambda m: torch.optim.AdamW(m.parameters(), lr=0.003), 1.0),
    "mlp_cosine": (lambda: RegressionLoss(Mlp([13, 29, 31, 5])), vector_data(3, 13, 5), 13,
                   "adamw:lr=0.01,weight_decay=0.1",
                   lambda m: torch.optim.AdamW(groups(m, (".bias", {"weight_decay": 0}), ("2.", {"lr": 0.003}),
                                                      ("2.bias", None)), lr=0.01, weight_decay=0.1), 0,
                   ["--lr-schedule", "cosine:warmup=4,steps=15,min=0.1", "--param", "*.bias:weight_decay=0",
                    "--param", "*2.*:lr=0.003", "--param", "*2.bias:lr=7,frozen"], cosine(4, 15, 0.1)),
    "mlp_linear": (lambda: RegressionLoss(Mlp([13, 29, 5])), vector_data(2, 13, 5), 13, "sgd:lr=0.02",
                   lambda m: torch.optim.SGD(groups(m, ("0.", {"momentum": 0.9}), (".bias", {"lr": 0.05})), lr=0.02), 0,
                   ["--lr-schedule", "linear:warmup=3,steps=18", "--param", "*0.*:momentum=0.9",
                    "--param", "*.bias:lr=0.05"], linear(3, 18)),
    "mlp_annealed": (lambda: RegressionLoss(Mlp([13, 29, 5])), vector_data(2, 13, 5), 13, "sgd:lr=0.02,momentum=0.9",
                     lambda m: torch.optim.SGD(m.parameters(), lr=0.02, momentum=0.9), 0,
                     ["--lr-schedule", "cosine:steps=30,min=0.2"], pytorch_cosine(30, 0.02, 0.2)),
}


def train(module, make_optimizer, data, batch, micro_batches, clip, make_schedule):
    """Losses, gradient norms and learning rates of STEPS steps. The module is trained."""
    optimizer = make_optimizer(module)
    schedule = make_schedule(optimizer) if make_schedule else None
    dtype = next(module.parameters()).dtype
    losses, norms, rates, at = [], [], [], 0
    base = optimizer.defaults["lr"]
    for number in range(STEPS):
        optimizer.zero_grad()
        step = 0.0
        for micro in range(micro_batches):
            Dropout.place.update(step=number + 1, micro=micro)
            rows = [(at + i) % SAMPLES for i in range(batch)]
            at += batch
            arguments = [torch.from_numpy(value[rows]) for value in data.values()]
            loss = module(*[a.to(dtype) if a.is_floating_point() else a for a in arguments]) / micro_batches
            loss.backward()
            step += loss.item()
        norms.append(nn.utils.clip_grad_norm_(module.parameters(), clip or float("inf")).item())
        losses.append(step)
        factor = float(optimizer.param_groups[0]["lr"]) / optimizer.param_groups[0].get("initial_lr", base)
        rates.append(base * factor)
        optimizer.step()
        if schedule:
            schedule.step()
    return {"loss": losses, "grad_norm": norms, "lr": rates, **evaluation(module, data, batch, dtype)}


def evaluation(module, data, batch, dtype):
    """The loss in evaluation and the running statistics, of a model that has a mode of evaluation."""
    if not any(isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d, Dropout)) for part in module.modules()):
        return {}
    module.eval()
    losses = []
    for at in range(0, SAMPLES - batch + 1, batch):
        arguments = [torch.from_numpy(value[at:at + batch]) for value in data.values()]
        losses.append(module(*[a.to(dtype) if a.is_floating_point() else a for a in arguments]).item())
    running = {name: value.tolist() for name, value in module.named_buffers() if "running" in name}
    return {"eval_loss": sum(losses) / len(losses), "running": running}


def make(name, case=None):
    """The module of a case with its initial weights, and its data."""
    case = case or Case(*CASES[name])
    random = numpy.random.default_rng(list(name.encode()))
    module = case.build()
    case.initialize(module, random)
    return module, {key: numpy.ascontiguousarray(value) for key, value in case.data[1](random).items()}


def again(name, case, module):
    """A module of the case with the module's values. (Not every module can be copied: one with weight_norm cannot.)"""
    made = make(name, case)[0]
    made.load_state_dict(module.state_dict())
    return made


def export_training(module, arguments, path, names, opset):
    """As Debian's PyTorch exports a module for training."""
    torch.onnx.export(module, arguments, path, input_names=names, output_names=["loss"], opset_version=opset,
                      do_constant_folding=False, training=torch.onnx.TrainingMode.TRAINING)


def reference_of(name, case, module, data, micro_batches):
    """What reference.json holds: how PyTorch trains copies of the module."""
    batch, how = case.data[0], (case.clip, case.make_schedule)
    reference = {"inputs": list(data), "optimizer": case.optimizer, "clip_grad_norm": case.clip, "options": list(case.options),
                 "steps": {}}
    for count in micro_batches:
        f32 = train(again(name, case, module), case.make_optimizer, data, batch, count, *how)
        runs = reference["steps"][count] = {"f32": f32}
        with mock.patch.object(torch, "float32", torch.float64):  # modules that compute in float32 by name
            double = again(name, case, module).double()
            runs["f64"] = train(double, case.make_optimizer, data, batch, count, *how)
    return reference


def write_case(folder, case, module, data, reference, export):
    """The files of a case; `export` (module, arguments, path, names of inputs) writes the model."""
    folder.mkdir(parents=True, exist_ok=True)
    for key, value in data.items():
        numpy.save(folder / f"{key}.npy", value)
    arguments = tuple(torch.from_numpy(value[:case.data[0]]) for value in data.values())
    export(module, arguments, str(folder / "model.onnx"), list(data))
    (folder / "reference.json").write_text(json.dumps(reference) + "\n")
    print(f"{folder.name}: {(folder / 'model.onnx').stat().st_size} bytes", flush=True)


def record(name, case, folder, micro_batches=MICRO_BATCHES):
    module, data = make(name, case)
    reference = reference_of(name, case, module, data, micro_batches)
    write_case(folder, case, module, data, reference, functools.partial(export_training, opset=case.opset))


def main(cases, record_case, description):
    """The command line of a script that records cases by name, each into a folder of its own."""
    parser = parser_of(description, rankc=False)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("names", metavar="NAME", nargs="*", choices=[*cases, []])
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in options.names or cases:
        record_case(name, options.out / name)


if __name__ == "__main__":
    main(CASES, lambda name, folder: record(name, Case(*CASES[name]), folder), __doc__)
