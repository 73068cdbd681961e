#!/usr/bin/python3
"""Machine code of generated CUDA, taken apart: elementwise chains, programs over rows and columns (norms, softmax, their gradients) and the optimizer access memory 16 bytes at a
time, and flash attention multiplies on tensor cores.

    sass.py --rankc RANKC --include DIR --training DIR [--quick]

Compiles the training of GPT-2, in f32, in bf16, and in bf16 with flash attention, for the GPUs of ARCHITECTURES (--quick: each for one of them). Exit status 77 where there is no nvcc or no
disassembler (nvdisasm, of the CUDA toolkit, in PATH or named by NVDISASM)."""
import os
import re
import shutil
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, parser_of, skip  # noqa: E402

ARCHITECTURES = ["sm_80", "sm_90a"]
# options, and the architecture with --quick
PROGRAMS = [([], "sm_80"), (["--amp", "bf16"], "sm_90a"), (["--amp", "bf16", "--attention", "flash"], "sm_80")]
BYTES = {"float": 4, "double": 8, "uint16_t": 2, "uint8_t": 1, "int64_t": 8, "int32_t": 4}
FEWEST = 12  # kernels that must be found; all parameters are updated by one
# kernels of the runtime, by what is in their name; f32 in vectors of 4
WIDE = {"rt_squares_kernelIf": ["LDG"]}


def functions_of(text):
    """Instructions of every function, by its name."""
    functions, name = {}, None
    for line in text.splitlines():
        label = re.match(r"\.text\.(\S+):", line)
        name = label[1] if label else name
        opcode = re.search(r"/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]+)", line)
        if name and opcode:
            functions.setdefault(name, []).append(opcode[1])
    return functions


# kernels that multiply tiles, with --attention flash
TILES = ["rt_flash_kernelI7rt_bf16Li64E", "rt_flash_grad_q_kernelI7rt_bf16Li64E", "rt_flash_grad_kv_kernelI7rt_bf16Li64E"]


def has(opcodes, kind):
    return any(re.fullmatch(kind, opcode) for opcode in opcodes)


def accesses_of(source):
    """Of kernels of elements, rows and columns that take vectors: which accesses have 16 bytes, by name."""
    wanted = {}
    rows = dict(re.findall(r"^struct (\w+_row) \{\n(.*?)\n\};", source, re.S | re.M))
    for name, parameters, body in re.findall(r"__global__ void (?:__launch_bounds__\(\w+\) )?(\w+)\(([^)]*)\) \{\n(.*?)\n\}", source, re.S):
        operands = parameters + "".join(rows[row] for row in re.findall(r"rt_table<(\w+)", parameters))
        bytes_of = {p: BYTES[t] for t, p in re.findall(r"(\w+) \*(?:__restrict__ )?(\w+)", operands)}
        reads = [int(n) * bytes_of[p] for n, p in re.findall(r"rt_get_vector<(\d)>\((\w+) ", body)]
        width = re.search(r"lane < (\d)", body)
        writes = [int(width[1]) * bytes_of[p] for p in re.findall(r"rt_put_vector\((\w+) ", body)]
        kinds = [kind for kind, sizes in (("LDG", reads), ("STG", writes)) if max(sizes, default=0) >= 16]
        if kinds:
            wanted[name] = kinds
    return wanted


def check(source, functions):
    wanted = {f"{len(name)}{name}": kinds for name, kinds in accesses_of(source).items()}
    flash, missing = "rt_flash_attention_" in source, []
    wanted.update(WIDE)
    for name in TILES if flash else []:
        opcodes = next((opcodes for function, opcodes in functions.items() if name in function), [])
        missing += [] if has(opcodes, r"HMMA\.16816\.F32\.BF16.*") else [f"{name}: no HMMA"]
    for name, kinds in wanted.items():
        opcodes = next((opcodes for function, opcodes in functions.items() if name in function), [])
        missing += [f"{name}: no {kind}.E.128" for kind in kinds if not has(opcodes, kind + r"\.E\.128.*")]
    return len(wanted), missing


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--include", required=True)
    parser.add_argument("--training", required=True)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    disassembler = os.environ.get("NVDISASM") or shutil.which("nvdisasm")
    if not shutil.which("nvcc") or not disassembler:
        skip("there is no nvdisasm" if shutil.which("nvcc") else "there is no nvcc")
    failed = False
    for options, quick in PROGRAMS:
        with tempfile.TemporaryDirectory(prefix="rankc-sass-") as work:
            call(args.rankc, "compile", f"{args.training}/gpt2/model.onnx", "-o", work, "-q", "--no-build", "--target", "cuda",
                 "--train", *options)
            path = f"{work}/model/_/rank_0.cu"
            for architecture in [quick] if args.quick else ARCHITECTURES:
                call("nvcc", "-std=c++20", "-O3", "--extended-lambda", "-cubin", f"-arch={architecture}", "-I", args.include,
                     "-o", f"{work}/rank.cubin", path)
                functions = functions_of(call(disassembler, "-c", f"{work}/rank.cubin").stdout)
                n, missing = check(open(path).read(), functions)
                print(f"{architecture} {' '.join(options) or 'f32'}: {n} kernels with accesses of 16 bytes", *missing, flush=True)
                failed = failed or n < FEWEST or missing != []
    return failed


if __name__ == "__main__":
    sys.exit(main())
