"""The benchmarks: one row per case. A case has a side A, which is rankc, and a side B, what it is compared with.

Sides are functions of a Bench (bench.py), which knows where things are, and raise Failed when they cannot be had."""
import os
import shutil
from dataclasses import dataclass
from typing import Callable, List, Optional

from measure import Failed, run

KB, MB = 1 << 10, 1 << 20


@dataclass
class Side:
    label: str
    command: List[str]
    json: bool = True                            # stdout is like that of `rankc run --json`
    prepare: Optional[Callable[[], None]] = None  # before every sample, not timed
    output: Optional[str] = None                 # where a run with --check leaves the model's output
    check: Optional[List[str]] = None            # the command of that run


@dataclass
class Case:
    name: str
    group: str
    title: str
    a: Callable
    b: Callable
    figure: str = "ms"   # of the sample: what is compared
    cores: int = 1       # busy in both sides: for the peak
    gflop: float = 0     # in one step, multiply-adds of products and convolutions counted as two


# Sides ------------------------------------------------------------------------------------------------------------

def rankc(model, threads, repeat, warmup=2, pas=None):
    """A compiled model, run by `rankc run`."""
    def side(bench):
        directory = bench.compiled(model, pas)
        out = f"{directory}/check"
        base = [bench.rankc, "run", directory, "--input", f"x={bench.input(model)}", "--threads", str(threads)]
        return Side("rankc" + (f" {pas}" if pas else ""),
                    base + ["--repeat", str(repeat), "--warmup", str(warmup), "--json"],
                    output=out, check=base + ["--output-dir", out])
    return side


def ort(model, threads, repeat, warmup=3):
    def side(bench):
        program = [bench.python("onnxruntime"), f"{bench.here}/peer_ort.py", bench.model(model), bench.input(model),
                   str(threads)]
        out = f"{bench.work}/{model}.ort.npy"
        return Side("ONNX Runtime", program + [str(repeat), str(warmup)], output=out, check=program + ["1", "0", out])
    return side


def restart(model, threads, whole):
    """A process that starts with a model compiled before and gives its first result; `whole`: it is given the model, and
    finds by itself that it was compiled before."""
    def side(bench):
        cache = f"{bench.work}/cache"
        given = bench.model(model) if whole else bench.compiled(model, None)
        command = ["env", f"XDG_CACHE_HOME={cache}", bench.rankc, "run", given, "--input", f"x={bench.input(model)}",
                   "--threads", str(threads), "--json"]
        os.makedirs(cache, exist_ok=True)
        run(command, 300)
        return Side("rankc run " + ("MODEL" if whole else "DIR"), command)
    return side


def torch(threads, repeat, warmup=2):
    def side(bench):
        return Side("PyTorch", [bench.python("torch"), f"{bench.here}/peer_torch.py", str(threads), str(repeat),
                                str(warmup)])
    return side


def rankc_train(model, threads, steps, units=1):
    """A model compiled with --train, trained by `rankc train`; steps with the first ones, whose pages are new."""
    def side(bench):
        directory = bench.compiled(model, None, ("--train", "--optimizer", "adamw:lr=1e-4,weight_decay=0",
                                                 "--runtime-ngpus", str(units)))
        data = [word for name in ("x", "labels") for word in ("--data", f"{name}={bench.work}/{model}.{name}.npy")]
        return Side(f"rankc, {units} units" if units > 1 else "rankc",
                    [bench.rankc, "train", directory, *data, "--steps", str(steps), "--threads", str(threads), "--json"])
    return side


def torch_train(threads, steps, batch, processes=1):
    """PyTorch with glibc told to keep what is freed, which makes it a third faster."""
    def side(bench):
        keep = ["env", "MALLOC_MMAP_THRESHOLD_=4294967296", "MALLOC_TRIM_THRESHOLD_=17179869184",
                "MALLOC_TOP_PAD_=268435456"]
        return Side("PyTorch DDP, gloo" if processes > 1 else "PyTorch",
                    [*keep, bench.python("torch"), f"{bench.here}/peer_torch_train.py", str(threads), str(steps), str(batch),
                     str(processes)])
    return side


def all_reduce(ranks, size, repeat, memory):
    def side(bench):
        program = bench.c_program("allreduce", bench.runtime_flags())
        return Side(f"rankc {memory}", [program, str(ranks), str(size), str(repeat), memory])
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
        return Side(library, [launcher, *options, "-n", str(ranks), program, str(size), str(repeat)])
    return side


def compilation(model, build):
    """`rankc compile` into an empty directory."""
    def side(bench):
        out = f"{bench.work}/compile"
        return Side("sources and programs" if build else "sources",
                    [bench.rankc, "compile", bench.model(model), "-o", out, "-q"] + ([] if build else ["--no-build"]),
                    json=False, prepare=lambda: shutil.rmtree(out, ignore_errors=True))
    return side


# Cases ------------------------------------------------------------------------------------------------------------

BLOCK = 2 * 128 * 768 * (12 * 768 + 2 * 128) / 1e9  # GFLOP of one GPT-2 layer, 128 tokens
HEAD = 2 * 128 * 768 * 50257 / 1e9

CASES = []


def add(*row, **fields):
    CASES.append(Case(*row, **fields))


for name, what, layers, head, repeat in (
        ("gpt2_12", "GPT-2 stack, 12 layers", 12, 0, 10), ("gpt2_2", "GPT-2 stack, 2 layers", 2, 0, 60),
        ("gpt2_decomposed", "GPT-2 stack, 12 layers, LayerNormalization decomposed", 12, 0, 10),
        ("gpt2_lm", "GPT-2 124M, token ids to logits", 12, HEAD, 8)):
    for cores in (1, 2):
        add(f"{name}-{cores}t", "model", f"{what}, {cores} thread{'s'[:cores > 1]}", rankc(name, cores, repeat * cores),
            ort(name, cores, repeat * cores), cores=cores, gflop=layers * BLOCK + head)
add("gpt2_12-torch-2t", "model", "GPT-2 stack, 12 layers, 2 threads", rankc("gpt2_12", 2, 20),
    torch(2, 10), cores=2, gflop=12 * BLOCK)
for cores in (1, 2):
    add(f"resnet50-{cores}t", "model", f"ResNet-50, {cores} thread{'s'[:cores > 1]}",
        rankc("resnet50", cores, 30 * cores), ort("resnet50", cores, 30 * cores), cores=cores, gflop=8.2)

for name, what, repeat in (
        ("chain20", "20 elementwise operators", 60), ("gelu", "tanh GELU, 8 operators", 60),
        ("layernorm", "LayerNormalization decomposed, 9 operators", 80), ("softmax", "Softmax", 80)):
    for cores in (1, 2):
        add(f"{name}-{cores}t", "memory", f"{what}, {cores} thread{'s'[:cores > 1]}", rankc(name, cores, repeat, 3),
            ort(name, cores, repeat), cores=cores)

for name, layers, repeat in (("gpt2_12", 12, 10), ("gpt2_2", 2, 60)):
    add(f"{name}-tp2", "ranks", f"GPT-2 stack, {layers} layers", rankc(name, 1, repeat, pas="tp:tensor=2"),
        rankc(name, 1, repeat), cores=2, gflop=layers * BLOCK)

TOKENS = 4 * 64
STEP = 3 * 12 * 2 * TOKENS * 768 * (12 * 768 + 2 * 64) / 1e9 + 3 * 2 * TOKENS * 768 * 50257 / 1e9
add("train-2t", "training", "GPT-2 124M, 2 threads", rankc_train("gpt2_train", 2, 8), torch_train(2, 8, 4), cores=2,
    gflop=STEP)
add("train-dp2", "training", "GPT-2 124M, data parallel on 2 ranks", rankc_train("gpt2_train_half", 1, 8, 2),
    torch_train(1, 8, 2, 2), cores=2, gflop=STEP)

for ranks, sizes in ((2, (4 * KB, 64 * KB, 384 * KB, MB, 16 * MB, 64 * MB)), (4, (4 * KB, MB, 64 * MB))):
    for size in sizes:
        repeat = max(12, min(200000, 2000 * MB // size) // (1 if ranks == 2 else 8))
        text = f"{size // MB} MB" if size >= MB else f"{size // KB} KB"
        for memory, library in (("symmetric", "Open MPI"), ("symmetric", "MPICH"), ("staged", "Open MPI")):
            if ranks == 4 and library == "MPICH":
                repeat = min(repeat, 50)  # its waits spin: milliseconds where ranks share a core
            add(f"allreduce-{ranks}-{text.replace(' ', '').lower()}-{memory}-{library.lower().replace(' ', '')}",
                "allreduce", f"{ranks} ranks, {text}, {memory}", all_reduce(ranks, size, repeat, memory),
                mpi_all_reduce(library, ranks, size, repeat), cores=2)

for what, whole in (("the compiled directory", False), ("the model file", True)):
    add(f"restart-{'model' if whole else 'dir'}", "restart", f"GPT-2 124M, 2 threads, from {what}",
        restart("gpt2_lm", 2, whole), ort("gpt2_lm", 2, 1, warmup=0), figure="first_ms", cores=2)

for layers in (2, 12, 24):
    add(f"compile-{layers}", "compile", f"GPT-2 stack, {layers} layers", compilation(f"gpt2_{layers}", False),
        compilation(f"gpt2_{layers}", True), figure="wall_ms", cores=1)
