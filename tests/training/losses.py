#!/usr/bin/python3
"""Losses against PyTorch's: --loss, and ONNX's loss operators.

    losses.py --rankc RANKC [--plans PLAN;...] [NAME...]

Each case is a linear layer, or one with a loss of PyTorch's behind it, exported here; it is trained for three steps by SGD
under several plans. Loss and gradient norm of every step are within 1e-5 of PyTorch's in f64."""
import functools
import os
import re
import sys
import warnings

import harness
from harness import Failed, lines_of, names_of, needed, parser_of, plan_of, report

with needed():
    import numpy as np
    import torch
    from torch.nn import functional

BOUND, STEPS, BATCH, INPUTS, RATE = 1e-5, 3, 6, 5, 0.05
PLANS = ["one", "tp3", "data2", "tp2data2"]


class Layer(torch.nn.Module):
    """x (batch, INPUTS) to (batch, ...shape), and a function of the result."""

    def __init__(self, shape, after=lambda y: y):
        super().__init__()
        self.shape, self.after = shape, after
        self.layer = torch.nn.Linear(INPUTS, int(np.prod(shape)))

    def forward(self, x):
        return self.after(self.layer(x).reshape(x.shape[0], *self.shape))


class WithLoss(torch.nn.Module):
    def __init__(self, layer, loss, weight=None):
        super().__init__()
        self.inner, self.loss = layer, loss
        self.register_buffer("weight", None if weight is None else torch.tensor(weight))

    def forward(self, x, labels):
        more = {} if self.weight is None else {"weight": self.weight}
        return self.loss(self.inner(x), labels, **more)


def classes(*shape, ignored=None, of=7):
    def make(random):
        labels = random.integers(0, of, (BATCH * STEPS, *shape))
        if ignored is not None:
            labels[random.random(labels.shape) < 0.3] = ignored
        return labels
    return make


def values(*shape, low=-1.0, high=1.0):
    return lambda random: random.uniform(low, high, (BATCH * STEPS, *shape)).astype("f4")


def distributions(*shape):
    def make(random):
        p = random.random((BATCH * STEPS, *shape)) + 0.1
        return (p / p.sum(1, keepdims=True)).astype("f4")
    return make


def call(name, **options):
    return lambda x, labels, **more: getattr(functional, name)(x, labels, **options, **more)


def last(name, **options):
    """Classes in the last dimension, which PyTorch wants in dimension 1."""
    return lambda x, labels: getattr(functional, name)(x.movedim(-1, 1), labels, **options)


WEIGHT = [0.5, 1.0, 2.0, 0.25, 1.5, 0.0, 1.0]

# Name: layer, labels, PyTorch's loss, --loss.
OPTION_CASES = {
    "default": (Layer([7]), classes(), call("cross_entropy"), "cross_entropy"),
    "named": (Layer([7]), classes(), call("cross_entropy"), "cross_entropy:logits=y,labels=labels"),
    "sum": (Layer([7]), classes(), call("cross_entropy", reduction="sum"), "cross_entropy:reduction=sum"),
    "ignore": (Layer([7]), classes(ignored=3), call("cross_entropy", ignore_index=3), "cross_entropy:ignore_index=3"),
    "ignore by default": (Layer([7]), classes(ignored=-100), call("cross_entropy"), "cross_entropy"),
    "smooth": (Layer([7]), classes(ignored=-100), call("cross_entropy", label_smoothing=0.2),
               "cross_entropy:label_smoothing=0.2"),
    "weight": (Layer([7]), classes(ignored=2), call("cross_entropy", weight=torch.tensor(WEIGHT), ignore_index=2,
                                                    label_smoothing=0.1),
               "cross_entropy:weight=given,ignore_index=2,label_smoothing=0.1"),
    "segments": (Layer([7, 3]), classes(3), call("cross_entropy"), "cross_entropy:axis=1"),
    "images": (Layer([7, 3, 2]), classes(3, 2), call("cross_entropy"), "cross_entropy"),
    "language": (Layer([4, 7]), classes(4, ignored=-100), last("cross_entropy"), "cross_entropy:logits=y"),
    "probabilities": (Layer([7]), distributions(7), call("cross_entropy", label_smoothing=0.1),
                      "cross_entropy:labels=target,soft=1,label_smoothing=0.1"),
    "nll": (Layer([7], lambda y: torch.log_softmax(y, 1)), classes(ignored=-100), call("nll_loss"), "nll:input=y"),
    "mse": (Layer([3, 2]), values(3, 2), call("mse_loss"), "mse"),
    "mse sum": (Layer([3]), values(3), call("mse_loss", reduction="sum"), "mse:input=y,target=wanted,reduction=sum"),
    "l1": (Layer([3]), values(3), call("l1_loss"), "l1"),
    "huber": (Layer([3]), values(3), call("huber_loss", delta=0.4), "huber:delta=0.4"),
    "bce": (Layer([3], torch.sigmoid), values(3, low=0), call("binary_cross_entropy"), "bce"),
    "bce saturated": (Layer([3], lambda y: torch.clamp(y * 1e6, 0, 1)), lambda random: classes(3, of=2)(random).astype("f4"),
                      call("binary_cross_entropy"), "bce"),
    "bce with logits": (Layer([3]), values(3, low=0), call("binary_cross_entropy_with_logits"), "bce_with_logits"),
    "bce pos_weight": (Layer([3]), values(3, low=0),
                       call("binary_cross_entropy_with_logits", pos_weight=torch.tensor(2.5)),
                       "bce_with_logits:pos_weight=2.5"),
}

# Name: layer, labels, PyTorch's loss, weights of the classes.
OPERATOR_CASES = {
    "operator": (Layer([7]), classes(), call("cross_entropy"), None),
    "operator weight": (Layer([7]), classes(ignored=2), call("cross_entropy", ignore_index=2), WEIGHT),
    "operator sum": (Layer([7, 3]), classes(3, ignored=-1),
                     call("cross_entropy", reduction="sum", ignore_index=-1), WEIGHT),
    "operator none": (Layer([7, 3]), classes(3, ignored=-100),
                      lambda x, t, **more: (functional.cross_entropy(x, t, reduction="none", **more) ** 2).mean(), WEIGHT),
    "operator nll": (Layer([7], lambda y: torch.log_softmax(y, 1)), classes(ignored=4),
                     call("nll_loss", ignore_index=4), WEIGHT),
}


def reference(layer, loss, x, labels):
    """Losses and gradient norms of STEPS steps, in f64."""
    module, result = WithLoss(layer, loss).double(), []
    optimizer = torch.optim.SGD(layer.parameters(), lr=RATE)
    for step in range(STEPS):
        optimizer.zero_grad()
        rows = slice(step * BATCH, (step + 1) * BATCH)
        value = module(x[rows].double(), labels[rows].double() if labels.is_floating_point() else labels[rows])
        value.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in layer.parameters()))
        result.append((value.item(), norm.item()))
        optimizer.step()
    return result


def in_f64(loss, weight):
    """The loss with its tensors in f64."""
    if weight is None:
        return lambda x, labels: loss(x, labels)
    return lambda x, labels: loss(x, labels, weight=torch.tensor(np.float32(weight)).double())


def add_initializer(path, name, values_):
    """PyTorch exports no value that nothing reads."""
    import onnx.numpy_helper
    model = onnx.load(path)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(values_, "f4"), name))
    onnx.save(model, path)


def prepare(name, work):
    """Exports the case; returns what to give to the compiler, the name of the labels, and what PyTorch gets."""
    option = name in OPTION_CASES
    layer, make, loss, last_word = (OPTION_CASES if option else OPERATOR_CASES)[name]
    random = np.random.default_rng(list(name.encode()))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.from_numpy(random.uniform(-0.5, 0.5, parameter.shape)))
    layer.float()
    x, labels = torch.from_numpy(values(INPUTS)(random)), torch.from_numpy(make(random))
    weight = None if option else last_word
    module, given = (layer, (x[:BATCH],)) if option else (WithLoss(layer, loss, weight), (x[:BATCH], labels[:BATCH]))
    target = "labels" if not labels.is_floating_point() else "target"
    if option and last_word.partition(":")[0] not in ("cross_entropy", "nll"):
        target = "wanted" if "wanted" in last_word else "target"
    model = os.path.join(work, "model.onnx")
    torch.onnx.export(module, given, model, input_names=["x"] + [target] * (not option), output_names=["y"],
                      opset_version=13, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)
    if option and "weight=given" in last_word:
        add_initializer(model, "given", WEIGHT)
        loss = call("cross_entropy", weight=torch.tensor(np.float32(WEIGHT)).double(), ignore_index=2, label_smoothing=0.1)
    if name == "bce pos_weight":
        loss = call("binary_cross_entropy_with_logits", pos_weight=torch.tensor(2.5).double())
    np.save(os.path.join(work, "x.npy"), x.numpy())
    np.save(os.path.join(work, target + ".npy"), labels.numpy())
    arguments = ["--loss", last_word] if option else []
    return model, arguments, target, reference(layer, in_f64(loss, weight), x, labels)


def check(rankc, name, plans, work):
    model, arguments, target, expected = prepare(name, work)
    out, log, worst = os.path.join(work, "out"), os.path.join(work, "log.jsonl"), 0
    for plan in plans:
        harness.call(rankc, "compile", model, "-o", out, "-q", "--reuse", "override", "--train", *plan_of(plan).options,
            "--optimizer", f"sgd:lr={RATE}", *arguments)
        harness.call(rankc, "train", out, "--data", f"x={work}/x.npy", "--data", f"{target}={work}/{target}.npy",
            "--steps", str(STEPS), "--log", log, "--threads", "1")
        for step, (line, values_) in enumerate(zip(lines_of(log), expected)):
            for key, value in zip(("loss", "grad_norm"), values_):
                difference = abs(line[key] - value) / (abs(value) or 1)
                worst = max(worst, difference)
                if not difference <= BOUND:
                    raise Failed(f"{plan}: step {step + 1}: {key} {line[key]}, PyTorch {value}")
    return f"{worst:.1e}"


def check_target_out_of_range(rankc, work):
    """A target that is no class ends the run, with its place in the tensor and in the data."""
    model, arguments, target, _ = prepare("default", work)
    labels = np.load(f"{work}/{target}.npy")
    labels[BATCH + 3] = 7
    np.save(f"{work}/{target}.npy", labels)
    for plan in ("one", "data2"):
        harness.call(rankc, "compile", model, "-o", f"{work}/out", "-q", "--reuse", "override", "--train", *plan_of(plan).options,
            "--accumulate", "3", *arguments)
        done = harness.call(rankc, "train", f"{work}/out", "--data", f"x={work}/x.npy", "--data",
                            f"{target}={work}/{target}.npy", status=3)
        expected = ("error[E0382]: label 7 at [3] is outside of the 7 classes",
                    f"step 1 read samples {BATCH} to {2 * BATCH - 1} of the run; the data has {STEPS * BATCH}")
        if not all(text in done.stderr for text in expected):
            raise Failed(f"{plan}: {done.stderr.strip()}")
    return "ok"


class Chosen(torch.nn.Module):
    """A layer of `choice` says only which row of a table is taken; `head` makes another output."""

    def __init__(self):
        super().__init__()
        self.layer, self.choice, self.head = (torch.nn.Linear(INPUTS, n) for n in (7, 3, 4))
        self.table = torch.nn.Embedding(3, 7)

    def forward(self, x):
        return self.layer(x) + self.table(self.choice(x).argmax(1)), self.head(x)


def check_untrained(rankc, work):
    """The parameters that PyTorch gives no gradient are named, unless they are frozen."""
    module, model, x = Chosen(), os.path.join(work, "model.onnx"), torch.ones(BATCH, INPUTS)
    torch.onnx.export(module, (x,), model, input_names=["x"], output_names=["y", "other"], opset_version=13,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)
    functional.cross_entropy(module(x)[0], torch.zeros(BATCH, dtype=torch.int64)).backward()
    untrained = {name for name, parameter in module.named_parameters() if parameter.grad is None}
    for frozen in (), ("choice",):
        rules = [word for layer in frozen for word in ("--param", f"{layer}.*:frozen")]
        done = harness.call(rankc, "compile", model, "-o", f"{work}/out", "--no-build", "--reuse", "override", "--train",
                            "--loss", "cross_entropy:logits=y", *rules)
        notes = [line for line in done.stderr.splitlines() if "not trained, because the loss has no gradient" in line]
        named = {name for note in notes for name in re.findall("'([^']+)'", note.partition("them:")[2])}
        expected = {name for name in untrained if name.partition(".")[0] not in frozen}
        if len(notes) != bool(expected) or named != expected:
            raise Failed(f"{frozen}: {named}, PyTorch {expected}: {done.stderr}")
    return "ok"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--plans", default=" ".join(PLANS), help="their names: rankc_plans.py")
    parser.add_argument("names", nargs="*", default=[*OPTION_CASES, *OPERATOR_CASES, "out of range", "untrained"])
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    plans = names_of(options.plans)
    special = {"out of range": functools.partial(check_target_out_of_range, options.rankc),
               "untrained": functools.partial(check_untrained, options.rankc)}
    return report((name, special.get(name) or functools.partial(check, options.rankc, name, plans)) for name in options.names)


if __name__ == "__main__":
    sys.exit(main())
