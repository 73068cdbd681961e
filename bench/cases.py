"""The benchmarks: one row per case. A case has sides, which take turns: the first is rankc, the others are what it is compared with.

Sides are functions of a Bench (bench.py), which knows where things are, and raise Failed when they cannot be had."""
import os
import shlex
import shutil
from dataclasses import dataclass
from typing import Callable, Dict

from files import FILES
from measure import Failed, Kept, Once, run

KB, MB = 1 << 10, 1 << 20


@dataclass
class Case:
    name: str
    group: str
    title: str
    threads: int                # busy in every side: for the peak
    sides: Dict[str, Callable]
    gflop: float = 0            # in one step, multiply-adds of products and convolutions counted as two
    figure: str = "ms"          # of the sample: what is compared


# Sides ------------------------------------------------------------------------------------------------------------

def rankc(model, threads, *options):
    """A compiled model, run by `rankc run`."""
    def side(bench):
        directory = bench.compiled(model, options)
        command = [bench.rankc, "run", directory, *bench.given("--input", model), "--threads", str(threads), "--repeat", "STEPS",
                   "--warmup", "1", "--json", "-q"]
        return Once(command, check=["--output-dir", f"{directory}/check"], output=f"{directory}/check")
    return side


def peer(runtime, model, threads):
    """Another runtime (peer.py)."""
    def side(bench):
        output = f"{bench.work}/{model}.{runtime}.result.npy"
        python = bench.python("torchvision" if runtime in ("torch", "compiled") else runtime)
        return Kept([python, f"{bench.here}/peer.py", runtime, bench.model(model), str(threads), output, *bench.inputs(model)], output)
    return side


def restart(model, threads, whole):
    """A process that starts with a model compiled before and gives its first result; `whole`: it is given the model, and
    finds by itself that it was compiled before."""
    def side(bench):
        cache = f"{bench.work}/cache"
        given = bench.model(model) if whole else bench.compiled(model)
        command = ["env", f"XDG_CACHE_HOME={cache}", bench.rankc, "run", given, *bench.given("--input", model), "--threads",
                   str(threads), "--json", "-q"]
        os.makedirs(cache, exist_ok=True)
        run(command, 300)
        return Once(command)
    return side


def started(runtime, model, threads):
    """Another runtime, in a process of its own every time."""
    def side(bench):
        return Once(["sh", "-c", f"echo 1 | {shlex.join(peer(runtime, model, threads)(bench).command)}"])
    return side


def rankc_train(model, threads, steps, *options):
    """A model compiled with --train, trained by `rankc train`; steps with the first ones, whose pages are new."""
    def side(bench):
        directory = bench.compiled(model, ("--train", "--optimizer", "adamw:lr=1e-4,weight_decay=0", *options))
        return Once([bench.rankc, "train", directory, *bench.given("--data", model), "--steps", str(steps), "--threads", str(threads),
                     "--json"])
    return side


def torch_train(threads, steps, batch, processes=1):
    """PyTorch with glibc told to keep what is freed, which makes it a third faster."""
    def side(bench):
        keep = ["env", "MALLOC_MMAP_THRESHOLD_=4294967296", "MALLOC_TRIM_THRESHOLD_=17179869184", "MALLOC_TOP_PAD_=268435456"]
        return Once([*keep, bench.python("torch"), f"{bench.here}/peer_torch_train.py", str(threads), str(steps), str(batch),
                     str(processes)])
    return side


def all_reduce(ranks, size, repeat, memory):
    def side(bench):
        return Once([bench.c_program("allreduce", bench.runtime_flags()), str(ranks), str(size), str(repeat), memory])
    return side


def mpi_all_reduce(library, ranks, size, repeat):
    compiler, launcher, options = {
        "Open MPI": ("mpicc.openmpi", "mpirun.openmpi", ["--oversubscribe"]),
        "MPICH": ("mpicc.mpich", "mpiexec.mpich", []),
    }[library]

    def side(bench):
        if not shutil.which(compiler) or not shutil.which(launcher):
            raise Failed(f"{library} is not installed ({compiler}, {launcher})")
        program = bench.c_program("allreduce_mpi", (), compiler)
        return Once([launcher, *options, "-n", str(ranks), program, str(size), str(repeat)])
    return side


def compilation(model, *options):
    """`rankc compile` into an empty directory."""
    def side(bench):
        out = f"{bench.work}/compile"
        return Once([bench.rankc, "compile", bench.model(model), "-o", out, "-q", *options], json=False,
                    prepare=lambda: shutil.rmtree(out, ignore_errors=True))
    return side


# Cases ------------------------------------------------------------------------------------------------------------

RUNTIMES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "torch": "PyTorch", "compiled": "PyTorch, compiled"}
BOTH = ("onnxruntime", "openvino")
THREADS = (1, 2)

CASES = []


def add(name, group, title, threads, sides, **fields):
    CASES.append(Case(name, group, title, threads, sides, **fields))


def peers_of(model, threads, runtimes):
    return {RUNTIMES[runtime]: peer(runtime, model, threads) for runtime in runtimes}


def model(group, name, title, gflop=0, runtimes=BOTH):
    """A model beside other runtimes, with one and with more threads."""
    for threads in THREADS:
        add(f"{name}-{threads}t", group, title, threads, {"rankc": rankc(name, threads), **peers_of(name, threads, runtimes)},
            gflop=gflop)


def stack(length, layers, width, hidden, heads=1, kv_heads=1, gates=1):
    """GFLOP of a transformer's layers."""
    weights = width * (2 * width + 2 * width * kv_heads // heads + (1 + gates) * hidden)
    return 2 * length * layers * (weights + 2 * width * length) / 1e9


def head(length, width, vocabulary):
    return 2 * length * width * vocabulary / 1e9


GPT2 = stack(128, 12, 768, 3072) + head(128, 768, 50257)

model("transformer", "gpt2_lm", "GPT-2 124M, 128 token ids to logits", GPT2)
model("transformer", "bert", "BERT-base, 128 token ids to hidden states", stack(128, 12, 768, 3072), (*BOTH, "torch"))
model("transformer", "vit_b", "ViT-B/16, an image to 1000 classes", stack(197, 12, 768, 3072) + head(196, 768, 768), (*BOTH, "torch"))
model("transformer", "llama_4", "Llama 1B (TinyLlama's sizes), 4 of its 22 layers and the head, 128 token ids to logits",
      stack(128, 4, 2048, 5632, 32, 4, 2) + head(128, 2048, 32000))

for name, title, gflop in (
        ("resnet50", "ResNet-50", 8.2), ("mobilenet_v2", "MobileNet v2", .6), ("mobilenet_v3_large", "MobileNet v3 large", .43),
        ("efficientnet_b0", "EfficientNet B0", .78), ("convnext_tiny", "ConvNeXt tiny", 8.9), ("densenet121", "DenseNet-121", 5.7),
        ("vgg16", "VGG-16", 30.9), ("resnext50_32x4d", "ResNeXt-50", 8.5), ("shufflenet_v2_x1_0", "ShuffleNet v2", .29),
        ("squeezenet1_1", "SqueezeNet 1.1", .7), ("googlenet", "GoogLeNet", 3), ("inception_v3", "Inception v3", 11.4),
        ("regnet_y_400mf", "RegNet Y 400MF", .8), ("lraspp_mobilenet_v3_large", "LR-ASPP MobileNet v3", 0), ("unet", "U-Net", 0),
        ("detector", "YOLO-like", 0)):
    model("image", name, title, gflop)

for name, file in FILES.items():
    model("file", name, file.title)

for name, title in (("resnet50", "ResNet-50"), ("bert", "BERT-base"), ("gpt2_lm", "GPT-2 124M")):
    for kind, text in {"qdq": "QDQ", "qoperator": "QOperator", "dynamic": "dynamic"}.items():
        if (name, kind) != ("resnet50", "dynamic"):
            runtimes = BOTH[:1] if kind == "qoperator" else BOTH  # OpenVINO refuses QLinearConv and its like
            model("integer", f"{name}.{kind}", f"{title}, {text}", runtimes=runtimes)

for name, title in (("gpt2_lm", "GPT-2 124M"), ("llama_8", "Llama of 8 layers, width 1024")):
    for length in (128, 512):
        at = name if length == 128 else f"{name}_{length}"
        for dtype in ("bf16", "fp16"):
            for threads in THREADS:
                add(f"{at}-{dtype}-{threads}t", "half", f"{title}, {length} tokens, {dtype}", threads,
                    {"rankc": rankc(at, threads, "--dtype", dtype), "rankc, f32": rankc(at, threads)})

for name, title in (("chain20", "20 elementwise operators"), ("gelu", "tanh GELU, 8 operators"),
                    ("layernorm", "LayerNormalization decomposed, 9 operators"), ("softmax", "Softmax")):
    model("memory", name, title)

for name, title, gflop in (("gpt2_lm", "GPT-2 124M, 128 token ids to logits", GPT2),
                           ("gpt2_2", "GPT-2 stack, 2 layers", stack(128, 2, 768, 3072))):
    add(f"{name}-tp2", "ranks", title, 2, {"rankc tp 2": rankc(name, 1, "--pas", "tp:tensor=2"), "rankc, 1 thread": rankc(name, 1),
                                           "rankc, 2 threads": rankc(name, 2), **peers_of(name, 2, BOTH)}, gflop=gflop)

STEP = 3 * (4 * stack(64, 12, 768, 3072) + head(4 * 64, 768, 50257))
add("train-2t", "training", "GPT-2 124M", 2, {"rankc": rankc_train("gpt2_train", 2, 8), "PyTorch": torch_train(2, 8, 4)}, gflop=STEP)
add("train-dp2", "training", "GPT-2 124M, data parallel on 2 ranks", 2, {
    "rankc": rankc_train("gpt2_train_half", 1, 8, "--runtime-ngpus", "2"), "PyTorch": torch_train(1, 8, 2, 2)}, gflop=STEP)

STAGES = ("--accumulate", "8", "--pas", "pp", "--plan-ngpus", "2", "--schedule")
add("train-stages", "training", "GPT-2 124M, 8 micro-batches, 2 stages", 2, {
    "rankc": rankc_train("gpt2_train_half", 1, 3, *STAGES, "zb-v"),
    "rankc, one rank, 1 thread": rankc_train("gpt2_train_half", 1, 3, "--accumulate", "8"),
    **{f"rankc, {schedule}": rankc_train("gpt2_train_half", 1, 3, *STAGES, schedule) for schedule in ("1f1b", "zb-h1", "zb-h2")}})

for ranks, sizes in ((2, (4 * KB, 64 * KB, 384 * KB, MB, 16 * MB, 64 * MB)), (4, (4 * KB, MB, 64 * MB))):
    for size in sizes:
        repeat = max(12, min(200000, 2000 * MB // size) // (1 if ranks == 2 else 8))
        text = f"{size // MB} MB" if size >= MB else f"{size // KB} KB"
        fewer = min(repeat, 50) if ranks == 4 else repeat  # MPICH's waits spin: milliseconds where ranks share a core
        add(f"allreduce-{ranks}-{text.replace(' ', '').lower()}", "allreduce", f"{ranks} ranks, {text}", 2, {
            "rankc": all_reduce(ranks, size, repeat, "symmetric"), "rankc, staged": all_reduce(ranks, size, repeat, "staged"),
            "Open MPI": mpi_all_reduce("Open MPI", ranks, size, repeat), "MPICH": mpi_all_reduce("MPICH", ranks, size, fewer)})

for what, whole in (("the compiled directory", False), ("the model file", True)):
    add(f"restart-{'model' if whole else 'dir'}", "restart", f"GPT-2 124M, from {what}", 2, {
        "rankc": restart("gpt2_lm", 2, whole), **{RUNTIMES[r]: started(r, "gpt2_lm", 2) for r in BOTH}}, figure="first_ms")

for layers in (2, 12, 24):
    add(f"compile-{layers}", "compile", f"GPT-2 stack, {layers} layers", 1, {
        "rankc": compilation(f"gpt2_{layers}"), "sources alone": compilation(f"gpt2_{layers}", "--no-build")}, figure="wall_ms")
