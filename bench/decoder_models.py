#!/usr/bin/env python3
"""Small decoders with random weights, as checkpoints of transformers, and what PyTorch's generate() writes with them.

    decoder_models.py make ZOO [FAMILY..]        checkpoints ZOO/checkpoints/FAMILY, with a tokenizer
    decoder_models.py references ZOO [FAMILY..]  ZOO/checkpoints/FAMILY/references.json

Checkpoints are made by transformers 4.57, which all exporters read; references by the newest. Weights are so large that
texts do not repeat one token. A reference is a list of cases: what is given to generate(), the ids that it writes, greedily
and with its cache, and for each id by how much its logit is larger than the next one. A case has one row, or three of
different lengths, padded on the left; "early" ones end at a token that the case without it writes."""
import argparse
import json
import os
import sys
import warnings

NEW = 64
VOCABULARY = 320
SIZES = dict(vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
             max_position_embeddings=256, pad_token_id=0, bos_token_id=1, eos_token_id=2)
GROUPED = dict(SIZES, num_key_value_heads=2, tie_word_embeddings=False)
EXPERTS = dict(GROUPED, num_experts_per_tok=2)
TOKENS = dict(vocab_size=VOCABULARY, pad_token_id=0, bos_token_id=1, eos_token_id=2)
PLAIN = dict(TOKENS, hidden_size=64)
OLD = dict(TOKENS, n_positions=256, n_embd=64, n_layer=2, n_head=4)
TEXT = dict(TOKENS, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
            decoder_ffn_dim=128, max_position_embeddings=256, forced_eos_token_id=None)
SOUND = dict(vocab_size=VOCABULARY, num_mel_bins=16, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
             decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_target_positions=96, pad_token_id=0, bos_token_id=1,
             eos_token_id=2, decoder_start_token_id=3, suppress_tokens=None, begin_suppress_tokens=None)

# A family: the classes of its configuration and model, and the configuration. Those of encoder-decoders are SEQUENCES.
FAMILIES = {
    "llama": ("Llama", GROUPED),
    "qwen3": ("Qwen3", dict(GROUPED, num_attention_heads=8, num_key_value_heads=4, head_dim=16)),
    "gemma3": ("Gemma3", dict(GROUPED, head_dim=16, num_hidden_layers=3, sliding_window=8, rope_theta=1e6, rope_local_base_freq=1e4,
                              tie_word_embeddings=True, query_pre_attn_scalar=16,
                              layer_types=["sliding_attention", "full_attention", "sliding_attention"])),
    "phi": ("Phi", dict(SIZES, hidden_size=128, partial_rotary_factor=0.5)),
    "phi3": ("Phi3", dict(GROUPED, original_max_position_embeddings=256)),
    "gpt2": ("GPT2", dict(vocab_size=VOCABULARY, n_positions=256, n_embd=64, n_layer=2, n_head=4, pad_token_id=0, bos_token_id=1,
                          eos_token_id=2)),
    "mistral": ("Mistral", dict(GROUPED, sliding_window=12)),
    "olmo2": ("Olmo2", GROUPED),
    "olmo": ("Olmo", GROUPED),
    "mixtral": ("Mixtral", dict(EXPERTS, num_local_experts=4)),
    "qwen3_moe": ("Qwen3Moe", dict(EXPERTS, num_experts=4, head_dim=16, moe_intermediate_size=64, norm_topk_prob=True)),
    "mamba2": ("Mamba2", dict(vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, num_heads=8, head_dim=16, expand=2, n_groups=2,
                              state_size=16, conv_kernel=4, chunk_size=16, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                              tie_word_embeddings=False)),
    "lfm2": ("Lfm2", dict(GROUPED, num_hidden_layers=4, conv_L_cache=3, block_auto_adjust_ff_dim=False, tie_word_embeddings=False,
                          layer_types=["conv", "full_attention", "conv", "full_attention"])),
    "gpt_oss": ("GptOss", dict(EXPERTS, num_local_experts=4, head_dim=16, sliding_window=8,
                               layer_types=["sliding_attention", "full_attention"])),
    "whisper": ("Whisper", dict(SOUND, max_source_positions=24)),
    "whisper_30s": ("Whisper", dict(SOUND, max_source_positions=1500)),
    "t5": ("T5", dict(vocab_size=VOCABULARY, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, feed_forward_proj="gated-gelu",
                      relative_attention_num_buckets=16, relative_attention_max_distance=64, pad_token_id=0, eos_token_id=1,
                      decoder_start_token_id=0, tie_word_embeddings=False)),
}
# Beside those that the exporters' own examples have: what a user may come with.
OTHERS = {
    "stablelm": ("StableLm", dict(GROUPED, partial_rotary_factor=0.5, use_qkv_bias=True)),
    "falcon": ("Falcon", dict(PLAIN, num_hidden_layers=2, num_attention_heads=4, multi_query=True, parallel_attn=True, bias=False,
                              new_decoder_architecture=False, alibi=False, max_position_embeddings=256)),
    "bloom": ("Bloom", dict(PLAIN, n_layer=2, n_head=4)),
    "gpt_neox": ("GPTNeoX", dict(SIZES, rotary_pct=0.5)),
    "codegen": ("CodeGen", dict(OLD, rotary_dim=8)),
    "gptj": ("GPTJ", dict(OLD, rotary_dim=8)),
    "opt": ("OPT", dict(PLAIN, ffn_dim=128, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=256, word_embed_proj_dim=64)),
    "starcoder2": ("Starcoder2", dict(GROUPED, sliding_window=None)),
    "gemma2": ("Gemma2", dict(GROUPED, head_dim=16, sliding_window=8, query_pre_attn_scalar=16, attn_logit_softcapping=20.0,
                              final_logit_softcapping=15.0, tie_word_embeddings=True)),
    "gemma": ("Gemma", dict(GROUPED, head_dim=16, tie_word_embeddings=True)),
    "cohere": ("Cohere", dict(GROUPED, logit_scale=0.5, tie_word_embeddings=True)),
    "granite": ("Granite", dict(GROUPED, embedding_multiplier=1.5, attention_multiplier=0.2, residual_multiplier=0.7, logits_scaling=2.0)),
    "smollm3": ("SmolLM3", dict(GROUPED, num_hidden_layers=4)),
    "qwen2": ("Qwen2", GROUPED),
    "deepseek_v3": ("DeepseekV3", dict(SIZES, num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8,
                                       v_head_dim=16, n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1,
                                       moe_intermediate_size=32, n_shared_experts=1, first_k_dense_replace=1, tie_word_embeddings=False)),
    "glm4": ("Glm4", dict(GROUPED, head_dim=16, partial_rotary_factor=0.5)),
    "nemotron": ("Nemotron", dict(GROUPED, head_dim=16)),
    "gpt_bigcode": ("GPTBigCode", dict(OLD, multi_query=True)),
    "gpt_neo": ("GPTNeo", dict(PLAIN, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=8,
                               max_position_embeddings=256)),
    "olmo3": ("Olmo3", dict(GROUPED, num_hidden_layers=4, sliding_window=8)),
    "mpt": ("Mpt", dict(TOKENS, d_model=64, n_heads=4, n_layers=2, expansion_ratio=2, max_seq_len=256)),
    "llama_rope3": ("Llama", dict(GROUPED, rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                            original_max_position_embeddings=64))),
    "bart": ("Bart", dict(TEXT, decoder_start_token_id=2)),
    "marian": ("Marian", dict(TEXT, decoder_start_token_id=0)),
    "pegasus": ("Pegasus", dict(TEXT, decoder_start_token_id=0)),
}
FAMILIES.update(OTHERS)
SUPPRESSED = list(range(10, VOCABULARY, 9))  # a ninth of all
SOUNDS = {"whisper", "whisper_30s"}
MIXTURES = {"mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3"}
TEXTS = {"t5", "bart", "marian", "pegasus"}
SEQUENCES = {*SOUNDS, *TEXTS}
EAGER = {"gpt_oss", "mamba2", "bloom", "mpt", "gemma2", "gpt_neo"}  # which have no other attention
# The standard deviation of embeddings, and of other weights times the root of what they sum over.
SCALES = {"gemma3": (0.05, 1.5), "t5": (0.5, 0.6), "gpt2": (0.3, 1.5), "whisper": (0.3, 1.5), "whisper_30s": (0.3, 1.5), "gemma": (0.05, 1.5),
          "gemma2": (0.05, 1.5)}


def ending_of(family):
    """Of the class of its model."""
    if family in SEQUENCES and family != "marian":
        return "ForConditionalGeneration"
    return {"gpt2": "LMHeadModel", "marian": "MTModel"}.get(family.partition("-")[0], "ForCausalLM")


def model_of(family):
    import transformers
    name, sizes = FAMILIES[family]
    config = getattr(transformers, {"Gemma3": "Gemma3TextConfig"}.get(name, name + "Config"))(**sizes)
    return getattr(transformers, name + ending_of(family))(config).eval()


def fill(model, family):
    """Gives all parameters values: those of one dimension, norms and biases, are near to what they are at first."""
    import torch
    torch.manual_seed(1 + list(FAMILIES).index(family))
    embeddings, others = SCALES.get(family, (0.5, 1.5))
    tables = {module.weight.data_ptr() for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    done = set()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.data_ptr() in done:
                continue
            done.add(weight.data_ptr())
            if weight.data_ptr() in tables:
                weight.normal_(0, embeddings)
            elif weight.ndim == 1:
                weight.add_(torch.randn_like(weight), alpha=0.1)
            else:
                sums = weight.shape[1] if name.endswith(("gate_up_proj", "down_proj")) and weight.ndim == 3 else weight[0].numel()
                weight.normal_(0, others / sums ** 0.5)


def tokenizer(directory):
    """A byte-level tokenizer of the vocabulary's size."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast
    text = Tokenizer(models.BPE())
    text.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text.decoder = decoders.ByteLevel()
    text.train_from_iterator([__doc__] * 4, trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["<pad>", "<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    PreTrainedTokenizerFast(tokenizer_object=text, pad_token="<pad>", bos_token="<s>", eos_token="</s>").save_pretrained(directory)


def make(zoo, family):
    directory = f"{zoo}/checkpoints/{family}"
    model = model_of(family)
    fill(model, family)
    model.generation_config.update(pad_token_id=0)
    if family in SOUNDS:
        model.generation_config.update(suppress_tokens=SUPPRESSED, begin_suppress_tokens=[220, 2])
    model.save_pretrained(directory)
    tokenizer(directory)


def checkpoint(zoo, family, attention=None):
    """The model of a family, as this version of transformers reads it."""
    import transformers
    transformers.logging.set_verbosity_error()
    name, _ = FAMILIES[family]
    attention = attention or ("eager" if family in EAGER else "sdpa")
    made = getattr(transformers, name + ending_of(family))
    return made.from_pretrained(f"{zoo}/checkpoints/{family}", attn_implementation=attention, dtype="float32").eval()


def prompts(family, rows):
    """What generate() gets: rows of different lengths, padded on the left."""
    import torch
    generator = torch.Generator().manual_seed(7)
    lengths = [7] if rows == 1 else [9, 4, 7]
    if family in SOUNDS:
        frames = 2 * FAMILIES[family][1]["max_source_positions"]
        return {"input_features": torch.randn(rows, 16, frames, generator=generator)}
    ids = torch.zeros(rows, max(lengths), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        at = slice(0, length) if family in TEXTS else slice(max(lengths) - length, None)
        ids[row, at] = torch.randint(3, VOCABULARY, (length,), generator=generator)
        mask[row, at] = 1
    return {"input_ids": ids, "attention_mask": mask}


def generated(model, given, eos):
    """The ids that generate() writes after the prompt, and the logits that it chooses them from: [rows, at most NEW], [.., vocabulary]."""
    import torch
    with torch.no_grad():
        said = model.generate(**given, do_sample=False, num_beams=1, max_new_tokens=NEW, eos_token_id=eos, pad_token_id=0, use_cache=True,
                              return_dict_in_generate=True, output_scores=True)
    return said.sequences[:, -len(said.scores):], torch.stack(said.scores, 1)


def case_of(models, given, eos, name):
    """A case, with how far logits may be from those in f64 (the bound for results under a plan), where f64 writes the same."""
    import torch
    ids, logits = generated(models[0], given, eos)
    exact, precise = generated(models[1], {key: value.double() if value.is_floating_point() else value for key, value in given.items()}, eos)
    first, second = torch.topk(logits, 2).values.unbind(-1)
    case = {"name": name, "rows": len(ids), "eos": eos, "pad": 0, "ids": ids.tolist(), "gaps": (first - second).tolist(),
            **{key: value.tolist() for key, value in given.items() if key != "input_features"}}
    if torch.equal(ids, exact):
        finite = torch.isfinite(precise)
        largest = precise[finite].abs().max().item()
        case["bound"] = 2 * (logits.double() - precise)[finite].abs().max().item() + 8 * 2.0 ** -23 * largest
    return case


def references(zoo, family):
    models = checkpoint(zoo, family), checkpoint(zoo, family).double()
    if family in MIXTURES:
        models[1].set_experts_implementation("batched_mm")  # the default one has no kernels for f64
    none = VOCABULARY + 7  # no token
    cases, used = [], set()
    for rows in (1, 3):
        used |= set(generated(models[0], prompts(family, rows), none)[0].flatten().tolist())
    free = next(token for token in range(2, VOCABULARY) if token not in used)
    for rows in (1, 3):
        given = prompts(family, rows)
        cases.append(case_of(models, given, free, str(rows)))
        row = cases[-1]["ids"][0]
        fresh = [at for at in range(6, NEW) if row[at] not in row[:at]]
        if fresh:
            cases.append(case_of(models, given, row[fresh[0]], f"{rows}early"))
    write_json(cases, f"{zoo}/checkpoints/{family}/references.json")
    if family in SOUNDS:
        import numpy
        for rows in (1, 3):
            numpy.save(f"{zoo}/checkpoints/{family}/features{rows}.npy", prompts(family, rows)["input_features"].numpy())
    set_end(f"{zoo}/checkpoints/{family}", free)
    whole = cases[0]["ids"][0]
    print(f"{family}: {len(set(whole))} different ids in {len(whole)}, smallest distance "
          f"{min(min(row) for case in cases for row in case['gaps']):.2g}, "
          f"lengths {[len(case['ids'][0]) for case in cases]}", flush=True)


def write_json(value, path):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)


def set_end(directory, eos):
    """Makes a token the one that ends texts, in all configurations of a folder."""
    for name in ("config.json", "generation_config.json", "genai_config.json"):
        path = f"{directory}/{name}"
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                config = json.load(file)
            (config["model"] if name == "genai_config.json" else config)["eos_token_id"] = eos
            write_json(config, path)


def main():
    warnings.filterwarnings("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "references"))
    parser.add_argument("zoo")
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    given = parser.parse_args()
    import torch
    torch.set_num_threads(1)
    failed = 0
    for family in given.families or FAMILIES:
        try:
            {"make": make, "references": references}[given.what](given.zoo, family)
        except Exception as wrong:
            failed += 1
            print(f"{family}: {type(wrong).__name__}: {str(wrong).splitlines()[0]}", flush=True)
            if os.environ.get("TRACE"):
                import traceback
                traceback.print_exc()
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
