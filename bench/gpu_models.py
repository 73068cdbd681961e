"""ONNX models of inference on GPUs, for sizes.py: an encoder, and decoders with caches as the outputs of a step that the next reads, with
ONNX's Attention, RotaryEmbedding and RMSNormalization. models.py writes them."""
import numpy as np
from onnx import TensorProto, helper

import models

OPSET = 23 # of Attention


def bert(model, size):
    """Token ids to hidden states; norms behind the residuals."""
    given = model.random.integers(0, size.vocabulary, (size.batch, size.length))
    words = model.add("Gather", model.weight("words", (size.vocabulary, size.width), 0.02), "x", axis=0)
    x = model.add("Add", words, model.weight("positions", (size.length, size.width), 0.02))
    x = models.layer_norm(model, x, "norm", size.width)
    for layer in range(size.layers):
        block = f"h{layer}"
        attended = models.attention(model, x, None, block, size.batch, size.length, size.width, size.heads)
        x = models.layer_norm(model, model.add("Add", x, attended), f"{block}.ln1", size.width)
        hidden = models.linear(model, x, f"{block}.fc", size.width, 4 * size.width)
        bell = model.add("Add", model.add("Erf", model.add("Mul", hidden, model.scalar(0.5 ** 0.5))), model.scalar(1))
        hidden = model.add("Mul", model.add("Mul", hidden, model.scalar(0.5)), bell)
        x = models.layer_norm(model, model.add("Add", x, models.linear(model, hidden, f"{block}.fc2", 4 * size.width, size.width)),
                              f"{block}.ln2", size.width)
    return x, given


def cached_attention(model, q, k, v, layer, size):
    """Of heads as columns, behind what the cache has."""
    past = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
    present = [f"present.{layer}.{part}" for part in ("key", "value")]
    y = f"h{layer}.attended"
    model.nodes.append(helper.make_node("Attention", [q, k, v, "", *past], [y, *present], name=f"h{layer}.attention", is_causal=1,
                                        q_num_heads=size.heads, kv_num_heads=size.kv_heads or size.heads))
    return y


def rms_norm(model, x, name, width):
    return model.add("RMSNormalization", x, model.parameter(np.ones(width, np.float32), f"{name}.g"), epsilon=1e-5)


def gpt2_step(model, size):
    x = model.add("Add", model.add("Gather", model.weight("wte", (size.vocabulary, size.width), 0.02), "input_ids", axis=0),
                  model.add("Gather", model.weight("wpe", (size.length, size.width), 0.02), "position_ids", axis=0))
    for layer in range(size.layers):
        block = f"h{layer}"
        qkv = models.linear(model, models.layer_norm(model, x, f"{block}.ln1", size.width), f"{block}.qkv", size.width, 3 * size.width)
        parts = model.add("Split", qkv, model.integers(*[size.width] * 3), outputs=3, axis=2)
        x = model.add("Add", x, models.linear(model, cached_attention(model, *parts, layer, size), f"{block}.proj", size.width, size.width))
        hidden = models.tanh_gelu(model, models.linear(model, models.layer_norm(model, x, f"{block}.ln2", size.width), f"{block}.fc",
                                                       size.width, 4 * size.width))
        x = model.add("Add", x, models.linear(model, hidden, f"{block}.fc2", 4 * size.width, size.width))
    return model.add("MatMul", models.layer_norm(model, x, "lnf", size.width), model.add("Transpose", "wte", perm=[1, 0]))


def llama_step(model, size):
    head = size.width // size.heads
    tables = [model.constant(table[:, :head // 2]) for table in models.rotary_tables(size.length, head)]
    x = model.add("Gather", model.weight("wte", (size.vocabulary, size.width), 0.02), "input_ids", axis=0)

    def heads_of(part, normal, block, n, turns):
        y = models.projection(model, normal, f"{block}.{part}", size.width, n * head)
        return model.add("RotaryEmbedding", y, *tables, "position_ids", num_heads=n) if turns else y

    for layer in range(size.layers):
        block = f"h{layer}"
        normal = rms_norm(model, x, f"{block}.ln1", size.width)
        parts = [heads_of("q", normal, block, size.heads, True), heads_of("k", normal, block, size.kv_heads, True),
                 heads_of("v", normal, block, size.kv_heads, False)]
        x = model.add("Add", x, models.projection(model, cached_attention(model, *parts, layer, size), f"{block}.o", size.width, size.width))
        normal = rms_norm(model, x, f"{block}.ln2", size.width)
        gate, up = (models.projection(model, normal, f"{block}.{part}", size.width, size.hidden) for part in ("gate", "up"))
        gated = model.add("Mul", model.add("Mul", gate, model.add("Sigmoid", gate)), up)
        x = model.add("Add", x, models.projection(model, gated, f"{block}.down", size.hidden, size.width))
    return models.projection(model, rms_norm(model, x, "lnf", size.width), "head", size.width, size.vocabulary)


def save_decoder(model, directory, name, size, logits):
    kv_heads, head = size.kv_heads or size.heads, size.width // size.heads
    names = [f"{layer}.{part}" for layer in range(size.layers) for part in ("key", "value")]

    def ports(prefix, extent):
        return [helper.make_tensor_value_info(f"{prefix}.{part}", TensorProto.FLOAT, (1, kv_heads, extent, head)) for part in names]

    ids = [helper.make_tensor_value_info(key, TensorProto.INT64, (1, "sequence")) for key in ("input_ids", "position_ids")]
    outputs = [helper.make_tensor_value_info(logits, TensorProto.FLOAT, (1, "sequence", size.vocabulary)), *ports("present", "total_sequence")]
    graph = helper.make_graph(model.nodes, name, [*ids, *ports("past_key_values", "past_sequence")], outputs, model.weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    made.ir_version = 10
    with open(f"{directory}/{name}.onnx", "wb") as file:
        file.write(made.SerializeToString())
    np.save(f"{directory}/{name}.x.npy", model.random.integers(3, size.vocabulary, (1, size.length)))


def write(directory, name, size, beside):
    """The model, with its weights in the file `beside`."""
    model = models.Model(beside)
    if size.decodes:
        save_decoder(model, directory, name, size, (llama_step if size.kind == "llama" else gpt2_step)(model, size))
    else:
        x, given = bert(model, size)
        model.save(directory, name, x, (size.batch, size.length, size.width), x=given)
    return model
