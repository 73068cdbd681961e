#!/usr/bin/python3
"""rankc profile --target cuda writes a machine file that --machine takes.

    profile_gpu.py --rankc RANKC [--without-gpu]

Prints the file's numbers as a line of JSON, {"figure": ...}. Exit status 77 where there is no GPU; --without-gpu then checks that the
program is built before the missing GPU is an error."""
import glob
import json
import os
import subprocess
import sys
import tempfile

from stand_in import HERE, STAND_IN, parser_of, skip

MODEL = ["--model-config", "llama3-8b", "--runtime-ngpus", "1", "--pas", "dp", "--amp", "bf16"]
EXTENTS = ("rows", "columns", "sums")


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def is_plausible(machine):
    rates = machine["rates"]
    assert 1e12 < rates["half"] < 1e16 and 1e11 < rates["f32"] < 1e15 and 1e9 < rates["f64"] < 1e15, machine
    assert all(0 < rate <= machine["peaks"][kind] for kind, rate in rates.items() if rate), machine
    assert 1e11 < machine["bandwidth"] * machine["traffic"] < 1e14 and 1e9 < machine["memory"] < 1e12, machine
    assert 1e-7 < machine["launch"] < 1e-4 and 0.01 < machine["attention"] <= 1 and machine["multiprocessors"] >= 1, machine


def figure_of(machine, plan):
    figure = {name: machine[name] for name in ("rates", "bandwidth", "traffic", "launch", "attention", "half_head", "elementwise", "multiprocessors", "memory")
              if name in machine}
    return {"name": machine["name"], **figure, "half_extents": dict(zip(EXTENTS, machine["half_extents"])),
            "step_of_llama3_8b_s": plan["estimate"]["step_s"]}


def check(rankc, work):
    """The file is plausible, and a plan's estimate is made with it."""
    done = run(rankc, "profile", "--target", "cuda", "-v")
    print(done.stderr, end="")
    assert done.returncode == 0, done.stdout
    machine, path = json.loads(done.stdout), os.path.join(work, "gpu.json")
    is_plausible(machine)
    with open(path, "w", encoding="ascii") as file:
        file.write(done.stdout)
    planned = run(rankc, "plan", *MODEL, "--machine", path, "--json", "-q")
    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    assert plan["estimate"]["machine"] == machine["name"], plan["estimate"]
    print(json.dumps({"figure": figure_of(machine, plan)}))


def check_without_gpu(rankc, work):
    """Programs for an architecture that is named are built without a GPU; for native there is nothing to build."""
    nvcc, called = os.path.join(work, "nvcc"), os.path.join(work, "called")
    with open(nvcc, "w", encoding="ascii") as script:
        script.write(f'#!/bin/sh\ntouch {called}\nexec {HERE}/host/nvcc "$@"\n')
    os.chmod(nvcc, 0o755)
    for arch, builds in (({}, False), ({"GPU_ARCH": "sm_90a"}, True)):
        env = {name: value for name, value in os.environ.items() if name != "GPU_ARCH"}
        done = run(rankc, "profile", "--target", "cuda", env={**env, **arch, "NVCC": nvcc})
        assert done.returncode == 6 and "E0620" in done.stderr and "GPU" in done.stderr and not done.stdout, done.stderr
        assert os.path.exists(called) == builds, arch
    done = run(rankc, "profile", "--target", "cuda", env={**os.environ, "NVCC": f"{work}/none"})
    assert done.returncode == 6 and "E0620" in done.stderr and "none" in done.stderr, done.stderr
    for option in ("--threads", "--runtime-ngpus"):
        done = run(rankc, "profile", "--target", "cuda", option, "2")
        assert done.returncode == 2 and "E0200" in done.stderr and option in done.stderr, done.stderr


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--without-gpu", action="store_true")
    args = parser.parse_args()
    there_is_one = bool(glob.glob("/dev/nvidia[0-9]*"))
    if there_is_one == args.without_gpu or (STAND_IN and not args.without_gpu):
        skip("there is a GPU" if there_is_one else "there is no GPU")
    with tempfile.TemporaryDirectory(prefix="rankc-profile-") as work:
        (check_without_gpu if args.without_gpu else check)(args.rankc, work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
