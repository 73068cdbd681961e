#!/bin/sh
# The packages that rankc needs, and their installation on Debian and its relatives.
#
#   ./install-deps.sh            what building takes
#   ./install-deps.sh --tests    and what the tests take
#   ./install-deps.sh --list     only prints what is missing
#
# Installs what is missing and touches nothing else; with nothing missing it needs neither root nor a network. Where another
# program installs packages, as unattended upgrades do after a start, it waits for up to 10 minutes.
set -eu

build='gcc make meson ninja-build pkg-config libc6-dev libprotobuf-c-dev protobuf-c-compiler libdnnl-dev libxxhash-dev libpcre2-dev libutf8proc-dev'
tests='clang-format libcmocka-dev libonnx-testdata mpich libmpich-dev openmpi-bin libopenmpi-dev iproute2 python3 python3-numpy python3-onnx python3-torch'

usage() {
    printf 'usage: %s [--tests] [--list]\n' "$0" >&2
    exit 2
}

wanted=$build
list=no
for argument; do
    case $argument in
    --tests) wanted="$build $tests" ;;
    --list) list=yes ;;
    *) usage ;;
    esac
done

if ! command -v dpkg-query >/dev/null; then
    printf '%s: this is not a Debian system; please install what these packages contain:\n  %s\n' "$0" "$wanted" >&2
    exit 1
fi

missing=
for package in $wanted; do
    state=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -x installed | head -n 1 || true)
    [ "$state" = installed ] || missing="$missing $package"
done
missing=${missing# }

if [ "$list" = yes ]; then
    [ -z "$missing" ] || printf '%s\n' "$missing"
    exit 0
fi
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null; then
        as_root=sudo
    else
        printf '%s: these packages are missing, and installing them needs root:\n\n  apt-get install %s\n\n' "$0" "$missing" >&2
        exit 1
    fi
fi

printf 'installing: %s\n' "$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Runs apt-get, again as long as another program has one of apt's locks: of the package lists, for which apt has no option to
# wait, of downloads, or of dpkg.
waited=0
get() {
    while ! $as_root env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get "$@" >"$log" 2>&1 </dev/null; do
        if ! grep -q 'Could not get lock\|Unable to acquire the dpkg frontend lock' "$log" || [ "$waited" -ge 600 ]; then
            tail -n 20 "$log" >&2
            printf '%s: apt-get failed\n' "$0" >&2
            exit 1
        fi
        [ "$waited" != 0 ] || printf 'waiting for another program that installs packages:\n%s\n' "$(grep -m 1 'lock' "$log")" >&2
        waited=$((waited + 5))
        sleep 5
    done
}

get update
# shellcheck disable=SC2086 # a list of words
get install -y --no-install-recommends $missing
