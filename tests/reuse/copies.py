#!/usr/bin/python3
"""Results that hold the weights themselves: copies.py --rankc RANKC

`compile --weights copy`, the model deleted, the result moved: it runs, trains and verifies as the one that reads the model
does, for models under plans. Checked of the files themselves, by a reader of safetensors of this test's own: which slices
there are, that each is in the model as the plan cuts it, and that none is stored twice. A bit that flips is told by the
tensor's name."""
import json
import os
import re
import shutil
import struct

import numpy

from harness import HERE, MODELS, compile_command, dims_of, expect, flip_bit, instance, manifest_of, parse, plan_of, rankc, snapshot, sweep

TRAINING = os.path.join(os.path.dirname(HERE), "training")
PLANS = ["one", "tp2", "tp3", "pp2", "tp2data2", "dp2"]
QUICK = {"CFLAGS": os.environ.get("CFLAGS", "-O0")}
TYPES = {"f32": "<f4", "f64": "<f8", "fp16": "<f2", "i64": "<i8", "i32": "<i4", "bool": "|b1", "u8": "|u1"}
NAMES = {"f32": "F32", "f64": "F64", "fp16": "F16", "i64": "I64", "i32": "I32", "bool": "BOOL", "u8": "U8"}


def compiled(program, model, out, *options):
    return rankc(program, *compile_command(model, out, *options), env=QUICK).must(0, reused="nothing")


def own_model(name, work):
    """A copy of the model that can be deleted."""
    os.makedirs(f"{work}/model", exist_ok=True)
    return shutil.copy(os.path.join(MODELS, name, "model.onnx"), f"{work}/model/model.onnx")


def inputs_of(name):
    folder = os.path.join(MODELS, name, "inputs")
    return [word for file in sorted(os.listdir(folder)) for word in ("--input", f"{file[:-4]}={folder}/{file}")]


def outputs(program, name, result, into):
    rankc(program, "run", result, *inputs_of(name), "--output-dir", into, "--threads", "1").must(0)
    return {file: open(f"{into}/{file}", "rb").read() for file in sorted(os.listdir(into))}


def moved(out, work):
    """The result elsewhere, without the model it was made of."""
    shutil.rmtree(f"{work}/model")
    shutil.move(out, f"{work}/elsewhere/out")
    return instance(f"{work}/elsewhere/out")


# The files, read without rankc ----------------------------------------------------------------------------------------

def safetensors(path):
    """{name: (type, shape, bytes)}; the tensors cover the file without gaps."""
    with open(path, "rb") as file:
        text = file.read()
    length, = struct.unpack("<Q", text[:8])
    header, data, at = json.loads(text[8:8 + length]), text[8 + length:], 0
    for tensor in header.values():
        begin, end = tensor["data_offsets"]
        expect(begin == at, f"{path}: a gap before {begin}")
        at = end
    expect(at == len(data), f"{path}: {len(data) - at} bytes behind the tensors")
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def part(array, dim, ways, blocks, unit, place):
    """Note [Cuts] of runtime/base/shape/part.h: of every block the place's share of its units, larger shares first."""
    size = array.shape[dim] // blocks
    share, larger = divmod(size // unit, ways)
    begin, end = ((p * share + min(p, larger)) * unit for p in (place, place + 1))
    return numpy.take(array, [b * size + i for b in range(blocks) for i in range(begin, end)], axis=dim)


def check_slices(result, model):
    """Every slice is the model's bytes, cut as the manifest says; what is stored is listed, once. Returns the bytes of weights
    that are the model's, and those of all files."""
    manifest = manifest_of(result)
    folder, seen, of_model = f"{result}/weights", set(), 0
    files = {int(re.search(r"\d+", name)[0]): safetensors(f"{folder}/{name}") for name in os.listdir(folder)}
    for weight in manifest["weights"]:
        ways = [cut["ways"] for cut in weight["cuts"]]
        expect(len(weight["slices"]) == numpy.prod(ways, dtype=int), f"{weight['name']}: {len(weight['slices'])} slices")
        for index, entry in enumerate(weight["slices"]):
            dtype, shape, data = files[entry["shard"]][weight["name"]]
            expect((entry["shard"], weight["name"]) not in seen, f"{weight['name']} is listed twice")
            seen.add((entry["shard"], weight["name"]))
            if weight["file"] < 0:
                continue
            of_model += len(data)
            whole = numpy.frombuffer(model, TYPES[weight["dtype"]], numpy.prod(weight["shape"], dtype=int), weight["offset"])
            want, left = whole.reshape(weight["shape"]), index
            for cut in weight["cuts"]:
                want = part(want, cut["dim"], cut["ways"], cut["blocks"], cut["unit"], left % cut["ways"])
                left //= cut["ways"]
            expect((dtype, shape, data) == (NAMES[weight["dtype"]], list(want.shape), want.tobytes()),
                   f"slice {index} of {weight['name']} is not what the model has there")
    stored = {(shard, name) for shard, tensors in files.items() for name in tensors}
    expect(stored == seen, f"not listed: {sorted(stored - seen)[:3]}")
    return of_model, sum(os.path.getsize(f"{folder}/{name}") for name in os.listdir(folder))


# Cases ----------------------------------------------------------------------------------------------------------------

def self_contained(name, plan, *options):
    """The moved result without a model computes what the result that reads the model does, bit for bit; and verifies."""
    def case(program, work):
        model = own_model(name, work)
        os.makedirs(f"{work}/elsewhere")
        options_here = [*dims_of(os.path.join(MODELS, name)), *plan_of(plan).options, *options]
        compiled(program, model, f"{work}/reference", *options_here)
        compiled(program, model, f"{work}/out", *options_here, "--weights", "copy")
        want = outputs(program, name, f"{work}/reference", f"{work}/want")
        with open(model, "rb") as file:
            check_slices(instance(f"{work}/out"), file.read())
        result = moved(f"{work}/out", work)
        expect(outputs(program, name, result, f"{work}/got") == want, "other outputs")
        rankc(program, "verify", result).must(0)
        rankc(program, "show", result).must(0)
        rankc(program, "run", f"{work}/reference", *inputs_of(name)).must(6, "E0608")
    return case


def losses(program, result, data, log):
    rankc(program, "train", result, *data, "--steps", "3", "--log", log, "--threads", "1").must(0)
    with open(log) as lines:
        return [json.loads(line)["loss"] for line in lines]


def training(case_name, plan, *options):
    """Training begins with the same parameters: the same losses, step by step."""
    def case(program, work):
        folder = os.path.join(TRAINING, case_name)
        os.makedirs(f"{work}/model")
        os.makedirs(f"{work}/elsewhere")
        model = shutil.copy(os.path.join(folder, "model.onnx"), f"{work}/model/model.onnx")
        with open(os.path.join(folder, "reference.json")) as file:
            reference = json.load(file)
        data = [word for i in reference["inputs"] for word in ("--data", f"{i}={folder}/{i}.npy")]
        how = ["--train", *plan_of(plan).options, "--optimizer", "sgd:lr=0.05", *reference["options"], *options]
        compiled(program, model, f"{work}/reference", *how)
        compiled(program, model, f"{work}/out", *how, "--weights", "copy")
        want = losses(program, f"{work}/reference", data, f"{work}/want.jsonl")
        result = moved(f"{work}/out", work)
        got = losses(program, result, data, f"{work}/got.jsonl")
        expect(got == want and len(got) == 3, f"{got}, not {want}")
        rankc(program, "verify", result).must(0)
    return case


def each_once(program, work):
    """What is stored is the model's weights, each once, and headers: no more under 3 ranks, two units or a data axis."""
    model = own_model("mlp", work)
    with open(model, "rb") as file:
        text = file.read()
    sizes = {}
    for name, plan in ((name, plan_of(name).options) for name in PLANS):
        out = f"{work}/{name}"
        compiled(program, model, out, *plan, "--weights", "copy", "--no-build")
        sizes[name], total = check_slices(instance(out), text)
        slices = sum(len(weight["slices"]) for weight in manifest_of(out)["weights"])
        overhead = total - sizes[name]
        expect(overhead <= 128 * slices + 32 * len(os.listdir(f"{instance(out)}/weights")), f"{name}: {overhead} bytes of headers")
    expect(len(set(sizes.values())) == 1, f"{sizes}")
    # 4 matrices and 4 vectors, as PyTorch counts them: tests/models/export.py.
    expect(set(sizes.values()) == {4 * parameters_of(text)}, f"{sizes}, of {parameters_of(text)} parameters")


def parameters_of(text):
    import onnx
    return sum(int(numpy.prod(i.dims, dtype=int)) for i in onnx.load_from_string(text).graph.initializer)


def same_bytes(program, work):
    """Twice the same; and a switch between copy and reference is another plan key."""
    model = own_model("gpt2", work)
    how = [*dims_of(os.path.join(MODELS, "gpt2")), *plan_of("tp2").options, "--no-build"]
    for out in ("one", "two"):
        compiled(program, model, f"{work}/{out}", *how, "--weights", "copy")
    expect(snapshot(f"{work}/one") == snapshot(f"{work}/two"), "two compiles differ")
    command = compile_command(model, f"{work}/one", *how)
    rankc(program, *command, "--weights", "copy").must(0, reused="all")
    done = rankc(program, *command).must(8, "E0801")
    expect("weights: was 'copy', is 'reference'" in done.stderr, done.stderr)
    rankc(program, *command, "--reuse", "moo").must(0, reused="graph")
    expect(not [f for f in snapshot(instance(f"{work}/one")) if f.endswith(".safetensors")], "slices are left over")
    rankc(program, *command, "--reuse", "moo", "--weights", "copy").must(0, reused="graph")
    expect(snapshot(f"{work}/one") == snapshot(f"{work}/two"), "there and back differs")


def flipped(program, work):
    """A bit that flips in a slice is told by run, verify and compile; a header that lies is refused."""
    model = own_model("mlp", work)
    command = compile_command(model, f"{work}/out", *plan_of("tp3").options, "--weights", "copy")
    rankc(program, *command, env=QUICK).must(0, reused="nothing")
    result = instance(f"{work}/out")
    path = f"{result}/weights/slices-1.safetensors"
    kept = f"{work}/kept"
    shutil.copy(path, kept)
    with open(path, "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    for name, tensor in header.items():
        flip_bit(path, 8 + length + tensor["data_offsets"][0] + 1, 3)
        for verb in (["run", result, *inputs_of("mlp")], ["verify", result]):
            done = rankc(program, *verb).must(8, "E0802")
            expect(verb[0] == "verify" or repr(name) in done.stderr, f"{name} is not named: {done.stderr}")
            expect("slices-1.safetensors" in done.stderr, done.stderr)
        rankc(program, *command, env=QUICK).must(8, "E0802")
        shutil.copy(kept, path)
    hostile = {"longer than the file": struct.pack("<Q", 1 << 40), "no JSON": struct.pack("<Q", 4) + b"{{{{",
               "no tensors": struct.pack("<Q", 2) + b"{}", "empty": b""}
    for what, text in hostile.items():
        with open(path, "wb") as file:
            file.write(text)
        for verb in (["run", result, *inputs_of("mlp")], ["verify", result]):
            done = rankc(program, *verb)
            expect((done.status, done.error) == (8, "E0802"), f"{what}, {verb[0]}: {done.status} {done.stderr}")
    os.remove(path)
    rankc(program, "run", result, *inputs_of("mlp")).must(6, "E0601")
    os.symlink(kept, path)
    rankc(program, "run", result, *inputs_of("mlp")).must(8, "E0802")


def compiled_again(program, work):
    """graph.rir of a result can be compiled, from copies too; without a model the model cannot."""
    name = "gpt2"
    model = own_model(name, work)
    os.makedirs(f"{work}/elsewhere")
    how = [*dims_of(os.path.join(MODELS, name)), *plan_of("tp2").options]
    compiled(program, model, f"{work}/out", *how, "--weights", "copy")
    want = outputs(program, name, f"{work}/out", f"{work}/want")
    result = moved(f"{work}/out", work)
    rankc(program, *compile_command(model, f"{work}/x", *how, "--weights", "copy")).must(6, "E0601")
    text = f"{result}/graph.rir"
    rankc(program, *compile_command(text, f"{work}/one", *plan_of("tp2").options)).must(2, "E0201")
    compiled(program, text, f"{work}/again", *plan_of("tp2").options, "--weights", "copy")
    expect(outputs(program, name, f"{work}/again", f"{work}/got") == want, "other outputs")
    rankc(program, "verify", f"{work}/again").must(0)
    rankc(program, "verify", "--numeric", result).must(0)


def from_reference(program, work):
    """graph.rir beside location.json is compiled from the model that this names, if it is there and as it was."""
    name = "gpt2"
    model = own_model(name, work)
    how = [*dims_of(os.path.join(MODELS, name)), *plan_of("tp2").options]
    compiled(program, model, f"{work}/out", *how)
    want = outputs(program, name, f"{work}/out", f"{work}/want")
    shutil.copytree(instance(f"{work}/out"), f"{work}/mine", symlinks=True)
    text = f"{work}/mine/graph.rir"
    compiled(program, text, f"{work}/again", *plan_of("tp2").options)
    expect(outputs(program, name, f"{work}/again", f"{work}/got") == want, "other outputs")
    rankc(program, "verify", f"{work}/again").must(0)
    compiled(program, text, f"{work}/plain")
    expect(manifest_of(f"{work}/plain")["plan_ngpus"] == 1, "the mesh is that of the plan of the result")
    shutil.copy(text, f"{work}/alone.rir")
    done = rankc(program, *compile_command(f"{work}/alone.rir", f"{work}/x")).must(3, "E0345")
    expect("help: edit graph.rir in a copy of the directory" in done.stderr, done.stderr)
    flip_bit(model, os.path.getsize(model) // 2)
    rankc(program, *compile_command(text, f"{work}/x")).must(8, "E0802")
    os.remove(model)
    rankc(program, *compile_command(text, f"{work}/x")).must(6, "E0608")


CASES = {f"{name}, {plan}": self_contained(name, plan)
         for name, plans in (("mlp", PLANS), ("gpt2", ["tp3", "pp2", "tp2data2"]), ("llama", ["tp2", "dp2"]),
                             ("bert", ["tp3"]), ("swin", ["tp2"]), ("resnet_bn", ["tp2", "pp2"]))
         for plan in plans}
CASES |= {"bit flipped": flipped, "each once": each_once, "same bytes": same_bytes, "compiled again": compiled_again,
          "graph of a reference": from_reference,
          "gpt2 in bf16, tp2": self_contained("gpt2", "tp2", "--dtype", "bf16"),
          "mlp in f64, tp3": self_contained("mlp", "tp3", "--dtype", "f64"),
          "training, one": training("mlp", "one"), "training, tp2": training("gpt2", "tp2"),
          "training, tp2data2": training("mlp", "tp2data2"),
          "training, frozen": training("gpt2", "tp2", "--param", "*wte*:frozen"),
          "training, initialized": training("gpt2", "tp2", "--init", "*wte*=normal:std=.02")}

if __name__ == "__main__":
    sweep("results with copied weights", CASES, parse(__doc__))
