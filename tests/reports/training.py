"""Reports of training: losses and norms that PyTorch gave (curve.json), under the plans of the report."""
import json
import os
import subprocess

from call import ENVIRONMENT, expect, run

import numpy as np

ONE, TWO = "1 micro-batches a step", "2 micro-batches a step"


def data(folder, *names, kind="--data", prefix="data_"):
    return [word for name in names for word in (kind, f"{name}={folder}/{prefix}{name}.npy")]


def curve(folder):
    with open(os.path.join(folder, "curve.json"), encoding="utf-8") as file:
        return json.load(file)


def compiled(rankc, folder, work, name, *options):
    out = os.path.join(work, name)
    run(rankc, "compile", f"{folder}/model.onnx", "-o", out, "-q", "--train", *options)
    return out


def trained(rankc, directory, *words):
    """The metrics of a run, a dictionary for each line of its log."""
    log = directory + ".jsonl"
    run(rankc, "train", directory, "--threads", "1", "--log", log, *words)
    with open(log, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def close(name, got, expected, relative=1e-5):
    expect(len(got) == len(expected) and np.allclose(got, expected, rtol=relative, atol=1e-7), f"{name}: {got}, not {expected}")


def follows(name, lines, expected):
    close(f"{name}, loss", [line["loss"] for line in lines], expected["loss"])
    close(f"{name}, norm", [line["grad_norm"] for line in lines], expected["grad_norm"])


def plans(rankc, folder, work, names, table):
    """Each row of table: name, options of compile, options of train, micro-batches a step as curve.json names them."""
    for name, compile_options, train_options, micro_batches in table:
        directory = compiled(rankc, folder, work, name, "--optimizer", "sgd:lr=0.1", *compile_options)
        follows(name, trained(rankc, directory, *data(folder, *names), "--steps", "3", *train_options), curve(folder)[micro_batches])


def zero_times_sum(rankc, folder, work):
    plans(rankc, folder, work, ["x", "t"], [
        ("dp", ["--pas", "dp"], [], ONE),
        ("units", ["--pas", "dp"], ["--runtime-ngpus", "2"], TWO),
        ("data", ["--pas", "data:data=2"], [], ONE),
        ("accumulate", ["--pas", "dp", "--accumulate", "2"], [], TWO),
        ("fsdp", ["--pas", "fsdp"], [], ONE),
        ("pp", ["--pas", "pp:pipeline=2", "--accumulate", "2"], [], TWO)])


def reduced_parameter(rankc, folder, work):
    expected = "2 micro-batches a step, sgd:lr=0.1"
    plans(rankc, folder, work, ["x"], [
        ("accumulate", ["--accumulate", "2"], [], expected),
        ("fsdp", ["--pas", "fsdp"], ["--runtime-ngpus", "2"], expected)])


def batch_norm_evaluation(rankc, folder, work):
    expected = curve(folder)["torch eval loss after step 6"]["statistics of unit 0 (saved; DDP's broadcast_buffers)"]
    directory = compiled(rankc, folder, work, "dp", "--optimizer", "sgd:lr=0.05", "--pas", "dp", "--accumulate", "2")
    words = [*data(folder, "x", "y"), *data(folder, "x", "y", kind="--eval-data", prefix="data_eval_")]

    def evaluated(checkpoints, *options):
        lines = trained(rankc, directory, *words, "--checkpoint-dir", os.path.join(work, checkpoints), *options)
        return [line["eval_loss"] for line in lines if "eval_loss" in line][-1]
    units = ["--runtime-ngpus", "2", "--accumulate", "1"] # the value was recorded for steps of one micro-batch per unit
    close("uninterrupted", [evaluated("whole", "--steps", "6", *units)], [expected])
    trained(rankc, directory, *words, "--checkpoint-dir", os.path.join(work, "part"), "--steps", "3", *units)
    close("resumed", [evaluated("part", "--steps", "6", "--runtime-ngpus", "2", "--resume", "latest")], [expected])


def shared_input(rankc, folder, work):
    expected = curve(folder)
    directory = compiled(rankc, folder, work, "one", "--optimizer", "sgd:lr=0")
    mask = ["--data", f"mask={folder}/data_mask_once.npy"]
    losses = [line["loss"] for line in trained(rankc, directory, *data(folder, "x"), *mask, "--steps", "8")]
    pairs = np.mean(np.reshape(expected["losses of the samples"], (8, 2)), 1)
    close("in order", losses, pairs)
    shuffled = [line["loss"] for line in trained(rankc, directory, *data(folder, "x"), *mask, "--steps", "8", "--shuffle", "3")]
    close("shuffled", [np.mean(shuffled)], [expected["mean of an epoch"]])
    expect(not np.allclose(shuffled, pairs), "--shuffle left the order as it was")


def half_accumulation(rankc, folder, work):
    right = curve(folder)["f64"]
    for micro_batches in (4, 256, 1024):
        directory = compiled(rankc, folder, work, f"a{micro_batches}", "--optimizer", "sgd:lr=0", "--dtype", "bf16", "--accumulate",
                             str(micro_batches))
        lines = trained(rankc, directory, *data(folder, "ids", "labels"), "--steps", "1")
        close(f"{micro_batches} micro-batches", [lines[0]["grad_norm"]], [right], relative=2e-3)


def longer_schedule(rankc, folder, work):
    words = [*data(folder, "ids", "labels"), "--checkpoint-dir", os.path.join(work, "checkpoints")]
    schedule = ["--optimizer", "adamw:lr=0.02", "--lr-schedule"]
    first = compiled(rankc, folder, work, "first", *schedule, "cosine:warmup=1,steps=4")
    trained(rankc, first, *words, "--steps", "4")
    longer = compiled(rankc, folder, work, "longer", *schedule, "cosine:warmup=1,steps=8")
    rates = [line["lr"] for line in trained(rankc, longer, *words, "--steps", "8", "--resume", "latest")]
    # steps 5 to 8 of eight, after one of warmup, as transformers' get_cosine_schedule_with_warmup has them
    close("rates", rates, [0.01 * (1 + np.cos(np.pi * step / 7)) for step in range(3, 7)])


def other_options(rankc, folder, work):
    """Two ranks, one of which has another option: both end, and one says which option."""
    tensor = compiled(rankc, folder, work, "tensor", "--optimizer", "sgd:lr=0.5", "--clip-grad-norm", "0.5", "--pas", "tp:tensor=2")
    units = compiled(rankc, folder, work, "units", "--optimizer", "sgd:lr=0.5", "--clip-grad-norm", "0.5", "--pas", "dp", "--accumulate", "2")
    words = [*data(folder, "ids", "labels"), "--threads", "1", "--world", "2"]
    for directory, option, value in ((tensor, "lr", "0.1"), (tensor, "shuffle", "4"), (units, "accumulate", "3"), (tensor, "steps", "2")):
        place = os.path.join(work, "rendezvous " + option)
        program = [f"{directory}/model/_/build/run", *words, "--rendezvous", f"file:{place}"]
        steps = [] if option == "steps" else ["--steps", "3"]
        ranks = [subprocess.Popen([*program, *steps, "--rank", rank, *other], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                  env=ENVIRONMENT)
                 for rank, other in (("0", [] if steps else ["--steps", "3"]), ("1", [f"--{option}", value]))]
        try:
            said = [rank.communicate(timeout=60)[1] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        expect(all(rank.returncode for rank in ranks), f"--{option}: exit statuses {[rank.returncode for rank in ranks]}")
        expect(any("E0902" in words and option in words and value in words for words in said), f"--{option} is not named: {said}")
