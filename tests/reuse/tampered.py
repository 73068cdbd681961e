#!/usr/bin/python3
"""Files of a result that are changed, or replaced by links: tampered.py --rankc RANKC

What a verb reads it notices (exit 8, E0802), `verify` all of it; and what it does not read does it no harm. Then results that were
compiled from text IR of every level that there is: `verify` proves them too."""
import os
import random
import re
import shutil
import subprocess

from harness import HERE, MODELS, compile_command, expect, flip_bit, instance, parse, rankc, sweep

MODEL = os.path.join(MODELS, "mlp", "model.onnx")
INPUT = ["--input", "x=" + os.path.join(MODELS, "mlp", "inputs", "x.npy")]
TRAINING = os.path.join(os.path.dirname(HERE), "training", "mlp")
DATA = [word for name in ("x", "target") for word in ("--data", f"{name}={TRAINING}/{name}.npy")]
QUICK = {"CFLAGS": "-O0", **os.environ}
PASSES = os.path.join(os.path.dirname(os.path.dirname(HERE)), "passes", "passes.def")
# Who reads what, of a result that refers to its model.
READS = {"manifest.json": ["verify", "run", "show", "train"], "plan.json": ["verify"], "graph.rir": ["verify"],
         "location.json": ["verify", "run", "train"], "model.h": ["verify"], "model.c": ["verify"], "rank_0.c": ["verify"],
         "Makefile": ["verify"]}
SOURCES = ["model.h", "model.c", "rank_0.c"] # of edits that are not built, verbs that run the program tell
VERBS = {"verify": lambda out: ["verify", out], "show": lambda out: ["show", out], "run": lambda out: ["run", out, *INPUT],
         "train": lambda out: ["train", out, *DATA, "--steps", "1"]}


def result(program, work, trains):
    """A result of two ranks, and the model it was made of."""
    os.makedirs(f"{work}/made")
    model = shutil.copy(f"{TRAINING}/model.onnx" if trains else MODEL, f"{work}/made/model.onnx")
    options = ["--train", "--optimizer", "sgd:lr=0.1"] if trains else []
    rankc(program, *compile_command(model, f"{work}/out", "--pas", "tp", "--plan-ngpus", "2", *options), env=QUICK).must(0, reused="nothing")
    return instance(f"{work}/out")


def check_verbs(program, work, name, spoil, readers, told=""):
    """Each verb before and after `spoil` has its way with the file `name`, which `readers` read; those that run the program tell `told`."""
    for trains in (False, True):
        where = f"{work}/{trains}"
        os.makedirs(where)
        directory = result(program, where, trains)
        verbs = ["verify", "show", "train" if trains else "run"]
        for verb in verbs:
            rankc(program, *VERBS[verb](directory)).must(0)
        spoil(f"{directory}/{name}", where)
        for verb in verbs:
            done = rankc(program, *VERBS[verb](directory))
            wanted = (8, "E0802") if verb in readers else (0, told if verb in ("run", "train") else "")
            expect((done.status, done.error) == wanted, f"{verb}: expected {wanted}, got {done.status} {done.stderr[:300]}")


def linked(name):
    """The same bytes, behind a link."""
    def spoil(path, where):
        os.rename(path, f"{where}/aside")
        os.symlink(f"{where}/aside", path)
    # of location.json show reads the number of ranks, which the edit below does not change
    readers = READS[name] + ["show"] * (name == "location.json")
    return lambda program, work: check_verbs(program, work, name, spoil, readers)


def changed(name, edit):
    def spoil(path, where):
        del where
        with open(path) as file:
            text = file.read()
        expect(edit(text) != text, f"nothing to edit in {path}")
        with open(path, "w") as file:
            file.write(edit(text))
    return lambda program, work: check_verbs(program, work, name, spoil, READS[name], "E0806" if name in SOURCES else "")


def every_bit(program, work):
    """Whatever bit of manifest.json flips, verify and show refuse it."""
    directory = result(program, work, False)
    path = f"{directory}/manifest.json"
    size = os.path.getsize(path)
    for at in list(range(0, size, size // 60)) + [size - 3, size - 10]:
        flip_bit(path, at, at % 7)
        for verb in ("verify", "show"):
            done = rankc(program, *VERBS[verb](directory))
            expect(done.status in (3, 8) and done.error in ("E0802", "E0803", "E0804"), f"byte {at}: {done.status} {done.stderr}")
        flip_bit(path, at, at % 7)
    rankc(program, "verify", directory).must(0)


def swapped(program, work):
    """Names of inputs that were swapped, and a seal that is right again: verify works out what the manifest must say."""
    text = f"{work}/sub.rir"
    with open(text, "w") as file:
        file.write('rankc-ir 1\ngraph "g" level=IMPORTED\ninput %0 "a" f32[1]\ninput %1 "b" f32[1]\n'
                   '%2 "y" = Sub(%0, %1) node="sub"\noutput %2 "y"\n')
    rankc(program, *compile_command(text, f"{work}/out"), env=QUICK).must(0, reused="nothing")
    path = instance(f"{work}/out") + "/manifest.json"
    with open(path) as file:
        manifest = file.read()
    edited = manifest.replace('"name": "a"', '"name": "z"').replace('"name": "b"', '"name": "a"').replace('"name": "z"', '"name": "b"')
    expect(edited != manifest, "no names")
    with open(path, "w") as file:
        file.write(edited)
    rankc(program, "verify", f"{work}/out").must(8, "E0802")
    seal = os.path.join(os.path.dirname(HERE), "cli", "seal.py")
    subprocess.run(["python3", "-B", seal, HASH_FILE, path], check=True)
    rankc(program, "show", f"{work}/out").must(0)
    rankc(program, "verify", f"{work}/out").must(8, "E0804")


def model_changed(program, work):
    directory = result(program, work, False)
    flip_bit(f"{work}/made/model.onnx", 5000)
    rankc(program, "verify", directory).must(8, "E0802")
    rankc(program, "run", directory, *INPUT).must(8, "E0802")
    os.remove(f"{work}/made/model.onnx")
    done = rankc(program, "run", directory, *INPUT).must(6, "E0608")
    expect("--weights copy" in done.stderr, done.stderr)


def constants_missing(program, work):
    """A file that the result lacks is missing in its directory, whatever location.json says of the model."""
    model = os.path.join(MODELS, "gpt2", "model.onnx")
    rankc(program, *compile_command(model, f"{work}/out", "--shape", "input_ids=2,8"), env=QUICK).must(0, reused="nothing")
    directory = instance(f"{work}/out")
    os.remove(f"{directory}/weights/constants.bin")
    for code, error, verb in (6, "E0601", ["run", directory, "--random-inputs"]), (8, "E0802", ["verify", directory]):
        done = rankc(program, *verb).must(code, error)
        expect("weights/constants.bin" in done.stderr and "location.json" not in done.stderr, done.stderr)
    os.remove(f"{directory}/location.json")
    done = rankc(program, "run", directory, "--random-inputs").must(6, "E0601")
    expect("cannot open 'location.json': No such file or directory, in the program's directory" in done.stderr, done.stderr)


def levels(program, work):
    """Text after each pass, compiled and verified: planned text has no form for one device."""
    with open(PASSES) as file:
        names = re.findall(r"^[A-Z]+\((\w+)", file.read(), re.M)
    seen = set()
    for name in names:
        done = rankc(program, "compile", AGAIN, "--dump-after", name, "--pas", "tp", "--plan-ngpus", "2").must(0)
        level = re.search(r"level=(\w+)", done.stdout)[1]
        path = f"{work}/{name}.rir"
        with open(path, "w") as file:
            file.write(done.stdout)
        rankc(program, *compile_command(path, f"{work}/out", "--no-build")).must(0, reused="nothing")
        rankc(program, "verify", f"{work}/out/{name}").must(0)
        if level not in ("IMPORTED", "TYPED"):
            rankc(program, "verify", "--numeric", f"{work}/out/{name}").must(4, "E0416")
        seen.add(level)
    expect({"IMPORTED", "TYPED", "PLACED", "COMMUNICATING", "STAGED", "SEGMENTED", "SCHEDULED"} <= seen, f"levels {seen}")


def trained_text(program, work):
    """Text that trains, with weights in a file that it names."""
    subprocess.run(["python3", "-c", "import sys; open(sys.argv[1], 'wb').write(bytes(68))", f"{work}/linear_sgd.bin"], check=True)
    shutil.copy(os.path.join(os.path.dirname(HERE), "structure", "linear_sgd.rir"), work)
    for name, options in (("reference", []), ("copy", ["--weights", "copy"])):
        rankc(program, *compile_command(f"{work}/linear_sgd.rir", f"{work}/{name}", "--no-build", *options)).must(0, reused="nothing")
        rankc(program, "verify", f"{work}/{name}").must(0)


def damaged(program, work):
    """A graph.rir that ends early, has other bits, lines or numbers: verify sees that, a compile of it refuses the text or makes another
    program, and none ends with an internal error."""
    random_ = random.Random(1)
    directory = result(program, work, True)
    with open(f"{directory}/graph.rir", "rb") as file:
        whole = file.read()
    for number in range(48):
        at, text = random_.randrange(len(whole)), bytearray(whole)
        numbers = list(re.finditer(rb"\d+", whole))
        lines = whole.split(b"\n")
        if number % 4 == 0:
            text = text[:at]
        elif number % 4 == 1:
            text[at] ^= 1 << random_.randrange(8)
        elif number % 4 == 2:
            one = random_.choice(numbers)
            text[one.start():one.end()] = random_.choice([b"0", b"-1", b"2147483648", b"9223372036854775807", b"99999999999999999999"])
        else:
            lines.insert(random_.randrange(len(lines)), lines.pop(random_.randrange(len(lines))))
            text = b"\n".join(lines)
        with open(f"{directory}/graph.rir", "wb") as file:
            file.write(text)
        if text != whole:
            rankc(program, "verify", directory).must(8, error="E0802")
        done = rankc(program, *compile_command(f"{directory}/graph.rir", f"{work}/again", "--no-build", "--reuse", "override"))
        expect(done.status in (0, 2, 3, 4, 5, 8), f"mutant {number}: {done.status} {done.stderr[:300]}")


AGAIN = os.path.join(os.path.dirname(HERE), "cli", "again.rir")
EDITS = {"manifest.json": lambda t: t.replace('"name": "x"', '"name": "xx"', 1), "plan.json": lambda t: t.replace('"dim": 1', '"dim": 0', 1),
         "graph.rir": lambda t: t.replace("Relu", "Tanh", 1), "location.json": lambda t: re.sub('"hash": "..', '"hash": "zz', t),
         "model.h": lambda t: t + "\n", "model.c": lambda t: t + "\n", "rank_0.c": lambda t: t + "\n", "Makefile": lambda t: t + "\n"}
CASES = {**{f"{name} changed": changed(name, edit) for name, edit in EDITS.items()},
         **{f"{name} is a link": linked(name) for name in EDITS},
         "any bit of the manifest": every_bit, "names swapped": swapped, "model changed": model_changed,
         "constants missing": constants_missing,
         "text damaged": damaged, "text of every level": levels, "text that trains": trained_text}

if __name__ == "__main__":
    given = parse(__doc__, "--hash-file")
    HASH_FILE = given.hash_file
    sweep("files that are not as generated", CASES, given)
