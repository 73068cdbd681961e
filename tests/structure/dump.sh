#!/bin/sh
# What --dump-after prints reads back and compiles on to the same end.
#
#   dump.sh RANKC PASSES.def POLICY MODEL [OPTION...]       for each pass: model -> text -> last pass, and model -> last pass
#
# A graph that is still IMPORTED meets the passes of that level twice on its way through text, and may be named otherwise in
# the end; of others the end must be the same, byte for byte.
set -eu

rankc=$1
passes=$(sed -n 's/^[A-Z]*(\([a-z_]*\),.*/\1/p' "$2")
policy=$3
model=$4
shift 4
last=$(printf '%s\n' "$passes" | tail -n 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$rankc" compile "$model" "$@" --pas "$policy" --dump-after "$last" -q >"$work/end"
for pass in $passes; do
    "$rankc" compile "$model" "$@" --pas "$policy" --dump-after "$pass" -q >"$work/$pass.rir"
    "$rankc" compile "$work/$pass.rir" --pas "$policy" --dump-after "$last" -q >"$work/again" || { printf 'after %s\n' "$pass"; exit 1; }
    head -n 2 "$work/$pass.rir" | grep -q 'level=IMPORTED' || cmp "$work/end" "$work/again" || { printf 'after %s: another end\n' "$pass"; exit 1; }
done
printf '%s passes\n' "$(printf '%s\n' "$passes" | wc -l)"
