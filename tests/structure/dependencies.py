#!/usr/bin/python3
"""Which part of the house depends on which: the dependency direction of DESIGN 7, of includes and of calls.

    dependencies.py ROOT BUILD             prints what points the wrong way; exit status 1 if anything does
    dependencies.py ROOT BUILD --circles   prints the circles of calls within the parts

A call is a symbol of an object file of BUILD that another one defines: functions, and functions and data that a table
names. A circle of calls (files each of which reaches the others) must stay within one part, and a part may have no more
files in circles than the last column of RULES says; where it has fewer, the column is to be lowered."""
import collections
import json
import os
import re
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, parser_of  # noqa: E402

BASE = "^ir/|^runtime/base/"
REWRITE = "^passes/(rewrite/|[^/]*$)"

# A part: a pattern of files, what they may include and call, and how many of them are in circles of calls. The first that
# matches a file is its part. Paths are those of the source tree; generated sources have those of the build directory.
RULES = [
    ("^ir/base/", "^ir/base/|^runtime/base/", 0),
    ("^ir/", BASE, 25),
    ("^passes/[^/]*$", f"{REWRITE}|^passes/(train|plan|place|rank)/|{BASE}", 0),  # the list of passes knows them all
    ("^passes/rewrite/", f"{REWRITE}|{BASE}", 4),
    ("^passes/train/", f"{REWRITE}|^passes/train/|{BASE}", 0),
    ("^passes/plan/", f"{REWRITE}|^passes/(train|plan)/|^passes/embedded|{BASE}", 7),
    ("^passes/place/", f"{REWRITE}|^passes/(train|plan|place)/|{BASE}", 0),
    ("^passes/rank/", f"{REWRITE}|^passes/(train|plan|place|rank)/|{BASE}", 0),
    ("^codegen/", f"^codegen/|^passes/|{BASE}", 5),
    ("^frontend/read/", f"^frontend/read/|{BASE}", 5),
    ("^frontend/text/", "^frontend/text/|^ir/base/|^runtime/base/", 0),
    ("^frontend/lower/", f"^frontend/(read|lower)/|{BASE}", 8),
    ("^frontend/import/", f"^frontend/(read|lower|import)/|{BASE}", 0),
    ("^frontend/config/", f"^frontend/(config|lower)/|{BASE}", 0),
    # options are parsed into the struct that passes read, whose table lists the settings of --pas
    ("^frontend/options/", "^frontend/options/|^ir/(base/|decisions[.]|mesh[.]|open[._])|^runtime/base/", 5),
    ("^frontend/driver/", f"^frontend/(read|import|config|options|driver)/|^codegen/|^passes/|{BASE}", 6),
    ("^frontend/cli/", f"^frontend/|^codegen/|^passes/|^runtime/(launch[./]|comm/hosts[.])|{BASE}", 7),
    ("^runtime/base/", "^runtime/base/", 0),
    ("^runtime/cuda/", "^runtime/(cuda|base)/|^runtime/kernels/c/(math|cells|determinant_of|ngrams|overlap|taps|window)[.]h$|^runtime/generate/decoding[.]h$|^runtime/generated[.]h$", 0),
    ("^runtime/kernels/", "^runtime/(kernels|base)/|^runtime/generated[.]h$|^runtime/core/(rt|ring)[.]c$", 0),  # generated.h's
    ("^runtime/", "^runtime/", 32),
]
SOURCES = (".c", ".h", ".def", ".inc", ".cu", ".cuh")


def part_of(path):
    return next(rule for rule in RULES if re.search(rule[0], path))


def may(user, used):
    return re.search(part_of(user)[1], used) is not None


# Includes


def includes(root):
    """(file, line number, path) of all #include "..." of the tree: beside the file, then in ROOT and ROOT/runtime."""
    for top in ("ir", "passes", "codegen", "frontend", "runtime"):
        for folder, _, names in sorted(os.walk(os.path.join(root, top))):
            for name in sorted(names):
                if name.endswith(SOURCES):
                    yield from includes_of(root, os.path.relpath(os.path.join(folder, name), root))


def includes_of(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            match = re.match(r'\s*#\s*include\s*"([^"]*)"', line)
            if not match:
                continue
            for place in (os.path.dirname(path), "", "runtime"):
                found = os.path.normpath(os.path.join(place, match[1]))
                if os.path.exists(os.path.join(root, found)):  # else it is generated
                    yield path, number, found
                    break


# Calls


def objects(root, build):
    """Object file, below BUILD, to source file; those of tests are left out."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    found = {}
    for command in commands:
        source = os.path.normpath(os.path.join(command["directory"], command["file"]))
        place = build if source.startswith(build + os.sep) else root
        source = os.path.relpath(source, place)
        if not source.startswith(("tests/", "..")):
            found[command["output"]] = source
    return found


def symbols(build, names):
    """Lines of nm: (object, symbol, letter)."""
    absent = [name for name in names if not os.path.exists(os.path.join(build, name))]
    if absent:
        sys.exit(f"{len(absent)} object files of {build} are not built, such as {absent[0]}")
    done = call("nm", "-A", "-P", *names, cwd=build)
    for line in done.stdout.splitlines():
        name, rest = line.split(": ", 1)
        yield name, *rest.split()[:2]


def calls(root, build):
    """User file -> used file -> a symbol. Of several definitions, those of the user's own library count, then those that it may
    use: programs link one of them."""
    sources = objects(root, build)
    defined, wanted = collections.defaultdict(list), []
    for name, symbol, letter in symbols(build, sorted(sources)):
        if letter in "TDBRVWC":
            defined[symbol].append(name)
        elif letter == "U":
            wanted.append((name, symbol))
    graph = collections.defaultdict(dict)
    for name, symbol in wanted:
        user, definers = sources[name], defined.get(symbol, [])
        own = [d for d in definers if os.path.dirname(d) == os.path.dirname(name)]
        fits = own or [d for d in definers if may(user, sources[d])] or definers
        for definer in fits:
            if sources[definer] != user:
                graph[user].setdefault(sources[definer], symbol)
    return graph


def circles(graph):
    """Strongly connected components of several files (Tarjan)."""
    number, low, stack, on, found = {}, {}, [], set(), []

    def enter(file):
        number[file] = low[file] = len(number)
        stack.append(file)
        on.add(file)
        return file, iter(sorted(graph.get(file, ())))

    for start in sorted(graph):
        work = [enter(start)] if start not in number else []
        while work:
            file, rest = work[-1]
            used = next(rest, None)
            if used is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[file])
                if low[file] == number[file]:
                    members = set(stack[stack.index(file):])
                    del stack[stack.index(file):]
                    on -= members
                    if len(members) > 1:
                        found.append(sorted(members))
            elif used not in number:
                work.append(enter(used))
            elif used in on:
                low[file] = min(low[file], number[used])
    return sorted(found)


def check_circles(graph, limits):
    """What is wrong with the circles, a line each."""
    count = collections.Counter()
    for circle in circles(graph):
        parts = {part_of(file)[0] for file in circle}
        if len(parts) == 1:
            count[parts.pop()] += len(circle)
            continue
        yield f"a circle of calls through {len(parts)} parts: {' '.join(circle)}"
        for user in circle:
            for used, symbol in sorted(graph[user].items()):
                if used in circle and part_of(used) is not part_of(user):
                    yield f"    {user} calls {used} ({symbol})"
    for pattern, _, limit in RULES:
        if limits and count[pattern] > limit:
            yield f"{pattern}: {count[pattern]} files are in circles of calls, {limit} before"
        elif limits and count[pattern] < limit:
            yield f"{pattern}: {count[pattern]} files are in circles of calls: lower the limit of {limit}"


def check(root, build, limits=True):
    """What is wrong, a line each."""
    seen = 0
    for path, number, used in includes(root):
        seen += 1
        if not may(path, used):
            yield f"{path}:{number} includes {used}"
    graph = calls(root, build)
    for user in sorted(graph):
        for used, symbol in sorted(graph[user].items()):
            seen += 1
            if not may(user, used):
                yield f"{user} calls {used} ({symbol})"
    yield from check_circles(graph, limits)
    if not seen:
        yield "no #include and no call was found"


# The check itself must find what is wrong, or it proves nothing.
WRONG = {
    "passes/policy.h": "",
    "passes/rank/views.h": "",
    "runtime/rt.h": "",
    "ir/op.c": '#include "../passes/policy.h"\nint op(void) { return 1; }\n',
    "passes/rewrite/dce.c": '#include "passes/rank/views.h"\nint dce(void) { return 1; }\n',
    "runtime/base/npy.c": '#include "rt.h"\nint npy(void) { return 1; }\n',
    "frontend/lower/low.c": "int walk(void);\nint low(void) { return walk(); }\n",
    "frontend/import/walk.c": "int low(void);\nint walk(void) { return low(); }\n",
}
FOUND = """ir/op.c:1 includes passes/policy.h
passes/rewrite/dce.c:1 includes passes/rank/views.h
runtime/base/npy.c:1 includes runtime/rt.h
frontend/lower/low.c calls frontend/import/walk.c (walk)
a circle of calls through 2 parts: frontend/import/walk.c frontend/lower/low.c
    frontend/import/walk.c calls frontend/lower/low.c (low)
    frontend/lower/low.c calls frontend/import/walk.c (walk)"""


def check_check():
    with tempfile.TemporaryDirectory() as root:
        root, commands = os.path.realpath(root), []
        for path, text in WRONG.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
            if path.endswith(".c"):
                output = path.replace("/", "_") + ".o"
                call("cc", "-I.", "-Iruntime", "-c", path, "-o", output, cwd=root)
                commands.append({"directory": root, "file": path, "output": output})
        os.mkdir(os.path.join(root, "build"))
        with open(os.path.join(root, "build", "compile_commands.json"), "w", encoding="utf-8") as file:
            json.dump([{**c, "output": "../" + c["output"]} for c in commands], file)
        found = "\n".join(check(root, os.path.join(root, "build"), limits=False))
    if found != FOUND:
        sys.exit(f"the check does not see what it should:\n{found}")


def main():
    parser = parser_of(__doc__, rankc=False)
    parser.add_argument("root")
    parser.add_argument("build")
    parser.add_argument("--circles", action="store_true")
    args = parser.parse_args()
    root, build = os.path.realpath(args.root), os.path.realpath(args.build)
    if args.circles:
        for circle in circles(calls(root, build)):
            print(len(circle), *circle)
        return 0
    check_check()
    wrong = list(check(root, build))
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
