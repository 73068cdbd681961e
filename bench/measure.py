"""Runs commands, and samples of the sides of a case: what a sample measured, and how busy others kept the machine meanwhile."""
import json
import os
import resource
import signal
import subprocess
import time

TICKS = os.sysconf("SC_CLK_TCK")
LOOK = 0.5  # seconds over which others' load is judged before a round


class Failed(Exception):
    """A command did not do its work; the text says why, in one line."""


def busy_seconds():
    """Processor time that the whole machine has used since it was started, steal included."""
    user, nice, system, _, _, irq, softirq, steal = map(int, open("/proc/stat").readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS


def own_seconds():
    """Processor time of this process and of all its descendants that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def seconds_of(pid):
    """Processor time of a process that runs."""
    fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def complaint(text):
    """The first line of stderr that speaks of an error, else the last one."""
    lines = text.strip().splitlines() or ["no message"]
    return next((line for line in lines if "error" in line.lower()), lines[-1]).strip()


def start(command, **streams):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", LC_ALL="C")
    try:
        return subprocess.Popen(command, text=True, env=environment, start_new_session=True, **streams)
    except OSError as error:
        raise Failed(f"{os.path.basename(command[0])}: {error.strerror}") from None


def run(command, timeout):
    """stdout of a command that must succeed. One that takes too long is ended with all that it started."""
    name = os.path.basename(command[0])
    process = start(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Failed(f"{name} took more than {timeout} s") from None
    if process.returncode != 0:
        raise Failed(f"{name} ended with {process.returncode}: {complaint(errors)}")
    return output


def flatten(result):
    """The numbers of `rankc run --json` and of what imitates it; memory is summed over the ranks."""
    figures = {"ms": result["step_ms"]["median"], "best_ms": result["step_ms"]["min"]}
    if "peak_rss" in result:
        figures["rss"] = sum(result["peak_rss"]) - result.get("idle_rss", 0)
    return dict(figures, **{key: result[key] for key in ("load_ms", "first_ms") if key in result})


class Once:
    """A side whose every sample is a process of its own. "STEPS" in its command is the number of steps of a sample; `prepare` is
    called before a sample and not timed; `check` are words that the first sample, which does not count, has at the end."""

    def __init__(self, command, json=True, prepare=None, check=(), output=None):
        self.command, self.json, self.prepare, self.check, self.output = command, json, prepare, check, output

    def sample(self, steps, first=False):
        if self.prepare:
            self.prepare()
        words = [word.replace("STEPS", str(steps)) for word in self.command]
        begin = time.monotonic()
        output = run(words + list(self.check if first else ()), 300)
        wall = (time.monotonic() - begin) * 1e3
        return dict({"first_ms": wall}, **(flatten(json.loads(output)) if self.json else {"ms": wall}), wall_ms=wall)

    def seconds(self):
        return 0

    def close(self):
        pass


class Kept:
    """A side that is one process for all rounds (peer.py): it reads a number of steps from stdin and answers with a line of JSON."""

    def __init__(self, command, output=None):
        self.command, self.output, self.process = command, output, None

    def sample(self, steps, first=False):
        if first:
            self.process = start(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            self.process.stdin.write(f"{steps}\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Failed(complaint(self.process.stderr.read()))
        return flatten(json.loads(line))

    def seconds(self):
        return seconds_of(self.process.pid)

    def close(self):
        if self.process:
            self.process.communicate()


def wait_for_quiet(limit, patience):
    """Returns when others leave the machine alone, or after `patience` seconds at most."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        busy = busy_seconds()
        time.sleep(LOOK)
        if (busy_seconds() - busy) / LOOK <= limit:
            return


def calibrated(side, seconds):
    """The steps of a sample that takes about so many seconds, after a first one that does not count."""
    step = side.sample(2, first=True).get("best_ms")
    return max(3, min(2000, int(seconds * 1e3 / step))) if step else 1


def one_round(sides, steps, threads, peak_program):
    """The machine's peak of that minute, a sample of every side, and the processors' worth of load that was not ours."""
    def ours():
        return own_seconds() + sum(side.seconds() for side in sides.values())

    row = {"peak": float(run([peak_program, str(threads)], 60))}
    begin, busy, own = time.monotonic(), busy_seconds(), ours()
    row["sides"] = {name: side.sample(steps[name]) for name, side in sides.items()}
    row["foreign"] = round(max(0, busy_seconds() - busy - (ours() - own)) / (time.monotonic() - begin), 3)
    return row


def rounds(sides, threads, options, peak_program):
    """Rounds in which all sides (name: side) take turns. Those with others' load above the limit are made up for, up to so many
    attempts in all; all are given."""
    try:
        steps = {name: calibrated(side, options.seconds) for name, side in sides.items()}
        clean = 0
        for _ in range(options.attempts):
            wait_for_quiet(options.max_foreign, options.patience)
            row = one_round(sides, steps, threads, peak_program)
            yield row
            clean += row["foreign"] <= options.max_foreign
            if clean == options.rounds:
                return
    finally:
        for side in sides.values():
            side.close()
