#!/bin/sh
# An installation that was moved after it was made: rankc must find its runtime beside itself, and a program of one's own
# must build with its pkg-config file.
#
#   install.sh MESON BUILD SOURCE
set -eu

meson=$1 build=$2 source=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PKG_CONFIG_PATH RANKC_CFLAGS RANKC_LIBS
fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

"$meson" install -C "$build" --no-rebuild --quiet --destdir "$work/staged"
rankc=$(find "$work/staged" -path '*/bin/rankc' -type f)
prefix="$work/moved elsewhere"
mv "$(dirname "$(dirname "$rankc")")" "$prefix"
rm -rf "$work/staged"
PATH=$prefix/bin:$PATH
[ "$(command -v rankc)" = "$prefix/bin/rankc" ] || fail 'another rankc comes first'

cd "$work"
samples=$prefix/share/doc/rankc/samples
tokens=$samples/models/gpt2.input_ids.npy
rankc doctor | grep '^runtime' | grep -q "ok *$prefix/" || fail 'the runtime is not the installed one'
for ranks in 1 2; do
    rankc compile "$samples/models/gpt2.onnx" --instance-name $ranks --pas tp --plan-ngpus $ranks -q
    rankc run .rankc/gpt2/$ranks --input input_ids="$tokens" --output-dir out$ranks
done

# make alone, which asks pkg-config; then a program with a main() of its own, of one rank and of two.
pc=$(dirname "$(find "$prefix" -name rankc-rt.pc)")
export PKG_CONFIG_PATH="$pc"
grep -q '^prefix=.*pcfiledir' "$pc/rankc-rt.pc" || fail 'rankc-rt.pc is not relocatable: meson configure -Dpkgconfig.relocatable=true'
make -s -C .rankc/gpt2/2 clean build/run
rankc run .rankc/gpt2/2 --input input_ids="$tokens" --output-dir again
cmp out2/logits.npy again/logits.npy
cp -r "$samples/embed" .
for instance in one two; do
    [ $instance = one ] && ranks=1 || ranks=2
    rankc compile "$samples/models/gpt2.onnx" -o embedded-$instance --pas tp --plan-ngpus "$ranks" -q --no-build
    make -s -C embed clean embed MODEL="$work/embedded-$instance/gpt2/_"
    embed/embed embedded-$instance/gpt2/_ "$tokens" "out$ranks/logits.npy" >said || fail "embedded on $ranks ranks"
    grep -q "^$ranks ranks: " said || fail "$(cat said)"
    if command -v g++ >/dev/null; then
        make -s -C embed embed-cc MODEL="$work/embedded-$instance/gpt2/_" CXXFLAGS='-O1 -std=c++17 -Wall -Wextra -Werror'
        embed/embed-cc embedded-$instance/gpt2/_ "$tokens" >said-cc || fail "embedded in C++ on $ranks ranks"
        head -n 1 said | cmp - said-cc || fail 'C++ prints other logits'
    fi
    if /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
        make -s -C embedded-$instance/gpt2/_ build/model.so
        /usr/bin/python3 embed/embed.py embedded-$instance/gpt2/_ "$tokens" >said-python || fail "in Python on $ranks ranks"
        head -n 1 said | sed 's/.*: //' | cmp - said-python || fail 'Python prints other logits'
    fi
done

# A program that trains the model with a loss of its own, of one rank, of two that share its weights, and of two units:
# losses and norms of samples/train/reference.py, by PyTorch in f64.
cp -r "$samples/train" .
for plan in one:dp two:tp:tensor=2 units:dp; do
    instance=${plan%%:*} pas=${plan#*:} units=1
    [ $instance != units ] || units=2
    rankc compile "$samples/models/gpt2.onnx" -o trained-$instance --train --pas "$pas" -q --no-build \
        --optimizer sgd:lr=0.5
    make -s -C train clean train MODEL="$work/trained-$instance/gpt2/_"
    train/train trained-$instance/gpt2/_ "$tokens" 4 checkpoints-$instance $units >said || fail "trained on $instance"
    awk '
        BEGIN { split("5.69871757 3.94915183 2.6513896 1.73719089", loss); split("4.31221206 3.31283235 2.6337449 3.47721194", norm) }
        function off(a, b) { return a > b ? (a - b) / b : (b - a) / b }
        off($4 + 0, loss[NR]) > 1e-5 || off($7, norm[NR]) > 1e-5 { bad = 1 }
        END { exit bad || NR != 4 }' said || fail "$instance: $(cat said)"
    [ -f checkpoints-$instance/step-4/checkpoint.json ] || fail "no checkpoint of $instance"
done

# The C interface of training, function by function: of a module, and of a model with a loss.
cp "$source/tests/models/mlp/model.onnx" mlp.onnx
cp "$source/tests/training/mlp/model.onnx" steps.onnx
rankc compile mlp.onnx -o interface --dtype f64 --train -q --no-build --optimizer sgd:lr=1
rankc compile steps.onnx -o interface --train -q --no-build --optimizer sgd:lr=0.001 --accumulate 3
for program in mlp:module steps:steps; do
    model=interface/${program%:*}/_ name=${program#*:}
    make -s -C $model build/model.a
    eval "${CC:-cc} -std=gnu11 -O1 -Wall -Wextra -I $model $(pkg-config --cflags rankc-rt) -o check-$name" \
        '"$source/tests/install/$name.c"' "$model/build/model.a $(pkg-config --static --libs rankc-rt) -lm"
    ./check-$name $model >said 2>&1 || fail "$(cat said)"
done

# C++ includes model.h and links what C defines.
if command -v g++ >/dev/null; then
    model=interface/steps/_
    prefix_of_names=$(sed -n 's/^int \(.*\)_open(.*/\1/p' $model/model.h)
    printf '#include "model.h"\nint main(void) {\n    %s_close(nullptr);\n    return %s_INPUTS < 1;\n}\n' "$prefix_of_names" \
        "$prefix_of_names" >interface.cc
    eval "g++ -std=c++17 -Wall -Wextra -Werror -fopenmp -I $model $(pkg-config --cflags rankc-rt) -o interface-cc interface.cc \
        $model/build/model.a $(pkg-config --static --libs rankc-rt)" || fail 'model.h in C++'
fi

# What must fail does: other numbers, a bad token, a missing weight file.
embed/embed embedded-two/gpt2/_ "$tokens" "$tokens" >/dev/null 2>&1 && fail 'tokens were taken for logits'
{ head -c -8 "$tokens" && printf '\377\177\0\0\0\0\0\0'; } >bad.npy
embed/embed embedded-two/gpt2/_ bad.npy >/dev/null 2>said && fail 'a token outside of the vocabulary was taken'
grep -q "^embed: rank [01]: index 32767 at position 21 is outside .*, in node '.*wte/Gather' (Gather)$" said || fail "$(cat said)"
rm embedded-two/gpt2/_/location.json
embed/embed embedded-two/gpt2/_ "$tokens" 2>said && fail 'it ran without its weights'
grep -q "location.json.*in the program's directory 'embedded-two/gpt2/_'" said || fail "$(cat said)"

# Manual pages: one for each verb, which groff takes without a warning.
for verb in $(rankc help | sed -n '/^usage:/,/^Options:/s/^  \([a-z][a-z]*\) .*/\1/p'); do
    [ -f "$prefix/share/man/man1/rankc-$verb.1" ] || fail "no manual page of $verb"
done
if command -v groff >/dev/null; then
    for page in "$prefix"/share/man/man1/*.1; do
        [ -z "$(groff -ww -man -Tutf8 -z "$page" 2>&1)" ] || fail "groff warns of $page"
    done
fi

# Completions lie where the shells look for them; what they complete is the subject of tests `cli completions in ..`.
bash --norc -c ". '$prefix/share/bash-completion/completions/rankc'; complete -p rankc" >/dev/null || fail 'bash: no completions'
grep -q '^complete -c rankc' "$prefix/share/fish/vendor_completions.d/rankc.fish" || fail 'fish: no completions'
grep -q '^#compdef rankc' "$prefix/share/zsh/site-functions/_rankc" || fail 'zsh: no completions'
