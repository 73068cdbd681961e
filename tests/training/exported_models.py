"""Small models of the newest transformers and torchvision, and modules of PyTorch, that end in a loss, with their data: what
record_exports.py exports and trains. Dropout is 0."""
from typing import Callable, NamedTuple, Tuple

import numpy
import torch
import torchvision
import transformers
from torch import nn
from torchvision.models.convnext import CNBlockConfig

from record import (SAMPLES, ClassifierLoss, RegressionLoss, image_data, padded_data, randomize, series_data, token_data,
                    vector_data)

CLASSES, IMAGE = 5, 12


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


class TokenLoss(nn.Module):
    """The mean cross entropy of the classes of all tokens that are not padding."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, token_type_ids, attention_mask, labels):
        return self.model(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids, labels=labels).loss


class Contrast(nn.Module):
    """CLIP's loss of pairs."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, pixel_values):
        return self.model(input_ids=input_ids, pixel_values=pixel_values, return_loss=True).loss


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


def without_padding(model):
    """The model with a gradient for every row of its tables: PyTorch gives none to the row of the padding token, which an export
    does not name."""
    for part in model.modules():
        if isinstance(part, nn.Embedding):
            part.padding_idx = None
    return model


def token_classifier():
    config = transformers.BertConfig(vocab_size=53, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=28,
                                     max_position_embeddings=12, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=7)
    return TokenLoss(without_padding(transformers.BertForTokenClassification(config)))


def masked_language_model():
    config = transformers.ModernBertConfig(vocab_size=53, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=28,
                                           max_position_embeddings=16, local_attention=6, global_attn_every_n_layers=2, pad_token_id=0,
                                           embedding_dropout=0.0, mlp_dropout=0.0, attention_dropout=0.0)
    return NextToken(without_padding(transformers.ModernBertForMaskedLM(config)))


def gemma():
    config = transformers.Gemma3TextConfig(vocab_size=47, hidden_size=24, intermediate_size=28, num_hidden_layers=2, num_attention_heads=4,
                                           num_key_value_heads=2, head_dim=6, query_pre_attn_scalar=6, max_position_embeddings=16,
                                           sliding_window=5, layer_types=["sliding_attention", "full_attention"], use_cache=False)
    return NextToken(without_padding(transformers.Gemma3ForCausalLM(config)))


def mixtral():
    """A mixture of experts: each token passes through two of four."""
    config = transformers.MixtralConfig(vocab_size=47, hidden_size=24, intermediate_size=28, num_hidden_layers=2, num_attention_heads=4,
                                        num_key_value_heads=2, max_position_embeddings=16, num_local_experts=4, num_experts_per_tok=2,
                                        use_cache=False)
    config._experts_implementation = "batched_mm"
    return NextToken(transformers.MixtralForCausalLM(config))


class DenseExperts(nn.Module):
    """A mixture of experts of which every expert computes all tokens; the weights of those that a token did not choose are 0."""

    def __init__(self, inputs, outputs, experts=4, chosen=2, hidden=6):
        super().__init__()
        self.experts, self.chosen = experts, chosen
        self.router, self.head = nn.Linear(inputs, experts), nn.Linear(inputs, outputs)
        self.up, self.up_bias = nn.Parameter(torch.zeros(experts, inputs, 2 * hidden)), nn.Parameter(torch.zeros(experts, 2 * hidden))
        self.down = nn.Parameter(torch.zeros(experts, hidden, inputs))

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        values, chosen = self.router(rows).topk(self.chosen, -1)
        weights = torch.zeros(rows.shape[0], self.experts, dtype=rows.dtype).scatter(1, chosen, values.softmax(-1))
        gate, linear = (torch.matmul(rows, self.up) + self.up_bias[:, None]).chunk(2, -1)
        result = torch.matmul(nn.functional.silu(gate) * linear, self.down)
        return self.head(x + (result * weights.t()[..., None]).sum(0).view(x.shape))


def clip():
    """The contrastive loss of pairs of an image and a text."""
    text = dict(vocab_size=53, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=28, max_position_embeddings=12,
                eos_token_id=52, pad_token_id=1)
    image = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=28, image_size=IMAGE, patch_size=4)
    return Contrast(transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=image, projection_dim=12)))


def mobilenet():
    """torchvision's inverted residuals: depthwise convolutions, batch norms and ReLU6."""
    made = torchvision.models.MobileNetV2(num_classes=CLASSES, width_mult=0.25, inverted_residual_setting=[[1, 16, 1, 1], [3, 32, 2, 2]],
                                          dropout=0.0)
    made.features[-1] = torchvision.ops.Conv2dNormActivation(8, 24, 1, activation_layer=nn.ReLU6)
    made.classifier = nn.Linear(24, CLASSES)
    return ClassifierLoss(made)


class Recurrent(nn.Module):
    """The last output of a recurrent module, and a linear layer."""

    def __init__(self, kind):
        super().__init__()
        self.recurrent, self.head = kind(7, 12, num_layers=2, batch_first=True, bidirectional=kind is nn.GRU), nn.LazyLinear(3)
        self(torch.zeros(1, 2, 7))

    def forward(self, x):
        return self.head(self.recurrent(x)[0][:, -1])


class UNetBlock(nn.Module):
    """A U-Net of one level as in diffusion models: residual blocks of group norms and SiLU, attention, and a skip connection."""

    def __init__(self, channels=8):
        super().__init__()
        self.enter, self.down = nn.Conv2d(3, channels, 3, padding=1), nn.Conv2d(channels, channels, 3, 2, 1)
        self.norms = nn.ModuleList(nn.GroupNorm(4, channels) for _ in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.up, self.leave = nn.ConvTranspose2d(channels, channels, 4, 2, 1), nn.Conv2d(2 * channels, 3, 3, padding=1)

    def attend(self, x):
        tokens = self.norms[2](x).flatten(2).transpose(1, 2)
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(tokens).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + self.out(y).transpose(1, 2).unflatten(2, x.shape[2:])

    def forward(self, x):
        first = self.enter(x)
        inner = first + self.convs[0](nn.functional.silu(self.norms[0](first)))
        inner = self.attend(self.down(inner))
        inner = inner + self.convs[1](nn.functional.silu(self.norms[1](inner)))
        return self.leave(torch.cat([first, self.up(inner)], 1))


def randomize_layers(module, random):
    """All but norms."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            randomize(part, random)


def pair_data(batch):
    def make(random):
        return {"input_ids": numpy.concatenate([random.integers(2, 52, (SAMPLES, 8)), numpy.full((SAMPLES, 1), 52)], 1),
                "pixel_values": random.standard_normal((SAMPLES, 3, IMAGE, IMAGE)).astype("float32")}

    return batch, make


def denoising_data(batch, size):
    """Noisy images, and the noise."""
    def make(random):
        noise = random.standard_normal((SAMPLES, 3, size, size)).astype("float32")
        return {"x": noise + numpy.sin(numpy.arange(size, dtype="float32")), "target": noise}

    return batch, make


class Model(NamedTuple):
    build: Callable[[], nn.Module]
    data: Tuple[int, Callable]
    rate: float
    training: bool = True  # exported and trained in training mode; its dropout is 0
    initialize: Callable = randomize
    forms: Tuple[str, ...] = ()  # the only forms; empty: all


class Padded(nn.Module):
    """A table whose row 3 is padding, and a classifier of tokens."""

    def __init__(self):
        super().__init__()
        self.embed, self.fc = nn.Embedding(7, 6, padding_idx=3), nn.Linear(6, 7)

    def forward(self, input_ids, labels):
        return nn.functional.cross_entropy(self.fc(self.embed(input_ids)).flatten(0, 1), labels.flatten())


class Documents(nn.Module):
    """A layer of attention over rows of several documents, which are told by the number of each token's document or by a bias of
    scores. In PyTorch each document is computed alone."""

    def __init__(self, vocab=23, hidden=8, heads=2):
        super().__init__()
        self.heads, self.embed, self.qkv = heads, nn.Embedding(vocab, hidden), nn.Linear(hidden, 3 * hidden)
        self.head = nn.Linear(hidden, vocab)

    def logits(self, ids, mask):
        q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in self.qkv(self.embed(ids)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.head(mixed.transpose(1, 2).flatten(2))

    def forward(self, input_ids, told, labels):
        causal = torch.ones(input_ids.shape[1], input_ids.shape[1], dtype=torch.bool).tril()
        biased = told.ndim == 4
        if torch.compiler.is_exporting():
            made = self.logits(input_ids, told if biased else (told[:, None, :, None] == told[:, None, None, :]) & causal)
        else:
            first = (told[:, 0] == 0).long().argmax(-1) if biased else (told[:, :, None] == told[:, None, :]).long().argmax(-1)
            made = torch.stack([torch.cat([self.logits(ids[None, of == start], causal[:(of == start).sum(), :(of == start).sum()])[0]
                                           for start in of.unique()]) for ids, of in zip(input_ids, first)])
        return nn.functional.cross_entropy(made.flatten(0, 1), labels.flatten())


def document_data(biased, vocab=23, lengths=(3, 4, 2)):
    def make(random):
        tokens = random.integers(0, vocab, (SAMPLES, sum(lengths)), dtype=numpy.int64)
        order = [random.permutation(lengths) for _ in tokens]
        told = numpy.stack([numpy.repeat(numpy.arange(len(row)), row) for row in order])
        ends = numpy.concatenate([told[:, 1:] != told[:, :-1], numpy.full((SAMPLES, 1), True)], 1)
        seen = (told[:, None, :, None] == told[:, None, None, :]) & numpy.tri(sum(lengths), dtype=bool)
        return {"input_ids": tokens, "told": numpy.where(seen, 0, -numpy.inf).astype("f4") if biased else told,
                "labels": numpy.where(ends, -100, numpy.roll(tokens, -1, 1))}

    return 2, make


MODELS = {
    "gpt2": Model(gpt2, token_data(2, 9, 53), 0.0005),
    "llama": Model(llama, token_data(2, 9, 47), 0.0015),
    "vit": Model(vit, image_data(2, IMAGE, IMAGE, CLASSES), 0.003),
    "resnet": Model(resnet, image_data(4, 19, 17, CLASSES), 0.002),
    "resnet_eval": Model(resnet, image_data(4, 19, 17, CLASSES), 0.002, False),
    "fresh": Model(fresh, vector_data(6, 13, 5), 0.01, initialize=randomize_layers),
    "convnext": Model(convnext, image_data(2, 16, 16, CLASSES), 0.003),
    "bert": Model(token_classifier, padded_data(2, 9, 53, 7), 0.002),
    "modernbert": Model(masked_language_model, token_data(2, 9, 53), 0.001),
    "gemma": Model(gemma, token_data(2, 9, 47), 0.001),
    "mixtral": Model(mixtral, token_data(2, 9, 47), 0.0002),
    "experts": Model(lambda: RegressionLoss(DenseExperts(7, 3)), vector_data(6, 7, 3), 0.001),
    "padded": Model(Padded, token_data(2, 9, 7), 0.1, forms=("default", "plain", "scores", "batch")),
    "segments": Model(Documents, document_data(False), 0.1),
    "biased": Model(Documents, document_data(True), 0.1),
    "clip": Model(clip, pair_data(4), 0.002, forms=("plain", "legacy")),  # others fold exp(logit_scale)
    "mobilenet": Model(mobilenet, image_data(4, 19, 17, CLASSES), 0.002),
    "lstm": Model(lambda: RegressionLoss(Recurrent(nn.LSTM)), series_data(2, 6, 7, 3), 0.01),
    "gru": Model(lambda: RegressionLoss(Recurrent(nn.GRU)), series_data(2, 6, 7, 3), 0.01),
    "unet": Model(lambda: RegressionLoss(UNetBlock()), denoising_data(2, 8), 0.002),
}
