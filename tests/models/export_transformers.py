#!/usr/bin/env python3
"""Export small models of HuggingFace's transformers, each with reference inputs and PyTorch's outputs.

    export_transformers.py --out DIR [NAME...]

writes what export.py writes. Nothing of it is committed: it is for `tests/programs/sweep.py`, as models that nobody
here wrote. It needs PyTorch (tried with 1.13, Debian's python3-torch) and transformers (4.30.2).
"""

import numpy
import transformers
from torch import nn

from exporting import Spec, main

OPSET = 14
BATCH, LENGTH, TARGETS = 2, 11, 5
VOCABULARY = 99

# Settings by the names that the families' configurations use.
ENCODER = dict(vocab_size=VOCABULARY, hidden_size=48, num_hidden_layers=2, num_attention_heads=6, intermediate_size=80,
               max_position_embeddings=64)
DECODER = dict(ENCODER, use_cache=False)
GPT = dict(vocab_size=VOCABULARY, n_embd=48, n_layer=2, n_head=6, n_positions=64, use_cache=False)
T5 = dict(vocab_size=VOCABULARY, d_model=48, d_kv=8, d_ff=80, num_layers=2, num_heads=6, use_cache=False)
BART = dict(vocab_size=VOCABULARY, d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=6,
            decoder_attention_heads=6, encoder_ffn_dim=80, decoder_ffn_dim=80, max_position_embeddings=64,
            use_cache=False, pad_token_id=1)
VIT = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=6, intermediate_size=80, image_size=32, patch_size=8)
STAGES = dict(hidden_sizes=[12, 24, 36, 48], depths=[1, 1, 2, 1])
RESNET = dict(embedding_size=12, hidden_sizes=[16, 24, 32, 40], depths=[1, 1, 1, 1])
SWIN = dict(image_size=32, patch_size=4, embed_dim=24, depths=[2, 2], num_heads=[3, 6], window_size=4)
SPEECH = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=6, intermediate_size=80, conv_dim=[16, 16],
              conv_stride=[5, 2], conv_kernel=[10, 3], num_feat_extract_layers=2, num_conv_pos_embeddings=16,
              num_conv_pos_embedding_groups=4, vocab_size=VOCABULARY)
DISENTANGLED = dict(ENCODER, relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=16)


def tokens(random, length=LENGTH):
    return random.integers(0, VOCABULARY, (BATCH, length))


def text(random):
    mask = (random.random((BATCH, 1)) * LENGTH + 1 > range(LENGTH)).astype("int64")
    return {"input_ids": tokens(random), "attention_mask": mask}


def ids(random):
    return {"input_ids": tokens(random)}


def pair(random):
    return {**text(random), "decoder_input_ids": tokens(random, TARGETS)}


def image(size):
    return lambda random: {"pixel_values": random.standard_normal((BATCH, 3, size, size)).astype("float32")}


def captioned(random):
    return {**text(random), **image(32)(random)}


def samples(random):
    return {"input_values": random.standard_normal((BATCH, 200)).astype("float32")}


def spectrum(random):
    return {"input_features": random.standard_normal((BATCH, 8, 40)).astype("float32"),
            "decoder_input_ids": tokens(random, TARGETS)}


# Name -> configuration's class, model's class, settings, inputs.
FAMILIES = {
    "albert": ("AlbertConfig", "AlbertModel", dict(ENCODER, embedding_size=24), text),
    "bart": ("BartConfig", "BartForConditionalGeneration", BART, pair),
    "beit": ("BeitConfig", "BeitForImageClassification", VIT, image(32)),
    "bert": ("BertConfig", "BertForSequenceClassification", ENCODER, text),
    "bit": ("BitConfig", "BitModel", dict(RESNET, embedding_size=16, hidden_sizes=[32, 64, 64, 96], num_groups=8), image(64)),
    "blenderbot": ("BlenderbotConfig", "BlenderbotForConditionalGeneration", BART, pair),
    "bloom": ("BloomConfig", "BloomForCausalLM",
              dict(vocab_size=VOCABULARY, hidden_size=48, n_layer=2, n_head=6, use_cache=False), text),
    "camembert": ("CamembertConfig", "CamembertModel", ENCODER, text),
    "clip": ("CLIPConfig", "CLIPModel",
             dict(text_config=dict(ENCODER, eos_token_id=98, pad_token_id=1), vision_config=VIT, projection_dim=24), captioned),
    "codegen": ("CodeGenConfig", "CodeGenForCausalLM", dict(GPT, n_head=4, rotary_dim=4), text),
    "convbert": ("ConvBertConfig", "ConvBertModel", ENCODER, text),
    "convnext": ("ConvNextConfig", "ConvNextForImageClassification", STAGES, image(64)),
    "ctrl": ("CTRLConfig", "CTRLLMHeadModel", dict(GPT, dff=80), ids),
    "data2vec_vision": ("Data2VecVisionConfig", "Data2VecVisionModel", VIT, image(32)),
    "deberta": ("DebertaConfig", "DebertaModel", DISENTANGLED, text),
    "deberta_v2": ("DebertaV2Config", "DebertaV2Model", DISENTANGLED, text),
    "deit": ("DeiTConfig", "DeiTForImageClassification", VIT, image(32)),
    "distilbert": ("DistilBertConfig", "DistilBertForMaskedLM",
                   dict(vocab_size=VOCABULARY, dim=48, n_layers=2, n_heads=6, hidden_dim=80, max_position_embeddings=64), text),
    "electra": ("ElectraConfig", "ElectraForTokenClassification", ENCODER, text),
    "funnel": ("FunnelConfig", "FunnelModel",
               dict(vocab_size=VOCABULARY, block_sizes=[1, 1], d_model=48, n_head=6, d_head=8, d_inner=80), text),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", GPT, text),
    "gpt_neo": ("GPTNeoConfig", "GPTNeoForCausalLM",
                dict(vocab_size=VOCABULARY, hidden_size=48, num_layers=2, num_heads=6, window_size=5,
                     attention_types=[[["global", "local"], 1]], max_position_embeddings=64, use_cache=False), text),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", DECODER, text),
    "gptj": ("GPTJConfig", "GPTJForCausalLM", dict(GPT, rotary_dim=4), text),
    "hubert": ("HubertConfig", "HubertModel", SPEECH, samples),
    "ibert": ("IBertConfig", "IBertModel", ENCODER, text),
    "layoutlm": ("LayoutLMConfig", "LayoutLMModel", ENCODER, text),
    "levit": ("LevitConfig", "LevitModel",
              dict(image_size=64, hidden_sizes=[16, 24, 32], num_attention_heads=[2, 3, 4], depths=[1, 1, 1], key_dim=[8, 8, 8]),
              image(64)),
    "llama": ("LlamaConfig", "LlamaForCausalLM", DECODER, text),
    "m2m100": ("M2M100Config", "M2M100ForConditionalGeneration", BART, pair),
    "marian": ("MarianConfig", "MarianMTModel", dict(BART, decoder_start_token_id=2), pair),
    "mbart": ("MBartConfig", "MBartForConditionalGeneration", BART, pair),
    "megatron_bert": ("MegatronBertConfig", "MegatronBertForMaskedLM", ENCODER, text),
    "mobilenet_v2": ("MobileNetV2Config", "MobileNetV2Model", {}, image(64)),
    "mobilevit": ("MobileViTConfig", "MobileViTForImageClassification",
                  dict(hidden_sizes=[24, 32, 40], neck_hidden_sizes=[8, 12, 16, 20, 24, 32, 40], num_attention_heads=4,
                       image_size=64), image(64)),
    "mpnet": ("MPNetConfig", "MPNetForMaskedLM", ENCODER, text),
    "mt5": ("MT5Config", "MT5ForConditionalGeneration", T5, pair),
    "nystromformer": ("NystromformerConfig", "NystromformerModel", ENCODER, text),
    "opt": ("OPTConfig", "OPTForCausalLM",
            dict(vocab_size=VOCABULARY, hidden_size=48, num_hidden_layers=2, num_attention_heads=6, ffn_dim=80,
                 max_position_embeddings=64, word_embed_proj_dim=48, use_cache=False), text),
    "pegasus": ("PegasusConfig", "PegasusForConditionalGeneration", BART, pair),
    "poolformer": ("PoolFormerConfig", "PoolFormerModel", STAGES, image(64)),
    "regnet": ("RegNetConfig", "RegNetModel", dict(RESNET, groups_width=8), image(64)),
    "resnet": ("ResNetConfig", "ResNetForImageClassification", RESNET, image(64)),
    "roberta": ("RobertaConfig", "RobertaForMaskedLM", ENCODER, text),
    "roformer": ("RoFormerConfig", "RoFormerModel", ENCODER, text),
    "segformer": ("SegformerConfig", "SegformerForSemanticSegmentation",
                  dict(hidden_sizes=[12, 24, 32, 48], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 4, 6],
                       decoder_hidden_size=24), image(64)),
    "sew": ("SEWConfig", "SEWModel", dict(SPEECH, squeeze_factor=2), samples),
    "squeezebert": ("SqueezeBertConfig", "SqueezeBertModel",
                    dict(ENCODER, embedding_size=48, q_groups=1, k_groups=1, v_groups=1, post_attention_groups=1), text),
    "swin": ("SwinConfig", "SwinForImageClassification", SWIN, image(32)),
    "swinv2": ("Swinv2Config", "Swinv2Model", SWIN, image(32)),
    "t5": ("T5Config", "T5ForConditionalGeneration", T5, pair),
    "van": ("VanConfig", "VanModel", STAGES, image(64)),
    "vit": ("ViTConfig", "ViTForImageClassification", VIT, image(32)),
    "wav2vec2": ("Wav2Vec2Config", "Wav2Vec2ForCTC", SPEECH, samples),
    "wavlm": ("WavLMConfig", "WavLMModel", SPEECH, samples),
    "whisper": ("WhisperConfig", "WhisperForConditionalGeneration",
                dict(BART, num_mel_bins=8, max_source_positions=20, max_target_positions=16, pad_token_id=0, bos_token_id=1,
                     eos_token_id=2, decoder_start_token_id=3, suppress_tokens=None, begin_suppress_tokens=None), spectrum),
    "xglm": ("XGLMConfig", "XGLMForCausalLM",
             dict(vocab_size=VOCABULARY, d_model=48, num_layers=2, attention_heads=6, ffn_dim=80, max_position_embeddings=64,
                  use_cache=False), text),
    "xlm_roberta": ("XLMRobertaConfig", "XLMRobertaForQuestionAnswering", ENCODER, text),
    "yolos": ("YolosConfig", "YolosModel", dict(VIT, image_size=[32, 32], num_detection_tokens=5), image(32)),
}


class FirstOutput(nn.Module):
    """Arguments by position, and of the outputs the first."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *arguments):
        return self.model(**dict(zip(self.names, arguments)), return_dict=True).to_tuple()[0]


def spec_of(config, model, settings, inputs):
    def build():
        # which inputs there are does not depend on what is drawn for them
        names = list(inputs(numpy.random.default_rng(0)))
        return FirstOutput(getattr(transformers, model)(getattr(transformers, config)(**settings)), names)

    return Spec(build, inputs, ["y"], OPSET)


if __name__ == "__main__":
    main({name: spec_of(*row) for name, row in FAMILIES.items()}, __doc__, out=None)
