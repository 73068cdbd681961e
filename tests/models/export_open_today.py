#!/usr/bin/env python3
"""Export models that are used at many sizes, with open dimensions: a recogniser of lines of text, models of sound, a detector that
resizes, language models with relative positions.

    export_open_today.py --out DIR --dynamic [--forms FORM,..] [NAME...]

writes the same folders as export_today.py. Weights are random, widths small. It needs what export_today.py needs."""

import torch
import transformers
from torch import nn
from torch.nn import functional

import export_modules_today
import export_today

BATCH, CLASSES, FEATURES = 2, 13, 16


class Recogniser(nn.Module):
    """Columns of a line of text, 16 pixels high: convolutions and poolings, an LSTM over the width, classes for each column."""

    def __init__(self):
        super().__init__()
        sizes = [(1, 8, (2, 2)), (8, 12, (2, 2)), (12, FEATURES, (2, 1))]
        self.layers = nn.Sequential(*(layer for given, made, pool in sizes for layer in (
            nn.Conv2d(given, made, 3, padding=1), nn.BatchNorm2d(made), nn.ReLU(), nn.MaxPool2d(pool, pool))))
        self.recurrent = nn.LSTM(2 * FEATURES, 20, bidirectional=True, batch_first=True)
        self.head = nn.Linear(40, CLASSES)

    def forward(self, columns):
        found = self.layers(columns.transpose(1, 2).unsqueeze(1))
        return self.head(self.recurrent(found.flatten(1, 2).transpose(1, 2))[0]).log_softmax(-1)


class Sound(nn.Module):
    """Strided convolutions over a sound of any length, a recurrent layer, transposed convolutions, and the sound's own length again."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList(nn.Conv1d(given, made, 8, 4, 2) for given, made in ((1, 12), (12, 24)))
        self.recurrent = nn.GRU(24, 24, batch_first=True)
        self.up = nn.ModuleList(nn.ConvTranspose1d(given, made, 8, 4, 2) for given, made in ((24, 12), (12, 1)))

    def forward(self, x):
        length = x.shape[-1]
        for layer in self.down:
            x = functional.relu(layer(x))
        x = self.recurrent(x.transpose(1, 2))[0].transpose(1, 2)
        for layer in self.up:
            x = layer(functional.relu(x))
        return functional.pad(x, (0, 16))[..., :length]


class Pyramid(nn.Module):
    """A detector: maps of three scales, resized and added from the coarse one on, and boxes of all cells with their places."""

    def __init__(self, mode):
        super().__init__()
        self.mode = mode
        sizes = (3, 12, 16, 24)
        self.down = nn.ModuleList(nn.Conv2d(given, made, 3, 2, 1) for given, made in zip(sizes, sizes[1:]))
        self.sides = nn.ModuleList(nn.Conv2d(made, FEATURES, 1) for made in sizes[1:])
        self.head = nn.Conv2d(FEATURES, 4 + CLASSES, 3, padding=1)

    def boxes(self, x, scale):
        found = self.head(x).flatten(2).transpose(1, 2)
        rows, columns = torch.meshgrid(torch.arange(x.shape[2]), torch.arange(x.shape[3]), indexing="ij")
        places = torch.stack((columns, rows), -1).reshape(1, -1, 2).float() * scale
        centres = places + found[..., :2].sigmoid() * scale
        return torch.cat((centres, found[..., 2:4].exp() * scale, found[..., 4:].sigmoid()), -1)

    def forward(self, x):
        maps, made = [], []
        for down, side in zip(self.down, self.sides):
            x = functional.silu(down(x))
            maps.append(side(x))
        above = maps[-1]
        for level in (2, 1, 0):
            if level < 2:
                settings = {} if self.mode == "nearest" else {"align_corners": False}
                above = maps[level] + functional.interpolate(above, size=maps[level].shape[-2:], mode=self.mode, **settings)
            made.append(self.boxes(above, 2.0 ** (level + 1)))
        return torch.cat(made, 1)


def columns(random):
    return {"x": random.standard_normal((BATCH, 40, 16)).astype("float32")}


def samples(length):
    return lambda random: {"x": random.standard_normal((BATCH, length)).astype("float32")}


def of_transformers(name, config, settings, inputs, select=lambda result: result[0]):
    def build():
        return export_modules_today.Output(getattr(transformers, name)(getattr(transformers, config)(**settings)), select)
    return build, inputs


TEXT = dict(vocab_size=99, hidden_size=48, num_hidden_layers=2, num_attention_heads=6, intermediate_size=56, max_position_embeddings=64)
SPEECH = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=6, intermediate_size=56, conv_dim=(12, 12, 12), conv_stride=(5, 2, 2),
              conv_kernel=(10, 3, 2), num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, vocab_size=31)
MODELS = {
    "crnn": (Recogniser, columns),
    "sound": (Sound, export_modules_today.sound),
    "pyramid_nearest": (lambda: Pyramid("nearest"), export_modules_today.image(48)),
    "pyramid_bilinear": (lambda: Pyramid("bilinear"), export_modules_today.image(48)),
    "wav2vec2": of_transformers("Wav2Vec2ForCTC", "Wav2Vec2Config", SPEECH, samples(700)),
    "hubert": of_transformers("HubertForCTC", "HubertConfig", SPEECH, samples(700)),
    "deberta": of_transformers("DebertaV2ForMaskedLM", "DebertaV2Config",
                               dict(TEXT, relative_attention=True, position_buckets=8, pos_att_type=["p2c", "c2p"]), export_today.ids),
    "xlnet": of_transformers("XLNetLMHeadModel", "XLNetConfig", dict(vocab_size=99, d_model=48, n_layer=2, n_head=6, d_inner=56), export_today.ids),
    "convbert": of_transformers("ConvBertForMaskedLM", "ConvBertConfig", dict(TEXT, embedding_size=48), export_today.ids),
    "segformer": of_transformers("SegformerForSemanticSegmentation", "SegformerConfig",
                                 dict(depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32], decoder_hidden_size=24, num_labels=5), export_modules_today.image(64)),
    "mobilevit": of_transformers("MobileViTForSemanticSegmentation", "MobileViTConfig",
                                 dict(hidden_sizes=[24, 32, 40], neck_hidden_sizes=[8, 8, 16, 24, 32, 40, 48], num_labels=5, image_size=64), export_modules_today.image(64)),
}


def model_of(name):
    build, inputs = MODELS[name]
    torch.manual_seed(len(name))
    return build(), inputs


if __name__ == "__main__":
    export_today.main(MODELS, model_of, export_modules_today.draw, __doc__)
