#!/usr/bin/python3
"""rankc generate --encoder writes what PyTorch's generate() writes with encoder-decoders: an encoder, a decoder without a past that
makes the caches of the encoder, and a decoder with a past; or a merged decoder; and refuses what does not fit before anything runs.

    sequences.py --rankc RANKC [CHECK...]

whisper/ and samples/generate/t5 are recorded by record_sequences.py."""
import json
import os
import pathlib
import shutil
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, expect, needed, parser_of, read_json, report  # noqa: E402

with needed():
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
T5 = HERE.parent.parent / "samples" / "generate" / "t5"
FOLDERS = {"t5": T5, "whisper": HERE / "whisper"}
PLANS = {"one": [], "tp2": ["--pas", "tp", "--plan-ngpus", "2"]}
OWN = ["--dim", "decoder_sequence_length=1..4", "--dim", "past_decoder_sequence_length=0..40"]
PARTS = {"encoder": ("encoder_model.onnx", []), "first": ("decoder_model.onnx", OWN[:2]),
         "later": ("decoder_with_past_model.onnx", [*OWN, "--state", "auto"])}


def references(family):
    return {one["name"]: one for one in read_json(FOLDERS[family], "references.json")["references"]}


class Programs:
    """Programs of a family in one place: equal calls share one."""
    def __init__(self, rankc, place):
        self.rankc, self.place, self.made = rankc, pathlib.Path(place), {}

    def compile(self, family, part, *words, model=None, batch="1..4", source="1..8"):
        name, own = PARTS[part]
        model = model or FOLDERS[family] / name
        dims = [f"batch_size={batch}", *([f"encoder_sequence_length={source}"] if family == "t5" else [])]
        key = (str(model), part, *words, batch, source)
        if key not in self.made:
            out = self.made[key] = self.place / f"p{len(self.made)}"
            call(self.rankc, "compile", model, *own, *(word for dim in dims for word in ("--dim", dim)), *words, "-o", out, "-q")
        return self.made[key]

    def of(self, family, *words):
        """The decoder, and the options that name the others."""
        encoder, first, later = (self.compile(family, part, *words) for part in PARTS)
        return later, ["--encoder", encoder, "--encoder", first]

    def generate(self, program, *words, **how):
        return call(self.rankc, "generate", program, "--threads", 1, *words, **how)


TYPES = {"input_ids": np.int64, "attention_mask": np.int64, "decoder_input_ids": np.int64, "input_features": np.float32}


def inputs(work, case):
    """Files of what generate() got."""
    words = []
    for name, kind in TYPES.items():
        if name in case:
            np.save(f"{work}/{name}.npy", np.array(case[name], kind))
            words += ["--input", f"{name}={work}/{name}.npy"]
    return words


def written(programs, work, program, encoders, case):
    stop = ["--stop", case["eos"]] if case["eos"] != 2 else []
    said = programs.generate(program, *encoders, *inputs(work, case), *stop, "--max-new-tokens", 24, "--json").stdout
    return json.loads(said)["ids"]


def family(name):
    def check(programs, work):
        for plan, words in PLANS.items():
            program, encoders = programs.of(name, *words)
            for case in references(name).values():
                got = written(programs, work, program, encoders, case)
                expect(got == case["ids"], f"{plan}, {case['name']}: {got}, not {case['ids']}")
        return f"{len(PLANS)} plans, {len(references(name))} references"
    check.__name__ = name
    return check


def texts(programs, work):
    """A prompt is the encoder's text; prompts of several lengths are told by its mask."""
    program, encoders = programs.of("t5")
    words = {i: word for word, i in read_json(T5, "tokenizer.json")["model"]["vocab"].items()}
    case = references("t5")["three"]
    rows = [[i for i, real in zip(ids, mask) if real] for ids, mask in zip(case["input_ids"], case["attention_mask"])]
    plain = read_json(T5, "tokenizer.json")
    plain["post_processor"] = None  # prompts as they were recorded
    pathlib.Path(work, "plain.json").write_text(json.dumps(plain), encoding="utf-8")
    prompts = [word for row in rows for word in ("--prompt", " ".join(words[i] for i in row))]
    got = programs.generate(program, *encoders, *prompts, "--tokenizer", f"{work}/plain.json", "--max-new-tokens", 24, "-q").stdout
    wanted = "".join(" ".join(words[i] for i in row if i > 2) + "\n" for row in case["ids"])
    expect(got.replace("<unk> ", "") == wanted.replace("<unk> ", ""), f"{got!r}, not {wanted!r}")
    return "text in, text out"


def merged(path):
    """One file as optimum merges decoders: If use_cache_branch, the decoder with a past, else that without."""
    first, later = (onnx.load(T5 / name) for name in ("decoder_model.onnx", "decoder_with_past_model.onnx"))
    empty = [output.name for output in first.graph.output if ".encoder." in output.name]
    known = {value.name: value for value in [*later.graph.input, *first.graph.input]}

    def branch(graph, prefix, more):
        names = {name for node in graph.node for name in node.output} | {value.name for value in graph.initializer}
        new = {name: prefix + name for name in names}
        nodes = []
        for node in graph.node:
            node = onnx.NodeProto.FromString(node.SerializeToString())
            node.input[:] = [new.get(name, name) for name in node.input]
            node.output[:] = [new.get(name, name) for name in node.output]
            node.name = prefix + node.name
            nodes.append(node)
        outputs = [helper.make_empty_tensor_value_info(new.get(output.name, output.name)) for output in first.graph.output]
        for at, output in enumerate(first.graph.output):
            if output.name in more:
                zero = numpy_helper.from_array(np.zeros((0, 2, 1, 8), np.float32))
                nodes.append(helper.make_node("Constant", [], [prefix + output.name], value=zero))
                outputs[at] = helper.make_empty_tensor_value_info(prefix + output.name)
        values = []
        for value in graph.initializer:
            value = TensorProto.FromString(value.SerializeToString())
            value.name = new[value.name]
            values.append(value)
        return helper.make_graph(nodes, prefix, [], outputs, values)

    choice = helper.make_node("If", ["use_cache_branch"], [output.name for output in first.graph.output], "choice",
                              then_branch=branch(later.graph, "then_", empty), else_branch=branch(first.graph, "else_", []))
    graph = helper.make_graph([choice], "merged", [*known.values(), helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])],
                              first.graph.output)
    onnx.save(helper.make_model(graph, opset_imports=later.opset_import, ir_version=later.ir_version), path)
    return path


def merge(programs, work):
    """--state takes the branch with caches; the other one, without inputs for caches, is chosen by --bind."""
    model = merged(f"{work}/merged.onnx")
    shutil.copy(T5 / "generation_config.json", work)
    later = programs.compile("t5", "later", model=model)
    first = programs.compile("t5", "first", "--bind", "use_cache_branch=false", "--dim", "past_decoder_sequence_length=1", model=model)
    told = [one["name"] for one in read_json(next(pathlib.Path(first).glob("*/*/manifest.json")))["inputs"]]
    expect(set(told) == {"input_ids", "encoder_hidden_states", "encoder_attention_mask"}, f"{told}")
    case = references("t5")["three"]
    got = written(programs, work, later, ["--encoder", programs.compile("t5", "encoder"), "--encoder", first], case)
    expect(got == case["ids"], f"{got}")
    return "both branches"


def model(programs, work):
    """The decoder itself: bounds come from its configuration and the rows of the encoder's input."""
    folder, case = shutil.copytree(FOLDERS["whisper"], pathlib.Path(work) / "m"), references("whisper")["three"]
    (folder / "config.json").write_text('{"max_target_positions": 48}')
    encoders = programs.of("whisper")[1]
    env = {**os.environ, "XDG_CACHE_HOME": f"{work}/cache"}
    done = programs.generate(folder / "decoder_with_past_model.onnx", *encoders, *inputs(work, case), "--max-new-tokens", 24, "--json", env=env)
    expect(json.loads(done.stdout)["ids"] == case["ids"], done.stdout)
    expect("batch_size=1..4, decoder_sequence_length=1..48, past_decoder_sequence_length=0..48" in done.stderr, done.stderr)
    return "bounds by themselves"


def refusals(programs, work):
    """What does not fit is refused by name, before a token is written."""
    t5, whisper = programs.of("t5"), programs.of("whisper")
    cases = {name: references(name)["three"] for name in ("t5", "whisper")}
    for name in ("t5", "whisper"):
        os.makedirs(f"{work}/{name}", exist_ok=True)
    given = inputs(f"{work}/t5", cases["t5"])
    np.save(f"{work}/long.npy", np.full((1, 9), 5))
    np.save(f"{work}/rows.npy", np.full((2, 1), 3))
    np.save(f"{work}/many.npy", np.full((5, 3), 5))
    np.save(f"{work}/frames.npy", np.zeros((1, 3, 12), np.float32))
    other = programs.compile("t5", "encoder", batch="1..2")
    table = [  # exit status, what the message has, decoder, words
        (3, "input 'input_features' of the encoder has no value", whisper[0], whisper[1]),
        (3, "[1, 3, 12]", whisper[0], [*whisper[1], "--input", f"input_features={work}/frames.npy"]),
        (3, "encoder_sequence_length' is one of 1..8", t5[0], [*t5[1], "--input", f"input_ids={work}/long.npy"]),
        (3, "has [5, 3]", t5[0], [*t5[1], "--input", f"input_ids={work}/many.npy"]),
        (3, "has [3, 7]", t5[0], ["--encoder", other, *t5[1][2:], *given]),
        (3, "2 rows of the decoder's first tokens, but 3 for the encoder", t5[0], [*t5[1], *given, "--input", f"decoder_input_ids={work}/rows.npy"]),
        (3, "input 'past_key_values.0.encoder.key' of the decoder is computed by no --encoder", t5[0], [*t5[1][:2], *given]),
        (3, "encoder_hidden_states' has the shape", whisper[0], [*t5[1][:2], *whisper[1][2:], *given]),
        (2, "--prompt is the encoder's", whisper[0], [*whisper[1], "--prompt", "owl", "--tokenizer", T5 / "tokenizer.json"]),
        (2, "there is no prompt", t5[0], t5[1]),
        (2, "'encoder_attention_mask' is an encoder's, and there is no --encoder", t5[0], given),
        (2, "keeps state from step to step", t5[0], ["--encoder", t5[0], *given]),
        (5, "places in the caches", t5[0], [*t5[1], *given, "--max-new-tokens", 41]),
    ]
    for status, text, program, words in table:
        said = programs.generate(program, *words, "--output-dir", f"{work}/out", status=status).stderr
        expect(text in said, f"{text}: {said}")
        expect(not os.path.exists(f"{work}/out"), "something was written")
    bare = shutil.copy(T5 / "decoder_with_past_model.onnx", f"{work}/bare.onnx")
    said = programs.generate(programs.compile("t5", "later", model=bare), *t5[1], *given, status=2).stderr
    expect("decoder_start_token_id" in said and "--input decoder_input_ids" in said, said)
    return f"{len(table) + 1}"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("checks", nargs="*")
    given = parser.parse_args()
    checks = (family("t5"), family("whisper"), texts, merge, model, refusals)
    with tempfile.TemporaryDirectory(prefix="rankc-sequences-") as place:
        programs = Programs(given.rankc, place)
        return report([(check.__name__, lambda work, check=check: check(programs, work)) for check in checks
                       if not given.checks or check.__name__ in given.checks])


sys.exit(main())
