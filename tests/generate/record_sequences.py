#!/usr/bin/env python3
"""Makes the encoder-decoders of these tests, and what PyTorch's generate() writes with them: record_sequences.py DIRECTORY

DIRECTORY/t5 and DIRECTORY/whisper: small models with random weights, exported by torch.onnx.export(dynamo=True) as three files with the
names that optimum gives them: the encoder, the decoder without a past, which makes the caches of both kinds, and the decoder with a past;
configurations; references.json, with the ids that generate() gives. Needs torch, transformers, tokenizers and onnxscript."""
import json
import pathlib
import sys

import numpy
import onnx
import torch
import transformers
from record_decoder import VOCABULARY, tokenizer
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

NEW, HEADS, SIZE, WIDTH, FRAMES, MELS = 24, 2, 8, 16, 10, 3
SUPPRESSED, SUPPRESSED_FIRST = list(range(9, VOCABULARY, 5)), [2, 5, 6, 7]
CONFIGS = {
    "t5": transformers.T5Config(vocab_size=VOCABULARY, d_model=WIDTH, d_kv=SIZE, d_ff=12, num_layers=1, num_heads=HEADS,
                                relative_attention_num_buckets=8, relative_attention_max_distance=16, pad_token_id=0, eos_token_id=2,
                                decoder_start_token_id=0, tie_word_embeddings=False),
    "whisper": transformers.WhisperConfig(vocab_size=VOCABULARY, d_model=WIDTH, encoder_layers=1, decoder_layers=1, encoder_attention_heads=HEADS,
                                          decoder_attention_heads=HEADS, encoder_ffn_dim=12, decoder_ffn_dim=12, num_mel_bins=MELS,
                                          max_source_positions=FRAMES // 2, max_target_positions=48, pad_token_id=0, bos_token_id=1,
                                          eos_token_id=2, decoder_start_token_id=3, suppress_tokens=SUPPRESSED,
                                          begin_suppress_tokens=SUPPRESSED_FIRST)}
SEEDS = {"t5": 13, "whisper": 0}  # with which ids differ
SCALES = 0.1, 1.5  # deviations of embeddings, and of what products of other weights give


def tensors_of(cache):
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


class Part(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def decoded(self, ids, hidden, mask, **more):
        masks = {"attention_mask": mask[0]} if mask else {}
        return self.model(decoder_input_ids=ids, encoder_outputs=BaseModelOutput(last_hidden_state=hidden), use_cache=True, **masks, **more)


class Encoder(Part):
    def forward(self, given, *mask):
        return self.model.get_encoder()(given, **({"attention_mask": mask[0]} if mask else {})).last_hidden_state


class First(Part):
    def forward(self, input_ids, hidden, *mask):
        said = self.decoded(input_ids, hidden, mask)
        return (said.logits, *tensors_of(said.past_key_values.self_attention_cache), *tensors_of(said.past_key_values.cross_attention_cache))


class Later(Part):
    def forward(self, input_ids, *rest):
        mask, (keys, values, cross_keys, cross_values) = rest[:-4], rest[-4:]
        own, cross = DynamicCache(), DynamicCache()
        own.update(keys, values, 0)
        cross.update(cross_keys, cross_values, 0)
        made = EncoderDecoderCache(own, cross)
        made.is_updated[0] = True
        hidden = torch.zeros(input_ids.shape[0], cross_keys.shape[2], WIDTH)
        said = self.decoded(input_ids, hidden, mask, past_key_values=made)
        return (said.logits, *tensors_of(said.past_key_values.self_attention_cache))


def write(module, arguments, names, outputs, dims, path):
    parameters = module.forward.__code__.co_argcount - 1
    shapes = (*dims[:parameters], tuple(dims[parameters:])) if len(dims) > parameters else tuple(dims)
    torch.onnx.export(module.eval(), tuple(arguments), path, input_names=names, output_names=outputs, dynamic_shapes=shapes, dynamo=True,
                      external_data=False, verbose=False)
    exported = onnx.load(path)
    for node in exported.graph.node:  # where the exporter ran
        del node.metadata_props[:]
    onnx.save(exported, path)


def export(model, family, out):
    batch, tokens, past, source = 2, 3, 4, 5
    masked = family == "t5"
    mask, mask_names = ([torch.ones(batch, source, dtype=torch.int64)], ["attention_mask"]) if masked else ([], [])
    rows, of_source = {0: "batch_size"}, {0: "batch_size", 1: "encoder_sequence_length"}
    masks = [of_source] if masked else []
    given = torch.randint(4, VOCABULARY, (batch, source)) if masked else torch.randn(batch, MELS, FRAMES)
    write(Encoder(model), [given, *mask], ["input_ids" if masked else "input_features", *mask_names], ["last_hidden_state"],
          [of_source if masked else rows, *masks], f"{out}/encoder_model.onnx")
    ids, of_ids = torch.randint(4, VOCABULARY, (batch, tokens)), {0: "batch_size", 1: "decoder_sequence_length"}
    parts = [f"0.{kind}.{part}" for kind in ("decoder", "encoder") for part in ("key", "value")]
    mask_names = [f"encoder_{name}" for name in mask_names]
    write(First(model), [ids, torch.randn(batch, source, WIDTH), *mask], ["input_ids", "encoder_hidden_states", *mask_names],
          ["logits", *(f"present.{part}" for part in parts)], [of_ids, of_source if masked else rows, *masks], f"{out}/decoder_model.onnx")
    caches = [torch.randn(batch, HEADS, length, SIZE) for length in (past, past, source, source)]
    of_past, of_cross = {0: "batch_size", 2: "past_decoder_sequence_length"}, {0: "batch_size", 2: "encoder_sequence_length"} if masked else rows
    write(Later(model), [ids, *mask, *caches], ["input_ids", *mask_names, *(f"past_key_values.{part}" for part in parts)],
          ["logits", *(f"present.{part}" for part in parts[:2])], [of_ids, *masks, of_past, of_past, of_cross, of_cross],
          f"{out}/decoder_with_past_model.onnx")


def reference(model, name, eos=2, **given):
    tensors = {key: torch.tensor(value) for key, value in given.items()}
    said = model.generate(**tensors, do_sample=False, num_beams=1, max_new_tokens=NEW, eos_token_id=eos, pad_token_id=0,
                          return_dict_in_generate=True, output_scores=True)
    cut = []
    for row in said.sequences[:, -len(said.scores):].tolist():
        cut.append(row[:row.index(eos) + 1] if eos in row else row)
    return {"name": name, "eos": eos, "ids": cut, **given}


def record(model, family):
    generator = torch.Generator().manual_seed(5)
    if family == "t5":
        rows = [torch.randint(4, VOCABULARY, (length,), generator=generator).tolist() for length in (7, 3, 5)]
        masks = [[1] * len(row) + [0] * (7 - len(row)) for row in rows]
        given = {"input_ids": [row + [0] * (7 - len(row)) for row in rows], "attention_mask": masks}
    else:
        sound = torch.randn(3, MELS, FRAMES, generator=generator).numpy()
        given = {"input_features": numpy.round(sound, 3).astype(float).tolist()}
    one = {name: value[:1] for name, value in given.items()}
    references = [reference(model, "one", **one), reference(model, "three", **given)]
    row = references[1]["ids"][1]
    early = next(token for at, token in enumerate(row) if at > 2 and token not in row[:at])
    references.append(reference(model, "early", early, **given))
    references.append(reference(model, "begun", decoder_input_ids=[[model.config.decoder_start_token_id, 11, 4]] * 3, **given))
    return references


def main():
    for family, config in CONFIGS.items():
        out = pathlib.Path(sys.argv[1]) / family
        out.mkdir(exist_ok=True)
        torch.manual_seed(SEEDS[family])
        model = (transformers.T5ForConditionalGeneration if family == "t5" else transformers.WhisperForConditionalGeneration)(config).eval()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.dim() > 1:
                    embeds = "embed" in name or "shared" in name or "bias" in name
                    weight.normal_(0, SCALES[0] if embeds else SCALES[1] / weight.shape[-1] ** 0.5)
        model.generation_config = transformers.GenerationConfig(
            decoder_start_token_id=config.decoder_start_token_id, eos_token_id=2, pad_token_id=0,
            **({"suppress_tokens": SUPPRESSED, "begin_suppress_tokens": SUPPRESSED_FIRST} if family == "whisper" else {}))
        references = record(model, family)
        model.set_attn_implementation("eager")  # that torch exports
        export(model, family, out)
        with open(out / "references.json", "w", encoding="utf-8") as file:
            lines = ",\n".join(json.dumps(one) for one in references)
            file.write(f'{{"transformers": "{transformers.__version__}", "torch": "{torch.__version__}", "new": {NEW}, "references": [\n{lines}\n]}}\n')
        said = {key: value for key, value in model.generation_config.to_diff_dict().items() if key != "transformers_version"}
        (out / "generation_config.json").write_text(json.dumps(said) + "\n", encoding="utf-8")
        if family == "t5":
            tokenizer().save(str(out / "tokenizer.json"))
        for one in references:
            print(family, one["name"], [len(set(row)) for row in one["ids"]], [len(row) for row in one["ids"]])


if __name__ == "__main__":
    main()
