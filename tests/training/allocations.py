#!/usr/bin/python3
"""What a step allocates, and the arenas that are mapped.

    allocations.py --rankc RANKC --count COUNT_ALLOCATIONS.so

A run of more steps allocates no more than one of fewer, whatever the plan, in training and in inference: not by our code, nor by
what it calls of the C library. oneDNN does, in dnnl_sgemm: room to pack an operand, which its C interface lets nobody provide;
and so does libgomp, for teams of threads. The anonymous memory that a rank maps is the arenas that `rankc show` prints, to the
byte: each is mapped with one byte more, so that an empty one has an address. Those that other ranks reach are in the segment of
the job if they are not all empty: that for communication, and that of gradients unless ZeRO cuts it."""
import functools
import glob
import json
import os
import sys

from harness import HERE, call, compile_case, data_of, expect, parser_of, recorded, report

OF_LIBRARIES = ("libdnnl", "libgomp", "libstdc++")  # that of oneDNN
ARENAS = ("weights", "gradients", "optimizer", "activations", "communication", "scratch", "state", "host")
TRAINED = [("one", 1, 0), ("dp2", 1, 0), ("tp2", 1, 0), ("tp2dp2", 2, 0),
           ("dp3", 2, 1), ("data2dp2", 2, 2), ("dp3", 1, 3), ("tp2dp2", 1, 3)]  # plan, micro-batches, ZeRO
CASE, INFERRED = "gpt2", os.path.join(HERE, "..", "models", "gpt2_static")


def processes(prefix):
    """Of each rank, the calls per module and the lengths it mapped."""
    found = []
    for path in glob.glob(prefix + ".*"):
        with open(path) as file:
            lines = [line.rstrip("\n").split(" ", 2) for line in file]
        os.unlink(path)
        if os.path.basename(lines[0][1]) in ("run", "train"):
            found.append(({line[2]: int(line[1]) for line in lines if line[0] == "calls"},
                          [int(line[1]) for line in lines if line[0] == "arena"]))
    return found


def total(ranks):
    """Calls of all ranks, but for those of libraries."""
    calls = {}
    for modules, _ in ranks:
        for module, n in modules.items():
            if not os.path.basename(module).startswith(OF_LIBRARIES):
                calls[module] = calls.get(module, 0) + n
    return calls


def measured(command, count, work):
    prefix = os.path.join(work, "count")
    call(*command, env={"LD_PRELOAD": count, "COUNT_ALLOCATIONS": prefix})
    return processes(prefix)


def own_arenas(memory, zero):
    """Those that are not in the job's segment."""
    reached = [arena for arena in ("communication", "gradients") if arena == "communication" or zero < 2]
    return [arena for arena in ARENAS if arena not in reached or not any(memory[other] for other in reached)]


def check_arenas(rankc, out, ranks, zero):
    shown = json.loads(call(rankc, "show", out, "--json").stdout)["ranks"]
    expect(len(ranks) == len(shown), f"{len(ranks)} ranks")
    planned = sorted(sorted(rank["memory"][arena] + 1 for arena in own_arenas(rank["memory"], zero)) for rank in shown)
    mapped = sorted(sorted(arenas) for _, arenas in ranks)
    expect(mapped == planned, f"mapped {mapped}, planned {planned}")


def check(rankc, count, out, few, many, zero, work):
    ranks, more = (measured(command, count, work) for command in (few, many))
    expect(total(ranks) and total(ranks) == total(more), f"{total(ranks)} and, after more steps, {total(more)}")
    check_arenas(rankc, out, ranks, zero)
    return "ok"


def trains(rankc, count, plan, accumulate, zero, work):
    out = os.path.join(work, "out")
    compile_case(rankc, CASE, plan, accumulate, out, [*recorded(CASE)["options"], "--use-zero", str(zero)])
    base = [rankc, "train", out, *data_of(CASE, recorded(CASE)["inputs"]), "--threads", "2"]
    return check(rankc, count, out, [*base, "--steps", "3"], [*base, "--steps", "9"], zero, work)


def infers(rankc, count, policy, work):
    out = os.path.join(work, "out")
    call(rankc, "compile", os.path.join(INFERRED, "model.onnx"), "-o", out, "-q", "--pas", policy)
    inputs = [word for path in sorted(glob.glob(os.path.join(INFERRED, "inputs", "*.npy")))
              for word in ("--input", f"{os.path.basename(path)[:-4]}={path}")]
    base = [rankc, "run", out, *inputs, "--threads", "2"]
    return check(rankc, count, out, [*base, "--repeat", "3"], [*base, "--repeat", "9"], 0, work)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--count", required=True)
    options = parser.parse_args()
    checks = [(f"training {plan}, {accumulate} micro-batches, ZeRO {zero}",
               functools.partial(trains, options.rankc, options.count, plan, accumulate, zero)) for plan, accumulate, zero in TRAINED]
    checks += [(f"inference {plan}", functools.partial(infers, options.rankc, options.count, plan)) for plan in ("dp", "tp:tensor=2")]
    return report(checks)


if __name__ == "__main__":
    sys.exit(main())
