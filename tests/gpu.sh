#!/bin/sh
# The checks of target cuda that need a GPU.
#
#   gpu.sh pack BUILD BUNDLE     here: writes programs, inputs and what results should be to the directory BUNDLE
#   gpu.sh run [BUNDLE]          there: builds and runs them; needs nvcc, cuBLAS, a C compiler and make, nothing of rankc's
#
# Operators, whole and cut over ranks that share the GPU; models under plans; training; all against the C target's results. Then
# the time of a step, and compute-sanitizer on the smallest model where it is installed. A line per check; exit status 1 if one
# fails, 77 without a GPU.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
failed=0
say() { printf '%-32s %s\n' "$1" "$2"; }

# ---- here ----

# compile NAME MODEL [option...]: the program of a model, and what the C target makes of the same inputs in NAME/expected
compile() {
    name=$1 model=$2
    shift 2
    dims=
    [ ! -f "$model/dims" ] || dims=$(sed 's/^/--dim /' "$model/dims" | tr '\n' ' ')
    # shellcheck disable=SC2086 # words
    "$rankc" compile "$model/model.onnx" -o "$bundle/$name" -q --no-build --target cuda --arch native $dims "$@"
    mv "$bundle/$name/model/_" "$bundle/$name/program"
    rm -r "$bundle/$name/model"
    cp "$model/model.onnx" "$bundle/$name/program/"
    sed -i 's|"path": "[^"]*model.onnx"|"path": "model.onnx"|' "$bundle/$name/program/location.json"
}

pack_model() {
    name=$1 model=$here/models/$2
    shift 2
    compile "$name" "$model" "$@"
    cp -r "$model/inputs" "$bundle/$name/inputs"
    cp -r "$model/outputs" "$bundle/$name/expected"
}

pack_training() {
    name=$1 model=$here/training/$2
    shift 2
    compile "$name" "$model" --train "$@"
    mkdir "$bundle/$name/data"
    cp "$model"/*.npy "$bundle/$name/data"
    "$rankc" compile "$model/model.onnx" -o "$bundle/c" -q --train "$@" --reuse override
    data=$(for f in "$model"/*.npy; do printf -- '--data %s=%s ' "$(basename "$f" .npy)" "$f"; done)
    # shellcheck disable=SC2086
    "$rankc" train "$bundle/c" $data --steps 10 --log "$bundle/$name/expected.jsonl" >/dev/null
    rm -r "$bundle/c"
}

# Every row of the operator table, whole and cut over two ranks: opcheck.py makes the inputs, and the C target's results.
pack_operators() {
    /usr/bin/python3 -B "$here/programs/opcheck/opcheck.py" --rankc "$rankc" --generate "$build/tests/programs/opcheck_generate" \
        --programs 'whole cut2' --work "$bundle/work" >/dev/null
    for name in whole cut2; do
        "$rankc" compile "$bundle/work/$name.rir" -o "$bundle/operators-$name" -q --no-build --target cuda --arch native
        mv "$bundle/operators-$name/$name/_" "$bundle/operators-$name/program"
        rm -r "$bundle/operators-$name/$name"
        cp -r "$bundle/work/out/$name/_/out" "$bundle/operators-$name/expected"
        sed 's|=[^=]*/\(input[0-9]*.npy\)$|=operators-inputs/\1|' "$bundle/work/out/$name/_/build/arguments" \
            >"$bundle/operators-$name/arguments"
    done
    mkdir "$bundle/operators-inputs"
    mv "$bundle/work"/input*.npy "$bundle/operators-inputs"
    rm -r "$bundle/work"
}

pack() {
    build=$(realpath "$1") rankc=$build/frontend/rankc bundle=$2
    mkdir "$bundle"
    bundle=$(realpath "$bundle")
    pack_operators
    pack_model mlp mlp
    pack_model gpt2 gpt2
    pack_model gpt2-tp2 gpt2 --pas tp:tensor=2
    pack_model gpt2-tp3 gpt2 --pas tp:tensor=3
    pack_model gpt2-pp2 gpt2 --pas pp:pipeline=2
    pack_model gpt2-hybrid gpt2 --pas hybrid:tensor=2,data=2
    pack_model llama llama
    pack_model llama-tp2 llama --pas tp:tensor=2
    pack_model resnet resnet
    pack_training train-mlp mlp --optimizer sgd:lr=0.1
    pack_training train-mlp-units mlp --optimizer sgd:lr=0.1 --pas tp:tensor=2 --runtime-ngpus 4 --reducer-bucket-cap-mb 0.0001
    pack_training train-cnn cnn --optimizer sgd:lr=0.1
    pack_training train-gpt2 gpt2 --optimizer sgd:lr=0.1
    pack_training train-gpt2-hybrid gpt2 --optimizer sgd:lr=0.1 --pas hybrid:tensor=2,data=2
    cp -rL "$here/../runtime" "$bundle/rankc"
    cp "$(printf '#include <xxhash.h>\n' | cc -E - | sed -n 's/.*"\(.*xxhash.h\)".*/\1/p' | sed 1q)" "$bundle/rankc/base/"
    cp "$here/gpu.sh" "$here/cuda/compare.c" "$bundle/"
    say packed "$(du -sh "$bundle" | cut -f1)"
}

# ---- there ----

# The runtime without libraries; its C kernels are not called.
build_runtime() {
    for part in . base kernels kernels/c; do
        mkdir -p "build/$part"
        (cd "build/$part" && cc -std=gnu11 -O2 -ffp-contract=off -fopenmp -I "$bundle/rankc/base" -c "$bundle/rankc/$part"/*.c)
    done
    rm -f build/librankc-rt.a
    ar qcs build/librankc-rt.a build/*.o build/base/*.o build/kernels/*.o build/kernels/c/*.o
    cc -std=gnu11 -O2 -I "$bundle" -o build/compare compare.c build/librankc-rt.a -lm -lpthread -ldl
}

# result WHAT COMMAND...: says whether the command succeeds
result() {
    what=$1
    shift
    if "$@" >build/log 2>&1; then
        say "$what" ok
    else
        say "$what" FAILED
        sed 's/^/    /' build/log | head -20
        failed=1
    fi
}

build_program() {
    make -s -C "$1/program" all RANKC_CFLAGS="-I$bundle" RANKC_LIBS="$bundle/build/librankc-rt.a -lm -lpthread" \
        NVCCFLAGS="${NVCCFLAGS:--O3 -Werror all-warnings}"
}

inputs_of() {
    for f in "$1"/inputs/*.npy; do printf -- '--input %s=%s ' "$(basename "$f" .npy)" "$f"; done
}

# On one GPU the ranks are threads of one process.
run_model() {
    # shellcheck disable=SC2046
    "$1/program/build/run" $(inputs_of "$1") --comm loopback --output-dir "$1/out" || return 1
    for f in "$1"/expected/*.npy; do build/compare "$1/out/$(basename "$f")" "$f" 1e-4 1e-5 || return 1; done
}

run_operators() {
    xargs "$1/program/build/run" --comm loopback --kernels reference --output-dir "$1/out" <"$1/arguments" >/dev/null || return 1
    for f in "$1"/expected/*.npy; do build/compare "$1/out/$(basename "$f")" "$f" 1e-5 1e-6 || return 1; done
}

run_training() {
    data=$(for f in "$1"/data/*.npy; do printf -- '--data %s=%s ' "$(basename "$f" .npy)" "$f"; done)
    # shellcheck disable=SC2086
    "$1/program/build/run" $data --steps 10 --comm loopback --log "$1/log.jsonl" || return 1
    paste "$1/log.jsonl" "$1/expected.jsonl" | awk '
        { n = split($0, part, /"loss": /); a = part[2] + 0; b = part[3] + 0; d = a > b ? a - b : b - a
          if (n < 3 || d > 1e-4 * (b > 1 ? b : 1)) { print "step " NR ": loss " a ", C has " b; bad = 1 } }
        END { exit bad || NR != 10 }'
}

measure() {
    # shellcheck disable=SC2046
    say "$1 step" "$("$1/program/build/run" $(inputs_of "$1") --repeat 100 --warmup 20 --json | grep -A3 '"step_ms"' | tr -d ' \n')"
}

run() {
    bundle=$(cd "${1:-$here}" && pwd)
    cd "$bundle"
    nvidia-smi -L 2>/dev/null || { say GPU 'there is none'; exit 77; }
    build_runtime
    for program in */program; do
        name=${program%/program}
        result "$name builds" build_program "$name"
        case $name in
        operators-*) result "$name" run_operators "$name" ;;
        train-*) result "$name" run_training "$name" ;;
        *) result "$name" run_model "$name" ;;
        esac
    done
    for name in mlp gpt2 llama resnet; do measure "$name"; done
    if command -v compute-sanitizer >/dev/null; then
        # shellcheck disable=SC2046
        result 'mlp memcheck' compute-sanitizer --error-exitcode 1 mlp/program/build/run $(inputs_of mlp)
        # shellcheck disable=SC2046
        result 'mlp racecheck' compute-sanitizer --tool racecheck --error-exitcode 1 mlp/program/build/run $(inputs_of mlp)
    fi
    return $failed
}

case ${1-} in
pack) pack "$2" "$3" ;;
run) run "${2-}" ;;
*)
    sed -n '2,5p' "$0"
    exit 2
    ;;
esac
