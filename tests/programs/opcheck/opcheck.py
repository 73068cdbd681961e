#!/usr/bin/python3
"""Checks every row of the operator table as compiled programs (DESIGN 7.1).

    opcheck.py --rankc RANKC --generate GENERATE [--set full|halves] [--target T] [--kernels K] [--bounded]
               [--quick] [--programs "P P..."] [--work DIR]

GENERATE (generate.c) writes the samples of all operators, or of those that take 16-bit floats in these, as one program, every
cut of every sample as nodes of two more, on 2 and on 3 ranks, and all in stages as one more. Two further programs, which are run
only if named (--programs "whole nest4 nest6"), divide every factor along two axes, of 2 x 2 and of 2 x 3 ranks. All run with reference kernels, or
with others, of which only the whole is to be compared: a library sums each shape in its own way. Then
  - the results of the one-rank program are compared with NumPy's and PyTorch's in f64 (reference.py);
  - every cut's result is compared with the whole node's, as the cut's class in samples.json says: bit for bit, by value, or
    within DESIGN 8's bound; with --bounded floats always by that, since a GPU's compiler fuses operations as it likes.
The programs of cuts are large: --quick, as the test suite has it, compiles them without optimization, and so without the vector code
that the C compiler makes of their loops; the whole and the stages are compiled with -O1 in any case.
Prints a line per failure and the counts; the exit status is 1 if there is a failure, 77 without NumPy or PyTorch."""
import concurrent.futures
import json
import os
import re
import shutil
import sys
import tempfile
import typing
import zlib

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
from rankc_test import EPS, bound_of, call, needed, parser_of, read_json  # noqa: E402

with needed():
    import numpy as np
    from reference import DTYPES, REFERENCE, bits_of_bf16, round_to_bf16

PROGRAMS = ["cut3", "cut2", "stages", "whole"]

# Of the largest result, in units of the type's precision. Elementwise functions are made of up to four, each within 4
# ulp; sums here have at most 64 terms, which with the signs of random terms come to less than 8 ulp. Halves are computed in f32
# and rounded once: another neighbour of the result at most.
FORWARD_BOUND = {"f32": 16, "f64": 16, "fp16": 1, "bf16": 1}


class Tensor(typing.NamedTuple):
    """Values of bf16 are held as f32."""
    dtype: str
    values: "np.ndarray"


def load(path, dtype):
    values = np.load(path)
    if dtype == "bf16":
        values = (values.reshape(-1).view("u2").astype("u4") << 16).view("f4").reshape(values.shape)
    return Tensor(dtype, values.view("u1") if values.dtype.kind == "V" else values)


def rounded(values, dtype):
    """As the type holds them."""
    values = np.asarray(values).astype(DTYPES[dtype])
    return round_to_bf16(values) if dtype == "bf16" else values


# Inputs

def distinct(rng, extent, shape, axis):
    """Indices that differ along `axis`, the sign of some turned."""
    other = shape[1 - axis]
    columns = [rng.permutation(extent)[:shape[axis]] for _ in range(other)]
    index = np.stack(columns, 1 - axis)
    return index - extent * rng.integers(0, 2, shape)


def tops(rng, extents, shape):
    """Rows of indices into the first dimensions of a shape, all different."""
    flat = rng.permutation(int(np.prod(extents)))[:shape[0]]
    return np.stack(np.unravel_index(flat, extents), -1).reshape(shape)


def floats(rng, kind, shape):
    if kind == "unit":
        return rng.uniform(-0.95, 0.95, shape)
    if kind == "pos":
        return rng.uniform(0.1, 4, shape)
    if kind == "ge1":
        return rng.uniform(1, 4, shape)
    if kind == "nonzero":
        return rng.uniform(0.25, 4, shape) * rng.choice([-1, 1], shape)
    if kind == "halves":
        return rng.integers(-6, 7, shape) / 2
    values = rng.standard_normal(shape) * 1.5
    if kind == "special":
        flat = values.reshape(-1)
        flat[rng.permutation(flat.size)[:8]] = [np.nan, np.nan, np.inf, np.inf, -np.inf, -np.inf, -0.0, 0.0]
    return values


def integers(rng, kind, shape):
    if kind.startswith("at"):
        extent = int(kind[2:])
        return rng.integers(-extent, extent, shape)
    if kind == "codes":
        return rng.integers(0, 0x60, shape) + 0x80 * rng.integers(0, 2, shape)
    if kind.startswith("classes"):
        return rng.integers(0, int(kind[7:]), shape)
    if kind.startswith("rows") or kind.startswith("cols"):
        return distinct(rng, int(kind[4:]), shape, 0 if kind.startswith("rows") else 1)
    if kind.startswith("tops"):
        return tops(rng, [int(n) for n in kind[4:].split("x")], shape)
    if kind == "nonzero":
        return rng.integers(1, 6, shape) * rng.choice([-1, 1], shape)
    return rng.integers(-6, 7, shape)


def values_of(name):
    """The values of an input, which follow from its name: "type[shape]:kind.operand" or "type[shape]=value.operand"."""
    dtype, shape, mark, rest = re.fullmatch(r"(\w+)\[([\d,]*)\](?:([:=])(.+))?\.\d", name).groups()
    shape = tuple(int(n) for n in shape.split(",")) if shape else ()
    if mark == "=":
        return rounded(np.full(shape, float(rest)), dtype)
    rng, kind = np.random.default_rng(zlib.crc32(name.encode())), rest or ""
    if dtype == "bool":
        return np.array(rng.integers(0, 2, shape), "?")
    make = integers if dtype[0] in "iu" else floats
    return rounded(make(rng, kind, shape), dtype)


def attributes_of(text):
    pairs = re.findall(r'(\w+)=(\[[^]]*\]|"[^"]*"|\S+)', text)
    return {key: float(value) if value.endswith("inf") else json.loads(value) for key, value in pairs}


# Programs

class Programs:
    def __init__(self, args, work):
        self.args, self.work, self.names = args, work, args.programs.split()
        call(args.generate, work, args.set, args.target)
        self.samples = read_json(work, "samples.json")
        self.arguments = os.path.join(work, "arguments")
        with open(self.arguments, "w") as out:
            for i, name in enumerate(self.samples["inputs"]):
                path = os.path.join(work, f"input{i}.npy")
                values = values_of(name)
                np.save(path, bits_of_bf16(values) if name.startswith("bf16") else values)
                out.write(f"--input {name}={path}\n")

    def run(self, name):
        """Outputs of a generated program by name, and the source of its ranks."""
        out = os.path.join(self.work, "out")
        # rankc's default, -O3, takes the C compiler long and compiles the same loops
        level = "-O0" if self.args.quick and name.startswith(("cut", "nest")) else "-O1"
        call(self.args.rankc, "compile", os.path.join(self.work, name + ".rir"), "-o", out, "-q", "--target", self.args.target,
             env={"CFLAGS": os.environ.get("CFLAGS", level), **self.compiler(level)}, timeout=900)
        directory = os.path.join(out, name, "_")
        inputs = self.inputs_of(directory)
        call(self.args.rankc, "run", directory, "--output-dir", directory + "/out", "--kernels", self.args.kernels, "--threads", "1", "--comm",
             "loopback", "@" + inputs)
        listed = read_json(directory, "out", "outputs.json")["outputs"]
        values = {entry["name"]: load(os.path.join(directory, "out", entry["file"]), entry["dtype"]) for entry in listed}
        sources = [open(os.path.join(directory, f)).read() for f in os.listdir(directory) if f.startswith("rank_")]
        return values, "".join(sources)

    def compiler(self, level):
        """Variables for a C compiler without the stack protector, with which gcc takes a time that is quadratic in the variables of a
        function: at -O0, twice that of all else. The Makefile asks for it after $CFLAGS, so a script has the last word."""
        if level != "-O0":
            return {}
        script = os.path.join(self.work, "cc")
        with open(script, "w") as out:
            out.write(f'#!/bin/sh\nexec {os.environ.get("CC", "cc")} "$@" -fno-stack-protector\n')
        os.chmod(script, 0o755)
        return {"CC": script}

    def inputs_of(self, directory):
        """The --input arguments of a program; not every program has all inputs."""
        names = {port["name"] for port in read_json(directory, "manifest.json")["inputs"]}
        path = os.path.join(directory, "build", "arguments")
        with open(path, "w") as out:
            out.writelines(line for line in open(self.arguments) if re.match(r"--input (.*\.\d)=", line)[1] in names)
        return path


# Comparisons

def error_of(value, reference):
    """The largest error and the largest value, over what is finite; infinite error where NaN or infinities differ."""
    value, reference = np.asarray(value, "f8"), np.asarray(reference, "f8")
    finite = np.isfinite(reference)
    if not np.array_equal(value[~finite], reference[~finite], equal_nan=True):
        return np.inf, 0.0
    distance = np.abs(value[finite] - reference[finite])
    return distance.max(initial=0), np.abs(reference[finite]).max(initial=0)


def forward_failure(result, reference):
    """What is wrong with a result of one rank, None if nothing is."""
    value, dtype = result.values, result.dtype
    if value.shape != np.shape(reference):
        return f"shape {value.shape}, expected {np.shape(reference)}"
    if dtype not in EPS:
        return None if np.array_equal(value, reference) else "other values"
    error, largest = error_of(value, rounded(reference, dtype) if FORWARD_BOUND[dtype] == 1 else reference)
    bound = FORWARD_BOUND[dtype] * EPS[dtype] * largest
    return None if error <= bound else f"error {error:g} above {bound:g}"


def cut_failure(cut, kind, result, whole, reference):
    """What is wrong with a cut's result, compared by that class, given the whole node's and the f64 reference."""
    value, one, dtype = result.values, whole.values, result.dtype
    if cut["times"] != 1:
        with np.errstate(over="ignore"):
            one, reference = one * one.dtype.type(cut["times"]), reference * cut["times"]
    if value.shape != one.shape or dtype != whole.dtype:
        return f"{dtype}{value.shape}, the whole is {whole.dtype}{one.shape}"
    if kind == "exact":
        return None if value.tobytes() == one.tobytes() else "other bits"
    if kind == "equal":
        return None if np.array_equal(value, one, equal_nan=dtype in EPS) else "other values"
    error, largest = error_of(value, reference)
    bound = bound_of(error_of(one, reference)[0], largest, EPS[dtype])
    return None if error <= bound else f"error {error:g} above {bound:g}"


def reference_of(node):
    inputs = [None if name is None else values_of(name) for name in node["inputs"]]
    inputs = [x.astype("f8") if x is not None and x.dtype.kind == "f" else x for x in inputs]
    with np.errstate(all="ignore"):
        results = REFERENCE[node["op"]](*inputs, attributes_of(node["attributes"]))
        return np.asarray(results[node["result"]] if isinstance(results, tuple) else results)


def check(programs):
    samples, failures = programs.samples, []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        made = dict(zip(programs.names, pool.map(programs.run, programs.names)))
    whole, sources = made["whole"][0], "".join(source for _, source in made.values())
    nodes = {node["output"]: node for node in samples["nodes"]}
    references = {name: reference_of(node) for name, node in nodes.items()}
    for name, node in nodes.items():
        why = forward_failure(whole[name], references[name])
        if why:
            failures.append(f"{node['op']} {node['inputs']} {node['attributes']}: {why}")
    checked = 0
    for cut in samples["cuts"]:
        if cut["program"] not in made:
            continue
        checked += 1
        node, value = nodes[cut["of"]], made[cut["program"]][0][cut["output"]]
        kind = "bounded" if programs.args.bounded and value.dtype in EPS else cut["class"]
        why = cut_failure(cut, kind, value, whole[cut["of"]], references[cut["of"]])
        if why:
            failures.append(f"{node['op']} {node['inputs']} {node['attributes']} cut {cut['cut']} "
                            f"({cut['program']} {cut['output']}): {why}")
    if set(made) >= set(PROGRAMS) and programs.args.set == "full":
        failures += [f"no cut made a call of {stem}" for stem in samples["communication"]
                     if f"rt_{stem}(" not in sources]
    print("".join(line + "\n" for line in failures), end="")
    print(f"{len(nodes)} nodes, {checked} cuts, {len(failures)} failures")
    return 1 if failures else 0


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--generate", required=True)
    parser.add_argument("--set", default="full", choices=["full", "halves"])
    parser.add_argument("--target", default="c")
    parser.add_argument("--kernels", default="reference")
    parser.add_argument("--bounded", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--programs", default=" ".join(PROGRAMS), help="those to run; \"whole\" among them")
    parser.add_argument("--work", help="keep the programs in this directory")
    args = parser.parse_args()
    work = args.work or tempfile.mkdtemp(prefix="rankc-opcheck-")
    try:
        os.makedirs(work, exist_ok=True)
        return check(Programs(args, work))
    finally:
        if not args.work:
            shutil.rmtree(work)


if __name__ == "__main__":
    sys.exit(main())
