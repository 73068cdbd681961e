"""What the sweeps of reuse share: running rankc, comparing results, keeping count.

A sweep is a list of cases by name. What is done is kept in --state, so that a sweep that was stopped goes on where it
was; --sample runs a few, spread over all; --table appends the counts to a page. Needs nothing but Python."""
import datetime
import json
import os
import re
import shutil
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_plans import plan_of  # noqa: E402, F401
from rankc_test import MODELS, SKIP, Failed, call, dims_of, expect, manifest_of, parser_of  # noqa: E402, F401

HERE = os.path.dirname(os.path.abspath(__file__))
OUTSIDE = ("location.json",)  # of byte-identity (DESIGN 5), as are build/ and lock files


class Skipped(Exception):
    pass


class Result:
    """What a rankc printed: exit status, error code ("E0801" or ""), and how much was reused."""

    def __init__(self, done):
        self.status, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr
        found = re.search(r"E\d{4}", done.stderr)
        self.error = found[0] if found else ""
        kept = re.search(r'"reused": "(\w+)"', done.stdout)
        self.reused = kept[1] if kept else ""

    def must(self, status, error="", reused=""):
        wanted, got = (status, error, reused), (self.status, self.error, self.reused)
        expect(wanted == got, f"expected {wanted}, got {got}\n{self.stderr.strip()[:600]}")
        return self


def rankc(program, *arguments, timeout=120, **run):
    return Result(call(program, *arguments, status=None, timeout=timeout, **run))


def compile_command(model, out, *options):
    return ["compile", model, "-o", out, "--json", *options]


def snapshot(directory):
    """The bytes of every file that must be equal where input, options and rankc are."""
    files = {}
    for folder, folders, names in os.walk(directory):
        folders[:] = [f for f in folders if f != "build"]
        for name in names:
            path = os.path.join(folder, name)
            if name not in OUTSIDE and not name.startswith(".lock-"):
                with open(path, "rb") as file:
                    files[os.path.relpath(path, directory)] = file.read()
    return files


def instance(out):
    """The one <model>/<instance> below an output directory."""
    found = [os.path.join(out, m, i) for m in os.listdir(out) if not m.startswith(".")
             for i in os.listdir(os.path.join(out, m)) if not i.startswith(".")]
    expect(len(found) == 1, f"{len(found)} results in {out}: {found}")
    return found[0]


def leftovers(out):
    """What a compile left besides results and lock files."""
    return [os.path.join(m, i) for m in os.listdir(out) if not m.startswith(".")
            for i in os.listdir(os.path.join(out, m)) if i.startswith(".")]


def flip_bit(path, at, bit=0):
    """Edits a file in place, and sets its time back."""
    info = os.stat(path)
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def parse(description, *programs):
    """`programs`: options that name other programs a sweep needs."""
    parser = parser_of(description)
    for program in programs:
        parser.add_argument(program)
    parser.add_argument("--state", help="file that remembers what was done")
    parser.add_argument("--sample", type=int, help="run so many cases, spread over all")
    parser.add_argument("--table", help="append the counts to this page")
    options = parser.parse_args()
    return options


def spread(names, count):
    return names if not count or count >= len(names) else [names[i * (len(names) - 1) // max(count - 1, 1)] for i in range(count)]


def revision():
    done = call("git", "-C", HERE, "describe", "--always", "--dirty", "--exclude=*", status=None)
    return done.stdout.strip() or "unknown"


def append_row(path, title, results):
    counts = [sum(r == kind for r in results) for kind in ("ok", "failed", "skipped")]
    with open(path, "a") as page:
        page.write(f"| {title} | {len(results)} | {counts[0]} | {counts[1]} | {counts[2]} | "
                   f"{datetime.date.today().isoformat()}, {revision()} |\n")


def run_case(case, options):
    work = tempfile.mkdtemp(prefix="rankc-reuse-")
    try:
        case(options.rankc, work)
        return "ok", ""
    except Skipped as reason:
        return "skipped", str(reason)
    except AssertionError as reason:
        return "failed", str(reason)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def sweep(title, cases, options):
    """Runs the cases, a dict of functions of (rankc, work directory); exits with 1 if any failed."""
    state = {}
    if options.state and os.path.exists(options.state):
        state = json.load(open(options.state))
    done = {}
    for name in spread(list(cases), options.sample):
        if state.get(name) != "ok":
            state[name], why = run_case(cases[name], options)
            print(f"{state[name]:8}{name}" + (f": {why}" if why else ""), flush=True)
            if options.state:
                with open(options.state, "w") as file:
                    json.dump(state, file, indent=0)
        done[name] = state[name]
    results = list(done.values())
    print(f"{title}: {results.count('ok')} of {len(results)}, {results.count('failed')} failed, "
          f"{results.count('skipped')} skipped")
    if options.table:
        append_row(options.table, title, results)
    sys.exit(1 if "failed" in results else SKIP if results.count("skipped") == len(results) else 0)
