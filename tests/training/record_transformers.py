#!/usr/bin/env python3
"""Record how PyTorch trains small models of HuggingFace's transformers.

    record_transformers.py --out DIR [NAME...]

writes what record.py writes, of the families of tests/models/export_transformers.py with the weights that transformers
draws. The loss is the mean squared distance of the first output from a target; dropout is off, BatchNormalization trains.
Nothing of it is committed: it is for `train.py DIR/NAME...`, as models that nobody here wrote. It needs PyTorch (tried with
1.13, Debian's python3-torch), onnx and transformers (4.30.2)."""
import json
import pathlib
import warnings

import numpy
import onnx
import torch
import transformers
from torch import nn
from transformers.models.ibert.quant_modules import QuantEmbedding

from harness import parser_of
from record import Case, SAMPLES, record  # which also finds tests/models
from export_transformers import BATCH, FAMILIES, FirstOutput, OPSET

MICRO_BATCHES = (1, 2, 4, 8)


def without_dropout(config):
    """The configuration with nothing random in training, nor in those of its parts."""
    for key, value in vars(config).items():
        if isinstance(value, transformers.PretrainedConfig):
            without_dropout(value)
        elif isinstance(value, float) and ("drop" in key or key.startswith("mask_")):
            setattr(config, key, 0.0)
    config.apply_spec_augment = False
    return config


def without_padding(model):
    """The model with a gradient for every row of its tables: an export does not say which row is that of padding, to which
    PyTorch gives none."""
    for part in model.modules():
        if isinstance(part, (nn.Embedding, QuantEmbedding)):
            part.padding_idx = None
    return model


class Distance(nn.Module):
    """The mean squared distance of the model's first output from a target."""

    def __init__(self, model, names):
        super().__init__()
        self.model = FirstOutput(model, names)

    def forward(self, *arguments):
        *inputs, target = arguments
        return ((self.model(*inputs) - target) ** 2).mean()


def case_of(name):
    config, model, settings, inputs = FAMILIES[name]

    def build():
        torch.manual_seed(sum(name.encode()))
        made = getattr(transformers, model)(without_dropout(getattr(transformers, config)(**settings)))
        return Distance(without_padding(made.train()), list(inputs(numpy.random.default_rng(0))))

    def data(random):
        parts = [inputs(random) for _ in range(0, SAMPLES, BATCH)]
        values = {key: numpy.concatenate([part[key] for part in parts]) for key in parts[0]}
        with torch.no_grad():
            output = build().model(*[torch.from_numpy(value[:BATCH]) for value in values.values()])
        values["target"] = random.standard_normal((SAMPLES, *output.shape[1:])).astype("float32")
        return values

    return Case(build, (BATCH, data), OPSET, "sgd:lr=0.02", lambda m: torch.optim.SGD(m.parameters(), lr=0.02), 0,
                initialize=lambda module, random: None)


def freeze(case, folder):
    """Adds options that freeze what PyTorch does not train: an export has buffers among its initializers, as parameters."""
    initializers = {tensor.name for tensor in onnx.load(folder / "model.onnx").graph.initializer}
    module = case.build()
    still = {name for name, value in module.named_buffers() if value.is_floating_point() and "running_" not in name}
    still |= {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
    reference = json.loads((folder / "reference.json").read_text())
    reference["options"] = [word for name in sorted(still & initializers) for word in ("--param", f"{name}:frozen")]
    (folder / "reference.json").write_text(json.dumps(reference) + "\n")


def main():
    parser = parser_of(__doc__, rankc=False)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("names", metavar="NAME", nargs="*", choices=[*FAMILIES, []])
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in options.names or FAMILIES:
        case = case_of(name)
        record(name, case, options.out / name, MICRO_BATCHES)
        freeze(case, options.out / name)


if __name__ == "__main__":
    main()
