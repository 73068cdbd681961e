"""The commands of README.md and the guides: every ```console block and every indented command is run, and must print what
the guide says.

    run.py --rankc RANKC --source DIR [--build BUILD --meson MESON] [--bless] [GUIDE.md...]

With --build the commands run with what `meson install` puts into a directory, as if it were installed.

A guide's commands run one after the other in a directory of its own that has samples/ and the models of samples/models.
Lines directly behind a command that begin with "> " belong to it. Output is stdout and stderr together; "..." as a line
stands for any lines; [N] after the output is an exit status other than 0. --bless writes what the commands print into the
guides (blocks with "..." stay as they are). Indented lines without "$ " that begin with a program's name are commands too:
they must succeed, whatever they print. Behind a line <!-- not run: REASON --> an indented block is passed over. A guide that
begins with the line <!-- needs MODULE --> is passed over where Python has no such module; so is a block behind such a line,
which may ask for a version, <!-- needs MODULE 2.9 -->. The patches beside the guides must apply, and links must lead
somewhere, in the source tree and in all pages that are installed."""
import functools
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from rankc_test import call, parser_of  # noqa: E402

NUMBER = re.compile(r"(-?\d+\.\d{3,})")
PROGRAM = r"(?:rankc|make|cc|mpirun|python3|meson|ninja|apt|git|kill|\./\S+) "
# A fenced block, or an indented one behind an empty line, with what may stand before it.
BLOCK = re.compile(r"^(?:<!-- needs (\w+)(?: ([\d.]+))? -->\n)?```console\n((?:.*\n)*?)```$"
                   r"|^(?:(<!-- not run: \S.* -->)\n)?\n((?: {4}.*\n)+)|^```(?!console)(?:.*\n)*?```$", re.M)
INDENT = "    "


def commands(block):
    """(command, expected output) of each line that begins with "$ ", and of those that continue it."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.startswith("> ") and not found[-1][1]:
            found[-1] = f"{found[-1][0]}\n{line[2:]}", []
        else:
            found[-1][1].append(line)
    return found


def blocks(text):
    """(block as it stands, its commands, indent before each line) of those blocks that are to be run."""
    for module, version, fenced, passed, indented in BLOCK.findall(text):
        lines = [line[len(INDENT):] for line in indented.splitlines()]
        if fenced and (not module or has_module(module, version)):
            yield fenced, commands(fenced), ""
        elif indented and not passed and lines[0].startswith("$ "):
            yield indented, commands("\n".join(lines)), INDENT
        elif indented and not passed and re.match(PROGRAM, lines[0]):
            yield indented, [(line, None) for line in lines], INDENT


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
        for block, found, indent in blocks(text):
            new = []
            for command, expected in found:
                count += 1
                lines = run(command, work, env)
                failed = expected is None and lines and re.fullmatch(r"\[\d+\]", lines[-1])
                if failed or (expected is not None and not fits(expected, lines)):
                    faults.append(f"{guide.name}: $ {command}\n" + "\n".join(lines))
                if expected is None:
                    new.append(command)
                else:
                    new += ["$ " + command.replace("\n", "\n> "), *(expected if "..." in expected else lines)]
            if bless:
                text = text.replace(block, "".join(f"{indent}{line}\n" for line in new), 1)
    if bless:
        guide.write_text(text)
    return count, faults


@functools.lru_cache(None)
def has_module(module, version=""):
    """Whether Python has the module, of at least that version."""
    code = f"import {module}; print({module}.__version__)" if version else f"import {module}"
    done = call(sys.executable, "-c", code, status=None)
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
            done = call(*command, patch.resolve(), status=None, cwd=source)
            if done.returncode:
                found.append(f"{command[0]}: {patch.name} does not apply:\n{done.stdout}{done.stderr}")
    return found


def anchors(page):
    """What links to headings of the page may end in, as on GitHub."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def link_faults(guide):
    found = []
    for link in re.findall(r"\]\(([^)\s:]+)\)", guide.read_text()):
        path, _, anchor = link.partition("#")
        page = guide.parent / path if path else guide
        if not page.exists() or (anchor and page.suffix == ".md" and anchor not in anchors(page)):
            found.append(f"{guide}: the link {link} leads nowhere")
    return found


def install(build, meson, stage):
    """Installs below `stage`; what the environment of the commands has for it."""
    subprocess.run([meson, "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", stage], check=True)
    rankc, found = next(Path(stage).rglob("bin/rankc")), next(Path(stage).rglob("rankc-rt.pc"))
    return rankc, {"PKG_CONFIG_PATH": str(found.parent)}


def environment(rankc):
    path = f"{rankc.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "TERM": "dumb", "LC_ALL": "C", "CFLAGS": "-O1"}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--source", required=True, type=Path)
    parser.add_argument("--build", type=Path)
    parser.add_argument("--meson", default="meson")
    parser.add_argument("--bless", action="store_true")
    parser.add_argument("guides", nargs="*", type=Path)
    args = parser.parse_args()
    guides = args.guides or [args.source / "README.md", *sorted((args.source / "docs").rglob("*.md"))]
    total, faults = 0, patch_faults(args.source)
    with tempfile.TemporaryDirectory() as stage:
        rankc, paths = install(args.build, args.meson, stage) if args.build else (Path(args.rankc), {})
        env = {**environment(rankc), **paths}
        for page in sorted(Path(stage).rglob("*.md")):
            faults += link_faults(page)
        for guide in guides:
            faults += link_faults(guide)
            if is_needless(guide):
                print(f"{guide.name}: passed over")
                continue
            count, found = follow(guide, args.source, env, args.bless)
            total, faults = total + count, faults + found
    print("\n".join(faults))
    print(f"{total} commands, {len(faults)} faults")
    sys.exit(1 if faults and not args.bless else 0)


main()
