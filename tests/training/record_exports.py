#!/usr/bin/env python3
"""Export models of the newest transformers and torchvision in every form of the newest PyTorch, and record how PyTorch
trains them.

    record_exports.py [--out DIR] [--optimizer sgd|adamw|alternate] [--forms FORM...] [-- MODEL...]

Models are the table in exported_models.py, forms are a table below. Writes what record.py writes into DIR/MODEL_FORM; external data, which is what
PyTorch writes by default, lies beside model.onnx. The reference also has the parameters that PyTorch counts, tied ones once, with
their shapes. What the metadata of nodes says of Python code is taken out of the exported file: stack traces are most of
its bytes, and name directories of the machine.

It needs PyTorch, torchvision, transformers, onnx, onnxscript and numpy from pip (written for 2.15, 0.29, 5.23, 1.23, 0.7
and 2.4)."""
import copy
import functools
import json
import logging
import pathlib
import warnings
from typing import Callable, NamedTuple

import onnx
import torch
from torch import nn

from harness import parser_of
from exported_models import MODELS
from record import Case, make, reference_of, write_case

MICRO_BATCHES = (1, 2)  # of one unit and of two


# ---- forms ----------------------------------------------------------------------------------------------------------


class Scores(nn.Module):
    """What the model alone gives out, for `rankc compile --loss`."""

    def __init__(self, loss):
        super().__init__()
        self.model = loss.model

    def forward(self, inputs):
        made = self.model(inputs)
        return getattr(made, "logits", made)


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
    """Takes out of an exported file what the metadata of its nodes says of Python code, but for the modules' names and the calls of
    embeddings."""
    model = onnx.load(path, load_external_data=False)
    for node in model.graph.node:
        kept = [p for p in node.metadata_props if p.key.endswith("name_scopes") or "aten.embedding" in p.value and p.key.endswith("fx_node")]
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
    parser = parser_of(__doc__, rankc=False)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "exports")
    parser.add_argument("--optimizer", choices=[*OPTIMIZERS, "alternate"], default="alternate")
    parser.add_argument("--forms", nargs="*", choices=FORMS, default=["default", "plain", "legacy"])
    parser.add_argument("models", metavar="MODEL", nargs="*", choices=[*MODELS, []])
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for name in options.models or MODELS:
        forms = [form for form in options.forms if form in (MODELS[name].forms or FORMS)]
        record_model(name, optimizers_of(name, forms, options.optimizer), options.out)


if __name__ == "__main__":
    main()
