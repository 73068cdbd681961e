"""The manual pages (frontend/options/manual.def): each example is run, in order, and is in its page, and every verb has one; the
files of the pages are there afterwards, under these names."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import rankc_of  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
DEFINITIONS = (SOURCE / "frontend/options/manual.def").read_text()
ROW = re.compile(r'^(EXAMPLE|SHOWN)\((\w+), ((?:"[^"\n]*"\s*)+),', re.M)  # adjacent literals are one
FILE = re.compile(r'^MANUAL_FILE\(\w+, "([^" ]+)"', re.M)  # with capitals in place of numbers and names


def main():
    rankc = rankc_of(__doc__)
    rows = [(kind, verb, "".join(re.findall('"([^"]*)"', command)))
            for kind, verb, command in ROW.findall(DEFINITIONS)]
    with tempfile.TemporaryDirectory(prefix="rankc-manual-") as work:
        work = pathlib.Path(work)
        (work / "bin").mkdir()
        (work / "bin/rankc").symlink_to(rankc)
        shutil.copy(SOURCE / "samples/models/gpt2.onnx", work)
        for name in "input_ids", "labels":
            shutil.copy(SOURCE / "samples/models/gpt2.input_ids.npy", work / f"{name}.npy")
        env = {**os.environ, "PATH": f"{work}/bin:{os.environ['PATH']}", "XDG_CACHE_HOME": str(work / "cache")}

        def call(command, **how):
            done = subprocess.run(["sh", "-c", command], cwd=work, env=env, capture_output=True, text=True, **how)
            assert done.returncode == 0, (command, done.returncode, done.stdout, done.stderr)
            return done.stdout

        pages = {}
        for kind, verb, command in rows:
            verb = verb.lower()
            if verb not in pages:
                pages[verb] = call(f"rankc help --man {verb}").replace("\\-", "-")
            assert command in pages[verb], f"{command} is not in the page of {verb}"
            if kind == "EXAMPLE":
                call(command)
        with open(work / ".rankc/gpt2/_/rank_0.c", "a") as source:
            source.write("/* edited */\n")
        call("rankc compile gpt2.onnx --pas tp --plan-ngpus 2 --reuse override --no-build -q")
        for name in FILE.findall(DEFINITIONS):
            assert list(work.rglob(re.sub("[A-Z]+", "*", name))), f"no file is called {name}"
        verbs = set(re.findall(r"rankc-(\w+)\(1\)", call("rankc help --man").replace("\\-", "-")))
        assert verbs == set(pages), f"without an example: {verbs - set(pages)}"
    print(f"{len(rows)} examples of {len(pages)} verbs")


main()
