#!/usr/bin/python3
"""rankc generate writes what PyTorch's generate() writes, under every plan; texts, stops, draws, refusals, signals.

    generate.py --rankc RANKC [--target cuda] [CHECK...]

samples/generate/words is recorded by record_decoder.py, built/ and static/ by record_caches.py, small_caches.json
by record_small_caches.py."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, expect, needed, parser_of, read_json, report  # noqa: E402

with needed():
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
DECODER = HERE.parent.parent / "samples" / "generate" / "words"
REFERENCES = {one["name"]: one for one in read_json(DECODER, "references.json")["references"]}
NEW = read_json(DECODER, "references.json")["new"]
WORDS = {i: word for word, i in read_json(DECODER, "tokenizer.json")["model"]["vocab"].items()}
DIMS = ["--dim", "batch=1..4", "--dim", "sequence=1..16", "--dim", "past_sequence=0..80"]
PLANS = {"one": [], "last": ["--logits", "last"], "tp2 last": ["--logits", "last", "--pas", "tp", "--plan-ngpus", "2"],
         "tp2": ["--pas", "tp", "--plan-ngpus", "2"], "pp2": ["--pas", "pp", "--plan-ngpus", "2"],
         "tp2data2": ["--pas", "hybrid:tensor=2,data=2", "--dim", "batch=2..4:2"]}


class Programs:
    """Programs of the decoder in one place: equal calls share one."""
    def __init__(self, rankc, place, target):
        self.rankc, self.place, self.made = rankc, pathlib.Path(place), {}
        self.target, self.comm = ["--target", target], ["--comm", "loopback"] if target == "cuda" else []

    def compile(self, *words, model=DECODER / "model.onnx", dims=DIMS):
        key = (*map(str, words), str(model), *dims)
        if key not in self.made:
            out = self.made[key] = self.place / f"p{len(self.made)}"
            own = dims[2:] if any(word.startswith("batch=") for word in words) else dims
            call(self.rankc, "compile", model, *self.target, "--state", "auto", *own, *words, "-o", out, "-q")
        return self.made[key]

    def generate(self, program, *words, **how):
        return call(self.rankc, "generate", program, "--threads", 1, *self.comm, *words, **how)

    def ids(self, program, *words):
        return json.loads(self.generate(program, "--json", *words).stdout)["ids"]


def prompts(work, rows, left=True):
    """Files with ids and mask."""
    width = max(map(len, rows))
    side = (lambda row: [0] * (width - len(row)) + row) if left else (lambda row: row + [0] * (width - len(row)))
    np.save(f"{work}/ids.npy", np.array([side(row) for row in rows], np.int64))
    np.save(f"{work}/mask.npy", np.array([side([1] * len(row)) for row in rows], np.int64))
    return ["--input", f"input_ids={work}/ids.npy", "--input", f"attention_mask={work}/mask.npy"]


def written(programs, work, program, reference, *words):
    """The ids that are written for a reference."""
    if reference["eos"] != 2:
        words = (*words, "--stop", reference["eos"])
    if "repetition_penalty" in reference:
        words = (*words, "--repetition-penalty", reference["repetition_penalty"])
    return programs.ids(program, *prompts(work, reference["prompts"]), "--max-new-tokens", NEW, *words)


def greedy(programs, work):
    """Token for token what generate() wrote: one row, rows of several lengths, an end token, a penalty, a prompt in chunks."""
    # the first stage computes what follows from the mask, and does not have the ranks that divide the second one
    for plan, words in {**PLANS, "data2 in a stage": ["--pas", "hybrid:data=2@1,pipeline=2", "--dim", "batch=2..4:2"]}.items():
        program = programs.compile(*words)
        for name, reference in REFERENCES.items():
            got = written(programs, work, program, reference)
            expect(got == reference["ids"], f"{plan}, {name}: {got}, not {reference['ids']}")
    return f"{len(PLANS)} plans, {len(REFERENCES)} references"


def copied(programs, program):
    """Bytes of caches that a step of the program copies."""
    ranks = json.loads(call(programs.rankc, "show", program, "--json").stdout)["ranks"]
    expect(all(rank["state_replaced"] < 64 for rank in ranks), "a cache is replaced as a whole")
    return sum(rank["state_copied"] for rank in ranks)


BUILT = ["batch_size=BATCH", "sequence_length=1..16"]  # kv_cache_dim is that of genai_config.json
CACHES = {"grows": ("built", [*BUILT, "past_sequence_length=0..80"]),
          "a shared buffer": ("built", [*BUILT, "past_sequence_length=96", "total_sequence_length=1..96"]),
          "written by index_copy": ("static", ["s10=BATCH", "s69=1..16", "s53=96"])}


def caches(programs, work):
    """Caches with places of each row, where new tokens overwrite the padding, and of a fixed size: nothing of them is copied."""
    for name, (folder, sizes) in CACHES.items():
        # prompts of different lengths need the logits of all tokens
        for plan, words in {**{plan: words for plan, words in PLANS.items() if "last" not in plan}, "tp4": ["--pas", "tp", "--plan-ngpus", "4"]}.items():
            batch = "2..4:2" if "data" in plan else "1..4"
            dims = [word for size in sizes for word in ("--dim", size.replace("BATCH", batch))]
            program = programs.compile(*words[:2 if "data" in plan else None], model=HERE / folder / "model.onnx", dims=dims)
            expect(copied(programs, program) == 0, f"{name}, {plan}: {copied(programs, program)} bytes are copied")
            for reference in read_json(HERE / folder, "references.json")["references"]:
                got = written(programs, work, program, reference)
                expect(got == reference["ids"], f"{name}, {plan}, {reference['name']}: {got}, not {reference['ids']}")
    return f"{len(CACHES)} caches, with more ranks than heads too"


def small_caches(programs, work):
    """Caches of 16 and 8 bits: what generate() writes if keys and values are rounded when they are added."""
    recorded = read_json(HERE, "small_caches.json")
    expect(all(recorded[dtype]["ids"] != recorded["own"] for dtype in ("bf16", "int8")), "the texts are those of caches in f32")
    for dtype in "bf16", "fp16", "int8":
        for plan, words in {**PLANS, "tp4": ["--pas", "tp", "--plan-ngpus", "4"]}.items():
            program = programs.compile(*words, "--cache-dtype", dtype)
            expect("data" in plan or copied(programs, program) == 0, f"{dtype}, {plan}: caches are copied")
            got = written(programs, work, program, recorded[dtype])
            expect(got == recorded[dtype]["ids"], f"{dtype}, {plan}: {got}, not {recorded[dtype]['ids']}")
    for name, (folder, sizes) in CACHES.items():
        for words in [], ["--pas", "tp", "--plan-ngpus", "2"], ["--pas", "tp", "--plan-ngpus", "4"]:
            dims = [word for size in sizes for word in ("--dim", size.replace("BATCH", "1..4"))]
            program = programs.compile(*words, "--cache-dtype", "int8", model=HERE / folder / "model.onnx", dims=dims)
            expect(copied(programs, program) == 0, f"int8, {name}, {words}: caches are copied")
            got = written(programs, work, program, recorded["built"])
            expect(got == recorded["built"]["ids"], f"int8, {name}, {words}: {got}, not {recorded['built']['ids']}")
    return f"3 types, {len(PLANS) + 1} plans, {len(CACHES)} caches with places of each row"


def sides(programs, work):
    """Files of prompts may be padded on either side; a row has no other ids beside others than alone."""
    program, reference = programs.compile(), REFERENCES["three"]
    for left in (True, False):
        got = programs.ids(program, *prompts(work, reference["prompts"], left), "--max-new-tokens", NEW)
        expect(got == reference["ids"], f"left={left}: {got}")
    for row, ids in zip(reference["prompts"], reference["ids"]):
        expect(programs.ids(program, *prompts(work, [row]), "--max-new-tokens", NEW) == [ids], f"alone: {row}")
    return "as alone"


def files(programs, work):
    """OUT/ids.npy has the new tokens, padded behind a row's end; OUT/text.jsonl the texts."""
    program, reference, out = programs.compile(), REFERENCES["early"], f"{work}/out/in"
    programs.generate(program, *prompts(work, reference["prompts"]), "--max-new-tokens", NEW, "--stop", reference["eos"],
                      "--output-dir", out)
    ids = np.load(f"{out}/ids.npy")
    width = max(map(len, reference["ids"]))
    wanted = [row + [0] * (width - len(row)) for row in reference["ids"]]
    expect(ids.dtype == np.int64 and ids.tolist() == wanted, f"ids.npy: {ids.dtype} {ids.tolist()}")
    texts = [json.loads(line) for line in open(f"{out}/text.jsonl", encoding="utf-8")]
    said = [" ".join(WORDS[i] for i in row if i > 3) for row in reference["ids"]]
    expect(texts == said, f"text.jsonl: {texts}, not {said}")
    return f"{ids.shape}"


def texts(programs, work):
    """A prompt is a text, and so is the result; --stop TEXT ends a row and is not part of it; --json has ids and times."""
    program, reference = programs.compile(), REFERENCES["one"]
    prompt = " ".join(WORDS[i] for i in reference["prompts"][0][1:])
    said = " ".join(WORDS[i] for i in reference["ids"][0] if i > 3)
    got = programs.generate(program, "--prompt", prompt, "--max-new-tokens", NEW)
    expect(got.stdout == said + "\n", f"{got.stdout!r}, not {said!r}")
    expect("per second" in got.stderr, got.stderr)
    stop = said.split()[4] + " " + said.split()[5]
    before = said[:said.index(stop)]
    got = programs.generate(program, "--prompt", prompt, "--max-new-tokens", NEW, "--stop", stop, "-q")
    expect((got.stdout, got.stderr) == (before + "\n", ""), f"{got.stdout!r}, not {before!r}: {got.stderr}")
    found = json.loads(programs.generate(program, "--prompt", prompt, "--json", "--max-new-tokens", 5, "--stop", "no such").stdout)
    expect(found["ids"] == [reference["ids"][0][:5]], f"{found}")
    expect(found["format"] == 1 and found["prompt_tokens_per_s"] > 0 and found["tokens_per_s"] > 0, f"{found}")
    expect(len(found["step_ms"]["all"]) == 4 and found["step_ms"]["min"] <= found["step_ms"]["max"], f"{found}")
    copy = shutil.copy(DECODER / "tokenizer.json", f"{work}/other.json")
    got = programs.generate(program, "--prompt", prompt, "--tokenizer", copy, "--max-new-tokens", 1, "-q")
    expect(got.stdout == WORDS[reference["ids"][0][0]] + "\n", got.stdout)
    return "text in, text out"


def draws(programs, work):
    """Draws are those of seed, row and place: the same under plans and beside other rows; other seeds draw others."""
    rows = REFERENCES["three"]["prompts"]
    words = ["--max-new-tokens", 16, "--temperature", 1.5, "--top-k", 40, "--top-p", 0.98, "--min-p", 0.001]
    seen = {}
    for plan, plan_words in PLANS.items():
        program = programs.compile(*plan_words)
        seen[plan] = programs.ids(program, *prompts(work, rows), *words, "--seed", 3)
        expect(seen[plan] == seen["one"], f"{plan}: {seen[plan]}, not {seen['one']}")
    program = programs.compile()
    expect(programs.ids(program, *prompts(work, rows[:1]), *words, "--seed", 3) == seen["one"][:1], "beside other rows")
    others = [programs.ids(program, *prompts(work, rows), *words, "--seed", seed) for seed in range(4)]
    expect(len({json.dumps(other) for other in others}) == 4, f"{others}")
    cold = programs.ids(program, *prompts(work, rows), "--max-new-tokens", NEW, "--temperature", 5, "--top-k", 1)
    expect(cold == REFERENCES["three"]["ids"], "--top-k 1 is greedy")
    return "counted"


def renamed(path, names):
    model = onnx.load(DECODER / "model.onnx")
    for value in [*model.graph.input, *model.graph.output]:
        value.name = names.get(value.name, value.name)
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    onnx.save(model, path)
    return path


def roles(programs, work):
    """Inputs whose names say nothing: an error names input and option, --role gives them roles."""
    model = renamed(f"{work}/renamed.onnx", {"input_ids": "tokens", "attention_mask": "keep", "position_ids": "where"})
    program = programs.compile(model=model)
    reference = REFERENCES["three"]
    named = ["--role", "tokens=ids", "--role", "keep=mask", "--role", "where=positions"]
    for missing, name in ((named[2:], "ids"), ([*named[:2], *named[4:]], "'keep'"), (named[:4], "'where'")):
        said = programs.generate(program, *prompts(work, [[1, 5]])[:2], *missing, status=2).stderr
        expect(name in said and "--role" in said, said)
    given = prompts(work, reference["prompts"])
    given = [word.replace("input_ids=", "tokens=").replace("attention_mask=", "keep=") for word in given]
    got = programs.ids(program, *given, *named, "--max-new-tokens", NEW)
    expect(got == reference["ids"], f"{got}")
    return "by --role"


def names(programs, work):
    """Names of caches that genai_config.json says; without it none look like state."""
    parts = [(i, kind) for i in range(2) for kind in ("key", "value")]
    new = {f"past_key_values.{i}.{kind}": f"mem_{i}_{kind}" for i, kind in parts} | {f"present.{i}.{kind}": f"out_{i}_{kind}" for i, kind in parts}
    model = renamed(f"{work}/model.onnx", new)
    said = call(programs.rankc, "compile", model, "--state", "auto", *DIMS, "--dim", "total_sequence=1..96", "-o", f"{work}/o", "--no-build",
                status=4).stderr
    expect("E0441" in said, said)
    kinds = {"inputs": {f"past_{kind}_names": f"mem_%d_{kind}" for kind in ("key", "value")},
             "outputs": {f"present_{kind}_names": f"out_%d_{kind}" for kind in ("key", "value")}}
    pathlib.Path(f"{work}/genai_config.json").write_text(json.dumps({"model": {"decoder": kinds}}))
    reference = REFERENCES["one"]
    got = programs.ids(programs.compile(model=model), *prompts(work, reference["prompts"]), "--max-new-tokens", NEW)
    expect(got == reference["ids"], f"{got}")
    return "of genai_config.json"


REFUSED = [  # exit status, what the message has, words
    (5, "need 84 places in the caches, which have 80", ["--prompt", "owl owl owl", "--max-new-tokens", 81]),
    (5, "5 prompts, but the program was compiled for 1 to 4 (rows of input 'input_ids')", ["--prompt", "owl"] * 5),
    (2, "there is no prompt", []),
    (2, "exclude each other", ["--prompt", "owl", "--input", f"input_ids={HERE}/no.npy"]),
    (6, "cannot open", ["--input", f"input_ids={HERE}/no.npy"]),
    (3, "integers of the shape [batch, tokens], and this is f32 [1, 3]", ["--input", "input_ids={floats}"]),
    (3, "the prompts are i64 [1, 2], but their mask is i64 [1, 3]", ["--input", "input_ids={below}", "--input", "attention_mask={three}"]),
    (3, "-4 is no token id", ["--input", "input_ids={below}"]),
    (2, "no input 'nothing'", ["--prompt", "owl", "--role", "nothing=mask"]),
    (2, "did you mean 'mask'", ["--prompt", "owl", "--role", "attention_mask=masc"]),
    (2, "--temperature must be", ["--prompt", "owl", "--temperature", "hot"]),
    (2, "--top-p must be", ["--prompt", "owl", "--top-p", 0]),
    (2, "--min-p must be", ["--prompt", "owl", "--min-p", 2]),
    (2, "--repetition-penalty must be", ["--prompt", "owl", "--repetition-penalty", 0]),
    (2, "--max-new-tokens must be", ["--prompt", "owl", "--max-new-tokens", 0]),
    (2, "--pas", ["--prompt", "owl", "--pas", "tp"]),
]


def refusals(programs, work):
    """What cannot be done is refused before the first step, with the exit status that DESIGN gives it."""
    program = programs.compile()
    np.save(f"{work}/floats.npy", np.zeros((1, 3), np.float32))
    np.save(f"{work}/below.npy", np.array([[5, -4]]))
    np.save(f"{work}/three.npy", np.ones((1, 3), np.int64))
    for status, text, words in REFUSED:
        words = [str(w).format(floats=f"{work}/floats.npy", below=f"{work}/below.npy", three=f"{work}/three.npy") for w in words]
        said = programs.generate(program, *words, status=status).stderr
        expect(text in said, f"{words}: {said}")
    stateless = pathlib.Path(work) / "none"
    dims = [word.replace("past_sequence=0", "past_sequence=1") for word in DIMS]
    call(programs.rankc, "compile", DECODER / "model.onnx", *dims, "-o", stateless, "-q")
    said = programs.generate(stateless, "--prompt", "owl", status=8).stderr
    expect("E0807" in said and f"rankc generate {DECODER}/model.onnx" in said, said)
    bare = programs.compile(model=shutil.copy(DECODER / "model.onnx", f"{work}/bare.onnx"))
    for words in (["--prompt", "owl"], [*prompts(work, [[1, 5]]), "--stop", "owl"]):
        said = programs.generate(bare, *words, status=2).stderr
        expect("needs a tokenizer.json" in said and "--tokenizer" in said, said)
    said = programs.generate(bare, *prompts(work, [[1, 5]]), "--max-new-tokens", 3, "-q").stdout
    expect(len(said.split()) == 3 and said.endswith("\n"), f"without a tokenizer ids are printed: {said!r}")
    return f"{len(REFUSED)} and three more"


CONFIGS = [  # exit status, file, text
    (3, "generation_config.json", "{"),
    (3, "generation_config.json", "[1]"),
    (3, "generation_config.json", '{"eos_token_id": "two"}'),
    (3, "generation_config.json", '{"eos_token_id": [2, -7]}'),
    (3, "generation_config.json", '{"eos_token_id": 99999999999}'),
    (3, "generation_config.json", '{"pad_token_id": 1.5}'),
    (3, "generation_config.json", '{"suppress_tokens": {"a": 1}}'),
    (3, "generation_config.json", '{"decoder_start_token_id": 1, "forced_decoder_ids": [[1]]}'),
    (3, "config.json", '{"max_position_embeddings": 0}'),
    (3, "genai_config.json", '{"model": {"eos_token_id": true}}'),
    (3, "config.json", "[" * 100000),
    (0, "config.json", '{"eos_token_id": null, "pad_token_id": -1, "text_config": {"eos_token_id": [7, 8]}}'),
    (0, "genai_config.json", '{"model": {"eos_token_id": 7, "pad_token_id": 8}}'),
]


def configurations(programs, work):
    """Configurations beside the model: what they say is in the manifest; files that are malformed are refused by name."""
    for number, (status, name, text) in enumerate(CONFIGS):
        folder = pathlib.Path(work) / f"c{number}"
        folder.mkdir()
        model = shutil.copy(DECODER / "model.onnx", folder / "model.onnx")
        (folder / name).write_text(text)
        done = call(programs.rankc, "compile", model, "--state", "auto", *DIMS, "-o", folder / "o", "--no-build", "-q", status=status)
        expect(bool(status) == (name in done.stderr), f"{text[:80]}: {done.stderr}")
        if not status:
            said = read_json(next(folder.glob("o/*/*/manifest.json")))["generation"]
            expect(said["end"][0] == 7, f"{said}")
    said = read_json(next(programs.compile().glob("*/*/manifest.json")))["generation"]
    wanted = {"roles": {"input_ids": "ids", "attention_mask": "mask", "position_ids": "positions"}, "logits": "logits",
              "padding": "left", "end": [2], "pad": 0, "context": 128}
    expect(said == wanted, f"{said}")
    return f"{len(CONFIGS)} files"


def copies(programs, work):
    """--weights copy: the program needs neither the model nor its tokenizer; verify knows the manifest."""
    folder = pathlib.Path(work) / "moved"
    shutil.copytree(DECODER, folder)
    program = programs.compile("--weights", "copy", model=folder / "model.onnx")
    shutil.rmtree(folder)
    got = programs.generate(program, "--prompt", "owl pine", "--max-new-tokens", 4, "-q").stdout
    expect(len(got.split()) <= 4 and got.strip(), got)
    call(programs.rankc, "verify", program)
    call(programs.rankc, "verify", programs.compile(*PLANS["tp2"]))
    return "self-contained"


def prefix(programs, work):
    """A prompt's state is kept, and texts that begin with it go on from there, with the same tokens, under every plan."""
    three, long = REFERENCES["three"], REFERENCES["long"]
    for plan, words in PLANS.items():
        program = programs.compile(*words)
        for reference, cut in ((three, 1), (long, 20)):
            kept = f"{work}/{plan}-{cut}"
            saving = [*prompts(work, [row[:-cut] for row in reference["prompts"]]), "--max-new-tokens", 1, "--save-state", kept]
            programs.ids(program, *saving)
            for _ in range(2):
                got = programs.ids(program, *prompts(work, reference["prompts"]), "--load-state", kept, "--max-new-tokens", NEW)
                expect(got == reference["ids"], f"{plan}: {got}, not {reference['ids']}")
        kept = f"{work}/{plan}-same"
        first = programs.ids(program, *prompts(work, three["prompts"]), "--max-new-tokens", NEW, "--save-state", kept)
        again = programs.ids(program, *prompts(work, three["prompts"]), "--max-new-tokens", NEW, "--load-state", kept)
        expect(first == again == three["ids"], f"{plan}: {again}")
    one, others = programs.compile(), [row[1:] for row in three["prompts"]]
    for rows in (others, three["prompts"][:2], [[*three["prompts"][0], 5], *three["prompts"][1:]]):
        said = programs.generate(one, *prompts(work, rows), "--load-state", f"{work}/one-1", status=8).stderr
        expect("the prompts do not begin with those whose state is in" in said, said)
    said = programs.generate(programs.compile(*PLANS["tp2"]), *prompts(work, three["prompts"]), "--load-state", f"{work}/one-1", status=None)
    expect(said.returncode in (6, 8) and "one-1" in said.stderr, f"{said.returncode}: {said.stderr}")
    said = programs.generate(one, *prompts(work, three["prompts"]), "--load-state", f"{work}/none", status=6).stderr
    expect("none/prompts" in said, said)
    return f"{len(PLANS)} plans"


def positioned(path):
    """The decoder with a table of 128 positions, of which a step reads the rows behind the caches; its values are zeros."""
    model = onnx.load(DECODER / "model.onnx")
    graph, logits = model.graph, model.graph.output[0].name
    for node in graph.node:
        node.output[:] = ["plain" if name == logits else name for name in node.output]
        node.input[:] = ["plain" if name == logits else name for name in node.input]
    graph.initializer.extend([numpy_helper.from_array(np.zeros((128, 1), np.float32), "table"),
                              numpy_helper.from_array(np.array([0]), "first_axis")])
    make = helper.make_node
    graph.node.extend([make("Shape", ["past_key_values.0.key"], ["begin"], start=2, end=3),
                       make("Shape", ["input_ids"], ["columns"], start=1, end=2), make("Add", ["begin", "columns"], ["behind"]),
                       make("Slice", ["table", "begin", "behind", "first_axis"], ["rows"]), make("Add", ["plain", "rows"], [logits])])
    onnx.save(model, path)
    return path


def model(programs, work):
    """The model itself: compiled into the cache with state, and bounds from its configuration and the prompts, which are said."""
    path = shutil.copytree(DECODER, pathlib.Path(work) / "m") / "model.onnx"
    env = {**os.environ, "XDG_CACHE_HOME": f"{work}/cache"}
    reference = REFERENCES["three"]
    words = [path, *prompts(work, reference["prompts"]), "--max-new-tokens", NEW, "--json"]
    for said in ("batch=1..4, sequence=1..128, past_sequence=0..128", ""):
        done = programs.generate(*words, env=env)
        expect(json.loads(done.stdout)["ids"] == reference["ids"], done.stdout)
        expect(said in done.stderr if said else not done.stderr, done.stderr)
    done = programs.generate(path, *prompts(work, REFERENCES["one"]["prompts"]), "--max-new-tokens", NEW, "--json", "--dim",
                             "past_sequence=0..40", "--pas", "tp", "--plan-ngpus", 2, env=env)
    expect(json.loads(done.stdout)["ids"] == REFERENCES["one"]["ids"] and "past_sequence=" not in done.stderr, done.stderr)
    prompts(work, reference["prompts"])
    done = programs.generate(positioned(path.with_name("positioned.onnx")), *words[1:], env=env)
    expect(json.loads(done.stdout)["ids"] == reference["ids"], done.stdout)
    expect("sequence=1..16, past_sequence=0..112" in done.stderr, f"steps that end within the table: {done.stderr}")
    said = programs.generate(path, "--prompt", "owl", "--max-new-tokens", 200, status=5, env=env).stderr
    expect("places in the caches, which have 128" in said, said)
    return "bounds by themselves"


def begin(programs, program, work, *words):
    """A generation that takes long, once its ranks have begun: the process, and its children."""
    out = subprocess.Popen([programs.rankc, "generate", program, "--threads", "1", *map(str, words), "--output-dir", f"{work}/cut"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    children = []
    while not children or time.monotonic() < begun + 0.7:
        if not children:
            begun = time.monotonic()
        listed = open(f"/proc/{out.pid}/task/{out.pid}/children", encoding="ascii").read().split()
        children = [int(child) for child in listed]
        expect(out.poll() is None, "it ended by itself")
        time.sleep(0.01)
    return out, children


def signals(programs, work):
    """SIGINT ends a generation with what was written so far, exit 130; a killed rank ends all within .1 s, and is named."""
    dims = ["--dim", "batch=1", "--dim", "sequence=1..16", "--dim", "past_sequence=0..200000"]
    bare = shutil.copy(DECODER / "model.onnx", f"{work}/long.onnx")
    program = programs.compile(*PLANS["tp2"], model=bare, dims=dims)
    said = programs.generate(program, *prompts(work, [[1], [2]]), status=5).stderr
    expect("2 prompts, but the program was compiled for 1 (rows" in said, said)
    words = [*prompts(work, REFERENCES["one"]["prompts"]), "--max-new-tokens", 190000]
    for number in (signal.SIGINT, signal.SIGTERM):
        running, _ = begin(programs, program, work, *words)
        running.send_signal(number)
        said = running.communicate(timeout=60)
        expect(running.returncode == 130, f"exit {running.returncode}: {said[1]}")
        ids = np.load(f"{work}/cut/ids.npy")
        expect(ids[0, :10].tolist() == REFERENCES["one"]["ids"][0][:10] and ids.shape[1] < 190000, f"{ids.shape}")
        expect(said[0].split() == [str(i) for i in ids[0]], "what is printed is what is written")
        shutil.rmtree(f"{work}/cut")
    least = min(killed(programs, program, work, rank, words) for rank in (0, 1, 0, 1, 0, 1))
    expect(least < .1, f"ended {least:.3f} s after the kill")
    return f"130 and 9, which takes {1e3 * least:.0f} ms"


def killed(programs, program, work, rank, words):
    """Seconds from the kill of a rank to the end of all, which names it; other processes of the machine may add to them."""
    running, children = begin(programs, program, work, *words)
    begun = time.monotonic()
    os.kill(children[rank], signal.SIGKILL)
    said = running.communicate(timeout=60)
    took = time.monotonic() - begun
    expect(running.returncode == 9 and f"rank {rank}" in said[1], f"exit {running.returncode}: {said[1]}")
    expect(took < 5 and not any(os.path.exists(f"/proc/{child}") for child in children), f"ended after {took} s")
    return took


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--target", default="c")
    parser.add_argument("checks", nargs="*")
    given = parser.parse_args()
    checks = (greedy, caches, small_caches, sides, files, texts, draws, roles, names, refusals, configurations, copies, prefix, model, signals)
    with tempfile.TemporaryDirectory(prefix="rankc-generate-") as place:
        programs = Programs(given.rankc, place, given.target)
        return report([(check.__name__, lambda work, check=check: check(programs, work)) for check in checks
                       if not given.checks or check.__name__ in given.checks])


sys.exit(main())
