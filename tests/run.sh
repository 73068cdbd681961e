#!/bin/sh
# Builds rankc and runs all its tests.
#
#   tests/run.sh [--sanitize | --tsan] [--list | TEST...]
#
# --sanitize: with the address and undefined-behaviour sanitizers; --tsan: with the thread sanitizer. Each has a build
# directory of its own. --list: only prints the names of the tests. The last line is "N passed, N failed, N skipped"; the
# exit status is 0 if none failed.

# What each test took: tests/slowest.py build/meson-logs/testlog.json.
#
# To take minutes, the suite compiles some generated programs with less optimization than users do. Checks of the same cases with
# more are commands: tests/programs/opcheck/opcheck.py without --quick, tests/programs/numeric.py, and those in tests/training. So are
# the same checks of more cases: numeric.py of every type, tests/programs/chains.py of 20,000 operators, tests/cuda/engines.py and
# sass.py without --quick.
set -eu

cd "$(dirname "$0")/.."
build=build
setup=
slower=1
usage() {
    sed -n 's/^# \{0,1\}//; 2,8p' "$0" >&2
    exit 2
}
case ${1-} in
--sanitize)
    build='build-sanitize'
    setup='-Db_sanitize=address,undefined -Db_lundef=false'
    slower=4
    shift
    ;;
--tsan)
    build='build-tsan'
    setup='-Db_sanitize=thread -Db_lundef=false'
    slower=4
    shift
    ;;
--list) ;;
-*) usage ;;
esac

# Tests create and remove many small files, for most of which a file system on a disk takes longer than the programs that write them:
# temporary directories are in memory where programs may be executed and there is room.
if [ -z "${TMPDIR-}" ] && TMPDIR=$(mktemp -d /dev/shm/tests-XXXXXX 2>/dev/null); then
    chmod 1777 "$TMPDIR" # as /tmp
    trap 'rm -rf "$TMPDIR"' EXIT
    trap 'exit 130' HUP INT TERM
    if printf '#!/bin/sh\n' >"$TMPDIR/program" && chmod +x "$TMPDIR/program" && "$TMPDIR/program" 2>/dev/null &&
        [ "$(df -Pk /dev/shm | awk 'NR == 2 { print $4 }')" -gt 4000000 ]; then
        export TMPDIR
    else
        rm -rf "$TMPDIR"
        unset TMPDIR
        trap - EXIT
    fi
fi

./install-deps.sh --tests

# A build directory may have been configured without tests, or before what they need was there: it is configured anew.
[ ! -f $build/build.ninja ] || setup="$setup --reconfigure"
# shellcheck disable=SC2086 # a list of words
said=$(meson setup $build $setup -Dwerror=true -Dtests=true 2>&1) || { printf '%s\n' "$said" >&2; exit 1; }
if [ "${1-}" = --list ]; then
    meson test -C $build --no-rebuild --list
    exit
fi
ninja -C $build

# Debian's CUDA and nvcc's own package may come without the disassembler; without either the test of machine code is skipped.
if command -v nvcc >/dev/null && ! command -v nvdisasm >/dev/null && [ -z "${NVDISASM-}" ]; then
    disassembler=$build/nvdisasm
    [ -d $disassembler ] || python3 -m pip install -q --target $disassembler nvidia-cuda-nvdisasm==13.5.37 >/dev/null 2>&1 || true
    NVDISASM=$(find "$PWD/$disassembler" -name nvdisasm -type f 2>/dev/null | head -n 1)
    export NVDISASM
fi

status=0
rm -f $build/meson-logs/testlog.json $build/meson-logs/testlog-timed.sh.json
# One test more than there are cores: some tests wait, for a process to end or for a time to pass.
meson test -C $build --no-rebuild --print-errorlogs --wrapper "$PWD/tests/timed.sh" --timeout-multiplier $slower --num-processes $(($(nproc) + 1)) "$@" || status=$?
mv -f $build/meson-logs/testlog-timed.sh.json $build/meson-logs/testlog.json 2>/dev/null || true

# One JSON object per line; "result" is OK, FAIL, TIMEOUT, ERROR, SKIP, EXPECTEDFAIL, UNEXPECTEDPASS or INTERRUPT.
count=$(awk '
    { sub(/.*"result": *"/, ""); sub(/".*/, ""); seen[$0]++; all++ }
    END {
        passed = seen["OK"] + seen["EXPECTEDFAIL"]
        printf "%d passed, %d failed, %d skipped\n", passed, all - passed - seen["SKIP"], seen["SKIP"]
    }' $build/meson-logs/testlog.json 2>/dev/null) || count=
case $count in
'' | '0 passed, 0 failed,'*)
    printf 'no test ran\n' >&2
    count=${count:-0 passed, 0 failed, 0 skipped}
    status=1
    ;;
*', 0 failed,'*) ;;
*) status=1 ;;
esac
python3 tests/failures.py $build/meson-logs/testlog.json || true
printf '%s\n' "$count"
exit $status
