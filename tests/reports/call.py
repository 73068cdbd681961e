"""What the checks of reports share beside tests/rankc_test.py."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, ".."))
from rankc_test import Failed, call, expect  # noqa: E402, F401

ENVIRONMENT = {"CFLAGS": "-O1", **os.environ, "LC_ALL": "C"}


def run(*words, limit=120, environment=None, **how):
    """Runs a command and returns what it printed, stdout and stderr."""
    done = call(*words, timeout=limit, env={**ENVIRONMENT, **(environment or {})}, stdin=subprocess.DEVNULL, **how)
    return done.stdout + done.stderr
