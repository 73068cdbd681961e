#!/usr/bin/python3
"""Runs commands from a process that is small, and says what they took.

The kernel counts as resident of a process what its parent had resident when it was forked, and exec keeps the count. The
runner makes models of hundreds of megabytes; so it leaves starting to this file, run as a program: a request is a line of
JSON on stdin, an answer one on stdout."""
import json
import os
import subprocess
import sys
import threading


def wait(child, limit):
    """Status (negative: the signal) and resource usage; (None, None) after `limit` seconds."""
    late = threading.Event()
    timer = threading.Timer(limit, lambda: (late.set(), child.kill()))
    timer.start()
    _, status, usage = os.wait4(child.pid, 0)
    timer.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    return (None, None) if late.is_set() else (child.returncode, usage)


def start(command, directory, environment, user, stderr, limit):
    with open(stderr, "wb") as err:
        child = subprocess.Popen(command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=err, user=user)
        status, usage = wait(child, limit)
    if status is None:
        return {"status": None}
    return {"status": status, "seconds": usage.ru_utime + usage.ru_stime, "mebibytes": usage.ru_maxrss >> 10}


class Launcher:
    """The small process, as the runner sees it."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-B", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, command, directory, environment, user, stderr, limit):
        """Runs to the end, or to `limit` seconds: status (negative: the signal; None: it ran too long), seconds of the
        processor, mebibytes resident."""
        json.dump([command, str(directory), environment, user, str(stderr), limit], self.process.stdin)
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def main():
    for line in sys.stdin:
        print(json.dumps(start(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
