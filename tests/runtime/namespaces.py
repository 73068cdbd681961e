"""Hosts of a test as Linux namespaces: each has its own network, host name, System V IPC and /dev/shm, and a bridge
connects them. Files are common, as on a cluster with a shared file system. Needs root, iproute2 and util-linux."""
import os
import subprocess
import tempfile
import time

PREFIX = "10.99.77"
BRIDGE = "rankc0"
ENTER = ["nsenter", "-n", "-u", "-i", "-m"]
# A process that keeps the namespaces of its host; it ends with the test, and all devices of the host with it.
KEEPER = 'set -e; hostname "$1"; mount -t tmpfs tmpfs /dev/shm; mount -t sysfs sysfs /sys; ip link set lo up; echo ready; exec sleep infinity'


class NotAllowed(Exception):
    """This machine or user cannot make namespaces; the text says why."""


class Namespaces:
    """Hosts with one letter each, the first of which holds the bridge. Making them raises NotAllowed; leaving the context ends them.

    range: their addresses; agent: the path of what mpirun calls in place of ssh."""

    def __init__(self, letters):
        self.letters, self.keepers, self.range = letters, {}, f"{PREFIX}.0/24"
        self.folder = tempfile.TemporaryDirectory(prefix="rankc-hosts-")
        self.agent = f"{self.folder.name}/agent"
        try:
            for letter in letters:
                self.keepers[letter] = self._start(f"rankc-{letter}")
            self._connect()
        except (NotAllowed, OSError, subprocess.SubprocessError) as error:
            self.__exit__()
            raise NotAllowed(str(error)) from error
        self._write_agent()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for keeper in self.keepers.values():
            keeper.kill()
            keeper.communicate()
        self.folder.cleanup()

    def address(self, letter):
        return f"{PREFIX}.{1 + self.letters.index(letter)}"

    def inside(self, letter):
        """The words that start a command on a host."""
        return [*ENTER, "-t", str(self.keepers[letter].pid), "--"]

    def _start(self, name):
        keeper = subprocess.Popen(["unshare", "-n", "-u", "-i", "-m", "setpriv", "--pdeathsig", "KILL", "sh", "-c", KEEPER, "sh", name],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if keeper.stdout.readline() != "ready\n":
            raise NotAllowed(keeper.communicate(timeout=10)[1].strip() or "no namespace")
        return keeper

    def _ip(self, letter, *words):
        done = subprocess.run([*self.inside(letter), "ip", *words], capture_output=True, text=True, timeout=30, check=False)
        if done.returncode:
            raise NotAllowed(f"ip {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def _connect(self):
        first = self.letters[0]
        self._ip(first, "link", "add", BRIDGE, "type", "bridge")
        self._ip(first, "addr", "add", f"{self.address(first)}/24", "dev", BRIDGE)
        self._ip(first, "link", "set", BRIDGE, "up")
        for letter in self.letters[1:]:
            self._ip(first, "link", "add", f"to-{letter}", "type", "veth", "peer", "name", "eth0", "netns", str(self.keepers[letter].pid))
            self._ip(first, "link", "set", f"to-{letter}", "master", BRIDGE, "up")
            self._ip(letter, "addr", "add", f"{self.address(letter)}/24", "dev", "eth0")
            self._ip(letter, "link", "set", "eth0", "up")
        self._wait()

    def _wait(self):
        """Until every link forwards: a bridge's port listens for a moment first."""
        deadline = time.monotonic() + 10
        while "state UP" not in self._ip(self.letters[0], "link", "show", BRIDGE) and len(self.letters) > 1:
            if time.monotonic() > deadline:
                raise NotAllowed(f"{BRIDGE} does not come up")
            time.sleep(0.05)

    def _write_agent(self):
        """A script that is called as rsh is: agent [OPTION..] ADDRESS COMMAND.."""
        cases = "".join(f"{self.address(letter)}) set -- {' '.join(self.inside(letter))} sh -c \"$*\" ;;\n" for letter in self.letters)
        with open(self.agent, "w", encoding="ascii") as script:
            script.write(f'#!/bin/sh\nwhile [ "${{1#-}}" != "$1" ]; do shift; done\nhost=$1\nshift\ncase $host in\n{cases}'
                         '*) echo "no host $host" >&2; exit 1 ;;\nesac\nexec "$@"\n')
        os.chmod(self.agent, 0o755)
