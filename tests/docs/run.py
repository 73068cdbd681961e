"""The commands of the guides: every ```console block of docs/ is run, and must print what the guide says.

    run.py --rankc RANKC --source DIR [--bless] [GUIDE.md...]

A guide's commands run one after the other in a directory of its own that has samples/ and the models of samples/models.
Output is stdout and stderr together; "..." as a line stands for any lines; [N] after the output is an exit status other than
0. --bless writes what the commands print into the guides (blocks with "..." stay as they are). A guide that begins with the
line <!-- needs MODULE --> is passed over where Python has no such module; so is a block behind such a line, which may ask for
a version, <!-- needs MODULE 2.9 -->. The patches beside the guides must apply."""
import argparse
import functools
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NUMBER = re.compile(r"(-?\d+\.\d{3,})")
BLOCK = re.compile(r"^(?:<!-- needs (\w+)(?: ([\d.]+))? -->\n)?```console\n(.*?)^```$", re.M | re.S)


def commands(block):
    """(command, expected output) of each line that begins with "$ "."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def run(command, cwd, env):
    done = subprocess.run(["sh", "-c", command], cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    lines = done.stdout.rstrip("\n").split("\n") if done.stdout else []
    return lines + ([f"[{done.returncode}]"] if done.returncode else [])


def same_line(a, b):
    """True if the lines differ only in the last digits of fractions, as they may between processors."""
    x, y = NUMBER.split(a), NUMBER.split(b)
    return len(x) == len(y) and all(
        math.isclose(float(u), float(v), rel_tol=1e-4) if i % 2 else u == v for i, (u, v) in enumerate(zip(x, y)))


def fits(expected, lines):
    """True if the lines are as expected, where "..." stands for any."""
    if "..." not in expected:
        return len(expected) == len(lines) and all(map(same_line, expected, lines))
    pattern = "".join(r"(.*\n)*?" if e == "..." else re.escape(e) + r"\n" for e in expected)
    return re.fullmatch(pattern, "".join(line + "\n" for line in lines)) is not None


def follow(guide, source, env, bless):
    """Runs one guide; the number of commands and a list of faults."""
    text, count, faults = guide.read_text(), 0, []
    with tempfile.TemporaryDirectory() as work:
        shutil.copytree(source / "samples", f"{work}/samples")
        for model in (source / "samples" / "models").iterdir():
            shutil.copy(model, work)
        for module, version, block in BLOCK.findall(text):
            if module and not has_module(module, version):
                continue
            new = []
            for command, expected in commands(block):
                count += 1
                lines = run(command, work, env)
                if not fits(expected, lines):
                    faults.append(f"{guide.name}: $ {command}\n" + "\n".join(lines))
                new += [f"$ {command}", *(expected if "..." in expected else lines)]
            if bless:
                text = text.replace(block, "\n".join(new) + "\n", 1)
    if bless:
        guide.write_text(text)
    return count, faults


@functools.lru_cache(None)
def has_module(module, version=""):
    """Whether Python has the module, of at least that version."""
    code = f"import {module}; print({module}.__version__)" if version else f"import {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    numbers = [[int(part) for part in re.findall(r"\d+", text)] for text in (done.stdout.split("+")[0], version)]
    return not done.returncode and numbers[0] >= numbers[1]


def is_needless(guide):
    needed = re.match(r"<!-- needs (\w+) -->", guide.read_text())
    return needed and not has_module(needed[1])


def patch_faults(source):
    """A patch must apply to the tree with every command for it, and without fuzz."""
    found = []
    for command in (["patch", "-p1", "--dry-run", "-F0", "-s", "-i"], ["git", "apply", "--check"]):
        for patch in sorted((source / "docs" / "patches").glob("*.patch")) if shutil.which(command[0]) else []:
            done = subprocess.run([*command, patch.resolve()], cwd=source, capture_output=True, text=True)
            if done.returncode:
                found.append(f"{command[0]}: {patch.name} does not apply:\n{done.stdout}{done.stderr}")
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--source", required=True, type=Path)
    parser.add_argument("--bless", action="store_true")
    parser.add_argument("guides", nargs="*", type=Path)
    args = parser.parse_args()
    rankc = Path(args.rankc).resolve()
    env = {**os.environ, "PATH": f"{rankc.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}", "TERM": "dumb", "LC_ALL": "C", "CFLAGS": "-O1"}
    guides = args.guides or sorted((args.source / "docs").glob("*.md"))
    total, faults = 0, patch_faults(args.source)
    for guide in guides:
        if is_needless(guide):
            print(f"{guide.name}: passed over")
            continue
        count, found = follow(guide, args.source, env, args.bless)
        total, faults = total + count, faults + found
    print("\n".join(faults))
    print(f"{total} commands, {len(faults)} faults")
    sys.exit(1 if faults and not args.bless else 0)


main()
