"""Operators that a user declares (--ops): the model of samples/operators against PyTorch (record.py), wrong declarations, reuse.

    user_ops.py --rankc RANKC [NAME...]"""
import json
import os
import re
import shutil
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import rankc_test  # noqa: E402
from rankc_plans import plan_of  # noqa: E402
from rankc_test import Failed, printed, run_named  # noqa: E402

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLE = os.path.join(HERE, "..", "..", "samples", "operators")
STAND_IN = {"NVCC": os.path.join(HERE, "..", "cuda", "host", "nvcc"), "NVCCFLAGS": "-O0", "CFLAGS": "-O1"}
PLANS = ["one", "tp2", "tp3", "data2", "tp2data2", "pp2"]


class Bench(rankc_test.Bench):
    def call(self, *words, **how):
        return "".join(printed(self.rankc, *words, **how))

    def compile(self, *words, ops=os.path.join(SAMPLE, "pool.ops"), env=None, status=0):
        return self.call("compile", os.path.join(SAMPLE, "pool.onnx"), "--shape", "x=4,6,8", "-q", "-o", self.path("out"), "--ops", ops, *words,
                         env=env, status=status)

    def run(self, *words):
        self.call("run", self.path("out"), "--input", "x=" + os.path.join(SAMPLE, "x.npy"), "--output-dir", self.path("y"), *words)
        return np.load(self.path("y/y.npy"))

    def sample(self):
        """A copy of the sample, to be changed."""
        folder = self.path("ops")
        shutil.copytree(SAMPLE, folder)
        return folder


def edit(path, old, new):
    with open(path) as file:
        text = file.read()
    if old not in text:
        raise Failed(f"{path} has no '{old}'")
    with open(path, "w") as file:
        file.write(text.replace(old, new))


def close(x, y, tolerance, what):
    if not np.allclose(x, y, rtol=tolerance, atol=tolerance):
        raise Failed(f"{what}: {x} is not {y}")


def infer(bench):
    expected = np.load(os.path.join(HERE, "y.npy"))
    for plan in PLANS:
        bench.compile(*plan_of(plan).options, "--reuse", "moo")
        close(bench.run(), expected, 1e-6, plan)
        bench.call("verify", bench.path("out"), *(["--numeric"] if plan == "tp2" else []), "-q")


def single(bench):
    """An operator that has a kernel for f32 only computes in f32 in the reference of verify --numeric, which is of f64."""
    folder = bench.sample()
    edit(f"{folder}/pool.ops", 'c="pool.h" cuda="pool.cuh" kernels="f32 f64" \\\n', 'c="pool.h" cuda="pool.cuh" kernels="f32" \\\n')
    bench.compile(*plan_of("tp2").options, ops=f"{folder}/pool.ops")
    close(bench.run(), np.load(os.path.join(HERE, "y.npy")), 1e-6, "f32 only")
    bench.call("verify", bench.path("out"), "--numeric", "-q")


def cuda(bench):
    bench.compile(*plan_of("tp2").options, "--target", "cuda", env=STAND_IN)
    close(bench.run("--comm", "loopback"), np.load(os.path.join(HERE, "y.npy")), 1e-6, "cuda")


def train(bench):
    with open(os.path.join(HERE, "reference.json")) as file:
        reference = json.load(file)
    data = [word for name in ("x", "target") for word in ("--data", f"{name}={HERE}/{name}.npy")]
    for plan in ("one", "tp2", "data2"):
        bench.compile(*plan_of(plan).options, "--reuse", "moo", "--train", "--loss", "mse", "--optimizer", f"sgd:lr={reference['lr']}")
        bench.call("train", bench.path("out"), *data, "--steps", str(len(reference["loss"])), "--log", bench.path("log"), "-q")
        with open(bench.path("log")) as log:
            lines = [json.loads(line) for line in log]
        for key in ("loss", "grad_norm"):
            close([line[key] for line in lines], reference[key], 1e-5, f"{plan}: {key}")
        os.unlink(bench.path("log"))


def text(bench):
    """graph.rir of the result, with the kernels beside it, is an input itself; without them it can be planned."""
    bench.compile()
    graph = bench.path("out/pool/_/graph.rir")
    bench.call("compile", graph, "-o", bench.path("again"), "-q", *plan_of("tp2").options)
    bench.call("run", bench.path("again"), "--input", "x=" + os.path.join(SAMPLE, "x.npy"), "--output-dir", bench.path("y"))
    close(np.load(bench.path("y/y.npy")), np.load(os.path.join(HERE, "y.npy")), 1e-6, "text")
    shutil.copy(graph, bench.path("alone.rir"))
    bench.call("plan", bench.path("alone.rir"))


def reuse(bench):
    """A changed kernel or declaration is another input; a moved file is not."""
    folder = bench.sample()
    bench.compile("--no-build", ops=f"{folder}/pool.ops")
    bench.compile("--no-build")
    for name in ("pool.h", "pool.cuh", "pool.ops"):
        with open(f"{folder}/{name}", "a") as file:
            file.write("\n" if name != "pool.ops" else 'operator "acme::More" types="f->f" expr="x"\n')
        if "operators: was" not in bench.compile("--no-build", ops=f"{folder}/pool.ops", status=8):
            raise Failed(f"{name}: not named")
        shutil.copy(f"{SAMPLE}/{name}", folder)
    edit(bench.path("out/pool/_/operators/pool.h"), "sum", "som")
    bench.call("verify", bench.path("out"), status=8)


def pattern(bench):
    """An operator in place of standard nodes, under plans; what is found is said with -v."""
    folder = bench.sample()
    with open(f"{folder}/pool.ops", "a") as file:
        file.write('operator "acme::Sum" types="ff->f" expr="a + b" pattern="Add(x0, x1)"\n')
    for plan in "one", "tp2":
        words = ["compile", os.path.join(SAMPLE, "pool.onnx"), "--shape", "x=4,6,8", "-o", bench.path("out"), "--ops", f"{folder}/pool.ops", "-v"]
        said = bench.call(*words, *plan_of(plan).options, "--reuse", "moo")
        if not re.search(r"matches of the pattern: 2\n *--> acme::Sum", said):
            raise Failed(said)
        close(bench.run(), np.load(os.path.join(HERE, "y.npy")), 1e-6, plan)
        bench.call("verify", bench.path("out"), "-q")


def check(bench):
    out = bench.call("ops", "--check", os.path.join(SAMPLE, "pool.ops"))
    if not re.search(r"Pool: types f64 f32; splits b t c; gradient", out) or "computes what its pattern does" not in out:
        raise Failed(out)


# What is changed in the sample, and what the check says of it.
FAULTS = {
    "a part of a sum is added twice": ("pool.h", "y[i] = 0;", "y[i] = 1;", r"Pool in f64: dimension t divided among 2 ranks, output 0"),
    "the gradient has a wrong factor": ("pool.h", "dx[i * c + k] = p[i]", "dx[i * c + k] = 2 * p[i]", r"Pool in f64: the gradient of input 1"),
    "one type computes another thing": ("pool.h", "T sum = 0;", "T sum = sizeof(T) == 4;", r"PoolWeightGrad in f32: against the kernel for f64"),
    "a wrong gradient as expression": ("pool.ops", "1 - v0 * v0", "1 + v0 * v0", r"Softcap in f64: the gradient of input 0"),
    "the pattern computes another thing": ("pool.ops", "Mul(Tanh(", "Mul(Erf(", r"Softcap in f64: against the subgraph of its pattern"),
    "the kernel does not compile": ("pool.h", "T sum = 0;", "T sum = ;", r"E0621"),
}


def faults(bench):
    for name, (file, old, new, says) in FAULTS.items():
        folder = bench.sample()
        edit(f"{folder}/{file}", old, new)
        said = bench.call("ops", "--check", f"{folder}/pool.ops", status=6 if says == "E0621" else 8)
        if not re.search(says, said):
            raise Failed(f"{name}: {said}")
        shutil.rmtree(folder)


GOOD = 'operator "a::B" types="ff->f" dims="m k+, k+ n -> m n" call="f_$T($y, $x0, $x1, $m, $k, $n)" c="f.h"'
HEAD = "rankc-operators 1\n"
# Texts and what is said of them, at a line and column.
BAD = [
    ("", r":1:1: *$|1:1"), ("rankc-operators 2\n", "1:17"), (HEAD + "node\n", "2:1.*unknown statement|unknown statement"),
    (HEAD + 'operator "B" types="f->f" expr="x"', "DOMAIN::NAME"), (HEAD + 'operator "a::B"', "types is missing"),
    (HEAD + 'operator "a::B" types="ff" expr="a"', "INPUTS->OUTPUTS"), (HEAD + 'operator "a::B" types="z->f" expr="x"', "letters of inputs"),
    (HEAD + 'operator "a::B" types="l->f" expr="x"', "there is none"), (HEAD + 'operator "a::B" types="fffffffff->f" dims="-> " call="f()" c="f.h"', "at most 8"),
    (HEAD + 'operator "a::B" types="f->f"', "dims is missing"), (HEAD + 'operator "a::B" types="f->f" expr="x +"', "syntax error"),
    (HEAD + 'operator "a::B" types="f->f" expr="system(x)"', "unknown function"), (HEAD + 'operator "a::B" types="f->f" expr="x * z"', "unknown name 'z'"),
    (HEAD + 'operator "a::B" types="f->f" expr="' + "(" * 2000 + 'x"', "syntax error"), (HEAD + 'operator "a::B" types="f->f" expr="1e999 * x"', "syntax error"),
    (HEAD + 'operator "a::B" types="f->f" expr="' + "x" * 5000 + '"', "4096 bytes"), (HEAD + 'operator "a::B" types="f->f" expr="x', "unclosed quote"),
    (HEAD + 'operator "a::B" types="f->f" expr="x" attrs="Alpha:f"', "small letter"), (HEAD + 'operator "a::B" types="f->f" expr="x" attrs="alpha:q"', "KIND"),
    (HEAD + 'operator "a::B" types="f->f" expr="x" attrs="shape:i"', "another meaning"), (HEAD + 'operator "a::B" types="f->f" expr="x" attrs="al:f=q"', "number"),
    *((HEAD + f'operator "a::B" types="f->f" expr="x" attrs="al:{default}"', says) for default, says in [
        ("i=9223372036854775808", "64 bits"), ("i=-9223372036854775809", "64 bits"), ("f=1e39", "finite"), ("f=-1e400", "finite"), ("f=-inf", "finite"),
        ("f=-nan", "finite")]),
    (HEAD + 'operator "a::B" types="f->f" expr="x" gradient="dy | dy"', "more parts"), (HEAD + 'operator "a::B" types="f->f" expr="x" gradient="dz"', "unknown name"),
    (HEAD + 'operator "a::B" types="f->f" expr="x" gradient="a::C(dy)"', "not declared"), (HEAD + 'operator "a::B" types="f->f" expr="x" gradient="a::B(dz)"', "neither dy"),
    (HEAD + 'operator "a::B" types="f->f" expr="x" gradient="a::B(dy).1"', "no output 1"), (HEAD + 'operator "a::B" types="f->f" expr="x" gradient="a::B(dy, y)"', "has 1 input,"),
    (HEAD + 'operator "a::B" types="f->f" expr="x" flops=-1', "from 0 to 1e9"), (HEAD + 'operator "a::B" types="f->f" expr="x" flops=nan', "from 0 to 1e9"),
    (HEAD + 'operator "a::B" types="f->f" expr="x" sound="loud"', "no property 'sound'"), (HEAD + 'operator "a::B" types="f->f" types="f->f"', "twice"),
    (HEAD + 2 * 'operator "a::B" types="f->f" expr="x"\n', "declared twice"), (HEAD + "".join(f'operator "a::B{i}" types="f->f" expr="x"\n' for i in range(257)), "256"),
    (HEAD + GOOD.replace("m k+, k+ n -> m n", "m k, k n -> m n"), "'k' is missing in an output"), (HEAD + GOOD.replace("-> m n", "-> m n k"), "'k' is reduced"),
    (HEAD + GOOD.replace("-> m n", "-> m p"), "'p' is in no input|'n' is missing"), (HEAD + GOOD.replace("m k+,", "m~ k+,"), "windows"),
    (HEAD + GOOD.replace("m k+,", "(m k),"), "compound"), (HEAD + GOOD.replace("-> m n", "-> (m n"), "not closed"), (HEAD + GOOD.replace("-> m n", ""), "inputs and"),
    (HEAD + GOOD.replace("m k+,", "m " * 12 + ","), "too many dimensions"), (HEAD + GOOD.replace("m k+,", "* * k+ m,"), "at most one|dimensions \\*"),
    (HEAD + GOOD.replace("m k+,", "longname k+,"), "at most 7"), (HEAD + GOOD.replace("m k+,", "M k+,").replace("-> m", "-> M"), "small letter"),
    (HEAD + GOOD.replace("$n)", "$q)"), r"\$q is no operand"), (HEAD + GOOD.replace("$x1", "$x2"), r"\$x2 is no operand"), (HEAD + GOOD.replace("$y,", "$y1,"), r"\$y1 is no"),
    (HEAD + GOOD.replace("$n)", "$shape(x7))"), "'x7' is no operand"), (HEAD + GOOD.replace("$n)", "$start(q))"), "'q' is no dimension"),
    (HEAD + GOOD.replace("$n)", "$scratch)"), r"\$scratch is no"), (HEAD + GOOD.replace("$n)", "$n); exit(1)"), "unexpected"), (HEAD + GOOD.replace("$n)", "$n"), "not closed"),
    (HEAD + GOOD.replace("f_$T(", "("), "begins with a function"), (HEAD + GOOD.replace("$n)", "$[)"), r"one letter"), (HEAD + GOOD.replace("f.h", "../f.h"), "folder"),
    (HEAD + GOOD.replace("f.h", "/etc/passwd"), "folder"), (HEAD + GOOD.replace("f.h", 'f\\x22.h'), "file's name"), (HEAD + GOOD.replace(' c="f.h"', ""), "c or cuda is missing"),
    *((HEAD + f'operator "a::B" types="f->f" attrs="cap:f=3" expr="x" pattern="{text}"', says) for text, says in [
        ("Mul(x0, cap#", r"2:75|is missing"), ("Mul(Tnah(x0), 2)", "no core operator 'Tnah'"), ("Mul(x0, x1)", "'x1' is no input"), ("x0", "begins with an operator"),
        ("Mul(x0, tau#)", "'tau' is no attribute"), ("Erf(2)", "x0 does not occur"), ("Erf(x0) 4", "left over"), ("@", "is missing"), ("Max[most](x0, 0)", "no test 'most'"),
        ("Add(" + "normed(" * 400 + "x0" + ")" * 401, "more than 1000 parts|is missing")]),
    (HEAD + GOOD + ' kernels="f12"', "list of types"), (HEAD + GOOD + ' expr="a"', "has no dims"), (HEAD + GOOD + ' model="x"', "DOMAIN::NAME"),
    (HEAD + GOOD.replace("a::B", "a::" + "B" * 70), "too long"), (HEAD + "operator \xff", "expected"), (HEAD + "\\\n" * 50 + "x", "52:1|unknown statement"),
]


def hostile(bench):
    wrong = []
    for given, says in BAD:
        with open(bench.path("bad.ops"), "w", encoding="latin-1") as file:
            file.write(given)
        said = bench.call("ops", "--check", bench.path("bad.ops"), status=3)
        if not re.search(says, said) or not re.search(r"bad\.ops:\d+:\d+", said):
            wrong.append(f"{given[:300]}\n    said {said}    not {says}")
    with open(bench.path("f.ops"), "w") as file:
        file.write(HEAD + GOOD)
    bench.call("ops", "--check", bench.path("f.ops"), status=6)  # f.h does not exist
    bench.call("ops", "--check", bench.work, status=6)
    if wrong:
        raise Failed("\n".join(wrong))


def nodes(bench):
    """Nodes that do not fit the declaration; a target without a kernel."""
    folder = bench.sample()
    edit(f"{folder}/pool.ops", 'types="ff->f" dims="b t+, b t c -> b c"', 'types="ff->f" dims="b t+, b c -> b c"')
    said = bench.compile(ops=f"{folder}/pool.ops", status=3)
    if "E0378" not in said and "E0331" not in said and "shapes do not fit" not in said:
        raise Failed(said)
    shutil.rmtree(folder)
    folder = bench.sample()
    edit(f"{folder}/pool.ops", ' cuda="pool.cuh"', "")
    if "declares no kernel for target cuda" not in bench.compile("--target", "cuda", "--no-build", ops=f"{folder}/pool.ops", status=4):
        raise Failed("a target without kernel")
    edit(f"{folder}/pool.ops", 'attrs="cap:f=30"', 'attrs="top:f=30"')
    edit(f"{folder}/pool.ops", "cap * tanh(x / cap)", "top * tanh(x / top)")
    edit(f"{folder}/pool.ops", "y / cap", "y / top")
    edit(f"{folder}/pool.ops", "Div(x0, cap#)), cap#", "Div(x0, top#)), top#")
    if "has no attribute 'cap'" not in bench.compile(ops=f"{folder}/pool.ops", status=3):
        raise Failed("an attribute that is not declared")


CASES = {case.__name__: case for case in (infer, single, train, cuda, text, reuse, pattern, check, faults, hostile, nodes)}


if __name__ == "__main__":
    sys.exit(run_named(__doc__, CASES, Bench))
