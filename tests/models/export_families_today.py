#!/usr/bin/env python3
"""Export many more families of the newest transformers, each made small by the sizes that its configuration names.

    export_families_today.py --out DIR [--forms FORM,..] [NAME...]

writes what export_today.py writes, for models that differ in more than their attention: state-space and recurrent layers,
mixtures of experts (with `_experts_implementation` "batched_mm"), spectra, convolutions. NAME is a model type of
transformers; HEADS says which of its classes is exported.
"""

import numpy
import torch
import transformers
from torch import nn
from transformers.models.auto import modeling_auto

from export_today import BATCH, LENGTH, TARGETS, VOCABULARY, main, tokens
from exporting import randomize

# Settings of all families by the names that their configurations use; each family takes those it knows.
SIZES = dict(
    vocab_size=VOCABULARY, hidden_size=48, embedding_size=48, n_embd=48, d_model=48, word_embed_proj_dim=48,
    num_hidden_layers=2, n_layer=2, n_layers=2, num_layers=2, encoder_layers=2, decoder_layers=2,
    num_attention_heads=6, n_head=6, n_heads=6, num_heads=6, encoder_attention_heads=6, decoder_attention_heads=6,
    num_key_value_heads=2, head_dim=8, d_kv=8, rotary_dim=4, q_lora_rank=12, kv_lora_rank=16, qk_nope_head_dim=8,
    qk_rope_head_dim=4, v_head_dim=8, intermediate_size=56, n_inner=56, ffn_dim=56, encoder_ffn_dim=56, decoder_ffn_dim=56,
    d_ff=56, max_position_embeddings=64, n_positions=64, image_size=32, patch_size=8, use_cache=False, pad_token_id=0,
    bos_token_id=1, eos_token_id=2, num_experts=4, num_local_experts=4, n_routed_experts=4, num_experts_per_tok=2,
    moe_intermediate_size=24, shared_expert_intermediate_size=24, first_k_dense_replace=1, n_group=1, topk_group=1,
    state_size=8, mamba_d_state=8, mamba_n_heads=6, mamba_d_head=16, mamba_n_groups=1, attn_layer_indices=[1])

# Settings that a family's own rules exclude.
WITHOUT = {"deepseek_v3": ["head_dim", "num_key_value_heads"], "falcon": ["head_dim"]}


def masked_text(random):
    return {"input_ids": tokens(random), "attention_mask": numpy.pad(numpy.ones((BATCH, LENGTH - 2), "int64"), ((0, 0), (0, 2)))}


def translated(random):
    return {**masked_text(random), "decoder_input_ids": tokens(random, TARGETS)}


def image(random):
    return {"pixel_values": random.standard_normal((BATCH, 3, 32, 32)).astype("float32")}


# The class of a family, what it is given, and the families.
HEADS = {
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES": (masked_text, """
        afmoe apertus arcee bamba biogpt bitnet cohere2 deepseek_v3 diffllama ernie4_5 ernie4_5_moe exaone4 falcon
        falcon_mamba flex_olmo gemma glm4 glm4_moe gpt_bigcode granite granitemoe helium hunyuan_v1_dense hunyuan_v1_moe
        jamba lfm2 mamba minimax mpt nanochat nemotron olmo2 olmo3 olmoe persimmon phi phimoe qwen2 recurrent_gemma rwkv
        seed_oss smollm3 stablelm starcoder2 trocr vaultgemma xglm"""),
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES": (masked_text, "big_bird ernie esm fnet luke mra rembert roc_bert tapas xlm yoso"),
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES": (translated, """
        bigbird_pegasus blenderbot-small longt5 m2m_100 mvp nllb-moe pegasus_x plbart"""),
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES": (image, """
        dinov2_with_registers efficientnet focalnet hgnet_v2 ijepa mobilenet_v1 poolformer swiftformer vit_msn"""),
}
FAMILIES = {name: head for head, (_, names) in HEADS.items() for name in names.split()}


class Logits(nn.Module):
    """A model with arguments by position, and its logits."""

    def __init__(self, model, names, settings):
        super().__init__()
        self.model, self.names, self.settings = model, names, settings

    def forward(self, *arguments):
        return self.model(**dict(zip(self.names, arguments)), **self.settings).logits


def configuration(name):
    known = transformers.CONFIG_MAPPING[name]
    probe = known()
    settings = {key: value for key, value in SIZES.items() if hasattr(probe, key) and key not in WITHOUT.get(name, ())}
    config = known(**settings)
    if vars(config).get("layer_types"):  # of as many layers as the family's default has
        config.layer_types = config.layer_types[:config.num_hidden_layers]
    config._experts_implementation = "batched_mm"
    return config


def model_of(name):
    head = FAMILIES[name]
    inputs = HEADS[head][0]
    of_class = getattr(modeling_auto, head)[name]
    module = getattr(transformers, of_class[0] if isinstance(of_class, (tuple, list)) else of_class)(configuration(name))
    settings = {} if inputs is image or inputs is masked_text and "MASKED" in head else {"use_cache": False}
    return Logits(module, list(inputs(numpy.random.default_rng(0))), settings), inputs


if __name__ == "__main__":
    torch.manual_seed(0)
    main(FAMILIES, model_of, lambda module, random, inputs: randomize(module, random), __doc__)
