#!/usr/bin/env python3
"""Times rankc against its peers and writes docs/measured/benchmarks.md and docs/measured/images-speed.md: one command, see --help.

    meson setup build --buildtype release && ninja -C build
    bench/bench.py --build build

Every case (cases.py) has sides that take turns in rounds; what is quoted is the median of the ratios within a round, since
absolute times change with the machine's clock and neighbours. A round in which other processes kept more than --max-foreign of a
processor busy does not count and is made up for.

Every round is a line of JSON in --results, with the case, the processor and the revision of rankc. A long run may be done in pieces
(--only; --prepare first, which makes and compiles models and measures nothing), on several machines too: pass all the files to
--report. Of each case and processor the rounds of the last revision count. Those that the pages in docs/ show are in
bench/results/.

Needs numpy here, onnx to write the models; onnxruntime, openvino, torch, torchvision and transformers in some interpreter (--python);
for all-reduce Open MPI and MPICH. A peer that is missing is left out, and the pages say so."""
import argparse
import contextlib
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
from files import FILES, constants_of, options_of
from measure import Failed, rounds, run
from report import write_report

HERE = os.path.dirname(os.path.abspath(__file__))


def say(text):
    print(text, flush=True)


class Bench:
    """Where things are: made at first use, in the work directory."""

    def __init__(self, options):
        self.here, self.work, self.build = HERE, os.path.abspath(options.work), os.path.abspath(options.build)
        self.rankc = f"{self.build}/frontend/rankc"
        self.files = options.files
        self.pythons = [*options.python, sys.executable, "/usr/bin/python3"]
        if not os.path.exists(self.rankc):
            sys.exit(f"bench: no {self.rankc}; build with meson first, or say --build DIR")
        os.makedirs(self.work, exist_ok=True)

    @functools.lru_cache(None)
    def python(self, module):
        """An interpreter that has the module."""
        for python in self.pythons:
            try:
                run([python, "-c", f"import importlib.util as u, sys; sys.exit(not u.find_spec('{module}'))"], 60)
                return python
            except Failed:
                continue
        raise Failed(f"no Python with {module}")

    @functools.lru_cache(None)
    def model(self, name):
        """The file of a model of networks.py or models.py."""
        path = f"{self.work}/{name}.onnx"
        if not os.path.exists(path):
            base, _, kind = name.partition(".")
            if kind:
                self.model(base)
            script, module = ("files.py", "onnx") if name in FILES else ("models.py", "onnx")
            if kind or f'"{base}"' in open(f"{HERE}/networks.py", encoding="ascii").read():
                script, module = "networks.py", "transformers"
            if name in FILES and not self.files:
                raise Failed("no --files")
            try:
                run([self.python(module), f"{HERE}/{script}", name, self.work, *([self.files] if name in FILES else [])], 600)
            except Failed:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path)
                raise
        return path

    def inputs(self, name):
        """NAME=FILE.npy of every input."""
        self.model(name)
        files = sorted(glob.glob(f"{glob.escape(self.work)}/{name}.*.npy"))
        words = ((file[len(f"{self.work}/{name}."):-len(".npy")], file) for file in files)
        return [f"{key}={file}" for key, file in words if "." not in key and key != "result"]

    def given(self, option, name):
        """... as words for rankc, for which constants are no inputs."""
        bound = constants_of(name) if name in FILES else {}
        return [word for item in self.inputs(name) if item.split("=")[0] not in bound for word in (option, item)]

    @functools.lru_cache(None)
    def compiled(self, name, options=()):
        """The directory of a compiled model."""
        instance = re.sub(r"\W+", "_", "".join(options)) or "_"
        out = f"{self.work}/compiled/{name}.{instance}"
        built = max(map(os.path.getmtime, [self.rankc, *glob.glob(f"{self.build}/runtime/*.a")]))
        if not os.path.exists(f"{out}/options") or os.path.getmtime(f"{out}/options") < built:
            words = [*options, *(options_of(name) if name in FILES else [])]
            run([self.rankc, "compile", self.model(name), "-o", out, "--reuse", "override", "-q", *words], 600)
            with open(f"{out}/options", "w", encoding="utf-8") as file:
                file.write(" ".join(words))
        return out

    @functools.lru_cache(None)
    def revision(self):
        """The last commit that changed what programs are made of."""
        where = [f"{HERE}/../{folder}" for folder in ("ir", "passes", "codegen", "frontend", "runtime", "templates")]
        changed = first_line(["git", "-C", HERE, "status", "--porcelain", "--", *where])
        return (first_line(["git", "-C", HERE, "log", "-1", "--format=%h", "--", *where]) or "unknown") + ("-dirty" if changed else "")

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
        source = f"{HERE}/{name}.c"
        if not os.path.exists(program) or os.path.getmtime(program) < os.path.getmtime(source) or flags != ("-fopenmp",):
            run([compiler, "-std=gnu11", "-O3", "-march=native", source, "-o", program, *flags], 60)
        return program


def sides_of(case, bench):
    """What takes turns, and why the others do not."""
    sides, missing = {}, {}
    for name, side in case.sides.items():
        try:
            sides[name] = side(bench)
        except Failed as reason:
            missing[name] = str(reason)
    return sides, missing


def output_of(side):
    """The output, if there is one alone."""
    if not side.output:
        return None
    files = [side.output] if os.path.isfile(side.output) else glob.glob(f"{side.output}/*.npy")
    if len(files) != 1:
        return None
    value = np.load(files[0])
    if value.dtype.kind == "V":  # bf16
        value = (value.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return value.astype(np.float64)


def differences(sides):
    """Between rankc's output and those of others, relative to the largest value."""
    ours, *others = sides.items()
    own = output_of(ours[1])
    theirs = {name: output_of(side) for name, side in others} if own is not None else {}
    return {name: float(f"{np.abs(own - value).max() / np.abs(value).max():.2g}") for name, value in theirs.items()
            if value is not None and value.shape == own.shape and value.any()}


def measure_case(case, bench, options, out):
    """Writes a line per round."""
    known = {"case": case.name, "cpu": processor(), "revision": bench.revision()}
    sides, missing = sides_of(case, bench)
    for name, reason in missing.items():
        say(f"  without {name}: {reason}")
    if options.prepare or len(sides) < 2:
        return
    try:
        for row in rounds(sides, case.threads, options, bench.c_program("fma", ("-fopenmp",))):
            row["sides"] = {name: {key: float(f"{s[key]:.4g}") for key in (case.figure, "rss") if key in s}
                            for name, s in row["sides"].items()}
            out.write(json.dumps({**known, **row, "differences": differences(sides), "missing": missing}) + "\n")
            out.flush()
            figures = ", ".join(f"{name} {s[case.figure]:.4g}" for name, s in row["sides"].items())
            say(f"  {figures} ms, peak {row['peak']:.0f} GFLOP/s, others {row['foreign']:.2f}")
    except Failed as reason:
        say(f"  given up: {reason}")
        out.write(json.dumps({**known, "missing": {**missing, "all": str(reason)}}) + "\n")


def first_line(command):
    try:
        return " ".join(run(command, 60).strip().splitlines()[0].split())
    except (Failed, IndexError):
        return None


def onednn_version():
    try:
        macros = run(["cc", "-E", "-dM", "-include", "dnnl_version.h", "-xc", os.devnull], 60)
    except Failed:
        return None
    return ".".join(re.search(rf"DNNL_VERSION_{part} (\d+)", macros)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def processor():
    return next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))


def machine(bench):
    """What the figures depend on besides the code."""
    flags = next(line for line in open("/proc/cpuinfo") if line.startswith("flags")).split()
    memory = int(open("/proc/meminfo").readline().split()[1]) / (1 << 20)
    versions = {"cc": first_line(["cc", "--version"]), "Linux": platform.release(), "oneDNN": onednn_version()}
    for module in ("onnxruntime", "openvino", "torch"):
        try:
            versions[module] = run([bench.python(module), "-c", f"import importlib.metadata as m; print(m.version('{module}'))"], 60).strip()
        except Failed:
            versions[module] = None
    versions["Open MPI"] = first_line(["mpirun.openmpi", "--version"])
    versions["MPICH"] = first_line(["mpichversion"])
    wide = [f for f in ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile") if f in flags]
    return {"cpu": processor(), "cores": os.cpu_count(), "memory_gib": round(memory), "vectors": wide, "versions": versions,
            "date": datetime.date.today().isoformat(), "revision": bench.revision()}


def options_parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=f"{HERE}/../build", help="meson's build directory, buildtype release")
    parser.add_argument("--work", default=f"{tempfile.gettempdir()}/rankc-bench", help="models and programs [%(default)s]")
    parser.add_argument("--python", action="append", default=[], help="an interpreter with peers; repeatable")
    parser.add_argument("--files", metavar="DIR", help="where the packages of files.py were unpacked [their cases are left out]")
    parser.add_argument("--only", default="*", help="cases whose name or group matches GLOB[,GLOB...]")
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("--prepare", action="store_true", help="make and compile the models of the cases, measure nothing")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count [%(default)s]")
    parser.add_argument("--attempts", type=int, help="rounds at most [3 x rounds]")
    parser.add_argument("--seconds", type=float, default=0.7, help="of a sample, about [%(default)s]")
    parser.add_argument("--max-foreign", type=float, default=0.15,
                        help="processors' worth of others' load in a round that counts [%(default)s]")
    parser.add_argument("--patience", type=float, default=60,
                        help="seconds to wait for a quiet machine before a round [%(default)s]")
    parser.add_argument("--results", nargs="+", help="lines of JSON; the first takes the new ones [WORK/results.jsonl]")
    parser.add_argument("--docs", default=f"{HERE}/../docs/measured", help="where the pages are written")
    parser.add_argument("--report", action="store_true", help="only write the pages from the results there are")
    options = parser.parse_args()
    options.attempts = options.attempts or 3 * options.rounds
    options.results = options.results or [f"{options.work}/results.jsonl"]
    return options


def chosen(only):
    wanted = only.split(",")
    return [c for c in CASES if any(fnmatch.fnmatch(c.name, g) or fnmatch.fnmatch(c.group, g) for g in wanted)]


def main():
    options = options_parse()
    if options.list:
        for case in chosen(options.only):
            print(f"{case.name:32} {case.group:12} {case.title}")
        return
    if not options.report:
        bench = Bench(options)
        with open(options.results[0], "a", encoding="ascii") as out:
            out.write(json.dumps({"machine": machine(bench)}) + "\n")
            for case in chosen(options.only):
                say(f"{case.name}: {case.title}")
                measure_case(case, bench, options, out)
    elif not all(map(os.path.exists, options.results)):
        sys.exit("bench: no such results")
    if options.report or options.only == "*" and not options.prepare:
        write_report(options.docs, options.results, CASES, options.max_foreign)


if __name__ == "__main__":
    main()
