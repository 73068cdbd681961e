#!/usr/bin/python3
"""Compiles generated CUDA with nvcc, every warning an error, where there need not be a GPU.

    nvcc.py --rankc RANKC --models DIR --training DIR [CASE...]

Every case is a model under a policy: the source of rank 0 compiles, with those of the cases after the first as one source; the first
case's program links, in at most 30 s of nvcc's time for GPT-2, and without a GPU says so in one line, with exit code 6. Case "depth" is a small transformer of 2, 12 and 24 layers: the
compilers take as long for all. Case "operators" is the samples of
all operators (opcheck/samples.def), in all types, compiled without optimisation, that of device code too. Case "sweep" is every model and training case of the tests under the policies of PLANS, all ranks
of a model compiled together, and prints a table; --only GLOB takes some of them. Exit status 77 where there is no nvcc."""
import fnmatch
import os
import re
import resource
import shutil
import sys

from stand_in import TESTS, Failed, call, dims_of, parser_of, plan_of, report, skip

GPT2 = ["gpt2", "--dim", "batch=2", "--dim", "seq=11"]
CASES = {
    "gpt2 dp": GPT2,
    "gpt2 sizes": ["gpt2", "--dim", "batch=1..2", "--dim", "seq=1..11"],
    "gpt2 tp": [*GPT2, *plan_of("tp2").options],
    "gpt2 data": [*GPT2, *plan_of("data2").options],
    "gpt2 hybrid": [*GPT2, *plan_of("tp2data2pp2").options],
    "decoder": ["samples/words", "--state", "auto", "--weight-dtype", "int8", "--dim", "batch=1..4", "--dim", "sequence=1..16", "--dim",
                "past_sequence=0..160"],
    "train gpt2 hybrid": ["training/gpt2", "--train", *plan_of("tp2data2").options, "--clip-grad-norm", "1"],
    "train gpt2 bf16": ["training/gpt2", "--train", *plan_of("tp2").options, "--amp", "bf16"],
    "train gpt2 flash": ["training/gpt2", "--train", "--amp", "fp16", "--attention", "flash"],
    "train gpt2 fp8": ["training/gpt2_fp8", "--train", *plan_of("tp2").options, "--amp", "bf16", "--fp8", "hybrid"],
    "train cnn": ["training/cnn_bn", "--train"],
}
MOST_SECONDS = 30
DEPTHS = [2, 12, 24]
PLANS = ["one", "tp2", "tp3", "data2"]
MESHES = {"infer": "tp2data2pp2", "train": "tp2data2"}
FLAGS = ("-O3 -Werror all-warnings "
         "-Xcompiler -Wall,-Wextra,-Wno-missing-field-initializers,-Wno-unused-function,-Werror")


def architecture(name):
    """As generated Makefiles have it: with -arch=sm_90a nvcc compiles twice, for sm_90a and to PTX of compute_90."""
    return ["-gencode", f"arch={name.replace('sm_', 'compute_')},code={name}"]


def generate(args, model, out, *options, status=0):
    """The program's directory; None where rankc says that it will not, and `status` permits that."""
    command = [args.rankc, "compile", model, "-o", out, "-q", "--no-build", "--target", "cuda", "--arch", args.arch, *options]
    done = call(*command, status=None, timeout=300)
    if done.returncode and done.returncode == status:
        return None
    if done.returncode:
        raise Failed(f"exit {done.returncode}: {' '.join(command)}\n{done.stderr}")
    instance = options[options.index("--instance-name") + 1] if "--instance-name" in options else "_"
    return os.path.join(out, os.path.splitext(os.path.basename(model))[0], instance)


def generate_case(args, case, out, *more):
    folder, *options = [*CASES[case], *more]
    place = {"training": args.training, "samples": os.path.join(TESTS, "..", "samples", "generate")}.get(os.path.dirname(folder), args.models)
    folder = os.path.join(place, os.path.basename(folder))
    return generate(args, os.path.join(folder, "model.onnx"), out, *options)


def timed(*command):
    """Seconds that the compilers took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call(*command, timeout=3600)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def make(args, directory, *goals):
    return timed("make", "-s", "-C", directory, *goals, f"NVCCFLAGS={FLAGS}", f"RANKC_CFLAGS=-I{args.include}",
                 f"RANKC_LIBS={os.path.abspath(args.library)} {args.libs}")


def check_program(args, directory, seconds):
    inputs = [f"--input={name}={args.models}/gpt2/inputs/input_ids.npy" for name in ("input_ids", "attention_mask", "position_ids")]
    run = [os.path.join(directory, "build", "run"), *inputs[:None if args.cases[0] == "decoder" else 1]]
    if seconds > MOST_SECONDS:
        raise Failed(f"the compilers took {seconds:.1f} s")
    if os.path.exists("/dev/nvidia0"):
        return
    said = call(*run, status=6).stderr
    if not re.fullmatch(r"rankc: error\[E0906\]: this program needs a GPU, but there is none: .*\n", said):
        raise Failed(f"without a GPU the program says: {said}")


def sources(directory):
    return [f"build/{f[:-3]}.o" for f in sorted(os.listdir(directory)) if re.fullmatch(r"rank_\d+\.cu", f)]


def check_first(args, work, case):
    directory = generate_case(args, case, work)
    seconds = make(args, directory, "all")
    if "--train" not in CASES[case]:
        check_program(args, directory, seconds)
    return f"{seconds:.1f} s"


def rank_sources(directory):
    return [os.path.join(directory, f) for f in sorted(os.listdir(directory)) if re.fullmatch(r"rank_\d+\.cu", f)]


def compile_together(args, sources, work, flags=FLAGS):
    """Seconds for sources of ranks of several programs as one source, each in a namespace; headers are most of what a source takes."""
    lines = ["#include <rankc/cuda/kernels.cuh>"]
    for number, source in enumerate(sources):
        lines.append(f'namespace source_{number} {{\n#include "{os.path.abspath(source)}"\n}}')
    with open(os.path.join(work, "all.cu"), "w") as file:
        file.write("\n".join(lines) + "\n")
    return timed("nvcc", "-std=c++20", "--extended-lambda", *architecture(args.arch), *flags.split(), "-I", args.include, "-c", "-o",
                 os.path.join(work, "all.o"), os.path.join(work, "all.cu"))


def check_together(args, work, cases):
    """Sources of other ranks differ in a few constants; case "sweep" compiles those too."""
    directories = [generate_case(args, case, work, "--instance-name", f"p{number}") for number, case in enumerate(cases)]
    return f"{compile_together(args, [rank_sources(directory)[0] for directory in directories], work):.1f} s"


# ---- depth ----

class Text:
    """A graph in text IR, line by line."""

    def __init__(self, name):
        self.lines = ["rankc-ir 1", f'graph "{name}" level=TYPED', f'file "{name}.bin"']
        self.body, self.values, self.offset = [], 0, 0

    def new(self):
        self.values += 1
        return f"%{self.values - 1}"

    def weight(self, *dims):
        value, count = self.new(), 1
        for d in dims:
            count *= d
        self.lines.append(f'weight {value} "w{value[1:]}" f32[{",".join(map(str, dims))}] @1+{self.offset} as f32')
        self.offset += 4 * count
        return value

    def call(self, text):
        value = self.new()
        self.body.append(f'{value} "v{value[1:]}" = {text} node="n{value[1:]}"')
        return value


def write_transformer(path, layers, rows=8, width=16):
    """One head of attention and a feed-forward part in every layer."""
    text = Text("deep")
    x = text.new()
    text.lines.append(f'input {x} "x" f32[{rows},{width}]')
    for _ in range(layers):
        normed = text.call(f"LayerNorm({x}, {text.weight(width)}, {text.weight(width)}) epsilon=1e-5")
        q, k, v = (text.call(f"MatMul({normed}, {text.weight(width, width)})") for _ in range(3))
        scores = text.call(f"MatMul({q}, {text.call(f'Transpose({k}) perm=[1, 0]')})")
        mixed = text.call(f"MatMul({text.call(f'Softmax({scores}) axis=1')}, {v})")
        x = text.call(f"Add({x}, {text.call(f'MatMul({mixed}, {text.weight(width, width)})')})")
        normed = text.call(f"LayerNorm({x}, {text.weight(width)}, {text.weight(width)}) epsilon=1e-5")
        wide = text.call(f"Gelu({text.call(f'MatMul({normed}, {text.weight(width, 4 * width)})')})")
        x = text.call(f"Add({x}, {text.call(f'MatMul({wide}, {text.weight(4 * width, width)})')})")
    with open(os.path.join(path, "deep.bin"), "wb") as file:
        file.write(bytes(text.offset))
    with open(os.path.join(path, "deep.rir"), "w") as file:
        file.write("\n".join([*text.lines, *text.body, f'output {x} "y"']) + "\n")


def check_depth(args, work, _):
    seconds = {}
    for layers in DEPTHS:
        write_transformer(work, layers)
        directory = generate(args, os.path.join(work, "deep.rir"), os.path.join(work, str(layers)), "--pas", "tp:tensor=2")
        seconds[layers] = make(args, directory, *sources(directory))
        print(f"depth {layers}: {seconds[layers]:.1f} s", flush=True)
    if max(seconds.values()) > 1.25 * seconds[DEPTHS[0]] + 1:
        raise Failed(f"the compilers' time grows with the layers: {seconds}")
    return "ok"


# ---- operators ----

def check_operators(args, work, _):
    programs = []
    for types in "full", "halves":
        folder = os.path.join(work, types)
        os.makedirs(folder)
        call(args.generate, folder, types, "cuda")
        programs.append(generate(args, os.path.join(folder, "whole.rir"), folder, "--instance-name", types))
    flags = FLAGS.replace("-O3", "-O0") + " -Xcicc -O0 -Xptxas -O0"
    return f"{compile_together(args, [os.path.join(program, 'rank_0.cu') for program in programs], work, flags):.1f} s"


# ---- sweep ----

def models_of(args):
    """(name, model, options, plans)"""
    for folder, name, more in (args.models, "infer", []), (args.training, "train", ["--train"]):
        for entry in sorted(os.listdir(folder)):
            model = os.path.join(folder, entry, "model.onnx")
            if os.path.exists(model):
                yield f"{name} {entry}", model, [*more, *dims_of(model)], [*PLANS, MESHES[name]]


def sweep(args, work, _):
    """A row per model; what a policy cannot do is said so by rankc."""
    print("| model | sources | seconds | cannot be split by |\n|---|---|---|---|", flush=True)
    failed = 0
    for number, (name, model, options, plans) in enumerate(models_of(args)):
        if not fnmatch.fnmatch(name, args.only):
            continue
        out, programs = os.path.join(work, str(number)), {}
        try:
            for plan in plans:
                instance = f"p{len(programs)}" # part of the names of functions
                programs[plan] = generate(args, model, out, *options, *plan_of(plan).options, "--instance-name", instance, status=5)
            made = [directory for directory in programs.values() if directory]
            seconds = compile_together(args, [source for directory in made for source in rank_sources(directory)], out)
            refused = " ".join(plan for plan, directory in programs.items() if not directory)
            print(f"| {name} | {sum(len(rank_sources(d)) for d in made)} | {seconds:.1f} | {refused} |", flush=True)
        except Failed as wrong:
            failed += 1
            print(f"| {name} | FAILED | | |\n{wrong}", flush=True)
        shutil.rmtree(out, ignore_errors=True)
    if failed:
        raise Failed(f"{failed} of them do not compile")
    return "ok"


WHOLE = {"depth": check_depth, "operators": check_operators, "sweep": sweep}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--models", required=True)
    parser.add_argument("--training", required=True)
    parser.add_argument("--include", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--libs", default="-lm -lpthread")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--generate", help="for case operators: opcheck's generator of samples")
    parser.add_argument("--only", default="*", help="of case sweep: a pattern of names")
    parser.add_argument("cases", nargs="*", default=[*CASES, "depth"])
    args = parser.parse_args()
    if not shutil.which("nvcc"):
        skip("there is no nvcc")
    first, *others = [case for case in args.cases if case not in WHOLE] or [None]
    checks = [(first, lambda work: check_first(args, work, first))] if first else []
    if others:
        checks.append((", ".join(others), lambda work: check_together(args, work, others)))
    checks += [(case, lambda work, case=case: WHOLE[case](args, work, case)) for case in args.cases if case in WHOLE]
    return report(checks)


if __name__ == "__main__":
    sys.exit(main())
