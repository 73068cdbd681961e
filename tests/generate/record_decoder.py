#!/usr/bin/env python3
"""Makes the decoder of these tests, and what PyTorch's generate() writes with it: record_decoder.py DIRECTORY

A small Llama with random weights, exported by torch.onnx.export(dynamo=True) with its past as inputs; a tokenizer whose tokens are
words; and references.json, with the ids that generate() gives for prompts of several lengths. Needs torch, transformers, tokenizers and
onnxscript; the tests read what is recorded."""
import json
import pathlib
import sys

import onnx
import tokenizers
import torch
import transformers
from transformers.cache_utils import DynamicCache

VOCABULARY, LAYERS, HEADS, SIZE = 64, 2, 2, 4
WORDS = ("<pad> <s> </s> <unk> a ant apple bear bee bird boat book bread brick brook cat clay cloud cow crab crow day deer dog door "
         "dune eel elk elm fern field fig fire fish fox frog gate goat grass hen hill horn horse ice iron king lake lamb leaf lime "
         "lion mist moon moss moth mouse oak owl pear pine rain river road rock").split()
NEW = 24


def tokenizer():
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made.add_special_tokens(WORDS[:4])
    return made


class Flat(torch.nn.Module):
    """The model with keys and values of all layers as arguments and results."""
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, position_ids, *past):
        cache = DynamicCache()
        for layer in range(LAYERS):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        logits = self.model(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids,
                            past_key_values=cache, use_cache=True).logits
        return (logits, *(part for layer in cache.layers for part in (layer.keys, layer.values)))


def export(model, path):
    batch, tokens, past = 2, 5, 3
    caches = [torch.randn(batch, HEADS, past, SIZE) for _ in range(2 * LAYERS)]
    arguments = (torch.randint(4, VOCABULARY, (batch, tokens)), torch.ones(batch, past + tokens, dtype=torch.int64),
                 torch.arange(past, past + tokens)[None].expand(batch, tokens).contiguous(), *caches)
    steps, kept = {0: "batch", 1: "sequence"}, {0: "batch", 2: "past_sequence"}
    parts = [f"{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    torch.onnx.export(Flat(model).eval(), arguments, path, dynamo=True, external_data=False, verbose=False,
                      input_names=["input_ids", "attention_mask", "position_ids", *(f"past_key_values.{p}" for p in parts)],
                      output_names=["logits", *(f"present.{p}" for p in parts)],
                      dynamic_shapes=(steps, {0: "batch", 1: "total_sequence"}, steps, tuple([kept] * 2 * LAYERS)))
    exported = onnx.load(path)
    for node in exported.graph.node:  # where the exporter ran
        del node.metadata_props[:]
    onnx.save(exported, path)


def padded(rows):
    width = max(map(len, rows))
    return (torch.tensor([[0] * (width - len(row)) + row for row in rows]),
            torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows]))


def reference(model, name, rows, eos=2, **more):
    ids, mask = padded(rows)
    written = model.generate(ids, attention_mask=mask, max_new_tokens=NEW, do_sample=False, eos_token_id=eos, pad_token_id=0, **more)
    cut = []
    for row in written[:, ids.shape[1]:].tolist():
        cut.append(row[:row.index(eos) + 1] if eos in row else row)
    return {"name": name, "prompts": rows, "eos": eos, "ids": cut, **more}


def write_references(references, out):
    with open(out / "references.json", "w", encoding="utf-8") as file:
        lines = ",\n".join(json.dumps(record) for record in references)
        file.write(f'{{"transformers": "{transformers.__version__}", "torch": "{torch.__version__}", "new": {NEW}, "references": [\n{lines}\n]}}\n')


def main():
    out = pathlib.Path(sys.argv[1])
    torch.manual_seed(11)
    config = transformers.LlamaConfig(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=LAYERS,
                                      num_attention_heads=4, num_key_value_heads=HEADS, max_position_embeddings=128, bos_token_id=1,
                                      eos_token_id=2, pad_token_id=0, initializer_range=0.6, tie_word_embeddings=False)
    model = transformers.LlamaForCausalLM(config).eval()
    export(model, str(out / "model.onnx"))
    tokenizer().save(str(out / "tokenizer.json"))
    generator = torch.Generator().manual_seed(5)
    rows = [[1, *torch.randint(4, VOCABULARY, (n,), generator=generator).tolist()] for n in (6, 2, 4)]
    references = [reference(model, "one", rows[:1]), reference(model, "three", rows)]
    early = references[1]["ids"][1][5]
    references += [reference(model, "early", rows, eos=early), reference(model, "penalty", rows[:1], repetition_penalty=1.3),
                   reference(model, "long", [[1, *torch.randint(4, VOCABULARY, (39,), generator=generator).tolist()]])]
    write_references(references, out)
    for name, said in (("generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}),
                       ("config.json", {"model_type": "llama", "max_position_embeddings": 128})):
        (out / name).write_text(json.dumps(said) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
