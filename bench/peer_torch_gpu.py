#!/usr/bin/env python3
"""PyTorch on a model of sizes.py, with the weights that models.py wrote: peer_torch_gpu.py NAME DIRECTORY

Reads "COUNT" lines and answers each with a line of JSON, so that others can use the GPU in between: of a model that trains, COUNT
steps by AdamW, {"ms": [...], "loss": [...]}; of others COUNT passes from memory of the host to it again, {"ms": [...]}, the
output left in DIRECTORY/NAME.torch.npy. "memory" is the most that was allocated.

On a GPU everything PyTorch has is used: torch.compile (for inference with CUDA graphs), bf16 (autocast where it trains), its flash
attention, the fused optimizer. Without one the same is computed as it comes, to try this program."""
import contextlib
import json
import math
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from sizes import SIZES

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")


def attend(q, k, v):
    if hasattr(functional, "scaled_dot_product_attention"):
        grouped = {"enable_gqa": True} if k.shape[1] != q.shape[1] else {}
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, **grouped)
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return torch.softmax(scores + torch.full(scores.shape[-2:], -1e9, dtype=scores.dtype).triu(1), -1) @ v


class Linear(nn.Linear):
    """Its weight is stored as PyTorch does, (out,in); files have (in,out)."""

    turned = True


def heads_of(x, n):
    return x.view(*x.shape[:2], n, -1).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


class GptBlock(nn.Module):
    def __init__(self, size):
        super().__init__()
        width, self.heads = size.width, size.heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = Linear(width, 3 * width), Linear(width, width)
        self.fc, self.fc2 = Linear(width, 4 * width), Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (heads_of(part, self.heads) for part in self.qkv(self.ln1(x)).chunk(3, -1))
        x = x + self.proj(joined(attend(q, k, v)))
        return x + self.fc2(functional.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        if size.vocabulary:
            self.wte, self.wpe = nn.Embedding(size.vocabulary, size.width), nn.Embedding(size.length, size.width)
        self.h, self.lnf = nn.ModuleList(GptBlock(size) for _ in range(size.layers)), nn.LayerNorm(size.width)

    def forward(self, x):
        if self.size.vocabulary:
            x = self.wte(x) + self.wpe.weight
        for block in self.h:
            x = block(x)
        x = self.lnf(x)
        return functional.linear(x, self.wte.weight) if self.size.vocabulary else x


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


def rotated(x, cosines, sines):
    front, back = x.chunk(2, -1)
    return (x * cosines + torch.cat([-back, front], -1) * sines).to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self, size):
        super().__init__()
        width, head = size.width, size.width // size.heads
        self.size, self.ln1, self.ln2 = size, RmsNorm(width), RmsNorm(width)
        self.q, self.o = Linear(width, width, bias=False), Linear(width, width, bias=False)
        self.k, self.v = (Linear(width, size.kv_heads * head, bias=False) for _ in range(2))
        self.gate, self.up = (Linear(width, size.hidden, bias=False) for _ in range(2))
        self.down = Linear(size.hidden, width, bias=False)

    def forward(self, x, *tables):
        normal = self.ln1(x)
        q, k = (rotated(heads_of(part(normal), n), *tables) for part, n in ((self.q, self.size.heads), (self.k, self.size.kv_heads)))
        x = x + self.o(joined(attend(q, k, heads_of(self.v(normal), self.size.kv_heads))))
        normal = self.ln2(x)
        return x + self.down(functional.silu(self.gate(normal)) * self.up(normal))


class Llama(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.wte, self.h = nn.Embedding(size.vocabulary, size.width), nn.ModuleList(LlamaBlock(size) for _ in range(size.layers))
        self.lnf, self.head = RmsNorm(size.width), Linear(size.width, size.vocabulary, bias=False)
        head = size.width // size.heads
        angles = torch.outer(torch.arange(size.length), 1e4 ** (-torch.arange(0, head, 2) / head))
        angles = torch.cat([angles, angles], 1)
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def forward(self, x):
        x = self.wte(x)
        for block in self.h:
            x = block(x, self.cosines, self.sines)
        return self.head(self.lnf(x))


def load_weights(model, path):
    """What models.py calls h0.qkv.w is h.0.qkv.weight here."""
    data = np.memmap(path, np.uint8, "r")
    with open(f"{path}.json") as file:
        places = json.load(file)
    turned = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, Linear)}
    for name, parameter in model.named_parameters():
        theirs = name.replace("h.", "h", 1) if name.startswith("h.") else name
        theirs = theirs.replace(".weight", ".w" if name in turned else ".g").replace(".bias", ".b")
        theirs = theirs[:-2] if theirs[:-2] in places else theirs  # embeddings
        place = places.pop(theirs)
        count = math.prod(place["shape"]) * 4
        value = torch.from_numpy(data[place["offset"]:place["offset"] + count].view("f4").reshape(place["shape"]).copy())
        with torch.no_grad():
            parameter.copy_(value.t() if name in turned else value)
    if places:
        raise SystemExit(f"no parameter is called {', '.join(places)}")


def wait():
    if GPU:
        torch.cuda.synchronize()


def compiled(model, mode):
    return torch.compile(model, mode=mode) if GPU else model


class Training:
    def __init__(self, size, model, directory, name):
        self.size, self.at = size, 0
        self.model = compiled(model, "default")
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, **({"fused": True} if GPU else {}))
        self.samples = [torch.from_numpy(np.load(f"{directory}/{name}.{what}.npy")).to(DEVICE) for what in ("x", "labels")]

    def batch(self):
        rows = len(self.samples[0])
        begin = self.at % rows
        self.at += self.size.batch
        return (samples[begin:begin + self.size.batch] for samples in self.samples)

    def step(self):
        x, labels = self.batch()
        with torch.autocast(DEVICE.type, torch.bfloat16):
            logits = self.model(x)
            loss = functional.cross_entropy(logits.view(-1, self.size.vocabulary), labels.reshape(-1))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss

    def run(self, count):
        taken, losses = [], []
        for _ in range(count):
            begin = time.perf_counter()
            losses.append(self.step().detach())
            wait()
            taken.append((time.perf_counter() - begin) * 1e3)
        return {"ms": taken, "loss": [float(loss) for loss in losses]}


class Inference:
    """With input and output in memory of the host, as the other side has them."""

    def __init__(self, _, model, directory, name):
        self.model = compiled(model.to(torch.bfloat16).eval(), "reduce-overhead")
        given = torch.from_numpy(np.load(f"{directory}/{name}.x.npy")).to(torch.bfloat16)
        self.given, self.path = given.pin_memory() if GPU else given, f"{directory}/{name}.torch.npy"

    def run(self, count):
        taken = []
        for _ in range(count):
            begin = time.perf_counter()
            result = self.model(self.given.to(DEVICE)).to("cpu")
            taken.append((time.perf_counter() - begin) * 1e3)
        np.save(self.path, result.float().numpy())
        return {"ms": taken}


def main(name, directory):
    size = SIZES[name]
    torch.manual_seed(0)
    model = (Llama if size.kind == "llama" else Gpt2)(size)
    load_weights(model, f"{directory}/{name}.weights")
    model = model.to(DEVICE)
    side = (Training if size.trains else Inference)(size, model, directory, name)
    for line in sys.stdin:
        with contextlib.nullcontext() if size.trains else torch.no_grad():
            said = side.run(int(line))
        said["memory"] = torch.cuda.max_memory_allocated() if GPU else 0
        said["version"] = torch.__version__
        if GPU:
            torch.cuda.empty_cache()
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
