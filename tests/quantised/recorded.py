#!/usr/bin/python3
"""Recorded quantised models against the results of ONNX Runtime.

    recorded.py --rankc RANKC --models DIR

DIR/NAME has model.onnx, its inputs, expected.npy (ONNX Runtime's first output, optimisation off) and expected.json: the names
of the inputs, the unit of the last quantisation, the bytes of the initializers and options of compile; quantised.py --record
writes them. With options, the model is the one before quantisation, and the rest of the one after it. On one
rank, on two and on three (tp) results must be within one unit, and the weights of one rank must take at most a tenth more than the
initializers, plus 4 KiB for alignment. Exit status 77 without NumPy."""
import json
import os
import pathlib
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, json_of, needed, outputs_of, parser_of, read_json  # noqa: E402

with needed():
    import numpy as np


def failures(rankc, directory, plan):
    expected, cflags = read_json(directory, "expected.json"), {"CFLAGS": "-O1"}
    inputs = [f"--input={name}={os.path.join(directory, name)}.npy" for name in expected["inputs"]]
    with tempfile.TemporaryDirectory(prefix="rankc-quantised-") as work:
        call(rankc, "compile", os.path.join(directory, "model.onnx"), "-o", work, "-q", *plan, *expected.get("options", []), env=cflags)
        call(rankc, "run", work, "--threads", "1", "--output-dir", os.path.join(work, "out"), *inputs)
        value = next(iter(outputs_of(os.path.join(work, "out")).values()))
        memory = [rank["memory"]["weights"] for rank in json_of(rankc, "show", "--json", work)["ranks"]]
    off = np.abs(value.astype("f8") - np.load(os.path.join(directory, "expected.npy"))).max() / expected["unit"]
    if not off <= 1.001:  # in f32, a step is not exactly one
        yield f"{off:.3f} units from ONNX Runtime"
    if not plan and memory[0] > expected["stored"] * 1.1 + 4096:
        yield f"weights of {memory[0]} bytes, initializers of {expected['stored']}"


TYPES = {"I8": np.int8, "U8": np.uint8, "F32": np.float32}


def copied(work):
    """The weights of a program that --weights copy stores, each with its name, the dimension along which it is divided, the blocks that
    are divided alike, and its parts."""
    place = next(pathlib.Path(work).glob("*/*/manifest.json")).parent
    files = {}
    for path in (place / "weights").iterdir():
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        files[int(path.stem.split("-")[1])] = json.loads(data[8:8 + size]), data[8 + size:]
    for weight in read_json(place, "manifest.json")["weights"]:
        parts = []
        for one in weight["slices"]:
            header, data = files[one["shard"]]
            tensor = header[weight["name"]]
            begin, end = tensor["data_offsets"]
            parts.append(np.frombuffer(data[begin:end], TYPES[tensor["dtype"]]).reshape(tensor["shape"]))
        cut = weight["cuts"][0] if weight["cuts"] else {"dim": 0, "blocks": 1}
        yield weight["name"], cut["dim"], cut["blocks"], parts


def joined(parts, dim, blocks):
    """The whole, of which each part has a piece of every block, such as those of q, k and v."""
    pieces = [np.split(part, blocks, dim) for part in parts] if blocks > 1 else [[part] for part in parts]
    return np.concatenate([piece[block] for block in range(blocks) for piece in pieces], dim)


def parts_failures(rankc, directory):
    """Ranks have parts of the whole's codes and scales, bit for bit, along both dimensions and of unequal sizes."""
    options = read_json(directory, "expected.json").get("options", [])
    seen = set()
    with tempfile.TemporaryDirectory(prefix="rankc-quantised-") as work:
        for ranks in 1, 2, 3:
            plan = ["--pas", "tp", "--plan-ngpus", str(ranks)] if ranks > 1 else []
            call(rankc, "compile", os.path.join(directory, "model.onnx"), "-o", f"{work}/{ranks}", "-q", "--no-build", "--weights", "copy",
                 *plan, *options)
        whole = {name: parts[0] for name, _, _, parts in copied(f"{work}/1")}
        for name, dim, blocks, parts in [one for ranks in (2, 3) for one in copied(f"{work}/{ranks}") if len(one[3]) > 1]:
            seen.add((dim, len({part.shape for part in parts}) > 1, whole[name].dtype.name))
            if not np.array_equal(joined(parts, dim, blocks), whole[name]):
                yield f"{name}: {len(parts)} parts along dimension {dim} are not the whole's"
    if not {(0, False, "float32"), (1, True, "float32")} <= seen or not {"int8", "uint8"} & {kind for _, _, kind in seen}:
        yield f"only such parts are compared: {seen}"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--models", required=True)
    args = parser.parse_args()
    names, failed = sorted(os.listdir(args.models)), 0
    for name in names:
        for ranks in 1, 2, 3:
            plan = ["--pas", "tp", "--plan-ngpus", str(ranks)] if ranks > 1 else []
            for failure in failures(args.rankc, os.path.join(args.models, name), plan):
                print(f"{name} {' '.join(plan)}: {failure}")
                failed += 1
        for failure in parts_failures(args.rankc, os.path.join(args.models, name)) if name in ("tiny_gpt2-q8_0", "tiny_gpt2-nbits4") else ():
            print(f"{name}: {failure}")
            failed += 1
    print(f"{len(names)} models, {failed} failures")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
