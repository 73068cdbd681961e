#!/usr/bin/env python3
"""Decoders of real sizes with random weights, in the forms that bench/decoding.py compares:

    decoding_models.py WORK NAME.. [--onnx]

A NAME is gpt2 or llama, or one with fewer layers, as llama-4. WORK/checkpoints/NAME is a checkpoint of transformers, WORK/NAME/f32/model.onnx
its export, WORK/NAME/TYPE.gguf the same weights for llama.cpp and WORK/NAME/TYPE/ for onnxruntime-genai, whose builder has no GPT-2;
--onnx: the export alone. WORK/NAME/weights.json is the number of weights that a step reads. What is there already stays. Needs torch,
transformers, onnxscript, gguf and onnxruntime-genai."""
import argparse
import json
import os
import shutil
import subprocess
import sys
import warnings

import decoder_exports
import decoder_models

VOCABULARY = 32000
MODELS = {
    "gpt2": ("GPT2", dict(n_positions=1024, n_embd=768, n_layer=12, n_head=12, vocab_size=50257, bos_token_id=1, eos_token_id=2, pad_token_id=0)),
    "llama": ("Llama", dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
                            vocab_size=VOCABULARY, max_position_embeddings=4096, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
                            pad_token_id=0)),
}
GGUF_TYPES = {"f32": "F32", "bf16": "BF16", "int8": "Q8_0", "int4": "Q4_0"}
GENAI_TYPES = {"f32": ["-p", "fp32"], **{kind: ["-p", kind, "--extra_options", "accuracy_level=4", "block_size=32"] for kind in ("int8", "int4")}}


def make_checkpoint(work, name):
    base, _, layers = name.partition("-")
    model, sizes = MODELS[base]
    decoder_models.FAMILIES[name] = model, {**sizes, **({"n_layer" if base == "gpt2" else "num_hidden_layers": int(layers)} if layers else {})}
    if not os.path.exists(f"{work}/checkpoints/{name}/config.json"):
        decoder_models.make(work, name)


def export(work, name, kind):
    out = f"{work}/{name}/{kind}"
    if os.path.exists(f"{out}/model.onnx"):
        return
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    if name.startswith("gpt2"):
        decoder_exports.by_legacy(work, name, out)
    else:
        subprocess.run([sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", f"{work}/checkpoints/{name}", "-o", out, "-e", "cpu", "-c",
                        f"{out}/cache", *GENAI_TYPES[kind]], check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(f"{out}/cache", ignore_errors=True)


def turned(weight, heads):
    """Rows of a projection to heads, in the order in which llama.cpp rotates them: neighbours instead of halves."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def llama_tensors(model, config):
    yield "token_embd.weight", model["model.embed_tokens.weight"]
    yield "output_norm.weight", model["model.norm.weight"]
    yield "output.weight", model["lm_head.weight"]
    for layer in range(config.num_hidden_layers):
        ours, theirs = f"model.layers.{layer}.", f"blk.{layer}."
        yield theirs + "attn_norm.weight", model[ours + "input_layernorm.weight"]
        yield theirs + "ffn_norm.weight", model[ours + "post_attention_layernorm.weight"]
        yield theirs + "attn_q.weight", turned(model[ours + "self_attn.q_proj.weight"], config.num_attention_heads)
        yield theirs + "attn_k.weight", turned(model[ours + "self_attn.k_proj.weight"], config.num_key_value_heads)
        yield theirs + "attn_v.weight", model[ours + "self_attn.v_proj.weight"]
        yield theirs + "attn_output.weight", model[ours + "self_attn.o_proj.weight"]
        for part in ("gate", "up", "down"):
            yield theirs + f"ffn_{part}.weight", model[ours + f"mlp.{part}_proj.weight"]


def gpt2_tensors(model, config):
    yield "token_embd.weight", model["transformer.wte.weight"]
    yield "output.weight", model["transformer.wte.weight"]
    yield "position_embd.weight", model["transformer.wpe.weight"]
    for end in ("weight", "bias"):
        yield f"output_norm.{end}", model[f"transformer.ln_f.{end}"]
        for layer in range(config.n_layer):
            for theirs, ours in (("attn_norm", "ln_1"), ("attn_qkv", "attn.c_attn"), ("attn_output", "attn.c_proj"), ("ffn_norm", "ln_2"),
                                 ("ffn_up", "mlp.c_fc"), ("ffn_down", "mlp.c_proj")):
                value = model[f"transformer.h.{layer}.{ours}.{end}"]
                yield f"blk.{layer}.{theirs}.{end}", value.T.copy() if value.ndim == 2 else value


def write_gguf(work, name, kind):
    import gguf
    path = f"{work}/{name}/{kind}.gguf"
    if os.path.exists(path):
        return
    model = decoder_models.checkpoint(work, name)
    config, values = model.config, {key: value.detach().numpy() for key, value in model.state_dict().items()}
    gpt2 = name.startswith("gpt2")
    writer = gguf.GGUFWriter(path, "gpt2" if gpt2 else "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(4 * config.hidden_size if gpt2 else config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("no_vocab")
    if gpt2:
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
    else:
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    type_of, weights = gguf.GGMLQuantizationType[GGUF_TYPES[kind]], 0
    for key, value in (gpt2_tensors if gpt2 else llama_tensors)(values, config):
        weights += 0 if "embd" in key else value.size
        small = kind != "f32" and value.ndim == 2 and key != "position_embd.weight"
        writer.add_tensor(key, gguf.quants.quantize(value, type_of) if small else value, raw_dtype=type_of if small else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open(f"{work}/{name}/weights.json", "w", encoding="ascii") as file:
        json.dump(weights, file)


def main():
    warnings.filterwarnings("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work")
    parser.add_argument("names", nargs="+")
    parser.add_argument("--onnx", action="store_true")
    given = parser.parse_args()
    import torch
    torch.set_num_threads(1)
    for name in given.names:
        make_checkpoint(given.work, name)
        for kind in ("f32",) if name.startswith("gpt2") or given.onnx else GENAI_TYPES:
            export(given.work, name, kind)
        for kind in () if given.onnx else GGUF_TYPES:
            write_gguf(given.work, name, kind)


if __name__ == "__main__":
    main()
