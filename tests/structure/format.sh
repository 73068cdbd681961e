#!/bin/sh
# Layout of the C sources: as clang-format (.clang-format) lays them out, and no line over 120 columns.
#
#   format.sh ROOT
#
# Versions of clang-format differ in what they make of one style: another than 14 is not asked. Numbers that a program has
# recorded (recorded_*.h), templates of generated code and reports are left as they are.
set -eu
cd "$1"

files() {
    find ir passes codegen frontend runtime tests samples bench -type f "$@" ! -name 'recorded_*' ! -path '*/corpus/*' ! -path 'tests/reports/*' | LC_ALL=C sort
}

long=$(files \( -name '*.[ch]' -o -name '*.def' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' \) |
    xargs awk 'length($0) > 120 { printf "%s:%d: %d columns\n", FILENAME, FNR, length($0) }')
[ -z "$long" ] || { printf '%s\n' "$long"; exit 1; }

case $(clang-format --version 2>/dev/null) in
*'version 14.'*) ;;
*) echo 'no clang-format 14' && exit 77 ;;
esac
files \( -name '*.[ch]' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' \) | xargs clang-format --dry-run -Werror
