#!/usr/bin/python3
"""Compiles what is bad, and checks how it is refused.

    tests/bad/run.py --rankc BUILD/frontend/rankc [--all] [--times N] [--sanitized] [--record] [ROW...]

A row (case.py) is one input. It must end by itself with its exit code, in its time and memory; say what its text says,
with a place, on lines of printable ASCII that are diagnostics; and leave everything as it was: the result of an earlier
compile to the byte and the time, and no file beside it. Its twin, the same with hostile names (hostile.py), must end the
same way and say so in JSON of printable ASCII. ROW is the beginning of ids: "A13", "F". The quick run leaves out the large
inputs, which --all has; --times N compares the diagnostics of N runs. --record appends to docs/measured/robustness.md.
Exits with 77 (skip) without Python's onnx."""
import dataclasses
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import Failed, expect, needed, parser_of  # noqa: E402

with needed():
    import onnx  # noqa: F401

import external
import framing
import hostile
import models
import operators
import plans
import running
import structure
import tensors
from launch import Launcher
from record import record

NAMED = structure.ROWS + tensors.ROWS + operators.ROWS  # models, whose names can be changed
ROWS = framing.ROWS + external.ROWS + plans.ROWS + running.ROWS + NAMED
LINE = re.compile(rb"rankc: (error|warning|note)(\[E\d{4}\])?: [ -~]+|  --> [ -~]+|  (note|help): [ -~]+")
WAY_SLOWER = 30  # with sanitizers


def snapshot(directory):
    """Every file with its kind, size, content and time; a lock is signed and wiped clean again, which takes time."""
    found = {}
    for root, dirs, files in os.walk(directory):
        for name in dirs + files:
            path = os.path.join(root, name)
            s = os.lstat(path)
            content = None
            if os.path.isfile(path) and not os.path.islink(path) and s.st_size < 1 << 26 and os.access(path, os.R_OK):
                with open(path, "rb") as f:
                    content = f.read()
            found[os.path.relpath(path, directory)] = (
                s.st_mode, s.st_size, 0 if name.startswith(".lock-") else s.st_mtime_ns, content)
    return found


class Runner:
    def __init__(self, arguments, own):
        self.of_thread = threading.local()
        self.launchers = []
        self.rankc, self.sanitized, self.times = arguments.rankc, arguments.sanitized, arguments.times
        self.own = own
        self.earlier = own / "earlier"
        self.earlier.mkdir()
        (self.earlier / "m.onnx").write_bytes(models.model([models.node("Neg", "x", "y")]).SerializeToString())
        subprocess.run([self.rankc, "compile", "m.onnx", "--no-build", "-o", "out", "-q"], cwd=self.earlier, check=True)

    def start_launcher(self):
        """Once in every thread that compiles."""
        self.of_thread.launcher = Launcher()
        self.launchers.append(self.of_thread.launcher)

    def close(self):
        for launcher in self.launchers:
            launcher.close()

    def prepare(self, row):
        """The directory of the case: an earlier result of m.onnx, then what the row makes."""
        d = Path(tempfile.mkdtemp(dir=self.own))
        (d / "tmp").mkdir()
        shutil.copytree(self.earlier / "out", d / "out", symlinks=True, copy_function=shutil.copy2)
        made = row.make(d)
        if row.twin:
            if isinstance(made, bytes) or made is None:
                return None
            made = hostile.twin(made)
        if made is not None:
            (d / "m.onnx").write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
        return d

    def compile(self, row, d):
        """Exit status and stderr."""
        command = [self.rankc, *(["compile", row.model] if row.verb is None else row.verb), *row.args]
        if row.verb is None:
            command += ["--no-build", "-o", "out", "--reuse", "override", "-q"]
        if row.twin:
            command.append("--json")
        environment = {**os.environ, "HOME": str(d / "tmp"), "TMPDIR": str(d / "tmp"), "XDG_CACHE_HOME": str(d / "cache"),
                       "LC_ALL": "C"}
        limit = row.seconds * (WAY_SLOWER if self.sanitized else 1)
        restore = row.before(d) if row.before else None
        said = self.own / f"{d.name}.stderr"
        try:
            done = self.of_thread.launcher.run(command, d, environment, row.uid, said, 10 * limit)
        finally:
            if restore:
                restore()
        expect(done["status"] is not None, f"runs for more than {10 * limit} s")
        # Of the CPU's time: others may be loud.
        expect(done["seconds"] <= limit, f"takes {done['seconds']:.1f} s, at most {limit} s are allowed")
        expect(self.sanitized or done["mebibytes"] <= row.mebibytes, f"has {done['mebibytes']} MiB resident")
        return done["status"], said.read_bytes()

    def check_text(self, row, status, text):
        if row.twin:
            self.check_json(row, text)
            return
        lines = text.splitlines()
        for line in lines:
            expect(LINE.fullmatch(line), f"this is no diagnostic: {line!r}")
        errors = sum(line.startswith(b"rankc: error") for line in lines)
        if status == 0:
            expect(errors == 0, "an error, and exit 0")
            return
        expect(errors == row.errors if row.errors is not None else errors >= 1, f"{errors} errors")
        places = [line[6:].decode() for line in lines if line.startswith(b"  --> ")]
        expect(row.place is None or (places and all(re.match(row.place, p) for p in places)), "no place")
        # the longest: E0430 with its place, the plan, six kinds of memory and three tensors
        expect(len(lines) <= 12 * errors, "too many lines")
        expect(re.search(row.text, text.decode()), f"the text is not {row.text!r}")

    def check_json(self, row, text):
        expect(re.fullmatch(rb"[\n -~]*", text), "this is not printable")
        errors = 0
        for line in text.splitlines():
            item = json.loads(line)
            errors += item["severity"] == "error"
            for words in [item["text"], item["where"] or "", *item["notes"]]:
                expect(re.fullmatch(r"[ -~]*", words), f"this is not printable: {words!r}")
        expect(errors == row.errors if row.errors is not None else errors >= 1, f"{errors} errors")

    def judge(self, row):
        """Whether there was anything to run, and what is wrong with it, or None."""
        try:
            return self.run(row), None
        except Failed as failure:
            return True, f"{row.id}: {failure}"

    def run(self, row):
        d = self.prepare(row)
        if d is None:
            return False
        if row.uid is not None:
            os.chmod(self.own, 0o755)
            subprocess.run(["chown", "-R", str(row.uid), d], check=True)
        before = snapshot(d)
        status, text = self.compile(row, d)
        try:
            expect(status in (row.exit if isinstance(row.exit, tuple) else (row.exit,)), f"exit {status}, not {row.exit}")
            self.check_text(row, status, text)
            for _ in range(self.times - 1):
                again = self.compile(row, d)
                expect(again[0] == status and (again[1] == text or row.before), "another run says something else")
            after = snapshot(d)
            if row.before:  # changes the model itself
                before.pop(row.model), after.pop(row.model)
            may = re.compile(row.makes or "$.")
            beside = {p for p in after if p not in before and not p.startswith("out/m/_/") and not may.match(p)}
            expect(not beside, f"makes {sorted(beside)}")
            changed = {p for p in before if after.get(p) != before[p] and not (status == 0 and re.match("out($|/m)", p))
                       and not may.match(p)}
            expect(not changed, f"changes {sorted(changed)}")
        except Failed as failure:
            raise Failed(f"{failure}\n{text.decode(errors='replace')[:2000]}") from None
        shutil.rmtree(d)
        return True


def chosen(arguments):
    for row in ROWS:
        if any(row.id.startswith(s) for s in arguments.rows) or (not arguments.rows and (arguments.all or not row.slow)):
            if row.uid is None or os.geteuid() == 0:
                yield row
                if row in NAMED and row.exit:
                    yield dataclasses.replace(row, id=row.id + " twin", twin=True)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--sanitized", action="store_true", help="rankc is built with sanitizers: slower, larger")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("rows", nargs="*")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    failed = count = 0
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rankc-bad-") as own:
        runner = Runner(arguments, Path(own))
        with ThreadPoolExecutor(os.cpu_count(), initializer=runner.start_launcher) as pool:
            for done, failure in pool.map(runner.judge, chosen(arguments)):
                count += done
                failed += failure is not None
                if failure:
                    print(failure, flush=True)
        runner.close()
    print(f"{count} bad inputs, {failed} failed")
    if arguments.record:
        record("bad inputs" + (", sanitized" if arguments.sanitized else ""), count * arguments.times, time.monotonic() - start, failed)
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
