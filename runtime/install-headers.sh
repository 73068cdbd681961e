#!/bin/sh
# Installs what programs include of folders of the runtime: install-headers.sh WHERE FOLDER...
#
# Run by meson, which names the prefix and this directory. WHERE may be relative to the prefix.
set -eu

where=$1
shift
case $where in
/*) where=${DESTDIR-}$where ;;
*) where=$MESON_INSTALL_DESTDIR_PREFIX/$where ;;
esac
for folder; do
    mkdir -p "$where/$folder"
    for file in "$MESON_SOURCE_ROOT/runtime/$folder"/*.h "$MESON_SOURCE_ROOT/runtime/$folder"/*.def \
        "$MESON_SOURCE_ROOT/runtime/$folder"/*.cuh "$MESON_SOURCE_ROOT/runtime/$folder"/*.cu; do
        [ ! -f "$file" ] || install -m 644 "$file" "$where/$folder"
    done
done
