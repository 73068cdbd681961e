#!/bin/sh
# Fuzzes one target under the address and undefined-behaviour sanitizers, with a stack of 1 MiB.
#
#   tests/fuzz/run.sh onnx|text|rules|plan|machine|config|constraints|template|tokenizer EXECUTIONS
#
# Builds with clang in build-fuzz (or $FUZZ_BUILD). Goes on from where it was stopped: the corpus it found and the number of
# executions are kept in the build directory. When it ends, at the number, by a signal or by a finding, it appends a row to
# docs/measured/robustness.md. Findings are left in the build directory; each goes, minimized, into tests/fuzz/corpus.
set -eu

target=${1-} wanted=${2-}
case $target:$wanted in
onnx:[1-9]* | text:[1-9]* | rules:[1-9]* | plan:[1-9]* | template:[1-9]*) ;;
machine:[1-9]* | config:[1-9]* | constraints:[1-9]* | tokenizer:[1-9]*) ;;
*)
    sed -n 's/^# \{0,1\}//; 2,8p' "$0" >&2
    exit 2
    ;;
esac

cd "$(dirname "$0")/../.."
build=${FUZZ_BUILD:-build-fuzz}
own=$build/fuzzing/$target
chunk=200000
case $target in onnx) most_bytes=4096 ;; *) most_bytes=8192 ;; esac # nearly all seeds are smaller; large inputs are slow

# Coverage of edges alone: following comparisons, and weighing inputs by rare features (entropic), take half of the time.
coverage='-fsanitize-coverage=inline-8bit-counters,pc-table'
[ -f "$build/build.ninja" ] || CC=clang meson setup "$build" -Dtests=true -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false \
    --buildtype=debugoptimized -Dc_args="$coverage -fno-sanitize-recover=undefined"
# What was freed stays marked until long after the execution is over, without filling the processor's caches; and replaying a
# finding shows whole stacks.
export ASAN_OPTIONS=quarantine_size_mb=8:malloc_context_size=4
ninja -C "$build" "tests/fuzz/fuzz_$target"
mkdir -p "$own/corpus" "$own/findings"

# Models of the ONNX test suite are seeds too.
if [ "$target" = onnx ] && [ ! -d "$own/suite" ]; then
    mkdir "$own/suite"
    find /usr/share/libonnx-testdata -name model.onnx -size -8 2>/dev/null | while read -r model; do
        cp "$model" "$own/suite/$(printf '%s' "$model" | cksum | cut -d ' ' -f 1)"
    done
fi

done=$(cat "$own/executions" 2>/dev/null || echo 0)
before=$done
start=$(date +%s)

report() {
    table=docs/measured/robustness.md
    printf '| %s | %s | %s | %d | %d | %d | %d |\n' "$(date +%Y-%m-%d)" "$(git rev-parse --short HEAD)" "fuzz $target" \
        $((done - before)) $(($(date +%s) - start)) "$(find "$own/corpus" -type f | wc -l)" \
        "$(find "$own/findings" -type f | wc -l)" >>"$table"
    tail -n 1 "$table"
}
trap report EXIT
trap 'exit 130' INT TERM

ulimit -s 1024
while [ "$done" -lt "$wanted" ]; do
    runs=$((wanted - done))
    [ "$runs" -le "$chunk" ] || runs=$chunk
    set -- "$own/corpus" "tests/fuzz/corpus/$target"
    [ ! -d "$own/suite" ] || set -- "$@" "$own/suite"
    status=0
    "$build/tests/fuzz/fuzz_$target" -runs=$runs -max_len=$most_bytes -entropic=0 -reload=0 -timeout=10 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$own/findings/" "$@" >"$own/log" 2>&1 || status=$?
    executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$own/log")
    done=$((done + ${executed:-0}))
    echo "$done" >"$own/executions"
    # Whoever waits for the processor looks slow: those that are slow do it again, alone.
    for slow in "$own/findings"/slow-unit-*; do
        [ ! -e "$slow" ] || ! timeout 5 "$build/tests/fuzz/fuzz_$target" "$slow" >/dev/null 2>&1 || rm "$slow"
    done
    [ "$status" = 0 ] || { tail -n 60 "$own/log" >&2; exit 1; }
done
