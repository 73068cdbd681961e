"""Every option is given once, with one of its verbs or several, and has the effect that the manual says. An option without a check
is an error.

    every_option.py --rankc RANKC [OPTION...]        only those options

A check is a function whose name is that of the option. CHECKED_BY names tests that check an option at length."""
import fcntl
import json
import os
import pathlib
import re
import signal
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, json_of, needed, parser_of, read_json  # noqa: E402

with needed():
    import numpy as np

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
GPT2, TOKENS = SOURCE / "samples/models/gpt2.onnx", SOURCE / "samples/models/gpt2.input_ids.npy"
MLP, STATIC = SOURCE / "tests/training/mlp/model.onnx", SOURCE / "tests/training/gpt2/model.onnx"
NORMED = SOURCE / "tests/training/cnn_bn/model.onnx"
DIMS = SOURCE / "tests/models/gpt2/model.onnx"
DATA = ["--data", f"x={MLP.parent}/x.npy", "--data", f"target={MLP.parent}/target.npy"]
GPT2_LOSS = ["--train", "--loss", "cross_entropy:logits=logits,labels=labels"]
# options whose effect takes more than a run to see: the test that sees it
CHECKED_BY = {
    "state": "states", "ops": "user operators ..", "check": "cli operators", "broadcast": "runtime mpi", "broadcast-weights": "runtime mpi",
    "constraints": "cli constraints",
    **dict.fromkeys(("prompt", "encoder", "tokenizer", "max-new-tokens", "stop", "temperature", "top-k", "top-p", "min-p",
                     "repetition-penalty", "seed", "save-state", "load-state", "role"), "generate .."),
}


class Bench:
    """Calls of rankc in a directory of their own, and programs that several checks use."""
    def __init__(self, rankc, work):
        self.rankc, self.work, self.made = rankc, pathlib.Path(work), {}

    def call(self, *words, code=0, **environment):
        return call(self.rankc, *words, status=code, env=environment, cwd=self.work, timeout=300)

    def path(self):
        self.made.setdefault("", 0)
        self.made[""] += 1
        return self.work / f"p{self.made['']}"

    def compile(self, model, *words, build=True):
        """The directory of the program; equal calls share it."""
        key = (str(model), build, *map(str, words))
        if key not in self.made:
            out = self.path()
            self.call("compile", model, "-o", out, "-q", *words, *([] if build else ["--no-build"]))
            self.made[key] = next(out.glob("*/*/manifest.json")).parent
        return self.made[key]

    def manifest(self, *words):
        return read_json(self.compile(*words, build=False), "manifest.json")

    def show(self, model, *words):
        return json_of(self.rankc, "show", model, *words, "--json", "-q", cwd=self.work)

    def mlp(self, *words):
        return self.compile(MLP, "--train", *words)

    def train(self, program, *words, steps=3):
        """The metrics of each step."""
        log = self.path()
        self.call("train", program, *DATA, "--steps", steps, "-q", "--log", log, *words)
        return [json.loads(line) for line in log.read_text().splitlines()]

    def parameters(self, program, *words, steps=1):
        """The parameters after training: those that ckpt merge writes."""
        saved, merged = self.path(), self.path()
        self.call("train", program, *DATA, "--steps", steps, "-q", "--checkpoint-dir", saved, *words)
        self.call("ckpt", "merge", saved, merged)
        return tensors_of(merged)

    def outputs(self, program, *words):
        out = self.path()
        self.call("run", program, "--input", f"input_ids={TOKENS}", "--output-dir", out, "-q", *words)
        return np.load(out / "logits.npy")


def tensors_of(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8:8 + size])
    types = {"F32": np.float32, "F64": np.float64, "I64": np.int64}
    return {name: np.frombuffer(data[8 + size:][slice(*entry["data_offsets"])], types[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in head.items() if name != "__metadata__"}


def losses(lines):
    return [line["loss"] for line in lines]


# ---- compile, plan, show ----

def output(b):
    out = b.path()
    b.call("compile", GPT2, "-q", "--no-build", "-o", out)
    assert (out / "gpt2/_/rank_0.c").exists()


def instance_name(b):
    assert b.compile(GPT2, "--instance-name", "mine", build=False).name == "mine"


def target(b):
    assert (b.compile(GPT2, "--target", "cuda", build=False) / "rank_0.cu").exists()
    assert (b.compile(GPT2, build=False) / "rank_0.c").exists()


def arch(b):
    text = (b.compile(GPT2, "--target", "cuda", "--arch", "sm_100", build=False) / "Makefile").read_text()
    assert "GPU_ARCH ?= sm_100\n" in text
    assert "GPU_ARCH ?= sm_80,sm_90a\n" in (b.compile(GPT2, "--target", "cuda", build=False) / "Makefile").read_text()


def pas(b):
    shown = b.show(GPT2, "--pas", "hybrid:tensor=2,pipeline=2")
    assert shown["plan_ngpus"] == 4 and {n["stage"] for n in shown["nodes"]} == {0, 1}, shown["plan_ngpus"]
    assert len(b.show(GPT2, "--pas", "tp", "--plan-ngpus", 2)["ranks"]) == 2


def plan_ngpus(b):
    assert b.show(GPT2, "--pas", "tp", "--plan-ngpus", 4)["plan_ngpus"] == 4
    run = ["run", GPT2, "--input", f"input_ids={TOKENS}", "--json", "--pas", "tp", "--plan-ngpus", 2]
    assert json.loads(b.call(*run, XDG_CACHE_HOME=str(b.work)).stdout)["ranks"] == 2


def runtime_ngpus(b):
    shown = b.show(GPT2, "--runtime-ngpus", 3)
    assert shown["runtime_ngpus"] == 3 and shown["plan_ngpus"] == 1
    program = b.compile(GPT2, "--runtime-ngpus", 2)
    run = ["run", program, "--input", f"input_ids={TOKENS}", "--json"]
    assert json.loads(b.call(*run).stdout)["ranks"] == 2  # the default that compile recorded
    assert json.loads(b.call(*run, "--runtime-ngpus", 3).stdout)["ranks"] == 3
    assert json.loads(b.call("train", b.mlp(), *DATA, "--steps", 1, "--runtime-ngpus", 2, "--json").stdout)["ranks"] == 2
    assert "E0200" in b.call("verify", b.compile(GPT2), "--runtime-ngpus", 2, code=2).stderr
    b.call("verify", b.compile(GPT2), "--runtime-ngpus", 2, "--numeric")
    b.call("verify", random_program(b), "--runtime-ngpus", 3, "--numeric", code=2)  # its plan has two ranks


def machine(b):
    assert b.show(GPT2, "--machine", "h200")["estimate"]["machine"] == "h200"


def search_time(b):
    start = time.monotonic()
    b.call("plan", "--model-config", "llama3-8b", "--pas", "autodist", "--runtime-ngpus", 64, "--machine", "h100", "--search-time", 1, "-q")
    assert time.monotonic() - start < 60


def measure_topk(b):
    said = b.call("plan", MLP, "--train", "--pas", "autodist", "--runtime-ngpus", 2, "--measure-topk", 2, "--save-machine", b.work / "m.json",
                  CFLAGS="-O0")
    assert re.search("measured", said.stdout + said.stderr), said
    b.made["machine"] = b.work / "m.json"


def save_machine(b):
    if "machine" not in b.made:
        measure_topk(b)
    assert "correction" in json.loads(b.made["machine"].read_text())


def searched(b, *words):
    return {a["axis"]: a["size"] for a in b.show(GPT2, "--pas", "autodist", "--plan-ngpus", 2, "--machine", "h100", *words)["mesh"]}


def forbid(b):
    assert searched(b, "--require", "tensor=2").get("tensor") == 2
    assert searched(b, "--forbid", "tensor").get("tensor", 1) == 1


def require(b):
    assert searched(b, "--require", "pipeline=2").get("pipeline") == 2


def refine(b):
    plan = b.path()
    plan.write_text('{"format": 1, "mesh": [{"axis": "tensor", "size": 2}], "nodes": [{"name": "/lm_head/MatMul", "op": "MatMul", '
                    '"partition": "replicate"}]}')
    def head(*words):
        return next(n for n in b.show(GPT2, "--pas", "tp:tensor=2", *words)["nodes"] if n["name"] == "/lm_head/MatMul")["partition"]
    assert head() != "replicate" and head("--refine", plan) == "replicate"


def config(b, *words):
    return json.loads(b.call("plan", "--model-config", "gpt2", "--json", "-q", *words).stdout)


def model_config(b):
    assert len([n for n in config(b, "--inference")["nodes"] if n["op"] == "Softmax" or "Attention" in n["op"]]) >= 12  # layers


def inference(b):
    assert len(config(b, "--inference")["nodes"]) < len(config(b)["nodes"]) / 2


def decode(b):
    ops = [n["op"] for n in config(b, "--inference", "--decode", "--dim", "past=64")["nodes"]]
    assert ops.count("Append") == 24, ops  # keys and values of 12 layers


def global_batch(b):
    words = ["--runtime-ngpus", 2, "--dim", "batch=1"]
    assert config(b, *words, "--global-batch", 8) == config(b, *words, "--accumulate", 4) != config(b, *words)


def dim(b):
    b.call("show", DIMS, code=2)
    assert b.manifest(DIMS, "--dim", "batch=3", "--dim", "seq=7")["inputs"][0]["shape"] == [3, 7]


def shape(b):
    assert b.manifest(DIMS, "--shape", "input_ids=4,5")["inputs"][0]["shape"] == [4, 5]


def bind(b):
    program = b.compile(GPT2, "--bind", f"input_ids={TOKENS}")
    assert json.loads((program / "manifest.json").read_text())["inputs"] == []
    out = b.path()
    b.call("run", program, "--output-dir", out, "-q")
    assert np.array_equal(np.load(out / "logits.npy"), b.outputs(b.compile(GPT2)))


def sync_batch_norm(b):
    def sums(*words):
        manifest = b.manifest(NORMED, "--train", *words)
        return [i for i in manifest["instructions"] if i["op"] == "AllReduce"]

    assert len(sums("--sync-batch-norm")) > len(sums())


def shared(b):
    def found(*words):
        return [port["name"] for port in b.manifest(MLP, "--train", *words)["inputs"] if port.get("shared")]

    assert found() == found("--shared", "none") == [] and found("--shared", "x") == ["x"]


def dtype(b):
    assert b.manifest(GPT2, "--dtype", "f64")["outputs"][0]["dtype"] == "f64"


def weight_dtype(b):
    products = [i["op"] for i in b.manifest(GPT2, "--weight-dtype", "int4:group=16")["instructions"] if "MatMul" in i["op"]]
    assert "DequantMatMul" in products and "DequantMatMul" not in {i["op"] for i in b.manifest(GPT2)["instructions"]}, products


def cache_dtype(b):
    words = SOURCE / "samples" / "generate" / "words" / "model.onnx"
    dims = [word for dim in ("batch=1", "sequence=1..4", "past_sequence=0..8") for word in ("--dim", dim)]
    programs = [b.compile(words, "--state", "auto", *dims, *own, build=False) for own in ([], ["--cache-dtype", "bf16"])]
    whole, half = (b.show(program)["ranks"][0]["memory"]["state"] for program in programs)
    assert whole == 2 * half, (whole, half)
    b.call("compile", GPT2, "--cache-dtype", "bf16", code=2)


def logits(b):
    whole, last = (b.outputs(b.compile(GPT2, *words)) for words in ((), ("--logits", "last")))
    assert last.shape[1] == 1 < whole.shape[1] and np.array_equal(last, whole[:, -1:]), (last.shape, whole.shape)


def attention(b):
    def operators(*words):
        return {i["op"] for i in b.manifest(STATIC, "--train", *words)["instructions"]}
    products = operators("--attention", "products")
    assert "Softmax" in products and not any("Attention" in op for op in products), products
    assert "AttentionGrad" in " ".join(operators("--attention", "flash")), operators("--attention", "flash")
    assert operators() == operators("--attention", "flash"), operators()


def weights(b):
    model = b.path().with_suffix(".onnx")
    shutil.copy(GPT2, model)
    copied, referred = b.compile(model, "--weights", "copy"), b.compile(model)
    expected = b.outputs(referred)
    model.unlink()
    assert np.array_equal(b.outputs(copied), expected)
    b.call("run", referred, "--input", f"input_ids={TOKENS}", code=6)


def weights_from(b):
    saved, merged = b.path(), b.path().with_suffix(".safetensors")
    b.call("train", b.mlp(), *DATA, "--steps", 2, "-q", "--checkpoint-dir", saved)
    b.call("ckpt", "merge", saved, merged)
    assert b.train(b.mlp("--weights-from", merged))[0]["loss"] != b.train(b.mlp())[0]["loss"]
    assert abs(b.train(b.mlp("--weights-from", merged), steps=1)[0]["loss"] - b.train(b.mlp(), steps=3)[2]["loss"]) > 0
    values = b.parameters(b.mlp("--weights-from", merged), "--lr", 0)
    for name, value in tensors_of(merged).items():
        assert np.allclose(values[name], value, atol=1e-7), name


def reuse(b):
    out = b.path()
    words = ["compile", GPT2, "-o", out, "--no-build", "-q"]
    b.call(*words)
    first = (out / "gpt2/_").stat().st_ino
    b.call(*words)
    assert (out / "gpt2/_").stat().st_ino == first  # match: kept
    b.call(*words, "--dtype", "f64", code=8)
    b.call(*words, "--reuse", "override")
    assert (out / "gpt2/_").stat().st_ino != first
    b.call(*words, "--dtype", "f64", "--reuse", "moo")
    made = [json.loads((out / "gpt2/_/manifest.json").read_text())]
    b.call(*words, "--dtype", "f64", "--pas", "tp:tensor=2", "--reuse", "graph")
    made.append(json.loads((out / "gpt2/_/manifest.json").read_text()))
    assert [m["plan_ngpus"] for m in made] == [1, 2] and made[0]["outputs"][0]["dtype"] == "f64"
    assert made[0]["keys"]["graph"]["key"] == made[1]["keys"]["graph"]["key"]


def save_plan(b):
    saved = b.path()
    b.call("plan", GPT2, "--pas", "tp:tensor=2", "--save-plan", saved, "-q")
    assert saved.read_bytes() == (b.compile(GPT2, "--pas", "tp:tensor=2", build=False) / "plan.json").read_bytes()
    assert "cannot write '.': Is a directory" in b.call("plan", GPT2, "--save-plan", ".", "-q", code=6).stderr


def load_plan(b):
    saved = b.path()
    b.call("plan", GPT2, "--pas", "tp:tensor=2", "--save-plan", saved, "-q")
    assert b.show(GPT2, "--load-plan", saved)["nodes"] == b.show(GPT2, "--pas", "tp:tensor=2")["nodes"]


def onnx_out(b):
    out = b.path().with_suffix(".onnx")
    b.call("plan", GPT2, "--pas", "tp:tensor=2", "--onnx-out", out, "-q")
    assert b.show(out, "--pas", "annotated")["plan_ngpus"] == 2


def html(b):
    page = b.path()
    b.call("show", GPT2, "--html", page, "-q")
    assert page.read_text().lower().startswith("<!doctype html") and "http://" not in re.sub("http://www.w3.org", "", page.read_text())


def mem_limit(b):
    assert "E0431" in b.call("plan", GPT2, "--mem-limit", "1K", code=5).stderr
    b.call("plan", GPT2, "--mem-limit", "1G", "-q")


def no_build(b):
    assert not (b.compile(GPT2, build=False) / "build/run").exists() and (b.compile(GPT2) / "build/run").exists()


def with_runtime(b):
    assert list(b.compile(GPT2, "--with-runtime", build=False).rglob("rt.h"))


def dump_after(b):
    said = b.call("plan", GPT2, "--dump-after", "recognise").stdout
    assert said.startswith("rankc-ir 1") and "Attention" in said, said[:200]


def lock_timeout(b):
    program = b.compile(GPT2)
    lock = program.parent.parent / ".lock-gpt2-_"
    with open(lock, "a", encoding="ascii") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        fcntl.lockf(held, fcntl.LOCK_EX)
        start = time.monotonic()
        b.call("compile", GPT2, "-o", program.parent.parent, "-q", "--reuse", "override", "--lock-timeout", 1, code=7)
        assert 0.5 < time.monotonic() - start < 60


# ---- training, compiled ----

def train(b):
    assert (b.mlp() / "build/train").exists()


def loss(b):
    given = b.manifest(GPT2, *GPT2_LOSS)
    assert "labels" in {i["name"] for i in given["inputs"]}
    assert [i.get("ignored") for i in given["inputs"] if i["name"] == "labels"] == [-100], given["inputs"]
    counted = b.manifest(GPT2, *GPT2_LOSS[:2], GPT2_LOSS[2] + ",mean=tokens")
    assert [o["name"] for o in counted["outputs"]] == ["loss", "loss.weight"], counted["outputs"]


def optimizer(b):
    values, before = b.parameters(b.mlp("--optimizer", "sgd:lr=0")), tensors_of(b.made["initial"])
    assert all(np.array_equal(values[n], before[n]) for n in values)
    assert b.train(b.mlp("--optimizer", "sgd:lr=0.25"), steps=1)[0]["lr"] == 0.25


def ema(b):
    program = b.mlp("--optimizer", "sgd:lr=0.1", "--ema", "0.75")
    saved = b.path()
    b.call("train", program, *DATA, "--steps", 2, "-q", "--checkpoint-dir", saved, "--checkpoint-every", 1)

    def merged(step, *words):
        out = b.path()
        b.call("ckpt", "merge", saved / f"step-{step}", out, *words)
        return tensors_of(out)

    first, second, average = merged(1), merged(2), merged(2, "--averaged")
    assert list(average) == list(second)
    for name in average:
        assert not np.array_equal(first[name], second[name]), name
        assert np.allclose(average[name], 0.75 * first[name] + 0.25 * second[name], rtol=1e-6, atol=1e-8), name
    plain = b.path()
    b.call("train", b.mlp("--optimizer", "sgd:lr=0.1"), *DATA, "--steps", 1, "-q", "--checkpoint-dir", plain)
    assert "has no averages" in b.call("ckpt", "merge", plain, b.path(), "--averaged", code=8).stderr
    assert "--averaged is for merge" in b.call("ckpt", "info", saved, "--averaged", code=2).stderr


averaged = ema


def moments_dtype(b):
    model, adamw = SOURCE / "tests/training/mlp_blocks/model.onnx", ["--train", "--optimizer", "adamw"]
    weights = {"layers.0.weight": 8192, "layers.1.weight": 12288, "layers.2.weight": 6912, "layers.3.weight": 9216}

    def moments(*words):
        return b.show(model, *adamw, *words)["ranks"][0]["memory"]["optimizer"]

    saves = 2 * sum(4 * n - n - 4 * n // 256 for n in weights.values())  # f32, and codes and scales
    each, few, excepted = moments(), moments("--moments-dtype", "int8"), ["--param", "*layers.1.weight:moments_dtype=f32"]
    assert moments("--moments-dtype", "f32") == each
    assert 0 <= few - (each - saves) < 1024, (each, few, saves)  # each tensor is padded
    n = weights["layers.1.weight"]
    assert 0 <= moments("--moments-dtype", "int8", *excepted) - few - 2 * (3 * n - 4 * n // 256) < 256
    assert "adafactor has no states that can be in 8 bits" in b.call("plan", model, "--train", "--optimizer", "adafactor",
                                                                     "--moments-dtype", "int8", code=2).stderr
    assert "--moments-dtype needs --train" in b.call("plan", model, "--moments-dtype", "int8", code=2).stderr


def grad_accum_dtype(b):
    model, words = SOURCE / "tests/training/mlp_blocks/model.onnx", ["--train", "--optimizer", "adamw", "--accumulate", "2"]
    weights, biases = 8192 + 12288 + 6912 + 9216 + 160, 512 + 24 + 288 + 32 + 5

    def gradients(*more):
        return b.show(model, *words, *more)["ranks"][0]["memory"]["gradients"]

    each, few = gradients(), gradients("--grad-accum-dtype", "bf16")
    assert gradients("--grad-accum-dtype", "f32") == each
    assert abs(each - few - 2 * (weights + biases)) < 10 * 64, (each, few)  # each tensor is padded
    divided = gradients("--grad-accum-dtype", "bf16", "--use-zero", "2", "--runtime-ngpus", "2")
    assert divided < 0.6 * few, (divided, few)
    assert "--grad-accum-dtype needs --train" in b.call("plan", model, "--grad-accum-dtype", "bf16", code=2).stderr


def offload(b):
    model, words = SOURCE / "tests/training/mlp_blocks/model.onnx", ["--train", "--optimizer", "adamw", "--target", "cuda"]

    def memory(*more):
        return b.show(model, *words, *more)["ranks"][0]["memory"]

    before, after, large = memory(), memory("--offload", "optimizer"), 8192 + 12288 + 6912 + 9216
    parameters = memory("--offload", "weights", "--use-zero", "3")
    assert parameters == memory("--offload", "weights") and parameters["host"] == 3 * 4 * large, parameters
    assert "--offload weights needs parameters that are divided" in b.call("plan", model, *words, "--offload", "weights", "--use-zero", "1",
                                                                           code=2).stderr
    assert memory("--offload", "none") == before and before["host"] == 0
    assert after["host"] == before["optimizer"] - after["optimizer"] == before["peak"] - after["peak"] == 2 * 4 * large, after
    assert "--offload is for --target cuda" in b.call("plan", model, "--train", "--offload", "optimizer", code=2).stderr
    assert "--offload needs --train" in b.call("plan", model, "--target", "cuda", "--offload", "optimizer", code=2).stderr


def lr_schedule(b):
    rates = [m["lr"] for m in b.train(b.mlp("--optimizer", "sgd:lr=0.4", "--lr-schedule", "linear:warmup=4,steps=8"), steps=8)]
    assert rates[:4] == sorted(rates[:4]) and rates[4:] == sorted(rates[4:], reverse=True) and rates[-1] < max(rates), rates


def param(b):
    values, before = b.parameters(b.mlp("--optimizer", "sgd:lr=0.1", "--param", "*layers.0*:frozen")), tensors_of(b.made["initial"])
    for name in before:  # a checkpoint has what is trained
        assert (name in values) == ("layers.0" not in name), name
        assert name not in values or not np.array_equal(values[name], before[name]), name


def init(b):
    values = b.parameters(b.mlp("--optimizer", "sgd:lr=0", "--init", "*.weight=zeros"))
    assert all((not value.any()) == name.endswith("weight") for name, value in values.items())


def lora(b):
    """Adapters alone are trained, from A within 1 / sqrt(inputs), or normal with 1 / r, and B of zeros; --param trains others."""
    listed = b.call("plan", MLP, "--train", "--lora", "list").stdout
    assert listed.splitlines()[0].split()[:2] == ["model.layers.0", "f32[29,13]"], listed
    values = b.parameters(b.mlp("--optimizer", "sgd:lr=0", "--lora", "layers.0:r=64,alpha=2", "--param", "*layers.2.bias:train"))
    assert sorted(values) == ["model.layers.0.lora_A.weight", "model.layers.0.lora_B.weight", "model.layers.2.bias"], sorted(values)
    a = values["model.layers.0.lora_A.weight"]
    most = 13 ** -.5
    assert a.shape == (64, 13) and 0.9 * most < abs(a).max() <= most and abs(a.std() * 3 ** .5 / most - 1) < 0.1, a.std()
    assert values["model.layers.0.lora_B.weight"].shape == (29, 64) and not values["model.layers.0.lora_B.weight"].any()
    copied = b.parameters(b.mlp("--optimizer", "sgd:lr=0", "--lora", "layers.0:r=64,alpha=2", "--weights", "copy"))
    assert np.array_equal(copied["model.layers.0.lora_A.weight"], a)
    a = b.parameters(b.mlp("--optimizer", "sgd:lr=0", "--lora", "layers.0:r=64,init=gaussian"))["model.layers.0.lora_A.weight"]
    assert abs(a.std() * 64 - 1) < 0.1 and abs(a.mean() * 64) < 0.1, a.std()


def adapter(b):
    """The adapters of the files take part, in training and in inference; of a module that the model does not have they are refused."""
    made = SOURCE / "tests/training/lora/gpt2"
    losses = json.loads((made / "reference.json").read_text())["cases"]["all"]["steps"]["1"]["loss"]
    data = [word for name in ("input_ids", "labels") for word in ("--data", f"{name}={made}/{name}.npy")]
    out, log = b.path(), b.path()
    b.call("compile", made / "model.onnx", "-o", out, "-q", *GPT2_LOSS, "--adapter", made / "all/start")
    b.call("train", out, *data, "--steps", 1, "--log", log)
    assert abs(json.loads(log.read_text().splitlines()[0])["loss"] / losses[0] - 1) < 1e-5
    b.call("compile", made / "model.onnx", "-o", b.path(), "-q", "--adapter", made.parent / "llama/all/start", code=8)
    names = [i["op"] for i in b.manifest(made / "model.onnx", "--adapter", f"{made}/all/trained-1:merge")["instructions"]]
    apart = [i["op"] for i in b.manifest(made / "model.onnx", "--adapter", made / "all/trained-1")["instructions"]]
    assert names.count("MatMul") * 3 == apart.count("MatMul"), (names, apart)
    b.call("compile", made / "model.onnx", "-o", b.path(), "-q", *GPT2_LOSS, "--adapter", f"{made}/all/start:merge", code=2)


def clip_grad_norm(b):
    values, before = b.parameters(b.mlp("--optimizer", "sgd:lr=1", "--clip-grad-norm", "0.001")), tensors_of(b.made["initial"])
    moved = np.sqrt(sum(((values[n].astype(np.float64) - before[n]) ** 2).sum() for n in before))
    assert abs(moved - 0.001) < 2e-5, moved


def skip_nonfinite(b):
    diverges = b.mlp("--optimizer", "sgd:lr=1e30", "--skip-nonfinite")
    lines = b.train(diverges, steps=4)
    assert [m["skipped"] for m in lines][-1] and lines[-1]["step"] == 4, lines
    b.call("verify", diverges, "-q")
    b.call("train", b.mlp("--optimizer", "sgd:lr=1e30"), *DATA, "--steps", 4, "-q", code=9)


def accumulate(b):
    lines = b.train(b.mlp("--optimizer", "sgd:lr=0"), steps=2)
    both = b.train(b.mlp("--optimizer", "sgd:lr=0", "--accumulate", 2), steps=1)
    assert abs(both[0]["loss"] - sum(losses(lines)) / 2) < 1e-6
    three = b.train(b.mlp("--optimizer", "sgd:lr=0", "--accumulate", 2), "--accumulate", 3, steps=1)
    assert abs(three[0]["loss"] - sum(losses(b.train(b.mlp("--optimizer", "sgd:lr=0"), steps=3))) / 3) < 1e-6


def sums(b, *words):
    return [c for c in b.show(STATIC, "--train", "--runtime-ngpus", 2, *words)["communication"]]


def use_async_reducer(b):
    def code(value):
        return (b.compile(STATIC, "--train", "--use-async-reducer", value, build=False) / "model.c").read_text()
    assert code(1) != code(0)


def reducer_bucket_cap_mb(b):
    small, large = sums(b, "--reducer-bucket-cap-mb", "0.001"), sums(b, "--reducer-bucket-cap-mb", "100")
    assert small[0]["buckets"] > large[0]["buckets"] == 1 and small[0]["bytes"] == large[0]["bytes"], (small, large)


def amp(b):
    assert "bf16" in (b.compile(STATIC, "--train", "--amp", "bf16", build=False) / "rank_0.c").read_text()
    exact, half = b.train(b.mlp("--optimizer", "sgd:lr=0.1")), b.train(b.mlp("--optimizer", "sgd:lr=0.1", "--amp", "bf16"))
    assert losses(exact) != losses(half) and np.allclose(losses(exact), losses(half), rtol=0.05), (exact, half)


def fp8(b):
    assert "fp8" in (b.compile(DIMS, "--dim", "batch=2", "--dim", "seq=16", *GPT2_LOSS, "--amp", "bf16", "--fp8", "hybrid", build=False) / "rank_0.c").read_text().lower()


def memory(b, kind, *words):
    return max(r["memory"][kind] for r in b.show(STATIC, "--train", *words)["ranks"])


def recompute(b):
    assert memory(b, "activations", "--recompute", "full") < memory(b, "activations")


def schedule(b):
    for name in ("gpipe", "zb-h1"):
        assert b.show(STATIC, "--train", "--pas", "pp:pipeline=2", "--accumulate", 4, "--schedule", name)["schedule"]["name"] == name


def tied_gradients(b):
    def sent(*words):
        shown = b.show(STATIC, "--train", "--pas", "pp:pipeline=2", "--accumulate", 4, *words)
        return sum(c["count"] for c in shown["communication"] if c["kind"] == "send_recv")
    each, once = sent(), sent("--tied-gradients", "step")
    assert each - once == 3 and each == sent("--tied-gradients", "micro-batch"), (each, once)
    assert sent("--target", "cuda") == once and sent("--target", "cuda", "--tied-gradients", "micro-batch") == each
    assert "--tied-gradients needs --train" in b.call("plan", STATIC, "--tied-gradients", "step", code=2).stderr


def kinds(b, *words):
    return {c["kind"] for c in b.show(STATIC, "--train", "--pas", "tp:tensor=2", *words)["communication"]}


def sequence_parallel(b):
    assert "reduce_scatter" in kinds(b, "--sequence-parallel") and "reduce_scatter" not in kinds(b)


def async_tp(b):
    assert b.manifest(STATIC, "--train", "--pas", "tp:tensor=2", "--async-tp=2")["product_runs"] == 2


def use_zero(b):
    def kind(name, level):
        return memory(b, name, "--runtime-ngpus", 4, "--accumulate", 2, "--use-zero", level)
    assert kind("optimizer", 1) < 0.5 * kind("optimizer", 0)
    assert kind("gradients", 2) < 0.5 * kind("gradients", 1) and kind("weights", 3) < 0.5 * kind("weights", 2)


def zero_ngroups(b):
    words = ["--runtime-ngpus", 4, "--use-zero", 1]
    assert memory(b, "optimizer", *words) < memory(b, "optimizer", *words, "--zero-ngroups", 2) < memory(b, "optimizer", "--runtime-ngpus", 4)


def zero_prefetch(b):
    words = ["--runtime-ngpus", 4, "--use-zero", 3, "--zero-prefetch"]
    assert memory(b, "communication", *words, 0) < memory(b, "communication", *words, 4)


# ---- run ----

def random_program(b):
    return b.compile(GPT2, "--pas", "tp:tensor=2")


def input(b):
    assert np.array_equal(b.outputs(b.compile(GPT2)), b.outputs(b.compile(GPT2)))
    b.call("run", b.compile(GPT2), code=2)


def random_inputs(b):
    run = ["run", b.compile(GPT2), "-q", "--random-inputs"]
    assert b.call(*run).stdout == b.call(run[0], run[1], "-q", "--random-inputs=0").stdout
    assert b.call(*run).stdout != b.call(run[0], run[1], "-q", "--random-inputs=1").stdout


def output_dir(b):
    assert b.outputs(b.compile(GPT2)).shape == (2, 11, 101)


def comm(b):
    for name in ("loopback", "shm"):
        for words in (["run", random_program(b), "--random-inputs"], ["train", b.mlp("--pas", "tp:tensor=2"), *DATA]):
            said = b.call(*words, "--comm", name, "-v").stderr
            assert f"transport {name}" in said, said


def threads(b):
    assert json.loads(b.call("run", random_program(b), "--random-inputs", "--threads", 3, "--json").stdout)["threads"] == 3
    assert json.loads(b.call("train", b.mlp(), *DATA, "--threads", 3, "--json").stdout)["threads"] == 3


def repeat(b):
    assert len(json.loads(b.call("run", random_program(b), "--random-inputs", "--repeat", 5, "--json").stdout)["step_ms"]["all"]) == 5


def warmup(b):
    said = b.call("run", random_program(b), "--random-inputs", "--warmup", 3, "-v").stderr
    assert said.count("warm-up") == 3, said


def recorded(b):
    return (["run", random_program(b), "--random-inputs", "--repeat", 4], ["train", b.mlp(), *DATA, "--steps", 4])


def traced_steps(path):
    return sorted({e["args"]["step"] for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") == "step"})


def trace(b):
    for words in recorded(b):
        path = b.path()
        b.call(*words, "-q", "--trace", path)
        assert traced_steps(path) == [1, 2, 3, 4]


def trace_steps(b):
    for words in recorded(b):
        path = b.path()
        b.call(*words, "-q", "--trace", path, "--trace-steps", "2:3")
        assert traced_steps(path) == [2, 3]


def profile(b):
    for words in recorded(b):
        assert "MatMul" in b.call(*words, "--profile").stdout


def dump_dir(b):
    for words in recorded(b):
        path = b.path()
        b.call(*words, "-q", "--dump-tensors", "*", "--dump-dir", path)
        assert list(path.rglob("*.npy"))


def dump_tensors(b):
    for words, pattern in zip(recorded(b), ("*c_proj*", "*layers.0*")):
        path = b.path()
        b.call(*words, "-q", "--dump-tensors", pattern, "--dump-dir", path)
        rows = [json.loads(line) for file in path.rglob("rank_*.jsonl") for line in file.read_text().splitlines()]
        assert rows and all(pattern.strip("*") in json.dumps(row) for row in rows), rows[:2]


def wait(what, seconds=60):
    """What the function returns, once it returns something."""
    end, found = time.monotonic() + seconds, what()
    while not found and time.monotonic() < end:
        time.sleep(0.05)
        found = what()
    assert found, "nothing happened"
    return found


def children(process):
    return {int(p) for p in call("pgrep", "-P", str(process.pid), status=None).stdout.split()}


def stall_timeout(b):
    child = subprocess.Popen([b.rankc, "run", random_program(b), "--random-inputs", "--repeat", "100000000", "-v", "--stall-timeout", "1"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for said in child.stderr:
        if re.match("rankc: step", said):
            break
    os.kill(max(children(child)), signal.SIGSTOP)
    said = "".join(child.stderr)
    assert child.wait(60) == 9 and "E0912" in said and "rank 1" in said, said[-1000:]


def kernels(b):
    for words in recorded(b):
        assert "kernels reference" in b.call(*words, "-v", "--kernels", "reference").stderr


# ---- train ----

def data(b):
    swapped, x = b.path().with_suffix(".npy"), np.load(MLP.parent / "x.npy")
    np.save(swapped, x[::-1].copy())
    words = ["--data", f"x={swapped}", "--data", f"target={MLP.parent}/target.npy", "--steps", 1, "--json"]
    assert json.loads(b.call("train", b.mlp(), *words).stdout)["losses"] != losses(b.train(b.mlp(), steps=1))


def lr(b):
    assert b.train(b.mlp(), "--lr", 0.125, steps=1)[0]["lr"] == 0.125


def steps(b):
    assert [m["step"] for m in b.train(b.mlp(), steps=4)] == [1, 2, 3, 4]


def shuffle(b):
    plain, one, two = (losses(b.train(b.mlp(), *words)) for words in ([], ["--shuffle", 1], ["--shuffle", 2]))
    assert plain != one != two and one == losses(b.train(b.mlp(), "--shuffle", 1))


def checkpoints(b, *words, steps=6):
    saved = b.path()
    b.train(b.mlp(), "--checkpoint-dir", saved, *words, steps=steps)
    return saved, sorted(int(p.name[5:]) for p in saved.glob("step-*"))


def checkpoint_dir(b):
    assert checkpoints(b)[1] == [6]


def checkpoint_every(b):
    assert checkpoints(b, "--checkpoint-every", 4)[1] == [4, 6]


def checkpoint_async(b):
    written, expected = (checkpoints(b, "--checkpoint-every", 2, *words) for words in (["--checkpoint-async"], []))
    assert written[1] == expected[1] == [2, 4, 6]
    b.call("ckpt", "diff", written[0], expected[0], "-q")


def keep(b):
    assert checkpoints(b, "--checkpoint-every", 1, "--keep", 2)[1] == [5, 6]


def resume(b):
    saved = checkpoints(b, "--checkpoint-every", 2)[0]
    whole = losses(b.train(b.mlp(), steps=8))
    assert losses(b.train(b.mlp(), "--checkpoint-dir", saved, "--resume", "latest", steps=8)) == whole[6:]
    assert losses(b.train(b.mlp(), "--checkpoint-dir", saved, "--resume", 4, steps=8)) == whole[4:]
    fresh = b.path()
    assert losses(b.train(b.mlp(), "--checkpoint-dir", fresh, "--resume", "auto", steps=6)) == whole[:6]
    assert losses(b.train(b.mlp(), "--checkpoint-dir", fresh, "--resume", "auto", steps=8)) == whole[6:]


def reset_optimizer(b):
    saved = checkpoints(b)[0]
    lines = b.train(b.mlp(), "--checkpoint-dir", saved, "--resume", "latest", "--reset-optimizer", steps=2)
    assert [m["step"] for m in lines] == [1, 2] and losses(lines) != losses(b.train(b.mlp(), steps=2))


def restarts(b):
    saved, program = b.path(), b.mlp("--pas", "tp:tensor=2")
    child = subprocess.Popen([str(w) for w in (b.rankc, "train", program, *DATA, "--steps", 100000000, "--checkpoint-dir", saved,
                                               "--checkpoint-every", 1000, "--keep", 2, "--restarts", 1)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait(lambda: list(saved.glob("step-*")))
    first = children(child)
    os.kill(max(first), signal.SIGKILL)
    os.kill(max(wait(lambda: children(child) - first)), signal.SIGKILL)
    said = child.communicate(timeout=60)[1]
    assert child.returncode == 9 and said.count("restart 1 of 1") == 1, said


def log(b):
    assert {"step", "loss", "grad_norm", "lr", "ms"} <= set(b.train(b.mlp())[0])


def log_every(b):
    assert [m["step"] for m in b.train(b.mlp(), "--log-every", 3, steps=7)] == [3, 6, 7]


EVALUATION = ["--eval-data", f"x={MLP.parent}/x.npy", "--eval-data", f"target={MLP.parent}/target.npy"]


def evaluated(b, *words):
    return [m for m in b.train(b.mlp("--optimizer", "sgd:lr=0"), *EVALUATION, *words, steps=5) if any("eval" in key for key in m)]


def eval_data(b):
    assert len(evaluated(b)) == 1


def eval_every(b):
    assert len(evaluated(b, "--eval-every", 2)) == 3


def keep_best(b):
    saved = b.path()
    words = "--eval-every", 1, "--checkpoint-dir", saved, "--keep", 1, "--keep-best"
    lines = evaluated(b, *words)
    best = min(lines, key=lambda line: line["eval_loss"])
    assert json.loads((saved / "best.json").read_text()) == {"step": best["step"], "eval_loss": best["eval_loss"]}
    assert {int(p.name[5:]) for p in saved.glob("step-*")} == {best["step"], lines[-1]["step"]}, lines
    again = b.train(b.mlp("--optimizer", "sgd:lr=0"), *EVALUATION, "--eval-only", "--checkpoint-dir", saved, "--resume", "best")
    assert [(m["step"], m["eval_loss"]) for m in again] == [(best["step"], best["eval_loss"])], again


def eval_only(b):
    lines = b.train(b.mlp(), *EVALUATION, "--eval-only")
    assert len(lines) == 1 and lines[0]["step"] == 0 and "eval_loss" in lines[0], lines


def early_stop(b):
    saved = b.path()
    lines = b.train(b.mlp("--optimizer", "sgd:lr=0"), *EVALUATION, "--eval-every", 1, "--early-stop", 2, "--checkpoint-dir", saved, steps=9)
    assert [m["step"] for m in lines if "eval_loss" in m] == [1, 2, 3], lines
    assert {p.name for p in saved.glob("step-*")} == {"step-1", "step-3"}


def eval_steps(b):
    plain = losses(b.train(b.mlp("--optimizer", "sgd:lr=0"), steps=2))
    value = next(v for k, v in evaluated(b, "--eval-steps", 2)[0].items() if "eval" in k and isinstance(v, float))
    assert abs(value - sum(plain) / 2) < 1e-6, (value, plain)


# ---- others ----

def numeric(b):
    b.call("verify", random_program(b), "--numeric")


def dumps(b):
    if "dumps" not in b.made:
        for k in range(2):
            (b.work / f"dump{k}").mkdir()
            np.save(b.work / f"dump{k}/a.npy", np.array([1, 2 + 0.01 * k], np.float32))
        b.made["dumps"] = [b.work / "dump0", b.work / "dump1"]
    return b.made["dumps"]


def rtol(b):
    b.call("compare", *dumps(b), code=8)
    b.call("compare", *dumps(b), "--rtol", 0.1)


def atol(b):
    b.call("compare", *dumps(b), "--atol", 0.1)


def man(b):
    assert b.call("help", "--man").stdout.startswith(".TH")


def help_(b):
    for verb in ("compile", "train"):
        assert b.call(verb, "--help").stdout.startswith(f"usage: rankc {verb} ")


def color(b):
    for word, colored in (("always", True), ("never", False), ("auto", False)):  # stderr is no terminal
        assert ("\x1b[" in b.call("compile", "none.onnx", "--color", word, code=6).stderr) == colored


def allow_links(b):
    folder, there = b.path(), SOURCE / "tests/training/exports/lstm_default"
    folder.mkdir()
    shutil.copy(there / "model.onnx", folder)
    (folder / "model.onnx.data").symlink_to(there / "model.onnx.data")
    assert "--allow-links" in b.call("plan", folder / "model.onnx", code=3).stderr
    b.call("plan", folder / "model.onnx", "--allow-links", "-q")


def version(b):
    assert re.match(r"rankc \d", b.call("help", "--version").stdout)


QUICK = {"compile": lambda b: [GPT2, "--no-build", "-o", b.path()], "run": lambda b: [random_program(b), "--random-inputs"],
         "train": lambda b: [b.mlp(), *DATA], "plan": lambda b: [GPT2], "show": lambda b: [GPT2], "verify": lambda b: [b.compile(GPT2)],
         "compare": lambda b: [dumps(b)[0], dumps(b)[0]], "ops": lambda b: ["Relu"], "explain": lambda b: ["E0431"]}


def of_verbs(b, *words):
    return {verb: b.call(verb, *make(b), *words) for verb, make in QUICK.items()}


def json_(b):
    for verb, done in of_verbs(b, "--json").items():
        if verb not in ("compile", "verify") or done.stdout:
            json.loads(done.stdout)


def verbose(b):
    plain, more = of_verbs(b), of_verbs(b, "-v")
    less = [verb for verb in plain if len(more[verb].stdout + more[verb].stderr) <= len(plain[verb].stdout + plain[verb].stderr)]
    assert not set(less) - {"ops", "explain"}, less


def quiet(b):
    plain, less = of_verbs(b), of_verbs(b, "-q")
    assert all(not done.stderr for done in less.values())
    assert all(len(less[verb].stdout) <= len(plain[verb].stdout) for verb in plain)


def options_of(b):
    """Each option with the verbs that list it."""
    found = {}
    for verb in re.findall(r"^  ([a-z]+) ", b.call("help").stdout.split("Options:")[0], re.M):
        for name in re.findall(r"^ {2,6}(?:-\w, )?--([a-z0-9-]+)", b.call(verb, "--help").stdout, re.M):
            found.setdefault(name, []).append(verb)
    return found


def main():
    parser = parser_of(__doc__)
    parser.add_argument("options", nargs="*")
    args = parser.parse_args()
    wrong = []
    with tempfile.TemporaryDirectory() as work:
        b = Bench(args.rankc, work)
        found = options_of(b)
        saved, b.made["initial"] = b.path(), b.path()
        b.call("train", b.mlp("--optimizer", "sgd:lr=0"), *DATA, "--steps", 1, "-q", "--checkpoint-dir", saved)
        b.call("ckpt", "merge", saved, b.made["initial"])
        for name in args.options or found:
            start, check = time.monotonic(), globals().get({"json": "json_", "help": "help_"}.get(name, name.replace("-", "_")))
            said = f"see test {CHECKED_BY[name]}" if name in CHECKED_BY else ""
            try:
                if not said:
                    assert check, "no check"
                    check(b)
            except (AssertionError, KeyError, StopIteration, subprocess.TimeoutExpired, TypeError, ValueError, OSError, IndexError) as error:
                wrong.append(name)
                said = f"FAILED: {type(error).__name__} {error}"[:1500]
            print(f"--{name} ({', '.join(found.get(name, []))}): {said or 'ok'} [{time.monotonic() - start:.1f} s]", flush=True)
    print(f"{len(wrong)} of {len(args.options or found)} options fail: {wrong}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
