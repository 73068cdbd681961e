#!/usr/bin/env python3
"""Export models of torchvision and modules of PyTorch, by the newest of both, each with reference inputs and PyTorch's
outputs.

    export_modules_today.py --out DIR [--forms FORM,..] [NAME...]

writes the same folders as export_today.py, in the same forms. Models of torchvision have their own depths and widths
unless those would take a minute to run; images are small. It needs what export_today.py needs, and torchvision (written
for 0.29).
"""

import torch
import torchvision
from torch import nn
from torch.nn import functional

import export_today

BATCH, LENGTH, SIZE = 2, 11, 48
CLASSES = 13


def image(size, channels=3):
    return lambda random: {"x": random.standard_normal((BATCH, channels, size, size)).astype("float32")}


def video(frames, size):
    return lambda random: {"x": random.standard_normal((1, 3, frames, size, size)).astype("float32")}


def sequence(random):
    return {"x": random.standard_normal((BATCH, LENGTH, SIZE)).astype("float32")}


def frames_pair(random):
    return {name: random.uniform(-1, 1, (1, 3, 128, 128)).astype("float32") for name in ("first", "second")}


def sound(random):
    return {"x": random.standard_normal((BATCH, 1, 400)).astype("float32")}


class Output(nn.Module):
    """The module, and what `select` makes of its result: one tensor."""

    def __init__(self, module, select):
        super().__init__()
        self.module, self.select = module, select

    def forward(self, *arguments):
        return self.select(self.module(*arguments))


class Recurrent(nn.Module):
    """A recurrent module and a linear layer."""

    def __init__(self, kind, **settings):
        super().__init__()
        self.recurrent = kind(SIZE, 20, batch_first=True, **settings)
        self.head = nn.Linear(40 if settings.get("bidirectional") else 20, CLASSES)

    def forward(self, x):
        return self.head(self.recurrent(x)[0])


class Experts(nn.Module):
    """A mixture of experts: each token passes through the two experts of four that its router prefers."""

    def __init__(self, experts=4, chosen=2, hidden=56):
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(SIZE, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, SIZE, hidden) / 7)
        self.down = nn.Parameter(torch.randn(experts, hidden, SIZE) / 7)

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(self.chosen, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        tokens = x.unsqueeze(-2).unsqueeze(-2)
        hidden = functional.silu(tokens @ self.up[chosen]) @ self.down[chosen]
        return (hidden.squeeze(-2) * weights.unsqueeze(-1)).sum(-2)


class DenseExperts(nn.Module):
    """Three mixtures of experts in dense forms: every expert computes all tokens, and the sum over experts has weight 0 for
    those that a token did not choose. By batched products, with biases and weights scattered into zeros (gpt-oss of
    transformers 4); by einsum, with one-hot rows; with Softmax of scores that are -inf for the others."""

    def __init__(self, experts=6, chosen=2, hidden=12):
        super().__init__()
        self.experts, self.chosen = experts, chosen
        self.routers = nn.ModuleList(nn.Linear(SIZE, experts) for _ in range(3))
        self.up = nn.ParameterList(torch.randn(experts, SIZE, 2 * hidden) / 7 for _ in range(3))
        self.down = nn.ParameterList(torch.randn(experts, hidden, SIZE) / 3 for _ in range(3))
        self.up_bias = nn.Parameter(torch.randn(experts, 2 * hidden) / 5)
        self.down_bias = nn.Parameter(torch.randn(experts, SIZE) / 5)

    def scattered(self, rows):
        values, chosen = self.routers[0](rows).topk(self.chosen, -1)
        weights = torch.zeros(len(rows), self.experts).scatter_(1, chosen, values.softmax(-1))
        hidden = torch.bmm(rows.repeat(self.experts, 1).view(self.experts, -1, SIZE), self.up[0]) + self.up_bias[:, None]
        hidden = hidden[..., ::2].clamp(max=1) * hidden[..., 1::2].sigmoid()
        result = torch.bmm(hidden, self.down[0]) + self.down_bias[:, None]
        return (result * weights.transpose(0, 1)[..., None]).sum(0)

    def one_hot(self, x):
        values, chosen = self.routers[1](x).softmax(-1).topk(self.chosen, -1)
        weights = (functional.one_hot(chosen, self.experts) * values[..., None]).sum(-2)
        gate, linear = torch.einsum("bsh,ehi->bsei", x, self.up[1]).chunk(2, -1)
        result = torch.einsum("bsei,eih->bseh", functional.silu(gate) * linear, self.down[1])
        return torch.einsum("bseh,bse->bsh", result, weights)

    def masked(self, rows):
        scores = self.routers[2](rows)
        values, chosen = scores.topk(self.chosen, -1)
        weights = torch.full_like(scores, float("-inf")).scatter(-1, chosen, values).softmax(-1)
        gate, linear = torch.matmul(rows, self.up[2]).chunk(2, -1)
        return torch.einsum("eth,te->th", torch.matmul(functional.gelu(gate) * linear, self.down[2]), weights)

    def forward(self, x):
        x = x + self.scattered(x.reshape(-1, SIZE)).view(x.shape)
        x = x + self.one_hot(x)
        return x + self.masked(x.reshape(-1, SIZE)).view(x.shape)


class Warp(nn.Module):
    """A spatial transformer: an affine grid, and the image at its points."""

    def __init__(self):
        super().__init__()
        self.locate = nn.Sequential(nn.Conv2d(3, 4, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(36, 6))

    def forward(self, x):
        grid = functional.affine_grid(self.locate(x).reshape(-1, 2, 3), list(x.shape), align_corners=False)
        return functional.grid_sample(x, grid, padding_mode="border", align_corners=False)


class Upsampled(nn.Module):
    def __init__(self, **how):
        super().__init__()
        self.how, self.before, self.after = how, nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x):
        return self.after(functional.interpolate(self.before(x).relu(), **self.how))


class Spectrum(nn.Module):
    """The logarithm of a signal's mel-like spectrum, and a convolution over it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(64))
        self.bands, self.classify = nn.Linear(33, 12), nn.Conv1d(12, CLASSES, 3)

    def forward(self, x):
        parts = torch.stft(x.squeeze(1), 64, 32, window=self.window, center=False, return_complex=False)
        return self.classify(self.bands(parts.square().sum(-1).transpose(1, 2).add(1e-3).log()).transpose(1, 2))


def classes(name, size, select=None, **settings):
    """A classifier of torchvision."""

    def build():
        module = getattr(torchvision.models, name)(num_classes=CLASSES, **settings)
        return Output(module, select) if select else module

    return build, image(size)


def segmenter(name, size, **settings):
    make = getattr(torchvision.models.segmentation, name)
    return (lambda: Output(make(weights_backbone=None, num_classes=5, **settings), lambda y: y["out"])), image(size)


def small_vit():
    return torchvision.models.VisionTransformer(32, 8, 2, 6, 48, 56, num_classes=CLASSES)


def layer_of(kind):
    return lambda: kind(SIZE, 6, 56, batch_first=True)


MODULES = {
    # torchvision
    "alexnet": classes("alexnet", 64),
    "convnext_tiny": classes("convnext_tiny", 64),
    "densenet121": classes("densenet121", 64),
    "efficientnet_b0": classes("efficientnet_b0", 64),
    "efficientnet_v2_s": classes("efficientnet_v2_s", 64),
    "googlenet": classes("googlenet", 64, aux_logits=False, init_weights=False),
    "inception_v3": classes("inception_v3", 80, aux_logits=False, init_weights=False),
    "mnasnet": classes("mnasnet0_5", 64),
    "mobilenet_v2": classes("mobilenet_v2", 64),
    "mobilenet_v3": classes("mobilenet_v3_small", 64),
    "regnet_x": classes("regnet_x_400mf", 64),
    "regnet_y": classes("regnet_y_400mf", 64),
    "resnet18": classes("resnet18", 64),
    "resnet50": classes("resnet50", 64),
    "resnext50": classes("resnext50_32x4d", 64),
    "shufflenet_v2": classes("shufflenet_v2_x0_5", 64),
    "squeezenet": classes("squeezenet1_1", 64),
    "swin_t": classes("swin_t", 64),
    "swin_v2_t": classes("swin_v2_t", 64),
    "maxvit": (lambda: torchvision.models.MaxVit((64, 64), 16, 2, [16, 24], [1, 1], 8, 0.0, num_classes=CLASSES), image(64)),
    "vit_torchvision": (small_vit, image(32)),
    "deeplabv3": segmenter("deeplabv3_mobilenet_v3_large", 64),
    "fcn": segmenter("fcn_resnet50", 64),
    "lraspp": segmenter("lraspp_mobilenet_v3_large", 64),
    "raft": (lambda: Output(torchvision.models.optical_flow.raft_small(), lambda y: y[-1]), frames_pair),
    "r3d": (lambda: torchvision.models.video.r3d_18(num_classes=CLASSES), video(8, 32)),
    # modules
    "lstm": (lambda: Recurrent(nn.LSTM, num_layers=2), sequence),
    "lstm_both_ways": (lambda: Recurrent(nn.LSTM, bidirectional=True), sequence),
    "gru": (lambda: Recurrent(nn.GRU, num_layers=2), sequence),
    "gru_both_ways": (lambda: Recurrent(nn.GRU, bidirectional=True), sequence),
    "rnn": (lambda: Recurrent(nn.RNN), sequence),
    "encoder_layer": (layer_of(nn.TransformerEncoderLayer), sequence),
    "attention": (lambda: Output(nn.MultiheadAttention(SIZE, 6, batch_first=True), lambda y: y[0]),
                  lambda random: dict(zip("qkv", (sequence(random)["x"] for _ in range(3))))),
    "experts": (Experts, sequence),
    "dense_experts": (DenseExperts, sequence),
    "warp": (Warp, image(24)),
    "upsampled_nearest": (lambda: Upsampled(scale_factor=2), image(16)),
    "upsampled_bilinear": (lambda: Upsampled(size=(37, 29), mode="bilinear", align_corners=True), image(16)),
    "upsampled_bicubic": (lambda: Upsampled(scale_factor=1.5, mode="bicubic"), image(16)),
    "downsampled_antialias": (lambda: Upsampled(size=(9, 7), mode="bilinear", antialias=True), image(16)),
    "pixel_shuffle": (lambda: nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.PixelShuffle(2), nn.PReLU(3)), image(16)),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(3, 8, 4, 2, 1), nn.InstanceNorm2d(8, affine=True), nn.Mish()),
                   image(16)),
    "group_norm": (lambda: nn.Sequential(nn.Conv2d(3, 12, 3), nn.GroupNorm(4, 12), nn.SiLU(), nn.LPPool2d(2, 3)), image(16)),
    "spectrum": (Spectrum, sound),
    "wavenet": (lambda: nn.Sequential(*(nn.Sequential(nn.Conv1d(c, 16, 2, dilation=2**i), nn.GELU())
                                        for i, c in enumerate((1, 16, 16, 16)))), sound),
}


def model_of(name):
    build, inputs = MODULES[name]
    torch.manual_seed(len(name))
    return build(), inputs


def draw(module, random, inputs):
    """Random parameters of the module's own sizes: vectors, often zeros or ones at first, are moved by a tenth, and
    BatchNormalization has the statistics of such inputs. Weights as wide as randomize() draws them let the values of deep
    models grow until rounding errors are larger than any tolerance."""
    for parameter in module.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.1 * torch.from_numpy(random.standard_normal(tuple(parameter.shape)).astype("float32"))
        elif parameter.abs().max() == 0 or not parameter.isfinite().all():
            nn.init.xavier_uniform_(parameter.data)
    norms = [norm for norm in module.modules() if isinstance(norm, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    for norm in norms:
        norm.momentum = None  # the mean of the batches
        norm.reset_running_stats()
    batches = [torch.cat([torch.from_numpy(inputs(random)[name]) for _ in range(4)]) for name in inputs(random)]
    with torch.no_grad():
        module.train()(*batches)
    module.eval()


if __name__ == "__main__":
    export_today.main(MODULES, model_of, draw, __doc__)
