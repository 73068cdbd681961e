"""Compiled models and training cases as command lines, for checks that start them by hand or under tools."""
import os
import shutil

from stand_in import TESTS, call, dims_of, given, json_of

LOOPBACK = ["--comm", "loopback"]


def build(rankc, model, out, *options):
    """The directory of a program for GPUs."""
    shutil.rmtree(out, ignore_errors=True)
    call(rankc, "compile", f"{model}/model.onnx", "-o", out, "-q", "--target", "cuda", *options, timeout=900)
    return os.path.join(out, "model", "_")


def infer(rankc, name, out, *options):
    """The command that runs a model of tests/models."""
    model = os.path.join(TESTS, "models", name)
    directory = build(rankc, model, out, *dims_of(model), *options)
    return [f"{directory}/build/run", *given(f"{model}/inputs")]


def train(rankc, name, out, *options, steps=3):
    """The command that trains a case of tests/training, by SGD."""
    case = os.path.join(TESTS, "training", name)
    directory = build(rankc, case, out, "--train", "--optimizer", "sgd:lr=0.1", *options)
    return [f"{directory}/build/run", *given(case, "--data"), "--steps", str(steps)]


def planned(rankc, out):
    """Bytes of all ranks."""
    return sum(rank["memory"]["peak"] for rank in json_of(rankc, "show", out, "--json")["ranks"])
