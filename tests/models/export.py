#!/usr/bin/env python3
"""Export the small test models, each with reference inputs and PyTorch's outputs.

    export.py [--out DIR] [NAME...]

writes, per model (all of them if no NAME is given),

    DIR/NAME/model.onnx
    DIR/NAME/inputs/<input>.npy
    DIR/NAME/outputs/<output>.npy
    DIR/NAME/dims               "batch=2" lines, one per dynamic dimension; absent if all shapes are static

The results are committed, so tests need no Python; run this only to change a model. It needs PyTorch (written for
1.13, Debian's python3-torch) and numpy. Another PyTorch exports other graphs for the same modules.

The transformers follow the text of HuggingFace's GPT-2 and Llama, down to the module names, because what matters is
the graph an exporter makes of such code: masks from buffers, shapes computed at run time, decomposed norms. Sizes are
small, often prime or not divisible by the number of ranks, and no weight, bias or norm scale keeps a default of 0 or 1.
"""

import math
from dataclasses import dataclass

import numpy
import torch
from torch import nn
from torch.nn import functional

from exporting import Spec, main

# ---- mlp ------------------------------------------------------------------------------------------------------------


class Mlp(nn.Module):
    """Linear layers with Relu and Tanh in turn; no activation after the last.

    A Linear on a matrix exports as Gemm with its bias, as MatMul without."""

    def __init__(self, sizes, bias=True):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(m, n, bias=bias) for m, n in zip(sizes, sizes[1:]))

    def forward(self, x):
        for index, layer in enumerate(self.layers[:-1]):
            x = layer(x)
            x = torch.relu(x) if index % 2 == 0 else torch.tanh(x)
        return self.layers[-1](x)


# ---- GPT-2 ----------------------------------------------------------------------------------------------------------


@dataclass
class Gpt2Config:
    hidden: int = 32
    heads: int = 4
    layers: int = 3
    vocab: int = 101
    positions: int = 16
    eps: float = 1e-5


class Conv1D(nn.Module):
    """GPT-2's linear layer: the weight is [in, out], and addmm wants a matrix, so the leading axes are folded."""

    def __init__(self, n_out, n_in):
        super().__init__()
        self.n_out = n_out
        self.weight = nn.Parameter(torch.empty(n_in, n_out))
        self.bias = nn.Parameter(torch.empty(n_out))

    def forward(self, x):
        size_out = x.size()[:-1] + (self.n_out,)
        x = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return x.view(size_out)


class NewGelu(nn.Module):
    """The tanh form, written out (Pow, Tanh)."""

    def forward(self, x):
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))


class Gpt2Attention(nn.Module):
    """One fused c_attn split into query, key and value; the causal mask is a slice of a bool buffer."""

    def __init__(self, config):
        super().__init__()
        n = config.positions
        self.register_buffer("bias", torch.tril(torch.ones(n, n, dtype=torch.bool)).view(1, 1, n, n))
        self.hidden = config.hidden
        self.heads = config.heads
        self.head_dim = config.hidden // config.heads
        self.c_attn = Conv1D(3 * config.hidden, config.hidden)
        self.c_proj = Conv1D(config.hidden, config.hidden)

    def split_heads(self, x):
        x = x.view(x.size()[:-1] + (self.heads, self.head_dim))
        return x.permute(0, 2, 1, 3)

    def merge_heads(self, x):
        x = x.permute(0, 2, 1, 3).contiguous()
        return x.view(x.size()[:-2] + (self.hidden,))

    def attend(self, query, key, value):
        weights = torch.matmul(query, key.transpose(-1, -2))
        weights = weights / torch.full([], value.size(-1) ** 0.5, dtype=weights.dtype)
        nd, ns = query.size(-2), key.size(-2)
        causal_mask = self.bias[:, :, ns - nd : ns, :ns]
        mask_value = torch.full([], torch.finfo(weights.dtype).min, dtype=weights.dtype)
        weights = torch.where(causal_mask, weights, mask_value)
        weights = functional.softmax(weights, dim=-1)
        return torch.matmul(weights, value)

    def forward(self, x):
        query, key, value = self.c_attn(x).split(self.hidden, dim=2)
        x = self.attend(self.split_heads(query), self.split_heads(key), self.split_heads(value))
        return self.c_proj(self.merge_heads(x))


class Gpt2Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = Conv1D(4 * config.hidden, config.hidden)
        self.c_proj = Conv1D(config.hidden, 4 * config.hidden)
        self.act = NewGelu()

    def forward(self, x):
        return self.c_proj(self.act(self.c_fc(x)))


class ErfAttention(nn.Module):
    """Another spelling of the same attention: nn.Linear for the query, one for key and value cut by chunk, a scale
    that multiplies, and -inf above the diagonal by triu and masked_fill."""

    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.head_dim = config.hidden // config.heads
        self.q_proj = nn.Linear(config.hidden, config.hidden)
        self.kv_proj = nn.Linear(config.hidden, 2 * config.hidden)
        self.out_proj = nn.Linear(config.hidden, config.hidden)

    def split_heads(self, x):
        batch, seq, _ = x.shape
        return x.reshape(batch, seq, self.heads, self.head_dim).transpose(1, 2)

    def forward(self, x):
        batch, seq, hidden = x.shape
        key, value = self.kv_proj(x).chunk(2, dim=-1)
        query, key, value = (self.split_heads(t) for t in (self.q_proj(x), key, value))
        scores = query @ key.transpose(-2, -1) * self.head_dim**-0.5
        future = torch.triu(torch.ones(seq, seq), diagonal=1) == 1
        scores = scores.masked_fill(future, float("-inf"))
        x = scores.softmax(dim=-1) @ value
        return self.out_proj(x.transpose(1, 2).reshape(batch, seq, hidden))


class ErfMlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.fc_in = nn.Linear(config.hidden, 4 * config.hidden)
        self.fc_out = nn.Linear(4 * config.hidden, config.hidden)
        self.act = nn.GELU()

    def forward(self, x):
        return self.fc_out(self.act(self.fc_in(x)))


class Gpt2Block(nn.Module):
    def __init__(self, config, attention, mlp):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.hidden, eps=config.eps)
        self.attn = attention(config)
        self.ln_2 = nn.LayerNorm(config.hidden, eps=config.eps)
        self.mlp = mlp(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2Model(nn.Module):
    def __init__(self, config, attention, mlp):
        super().__init__()
        self.wte = nn.Embedding(config.vocab, config.hidden)
        self.wpe = nn.Embedding(config.positions, config.hidden)
        self.h = nn.ModuleList(Gpt2Block(config, attention, mlp) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.hidden, eps=config.eps)

    def forward(self, input_ids):
        input_shape = input_ids.size()
        input_ids = input_ids.view(-1, input_shape[-1])
        position_ids = torch.arange(0, input_shape[-1], dtype=torch.long)
        position_ids = position_ids.unsqueeze(0).view(-1, input_shape[-1])
        x = self.wte(input_ids) + self.wpe(position_ids)
        output_shape = input_shape + (x.size(-1),)
        for block in self.h:
            x = block(x)
        return self.ln_f(x).view(output_shape)


class Gpt2LmHead(nn.Module):
    """Logits over the vocabulary, with the token embedding as the head's weight."""

    def __init__(self, config, attention=Gpt2Attention, mlp=Gpt2Mlp):
        super().__init__()
        self.transformer = Gpt2Model(config, attention, mlp)
        self.lm_head = nn.Linear(config.hidden, config.vocab, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, input_ids):
        return self.lm_head(self.transformer(input_ids))


# ---- Llama ----------------------------------------------------------------------------------------------------------


@dataclass
class LlamaConfig:
    hidden: int = 48
    heads: int = 6
    kv_heads: int = 2
    intermediate: int = 56
    layers: int = 2
    vocab: int = 97
    rope_theta: float = 10000.0
    eps: float = 1e-6

    @property
    def head_dim(self):
        return self.hidden // self.heads


class LlamaRMSNorm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.hidden))
        self.eps = config.eps

    def forward(self, x):
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + self.eps))


class LlamaRotaryEmbedding(nn.Module):
    def __init__(self, config):
        super().__init__()
        exponent = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
        self.register_buffer("inv_freq", 1.0 / (config.rope_theta**exponent), persistent=False)

    def forward(self, position_ids):
        inv_freq = self.inv_freq[None, :, None].float().expand(position_ids.shape[0], -1, 1)
        freqs = (inv_freq @ position_ids[:, None, :].float()).transpose(1, 2)
        angles = torch.cat((freqs, freqs), dim=-1)
        return angles.cos(), angles.sin()


def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary(x, cos, sin):
    """x is [batch, head, seq, head_dim]; cos and sin are [batch, seq, head_dim]."""
    return x * cos.unsqueeze(1) + rotate_half(x) * sin.unsqueeze(1)


def repeat_kv(x, groups):
    """[batch, kv_heads, seq, head_dim] to [batch, kv_heads * groups, seq, head_dim], each kv head repeated in place."""
    batch, kv_heads, seq, head_dim = x.shape
    if groups == 1:
        return x
    x = x[:, :, None, :, :].expand(batch, kv_heads, groups, seq, head_dim)
    return x.reshape(batch, kv_heads * groups, seq, head_dim)


class LlamaAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        kv_hidden = config.kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden, config.hidden, bias=False)
        self.k_proj = nn.Linear(config.hidden, kv_hidden, bias=False)
        self.v_proj = nn.Linear(config.hidden, kv_hidden, bias=False)
        self.o_proj = nn.Linear(config.hidden, config.hidden, bias=False)

    def forward(self, x, cos, sin, mask):
        config = self.config
        batch, seq, _ = x.size()
        query = self.q_proj(x).view(batch, seq, config.heads, config.head_dim).transpose(1, 2)
        key = self.k_proj(x).view(batch, seq, config.kv_heads, config.head_dim).transpose(1, 2)
        value = self.v_proj(x).view(batch, seq, config.kv_heads, config.head_dim).transpose(1, 2)
        query, key = apply_rotary(query, cos, sin), apply_rotary(key, cos, sin)
        key = repeat_kv(key, config.heads // config.kv_heads)
        value = repeat_kv(value, config.heads // config.kv_heads)
        weights = torch.matmul(query, key.transpose(2, 3)) / math.sqrt(config.head_dim)
        weights = functional.softmax(weights + mask, dim=-1, dtype=torch.float32)
        x = torch.matmul(weights, value).transpose(1, 2).contiguous()
        return self.o_proj(x.reshape(batch, seq, config.hidden))


class LlamaMlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.down_proj = nn.Linear(config.intermediate, config.hidden, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class LlamaDecoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attn = LlamaAttention(config)
        self.mlp = LlamaMlp(config)
        self.input_layernorm = LlamaRMSNorm(config)
        self.post_attention_layernorm = LlamaRMSNorm(config)

    def forward(self, x, cos, sin, mask):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab, config.hidden)
        self.layers = nn.ModuleList(LlamaDecoderLayer(config) for _ in range(config.layers))
        self.norm = LlamaRMSNorm(config)
        self.rotary_emb = LlamaRotaryEmbedding(config)

    @staticmethod
    def causal_mask(batch, seq, dtype, attention_mask):
        """Additive [batch, 1, seq, seq]. As in HuggingFace's, a position both future and padded gets min + min = -inf."""
        lowest = torch.finfo(dtype).min
        mask = torch.triu(torch.full((seq, seq), lowest, dtype=dtype), diagonal=1)
        mask = mask[None, None, :, :].expand(batch, 1, seq, seq)
        if attention_mask is None:
            return mask
        padding = 1.0 - attention_mask[:, None, None, :].expand(batch, 1, seq, seq).to(dtype)
        return padding.masked_fill(padding.to(torch.bool), lowest) + mask

    def forward(self, input_ids, attention_mask=None):
        batch, seq = input_ids.shape
        position_ids = torch.arange(0, seq, dtype=torch.long).unsqueeze(0)
        x = self.embed_tokens(input_ids)
        mask = self.causal_mask(batch, seq, x.dtype, attention_mask)
        cos, sin = self.rotary_emb(position_ids)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.norm(x)


class LlamaForCausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = LlamaModel(config)
        self.lm_head = nn.Linear(config.hidden, config.vocab, bias=False)

    def forward(self, input_ids, attention_mask=None):
        return self.lm_head(self.model(input_ids, attention_mask))


# ---- mixture of experts ---------------------------------------------------------------------------------------------


class Experts(nn.Module):
    """The experts of HuggingFace's Mixtral and Qwen in their form for export: each pair of a token and one of its experts
    is a row, multiplied from the left with the weights that its expert's number picks."""

    def __init__(self, hidden, experts, inner):
        super().__init__()
        self.gate_up = nn.Parameter(torch.empty(experts, 2 * inner, hidden))
        self.down = nn.Parameter(torch.empty(experts, hidden, inner))

    def forward(self, x, weights, chosen):
        number = chosen.reshape(-1)
        rows = x.unsqueeze(1).expand(-1, chosen.shape[1], -1).reshape(-1, x.shape[1])
        gate, up = torch.bmm(self.gate_up[number], rows.unsqueeze(-1)).squeeze(-1).chunk(2, dim=-1)
        y = torch.bmm(self.down[number], (functional.silu(gate) * up).unsqueeze(-1)).squeeze(-1)
        return (y * weights.reshape(-1, 1)).view(*chosen.shape, -1).sum(1)


class BiasedExperts(nn.Module):
    """Experts with biases, stored as (inputs, outputs) and picked without flattening; multiplied from the right."""

    def __init__(self, hidden, experts, inner):
        super().__init__()
        self.up, self.up_bias = nn.Parameter(torch.empty(experts, hidden, inner)), nn.Parameter(torch.empty(experts, inner))
        self.down = nn.Parameter(torch.empty(experts, inner, hidden))
        self.down_bias = nn.Parameter(torch.empty(experts, hidden))

    def forward(self, x, weights, chosen):
        rows = x[:, None, None, :]
        y = torch.tanh(rows @ self.up[chosen] + self.up_bias[chosen].unsqueeze(-2))
        y = y @ self.down[chosen] + self.down_bias[chosen].unsqueeze(-2)
        return (y.squeeze(-2) * weights.unsqueeze(-1)).sum(1)


class SparseBlock(nn.Module):
    """Each token passes through the `top` experts that the router prefers, beside a residual connection."""

    def __init__(self, experts, hidden, number, inner, top):
        super().__init__()
        self.top, self.norm, self.router = top, nn.LayerNorm(hidden), nn.Linear(hidden, number, bias=False)
        self.experts = experts(hidden, number, inner)

    def forward(self, x):
        rows = self.norm(x).reshape(-1, x.shape[-1])
        weights, chosen = torch.topk(torch.softmax(self.router(rows), -1), self.top, dim=-1)
        return x + self.experts(rows, weights / weights.sum(-1, keepdim=True), chosen).view(x.shape)


class SparseLm(nn.Module):
    """A language model of sparse blocks, without attention."""

    def __init__(self, vocab=53, hidden=24, inner=20):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList([SparseBlock(Experts, hidden, 6, inner, 2), SparseBlock(BiasedExperts, hidden, 5, inner, 3)])
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, vocab, bias=False)

    def forward(self, input_ids):
        x = self.embed(input_ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


# ---- the models -----------------------------------------------------------------------------------------------------


def vectors(batch, size):
    return lambda random: {"x": random.standard_normal((batch, size)).astype(numpy.float32)}


def tokens(batch, seq, vocab):
    return lambda random: {"input_ids": random.integers(0, vocab, (batch, seq), dtype=numpy.int64)}


def padded_tokens(batch, seq, vocab):
    """Tokens with attention_mask: the first sample is padded on the right, the last on the left."""

    def make(random):
        mask = numpy.ones((batch, seq), dtype=numpy.int64)
        mask[0, seq - 2 :] = 0
        mask[-1, :3] = 0
        return {**tokens(batch, seq, vocab)(random), "attention_mask": mask}

    return make


BATCH_SEQ = {0: "batch", 1: "seq"}
DYNAMIC_LM = {"input_ids": BATCH_SEQ, "logits": BATCH_SEQ}


def gpt2(config=Gpt2Config(), attention=Gpt2Attention, mlp=Gpt2Mlp, **options):
    return Spec(lambda: Gpt2LmHead(config, attention, mlp), tokens(2, 11, config.vocab), ("logits",), **options)


def llama(config=LlamaConfig(), make_inputs=tokens, **options):
    return Spec(lambda: LlamaForCausalLM(config), make_inputs(2, 9, config.vocab), ("logits",), **options)


MODELS = {
    "mlp": Spec(lambda: Mlp([13, 29, 31, 7, 5]), vectors(5, 13), ("y",), opset=13),
    "mlp_dyn": Spec(
        lambda: Mlp([13, 29, 31, 7, 5], bias=False),
        vectors(7, 13),
        ("y",),
        opset=13,
        dynamic={"x": {0: "batch"}, "y": {0: "batch"}},
    ),
    "gpt2": gpt2(opset=14, fold=False, dynamic=DYNAMIC_LM),
    "gpt2_folded": gpt2(opset=14, dynamic=DYNAMIC_LM),
    # Six heads do not divide by four ranks; opset 17 has LayerNormalization. Two layers keep the file small.
    "gpt2_static": gpt2(Gpt2Config(hidden=48, heads=6, layers=2), opset=17),
    "gpt2_erf": gpt2(attention=ErfAttention, mlp=ErfMlp, opset=14, dynamic=DYNAMIC_LM),
    "llama": llama(opset=14, fold=False, dynamic=DYNAMIC_LM),
    "llama_folded": llama(opset=14, dynamic=DYNAMIC_LM),
    "llama_static": llama(LlamaConfig(hidden=64, heads=8, kv_heads=4), padded_tokens, opset=17),
    "experts": Spec(SparseLm, tokens(2, 9, 53), ("logits",), opset=14, dynamic=DYNAMIC_LM),
    "llama_mqa": llama(LlamaConfig(kv_heads=1), opset=14, dynamic=DYNAMIC_LM),
}


if __name__ == "__main__":
    main(MODELS, "Export the test models with reference inputs and outputs.")
