#!/usr/bin/env python3
"""Export the small vision models and encoders, each with reference inputs and PyTorch's outputs.

    export_vision.py [--out DIR] [NAME...]

writes the same files as export.py. The results are committed, so tests need no Python; run this only to change a
model. It needs PyTorch and torchvision (written for 1.13 and 0.14, Debian's python3-torch and python3-torchvision).

Where torchvision's classes take their widths as arguments they are used as they are, otherwise a subclass builds the
same layers narrower. Image sizes are odd or not divisible by the strides, and between them the models have both forms
of every choice that the exporter offers: constants folded or not, BatchNormalization fused or kept, static or dynamic.
"""

from functools import partial

import numpy
import torch
from torch import nn
from torch.nn import functional
from torchvision.models import squeezenet, swin_transformer
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from torchvision.models.densenet import DenseNet
from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
from torchvision.models.shufflenetv2 import ShuffleNetV2
from torchvision.models.vision_transformer import ConvStemConfig, VisionTransformer

from exporting import Spec, main

# ---- BERT -----------------------------------------------------------------------------------------------------------


class BertEmbeddings(nn.Module):
    def __init__(self, hidden, vocab, positions):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab, hidden, padding_idx=0)
        self.position_embeddings = nn.Embedding(positions, hidden)
        self.token_type_embeddings = nn.Embedding(2, hidden)
        self.LayerNorm = nn.LayerNorm(hidden, eps=1e-12)
        self.register_buffer("position_ids", torch.arange(positions).expand((1, -1)))

    def forward(self, input_ids, token_type_ids):
        position_ids = self.position_ids[:, : input_ids.size(1)]
        embeddings = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        return self.LayerNorm(embeddings + self.position_embeddings(position_ids))


class BertSelfAttention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.head_size = hidden // heads
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)

    def split_heads(self, x):
        return x.view(x.size()[:-1] + (self.heads, self.head_size)).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        query, key, value = (self.split_heads(layer(x)) for layer in (self.query, self.key, self.value))
        scores = torch.matmul(query, key.transpose(-1, -2)) / self.head_size**0.5
        x = torch.matmul(functional.softmax(scores + mask, dim=-1), value).permute(0, 2, 1, 3).contiguous()
        return x.view(x.size()[:-2] + (self.heads * self.head_size,))


class BertOutput(nn.Module):
    """A linear layer, the residual and the norm after it."""

    def __init__(self, size, hidden):
        super().__init__()
        self.dense = nn.Linear(size, hidden)
        self.LayerNorm = nn.LayerNorm(hidden, eps=1e-12)

    def forward(self, x, residual):
        return self.LayerNorm(self.dense(x) + residual)


class BertLayer(nn.Module):
    def __init__(self, hidden, heads, intermediate):
        super().__init__()
        self.attention = BertSelfAttention(hidden, heads)
        self.attention_output = BertOutput(hidden, hidden)
        self.intermediate = nn.Linear(hidden, intermediate)
        self.output = BertOutput(intermediate, hidden)

    def forward(self, x, mask):
        x = self.attention_output(self.attention(x, mask), x)
        return self.output(functional.gelu(self.intermediate(x)), x)


class BertModel(nn.Module):
    """HuggingFace's: attention_mask is 1 where there is a token and becomes an additive mask, unless it is one already;
    the second output is the pooled first token."""

    def __init__(self, hidden=36, heads=4, intermediate=88, layers=2, vocab=83, positions=24):
        super().__init__()
        self.embeddings = BertEmbeddings(hidden, vocab, positions)
        self.layer = nn.ModuleList(BertLayer(hidden, heads, intermediate) for _ in range(layers))
        self.pooler = nn.Linear(hidden, hidden)

    def forward(self, input_ids, attention_mask, token_type_ids):
        mask = attention_mask
        if not mask.is_floating_point():
            mask = mask[:, None, None, :].to(dtype=torch.float32)
            mask = (1.0 - mask) * torch.finfo(torch.float32).min
        x = self.embeddings(input_ids, token_type_ids)
        for layer in self.layer:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


class PaddedEncoder(nn.Module):
    """PyTorch's own encoder, norms after the residuals; padding is a bool tensor, true where there is no token.

    Its heads are odd because PyTorch 1.13 has a fast path, which takes even ones and cannot be exported."""

    def __init__(self, hidden=36, heads=3, intermediate=50, layers=2, vocab=83, positions=13):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.position = nn.Parameter(torch.empty(positions, hidden))
        layer = nn.TransformerEncoderLayer(hidden, heads, intermediate, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(hidden), enable_nested_tensor=False)
        self.classifier = nn.Linear(hidden, 7)

    def forward(self, input_ids, padding):
        x = self.embedding(input_ids) + self.position
        x = self.encoder(x, src_key_padding_mask=padding)
        count = (~padding).sum(1, keepdim=True)
        mean = x.masked_fill(padding.unsqueeze(-1), 0.0).sum(1) / count
        return self.classifier(mean)


# ---- convolutional networks -----------------------------------------------------------------------------------------


class NarrowResNet(ResNet):
    """ResNet with the planes of its stages given; forward is torchvision's."""

    def __init__(self, block, layers, planes, classes=11, groups=1, base_width=64, dilate_last=False):
        nn.Module.__init__(self)
        self._norm_layer = nn.BatchNorm2d
        self.inplanes = planes[0]
        self.dilation = 1
        self.groups = groups
        self.base_width = base_width
        self.conv1 = nn.Conv2d(3, self.inplanes, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(self.inplanes)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._make_layer(block, planes[0], layers[0])
        self.layer2 = self._make_layer(block, planes[1], layers[1], stride=2)
        self.layer3 = self._make_layer(block, planes[2], layers[2], stride=2)
        self.layer4 = self._make_layer(block, planes[3], layers[3], stride=2, dilate=dilate_last)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(planes[3] * block.expansion, classes)


class NarrowSqueezeNet(squeezenet.SqueezeNet):
    """Both of SqueezeNet's pools that round up and the convolution as classifier, with few channels."""

    def __init__(self, classes=13):
        nn.Module.__init__(self)
        self.features = nn.Sequential(
            nn.Conv2d(3, 18, kernel_size=3, stride=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True),
            squeezenet.Fire(18, 6, 14, 14),
            squeezenet.Fire(28, 6, 14, 14),
            nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True),
            squeezenet.Fire(28, 8, 20, 20),
        )
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Conv2d(40, classes, kernel_size=1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((1, 1))
        )


class InceptionBranches(nn.Module):
    """Inception v3's factored convolutions and pooling side by side, and an even kernel whose padding is uneven (a Pad
    of its own). Widths of the results: width, width + 1, width + 2 and width."""

    def __init__(self, channels, width):
        super().__init__()
        self.branch1x1 = nn.Conv2d(channels, width, 1)
        self.branch1x7 = nn.Conv2d(channels, width, (1, 7), padding=(0, 3))
        self.branch7x1 = nn.Conv2d(width, width + 1, (7, 1), padding=(3, 0))
        self.pad = nn.ZeroPad2d((1, 2, 0, 1))
        self.branch2x4 = nn.Conv2d(channels, width + 2, (2, 4))
        self.branch_pool = nn.Conv2d(channels, width, 1)

    def forward(self, x):
        pooled = functional.avg_pool2d(x, kernel_size=3, stride=1, padding=1)
        factored = self.branch7x1(functional.relu(self.branch1x7(x)))
        return torch.cat([self.branch1x1(x), factored, self.branch2x4(self.pad(x)), self.branch_pool(pooled)], 1)


class Inception(nn.Module):
    """Poolings of every kind: padding counted or not, sizes rounded up or down, uneven kernels, dilation, a stride
    above the kernel, an adaptive pool to more than one element. Sizes below are for an image of 25 by 23."""

    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, 12, kernel_size=3, stride=2, padding=(2, 1))
        self.norm = nn.BatchNorm2d(12, eps=0.001)
        self.mixed_a = InceptionBranches(12, 8)
        self.mixed_b = InceptionBranches(35 + 2 * 12, 7)
        self.fc = nn.Linear(3 * 31 * 3, classes)

    def forward(self, x):
        x = functional.relu(self.norm(self.stem(x)))  # 14 by 12
        uncounted = functional.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
        maximum = functional.max_pool2d(x, 3, stride=2, padding=1, ceil_mode=True)  # 8 by 7
        x = functional.avg_pool2d(torch.cat([self.mixed_a(x), uncounted], 1), 3, stride=2, padding=1, ceil_mode=True)
        x = functional.relu(self.mixed_b(torch.cat([x, maximum], 1)))
        average = functional.avg_pool2d(x, (4, 3), stride=2)  # 3 by 3
        dilated = functional.max_pool2d(x, 2, stride=2, dilation=2)
        sparse = functional.max_pool2d(x, 1, stride=3)
        x = functional.adaptive_avg_pool2d(torch.cat([average, dilated, sparse], 1), (3, 1))
        return self.fc(torch.flatten(x, 1))


class DoubleConv(nn.Sequential):
    def __init__(self, channels, width, groups=None):
        def norm():
            return nn.GroupNorm(groups, width) if groups else nn.BatchNorm2d(width)

        super().__init__(
            nn.Conv2d(channels, width, 3, padding=1, bias=False),
            norm(),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            norm(),
            nn.ReLU(inplace=True),
        )


class UnetUp(nn.Module):
    """Transposed convolution, then padding to the size of the skip connection, as computed from the shapes."""

    def __init__(self, channels, width, **transposed):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, width, stride=2, **transposed)
        self.conv = DoubleConv(2 * width, width)

    def forward(self, x, skip):
        x = self.up(x)
        rows, columns = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
        x = functional.pad(x, [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2])
        return self.conv(torch.cat([skip, x], dim=1))


class Unet(nn.Module):
    """Two levels; every output pixel has a score for each class. One transposed convolution has the usual kernel of 2,
    the other overlaps, cuts its border and adds a row and a column on one side."""

    def __init__(self, width=8, classes=3):
        super().__init__()
        self.inc = DoubleConv(3, width)
        self.down1 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(width, 2 * width))
        self.down2 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(2 * width, 4 * width))
        self.up1 = UnetUp(4 * width, 2 * width, kernel_size=2)
        self.up2 = UnetUp(2 * width, width, kernel_size=3, padding=1, output_padding=1)
        self.outc = nn.Conv2d(width, classes, kernel_size=1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        return self.outc(self.up2(self.up1(x3, x2), x1))


class ResizeUnet(nn.Module):
    """The same with GroupNorm, LeakyReLU and interpolation: to the skip's size with and without aligned corners, and
    nearest by a factor. Two results: the scores at half the size, and at the image's."""

    def __init__(self, width=8, classes=3):
        super().__init__()
        self.inc = DoubleConv(3, width, groups=4)
        self.down1 = DoubleConv(width, 2 * width, groups=2)
        self.down2 = DoubleConv(2 * width, 2 * width, groups=8)
        self.up1 = DoubleConv(4 * width, width, groups=2)
        self.up2 = DoubleConv(2 * width, width, groups=8)
        self.refine = nn.Conv2d(width, classes, kernel_size=3, stride=2, padding=1)
        self.head = nn.Conv2d(width, classes, kernel_size=1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = functional.leaky_relu(self.down1(functional.max_pool2d(x1, 2)), 0.1)
        x3 = self.down2(functional.avg_pool2d(x2, 2))
        x = functional.interpolate(x3, size=x2.shape[-2:], mode="bilinear", align_corners=True)
        x = self.up1(torch.cat([x2, x], 1))
        x = functional.interpolate(x, size=x1.shape[-2:], mode="bilinear", align_corners=False)
        x = self.up2(torch.cat([x1, x], 1))
        coarse = self.refine(x)
        height, width = x.shape[-2:]
        return coarse, self.head(x) + functional.interpolate(coarse, scale_factor=2)[:, :, :height, :width]


# ---- the models -----------------------------------------------------------------------------------------------------


def images(batch, height, width):
    return lambda random: {"image": random.standard_normal((batch, 3, height, width)).astype(numpy.float32)}


def sentences(lengths, seq, vocab):
    """Token ids, 0 from each sentence's length on, and where there is a token."""

    def make(random):
        present = numpy.arange(seq) < numpy.array(lengths)[:, None]
        ids = random.integers(1, vocab, present.shape, dtype=numpy.int64)
        return numpy.where(present, ids, 0), present

    return make


def bert_inputs(random):
    ids, present = sentences([13, 5, 9], 13, 83)(random)
    types = (numpy.arange(ids.shape[1]) >= 4).astype(numpy.int64)
    return {"input_ids": ids, "attention_mask": present.astype(numpy.int64), "token_type_ids": types * present}


def additive_bert_inputs(random):
    """The mask as the first BERT added it: [batch, 1, 1, seq], with -10000 for padding."""
    inputs = bert_inputs(random)
    padding = 1 - inputs["attention_mask"][:, None, None, :].astype(numpy.float32)
    return {**inputs, "attention_mask": -10000 * padding}


def encoder_inputs(random):
    ids, present = sentences([7, 13], 13, 83)(random)
    return {"input_ids": ids, "padding": ~present}


def classifier(build, shape, **options):
    """A network from an image to logits; shape is (batch, height, width)."""
    return Spec(build, images(*shape), ("logits",), **options)


def swin(depths, version=1, **options):
    """Tokens are 8 by 7, then 4 by 4: windows of 3 by 4 need padding, and in the second stage no shift along the width.
    A stage's second block has the shift and its mask, which hundreds of nodes build at run time."""
    # With a bias for qkv, version 2 clears its middle third in place, which cannot be exported.
    attention = partial(swin_transformer.ShiftedWindowAttentionV2, qkv_bias=False)
    block2 = partial(swin_transformer.SwinTransformerBlockV2, attn_layer=attention)
    blocks = {1: swin_transformer.SwinTransformerBlock, 2: block2}
    merging = {1: swin_transformer.PatchMerging, 2: swin_transformer.PatchMergingV2}
    build = partial(
        swin_transformer.SwinTransformer,
        patch_size=[4, 4],
        embed_dim=12,
        depths=depths,
        num_heads=[2, 4],
        window_size=[3, 4],
        mlp_ratio=2.5,
        num_classes=9,
        block=blocks[version],
        downsample_layer=merging[version],
    )
    return classifier(build, (2, 33, 31), **options)


def mobilenet(**options):
    blocks = [
        # channels, kernel, expanded, out, squeeze and excite, RElu or Hard Swish, stride, dilation, width factor
        InvertedResidualConfig(8, 3, 8, 8, True, "RE", 2, 1, 1.0),
        InvertedResidualConfig(8, 3, 24, 16, False, "RE", 2, 1, 1.0),
        InvertedResidualConfig(16, 5, 40, 16, True, "HS", 1, 1, 1.0),
        InvertedResidualConfig(16, 5, 48, 24, True, "HS", 2, 2, 1.0),
    ]
    return classifier(lambda: MobileNetV3(blocks, last_channel=40, num_classes=12), (2, 33, 31), **options)


def shufflenet(**options):
    return classifier(lambda: ShuffleNetV2([2, 3, 1], [6, 12, 20, 28, 32], num_classes=10), (3, 33, 31), **options)


def convnext(**options):
    blocks = [CNBlockConfig(12, 20, 2), CNBlockConfig(20, None, 1)]
    return classifier(lambda: ConvNeXt(blocks, num_classes=7), (2, 33, 31), **options)


def resnet(**options):
    return classifier(lambda: NarrowResNet(BasicBlock, [2, 1, 1, 1], [10, 14, 18, 22]), (2, 33, 31), **options)


BATCH = {0: "batch"}
DYNAMIC_BATCH = {"image": BATCH, "logits": BATCH}
BATCH_SEQ = {0: "batch", 1: "seq"}
DYNAMIC_BERT = {
    "input_ids": BATCH_SEQ,
    "attention_mask": BATCH_SEQ,
    "token_type_ids": BATCH_SEQ,
    "last_hidden_state": BATCH_SEQ,
    "pooler_output": BATCH,
}
DYNAMIC_IMAGE = {0: "batch", 2: "height", 3: "width"}

MODELS = {
    "bert": Spec(
        BertModel,
        bert_inputs,
        ("last_hidden_state", "pooler_output"),
        opset=14,
        fold=False,
        dynamic=DYNAMIC_BERT,
    ),
    "bert_additive": Spec(BertModel, additive_bert_inputs, ("last_hidden_state", "pooler_output"), opset=17),
    "encoder_padding": Spec(
        PaddedEncoder, encoder_inputs, ("logits",), opset=12, dynamic={"input_ids": BATCH, "padding": BATCH}
    ),
    "vit": classifier(
        lambda: VisionTransformer(
            image_size=24, patch_size=6, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=56, num_classes=10
        ),
        (3, 24, 24),
        opset=14,
        fold=False,
        dynamic=DYNAMIC_BATCH,
    ),
    "vit_stem": classifier(
        lambda: VisionTransformer(
            image_size=20,
            patch_size=4,
            num_layers=2,
            num_heads=3,
            hidden_dim=36,
            mlp_dim=50,
            num_classes=10,
            representation_size=24,
            conv_stem_configs=[ConvStemConfig(8, 3, 2), ConvStemConfig(12, 3, 2)],
        ),
        (2, 20, 20),
        opset=17,
    ),
    "swin": swin([2, 1], opset=13, fold=False, dynamic=DYNAMIC_BATCH),
    "swin_static": swin([1, 2], opset=17),
    "swin_v2": swin([2, 1], version=2, opset=16, dynamic=DYNAMIC_BATCH),
    "resnet": resnet(opset=13, dynamic=DYNAMIC_BATCH),
    "resnet_bn": resnet(opset=11, fold=False, fuse=False, dynamic=DYNAMIC_BATCH),
    "resnet_bottleneck": classifier(
        lambda: NarrowResNet(Bottleneck, [1, 2, 1, 2], [6, 8, 10, 12], groups=2, base_width=40, dilate_last=True),
        (2, 33, 31),
        opset=15,
        fuse=False,
    ),
    "mobilenet_v3": mobilenet(opset=14, dynamic=DYNAMIC_BATCH),
    "mobilenet_v3_bn": mobilenet(opset=13, fold=False, fuse=False, dynamic=DYNAMIC_BATCH),
    "squeezenet": classifier(NarrowSqueezeNet, (3, 33, 32), opset=11),
    "shufflenet_v2": shufflenet(opset=12, fold=False, dynamic=DYNAMIC_BATCH),
    "shufflenet_v2_static": shufflenet(opset=16, fuse=False),
    "densenet": classifier(
        lambda: DenseNet(growth_rate=6, block_config=(2, 3, 2), num_init_features=10, bn_size=2, num_classes=8),
        (2, 33, 31),
        opset=12,
        dynamic=DYNAMIC_BATCH,
    ),
    "inception": classifier(Inception, (2, 25, 23), opset=11, fold=False, fuse=False, dynamic=DYNAMIC_BATCH),
    "convnext": convnext(opset=13, fold=False, dynamic=DYNAMIC_BATCH),
    "convnext_static": convnext(opset=17),
    "unet": Spec(Unet, images(2, 17, 19), ("scores",), opset=11, fuse=False, dynamic={"image": BATCH, "scores": BATCH}),
    "unet_resize": Spec(
        ResizeUnet,
        images(2, 17, 19),
        ("coarse", "scores"),
        opset=13,
        fold=False,
        dynamic={name: DYNAMIC_IMAGE for name in ("image", "coarse", "scores")},
    ),
}


if __name__ == "__main__":
    main(MODELS, "Export the vision models and encoders with reference inputs and outputs.")
