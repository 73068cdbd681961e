#!/usr/bin/env python3
"""Writes what PyTorch's generate() gives with the decoder of record_decoder.py if its caches are of 16 bits: small_caches.json

    record_small_caches.py FILE.json

Keys and values are rounded when they are added to the cache, and are f32 otherwise. The texts are those of prompts for which
not all are the texts of caches in f32."""
import json
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.cache_utils import DynamicLayer

from record_decoder import HEADS, LAYERS, VOCABULARY, reference


def decoder():
    """As record_decoder.py makes it."""
    torch.manual_seed(11)
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=LAYERS, num_attention_heads=4,
                         num_key_value_heads=HEADS, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0,
                         initializer_range=0.6, tie_word_embeddings=False)
    return LlamaForCausalLM(config).eval()


def main():
    model, generator, update = decoder(), torch.Generator().manual_seed(3), DynamicLayer.update
    rows = [[1, *torch.randint(4, VOCABULARY, (n % 5 + 2,), generator=generator).tolist()] for n in range(16)]
    own, recorded = reference(model, "own", rows)["ids"], {}
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        DynamicLayer.update = lambda layer, keys, values, *rest, of=dtype, **more: update(
            layer, keys.to(of).to(keys.dtype), values.to(of).to(values.dtype), *rest, **more)
        recorded[name] = reference(model, name, rows)
    DynamicLayer.update = update
    differ = [i for i in range(len(rows)) if recorded["bf16"]["ids"][i] != own[i]]
    chosen = sorted({*differ[:2], 0, 1})
    assert differ, "no text differs"
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        for key in "prompts", "ids":
            for one in recorded.values():
                one[key] = [one[key][i] for i in chosen]
        json.dump({"own": [own[i] for i in chosen], **recorded}, file)
        file.write("\n")


if __name__ == "__main__":
    main()
