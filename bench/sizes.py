"""Sizes of the models that are measured on GPUs: what models.py writes and peer_torch_gpu.py builds."""
from dataclasses import dataclass


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
