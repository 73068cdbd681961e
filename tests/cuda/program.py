"""Compiled models and training cases as command lines, for checks that start them by hand or under tools."""
import json
import os
import shutil

from stand_in import TESTS, call

LOOPBACK = ["--comm", "loopback"]


def files_of(folder):
    return sorted(name for name in os.listdir(folder) if name.endswith(".npy"))


def words(option, folder):
    return [word for name in files_of(folder) for word in (option, f"{name[:-4]}={folder}/{name}")]


def build(rankc, model, out, *options):
    """The directory of a program for GPUs."""
    shutil.rmtree(out, ignore_errors=True)
    call(rankc, "compile", f"{model}/model.onnx", "-o", out, "-q", "--target", "cuda", *options, timeout=900)
    return os.path.join(out, "model", "_")


def infer(rankc, name, out, *options):
    """The command that runs a model of tests/models."""
    model = os.path.join(TESTS, "models", name)
    dims = open(f"{model}/dims").read().split() if os.path.exists(f"{model}/dims") else []
    directory = build(rankc, model, out, *(word for dim in dims for word in ("--dim", dim)), *options)
    return [f"{directory}/build/run", *words("--input", f"{model}/inputs")]


def train(rankc, name, out, *options, steps=3):
    """The command that trains a case of tests/training, by SGD."""
    case = os.path.join(TESTS, "training", name)
    directory = build(rankc, case, out, "--train", "--optimizer", "sgd:lr=0.1", *options)
    return [f"{directory}/build/run", *words("--data", case), "--steps", str(steps)]


def planned(rankc, out):
    """Bytes of all ranks."""
    return sum(rank["memory"]["peak"] for rank in json.loads(call(rankc, "show", out, "--json").stdout)["ranks"])
