#!/usr/bin/env python3
"""Exports of the checkpoints that decoder_models.py makes, by one exporter each call: ZOO/EXPORTER/FAMILY/*.onnx, with
the configurations that its users have beside the model.

    decoder_exports.py EXPORTER ZOO [FAMILY..]

EXPORTER is one of
    torch         torch.onnx.export(dynamo=True) of a module whose arguments are the past's tensors, with the names of optimum
    legacy        the same module by torch.onnx.export(dynamo=False)
    optimum       optimum-onnx
    transformers  transformers.exporters, of the version that is installed; --static: with a cache of a fixed size
    genai32, genai4   the builder of onnxruntime-genai, fp32 and int4

A line for each export says "exported", or "refused" and the first line of the exporter's message."""
import argparse
import inspect
import json
import os
import shutil
import subprocess
import sys
import warnings

from decoder_models import FAMILIES, MIXTURES, SEQUENCES, SOUNDS, TEXTS, checkpoint, prompts

CONFIGURATIONS = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def beside(zoo, family, out):
    """Copies what an exporter does not copy itself."""
    for name in CONFIGURATIONS:
        source = f"{zoo}/checkpoints/{family}/{name}"
        if os.path.exists(source) and not os.path.exists(f"{out}/{name}"):
            shutil.copy(source, out)


# torch.onnx with a past that is written out ----------------------------------------------------------------------------

class Decoder:
    """A decoder whose cache is a list of tensors: names, examples and the cache that the model takes."""

    def __init__(self, config, batch, past):
        import torch
        self.config, self.names, self.tensors, self.open = config, [], [], []
        kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
        if config.model_type == "mamba2":
            kinds = ["mamba"] * config.num_hidden_layers
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads if "mamba" not in kinds else 0
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads if heads else 0
        for layer, kind in enumerate(kinds):
            if kind == "conv":
                self.add(layer, "conv_state", torch.randn(batch, config.hidden_size, config.conv_L_cache), {})
            elif kind == "mamba":
                width = config.expand * config.hidden_size + 2 * config.n_groups * config.state_size
                self.add(layer, "conv_state", torch.randn(batch, width, config.conv_kernel), {})
                self.add(layer, "ssm_state", torch.randn(batch, config.num_heads, config.head_dim, config.state_size), {})
            else:
                for part in ("key", "value"):
                    self.add(layer, part, torch.randn(batch, heads, past, size), {2: "past_sequence_length"})

    def add(self, layer, part, tensor, dims):
        self.names.append((layer, part))
        self.tensors.append(tensor)
        self.open.append({0: "batch_size", **dims})

    def cache(self, tensors):
        from transformers.cache_utils import DynamicCache
        kept = dict(zip(self.names, tensors))
        states = any(part == "conv_state" for _, part in self.names)
        cache = DynamicCache(config=self.config) if states else DynamicCache()
        for (layer, part), tensor in kept.items():
            if part == "key":
                cache.update(tensor, kept[layer, "value"], layer)
            elif part in ("conv_state", "ssm_state"):
                at = cache.layers[layer]
                conv = {"conv_states": tensor, "conv_kernel_size": tensor.shape[-1]} if part == "conv_state" else {"recurrent_states": tensor}
                at.lazy_initialization(**conv)
                (at.conv_states if part == "conv_state" else at.recurrent_states)[0] = tensor.clone()
                at.has_previous_state[0] = True
        return cache

    def tensors_of(self, cache):
        kinds = {"key": lambda at: at.keys, "value": lambda at: at.values, "conv_state": lambda at: at.conv_states[0],
                 "ssm_state": lambda at: at.recurrent_states[0]}
        return [kinds[part](cache.layers[layer]) for layer, part in self.names]


def decoder_module(model, decoder, positions):
    import torch

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask, *rest):
            where = {"position_ids": rest[0]} if positions else {}
            cache = decoder.cache(rest[1:] if positions else rest)
            name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
            said = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=True, **where, **{name: cache})
            return (said.logits, *decoder.tensors_of(cache))
    return Module().eval()


def write(module, arguments, names, outputs, dims, path, dynamo):
    import torch
    if dynamo:
        nested = [dim for name, dim in zip(names, dims) if name]
        flat = len([parameter for parameter in module.forward.__code__.co_varnames[:module.forward.__code__.co_argcount]]) - 1
        shapes = tuple(nested[:flat]) + ((tuple(nested[flat:]),) if len(nested) > flat else ())
        torch.onnx.export(module, tuple(arguments), path, input_names=names, output_names=outputs, dynamic_shapes=shapes, dynamo=True,
                          external_data=False, verbose=False)
    else:
        axes = {name: dim for name, dim in zip(names, dims) if dim}
        for name in outputs:
            axes[name] = {0: "batch_size", 1: "sequence_length"} if name == "logits" else {
                0: "batch_size", **({2: "past_sequence_length + sequence_length"} if name.endswith(("key", "value")) else {})}
        torch.onnx.export(module, tuple(arguments), path, input_names=names, output_names=outputs, dynamic_axes=axes, dynamo=False)


def by_torch(zoo, family, out, dynamo=True):
    import torch
    model = checkpoint(zoo, family, "eager" if family == "t5" else None)
    if family in MIXTURES:
        model.set_experts_implementation("batched_mm")
    if family in SEQUENCES:
        return sequences_by_torch(model, family, out, dynamo)
    batch, tokens, past = 2, 5, 3
    decoder = Decoder(model.config, batch, past)
    positions = family != "mamba2"
    total = tokens + past
    ids = torch.randint(3, 100, (batch, tokens))
    arguments = [ids, torch.ones(batch, total, dtype=torch.int64)]
    names = ["input_ids", "attention_mask"]
    mask = "past_sequence_length + sequence_length" if not dynamo else "total_sequence_length"
    dims = [{0: "batch_size", 1: "sequence_length"}, {0: "batch_size", 1: mask}]
    if family == "mamba2":  # its mask is of the new tokens alone
        arguments[1], dims[1] = torch.ones(batch, tokens, dtype=torch.int64), dims[0]
    if positions:
        arguments.append(torch.arange(past, total)[None].expand(batch, tokens).contiguous())
        names.append("position_ids")
        dims.append(dict(dims[0]))
    parts = [f"{layer}.{part}" for layer, part in decoder.names]
    write(decoder_module(model, decoder, positions), arguments + decoder.tensors, names + [f"past_key_values.{part}" for part in parts],
          ["logits"] + [f"present.{part}" for part in parts], dims + decoder.open, f"{out}/model.onnx", dynamo)
    return ["model"]


def sequences_by_torch(model, family, out, dynamo):
    import torch
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache
    from transformers.modeling_outputs import BaseModelOutput
    config, batch, tokens, past, source = model.config, 2, 5, 3, 7
    layers = config.decoder_layers if family in SOUNDS else config.num_decoder_layers
    heads = config.decoder_attention_heads if family in SOUNDS else config.num_heads
    size = config.d_model // heads if family in SOUNDS else config.d_kv
    cache_name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    if family in SOUNDS:
        source = config.max_source_positions
        features, open_source = torch.randn(batch, config.num_mel_bins, 2 * source), {0: "batch_size"}
    else:
        features, open_source = torch.randint(3, 100, (batch, source)), {0: "batch_size", 1: "encoder_sequence_length"}

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, given, *mask):
            more = {"attention_mask": mask[0]} if mask else {}
            return self.model.get_encoder()(given, **more).last_hidden_state

    class First(torch.nn.Module):
        """The decoder without a past: makes both caches."""

        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, hidden, *mask):
            more = {"attention_mask": mask[0]} if mask else {}
            said = self.model(decoder_input_ids=input_ids, encoder_outputs=BaseModelOutput(last_hidden_state=hidden), use_cache=True, **more)
            made = getattr(said, cache_name)
            return (said.logits, *tensors_of(made.self_attention_cache), *tensors_of(made.cross_attention_cache))

    class Later(torch.nn.Module):
        def __init__(self, masked):
            super().__init__()
            self.model, self.masked = model, masked

        def forward(self, input_ids, *rest):
            more, rest = ({"attention_mask": rest[0]}, rest[1:]) if self.masked else ({}, rest)
            own, cross = DynamicCache(), DynamicCache()
            for layer in range(layers):
                own.update(rest[2 * layer], rest[2 * layer + 1], layer)
                cross.update(rest[2 * (layers + layer)], rest[2 * (layers + layer) + 1], layer)
            made = EncoderDecoderCache(own, cross)
            for layer in range(layers):
                made.is_updated[layer] = True
            hidden = torch.zeros(input_ids.shape[0], cross.layers[0].keys.shape[2], config.d_model)
            said = self.model(decoder_input_ids=input_ids, encoder_outputs=BaseModelOutput(last_hidden_state=hidden), use_cache=True,
                              **{cache_name: made}, **more)
            return (said.logits, *tensors_of(getattr(said, cache_name).self_attention_cache))

    def tensors_of(cache):
        return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]

    masked = family == "t5"
    mask = [torch.ones(batch, source, dtype=torch.int64)] if masked else []
    masks = [open_source] if masked else []
    mask_names = ["attention_mask"] if masked else []
    write(Encoder().eval(), [features, *mask], ["input_ids" if masked else "input_features", *mask_names], ["last_hidden_state"],
          [open_source, *masks], f"{out}/encoder_model.onnx", dynamo)
    both = [f"{layer}.{kind}.{part}" for kind in ("decoder", "encoder") for layer in range(layers) for part in ("key", "value")]
    hidden = torch.randn(batch, source, config.d_model)
    ids, open_ids = torch.randint(3, 100, (batch, tokens)), {0: "batch_size", 1: "decoder_sequence_length"}
    encoder_masks = ["encoder_attention_mask"] if masked else []
    write(First().eval(), [ids, hidden, *mask], ["input_ids", "encoder_hidden_states", *encoder_masks],
          ["logits", *[f"present.{part}" for part in both]], [open_ids, open_source, *masks], f"{out}/decoder_model.onnx", dynamo)
    own = [torch.randn(batch, heads, past, size) for _ in range(2 * layers)]
    cross = [torch.randn(batch, heads, source, size) for _ in range(2 * layers)]
    open_own = {0: "batch_size", 2: "past_decoder_sequence_length"}
    open_cross = {0: "batch_size", **({2: "encoder_sequence_length"} if masked else {})}
    write(Later(masked).eval(), [ids, *mask, *own, *cross], ["input_ids", *encoder_masks, *[f"past_key_values.{part}" for part in both]],
          ["logits", *[f"present.{part}" for part in both[:2 * layers]]], [open_ids, *masks, *[open_own] * len(own), *[open_cross] * len(cross)],
          f"{out}/decoder_with_past_model.onnx", dynamo)
    return ["encoder_model", "decoder_model", "decoder_with_past_model"]


def by_legacy(zoo, family, out):
    return by_torch(zoo, family, out, dynamo=False)


# Exporters that take a checkpoint --------------------------------------------------------------------------------------

def by_optimum(zoo, family, out):
    from optimum.exporters.onnx import main_export
    tasks = {"text2text-generation": TEXTS, "automatic-speech-recognition": SOUNDS}
    task = next((name for name, families in tasks.items() if family in families), "text-generation") + "-with-past"
    frames = {"nb_max_frames": 48} if family == "whisper" else {}
    main_export(f"{zoo}/checkpoints/{family}", out, task=task, do_validation=False, local_files_only=True, **frames)
    return sorted(name[:-5] for name in os.listdir(out) if name.endswith(".onnx"))


def by_transformers(zoo, family, out, static=False, **more):
    import torch
    from transformers import GenerationConfig
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter
    model = checkpoint(zoo, family)
    model.generation_config.eos_token_id = None
    if family in MIXTURES:  # the default makes ranges of as many rows as an expert gets
        model.set_experts_implementation("batched_mm")
    given = prompts(family, 3)
    if family in SEQUENCES:  # of more than one token: their number is open
        given["decoder_input_ids"] = torch.tensor([[model.config.decoder_start_token_id, 20, 30]] * 3)
    how = {}
    if static:
        how["generation_config"] = GenerationConfig(cache_implementation="static", max_cache_len=96, pad_token_id=0)
    if family in SEQUENCES:
        encoder = OnnxExporter().export(model.get_encoder(), {name: value for name, value in given.items() if name != "decoder_input_ids"},
                                        OnnxConfig(dynamic=True))
        os.makedirs(f"{out}/encoder", exist_ok=True)
        encoder.save_pretrained(f"{out}/encoder") if hasattr(encoder, "save_pretrained") else encoder.save(f"{out}/encoder/model.onnx")
    exported = OnnxExporter().export_for_generation(model, given, OnnxConfig(dynamic=True), multi_token_decode=True, **how, **more)
    if hasattr(exported, "save_pretrained"):
        exported.save_pretrained(out)
        return list(exported.components)
    for name, program in exported.items():
        program.save(f"{out}/{name}.onnx")
    return list(exported)


def by_static(zoo, family, out):
    return by_transformers(zoo, family, out, static=True)


def by_genai(zoo, family, out, precision="fp32"):
    said = subprocess.run([sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", f"{zoo}/checkpoints/{family}", "-o", out, "-p", precision,
                           "-e", "cpu", "-c", out + "/cache"], capture_output=True, text=True)
    if said.returncode:
        raise RuntimeError(said.stderr.strip().splitlines()[-1])
    shutil.rmtree(out + "/cache", ignore_errors=True)
    return sorted(name[:-5] for name in os.listdir(out) if name.endswith(".onnx"))


EXPORTERS = {"torch": by_torch, "legacy": by_legacy, "optimum": by_optimum, "transformers": by_transformers, "static": by_static,
             "genai32": by_genai, "genai4": lambda *where: by_genai(*where, precision="int4")}


def main():
    warnings.filterwarnings("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exporter", choices=EXPORTERS)
    parser.add_argument("zoo", type=os.path.abspath)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--name", help="the folder of the exports, if another than EXPORTER")
    given = parser.parse_args()
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(0)
    refused = 0
    for family in given.families or FAMILIES:
        out = f"{given.zoo}/{given.name or given.exporter}/{family}"
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
        try:
            files = EXPORTERS[given.exporter](given.zoo, family, out)
            beside(given.zoo, family, out)
            said = {"exported": files}
        except Exception as wrong:
            if os.environ.get("TRACE"):
                import traceback
                traceback.print_exc()
            refused += 1
            lines = f"{type(wrong).__name__}: {wrong}".splitlines()
            said = {"refused": lines[0][:300]}
            shutil.rmtree(out)
            os.makedirs(out)
        with open(f"{out}/export.json" if "refused" in said else f"{out}/exported.json", "w") as file:
            json.dump(said, file)
        print(f"EXPORT {given.name or given.exporter} {family}: {said}", flush=True)


if __name__ == "__main__":
    main()
