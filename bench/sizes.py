"""Sizes of the models that are measured on GPUs: what models.py writes and peer_torch_gpu.py builds."""
from dataclasses import dataclass, replace


@dataclass
class Size:
    kind: str
    layers: int
    width: int
    heads: int
    batch: int
    length: int
    vocabulary: int = 0   # 0: no embeddings and no logits
    kv_heads: int = 0     # of llama
    hidden: int = 0       # of llama
    trains: bool = True
    dtype: str = "bf16"   # of inference
    decodes: bool = False # a token a step, with caches of `length` tokens


# GPT-2 124M with its vocabulary made a multiple of 128, as llm.c and nanoGPT do, and as it is; Llama as TinyLlama 1.1B.
SIZES = {
    "gpu_gpt2": Size("gpt2", 12, 768, 12, batch=32, length=1024, vocabulary=50304),
    "gpu_gpt2_odd": Size("gpt2", 12, 768, 12, batch=32, length=1024, vocabulary=50257),
    "gpu_llama": Size("llama", 22, 2048, 32, batch=4, length=4096, vocabulary=32000, kv_heads=4, hidden=5632),
    "gpu_stack_1": Size("gpt2", 12, 768, 12, batch=1, length=1, trains=False),
    "gpu_stack_128": Size("gpt2", 12, 768, 12, batch=1, length=128, trains=False),
    # to try the benchmarks themselves
    "gpu_gpt2_tiny": Size("gpt2", 2, 32, 2, batch=2, length=16, vocabulary=64),
    "gpu_llama_tiny": Size("llama", 2, 32, 4, batch=2, length=16, vocabulary=64, kv_heads=2, hidden=48),
    "gpu_stack_tiny": Size("gpt2", 2, 32, 2, batch=1, length=8, trains=False),
}

# Inference: token ids to the logits of the last token, for BERT to hidden states; images to classes.
INFERENCE = {
    "gpt2": Size("gpt2", 12, 768, 12, batch=1, length=128, vocabulary=50257, trains=False),
    "llama": Size("llama", 22, 2048, 32, batch=1, length=128, vocabulary=32000, kv_heads=4, hidden=5632, trains=False),
    "bert": Size("bert", 12, 768, 12, batch=1, length=128, vocabulary=30522, trains=False),
    "resnet50": Size("resnet50", 50, 64, 1, batch=1, length=224, trains=False),
}
SMALLER = dict(layers=2, width=32, heads=4, batch=2, length=16, vocabulary=64, hidden=48)
SIZES.update({f"gpu_{kind}_{batch}_{dtype}": replace(size, batch=batch, dtype=dtype)
              for kind, size in INFERENCE.items() for batch in (1, 32) for dtype in ("bf16", "f32")})
SIZES.update({f"gpu_{kind}_{dtype}_tiny": replace(size, dtype=dtype, **(dict(length=16) if kind == "resnet50" else SMALLER),
                                                  **(dict(kv_heads=2) if kind == "llama" else {}))
              for kind, size in INFERENCE.items() for dtype in ("bf16", "f32")})
# Decoders, with room for a prompt of 2048 tokens; Llama as Llama 3.2 1B with 32000 words.
SIZES.update({
    "gpu_gpt2_decoder": replace(INFERENCE["gpt2"], length=2304, decodes=True),
    "gpu_llama_decoder": Size("llama", 16, 2048, 32, batch=1, length=2304, vocabulary=32000, kv_heads=8, hidden=8192, trains=False, decodes=True),
    "gpu_gpt2_decoder_tiny": Size("gpt2", 2, 32, 4, batch=1, length=96, vocabulary=64, trains=False, decodes=True),
    "gpu_llama_decoder_tiny": Size("llama", 2, 32, 4, batch=1, length=96, vocabulary=64, kv_heads=2, hidden=48, trains=False, decodes=True),
})
