"""Exports writer.onnx and draft.onnx, decoders of characters with random weights, and tokenizer.json: export.py DIRECTORY

Llamas of two layers and of one, with their caches as inputs (past_key_values.*) and outputs (present.*). The token of a character of
ASCII is its code, so that a text file is its own tokens. Needs torch, onnxscript, transformers and tokenizers."""
import pathlib
import sys

import onnx
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.cache_utils import DynamicCache

HEADS, SIZE = 2, 16  # of keys and values


class Decoder(torch.nn.Module):
    """A model with the keys and values of all layers as arguments and results."""
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, position_ids, *past):
        cache = DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        logits = self.model(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, past_key_values=cache).logits
        return logits, *(part for layer in cache.layers for part in (layer.keys, layer.values))


def model_of(layers, seed=0):
    """With large weights, which few steps of training suffice for."""
    torch.manual_seed(seed)
    width = 32 * layers
    config = LlamaConfig(vocab_size=128, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers, num_attention_heads=2 * layers,
                         num_key_value_heads=HEADS, head_dim=SIZE, max_position_embeddings=1024, initializer_range=0.1, tie_word_embeddings=False)
    return LlamaForCausalLM(config).eval()


def export(model, path):
    layers, batch, tokens, past = model.config.num_hidden_layers, 2, 5, 3
    arguments = (torch.zeros(batch, tokens, dtype=torch.int64), torch.ones(batch, past + tokens, dtype=torch.int64),
                 torch.arange(past, past + tokens).expand(batch, tokens).contiguous(),
                 *(torch.zeros(batch, HEADS, past, SIZE) for _ in range(2 * layers)))
    steps, kept = {0: "batch", 1: "sequence"}, {0: "batch", 2: "past"}
    parts = [f"{layer}.{part}" for layer in range(layers) for part in ("key", "value")]
    torch.onnx.export(Decoder(model), arguments, path, dynamo=True, optimize=False, external_data=False, verbose=False,
                      input_names=["input_ids", "attention_mask", "position_ids", *("past_key_values." + part for part in parts)],
                      output_names=["logits", *("present." + part for part in parts)],
                      dynamic_shapes=(steps, {0: "batch", 1: "total"}, steps, (kept,) * (2 * layers)))
    exported = onnx.load(path)
    for node in exported.graph.node:  # it names files of this machine
        del node.metadata_props[:]
    del exported.graph.value_info[:]
    onnx.save(exported, path)


def main(directory):
    export(model_of(layers=2), directory / "writer.onnx")
    export(model_of(layers=1), directory / "draft.onnx")
    tokenizer = Tokenizer(models.BPE({chr(code): code for code in range(128)}, []))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(directory / "tokenizer.json"), pretty=False)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
