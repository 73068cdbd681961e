#!/bin/sh
# tests/run.sh runs all tests also in a build directory that was configured without them: list.sh MESON BUILD ROOT
#
# A copy of the source tree is configured as samples/quickstart.sh does it, and then lists its tests; they are those of BUILD.
set -eu

meson=$1 build=$2 root=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

tar -C "$root" --exclude './build*' --exclude ./.git -cf - . | tar -C "$work" -xf -
cd "$work"
configure=$(sed -n 's/.*|| meson setup build >.*/meson setup build/p' samples/quickstart.sh)
[ "$configure" = 'meson setup build' ] # as quickstart.sh says it
"$meson" setup build >/dev/null
"$meson" test -C build --no-rebuild --list 2>&1 | sed 's/^[^ ]*:[^ ]* / /' | sort >before
tests/run.sh --list | sort >after
"$meson" test -C "$build" --no-rebuild --list | sort >expected
grep -q ' / ' expected
if grep ' / ' before; then
    echo 'a build directory that is configured without -Dtests=true has tests'
    exit 1
fi
diff expected after
