#!/bin/sh
# Prints the files that compile --with-runtime writes beside a program: sources.sh DIR CC...
#
# All of the runtime in DIR, in a fixed order, and xxhash.h, where the compiler CC... finds it.
set -eu

dir=$1
shift
find "$dir" -name '*.[ch]' -o -name '*.def' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh' | LC_ALL=C sort
printf '#include <xxhash.h>\n' | "$@" -E -xc - | sed -n 's/^# 1 "\(.*xxhash\.h\)".*/\1/p' | head -n 1
