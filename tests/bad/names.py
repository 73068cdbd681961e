#!/usr/bin/python3
"""Models whose names are hostile compile and compute what they should, and nothing of the names gets out.

    tests/bad/names.py --rankc BUILD/frontend/rankc [--random N [--seed S]] [--record]

A model adds a different weight at each node; nodes, values and weights are called as hostile.py says, by every single byte,
or (--random) by random bytes. It is compiled, built, and run on one rank and on two: the sums must be exact, the generated
files printable ASCII with words of the names alone, no symbol and no file foreign, manifest.json and plan.json must have the
names. Then: output
directories, instances and model files with such names; and names of up to 60,000 bytes of everything."""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import Failed, call, expect, needed, parser_of  # noqa: E402

with needed():
    import numpy
    import onnx

import models as m
from hostile import NAMES
from record import record

BITS = numpy.array([0x7FC00001, 0xFFC12345, 0x7F800000, 0xFF800000, 0x00000001, 0x80000000, 0x7F7FFFFF], "<u4")
GENERATED = re.compile(r"[\t\n -~]*")


def byte_names():
    """Every byte but NUL, as three bytes: the library takes text alone, so that bytes are put in its place later."""
    return [chr(0xE000 + b) for b in range(1, 256)]


def put_bytes(serialized):
    for b in range(1, 256):
        serialized = serialized.replace(chr(0xE000 + b).encode(), bytes([b, 0xFF, b]))
    return serialized


def random_names(n, seed):
    rng = random.Random(seed)
    parts = NAMES + [chr(rng.randrange(1, 0xD800)) for _ in range(200)] + [chr(c) for c in range(1, 128)]
    return list(dict.fromkeys("v" + "".join(rng.choices(parts, k=rng.randrange(1, 6))) for _ in range(n)))


def provenance(i, name):
    """Metadata with the text at one place, or at all; once a mebibyte of it."""
    where, long = i % 6, i == 7
    text = [name if where in (k, 5) else "plain" for k in range(5)]
    frame = f'  File "/home/pwn/dir/{text[0]}.py", line {i + 1}, in {text[1]}\n    {text[2]}\n'
    if long:
        frame = frame * (1 << 20 >> 6) + 'File "' * 1000
    yield "stack_trace", frame + '  File "/site/torch/nn/modules/linear.py", line 1, in forward\n    pwn\n'
    yield "name_scopes", f"['', 'layers.0', '{text[3] * (1 << 18 if long else 1)}', '{text[4]}']"
    yield "class_hierarchy", f"['Net', '{text[4]}', '{text[3]}'"


def add_metadata(node, key, text):
    """Adds an entry of metadata_props byte by byte: older onnx packages do not know that nodes have them."""
    entry = onnx.StringStringEntryProto(key=key, value=text).SerializeToString()
    length = len(entry)
    prefix = bytes([0x4A])
    while length >= 0x80:
        prefix += bytes([length & 0x7F | 0x80])
        length >>= 7
    node.MergeFromString(prefix + bytes([length]) + entry)


def adder(names):
    """y = x + the sum of i * (-1)^i for the i-th name, by one Add for each; and the special floats as they are. Metadata of
    the nodes, which PyTorch's exporter writes, has the same texts as module, call, file, function and line of code."""
    nodes, weights, value = [], [], "x"
    for i, name in enumerate(names):
        weights.append(m.tensor("w:" + name, [4], [i * (-1) ** i] * 4))
        result = "y" if i == len(names) - 1 else name
        nodes.append(m.node("Add", "", "", name="n:" + name))
        nodes[-1].input[:] = [value, "w:" + name]
        nodes[-1].output[:] = [result]
        for key, text in provenance(i, name):
            add_metadata(nodes[-1], "pkg.torch.onnx." + key, text)
        value = result
    nodes.append(m.node("Concat", "bits bits", "b", name=names[0] + "?", axis=0))
    weights.append(m.raw("bits", [len(BITS)], BITS.tobytes()))
    made = m.model(nodes, outputs=[m.value("y"), m.value("b", (2 * len(BITS),))], initializers=weights)
    made.producer_name = "x\nint evil4=4;"
    made.doc_string = made.graph.doc_string = "*/ int evil5=5; /*"
    made.graph.name = "g*/ int evil6=6; /*"
    return made


def run(command, cwd, **how):
    return call(*command, cwd=cwd, stdin=subprocess.DEVNULL, **how).stdout


def check_text(file, text):
    """What names say is in generated code as variables alone: words of small letters, digits and underscores. Comments on
    one line have text that neither ends nor continues them."""
    for comment in re.findall(r"//.*", text):
        expect(not re.search(r"\*/|/\*|\?\?|\\\\|/(?:home|site)", comment), f"{file} has a comment {comment}")
    text = re.sub(r"//.*", "", text)
    variables = set(re.findall(r"\*(\w+) = \(", text))
    for variable in variables:
        expect(re.fullmatch(r"[a-z][a-z0-9_]{0,39}", variable), f"{file} has a variable {variable}")
    for word in re.findall(r"\w*(?:evil|pwn)\w*", text):
        expect(word in variables and not re.fullmatch(r"evil\d", word), f"{file} has a name's text: {word}")


def check_files(result, names):
    """What was generated is text of ASCII, with words of the names alone; manifest and plan have all names."""
    for path in result.rglob("*"):
        if path.suffix in (".c", ".h") or path.name == "Makefile":
            text = path.read_text("latin-1")
            expect(GENERATED.fullmatch(text), f"{path.name} is not printable ASCII")
            check_text(path.name, text)
    kept = re.findall(r'^from "[^"]*" (.*)', (result / "graph.rir").read_text("ascii"), re.M)
    expect(len(kept) > len(names) // 2, "graph.rir lacks metadata")
    for texts in kept:
        expect(not re.search(r"\\x(?!22)|\?|\*/|/\*|/home|/site|.{500}", texts), f"graph.rir has metadata {texts}")
    for name in ("manifest.json", "plan.json"):
        listed = {n["name"] for n in json.loads((result / name).read_text("ascii"))["nodes"]}
        missing = {"n:" + put_bytes(n.encode()).decode("utf-8", "surrogateescape") for n in names} - listed
        expect(not missing, f"{name} lacks {sorted(missing)[:3]}")
    symbols = subprocess.run(["nm", result / "build" / "run"], capture_output=True, text=True, check=False).stdout
    expect(symbols and "evil" not in symbols, "the program has a foreign symbol")


def check_values(directory, n):
    want = numpy.arange(4, dtype="f4") + sum(i * (-1) ** i for i in range(n))
    listed = {o["name"]: o["file"] for o in json.loads((directory / "outputs.json").read_text())["outputs"]}
    got = numpy.load(directory / listed["y"])
    expect((got == want).all(), f"y is {got}, not {want}")
    bits = numpy.load(directory / listed["b"]).view("<u4")
    expect((bits == numpy.concatenate([BITS, BITS])).all(), f"constants are {[hex(b) for b in bits]}")


def check_model(rankc, d, names, plans):
    (d / "m.onnx").write_bytes(put_bytes(adder(names).SerializeToString()))
    numpy.save(d / "x.npy", numpy.arange(4, dtype="f4"))
    for plan in plans:
        run([rankc, "compile", "m.onnx", "-o", "out", "--reuse", "override", *plan], d)
        check_files(d / "out" / "m" / "_", names)
        run([rankc, "run", "out/m/_", "--input", "x=x.npy", "--output-dir", "got"], d)
        check_values(d / "got", len(names))
        run([rankc, "show", "out"], d)
        run([rankc, "verify", "out"], d)
    expect(sorted(p.name for p in d.iterdir()) == ["got", "m.onnx", "out", "x.npy"], "files beside the output")


def check_ports(rankc, d, names):
    """Inputs and outputs: constants and fields of model.h, which C and C++ take."""
    names = ["input_ids", "logits", *names]
    half = len(names) // 2
    nodes = [m.node("Relu", "", "", name="") for _ in names[half:]]
    for node, name, i in zip(nodes, names[half:], range(len(nodes))):
        node.input[:] = [names[i % half]]
        node.output[:] = [name]
    made = m.model(nodes, inputs=[m.value(n) for n in names[:half]], outputs=[m.value(n) for n in names[half:]])
    (d / "m.onnx").write_bytes(put_bytes(made.SerializeToString()))
    run([rankc, "compile", "m.onnx", "-o", "out", "--no-build"], d)
    result = d / "out" / "m" / "_"
    check_header(rankc, d, result, "tensors", len(names))


def check_header(rankc, d, result, struct, n):
    """A struct of model.h has n ports, each with a constant; C and C++ take the header."""
    header = (result / "model.h").read_text("ascii")
    members = re.search(rf"^struct m_{struct} {{\n(.*?)^}};", header, re.M | re.S)
    fields = re.findall(r"^    (?:const )?float \*(\w+); /\* [^/]* \*/$", members[1], re.M)
    expect(len(fields) == n and len(set(fields)) == n and members[1].count("\n") == n, f"struct m_{struct} lacks a port")
    for field in fields:
        expect(re.fullmatch(r"(?!evil\d$)[a-z][a-z0-9_]{0,39}", field), f"model.h has a field {field}")
        expect(re.search(rf"^    m_(?:INPUT|OUTPUT)_{field},", header, re.M), f"model.h has no constant of {field}")
    include = Path(rankc).parent / "include"
    run(["make", "-s", "-C", result, "build/model.a"], d)
    if shutil.which("g++"):
        run(["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++",
             f"-I{include}", result / "model.h"], d)


def check_batch(rankc, d, names):
    """Inputs of a training program: the loss is the mean of their sum times a parameter."""
    nodes = [m.node("Sum", "", "sum"), m.node("Mul", "sum weight", "product"),
             m.node("ReduceMean", "product", "loss", keepdims=0)]
    nodes[0].input[:] = names
    made = m.model(nodes, inputs=[m.value(n) for n in names], outputs=[m.value("loss", ())],
                   initializers=[m.tensor("weight", [4], [1.0] * 4)])
    (d / "m.onnx").write_bytes(put_bytes(made.SerializeToString()))
    run([rankc, "compile", "m.onnx", "-o", "out", "--no-build", "--train", "--optimizer", "sgd:lr=1", "--accumulate", "2"], d)
    check_header(rankc, d, d / "out" / "m" / "_", "batch", len(names) + 1) # and the loss


def check_paths(rankc, d):
    """Model file, output directory and instance, each called worse than the one before."""
    for i, name in enumerate(["a b", "it's", 'say "x"', "$HOME $(touch pwn)", "-o", "a#b%c;d&e|f", "\u00e4\U0001f4a9", "\\", "x" * 200, "a=b:c"]):
        at = d / str(i)
        at.mkdir()
        model = at / (name + ".onnx")
        model.write_bytes(m.relu().SerializeToString())
        numpy.save(at / "x.npy", numpy.array([-1, 0, 1, 2], "f4"))
        out = "./" + name
        run([rankc, "compile", "./" + name + ".onnx", "-o", out, "--instance-name", "i" + re.sub(r"[^A-Za-z0-9_.-]", "_", name[:20]),
             *(["--no-build"] if i not in BUILT else [])], at)
        if i in BUILT:
            run([rankc, "run", out, "--input", "x=x.npy", "--output-dir", "got " + name], at)
            expect((numpy.load(at / ("got " + name) / "y.npy") == [0, 0, 1, 2]).all(), f"wrong values in {name!r}")
    expect(not list(d.rglob("pwn")), "a command in a name was run")


def long_model(name):
    """y = relu(x w) v, in which all is called by the name and a letter."""
    nodes = [m.node("MatMul", "", "", name=name + "n"), m.node("Relu", "", "", name=name + "r"), m.node("MatMul", "", "", name=name + "o")]
    for node, inputs, output in zip(nodes, ("xw", "h", "rv"), "hry"):
        node.input[:] = [name + i for i in inputs]
        node.output[:] = [name + output]
    return m.model(nodes, inputs=[m.value(name + "x", (name + "b", 8))], outputs=[m.value(name + "y", (name + "b", 8))],
                   initializers=[m.tensor(name + "w", [8, 4], [1.0] * 32), m.tensor(name + "v", [4, 8], [1.0] * 32)])


def check_long(rankc, d):
    """Names of any length, of model files, instances, nodes, values, weights and dimensions, ASCII and other."""
    for i, (letter, n) in enumerate((("a", 508), ("a", 60000), ("\u00e4", 30000), ('"', 4097))):
        at, name = d / str(i), letter * n
        at.mkdir()
        stem = name.encode()[:249 - i].decode(errors="ignore") # a file's name has 255 bytes at most
        (at / (stem + ".onnx")).write_bytes(long_model(name).SerializeToString())
        numpy.save(at / "x.npy", numpy.ones((4, 8), "f4"))
        run([rankc, "compile", stem + ".onnx", "-o", "out", "--instance-name", name, "--dim", name + "b=4", "--pas", "tp:tensor=2"], at)
        run([rankc, "run", "out", "--input", name + "x=x.npy", "--output-dir", "got", "--dump-tensors", "*", "--dump-dir", "dump"], at)
        listed = json.loads((at / "got" / "outputs.json").read_text())["outputs"][0]
        expect(listed["name"] == name + "y" and (numpy.load(at / "got" / listed["file"]) == 32).all(), f"wrong values with names of {n}")
        run([rankc, "compare", "dump", "dump"], at)
        run([rankc, "show", "out"], at)
        run([rankc, "verify", "out"], at)


BUILT = (1, 3, 7)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    rankc = arguments.rankc
    os.environ["CFLAGS"] = "-O1 -Wall -Werror -Wno-unused-variable -Wno-unused-function"
    names = random_names(arguments.random, arguments.seed) if arguments.random else NAMES + byte_names()
    start, failed = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="rankc-names-") as own:
        try:
            (Path(own) / "m").mkdir()
            check_model(rankc, Path(own) / "m", names, [[], ["--pas", "hybrid:tensor=2"]])
            (Path(own) / "i").mkdir()
            check_ports(rankc, Path(own) / "i", names)
            (Path(own) / "b").mkdir()
            check_batch(rankc, Path(own) / "b", names)
            if not arguments.random:
                (Path(own) / "p").mkdir()
                check_paths(rankc, Path(own) / "p")
                (Path(own) / "l").mkdir()
                check_long(rankc, Path(own) / "l")
        except Failed as failure:
            failed = 1
            print(failure)
    print(f"{len(names)} names{', failed' if failed else ''}")
    if arguments.record:
        record(f"hostile names{', random' if arguments.random else ''}", len(names), time.monotonic() - start, failed)
    return failed


if __name__ == "__main__":
    sys.exit(main())
