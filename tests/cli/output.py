"""What the verbs print: times of steps, random inputs, losses as JSON, --log-every, -q and -v."""
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, json_of, manifest_of, printed, rankc_of  # noqa: E402

import onnx
from onnx import helper

TESTS = pathlib.Path(__file__).resolve().parent.parent


def values_of(text):
    return text.split(":", 1)[1]


def check_run(rankc, work):
    """Times and random inputs. Token ids outside of the table of 101 rows would end the run with an error."""
    model = work / "gpt"
    call(rankc, "compile", TESTS / "models/gpt2/model.onnx", "-o", model, "--dim", "batch=2", "--dim", "seq=11", "--pas",
         "tp", "--plan-ngpus", 2, "-q")
    inputs = manifest_of(model)["inputs"]
    assert [entry["below"] for entry in inputs] == [101], inputs
    out, err = printed(rankc, "run", model, "--random-inputs", "--repeat", 3, "--warmup", 1)
    assert re.search(r"^3 steps: min [\d.]+ ms, median [\d.]+ ms, max [\d.]+ ms$", out, re.M) and not err, (out, err)
    first = out.splitlines()[0]
    assert first == call(rankc, "run", model, "--random-inputs=0", "-q").stdout.strip()  # -q: the outputs alone
    one_rank = call(rankc, "run", model, "--random-inputs", "--comm", "loopback").stdout.strip()
    assert one_rank == first
    assert values_of(call(rankc, "run", model, "--random-inputs=1").stdout) != values_of(first)
    out, err = printed(rankc, "run", model, "--random-inputs", "--repeat", 2, "--warmup", 1, "-v")
    assert re.search(r"loaded in [\d.]+ ms: 2 ranks, \d+ threads? per rank, transport", err), err
    assert err.count("step ") == 2 and err.count("warm-up 1") == 1 and err.count("resident") == 2, err
    times = json_of(rankc, "run", model, "--random-inputs", "--repeat", 4, "--json")["step_ms"]
    assert len(times["all"]) == 4 and times["min"] == min(times["all"]) and times["max"] == max(times["all"]), times
    for wrong in ("", "-1", "x", "3.5"):
        assert "E0205" in call(rankc, "run", model, f"--random-inputs={wrong}", status=2).stderr
    call(next(model.glob("*/_/build/run")), "--random-inputs=x", "--comm", "loopback", status=2)


def check_edit(rankc, work):
    """An edited source is told of until it is built; a source that was only touched is not."""
    model = next((work / "gpt").glob("*/_"))
    run, source = [rankc, "run", model, "--random-inputs", "-q"], model / "rank_0.c"
    source.write_text(source.read_text() + "/* edited */\n")
    assert "E0806" in call(*run).stderr
    call("make", "-s", "-C", model)
    assert call(*run).stderr == ""
    (model / "model.c").touch()
    assert call(*run).stderr == ""


def check_place(rankc, work):
    """An error of a running program names node, module and source line; profile and `show --json` know modules."""
    model, tokens = work / "net", work / "tokens.npy"
    head = b"{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3), }".ljust(117) + b"\n"
    tokens.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + struct.pack("<6q", 0, 1, 2, 3, 4, 99))
    call(rankc, "compile", TESTS / "cli/origin/model.onnx", "-o", model, "-q")
    err = call(rankc, "run", model, "--input", f"tokens={tokens}", status=3).stderr
    assert "E0382" in err and "node 'node_embedding' (Gather) in embed (net.py:35 in forward)" in err, err
    profile = call(rankc, "run", model, "--random-inputs", "--profile").stdout
    assert [len(re.findall(rf"^  {layer} ", profile, re.M)) for layer in ("embed", "layers.0", "layers.3", "head")] == [1] * 4, profile
    scopes = {n["name"]: n.get("scope") for n in json_of(rankc, "show", model, "--json")["nodes"]}
    assert scopes["node_MatMul_5"] == "layers.1/up" and scopes["node_softmax"] is None, scopes


def check_train(rankc, work):
    data, model = TESTS / "training/mlp", work / "mlp"
    call(rankc, "compile", data / "model.onnx", "--train", "-o", model, "-q")
    train = [rankc, "train", model, "--data", f"target={data}/target.npy", "--data", f"x={data}/x.npy", "--steps", 5]
    logged = work / "metrics.jsonl"
    call(*train, "--log", logged)
    losses = [json.loads(line)["loss"] for line in logged.read_text().splitlines()]
    result = json_of(*train, "--json")
    assert result["format"] == 1 and result["first_step"] == 1 and result["losses"] == losses, result
    steps = re.findall(r"^step (\d+):", call(*train, "--log-every", 2).stdout, re.M)
    assert steps == ["2", "4", "5"], steps
    call(*train, "--log", logged, "--log-every", 3)
    assert [json.loads(line)["step"] for line in logged.read_text().splitlines()] == [3, 5]
    assert printed(*train, "-q") == ("", "")
    assert "loaded in" in call(*train, "-v").stderr
    call(*train, "--log-every", 0, status=2)


def on_terminal(*words, **environment):
    """What a command writes to stderr where that is a terminal."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=theirs,
                             env={**os.environ, "TERM": "xterm", **environment})
    os.close(theirs)
    text = b""
    try:
        while part := os.read(ours, 4096):
            text += part
    except OSError: # the other end is closed
        pass
    os.close(ours)
    assert child.wait() == 0, text
    return text.decode()


def check_progress(rankc, work):
    """Past a second, training tells step, time left and loss on a terminal, and removes the line at its end."""
    data = TESTS / "training/mlp"
    train = [rankc, "train", work / "mlp", "--data", f"target={data}/target.npy", "--data", f"x={data}/x.npy", "--threads",
             1]
    rate = json_of(*train, "--steps", 1000, "--json")["step_ms"]["median"]
    steps = int(1500 / max(rate, 0.001)) # 1.5 s, and what is between steps
    text = on_terminal(*train, "--steps", steps, "--json")
    assert re.search(rf"\rstep \d+ of {steps}, \d+:\d\d:\d\d left, loss [-\d.e]+\x1b\[K", text), text
    assert text.endswith("\r\x1b[K") and "\x1b[3" not in text, text
    assert on_terminal(*train, "--steps", steps, "--json", "-q") == ""


def check_progress_of_compile(rankc, work):
    """Past a second, compiling sources and searching for a plan tell how far they are, unless -q is given."""
    compiler = work / "slow-cc"
    compiler.write_text('#!/bin/sh\nsleep 1.1\nexec cc "$@"\n')
    compiler.chmod(0o755)
    model = TESTS / "cli/origin/model.onnx"
    for words, shown in (([], True), (["-q"], False)):
        compile_words = [rankc, "compile", model, "-o", work / "slow", "--instance-name", f"x{len(words)}{words}", *words]
        text = on_terminal(*compile_words, CC=str(compiler))
        assert bool(re.search(r"\rcompiling: \d+ of \d+ files\x1b\[K", text)) == shown, text
        assert "\r\x1b[K" in text if shown else text == "", text
    search = [rankc, "plan", "--model-config", "gpt3-175b", "--machine", "h100", "--amp", "bf16", "--pas", "autodist",
              "--runtime-ngpus", 64, "--global-batch", 1536, "--search-time", 2, "--forbid", "pipeline"]
    text = on_terminal(*search)
    assert re.search(r"\rsearch: \d+ of \d+ plans tried, 0:00:0\d left", text), text


def told(*words, code=0):
    """What a command writes to stderr where RANKC_PROGRESS asks for progress at once, without a terminal."""
    done = subprocess.run([str(word) for word in words], capture_output=True,
                          env={**os.environ, "RANKC_PROGRESS": "0"})
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stderr.decode()  # as text, "\\r" would become "\\n"


def is_clean(text):
    """True if every line of progress is removed before anything else is written, and at the end."""
    return not re.search(r"[^\r\n]\x1b\[K[^\r]", text) and (not text or text.endswith(("\r\x1b[K", "\n")))


def check_progress_of_the_rest(rankc, work):
    """Hashing, loading, checkpoints, runs of verify, and training: with one process, and with two, whose launcher forwards
    the lines."""
    onnx.save(helper.make_model(helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [helper.make_tensor_value_info("x", 1, [1, 1024])],
        [helper.make_tensor_value_info("y", 1, [1, 768])],
        [helper.make_tensor("w", 1, [1024, 768], bytes(4 * 1024 * 768), raw=True)]),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8), work / "large.onnx")
    text = told(rankc, "compile", work / "large.onnx", "-o", work / "large", "--no-build")
    assert re.search(r"\rhashing .*large.onnx: MiB 1 of 3, 0:00:00 left\x1b\[K", text) and is_clean(text), text
    for words in (["-q"], ["--json"]):
        assert told(rankc, "compile", work / "large.onnx", "-o", work / "large", "--reuse", "override", *words) == "", words
    built = told(rankc, "compile", work / "large.onnx", "-o", work / "large", "--reuse", "override")
    assert "\rcompiling: " in built and is_clean(built), built
    assert "\rhashing " in told(rankc, "verify", work / "large") and told(rankc, "verify", work / "large", "-q") == ""

    data = TESTS / "training/mlp"
    for name, plan in (("one", ["--pas", "dp"]), ("two", ["--pas", "tp", "--plan-ngpus", "2"])):
        call(rankc, "compile", data / "model.onnx", "--train", "-o", work / name, "-q", *plan)
        train = [rankc, "train", work / name, "--data", f"target={data}/target.npy", "--data", f"x={data}/x.npy", "--json",
                 "--checkpoint-dir", work / f"{name}.saved", "--steps"]
        first, second = told(*train, 3), told(*train, 5, "--resume", "latest")
        for what in ("loading weights: tensor 1 of 6", "step 1 of 3, 0:00:0\\d left, loss [\\d.]+", "saving optimizer: tensor 1 of"):
            assert re.search(rf"\r{what}.*?\x1b\[K", first), (name, what, first)
        for what in ("loading parameters: tensor", "loading optimizer: tensor", "step 4 of 5"):
            assert f"\r{what}" in second, (name, what, second)
        assert is_clean(first) and is_clean(second) and "[0]" not in first + second, (first, second)
        assert told(*train, 6, "--resume", "latest", "-q") == ""
    text = told(rankc, "verify", work / "gpt", "--numeric")
    assert "\rrunning: 1 of 3, the model on one rank\x1b[K" in text and is_clean(text), text
    # A diagnostic of a rank does not stand behind a line of progress.
    text = told(rankc, "run", work / "gpt", "--input", f"input_ids={work}/none.npy", code=6)
    assert re.search(r"(^|\n|\x1b\[K)rankc: error", text) and is_clean(text), text


MPI_OF_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
               "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
               "ASAN_OPTIONS": "detect_leaks=0"}  # those of Open MPI


def read_until(pattern, seconds, *words, **environment):
    """What a command writes to stderr, a terminal, until that stands there or the time is over. Then it is ended."""
    ours, theirs = pty.openpty()
    text, end = "", time.monotonic() + seconds
    child = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=theirs,
                             env={**os.environ, "TERM": "xterm", **environment}, start_new_session=True)
    os.close(theirs)
    try:
        while time.monotonic() < end and not re.search(pattern, text):
            if select.select([ours], [], [], 0.1)[0]:
                text += os.read(ours, 4096).decode()
    except OSError: # the other end is closed: it has ended by itself
        pass
    os.killpg(child.pid, signal.SIGTERM)
    try:
        while os.read(ours, 4096):
            pass
    except OSError: # the other end is closed
        pass
    child.wait(timeout=60)
    os.close(ours)
    return text


def check_progress_under_mpirun(rankc, work):
    """Rank 0 alone tells how far a run is; unless it is told to, only if standard error of mpirun is a terminal."""
    data = TESTS / "training/mlp"
    program, run = next((work / "two").glob("*/_/build/train")), next((work / "gpt").glob("*/_/build/run"))
    data = ["--data", f"target={data}/target.npy", "--data", f"x={data}/x.npy"]
    train, infer = [*data, "--threads", 1, "--json", "--steps"], ["--random-inputs", "--threads", 1, "--json", "--repeat"]
    line, many = r"\rstep \d+ of 100000000, \d+:\d\d:\d\d left, loss [-\d.e]+\x1b\[K", 100000000
    os.environ.update(MPI_OF_ROOT)
    for name in ("mpirun.openmpi", "mpiexec.mpich"):
        if not shutil.which(name):
            continue
        mpirun = [name, "-n", 2]
        for words, loss in ([program, *train], r", loss [-\d.e]+"), ([run, *infer], ""):
            text = told(*mpirun, *words, 4)
            assert re.search(rf"\rstep 1 of 4, 0:00:0\d left{loss}\x1b\[K", text) and is_clean(text), (name, text)
            numbers = re.findall(r"\rstep (\d+) of 4", text)
            assert numbers == sorted(set(numbers)), (name, numbers)  # of one rank
            assert told(*mpirun, *words, 4, "--quiet") == "", name
        text = read_until(line, 60, *mpirun, program, *train, many)
        assert re.search(line, text), (name, text)
        # mpirun's stderr is no terminal, though that of the shell that started it is
        text = read_until(line, 3, "sh", "-c", '"$@" 2>&1 >/dev/null | cat >&2', "sh", *mpirun, program, *train, many)
        assert "\rstep" not in text, (name, text)
        (work / name).mkdir()
        (work / name / "mpirun").write_text(f'#!/bin/sh\nexec {name} "$@"\n')
        (work / name / "mpirun").chmod(0o755)
        for more in ([], ["--restarts", 1, "--checkpoint-dir", work / name / "saved"]):
            text = read_until(line, 60, rankc, "train", work / "two", *train, many, "--comm", "mpi", *more,
                              PATH=f"{work}/{name}:{os.environ['PATH']}")
            assert re.search(line, text) and is_clean(text[:text.rindex("\r")]), (name, text)


def main():
    rankc = rankc_of(__doc__)
    with tempfile.TemporaryDirectory() as work:
        check_run(rankc, pathlib.Path(work))
        check_place(rankc, pathlib.Path(work))
        check_train(rankc, pathlib.Path(work))
        check_progress(rankc, pathlib.Path(work))
        check_progress_of_compile(rankc, pathlib.Path(work))
        check_progress_of_the_rest(rankc, pathlib.Path(work))
        check_progress_under_mpirun(rankc, pathlib.Path(work))
        check_edit(rankc, pathlib.Path(work))


main()
