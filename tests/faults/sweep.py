#!/usr/bin/python3
"""Sweeps of faults over models: each kind of test_faults at every point of a compile.

    tests/faults/sweep.py [--every N] [--record] [MODEL-DIRECTORY...]
    tests/faults/sweep.py --strace --rankc BUILD/frontend/rankc [--every N] [--record]

The first builds in build-faults (or $FAULTS_BUILD) with every object an allocation of its own, and goes through
tests/models. What was done is noted in the build directory: a sweep that was stopped goes on. The second runs rankc under
strace: killed at, and failing in, every N-th system call that it really makes, those of libc and the loader too."""
import collections
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "bad"))
sys.path.append(str(ROOT / "tests"))
from rankc_test import dims_of, parser_of  # noqa: E402
from record import record  # noqa: E402

KINDS = ["memory", "no-memory", "EIO", "ENOSPC", "EINTR", "short", "kill", "kill-without-exchange"]
# What strace puts into which calls, and how a compile may end then: 127 is the loader's.
INJECTED = [(".*", "signal=KILL", (-9,)), ("openat|read|pread64|newfstatat|fstat|getdents64|readlink", "error=EIO", (6, 127)),
            ("mkdir|write|fsync|rename|renameat2|unlink|rmdir|close", "error=ENOSPC", (6, 127))]


def build():
    directory = Path(os.environ.get("FAULTS_BUILD", ROOT / "build-faults"))
    if not (directory / "build.ninja").exists():
        subprocess.run(["meson", "setup", directory, ROOT, "-Dc_args=-DARENA_MALLOC"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", directory, "tests/faults/test_faults"], check=True, stdout=subprocess.DEVNULL)
    return directory


class Tally:
    def __init__(self):
        self.points = self.failed = 0
        self.start = time.monotonic()


def sweep_models(arguments, tally):
    directory = build()
    notes = directory / "faults-done"
    done = set(notes.read_text().splitlines()) if notes.exists() else set()
    models = [Path(m) for m in arguments.models] or sorted(p.parent for p in (ROOT / "tests" / "models").glob("*/model.onnx"))
    for model in models:
        for kind in KINDS:
            name = f"{model.name} {kind} {arguments.every}"
            if name in done:
                continue
            run = subprocess.run([directory / "tests/faults/test_faults", "--every", str(arguments.every), kind,
                                  model / "model.onnx", *dims_of(model)], capture_output=True, text=True, check=False)
            points = re.fullmatch(r"(\d+) points\n", run.stdout)
            if points:
                tally.points += int(points[1])
                with open(notes, "a", encoding="utf-8") as note:
                    note.write(name + "\n")
            else:
                tally.failed += 1
                print(f"{name}: {run.stdout}{run.stderr}", flush=True)


def digest(directory):
    found = hashlib.sha256()
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        found.update(str(path.relative_to(directory)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def sweep_system_calls(arguments, tally):
    own = Path(tempfile.mkdtemp(prefix="rankc-faults-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    shutil.copy(ROOT / "tests/models/mlp/model.onnx", own / "m.onnx")
    result = own / "out" / "m" / "_"
    command = [arguments.rankc, "compile", "m.onnx", "--no-build", "-q", "-o", "out", "--reuse", "override"]

    def compile_with(plan, prefix=()):
        run = subprocess.run([*prefix, *command, *plan], cwd=own, capture_output=True, text=True, check=False)
        return run.returncode, run.stderr

    earlier, later, log = [], ["--pas", "tp:tensor=2"], own / "strace"
    compile_with(earlier)
    compile_with(later, ["strace", "-qq", "-o", log])
    after = digest(result)
    calls = collections.Counter(re.findall(r"^(\w+)\(", log.read_text(), re.M))
    for which, how, exits in INJECTED:
        points = [(call, k) for call, n in calls.items() if re.fullmatch(which, call) for k in range(1, n + 1)]
        for call, k in points[::arguments.every]:
            compile_with(earlier)
            before = digest(result)
            status, said = compile_with(later, ["strace", "-qq", "-o", log, "-e", f"inject={call}:{how}:when={k}"])
            now = digest(result) if result.is_dir() else None
            good = now in (before, after) and status in (*exits, 0) and (status or now == after)
            if not good or compile_with(later)[0] or digest(result) != after:
                tally.failed += 1
                print(f"{how} at {call} {k}: exit {status}, {said}", flush=True)
            tally.points += 1
    shutil.rmtree(own)


def main():
    parser = parser_of(__doc__, rankc=None)
    parser.add_argument("--strace", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args()
    tally = Tally()
    try:
        (sweep_system_calls if arguments.strace else sweep_models)(arguments, tally)
    except KeyboardInterrupt:
        pass
    print(f"{tally.points} points, {tally.failed} failed")
    if arguments.record and tally.points:
        record("faults" + (" by strace" if arguments.strace else ""), tally.points, time.monotonic() - tally.start, tally.failed)
    return 1 if tally.failed or not tally.points else 0


if __name__ == "__main__":
    sys.exit(main())
