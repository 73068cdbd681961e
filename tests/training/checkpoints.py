#!/usr/bin/python3
"""Directories of checkpoints that others write to as well: another run, an intruder, a disk that is full, a signal.

    checkpoints.py --rankc RANKC --kill-at KILL_AT.so [--cases N] [--every N] [--background] [NAME...]

Each check is a function here. A checkpoint is right if its files are those of a run that nothing disturbed, byte for byte.
`rivals`, `kills` and `signals` draw --cases cases; case i is the same in every run. `failing` and `saving` go through every call
of a save by one rank, and every --every-th by two. With --background checkpoints are written with --checkpoint-async, and must be the
same; `saving` is not for that, since a signal during the last save comes after the last step."""
import errno
import fcntl
import functools
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

from harness import Failed, call, expect, lines_of, parser_of, report
from runs import Bench, checkpoints, equal_folders, numbers

SOON = 60  # seconds within which anything happens here, however busy the machine
STEPS = 24


def start(program, steps, *options, log=None, **how):
    """A training run that goes on meanwhile; its log is in .log."""
    bench = program.bench
    bench.logs += 1
    log = log or bench.path(f"{bench.logs}.jsonl")
    run = subprocess.Popen([bench.rankc, "train", program.directory, *program.data(), "--steps", str(steps), "--threads", "1",
                            "--log", log, *bench.saved_by(options), *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **how)
    run.log = log
    return run


def finish(run):
    """Exit code and what it said."""
    try:
        said = run.communicate(timeout=SOON)[1]
    finally:
        run.kill()
    return run.returncode, said


def until(condition, what):
    end = time.monotonic() + SOON
    while not condition():
        expect(time.monotonic() < end, f"{what}: not within {SOON} s")
        time.sleep(0.002)


def logged(run):
    """The complete lines so far."""
    if not os.path.exists(run.log):
        return 0
    with open(run.log) as log:
        return log.read().count("\n")


def undisturbed(bench, plan, steps=STEPS):
    """A program, the lines of a run of it, and the directory with the checkpoint of each step."""
    program, directory = bench.compile(plan, plan), bench.path(f"{plan}.whole")
    shutil.rmtree(directory, ignore_errors=True)
    return program, program.train(steps, "--checkpoint-dir", directory, "--checkpoint-every", "1"), directory


def expect_right(directory, whole, names=None):
    """Nothing but checkpoints is there, each complete; `names`: just these."""
    found = checkpoints(directory)
    expect(names is None or found == sorted(names), f"there are {found}, not {names}")
    for name in found:
        expect(re.fullmatch("step-[0-9]+", name), f"{name} is left")
        equal_folders(os.path.join(directory, name), os.path.join(whole, name))


def rivals(bench):
    """Of two runs with one directory at the same time, one ends with exit code 7 and names the other, which is not disturbed."""
    made = {plan: undisturbed(bench, plan) for plan in ("one", "tp2")}
    directory, broken = bench.path("shared"), []
    for case in range(bench.cases):
        dice = random.Random(f"rivals {case}")
        program, _, whole = made[dice.choice(["one", "tp2"])]
        late, resumed = dice.choice([0, dice.uniform(0, 0.05), dice.uniform(0, 0.3)]), dice.random() < 0.5
        shutil.rmtree(directory, ignore_errors=True)
        options = ["--checkpoint-dir", directory, "--checkpoint-every", "1"]
        if resumed:
            shutil.copytree(os.path.join(whole, "step-2"), os.path.join(directory, "step-2"))
            options += ["--resume", "latest"]
        runs = [start(program, STEPS, *options)]
        time.sleep(late)
        runs.append(start(program, STEPS, *options))
        ends = [finish(run) for run in runs]
        try:
            check_rivals(ends, runs, directory)
            expect_right(directory, whole, [f"step-{step}" for step in range(2 if resumed else 1, STEPS + 1)])
        except Failed as wrong:
            broken.append(f"case {case}: {wrong}")
    expect(not broken, f"{len(broken)} of {bench.cases} trials are broken\n" + "\n".join(broken))
    return f"{bench.cases} trials, 0 broken"


def check_rivals(ends, runs, directory):
    """One run ends well. The other says who that is, unless they did not meet: then it finds checkpoints, or has nothing to do."""
    codes = [code for code, _ in ends]
    expect(0 in codes and set(codes) <= {0, 2, 7}, f"exit codes {codes}: {ends}")
    for (code, said), other in zip(ends, reversed(runs)):
        if code == 7:
            expect("error[E0701]" in said and f"'{directory}'" in said and f"process {other.pid} on " in said, said)
        expect(code != 2 or "earlier run" in said, said)


def locked(bench):
    """A run that was killed leaves no lock, whatever its file says; the next one removes what it left."""
    program, lines, whole = undisturbed(bench, "tp2", 8)
    directory = bench.path("locked")
    run = start(program, 1000000, "--checkpoint-dir", directory, "--checkpoint-every", "1")
    until(lambda: len(checkpoints(directory)) > 4, "checkpoints")
    code, said = finish(start(program, 8, "--checkpoint-dir", directory))
    expect(code == 7 and f"process {run.pid} on " in said, said)
    code, said = finish(start(program, 8, "--checkpoint-dir", directory, "--resume", "latest", "--comm", "loopback"))
    expect(code == 7 and f"process {run.pid} on " in said, said)
    run.kill()
    finish(run)
    expect(os.path.exists(os.path.join(directory, ".lock")), "the run removed its lock")
    for name in checkpoints(directory):
        if name not in ("step-1", "step-2", ".lock"):
            shutil.rmtree(os.path.join(directory, name))
    os.makedirs(os.path.join(directory, ".writing-7-0123abcd"))
    again = program.train(8, "--checkpoint-dir", directory, "--resume", "latest")
    expect(numbers(again) == numbers(lines[2:]), "other numbers")
    expect_right(directory, whole, ["step-1", "step-2", "step-8"])


def kills(bench):
    """A rank or the launcher killed at any time, two ranks saving each step: all checkpoints are whole; what else is left, the next
    run removes, and goes on bit for bit."""
    most = 100
    program, lines, whole = undisturbed(bench, "tp2", most)
    directory, left = bench.path("kills"), 0
    for case in range(bench.cases):
        dice = random.Random(f"kills {case}")
        shutil.rmtree(directory, ignore_errors=True)
        run = start(program, most - 1, "--checkpoint-dir", directory, "--checkpoint-every", "1")
        until(lambda: "step-1" in checkpoints(directory) or run.poll() is not None, "a save")
        time.sleep(dice.uniform(0, 0.1))
        give_signal(run, signal.SIGKILL, dice.choice(["launcher", "rank", "rank"]), dice)
        finish(run)
        until(lambda: not busy(directory), "the end of its ranks")
        names = checkpoints(directory)
        other = [name for name in names if not name.startswith("step-")]
        expect(all(re.fullmatch(r"\.lock|\.(writing|removing)-[0-9]+-[0-9a-f]{8}", name) for name in other), f"case {case}: {other}")
        for name in set(names) - set(other):
            equal_folders(os.path.join(directory, name), os.path.join(whole, name))
        left += len(other) > 1
        done = len(names) - len(other)
        again = program.train(most, "--checkpoint-dir", directory, *(["--resume", "latest"] if done else []))
        expect(numbers(again) == numbers(lines[-len(again):]), f"case {case}: other numbers")
        expect_right(directory, whole, [f"step-{step}" for step in (*range(1, done + 1), most)])
    return f"{bench.cases} cases, {left} in a save"


def busy(directory):
    """Somebody has the lock."""
    try:
        with open(os.path.join(directory, ".lock")) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def outside(bench):
    """A directory that no run may touch, and a check that none has."""
    place = bench.path("outside")
    os.makedirs(os.path.join(place, "below"))
    for name in "checkpoint.json", "parameters-0.safetensors", "below/file":
        with open(os.path.join(place, name), "w") as file:
            file.write(name)
    before = {name: os.stat(os.path.join(place, name)).st_mtime_ns for name in sorted(os.listdir(place))}

    def untouched():
        now = {name: os.stat(os.path.join(place, name)).st_mtime_ns for name in sorted(os.listdir(place))}
        expect(now == before and os.listdir(os.path.join(place, "below")) == ["file"], f"{place} was changed: {now}")
    return place, untouched


def planted(bench):
    """Links in the directory are not followed: what they point to stays, whatever is saved, thinned out or removed."""
    program, _, whole = undisturbed(bench, "one", 4)
    place, untouched = outside(bench)
    directory = bench.path("planted")
    for exchange in {}, {"LD_PRELOAD": bench.kill_at, "KILL_NO_EXCHANGE": "1"}:
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(os.path.join(whole, "step-1"), os.path.join(directory, "step-1"))
        os.makedirs(os.path.join(directory, ".writing-2/deep/deeper"))
        for name in ".writing-99", ".writing-3-00000001", ".removing-1-0000abcd", "step-2", ".writing-2/link", ".writing-2/deep/link":
            os.symlink(place, os.path.join(directory, name))
        os.symlink(os.path.join(place, "below/file"), os.path.join(directory, ".writing-4"))
        program.train(4, "--checkpoint-dir", directory, "--checkpoint-every", "1", "--resume", "1", env=exchange)
        expect_right(directory, whole, ["step-1", "step-2", "step-3", "step-4"])
        untouched()
    os.symlink(place, os.path.join(directory, "step-0"))
    program.train(4, "--checkpoint-dir", directory, "--checkpoint-every", "1", "--resume", "3", "--keep", "2")
    expect_right(directory, whole, ["step-3", "step-4"])
    untouched()
    for target in place, "below/file", "/dev/full":
        shutil.rmtree(directory)
        os.makedirs(directory)
        os.symlink(os.path.join(place, target), os.path.join(directory, ".lock"))
        said = program.train(1, "--checkpoint-dir", directory, status=6)
        expect("error[E0611]" in said and f"'{directory}/.lock'" in said, said)
        untouched()


def loaded(bench):
    """What is loaded is no link, to a directory or to a file, symbolic or hard."""
    program, lines, whole = undisturbed(bench, "one", 3)
    place, directory = bench.path("place"), bench.path("loaded")

    def refused(code, text):
        said = program.train(3, "--checkpoint-dir", directory, "--resume", "latest", status=code)
        expect(text in said, said)
    shutil.copytree(os.path.join(whole, "step-2"), place)
    os.makedirs(directory)
    os.symlink(place, os.path.join(directory, "step-2"))
    refused(3, "step-2' is a symbolic link")
    for name in sorted(os.listdir(place)):
        for link in os.symlink, os.link:
            shutil.rmtree(directory)
            shutil.copytree(place, os.path.join(directory, "step-2"))
            os.unlink(os.path.join(directory, "step-2", name))
            link(os.path.join(place, name), os.path.join(directory, "step-2", name))
            refused(3, f"{name}' {'is a symbolic' if link == os.symlink else 'has more than one hard'} link")
    os.symlink(whole, bench.path("by-link"))  # the user's own path is
    again = program.train(3, "--checkpoint-dir", bench.path("by-link"), "--resume", "2")
    expect(numbers(again) == numbers(lines[2:]), "other numbers")


def damage(path, how):
    """To a file of a checkpoint."""
    with open(path, "rb") as file:
        content = bytearray(file.read())
    os.unlink(path)
    content[len(content) // 2] ^= how == "flip"
    if how != "remove":
        with open(path, "wb") as file:
            file.write(content[:len(content) // 2] if how == "cut" else content)


def older(bench):
    """Of the latest checkpoints those that are damaged, for one rank or for all, are passed over with a warning that names both;
    one that is named is refused, and the newest where all are damaged."""
    directory, log = bench.path("older"), bench.path("older.jsonl")
    for plan, comm in (("one", "auto"), ("tp2", "auto"), ("tp2", "loopback")):
        program, lines, whole = undisturbed(bench, plan, 4)

        def resume(which, faults):
            shutil.rmtree(directory, ignore_errors=True)
            shutil.copytree(whole, directory)
            for place, how in faults:
                damage(os.path.join(directory, place), how)
            if os.path.exists(log):
                os.unlink(log)
            done = call(bench.rankc, "train", program.directory, *program.data(), "--steps", "4", "--threads", "1", "--comm",
                        comm, "--resume", which, "--checkpoint-every", "1", "--checkpoint-dir", directory, "--log", log, status=None)
            return done.returncode, done.stderr, f"{plan}, {comm}, {faults}: exit {done.returncode}, {done.stderr}"

        def expect_older(faults, *passed):
            """The names of the checkpoints that are passed over, newest first."""
            code, said, where = resume("latest", faults)
            step = 4 - len(passed)
            expect(code == 0 and said.count("warning") == len(passed) and "error" not in said, where)
            for name in passed:
                expect(f"/{name}/" in said and f"loading 'step-{int(name[5:]) - 1}' instead of '{name}'" in said, where)
            expect(numbers(lines_of(log)) == numbers(lines[step:]), f"{where}: other numbers")
            expect_right(directory, whole, ["step-1", "step-2", "step-3", "step-4"])
        names = sorted(os.listdir(os.path.join(whole, "step-4")))
        for name in names:
            for how in "flip", "cut", "remove":
                expect_older([(f"step-4/{name}", how)], "step-4")
                code, said, where = resume("4", [(f"step-4/{name}", how)])
                expect(code == (6 if how == "remove" else 8) and name in said and "warning" not in said, where)
        expect_older([(f"step-4/{names[-1]}", "flip"), (f"step-4/{names[1]}", "remove")], "step-4")
        expect_older([(f"step-4/{names[-1]}", "flip"), (f"step-3/{names[1]}", "cut")], "step-4", "step-3")
        code, said, where = resume("latest", [(f"step-{step}/{names[-step % len(names)]}", "flip") for step in (1, 2, 3, 4)])
        expect(code == 8 and said.count("error[") == 1 and said.count("warning") == 3, where)
        expect(f"step-4/{names[-4 % len(names)]}' is damaged" in said[said.index("error["):], where)


def failing(bench):
    """Where writing fails - any call, and all that come after it, on one rank or on all - the run ends with exit code 6, names the
    file and the reason, and leaves nothing: the checkpoint before is there and goes on."""
    for plan, comm, error in (("one", "auto", errno.ENOSPC), ("tp2", "auto", errno.EIO), ("tp2", "loopback", errno.EDQUOT)):
        program, lines, whole = undisturbed(bench, plan, 4)
        start_from, directory = bench.path("before"), bench.path("victim.ckpt")
        shutil.rmtree(start_from, ignore_errors=True)
        program.train(3, "--checkpoint-dir", start_from, "--checkpoint-every", "2")
        for moment in range(1, 200, 1 if plan == "one" else bench.every):
            shutil.rmtree(directory, ignore_errors=True)
            shutil.copytree(start_from, directory)
            env = {"LD_PRELOAD": bench.kill_at, "KILL_AT": str(moment), "KILL_BELOW": "victim.ckpt/", "KILL_ERRNO": str(error)}
            done = call(bench.rankc, "train", program.directory, *program.data(), "--steps", "4", "--threads", "1", "--resume", "2",
                        "--checkpoint-every", "1", "--checkpoint-dir", directory, *bench.saved_by(["--checkpoint-dir"]), "--comm", comm,
                        env=env, status=None)
            if done.returncode == 0:
                break
            where = f"{plan}, {comm}, call {moment}: {done.stderr}"
            expect(done.returncode == 6 and os.strerror(error) in done.stderr and f"'{directory}" in done.stderr, where)
            expect("E0611" in done.stderr and done.stderr.count("error[") == 1, where)
            try:
                expect_right(directory, whole, [name for name in checkpoints(directory) if name == "step-4"] + ["step-2", "step-3"])
            except Failed as wrong:
                raise Failed(f"{where}{wrong}") from wrong
            again = program.train(4, "--checkpoint-dir", directory, "--resume", "2")
            expect(numbers(again) == numbers(lines[2:]), f"{where}: other numbers")
        expect(10 < moment < 199, f"{plan}: {moment} calls")


def full(bench):
    """A small file system, and a limit on the size of files: as above, and what fits stays."""
    program, _, whole = undisturbed(bench, "tp2", 4)
    directory = bench.path("limited")
    run = start(program, 4, "--checkpoint-dir", directory, "--comm", "loopback", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500)))
    code, said = finish(run)
    expect(code == 6 and "File too large" in said and ".safetensors'" in said, said)
    expect_right(directory, whole, [])
    small = bench.path("small")
    os.makedirs(small)
    options = ["-t", "tmpfs", "-o", "size=64k", "none", small]
    if subprocess.run(["mount", *options], stderr=subprocess.DEVNULL, check=False).returncode:
        return "ok, but no tmpfs can be mounted here"
    try:
        said = program.train(50, "--checkpoint-dir", small, "--checkpoint-every", "1", status=6)
        expect("E0611" in said and "No space left on device" in said and f"'{small}/" in said, said)
        there = checkpoints(small)
        expect(1 <= len(there) < 50 and all(name.startswith("step-") for name in there), f"{there}")
        equal_folders(os.path.join(small, "step-1"), os.path.join(whole, "step-1"))
        latest = max(int(name[5:]) for name in there)
        program.train(latest, "--checkpoint-dir", small, "--resume", "latest")
        program.train(50, "--checkpoint-dir", small, "--checkpoint-every", "1", "--resume", "latest", status=6)
        expect(there == checkpoints(small), f"{there}, then {checkpoints(small)}")
    finally:
        subprocess.run(["umount", small], check=True)
    return "ok"


def kept(bench):
    """--keep K keeps the newest K of the steps up to the last one; without it all stay."""
    program, _, whole = undisturbed(bench, "tp2", 9)
    directory = bench.path("kept")

    def train(steps, keep, *names, resume="latest"):
        options = ["--resume", resume] if os.path.exists(directory) else []
        program.train(steps, "--checkpoint-dir", directory, "--checkpoint-every", "1", "--keep", str(keep), *options)
        expect_right(directory, whole, [f"step-{step}" for step in names])
    train(4, 2, 3, 4)
    train(6, 3, 4, 5, 6)
    train(7, 1, 7)
    train(7, 1, 7)  # nothing is left to do
    train(9, 9, 7, 8, 9)
    train(8, 1, 8, 9, resume="7")  # of a run that was left, 9 stays
    for keep in "0", "-1", "x":
        said = program.train(9, "--checkpoint-dir", directory, "--resume", "latest", "--keep", keep, status=2)
        expect("--keep" in said, said)
    said = program.train(9, "--keep", "1", status=2)
    expect("--keep needs --checkpoint-dir" in said, said)


def signals(bench):
    """SIGTERM, SIGINT or SIGHUP, at any time, to the launcher, to the launcher and all ranks (Ctrl-C), or to one rank: the step under way ends
    on all ranks, is saved, exit 130."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and then stays so in programs
    programs = {plan: bench.compile(plan, plan) for plan in ("one", "tp2", "tp2data2")}
    directory, shortest, longest = bench.path("signals"), 1 << 30, 0
    for case in range(bench.cases):
        dice = random.Random(f"signals {case}")
        plan, number = dice.choice(list(programs)), dice.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
        comm, whom = dice.choice(["auto", "auto", "loopback"]), dice.choice(["launcher", "group", "rank"])
        delay = dice.choice([dice.uniform(0, 0.1), dice.uniform(0.1, 0.6), dice.uniform(0.5, 1)])
        shutil.rmtree(directory, ignore_errors=True)
        run = start(programs[plan], 10000000, "--checkpoint-dir", directory, "--comm", comm, start_new_session=True)
        if whom == "rank":
            until(lambda: logged(run) > 0, "a step")
        time.sleep(delay)
        give_signal(run, number, whom, dice)
        steps = check_signalled(programs[plan], run, directory, f"case {case}: {plan}, {comm}, {number!r} to the {whom} after {delay:.3f} s")
        shortest, longest = min(shortest, steps), max(longest, steps)
    return f"{bench.cases} cases, after {shortest} to {longest} steps"


def give_signal(run, number, whom, dice):
    if whom == "group":
        os.killpg(run.pid, number)
        return
    with open(f"/proc/{run.pid}/task/{run.pid}/children") as children:
        ranks = [int(pid) for pid in children.read().split()]
    os.kill(dice.choice(ranks) if whom == "rank" and ranks else run.pid, number)


def check_signalled(program, run, directory, where):
    """The run has logged and saved all steps that it made, and goes on bit for bit: its number of steps."""
    code, said = finish(run)
    expect(code == 130 and not said, f"{where}: exit {code}: {said}")
    steps = [line["step"] for line in lines_of(run.log)] if os.path.exists(run.log) else []
    expect(steps == list(range(1, len(steps) + 1)), f"{where}: lines are missing")
    expect(checkpoints(directory) == ([f"step-{len(steps)}"] if steps else []), f"{where}: {len(steps)} steps, {checkpoints(directory)}")
    if 0 < len(steps) < 1000:
        whole = program.bench.path("again")
        shutil.rmtree(whole, ignore_errors=True)
        expected = program.train(len(steps) + 2, "--checkpoint-dir", whole, "--checkpoint-every", str(len(steps)))
        equal_folders(os.path.join(directory, f"step-{len(steps)}"), os.path.join(whole, f"step-{len(steps)}"))
        lines = program.train(len(steps) + 2, "--checkpoint-dir", directory, "--resume", "latest")
        expect(numbers(lines_of(run.log) + lines) == numbers(expected), f"{where}: other numbers after resuming")
    return len(steps)


def saving(bench):
    """A signal at any call of a save, to one rank or to each: the save ends, and is the only one of its step."""
    for plan, comm in ("one", "auto"), ("tp2", "auto"), ("tp2", "loopback"):
        program, lines, whole = undisturbed(bench, plan, 6)
        directory = bench.path("victim.ckpt")
        for moment in range(1, 200, 1 if plan == "one" else bench.every):
            shutil.rmtree(directory, ignore_errors=True)
            env = {**os.environ, "LD_PRELOAD": bench.kill_at, "KILL_AT": str(moment), "KILL_BELOW": "victim.ckpt/",
                   "KILL_SIGNAL": str(int(signal.SIGTERM))}
            run = start(program, 2, "--checkpoint-dir", directory, "--comm", comm, env=env)
            code, said = finish(run)
            if code == 0:
                break
            steps = len(lines_of(run.log)) if os.path.exists(run.log) else 0
            expect(code == 130 and not said, f"{plan}, {comm}, call {moment}: exit {code}: {said}")
            expect_right(directory, whole, [f"step-{steps}"] if steps else [])
            if steps:
                again = program.train(6, "--checkpoint-dir", directory, "--resume", "latest")
                expect(numbers(lines_of(run.log) + again) == numbers(lines), f"{plan}, call {moment}: other numbers")
        expect(10 < moment < 199, f"{plan}: {moment} calls")


def evaluating(bench):
    """A signal in an evaluation saves at once and ends the run, which logs no evaluation; the resumed run makes it."""
    for plan, comm in ("one", "auto"), ("tp2", "auto"), ("tp2", "loopback"):
        program, lines, whole = undisturbed(bench, plan, 6)
        for steps in 3, 8:
            directory = bench.path("evaluating")
            shutil.rmtree(directory, ignore_errors=True)
            run = start(program, steps, "--checkpoint-dir", directory, *program.data("--eval-data"), "--eval-every", "3",
                        "--eval-steps", "10000000", "--comm", comm)
            until(lambda: logged(run) >= 3, "three steps")
            run.send_signal(signal.SIGTERM)
            code, said = finish(run)
            expect(code == 130 and not said, f"{plan}, {comm}: exit {code}: {said}")
            seen = lines_of(run.log)
            expect([line["step"] for line in seen] == [1, 2, 3] and "eval_loss" not in seen[-1], f"{seen}")
            expect(checkpoints(directory) == ["step-3"], f"{checkpoints(directory)}")
            equal_folders(os.path.join(directory, "step-3"), os.path.join(whole, "step-3"))
            for _ in range(2):  # the log has the evaluation the second time
                finish(start(program, 3, "--checkpoint-dir", directory, "--resume", "latest", *program.data("--eval-data"), "--eval-every", "3",
                             "--eval-steps", "2", log=run.log))
            seen = lines_of(run.log)
            expect([line["step"] for line in seen] == [1, 2, 3, 3] and "eval_loss" in seen[-1], f"{seen}")
            again = program.train(6, "--checkpoint-dir", directory, "--resume", "latest")
            expect(numbers(again) == numbers(lines[3:]), "other numbers")


def hanging(bench):
    """A signal ends a rank that waits for one which hangs: within --stall-timeout if that is less than 30 s."""
    program, place = bench.compile("hanging", "tp2"), bench.path("place")
    ranks = [subprocess.Popen([f"{program.directory}/model/_/build/run", *program.data(), "--steps", "1000000000", "--rank", str(rank), "--world", "2",
                               "--rendezvous", f"file:{place}", "--threads", "1", "--stall-timeout", "2", "--log", bench.path("hanging.jsonl"), "-q"],
                              stderr=subprocess.PIPE, text=True) for rank in range(2)]
    try:
        until(lambda: os.path.exists(bench.path("hanging.jsonl")) and os.path.getsize(bench.path("hanging.jsonl")), "a step")
        ranks[1].send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        ranks[0].send_signal(signal.SIGTERM)
        begun = time.monotonic()
        said = ranks[0].communicate(timeout=SOON)[1]
        expect(ranks[0].returncode == 9 and "E0912" in said and "within 2 s" in said, f"exit {ranks[0].returncode}: {said}")
        ranks[1].send_signal(signal.SIGCONT)
        ranks[1].communicate(timeout=SOON)
        expect(ranks[1].returncode == 9, f"exit {ranks[1].returncode}")
    finally:
        for rank in ranks:
            rank.kill()
    return f"{time.monotonic() - begun:.1f} s"


def check_log(log, directory):
    """All steps that are logged, and the last one saved."""
    steps = [line["step"] for line in lines_of(log)]
    expect(steps == list(range(1, len(steps) + 1)) and checkpoints(directory) == [f"step-{len(steps)}"], f"{len(steps)}: {checkpoints(directory)}")


def separate(bench):
    """Ranks that were started one by one: a signal that only one of them gets ends all after the same step."""
    program, directory = bench.compile("tp2", "tp2"), bench.path("separate")
    for victims in [0], [1], [0, 1]:
        shutil.rmtree(directory, ignore_errors=True)
        place, log = bench.path(f"place-{victims}"), bench.path(f"{victims}.jsonl")
        ranks = [subprocess.Popen([os.path.join(program.directory, "model/_/build/run"), *program.data(), "--steps", "10000000",
                                   "--threads", "1", "--checkpoint-dir", directory, "--log", log, "--rank", str(rank), "--world", "2",
                                   "--rendezvous", f"file:{place}"], stderr=subprocess.PIPE, text=True) for rank in (0, 1)]
        ranks[0].log = log
        until(lambda: logged(ranks[0]) > 2, "steps")
        code, said = finish(start(program, 8, "--checkpoint-dir", directory))
        expect(code == 7 and f"process {ranks[0].pid} on " in said, said)
        for victim in victims:
            ranks[victim].send_signal(signal.SIGINT)
        ends = [finish(rank) for rank in ranks]
        expect(ends == [(130, ""), (130, "")], f"{victims}: {ends}")
        check_log(log, directory)


def unequal(bench):
    """Ranks that see different directories, as hosts without a shared file system do, and of which one only reads: another checkpoint of
    the same step is refused on all ranks, and one that a rank does not have."""
    program = bench.compile("dp2", "dp2")
    one, other, shorter = (bench.path(name) for name in ("one.ckpt", "other.ckpt", "shorter.ckpt"))
    every = ["--checkpoint-every", "1"]
    program.train(3, "--checkpoint-dir", one, *every)
    program.train(3, "--checkpoint-dir", other, *every, "--lr", "0.5")
    shutil.copytree(one, shorter)
    shutil.rmtree(os.path.join(shorter, "step-3"))

    def resume(which, *directories):
        place = bench.path("-".join(["place", which, *map(os.path.basename, directories)]))
        ends = [finish(rank) for rank in [subprocess.Popen(
            [os.path.join(program.directory, "model/_/build/run"), *program.data(), "--steps", "3", "--threads", "1", "--checkpoint-dir", directory,
             "--resume", which, "--rank", str(rank), "--world", "2", "--rendezvous", f"file:{place}"], stderr=subprocess.PIPE, text=True)
            for rank, directory in enumerate(directories)]]
        return {code for code, _ in ends}, "".join(said for _, said in ends)
    for which in "2", "latest":
        codes, said = resume(which, one, other)
        expect(8 in codes and codes <= {8, 9} and said.count("error[E0805]") == 1, f"{which}: exit {codes}: {said}")
        expect(f"rank 1 has another checkpoint of step {which if which == '2' else 3} than rank 0" in said, said)
    codes, said = resume("3", one, shorter)
    expect(6 in codes and codes <= {6, 9} and "step-3" in said, f"exit {codes}: {said}")


CHECKS = [rivals, locked, kills, planted, loaded, older, failing, full, kept, signals, saving, evaluating, hanging, separate, unequal]


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--kill-at", required=True)
    parser.add_argument("--cases", type=int, default=8)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--background", action="store_true")
    parser.add_argument("names", nargs="*", default=[check.__name__ for check in CHECKS])
    options = parser.parse_args()

    def run(check, work):
        bench = Bench(options.rankc, options.kill_at, work)
        bench.cases, bench.every, bench.background = options.cases, options.every, options.background
        return check(bench) or "ok"
    return report((check.__name__, functools.partial(run, check)) for check in CHECKS if check.__name__ in options.names)


if __name__ == "__main__":
    sys.exit(main())
