#!/bin/sh
# Fine-tunes ../generate/writer.onnx, a decoder of characters, on a text by low-rank adapters, and writes with it:
#
#     fine-tune.sh [TEXT [PROMPT]]
#
# Works in the directory ./fine-tuned. `rankc` must be in PATH. Variables: STEPS (1000), RANKS (1), and BASE, the type in which
# the frozen weights are stored (none: as in the model; bf16, int8, int4).
set -eu
here=$(cd "$(dirname "$0")/../generate" && pwd)
text=${1:-$here/sonnets.txt} prompt=${2:-"From fairest creatures"}
mkdir -p fine-tuned
cp "$text" fine-tuned/text.bin # a token is a character: the text is its own tokens
cd fine-tuned

# Train: 64 tokens at a time, no caches; the mask and the positions are constants then.
rankc compile "$here/writer.onnx" -o train -q --reuse override --train --dim batch=8 --dim sequence=64 --dim total=64 --dim past=0 \
    --bind attention_mask=1 --bind "position_ids=$(seq -s , 0 63)" --loss cross_entropy:logits=logits,labels=labels \
    --lora '*_proj,lm_head:r=16,alpha=32' --optimizer adamw:lr=0.003 --pas tp --plan-ngpus "${RANKS:-1}" ${BASE:+--weight-dtype "$BASE"}
rm -rf checkpoints
rankc train train --data input_ids=text.bin:u8 --data labels=text.bin:u8:shift=1 --shuffle 1 --steps "${STEPS:-1000}" --log-every 500 \
    --checkpoint-dir checkpoints

# Write: the adapters, as peft saves and loads them, beside the same model with its caches.
rankc ckpt to-peft checkpoints adapter
rankc compile "$here/writer.onnx" -o write -q --reuse override --state auto --dim batch=1 --dim sequence=1..64 --dim past=0..256 \
    --adapter adapter ${BASE:+--weight-dtype "$BASE"}
rankc generate write --tokenizer "$here/tokenizer.json" --prompt "$prompt" --max-new-tokens 41 -q

# For other programs: the model with the adapters merged.
rankc ckpt to-onnx checkpoints "$here/writer.onnx" tuned.onnx
