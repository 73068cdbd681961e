#!/usr/bin/python3
"""rankc plan --model-config: the number of parameters of known models, configurations in files, and errors.

    model_config.py --rankc RANKC

The numbers are those of the published checkpoints (sum of the elements of all tensors; Hugging Face: openai-community/gpt2,
meta-llama/Llama-2-7b-hf, Meta-Llama-3-8B, Llama-3.1-405B, mistralai/Mixtral-8x7B-v0.1). GPT-3's has none: its paper says
175 billion. TRANSFORMERS are sums of p.numel() of AutoModelForCausalLM.from_config, transformers 5.23."""
import json
import math
import os
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, rankc_of  # noqa: E402

PUBLISHED = {"gpt2": 124439808, "llama2-7b": 6738415616, "llama3-8b": 8030261248, "llama3-405b": 405853388800, "mixtral-8x7b": 46702792704, "gpt3-175b": 175e9}
LLAMA = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 4,
         "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 16}
OPT = {"model_type": "opt", "ffn_dim": 96, "intermediate_size": None, "num_key_value_heads": None}
GPT2 = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 8, "n_inner": 96, "n_positions": 16,
        **{key: None for key in LLAMA if key not in ("model_type", "vocab_size")}}
# Changes to LLAMA (None: the key is taken out), and the number of parameters.
TRANSFORMERS = [({"attention_bias": True}, 74944), ({"mlp_bias": True}, 75072), ({"model_type": "qwen2"}, 74816),
                ({"model_type": "qwen3", "head_dim": 16}, 99200), ({"model_type": "gemma", "head_dim": 16}, 92736),
                ({"model_type": "phi3"}, 74560), ({"model_type": "starcoder2"}, 56896), ({"model_type": "starcoder2", "use_bias": False}, 56192),
                ({"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}, 185664),
                (OPT, 66368), ({**OPT, "enable_bias": False}, 65536), (GPT2, 66240)]
# The same, exit code and a part of the message.
FILES = [({}, 0, ""), ({"head_dim": 16, "tie_word_embeddings": True, "torch_dtype": "bfloat16"}, 0, ""),
         ({"model_type": "qwen2"}, 0, ""), ({"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}, 0, ""),
         ({"model_type": "opt", "ffn_dim": 80, "intermediate_size": None}, 0, ""),
         ({"model_type": "bert"}, 4, "model_type 'bert' is not supported"), ({"model_type": None}, 3, "model_type is missing"),
         ({"hidden_size": None}, 3, "hidden_size is missing"), ({"hidden_size": 0}, 3, "whole number"),
         ({"hidden_size": -8}, 3, "whole number"), ({"hidden_size": "64"}, 3, "whole number"), ({"hidden_size": 1 << 40}, 3, "whole number"),
         ({"num_attention_heads": 7, "num_key_value_heads": None}, 3, "no multiple"),
         ({"hidden_size": 60, "head_dim": 8, "vocab_size": 13}, 0, ""), ({"num_key_value_heads": 3}, 3, "no multiple"),
         ({"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 3}, 3, "greater"), ({"head_dim": 7}, 3, "odd"),
         ({"model_type": "mixtral"}, 3, "num_local_experts is missing"), ({"num_local_experts": 2, "num_experts_per_tok": 1}, 3, "mixtral"),
         ({"intermediate_size": None}, 3, "intermediate_size is missing"), ({"num_hidden_layers": 1025}, 3, "from 1 to 1024"),
         ({"tie_word_embeddings": "yes"}, 3, "tie_word_embeddings must be true or false"), ({"mlp_bias": 1}, 3, "mlp_bias must be true or false"),
         ({"hidden_act": "relu"}, 0, ""), ({"hidden_act": 7}, 3, "hidden_act is no text"), ({"hidden_act": "relu2"}, 4, "hidden_act 'relu2' is not supported"),
         ({**OPT, "word_embed_proj_dim": 32}, 4, "word_embed_proj_dim 32"), ({**OPT, "do_layer_norm_before": False}, 4, "do_layer_norm_before"),
         ({**GPT2, "add_cross_attention": True}, 4, "add_cross_attention")]
USAGE = [(["--model-config", "llama3-8"], 2, "did you mean 'llama3-8b'"), (["--model-config", "none.json"], 6, "none.json"),
         (["--model-config", "gpt2", "--target", "c"], 0, ""), (["--model-config", "gpt2", "--attention", "products"], 2, "--inference"),
         (["--model-config", "gpt2", "--target", "c", "--inference"], 0, ""),
         (["--inference"], 2, "--model-config"), ([], 2, "missing"), (["m.onnx", "--model-config", "gpt2"], 2, "exclude"),
         (["--model-config", "gpt2", "--dim", "tokens=3"], 2, "batch and seq"), (["--model-config", "gpt2", "--loss", "mse"], 2, "--loss"),
         (["--decode"], 2, "--decode needs --model-config"), (["--model-config", "gpt2", "--decode"], 2, "--decode needs --inference"),
         (["--model-config", "gpt2", "--inference", "--dim", "past=3"], 2, "past with --decode")]


def plan(rankc, *words):
    done = call(rankc, "plan", *words, "--json", status=None)
    return done.returncode, done.stdout, done.stderr


def parameters(text):
    return sum(math.prod(p["shape"]) for p in json.loads(text)["parameters"] if p["trained"])


def changed(path, change):
    """Writes LLAMA with the change, and returns it."""
    config = {key: value for key, value in {**LLAMA, **change}.items() if value is not None}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    return config


def wrong_counts(rankc, path):
    """Configurations whose parameters are not those of transformers; a shorter sequence leaves a table of positions whole."""
    for change, count in TRANSFORMERS:
        changed(path, change)
        for sequence in 4, 16:
            code, out, errors = plan(rankc, "--model-config", path, "--dim", f"seq={sequence}")
            found = parameters(out) if not code else errors
            if found != count:
                yield f"{change} seq={sequence}: {found} parameters, not {count}"


def expected(config):
    """The number of parameters of a Llama-like model from its configuration."""
    get = config.get
    hidden, heads, vocab = get("hidden_size"), get("num_attention_heads"), get("vocab_size")
    size, kv = get("head_dim") or hidden // heads, get("num_key_value_heads")
    layer = 2 * hidden + 2 * hidden * heads * size + 2 * hidden * kv * size + 3 * hidden * get("intermediate_size")
    return get("num_hidden_layers") * layer + hidden + hidden * vocab * (1 if get("tie_word_embeddings") else 2)


def many_ranks(rankc):
    """Output grows with ranks and with nodes, not with their product."""
    wrong = []
    for devices in 8, 256, 512, 16384:
        code, out, errors = plan(rankc, "--model-config", "gpt2", "--pas", "pp:pipeline=2", "--runtime-ngpus", str(devices))
        if code:
            wrong.append(f"{devices} ranks: exit {code}: {errors}")
            continue
        shown = json.loads(out)
        stages = {0: list(range(0, devices, 2)), 1: list(range(1, devices, 2))}
        listed = {entry["stage"]: entry["ranks"] for entry in shown.get("stages", [])}
        if listed != (stages if devices > 256 else {}) or len(shown["ranks"]) != devices:
            wrong.append(f"{devices} ranks: stages {str(listed)[:100]}")
        if any(node["ranks"] != (stages[node["stage"]] if devices <= 512 else None) for node in shown["nodes"]):
            wrong.append(f"{devices} ranks: ranks of nodes")
        if devices == 16384 and len(out) > 10e6:
            wrong.append(f"{len(out)} bytes")
    return wrong


def kept_scores(rankc):
    """What cuDNN stores for attention's gradient (runtime/base/scratch.h): of four query heads of one key head, scores and partial
    sums in 16 bits; more than 1 GiB is not stored."""
    wrong = []
    for sequence, attention, stored in ((8192, "cudnn", 4 * 8192 * (8192 + 256) * 2), (16384, "cudnn", 0), (8192, "flash", 0)):
        code, out, errors = plan(rankc, "--model-config", "llama3-8b", "--pas", "tp:tensor=8", "--amp", "bf16", "--attention", attention,
                                 "--dim", f"seq={sequence}")
        scratch = -1 if code else json.loads(out)["ranks"][0]["memory"]["scratch"]
        if not stored <= scratch < stored + (40 << 20):
            wrong.append(f"attention {attention} of {sequence} positions: {scratch} bytes of scratch, {stored} of them scores; {errors}")
    return wrong


def caches(rankc):
    """Of a step of a decoder: keys and values of 8 layers of 8 heads of 128, of 100 tokens and the step's own, by rank; and the step takes
    longer by the time in which a GPU of 3.35 TB/s reads them, at least."""
    wrong, steps, words = [], [], ["--model-config", "llama3-8b", "--inference", "--decode", "--machine", "h100", "--dtype", "bf16"]
    for past, seq, ways in ((100, 1, 1), (100, 4, 2), (100, 1, 8), (100100, 1, 1)):
        code, out, errors = plan(rankc, *words, "--dim", f"past={past}", "--dim", f"seq={seq}", "--pas", "tp", "--plan-ngpus", str(ways))
        shown, row = json.loads(out) if not code else {}, 32 * 2 * 8 * 128 * 2
        state = -1 if code else shown["ranks"][0]["memory"]["state"]
        if state != row * (past + seq) // ways:
            wrong.append(f"caches of {past} + {seq} tokens on {ways} ranks: {state} bytes of state {errors}")
        steps.append(0 if code else shown["estimate"]["step_s"])
    reading = 100000 * row / 3.35e12
    if not reading <= steps[3] - steps[0] <= 1.5 * reading:
        wrong.append(f"a step of {steps[0]} s takes {steps[3]} s with 100000 tokens more in its caches; reading them takes {reading} s")
    return wrong


def main():
    rankc = rankc_of(__doc__)
    wrong = []
    for name, count in PUBLISHED.items():
        code, out, errors = plan(rankc, "--model-config", name)
        found = parameters(out) if not code else errors
        if code or (abs(found - count) > 0.005 * count if name == "gpt3-175b" else found != count):
            wrong.append(f"{name}: {found} parameters, not {count}")
    with tempfile.TemporaryDirectory() as scratch:
        path = f"{scratch}/config.json"
        wrong += wrong_counts(rankc, path)
        wrong += many_ranks(rankc) + kept_scores(rankc) + caches(rankc)
        changed(path, {"head_dim": 256})
        code, _, errors = plan(rankc, "--model-config", path)
        if code != 4 or "head_dim is 256" not in errors or plan(rankc, "--model-config", path, "--inference")[0]:
            wrong.append(f"heads of 256: exit {code}: {errors}")
        for pas in "tp:tensor=8", "data:data=8", "context:context=8":  # more ranks than heads of k, and than heads of q for each
            changed(path, {"vocab_size": 128, "num_key_value_heads": 2})
            code, _, errors = plan(rankc, "--model-config", path, "--pas", pas, "--dim", "batch=8")
            if code:
                wrong.append(f"grouped heads {pas}: exit {code}: {errors}")
        for change, wanted, message in FILES:
            config = changed(path, change)
            for mode in [], ["--inference"], ["--pas", "tp", "--plan-ngpus", "2", "--dim", "batch=2"]:
                code, out, errors = plan(rankc, "--model-config", path, *mode)
                if code != wanted or message not in errors:
                    wrong.append(f"{change} {mode}: exit {code}: {errors}")
                elif config.get("model_type") == "llama" and not code and not mode and parameters(out) != expected(config):
                    wrong.append(f"{change}: {parameters(out)} parameters, not {expected(config)}")
    for words, wanted, message in USAGE:
        code, _, errors = plan(rankc, *words)
        if code != wanted or message not in errors:
            wrong.append(f"{' '.join(words)}: exit {code}: {errors}")
    print("\n".join(wrong) or "all as expected")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
