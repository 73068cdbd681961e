#!/usr/bin/env python3
"""Records what a model with two adapters of peft computes, of which set_adapter chooses one: record_adapters.py

writes, for the model of samples/generate/writer.onnx and adapters of random numbers, with different r and modules,

    adapters/NAME/                 each adapter as peft saves it
    adapters/reference.json        of each adapter, and of none, the tokens that generate() writes behind a prompt
    adapters/logits.npz            their logits of the prompt, NAME.f32, and beside a base quantised to 4 bits NAME.int4

Needs torch, transformers, onnx and peft (written for 2.15, 5.24 and 0.21.2)."""
import copy
import json
import pathlib
import sys

import numpy as np
import onnx
import peft
import torch
from onnx import numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
SAMPLE = HERE.parents[1] / "samples" / "generate"
sys.path += [str(SAMPLE), str(HERE.parent / "training")]
from export import model_of  # noqa: E402
from record_lora import freeze  # noqa: E402

PROMPT, NEW, SEED = "Shall I compare", 32, 10
ADAPTERS = {"english": {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj", "lm_head"]},
            "french": {"r": 7, "lora_alpha": 3, "use_rslora": True, "target_modules": ["k_proj", "v_proj", "o_proj", "gate_proj", "up_proj"]}}


def with_adapters(base):
    model = None
    for seed, (name, options) in enumerate(ADAPTERS.items()):
        config = peft.LoraConfig(init_lora_weights=False, **options)
        torch.manual_seed(SEED + seed)
        if model:
            model.add_adapter(name, config)
        else:
            model = peft.get_peft_model(base, config, adapter_name=name)
    return model.eval()


def chosen(model, name, function):
    if name == "none":
        with model.disable_adapter():
            return function()
    model.set_adapter(name)
    return function()


def main():
    out, ids = HERE / "adapters", torch.tensor([[ord(character) for character in PROMPT]])
    base = model_of(layers=2)
    exported = {value.name: numpy_helper.to_array(value) for value in onnx.load(SAMPLE / "writer.onnx").graph.initializer}
    for name, weight in base.named_parameters():
        assert np.array_equal(exported["model." + name], weight.detach().numpy()), name
    model, written, logits = with_adapters(base), {}, {}
    model.save_pretrained(out)
    small = copy.deepcopy(model)
    freeze(small, "*.weight", "int4")
    with torch.no_grad():
        for name in (*ADAPTERS, "none"):
            done = chosen(model, name, lambda: model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False, eos_token_id=None, pad_token_id=0,
                return_dict_in_generate=True, output_logits=True))
            best = torch.cat(done.logits).topk(2).values
            assert (best[:, 0] - best[:, 1]).min() > 1e-3, "logits that rounding may exchange"
            written[name] = done.sequences[0, ids.shape[1]:].tolist()
            for base_type, of in (("f32", model), ("int4", small)):
                logits[f"{name}.{base_type}"] = chosen(of, name, lambda: of(input_ids=ids).logits.numpy())
    np.savez_compressed(out / "logits.npz", **logits)
    (out / "reference.json").write_text(json.dumps({"prompt": PROMPT, "new": NEW, "ids": written}) + "\n")
    (out / "README.md").unlink()
    for file in out.glob("*/*"):
        file.chmod(0o644)
    for file in out.glob("*/adapter_config.json"):
        config = json.loads(file.read_text())
        file.write_text(json.dumps({**config, "target_modules": sorted(config["target_modules"])}, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
