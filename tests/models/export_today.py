#!/usr/bin/env python3
"""Export small models of the newest transformers in every form of the newest PyTorch, each with reference inputs and
PyTorch's outputs.

    export_today.py --out DIR [--forms FORM,..] [--dynamic] [--missing] [NAME...]

writes DIR/NAME_FORM as export.py writes DIR/NAME. --dynamic: with open dimensions (dynamic.py), their bounds in the file `dims`;
it counts what the exporters refuse. The attention of every family differs in a way that matters to
recognition: see FAMILIES. tests/models/recognised.py compiles the folders and makes the table docs/measured/recognition.md of
them. It needs PyTorch, transformers, onnx, onnxscript and numpy from pip (written for 2.15, 5.23, 1.23, 0.7 and 2.4);
the wheels for CPUs will do.
"""

import argparse
import contextlib
import copy
import functools
import io
import logging
import pathlib
import re
import shutil
import sys
import warnings
from typing import Callable, Dict, NamedTuple

import numpy
import onnx
import torch
import transformers
from torch import nn
from torch.nn import functional

import dynamic
from exporting import is_norm, randomize, save_tensors

BATCH, LENGTH, TARGETS = 2, 11, 5
VOCABULARY = 99

# Settings by the names that the families' configurations use.
ENCODER = dict(vocab_size=VOCABULARY, hidden_size=48, num_hidden_layers=2, num_attention_heads=6, intermediate_size=56,
               max_position_embeddings=64)
DECODER = dict(ENCODER, num_key_value_heads=2, head_dim=8, use_cache=False)
VIT = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=6, intermediate_size=56, image_size=32, patch_size=8)
GEMMA = dict(DECODER, query_pre_attn_scalar=8, sliding_window=5, layer_types=["sliding_attention", "full_attention"])
T5 = dict(vocab_size=VOCABULARY, d_model=48, d_kv=8, d_ff=56, num_layers=2, num_heads=6, use_cache=False)
DEEPSEEK = dict(DECODER, num_key_value_heads=6, head_dim=4, q_lora_rank=12, kv_lora_rank=16, qk_nope_head_dim=8,
                qk_rope_head_dim=4, v_head_dim=8, first_k_dense_replace=2, n_group=1, topk_group=1)


def tokens(random, length=LENGTH):
    return random.integers(0, VOCABULARY, (BATCH, length))


def ids(random):
    return {"input_ids": tokens(random)}


def text(random):
    """A mask that hides the last keys of some rows."""
    mask = (random.random((BATCH, 1)) * LENGTH + 1 > range(LENGTH)).astype("int64")
    return {"input_ids": tokens(random), "attention_mask": mask}


def padded(random):
    """A mask that hides the last two keys of one row: every query still sees a key in a window of three to each side. The
    exporter of PyTorch 2.15 gives queries that see no key other values than PyTorch."""
    mask = numpy.ones((BATCH, LENGTH), "int64")
    mask[1, -2:] = 0
    return {"input_ids": tokens(random), "attention_mask": mask}


def image(random):
    return {"pixel_values": random.standard_normal((BATCH, 3, 32, 32)).astype("float32")}


def captioned(random):
    return {**text(random), **image(random)}


def pair(random):
    return {**text(random), "decoder_input_ids": tokens(random, TARGETS)}


def spectrum(random):
    return {"input_features": random.standard_normal((BATCH, 8, 40)).astype("float32"),
            "decoder_input_ids": tokens(random, TARGETS)}


def vectors(random):
    return {"x": random.standard_normal((BATCH, LENGTH, 48)).astype("float32")}


class FirstOutput(nn.Module):
    """A model with arguments by position, and the first of its outputs. `all_true`: it is also given an attention_mask
    that hides nothing. So is a decoder without a mask in the legacy exporter, which knows no aten::diff: with that
    transformers looks for packed sequences."""

    def __init__(self, model, names, all_true=False):
        super().__init__()
        self.model, self.names, self.all_true = model, names, all_true

    def forward(self, *arguments):
        named = dict(zip(self.names, arguments))
        decodes = "input_ids" in named and "decoder_input_ids" not in named and "attention_mask" not in named
        if self.all_true or (decodes and torch.jit.is_tracing()):
            named["attention_mask"] = torch.ones_like(arguments[0])
        return self.model(**named, return_dict=True).to_tuple()[0]


class MaskedAttention(nn.Module):
    """Self-attention with an all-true boolean mask, which hides nothing."""

    def __init__(self, heads=6, size=48):
        super().__init__()
        self.heads, self.project, self.out = heads, nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.register_buffer("mask", torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool))

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v, self.mask)
        return self.out(y.transpose(1, 2).flatten(2))


class Dense(nn.Module):
    """In place of a mixture of experts, whose exports say nothing of attention."""

    def __init__(self, size):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(size, 56), nn.SiLU(), nn.Linear(56, size)

    def forward(self, x):
        return self.down(self.act(self.up(x))), None


def without_experts(module):
    for layer in module.model.layers:
        layer.mlp = Dense(module.config.hidden_size)


class Family(NamedTuple):
    config: str
    model: str
    settings: dict
    inputs: Callable
    all_true: bool = False
    implementation: str = "sdpa"
    change: Callable = lambda module: None  # of the module, before the export


# Name -> how it is made. What is special about it stands behind it.
FAMILIES: Dict[str, Family] = {
    "llama": Family("LlamaConfig", "LlamaForCausalLM", DECODER, ids),  # causal, keys shared by query heads
    "llama_padded": Family("LlamaConfig", "LlamaForCausalLM", DECODER, text),
    "llama_all_true": Family("LlamaConfig", "LlamaForCausalLM", DECODER, ids, all_true=True),
    "llama_eager": Family("LlamaConfig", "LlamaForCausalLM", DECODER, ids, implementation="eager"),
    "qwen3": Family("Qwen3Config", "Qwen3ForCausalLM", DECODER, ids),  # norms of queries and keys
    "gemma2": Family("Gemma2Config", "Gemma2ForCausalLM", dict(GEMMA, attn_logit_softcapping=2.0), ids,
                     implementation="eager"),  # soft cap
    "gemma3": Family("Gemma3TextConfig", "Gemma3ForCausalLM", GEMMA, ids),  # sliding and full layers, two RoPE bases
    "mistral": Family("MistralConfig", "MistralForCausalLM", dict(DECODER, sliding_window=5), ids),  # sliding window
    "phi3": Family("Phi3Config", "Phi3ForCausalLM", dict(DECODER, pad_token_id=0, partial_rotary_factor=0.5), ids),
    "gpt_neox": Family("GPTNeoXConfig", "GPTNeoXForCausalLM", dict(ENCODER, rotary_pct=0.5, use_cache=False), ids),
    "gptj": Family("GPTJConfig", "GPTJForCausalLM", dict(vocab_size=VOCABULARY, n_embd=48, n_layer=2, n_head=6,
                   n_positions=64, rotary_dim=4, use_cache=False), ids, implementation="eager"),  # interleaved, partial RoPE
    "gpt2": Family("GPT2Config", "GPT2LMHeadModel", dict(vocab_size=VOCABULARY, n_embd=48, n_layer=2, n_head=6,
                   n_positions=64, use_cache=False), ids),
    "gpt_oss": Family("GptOssConfig", "GptOssForCausalLM",
                      dict(DECODER, sliding_window=5, num_local_experts=4, num_experts_per_tok=2,
                           layer_types=["sliding_attention", "full_attention"]), ids, implementation="eager",
                      change=without_experts),  # sinks
    "deepseek": Family("DeepseekV3Config", "DeepseekV3ForCausalLM", DEEPSEEK, ids),  # latent keys, RoPE of pairs
    "cohere": Family("CohereConfig", "CohereForCausalLM", dict(DECODER, pad_token_id=0), ids),  # interleaved RoPE
    "glm": Family("GlmConfig", "GlmForCausalLM", dict(DECODER, pad_token_id=0), ids),  # partial, interleaved RoPE
    "opt": Family("OPTConfig", "OPTForCausalLM", dict(vocab_size=VOCABULARY, hidden_size=48, num_hidden_layers=2,
                  num_attention_heads=6, ffn_dim=56, max_position_embeddings=64, word_embed_proj_dim=48, use_cache=False), text),
    "bloom": Family("BloomConfig", "BloomForCausalLM", dict(vocab_size=VOCABULARY, hidden_size=48, n_layer=2, n_head=6,
                    use_cache=False), text, implementation="eager"),  # ALiBi
    "bert": Family("BertConfig", "BertModel", ENCODER, text),
    "bert_all_true": Family("BertConfig", "BertModel", ENCODER, ids, all_true=True),
    "distilbert": Family("DistilBertConfig", "DistilBertModel", dict(vocab_size=VOCABULARY, dim=48, n_layers=2, n_heads=6,
                         hidden_dim=56, max_position_embeddings=64), text),
    "modernbert": Family("ModernBertConfig", "ModernBertModel",
                         dict(ENCODER, pad_token_id=0, local_attention=6, global_attn_every_n_layers=2), padded),
    "clip": Family("CLIPConfig", "CLIPModel", dict(text_config=dict(ENCODER, eos_token_id=98, pad_token_id=1),
                   vision_config=VIT, projection_dim=24), captioned),  # quick GELU
    "siglip": Family("SiglipVisionConfig", "SiglipVisionModel", dict(VIT, vision_use_head=False), image),
    "vit": Family("ViTConfig", "ViTModel", VIT, image),
    "dinov2": Family("Dinov2Config", "Dinov2Model", VIT, image),
    "whisper": Family("WhisperConfig", "WhisperForConditionalGeneration",
                      dict(vocab_size=VOCABULARY, d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=6,
                           decoder_attention_heads=6, encoder_ffn_dim=56, decoder_ffn_dim=56, use_cache=False, num_mel_bins=8,
                           max_source_positions=20, max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                           decoder_start_token_id=3, suppress_tokens=None, begin_suppress_tokens=None), spectrum),
    "t5": Family("T5Config", "T5ForConditionalGeneration", T5, pair),  # unscaled scores, position bias
    "t5_gated": Family("T5Config", "T5ForConditionalGeneration", dict(T5, feed_forward_proj="gated-gelu"), pair),
}


def model_of(name):
    """The module and the function that makes its inputs."""
    if name == "all_true":  # not of transformers
        return MaskedAttention(), vectors
    row = FAMILIES[name]
    config = getattr(transformers, row.config)(**copy.deepcopy(row.settings))
    config._attn_implementation = row.implementation
    module = getattr(transformers, row.model)(config)
    row.change(module)
    names = list(row.inputs(numpy.random.default_rng(0)))
    return FirstOutput(module, names, row.all_true), row.inputs


# ---- forms ----------------------------------------------------------------------------------------------------------


def dynamo(opset, **options):
    def export(module, arguments, path, names, dynamic_shapes=None, dynamic_axes=None):
        torch.onnx.export(module, arguments, path, input_names=names, output_names=["y"], dynamo=True, opset_version=opset,
                          external_data=False, verbose=False, dynamic_shapes=dynamic_shapes, **options)

    return export


def legacy(opset, **options):
    def export(module, arguments, path, names, dynamic_shapes=None, dynamic_axes=None):
        torch.onnx.export(module, arguments, path, input_names=names, output_names=["y"], dynamo=False, opset_version=opset,
                          dynamic_axes=dynamic_axes, **options)

    return export


FORMS = {
    "dynamo": dynamo(18),
    "dynamo20": dynamo(20),
    "dynamo23": dynamo(23),
    "plain": dynamo(18, optimize=False),
    "legacy": legacy(17),
    "unfolded": legacy(14, do_constant_folding=False),
}


def strip(path):
    """Takes out what the exporter notes of Python code, most of the bytes, and directories of the machine with it."""
    model = onnx.load(path)
    parts = [model.graph, *model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output, *model.functions]
    for part in [*parts, *model.graph.initializer]:
        del part.metadata_props[:]
        part.doc_string = ""
    del model.graph.value_info[:]
    onnx.save(model, path)


def is_attention(module):
    kind = r"Attention$|AttentionLayer$"
    parts = [part for part in module.modules() if part is not module]
    return re.search(kind, type(module).__name__) and not any(re.search(kind, type(part).__name__) for part in parts)


def is_activation(module):
    return re.search(r"gelu|silu|relu|swish", type(module).__name__, re.I) and not list(module.children())


@contextlib.contextmanager
def counted(module):
    """How often the module computes attention, norms, rotary embeddings and activations while this lasts."""
    counts = dict.fromkeys(("attention", "norms", "rope", "activations"), 0)

    def count(kind):
        def hook(*_):
            counts[kind] += 1
        return hook

    hooks, wrapped = [], []
    for part in module.modules():
        kind = ("attention" if is_attention(part) or isinstance(part, MaskedAttention) else "norms" if is_norm(part)
                else "activations" if is_activation(part) else None)
        if kind:
            hooks.append(part.register_forward_hook(count(kind)))
    for path in {type(part).__module__ for part in module.modules()}:
        code = sys.modules[path]
        for name in vars(code):
            if name.startswith("apply_rotary"):
                wrapped.append((code, name, getattr(code, name)))

    def wrap(code, name, function):
        def rotate(*arguments, **named):
            made = function(*arguments, **named)
            counts["rope"] += len(made) if isinstance(made, tuple) else 1
            return made
        setattr(code, name, rotate)

    for row in wrapped:
        wrap(*row)
    yield counts
    for hook in hooks:
        hook.remove()
    for code, name, function in wrapped:
        setattr(code, name, function)


def record(name, model_of, draw, form, folder, is_dynamic=False):
    """Returns what there is to say of the export's dimensions."""
    random = numpy.random.default_rng(list(name.encode()))
    module, make_inputs = model_of(name)
    draw(module.eval(), random, make_inputs)
    inputs = make_inputs(random)
    if is_dynamic:
        inputs = dynamic.example_of(module, inputs, random)
    arguments = tuple(torch.from_numpy(value) for value in inputs.values())
    path, said = folder / "model.onnx", ""
    save_tensors(folder / "inputs", inputs)
    with torch.no_grad():
        with counted(module) as counts:
            save_tensors(folder / "outputs", {"y": module(*arguments).numpy()})
        (folder / "computes").write_text("".join(f"{kind}={count}\n" for kind, count in counts.items()))
        if is_dynamic:
            said = dynamic.export(functools.partial(FORMS[form], module), module, inputs, folder, random)
        else:
            FORMS[form](module, arguments, str(path), list(inputs))
    strip(path)
    return said


def main(models, model_of, draw, description):
    """The command line of a script that exports models. model_of(name) gives a module and a function that makes its inputs
    from a random generator; draw(module, generator, that function) sets the parameters."""
    names = list(models)
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="where the model folders go")
    parser.add_argument("--forms", type=lambda text: text.split(","), default=list(FORMS), help=", ".join(FORMS))
    parser.add_argument("--dynamic", action="store_true", help="with open dimensions: batch, sequence, height and width, length")
    parser.add_argument("--missing", action="store_true", help="leave alone the folders that are there")
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"models (default: all): {', '.join(names)}")
    options = parser.parse_args()
    for name in [*options.names, *options.forms]:
        if name not in names and name not in FORMS:
            parser.error(f"neither a model nor a form: '{name}'")
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    rows = [(name, form) for name in options.names or names for form in options.forms]
    for name, form in rows:
        folder = options.out / f"{name}_{form}"
        if options.missing and ((folder / "model.onnx").exists() or (folder / "refused").exists()):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # a failing legacy export prints its graph
                said = record(name, model_of, draw, form, folder, options.dynamic)
            print(f"{folder.name}: {(folder / 'model.onnx').stat().st_size} bytes {said}", flush=True)
        except Exception as error:  # an exporter's refusal of one model does not end the others
            (folder / "model.onnx").unlink(missing_ok=True)
            words = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            (folder / "refused").write_text(words + "\n")
            print(f"{folder.name}: not exported: {words}", flush=True)
    if options.dynamic:
        dynamic.print_counts([options.out / f"{name}_{form}" for name, form in rows])


if __name__ == "__main__":
    main([*FAMILIES, "all_true"], model_of, lambda module, random, inputs: randomize(module, random), __doc__)
