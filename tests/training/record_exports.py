#!/usr/bin/env python3
"""Export models of the newest transformers and torchvision in every form of the newest PyTorch, and record how PyTorch
trains them.

    record_exports.py [--out DIR] [--optimizer sgd|adamw|alternate] [--forms FORM...] [-- MODEL...]

Models and forms are tables below. Writes what record.py writes into DIR/MODEL_FORM; external data, which is what
PyTorch writes by default, lies beside model.onnx. The reference also has the parameters that PyTorch counts, tied ones once, with
their shapes. What the metadata of nodes says of Python code is taken out of the exported file: stack traces are most of
its bytes, and name directories of the machine.

It needs PyTorch, torchvision, transformers, onnx, onnxscript and numpy from pip (written for 2.15, 0.29, 5.23, 1.23, 0.7
and 2.4)."""
import argparse
import copy
import functools
import json
import logging
import pathlib
import warnings
from typing import Callable, NamedTuple, Tuple

import numpy
import onnx
import torch
import torchvision
import transformers
from torch import nn
from torchvision.models.convnext import CNBlockConfig

from record import (Case, ClassifierLoss, RegressionLoss, image_data, make, randomize, reference_of, token_data, vector_data,
                    write_case)

MICRO_BATCHES = (1,)
CLASSES, IMAGE = 5, 12


# ---- models ---------------------------------------------------------------------------------------------------------


class NextToken(nn.Module):
    """The mean cross entropy of every next token; the model's own `labels=` shifts them, and these are shifted already.

    The legacy exporter knows no aten::diff, by which a model without attention_mask looks for packed sequences."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, labels):
        mask = torch.ones_like(input_ids) if torch.jit.is_tracing() else None
        logits = self.model(input_ids, attention_mask=mask).logits
        return nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


class ImageLoss(nn.Module):
    """The loss that a classifier of transformers computes itself."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images, labels):
        return self.model(pixel_values=images, labels=labels).loss


class Scores(nn.Module):
    """What the model alone gives out, for `rankc compile --loss`."""

    def __init__(self, loss):
        super().__init__()
        self.model = loss.model

    def forward(self, inputs):
        made = self.model(inputs)
        return getattr(made, "logits", made)


def gpt2():
    config = transformers.GPT2Config(n_embd=16, n_head=2, n_layer=2, vocab_size=53, n_positions=12, resid_pdrop=0.0, embd_pdrop=0.0,
                                     attn_pdrop=0.0, use_cache=False)
    return NextToken(transformers.GPT2LMHeadModel(config))


def llama():
    config = transformers.LlamaConfig(hidden_size=24, intermediate_size=28, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, vocab_size=47, max_position_embeddings=16, use_cache=False)
    return NextToken(transformers.LlamaForCausalLM(config))


def vit():
    config = transformers.ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=28,
                                    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, image_size=IMAGE, patch_size=4,
                                    num_labels=CLASSES)
    return ImageLoss(transformers.ViTForImageClassification(config))


def resnet():
    """torchvision's residual blocks and batch norms, narrow."""
    block = torchvision.models.resnet.BasicBlock
    made = torchvision.models.ResNet(block, [1, 1, 1, 1], num_classes=CLASSES, width_per_group=64)
    made.conv1, made.bn1 = nn.Conv2d(3, 6, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(6)
    made.inplanes = 6
    made.layer1, made.layer2 = made._make_layer(block, 6, 1), made._make_layer(block, 10, 1, stride=2)
    made.layer3, made.layer4 = nn.Identity(), nn.Identity()
    made.fc = nn.Linear(10, CLASSES)
    return ClassifierLoss(made)


class Scaled(nn.Module):
    """Scores times a learnable number."""

    def __init__(self, model):
        super().__init__()
        self.model, self.logit_scale = model, nn.Parameter(torch.tensor(0.5))

    def forward(self, images):
        return self.model(images) * self.logit_scale


def convnext():
    """torchvision's ConvNeXt, whose LayerScale is a parameter of [channels, 1, 1], and a learnable scalar behind it."""
    return ClassifierLoss(Scaled(torchvision.models.ConvNeXt([CNBlockConfig(8, 12, 1), CNBlockConfig(12, None, 1)],
                                                             layer_scale=0.5, num_classes=CLASSES)))


def fresh():
    """Batch norms as they are before training: the exporter stores their scale and variance once, and their bias and mean."""
    return RegressionLoss(nn.Sequential(nn.Linear(13, 29, bias=False), nn.ReLU(), nn.BatchNorm1d(29),
                                        nn.Linear(29, 31, bias=False), nn.ReLU(), nn.BatchNorm1d(31), nn.Linear(31, 5, bias=False)))


def randomize_layers(module, random):
    """All but norms."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            randomize(part, random)


class Model(NamedTuple):
    build: Callable[[], nn.Module]
    data: Tuple[int, Callable]
    rate: float
    training: bool = True  # exported and trained in training mode; its dropout is 0
    initialize: Callable = randomize


MODELS = {
    "gpt2": Model(gpt2, token_data(2, 9, 53), 0.0005),
    "llama": Model(llama, token_data(2, 9, 47), 0.0015),
    "vit": Model(vit, image_data(2, IMAGE, IMAGE, CLASSES), 0.003),
    "resnet": Model(resnet, image_data(4, 19, 17, CLASSES), 0.002),
    "resnet_eval": Model(resnet, image_data(4, 19, 17, CLASSES), 0.002, False),
    "fresh": Model(fresh, vector_data(6, 13, 5), 0.01, initialize=randomize_layers),
    "convnext": Model(convnext, image_data(2, 16, 16, CLASSES), 0.003),
}


# ---- forms ----------------------------------------------------------------------------------------------------------


def dynamo(module, arguments, path, names, **options):
    torch.onnx.export(module, arguments, path, input_names=names, dynamo=True, verbose=False, **options)


def legacy(module, arguments, path, names):
    """This exporter runs the module once, and in training mode writes the running statistics that are then: they are put
    back."""
    buffers = {name: value.clone() for name, value in module.named_buffers()}
    mode = torch.onnx.TrainingMode.TRAINING if module.training else torch.onnx.TrainingMode.PRESERVE
    torch.onnx.export(module, arguments, path, input_names=names, dynamo=False, training=mode, do_constant_folding=False)
    made = onnx.load(path)
    for tensor in made.graph.initializer:
        if tensor.name in buffers:
            tensor.CopyFrom(onnx.numpy_helper.from_array(buffers[tensor.name].numpy(), tensor.name))
    onnx.save(made, path)


def loss_apart(export):
    """The model without its loss, which --loss adds."""
    return lambda module, arguments, path, names: export(Scores(module).train(module.training), arguments[:1], path, names[:1])


def any_batch(module, arguments, path, names):
    batch = torch.export.Dim("batch")
    dynamo(module, arguments, path, names, dynamic_shapes=tuple({0: batch} for _ in names))


class Form(NamedTuple):
    export: Callable
    fuses: bool = False  # batch norms into convolutions
    options: Callable = lambda batch: []  # of rankc


FORMS = {
    "default": Form(dynamo, True),
    "plain": Form(lambda *a: dynamo(*a, optimize=False)),
    "legacy": Form(legacy),
    "scores": Form(loss_apart(dynamo), True, lambda batch: ["--loss", "cross_entropy"]),
    "batch": Form(any_batch, True, lambda batch: ["--dim", f"batch={batch}"]),
}

# A large epsilon for AdamW: biases of attention's keys have gradients of rounding noise alone, which would become steps.
OPTIMIZERS = {
    "sgd": ("sgd:lr={rate:g},momentum=0.9", lambda rate: lambda m: torch.optim.SGD(m.parameters(), lr=rate, momentum=0.9)),
    "adamw": ("adamw:lr={rate:g},eps=1e-5", lambda rate: lambda m: torch.optim.AdamW(m.parameters(), lr=rate, eps=1e-5)),
}


# ---- recording ------------------------------------------------------------------------------------------------------


def without_traces(path):
    """Takes out of an exported file what the metadata of its nodes says of Python code, but for the modules' names."""
    model = onnx.load(path, load_external_data=False)
    for node in model.graph.node:
        kept = [p for p in node.metadata_props if p.key.endswith("name_scopes")]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(model, path)


def exported(form, module, arguments, path, names):
    FORMS[form].export(module, arguments, path, names)
    without_traces(path)


def case_of(model, optimizer):
    rate = model.rate if optimizer == "sgd" else model.rate / 30
    text, make_optimizer = OPTIMIZERS[optimizer]
    return Case(lambda: model.build().train(model.training), model.data, 0, text.format(rate=rate), make_optimizer(rate), 0,
                initialize=model.initialize)


def fused(module):
    """What the exporter makes of a module with its default options: running statistics in the convolutions before them."""
    made = copy.deepcopy(module).eval()
    for part in list(made.modules()):
        children = dict(part.named_children())
        for name, follower in zip(children, list(children)[1:]):
            if isinstance(children[name], nn.Conv2d) and isinstance(children[follower], nn.BatchNorm2d):
                setattr(part, name, nn.utils.fusion.fuse_conv_bn_eval(children[name], children[follower]))
                setattr(part, follower, nn.Identity())
    return made.train(module.training).requires_grad_()


def record_model(name, optimizers, out):
    """One module in several forms; optimizers: form -> optimizer."""
    for (optimizer, fuses), forms in groups_of(optimizers).items():
        case = case_of(MODELS[name], optimizer)
        module, data = make(name, case)
        trained = fused(module) if fuses else module
        reference = reference_of(name, case._replace(build=lambda: copy.deepcopy(trained)), trained, data, MICRO_BATCHES)
        reference["parameters"] = {name: list(value.shape) for name, value in trained.named_parameters()}
        for form in forms:
            reference["options"] = FORMS[form].options(case.data[0])
            folder = out / f"{name}_{form}"
            write_case(folder, case, copy.deepcopy(module), data, reference, functools.partial(exported, form))
            keep_known(folder, case.build().training)


def keep_known(folder, training):
    """Leaves out of the reference the running statistics that the export has no name for, and those that stay."""
    names = {tensor.name for tensor in onnx.load(folder / "model.onnx", load_external_data=False).graph.initializer}
    reference = json.loads((folder / "reference.json").read_text())
    for run in (run for runs in reference["steps"].values() for run in runs.values() if "running" in run):
        run["running"] = {name: value for name, value in run["running"].items() if training and name in names}
    (folder / "reference.json").write_text(json.dumps(reference) + "\n")


def groups_of(optimizers):
    """The forms that one training is the reference of: (optimizer, fuses) -> forms."""
    groups = {}
    for form, optimizer in optimizers.items():
        groups.setdefault((optimizer, FORMS[form].fuses), []).append(form)
    return groups


def optimizers_of(model, forms, optimizer):
    """The optimizer of each form; "alternate": that of the next form and of the next model is another."""
    first, names = list(MODELS).index(model), list(OPTIMIZERS)
    return {form: names[(first + i) % len(names)] if optimizer == "alternate" else optimizer for i, form in enumerate(forms)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "exports")
    parser.add_argument("--optimizer", choices=[*OPTIMIZERS, "alternate"], default="alternate")
    parser.add_argument("--forms", nargs="*", choices=FORMS, default=["default", "plain", "legacy"])
    parser.add_argument("models", metavar="MODEL", nargs="*", choices=[*MODELS, []])
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for name in options.models or MODELS:
        record_model(name, optimizers_of(name, options.forms, options.optimizer), options.out)


if __name__ == "__main__":
    main()
