#!/usr/bin/python3
"""Convolutions and attention by cuDNN, where it need not be: the runtime's calls go to host/cudnn.cpp and host/cudnn_graph.cpp,
which refuse what cuDNN would refuse.

    cudnn.py --rankc RANKC

A CNN's losses are PyTorch's, and models' outputs (grouped and strided windows, uneven paddings) ONNX Runtime's, as with the kernels
of rankc; GPT-2's in bf16 are as its amp's bounds say; and the library was called: forward, and for gradients. Exit status 77 where there is no cudnn.h."""
import collections
import os
import sys
import tempfile

from stand_in import TESTS, build_cudnn, call, has_cudnn, parser_of, skip

# What runs with the library, and which of its calls are made.
RUNS = {
    "train cnn": (["training/train.py", "--target", "cuda", "--plans", "one", "cnn"], {"forward", "data", "filter"}),
    "train gpt2": (["training/amp.py", "--target", "cuda", "--plans", "one", "--cases", "gpt2", "--options=--attention cudnn", "bf16"],
                   {"graph"}),
    "mobilenet_v3": (["programs/sweep.py", "--target", "cuda", "--comm", "loopback", "--plans", "one", "models/mobilenet_v3"],
                     {"forward"}),
    "unet": (["programs/sweep.py", "--target", "cuda", "--comm", "loopback", "--plans", "one", "models/unet"], {"forward", "data"}),
}


def run(rankc, name, work, library):
    (script, *words), wanted = RUNS[name]
    log = os.path.join(work, name.replace(" ", "-"))
    env = {**library, "FAKE_CUDNN_LOG": log}
    words = [os.path.join(TESTS, word) if word.startswith("models/") else word for word in words]
    done = call(sys.executable, "-B", os.path.join(TESTS, script), "--rankc", rankc, *words, status=None, env=env)
    called = collections.Counter(open(log).read().split()) if os.path.exists(log) else {}
    print(f"{name}: exit {done.returncode}, {dict(called)}", flush=True)
    if done.returncode or set(called) != wanted:
        print(f"  wanted calls {sorted(wanted)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return False
    return True


def main():
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", default=list(RUNS))
    args = parser.parse_args()
    if not has_cudnn():
        skip("there is no cudnn.h")
    with tempfile.TemporaryDirectory(prefix="rankc-cudnn-") as work:
        library = build_cudnn()
        return not all([run(args.rankc, name, work, library) for name in args.names])


if __name__ == "__main__":
    sys.exit(main())
