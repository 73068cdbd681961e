#!/usr/bin/python3
"""Every cell of the reuse matrix (DESIGN 6): matrix.py --rankc RANKC

A cell is a mode and what is in the directory: nothing; a result whose keys are equal; one of which only the graph key is;
one for another model; one that was edited, added to or cut off since; or something else. Checked: what the compile says
it did, its exit status and error, and the bytes afterwards, against a compile into an empty directory.
"""
import json
import os
import shutil

from harness import MODELS, Skipped, call, compile_command, dims_of, expect, instance, parse, rankc, snapshot, sweep

MODEL = os.path.join(MODELS, "gpt2", "model.onnx")
TRAINED = os.path.join(os.path.dirname(MODELS), "training", "mlp", "model.onnx")
DIMS = dims_of(MODEL)
WANTED = [*DIMS, "--pas", "tp", "--plan-ngpus", "2", "--no-build"]
EARLIER = {  # options of the result that is there
    "equal": WANTED,
    "graph": [*DIMS, "--no-build"],
    "other": ["--dim", "batch=1", "--dim", "seq=5", "--no-build"],
}


def edit(path, change):
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(change(text))


DAMAGE = {  # to a result whose keys are equal
    "edited source": lambda d: edit(f"{d}/rank_0.c", lambda t: t + "/* mine */\n"),
    "edited table": lambda d: edit(f"{d}/model.c", lambda t: t.replace("0", "1", 1)),
    "edited plan": lambda d: edit(f"{d}/plan.json", lambda t: t.replace("tensor", "tensir", 1)),
    "edited manifest": lambda d: edit(f"{d}/manifest.json", lambda t: t.replace('"peak"', '"peek"', 1)),
    "missing source": lambda d: os.remove(f"{d}/model.h"),
    "missing manifest": lambda d: os.remove(f"{d}/manifest.json"),
    "truncated constants": lambda d: os.truncate(f"{d}/weights/constants.bin", 3),
    "truncated manifest": lambda d: os.truncate(f"{d}/manifest.json", 1000),
    "extra file": lambda d: edit_new(f"{d}/rank_9.c"),
    "extra hidden file": lambda d: edit_new(f"{d}/weights/.hidden"),
    "source is a link": lambda d: (shutil.move(f"{d}/rank_0.c", f"{d}/../../../moved"),
                                   os.symlink("../../../moved", f"{d}/rank_0.c")),
    "build is a link": lambda d: (shutil.rmtree(f"{d}/build"), os.symlink("/tmp", f"{d}/build")),
}
GRAPH_DAMAGE = {"edited graph": lambda d: edit(f"{d}/graph.rir", lambda t: t.replace("Add", "Sub", 1)),
                "missing graph": lambda d: os.remove(f"{d}/graph.rir")}


def edit_new(path):
    with open(path, "w"):
        pass


ACTIONS = {  # by mode, then by what is there: exit status, error, what is said to be reused
    "match": {"empty": (0, "", "nothing"), "equal": (0, "", "all"), "graph": (8, "E0801", ""), "other": (8, "E0801", ""),
              "damaged": (8, "E0802", ""), "graph damaged": (8, "E0802", ""), "strange": (8, "E0802", ""),
              "format": (8, "E0803", "")},
    "override": dict.fromkeys(("empty", "equal", "graph", "other", "damaged", "graph damaged", "strange", "format"),
                              (0, "", "nothing")),
    "moo": {"empty": (0, "", "nothing"), "equal": (0, "", "all"), "graph": (0, "", "graph"), "other": (0, "", "nothing"),
            "damaged": (0, "", "graph"), "graph damaged": (0, "", "nothing"), "strange": (0, "", "nothing"),
            "format": (0, "", "nothing")},
    "graph": {"empty": (0, "", "nothing"), "equal": (0, "", "graph"), "graph": (0, "", "graph"),
              "other": (0, "", "nothing"), "damaged": (0, "", "graph"), "graph damaged": (0, "", "nothing"),
              "strange": (0, "", "nothing"), "format": (0, "", "nothing")},
}
MANIFEST_DAMAGED = ("edited manifest", "missing manifest", "truncated manifest")  # then no hash of the graph is known


def fresh(program, work):
    out = os.path.join(work, "fresh")
    rankc(program, *compile_command(MODEL, out, *WANTED)).must(0, reused="nothing")
    return snapshot(out)


def check(program, work, mode, kind, prepare):
    """Compiles over what `prepare` puts into the output directory."""
    out = os.path.join(work, "out")
    want = fresh(program, work)
    prepare(out)
    before = snapshot(out)
    status, error, reused = ACTIONS[mode][kind]
    done = rankc(program, *compile_command(MODEL, out, "--reuse", mode, *WANTED)).must(status, error, reused)
    after = snapshot(out)
    kept = {path: after.pop(path) for path in list(after) if EDITED in path}
    expect(after == (before if status else want), "the bytes are not those of " +
           ("before" if status else "a compile into an empty directory"))
    expect(kept == ({} if status else edited(before, want, kind)), f"kept are {list(kept)}")
    for path in kept:
        expect(f"kept as '{os.path.basename(path)}'" in done.stderr, f"nothing is said of {path}")
    return done


EDITED = ".edited-"


def edited(before, want, kind):
    """What must be kept of files that were changed since they were generated: all but those of weights/, if the manifest, which
    has their hashes, was not changed."""
    generated = {path: data for path, data in want.items() if "/weights/" not in path and os.path.basename(path) != "manifest.json"}
    if "damaged" not in kind or any(before.get(path) != want[path] for path in want if path.endswith("manifest.json")):
        return {}
    return {f"{path}{EDITED}1": before[path] for path, data in generated.items() if before.get(path, data) != data}


def keeps_every_edit(program, work):
    """Edits of one file after another are kept under one number after another, and reuse takes no notice of the copies."""
    out = os.path.join(work, "out")
    command = compile_command(MODEL, out, *WANTED)
    rankc(program, *command).must(0, reused="nothing")
    for n in (1, 2):
        edit(f"{instance(out)}/rank_0.c", lambda t, n=n: t + f"/* {n} */\n")
        rankc(program, *command, "--reuse", "override").must(0, reused="nothing")
        rankc(program, *command).must(0, reused="all")
        rankc(program, "verify", out).must(0)
    for n in (1, 2):
        expect(open(f"{instance(out)}/rank_0.c{EDITED}{n}").read().endswith(f"/* {n} */\n"), f"edit {n} is lost")


def earlier(program, options, damage=None):
    def prepare(out):
        rankc(program, *compile_command(MODEL, out, *options)).must(0, reused="nothing")
        if damage:
            damage(instance(out))
    return prepare


def cell(mode, kind, options=None, damage=None):
    return lambda program, work: check(program, work, mode, kind, earlier(program, options, damage))


def nothing(mode, prepare):
    return lambda program, work: check(program, work, mode, "empty", prepare)


def strange(out):
    os.makedirs(f"{out}/model/_")
    edit_new(f"{out}/model/_/holiday.jpg")


def other_format(directory):
    edit(f"{directory}/manifest.json", lambda t: t.replace('"format": 3', '"format": 4', 1))


def names_difference(program, work):
    """E0801 says what differs, and only that."""
    out = os.path.join(work, "out")
    earlier(program, EARLIER["graph"])(out)
    done = rankc(program, *compile_command(MODEL, out, *WANTED)).must(8, "E0801")
    for part in ("pas: was 'dp', is 'tp:tensor=2'", "plan-ngpus: was '1', is '2'"):
        expect(part in done.stderr, f"no \"{part}\" in\n{done.stderr}")
    expect("model:" not in done.stderr and "rankc:" not in done.stderr.replace("rankc: error", ""), done.stderr)
    rules = os.path.join(work, "rules")
    with open(rules, "w") as file:
        file.write('match "*" replicate\n')
    done = rankc(program, *compile_command(MODEL, out, *DIMS, "--no-build", "--pas", f"manual:{rules}"))
    expect(done.status == 8 and "'pas': was 'dp', is not used" in done.stderr, f"{done.status} {done.stderr}")


def graph_is_read(hash_file):
    """Where the graph is kept, the model is not imported again: a graph.rir with other names gives those names."""
    def case(program, work):
        out = os.path.join(work, "out")
        earlier(program, EARLIER["graph"])(out)
        directory = instance(out)
        node = json.load(open(f"{directory}/plan.json"))["nodes"][0]["name"]
        edit(f"{directory}/graph.rir", lambda t: t.replace(f'"{node}"', '"was_renamed"'))
        forge_hash(hash_file, directory, "graph.rir")
        rankc(program, *compile_command(MODEL, out, "--reuse", "moo", *WANTED)).must(0, reused="graph")
        names = [n["name"] for n in json.load(open(f"{directory}/plan.json"))["nodes"]]
        expect("was_renamed" in names and node not in names, f"{names[:3]}")
    return case


def forge_hash(hash_file, directory, name):
    """Makes the manifest agree with what its file is now."""
    if not hash_file:
        raise Skipped("no --hash-file")
    done = call(hash_file, f"{directory}/{name}")
    manifest = json.load(open(f"{directory}/manifest.json"))
    was = next(f["hash"] for f in manifest["files"] if f["path"] == name)
    edit(f"{directory}/manifest.json", lambda t: t.replace(was, done.stdout.strip()))


def save_plan(program, work):
    """--save-plan is obeyed whether or not something is generated."""
    out, plan = os.path.join(work, "out"), os.path.join(work, "plan.json")
    for reused in ("nothing", "all"):
        rankc(program, *compile_command(MODEL, out, *WANTED, "--save-plan", plan)).must(0, reused=reused)
        expect(open(plan, "rb").read() == snapshot(instance(out))["plan.json"], "the plan that was saved")
        os.remove(plan)


def build_again(model, names, *more):
    """A program that is missing is built again; those that are there are left alone."""
    def case(program, work):
        out = os.path.join(work, "out")
        command = compile_command(model, out, *dims_of(model), *more)
        rankc(program, *command).must(0, reused="nothing")
        for name in names:
            path = os.path.join(instance(out), "build", name)
            built = os.stat(path).st_mtime_ns
            rankc(program, *command).must(0, reused="all")
            expect(os.stat(path).st_mtime_ns == built, "built again for nothing")
            os.remove(path)
            rankc(program, *command).must(0, reused="all")
            expect(os.path.exists(path), "not built again")
    return case


def cases(hash_file):
    table = {"E0801 names what differs": names_difference, "a kept graph is read": graph_is_read(hash_file),
             "--save-plan": save_plan, "edits are kept": keeps_every_edit, "the program": build_again(os.path.join(MODELS, "mlp", "model.onnx"), ["run"]),
             "programs that train": build_again(TRAINED, ["run", "train"], "--train")}
    for mode in ACTIONS:
        table[f"{mode}, no directory"] = nothing(mode, lambda out: None)
        table[f"{mode}, empty directory"] = nothing(mode, lambda out: os.makedirs(f"{out}/model/_"))
        table[f"{mode}, something else"] = lambda p, w, mode=mode: check(p, w, mode, "strange", strange)
        for kind, options in EARLIER.items():
            table[f"{mode}, {kind}"] = cell(mode, kind, options)
        for name, damage in DAMAGE.items():
            kind = "graph damaged" if name in MANIFEST_DAMAGED else "damaged"
            table[f"{mode}, {name}"] = cell(mode, kind, WANTED, damage)
        for name, damage in GRAPH_DAMAGE.items():
            table[f"{mode}, {name}"] = cell(mode, "graph damaged", WANTED, damage)
        table[f"{mode}, other format"] = cell(mode, "format", WANTED, other_format)
    return table


if __name__ == "__main__":
    given = parse(__doc__, "--hash-file")
    sweep("cells of the matrix", cases(given.hash_file), given)
