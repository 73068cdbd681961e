#!/usr/bin/env python3
"""Decoders that exporters write, and the tokens that `rankc generate` writes with them: those of PyTorch's generate().

    decoders.py --make ZOO [--python EXPORTER=PYTHON]..     checkpoints, references and exports, into ZOO
    decoders.py --loop ZOO [MODEL..]                        a plain loop over ONNX Runtime, for each export
    decoders.py --rankc RANKC ZOO [--plans "one tp2 .."] [--results FILE.jsonl] [--keep DIR] [MODEL..]
    decoders.py --table docs/measured/decoders.md --results FILE.jsonl ZOO

MODEL is EXPORTER/FAMILY, or one of both. The families are those of decoder_models.py, the exporters those of
decoder_exports.py; a PYTHON has the packages of that exporter (docs/measured/decoders.md names them). --loop says whether an export
itself writes what PyTorch writes, and records what 4-bit weights give. Each model is compiled with --state auto and bounds for
batch, sequence and past. Greedy ids of 64 tokens are compared exactly; where the first two logits are nearer to each other than
the bound of docs/numerics allows results of a plan to be apart, a row counts as equal up to there."""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "tests"))
PLANS = "one tp2 tp4 pp2 tp2data2"
NEW = 64
CAPACITY, PROMPT, ROWS = 80, 16, 3
PLACES = CAPACITY + PROMPT  # as many as the decoders of sound have
EXPORTERS = {"torch": "torch.onnx, dynamo", "legacy": "torch.onnx, legacy", "static": "transformers 5.24, static", "optimum": "optimum-onnx",
             "merged": "optimum-onnx, merged", "transformers523": "transformers 5.23", "transformers524": "transformers 5.24",
             "genai32": "onnxruntime-genai, fp32",
             "genai4": "onnxruntime-genai, int4"}
FILES = {"merged": {"later": "decoder_model_merged.onnx", "first": "decoder_model.onnx", "encoder": "encoder_model.onnx"}}
LAYOUTS = [{"later": "model.onnx"}, {"later": "decoder_with_past_model.onnx", "first": "decoder_model.onnx", "encoder": "encoder_model.onnx"},
           {"later": "decode.onnx", "first": "prefill.onnx", "encoder": "encoder/model.onnx"}, {"later": "decode.onnx"},
           {"later": "decoder.onnx", "encoder": "encoder.onnx"}]


class Model:
    """An export: its files by what they compute, and the cases that it is tried with."""

    def __init__(self, zoo, exporter, family):
        self.name, self.exporter, self.family = f"{exporter}/{family}", exporter, family
        self.directory = f"{zoo}/{'optimum' if exporter == 'merged' else exporter}/{family}"
        layouts = [FILES[exporter]] if exporter in FILES else LAYOUTS
        found = [layout for layout in layouts if all(os.path.exists(f"{self.directory}/{file}") for file in layout.values())]
        self.files = {part: f"{self.directory}/{file}" for part, file in found[0].items()} if found else {}
        self.cases = read_json(f"{zoo}/checkpoints/{family}/references.json")
        self.checkpoint = f"{zoo}/checkpoints/{family}"
        self.config = read_json(f"{self.checkpoint}/generation_config.json")
        config = read_json(f"{self.checkpoint}/config.json")
        self.start, self.hidden = config.get("decoder_start_token_id"), [config.get("max_source_positions"), config.get("d_model")]
        head = read_json(f"{self.directory}/genai_config.json", {}).get("model", {}).get("decoder", {}).get("head_size")
        self.sizes = {"kv_cache_dim": head} if head else {}
        recorded = {case["name"]: case for case in read_json(f"{self.directory}/references-{exporter}.json", [])}
        self.own = bool(recorded)  # the export does not compute what the model does: what ONNX Runtime writes
        self.cases = [{**case, **recorded.get(case["name"], {})} for case in self.cases]

    def refusal(self):
        return read_json(f"{self.directory}/export.json", {}).get("refused")

    def features(self, rows):
        import numpy
        return numpy.load(f"{self.checkpoint}/features{rows}.npy")

    def inputs(self, case):
        """The prompt and its mask; of an encoder-decoder the encoder's input, which may have no mask."""
        import numpy
        if "input_ids" not in case:
            return self.features(case["rows"]), None
        ids, mask = numpy.array(case["input_ids"]), numpy.array(case["attention_mask"])
        if self.exporter.startswith("genai") and self.start is None:  # whose masks are of rows that are padded on the right
            order = numpy.argsort(-mask, 1, kind="stable")
            ids, mask = numpy.take_along_axis(ids, order, 1), numpy.take_along_axis(mask, order, 1)
        return ids, mask


def read_json(path, absent=None):
    if absent is not None and not os.path.exists(path):
        return absent
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def models_of(zoo, wanted):
    families = sorted(os.listdir(f"{zoo}/checkpoints"))
    for exporter in EXPORTERS:
        for family in families:
            model = Model(zoo, exporter, family) if os.path.isdir(f"{zoo}/{'optimum' if exporter == 'merged' else exporter}/{family}") else None
            if model and (model.files or (model.refusal() and exporter != "merged")) and (not wanted or {exporter, family, model.name} & set(wanted)):
                yield model


def compared(ids, case):
    """Of each row: "equal", "near" where it differs from where the first two logits are nearer than the bound, or what differs."""
    said = []
    for row, (mine, theirs) in enumerate(zip(ids, case["ids"])):
        at = next((i for i, (a, b) in enumerate(zip(mine, theirs)) if a != b), None)
        if at is None:
            said.append("equal" if len(mine) == len(theirs) else f"{len(mine)} ids, not {len(theirs)}")
        else:
            gap = case["gaps"][row][at]
            said.append("near" if gap <= case.get("bound", 0) else f"differs at {at}, where the first two logits are {gap:.2g} apart")
    return said if len(ids) == len(case["ids"]) else [f"{len(ids)} rows"]


# A plain loop ----------------------------------------------------------------------------------------------------------

def exact(path):
    """The model, without leave to round activations to 8 bits in products with weights of 4 bits."""
    import onnx
    model = onnx.load(path)
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "MatMulNBits" and attribute.name == "accuracy_level":
                attribute.i = 1
    return model.SerializeToString()


def session(path):
    import onnxruntime
    from decoder_loop import Graph
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    run = onnxruntime.InferenceSession(exact(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in run.get_outputs()]
    return Graph(path), lambda feeds: dict(zip(names, run.run(None, feeds)))


def looped(model, parts, case):
    from decoder_loop import Chooser, sequence_written, written
    ends = {case["eos"], model.config.get("eos_token_id", case["eos"])}
    chooser = Chooser(sorted(ends), case["pad"], model.config.get("suppress_tokens") or (), model.config.get("begin_suppress_tokens") or ())
    given, mask = model.inputs(case)
    if "encoder" in parts:
        return sequence_written(parts, given, model.start, NEW, chooser, mask)
    graph, step = parts["later"]
    return written(graph, step, given, mask, NEW, chooser, sizes={**model.sizes, **graph.fixed(PLACES)})


def loop(model):
    """Whether the export writes what the model writes; else what it writes is recorded."""
    said, recorded = {}, []
    try:
        parts = {part: session(file) for part, file in model.files.items()}
        for case in read_json(f"{model.checkpoint}/references.json"):
            ids, gaps = looped(model, parts, case)
            said[case["name"]] = compared(ids.tolist(), case)
            recorded.append({"name": case["name"], "ids": ids.tolist(), "gaps": gaps.tolist(), "bound": case.get("bound", 0)})
    except Exception as wrong:
        said["error"] = f"{type(wrong).__name__}: {' '.join(str(wrong).split())[:300]}"
    path = f"{model.directory}/references-{model.exporter}.json"
    if os.path.exists(path):
        os.remove(path)
    if recorded and "error" not in said and any(word not in ("equal", "near") for words in said.values() for word in words):
        write_json(recorded, path)
    write_json(said, f"{model.directory}/loop-{model.exporter}.json")
    return said


def write_json(value, path):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)


# rankc -----------------------------------------------------------------------------------------------------------------

def bounds_of(graph, rows, model):
    """--dim for the sizes that a user has to bound: rows, positions of a step and of the past."""
    dims, sizes = {}, {**model.sizes, **graph.fixed(PLACES)}
    for name, (_, shape) in graph.inputs.items():
        for at, dim in enumerate(shape):
            if isinstance(dim, int) or not str(dim).isidentifier():
                continue
            if dim in sizes:
                dims[dim] = sizes[dim]
            elif at == 0:
                dims[dim] = rows
            elif "hidden_state" in name and model.hidden[at - 1]:  # of the encoder
                dims[dim] = model.hidden[at - 1]
            elif "features" in name:
                dims[dim] = model.features(1).shape[at]
            elif name in graph.cross() and at == 2:
                dims[dim] = model.hidden[0] or f"1..{PROMPT}"
            elif name in ("input_ids", "decoder_input_ids", "position_ids"):
                dims[dim] = f"1..{PROMPT}"
            elif name in graph.state():
                dims[dim] = f"0..{CAPACITY}"
            elif "mask" not in name or "encoder" in name:
                dims[dim] = f"1..{PROMPT}"
    return [word for dim in dims.items() for word in ("--dim", "%s=%s" % dim)]


class Failed(Exception):
    pass


def said_by(*command, timeout=900):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error[" in line or line.startswith("  -->")] or done.stderr.splitlines()
        raise Failed(f"exit {done.returncode}: " + " ".join(lines[:2])[:300])
    return done.stdout


def compile_model(rankc, model, part, plan, rows, out, state=True):
    from decoder_loop import Graph
    from rankc_plans import plan_of
    said_by(rankc, "compile", model.files[part], "-o", out, "-q", *plan_of(plan).options, *(["--state", "auto"] if state else []),
            *bounds_of(Graph(model.files[part]), rows, model))
    return out


def state_bytes(rankc, out):
    """Bytes of caches that a step copies, and of other states that it replaces, on the rank where they are most."""
    shown = json.loads(said_by(rankc, "show", out, "--json"))
    return [max(rank.get(key, 0) for rank in shown["ranks"]) for key in ("state_copied", "state_replaced")]


def generate(rankc, model, out, encoders, case, work):
    import numpy
    from decoder_loop import Graph
    given, mask = model.inputs(case)
    words = [word for encoder in encoders for word in ("--encoder", encoder)]
    sound = next(iter(Graph(model.files["encoder"]).inputs)) if mask is None else None
    for name, value in ((sound or "input_ids", given), ("attention_mask", mask)):
        if value is not None and (name != "attention_mask" or case["rows"] > 1):
            numpy.save(f"{work}/{name}.npy", value)
            words += ["--input", f"{name}={work}/{name}.npy"]
    stop = ["--stop", case["eos"]] if case["name"].endswith("early") else []
    shutil.rmtree(f"{work}/out", ignore_errors=True)
    said_by(rankc, "generate", out, *words, *stop, "--max-new-tokens", NEW, "--output-dir", f"{work}/out", "--json", "--threads", 1)
    return numpy.load(f"{work}/out/ids.npy").tolist()


def tried(rankc, model, plan, work):
    """What each case gives under the plan, and the bytes of caches that a step copies."""
    result = {"model": model.name, "plan": plan, "own": model.own, "cases": {}}
    programs = {}
    for case in model.cases:
        fixed = "data" in plan  # rows that are divided have a number that is not open, or a multiple
        rows = case["rows"] if fixed else f"1..{ROWS}"
        try:
            if rows not in programs:
                programs[rows] = None
                out = compile_model(rankc, model, "later", plan, rows, f"{work}/{rows}")
                parts = [part for part in ("encoder", "first") if part in model.files and model.files[part] != model.files["later"]]
                programs[rows] = out, [compile_model(rankc, model, part, plan, rows, f"{work}/{rows}{part}", False) for part in parts]
                result["copied"], result["replaced"] = state_bytes(rankc, out)
            if programs[rows]:
                result["cases"][case["name"]] = compared(generate(rankc, model, *programs[rows], case, work), case)
        except (Failed, subprocess.TimeoutExpired) as wrong:
            result["cases"][case["name"]] = [str(wrong)]
    return result


# Table -----------------------------------------------------------------------------------------------------------------

HEAD = """# Decoders that exporters write

Small decoders with random weights, exported with their caches by today's exporters; what `rankc generate` writes with them under plans is
compared with what PyTorch's generate() writes: greedy ids of {new} tokens, of one prompt and of three of different lengths, and of both
where a token ends texts early. A cell says "equal" where all ids are the same, but for those behind a place where the first two logits are
nearer to each other than results under a plan may be apart. "copied" are bytes of caches that a step copies, "replaced" those of other states
(`rankc show`), on one rank. What has an empty cell was not run.

Rows with * are compared with ONNX Runtime's ids: those exports, as ONNX Runtime runs them, do not write what PyTorch writes (weights of 4
bits; masks, windows and caps that the exporter leaves out). With weights of 4 bits it may round activations to 8 bits (accuracy_level 4);
rankc never does, and neither does it here. Mixtures of experts are exported with `set_experts_implementation("batched_mm")`.

Two kinds of exports cannot be right. The static cache of Mistral's windows is traced for windows that are not full. LFM2 of
onnxruntime-genai is padded on the right, and its convolutions take what GroupQueryAttention leaves in columns of padding, which is not defined.

This page is written by `bench/decoders.py --table`. Exporters are installed in environments of their own: torch 2.15, transformers 5.24 or 5.23,
onnxruntime-genai 0.18; optimum-onnx 0.1 with transformers 4.57, which also makes the checkpoints that all of them read.
<!-- not run: they take hours and need PyTorch -->

    python3 bench/decoder_models.py make zoo
    python3 bench/decoder_models.py references zoo
    python3 bench/decoder_exports.py torch zoo
    python3 bench/decoder_exports.py optimum zoo
    python3 bench/decoder_exports.py transformers zoo --name transformers524
    python3 bench/decoders.py --loop zoo
    python3 bench/decoders.py --rankc build/frontend/rankc --results decoders.jsonl zoo
    python3 bench/decoders.py --table docs/measured/decoders.md --results decoders.jsonl zoo

{summary}

"""


def is_equal(result):
    return all(word in ("equal", "near") for words in result["cases"].values() for word in words)


def what_is_wrong(result):
    for name, words in result["cases"].items():
        for word in words:
            if word not in ("equal", "near"):
                text = re.sub(r"'?/[^ ]*/", "", word)
                return text[:200] if word.startswith("exit") else f"case {name}: {text}"
    return ""


def write_table(path, zoo, results):
    found = {}
    for result in results:
        found.setdefault(result["model"], {})[result["plan"]] = result
    plans = PLANS.split()
    lines, wrong, refused = [], [], []
    for model in models_of(zoo, []):
        if not model.files:
            refused.append(f"- {model.name}: {re.sub(r'/[^ ]*/', '', model.refusal())[:160]}")
            continue
        if model.name not in found:
            continue
        rows = found[model.name]
        cells = [("equal" if is_equal(rows[plan]) else "**no**") if plan in rows else "" for plan in plans]
        one = rows.get("one", {})
        lines.append(f"| {EXPORTERS[model.exporter]} | {model.family}{'*' if model.own else ''} | " + " | ".join(cells) +
                     f" | {one.get('copied', '')} | {one.get('replaced', '')} |")
        for plan in plans:
            if plan in rows and not is_equal(rows[plan]):
                wrong.append((what_is_wrong(rows[plan]), model.name, plan))
    tried = [rows[plan] for rows in found.values() for plan in plans if plan in rows]
    equal = sum(map(is_equal, tried))
    with open(path, "w", encoding="utf-8") as page:
        page.write(HEAD.format(new=NEW, summary=f"{equal} of {len(tried)} results are equal; "
                               f"{sum(result.get('copied') == 0 for result in tried)} of the programs copy nothing of caches."))
        page.write("| exporter | model | " + " | ".join(plans) + " | copied | replaced |\n" + "|---" * (len(plans) + 4) + "|\n")
        page.write("\n".join(lines) + "\n")
        page.write("\n## Not equal\n\n" if wrong else "")
        for said in sorted({text for text, _, _ in wrong}):
            page.write(f"- {said}: {', '.join(f'{name} ({plan})' for text, name, plan in wrong if text == said)}\n")
        page.write("\n## Refused by the exporter\n\n" + "\n".join(refused) + "\n" if refused else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zoo", type=os.path.abspath)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--loop", action="store_true")
    parser.add_argument("--rankc", type=os.path.abspath)
    parser.add_argument("--plans", default=PLANS)
    parser.add_argument("--results", default="/dev/null")
    parser.add_argument("--table", metavar="PAGE.md")
    given = parser.parse_args()
    if given.table:
        with open(given.results, encoding="utf-8") as file:
            return write_table(given.table, given.zoo, map(json.loads, file))
    for model in models_of(given.zoo, given.models):
        if not model.files:
            print(f"{model.name}: refused by the exporter: {model.refusal()}")
            continue
        if given.loop:
            print(f"{model.name}: {loop(model)}", flush=True)
        for plan in given.plans.split() if given.rankc else ():
            with tempfile.TemporaryDirectory(prefix="rankc-decoders-") as work:
                result = tried(given.rankc, model, plan, work)
            print(f"{model.name} {plan}: {result['cases']} copied {result.get('copied')} replaced {result.get('replaced')}", flush=True)
            with open(given.results, "a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
