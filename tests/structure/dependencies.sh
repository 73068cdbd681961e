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
            base = "^ir/|^runtime/base/"
            rule("^ir/base/", "^ir/base/|^runtime/base/")
            rule("^ir/", base)
            rewrite = "^passes/(rewrite/|[^/]*$)"
            rule("^passes/[^/]*$", rewrite "|^passes/(train|plan|place|rank)/|" base) # the list of passes knows them all
            rule("^passes/rewrite/", rewrite "|" base)
            rule("^passes/train/", rewrite "|^passes/train/|" base)
            rule("^passes/plan/", rewrite "|^passes/(train|plan)/|" base)
            rule("^passes/place/", rewrite "|^passes/(train|plan|place)/|" base)
            rule("^passes/rank/", rewrite "|^passes/(train|plan|place|rank)/|" base)
            rule("^codegen/", "^codegen/|^passes/|" base)
            rule("^frontend/read/", "^frontend/read/|" base)
            rule("^frontend/lower/", "^frontend/(read|lower)/|" base)
            rule("^frontend/import/", "^frontend/(read|lower|import)/|" base)
            rule("^frontend/config/", "^frontend/(config|lower)/|" base)
            rule("^frontend/options/", "^frontend/options/|^ir/base/|^runtime/base/")
            rule("^frontend/driver/", "^frontend/(read|import|config|options|driver)/|^codegen/|^passes/|" base)
            rule("^frontend/cli/", "^frontend/|^codegen/|^passes/|^runtime/(launch|comm/hosts)[.]h$|" base)
            rule("^runtime/base/", "^runtime/base/")
            rule("^runtime/cuda/", "^runtime/(cuda|base)/|^runtime/kernels/c/(math|cells|ngrams|overlap|taps)[.]h$|^runtime/generated[.]h$")
            rule("^runtime/kernels/", "^runtime/(kernels|base)/|^runtime/generated[.]h$")
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
mkdir -p "$try/ir" "$try/passes/rewrite" "$try/passes/rank" "$try/codegen" "$try/frontend" "$try/runtime/base"
: >"$try/passes/policy.h"
: >"$try/passes/rank/views.h"
: >"$try/runtime/rt.h"
printf '#include "../passes/policy.h"\n' >"$try/ir/op.c"
printf '#include "passes/rank/views.h"\n' >"$try/passes/rewrite/dce.c"
printf '#include "rt.h"\n' >"$try/runtime/base/npy.c"
found=$(check "$try" || true)
if [ "$found" != "ir/op.c:1 includes passes/policy.h
passes/rewrite/dce.c:1 includes passes/rank/views.h
runtime/base/npy.c:1 includes runtime/rt.h" ]; then
    printf 'the check does not see what it should:\n%s\n' "$found"
    exit 1
fi

check "${1%/}"
