#!/bin/sh
# The same input, options and rankc give the same bytes, wherever they are compiled: DESIGN 5.
#
#   determinism.sh RANKC MODEL [OPTION...]       compiles twice, from other directories and into others, and compares
#
# location.json says where the model lies; build/ is rebuilt where absent. Both are outside of what must be equal.
set -eu

rankc=$1
model=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/a/very/deep/directory" "$work/models"
cp "$model" "$work/models/"
name=$(basename "$model")

(cd "$work/a/very/deep/directory" && "$rankc" compile "$model" -o here --no-build -q "$@")
(cd "$work/models" && "$rankc" compile "./$name" -o "$work/b" --no-build -q "$@")

files=$(cd "$work/b" && find . -type f | wc -l)
[ "$files" -ge 6 ] || { printf 'only %s files\n' "$files"; exit 1; }
diff -r --exclude=location.json --exclude='.lock-*' "$work/a/very/deep/directory/here" "$work/b"
