#!/usr/bin/python3
"""Quantised models against ONNX Runtime: values, memory and splits.

    quantised.py --rankc RANKC [--table FILE.md] [--keep DIR] [NAME...]
    quantised.py --record DIR

Makes four small models with random weights (GPT-2, BERT, Llama, ResNet), quantises each as onnxruntime.quantization does in
every form of the table FORMS, compiles and runs them, and compares with ONNX Runtime. A NAME is a model or a form. Results
must equal those of the graph as written (ONNX Runtime with optimisation off) within one unit of the last quantisation: its scale where the graph ends with one (qdq, qoperator), else 1/255
of the range of the result. The memory of weights is that of `rankc show`. Splits: tp 2 must equal one rank within the same
unit.

With --record, writes small models with inputs and ONNX Runtime's results for recorded.py, which the test suite runs.

Needs torch, transformers, torchvision, onnx, onnxscript and onnxruntime and gguf of today in the Python that runs it:

    python3 -m venv today && today/bin/pip install torch torchvision transformers onnx onnxscript onnxruntime gguf
    today/bin/python tests/quantised/quantised.py --rankc build/frontend/rankc --table docs/quantised-models.md"""
import argparse
import json
import logging
import os
import pathlib
import sys
import tempfile
import warnings

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, json_of, needed, outputs_of  # noqa: E402

with needed():
    import gguf
    import numpy as np
    import onnx
    import onnxruntime
    import torch
    import torchvision
    import transformers
    from onnxruntime.quantization import (CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic,
                                          quantize_static)
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

SAMPLES = 4
TOKENS = 16
SPREAD = 0.1  # of weights: activations then are of the order of 1, as in trained models, and norms do not amplify steps


class Logits(torch.nn.Module):
    """A language model's scores alone, of whole sequences: no cache."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, use_cache=False)[0]


def language(model, vocabulary=512):
    return Logits(model.eval()), ["input_ids"], \
        lambda random: [random.integers(0, vocabulary, (2, TOKENS)).astype(np.int64)]


class Linear(torch.nn.Module):
    """GPT-2's Conv1D as a product and a sum, which the quantiser to few bits knows; it does not know Gemm."""

    def __init__(self, of):
        super().__init__()
        self.weight, self.bias = of.weight, of.bias

    def forward(self, x):
        return torch.matmul(x, self.weight) + self.bias


def as_products(model, vocabulary):
    for block in model.transformer.h:
        for part, name in [(block.attn, "c_attn"), (block.attn, "c_proj"), (block.mlp, "c_fc"), (block.mlp, "c_proj")]:
            setattr(part, name, Linear(getattr(part, name)))
    return language(model, vocabulary)


def gpt2():
    config = transformers.GPT2Config(vocab_size=512, n_positions=64, n_embd=128, n_layer=2, n_head=4,
                                     initializer_range=SPREAD)
    return as_products(transformers.GPT2LMHeadModel(config), 512)


def bert():
    config = transformers.BertConfig(vocab_size=512, hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
                                     intermediate_size=512, max_position_embeddings=64,
                                     initializer_range=SPREAD)
    return language(transformers.BertModel(config))


def llama():
    config = transformers.LlamaConfig(vocab_size=512, hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, intermediate_size=352,
                                      max_position_embeddings=64, initializer_range=SPREAD)
    return language(transformers.LlamaForCausalLM(config))


def resnet():
    model = torchvision.models.ResNet(torchvision.models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=10)
    return model.eval(), ["image"], lambda random: [random.standard_normal((1, 3, 64, 64)).astype(np.float32)]


MODELS = [gpt2, bert, llama, resnet]


class Samples(CalibrationDataReader):
    def __init__(self, names, draw):
        random = np.random.default_rng(7)
        self.left = [dict(zip(names, draw(random))) for _ in range(SAMPLES)]

    def get_next(self):
        return self.left.pop() if self.left else None


def static(form):
    def quantise(source, target, names, draw):
        quantize_static(source, target, Samples(names, draw), quant_format=form, per_channel=form == QuantFormat.QDQ,
                        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    return quantise


def dynamic(source, target, names, draw):
    quantize_dynamic(source, target, weight_type=QuantType.QInt8)


def nbits(bits, symmetric, form):
    def quantise(source, target, names, draw):
        quantizer = MatMulNBitsQuantizer(onnx.load(source), bits=bits, block_size=32, is_symmetric=symmetric,
                                         quant_format=form)
        quantizer.process()
        quantizer.model.save_model_to_file(target)
    return quantise


def rounded(kind):
    """Weights of products and tables as llama.cpp's type keeps them, integers in groups of 32 inputs."""
    def quantise(source, target, names, draw):
        model = onnx.load(source)
        turned = {node.input[1]: node.op_type == "MatMul" for node in model.graph.node if node.op_type in ("MatMul", "Gemm")}
        turned.update({node.input[0]: False for node in model.graph.node if node.op_type == "Gather"})
        for tensor in model.graph.initializer:
            value = onnx.numpy_helper.to_array(tensor)
            if tensor.name not in turned or value.ndim != 2 or value.dtype != np.float32:
                continue
            by_output = value.T if turned[tensor.name] else value
            codes = gguf.quants.quantize(np.ascontiguousarray(by_output), kind)
            kept = gguf.quants.dequantize(codes, kind).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(kept.T if turned[tensor.name] else kept), tensor.name))
        onnx.save(model, target)
    return quantise


FORMS = {"f32": None, "qdq": static(QuantFormat.QDQ), "qoperator": static(QuantFormat.QOperator), "dynamic": dynamic,
         "nbits4": nbits(4, True, QuantFormat.QOperator), "nbits4-zero": nbits(4, False, QuantFormat.QOperator),
         "q8_0": rounded(gguf.GGMLQuantizationType.Q8_0), "nbits8": nbits(8, True, QuantFormat.QOperator), "nbits4-qdq": nbits(4, True, QuantFormat.QDQ),
         "bf16": rounded(gguf.GGMLQuantizationType.BF16), "fp16": rounded(gguf.GGMLQuantizationType.F16)}


def run(rankc, model, work, inputs, plan):
    out = os.path.join(work, "out")
    call(rankc, "compile", model, "-o", work, "-q", "--reuse", "override", *plan)
    call(rankc, "run", work, "--threads", "1", "--output-dir", out, *(f"--input={name}={path}" for name, path in inputs.items()))
    value, shown = next(iter(outputs_of(out).values())), json_of(rankc, "show", "--json", work)
    return value, [rank["memory"]["weights"] for rank in shown["ranks"]], {node["op"] for node in shown["nodes"]}


def last_scale(path):
    """The scale of the quantisation that the first output is dequantised from; None: it is not."""
    graph = onnx.load(path).graph
    made = {out: node for node in graph.node for out in node.output}
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    node = made.get(graph.output[0].name)
    return float(np.max(values[node.input[1]])) if node is not None and node.op_type == "DequantizeLinear" else None


def export(make, path):
    torch.manual_seed(0)
    module, names, draw = make()
    example = tuple(torch.from_numpy(value) for value in draw(np.random.default_rng(0)))
    torch.onnx.export(module, example, path, input_names=names, opset_version=21, dynamo=True, verbose=False,
                      external_data=False)
    model = onnx.load(path)
    del model.graph.value_info[:]  # the quantisers change weights, but not the declared shapes
    onnx.save(model, path)
    return names, draw


def stored_bytes(path):
    """What the file stores: initializers with more than one element."""
    return sum(len(tensor.raw_data) for tensor in onnx.load(path).graph.initializer if tensor.ByteSize() > 16)


def peer(path, level, inputs):
    """The first output by ONNX Runtime at that level of optimisation."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0].astype(np.float64)


def check(args, name, form, path, names, draw, directory):
    values = draw(np.random.default_rng(3))
    inputs = {}
    for input_name, value in zip(names, values):
        inputs[input_name] = os.path.join(directory, f"{input_name}.npy")
        np.save(inputs[input_name], value)
    written, fused = (peer(path, level, dict(zip(names, values))) for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"))
    unit = last_scale(path) or float(written.max() - written.min()) / 255
    one, weights, ops = run(args.rankc, path, os.path.join(directory, "one"), inputs, [])
    two, parts, _ = run(args.rankc, path, os.path.join(directory, "two"), inputs, ["--pas", "tp", "--plan-ngpus", "2"])
    off, off_fused = (float(np.abs(one - expected).max()) / unit for expected in (written, fused))
    apart = float(np.abs(two.astype(np.float64) - one).max()) / unit
    products = sorted(ops & {"IntMatMul", "IntConv", "DequantMatMul", "MatMul", "Conv"})
    return off, off_fused, apart, weights[0], max(parts), stored_bytes(path), products


def tiny_gpt2():
    config = transformers.GPT2Config(vocab_size=96, n_positions=16, n_embd=64, n_layer=1, n_head=4, n_inner=128,
                                     initializer_range=SPREAD)
    return as_products(transformers.GPT2LMHeadModel(config), 96)


def tiny_cnn():
    """Convolutions, one of them in groups, between pools, and a product."""
    layers = [torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
              torch.nn.Conv2d(16, 32, 3, stride=2, padding=1), torch.nn.ReLU(),
              torch.nn.Conv2d(32, 32, 3, padding=1, groups=4), torch.nn.Sigmoid(), torch.nn.AdaptiveAvgPool2d(1),
              torch.nn.Flatten(), torch.nn.Linear(32, 10)]
    return torch.nn.Sequential(*layers).eval(), ["image"], \
        lambda random: [random.standard_normal((2, 3, 17, 19)).astype(np.float32)]


RECORDED = {tiny_gpt2: ["qdq", "qoperator", "dynamic", "nbits4-zero", "nbits8", "nbits4-qdq", "nbits4", "q8_0", "bf16", "fp16"],
            tiny_cnn: ["qdq", "qoperator", "dynamic"]}


# Forms that rankc itself makes of the model before quantisation. The quantiser to few bits leaves tables as they are.
OPTIONS = {"nbits4": ["--weight-dtype", "*matmul*=int4,node_linear=int4"], "q8_0": ["--weight-dtype", "int8"],
           "bf16": ["--weight-dtype", "bf16"], "fp16": ["--weight-dtype", "fp16"]}
# The part of the stored bytes that weights take then, and the unit where nothing but weights is rounded, in ranges of the result.
PARTS, EXACT = {"q8_0": 9 / 32, "bf16": 1 / 2, "fp16": 1 / 2}, {"bf16": 2**-17, "fp16": 2**-17}


def record(root, chosen):
    for make, forms in RECORDED.items():
        with tempfile.TemporaryDirectory(prefix="rankc-quantised-") as temporary:
            source = os.path.join(temporary, "f32.onnx")
            names, draw = export(make, source)
            values = draw(np.random.default_rng(3))
            for form in [form for form in forms if form in (chosen or forms)]:
                directory = os.path.join(root, f"{make.__name__}-{form}")
                os.makedirs(directory, exist_ok=True)
                path = os.path.join(temporary, f"{form}.onnx")
                FORMS[form](source, path, names, draw)
                stored = stored_bytes(path) * PARTS.get(form, 1)
                small = onnx.load(source if form in OPTIONS else path)
                del small.graph.value_info[:]
                for node in small.graph.node:
                    del node.metadata_props[:]
                    node.doc_string = ""
                onnx.save(small, os.path.join(directory, "model.onnx"))
                for name, value in zip(names, values):
                    np.save(os.path.join(directory, f"{name}.npy"), value)
                expected = peer(path, "ORT_DISABLE_ALL", dict(zip(names, values)))
                np.save(os.path.join(directory, "expected.npy"), expected.astype(np.float32))
                unit = last_scale(path) or float(expected.max() - expected.min()) * EXACT.get(form, 1 / 255)
                with open(os.path.join(directory, "expected.json"), "w") as file:
                    json.dump({"inputs": names, "unit": unit, "stored": stored, "options": OPTIONS.get(form, [])}, file)
                    file.write("\n")


TABLE = """| model | form | off | off, fused | tp 2 | file | weights | weights, tp 2 | products |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", default="rankc")
    parser.add_argument("--record", metavar="DIR", help="with NAMEs, of those forms")
    parser.add_argument("--table", metavar="FILE", help="the page of which the table is written")
    parser.add_argument("--keep", metavar="DIR", help="writes the models there")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if args.record:
        return record(args.record, args.names)
    rows, failed = [], 0
    with tempfile.TemporaryDirectory(prefix="rankc-quantised-") as temporary:
        root = args.keep or temporary
        chosen = [model for model in MODELS if model.__name__ in args.names] or MODELS
        for make in chosen:
            directory = os.path.join(root, make.__name__)
            os.makedirs(directory, exist_ok=True)
            source = os.path.join(directory, "f32.onnx")
            names, draw = export(make, source)
            for form, quantise in FORMS.items():
                if set(args.names) & set(FORMS) and form not in args.names:
                    continue
                path = os.path.join(directory, f"{form}.onnx")
                if quantise:
                    quantise(source, path, names, draw)
                work = os.path.join(directory, form)
                os.makedirs(work, exist_ok=True)
                try:
                    off, off_fused, apart, weights, part, stored, products = check(args, make.__name__, form, path, names, draw, work)
                    bad = off > 1.001 or apart > 1.001  # in f32, a step is not exactly one
                    row = f"{off:.3f} | {off_fused:.3f} | {apart:.3f} | {stored} | {weights} | {part} | {', '.join(products)}"
                except RuntimeError as error:
                    bad, row = True, f"{error} | | | | | |"
                failed += bad
                rows.append(f"| {make.__name__} | {form} | {row} |")
                print(rows[-1] + (" FAILED" if bad else ""), flush=True)
    if args.table:
        page = pathlib.Path(args.table)  # what is above the table stays
        page.write_text(page.read_text().split(TABLE)[0] + TABLE + "\n".join(rows) + "\n")
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
