#!/bin/sh
# tests/gpu.sh where there is no GPU: it packs, what it packed runs on its own, compiled for the CPU, and a page is made of the results.
#
#   bundle.sh BUILD
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    printf 'bundle.sh: %s\n' "$*"
    exit 1
}

sh "$here/../gpu.sh" pack "$1" "$work/bundle"
[ "$(du -sm "$work/bundle" | cut -f1)" -le 40 ] || fail 'the bundle takes more than 40 MiB'
run() { PYTHON=${PYTHON:-/usr/bin/python3} "$work/bundle/tests/gpu.sh" run --results "$work/results" --jobs 1 "$@"; }

if ! ls /dev/nvidia[0-9]* >/dev/null 2>&1; then
    status=0
    run || status=$?
    [ $status = 77 ] || fail "exit $status without a GPU, not 77"
fi
run --stand-in --only f64 --only mlp --only 'ranks on one GPU, gpt2 tp2' --only gpu_stack_tiny products models nccl bench || fail 'a check'
[ "$(grep -c '"status": "ok"' "$work/results")" = 4 ] || fail "$(cat "$work/results")"
page=$("${PYTHON:-/usr/bin/python3}" -B "$here/gpu_report.py" "$work/results")
for line in '4 passed, 0 failed, 0 skipped' 'Compiled for the CPU' '| torch over rankc | '; do
    printf '%s\n' "$page" | grep -qF "$line" || fail "the page lacks: $line"
done

# a check that fails is told, and fails the run
sed -i 's/def check(/def check(*_):\n    return ["broken"]\n\n\ndef unused(/' "$work/bundle/tests/cuda/finish.py"
if run --stand-in --only f64 products >"$work/said"; then fail 'a check that fails does not fail the run'; fi
grep -q '^0 passed, 1 failed, 0 skipped' "$work/said" || fail "$(cat "$work/said")"
