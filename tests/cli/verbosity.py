"""Every verb, and every action of ckpt, with -v and -q: -v says more than nothing did, and -q prints no more than what was
asked for. A row: words of the command, a pattern that -v adds to stdout or stderr, and what -q leaves of stdout: NOTHING
of a verb that says what it has done, ALL of one that prints what it was asked for."""
import os
import pathlib
import re
import shutil
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, printed, rankc_of  # noqa: E402

TESTS = pathlib.Path(__file__).resolve().parent.parent
MLP, DECODER = TESTS / "training/mlp", TESTS.parent / "samples/generate/words/model.onnx"
NOTHING, ALL = "nothing", "all"
DIMS = "--dim batch=1 --dim sequence=1..8 --dim past_sequence=0..32"
DATA = f"--data target={MLP}/target.npy --data x={MLP}/x.npy"

# `made`: what the command writes, removed before each run.
ROWS = [
    ("compile model.onnx --reuse override", r"rankc: \d+ nodes, .*plan key [0-9a-f]{32}; .*\n.*peak", NOTHING, None),
    ("run .rankc --random-inputs", r"rankc: loaded in", ALL, None),
    ("train train " + DATA + " --steps 2", r"rankc: loaded in", NOTHING, None),
    ("train train " + DATA + " --steps 2 --checkpoint-dir other", r"rankc: saved 'other/step-2' in", NOTHING, "other"),
    ("plan model.onnx", r"model +model", ALL, None),
    ("show .rankc", r"layers.0", ALL, None),
    ("verify .rankc", r"rankc: graph.rir with plan.json", NOTHING, None),
    ("verify .rankc --numeric", r"rankc: output '.*': at most .* allowed", NOTHING, None),
    ("ckpt info checkpoints", r"layers.0.weight f32 .*1 part", ALL, None),
    ("ckpt verify checkpoints", r"rankc: .*layers.0.weight f32 .*1 part intact", NOTHING, None),
    ("ckpt merge checkpoints merged.safetensors", r"rankc: .*layers.0.weight f32", NOTHING, None),
    ("ckpt dedup checkpoints deduplicated", r"rankc: deduplicated/parameters-0.safetensors: 6 tensors", NOTHING,
     "deduplicated"),
    ("ckpt reshard checkpoints train resharded", r"rankc: resharded/parameters-0.safetensors: 6 tensors", NOTHING, "resharded"),
    ("ckpt diff checkpoints checkpoints", r"rankc: .*layers.0.weight f32 .*: equal", NOTHING, None),
    ("ckpt to-onnx checkpoints model.onnx trained.onnx", r"rankc: .*layers.0.weight.*: .*f32", NOTHING, None),
    ("generate decoder --prompt owl", r"rankc: loaded in", ALL, None),
    ("compare dump dump", r"(?m)^  0 +'x' at \[0, 0\]", NOTHING, None),
    ("ops MatMul", r"dimensions: .*\ngradient: yes", ALL, None),
    ("ops Gemm", r"those of its core operators", ALL, None),
    ("doctor", r"rankc: a product on two ranks was compiled and run", NOTHING, None),
    ("explain E0801", r"Of its kind:\n  E0802", ALL, None),
    ("explain", r"E0801: .*\n\nWhat|E0801: .*\n\n", ALL, None),
    ("completions bash", r"rankc: 'meson install' puts this script", ALL, None),
    ("help compile", r"Example: ", ALL, None),
]
ELSEWHERE = {"profile"}  # measures for long: tests/cli/profile.py


def said_by(rankc, work, *words):
    return printed(rankc, *words, cwd=work, env={"NO_COLOR": "1", "XDG_CACHE_HOME": str(work / "cache")})


def prepare(rankc, work):
    shutil.copy(MLP / "model.onnx", work)
    said_by(rankc, work, "compile", "model.onnx", "-q")
    said_by(rankc, work, "compile", "model.onnx", "-q", "--train", "-o", "train")
    said_by(rankc, work, "train", "train", *DATA.split(), "--steps", "2", "-q", "--checkpoint-dir", "checkpoints")
    said_by(rankc, work, "compile", DECODER, "-q", "--state", "auto", *DIMS.split(), "-o", "decoder")
    said_by(rankc, work, "run", ".rankc", "-q", "--random-inputs", "--dump-tensors", "*")


def check(rankc, work, row):
    command, more, left, made = row
    said = {}
    for flag in ("", "-v", "-q"):
        if made:
            shutil.rmtree(work / made, ignore_errors=True)
        said[flag] = said_by(rankc, work, *command.split(), *([flag] if flag else []))
    assert not re.search(more, "".join(said[""])) or command == "plan model.onnx", (command, said[""])
    assert re.search(more, "".join(said["-v"])), (command, said["-v"])
    assert said["-v"] != said[""], (command, said[""])
    assert said["-q"][1] == "", (command, said["-q"])
    assert said["-q"][0] == ("" if left == NOTHING else said[""][0]), (command, said["-q"])


def main():
    rankc = rankc_of(__doc__)
    verbs = set(re.findall(r"(?m)^  ([a-z]+)", call(rankc, "help").stdout.split("Options:")[0]))
    assert verbs == {row[0].split()[0] for row in ROWS} | ELSEWHERE, verbs
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        prepare(rankc, work)
        for row in ROWS:
            check(rankc, work, row)


main()
