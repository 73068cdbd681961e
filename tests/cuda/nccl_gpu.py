#!/usr/bin/python3
"""Ranks that are processes and share one GPU, by NCCL itself: what threads compute, which read each other's memory.

    nccl_gpu.py --rankc RANKC [CASE...]

NCCL refuses two ranks on one GPU of a host, so every rank says that it is on another host (NCCL_HOSTID), and they talk over the
loopback interface; or NCCL is told to permit it, from 2.30 on. It sums in an order of its own: outputs are within rounding of sums in
f32, and so are losses and gradient norms of a few steps by SGD. On the stand-in (stand_in.py) NCCL's is host/nccl.cpp, as in
nccl.py. Exit status 77 where there is no nccl.h."""
import json
import os
import shutil
import socket
import subprocess
import sys

from program import LOOPBACK, infer, train # noqa: E402
from stand_in import HERE, STAND_IN, Failed, build_library, call, needed, parser_of, plan_of, report, skip # noqa: E402

with needed():
    import numpy as np

BOUND, STEPS = 1e-5, 5
# A model or a case, ranks, options.
CASES = {
    "gpt2 tp2": (infer, "gpt2", 2, plan_of("tp2").options),
    "gpt2 tp3": (infer, "gpt2", 3, plan_of("tp3").options),
    "gpt2 pp2": (infer, "gpt2", 2, plan_of("pp2").options),
    "gpt2 tp2pp2": (infer, "gpt2", 4, plan_of("tp2pp2").options),
    "train gpt2 dp2": (train, "gpt2", 2, [*plan_of("dp2").options, "--reducer-bucket-cap-mb", "0.01"]),
    "train gpt2 tp2data2": (train, "gpt2", 4, plan_of("tp2data2").options),
    "train gpt2 pp2": (train, "gpt2", 2, [*plan_of("pp2").options, "--schedule", "1f1b", "--accumulate", "4"]),
    "train gpt2 tp2pp3": (train, "gpt2", 6, [*plan_of("tp2pp3").options, "--schedule", "gpipe", "--accumulate", "4"]),
    "train gpt2 ZeRO 3": (train, "gpt2", 2, [*plan_of("dp2").options, "--use-zero", "3", "--zero-prefetch", "2"]),
    "train mlp tp2dp2": (train, "mlp", 4, [*plan_of("tp2dp2").options]),
}
WAYS = [lambda rank: {"NCCL_HOSTID": f"rankc-{rank}"}, lambda rank: {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}]


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start(command, rank, world, port, way):
    place = {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
             "NCCL_SOCKET_IFNAME": "lo", **way(rank)}
    return subprocess.Popen([*command, "--join-timeout", "60"], env={**os.environ, **place}, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)


def run_ranks(command, world, way):
    port = free_port()
    ranks = [start(command, rank, world, port, way) for rank in range(world)]
    try:
        said = [rank.communicate(timeout=180)[0] for rank in ranks]
    except subprocess.TimeoutExpired:
        raise Failed("the ranks took more than 180 s") from None
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    if any(rank.returncode for rank in ranks):
        raise Failed("\n".join(said).strip())


def run_processes(command, world):
    """By the first way that NCCL takes."""
    refused = []
    for way in WAYS:
        try:
            return run_ranks(command, world, way)
        except Failed as wrong:
            refused.append(f"{way(0)}: {wrong}")
    raise Failed("\n".join(refused))


def outputs(folder):
    """Of a run that infers, or of one that trains, all numbers."""
    if os.path.exists(f"{folder}/log"):
        with open(f"{folder}/log") as lines:
            steps = [json.loads(line) for line in lines]
        return {key: np.array([step[key] for step in steps]) for key in ("loss", "grad_norm")}
    return {name: np.load(f"{folder}/{name}") for name in os.listdir(folder) if name.endswith(".npy")}


def distance(got, expected):
    if set(got) != set(expected) or not expected:
        raise Failed(f"outputs {sorted(got)}, expected {sorted(expected)}")
    return max(float(np.abs(got[name] - value).max() / np.abs(value).max()) for name, value in expected.items())


def check(rankc, work, make, name, world, options):
    made = make(rankc, name, f"{work}/program", *options)
    results = {}
    for who in ("threads", "processes"):
        folder = f"{work}/{who}"
        os.makedirs(folder)
        command = [*made, *(["--log", f"{folder}/log"] if make is train else ["--repeat", "3", "--output-dir", folder])]
        if who == "threads":
            call(*command, *LOOPBACK)
        else:
            run_processes(command, world)
        results[who] = outputs(folder)
    apart = distance(results["processes"], results["threads"])
    if not apart <= BOUND:
        raise Failed(f"processes differ from threads by {apart:g}")
    return f"{apart:.1e} from threads"


def checked(rankc, work, case):
    if STAND_IN:
        build_library(f"{work}/libnccl.so.2", "nccl.cpp", include=[os.path.join(os.path.dirname(rankc), "include", "rankc")])
        os.environ["LD_LIBRARY_PATH"] = work
    return check(rankc, work, *CASES[case])


def main():
    parser = parser_of(__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    args = parser.parse_args()
    probe = call(shutil.which("nvcc") or "c++", "-E", "-x", "c++", "-I", f"{HERE}/host", "-", status=None, input="#include <nccl.h>\n")
    if probe.returncode:
        skip("there is no nccl.h")
    return report((case, lambda work, case=case: checked(args.rankc, work, case)) for case in args.cases)


if __name__ == "__main__":
    sys.exit(main())
