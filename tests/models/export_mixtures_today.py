#!/usr/bin/env python3
"""Export mixtures of experts of the newest transformers, each with reference inputs and PyTorch's outputs.

    export_mixtures_today.py --out DIR [--forms FORM,..] [NAME...]

writes the same folders as export_today.py, in the same forms. The name of a model ends with the implementation of its
experts in transformers: "batched_mm" gathers the weights of each row's expert; "eager" is a loop over the experts that
some token chose, which the legacy exporter traces for the example's tokens. It needs what export_today.py needs.
"""

import transformers

import export_today
from exporting import randomize

IMPLEMENTATIONS = ["batched_mm", "eager"]
MIXTURES = {
    "mixtral": ("MixtralConfig", "MixtralForCausalLM",
                dict(export_today.DECODER, num_local_experts=4, num_experts_per_tok=2)),
    "qwen3_moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM",
                  dict(export_today.DECODER, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=40, norm_topk_prob=True,
                       mlp_only_layers=[])),
    "gpt_oss": ("GptOssConfig", "GptOssForCausalLM",
                dict(export_today.DECODER, num_local_experts=4, num_experts_per_tok=2, sliding_window=5,
                     layer_types=["sliding_attention", "full_attention"])),
}
MODELS = [f"{name}_{experts}" for name in MIXTURES for experts in IMPLEMENTATIONS]


def model_of(model):
    """The module and the function that makes its inputs."""
    experts = next(experts for experts in IMPLEMENTATIONS if model.endswith(f"_{experts}"))
    config_class, model_class, settings = MIXTURES[model.removesuffix(f"_{experts}")]
    config = getattr(transformers, config_class)(**settings)
    config._attn_implementation, config._experts_implementation = "eager", experts
    return export_today.FirstOutput(getattr(transformers, model_class)(config), ["input_ids"], all_true=True), export_today.ids


if __name__ == "__main__":
    export_today.main(MODELS, model_of, lambda module, random, inputs: randomize(module, random), __doc__)
