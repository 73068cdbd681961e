"""--json says what the plain diagnostics say: every verb is made to fail, with names of hostile bytes, in both forms, or is
interrupted. Each line of stderr must be an object of format 1, and the objects, printed like a compiler's, must be the plain
text."""
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import rankc_of  # noqa: E402

KEYS = ["format", "severity", "code", "text", "where", "notes"]

GRAPH = """rankc-ir 1
graph "g" level=IMPORTED
input %0 "a\\x01\\x22b" f32[2]
%1 "y" = Exp(%0) node="n"
output %1 "y"
"""

# Random indices, 0 and 2, of a table of one row: the program that verify runs fails. Sums of inputs are not seen as
# indices, so that they are not kept within the table.
ROWS = """rankc-ir 1
graph "rows" level=IMPORTED
input %0 "i" i64[64]
const %1 "table" f32[1,2] = [1, 2]
%2 "j" = Add(%0, %0) node="twice"
%3 "y" = Gather(%1, %2) axis=0 node="n"
output %3 "y"
"""

# Bytes that JSON must not have as they are: quotes, control characters, no UTF-8, UTF-8, a backslash, a line break.
NAMES = [b"quote\"d", b"tab\there", b"\x01\x1f\x7f", b"\xff\xfe", "é☃".encode(), b"back\\slash", b"line\nbreak", b"</script>"]


def plain(objects):
    """The objects as text."""
    lines = []
    for o in objects:
        code = f"[{o['code']}]" if o["code"] else ""
        lines.append(f"rankc: {o['severity']}{code}: {o['text']}")
        if o["where"] is not None:
            lines.append(f"  --> {o['where']}")
        lines += [f"  {note}" for note in o["notes"]]
    return "".join(line + "\n" for line in lines)


def start(rankc, words, cwd):
    return subprocess.Popen([rankc, *words], cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**os.environ, "TERM": "dumb", "LC_ALL": "C"})


def run(rankc, words, cwd):
    process = start(rankc, words, cwd)
    text = process.communicate()[1]
    return process.returncode, text


def run_interrupted(rankc, words, cwd):
    """A compile that waits for a lock gets SIGTERM once it waits."""
    with open(cwd / "out" / ".lock-g-_", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = start(rankc, words, cwd)
        while not any(fd.is_symlink() and os.readlink(fd).endswith(".lock-g-_") for fd in Path(f"/proc/{process.pid}/fd").iterdir()):
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        text = process.communicate()[1]
    return process.returncode, text


def faults_of(rankc, words, cwd, run=run):
    code, text = run(rankc, words, cwd)
    json_code, lines = run(rankc, [*words, "--json"], cwd)
    try:
        objects = [json.loads(line.decode("ascii")) for line in lines.splitlines()]
    except ValueError as error:
        return [f"{error}: {lines!r}"]
    found = []
    if code == 0 or json_code != code:
        found.append(f"exit codes {code} and {json_code}")
    if not any(o.get("severity") == "error" for o in objects):
        found.append("no error")
    found += [f"keys {list(o)}, format {o.get('format')}" for o in objects if list(o) != KEYS or o["format"] != 1]
    if not found and plain(objects).encode("utf-8", "surrogateescape") != text:
        found.append(f"JSON says\n{plain(objects)}plain text says\n{text.decode(errors='replace')}")
    return found


def commands(work):
    """Words that fail, verb by verb."""
    (work / "g.rir").write_text(GRAPH)
    (work / "rows.rir").write_text(ROWS)
    (work / "bad.npy").write_bytes(b"\x93NUMPY")
    for name in NAMES:
        yield [name]
        yield [b"compile", name + b".onnx"]
        yield [b"compile", b"g.rir", b"--pas", name]
        yield [b"compile", b"g.rir", b"--dim", name]
        yield [b"compile", b"g.rir", b"@" + name]
        yield [b"plan", b"g.rir", b"--dump-after", name]
        yield [b"plan", b"g.rir", b"--load-plan", name]
        yield [b"show", name]
        yield [b"verify", name]
        yield [b"run", name]
        yield [b"run", b"out/g/_", b"--input", name + b"=bad.npy"]
        yield [b"ops", name]
        yield [b"completions", name]
        yield [b"help", name]
        yield [b"--" + name]
        yield [b"doctor", name]
    yield [b"train", b"x"]
    yield [b"ckpt", b"info", b"nowhere"]
    yield [b"compile", b"g.rir", b"--use-zero=1"]
    yield [b"run", b"out/g/_"]
    yield [b"run", b"out/g/_", b"--comm", b"loopback"]
    yield [b"run", b"out/g/_", b"--input", b"a\x01\"b=bad.npy"]
    yield [b"verify", b"out/rows/_", b"--numeric"]


def main():
    rankc = rankc_of(__doc__)
    count, bad = 0, 0
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        todo = list(commands(work))
        for graph in "g.rir", "rows.rir":
            subprocess.run([rankc, "compile", graph, "-o", "out"], cwd=work, check=True, stdout=subprocess.DEVNULL)
        for words, runner in [(words, run) for words in todo] + [([b"compile", b"g.rir", b"-o", b"out"], run_interrupted)]:
            count += 1
            for fault in faults_of(rankc, words, work, runner):
                bad += 1
                print(f"rankc {b' '.join(words)!r}: {fault}")
    print(f"{count} commands, {bad} faults")
    sys.exit(1 if bad or count < 100 else 0)


main()
