#!/bin/sh
# The checks of target cuda that need a GPU.
#
#   gpu.sh pack BUILD BUNDLE      here: writes what they need to the directory BUNDLE, from the build directory BUILD
#   gpu.sh run [OPTION...]        there: runs them, in BUNDLE or in a source tree with a build directory; --help says more
#
# A machine with a GPU often has no protobuf-c and no meson. A bundle has the tests, and rankc with the runtime built; it needs nvcc,
# cuBLAS, a C compiler, make, and Python with NumPy and PyTorch. What else it needs is said when it is packed, and is least with
#
#   meson setup BUILD -Dtests=true --buildtype release --prefer-static -Donednn=disabled && ninja -C BUILD
set -eu

here=$(cd "$(dirname "$0")" && pwd)

# pack BUILD BUNDLE: a source tree with a build directory, of both what the checks use
pack() {
    mkdir "$2" "$2/build" "$2/build/frontend" "$2/build/runtime" "$2/build/tests" "$2/build/tests/programs"
    for file in frontend/rankc runtime/librankc-rt.a tests/programs/opcheck_generate; do
        cp "$1/$file" "$2/build/$file"
    done
    cp -rL "$1/frontend/include" "$2/build/frontend/include"
    mkdir "$2/tests"
    cp -r "$here/gpu.sh" "$here/compile_once" "$here/rankc_test.py" "$here/rankc_plans.py" "$here/cuda" "$here/generate" "$here/models" "$here/training" "$here/programs" "$2/tests/"
    cp -r "$here/../bench" "$2/bench"
    mkdir "$2/samples" "$2/samples/generate"
    cp -r "$here/../samples/generate/words" "$2/samples/generate/words"
    find "$2" -name __pycache__ -exec rm -r {} +
    ldd "$2/build/frontend/rankc" | sed -n 's/^\s*\(lib[^ ]*\) .*/\1/p' | grep -v '^lib[cm][.]' | sed 's/^/needs /'
    nm -u "$2/build/runtime/librankc-rt.a" 2>/dev/null | grep -q ' dnnl_' && echo 'needs oneDNN'
    du -sh "$2"
}

case ${1-} in
pack) pack "$2" "$3" ;;
run)
    shift
    exec "${PYTHON:-python3}" -B "$here/cuda/gpu.py" "$@"
    ;;
*)
    sed -n '2,5p' "$0"
    exit 2
    ;;
esac
