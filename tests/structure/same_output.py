#!/usr/bin/env python3
"""Compares what two builds of rankc generate, for changes that are to leave it as it is.

    same_output.py OLD_RANKC NEW_RANKC [--renamed OLD=NEW]... [MODEL.onnx...]

Every model of the tests (or those named) is compiled by both, under several plans, for both targets, for inference and training.
Files must be equal byte for byte but for comments, #include lines, hashes, recorded sizes of files and symbols that were renamed.
Exit status 1 if some are not.
"""
import glob
import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_plans import plan_of  # noqa: E402
from rankc_test import call, dims_of, parser_of  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PLANS = ["one", "tp2", "data3", "tp2data2", "pp2"]


def cases(models):
    """(name, arguments of compile) of all that is compared."""
    for model in models or sorted(glob.glob(ROOT + "/tests/models/*/model.onnx")):
        name = os.path.basename(os.path.dirname(model)) or model
        for plan in PLANS:
            for target in ("c", "cuda"):
                yield f"{name} {plan} {target}", [model, "--target", target, *dims_of(model), *plan_of(plan).options]
    for model in [] if models else sorted(glob.glob(ROOT + "/tests/training/*/model.onnx")):
        name = os.path.basename(os.path.dirname(model))
        for plan in ("one", "tp2", "data3", "tp2data2"):
            for target in ("c", "cuda"):
                for more in ([], ["--amp", "bf16", "--clip-grad-norm", "1", "--recompute", "full", "--accumulate", "2"]):
                    yield (f"{name} {plan} {target} train {' '.join(more[:2])}",
                           [model, "--train", "--optimizer", "adamw", "--target", target, *plan_of(plan).options, *more])


def normal(text, renamed):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"^[ \t]*#[ \t]*include.*\n", "", text, flags=re.M)
    text = re.sub(r"^# .*\n", "", text, flags=re.M)  # of a Makefile
    text = re.sub(r"\b[0-9a-f]{16,64}\b", "HASH", text)
    text = re.sub(r"(_H\b.*?)\b0x[0-9a-f]{8}u\b", r"\1HASH", text)  # of a program, in its header's guard
    text = re.sub(r'("path": "[^"]*", "bytes": )\d+', r"\1SIZE", text)  # of files with comments
    for old, new in renamed:
        text = re.sub(rf"\b{re.escape(old)}\b", new, text)
    return re.sub(r"\s+", " ", text)


def generated(rankc, arguments, directory, renamed):
    """Normalised files by name; the diagnostics where it is refused."""
    done = call(rankc, "compile", *arguments, "--no-build", "-q", "-o", directory, status=None)
    if done.returncode:
        return {"exit status": f"{done.returncode}"}
    files = {}
    for path, folders, names in os.walk(directory):
        folders[:] = [folder for folder in folders if folder != "build"]  # links to each build's runtime
        for name in names:
            full = os.path.join(path, name)
            if name != "location.json" and os.path.isfile(full):
                with open(full, encoding="utf-8", errors="surrogateescape") as file:
                    files[os.path.relpath(full, directory)] = normal(file.read(), renamed)
    return files


def compare(args, name, arguments):
    with tempfile.TemporaryDirectory() as work:
        old, new = (generated(rankc, arguments, os.path.join(work, which), renamed) for rankc, which, renamed in
                    ((args.old, "old", args.renamed), (args.new, "new", [])))
    return name, "exit status" not in old, [file for file in sorted({*old, *new}) if old.get(file) != new.get(file)]


def main():
    parser = parser_of(__doc__, rankc=False)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--renamed", action="append", default=[], type=lambda text: tuple(text.split("=", 1)))
    parser.add_argument("--verbose", action="store_true", help="name what both refuse")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    with ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(lambda case: compare(args, *case), cases(args.models)))
    for name, done, files in results:
        if not done and args.verbose:
            print(f"{name}: refused")
        if files:
            print(f"{name}: {', '.join(files)} differ")
    different = sum(bool(files) for *_, files in results)
    compiled = sum(done for _, done, _ in results)
    print(f"{len(results)} compiles, {compiled} with a result, {different} different")
    return 1 if different or not compiled else 0


if __name__ == "__main__":
    sys.exit(main())
