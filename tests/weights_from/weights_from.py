"""--weights-from: initializers replaced by the tensors of safetensors files, whose bytes are written here.

    weights_from.py --rankc RANKC [NAME...]

Outputs are compared with those that PyTorch gave (tests/models), or bit for bit with the model that has the values itself."""
import json
import os
import re
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import rankc_test  # noqa: E402
from rankc_test import Failed, expect, needed, printed, run_named  # noqa: E402

import numpy as np

with needed():
    import onnx
    from onnx import numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS, EXPORTS = os.path.join(HERE, "..", "models"), os.path.join(HERE, "..", "training", "exports")
TYPES = {"float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64", "bool": "BOOL"}


def header_of(tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": TYPES[values.dtype.name], "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    return header


def write(path, tensors, header=None, length=None, data=None):
    """The file, or one with another header (an object or bytes), length field or data."""
    header = header_of(tensors) if header is None else header
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text) if length is None else length) + text)
        file.write(b"".join(values.tobytes() for values in tensors.values()) if data is None else data)
    return path


class Bench(rankc_test.Bench):
    def call(self, *words, **how):
        return "".join(printed(self.rankc, *words, **how))

    def save(self, model, name="model.onnx"):
        onnx.save(model, self.path(name))
        return self.path(name)

    def outputs(self, model, inputs, *options, out="out"):
        self.call("compile", model, "-q", "-o", self.path(out), "--reuse", "moo", *options)
        self.call("run", self.path(out), *inputs, "--output-dir", self.path("results"))
        return {name[:-4]: np.load(self.path(f"results/{name}")) for name in sorted(os.listdir(self.path("results"))) if name.endswith(".npy")}


def weights_of(model):
    return {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}


def is_weight(values):
    return values.dtype.kind == "f" and values.size > 1


def cleared(model):
    """The model with zeros as weights."""
    for initializer in model.graph.initializer:
        values = numpy_helper.to_array(initializer)
        if is_weight(values):
            initializer.CopyFrom(numpy_helper.from_array(np.zeros_like(values), initializer.name))
    return model


def recorded(name):
    """Model, weights, options and inputs of tests/models."""
    folder = os.path.join(MODELS, name)
    dims = open(f"{folder}/dims").read().split() if os.path.exists(f"{folder}/dims") else []
    inputs = [word for file in sorted(os.listdir(f"{folder}/inputs")) for word in ("--input", f"{file[:-4]}={folder}/inputs/{file}")]
    model = onnx.load(f"{folder}/model.onnx")
    tensors = {key: values for key, values in weights_of(model).items() if is_weight(values)}
    return model, tensors, [word for dim in dims for word in ("--dim", dim)], inputs, f"{folder}/outputs"


def same_as_torch(results, folder, what):
    for file in os.listdir(folder):
        expected = np.load(f"{folder}/{file}")
        off = np.abs(results[file[:-4]] - expected).max() / max(1, np.abs(expected).max())
        expect(off < 2e-5, f"{what}: {file} is off by {off}")


def pytorch(bench):
    """GPT-2 without values of its own, under plans; the weights by reference and copied."""
    model, tensors, dims, inputs, outputs = recorded("gpt2")
    path, file = bench.save(cleared(model)), write(bench.path("w.safetensors"), tensors)
    for options in (["--pas", "dp"], ["--pas", "tp:tensor=2"], ["--pas", "tp:tensor=2", "--weights", "copy"]):
        same_as_torch(bench.outputs(path, inputs, *dims, "--weights-from", file, *options), outputs, " ".join(options))
        bench.call("verify", bench.path("out"), "-q")
    os.unlink(file)  # the result has copies
    bench.call("run", bench.path("out"), *inputs)


def sharded(bench):
    """The index of a model in three files; a file that it names may be a link only if the user says so."""
    model, tensors, dims, inputs, outputs = recorded("gpt2")
    path, names = bench.save(cleared(model)), list(tensors)
    where = {name: f"model-{i % 3 + 1:05}-of-00003.safetensors" for i, name in enumerate(names)}
    for file in set(where.values()):
        write(bench.path(file), {name: tensors[name] for name in names if where[name] == file})
    index = bench.path("model.safetensors.index.json")
    with open(index, "w") as file:
        json.dump({"metadata": {"total_size": 1}, "weight_map": where}, file)
    same_as_torch(bench.outputs(path, inputs, *dims, "--weights-from", index, "--pas", "tp:tensor=2"), outputs, "sharded")
    os.rename(bench.path(where[names[0]]), bench.path("blob"))
    os.symlink("blob", bench.path(where[names[0]]))
    expect("E0362" in bench.call("compile", path, *dims, "-o", bench.path("o"), "--weights-from", index, status=3), "a link")
    bench.call("plan", path, *dims, "--weights-from", index, "--allow-links")


def converted(bench):
    """Other float types: the bits of a model that has the converted values."""
    model, tensors, dims, inputs, _ = recorded("gpt2")
    stored = {name: values.astype((np.float64, np.float16, np.float32)[i % 3]) for i, (name, values) in enumerate(tensors.items())}
    for initializer in model.graph.initializer:
        if initializer.name in stored:
            initializer.CopyFrom(numpy_helper.from_array(stored[initializer.name].astype(np.float32), initializer.name))
    own = bench.outputs(bench.save(model, "own.onnx"), inputs, *dims, out="own")
    other = bench.outputs(bench.save(cleared(model)), inputs, *dims, "--weights-from", write(bench.path("w.safetensors"), stored))
    for name, values in own.items():
        expect(np.array_equal(values, other[name]), f"{name} differs")


def transposed(bench):
    """Exports whose weights the exporter transposed: its metadata names the parameter. A map file does the same for others."""
    folder = os.path.join(EXPORTS, "convnext_default")
    model = onnx.load(f"{folder}/model.onnx")
    sources = {}
    for info in model.graph.value_info:
        found = re.search(rb"optimizer.folded_from\x12.\['([^',]*)'\]", info.SerializeToString())  # onnx 1.12 has no metadata_props
        if found:
            sources[info.name] = found.group(1).decode()
    tensors, moved = {}, []
    for name, values in weights_of(model).items():
        if not is_weight(values) or name.startswith("val_") and name not in sources:
            continue
        if values.ndim == 2 and name in sources:
            moved.append(name)
        tensors[sources.get(name, name)] = np.ascontiguousarray(values.T) if name in moved else values
    expect(len(moved) >= 4, f"{len(moved)} weights are transposed")
    own = bench.call("plan", f"{folder}/model.onnx", "--json")
    path, file, names = bench.save(cleared(model)), write(bench.path("w.safetensors"), tensors), bench.path("map")
    with open(names, "w") as out:
        out.write('keep "val_*"\n')
    text = bench.call("plan", path, "--weights-from", f"{file}:map={names}", "--dump-after", "tie")
    for name in moved:
        expect(re.search(rf'"{re.escape(name)}" f32\[[0-9,]*\] @1', text), f"{name} is not read from the file")
    expect(json.loads(own)["format"], own)
    # by a map file, without metadata
    for info in model.graph.value_info:
        info.DiscardUnknownFields()
    path = bench.save(model)
    expect("are not in the file: 'val_" in bench.call("plan", path, "--weights-from", file, status=3), "without metadata or map")
    with open(names, "w") as out:
        out.write("# names\n" + "".join(f'"{name}" = "{sources[name]}" transpose\n' for name in moved) + 'keep "val_*"  # constants\n')
    bench.call("plan", path, "--weights-from", f"{file}:map={names}")


def values(bench):
    """Transposed, renamed by a prefix, tied, and in place of an input: the bits of the model with these values."""
    rng = np.random.default_rng(0)
    a, b, tied = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 4), (6, 5), (5, 5)))
    make = onnx.helper.make_node
    nodes = [make("MatMul", ["x", "a"], ["h"]), make("MatMul", ["h", "m.b"], ["i"]), make("MatMul", ["i", "t1"], ["j"]), make("MatMul", ["j", "t2"], ["y"])]
    tensor = onnx.TensorProto.FLOAT

    def model(stored, inputs=()):
        graph = onnx.helper.make_graph(
            nodes, "g", [onnx.helper.make_tensor_value_info("x", tensor, [3, 4])] + [onnx.helper.make_tensor_value_info(n, tensor, s) for n, s in inputs],
            [onnx.helper.make_tensor_value_info("y", tensor, [3, 5])], [numpy_helper.from_array(v, n) for n, v in stored.items()])
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)

    np.save(bench.path("x.npy"), rng.standard_normal((3, 4)).astype(np.float32))
    given = ["--input", "x=" + bench.path("x.npy")]
    own = bench.outputs(bench.save(model({"a": np.ascontiguousarray(a.T), "m.b": b, "t1": tied, "t2": np.ascontiguousarray(tied.T)}), "own.onnx"), given, out="own")
    zeros = {"a": np.zeros((4, 6), np.float32), "t1": np.zeros((5, 5), np.float32), "t2": np.zeros((5, 5), np.float32)}
    file = write(bench.path("w.safetensors"), {"a": a, "model.b": b, "t": tied, "more": b})
    with open(bench.path("map"), "w") as out:
        out.write('"a" = "a" transpose\nprefix "m." = "model."\n"t1"="t"\n"t2" = "t" transpose\nignore "mor?"\n')
    path = bench.save(model(zeros, [("m.b", [6, "n"])]), "other.onnx")
    for plan in ("dp", "tp:tensor=2"):
        other = bench.outputs(path, given, "--weights-from", f"{file}:map={bench.path('map')}", "--pas", plan)
        expect(np.abs(own["y"] - other["y"]).max() < 1e-6 * np.abs(own["y"]).max(), f"{plan}: {own['y']} is not {other['y']}")
    said = bench.call("show", bench.path("out"), "--json")
    expect(json.loads(said)["format"] == 1, said)
    text = bench.call("plan", path, "--weights-from", f"{file}:map={bench.path('map')}", "--train", "--loss", "mse", "--dump-after", "dce")
    expect(text.count("@1") == 3, "the tied matrix is one weight:\n" + text)


def external(bench):
    """A model whose own data is not there."""
    model, tensors, dims, inputs, outputs = recorded("gpt2")
    onnx.save_model(model, bench.path("m.onnx"), save_as_external_data=True, location="m.data", size_threshold=0)
    small = {name: value for name, value in weights_of(onnx.load(os.path.join(MODELS, "gpt2", "model.onnx"))).items() if name not in tensors}
    os.unlink(bench.path("m.data"))
    file = write(bench.path("w.safetensors"), {**tensors, **small})
    same_as_torch(bench.outputs(bench.path("m.onnx"), inputs, *dims, "--weights-from", file), outputs, "external")


def reuse(bench):
    model, tensors, dims, _, _ = recorded("mlp")
    path, file, names = bench.save(model), write(bench.path("w.safetensors"), tensors), bench.path("map")
    with open(names, "w") as out:
        out.write("# none\n")
    command = ["compile", path, "-q", "-o", bench.path("out"), "--no-build", *dims]
    bench.call(*command, "--weights-from", f"{file}:map={names}")
    bench.call(*command, "--weights-from", f"{file}:map={names}")
    with open(names, "a") as out:
        out.write("# more\n")
    expect("names of weights: was" in bench.call(*command, "--weights-from", f"{file}:map={names}", status=8), "the map")
    with open(names, "w") as out:
        out.write("# none\n")
    first = next(iter(tensors))
    write(file, {**tensors, first: tensors[first] + 1})
    expect("external data 1" in bench.call(*command, "--weights-from", f"{file}:map={names}", status=8), "the file")
    expect("external data 1" in bench.call(*command, status=8), "without")


def refused(bench):
    model, tensors, dims, _, _ = recorded("mlp")
    path, names, file = bench.save(model), list(tensors), bench.path("w.safetensors")
    first, good = names[0], header_of(tensors)
    entry = good[first]
    data = b"".join(values.tobytes() for values in tensors.values())
    without = {name: values for name, values in tensors.items() if name != first}
    odd = np.zeros(tensors[first].shape[::-1] if tensors[first].ndim == 2 and len(set(tensors[first].shape)) > 1 else (3, 7), np.float32)

    def changed(**more):
        return {**good, first: {**entry, **more}}

    rows = [
        ("missing", lambda: write(file, without), 3, r"E0395\].*not in the file: '" + re.escape(first)),
        ("unexpected", lambda: write(file, {**tensors, "more": odd}), 3, r"E0395\].*not in the model: 'more'"),
        ("shape", lambda: write(file, {**tensors, first: odd}), 3, r"E0395\].*the tensor is \["),
        ("type", lambda: write(file, {**tensors, first: tensors[first].astype(np.int64)}), 3, r"E0395\].*of type i64"),
        ("empty", lambda: open(file, "wb").close(), 3, r"E0393\]"),
        ("short", lambda: open(file, "wb").write(b"1234567"), 3, r"E0393\]"),
        ("length", lambda: write(file, tensors, length=1 << 60), 3, r"E0393\].*size limit"),
        ("huge", lambda: write(file, tensors, length=(1 << 64) - 1), 3, r"E0393\]"),
        ("no object", lambda: write(file, tensors, b"[1]"), 3, r"E0393\].*not a JSON object"),
        ("no json", lambda: write(file, tensors, b"{\"a\""), 3, r"E0393\]"),
        ("deep", lambda: write(file, tensors, b"[" * 100000), 3, r"E0393\]"),
        ("utf-8", lambda: write(file, tensors, b"{\"\xff\": 1}"), 3, r"E0393\]"),
        ("twice", lambda: write(file, tensors, (json.dumps(good)[:-1] + f', "{first}": {json.dumps(entry)}}}').encode()), 3, r"E0393\]"),
        ("overlap", lambda: write(file, tensors, {**good, "more": entry}), 3, r"E0393\].*overlap"),
        ("gap", lambda: write(file, tensors, {k: v for k, v in good.items() if k != first}), 3, r"E0393\].*(gaps|bytes)"),
        ("behind", lambda: write(file, tensors, data=data[:-4]), 3, r"E0393\].*bytes"),
        ("more data", lambda: write(file, tensors, data=data + b"1234"), 3, r"E0393\].*bytes"),
        ("offsets", lambda: write(file, tensors, changed(data_offsets=[4, 0])), 3, r"E0393\].*does not match"),
        ("negative", lambda: write(file, tensors, changed(data_offsets=[-8, entry["data_offsets"][1] - 8])), 3, r"E0393\]"),
        ("no offsets", lambda: write(file, tensors, changed(data_offsets=None)), 3, r"E0393\]"),
        ("dimension", lambda: write(file, tensors, changed(shape=[-1, 4])), 3, r"E0393\].*dimension"),
        ("dimensions", lambda: write(file, tensors, changed(shape=[1] * 100)), 3, r"E0393\].*at most 8"),
        ("product", lambda: write(file, tensors, changed(shape=[1 << 40, 1 << 40])), 3, r"E0393\]"),
        ("dtype", lambda: write(file, tensors, changed(dtype="F12")), 3, r"E0393\].*unknown data type"),
        ("no dtype", lambda: write(file, tensors, changed(dtype=7)), 3, r"E0393\]"),
        ("NUL", lambda: write(file, tensors, {**good, "a\0b": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}), 3, r"E0393\].*NUL"),
    ]
    for name, make, status, says in rows:
        make()
        said = bench.call("plan", path, *dims, "--weights-from", file, status=status)
        expect(re.search(says, said) and said.count("error[") == 1, f"{name}: {said}")
    write(file, tensors)
    for text, says in (
            ('"a"', "'=' is expected"), ('"a" = "b" turned', "unexpected text"), ('"a', "unclosed"), ("a = b", "double quotes"), ('"a" = "none"', None),
            (f'"{first}" = "none"', "no tensor 'none'"), (f'"{first}" = "{names[1]}"\n"{first}" = "{names[1]}"', "mapped twice"), ('keep "zzz*"', "match nothing"),
            ("keep", "double quotes"), ("\0", "NUL"), (f'"{first}" = "{first}" transpose', "transposed" if tensors[first].ndim == 2 else "but the")):
        with open(bench.path("map"), "w") as out:
            out.write("# first line\n" + text)
        said = bench.call("plan", path, *dims, "--weights-from", f"{file}:map={bench.path('map')}", status=3)
        expect(re.search(says or "match nothing", said), f"{text}: {said}")
    for index, says in (({}, "no weight_map"), ({"weight_map": []}, "no weight_map"), ({"weight_map": {first: "../w.safetensors"}}, "same directory"),
                        ({"weight_map": {first: 1}}, "same directory"), ({"weight_map": {"none": "w.safetensors"}}, "has no tensor 'none'"), ([], "no weight_map")):
        with open(bench.path("i.json"), "w") as out:
            json.dump(index, out)
        expect(says in bench.call("plan", path, *dims, "--weights-from", bench.path("i.json"), status=3), f"{index}")
    bench.call("plan", path, *dims, "--weights-from", bench.path("none"), status=6)
    bench.call("plan", path, *dims, "--weights-from", bench.work, status=6)
    bench.call("plan", path, *dims, "--weights-from", f"{file}:map={bench.path('none')}", status=6)


CASES = {case.__name__: case for case in (pytorch, sharded, converted, transposed, values, external, reuse, refused)}


if __name__ == "__main__":
    sys.exit(run_named(__doc__, CASES, Bench))
