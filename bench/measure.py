"""Runs one command as a sample: what it measured, how long it took, and how busy others kept the machine meanwhile."""
import json
import os
import resource
import subprocess
import time

TICKS = os.sysconf("SC_CLK_TCK")


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


def last_line(text):
    lines = text.strip().splitlines()
    errors = [line for line in lines if "error" in line]
    return (errors or lines or ["no message"])[-1 if not errors else 0].strip()


def run(command, timeout):
    """stdout of a command that must succeed."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", LC_ALL="C")
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=timeout, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{os.path.basename(command[0])}: {type(error).__name__}") from None
    if done.returncode != 0:
        raise Failed(f"{os.path.basename(command[0])} ended with {done.returncode}: {last_line(done.stderr)}")
    return done.stdout


def sample(side, timeout=300):
    """One run of a side (cases.py): its figures by name, "wall_ms", and "foreign", the processors' worth of load that
    was not ours."""
    if side.prepare:
        side.prepare()
    begin, busy, own = time.monotonic(), busy_seconds(), own_seconds()
    output = run(side.command, timeout)
    wall = time.monotonic() - begin
    foreign = (busy_seconds() - busy - (own_seconds() - own)) / wall
    figures = flatten(json.loads(output)) if side.json else {}
    return dict(figures, wall_ms=wall * 1e3, foreign=round(max(foreign, 0.0), 3))


def flatten(result):
    """The numbers of `rankc run --json` and of what imitates it; memory is summed over the ranks."""
    figures = {"ms": result["step_ms"]["median"], "best_ms": result["step_ms"]["min"]}
    if "peak_rss" in result:
        figures["rss"] = sum(result["peak_rss"]) - result.get("idle_rss", 0)
        figures["idle_rss"] = result.get("idle_rss", 0)
        figures["load_ms"] = result["load_ms"]
    return figures


def peak(program, threads):
    """GFLOP/s of fused multiply-adds that this machine gives at the moment."""
    return float(run([program, str(threads)], 60))


def pair(case, limit, rounds, attempts, peak_program, say):
    """Rounds of A, B, each with the machine's peak of that minute; a round with foreign load above `limit` is kept
    apart and made up for, up to `attempts` in all."""
    clean, noisy = [], []
    for _ in range(attempts):
        before = peak(peak_program, case.cores)
        a = sample(case.a)
        b = sample(case.b) if case.b else None
        row = {"peak": before, "a": a, "b": b}
        loads = [s["foreign"] for s in (a, b) if s]
        (clean if max(loads) <= limit else noisy).append(row)
        say(f"  a {a[case.figure]:.4g} " + (f"b {b[case.figure]:.4g} " if b else "") +
            f"peak {before:.0f} foreign {' '.join(f'{v:.2f}' for v in loads)}")
        if len(clean) == rounds:
            break
    return clean, noisy
