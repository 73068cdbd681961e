#!/usr/bin/env python3
"""Writes what PyTorch's generate() gives with the decoders of record_decoder.py and record_caches.py if their caches are of 16 or
8 bits: small_caches.json

    record_small_caches.py FILE.json

Keys and values are rounded when they are added to the cache, and are f32 otherwise: to 8 bits as PyTorch quantises, each row of
a head with a scale of its own. The texts are those of prompts for which not all are the texts of caches in f32."""
import json
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.cache_utils import DynamicLayer

from record_caches import small
from record_decoder import HEADS, LAYERS, VOCABULARY, reference


def decoder():
    """As record_decoder.py makes it."""
    torch.manual_seed(11)
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=LAYERS, num_attention_heads=4,
                         num_key_value_heads=HEADS, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0,
                         initializer_range=0.6, tie_word_embeddings=False)
    return LlamaForCausalLM(config).eval()


def cast(dtype):
    return lambda x: x.to(dtype).to(x.dtype)


def quantised(x):
    scales = x.abs().amax(-1) / 127
    rows, zeros = x.reshape(-1, x.shape[-1]), torch.zeros(scales.numel(), dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(rows, scales.flatten(), zeros, 0, -127, 127).reshape(x.shape)


def main():
    model, generator, update = decoder(), torch.Generator().manual_seed(3), DynamicLayer.update
    rows = [[1, *torch.randint(4, VOCABULARY, (n % 5 + 2,), generator=generator).tolist()] for n in range(16)]
    own, recorded = reference(model, "own", rows)["ids"], {}
    for name, rounded in (("bf16", cast(torch.bfloat16)), ("fp16", cast(torch.float16)), ("int8", quantised)):
        DynamicLayer.update = lambda layer, keys, values, *rest, of=rounded, **more: update(
            layer, of(keys), of(values), *rest, **more)
        recorded[name] = reference(model, name, rows)
    built = reference(small(), "int8", rows[:3])
    DynamicLayer.update = update
    assert built["ids"] != reference(small(), "own", rows[:3])["ids"], "no text differs"
    differ = {name: [i for i in range(len(rows)) if one["ids"][i] != own[i]] for name, one in recorded.items()}
    chosen = sorted({*differ["bf16"][:2], *differ["int8"][:2], 0, 1})
    assert differ["bf16"] and differ["int8"], "no text differs"
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        for key in "prompts", "ids":
            for one in recorded.values():
                one[key] = [one[key][i] for i in chosen]
        json.dump({"own": [own[i] for i in chosen], **recorded, "built": built}, file)
        file.write("\n")


if __name__ == "__main__":
    main()
