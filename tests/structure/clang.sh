#!/bin/sh
# Clang accepts the C sources of the runtime, which programs of a user with CC=clang are linked with.
#
#   clang.sh ROOT       prints what is an error to clang; exit status 1 if anything is, 77 without clang
set -eu

command -v clang >/dev/null || exit 77
cd "$1"
find runtime -name '*.c' ! -path 'runtime/cuda/*' -print0 |
    xargs -0 clang -fsyntax-only -w -std=gnu11 -fopenmp -D_GNU_SOURCE -DRT_HAVE_ONEDNN -I. -Iruntime
