#!/bin/sh
# Walks "add an operator", "add a policy" and "add a backend" as the guides say, in a copy of the tree.
#
#   docs/patches/walk.sh DIR [TEST...]
#
# DIR does not exist yet. A model is compiled and run with each of the three; then the named tests run, which the guides name:
# operators passes target dependencies (minutes).
set -eu

copy=$1
shift
cd "$(dirname "$0")/../.."
git ls-files -z | xargs -0 cp --parents -t "$(mkdir -p "$copy" && realpath "$copy")"
cd "$copy"
for patch in operator policy backend; do patch -p1 -s -F0 <docs/patches/$patch.patch; done
sed -i "s|'plan/policy/policy.c',|'plan/policy/policy.c', 'plan/policy/policy_columns.c',|" passes/meson.build
sed -i "s|'target/target_c.c',|'target/target_c.c', 'target/target_serial.c',|; s|^  '../templates/model.h.in',|&\n  '../templates/serial/elementwise.c.in',|" codegen/meson.build
# what is compiled here runs once: the compiler takes a third of the time without optimization
meson setup build -Doptimization=0 -Dwerror=true -Dtests="$([ $# = 0 ] && echo false || echo true)" >setup.log || { cat setup.log; exit 1; }
ninja -C build --quiet frontend/rankc runtime/librankc-rt.a
PATH=$PWD/build/frontend:$PATH
cp samples/models/* .
rankc ops com.microsoft::CDist
for how in '--pas dp' '--pas columns --plan-ngpus 2' '--target serial'; do
    # shellcheck disable=SC2086 # words
    rankc compile gpt2.onnx $how --reuse override -q
    rankc run .rankc --input input_ids=gpt2.input_ids.npy
    rankc verify .rankc --numeric
done
[ $# = 0 ] || meson test -C build "$@"
