#!/usr/bin/env python3
"""Makes the decoder with places per row of these tests, and what PyTorch's generate() writes with it: record_builder.py DIRECTORY

A small Llama with random weights, exported by the model builder of onnxruntime-genai, whose GroupQueryAttention counts the tokens of
each row: rows are padded on the right, and what a step adds overwrites the padding. Needs torch, transformers, onnxruntime-genai;
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

LAYERS = 2


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(exist_ok=True)
    torch.manual_seed(12)
    config = transformers.LlamaConfig(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=24, num_hidden_layers=LAYERS, head_dim=8,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1,
                                      eos_token_id=2, pad_token_id=0, initializer_range=0.4, tie_word_embeddings=False)
    model = transformers.LlamaForCausalLM(config).eval()
    with tempfile.TemporaryDirectory() as work:
        model.save_pretrained(f"{work}/checkpoint")
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer()).save_pretrained(f"{work}/checkpoint")
        subprocess.run([sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", f"{work}/checkpoint", "-o", f"{work}/built", "-p", "fp32",
                        "-e", "cpu", "-c", f"{work}/cache"], check=True)
        built = onnx.load(f"{work}/built/model.onnx")  # with its weights
        onnx.save(built, out / "model.onnx")
        shutil.copy(f"{work}/built/genai_config.json", out)
    generator = torch.Generator().manual_seed(6)
    rows = [[1, *torch.randint(4, VOCABULARY, (n,), generator=generator).tolist()] for n in (6, 2, 4)]
    references = [reference(model, "one", rows[:1]), reference(model, "three", rows)]
    write_references([*references, reference(model, "early", rows, eos=references[1]["ids"][1][5])], out)


if __name__ == "__main__":
    main()
