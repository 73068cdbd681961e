"""What a shell completes, with the script that `rankc completions SHELL` prints. Exit status 77 where the shell is absent.

    completions.py --rankc RANKC SHELL"""
import os
import pathlib
import pty
import re
import select
import shutil
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, parser_of, skip  # noqa: E402

TESTS = pathlib.Path(__file__).resolve().parent.parent
# a line, and all that completes its last word
LINES = [
    ("rankc sh", ["show"]),
    ("rankc compile m.onnx --reuse mo", ["moo"]),
    ("rankc compile m.onnx --reuse=mo", ["--reuse=moo"]),
    ("rankc compile m.onnx --optimizer ada", ["adam", "adamw", "adagrad", "adafactor"]),
    ("rankc compile m.onnx --optimizer adamw:", ["adamw:" + key for key in ("lr=", "beta1=", "beta2=", "eps=", "weight_decay=", "amsgrad=")]),
    ("rankc compile m.onnx --optimizer=adamw:lr=0.1,we", ["--optimizer=adamw:lr=0.1,weight_decay="]),
    ("rankc compile m.onnx --optimizer=adamw:lr=0.1,lr=", []),
    ("rankc plan m.onnx --pas tp:", ["tp:tensor=", "tp:prefer="]),
    ("rankc compile m.onnx --pas hybrid:tensor=2,", ["hybrid:tensor=2," + key for key in ("tensor=", "context=", "expert=", "data=", "pipeline=",
                                                     "prefer=", "attention=", "cut=", "capacity=")]),
    ("rankc compile m.onnx --pas dp:", []),
    ("rankc plan m.onnx --lr-schedule cosine:w", ["cosine:warmup="]),
    ("rankc plan --machine h1", ["h100", "h100-96"]),
    ("rankc run OUT/gpt/_ --input ", ["input_ids="]),
    ("rankc train OUT --data ", ["input_ids="]),
    ("rankc train OUT --eval-data=inp", ["--eval-data=input_ids="]),
    ("rankc run OUT/gpt/_ --input input_ids=tok", ["input_ids=tokens.npy"]),
    ("rankc run -delete --input ", []),
    ("rankc plan --schedule zb-", ["zb-h1", "zb-h2", "zb-v"]),
    ("rankc ops LayerN", ["LayerNormalization"]),
    ("rankc explain E080", ["E0801", "E0802", "E0803", "E0804", "E0805", "E0806", "E0807"]),
]


def bash(script, line, work):
    """The words of COMPREPLY, with what bash keeps of the last word."""
    words = [word for part in line.split(" ") for word in re.findall(r"[:=]|[^:=]+", part)] + [""] * line.endswith(" ")
    array = " ".join(f"'{word}'" for word in words)
    program = (f"source {script}; complete -p rankc >/dev/null; COMP_LINE='{line}' COMP_POINT={len(line)} COMP_WORDS=({array}) "
               f"COMP_CWORD={len(words) - 1}; _rankc; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
    said = call("bash", "--norc", "-c", program, cwd=work)
    assert not said.stderr, (line, said.stderr)
    last = re.split("([:=])", line.split(" ")[-1])
    kept = "".join(last[:-1])
    found = [kept + word for word in said.stdout.split()]
    return found or files(line, work)  # as `complete -o default` does


def files(line, work):
    """What bash itself completes where the function has found nothing."""
    if not re.search(r"=[a-z]+$", line):
        return []
    return [line.split(" ")[-1].rsplit("=", 1)[0] + "=" + path.name for path in work.glob(line.rsplit("=", 1)[1] + "*")]


def fish(script, line, work):
    said = call("fish", "--no-config", "-c", f"source {script}; complete -C '{line}'", env={"HOME": str(work)}, cwd=work)
    assert not said.stderr, (line, said.stderr)
    return [row.split("\t")[0] for row in said.stdout.splitlines()]


ZSH = """
PROMPT= fpath=(WORK $fpath)
autoload -Uz compinit; compinit -u -D
compadd() {
    local -a found
    if [[ ${@[1,(i)(-|--)]} != *-(O|A|D)* ]]; then
        builtin compadd -A found "$@"
        ((!$#found)) || printf '%s\\n' $IPREFIX$^found >>WORK/found
    fi
    builtin compadd "$@"
}
written() { : >WORK/written }
zle -N written
bindkey '^X' written
: >WORK/ready
"""


def zsh(script, line, work):
    """Types the line, a tab and a key that says that the tab was handled."""
    shutil.copy(script, work / "_rankc")
    (work / "setup.zsh").write_text(ZSH.replace("WORK", str(work)))
    for name in ("found", "ready", "written"):
        (work / name).unlink(missing_ok=True)
    (work / "found").touch()
    child, terminal = pty.fork()
    if not child:
        os.chdir(work)
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "TERM": "xterm", "HOME": str(work)})
    type_until(terminal, f" source {work}/setup.zsh\n", work / "ready")
    type_until(terminal, f"{line}\t\x18", work / "written")
    os.close(terminal)
    os.waitpid(child, 0)
    return sorted(set((work / "found").read_text().split()))


def type_until(terminal, text, path):
    """Reads what the shell prints meanwhile, so that it does not wait for that."""
    os.write(terminal, text.encode())
    said, end = b"", time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, (text, said)
        if select.select([terminal], [], [], 0.05)[0]:
            said += os.read(terminal, 65536)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("shell")
    args = parser.parse_args()
    shell, rankc = args.shell, args.rankc
    if not shutil.which(shell):
        skip(f"{shell} is not installed")
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        call(rankc, "compile", TESTS / "models/gpt2/model.onnx", "-o", work / "OUT", "--dim", "batch=2", "--dim", "seq=11", "--no-build", "-q")
        (work / "OUT/model").rename(work / "OUT/gpt")
        (work / "tokens.npy").touch()
        script = work / f"completions.{shell}"
        script.write_text(call(rankc, "completions", shell).stdout)
        for line, expected in LINES:
            found = globals()[shell](script, line, work)
            assert sorted(found) == sorted(expected), (line, found, expected)
        assert (work / "OUT").exists()
    return 0


if __name__ == "__main__":
    sys.exit(main())
