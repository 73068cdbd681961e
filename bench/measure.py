"""Runs one command as a sample: what it measured, how long it took, and how busy others kept the machine meanwhile."""
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


def complaint(text):
    """The first line of stderr that speaks of an error, else the last one."""
    lines = text.strip().splitlines() or ["no message"]
    return next((line for line in lines if "error" in line.lower()), lines[-1]).strip()


def run(command, timeout):
    """stdout of a command that must succeed. One that takes too long is ended with all that it started."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", LC_ALL="C")
    name = os.path.basename(command[0])
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env=environment, start_new_session=True)
    except OSError as error:
        raise Failed(f"{name}: {error.strerror}") from None
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Failed(f"{name} took more than {timeout} s") from None
    if process.returncode != 0:
        raise Failed(f"{name} ended with {process.returncode}: {complaint(errors)}")
    return output


def sample(side, timeout=300):
    """One run of a side (cases.py): its figures by name, "wall_ms", and "foreign", the processors' worth of load that
    was not ours."""
    if side.prepare:
        side.prepare()
    begin, busy, own = time.monotonic(), busy_seconds(), own_seconds()
    output = run(side.command, timeout)
    wall = time.monotonic() - begin
    foreign = (busy_seconds() - busy - (own_seconds() - own)) / wall
    result = json.loads(output) if side.json else {}
    figures = flatten(result) if side.json else {}
    return dict(figures, wall_ms=wall * 1e3, first_ms=result.get("first_ms", wall * 1e3), foreign=round(max(foreign, 0.0), 3))


def flatten(result):
    """The numbers of `rankc run --json` and of what imitates it; memory is summed over the ranks."""
    figures = {"ms": result["step_ms"]["median"], "best_ms": result["step_ms"]["min"]}
    if "peak_rss" in result:
        figures["rss"] = sum(result["peak_rss"]) - result.get("idle_rss", 0)
        figures["idle_rss"] = result.get("idle_rss", 0)
        figures["load_ms"] = result["load_ms"]
    return figures


def wait_for_quiet(limit, patience):
    """Returns when others leave the machine alone, or after `patience` seconds at most."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        busy = busy_seconds()
        time.sleep(LOOK)
        if (busy_seconds() - busy) / LOOK <= limit:
            return


def peak(program, threads):
    """GFLOP/s of fused multiply-adds that this machine gives at the moment."""
    return float(run([program, str(threads)], 60))


def largest_load(row):
    """Of the two samples of a round."""
    return max(row["a"]["foreign"], row["b"]["foreign"])


def pair(case, options, peak_program, say):
    """Rounds of A, B, each with the machine's peak of that minute. Those with foreign load above the limit are made up
    for, up to so many attempts in all; all are returned."""
    rows, clean = [], 0
    while clean < options.rounds and len(rows) < options.attempts:
        wait_for_quiet(options.max_foreign, options.patience)
        row = {"peak": peak(peak_program, case.cores), "a": sample(case.a), "b": sample(case.b)}
        rows.append(row)
        clean += largest_load(row) <= options.max_foreign
        say(f"  a {row['a'][case.figure]:.4g} b {row['b'][case.figure]:.4g} ms, peak {row['peak']:.0f} GFLOP/s, "
            f"others {row['a']['foreign']:.2f} {row['b']['foreign']:.2f}")
    return rows
