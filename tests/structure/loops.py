#!/usr/bin/python3
"""The layers of a model in training: every one is called in the loops of both phases, though the first and the last read
values that lie elsewhere (other arenas, slots of micro-batches).

    loops.py --rankc RANKC --model LLAMA.onnx

A comment names the module of each node; a function of layers says "layers.*" in place of a number."""
import argparse
import re
import subprocess
import sys
import tempfile

LAYERS = 4
# The products of a layer, and plans under which the stages' bounds are those of layers.
PRODUCTS = ["self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"]
PLANS = {"dp": 1, "tp:tensor=2": 1, "pp:pipeline=2": 2}


def source_of(rankc, model, plan, directory):
    command = [rankc, "compile", model, "--train", "--loss", "cross_entropy", "--optimizer", "adamw", "--pas", plan, "-o",
               directory, "--no-build", "-q"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise SystemExit(f"exit {done.returncode}: {' '.join(command)}\n{done.stderr.strip()}")
    return open(f"{directory}/llama/_/rank_0.c").read()


def check(text, phase, product, layers):
    """The node stands in a function of layers, which is called for all of them."""
    node = f"{product}{'.grad' if phase == 'backward' else ''} "
    if re.search(rf"// MatMul model\.model\.layers\.\d+\.{re.escape(node)}", text):
        return f"{node}stands outside of the loop"
    functions = [part for part in re.split(r"(?=^static int layer_)", text, flags=re.M) if f"layers.*.{node}" in part]
    if len(functions) != 1:
        return f"{node}stands in {len(functions)} functions"
    name = re.match(r"static int (layer_\w+)", functions[0])[1]
    called = re.search(rf"for \(int i = 0; i < (\d+); i\+\+\)\n +RT_TRY\({name}\(", text)
    return None if called and int(called[1]) == layers else f"{name} is called {called and called[1]} times, not {layers}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--model", required=True)
    args = parser.parse_args()
    failed = 0
    for plan, stages in PLANS.items():
        with tempfile.TemporaryDirectory(prefix="rankc-loops-") as directory:
            text = source_of(args.rankc, args.model, plan, directory)
        for phase in ("forward", "backward"):
            for product in PRODUCTS:
                wrong = check(text, phase, product, LAYERS // stages)
                if wrong:
                    failed = 1
                    print(f"{plan}, {phase}: {wrong}")
    if not failed:
        print(f"{len(PLANS)} plans")
    return failed


if __name__ == "__main__":
    sys.exit(main())
