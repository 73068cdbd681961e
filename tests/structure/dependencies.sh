#!/bin/sh
# Which part of the compiler includes which: the dependency direction of DESIGN 7.
#
#   dependencies.sh ROOT       prints every #include that points the wrong way; exit status 1 if there is one
#
# A rule is a pattern of files and what they may include; the first that matches a file is its rule. Paths are those of the
# source tree; an include is looked for beside its file, then in ROOT and ROOT/runtime.
set -eu

check() {
    find "$1/ir" "$1/passes" "$1/codegen" "$1/frontend" "$1/runtime" -name '*.[ch]' -o -name '*.def' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh' |
        LC_ALL=C sort | sed "s|^$1/||" | awk -v root="$1" '
        BEGIN {
            rule("^ir/", "^ir/|^runtime/base/")
            rule("^passes/", "^passes/|^ir/|^runtime/base/")
            rule("^codegen/", "^codegen/|^passes/|^ir/|^runtime/base/")
            rule("^frontend/cli/", "^frontend/|^codegen/|^passes/|^ir/|^runtime/base/|^runtime/launch[.]h$")
            rule("^frontend/(options|response|help|man|completions)[.]", "^frontend/(options|response|help)[.]|^ir/base/|^runtime/base/")
            rule("^frontend/(onnx|import|lower)", "^frontend/(onnx|import|lower)|^ir/|^runtime/base/")
            rule("^frontend/", "^frontend/|^codegen/|^passes/|^ir/|^runtime/base/") # the driver and what it is made of
            rule("^runtime/base/", "^runtime/base/")
            rule("^runtime/cuda/", "^runtime/(cuda|base)/|^runtime/kernels/c/math[.]h$|^runtime/rt[.]h$")
            rule("^runtime/kernels/", "^runtime/(kernels|base)/|^runtime/rt[.]h$")
            rule("^runtime/", "^runtime/")
        }
        function rule(files, may) { pattern[++rules] = files; allowed[rules] = may }
        function exists(path,    line, found) {
            found = (getline line < (root "/" path)) >= 0
            close(root "/" path)
            return found
        }
        function normal(path) {
            while (match(path, /[^\/]+\/[.][.]\//)) path = substr(path, 1, RSTART - 1) substr(path, RSTART + RLENGTH)
            return path
        }
        function resolve(file, name,    beside) {
            beside = file
            sub(/[^\/]*$/, "", beside)
            if (exists(normal(beside name))) return normal(beside name)
            if (exists(name)) return name
            if (exists("runtime/" name)) return "runtime/" name
            return ""
        }
        function look(file,    r, line, target, at) {
            for (r = 1; r <= rules && file !~ pattern[r]; r++) {}
            for (at = 1; (getline line < (root "/" file)) > 0; at++) {
                if (line !~ /^[ \t]*#[ \t]*include[ \t]*"/) continue
                split(line, part, "\"")
                target = resolve(file, part[2])
                seen++
                if (target == "" || target ~ allowed[r]) continue # not in the tree: generated
                printf "%s:%d includes %s\n", file, at, target
                wrong = 1
            }
            close(root "/" file)
        }
        { look($0) }
        END {
            if (!seen) { print "no #include was found"; wrong = 1 }
            exit wrong
        }'
}

# The check itself must find a wrong include, or it proves nothing.
try=$(mktemp -d)
trap 'rm -rf "$try"' EXIT
mkdir -p "$try/ir" "$try/passes" "$try/codegen" "$try/frontend" "$try/runtime/base"
: >"$try/passes/policy.h"
: >"$try/runtime/rt.h"
printf '#include "../passes/policy.h"\n' >"$try/ir/op.c"
printf '#include "rt.h"\n' >"$try/runtime/base/npy.c"
found=$(check "$try" || true)
if [ "$found" != "ir/op.c:1 includes passes/policy.h
runtime/base/npy.c:1 includes runtime/rt.h" ]; then
    printf 'the check does not see what it should:\n%s\n' "$found"
    exit 1
fi

check "${1%/}"
