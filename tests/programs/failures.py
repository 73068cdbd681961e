#!/usr/bin/python3
"""Kills, stops and crowds the ranks of running jobs, and checks what `rankc run` makes of it.

    failures.py --rankc RANKC [--table docs/reliability.md] kills|stops|load [--cases N] [--seconds S] [--late S]

A case is a job of 4 ranks (GPT-2, two ways tensor and two ways pipeline parallel) that would go on for hours:
  kills  a random rank gets SIGKILL at a random time after its start: the report names that rank at most --late seconds
         (0.1) later, the job ends within 1 s with exit code 9, and no process is left;
  stops  the same with SIGSTOP and --stall-timeout 1: the report names the rank after 1 s, at most --late seconds later, or
         earlier if the rank has stood still before;
  load   --stall-timeout 1 while 8 to 32 foreign processes compute, copy, write and fork, for S seconds (60): nothing is
         reported, and SIGTERM then ends the job with exit code 130.
Victim and launcher need the processor for that: where dozens of others queue for it, 0.1 s is not enough. Case i of a sweep
is the same in every run. With --table the counts of the sources under test (the git tree of runtime/)
are kept in a row of the table in that file: a sweep that is stopped at any point goes on behind the last case of its row.
Prints a line per case that is not as promised, and exits 1 if there is any.
"""
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_plans import plan_of  # noqa: E402
from rankc_test import Failed, call, dims_of, parser_of  # noqa: E402

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = os.path.join(TESTS, "models", "gpt2")
RANKS = 4
START = 120  # seconds within which all ranks are there, however busy the machine


class Job:
    """A running `rankc run`."""

    def __init__(self, rankc, directory, *options):
        inputs = os.path.join(MODEL, "inputs")
        command = [rankc, "run", directory, "--threads", "1", "--repeat", "10000000", *options]
        for name in sorted(os.listdir(inputs)):
            command += ["--input", f"{name[:-4]}={os.path.join(inputs, name)}"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.pids = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def wait_for_ranks(self):
        """Until every rank runs the program; fills pids, by rank."""
        until = time.monotonic() + START
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        while len(self.pids) < RANKS:
            if time.monotonic() > until or self.process.poll() is not None:
                raise Failed("the ranks did not start")
            for pid in open(children).read().split():
                words = open(f"/proc/{pid}/cmdline").read().split("\0")
                if "--rank" in words:
                    self.pids[int(words[words.index("--rank") + 1])] = int(pid)

    def signal_and_wait(self, rank, number):
        """Seconds until the report's first line, that line, and seconds until the end of the job."""
        start = time.monotonic()
        os.kill(self.pids[rank], number)
        line = self.process.stderr.readline()
        found = time.monotonic() - start
        self.process.stderr.read()
        self.process.wait(timeout=START)
        return found, line, time.monotonic() - start

    def check_gone(self):
        left = [pid for pid in self.pids.values() if os.path.exists(f"/proc/{pid}")]
        if left:
            raise Failed(f"processes are left: {left}")


def strike(sweep, case, number, report, limit, *options):
    """A case of kills or stops: seconds until it was found."""
    dice = random.Random(f"{sweep.name} {case}")
    rank, delay = dice.randrange(RANKS), 10 ** dice.uniform(-4, -0.3)
    with Job(sweep.rankc, sweep.directory, *options) as job:
        job.wait_for_ranks()
        time.sleep(delay)
        found, line, ended = job.signal_and_wait(rank, number)
        if not re.fullmatch(report.format(rank=rf"rank {rank} (of {RANKS} )?\(pid {job.pids[rank]}\)"), line):
            raise Failed(f"rank {rank} (pid {job.pids[rank]}) after {delay:.4f} s: the report begins {line!r}")
        if job.process.returncode != 9:
            raise Failed(f"exit {job.process.returncode}")
        job.check_gone()
    if found > limit + sweep.late:
        raise Failed(f"rank {rank} after {delay:.4f} s: found after {found:.3f} s")
    if ended > found + 1:
        raise Failed(f"rank {rank} after {delay:.4f} s: the job ended after {ended:.3f} s")
    return found


def kill(sweep, case):
    return strike(sweep, case, signal.SIGKILL, r"rankc: error\[E0911\]: {rank} was killed by signal 9 \(Killed\)\n", 0)


def stop(sweep, case):
    return strike(sweep, case, signal.SIGSTOP, r"rankc: error\[E09(12|03)\]: {rank} .* for 1\.\d s: it is stopped .*\n", 1,
                  "--stall-timeout", "1")


def compute():
    while True:
        sum(range(10000))


def copy():
    memory = bytearray(64 << 20)
    while True:
        memory[: 32 << 20] = memory[32 << 20 :]


def write():
    with tempfile.TemporaryFile() as file:
        while True:
            file.seek(0)
            file.write(os.urandom(1 << 20))
            os.fsync(file.fileno())


def fork():
    while True:
        subprocess.run(["true"], check=False)


def foreign(work):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever stops the sweep kills them
    work()


def crowd(sweep, case):
    """Seconds for which the job was watched."""
    dice = random.Random(f"{sweep.name} {case}")
    others = [multiprocessing.Process(target=foreign, args=[dice.choice([compute, compute, copy, write, fork])], daemon=True)
              for _ in range(dice.randrange(8, 33))]
    for other in others:
        other.start()
    start = time.monotonic()
    try:
        with Job(sweep.rankc, sweep.directory, "--stall-timeout", "1") as job:
            job.wait_for_ranks()
            time.sleep(sweep.seconds)
            watched = time.monotonic() - start
            job.process.send_signal(signal.SIGTERM)
            said = job.process.stderr.read()
            job.process.wait(timeout=START)
            if said or job.process.returncode != 130:
                raise Failed(f"{len(others)} others: exit {job.process.returncode}: {said}")
            job.check_gone()
    finally:
        for other in others:
            other.kill()
            other.join()
    return watched


class Sweep:
    CASES = {"kills": (kill, 300), "stops": (stop, 50), "load": (crowd, 60)}

    def __init__(self, args, directory):
        self.rankc, self.table, self.seconds, self.name = args.rankc, args.table, args.seconds, args.sweep
        self.directory, self.late = directory, args.late
        self.case, most = self.CASES[self.name]
        self.most = args.cases or most
        self.cases = self.good = 0
        self.total = self.worst = 0.0
        self.key = f"| {self.name} | {self.sources()} |"

    @staticmethod
    def sources():
        done = subprocess.run(["git", "-C", TESTS, "rev-parse", "--short=8", "HEAD:runtime"], capture_output=True, text=True)
        return done.stdout.strip() or "-"

    def resume(self):
        for line in open(self.table):
            if not line.startswith(self.key):
                continue
            cases, good, mean, worst = (float(cell) for cell in line[len(self.key) :].strip(" |\n").split("|"))
            self.cases, self.good, self.total, self.worst = int(cases), int(good), mean * good, worst

    def save(self):
        """The row in place of the earlier one, else behind the table, which ends the file."""
        mean = self.total / self.good if self.good else 0
        row = f"{self.key} {self.cases} | {self.good} | {mean:.4f} | {self.worst:.4f} |\n"
        lines = open(self.table).readlines()
        at = [i for i, line in enumerate(lines) if line.startswith(self.key)]
        lines[at[0] if at else len(lines) :] = [row] + (lines[at[0] + 1 :] if at else [])
        with open(self.table + ".new", "w") as file:
            file.writelines(lines)
        os.replace(self.table + ".new", self.table)

    def run(self):
        if self.table:
            self.resume()
        while self.cases < self.most:
            try:
                seconds = self.case(self, self.cases)
                self.good += 1
                self.total += seconds
                self.worst = max(self.worst, seconds)
            except (Failed, subprocess.TimeoutExpired) as failure:
                print(f"FAIL {self.name} case {self.cases}: {failure}", flush=True)
            self.cases += 1
            if self.table:
                self.save()
        mean = self.total / self.good if self.good else 0
        print(f"{self.name}: {self.good} of {self.cases} as promised, mean {mean:.4f} s, worst {self.worst:.4f} s")
        return self.good != self.cases


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--table")
    parser.add_argument("--cases", type=int)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--late", type=float, default=0.1)
    parser.add_argument("sweep", choices=Sweep.CASES)
    args = parser.parse_args()
    work = tempfile.mkdtemp(prefix="rankc-failures-")
    try:
        call(args.rankc, "compile", os.path.join(MODEL, "model.onnx"), "-q", "-o", work, *dims_of(MODEL), *plan_of("tp2pp2").options)
        return Sweep(args, work).run()
    except KeyboardInterrupt:
        return 1
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
