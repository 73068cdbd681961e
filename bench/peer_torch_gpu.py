#!/usr/bin/env python3
"""PyTorch on a model of sizes.py, with the weights that models.py wrote: peer_torch_gpu.py NAME DIRECTORY [MODE]

Reads "COUNT" lines and answers each with a line of JSON, so that others can use the GPU in between: of a model that trains, COUNT
steps by AdamW, {"ms": [...], "loss": [...]}; of others COUNT passes from memory of the host to it again, {"ms": [...]}, the
output left in DIRECTORY/NAME.torch.npy; of decoders COUNT tokens behind a prompt, greedily, as `rankc generate --json` says it: their
"prompt" and "new" are read in place of COUNT. "memory" is the most that was allocated.

On a GPU everything PyTorch has is used: torch.compile (for inference with CUDA graphs; MODE is its mode), bf16 (autocast where it
trains), its flash attention, the fused optimizer; decoders keep keys and values in place, as gpt-fast does. Without one the same is computed as it comes, to try this program."""
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


def attend(q, k, v, causal=True, seen=None):
    """seen: the keys that each query sees, in place of the causal ones."""
    if hasattr(functional, "scaled_dot_product_attention"):
        grouped = {"enable_gqa": True} if k.shape[1] != q.shape[1] else {}
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=causal and seen is None, **grouped)
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if seen is None and causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return torch.softmax(scores if seen is None else scores.masked_fill(~seen, -1e9), -1) @ v


class Linear(nn.Linear):
    """Its weight is stored as PyTorch does, (out,in); files have (in,out)."""

    turned = True


def heads_of(x, n):
    return x.view(*x.shape[:2], n, -1).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def last(x, size):
    """Of a model of language that does not train, the last token."""
    return x[:, -1:] if size.vocabulary and not size.trains else x


class GptBlock(nn.Module):
    def __init__(self, size):
        super().__init__()
        width, self.heads = size.width, size.heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = Linear(width, 3 * width), Linear(width, width)
        self.fc, self.fc2 = Linear(width, 4 * width), Linear(4 * width, width)

    def forward(self, x, attend=attend):
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

    def forward(self, x, positions=slice(None), attends=None):
        if self.size.vocabulary:
            x = self.wte(x) + self.wpe.weight[positions]
        for block, attended in zip(self.h, attends or [attend] * len(self.h)):
            x = block(x, attended)
        x = self.lnf(last(x, self.size))
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

    def forward(self, x, tables, attend=attend):
        normal = self.ln1(x)
        q, k = (rotated(heads_of(part(normal), n), *tables) for part, n in ((self.q, self.size.heads), (self.k, self.size.kv_heads)))
        x = x + self.o(joined(attend(q, k, heads_of(self.v(normal), self.size.kv_heads))))
        normal = self.ln2(x)
        return x + self.down(functional.silu(self.gate(normal)) * self.up(normal))


class Llama(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.wte, self.h = nn.Embedding(size.vocabulary, size.width), nn.ModuleList(LlamaBlock(size) for _ in range(size.layers))
        self.lnf, self.head = RmsNorm(size.width), Linear(size.width, size.vocabulary, bias=False)
        head = size.width // size.heads
        angles = torch.outer(torch.arange(size.length), 1e4 ** (-torch.arange(0, head, 2) / head))
        angles = torch.cat([angles, angles], 1)
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def forward(self, x, positions=slice(None), attends=None):
        x = self.wte(x)
        tables = self.cosines[positions], self.sines[positions]
        for block, attended in zip(self.h, attends or [attend] * len(self.h)):
            x = block(x, tables, attended)
        return self.head(self.lnf(last(x, self.size)))


class BertBlock(nn.Module):
    def __init__(self, size):
        super().__init__()
        width, self.heads = size.width, size.heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = Linear(width, 3 * width), Linear(width, width)
        self.fc, self.fc2 = Linear(width, 4 * width), Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (heads_of(part, self.heads) for part in self.qkv(x).chunk(3, -1))
        x = self.ln1(x + self.proj(joined(attend(q, k, v, causal=False))))
        return self.ln2(x + self.fc2(functional.gelu(self.fc(x))))


class Bert(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.words, self.positions = nn.Embedding(size.vocabulary, size.width), nn.Embedding(size.length, size.width)
        self.norm, self.h = nn.LayerNorm(size.width), nn.ModuleList(BertBlock(size) for _ in range(size.layers))

    def forward(self, x):
        x = self.norm(self.words(x) + self.positions.weight)
        for block in self.h:
            x = block(x)
        return x


class NormedConvolution(nn.Module):
    """With parameters as files name them."""

    def __init__(self, inputs, outputs, kernel, stride):
        super().__init__()
        self.stride, self.w = stride, nn.Parameter(torch.empty(outputs, inputs, kernel, kernel))
        self.g, self.b, self.m, self.v = (nn.Parameter(torch.empty(outputs)) for _ in range(4))

    def forward(self, x):
        y = functional.conv2d(x, self.w, None, self.stride, self.w.shape[-1] // 2)
        return functional.batch_norm(y, self.m, self.v, self.g, self.b, False, 0, 1e-5)


class Bottleneck(nn.ModuleDict):
    def __init__(self, inputs, width, stride, projected):
        super().__init__({"1": NormedConvolution(inputs, width, 1, 1), "2": NormedConvolution(width, width, 3, stride),
                          "3": NormedConvolution(width, 4 * width, 1, 1),
                          **({"skip": NormedConvolution(inputs, 4 * width, 1, stride)} if projected else {})})

    def forward(self, x):
        y = self["3"](torch.relu(self["2"](torch.relu(self["1"](x)))))
        return torch.relu(y + (self["skip"](x) if "skip" in self else x))


class ResNet50(nn.Module):
    def __init__(self, _):
        super().__init__()
        self.stem, channels = NormedConvolution(3, 64, 7, 2), 64
        for stage, (blocks, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)]):
            made = nn.ModuleDict()
            for block in range(blocks):
                made[str(block)] = Bottleneck(channels, width, 2 if stage > 0 and block == 0 else 1, block == 0)
                channels = 4 * width
            setattr(self, f"s{stage}", made)
        self.fc = nn.Module()
        self.fc.w, self.fc.b = nn.Parameter(torch.empty(1000, channels)), nn.Parameter(torch.empty(1000))

    def forward(self, x):
        x = functional.max_pool2d(torch.relu(self.stem(x)), 3, 2, 1)
        for stage in (self.s0, self.s1, self.s2, self.s3):
            for block in stage.values():
                x = block(x)
        return functional.linear(x.mean((2, 3)), self.fc.w, self.fc.b)


KINDS = {"gpt2": Gpt2, "llama": Llama, "bert": Bert, "resnet50": ResNet50}


class Cache(nn.Module):
    """Keys and values in place; a query sees those up to its position."""

    def __init__(self, size):
        super().__init__()
        heads = size.kv_heads or size.heads
        for part in ("k", "v"):
            self.register_buffer(part, torch.zeros(1, heads, size.length, size.width // size.heads), persistent=False)

    def forward(self, q, k, v, positions, seen):
        self.k.index_copy_(2, positions, k)
        self.v.index_copy_(2, positions, v)
        return attend(q, self.k, self.v, seen=seen)


class Decoder(nn.Module):
    """A step: the next token of ids at these positions."""

    def __init__(self, size, model):
        super().__init__()
        self.size, self.model, self.caches = size, model, nn.ModuleList(Cache(size) for _ in range(size.layers))

    def forward(self, ids, positions):
        seen = torch.arange(self.size.length, device=ids.device)[None] <= positions[:, None]
        attends = [lambda q, k, v, cache=cache: cache(q, k, v, positions, seen) for cache in self.caches]
        return self.model(ids, positions, attends)[:, -1].argmax(-1, keepdim=True)


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


DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}


class Inference:
    """With input and output in memory of the host, as the other side has them."""

    def __init__(self, size, model, directory, name, mode="reduce-overhead"):
        torch.backends.cudnn.allow_tf32 = False  # products are not in tf32 unless they are told to be
        given = torch.from_numpy(np.load(f"{directory}/{name}.x.npy"))
        if given.is_floating_point():
            given = given.to(DTYPES[size.dtype])
        if given.ndim == 4:
            given, model = given.to(memory_format=torch.channels_last), model.to(memory_format=torch.channels_last)
        self.model = compiled(model.to(DTYPES[size.dtype]).eval(), mode)
        self.given, self.path = given.pin_memory() if GPU else given, f"{directory}/{name}.torch.npy"

    def run(self, count):
        taken = []
        for _ in range(count):
            begin = time.perf_counter()
            result = self.model(self.given.to(DEVICE)).to("cpu")
            taken.append((time.perf_counter() - begin) * 1e3)
        np.save(self.path, result.float().numpy())
        return {"ms": taken}


class Decoding:
    """The prompt is a graph of its own."""

    def __init__(self, size, model, directory, name, mode="reduce-overhead"):
        decoder = Decoder(size, model).to(DEVICE).to(DTYPES[size.dtype]).eval()
        self.begin, self.go_on = compiled(decoder, "default"), compiled(decoder, mode)
        self.ids = torch.from_numpy(np.load(f"{directory}/{name}.x.npy")).to(DEVICE)

    def run(self, prompt, new):
        times, chosen, at = [time.perf_counter()], [], torch.arange(prompt, device=DEVICE)
        token = self.begin(self.ids[:, :prompt], at)
        for _ in range(new):
            chosen.append(int(token))  # waits
            times.append(time.perf_counter())
            at = at[-1:] + 1
            token = self.go_on(token.clone(), at)
        return {"ids": chosen, "prompt_tokens_per_s": prompt / (times[1] - times[0]), "tokens_per_s": (new - 1) / (times[-1] - times[1])}


def side_of(size):
    return Training if size.trains else Decoding if size.decodes else Inference


def main(name, directory, *mode):
    size = SIZES[name]
    torch.manual_seed(0)
    model = KINDS[size.kind](size)
    load_weights(model, f"{directory}/{name}.weights")
    side = side_of(size)(size, model.to(DEVICE), directory, name, *mode)
    for line in sys.stdin:
        with contextlib.nullcontext() if size.trains else torch.no_grad():
            said = side.run(*map(int, line.split()))
        said["memory"] = torch.cuda.max_memory_allocated() if GPU else 0
        said["version"] = torch.__version__
        if GPU:
            torch.cuda.empty_cache()
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
