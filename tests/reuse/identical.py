#!/usr/bin/python3
"""Byte-identical output: identical.py --rankc RANKC

Every model of tests/models under three plans: compiled twice, by other users of the same machine so to speak - another
directory, another path to a copy of the model, another environment - and once over a result of another plan, from the graph
that is kept. All three must be equal, byte for byte, but for location.json.
"""
import os
import shutil

from harness import MODELS, compile_command, dims_of, expect, instance, parse, plan_of, rankc, snapshot, sweep

PLANS = ["one", "tp2", "tp2data2pp2"]
ELSEWHERE = dict(os.environ, LC_ALL="de_DE.UTF-8", TZ="Pacific/Apia", HOME="/nowhere", TMPDIR="/nowhere",
                 OMP_NUM_THREADS="1", MALLOC_PERTURB_="165", PWD="/nowhere")


def identical(model, plan):
    def case(program, work):
        path = os.path.join(MODELS, model, "model.onnx")
        options = [*dims_of(path), "--no-build"]
        here = rankc(program, *compile_command(path, f"{work}/a", *options, *plan_of(plan).options)).must(0, reused="nothing")
        want = snapshot(instance(f"{work}/a"))
        expect(len(want) >= 7, f"only {len(want)} files: {here.stderr}")

        os.makedirs(f"{work}/very/deep/directory")
        shutil.copy(path, f"{work}/very/deep/model.onnx")
        rankc(program, *compile_command("../model.onnx", "here", *options, *plan_of(plan).options), env=ELSEWHERE,
              cwd=f"{work}/very/deep/directory").must(0, reused="nothing")
        expect(snapshot(instance(f"{work}/very/deep/directory/here")) == want, "differs elsewhere")

        other = plan_of("tp2" if plan == "one" else "one").options
        rankc(program, *compile_command(path, f"{work}/b", *options, *other)).must(0, reused="nothing")
        rankc(program, *compile_command(path, f"{work}/b", *options, *plan_of(plan).options, "--reuse", "moo")).must(
            0, reused="graph")
        expect(snapshot(instance(f"{work}/b")) == want, "differs where the graph was kept")
    return case


if __name__ == "__main__":
    names = sorted(m for m in os.listdir(MODELS) if os.path.exists(os.path.join(MODELS, m, "model.onnx")))
    sweep("models under plans, byte-identical", {f"{m} {p}": identical(m, p) for m in names for p in PLANS},
          parse(__doc__))
