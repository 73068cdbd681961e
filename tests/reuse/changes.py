#!/usr/bin/python3
"""What must be noticed and what must not: changes.py --rankc RANKC --kind real|irrelevant

59 real changes, one at a time: bytes and bits of the model (edited in place, time set back), of external data, of rules,
plans and bound inputs; structure; options; another rankc, other templates; another runtime, other flags. Over an earlier
result, --reuse=match must refuse, name what differs and leave all as it was; --reuse=moo must give what a compile into an
empty directory gives. 29 irrelevant changes - paths, times, environment, verbosity, scale units - must reuse.

Structural changes and external data need the onnx package.
"""
import json
import os
import shutil
import stat
import struct

from harness import (HERE, MODELS, Skipped, compile_command, dims_of, expect, flip_bit, instance, parse, rankc, snapshot,
                     sweep)

try:
    import onnx
    import onnx.numpy_helper
except ImportError:
    onnx = None

MLP = os.path.join(MODELS, "mlp", "model.onnx")
GPT2 = os.path.join(MODELS, "gpt2", "model.onnx")
GPT2_DIMS = dims_of(GPT2)
TRAINED = os.path.join(os.path.dirname(HERE), "training", "mlp", "model.onnx")
TP2 = ["--pas", "tp", "--plan-ngpus", "2"]


class Bench:
    """A model, options, and the result of compiling it, in a work directory of its own."""

    def __init__(self, program, work, model=MLP, options=()):
        self.program, self.work, self.options = program, work, list(options)
        self.model = os.path.join(work, "models", "model.onnx")
        self.out = os.path.join(work, "out")
        self.environment = {}  # beside this process's
        self.build = False
        os.makedirs(os.path.dirname(self.model))
        if model:
            shutil.copyfile(model, self.model)

    def path(self, name):
        return os.path.join(self.work, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return self.path(name)

    def compile(self, *more, out=None, **run):
        options = [*self.options, *more] + ([] if self.build else ["--no-build"])
        return rankc(self.program, *compile_command(self.model, out or self.out, *options), env=self.environment, **run)

    def first(self):
        self.compile().must(0, reused="nothing")
        self.before = snapshot(self.out)

    def must_notice(self, part):
        """`part`: what the refusal names; None: the model may be malformed now."""
        done = self.compile()
        if part or done.status == 8:
            done.must(8, "E0801")
        expect(done.status != 0, "not noticed")
        expect(not part or f"{part}: was" in done.stderr, f"no \"{part}\" in\n{done.stderr}")
        expect(snapshot(self.out) == self.before, "the earlier result was touched")
        if done.status != 8:
            return
        done = self.compile("--reuse", "moo")
        if done.status == 0:
            self.compile(out=self.path("fresh")).must(0, reused="nothing")
            expect(snapshot(self.out) == snapshot(self.path("fresh")), "not what an empty directory gets")
        else:
            expect(snapshot(self.out) == self.before, "a failed compile touched the earlier result")

    def must_reuse(self, *more, **run):
        self.compile(*more, **run).must(0, reused="all")
        expect(snapshot(self.out) == self.before, "the earlier result was touched")


# Real changes ---------------------------------------------------------------------------------------------------------

def model_byte(share):
    """A bit of the model file, somewhere."""
    def case(program, work):
        bench = Bench(program, work)
        bench.first()
        size = os.path.getsize(bench.model)
        flip_bit(bench.model, int(share * (size - 1)), int(share * 1000) % 8)
        bench.must_notice(None)
    return case


def weight_bit(share):
    """A bit of external data: the lowest of a mantissa, and others."""
    def case(program, work):
        bench = Bench(program, work, None)
        save_external(bench.model)
        bench.first()
        data = os.path.join(os.path.dirname(bench.model), "weights.bin")
        flip_bit(data, int(share * (os.path.getsize(data) - 1)), int(share * 1000) % 8)
        bench.must_notice("external data 1")
    return case


def save_external(path):
    if not onnx:
        raise Skipped("no onnx package")
    onnx.save_model(onnx.load(MLP), path, save_as_external_data=True, location="weights.bin", size_threshold=0)


def structure(change):
    def case(program, work):
        if not onnx:
            raise Skipped("no onnx package")
        bench = Bench(program, work)
        bench.first()
        model = onnx.load(bench.model)
        change(model)
        onnx.save(model, bench.model)
        bench.must_notice("model")
    return case


def rename_output(model):
    model.graph.output[0].name = model.graph.node[-1].output[0] = "renamed"


STRUCTURE = {
    "attribute": lambda m: setattr(next(a for a in m.graph.node[0].attribute if a.name == "alpha"), "f", 1.5),
    "operator": lambda m: setattr(m.graph.node[1], "op_type", "Sigmoid"),
    "node's name": lambda m: setattr(m.graph.node[0], "name", "renamed"),
    "output's name": rename_output,
    "operator set": lambda m: setattr(m.opset_import[0], "version", 14),
    "batch": lambda m: (setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", 6),
                        setattr(m.graph.output[0].type.tensor_type.shape.dim[0], "dim_value", 6)),
    "description": lambda m: setattr(m, "doc_string", "changed"),
    "weight of zero sign": lambda m: m.graph.initializer[1].CopyFrom(
        onnx.numpy_helper.from_array(-onnx.numpy_helper.to_array(m.graph.initializer[1]), m.graph.initializer[1].name)),
}


def option(part, after, before=(), model=GPT2, common=GPT2_DIMS):
    def case(program, work):
        bench = Bench(program, work, model, [*common, *before])
        bench.first()
        bench.options = [*common, *after]
        bench.must_notice(part)
    return case


OPTIONS = {
    "tp 2": option("pas", TP2),
    "tp 2 to 3": option("plan-ngpus", ["--pas", "tp", "--plan-ngpus", "3"], TP2),
    "tp to pp": option("pas", ["--pas", "pp", "--plan-ngpus", "2"], TP2),
    "tp to data": option("pas", ["--pas", "data", "--plan-ngpus", "2"], TP2),
    "tp to a mesh": option("pas", ["--pas", "hybrid:tensor=2,pipeline=2"], TP2),
    "order of axes": option("pas", ["--pas", "hybrid:pipeline=2,tensor=2"], ["--pas", "hybrid:tensor=2,pipeline=2"]),
    "sizes of axes": option("pas", ["--pas", "hybrid:tensor=1,pipeline=4"], ["--pas", "hybrid:tensor=2,pipeline=2"]),
    "f64": option("dtype", ["--dtype", "f64"]),
    "f32 by name": option("dtype", ["--dtype", "f32"], ["--dtype", "f64"]),
    "batch": option("dim", ["--dim", "batch=3", "--dim", "seq=11"], ["--dim", "batch=2", "--dim", "seq=11"], common=()),
    "sequence": option("dim", ["--dim", "batch=2", "--dim", "seq=7"], ["--dim", "batch=2", "--dim", "seq=11"],
                       common=()),
    "with the runtime": option("with-runtime", ["--with-runtime"]),
    "shape": option("shape", ["--shape", "input_ids=2,7"], ["--shape", "input_ids=2,11"], common=()),
}


def side_file(name, text, changed, part, options, model=GPT2, common=GPT2_DIMS):
    def case(program, work):
        bench = Bench(program, work, model, common)
        path = bench.write(name, text)
        bench.options += [o.replace("FILE", path) for o in options]
        bench.first()
        bench.write(name, changed)
        bench.must_notice(part)
    return case


RULES = 'mesh tensor=2\nmatch "*lm_head*" replicate\n'
MANUAL = ["--pas", "manual:FILE"]


def npy(values):
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 13), }"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack("<65f", *values)


ONES, TWOS = npy([1.0] * 65), npy([1.0] * 64 + [2.0])
BIND = ["--bind", "x=FILE"]


def plan_file(program, work):
    bench = Bench(program, work, GPT2, GPT2_DIMS)
    plan = bench.path("plan.json")
    bench.compile(*TP2, "--save-plan", plan, out=bench.path("other")).must(0, reused="nothing")
    bench.options += ["--load-plan", plan]
    bench.first()
    text = open(plan).read()
    bench.write("plan.json", text + "\n")
    bench.must_notice("plan file")


def bind_added(program, work):
    bench = Bench(program, work)
    bench.first()
    bench.options += ["--bind", "x=" + bench.write("x.npy", ONES)]
    bench.must_notice("bound inputs")


SIDE_FILES = {
    "a rule": side_file("rules", RULES, RULES.replace("lm_head", "h.1"), "plan file", MANUAL),
    "a rule's mesh": side_file("rules", RULES, RULES.replace("2", "3"), "plan file", MANUAL),
    "a comment in the rules": side_file("rules", RULES, RULES + "# more\n", "plan file", MANUAL),
    "a bound value": side_file("x.npy", ONES, TWOS, "bound inputs", BIND, MLP, ()),
    "an input is bound": bind_added,
    "the plan": plan_file,
}


def copy_of(program, work):
    """A rankc that can be edited, with its runtime."""
    tool = os.path.join(work, "tool")
    build = os.path.dirname(os.path.dirname(program))
    for name in ("frontend/rankc", "runtime/librankc-rt.a"):
        os.makedirs(os.path.dirname(os.path.join(tool, name)), exist_ok=True)
        shutil.copy(os.path.join(build, name), os.path.join(tool, name))
    shutil.copytree(os.path.join(build, "frontend", "include"), os.path.join(tool, "frontend", "include"))
    return os.path.join(tool, "frontend", "rankc")


def other_rankc(old, new):
    """Another build: bytes of the program differ. None: something at its end."""
    def case(program, work):
        assert not old or len(old) == len(new), "the program stays as long as it is"
        bench = Bench(copy_of(program, work), work)
        bench.first()
        with open(bench.program, "rb") as file:
            code = file.read()
        expect(not old or old in code, f"no {old} in rankc")
        os.remove(bench.program)
        with open(bench.program, "wb") as file:
            file.write(code.replace(old, new) if old else code + new)
        os.chmod(bench.program, 0o755)
        bench.must_notice("rankc")
    return case


BUILDS = {
    "another build": other_rankc(None, b"\0"),
    "another version": other_rankc(b"0.1.0", b"0.1.1"),
    "template of the Makefile": other_rankc(b"CFLAGS ?= -O3", b"CFLAGS ?= -O2"),
    "template of the Makefile, a comment": other_rankc(b"with a C compiler and", b"with a C Compiler and"),
    "template of the header": other_rankc(b"#include <rankc/rt.h>", b"#include \"rankc/rt.h\""),
    "template of the program": other_rankc(b"#include \"model.h\"", b"#include <model.h>"),
}


def built_again(change):
    """What is outside of the keys but in the program: nothing is refused, the program is built again."""
    def case(program, work):
        bench = Bench(copy_of(program, work), work)
        bench.environment["CFLAGS"] = "-O1"
        bench.build = True
        bench.first()
        run = os.path.join(instance(bench.out), "build", "run")
        bench.must_reuse()
        was = os.stat(run).st_ino, os.stat(run).st_mtime_ns
        bench.must_reuse()
        expect(was == (os.stat(run).st_ino, os.stat(run).st_mtime_ns), "built again for nothing")
        change(bench, os.path.join(work, "tool"))
        bench.must_reuse()
        expect(was != (os.stat(run).st_ino, os.stat(run).st_mtime_ns), "not built again")
    return case


def touch_header(bench, tool):
    include = os.path.join(tool, "frontend", "include")
    os.makedirs(os.path.join(include, "copy"))
    link = os.path.join(include, "rankc")
    shutil.copytree(link, os.path.join(include, "copied"), dirs_exist_ok=True)
    shutil.rmtree(link)
    os.rename(os.path.join(include, "copied"), link)
    with open(os.path.join(link, "rt.h"), "a") as file:
        file.write("/* changed */\n")


def touch_library(bench, tool):
    """The time is set back: a downgrade looks like that."""
    path = os.path.join(tool, "runtime", "librankc-rt.a")
    info = os.stat(path)
    with open(path, "rb") as file:
        code = file.read()
    with open(path, "wb") as file:
        file.write(code.replace(b"out of memory for %d ranks", b"Out of memory for %d ranks"))
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns - 10**12))


PROGRAMS = {
    "the runtime's library": built_again(touch_library),
    "the runtime's header": built_again(touch_header),
    "CFLAGS": built_again(lambda bench, tool: bench.environment.update(CFLAGS="-O0")),
    "ARCH": built_again(lambda bench, tool: bench.environment.update(ARCH="-march=x86-64-v3")),
    "CC": built_again(lambda bench, tool: bench.environment.update(CC="gcc")),
}


def instance_name(program, work):
    """Generated code carries the instance's name: a result that was renamed is another."""
    bench = Bench(program, work)
    bench.first()
    os.rename(instance(bench.out), os.path.join(bench.out, "model", "b"))
    bench.before = snapshot(bench.out)
    bench.options += ["--instance-name", "b"]
    bench.must_notice("instance name")


# Irrelevant ones ------------------------------------------------------------------------------------------------------

def irrelevant(change, model=MLP, options=()):
    """`change` returns more options, or None."""
    def case(program, work):
        bench = Bench(program, work, model, options)
        bench.first()
        bench.must_reuse(*(change(bench) or ()))
    return case


def move_model(bench):
    os.makedirs(bench.path("elsewhere"))
    bench.model = shutil.move(bench.model, bench.path("elsewhere/model.onnx"))


def move_result(bench):
    bench.out = shutil.move(bench.out, bench.path("moved"))


def copy_result(bench):
    bench.out = shutil.copytree(bench.out, bench.path("copied"), symlinks=True, ignore=shutil.ignore_patterns(".lock*"))


def touch_all(bench):
    for folder, _, names in os.walk(bench.out):
        for name in names:
            os.utime(os.path.join(folder, name), (0, 0))


def link_model(bench):
    os.makedirs(bench.path("linked"))
    os.symlink(bench.model, bench.path("linked/model.onnx"))
    bench.model = bench.path("linked/model.onnx")


def link_output(bench):
    os.symlink(bench.out, bench.path("link"))
    bench.out = bench.path("link")


def set_environment(**values):
    def change(bench):
        bench.environment.update(values)
        for name in [n for n, v in values.items() if v == "UNSET"]:
            bench.environment[name] = None
    return change


def relative_path(program, work):
    bench = Bench(program, work)
    bench.first()
    bench.model, bench.out = "./model.onnx", "../out/."
    done = bench.compile(cwd=os.path.join(work, "models")).must(0, reused="all")
    expect(snapshot(bench.path("out")) == bench.before, done.stderr)


def response_file(program, work):
    bench = Bench(program, work, GPT2, [*GPT2_DIMS, *TP2])
    bench.first()
    bench.options = ["@" + bench.write("options", "--pas=tp\n--plan-ngpus=2\n" + "\n".join(
        f"--dim={d}" for d in reversed(GPT2_DIMS[1::2])) + "\n")]
    bench.must_reuse()


def defaults_spelled_out(program, work):
    bench = Bench(program, work)
    bench.first()
    bench.must_reuse("--pas=dp", "--plan-ngpus=1", "--runtime-ngpus=1", "--target=c", "--weights=reference",
                     "--instance-name=_", "--reuse=match")


def moved_side_file(program, work):
    bench = Bench(program, work)
    bench.options = ["--bind", "x=" + bench.write("x.npy", ONES)]
    bench.first()
    bench.options = ["--bind", "x=" + bench.write("y.npy", ONES)]
    os.remove(bench.path("x.npy"))
    bench.must_reuse()


def built_and_not(program, work):
    bench = Bench(program, work)
    bench.environment["CFLAGS"] = "-O0"
    bench.first()
    bench.build = True
    bench.must_reuse()


REAL = {
    **{f"model byte {i}": model_byte(i / 11) for i in range(12)},
    **{f"weight bit {i}": weight_bit(i / 9) for i in range(10)},
    **{f"structure: {name}": structure(change) for name, change in STRUCTURE.items()},
    **{f"option: {name}": case for name, case in OPTIONS.items()},
    **{f"file: {name}": case for name, case in SIDE_FILES.items()},
    **{f"rankc: {name}": case for name, case in BUILDS.items()},
    **{f"program: {name}": case for name, case in PROGRAMS.items()},
    "the instance's name": instance_name,
}

def other_units(ranks, options=(), model=GPT2, common=GPT2_DIMS):
    """The number of ranks is a default of location.json, and in no other file of the result."""
    def recorded(bench):
        with open(instance(bench.out) + "/location.json") as file:
            return json.load(file)["runtime_ngpus"]

    def case(program, work):
        bench = Bench(program, work, model, [*common, *options])
        bench.first()
        default = recorded(bench)
        for given, expected in ((["--runtime-ngpus", str(ranks)], ranks), ([], default)):
            for reuse in ("match", "moo"):
                bench.must_reuse(*given, "--reuse", reuse)
                expect(recorded(bench) == expected, f"location.json has {recorded(bench)}, not {expected}")
        bench.compile("--runtime-ngpus", str(ranks), "--reuse", "override").must(0, reused="nothing")
        expect(snapshot(bench.out) == bench.before and recorded(bench) == ranks, "other files than for one unit")
    return case


IRRELEVANT = {
    "units of two, trained": other_units(6, ["--train", "--optimizer", "sgd", *TP2], TRAINED, ()),
    "units": other_units(2),
    "units of two": other_units(4, TP2),
    "units of copied weights": other_units(3, ["--weights", "copy"], MLP, ()),
    "units of a trained model": other_units(4, ["--train", "--optimizer", "sgd", "--accumulate", "2"], TRAINED, ()),
    "model moved": irrelevant(move_model),
    "model by a link": irrelevant(link_model),
    "model by a relative path": relative_path,
    "model touched": irrelevant(lambda b: os.utime(b.model)),
    "model's time set back": irrelevant(lambda b: os.utime(b.model, (0, 0))),
    "model's mode": irrelevant(lambda b: os.chmod(b.model, stat.S_IRUSR)),
    "model copied over itself": irrelevant(lambda b: os.replace(shutil.copy(b.model, b.model + "2"), b.model)),
    "result moved": irrelevant(move_result),
    "result copied": irrelevant(copy_result),
    "result touched": irrelevant(touch_all),
    "output directory by a link": irrelevant(link_output),
    "locale": irrelevant(set_environment(LC_ALL="tr_TR.UTF-8", LANG="tr_TR.UTF-8")),
    "time zone": irrelevant(set_environment(TZ="Pacific/Apia")),
    "no HOME, other TMPDIR": irrelevant(set_environment(HOME="UNSET", TMPDIR="/nowhere", XDG_CACHE_HOME="/nowhere")),
    "threads": irrelevant(set_environment(OMP_NUM_THREADS="1")),
    "NO_COLOR": irrelevant(set_environment(NO_COLOR="1", TERM="dumb")),
    "verbose": irrelevant(lambda b: ["-v", "--color=always"]),
    "quiet": irrelevant(lambda b: ["-q"]),
    "--lock-timeout": irrelevant(lambda b: ["--lock-timeout=1"]),
    "--save-plan": irrelevant(lambda b: ["--save-plan", b.path("saved.json")]),
    "order of options, a response file": response_file,
    "defaults spelled out": defaults_spelled_out,
    "bound file renamed": moved_side_file,
    "built after --no-build": built_and_not,
}


if __name__ == "__main__":
    given = parse(__doc__, "--kind")
    kinds = {"real": ("real changes noticed", REAL), "irrelevant": ("irrelevant changes ignored", IRRELEVANT)}
    title, chosen = kinds[given.kind or "real"]
    sweep(title, chosen, given)
