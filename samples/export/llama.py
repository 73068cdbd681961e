"""Exports a small Llama with grouped attention by PyTorch's default exporter, as samples/models/llama.onnx was, and with --dynamic llama_any.onnx, whose
batch and number of positions vary: llama.py OUT.onnx [--dynamic]

Needs torch, transformers and onnxscript. The exporter records modules and source lines, which generated code shows; the paths of this
machine and all frames but the innermost outside of PyTorch are removed from them."""
import re
import sys

import onnx
import torch
from transformers import LlamaConfig, LlamaForCausalLM


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, use_cache=False).logits


torch.manual_seed(0)
config = LlamaConfig(hidden_size=24, intermediate_size=48, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2, vocab_size=100, tie_word_embeddings=True,
                     max_position_embeddings=64)
module = Logits(LlamaForCausalLM(config)).eval()
dynamic = "--dynamic" in sys.argv[2:]
torch.onnx.export(module, (torch.randint(0, 100, (2, 12)),), sys.argv[1], input_names=["input_ids"], output_names=["logits"], dynamo=True,
                  external_data=False, dynamic_shapes=({0: "batch", 1: "seq"},) if dynamic else None)

model = onnx.load(sys.argv[1])
for node in model.graph.node:
    kept = {entry.key: entry.value for entry in node.metadata_props}
    del node.metadata_props[:]
    frames = re.findall(r'File "(.*/)([^/]+)", (line \d+, in \w+\n\s*.*)', kept.get("pkg.torch.onnx.stack_trace", ""))
    frames = [frame for frame in frames if "/torch/" not in frame[0]]
    if frames:
        kept["pkg.torch.onnx.stack_trace"] = 'File "{}", {}'.format(*frames[-1][1:])
    for key in "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy", "pkg.torch.onnx.stack_trace":
        if key in kept:
            node.metadata_props.add(key=key, value=kept[key])
del model.graph.value_info[:]
onnx.save(model, sys.argv[1])
