"""Small modules and functions of PyTorch, each with its inputs: what record_gradients.py exports and differentiates.

A module gives values, of which a loss is made with a target, or it gives a loss itself. A shape of an input has no batch
dimension; the first input is x. Where a module has no parameters of its own, a layer before it has."""
import math
from typing import Callable, NamedTuple, Sequence

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, TIME, CLASSES = 32, 5, 7
VECTOR, SIGNAL, IMAGE, TOKENS = (WIDTH,), (3, 12), (3, 8, 8), (TIME, 8)


class Integers(NamedTuple):
    """An input of integers below `high`."""
    shape: Sequence[int]
    high: int


class Signs(NamedTuple):
    """An input of -1 and 1."""
    shape: Sequence[int]


class Positive(NamedTuple):
    """An input of values from 0.1 to 1.1."""
    shape: Sequence[int]


class Case(NamedTuple):
    build: Callable[[], nn.Module]
    inputs: Sequence  # shapes of floats, or one of the above
    loss: bool = False  # the module gives a loss


class Function(nn.Module):
    """function(module, *inputs); parameters by name and shape."""

    def __init__(self, function, **shapes):
        super().__init__()
        self.function = function
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape) / math.sqrt(math.prod(shape[-1:]))))

    def forward(self, *inputs):
        return self.function(self, *inputs)


class After(nn.Module):
    """function(layer(x), *others)."""

    def __init__(self, layer, function):
        super().__init__()
        self.layer, self.function = layer, function

    def forward(self, x, *others):
        return self.function(self.layer(x), *others)


class Tied(nn.Module):
    """A language model whose last layer is its table."""

    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Embedding(40, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, ids):
        return self.layer(self.table(ids)).tanh() @ self.table.weight.t()


class Encoder(nn.Module):
    def __init__(self, first, **options):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=first, **options)

    def forward(self, x):
        return self.layer(x)


class Attention(nn.Module):
    def __init__(self, causal=False, biased=False):
        super().__init__()
        self.qkv, self.out, self.causal = nn.Linear(8, 24), nn.Linear(8, 8), causal
        self.bias = nn.Parameter(torch.randn(2, TIME, TIME)) if biased else None

    def forward(self, x):
        q, k, v = (part.unflatten(2, (2, 4)).transpose(1, 2) for part in self.qkv(x).chunk(3, 2))
        made = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias, is_causal=self.causal)
        return self.out(made.transpose(1, 2).flatten(2))


class Cross(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x, memory):
        return self.inner(x, memory, memory, need_weights=False)[0]


class First(nn.Module):
    """The first result of a recurrence."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)[0]


def vector(function):
    return Case(lambda: After(nn.Linear(WIDTH, WIDTH), function), [VECTOR])


def tokens(function, width=8):
    return Case(lambda: After(nn.Linear(8, width), function), [TOKENS])


def image(function, channels=4):
    return Case(lambda: After(nn.Conv2d(3, channels, 3, padding=1), function), [IMAGE])


def signal(function):
    return Case(lambda: After(nn.Conv1d(3, 4, 3, padding=1), function), [SIGNAL])


def layer(build, shape):
    return Case(build, [shape])


def parameters(function, shape=VECTOR, **shapes):
    return Case(lambda: Function(function, **shapes), [shape])


def straight_through(x):
    """Rounded, with the gradient of what is not."""
    return x + (x.round() - x).detach()


def loss(function, *targets, width=CLASSES):
    return Case(lambda: After(nn.Linear(WIDTH, width), function), [VECTOR, *targets], True)


ACTIVATIONS = {
    **{name: vector(getattr(F, name)) for name in (
        "relu", "relu6", "gelu", "silu", "elu", "selu", "celu", "leaky_relu", "softplus", "softsign", "hardsigmoid", "hardswish",
        "hardtanh", "mish", "tanhshrink", "softshrink", "hardshrink", "logsigmoid", "sigmoid", "tanh")},
    "gelu tanh": vector(lambda y: F.gelu(y, approximate="tanh")),
    "threshold": vector(lambda y: F.threshold(y, 0.1, -0.2)),
    "softmax": vector(lambda y: F.softmax(y, 1)),
    "log_softmax": tokens(lambda y: F.log_softmax(y, 1)),
    "softmin": tokens(lambda y: F.softmin(y, 2)),
    "glu": vector(lambda y: F.glu(y, 1)),
    "prelu": layer(lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.PReLU(4)), IMAGE),
    "swiglu": parameters(lambda m, x: (F.silu(x @ m.gate) * (x @ m.up)) @ m.down, gate=(WIDTH, 40), up=(WIDTH, 40), down=(40, WIDTH)),
}

NORMS = {
    "layer_norm": layer(lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)), VECTOR),
    "layer_norm of planes": layer(lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.LayerNorm([4, 8, 8])), IMAGE),
    "group_norm": layer(lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.GroupNorm(2, 4)), IMAGE),
    "instance_norm": layer(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, affine=True)), IMAGE),
    "batch_norm of vectors": layer(lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)), VECTOR),
    "batch_norm": layer(lambda: nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1)), IMAGE),
    "rms_norm": layer(lambda: nn.Sequential(nn.Linear(8, 8), nn.RMSNorm(8)), TOKENS),
    "local_response_norm": image(lambda y: F.local_response_norm(y, 3)),
    "normalize": vector(lambda y: F.normalize(y, dim=1)),
    "weight_norm": parameters(lambda m, x: x @ (m.v * (m.g / m.v.norm(dim=0, keepdim=True))), v=(WIDTH, WIDTH), g=(1, WIDTH)),
    "weight standardized": parameters(
        lambda m, x: F.conv2d(x, (m.w - m.w.mean((1, 2, 3), keepdim=True)) / m.w.std((1, 2, 3), keepdim=True)), IMAGE, w=(4, 3, 3, 3)),
}

CONVOLUTIONS = {
    "conv1d": layer(lambda: nn.Conv1d(3, 5, 3, padding=1), SIGNAL),
    "conv2d": layer(lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.Tanh(), nn.Conv2d(16, 8, 3)), IMAGE),
    "conv3d": layer(lambda: nn.Conv3d(2, 3, 2), (2, 4, 4, 4)),
    "grouped conv": layer(lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 6, 3, groups=2)), IMAGE),
    "depthwise conv": layer(lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 8, 3, groups=4)), IMAGE),
    "dilated conv": layer(lambda: nn.Conv2d(3, 4, 3, dilation=2, padding=2), IMAGE),
    "strided conv": layer(lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1), IMAGE),
    "same conv": layer(lambda: nn.Conv2d(3, 4, (3, 2), padding="same"), IMAGE),
    "circular conv": layer(lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), IMAGE),
    "conv_transpose1d": layer(lambda: nn.ConvTranspose1d(3, 4, 3, stride=2), SIGNAL),
    "conv_transpose2d": layer(lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), IMAGE),
    "conv of a sum of kernels": parameters(lambda m, x: F.conv2d(x, (m.k * m.mix[:, None, None, None, None].softmax(0)).sum(0)),
                                           IMAGE, k=(3, 4, 3, 3, 3), mix=(3,)),
}

POOLS = {
    "max_pool1d": signal(lambda y: F.max_pool1d(y, 2)),
    "max_pool2d": image(lambda y: F.max_pool2d(y, 3, 2, 1)),
    "avg_pool2d": image(lambda y: F.avg_pool2d(y, 3, 2, 1)),
    "avg_pool2d ceil": image(lambda y: F.avg_pool2d(y, 3, 2, ceil_mode=True, count_include_pad=False)),
    "adaptive_avg_pool2d": image(lambda y: F.adaptive_avg_pool2d(y, (2, 4))),
    "global max": image(lambda y: F.adaptive_max_pool2d(y, 1)),
}

LOSSES = {
    "cross_entropy": loss(F.cross_entropy, Integers((), CLASSES)),
    # the exporter leaves label_smoothing out
    "smooth labels": loss(lambda y, t: -(F.log_softmax(y, 1) * (0.8 * F.one_hot(t, CLASSES) + 0.2 / CLASSES)).sum(1).mean(),
                          Integers((), CLASSES)),
    "nll_loss": loss(lambda y, t: F.nll_loss(F.log_softmax(y, 1), t), Integers((), CLASSES)),
    "binary_cross_entropy": loss(lambda y, t: F.binary_cross_entropy_with_logits(y, t.to(y)), Integers((3,), 2), width=3),
    "smooth_l1_loss": loss(F.smooth_l1_loss, (3,), width=3),
    "huber_loss": loss(lambda y, t: F.huber_loss(y, t, delta=0.3), (3,), width=3),
    "l1_loss": loss(F.l1_loss, (3,), width=3),
    "kl_div": loss(lambda y, t: F.kl_div(F.log_softmax(y, 1), t, reduction="batchmean"), Positive((CLASSES,))),
    "cosine_embedding_loss": loss(lambda y, other, sign: F.cosine_embedding_loss(y, other, sign, margin=0.1), (CLASSES,), Signs(())),
    "triplet_margin_loss": loss(lambda y, near, far: F.triplet_margin_loss(y, near, far), (CLASSES,), (CLASSES,)),
    "margin_ranking_loss": loss(lambda y, sign: F.margin_ranking_loss(y[:, 0], y[:, 1], sign, margin=0.2), Signs(())),
    "soft_margin_loss": loss(F.soft_margin_loss, Signs((3,)), width=3),
    "poisson_nll_loss": loss(F.poisson_nll_loss, Integers((3,), 4), width=3),
    "gaussian likelihood": loss(lambda y, t, v: (0.5 * (v.log() + (y - t) ** 2 / v)).mean(), (3,), Positive((3,)), width=3),
    "contrast": loss(lambda y, other: F.cross_entropy(y @ other.t(), torch.arange(y.shape[0])), (CLASSES,)),
}

SEQUENCES = {
    "lstm": layer(lambda: First(nn.LSTM(8, 6, batch_first=True)), TOKENS),
    "gru": layer(lambda: First(nn.GRU(8, 6, batch_first=True)), TOKENS),
    "rnn": layer(lambda: First(nn.RNN(8, 6, batch_first=True)), TOKENS),
    "lstm both ways": layer(lambda: First(nn.LSTM(8, 4, batch_first=True, bidirectional=True)), TOKENS),
    "attention": layer(Attention, TOKENS),
    "causal attention": layer(lambda: Attention(causal=True), TOKENS),
    "attention with a trained bias": layer(lambda: Attention(biased=True), TOKENS),
    "cross attention": Case(Cross, [TOKENS, (4, 8)]),
    "encoder layer": layer(lambda: Encoder(False), TOKENS),
    "encoder layer, norm first": layer(lambda: Encoder(True, activation="gelu"), TOKENS),
}

TABLES = {
    "embedding": Case(lambda: nn.Sequential(nn.Embedding(40, WIDTH), nn.Linear(WIDTH, 4)), [Integers((TIME,), 40)]),
    "embedding, mean of a bag": Case(lambda: After(nn.Embedding(9, 8), lambda y: y.mean(1)), [Integers((TIME,), 9)]),
    "tied table": Case(Tied, [Integers((TIME,), 40)]),
    "positions": parameters(lambda m, x: (x + m.positions[: x.shape[1]]) @ m.w, TOKENS, positions=(9, 8), w=(8, 8)),
}

INDICES = {
    "gather": Case(lambda: After(nn.Linear(WIDTH, WIDTH), lambda y, i: y.gather(1, i)), [VECTOR, Integers((6,), WIDTH)]),
    "index_select": vector(lambda y: y[:, [3, 0, 3, 7]]),
    "strided slice": vector(lambda y: y[:, 1::3]),
    "take last": tokens(lambda y: y[:, -1]),
    "roll": tokens(lambda y: y.roll((1, 2), (1, 2)) * y),
    "flip": tokens(lambda y: y.flip(1).cumsum(1)),
    "scatter_add": Case(lambda: After(nn.Linear(WIDTH, 6), lambda y, i: torch.zeros(y.shape[0], 4).to(y).scatter_add(1, i, y)),
                        [VECTOR, Integers((6,), 4)]),
    "masked_fill": vector(lambda y: y.masked_fill(y > 0.3, -0.5)),
    "where": vector(lambda y: torch.where(y > 0, y * 2, y.exp())),
    "tril": tokens(lambda y: (y @ y.transpose(1, 2)).tril(1)),
    "diagonal": tokens(lambda y: (y @ y.transpose(1, 2)).diagonal(dim1=1, dim2=2)),
    "cat": tokens(lambda y: torch.cat([y, y[:, :2].relu(), y.sum(1, keepdim=True)], 1)),
    "stack": tokens(lambda y: torch.stack(y.unbind(1)[::-1], 1)),
    "split": vector(lambda y: torch.cat([part * k for k, part in enumerate(y.split([5, 7, 20], 1))], 1)),
    "sort": vector(lambda y: y.sort(1, descending=True)[0] * torch.arange(WIDTH)),
    "topk": vector(lambda y: y.topk(3, 1)[0]),
    "unfold": tokens(lambda y: y.unfold(1, 3, 1).mean(3)),
}

REDUCTIONS = {
    "mean of all": vector(lambda y: (y * y).mean()),
    "var": vector(lambda y: y.var(1)),
    "std over the batch": vector(lambda y: y.std(0)),
    "amax": tokens(lambda y: y.amax(1)),
    "amin": tokens(lambda y: y.amin((1, 2))),
    "prod": Case(lambda: After(nn.Linear(WIDTH, 4), lambda y: y.prod(1)), [VECTOR]),
    "logsumexp": tokens(lambda y: y.logsumexp(1)),
    "norm": tokens(lambda y: y.norm(dim=2)),
    "norm of order 1": tokens(lambda y: y.norm(p=1, dim=1)),
    "cumsum": tokens(lambda y: y.cumsum(1)),
    "cumprod": Case(lambda: After(nn.Linear(WIDTH, 4), lambda y: torch.stack([y[:, : k + 1].prod(1) for k in range(4)], 1)), [VECTOR]),
    "powers": vector(lambda y: (y.abs() + 0.5) ** 1.5 + 2.0 ** y),
    "roots and quotients": vector(lambda y: torch.sqrt(y * y + 1) / (y.exp() + 1)),
    "waves": vector(lambda y: torch.sin(y) * torch.cos(2 * y) + torch.erf(y) + torch.atan(y)),
    "clamp": vector(lambda y: y.clamp(-0.3, 0.4)),
    "maximum": vector(lambda y: torch.maximum(y[:, :16], y[:, 16:]) - torch.minimum(y[:, :16], y[:, 1:17])),
}

# Parameters whose gradients are repeated along a dimension, or are zero.
PARAMETERS = {
    "sum of rows": parameters(lambda m, x: x @ m.w + m.q.sum(0), w=(WIDTH, 8), q=(3, 8)),
    "sum of all": parameters(lambda m, x: x.mean() * m.p.sum() + (x @ m.w).mean(), w=(WIDTH, 8), p=(5, 3)),
    "sum of a large one": parameters(lambda m, x: (x @ m.w) * m.p.sum(), w=(WIDTH, WIDTH), p=(WIDTH, WIDTH + 1)),
    "mean of columns": parameters(lambda m, x: (x @ m.w) * m.q.mean(1), w=(WIDTH, WIDTH), q=(WIDTH, WIDTH)),
    "zero times a sum": parameters(lambda m, x: x @ m.w + 0 * m.unused.sum(), w=(WIDTH, 8), unused=(WIDTH, WIDTH)),
    "zero times a parameter": parameters(lambda m, x: x @ m.w + 0 * m.unused, w=(WIDTH, 8), unused=(8,)),
    "zero times rows": parameters(lambda m, x: x @ m.w + 0 * m.unused.mean(0), w=(WIDTH, 8), unused=(WIDTH, 8)),
    "scalar": parameters(lambda m, x: (x @ m.w) * m.scale + m.shift, w=(WIDTH, 8), scale=(1,), shift=(1, 1)),
    "without dimensions": parameters(lambda m, x: (x @ m.w) * m.scale[0].exp(), w=(WIDTH, 8), scale=(1,)),
    "expanded": parameters(lambda m, x: (m.q.expand(4, 6, 8) * x[:, None, :8]).sum(1) + m.b.expand(8), q=(1, 6, 1), b=(1,)),
    "repeated": parameters(lambda m, x: x @ m.w + m.q.repeat(4), w=(WIDTH, 8), q=(2,)),
    "softmax of weights": parameters(lambda m, x: (torch.stack([x, x * x, x.tanh()]) * m.mix.softmax(0)[:, None, None]).sum(0), mix=(3,)),
    "low rank": parameters(lambda m, x: x @ (m.a @ m.b), a=(WIDTH, 3), b=(3, WIDTH)),
    "used twice": parameters(lambda m, x: (x @ m.w).tanh() @ m.w, w=(WIDTH, WIDTH)),
    "transposed": parameters(lambda m, x: x @ m.w.t() + m.b.flatten(), w=(8, WIDTH), b=(2, 4)),
    "detached": parameters(lambda m, x: straight_through(x @ m.w) * m.q + x @ m.w.detach().tanh(), w=(WIDTH, 8), q=(8,)),
    "a row of it": parameters(lambda m, x: x @ m.w + m.table[1], w=(WIDTH, 8), table=(3, 8)),
    "largest of it": parameters(lambda m, x: (x @ m.w) * m.q.amax(0), w=(WIDTH, 8), q=(3, 8)),
    "norm of it": parameters(lambda m, x: x @ m.w / m.w.norm(), w=(WIDTH, WIDTH)),
    "penalty": Case(lambda: Function(lambda m, x: ((x @ m.w) ** 2).mean() + 0.01 * (m.w ** 2).sum() + 0.1 * m.b.abs().sum(),
                                     w=(WIDTH, WIDTH), b=(8,)), [VECTOR], True),
    "penalty alone": Case(lambda: Function(lambda m, x: ((x @ m.w) ** 2).mean() + m.free.sum() + m.row.mean(),
                                           w=(WIDTH, WIDTH), free=(WIDTH, WIDTH), row=(1, 40)), [VECTOR], True),
    "joined": parameters(lambda m, x: x @ torch.cat([m.a, m.b.expand(WIDTH, 4)], 1), a=(WIDTH, 4), b=(1, 4)),
    "running sum": parameters(lambda m, x: x * m.steps.cumsum(0), steps=(WIDTH,)),
}

MOVES = {
    "pad constant": image(lambda y: F.pad(y, (1, 2, 0, 1), value=0.5)),
    "pad reflect": image(lambda y: F.pad(y, (1, 2, 2, 1), mode="reflect")),
    "pad replicate": image(lambda y: F.pad(y, (1, 2, 2, 1), mode="replicate")),
    "nearest": image(lambda y: F.interpolate(y, scale_factor=2)),
    "bilinear": image(lambda y: F.interpolate(y, size=(11, 5), mode="bilinear", align_corners=False)),
    "bicubic": image(lambda y: F.interpolate(y, size=(12, 12), mode="bicubic", align_corners=True)),
    "pixel_shuffle": image(lambda y: F.pixel_shuffle(y, 2)),
    "grid_sample": Case(lambda: After(nn.Conv2d(3, 4, 1), lambda y, g: F.grid_sample(y, 0.4 * g, align_corners=False)), [IMAGE, (3, 3, 2)]),
    "einsum": parameters(lambda m, x: torch.einsum("btc,chd,bsc->bhts", x, m.w, x), TOKENS, w=(8, 2, 3)),
    "outer product": vector(lambda y: torch.einsum("bi,bj->bij", y[:, :4], y[:, 4:9])),
    "bilinear layer": Case(lambda: Function(lambda m, x, z: F.bilinear(x, z, m.w, m.b), w=(4, 8, 6), b=(4,)), [(8,), (6,)]),
    "transposes": tokens(lambda y: y.permute(0, 2, 1).reshape(-1, 4, 10).transpose(1, 2)),
}

CASES = {**ACTIVATIONS, **NORMS, **CONVOLUTIONS, **POOLS, **LOSSES, **SEQUENCES, **TABLES, **INDICES, **REDUCTIONS, **PARAMETERS, **MOVES}
