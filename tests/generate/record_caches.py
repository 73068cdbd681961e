#!/usr/bin/env python3
"""Makes the decoders of these tests whose caches do not grow by Concat, and what PyTorch's generate() writes with them:
record_caches.py DIRECTORY

A small Llama with random weights, exported into DIRECTORY/built by the model builder of onnxruntime-genai, whose GroupQueryAttention
counts the tokens of each row: rows are padded on the right, and what a step adds overwrites the padding; and into DIRECTORY/static by
transformers' exporter, with a cache of a fixed size and a mask of four dimensions. Needs torch, transformers 5.24, onnxruntime-genai;
the tests read what is recorded."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

import onnx
import torch
import transformers
from record_decoder import VOCABULARY, reference, tokenizer, write_references
from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter


def small():
    torch.manual_seed(12)
    config = transformers.LlamaConfig(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=24, num_hidden_layers=2, head_dim=8,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1,
                                      eos_token_id=2, pad_token_id=0, initializer_range=0.4, tie_word_embeddings=False)
    return transformers.LlamaForCausalLM(config).eval()


def build(model, out):
    with tempfile.TemporaryDirectory() as work:
        model.save_pretrained(f"{work}/checkpoint")
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer()).save_pretrained(f"{work}/checkpoint")
        subprocess.run([sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", f"{work}/checkpoint", "-o", f"{work}/built", "-p", "fp32",
                        "-e", "cpu", "-c", f"{work}/cache"], check=True)
        onnx.save(onnx.load(f"{work}/built/model.onnx"), out / "model.onnx")  # with its weights
        shutil.copy(f"{work}/built/genai_config.json", out)


def export_static(model, out):
    model.generation_config.eos_token_id = None
    how = transformers.GenerationConfig(cache_implementation="static", max_cache_len=96, pad_token_id=0)
    given = {"input_ids": torch.randint(4, VOCABULARY, (3, 5)), "attention_mask": torch.ones(3, 5, dtype=torch.int64)}
    programs = OnnxExporter().export_for_generation(model, given, OnnxConfig(dynamic=True), multi_token_decode=True, generation_config=how)
    with tempfile.TemporaryDirectory() as work:
        programs.save_pretrained(work)
        exported = onnx.load(f"{work}/decode.onnx")
    for node in exported.graph.node:  # where the exporter ran
        del node.metadata_props[:]
    onnx.save(exported, out / "model.onnx")
    shutil.copy(pathlib.Path(__file__).parents[2] / "samples" / "generate" / "words" / "generation_config.json", out)


def main():
    generator = torch.Generator().manual_seed(6)
    rows = [[1, *torch.randint(4, VOCABULARY, (n,), generator=generator).tolist()] for n in (6, 2, 4)]
    for name, export in (("built", build), ("static", export_static)):
        model, out = small(), pathlib.Path(sys.argv[1]) / name
        out.mkdir(exist_ok=True)
        references = [reference(model, "one", rows[:1]), reference(model, "three", rows)]
        write_references([*references, reference(model, "early", rows, eos=references[1]["ids"][1][5])], out)
        export(model, out)


if __name__ == "__main__":
    main()
