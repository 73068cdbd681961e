#!/usr/bin/python3
"""Compiles racing on one directory: races.py --rankc RANKC [--races N]

A race is eight compiles of one model into one directory, started together, while a reader looks on under the shared lock.
Even races: all run to their end, with the same options (--reuse=match) or each with one of three plans (--reuse=moo).
Odd races: whoever holds the lock for writing is killed, three times. Then a compile more. Checked: every exit status is
0 or a signal of ours; what the reader saw, each time, and what is there at the end is one lone compile's result, byte for
byte; nothing is left over; nobody waited for a dead owner.
"""
import fcntl
import os
import random
import shutil
import signal
import subprocess
import time

from harness import (MODELS, Failed, compile_command, dims_of, expect, instance, leftovers, parse, plan_of, rankc, snapshot,
                     sweep)

MODEL = os.path.join(MODELS, "gpt2", "model.onnx")
DIMS = dims_of(MODEL)
PLANS = [plan_of(name).options for name in ("one", "tp2", "pp2")]
COMPILES, KILLS, PATIENCE = 8, 3, 60


class Race:
    def __init__(self, program, work, number):
        self.program, self.out = program, os.path.join(work, "out")
        self.lock = os.path.join(self.out, ".lock-model-_")
        self.kills = KILLS if number % 2 else 0
        self.one_plan = number % 4 < 2
        self.random = random.Random(number)
        self.lone = [self.compile_alone(plan, os.path.join(work, str(i))) for i, plan in enumerate(self.plans())]
        self.killed = set()

    def plans(self):
        return PLANS[1:2] if self.one_plan else PLANS

    def command(self, plan, out, reuse="match"):
        return compile_command(MODEL, out, *DIMS, *plan, "--no-build", "--reuse", reuse, "--lock-timeout", str(PATIENCE))

    def compile_alone(self, plan, out):
        rankc(self.program, *self.command(plan, out)).must(0, reused="nothing")
        return snapshot(instance(out))

    def start(self):
        reuse = "match" if self.one_plan else "moo"
        plans = [self.random.choice(self.plans()) for _ in range(COMPILES)]
        return [subprocess.Popen([self.program, *self.command(plan, self.out, reuse)], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True) for plan in plans]

    def kill_owner(self, racers):
        """The lock file says who writes."""
        try:
            with open(self.lock) as file:
                owner = int(file.read().split()[0])
        except (OSError, ValueError, IndexError):
            return
        for racer in racers:
            if racer.pid == owner and racer.poll() is None:
                time.sleep(self.random.random() * 0.01)
                racer.send_signal(signal.SIGKILL)
                racer.wait()
                if racer.returncode == -signal.SIGKILL:
                    self.killed.add(owner)

    def look(self):
        """A reader: what is there while nobody may write."""
        try:
            lock = os.open(self.lock, os.O_RDONLY)
        except OSError:
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            directory = os.path.join(self.out, "model", "_")
            if os.path.isdir(directory):
                expect(snapshot(directory) in self.lone, "a reader saw a mixed result")
        except BlockingIOError:
            pass
        finally:
            os.close(lock)

    def run(self):
        racers = self.start()
        end = time.monotonic() + PATIENCE
        try:
            while any(r.poll() is None for r in racers):
                expect(time.monotonic() < end, "stuck")
                self.kill_owner(racers) if len(self.killed) < self.kills else self.look()
                time.sleep(0.001)
        finally:
            for racer in racers:
                racer.kill()
        for racer in racers:
            wrong = racer.wait() != 0 and racer.pid not in self.killed
            expect(not wrong, f"exit {racer.returncode}: {racer.stderr.read()[:400]}")
        self.check()

    def check(self):
        """What is there is whole; one compile more finds it so, at once, and leaves nothing else behind."""
        begin = time.monotonic()
        if os.path.isdir(os.path.join(self.out, "model", "_")):
            expect(snapshot(instance(self.out)) in self.lone, "a mixed result")
        rankc(self.program, *self.command(PLANS[1], self.out, "moo"), timeout=PATIENCE)
        expect(time.monotonic() - begin < PATIENCE / 2, "the lock of the dead was waited for")
        expect(snapshot(instance(self.out)) == self.lone[0 if self.one_plan else 1], "not what a lone compile gives")
        rankc(self.program, *self.command(PLANS[1], self.out, "override")).must(0, reused="nothing")
        expect(not leftovers(self.out), f"left over: {leftovers(self.out)}")


def killed_in_make(program, work):
    """A compile that is killed while make runs: the next one finds its own result, and what make goes on with is not left over."""
    out = os.path.join(work, "out")
    words = compile_command(os.path.join(MODELS, "mlp", "model.onnx"), out, *dims_of(os.path.join(MODELS, "mlp", "model.onnx")))
    rankc(program, *words).must(0, reused="nothing")
    staged = os.path.join(out, "model", "._.new", "build")
    with subprocess.Popen([program, *words, *PLANS[1], "--reuse", "override"], stdout=subprocess.DEVNULL) as killed:
        end = time.monotonic() + PATIENCE
        while not (os.path.isdir(staged) and any(name.endswith(".o") for name in os.listdir(staged))):
            expect(time.monotonic() < end and killed.poll() is None, "make was not seen")
        killed.kill()
    rankc(program, *words).must(0, reused="all")
    time.sleep(0.5)
    expect(not leftovers(out), f"left over: {leftovers(out)}")


def race(number):
    def case(program, work):
        for _ in range(20):
            one = Race(program, work, number)
            one.run()
            if bool(one.killed) == bool(one.kills):
                return
            shutil.rmtree(work)  # all were too quick to be killed
            os.makedirs(work)
        raise Failed("no owner was caught")
    return case


if __name__ == "__main__":
    options = parse(__doc__, "--races")
    count = int(options.races or 200)
    sweep(f"races of {COMPILES} compiles, half of them with killed owners",
          {f"race {i}{', owners killed' if i % 2 else ''}": race(i) for i in range(count)} | {"killed in make": killed_in_make}, options)
