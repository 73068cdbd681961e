#!/bin/sh
# Installs missing packages, builds rankc, and compiles a transformer for one rank and for two tensor-parallel ranks,
# each with a shard of the weights. Runs both programs, compares their outputs, and trains the model on two ranks. Then trains
# a decoder of characters on sonnets by Shakespeare, and has it write.
set -eu

cd "$(dirname "$0")/.."
model=samples/models/gpt2.onnx
input=input_ids=samples/models/gpt2.input_ids.npy
out=build/quickstart

say() { printf '\n== %s\n' "$*"; }

# Prints the elements of a .npy file of 32-bit floats, one per line. Bytes 8 and 9 of the file are the header's length.
numbers() {
    header=$(od -A n -t u2 -j 8 -N 2 "$1" | tr -d ' ')
    od -A n -v -t f4 -w4 -j $((header + 10)) "$1"
}

first_numbers() { numbers "$1" | awk 'NR <= 6 { printf "%10.5f", $1 } END { print " ..." }'; }

./install-deps.sh
say 'building rankc in build/, which takes a few minutes the first time'
[ -f build/build.ninja ] || meson setup build >build-setup.log || { cat build-setup.log >&2; exit 1; }
rm -f build-setup.log
quiet=--quiet
[ ! -t 1 ] || quiet= # ninja tells how far it is
# shellcheck disable=SC2086 # no word if it is empty
ninja -C build $quiet
rankc=build/frontend/rankc

say "compiling $model for one rank, and for two with --pas tp"
$rankc compile $model -o $out --reuse moo --instance-name one
$rankc compile $model -o $out --reuse moo --instance-name two --pas tp --plan-ngpus 2

say 'running one rank'
$rankc run $out/gpt2/one --input $input --output-dir $out/one
say 'running two ranks'
$rankc run $out/gpt2/two --input $input --output-dir $out/two

say 'the logits'
printf 'one rank   '
first_numbers $out/one/logits.npy
printf 'two ranks  '
first_numbers $out/two/logits.npy
numbers $out/one/logits.npy >$out/one.txt
numbers $out/two/logits.npy >$out/two.txt
paste $out/one.txt $out/two.txt | awk '
    { difference = $1 - $2; if (difference < 0) difference = -difference; if (difference > most) most = difference }
    { size = $1 < 0 ? -$1 : $1; if (size > largest) largest = size }
    END { printf "largest difference %.2g of %d numbers up to %.3g\n", most, NR, largest; exit !(most <= 1e-4 * largest) }'

say 'the plan, and the exact memory of each rank'
$rankc show $out/gpt2/two

say 'training the model for ten steps on two ranks, with its input tokens as labels'
$rankc compile $model -o $out --reuse moo --instance-name train --pas tp --plan-ngpus 2 --train \
    --loss cross_entropy:logits=logits,labels=labels --optimizer adamw:lr=0.003 --lr-schedule cosine:warmup=2,steps=10
$rankc train $out/gpt2/train --data $input --data labels=samples/models/gpt2.input_ids.npy --steps 10

say 'training a decoder of characters on sonnets, on two ranks: 1000 steps of 16 samples'
text=$out/sonnets.bin
rm -rf $out/checkpoints
# Samples are pieces of 64 characters one behind the other. That is no divisor of the text's length: each copy is cut elsewhere.
for _ in $(seq 64); do cat samples/generate/sonnets.txt && echo; done >$text
$rankc compile samples/generate/writer.onnx -o $out --reuse moo --instance-name train --runtime-ngpus 2 --train \
    --dim batch=8 --dim sequence=64 --dim total=64 --dim past=0 --bind attention_mask=1 --bind "position_ids=$(seq -s , 0 63)" \
    --loss cross_entropy:logits=logits,labels=labels --optimizer adamw:lr=0.01 --lr-schedule cosine:warmup=20,steps=1000
$rankc train $out/writer/train --data input_ids=$text:u8 --data labels=$text:u8:shift=1 --shuffle 1 --steps 1000 --log-every 100 \
    --checkpoint-dir $out/checkpoints

say 'writing with the trained weights, on two tensor-parallel ranks whose caches stay between steps'
$rankc ckpt to-onnx $out/checkpoints samples/generate/writer.onnx $out/poet.onnx
$rankc compile $out/poet.onnx -o $out --reuse moo --pas tp --plan-ngpus 2 --state auto --dim batch=1 --dim sequence=1..64 --dim past=0..256
prompt='Shall I compare'
printf '%s' "$prompt"
$rankc generate $out/poet/_ --tokenizer samples/generate/tokenizer.json --prompt "$prompt" --max-new-tokens 65

say "the compiler is $rankc; 'meson install -C build' installs it. README.md lists the guides"
