#!/usr/bin/python3
"""Programs with several adapters, of which one at a time takes part: logits and tokens are those of peft's set_adapter.

    adapters.py --rankc RANKC [CHECK...]

adapters/ is recorded by record_adapters.py: of two adapters with different r and modules, of none, and of these beside a base in 4
bits. Logits are within 1e-5 of the largest, tokens equal."""
import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import SOURCE, call, expect, needed, parser_of, read_json, report  # noqa: E402

with needed():
    import numpy as np

HERE = pathlib.Path(__file__).resolve().parent / "adapters"
MODEL = pathlib.Path(SOURCE) / "samples/generate/writer.onnx"
TOKENIZER = MODEL.parent / "tokenizer.json"
WRITTEN, LOGITS = read_json(HERE, "reference.json"), np.load(HERE / "logits.npz")
NAMES = list(WRITTEN["ids"])
PROMPT = np.array([[ord(character) for character in WRITTEN["prompt"]]])
GIVEN = ["--adapter", f"{HERE}/english", "--adapter", f"{HERE}/french:name=french"]
DIMS = ["--state", "auto", "--dim", "batch=1", "--dim", "sequence=1..16", "--dim", "past=0..64"]
TP, PP = ["--pas", "tp", "--plan-ngpus", 2], ["--pas", "pp", "--plan-ngpus", 2]
PLANS = {"one": [], "tp2": TP, "pp2": PP, "one copy": ["--weights", "copy"], "tp2 copy": [*TP, "--weights", "copy"]}
BOUND = 1e-5


def compiled(rankc, work, *words, given=GIVEN):
    call(rankc, "compile", MODEL, "-o", f"{work}/out", "-q", *DIMS, *given, *words)
    return f"{work}/out"


def inputs(work):
    length = PROMPT.shape[1]
    for name, values in ("input_ids", PROMPT), ("attention_mask", np.ones((1, length), np.int64)), ("position_ids", np.arange(length)[None]):
        np.save(f"{work}/{name}.npy", values)
        yield from ("--input", f"{name}={work}/{name}.npy")


def near(logits, theirs, what):
    apart = abs(logits.reshape(theirs.shape) - theirs).max() / abs(theirs).max()
    expect(apart <= BOUND, f"{what}: logits differ by {apart}")
    return apart


def run(rankc, work, program, base, *words):
    """The logits of all adapters, and of the one that is applied if none is named."""
    worst = 0
    for name in [*NAMES, None]:
        chosen = ["--adapter", name] if name else []
        call(rankc, "run", program, *inputs(work), *chosen, *words, "--output-dir", f"{work}/outputs", "-q")
        worst = max(worst, near(np.load(f"{work}/outputs/logits.npy"), LOGITS[f"{name or NAMES[0]}.{base}"], name))
    return f"{worst:.1e}"


def check_logits(rankc, work, plan):
    program = compiled(rankc, work, *PLANS[plan])
    call(rankc, "verify", program, "-q")
    return run(rankc, work, program, "f32")


def check_small(rankc, work):
    return run(rankc, work, compiled(rankc, work, *TP, "--weight-dtype", "int4:group=16"), "int4")


def check_verified(rankc, work, plan):
    """verify --numeric with each adapter: one rank has the same. What it says of the results is not the same for two of them."""
    program, said = compiled(rankc, work, *PLANS[plan]), set()
    for name in NAMES:
        said.add(call(rankc, "verify", program, "--numeric", "--adapter", name, "-v").stderr.partition("output 'logits'")[2])
    expect("none" in NAMES and len(said) == len(NAMES), said)
    expect("mean 'french'" in call(rankc, "verify", program, "--numeric", "--adapter", "frensh", status=2).stderr, "no suggestion")
    expect("--adapter needs --numeric" in call(rankc, "verify", program, "--adapter", "french", status=2).stderr, "no reason")


def check_units(rankc, work):
    """Two scale units, of which one reads weights."""
    return run(rankc, work, compiled(rankc, work, *TP), "f32", "--runtime-ngpus", 4, "--broadcast-weights")


def check_generate(rankc, work, plan):
    program = compiled(rankc, work, *PLANS[plan])
    for name in [*NAMES, None]:
        chosen = ["--adapter", name] if name else []
        done = call(rankc, "generate", program, "--tokenizer", TOKENIZER, "--prompt", WRITTEN["prompt"], "--max-new-tokens", WRITTEN["new"],
                    *chosen, "--json")
        ids = json.loads(done.stdout)["ids"]
        expect(ids == [WRITTEN["ids"][name or NAMES[0]]], f"{name}: {ids}")


def check_state(rankc, work):
    """Kept caches are those of an adapter: with another one they are refused."""
    program, kept = compiled(rankc, work, *TP), f"{work}/kept"
    words = [rankc, "generate", program, "--tokenizer", TOKENIZER, "--prompt", WRITTEN["prompt"], "--max-new-tokens", WRITTEN["new"], "--json"]
    call(*words, "--adapter", "french", "--save-state", kept)
    done = call(*words, "--adapter", "french", "--load-state", kept)
    expect(json.loads(done.stdout)["ids"] == [WRITTEN["ids"]["french"]], done.stdout)
    expect("another adapter" in call(*words, "--load-state", kept, status=8).stderr, "no reason")


def changed(model, directory):
    """What rt_set_adapter says when the file of adapters was changed after the program was opened."""
    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    def rank(rt, _):
        rt = ctypes.c_void_p(rt)
        if model.rt_rank(rt) == 0:
            with open(f"{directory}/weights/constants.bin", "r+b") as file:
                file.write(bytes([255 - file.read(1)[0]]) * 2)
        return model.writer_set_adapter(rt, b"french")

    expect(model.writer_run_threads(directory.encode(), 0, rank, None), "rt_set_adapter does not fail")
    return model.rt_error(None).decode()


def check_library(rankc, work, plan):
    """rt_set_adapter between steps; a name that the program does not have changes nothing."""
    directory = f"{compiled(rankc, work, *PLANS[plan])}/writer/_"
    call("make", "-s", "-C", directory, "build/model.so")
    model, worst = ctypes.CDLL(f"{directory}/build/model.so"), []
    model.rt_error.restype = ctypes.c_char_p
    length = PROMPT.shape[1]
    mask, positions = np.ones(length, np.int64), np.arange(length)
    pointers = (ctypes.c_void_p * 3)(*(array.ctypes.data for array in (PROMPT, mask, positions)))
    sizes = (ctypes.c_int64 * 2)(length, 0)

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    def rank(rt, _):
        rt, logits = ctypes.c_void_p(rt), np.empty((length, 128), np.float32)
        outputs = (ctypes.c_void_p * 1)(logits.ctypes.data)
        for name in (None, *NAMES, *reversed(NAMES), "frensh", None):
            status = model.writer_set_adapter(rt, name.encode()) if name else 0
            if name == "frensh":
                said = model.rt_error(rt).decode()
                expect(status and "did you mean 'french'?" in said, f"{status}: {said}")
                status = 0
            status = status or model.writer_state_reset(rt) or model.writer_set_sizes(rt, sizes)
            status = status or model.writer_infer_step(rt, pointers, outputs)
            if status:
                return status
            worst.append(near(logits, LOGITS[f"{name if name in NAMES else NAMES[0]}.f32"], name))
        return 0

    expect(not model.writer_run_threads(directory.encode(), 0, rank, None), model.rt_error(None))
    expect("copy" in plan or "changed" in changed(model, directory), "a file that was changed is read")
    return f"{max(worst):.1e}"


def check_modules(rankc, work):
    """Of a GPT-2, whose products have their weights the other way round; adapters of other trainings."""
    made = pathlib.Path(SOURCE) / "tests/training/lora/gpt2"
    cases = "attention", "all"
    np.save(f"{work}/ids.npy", np.load(made / "input_ids.npy")[:2])
    call(rankc, "compile", made / "model.onnx", "-o", f"{work}/out", "-q", *TP,
         *(word for case in cases for word in ("--adapter", f"{made}/{case}/trained-1:name={case}")))
    for case in cases:
        call(rankc, "run", f"{work}/out", "--adapter", case, "--input", f"input_ids={work}/ids.npy", "--output-dir", f"{work}/outputs", "-q")
        near(np.load(f"{work}/outputs/logits.npy"), np.load(made / case / "logits.npy"), case)


def memory(rankc, program):
    return [rank["memory"] for rank in json.loads(call(rankc, "show", program, "--json").stdout)["ranks"]]


def check_result(rankc, work):
    """The manifest has the names. Memory is that of the largest adapter alone. Results are kept as long as adapters are the same."""
    program = compiled(rankc, work, *TP)
    manifest = read_json(program, "writer/_/manifest.json")
    expect(manifest["adapters"] == ["english", "french"], manifest["adapters"])
    expect("adapters english, french" in " ".join(call(rankc, "show", program).stdout.split()), "show does not name the adapters")
    expect("(reused)" in call(rankc, "compile", MODEL, "-o", f"{work}/out", *DIMS, *GIVEN, *TP).stdout, "the result is not kept")
    call(rankc, "compile", MODEL, "-o", f"{work}/out", *DIMS, *GIVEN[:2], *TP, status=8)
    compiled(rankc, work, *TP, "--reuse", "graph")
    run(rankc, work, program, "f32")
    call(rankc, "verify", program, "--numeric", "-q")
    call(rankc, "compile", f"{program}/writer/_/graph.rir", "-o", f"{work}/again", "-q")
    call(rankc, "run", f"{work}/again", *inputs(work), "--output-dir", f"{work}/outputs", "-q")
    near(np.load(f"{work}/outputs/logits.npy"), LOGITS["english.f32"], "of graph.rir")
    twice = compiled(rankc, f"{work}/twice", *TP, given=[*GIVEN, "--adapter", f"{HERE}/french:name=again"])
    expect(memory(rankc, twice) == memory(rankc, program), "a further adapter takes memory")


def check_agreement(rankc, work):
    """Ranks that are started with different adapters."""
    program = f"{compiled(rankc, work, *TP)}/writer/_/build/run"
    ranks = [subprocess.Popen([program, "--rank", str(rank), "--world", "2", "--comm", "shm", "--rendezvous", f"file:{work}/place", *inputs(work),
                               *chosen], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
             for rank, chosen in enumerate(([], ["--adapter", "french"]))]
    said = "".join(rank.communicate(timeout=60)[1] for rank in ranks)
    expect("--adapter" in said and all(rank.returncode for rank in ranks), said)


def check_refusals(rankc, work):
    program = compiled(rankc, work)
    for chosen, status, said in ((["frensh"], 2, "did you mean 'french'?"), (["x"], 2, "english, french, none"), (["none", "french"], 2, "one")):
        words = [word for name in chosen for word in ("--adapter", name)]
        done = call(rankc, "run", program, *inputs(work), *words, status=status)
        expect(said in done.stderr, done.stderr)
    plain = compiled(rankc, f"{work}/plain", given=[])
    expect("no adapters" in call(rankc, "run", plain, *inputs(work), "--adapter", "english", status=2).stderr, "no reason")
    loss = ["--train", "--loss", "cross_entropy:logits=logits,labels=labels"]
    for words, status in (([*GIVEN, "--adapter", f"{HERE}/french"], 2), (["--adapter", f"{HERE}/french:name=none"], 2),
                          (["--adapter", f"{HERE}/french:name=a/b"], 2), ([*GIVEN[:2], "--adapter", f"{HERE}/french:merge"], 2),
                          ([*GIVEN, *loss], 2), ([*GIVEN, "--adapter", f"{SOURCE}/tests/training/lora/gpt2/all/start"], 8),
                          ([*GIVEN, "--adapter", f"{SOURCE}/tests/training/lora/llama/all/start"], 8)):
        call(rankc, "compile", MODEL, "-o", f"{work}/bad", "-q", *DIMS, *words, status=status)
    shutil.copytree(f"{HERE}/french", f"{work}/odd")
    with open(f"{work}/odd/adapter_config.json", encoding="utf-8") as file:
        config = json.load(file)
    for odd, wrong in (({"r": config["r"] + 1, "rank_pattern": {}}, "r is not that of the matrices"), ({"lora_alpha": "16"}, "'lora_alpha'"),
                       ({"lora_alpha": None}, "'lora_alpha'"), ({"use_rslora": "yes"}, "'use_rslora'"),
                       ({"alpha_pattern": {".*_proj": 4}}, "'.*_proj'"), ({"alpha_pattern": {"k_proj": "4"}}, "'k_proj'")):
        with open(f"{work}/odd/adapter_config.json", "w", encoding="utf-8") as file:
            json.dump({**config, **odd}, file)
        said = call(rankc, "compile", MODEL, "-o", f"{work}/bad", "-q", *DIMS, "--adapter", f"{work}/odd", status=3).stderr
        expect(wrong in said, said)
    call(rankc, "show", program, "--adapter", "english", status=2)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("checks", nargs="*")
    given = parser.parse_args()
    checks = {f"logits {plan}": (check_logits, plan) for plan in PLANS}
    checks |= {f"generate {plan}": (check_generate, plan) for plan in ("one", "tp2", "pp2")}
    checks |= {f"library {plan}": (check_library, plan) for plan in ("one", "tp2", "tp2 copy")}
    checks |= {f"verified {plan}": (check_verified, plan) for plan in ("tp2", "one copy")}
    checks |= {"small": (check_small,), "units": (check_units,), "modules": (check_modules,), "result": (check_result,),
               "state": (check_state,),
               "agreement": (check_agreement,), "refusals": (check_refusals,)}
    return report([(name, lambda work, check=check, words=words: check(given.rankc, work, *words))
                   for name, (check, *words) in checks.items() if not given.checks or name.split()[0] in given.checks])


sys.exit(main())
