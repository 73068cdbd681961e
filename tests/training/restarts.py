#!/usr/bin/python3
"""rankc train --restarts: ranks are killed at random, and the run goes on by itself from its newest checkpoint.

    restarts.py --rankc RANKC [--kills N] [--seed S] [--steps N] [--table FILE]

GPT-2 is trained on four ranks under each of PLANS. After a random time a random rank gets SIGKILL, N times in all, in as many runs as
that takes. Losses, gradient norms, learning rates and the files of the last checkpoint must be those of a run that nothing disturbed,
bit for bit. The table has the times from a kill to the end of the last rank, and from the restart to the end of the next step."""
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time

from harness import compile_case, data_of, expect, lines_of, parser_of, report
from runs import equal_folders

PLANS = ["tp2dp2", "dp4+use-zero=1", "tp2pp2"]
EVERY, MOST = 4, 5  # steps between checkpoints, kills of a run
SOON = 300
STEPS = 300  # of a run, unless --steps is given
STEP = 0.005  # seconds, fewer than a step takes: a rank is killed before the run ends


def compiled(rankc, plan, work):
    out = f"{work}/program"
    compile_case(rankc, "gpt2", plan, 4, out, [])
    return f"{out}/model/_"


def start(rankc, directory, work, *options):
    log, kept = f"{work}/log.jsonl", f"{work}/checkpoints"
    shutil.rmtree(kept, ignore_errors=True)
    run = subprocess.Popen([rankc, "train", directory, *data_of("gpt2", ["input_ids", "labels"]), "--steps", str(STEPS), "--threads", "1",
                            "--checkpoint-dir", kept, "--checkpoint-every", str(EVERY), "--keep", "2", "--log", log, *options],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    run.log, run.kept = log, kept
    return run


def metrics(log):
    return [(line["step"], line["loss"], line["grad_norm"], line["lr"]) for line in lines_of(log)]


def ranks(run):
    try:
        with open(f"/proc/{run.pid}/task/{run.pid}/children", encoding="ascii") as children:
            return [int(pid) for pid in children.read().split()]
    except OSError:
        return []


def wait(condition, run, what):
    """The seconds until the condition holds; None: the run ended first."""
    begin = time.monotonic()
    while not condition():
        if run.poll() is not None:
            return None
        expect(time.monotonic() - begin < SOON, f"{what}: not within {SOON} s")
        time.sleep(0.0005)
    return time.monotonic() - begin


def kill_one(run, chance, times):
    """Waits a random time and kills a random rank; whether that stopped the run. A rank that has just ended by itself cannot be killed."""
    if wait(lambda: len(ranks(run)) == 4, run, "four ranks") is None:
        return False
    time.sleep(chance.random() * STEPS * STEP)
    old = ranks(run)
    if not old:
        return False
    try:
        os.kill(chance.choice(old), signal.SIGKILL)
    except ProcessLookupError:
        return False
    down = wait(lambda: not set(old) & set(ranks(run)), run, "the end of the ranks")
    lines = os.path.getsize(run.log) if os.path.exists(run.log) else 0
    up = wait(lambda: os.path.exists(run.log) and os.path.getsize(run.log) != lines, run, "the next step")
    if up is None:
        return False
    times.append((down, up))
    return True


def check(rankc, plan, kills, chance, rows):
    def run_all(work):
        directory = compiled(rankc, plan, work)
        os.makedirs(f"{work}/quiet")
        quiet = start(rankc, directory, f"{work}/quiet")
        said = quiet.communicate(timeout=SOON)[1]
        expect(quiet.returncode == 0, said)
        times, runs, left = [], 0, kills
        while left > 0:
            runs += 1
            one = f"{work}/{runs}"
            os.makedirs(one)
            run = start(rankc, directory, one, "--restarts", str(MOST))
            done = 0
            while done < min(MOST, left) and kill_one(run, chance, times):
                done += 1
            said = run.communicate(timeout=SOON)[1]
            expect(run.returncode == 0, f"run {runs}: exit {run.returncode}\n{said}")
            expect(said.count("restart ") >= done, f"run {runs}: {done} kills\n{said}")
            expect(metrics(run.log) == metrics(quiet.log), f"run {runs}: other metrics after {done} kills\n{said}")
            equal_folders(f"{run.kept}/step-{STEPS}", f"{quiet.kept}/step-{STEPS}")
            left -= done
            expect(runs < 4 * kills or left == 0, f"only {kills - left} kills in {runs} runs")
            shutil.rmtree(one)
        down, up = ([t[i] for t in times] for i in (0, 1))
        rows.append((plan, len(times), runs, down, up))
        return f"{len(times)} kills in {runs} runs; job down in {statistics.median(down):.3f} s, next step {statistics.median(up):.3f} s later"
    return run_all


def gives_up(rankc):
    """The run ends where no restart is left, and at once where ranks ended by themselves: a loss that is not finite, wrong options."""
    def run_all(work):
        directory = compiled(rankc, "dp4", work)
        run = start(rankc, directory, work, "--restarts", "1")
        for _ in range(2):
            wait(lambda: len(ranks(run)) == 4, run, "four ranks")
            old = ranks(run)
            os.kill(old[0], signal.SIGKILL)
            wait(lambda: not set(old) & set(ranks(run)), run, "the end of the ranks")
        said = run.communicate(timeout=SOON)[1]
        expect(run.returncode == 9 and said.count("restart 1 of 1") == 1, f"killed twice: exit {run.returncode}\n{said}")
        for options, status in ((["--lr", "1e30"], 9), (["--resume", "latest"], 6), (["--eval-every", "2"], 2)):
            run = start(rankc, directory, work, "--restarts", "3", *options)
            said = run.communicate(timeout=SOON)[1]
            expect(run.returncode == status and "restart " not in said, f"{options}: exit {run.returncode}\n{said}")
        return "after the last restart, and without one for errors"
    return run_all


def table(rows, path):
    with open(path, "w", encoding="utf-8") as out:
        print("# Ranks killed at random\n\nWritten by `tests/training/restarts.py --table`: GPT-2 of tests/training on four ranks, "
              f"{STEPS} steps, a checkpoint\nevery {EVERY}, `rankc train --restarts {MOST}`. After a random time a random rank gets SIGKILL. Metrics and "
              "the last checkpoint\nare those of a run that nothing disturbed, bit for bit. Seconds: median, and the longest.\n\n"
              "| plan | kills | runs | from the kill to the end of all ranks | from there to the next step |\n|---|---|---|---|---|", file=out)
        for plan, n, runs, down, up in rows:
            print(f"| {plan} | {n} | {runs} | {statistics.median(down):.3f}, {max(down):.3f} | {statistics.median(up):.3f}, {max(up):.3f} |",
                  file=out)


def main():
    global STEPS
    parser = parser_of(__doc__)
    parser.add_argument("--kills", type=int, default=2, help="of each plan")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table")
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    STEPS = options.steps
    chance, rows = random.Random(options.seed), []
    rankc = options.rankc
    failed = report([(plan, check(rankc, plan, options.kills, chance, rows)) for plan in PLANS] + [("gives up", gives_up(rankc))])
    if options.table and not failed:
        table(rows, options.table)
    sys.exit(failed)


if __name__ == "__main__":
    main()
