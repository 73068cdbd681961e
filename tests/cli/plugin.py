#!/usr/bin/python3
"""Policies that are shared libraries (--pas plugin:FILE).

    plugin.py --rankc RANKC --source SOURCE"""
import json
import os
import shutil
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, parser_of  # noqa: E402


def run(rankc, *words, status=0):
    # built with the address sanitizer, rankc shall see itself how a plug-in crashes
    sanitizer = {"ASAN_OPTIONS": "handle_segv=0:handle_abort=0"}
    return call(rankc, *words, "-q", status=status, env=sanitizer)


def build(directory, name, text, header):
    source = os.path.join(directory, name + ".c")
    library = os.path.join(directory, name + ".so")
    with open(source, "w") as file:
        file.write(text)
    call("cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I", header, "-o", library, source)
    return library


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--source", required=True)
    args = parser.parse_args()
    rankc, model = args.rankc, os.path.join(args.source, "samples/models/gpt2.onnx")
    with tempfile.TemporaryDirectory() as directory:
        os.mkdir(os.path.join(directory, "rankc"))
        shutil.copy(os.path.join(args.source, "passes/plan/policy/rankc_policy.h"), os.path.join(directory, "rankc"))
        with open(os.path.join(args.source, "samples/policy/policy.c")) as file:
            sample = build(directory, "sample", file.read(), directory)
        pas = ("--pas", "plugin:" + sample, "--plan-ngpus", "2")

        # The sample divides MLPs: as these rules do. Its plan compiles, computes what one rank does, and is loaded.
        rules = os.path.join(directory, "rules.txt")
        with open(rules, "w") as file:
            file.write('mesh tensor=2\nmatch "*c_attn*" split in1.1\nmatch "*c_fc*" split in1.1\nmatch "*lm_head*" split in1.1\n')
        plans = [json.loads(run(rankc, "plan", model, *words, "--json").stdout)
                 for words in (pas, ("--pas", "manual:" + rules))]
        split = [{n["name"] for n in plan["nodes"] if n["partition"] != "replicate"} for plan in plans]
        assert any("c_fc" in name for name in split[0]) and split[0] <= split[1], split
        out = os.path.join(directory, "out")
        saved = os.path.join(directory, "plan.json")
        for words in (["compile", model, *pas, "-o", out, "--save-plan", saved], ["verify", out, "--numeric"],
                      ["compile", model, *pas, "-o", out, "--no-build"]):  # the last one reuses the result
            run(rankc, *words)
        loaded = json.loads(run(rankc, "plan", model, "--load-plan", saved, "--json").stdout)
        assert loaded["nodes"] == plans[0]["nodes"]

        # Another library in its place is another plan: the result is not reused.
        head = "#include <rankc/rankc_policy.h>\nconst int rankc_policy_version = %s;\n"
        body = ("int rankc_policy(const struct rankc_policy_graph *graph, void (*rule)(void *to, const char *text), void *to) {\n"
                "(void)graph, (void)rule, (void)to;\n%s\n}\n")
        version = head % "RANKC_POLICY_VERSION"
        other = build(directory, "other", version + body % "return 0;", directory)
        done = run(rankc, "compile", model, "--pas", "plugin:" + other, "--plan-ngpus", "2", "-o", out, "--no-build", status=8)
        assert "plan file" in done.stderr, done.stderr

        # A mesh of its own: two stages.
        staged = build(directory, "staged", version + "const char *rankc_policy_mesh(int n) { (void)n; return \"pipeline=2\"; }\n" +
                       body % "rule(to, \"match \\\"*h.1/ln_1*\\\" stage 1\"); return 0;", directory)
        plan = json.loads(run(rankc, "plan", model, "--pas", "plugin:" + staged, "--json").stdout)
        assert plan["plan_ngpus"] == 2 and {n["stage"] for n in plan["nodes"]} == {0, 1}

        # What is no plug-in, or of another version, refuses, or writes no rules.
        text = os.path.join(directory, "text.so")
        with open(text, "w") as file:
            file.write("no library\n")
        for library, code, words in (
                (text, 3, "E0428"), (os.path.join(directory, "absent.so"), 6, "absent.so"),
                (build(directory, "empty", "int x;\n", directory), 3, "defines no rankc_policy"),
                (build(directory, "old", head % "7" + body % "return 0;", directory), 8, "version 7"),
                (build(directory, "refusing", version + body % "return 1;", directory), 3, "refuses"),
                (build(directory, "wrong", version + body % "rule(to, \"match x\"); return 0;", directory), 3, "E0424"),
                (build(directory, "nothing", version + body % "rule(to, \"match \\\"absent\\\" replicate\"); return 0;", directory),
                 3, "no node matches"),
                (build(directory, "crashing", version + body % "return *(volatile int *)0;", directory), 3, "crashed: Segmentation fault"),
                (build(directory, "ending", version + "#include <stdlib.h>\n" + body % "exit(0);", directory), 3, "status 0 instead of returning"),
                (build(directory, "loading", version + "#include <stdlib.h>\n__attribute__((constructor)) static void load(void) { abort(); }\n" +
                       body % "return 0;", directory), 3, "crashed: Aborted"),
                (build(directory, "meshing", version + body % "rule(to, \"mesh tensor=4\"); return 0;", directory), 3, "rankc_policy_mesh"),
                (directory, 6, "regular file")):
            done = run(rankc, "plan", model, "--pas", "plugin:" + library, "--plan-ngpus", "2", status=code)
            assert words in done.stderr, (library, done.stderr)


if __name__ == "__main__":
    main()
