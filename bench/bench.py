#!/usr/bin/env python3
"""Times rankc against its peers and writes docs/benchmarks.md: one command, see --help.

    meson setup build --buildtype release && ninja -C build
    bench/bench.py --build build

Every case (cases.py) is run as A, B, A, B, ...; what is quoted is the median of the ratios of neighbouring runs, since
absolute times change with the machine's clock and neighbours. A round in which other processes kept more than
--max-foreign of a processor busy does not count and is made up for. Results are kept in WORK/results.json, so that
cases can be run one after the other (--only) and the page be written again (--report).

Needs numpy here, onnx to write the models, and for the peers onnxruntime, torch (any interpreter that has them:
--ort-python, --torch-python; Debian's with libopenblas0-openmp, without which its products are a plain loop), Open MPI and MPICH. A peer that is missing is skipped, and the page says so."""
import argparse
import datetime
import fnmatch
import functools
import glob
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile

import numpy as np

from cases import CASES
from measure import Failed, pair, run
from report import write_report

HERE = os.path.dirname(os.path.abspath(__file__))


def say(text):
    print(text, flush=True)


class Bench:
    """Where things are: made at first use, in the work directory."""

    def __init__(self, options):
        self.here, self.work, self.build = HERE, options.work, os.path.abspath(options.build)
        self.rankc = f"{self.build}/frontend/rankc"
        self.given = {"onnxruntime": options.ort_python, "torch": options.torch_python}
        if not os.path.exists(self.rankc):
            sys.exit(f"bench: no {self.rankc}; build with meson first, or say --build DIR")
        os.makedirs(self.work, exist_ok=True)

    @functools.lru_cache(None)
    def python(self, module):
        """An interpreter that has the module."""
        given = self.given.get(module)
        for python in [given] if given else [sys.executable, "python3", "/usr/bin/python3"]:
            try:
                run([python, "-c", f"import {module}"], 60)
                return python
            except Failed:
                continue
        raise Failed(f"no Python with {module}")

    @functools.lru_cache(None)
    def model(self, name):
        path = f"{self.work}/{name}.onnx"
        if not os.path.exists(path):
            run([self.python("onnx"), f"{HERE}/models.py", name, self.work], 300)
        return path

    def input(self, name):
        self.model(name)
        return f"{self.work}/{name}.x.npy"

    @functools.lru_cache(None)
    def compiled(self, name, pas, options=()):
        """The directory of a compiled model, built for the rankc of today."""
        instance = pas.replace(":", "_").replace("=", "") if pas else "_"
        command = [self.rankc, "compile", self.model(name), "-o", f"{self.work}/compiled", "--instance-name", instance,
                   "--reuse", "override", "-q", *options]
        run(command + (["--pas", pas] if pas else []), 300)
        return f"{self.work}/compiled/{name}/{instance}"

    @functools.lru_cache(None)
    def runtime_flags(self):
        """How to compile and link with the runtime of the build directory."""
        environment = dict(os.environ, PKG_CONFIG_PATH=f"{self.build}/meson-uninstalled")
        command = ["pkg-config", "--static", "--cflags", "--libs", "rankc-rt"]
        return tuple(shlex.split(subprocess.run(command, env=environment, check=True, text=True,
                                                stdout=subprocess.PIPE).stdout))

    @functools.lru_cache(None)
    def c_program(self, name, flags=(), compiler="cc"):
        program = f"{self.work}/{name}.{os.path.basename(compiler)}"
        run([compiler, "-std=gnu11", "-O3", "-march=native", f"{HERE}/{name}.c", "-o", program, *flags], 60)
        return program


def largest_difference(a, b):
    """Between the outputs of both sides, relative to the largest value; None where there is nothing to compare."""
    outputs = []
    for side in (a, b):
        if not side.check:
            return None
        run(side.check, 300)
        files = [side.output] if side.output.endswith(".npy") else glob.glob(f"{side.output}/*.npy")
        outputs.append(np.load(files[0]).astype(np.float64))
    return float(np.abs(outputs[0] - outputs[1]).max() / np.abs(outputs[1]).max())


def source_bytes(side):
    """Size of the C sources that a compilation left."""
    out = side.command[side.command.index("-o") + 1]
    return sum(os.path.getsize(f) for f in glob.glob(f"{out}/*/*/*.[ch]"))


def prepared(case, bench):
    case.a = case.a(bench)
    case.b = case.b(bench)
    return case


def measure_case(case, bench, options):
    try:
        case = prepared(case, bench)
        result = {"a_label": case.a.label, "b_label": case.b.label, "figure": case.figure,
                  "difference": largest_difference(case.a, case.b)}
        result["rounds"] = pair(case, options, bench.c_program("fma", ("-fopenmp",)), say)
        if case.group == "compile":
            result["source_bytes"] = source_bytes(case.a)
        return result
    except Failed as reason:
        say(f"  skipped: {reason}")
        return {"skipped": str(reason)}


def first_line(command):
    try:
        return run(command, 60).strip().splitlines()[0]
    except (Failed, IndexError):
        return None


def onednn_version():
    try:
        macros = run(["cc", "-E", "-dM", "-include", "dnnl_version.h", "-xc", os.devnull], 60)
    except Failed:
        return None
    return ".".join(re.search(rf"DNNL_VERSION_{part} (\d+)", macros)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def machine(bench):
    """What the figures depend on besides the code."""
    cpu = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    flags = next(line for line in open("/proc/cpuinfo") if line.startswith("flags")).split()
    memory = int(open("/proc/meminfo").readline().split()[1]) / (1 << 20)
    versions = {"rankc": first_line([bench.rankc, "--version"]), "cc": first_line(["cc", "--version"]),
                "Linux": platform.release(), "oneDNN": onednn_version()}
    for module in ("onnxruntime", "torch"):
        try:
            command = [bench.python(module), "-c", f"import {module}; print({module}.__version__)"]
            versions[module] = first_line(command)
        except Failed:
            versions[module] = None
    versions["Open MPI"] = first_line(["mpirun.openmpi", "--version"])
    versions["MPICH"] = first_line(["mpichversion"])
    revision = first_line(["git", "-C", HERE, "describe", "--always", "--dirty", "--exclude=*"])
    return {"cpu": cpu[0], "cores": len(cpu), "memory_gib": round(memory),
            "vectors": [f for f in ("avx2", "avx512f", "amx_tile") if f in flags], "versions": versions,
            "date": datetime.date.today().isoformat(), "revision": revision}


def options_parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=f"{HERE}/../build", help="meson's build directory, buildtype release")
    parser.add_argument("--work", default=f"{tempfile.gettempdir()}/rankc-bench",
                        help="models, programs and results [%(default)s]")
    parser.add_argument("--only", default="*", help="cases whose name or group matches GLOB[,GLOB...]")
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of A, B that count [%(default)s]")
    parser.add_argument("--attempts", type=int, help="rounds at most [3 x rounds]")
    parser.add_argument("--max-foreign", type=float, default=0.15,
                        help="processors' worth of others' load in a round that counts [%(default)s]")
    parser.add_argument("--patience", type=float, default=60,
                        help="seconds to wait for a quiet machine before a round [%(default)s]")
    parser.add_argument("--ort-python", help="interpreter with onnxruntime")
    parser.add_argument("--torch-python", help="interpreter with torch")
    parser.add_argument("--docs", default=f"{HERE}/../docs/benchmarks.md", help="the page to write")
    parser.add_argument("--report", action="store_true", help="only write the page from the results there are")
    options = parser.parse_args()
    options.attempts = options.attempts or 3 * options.rounds
    return options


def chosen(only):
    wanted = only.split(",")
    return [c for c in CASES if any(fnmatch.fnmatch(c.name, g) or fnmatch.fnmatch(c.group, g) for g in wanted)]


def main():
    options = options_parse()
    if options.list:
        for case in chosen(options.only):
            print(f"{case.name:40} {case.group:10} {case.title}")
        return
    path = f"{options.work}/results.json"
    results = json.load(open(path)) if os.path.exists(path) else {"cases": {}}
    if not options.report:
        bench = Bench(options)
        results["machine"] = machine(bench)
        for case in chosen(options.only):
            say(f"{case.name}: {case.title}")
            results["cases"][case.name] = measure_case(case, bench, options)
            with open(path, "w") as file:
                json.dump(results, file, indent=1)
    write_report(options.docs, results, CASES, options.max_foreign)


if __name__ == "__main__":
    main()
