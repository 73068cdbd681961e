"""What the checks of reports share: calls of rankc, and how a check says that something is not as it should be."""
import os
import shlex
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ENVIRONMENT = dict(os.environ, CFLAGS="-O1", LC_ALL="C")


class Failed(Exception):
    """A report that is not as it should be; its text says why."""


def run(*words, status=0, limit=120, cwd=None, environment=None):
    """Runs a command and returns what it printed, stdout and stderr; any exit status will do if status is None."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, env=dict(ENVIRONMENT, **(environment or {})), cwd=cwd, timeout=limit,
                              stdin=subprocess.DEVNULL, errors="replace")
    except subprocess.TimeoutExpired as problem:
        raise Failed(f"{shlex.join(map(str, words))}: not ended after {limit} s") from problem
    said = done.stdout + done.stderr
    if status is not None and done.returncode != status:
        raise Failed(f"{shlex.join(map(str, words))}: exit status {done.returncode}, not {status}\n{said}")
    return said


def require(holds, text):
    if not holds:
        raise Failed(text)
