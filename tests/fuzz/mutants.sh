#!/bin/sh
# Compiles mutated models under the address and undefined-behaviour sanitizers.
#
#   tests/fuzz/mutants.sh MUTATIONS [SEED [MODEL|DIRECTORY...]]
#
# Every mutant (fuzz_compile.c, mutate_protobuf.c) goes through the whole compiler in a process of its own with 10 s of processor time
# and 2 GiB (replay.c). Models are those of tests/models, tests/training, tests/random and tests/fuzz/corpus, and those given. Builds with
# gcc in build-sanitize (or $SANITIZE_BUILD); findings are left in its directory fuzzing/mutants. When it ends it appends a
# row to docs/measured/robustness.md. ASAN_OPTIONS=detect_leaks=0 makes it several times as fast.
set -eu

case ${1-} in
[1-9]*) ;;
*)
    sed -n 's/^# \{0,1\}//; 2,10p' "$0" >&2
    exit 2
    ;;
esac
mutations=$1 seed=${2-1}
shift
[ $# = 0 ] || shift

cd "$(dirname "$0")/../.."
build=${SANITIZE_BUILD:-build-sanitize}
findings=$build/fuzzing/mutants
[ -f "$build/build.ninja" ] || meson setup "$build" -Dtests=true -Db_sanitize=address,undefined -Db_lundef=false \
    --buildtype=debugoptimized -Dc_args=-fno-sanitize-recover=undefined
ninja -C "$build" tests/fuzz/fuzz_compile
mkdir -p "$findings"
export ASAN_OPTIONS="exitcode=99:quarantine_size_mb=8:malloc_context_size=6:${ASAN_OPTIONS-}" UBSAN_OPTIONS=print_stacktrace=1
start=$(date +%s) status=0
"$build/tests/fuzz/fuzz_compile" --runs "$mutations" --seed "$seed" --apart "$findings" tests/models/*/model.onnx \
    tests/training/*/model.onnx tests/random/recorded/*/model.onnx tests/fuzz/corpus/onnx tests/fuzz/corpus/compile "$@" \
    >"$findings/log" || status=$?
tail -n 20 "$findings/log"
printf '| %s | %s | %s | %d | %d | %s | %s |\n' "$(date +%Y-%m-%d)" "$(git rev-parse --short HEAD)" \
    "mutants compiled, seed $seed" "$mutations" $(($(date +%s) - start)) "$(sed -n 's/ files,.*//p' "$findings/log")" \
    "$(sed -n 's/.*passed, \([0-9]*\) findings/\1/p' "$findings/log")" >>docs/measured/robustness.md
exit $status
