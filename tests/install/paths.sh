#!/bin/sh
# An installation, models and outputs under paths that make and shells would interpret: programs of both targets build, with
# headers of the installation alone, and nothing in a path is executed.
#
#   paths.sh MESON BUILD SOURCE
set -eu

meson=$1 build=$2 source=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PKG_CONFIG_PATH RANKC_CFLAGS RANKC_LIBS
fail() {
    printf 'paths.sh: %s\n' "$*" >&2
    exit 1
}

# shellcheck disable=SC2016 # not to be expanded is the point
hostile='it'\''s $(touch pwned) `touch pwned` "$HOME" # 50%; touch pwned & \'
"$meson" install -C "$build" --no-rebuild --quiet --destdir "$work/staged"
rankc=$(find "$work/staged" -path '*/bin/rankc' -type f)
prefix="$work/$hostile"
mv "$(dirname "$(dirname "$rankc")")" "$prefix"
rm -rf "$work/staged"
rankc=$prefix/bin/rankc

mkdir "$work/in $hostile"
cd "$work/in $hostile"
cp "$source/samples/models/gpt2.onnx" "$hostile.onnx"
tokens=$source/samples/models/gpt2.input_ids.npy

# What each object was made of, in build/*.d: headers of this installation, none of the source tree.
reads_only_installed() {
    cat "$1"/build/*.d | tr ' ' '\n' | grep -q 'runtime/include/rankc/rt\.h' || fail "$1: no list of headers"
    ! cat "$1"/build/*.d | grep -F -e "$source" -e "$build/" || fail "$1: headers of the source tree"
}

export CFLAGS=-O1
CC='cc -MD' "$rankc" compile "$hostile.onnx" -o "out $hostile" --pas tp --plan-ngpus 2 -q
"$rankc" run "out $hostile" --input input_ids="$tokens" --output-dir first
set -- "out $hostile"/*/_
reads_only_installed "$1"

# make alone finds the runtime of the rankc that wrote the directory.
make -s -C "$1" clean all
"$rankc" run "$1" --input input_ids="$tokens" --output-dir again
cmp first/logits.npy again/logits.npy

# Variables that change what make does.
for variable in MAKEFLAGS=-n MAKEFLAGS=t GNUMAKEFLAGS=-n MAKEFILES="$source/meson.build"; do
    env "$variable" "$rankc" compile "$hostile.onnx" -o "out $hostile" --reuse override --pas tp --plan-ngpus 2 -q
    "$rankc" run "$1" --input input_ids="$tokens" --output-dir again
    cmp first/logits.npy again/logits.npy
done

if command -v nvcc >/dev/null; then
    cp "$source/tests/models/mlp/model.onnx" "mlp $hostile.onnx"
    "$rankc" compile "mlp $hostile.onnx" -o cuda --target cuda --arch sm_90a -q 2>said && fail 'nvcc ran where it interprets the path'
    grep -q "E0621.*would interpret the character '\\$'" said || fail "$(cat said)"
    mkdir "$work/it's # 50%; touch pwned & so" # nvcc itself interprets the others
    NVCCFLAGS='-O1 -MD' "$rankc" compile "mlp $hostile.onnx" -o "$work/it's # 50%; touch pwned & so" --target cuda --arch sm_90a -q
    set -- "$work/it's # 50%; touch pwned & so"/*/_
    reads_only_installed "$1"
fi

[ -z "$(find "$work" -name pwned)" ] || fail 'a path was executed'
