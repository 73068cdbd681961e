#!/usr/bin/env python3
"""Writes the ONNX models of the benchmarks: models.py NAME DIRECTORY makes DIRECTORY/NAME.onnx and its
inputs, NAME.x.npy and for training NAME.labels.npy.

Weights are random, the structure is what exporters write: GPT-2 with its decomposed tanh GELU and a fused or decomposed
LayerNormalization, Llama with everything decomposed, ResNet-50 with separate BatchNormalization. Models for GPUs (sizes.py) have
their weights in NAME.weights beside them, where NAME.weights.json says. Needs onnx and numpy."""
import functools
import json
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from sizes import SIZES, Size

OPSET = 17


class Model:
    """A graph under construction. Methods that add a node return the name of its output."""

    def __init__(self, beside=None):
        """beside: the file that takes the weights; without, the model does."""
        self.nodes, self.weights, self.beside, self.places = [], [], beside, {}
        self.random = np.random.default_rng(0)

    def parameter(self, value, name):
        value = np.ascontiguousarray(value)
        self.weights.append(self.placed(value, name) if self.beside else numpy_helper.from_array(value, name))
        return name

    def placed(self, value, name):
        """A tensor of f32 whose data go to the file."""
        self.places[name] = {"offset": self.beside.tell(), "shape": value.shape}
        tensor = TensorProto(name=name, dims=value.shape, data_type=TensorProto.FLOAT,
                             data_location=TensorProto.EXTERNAL)
        for key, text in (("location", os.path.basename(self.beside.name)), ("offset", str(self.beside.tell())),
                          ("length", str(value.nbytes))):
            tensor.external_data.add(key=key, value=text)
        value.tofile(self.beside)
        return tensor

    def constant(self, value):
        """A node, as exporters write them: initializers are what training changes."""
        return self.add("Constant", value=numpy_helper.from_array(np.ascontiguousarray(value)))

    def scalar(self, value):
        return self.constant(np.array(value, np.float32))

    def integers(self, *values):
        return self.constant(np.array(values, np.int64))

    def weight(self, name, shape, scale):
        return self.parameter(self.random.standard_normal(shape, dtype=np.float32) * np.float32(scale), name)

    def add(self, op, *inputs, outputs=1, **attributes):
        number = len(self.nodes)
        names = [f"{op}{number}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"{op}{number}", **attributes))
        return names[0] if outputs == 1 else names

    def save(self, directory, name, output, shape, batch=None, **inputs):
        """inputs: an array each, of which the model takes `batch` samples at a time (None: all); output: the node output
        that is the model's, of that shape."""
        kinds = {np.dtype("i8"): TensorProto.INT64, np.dtype("f4"): TensorProto.FLOAT}
        infos = [helper.make_tensor_value_info(key, kinds[value.dtype], (batch or len(value),) + value.shape[1:])
                 for key, value in inputs.items()]
        graph = helper.make_graph(self.nodes, name, infos,
                                  [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 8
        for key, value in inputs.items():
            np.save(f"{directory}/{name}.{key}.npy", value)
        onnx.save(model, f"{directory}/{name}.onnx")


def linear(model, x, name, rows, columns):
    product = model.add("MatMul", x, model.weight(f"{name}.w", (rows, columns), 0.02))
    return model.add("Add", product, model.weight(f"{name}.b", (columns,), 0.01))


def layer_norm(model, x, name, width):
    scale = model.parameter(np.ones(width, np.float32), f"{name}.g")
    return model.add("LayerNormalization", x, scale, model.weight(f"{name}.b", (width,), 0.01), axis=-1, epsilon=1e-5)


def layer_norm_decomposed(model, x, name, width):
    scale = model.parameter(np.ones(width, np.float32), f"{name}.g")
    centred = model.add("Sub", x, model.add("ReduceMean", x, axes=[-1], keepdims=1))
    square = model.add("Pow", centred, model.scalar(2))
    variance = model.add("ReduceMean", square, axes=[-1], keepdims=1)
    deviation = model.add("Sqrt", model.add("Add", variance, model.scalar(1e-5)))
    normal = model.add("Mul", model.add("Div", centred, deviation), scale)
    return model.add("Add", normal, model.weight(f"{name}.b", (width,), 0.01))


def tanh_gelu(model, x):
    cube = model.add("Mul", model.add("Pow", x, model.scalar(3)), model.scalar(0.044715))
    inner = model.add("Mul", model.add("Add", x, cube), model.scalar(np.sqrt(2 / np.pi)))
    half = model.add("Mul", x, model.scalar(0.5))
    return model.add("Mul", half, model.add("Add", model.add("Tanh", inner), model.scalar(1)))


def attention(model, x, mask, name, batch, length, width, heads):
    def split_heads(part, order):
        return model.add("Transpose", model.add("Reshape", part, by_head), perm=order)

    size = width // heads
    by_head = model.integers(batch, length, heads, size)
    qkv = linear(model, x, f"{name}.qkv", width, 3 * width)
    q, k, v = model.add("Split", qkv, model.integers(width, width, width), outputs=3, axis=2)
    scores = model.add("MatMul", split_heads(q, [0, 2, 1, 3]), split_heads(k, [0, 2, 3, 1]))
    scaled = model.add("Mul", scores, model.scalar(1 / np.sqrt(size)))
    weights = model.add("Softmax", model.add("Add", scaled, mask) if mask else scaled, axis=-1)
    mixed = model.add("Transpose", model.add("MatMul", weights, split_heads(v, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
    joined = model.add("Reshape", mixed, model.integers(batch, length, width))
    return linear(model, joined, f"{name}.proj", width, width)


def save_training(model, directory, name, logits, vocabulary, batch, given):
    """Labels go in too, the next tokens; the mean cross entropy comes out."""
    logits = model.add("Reshape", logits, model.integers(-1, vocabulary))
    loss = model.add("SoftmaxCrossEntropyLoss", logits, model.add("Reshape", "labels", model.integers(-1)))
    model.save(directory, name, loss, (), batch, x=given, labels=np.roll(given, -1))


def last_token(model, x, length):
    return model.add("Gather", x, model.integers(length - 1), axis=1)


def gpt2(directory, name, layers, vocabulary=0, batch=1, length=128, width=768, heads=12, norm=layer_norm, samples=0, beside=None, last=False):
    """The transformer stack of GPT-2 small; with a vocabulary, token ids go in and logits come out (tied weights), those of the `last`
    token; with samples to train on, labels go in too and the mean cross entropy comes out."""
    model = Model(beside)
    mask = model.constant(np.triu(np.full((length, length), -1e9, np.float32), 1)[None, None])
    if vocabulary:
        given = model.random.integers(0, vocabulary, (samples or batch, length))
        tokens = model.add("Gather", model.weight("wte", (vocabulary, width), 0.02), "x", axis=0)
        x = model.add("Add", tokens, model.weight("wpe", (length, width), 0.02))
    else:
        given = model.random.standard_normal((batch, length, width), dtype=np.float32)
        x = "x"
    for layer in range(layers):
        block = f"h{layer}"
        normal = norm(model, x, f"{block}.ln1", width)
        x = model.add("Add", x, attention(model, normal, mask, block, batch, length, width, heads))
        normal = norm(model, x, f"{block}.ln2", width)
        hidden = tanh_gelu(model, linear(model, normal, f"{block}.fc", width, 4 * width))
        x = model.add("Add", x, linear(model, hidden, f"{block}.fc2", 4 * width, width))
    if last:
        x = last_token(model, x, length)
    x = norm(model, x, "lnf", width)
    if vocabulary:
        x = model.add("MatMul", x, model.add("Transpose", "wte", perm=[1, 0]))
    if not samples:
        model.save(directory, name, x, (batch, 1 if last else length, vocabulary or width), x=given)
    else:
        save_training(model, directory, name, x, vocabulary, batch, given)
    return model


def rms_norm(model, x, name, width):
    square = model.add("ReduceMean", model.add("Pow", x, model.scalar(2)), axes=[-1], keepdims=1)
    root = model.add("Sqrt", model.add("Add", square, model.scalar(1e-5)))
    normal = model.add("Mul", x, model.add("Div", model.scalar(1), root))
    return model.add("Mul", model.parameter(np.ones(width, np.float32), f"{name}.g"), normal)


def projection(model, x, name, rows, columns):
    return model.add("MatMul", x, model.weight(f"{name}.w", (rows, columns), 0.02))


def rotary_tables(length, size):
    """Cosines and sines (length,size) of Llama's angles, halves alike."""
    angles = np.outer(np.arange(length), 1e4 ** (-np.arange(0, size, 2) / size))
    angles = np.concatenate([angles, angles], 1).astype(np.float32)
    return np.cos(angles), np.sin(angles)


def rotated(model, x, tables, size):
    def part(begin, end):
        return model.add("Slice", x, *(model.integers(n) for n in (begin, end, 3, 1)))

    turned = model.add("Concat", model.add("Neg", part(size // 2, size)), part(0, size // 2), axis=-1)
    return model.add("Add", model.add("Mul", x, tables[0]), model.add("Mul", turned, tables[1]))


def repeated(model, x, batch, kv_heads, group, length, size):
    """Every head of keys or values for `group` heads of queries."""
    x = model.add("Unsqueeze", x, model.integers(2))
    x = model.add("Expand", x, model.integers(batch, kv_heads, group, length, size))
    return model.add("Reshape", x, model.integers(batch, kv_heads * group, length, size))


def llama_attention(model, x, mask, tables, name, size):
    head = size.width // size.heads

    def heads_of(part, n):
        part = projection(model, x, f"{name}.{part}", size.width, n * head)
        return model.add("Transpose", model.add("Reshape", part, model.integers(size.batch, size.length, n, head)), perm=[0, 2, 1, 3])

    def for_all(part):
        return repeated(model, part, size.batch, size.kv_heads, size.heads // size.kv_heads, size.length, head)

    q, k = rotated(model, heads_of("q", size.heads), tables, head), rotated(model, heads_of("k", size.kv_heads), tables, head)
    keys = model.add("Transpose", for_all(k), perm=[0, 1, 3, 2])
    scores = model.add("Mul", model.add("MatMul", q, keys), model.scalar(head ** -0.5))
    weights = model.add("Softmax", model.add("Add", scores, mask), axis=-1)
    mixed = model.add("Transpose", model.add("MatMul", weights, for_all(heads_of("v", size.kv_heads))), perm=[0, 2, 1, 3])
    return projection(model, model.add("Reshape", mixed, model.integers(size.batch, size.length, size.width)), f"{name}.o", size.width,
                      size.width)


def llama(directory, name, size, samples, beside=None, last=False):
    """With samples to train on, token ids and labels go in and the mean cross entropy comes out, else logits, those of the `last`
    token."""
    model = Model(beside)
    given = model.random.integers(0, size.vocabulary, (samples or size.batch, size.length))
    mask = model.constant(np.triu(np.full((size.length, size.length), -1e9, np.float32), 1)[None, None])
    tables = [model.constant(table[None, None]) for table in rotary_tables(size.length, size.width // size.heads)]
    x = model.add("Gather", model.weight("wte", (size.vocabulary, size.width), 0.02), "x", axis=0)
    for layer in range(size.layers):
        block = f"h{layer}"
        normal = rms_norm(model, x, f"{block}.ln1", size.width)
        x = model.add("Add", x, llama_attention(model, normal, mask, tables, block, size))
        normal = rms_norm(model, x, f"{block}.ln2", size.width)
        gate, up = (projection(model, normal, f"{block}.{part}", size.width, size.hidden) for part in ("gate", "up"))
        gated = model.add("Mul", model.add("Mul", gate, model.add("Sigmoid", gate)), up)
        x = model.add("Add", x, projection(model, gated, f"{block}.down", size.hidden, size.width))
    if last:
        x = last_token(model, x, size.length)
    logits = projection(model, rms_norm(model, x, "lnf", size.width), "head", size.width, size.vocabulary)
    if samples:
        save_training(model, directory, name, logits, size.vocabulary, size.batch, given)
    else:
        model.save(directory, name, logits, (size.batch, 1 if last else size.length, size.vocabulary), x=given)
    return model


def sized(directory, name, samples=8):
    """A model of sizes.py, with batches enough to train on."""
    size = SIZES[name]
    with open(f"{directory}/{name}.weights", "wb") as beside:
        last, samples = bool(size.vocabulary and not size.trains), samples * size.trains
        if size.decodes or size.kind == "bert":
            import gpu_models
            model = gpu_models.write(directory, name, size, beside)
        elif size.kind == "resnet50":
            model = resnet50(directory, name, size.batch, size.length, beside=beside)
        elif size.kind == "llama":
            model = llama(directory, name, size, samples * size.batch, beside, last)
        else:
            model = gpt2(directory, name, size.layers, size.vocabulary, size.batch, size.length, size.width, size.heads,
                         samples=samples * size.batch, beside=beside, last=last)
    with open(f"{directory}/{name}.weights.json", "w") as places:
        json.dump(model.places, places)


def convolution(model, x, label, inputs, outputs, kernel, stride, activation="Relu", groups=1):
    """With a BatchNormalization of its own behind it, and an activation unless it is None."""
    filters = model.weight(f"{label}.w", (outputs, inputs // groups, kernel, kernel), (2 * groups / (inputs * kernel**2)) ** 0.5)
    x = model.add("Conv", x, filters, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4, group=groups)
    one, zero = np.ones(outputs, np.float32), np.zeros(outputs, np.float32)
    statistics = [model.parameter(v, f"{label}.{s}") for s, v in
                  (("g", one), ("b", zero), ("m", zero), ("v", one))]
    x = model.add("BatchNormalization", x, *statistics, epsilon=1e-5)
    return model.add(activation, x) if activation else x


def classified(model, directory, name, x, channels, batch, size, samples):
    """The mean of every channel, a linear layer and 1000 classes; with samples to train on, labels go in and the mean cross
    entropy comes out."""
    x = model.add("Flatten", model.add("GlobalAveragePool", x), axis=1)
    x = model.add("Gemm", x, model.weight("fc.w", (1000, channels), 0.02), model.weight("fc.b", (1000,), 0.01), transB=1)
    images = model.random.standard_normal((samples or batch, 3, size, size), dtype=np.float32)
    if not samples:
        model.save(directory, name, x, (batch, 1000), x=images)
        return
    loss = model.add("SoftmaxCrossEntropyLoss", x, "labels")
    model.save(directory, name, loss, (), batch, x=images, labels=model.random.integers(0, 1000, samples))


def resnet50(directory, name, batch=1, size=224, samples=0, beside=None):
    model = Model(beside)

    def bottleneck(x, label, inputs, width, stride, projected):
        skip = convolution(model, x, f"{label}.skip", inputs, 4 * width, 1, stride, None) if projected else x
        y = convolution(model, x, f"{label}.1", inputs, width, 1, 1)
        y = convolution(model, y, f"{label}.2", width, width, 3, stride)
        y = convolution(model, y, f"{label}.3", width, 4 * width, 1, 1, None)
        return model.add("Relu", model.add("Add", y, skip))

    x = convolution(model, "x", "stem", 3, 64, 7, 2)
    x = model.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for stage, (blocks, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)]):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            x = bottleneck(x, f"s{stage}.{block}", channels, width, stride, block == 0)
            channels = 4 * width
    classified(model, directory, name, x, channels, batch, size, samples)
    return model


def mobilenet(directory, name, batch, size, samples=0):
    """MobileNet v2 (arXiv 1801.04381, table 2), with ReLU in place of ReLU6."""
    model = Model()
    x = convolution(model, "x", "stem", 3, 32, 3, 2)
    channels = 32
    for stage, (expansion, width, blocks, stride) in enumerate([(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
                                                                (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]):
        for block in range(blocks):
            label, hidden, step = f"s{stage}.{block}", channels * expansion, stride if block == 0 else 1
            y = convolution(model, x, f"{label}.1", channels, hidden, 1, 1) if expansion > 1 else x
            y = convolution(model, y, f"{label}.2", hidden, hidden, 3, step, groups=hidden)
            y = convolution(model, y, f"{label}.3", hidden, width, 1, 1, None)
            x = model.add("Add", x, y) if step == 1 and channels == width else y
            channels = width
    x = convolution(model, x, "last", channels, 1280, 1, 1)
    classified(model, directory, name, x, 1280, batch, size, samples)


def one_block(directory, name, body, shape=(4096, 1024)):
    model = Model()
    x = model.random.standard_normal(shape, dtype=np.float32)
    model.save(directory, name, body(model, shape[-1]), shape, x=x)


def chain(model, width):
    """20 elementwise operators, all but Relu with a vector as second operand."""
    x = "x"
    for i in range(20):
        op = ("Add", "Mul", "Sub", "Relu")[i % 4]
        x = model.add(op, x) if op == "Relu" else model.add(op, x, model.weight(f"w{i}", (width,), 0.1))
    return x


SMALL = {
    "gpt2": lambda *at, samples: gpt2(*at, layers=4, width=512, heads=8, vocabulary=8192, batch=4, samples=samples),
    "llama": lambda *at, samples: llama(*at, Size("llama", 4, 512, 8, 4, 128, 8192, kv_heads=4, hidden=1376), samples),
    "resnet": functools.partial(resnet50, batch=4, size=112),
    "mobilenet": functools.partial(mobilenet, batch=4, size=160),
}
MODELS = {
    "gpt2_2": lambda *at: gpt2(*at, layers=2),
    "gpt2_12": lambda *at: gpt2(*at, layers=12),
    "gpt2_24": lambda *at: gpt2(*at, layers=24),
    "gpt2_lm": lambda *at: gpt2(*at, layers=12, vocabulary=50257),
    "gpt2_lm_512": lambda *at: gpt2(*at, layers=12, vocabulary=50257, length=512),
    "llama_4": lambda *at: llama(*at, Size("llama", 4, 2048, 32, 1, 128, 32000, kv_heads=4, hidden=5632), 0),
    "llama_8": lambda *at: llama(*at, Size("llama", 8, 1024, 16, 1, 128, 8192, kv_heads=4, hidden=2752), 0),
    "llama_8_512": lambda *at: llama(*at, Size("llama", 8, 1024, 16, 1, 512, 8192, kv_heads=4, hidden=2752), 0),
    "gpt2_train": lambda *at: gpt2(*at, layers=12, vocabulary=50257, batch=4, length=64, samples=64),
    "gpt2_train_half": lambda *at: gpt2(*at, layers=12, vocabulary=50257, batch=2, length=64, samples=64),
    "gpt2_decomposed": lambda *at: gpt2(*at, layers=12, norm=layer_norm_decomposed),
    "resnet50": resnet50,
    # for comparing predicted times with measured ones (predictions.py): some tens of milliseconds
    **{f"small_{kind}{ending}": functools.partial(write, samples=samples)
       for ending, samples in (("", 0), ("_train", 32)) for kind, write in SMALL.items()},
    "chain20": lambda *at: one_block(*at, chain),
    "gelu": lambda *at: one_block(*at, lambda model, width: tanh_gelu(model, "x")),
    "layernorm": lambda *at: one_block(*at, lambda model, width: layer_norm_decomposed(model, "x", "ln", width)),
    "softmax": lambda *at: one_block(*at, lambda model, width: model.add("Softmax", "x", axis=-1)),
    **dict.fromkeys(SIZES, sized),
}

if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in MODELS:
        sys.exit(f"usage: models.py {'|'.join(MODELS)} DIRECTORY")
    MODELS[sys.argv[1]](sys.argv[2], sys.argv[1])
