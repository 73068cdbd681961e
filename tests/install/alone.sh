#!/bin/sh
# compile --with-runtime: a program builds with a C compiler and make alone, and computes what it does with an installed runtime.
#
#   alone.sh RANKC SOURCE
set -eu

rankc=$(realpath "$1") source=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    printf 'alone.sh: %s\n' "$*" >&2
    exit 1
}

cd "$work"
tokens=$source/samples/models/gpt2.input_ids.npy
export CFLAGS=-O1
"$rankc" compile "$source/samples/models/gpt2.onnx" -o with --pas tp --plan-ngpus 2 -q
"$rankc" run with --input input_ids="$tokens" --output-dir expected
"$rankc" compile "$source/samples/models/gpt2.onnx" -o alone --pas tp --plan-ngpus 2 -q --no-build --with-runtime
"$rankc" compile "$source/samples/models/gpt2.onnx" -o alone --pas tp --plan-ngpus 2 -q --no-build 2>said && fail 'reused with other files'
grep -q 'E0801.*' said || fail "$(cat said)"
"$rankc" verify alone >/dev/null

# No environment, no program but those of the compiler, and no directory that rankc wrote but this one.
mkdir bin
for tool in sh cc as ld make ar rm mkdir; do ln -s "$(command -v $tool)" bin/$tool; done
mv alone/gpt2/_ moved
rm -rf alone
[ ! -e moved/build/runtime ] || fail 'it has links to an installed runtime'
env -i PATH="$work/bin" CC='cc -MD' RUNTIME_CFLAGS=-O0 CFLAGS=-O1 make -s -j2 -C moved build/run build/model.a
find moved/build -name "*.d" -exec cat {} + | tr ' ' '\n' | grep -F -e "$source" -e rankc/rt.h -e xxhash.h | sort -u >headers
[ "$(cat headers)" = "rankc/rt.h
rankc/xxhash.h" ] || fail "headers of elsewhere: $(cat headers)"

# The program, and one that embeds the model: the runtime is part of model.a.
(cd moved && env -i PATH="$work/bin" build/run --comm loopback --input input_ids="$tokens" --output-dir "$work/got")
env -i PATH="$work/bin" cc -O1 -I moved "$source/samples/embed/embed.c" moved/build/model.a -o embed -fopenmp -lm -ldl
for logits in expected got; do
    ./embed moved "$tokens" $logits/logits.npy >said || fail "$logits: $(cat said)"
done
