#!/usr/bin/env python3
"""Record how peft trains adapters of small models of transformers.

    record_lora.py [--out DIR] [MODEL[/CASE]...]    one case: beside those that were recorded
    record_lora.py --out DIR --grid  the cases of GRID, with r 4 and 8, each also with a base of 4 bits
    record_lora.py --rankc RANKC     trains the adapters by rankc, and compares what peft, which loads them, computes

writes, for those models of MODELS, or all,

    DIR/lora/MODEL/model.onnx, INPUT.npy, labels.npy   the exported model and SAMPLES samples
    DIR/lora/MODEL/reference.json   for each case the rule of --lora, and for each number of micro-batches per step the losses and
                                    gradient norms of STEPS steps, in f64; of the cases of FROZEN also with the base in fewer bits,
                                    and if it is of integers and no experts also under torch.autocast to bf16
    DIR/lora/MODEL/CASE/start, CASE/trained-N    the adapters before and after them, as peft saves them
    DIR/lora/MODEL/CASE/logits.npy  of the first samples with the adapters of trained-1; merge_and_unload gives the same
    DIR/lora/llama/decode_dynamo.onnx, decode_legacy.onnx    the model as a decoder with caches, as both exporters of PyTorch write it

Needs torch, onnx, onnxscript, transformers and peft (written for 2.15, 5.24 and 0.21.2)."""
import argparse
import copy
import fnmatch
import itertools
import json
import pathlib
import subprocess
import tempfile
import types
import warnings

import numpy
import onnx
import peft
import torch
import transformers

STEPS, SAMPLES, BATCH, LENGTH, VOCABULARY, CLIP = 20, 14, 2, 9, 67, 0.5
MICRO_BATCHES = (1, 2, 4)
# eps is large beside the rounding of gradients, which else makes steps of gradients that are nearly 0
OPTIMIZER = {"lr": 0.001, "weight_decay": 0.05, "eps": 1e-4}


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=16, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        attn_implementation="eager"))


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=16, attn_implementation="eager"))


def tied():
    config = llama().config
    config.tie_word_embeddings = True
    return transformers.LlamaForCausalLM(config)


def bert():
    return transformers.BertForTokenClassification(transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=16,
        hidden_dropout_prob=0, attention_probs_dropout_prob=0, num_labels=VOCABULARY, attn_implementation="eager"))


def vit():
    return transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=8, patch_size=4, num_labels=VOCABULARY,
        hidden_dropout_prob=0, attention_probs_dropout_prob=0, attn_implementation="eager"))


class Mixture(torch.nn.Module):
    """A layer of experts, which are modules of their own, beside an embedding and logits: a token takes the best two."""

    def __init__(self, width=32, experts=4):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, width)
        self.router = torch.nn.Linear(width, experts, bias=False)
        self.experts = torch.nn.ModuleList(torch.nn.ModuleDict({"up": torch.nn.Linear(width, 16), "down": torch.nn.Linear(16, width)})
                                           for _ in range(experts))
        self.head = torch.nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, input_ids):
        x = self.embed(input_ids)
        chosen = self.router(x)
        chosen = chosen.masked_fill(chosen < torch.topk(chosen, 2).values[..., -1:], float("-inf")).softmax(-1)
        for e, expert in enumerate(self.experts):
            x = x + chosen[..., e:e + 1] * expert["down"](torch.nn.functional.silu(expert["up"](x)))
        return types.SimpleNamespace(logits=self.head(x))


class Experts(torch.nn.Module):
    """The weights of all experts, (inputs, outputs), which multiply all tokens. peft takes them for (outputs, inputs), as Llama 4's."""

    def __init__(self, width, experts):
        super().__init__()
        self.up = torch.nn.Parameter(torch.randn(experts, width, 16) / width ** 0.5)
        self.down = torch.nn.Parameter(torch.randn(experts, 16, width) / 4)

    def forward(self, x):
        return torch.bmm(torch.nn.functional.silu(torch.bmm(x.expand(self.up.shape[0], -1, -1), self.up)), self.down)


class Nested(torch.nn.Module):
    """Two linear layers, of which the name of one ends with that of the other."""

    def __init__(self, width=16):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, width)
        self.proj = torch.nn.Linear(width, width, bias=False)
        self.layer = torch.nn.ModuleDict({"proj": torch.nn.Linear(width, width, bias=False)})
        self.head = torch.nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, input_ids):
        x = self.embed(input_ids)
        return types.SimpleNamespace(logits=self.head(x + self.layer["proj"](torch.nn.functional.silu(self.proj(x)))))


class Stacks(torch.nn.Module):
    """A layer of experts of which a token takes the best two, beside an embedding and logits."""

    def __init__(self, width=32, experts=4):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, width)
        self.router = torch.nn.Linear(width, experts, bias=False)
        self.experts = Experts(width, experts)
        self.head = torch.nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, input_ids):
        x = self.embed(input_ids)
        rows = x.reshape(1, -1, x.shape[-1])
        best, index = torch.topk(self.router(rows[0]), 2)
        chosen = torch.zeros_like(self.router(rows[0])).scatter(1, index, best.softmax(-1))
        y = (self.experts(rows) * chosen.T[..., None]).sum(0)
        return types.SimpleNamespace(logits=self.head(x + y.reshape(x.shape)))


def mixtral():
    config = transformers.MixtralConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=16, num_local_experts=4, num_experts_per_tok=2, attn_implementation="eager")
    config._experts_implementation = "batched_mm"
    return transformers.MixtralForCausalLM(config)


class Decoder(torch.nn.Module):
    """A model with the keys and values of all layers as arguments and results."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, *past):
        cache = transformers.DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        out = self.model(input_ids=input_ids, past_key_values=cache)
        return out.logits, *(part for layer in out.past_key_values.layers for part in (layer.keys, layer.values))


def tokens(random):
    return [random.integers(0, VOCABULARY, (SAMPLES, LENGTH)) for _ in range(2)]


def images(random):
    return random.standard_normal((SAMPLES, 3, 8, 8), dtype="float32"), random.integers(0, VOCABULARY, SAMPLES)


class Row:
    """A model: its input, inputs and labels from random numbers, what else its forward takes, and per case modules and options of
    peft. Unless optimize, the exporter leaves the transposes of weights in the model."""

    def __init__(self, make, cases, name="input_ids", draw=tokens, further={}, optimize=True):
        self.make, self.cases, self.name, self.draw, self.further, self.optimize = make, cases, name, draw, further, optimize

    def logits(self, model, x):
        return model(**{self.name: x.to(model.dtype) if x.is_floating_point() else x}, **self.further).logits


DECODER = {"further": {"use_cache": False}}
MODELS = {
    "gpt2": Row(gpt2, {"attention": (["c_attn"], {"r": 4, "lora_alpha": 8}),
                    "all": (["c_attn", "c_proj", "c_fc", "lm_head"], {"r": 8, "lora_alpha": 8, "use_rslora": True}),
                    "embedding": (["wte", "lm_head", "c_attn"], {"r": 4, "lora_alpha": 8})}, **DECODER),
    "llama": Row(llama, {"attention": (["q_proj", "v_proj"], {"r": 4, "lora_alpha": 8}),
                      "all": (["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
                              {"r": 8, "lora_alpha": 16})}, **DECODER),
    "bert": Row(bert, {"attention": (["query", "value"], {"r": 4, "lora_alpha": 8}),
                    "embedding": (["word_embeddings"], {"r": 8, "lora_alpha": 8})}),
    "experts": Row(Mixture, {"experts": (["up", "down"], {"r": 4, "lora_alpha": 8})}),
    "mixtral": Row(mixtral, {"stacks": (["q_proj"], {"r": 4, "lora_alpha": 8, "target_parameters": [
        "experts.gate_up_proj", "experts.down_proj"]}), "down": ([], {"r": 2, "lora_alpha": 2, "target_parameters": ["down_proj"]}),
        "router": ([], {"r": 2, "lora_alpha": 4, "target_parameters": ["gate.weight", "experts.down_proj"]}),
        "own": ([], {"r": 2, "lora_alpha": 4, "target_parameters": ["gate_up_proj", "down_proj"], "rank_pattern": {"down_proj": 3},
                     "alpha_pattern": {"gate_up_proj": 9, "layers.1.mlp.experts.gate_up_proj": 5}})}, **DECODER),
    "stacks": Row(Stacks, {"stacks": (["embed"], {"r": 2, "lora_alpha": 4, "target_parameters": ["experts.up", "experts.down"]})}),
    "nested": Row(Nested, {"own": (["proj"], {"r": 2, "lora_alpha": 4, "rank_pattern": {"layer.proj": 3}, "alpha_pattern": {"layer.proj": 9}})}),
    "tied": Row(tied, {"logits": (["lm_head", "o_proj"], {"r": 4, "lora_alpha": 8}),
                    "both": (["embed_tokens", "lm_head"], {"r": 4, "lora_alpha": 8})}, optimize=False, **DECODER),
    "vit": Row(vit, {"attention": (["q_proj", "v_proj"], {"r": 8, "lora_alpha": 8})}, "pixel_values", images),
}


# Of some cases, the base in fewer bits: the option --weight-dtype, and what a PyTorch model's weights with such names become.
FROZEN = {("llama", "all"): ("int4:group=16", "*", "int4"), ("llama", "attention"): ("bf16", "*", "bf16"),
          ("gpt2", "attention"): ("*.c_*=int8:group=16", "*.c_*", "int8"),
          ("mixtral", "stacks"): ("int4:group=8", "*", "int4"), ("stacks", "stacks"): ("int8:group=16", "*", "int8")}

# Modules on attention and on all products, and what becomes int4: the option --weight-dtype, and names in PyTorch
GRID = {"gpt2": (["c_attn", "attn.c_proj"], ["c_attn", "c_proj", "c_fc", "lm_head"], "*.c_*=int4:group=16", "*.c_*"),
        "llama": (["q_proj", "k_proj", "v_proj", "o_proj"], ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
                  "int4:group=16", "*"),
        "bert": (["query", "key", "value", "attention.output.dense"], ["query", "key", "value", "dense", "classifier"],
                 "int4:group=16", "*.word_embeddings.*,*.encoder.*,*.classifier.*"),
        "vit": (["q_proj", "k_proj", "v_proj", "o_proj"], ["q_proj", "k_proj", "v_proj", "o_proj", "fc1", "fc2", "classifier"],
                "int4:group=16", "*")}


def of_grid(name):
    """The model with the cases of the grid."""
    row, (attention, everything, option, names) = copy.copy(MODELS[name]), GRID[name]
    row.cases = {f"{what}-r{r}": (modules, {"r": r, "lora_alpha": 16}) for what, modules in (("attention", attention), ("all", everything))
                 for r in (4, 8)}
    FROZEN.update({(name, case): (option, names, "int4") for case in row.cases})
    return row


def rounded(weight, to, group):
    """What matrices (n, k) become: rounded to bf16, or as gguf.quants quantises and dequantises Q4_0 and Q8_0, with such groups and
    scales that are not rounded to 16 bits."""
    if to == "bf16":
        return weight.bfloat16().float()
    blocks = weight.numpy().reshape(-1, group)
    if to == "int4":
        far = numpy.take_along_axis(blocks, abs(blocks).argmax(axis=-1, keepdims=True), axis=-1)
        scale = far / -8
        codes = numpy.trunc(blocks * (1 / scale) + numpy.float32(8.5)).astype("u1").clip(0, 15).astype("f4") - 8
    else:
        scale = abs(blocks).max(axis=1, keepdims=True) / 127
        codes = numpy.round(blocks * (1 / scale))
    return torch.from_numpy((codes * scale).reshape(weight.shape))


def freeze(model, names, to, group):
    """Makes matrices and stacks of them, (n, k) or (k, n), what they become."""
    for module, of in model.named_modules():
        for name, weight in of.named_parameters(recurse=False):
            named = any(fnmatch.fnmatch(f"{module}.{name}", glob) for glob in names.split(","))
            if weight.dim() not in (2, 3) or "lora_" in module or not named:
                continue
            turned = isinstance(of, (transformers.pytorch_utils.Conv1D, Experts))
            values = rounded((weight.detach().mT if turned else weight.detach()).contiguous(), to, group)
            weight.data = values.mT.contiguous() if turned else values


class Logits(torch.nn.Module):
    """What is exported: the logits alone, with the names of the model's own modules."""

    def __new__(cls, model, row):
        forward = type(model).forward
        model.forward = lambda input_ids: forward(model, **{row.name: input_ids}, **row.further).logits
        return model


def export(model, path, row, x):
    model = copy.deepcopy(model).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Logits(model, row), (x,), str(path), input_names=[row.name], output_names=["logits"],
                          external_data=False, verbose=False, optimize=row.optimize)
    drop_names_of_files(path) if row.optimize else keep_scopes(path)


def drop_names_of_files(path):
    """Those of the machine."""
    exported = onnx.load(path)
    for node in exported.graph.node:
        for entry in [entry for entry in node.metadata_props if entry.key.endswith("stack_trace")]:
            node.metadata_props.remove(entry)
    onnx.save(exported, path)


def keep_scopes(path):
    """Of what the exporter says of nodes and values."""
    exported = onnx.load(path)
    for node in exported.graph.node:
        for entry in [entry for entry in node.metadata_props if not entry.key.endswith("name_scopes")]:
            node.metadata_props.remove(entry)
    del exported.graph.value_info[:]
    onnx.save(exported, path)


def export_decoders(model, folder):
    config, parts = model.config, [f"{layer}.{part}" for layer in range(model.config.num_hidden_layers) for part in ("key", "value")]
    past = [torch.zeros(BATCH, config.num_key_value_heads, 3, config.head_dim) for _ in parts]
    names = {"input_names": ["input_ids", *(f"past_key_values.{part}" for part in parts)],
             "output_names": ["logits", *(f"present.{part}" for part in parts)], "external_data": False, "verbose": False}
    ids, kept = {0: "batch", 1: "sequence"}, {0: "batch", 2: "past"}
    sizes = {"dynamo": {"dynamic_shapes": (ids, (kept,) * len(parts)), "optimize": False},
             "legacy": {"dynamic_axes": {"input_ids": ids, **{f"past_key_values.{part}": kept for part in parts}}}}
    for exporter, options in sizes.items():
        path = folder / f"decode_{exporter}.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(Decoder(copy.deepcopy(model).eval()), (torch.zeros(BATCH, 5, dtype=torch.int64), *past), str(path),
                              dynamo=exporter == "dynamo", **names, **options)
        keep_scopes(path)


def train(row, model, x, labels, micro_batches, autocast=False):
    """Losses and gradient norms, before clipping, of STEPS steps of AdamW; autocast: to bf16."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer, losses, norms = torch.optim.AdamW(trained, **OPTIMIZER), [], []
    batches = itertools.cycle(range(0, SAMPLES, BATCH))
    for _ in range(STEPS):
        loss = 0
        for first in itertools.islice(batches, micro_batches):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                logits = row.logits(model, x[first:first + BATCH])
                loss = loss + torch.nn.functional.cross_entropy(
                    logits.reshape(-1, VOCABULARY), labels[first:first + BATCH].reshape(-1)) / micro_batches
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained, CLIP)))
        losses.append(float(loss.detach()))
        optimizer.step()
    return {"loss": losses, "grad_norm": norms}


def logits_of(row, model, x):
    with torch.no_grad():
        return row.logits(model, x[:BATCH]).numpy()


def compare(rankc, folder, row, name):
    """The largest difference of logits between rankc and peft, with adapters that rankc trained, relative to the largest logit."""
    def call(*words):
        subprocess.run([rankc, *map(str, words)], check=True)

    x = numpy.load(folder / f"{row.name}.npy")
    torch.manual_seed(7)
    base = row.make()
    rule = json.loads((folder / "reference.json").read_text())["cases"][name]["lora"]
    with tempfile.TemporaryDirectory() as work:
        numpy.save(f"{work}/x.npy", x[:BATCH])
        call("compile", folder / "model.onnx", "-o", f"{work}/train", "-q", "--train", "--loss", "cross_entropy:logits=logits,labels=labels",
             "--lora", rule, "--optimizer", "adamw:lr=0.02")
        call("train", f"{work}/train", "--data", f"{row.name}={folder}/{row.name}.npy", "--data", f"labels={folder}/labels.npy", "-q",
             "--steps", STEPS, "--checkpoint-dir", f"{work}/checkpoints")
        call("ckpt", "to-peft", f"{work}/checkpoints", f"{work}/adapter", "-q")
        call("compile", folder / "model.onnx", "-o", f"{work}/run", "-q", "--adapter", f"{work}/adapter")
        call("run", f"{work}/run", "--input", f"{row.name}={work}/x.npy", "--output-dir", f"{work}/out", "-q")
        ours = numpy.load(f"{work}/out/logits.npy")
        x = torch.from_numpy(x)
        before = logits_of(row, base.double(), x)
        theirs = logits_of(row, peft.PeftModel.from_pretrained(base, f"{work}/adapter").double(), x)
    return abs(ours - theirs).max() / abs(theirs).max(), abs(ours - before).max() / abs(theirs).max()


def record_model(folder, row, base, x, labels):
    folder.mkdir(parents=True, exist_ok=True)
    numpy.save(folder / f"{row.name}.npy", x)
    numpy.save(folder / "labels.npy", labels)
    export(base, folder / "model.onnx", row, torch.from_numpy(x[:BATCH]))
    if folder.name == "llama":
        export_decoders(base, folder)
    return {"optimizer": "adamw:" + ",".join(f"{k}={v}" for k, v in OPTIMIZER.items()), "clip_grad_norm": CLIP, "cases": {}}


def record(folder, row, only):
    torch.manual_seed(7)
    base = row.make().train()
    x, labels = row.draw(numpy.random.default_rng(1))
    reference = json.loads((folder / "reference.json").read_text()) if only else record_model(folder, row, base, x, labels)
    x, labels = torch.from_numpy(x), torch.from_numpy(labels)
    for name, (modules, options) in row.cases.items():
        if only and name != only:
            continue
        torch.manual_seed(3)
        config = peft.LoraConfig(target_modules=modules, **options)
        start = peft.get_peft_model(copy.deepcopy(base), config)
        start.save_pretrained(folder / name / "start", save_embedding_layers=False)
        steps = {}
        for micro_batches in MICRO_BATCHES:
            model = copy.deepcopy(start).double()
            steps[micro_batches] = train(row, model, x, labels, micro_batches)
            if micro_batches == 1:
                logits = logits_of(row, model, x)
                numpy.save(folder / name / "logits.npy", logits.astype("float32"))
                # of a tied embedding peft changes the embedding too
                apart = abs(logits_of(row, copy.deepcopy(model).merge_and_unload(), x) - logits).max()
                assert "lm_head" in modules or apart < 1e-9, apart
            model.float().save_pretrained(folder / name / f"trained-{micro_batches}", save_embedding_layers=False)
        scaling = f"r={options['r']},alpha={options['lora_alpha']}" + (",rslora" if options.get("use_rslora") else "")
        scaling += ",swapped" if folder.name == "stacks" else ""
        reference["cases"][name] = {"lora": f"{','.join(modules + options.get('target_parameters', []))}:{scaling}", "steps": steps}
        if (folder.name, name) in FROZEN:
            option, names, to = FROZEN[folder.name, name]
            freeze(start, names, to, int(option.partition("group=")[2] or 1))
            reference["cases"][name]["frozen"] = {
                "weight_dtype": option, "steps": {n: train(row, copy.deepcopy(start).double(), x, labels, n) for n in MICRO_BATCHES}}
            if to != "bf16" and "target_parameters" not in options:  # rounding may choose another expert
                reference["cases"][name]["frozen"]["autocast"] = {
                    n: train(row, copy.deepcopy(start), x, labels, n, True) for n in MICRO_BATCHES}
    for file in folder.glob("*/*/*"):
        file.chmod(0o644)
        if file.name == "README.md":
            file.unlink()
        if file.name == "adapter_config.json":  # a set, which has another order each time
            config = json.loads(file.read_text())
            file.write_text(json.dumps({**config, "target_modules": sorted(config["target_modules"])}, indent=2, sort_keys=True) + "\n")
    (folder / "reference.json").write_text(json.dumps(reference, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent)
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--rankc")
    parser.add_argument("models", nargs="*")
    options = parser.parse_args()
    for name, only in (model.partition("/")[::2] for model in options.models or (GRID if options.grid else MODELS)):
        row = of_grid(name) if options.grid else MODELS[name]
        if not options.rankc:
            record(options.out / "lora" / name, row, only)
        for case in row.cases if options.rankc else ():
            apart, moved = compare(options.rankc, options.out / "lora" / name, row, case)
            print(f"{name}/{case}: logits of rankc and peft differ by {apart:.1e}; training has moved them by {moved:.1e}")


if __name__ == "__main__":
    main()
