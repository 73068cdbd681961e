#!/usr/bin/python3
"""The layers of a model in training: every one is called in the loops of both phases, though the first and the last read
values that lie elsewhere (other arenas, slots of micro-batches).

    loops.py --rankc RANKC --model LLAMA.onnx

A comment names the module of each node; a function of layers says "layers.*" in place of a number."""
import os
import re
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_plans import plan_of  # noqa: E402
from rankc_test import call, parser_of  # noqa: E402

LAYERS = 4
# The products of a layer, and plans under which the stages' bounds are those of layers.
PRODUCTS = ["self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"]
PLANS = {"one": 1, "tp2": 1, "pp2": 2}


def source_of(rankc, model, plan, directory):
    call(rankc, "compile", model, "--train", "--loss", "cross_entropy", "--optimizer", "adamw", *plan_of(plan).options, "-o", directory, "--no-build",
         "-q")
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
    parser = parser_of(__doc__)
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
