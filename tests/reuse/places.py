#!/usr/bin/python3
"""Places that do not want a result, and tools that do not make one: places.py --rankc RANKC

Directories that are read-only, full, files, links or someone else's; locks that are stale or held; compilers that are
missing, fail or crash. Checked: exit status and error, that an earlier result stays as it was and usable, and that
nothing is left over. What needs a file system of its own mounts one in a namespace (unshare), and is skipped where that
is not allowed.
"""
import fcntl
import os
import shutil
import subprocess
import sys
import time

from harness import (MODELS, Skipped, call, compile_command, dims_of, expect, flip_bit, instance, leftovers, parse, rankc,
                     snapshot, sweep)

MODEL = os.path.join(MODELS, "mlp", "model.onnx")
INPUT = "x=" + os.path.join(MODELS, "mlp", "inputs", "x.npy")
GPT2 = os.path.join(MODELS, "gpt2", "model.onnx")
TP2 = ["--pas", "tp", "--plan-ngpus", "2"]
NOBODY = 65534
QUICK = {"CFLAGS": os.environ.get("CFLAGS", "-O0")}


def compiled(program, out, *options, **run):
    return rankc(program, *compile_command(MODEL, out, *options), env=run.pop("env", QUICK), **run)


def runs(program, out, **run):
    done = rankc(program, "run", out, "--input", INPUT, env=run.pop("env", QUICK), **run)
    expect(done.status == 0, f"the result does not run: {done.stderr}")


def refused(program, out, status, error, *options, **run):
    """Where there is a result, a compile that must write is refused and the result stays and runs."""
    before = snapshot(out)
    compiled(program, out, "--reuse", "override", *options, **run).must(status, error)
    expect(snapshot(out) == before, "the earlier result was touched")
    expect(not leftovers(out), f"left over: {leftovers(out)}")
    runs(program, out)


# Places ---------------------------------------------------------------------------------------------------------------

def parent_missing(program, work):
    compiled(program, f"{work}/a/b/c", "--no-build").must(0, reused="nothing")


def a_file(depth):
    def case(program, work):
        path = os.path.join(work, "out", *["model", "_"][:depth])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write("mine")
        for mode in ("match", "moo", "override"):
            compiled(program, f"{work}/out", "--no-build", "--reuse", mode).must(6, "E0611")
        expect(open(path).read() == "mine", "the file was touched")
    return case


def a_link(name):
    """Planted for one of our names: nothing is written through it."""
    def case(program, work):
        target, link = os.path.join(work, "target"), os.path.join(work, "out", name)
        os.makedirs(os.path.dirname(link))
        os.makedirs(target)
        os.symlink(target, link)
        compiled(program, f"{work}/out", "--no-build").must(6, "E0613")
        expect(not os.listdir(target), "something was written through the link")
    return case


def staging_is_a_link(program, work):
    """What lies where a killed compile may have left something is removed, not followed."""
    target = os.path.join(work, "target")
    os.makedirs(target)
    with open(f"{target}/keep", "w"):
        pass
    for name in (".new", ".old"):
        os.makedirs(f"{work}/out/model", exist_ok=True)
        os.symlink(target, f"{work}/out/model/._{name}")
    compiled(program, f"{work}/out", "--no-build").must(0, reused="nothing")
    expect(os.listdir(target) == ["keep"], "the link was followed")


def not_ours(program, work):
    """A directory of another user's: it can be reused and run, and not written."""
    if os.getuid():
        raise Skipped("not root")
    os.chmod(work, 0o755)
    if subprocess.run([program, "--version"], user=NOBODY, capture_output=True).returncode:
        raise Skipped("others cannot start rankc")
    out = f"{work}/out"
    compiled(program, out).must(0, reused="nothing")
    compiled(program, out, user=NOBODY).must(0, reused="all")
    runs(program, out, user=NOBODY)
    before = snapshot(out)
    for options in (TP2, ["--reuse", "override"], ["--reuse", "moo", *TP2]):
        done = compiled(program, out, *options, user=NOBODY)
        expect((done.status, done.error) in ((6, "E0611"), (8, "E0801")), f"{done.status} {done.stderr}")
    expect(snapshot(out) == before, "the result was touched")
    compiled(program, f"{out}/sub", user=NOBODY).must(6, "E0611")


def read_only(program, work):
    out = mounted(work, "64m")
    compiled(program, out).must(0, reused="nothing")
    subprocess.run(["mount", "-o", "remount,ro", out], check=True)
    compiled(program, out).must(0, reused="all")
    runs(program, out)
    refused(program, out, 6, "E0611")
    compiled(program, f"{out}/sub", "--no-build").must(6, "E0611")


def full(program, work, more=TP2, step=4096):
    """Every amount of space that is too little, until it is enough."""
    out = mounted(work, "4m")
    model = f"{work}/model.onnx"
    shutil.copy(GPT2, model)
    options = [*dims_of(GPT2), "--no-build"]
    rankc(program, *compile_command(model, out, *options)).must(0, reused="nothing")
    before, tries = snapshot(out), 0
    while True:
        tries += 1
        fill(f"{out}/ballast", step * tries)
        done = rankc(program, *compile_command(model, out, *options, *more, "--reuse", "moo"))
        os.remove(f"{out}/ballast")
        if done.status == 0:
            break
        done.must(6, "E0611")
        expect("No space left" in done.stderr, done.stderr)
        expect(snapshot(out) == before and not leftovers(out), "the earlier result was touched, or something left over")
    expect(tries > 10, f"only {tries} sizes were too small")


def full_of_copies(program, work):
    """The same with the weights, in steps that end inside of them."""
    full(program, work, [*TP2, "--weights", "copy"], 20000)


def fill(path, free):
    """Fills the file system but for so many bytes."""
    room = os.statvfs(os.path.dirname(path))
    with open(path, "wb") as file:
        file.write(b"\0" * max(0, room.f_bavail * room.f_frsize - free))


def no_space_to_build(program, work):
    """Sources fit, the program does not (with sanitizers it has 10 MB): the old one stays."""
    out = mounted(work, "64m")
    compiled(program, out).must(0, reused="nothing")
    fill(f"{out}/ballast", 150 << 10)
    before = snapshot(out)
    done = compiled(program, out, "--reuse", "override", env=dict(QUICK, TMPDIR=work))
    expect((done.status, done.error) in ((6, "E0621"), (6, "E0611")), f"{done.status} {done.stderr}")
    expect(snapshot(os.path.join(out, "model", "_")) == {k[len("model/_/"):]: v for k, v in before.items()
                                                         if k.startswith("model/_/")}, "the earlier result was touched")
    runs(program, out)


def no_exchange(program, work):
    """A file system that cannot exchange: two renames, and one that was killed between them is put right."""
    if not shutil.which("strace"):
        raise Skipped("no strace")
    out = f"{work}/out"
    tracing = ["strace", "-f", "-qq", "-o", os.devnull, "-e", "inject=renameat2:error=EINVAL"]
    again = compile_command(MODEL, out, "--no-build", "--reuse", "override")
    compiled(program, out, "--no-build").must(0, reused="nothing")
    before = snapshot(out)
    rankc(*tracing, program, *again).must(0, reused="nothing")
    expect(snapshot(out) == before and not leftovers(out), "not the same result, or something left over")
    done = rankc(*tracing, "-e", "inject=rename:signal=KILL:when=2", program, *again)
    expect(done.status != 0 and not os.path.exists(f"{out}/model/_"), f"it was not killed in between: {done.status}")
    compiled(program, out, "--no-build").must(0, reused="all")
    expect(snapshot(instance(out)) == {k[len("model/_/"):]: v for k, v in before.items()}, "the old result is gone")


def mounted(work, size):
    """A file system of its own. Only inside of unshare (alone)."""
    out = os.path.join(work, "out")
    os.makedirs(out)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", out], check=True)
    return out


def alone(name):
    """Runs a case in a namespace where it may mount."""
    def case(program, work):
        del work
        if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
            raise Skipped("unshare is not allowed")
        call("unshare", "-rm", sys.executable, "-B", __file__, "--rankc", program, "--inside", name)
    return case


# Locks ----------------------------------------------------------------------------------------------------------------

def stale_lock(program, work):
    """A lock file of a process that is gone, here or elsewhere, holds nobody up."""
    os.makedirs(f"{work}/out")
    for text in ("999999999 here 2020-01-01T00:00:00Z\n", "1 another.host 2020-01-01T00:00:00Z\n", "\0\xff" * 999):
        with open(f"{work}/out/.lock-model-_", "w") as file:
            file.write(text)
        begin = time.monotonic()
        compiled(program, f"{work}/out", "--no-build", "--reuse", "override", "--lock-timeout=9").must(0, reused="nothing")
        expect(time.monotonic() - begin < 5, "waited for nobody")


def held_lock(program, work):
    """A lock that is held is waited for, then exit 7; one for reading holds up only who must write."""
    out = f"{work}/out"
    compiled(program, out).must(0, reused="nothing")
    lock = os.open(f"{out}/.lock-model-_", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.write(lock, f"{os.getpid()} {os.uname().nodename} 2020-01-01T00:00:00Z\n".encode())
    begin = time.monotonic()
    done = compiled(program, out, "--lock-timeout=1").must(7, "E0701")
    expect(0.9 < time.monotonic() - begin < 20, "not the time that was asked for")
    expect(f"process {os.getpid()} on" in done.stderr, f"the owner is not named: {done.stderr}")
    rankc(program, "run", out, "--input", INPUT, "--lock-timeout=0").must(7, "E0701")
    os.ftruncate(lock, 0)
    fcntl.flock(lock, fcntl.LOCK_SH)
    compiled(program, out, "--lock-timeout=0").must(0, reused="all")
    refused(program, out, 7, "E0701", "--lock-timeout=0")
    os.close(lock)
    compiled(program, out, "--reuse=override", "--lock-timeout=0").must(0, reused="nothing")


def cache(program, work):
    """`rankc run MODEL` compiles once; a program that runs from the cache does not hold up another."""
    environment = dict(QUICK, XDG_CACHE_HOME=work)
    command = [program, "run", MODEL, "--input", INPUT]
    for _ in range(2):
        runs(program, MODEL, env=environment)
    first = subprocess.Popen([*command, "--repeat", "1000000000"], env={**os.environ, **environment}, stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        expect(first.poll() is None, "the first ended")
        rankc(*command, "--lock-timeout=0", env=environment).must(0)
        rankc(*command, "--lock-timeout=0", "--runtime-ngpus=2", env=environment).must(0)
    finally:
        first.terminate()
        first.wait()


# Models ---------------------------------------------------------------------------------------------------------------

def model_changed(program, work):
    """A program whose model was edited in place, with its time set back, does not run."""
    model = shutil.copy(MODEL, f"{work}/model.onnx")
    rankc(program, *compile_command(model, f"{work}/out"), env=QUICK).must(0, reused="nothing")
    run = ["run", f"{work}/out", "--input", INPUT]
    rankc(program, *run).must(0)
    info = os.stat(model)
    os.chmod(model, 0o600)
    rankc(program, *run).must(0)
    flip_bit(model, info.st_size // 2)
    expect(os.stat(model).st_mtime_ns == info.st_mtime_ns, "the time is not set back")
    rankc(program, *run).must(8, "E0802")
    os.remove(model)
    rankc(program, *run).must(6, "E0608")


def model_moved(program, work):
    """location.json is rewritten, and nothing else."""
    model = shutil.copy(MODEL, f"{work}/model.onnx")
    rankc(program, *compile_command(model, f"{work}/out"), env=QUICK).must(0, reused="nothing")
    before = snapshot(f"{work}/out")
    os.makedirs(f"{work}/b")
    moved = shutil.move(model, f"{work}/b/model.onnx")
    rankc(program, "run", f"{work}/out", "--input", INPUT).must(6, "E0608")
    rankc(program, *compile_command(moved, f"{work}/out"), env=QUICK).must(0, reused="all")
    runs(program, f"{work}/out")
    expect(snapshot(f"{work}/out") == before and not leftovers(f"{work}/out"), "more than location.json changed")
    os.remove(instance(f"{work}/out") + "/location.json")
    rankc(program, *compile_command(moved, f"{work}/out"), env=QUICK).must(0, reused="all")
    runs(program, f"{work}/out")


# Compilers ------------------------------------------------------------------------------------------------------------

def compiler(script):
    """A C compiler that does this; None: there is none."""
    def case(program, work):
        path = os.path.join(work, "cc")
        if script:
            with open(path, "w") as file:
                file.write("#!/bin/sh\n" + script)
            os.chmod(path, 0o755)
        environment = dict(QUICK, CC=path)
        compiled(program, f"{work}/new", env=environment).must(6, "E0621")
        expect(not os.path.exists(f"{work}/new/model/_"), "a result without program")
        compiled(program, f"{work}/new").must(0, reused="nothing")
        compiled(program, f"{work}/out").must(0, reused="nothing")
        before = snapshot(instance(f"{work}/out"))
        compiled(program, f"{work}/out", "--reuse", "override", env=environment).must(6, "E0621")
        expect(snapshot(instance(f"{work}/out")) == before, "the earlier result was touched")
        runs(program, f"{work}/out")
    return case


def no_make(program, work):
    compiled(program, f"{work}/out", env=dict(QUICK, PATH=work)).must(6, "E0621")
    compiled(program, f"{work}/out").must(0, reused="nothing")


ALONE = {"read-only file system": read_only, "full file system": full, "no room for weights": full_of_copies, "no space to build": no_space_to_build}
CASES = {
    "parent is missing": parent_missing,
    "output is a file": a_file(0), "model's directory is a file": a_file(1), "result is a file": a_file(2),
    "model's directory is a link": a_link("model"), "result is a link": a_link("model/_"),
    "lock is a link": a_link(".lock-model-_"), "leftovers are links": staging_is_a_link,
    "another user's": not_ours,
    **{name: alone(name) for name in ALONE}, "no exchange": no_exchange,
    "stale lock": stale_lock, "held lock": held_lock, "cache": cache,
    "model changed": model_changed, "model moved": model_moved,
    "no compiler": compiler(None), "compiler fails": compiler("echo no luck >&2; exit 3\n"),
    "compiler crashes": compiler("kill -SEGV $$\n"), "no make": no_make,
}


if __name__ == "__main__":
    given = parse(__doc__, "--inside")
    sweep("places and tools", {given.inside: ALONE[given.inside]} if given.inside else CASES, given)
