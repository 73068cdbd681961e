#!/usr/bin/python3
"""Training runs that are stopped, killed, resumed, shuffled, evaluated and told other numbers.

    runs.py --rankc RANKC [--kill-at KILL_AT.so] [--every N] [NAME...]

Each check is a function here. What is resumed gives the very numbers and files of the run that was not stopped."""
import filecmp
import functools
import itertools
import json
import math
import os
import random
import shutil
import struct
import sys

from harness import HERE, call, data_of, expect, folder_of, lines_of, model_of, parser_of, plan_of, recorded, report
from long_sequences import write_npy

GPT2 = os.path.join(HERE, "..", "models", "gpt2", "model.onnx") # of any number of positions up to 16
ADAMW = ["--optimizer", "adamw:lr=0.01", "--lr-schedule", "cosine:warmup=2,steps=8,min=0.1"]


class Bench:
    """A working directory, and rankc in it."""

    def __init__(self, rankc, kill_at, work):
        self.rankc, self.kill_at, self.work, self.logs = rankc, kill_at, work, 0
        self.background = False  # checkpoints are written in the background
        self.every = 1  # of calls of a save in the background, those at which a run is killed

    def saved_by(self, options):
        """What is added to the options of a run."""
        return ["--checkpoint-async"] if self.background and "--checkpoint-dir" in options else []

    def path(self, name):
        return os.path.join(self.work, name)

    def call(self, *words, env=None, status=0):
        return call(self.rankc, *words, env=env, status=status)

    def compile(self, name, plan="one", case="mlp", options=ADAMW, accumulate=1):
        self.call("compile", model_of(case), "-o", self.path(name), "-q", "--train", *plan_of(plan, HERE).options, "--accumulate", accumulate,
                  *options)
        return Program(self, name, case)


class Program:
    def __init__(self, bench, name, case):
        self.bench, self.directory, self.case = bench, bench.path(name), case
        self.inputs = recorded(case)["inputs"] if case else []

    def data(self, option="--data"):
        return data_of(self.case, self.inputs, option)

    def show(self):
        return json.loads(self.bench.call("show", self.directory, "--json").stdout)

    def activations(self):
        """Planned bytes of rank 0."""
        return self.show()["ranks"][0]["memory"]["activations"]

    def train(self, steps, *options, status=0, env=None, data=None):
        """The lines of the log; of a run that fails, what it says."""
        self.bench.logs += 1
        log = self.bench.path(f"{self.bench.logs}.jsonl")
        done = self.bench.call("train", self.directory, *(data or self.data()), "--steps", str(steps), "--log", log,
                               "--threads", "1", *self.bench.saved_by(options), *options, status=status, env=env)
        return done.stderr if status or not os.path.exists(log) else lines_of(log)


def numbers(lines):
    """What does not depend on the time."""
    return [{key: value for key, value in line.items() if key != "ms" and not key.endswith("_per_s")} for line in lines]


def equal_folders(one, other):
    names = sorted(os.listdir(one))
    expect(names == sorted(os.listdir(other)), f"{names} and {os.listdir(other)}")
    for name in names:
        expect(filecmp.cmp(os.path.join(one, name), os.path.join(other, name), shallow=False), f"{name} differs")


def checkpoints(directory):
    return sorted(os.listdir(directory)) if os.path.isdir(directory) else []


def resume(bench):
    """A run that goes on from a checkpoint is the run that was not stopped, bit for bit."""
    for plan, accumulate, shuffle, case in (("one", 1, [], "mlp"), ("one", 2, ["--shuffle", "7"], "mlp"),
                                            ("tp2data2", 1, [], "gpt2"), ("tp2dp2", 2, ["--shuffle", "7"], "mlp"),
                                            ("nest4", 1, [], "mlp")):
        program = bench.compile(f"{plan}{accumulate}", plan, accumulate=accumulate, case=case)
        whole, parts = bench.path(f"whole-{plan}{accumulate}"), bench.path(f"parts-{plan}{accumulate}")
        expected = program.train(8, *shuffle, "--checkpoint-dir", whole, "--checkpoint-every", "3")
        expect(checkpoints(whole) == ["step-3", "step-6", "step-8"], f"{checkpoints(whole)}")
        first = program.train(3, *shuffle, "--checkpoint-dir", parts)
        second = program.train(6, "--checkpoint-dir", parts, "--resume", "latest")
        third = program.train(8, *shuffle, "--checkpoint-dir", parts, "--resume", "6")
        expect(numbers(first + second + third) == numbers(expected), f"{plan}: other numbers after resuming")
        for step in ("step-3", "step-6", "step-8"):
            equal_folders(os.path.join(whole, step), os.path.join(parts, step))
        again = program.train(8, *shuffle, "--checkpoint-dir", parts, "--resume", "3")
        expect(numbers(again) == numbers(expected[3:]), f"{plan}: other numbers after going back")
        equal_folders(os.path.join(whole, "step-8"), os.path.join(parts, "step-8"))


def parts(bench):
    """The parts in the files, put together as their metadata says, are the parameters of one rank after as many steps."""
    bound = 1e-5  # cuts change the order of sums; SGD keeps the difference at rounding
    options = ["--optimizer", "sgd:lr=0.01,momentum=0.9"]
    expected = {}
    for plan in ("one", "tp2", "tp2data2", "nest4"):
        program, directory = bench.compile(f"parts-{plan}", plan, options=options), bench.path(f"parts-{plan}.ckpt")
        program.train(3, "--checkpoint-dir", directory)
        for kind in ("parameters", "optimizer"):
            tensors = merge(os.path.join(directory, "step-3"), kind)
            expect(len(tensors) == 6, f"{plan}: {len(tensors)} {kind}")
            for name, (shape, values) in tensors.items():
                reference = expected.setdefault((kind, name), (shape, values))
                worst = max(abs(a - b) for a, b in zip(values, reference[1]))
                expect(shape == reference[0] and worst <= bound * max(map(abs, reference[1])), f"{plan}: {name} {worst}")


def merge(directory, kind):
    """Complete f32 tensors from the files of a checkpoint: {name: (shape, values)}. Not rankc's reader."""
    tensors = {}
    for file in sorted(os.listdir(directory)):
        if not file.startswith(kind):
            continue
        with open(os.path.join(directory, file), "rb") as stream:
            content = stream.read()
        length, = struct.unpack("<Q", content[:8])
        header = json.loads(content[8:8 + length])
        for name, text in header.pop("__metadata__").items():
            part, entry = json.loads(text), header[name]
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            values = struct.unpack(f"<{(end - begin) // 4}f", content[begin:end])
            shape, whole = tensors.setdefault(name, (part["shape"], [math.nan] * math.prod(part["shape"])))
            for at, value in zip(indices(shape, part["slices"]), values):
                whole[at] = value
            expect(len(values) == math.prod(entry["shape"]), name)
    for name, (_, values) in tensors.items():
        expect(not any(map(math.isnan, values)), f"{name} is not complete")
    return tensors


def indices(shape, slices):
    """Places of a part's elements in the complete tensor, in the part's order. A second cut of a dimension divides what the first leaves."""
    chosen = [list(range(extent)) for extent in shape]
    for cut in slices:
        held = chosen[cut["dim"]]
        extent, blocks, unit = len(held), cut["blocks"], cut["unit"]
        units = extent // (blocks * unit)
        start = [p * (units // cut["parts"]) + min(p, units % cut["parts"]) for p in (cut["part"], cut["part"] + 1)]
        chosen[cut["dim"]] = [held[block * (extent // blocks) + i] for block in range(blocks)
                              for i in range(start[0] * unit, start[1] * unit)]
    places = [0]
    for extent, keep in zip(shape, chosen):
        places = [place * extent + index for place in places for index in keep]
    return places


def killed(bench):
    """Killed at any call that changes a file of a checkpoint, a run goes on from one that is complete: of one that is
    written again, the old or the new. The same if checkpoints are written in the background, while steps go on."""
    for plan, comm, there, background in (("one", "auto", 4, False), ("tp2", "loopback", 2, False), ("tp2", "loopback", 2, True)):
        program = bench.compile(f"killed-{plan}-{background}", plan)
        start, directory, whole = (bench.path(f"{plan}-{background}.{name}") for name in ("ckpt", "victim", "whole"))
        program.train(there, "--checkpoint-dir", start, "--checkpoint-every", "2")
        expected = program.train(5, "--checkpoint-dir", whole, "--checkpoint-every", "1")
        options = ["--checkpoint-async", "--checkpoint-every", "1"] if background else []
        for moment in range(1, 200, bench.every if background else 1):
            shutil.rmtree(directory, ignore_errors=True)
            shutil.copytree(start, directory)
            env = {"LD_PRELOAD": bench.kill_at, "KILL_AT": str(moment), "KILL_BELOW": directory}
            done = bench.call("train", program.directory, *program.data(), "--steps", "4", "--threads", "1", "--checkpoint-dir", directory,
                              "--resume", "2", "--comm", comm, *options, env=env, status=None)
            if done.returncode == 0:
                break
            there_now = [name for name in checkpoints(directory) if name.startswith("step-")]
            expect(set(checkpoints(start)) <= set(there_now), f"call {moment}: {there_now}")
            for name in there_now:
                equal_folders(os.path.join(directory, name), os.path.join(whole, name))
            lines = program.train(5, "--checkpoint-dir", directory, "--resume", "latest")
            expect(numbers(lines) == numbers(expected[-len(lines):]), f"call {moment}: other numbers")
            equal_folders(os.path.join(whole, "step-5"), os.path.join(directory, "step-5"))
            expect(not any(name.startswith(".") for name in checkpoints(directory)), "something is left over")
        expect(10 < moment < 199, f"{moment} calls")


def tensors_of(path):
    """Name, first byte and end in the file of each tensor of a safetensors file."""
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
    return [(name, *(8 + length + offset for offset in entry["data_offsets"])) for name, entry in header.items() if name != "__metadata__"]


def flipped(bench):
    """A bit that differs is refused wherever it is: the error names the tensor, or the file if the bit is none of a tensor's."""
    chance = random.Random("flipped")
    for plan in ("one", "tp2"):
        program, good, bad = bench.compile(f"flipped-{plan}", plan), bench.path(f"{plan}.good"), bench.path(f"{plan}.bad")
        program.train(2, "--checkpoint-dir", good)
        shutil.copytree(good, bad)
        for name in sorted(os.listdir(os.path.join(good, "step-2"))):
            path = os.path.join(bad, "step-2", name)
            tensors = tensors_of(path) if name.endswith(".safetensors") else []
            others = min((start for _, start, _ in tensors), default=os.path.getsize(path))
            places = [(chance.randrange(start, end), f"tensor '{tensor}'") for tensor, start, end in tensors if end > start]
            for place, named in places + [(chance.randrange(others), name) for _ in range(6)]:
                flip(path, place, chance.randrange(8))
                said = program.train(3, "--checkpoint-dir", bad, "--resume", "latest", status=8)
                expect(f"{name}' is damaged" in said and named in said, f"{plan}, {name}, byte {place} of {named}: {said}")
                shutil.copy(os.path.join(good, "step-2", name), path)
        expect(len(program.train(3, "--checkpoint-dir", bad, "--resume", "latest")) == 1, "the checkpoint was not restored")


def format_1(bench):
    """A checkpoint of the previous format, which rankc wrote at 55c0df5 under tensor parallelism, loads under any plan; its
    damage is refused."""
    given, directory = os.path.join(folder_of("mlp"), "format1"), bench.path("format1")
    expected = [line["loss"] for line in bench.compile("whole").train(4)[2:]]
    for plan in ("one", "tp2", "tp3", "data2"):
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(given, directory)
        near(bench.compile(f"format1-{plan}", plan).train(4, "--checkpoint-dir", directory, "--resume", "2"), expected, plan)
    program = bench.compile("format1-tp2", "tp2")
    for name in sorted(os.listdir(f"{given}/step-2")):
        shutil.rmtree(directory)
        shutil.copytree(given, directory)
        flip(f"{directory}/step-2/{name}", os.path.getsize(f"{directory}/step-2/{name}") // 2, 1)
        said = program.train(4, "--checkpoint-dir", directory, "--resume", "2", status=8)
        expect(f"{name}' is damaged" in said, said)


def flip(path, place, bit):
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0] ^ 1 << bit
        file.seek(place)
        file.write(bytes([byte]))


def damaged(bench):
    """What is not a whole checkpoint of the program is refused."""
    program, other = bench.compile("damaged"), bench.compile("other", options=["--optimizer", "adamw:lr=0.02"])
    good = bench.path("good")
    program.train(2, "--checkpoint-dir", good)
    for name in sorted(os.listdir(os.path.join(good, "step-2"))):
        for change in ("flip", "cut", "remove"):
            bad = bench.path("bad")
            shutil.rmtree(bad, ignore_errors=True)
            shutil.copytree(good, bad)
            path = os.path.join(bad, "step-2", name)
            with open(path, "rb") as file:
                content = bytearray(file.read())
            content[len(content) // 2] ^= 1
            with open(path, "wb") as file:
                file.write(content[:-1] if change == "cut" else content)
            if change == "remove":
                os.unlink(path)
            said = program.train(4, "--checkpoint-dir", bad, "--resume", "latest", status=6 if change == "remove" else 8)
            expect(name in said, f"{name} {change}: {said}")
    said = other.train(4, "--checkpoint-dir", good, "--resume", "latest", status=8)
    expect("another program" in said, said)
    said = program.train(4, "--checkpoint-dir", good, "--resume", "latest", "--shuffle", "1", status=8)
    expect("another order" in said, said)
    said = program.train(4, "--checkpoint-dir", good, status=2)
    expect("earlier run" in said, said)
    said = program.train(1, "--checkpoint-dir", good, "--resume", "2", status=2)
    expect("but --steps is 1" in said, said)
    said = program.train(4, "--checkpoint-dir", bench.path("nothing"), "--resume", "latest", status=6)
    expect("no checkpoint" in said, said)
    said = program.train(4, "--checkpoint-dir", good, "--resume", "newest", status=2)
    expect("'newest'" in said, said)
    for options in (["--resume", "latest"], ["--checkpoint-every", "2"], ["--eval-every", "2"], ["--eval-steps", "2"]):
        said = program.train(4, *options, status=2)
        expect(f"{options[0]} needs" in said, said)


def broadcast(bench):
    """--broadcast-weights, by which only the first scale unit reads weights, changes nothing: parts that ranks divide, slices of ZeRO,
    stages, weights of the model and copied ones."""
    for plan, options in (("tp2dp2", ["--use-zero", "3"]), ("tp2dp2", ["--weights", "copy"]), ("dp3", ["--use-zero", "3", "--weights", "copy"]),
                          ("tp2data2dp2", ["--use-zero", "1"])):
        program = bench.compile(f"broadcast-{plan}-{len(options)}{options[-1]}", plan, "gpt2", [*ADAMW, *options])
        plain, shared = bench.path("plain"), bench.path("shared")
        lines = program.train(1, "--checkpoint-dir", plain)
        expect(numbers(program.train(1, "--checkpoint-dir", shared, "--broadcast-weights")) == numbers(lines), f"{plan} {options}: other numbers")
        equal_folders(f"{plain}/step-1", f"{shared}/step-1")
        shutil.rmtree(plain)
        shutil.rmtree(shared)


def shuffled(bench):
    """However many units share the micro-batches of a step, they are the same samples in the same order."""
    one = bench.compile("units1", "one", accumulate=4).train(10, "--shuffle", "3")
    two = bench.compile("units2", "dp2", accumulate=2).train(10, "--shuffle", "3")
    for a, b in zip(one, two):
        expect(abs(a["loss"] - b["loss"]) <= 1e-6 * a["loss"], f"step {a['step']}: {a['loss']} and {b['loss']}")
    program = bench.compile("orders", accumulate=2)
    plain, again = program.train(10), program.train(10, "--shuffle", "3")
    expect(numbers(plain) != numbers(again), "--shuffle changes nothing")
    expect(numbers(program.train(10, "--shuffle", "3")) == numbers(again), "--shuffle is not the same every time")
    expect(numbers(program.train(10, "--shuffle", "4")) != numbers(again), "seeds are the same")


def evaluated(bench):
    """The evaluation loss is the mean over the micro-batches, and training goes on as if there had been none."""
    for plan in ("one", "dp2", "tp2"):
        program = bench.compile(f"evaluated-{plan}", plan)
        still = program.train(4, "--lr", "0")  # 14 samples: 4 micro-batches of 3
        units = 2 if plan == "dp2" else 1
        expected = sum(line["loss"] for line in still[:4 // units]) / (4 // units)
        lines = program.train(4, "--lr", "0", *program.data("--eval-data"), "--eval-every", "3")
        found = [line for line in lines if "eval_loss" in line]
        expect([line["step"] for line in found] == [3, 4], f"{found}")
        for line in found:
            expect(line["eval_samples"] == 12 and abs(line["eval_loss"] - expected) <= 1e-6 * expected, f"{line} {expected}")
        plain = program.train(5)
        lines = program.train(5, *program.data("--eval-data"), "--eval-every", "1", "--eval-steps", "3")
        expect(numbers([line for line in lines if "loss" in line]) == numbers(plain), "evaluating changes training")


def averaged(bench):
    """Evaluations with the averages of --ema leave loss scales, histories of 8-bit floats and moments in blocks as they are. Before
    the first step that is not skipped they are of the parameters themselves."""
    skips = ["--optimizer", "rmsprop:lr=0.01,centered=1,momentum=0.9", "--amp", "fp16:loss_scale=262144,growth_interval=3"]
    every = ["--eval-every", "1", "--eval-steps", "2"]
    for name, case, options in (("scaled", "mlp", skips), ("in-fp8", "mlp_fp8", ["--optimizer", "sgd:lr=0.02", "--fp8", "e4m3:history=2"]),
                                ("in-blocks", "mlp_blocks", ["--optimizer", "adamw:lr=0.01", "--moments-dtype", "int8"])):
        program = bench.compile(f"averaged-{name}", case=case, options=[*options, "--ema", "0.5"])
        plain, lines = program.train(8), program.train(8, *program.data("--eval-data"), *every)
        expect(numbers([line for line in lines if "loss" in line]) == numbers(plain), f"{name}: evaluating changes training")
        expect([line.get("loss_scale") for line in lines if "loss" in line] == [line.get("loss_scale") for line in plain], name)
        current = bench.compile(f"current-{name}", case=case, options=options)
        found, others = ([line["eval_loss"] for line in run if "eval_loss" in line]
                         for run in (lines, current.train(8, *current.data("--eval-data"), *every)))
        steps = [line["step"] for line in plain if not line.get("skipped")]
        expect(found[:steps[0]] == others[:steps[0]] and found[-1] != others[-1], f"{name}: {found} {others} {steps}")
        expect((steps[0] > 1) == (name == "scaled"), f"{name}: {steps}")


def told(bench):
    """--lr and --accumulate of a run do what they do to a compile, as far as the program can."""
    plain = bench.compile("plain", options=["--optimizer", "sgd:lr=0.02"])
    other = bench.compile("slow", options=["--optimizer", "sgd:lr=0.01"])
    expect(numbers(plain.train(5, "--lr", "0.01")) == numbers(other.train(5)), "--lr")
    two, four = bench.compile("two-of", accumulate=2), bench.compile("four-of", accumulate=4)
    expect(numbers(two.train(5, "--accumulate", "4")) == numbers(four.train(5)), "--accumulate")
    done = bench.call("train", plain.directory, *plain.data(), "--steps", "5", "--json")
    summary = json.loads(done.stdout)
    expect(summary["ranks"] == 1 and 0 < summary["step_ms"]["min"] <= summary["step_ms"]["median"], done.stdout)
    said = plain.train(5, "--accumulate", "2", status=8)
    expect("one micro-batch" in said, said)


def near(lines, expected, what):
    """The same micro-batches, summed in another order."""
    expect(len(lines) == len(expected), f"{what}: {len(lines)} steps, not {len(expected)}")
    for line, loss in zip(lines, expected):
        expect(abs(line["loss"] - loss) <= 1e-5 * abs(loss), f"{what}, step {line['step']}: {line['loss']} and {loss}")


def units(bench):
    """The number of scale units is known when a program starts: one program gives PyTorch's losses with any number, and compiled for
    another number it is the same program, byte for byte, but for the default in location.json."""
    reference = recorded("mlp")
    options = ["--optimizer", reference["optimizer"]]
    for plan in "one", "tp2":
        size = plan_of(plan).ranks
        few, many = (bench.compile(f"{plan}-for-{n}", plan_of(plan)._replace(units=n), options=options, accumulate=2) for n in (1, 4))
        for folder, _, names in os.walk(few.directory):
            for name in names:
                if name != "location.json" and not name.startswith(".lock-"):
                    one = os.path.join(folder, name)
                    other = os.path.join(many.directory, os.path.relpath(one, few.directory))
                    expect(filecmp.cmp(one, other, shallow=False), f"{other} depends on the number of units")
        for n, accumulate in ((1, 2), (2, 2), (3, 1), (4, 2), (4, 3)):
            lines = few.train(5, "--runtime-ngpus", str(n * size), "--accumulate", str(accumulate))
            near(lines, reference["steps"][str(n * accumulate)]["f64"]["loss"][:5], f"{plan}, {n} units")
            if (n, accumulate) == (4, 2):
                expect(numbers(many.train(5)) == numbers(lines), f"{plan}: the default is not four units")
        expect(many.show()["runtime_ngpus"] == 4 * size and few.show()["runtime_ngpus"] == size, "show")
    program = [f"{few.directory}/model/_/build/train", "--steps", "1", *few.data()]
    said = call(*program, "--rank", "0", "--world", "3", status=8).stderr
    expect("E0901" in said and "multiple of 2 ranks (plan_ngpus)" in said, said)
    said = few.train(1, "--runtime-ngpus", "3", status=2)
    expect("E0204" in said and "3 is not a multiple of 2" in said, said)
    said = call(f"{many.directory}/model/_/build/train", *program[1:], "--json", "--comm", "loopback").stdout
    expect('"ranks": 8' in said, said)
    said = call(*program, "--comm", "loopback", "--world", "3", status=8).stderr
    expect("E0901" in said, said)


def state_of(directory):
    """Of each file: what changes if it is written."""
    paths = (os.path.join(folder, name) for folder, _, names in os.walk(directory) for name in names if not name.startswith(".lock"))
    return {path: (info.st_ino, info.st_mtime_ns, info.st_ctime_ns) for path, info in ((path, os.stat(path)) for path in paths)}


def resized(bench):
    """A run that goes on with another number of units has as many micro-batches per step as before, and the same samples. Nothing is
    compiled for that: no file of the program changes, and there is no compiler in PATH."""
    options = ["--optimizer", "sgd:lr=0.01,momentum=0.9"]
    program, one = (bench.compile(name, options=options, accumulate=6) for name in ("any", "one"))
    expected = [line["loss"] for line in one.train(9, "--shuffle", "5")]
    directory = ["--checkpoint-dir", bench.path("ckpt"), "--checkpoint-every", "3"]
    files, alone = state_of(program.directory), {"PATH": bench.path("nothing")}
    lines = program.train(3, "--shuffle", "5", *directory, "--runtime-ngpus", "2", "--accumulate", "3", env=alone)
    lines += program.train(6, *directory, "--resume", "latest", "--runtime-ngpus", "3", env=alone)
    lines += program.train(9, *directory, "--resume", "latest", env=alone)
    expect(state_of(program.directory) == files, "files of the program have changed")
    near(lines, expected, "2, 3 and 1 units")
    said = program.train(9, *directory, "--resume", "6", "--runtime-ngpus", "4", status=8)
    expect("6 micro-batches, and this job has 4 scale units" in said and "--accumulate" in said, said)
    again = program.train(9, *directory, "--resume", "6", "--runtime-ngpus", "4", "--accumulate", "1")
    alone = one.train(9, *directory, "--resume", "6", "--accumulate", "4")
    near(again, [line["loss"] for line in alone], "4 units of one micro-batch")
    expect(abs(again[0]["loss"] - expected[6]) > 1e-5, "--accumulate has no effect")
    plain, directory = bench.compile("plain", options=options), ["--checkpoint-dir", bench.path("plain.ckpt")]
    plain.train(2, *directory, "--runtime-ngpus", "2")
    said = plain.train(4, *directory, "--resume", "latest", status=8)
    expect("2 micro-batches, and this job has 1 scale unit:" in said and "one micro-batch" in said, said)
    plain.train(4, *directory, "--resume", "latest", "--accumulate", "1")


def resliced(bench):
    """A run with ZeRO goes on with another number of units, whose slices are others: with the bits of the run that was not stopped
    where sums of gradients are reduced in each micro-batch, and with those of a run without ZeRO in any case."""
    kept = {}
    for zero in "0", "1", "3":
        program = bench.compile(f"resliced-{zero}", case="gpt2", options=[*ADAMW, "--use-zero", zero], accumulate=6)
        first, whole = bench.path(f"resliced-{zero}.first"), bench.path(f"resliced-{zero}.whole")
        program.train(2, "--checkpoint-dir", first, "--runtime-ngpus", "2", "--accumulate", "3")
        expected = numbers(program.train(4, "--checkpoint-dir", whole, "--runtime-ngpus", "2", "--accumulate", "3"))
        for units in "3", "1", "2":
            again = bench.path(f"resliced-{zero}.{units}")
            shutil.copytree(first, again)
            lines = numbers(program.train(4, "--checkpoint-dir", again, "--resume", "latest", "--runtime-ngpus", units))
            kept[zero, units] = described(os.path.join(again, "step-4"))
            near(lines, [line["loss"] for line in expected[2:]], f"ZeRO {zero}, {units} units")
            if zero == "3" or units == "2":
                expect([line["loss"] for line in lines] == [line["loss"] for line in expected[2:]], f"ZeRO {zero}, {units} units: other bits")
                expect(kept[zero, units] == described(os.path.join(whole, "step-4")), f"ZeRO {zero}, {units} units: another checkpoint")
            expect(zero != "1" or kept[zero, units] == kept["0", units], f"ZeRO {zero}, {units} units: not as without ZeRO")


def restaged(bench):
    """A run may go on under another ZeRO stage, and with other options that do not change what is computed. With one micro-batch per
    unit it has the bits of the run that was not stopped; with several, stages 0 and 1 and stages 2 and 3 add in another order."""
    for accumulate in 1, 2:
        ways = {stage: ["--use-zero", stage] for stage in "0123"}
        ways |= {"fsdp": [], "groups": ["--use-zero", "2", "--zero-ngroups", "2"], "again": ["--recompute", "full", "--use-async-reducer", "0"]}
        programs = {name: bench.compile(f"restaged-{accumulate}-{name}", "fsdp@2" if name == "fsdp" else "dp2", "gpt2", [*ADAMW, *words],
                                        accumulate) for name, words in ways.items()}
        whole, parts = bench.path(f"restaged-{accumulate}.whole"), bench.path(f"restaged-{accumulate}.parts")
        order = ["0", "1", "2", "3", "0", "fsdp", "again", "groups"]
        expected = numbers(programs["0"].train(len(order), "--checkpoint-dir", whole))
        lines = []
        for step, name in enumerate(order):
            lines += programs[name].train(step + 1, "--checkpoint-dir", parts, *(["--resume", "latest"] if step else []))
        near(lines, [line["loss"] for line in expected], f"{accumulate} micro-batches")
        if accumulate == 1:
            expect([line["loss"] for line in lines] == [line["loss"] for line in expected], "other losses")
            last = f"step-{len(order)}"
            expect(described(os.path.join(parts, last)) == described(os.path.join(whole, last)), "another checkpoint")


def recomputed(bench):
    """Every way to recompute gives the bits of none, and takes less memory where layers are kept."""
    ways = ["full", "selective", "first:1", "names:*MatMul*", "budget:40K"]
    for case, plan, some in ("vit", "one", ways), ("vit", "tp2", ways[:1]), ("gpt2", "dp2", ways[:2]), ("resnet", "one", ways[:1]):
        plain = bench.compile(f"{case}-{plan}-none", plan, case)
        for way in some:
            program = bench.compile(f"{case}-{plan}-{way[:5]}", plan, case, options=[*ADAMW, "--recompute", way])
            expect(numbers(program.train(3)) == numbers(plain.train(3)), f"{case}, {plan}: {way}")
            bench.call("verify", program.directory, "-q")
            less = program.activations() < plain.activations()
            expect(less or case == "gpt2" or way != "full", f"{case}, {plan}: {way} keeps as much")
    for way, text in ("most", "must be none, full, selective"), ("first:99", "layers"), ("names:nobody", "matches"), ("budget:1", "are kept"):
        done = bench.call("plan", model_of("vit"), "--train", "--recompute", way, status=None)
        expect(done.returncode in (2, 5) and text in done.stderr, f"{way}: {done.stderr}")


def refused(bench):
    """Data and rules that do not fit."""
    program = bench.compile("refused")
    x, target = (f"{folder_of('mlp')}/{name}.npy" for name in program.inputs)
    rows = open(x, "rb").read()
    short = bench.path("short.npy")
    with open(short, "wb") as file:  # 5 of 14 rows of 13 floats
        file.write(rows[:128].replace(b"(14, 13)", b"(5, 13) ") + rows[128:128 + 5 * 52])
    said = program.train(2, status=3, data=["--data", f"x={short}", "--data", f"target={target}"])
    expect("input 'target' has 14 samples, but input 'x' has 5" in said, said)
    said = program.train(2, status=2, data=["--data", f"x={x}"])
    expect("needs --data target=FILE (samples of f32 [" in said, said)
    said = program.train(2, *program.data("--eval-data")[:2], status=2)
    expect("needs --eval-data target=FILE (samples of f32 [" in said, said)
    for rate in "1e39", "nan", "-1", "inf":
        said = program.train(2, "--lr", rate, status=2)
        expect(f"--lr needs a number from 0 to the largest f32, not '{rate}'" in said, said)
    model = model_of("mlp")
    for option, text, status, expected in (
            ("--param", "h.*:lr=1", 2, "no parameter's name matches 'h.*'"),
            ("--param", "*:rate=1", 2, "adamw has no option 'rate'"),
            ("--param", "lr=1", 2, "must have the form GLOB:frozen"),
            ("--param", "*:frozen", 2, "does not depend on any parameter"),
            ("--init", "h.*=zeros", 2, "no parameter's name matches 'h.*'"),
            ("--init", "*=normal:width=1", 2, "normal has no option 'width'"),
            ("--init", "*=normal:std=-1", 2, "std must be at least 0"),
            ("--init", "*=constant", 2, "constant needs value"),
            ("--init", "*=gauss", 2, "unknown initialization 'gauss'"),
            ("--lr-schedule", "cosine", 2, "cosine needs steps"),
            ("--lr-schedule", "cosine:steps=5,warmup=5", 2, "warmup must be less"),
            ("--lr-schedule", "linear:steps=2.5", 2, "steps of linear must be a whole number"),
            ("--lr-schedule", "linear:steps=5,min=2", 2, "from 0 to 1"),
            ("--lr-schedule", "step", 2, "unknown learning-rate schedule 'step'")):
        said = bench.call("compile", model, "-o", bench.path("never"), "--no-build", "--train", option, text, status=status)
        expect(expected in said.stderr, f"{option} {text}: {said.stderr}")
    said = bench.call("compile", model, "-o", bench.path("never"), "--no-build", "--init", "*=zeros", status=2)
    expect("--init needs --train" in said.stderr, said.stderr)


def initial(bench):
    """Initial values are the same bits under every plan, and of the size that is asked for."""
    options = ["--init", "*=uniform:low=-0.3,high=0.1", "--init", "*.weight=normal:std=0.02", "--init", "*1.weight=xavier_uniform",
               "--init", "*.0.bias=constant:value=0.5", "--init", "*.2.weight=kaiming_normal:seed=3"]
    expected = None
    for plan in ("one", "dp2", "tp2", "tp2data2"):
        program, directory = bench.compile(f"initial-{plan}", plan, options=options), bench.path(f"initial-{plan}.ckpt")
        bench.call("verify", program.directory, "-q")
        program.train(1, "--lr", "0", "--checkpoint-dir", directory)
        tensors = merge(os.path.join(directory, "step-1"), "parameters")
        expected = expected or tensors
        expect(tensors == expected, f"{plan}: other values")
    for name, deviation in (("0.weight", 0.02), ("2.weight", math.sqrt(2 / 31)), ("1.weight", math.sqrt(2 / (29 + 31)))):
        _, values = next(value for key, value in expected.items() if key.endswith(name))
        found = math.sqrt(sum(value * value for value in values) / len(values))
        expect(abs(found / deviation - 1) < 5 / math.sqrt(2 * len(values)), f"{name}: {found}, not {deviation}")
    bias = [value for key, (_, values) in expected.items() if key.endswith("bias") and "0.bias" not in key for value in values]
    expect(-0.3 <= min(bias) < -0.25 and 0.05 < max(bias) <= 0.1, f"{min(bias)} to {max(bias)}")
    expect(len(set(bias)) == len(bias), "parameters are alike")
    expect(set(next(values for key, (_, values) in expected.items() if "0.bias" in key)) == {0.5}, "a constant")


def overlapped(bench):
    """Reduced while backward goes on, in buckets of any size, gradients have the bits they have when reduced after it; and those of
    one rank that has the micro-batches of both units. Along a data axis nearly all begin early."""
    after = bench.compile("axis-after", "data2", "gpt2", options=[*ADAMW, "--use-async-reducer", "0"])
    for cap in "0.001", "25":
        program = bench.compile(f"axis-{cap}", "data2", "gpt2", options=[*ADAMW, "--reducer-bucket-cap-mb", cap])
        expect(numbers(program.train(4)) == numbers(after.train(4)), f"data axis, {cap} MB: other numbers")
        (sums,) = program.show()["communication"]
        expect(sums["count"] - sums["begun"] == 3, f"{sums}")  # two of the loss, and positions, which a GatherGrad picks
    for case, plan, one in ("gpt2", "dp2", "one"), ("mlp", "tp2dp2", "tp2"):
        after = bench.compile(f"{case}-after", plan, case, options=[*ADAMW, "--use-async-reducer", "0"])
        expected = numbers(after.train(4))
        alone = bench.compile(f"{case}-alone", one, case, accumulate=2)
        expect(numbers(alone.train(4)) == expected, f"{case}: one unit gives other numbers")
        buckets = []
        for cap in "0.001", "25":
            program = bench.compile(f"{case}-{cap}", plan, case, options=[*ADAMW, "--reducer-bucket-cap-mb", cap])
            expect(numbers(program.train(4)) == expected, f"{case}, {cap} MB: other numbers")
            buckets.append([item["buckets"] for item in program.show()["communication"] if item["kind"] == "unit_sum"])
        many, few = buckets
        expect(many != few and all(0 < b <= a for a, b in zip(many, few)), f"{case}: {many} and {few} buckets")
    for option, value in ("--reducer-bucket-cap-mb", "0"), ("--use-async-reducer", "2"):
        bench.call("plan", model_of("mlp"), "--train", option, value, status=2)


def accumulated(bench):
    """Along a data axis gradients are summed once in a step, however many micro-batches it has, and during the last one's backward
    phase; when changes no bit, and one rank with the same micro-batches gives the numbers but for rounding."""
    for case, each in ("gpt2", 3), ("mlp", 1):  # sums of each micro-batch: of the loss; positions, which a GatherGrad picks
        begun = []
        for count in 1, 4:
            program = bench.compile(f"{case}-{count}", "data2", case, accumulate=count)
            (sums,) = program.show()["communication"]
            begun.append(sums["begun"])
            expect(sums["count"] == sums["begun"] + each * count, f"{case}, {count}: {sums}")
        expect(begun[0] == begun[1] > 0, f"{case}: {begun} sums begin early")
        after = bench.compile(f"{case}-after", "data2", case, options=[*ADAMW, "--use-async-reducer", "0"], accumulate=4)
        alone = bench.compile(f"{case}-alone", "one", case, accumulate=4)
        lines = program.train(4)
        expect(numbers(lines) == numbers(after.train(4)), f"{case}: other numbers where sums do not begin early")
        for line, one in zip(lines, alone.train(4)):
            for key in "loss", "grad_norm":
                expect(abs(line[key] - one[key]) <= 1e-5 * abs(one[key]), f"{case}: {key} {line[key]}, one rank {one[key]}")


def other_build(bench):
    """A rankc with a byte more at its end, and its runtime."""
    build, tool = os.path.dirname(os.path.dirname(bench.rankc)), bench.path("tool")
    shutil.copytree(os.path.join(build, "frontend", "include"), os.path.join(tool, "frontend", "include"))
    os.makedirs(os.path.join(tool, "runtime"))
    for name in "frontend/rankc", "runtime/librankc-rt.a":
        shutil.copy(os.path.join(build, name), os.path.join(tool, name))
    with open(os.path.join(tool, "frontend", "rankc"), "ab") as file:
        file.write(b"\0")
    return Bench(os.path.join(tool, "frontend", "rankc"), None, bench.path("other"))


def rebuilt(bench):
    """A checkpoint is of a model, a plan and options: a program that another rankc compiled of these goes on from it."""
    program, directory = bench.compile("first"), bench.path("ckpt")
    expected = program.train(4)
    program.train(2, "--checkpoint-dir", directory)
    other = other_build(bench)
    os.makedirs(other.work)
    again = other.compile("second")
    with open(os.path.join(program.directory, "model/_/manifest.json")) as one, \
         open(os.path.join(again.directory, "model/_/manifest.json")) as two:
        expect(json.load(one)["keys"] != json.load(two)["keys"], "it is no other build")
    lines = again.train(4, "--checkpoint-dir", directory, "--resume", "latest")
    expect(numbers(lines) == numbers(expected[2:]), "other numbers")


# Slices of 3 ranks are of unequal size. Where ZeRO 2 and 3 reduce gradients along a data axis and over scale units, they add in
# another order than ZeRO 0 and 1.
ZERO_PLANS = {"dp2": False, "dp3": False, "data2": False, "data2dp2": True, "tp2data2dp2": True}


def saved(program, steps, directory):
    """The numbers of a run that saves each second step, and goes on from what is there."""
    resume = ["--resume", "latest"] if checkpoints(directory) else []
    return numbers(program.train(steps, "--checkpoint-dir", directory, "--checkpoint-every", "2", *resume))


def cut(bench):
    """What ZeRO divides among ranks, a checkpoint has whole: its files are those of a run without ZeRO, byte for byte but for the name
    of the program, and a run that resumes from it gives the numbers and files of one that was not stopped."""
    for plan, reordered in ZERO_PLANS.items():
        for zero in range(4):
            like = bench.path(f"cut-{plan}-{2 if reordered and zero > 2 else 0}.ckpt")
            program = bench.compile(f"cut-{plan}-{zero}", plan, "gpt2", options=[*ADAMW, "--use-zero", str(zero)])
            directory, again = bench.path(f"cut-{plan}-{zero}.ckpt"), bench.path(f"cut-{plan}-{zero}.again")
            lines = saved(program, 4, directory)
            shutil.copytree(os.path.join(directory, "step-2"), os.path.join(again, "step-2"))
            expect(saved(program, 4, again) == lines[2:], f"{plan}, ZeRO {zero}: resumed, other numbers")
            equal_folders(os.path.join(again, "step-4"), os.path.join(directory, "step-4"))
            for step in checkpoints(directory):
                one, other = (described(os.path.join(folder, step)) for folder in (directory, like))
                if reordered and zero == 2:
                    one, other = without_hashes(one), without_hashes(other)
                expect(one == other, f"{plan}, ZeRO {zero}: {step} is not as it should be")


def described(directory):
    """What checkpoint.json says that does not depend on the program: tensors, their cuts, and the sizes and hashes of the files, which
    are those that are there."""
    with open(os.path.join(directory, "checkpoint.json")) as file:
        said = json.load(file)
    expect(sorted([file["path"] for file in said["files"]] + ["checkpoint.json"]) == sorted(os.listdir(directory)), f"{directory}: files")
    return {key: value for key, value in said.items() if key not in ("program", "hash_above")}


def without_hashes(said):
    return {**said, "files": [{key: value for key, value in file.items() if key != "hash"} for file in said["files"]]}


def loaded(bench):
    """A rank under ZeRO 3 loads its slices of what it would load without: from the model, from weights/, or made by --init."""
    made = ["--init", "*=normal:std=0.02"]
    for plan in ("dp3", "tp2data2dp2"):
        for name, options in (("reference", []), ("copy", ["--weights", "copy"]), ("made", made), ("copied", [*made, "--weights", "copy"])):
            kept = []
            for zero in "0", "3":
                program = bench.compile(f"loaded-{plan}-{name}-{zero}", plan, "gpt2", options=[*ADAMW, *options, "--use-zero", zero])
                directory = bench.path(f"loaded-{plan}-{name}-{zero}.ckpt")
                program.train(1, "--lr", "0", "--checkpoint-dir", directory)
                kept.append(merge(os.path.join(directory, "step-1"), "parameters"))
            expect(kept[0] == kept[1], f"{plan}, {name}: other values")


# Layouts of the same run: plan, micro-batches per scale unit, options. Each step has two micro-batches.
LAYOUTS = {"one": ("one", 2, []), "tp2": ("tp2", 2, []), "tp3": ("tp3", 2, []), "nest4": ("nest4", 2, []), "data2": ("data2", 2, []),
           "zero2": ("dp2", 1, ["--use-zero", "2"]), "zero3": ("dp2", 1, ["--use-zero", "3"]),
           "tp2zero1": ("tp2dp2", 1, ["--use-zero", "1"]), "pp2": ("pp2", 2, []), "tp2pp2": ("tp2pp2", 2, [])}


def moved(bench):
    """A checkpoint of every layout is loaded under every other one; steps 4 to 6 are those of one rank, which was not stopped.
    Without its moments a checkpoint is refused, unless it is told to reset them."""
    bound = 2e-5  # orders of sums differ
    for case in "mlp", "gpt2":
        programs, runs = {}, {}
        for name, (plan, accumulate, options) in LAYOUTS.items():
            if case == "gpt2" and name not in ("one", "tp2", "zero3", "tp2pp2"):
                continue
            programs[name] = bench.compile(f"{case}-{name}", plan, case, ["--optimizer", "adamw:lr=0.001", *options], accumulate)
            runs[name] = programs[name].train(6, "--checkpoint-dir", bench.path(f"{case}-{name}.ckpt"), "--checkpoint-every", "3")
        whole = numbers(runs["one"])
        for source in programs:
            for target, program in programs.items():
                directory = bench.path(f"{case}-{source}-{target}")
                shutil.copytree(bench.path(f"{case}-{source}.ckpt/step-3"), os.path.join(directory, "step-3"))
                lines = program.train(6, "--checkpoint-dir", directory, "--resume", "latest")
                where = f"{case}: {source} under {target}"
                expect([line["step"] for line in lines] == [4, 5, 6], where)
                for line, expected in zip(lines, whole[3:]):
                    expect(abs(line["loss"] - expected["loss"]) <= bound * abs(expected["loss"]), f"{where}: {line}, not {expected}")
                if source == target:
                    expect(numbers(lines) == numbers(runs[source][3:]), f"{where}: other bits")
                shutil.rmtree(directory)
    reset(bench)


# How the positions of a sequence are divided, and how many scale units there are. The rows of the table of positions are a parameter.
POSITIONS = {"one": ("dp", 1, []), "ordered": ("context:context=2", 1, []), "mirrored": ("context:context=2,cut=mirrored", 1, []),
             "mirrored zero3": ("hybrid:tensor=2,context=2,cut=mirrored", 2, ["--sequence-parallel", "--use-zero", "3"])}


def mirrored(bench):
    """The same for sequences whose parts are two pieces for each rank, in a GPT-2 of 2 x 16 tokens."""
    source, bound = random.Random(5), 2e-5
    files = {name: [[source.randrange(96) for _ in range(16)] for _ in range(12)] for name in ("input_ids", "labels")}
    data = []
    for name, rows in files.items():
        write_npy(bench.path(f"{name}.npy"), rows)
        data += ["--data", f"{name}={bench.path(name)}.npy"]
    programs, runs = {}, {}
    for name, (policy, units, options) in POSITIONS.items():
        bench.call("compile", GPT2, "-o", bench.path(name), "-q", "--train", *plan_of(f"{policy}@{units}").options,
                   "--dim", "batch=1", "--dim", "seq=16", "--accumulate", str(2 // units), "--loss", "cross_entropy:logits=logits,labels=labels",
                   "--optimizer", "adamw:lr=0.001", *options)
        programs[name] = Program(bench, name, None)
        runs[name] = programs[name].train(4, "--checkpoint-dir", bench.path(f"{name}.ckpt"), "--checkpoint-every", "2", data=data)
    for source, target in itertools.product(programs, repeat=2):
        directory = bench.path(f"{source} to {target}")
        shutil.copytree(bench.path(f"{source}.ckpt/step-2"), os.path.join(directory, "step-2"))
        lines = programs[target].train(4, "--checkpoint-dir", directory, "--resume", "latest", data=data)
        for line, expected in zip(lines, runs["one"][2:], strict=True):
            expect(abs(line["loss"] - expected["loss"]) <= bound * abs(expected["loss"]), f"{source} under {target}: {line}, not {expected}")
        expect(source != target or numbers(lines) == numbers(runs[source][2:]), f"{source} under {target}: other bits")


def same_rates(found, expected, what):
    expect(len(found) == len(expected) and all(abs(a - b) <= 1e-12 for a, b in zip(found, expected)), f"{what}: {found}, not {expected}")


def schedules(bench):
    """--lr-schedule of train, in place of the compiled one: the rates of transformers (record_schedules.py)."""
    program = bench.compile("schedules", "one", options=["--optimizer", "sgd:lr=0.25"])
    with open(os.path.join(HERE, "schedules.json"), encoding="ascii") as file:
        recorded_rates = json.load(file)
    for schedule, rates in recorded_rates.items():
        found = [line["lr"] for line in program.train(len(rates), "--lr-schedule", schedule, "--lr", "0.25")]
        same_rates(found, rates, schedule)
    for schedule, said in {"wsd:steps=4": "wsd needs decay=NUMBER", "wsd:steps=4,decay=5": "warmup and decay are more than all steps",
                           "linear:steps=4,warmup=4": "warmup must be less than steps", "cosine:steps=2.5": "a whole number of steps",
                           "cosine:steps=9,min=2": "from 0 to 1", "linear:step=3": "linear has no option 'step'", "sine": "unknown learning-rate schedule 'sine'; the schedules are",
                           "wsd:steps=4,decay=0": "decay of wsd must be at least 1", "linear:steps=1,": "linear has no option ''"}.items():
        found = program.train(1, "--lr-schedule", schedule, status=2)
        expect(said in found, f"{schedule}: {found}")
    directory = ["--checkpoint-dir", bench.path("made/with/schedules.ckpt")]
    program.train(2, *directory, "--lr-schedule", "linear:steps=2")
    found = [line["lr"] for line in program.train(4, *directory, "--resume", "latest", "--lr-schedule", "linear:steps=8")]
    same_rates(found, [0.25 * 6 / 8, 0.25 * 5 / 8], "resumed")


def reset(bench):
    """A run with SGD begins with the parameters of one with AdamW, which it otherwise refuses."""
    directory = bench.path("reset.ckpt")
    shutil.copytree(bench.path("mlp-tp2.ckpt/step-3"), os.path.join(directory, "step-3"))
    program = bench.compile("reset", "one", options=["--optimizer", "sgd:lr=0.01"], accumulate=2)
    said = program.train(6, "--checkpoint-dir", directory, "--resume", "latest", status=8)
    expect("belongs to another program, 'model/_', whose optimizer is 'adamw" in said and "not 'sgd:lr=0.01'" in said, said)
    clipped = bench.compile("reset-clipped", "one", options=["--optimizer", "sgd:lr=0.01", "--clip-grad-norm", "1"], accumulate=2)
    program.train(3, "--checkpoint-dir", bench.path("plain.ckpt"))
    said = clipped.train(6, "--checkpoint-dir", bench.path("plain.ckpt"), "--resume", "latest", status=8)
    expect("whose clip-grad-norm is unset, not '1'" in said, said)
    named = bench.compile("reset-named", "one", options=["--optimizer", "sgd:lr=0.01", "--moments-dtype", "f32"], accumulate=2)
    named.train(4, "--checkpoint-dir", bench.path("plain.ckpt"), "--resume", "latest")
    said = program.train(6, status=2, env={"OMPI_COMM_WORLD_SIZE": "2"})
    expect("E0901" in said and "mpirun started rankc '2' times, and each would start all ranks" in said, said)
    lines = program.train(1, "--checkpoint-dir", directory, "--resume", "latest", "--reset-optimizer", "--lr", "0")
    expect([line["step"] for line in lines] == [1], f"{lines}")
    before, after = (merge(os.path.join(directory, step), "parameters") for step in ("step-3", "step-1"))
    expect(before == after, "the run did not begin with the checkpoint's parameters")


def converted(bench):
    """rankc ckpt: a checkpoint written for another plan is the one that is loaded under that plan, bit for bit; merged parameters are
    those that the files describe; a changed bit is found, and its tensor named."""
    programs = {name: bench.compile(name, plan, "gpt2", ["--optimizer", "adamw:lr=0.001", *options], accumulate)
                for name, (plan, accumulate, options) in LAYOUTS.items() if name in ("tp2", "tp3", "tp2pp2", "tp2zero1")}
    for source, program in programs.items():
        kept = bench.path(f"{source}.ckpt")
        program.train(2, "--checkpoint-dir", kept)
        expect("are intact" in bench.call("ckpt", "verify", kept).stdout, source)
        merged = bench.path(f"merged/{source}/all.safetensors")
        bench.call("ckpt", "merge", kept, merged)
        expect(plain(merged) == merge(f"{kept}/step-2", "parameters"), f"{source}: merged")
        os.makedirs(bench.path(f"{source}-dedup"))
        bench.call("ckpt", "dedup", kept, bench.path(f"{source}-dedup/step-2"))
        expect("equal bit for bit" in bench.call("ckpt", "diff", kept, bench.path(f"{source}-dedup")).stdout, f"{source}: dedup")
        for target, other in programs.items():
            written, moved_to = bench.path(f"{source}-{target}"), bench.path(f"{source}-{target}-loaded")
            os.makedirs(written)
            bench.call("ckpt", "reshard", kept, other.directory, f"{written}/step-2")
            expect("equal bit for bit" in bench.call("ckpt", "diff", kept, written).stdout, f"{source}, {target}: diff")
            if source == target:
                equal_folders(f"{written}/step-2", f"{kept}/step-2")
            shutil.copytree(f"{kept}/step-2", f"{moved_to}/step-2")
            lines = [other.train(3, "--checkpoint-dir", directory, "--resume", "latest") for directory in (written, moved_to)]
            expect(numbers(lines[0]) == numbers(lines[1]), f"{source} written for {target}: other numbers")
            equal_folders(f"{written}/step-3", f"{moved_to}/step-3")
    broken = bench.path("broken")
    shutil.copytree(bench.path("tp2.ckpt"), broken)
    with open(f"{broken}/step-2/parameters-1.safetensors", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    said = bench.call("ckpt", "verify", broken, status=8).stderr
    expect("parameters-1.safetensors' is damaged: tensor '" in said and "differs from its hash" in said, said)


def plain(path):
    """{name: (shape, values)} of a safetensors file of f32."""
    with open(path, "rb") as stream:
        content = stream.read()
    length, = struct.unpack("<Q", content[:8])
    tensors = {}
    for name, entry in json.loads(content[8:8 + length]).items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = (entry["shape"], list(struct.unpack(f"<{(end - begin) // 4}f", content[begin:end])))
    return tensors


CHECKS = [resume, rebuilt, parts, killed, damaged, flipped, format_1, broadcast, shuffled, evaluated, averaged, told, units, resized, resliced, restaged, recomputed, initial, overlapped, accumulated, refused, cut,
          loaded, moved, mirrored, converted, schedules]


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--kill-at")
    parser.add_argument("--every", type=int, default=1, help="killed: calls of a save in the background that are passed over, plus 1")
    parser.add_argument("names", nargs="*", default=[check.__name__ for check in CHECKS])
    options = parser.parse_args()

    def run(check, work):
        bench = Bench(options.rankc, options.kill_at, work)
        bench.every = options.every
        check(bench)
        return "ok"
    return report((check.__name__, functools.partial(run, check)) for check in CHECKS if check.__name__ in options.names)


if __name__ == "__main__":
    sys.exit(main())
