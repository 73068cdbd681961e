#!/usr/bin/python3
"""Ranks of the tiny program that are started one by one find each other, or say once why they do not.

    rendezvous.py TINY [CASE...]

Every case starts processes on this machine, and compares outputs with those of ranks that are threads of one process,
or exit codes and diagnostics with what is promised. Strangers of all kinds come to the meetings: class Caller speaks the
protocol of runtime/comm/rendezvous_private.h with any token. Launchers that are not installed (mpirun of either MPI, torchrun)
are left out, and named; so is what takes root or an address of this machine other than 127.0.0.1."""
import contextlib
import hmac
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import Failed  # noqa: E402

TINY = os.path.abspath(sys.argv[1])
LAUNCHERS = re.compile(r"(RANK|WORLD_SIZE|LOCAL_.*|MASTER_.*|OMPI_.*|PMI.*|SLURM_.*|RANKC_.*|TORCHELASTIC_.*|TINY_.*)$")
CLEAN = {name: value for name, value in os.environ.items() if not LAUNCHERS.match(name)}


MAGIC = b"rankc-2\0"
NOBODY = 65534
TOKEN = "a token of the user's own"
DROPPED = r"rankc: warning\[E0907\]: closed the connection from 127\.0\.0\.1:\d+ at the rendezvous: "


class LeftOut(Exception):
    pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Work:
    """A directory with the program's files, and what its outputs should be."""

    def __init__(self, directory):
        self.directory = directory
        os.makedirs(directory, exist_ok=True)
        subprocess.run([TINY], env={**CLEAN, "TINY_WRITE": directory}, check=True)
        self.inputs = ["--directory", directory, *(word for name in ("x", "ids")
                                                    for word in ("--input", f"{name}={directory}/{name}.npy"))]

    def outputs(self, name):
        folder = os.path.join(self.directory, name)
        if not os.path.isdir(folder):
            return None
        found = {}
        for file in sorted(os.listdir(folder)):
            with open(os.path.join(folder, file), "rb") as content:
                found[file] = content.read()
        return found

    def expected(self, ranks):
        command = [TINY, *self.inputs, "--comm", "loopback", "--output-dir", f"{self.directory}/expected{ranks}"]
        subprocess.run(command, env={**CLEAN, "TINY_SHARDS": str(ranks)}, check=True)
        return self.outputs(f"expected{ranks}")

    def command(self, name, *options):
        return [TINY, *self.inputs, "--output-dir", f"{self.directory}/{name}", *options]


class Job:
    """Processes that are started in the order given, with a pause between them; env(rank) adds to the environment."""

    def __init__(self, work, ranks, env, options=lambda rank: [], order=None, pause=0.0, name="out"):
        self.processes = {}
        self.start = lambda rank: self.processes.update({rank: subprocess.Popen(
            work.command(name, *options(rank)),
            env={**CLEAN, "TINY_SHARDS": str(ranks), "XDG_RUNTIME_DIR": work.directory, **env(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)})
        for rank in order if order is not None else range(ranks):
            self.start(rank)
            time.sleep(pause)

    def wait(self):
        """Exit codes by rank, and all that was said, by rank."""
        said = {rank: process.communicate(timeout=60)[1] for rank, process in sorted(self.processes.items())}
        return {rank: process.returncode for rank, process in self.processes.items()}, said


class Caller:
    """Connects, as soon as somebody listens, to whom it pretends to be a rank."""

    def __init__(self, port, host="127.0.0.1", patience=10):
        until = time.monotonic() + patience
        while True:
            try:
                self.socket = socket.create_connection((host, port), timeout=20)
                return
            except (ConnectionRefusedError, ConnectionResetError):  # reset: the other stopped listening meanwhile
                if time.monotonic() > until:
                    raise Failed("nobody listens") from None
                time.sleep(0.01)

    def receive(self, count):
        """Fewer bytes where the other hangs up."""
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while len(got) < count and (more := self.socket.recv(count - len(got))):
                got += more
        return got

    def ask(self, rank, world, token, key=b"0" * 32):
        """Says that it is a rank; the answer's proof, or b"" where the other hangs up."""
        challenge = self.receive(40)
        if challenge[:8] != MAGIC:
            raise Failed(f"rank 0 begins with {challenge}")
        words = MAGIC + struct.pack("=ii", rank, world) + key + (nonce := os.urandom(32))
        code = hmac.new(token.encode(), b"hello\0" + challenge[8:] + nonce + words, "sha256").digest()
        self.socket.sendall(words + code)
        answer = self.receive(40)
        expected = hmac.new(token.encode(), b"proof\0" + challenge[8:] + nonce, "sha256").digest()
        if answer and answer != MAGIC + expected:
            raise Failed(f"rank 0 does not know the token: {answer}")
        return answer


def torch_env(port, ranks, **more):
    return lambda rank: {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(ranks),
                         "LOCAL_RANK": str(rank), **more}


def flags(ranks, *options):
    return lambda rank: ["--rank", str(rank), "--world", str(ranks), *options]


def check_outputs(work, ranks, job, name="out", warnings={}):
    """All went well; what ranks said matches the pattern in `warnings`, of others they said nothing."""
    codes, said = job.wait()
    if any(codes.values()) or any(not re.fullmatch(warnings.get(rank, ""), text) for rank, text in said.items()):
        raise Failed(f"exit codes {codes}, said {said}")
    if work.outputs(name) != work.expected(ranks):
        raise Failed("outputs differ from those of one process")


def check_failure(job, codes, pattern):
    """One diagnostic in all, which the pattern matches."""
    got, said = job.wait()
    text = "".join(said.values())
    if got != codes or not re.fullmatch(rf"rankc: error\[{pattern}\n", text):
        raise Failed(f"exit codes {got}, wanted {codes}; said {said}, wanted {pattern}")


# ---- they meet ----

def address(work):
    check_outputs(work, 3, Job(work, 3, torch_env(free_port(), 3)))


def first_rank_last(work):
    check_outputs(work, 3, Job(work, 3, torch_env(free_port(), 3), order=[2, 1, 0], pause=0.2))


def option(work):
    place = f"localhost:{free_port()}"
    check_outputs(work, 2, Job(work, 2, lambda rank: {}, flags(2, "--rendezvous", place)))


def many(work):
    check_outputs(work, 5, Job(work, 5, torch_env(free_port(), 5)))


def file(work):
    place = os.path.join(work.directory, "place")
    job = Job(work, 3, lambda rank: {}, flags(3, "--rendezvous", f"file:{place}"), order=[1, 0, 2], pause=0.1)
    check_outputs(work, 3, job)
    if os.path.exists(place):
        raise Failed("the file is still there")


def file_of_an_earlier_job(work):
    place = os.path.join(work.directory, "place")
    with socket.socket() as other:  # which listens where the first rank of that job did, and hangs up
        other.bind(("127.0.0.1", 0))
        other.listen()
        with open(place, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as card:
            card.write(f"{'0' * 32} {other.getsockname()[1]} 127.0.0.1\n")
        job = Job(work, 2, lambda rank: {}, flags(2, "--rendezvous", f"file:{place}"), order=[1])
        other.accept()[0].close()
    job.processes.update(Job(work, 2, lambda rank: {}, flags(2, "--rendezvous", f"file:{place}"), order=[0]).processes)
    check_outputs(work, 2, job)


def address_alone(work):
    """Rank 0 listens where it was told to and nowhere else."""
    host = own_address()
    port = free_port()
    job = Job(work, 2, torch_env(port, 2, MASTER_ADDR=host), order=[0])
    Caller(port, host).socket.close()
    with contextlib.suppress(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()
        raise Failed("rank 0 listens at 127.0.0.1, too")
    job.start(1)
    check_outputs(work, 2, job, warnings={0: r"(.*\n)?"})


def own_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # which sends nothing
        except OSError as why:
            raise LeftOut("no address but 127.0.0.1") from why
        return probe.getsockname()[0]


def token_of_the_user(work):
    check_outputs(work, 3, Job(work, 3, torch_env(free_port(), 3, RANKC_TOKEN=TOKEN)))


def file_of_the_token(work):
    """While rank 0 waits, and no longer."""
    port = free_port()
    job = Job(work, 2, torch_env(port, 2), order=[0])
    Caller(port).socket.close()
    path = os.path.join(work.directory, f"rankc-{os.geteuid()}-127.0.0.1-{port}")
    until = time.monotonic() + 10
    while not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.01)
    mode = os.lstat(path).st_mode
    job.start(1)
    check_outputs(work, 2, job, warnings={0: r"(.*\n)?"})
    if not stat.S_ISREG(mode) or mode & 0o777 != 0o600 or os.path.exists(path):
        raise Failed(f"mode {mode:o}, there afterwards: {os.path.exists(path)}")


def link_at_the_token(work):
    """A link is not followed by who writes the token."""
    port, victim = free_port(), os.path.join(work.directory, "victim")
    with open(victim, "w") as file:
        file.write("mine")
    os.symlink(victim, os.path.join(work.directory, f"rankc-{os.geteuid()}-127.0.0.1-{port}"))
    check_outputs(work, 2, Job(work, 2, torch_env(port, 2)))
    with open(victim) as file:
        if file.read() != "mine":
            raise Failed("the token was written through the link")


def threads(work):
    """Cores are shared by the ranks of this machine, whatever runs on others."""
    def of_first(name, ranks, **more):
        job = Job(work, ranks, torch_env(free_port(), ranks, RANKC_TOKEN=TOKEN, **more), lambda rank: ["--json"], name=name)
        said = {rank: process.communicate(timeout=60) for rank, process in job.processes.items()}
        if any(process.returncode for process in job.processes.values()):
            raise Failed(said)
        return json.loads(said[0][0])["threads"]

    cores = of_first("alone", 1)
    for local, expected in [("1", cores), ("2", max(1, cores // 2))]:
        if (got := of_first(f"local{local}", 2, LOCAL_WORLD_SIZE=local)) != expected:
            raise Failed(f"{got} threads for one of {local} ranks here, with {cores} cores")


# ---- strangers, who are dropped and named ----

def message_of_a_stranger(work):
    """What ended a job before there were tokens: a rank 0 like itself."""
    port = free_port()
    job = Job(work, 2, torch_env(port, 2), order=[0])
    stranger = Caller(port)
    hello = b"rankc-1\0" + bytes(33) + b"0" * 32 + bytes(3) + struct.pack("=ii", 0, 2)
    stranger.socket.sendall(hello + bytes(64))
    if len(stranger.receive(500)) > 40:
        raise Failed("a stranger is told more than a nonce")
    job.start(1)
    check_outputs(work, 2, job, warnings={0: DROPPED + "it is not a rank of a compiled program of this version\n"})


def wrong_token(work):
    port = free_port()
    job = Job(work, 2, torch_env(port, 2), order=[0])
    if Caller(port).ask(1, 2, "0" * 32):
        raise Failed("let in with a wrong token")
    job.start(1)
    check_outputs(work, 2, job, warnings={0: DROPPED + "it does not know this job's token\n"})


def right_token(work):
    """The same caller with the token is a rank, or what was dropped above was dropped for another reason."""
    port = free_port()
    job = Job(work, 2, torch_env(port, 2, RANKC_TOKEN=TOKEN), order=[0])
    caller = Caller(port)
    if not caller.ask(1, 2, TOKEN):
        raise Failed("not let in with the token")
    check_failure(job, {0: 8}, r"E0902\]: rank 1 runs another program than rank 0, compiled from another model or with options that change results")


def fake_rank_0(work):
    """Somebody listens where rank 0 will, knows the language, and says that the job has failed."""
    port = free_port()
    verdict = MAGIC + bytes(64) + b"rankc is of no use".ljust(320, b"\0") + struct.pack("=iiii", 2, 200, 1, 1) + bytes(32)
    with socket.create_server(("127.0.0.1", port)) as fake:
        job = Job(work, 2, torch_env(port, 2, RANKC_TOKEN=TOKEN), order=[1])
        caller = fake.accept()[0]
        caller.sendall(MAGIC + bytes(32) + MAGIC + bytes(32) + verdict)
        with contextlib.suppress(ConnectionResetError):
            while caller.recv(4096):
                pass
        caller.close()
    job.start(0)
    pattern = (rf"rankc: warning\[E0907\]: the process that listens at 127\.0\.0\.1:{port} is not rank 0: "
               r"it does not know this job's token\n")
    check_outputs(work, 2, job, warnings={1: pattern})


def hello_in_pieces_for(work, seconds):
    """A caller that is always about to say more, one that says nothing, and one that hangs up."""
    port = free_port()
    job = Job(work, 2, torch_env(port, 2), order=[0])
    slow, silent = Caller(port), Caller(port)
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        with contextlib.suppress(OSError):
            slow.socket.sendall(b"r")
        time.sleep(0.2)
    left = Caller(port)
    left.socket.sendall(b"rank")
    left.socket.close()
    time.sleep(0.2)
    job.start(1)
    _, said = job.wait()
    silent.socket.close()
    return job, said[0]


def slow_and_silent(work):
    job, said = hello_in_pieces_for(work, 7)
    job.wait = lambda: ({rank: process.returncode for rank, process in job.processes.items()}, {})
    check_outputs(work, 2, job)
    if not re.fullmatch(rf"{DROPPED}it sent \d+ of 112 bytes within 5 s\n"
                        rf"{DROPPED}it sent \d of 112 bytes (and hung up|within 5 s); 1 more since the last report\n", said):
        raise Failed(said)


def many_strangers(work):
    """10,000 connections that say nothing or something else, 500 open at any time; rank 1 comes among the last."""
    port, count = free_port(), 10000
    job = Job(work, 2, torch_env(port, 2), order=[0])
    words, open_ones, begin = [b"", b"GET / HTTP/1.0\r\n\r\n", b"\0" * 4096], [], time.monotonic()

    for i in range(count):
        if i == count - 500:
            job.start(1)
        try:
            open_ones.append(Caller(port, patience=0 if 1 in job.processes else 10).socket)
        except Failed:
            break  # the job has begun
        with contextlib.suppress(OSError):
            open_ones[-1].sendall(words[i % 3])
        if len(open_ones) > 500:
            open_ones.pop(0).close()
    codes, said = job.wait()
    lines = said[0].splitlines()
    dropped = len(lines) + sum(int(number) - line.startswith("rankc: warning[E0907]: closed " + number)
                               for line in lines for number in re.findall(r"(\d+) more", line))
    if any(codes.values()) or said[1] or work.outputs("out") != work.expected(2):
        raise Failed(f"exit codes {codes}, said {said}")
    strange = [line for line in lines if not re.match(r"rankc: warning\[E0907\]: closed ", line)]
    if strange or not count - 1500 <= dropped <= count or len(lines) > time.monotonic() - begin + 2:
        raise Failed(f"{dropped} were dropped: {said[0]}")


def rank_of_another_job(work):
    """Two jobs at once: a rank that was sent to the other's place disturbs neither."""
    other = Work(os.path.join(work.directory, "other"))
    ports = [free_port(), free_port()]
    first = Job(work, 2, torch_env(ports[0], 2, RANKC_TOKEN=TOKEN), order=[0])
    second = Job(other, 3, torch_env(ports[1], 3), order=[0, 2])
    lost = Job(other, 3, torch_env(ports[0], 3, RANKC_TOKEN="of the other job, that is"),
               lambda rank: ["--join-timeout", "1"], order=[1])
    check_failure(lost, {1: 9}, rf"E0903\]: rank 1 of 3 did not find rank 0 at 127\.0\.0\.1:{ports[0]} within 1 s: "
                  "the process that listens there does not belong to this job")
    first.start(1)
    second.start(1)
    named = f"({DROPPED}it does not know this job's token.*\n|rankc: warning.* more connections.*\n)+"
    check_outputs(work, 2, first, warnings={0: named})
    check_outputs(other, 3, second)


def link_of(path):
    try:
        return os.readlink(path)
    except FileNotFoundError:  # closed meanwhile
        return ""


def memory(work):
    """Another user cannot open the memory that ranks share, which has no name in any directory."""
    if os.geteuid():
        raise LeftOut("takes root")
    port = free_port()
    job = Job(work, 2, torch_env(port, 2), order=[0])
    Caller(port).socket.close()
    folder = f"/proc/{job.processes[0].pid}/fd"
    links = {name: link_of(f"{folder}/{name}") for name in os.listdir(folder)}
    memories = [name for name, link in links.items() if link.startswith("/memfd:rankc-")]
    script = f"import os; os.setuid({NOBODY}); os.open('{folder}/{memories[0]}', os.O_RDWR)"
    opened = subprocess.run(["/usr/bin/python3", "-c", script], capture_output=True, text=True)
    job.start(1)
    check_outputs(work, 2, job, warnings={0: r"(.*\n)?"})
    if "Permission denied" not in opened.stderr:
        raise Failed(f"{links}: {opened}")


def launched(work, ranks, command, name):
    done = subprocess.run([*command, *work.command(name)], env={**CLEAN, "TINY_SHARDS": str(ranks)}, capture_output=True,
                          text=True, timeout=120)
    if done.returncode or work.outputs(name) != work.expected(ranks):
        raise Failed(f"exit {done.returncode}: {done.stdout}{done.stderr}")


def open_mpi(work):
    launched(work, 3, ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "3"], "openmpi")


def mpich(work):
    launched(work, 3, ["mpirun.mpich", "-n", "3"], "mpich")


def torchrun(work):
    """Redirections are all named, as version 1.13 does not find its own default with Python 3.11."""
    logs = ["--redirects", "0:1,1:1", "--tee", "0:1,1:1", "--log_dir", f"{work.directory}/logs"]
    launched(work, 2, ["/usr/bin/python3", "-m", "torch.distributed.run", "--no_python", "--nproc_per_node", "2",
                       "--master_port", str(free_port()), *logs], "torchrun")


# ---- they do not ----

def nobody_listens(work):
    job = Job(work, 2, torch_env(port := free_port(), 2), lambda rank: ["--join-timeout", "1"], order=[1])
    check_failure(job, {1: 9}, rf"E0903\]: rank 1 of 2 did not find rank 0 at 127\.0\.0\.1:{port} within 1 s: no process listens there")


    job = Job(work, 2, torch_env(port, 2, MASTER_ADDR="no.such.host.invalid"), lambda rank: ["--join-timeout", "1"], order=[1])
    check_failure(job, {1: 9}, r"E0903\]: rank 1 of 2 did not find rank 0 at no\.such\.host\.invalid:\d+ within 1 s: [A-Z].* (known|resolution)")


def wrong_variables(work):
    for of, said in [({"RANK": "x"}, r"RANK is 'x', not a number of at most 16384"), ({"RANK": "5"}, "RANK is 5, but WORLD_SIZE is 2")]:
        job = Job(work, 2, torch_env(free_port(), 2, **of), order=[0])
        check_failure(job, {0: 2}, rf"E0901\]: {said}")
    for port in ["abc", "0", "99999999"]:
        job = Job(work, 2, torch_env(port, 2), order=[0])
        check_failure(job, {0: 2}, rf"E0904\]: MASTER_ADDR is '127\.0\.0\.1' and MASTER_PORT '{port}': a host and a port .*")


def somebody_else_listens(work):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        job = Job(work, 2, torch_env(port, 2), lambda rank: ["--join-timeout", "1"], order=[1])
        check_failure(job, {1: 9}, rf"E0903\]: rank 1 of 2 did not find rank 0 at 127\.0\.0\.1:{port} within 1 s: another program listens there")
        job = Job(work, 2, torch_env(port, 2), lambda rank: ["--join-timeout", "1"], order=[0])
        check_failure(job, {0: 6}, rf"E0904\]: rank 0 cannot listen at 127\.0\.0\.1:{port}: Address already in use")


def ranks_are_missing(work):
    job = Job(work, 4, torch_env(port := free_port(), 4), lambda rank: ["--join-timeout", "2"], order=[0, 2])
    check_failure(job, {0: 9, 2: 9}, rf"E0903\]: ranks 1, 3 of 4 did not join at 127\.0\.0\.1:{port} within 2 s")


def another_world(work):
    port = free_port()
    job = Job(work, 3, torch_env(port, 3), order=[0])
    job.processes.update(Job(work, 4, torch_env(port, 4), order=[2], pause=0.3).processes)
    job.processes.update(Job(work, 3, torch_env(port, 3), order=[1]).processes)
    check_failure(job, {0: 8, 1: 8, 2: 8}, r"E0901\]: rank 2 was started as one of 4 ranks, rank 0 as one of 3")


def another_program(work, differs="TINY_KEY", how="with another plan or by another build of rankc"):
    env = torch_env(free_port(), 3)
    job = Job(work, 3, lambda rank: {**env(rank), **({differs: "tiny-2"} if rank == 1 else {})}, order=[0, 2, 1], pause=0.1)
    check_failure(job, {0: 8, 1: 8, 2: 8}, rf"E0902\]: rank 1 runs another program than rank 0, compiled {how}")


def another_model(work):
    another_program(work, "TINY_WORK", "from another model or with options that change results")


def a_rank_twice(work):
    env = torch_env(free_port(), 3)
    job = Job(work, 3, lambda rank: env(1 if rank == 2 else rank), order=[0, 1, 2], pause=0.2)
    check_failure(job, {0: 2, 1: 2, 2: 2}, r"E0901\]: rank 1 of 3 was started twice")


def token_of_another_user(work):
    """As anybody can write a file of that name to /tmp."""
    if os.geteuid():
        raise LeftOut("takes root")
    port = free_port()
    path = os.path.join(work.directory, f"rankc-0-127.0.0.1-{port}")
    with open(path, "w") as file:
        file.write(TOKEN)
    os.chmod(path, 0o600)
    os.chown(path, NOBODY, NOBODY)
    with socket.create_server(("127.0.0.1", port)) as fake:
        job = Job(work, 2, torch_env(port, 2), lambda rank: ["--join-timeout", "1"], order=[1])
        check_failure(job, {1: 9}, r"E0903\]: rank 1 of 2 did not find rank 0 .* within 1 s: "
                      rf"'{path}' is not used: it belongs to another user")
        fake.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            fake.accept()
            raise Failed("a rank calls without a token")


def short_token(work):
    job = Job(work, 2, torch_env(free_port(), 2, RANKC_TOKEN="hunter2"), order=[0])
    check_failure(job, {0: 2}, r"E0907\]: RANKC_TOKEN has 7 bytes; a token has 16 to 255")


def several_machines(work):
    """Rank 1's rank 0 is elsewhere; rank 0 knows from its launcher that others are."""
    pattern = (r"E0907\]: ranks that meet at {} are on several machines: set RANKC_TOKEN to the same secret of 16 bytes or more "
               "for all of them")
    job = Job(work, 2, torch_env(29500, 2, MASTER_ADDR="198.51.100.1"), order=[1])
    check_failure(job, {1: 2}, pattern.format(r"198\.51\.100\.1:29500"))
    slurm = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "TINY_SHARDS": "4",
             "SLURM_STEP_TASKS_PER_NODE": "1(x2),2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for env in [torch_env(29500, 2, LOCAL_WORLD_SIZE="1"), lambda rank: slurm]:
        check_failure(Job(work, 2, env, order=[0]), {0: 2}, pattern.format(r"127\.0\.0\.1:29500"))


def no_place(work):
    job = Job(work, 2, lambda rank: {}, flags(2), order=[1])
    check_failure(job, {1: 2}, r"E0901\]: rank 1 of 2 has no rendezvous: .*")


def bad_place(work):
    for place in ["", "host", "host:", "host:0", ":1", "host:99999", "file:", "h" * 300 + ":1"]:
        job = Job(work, 2, lambda rank: {}, flags(2, "--rendezvous", place), order=[0])
        check_failure(job, {0: 2}, r"E0904\]: invalid rendezvous .*")


def unwritable_file(work):
    job = Job(work, 2, lambda rank: {}, flags(2, "--rendezvous", f"file:{work.directory}/none/place"), order=[0])
    check_failure(job, {0: 6}, r"E0904\]: rank 0 cannot publish its address: .*")


def killed(victim):
    """A rank dies in the first step: one of the others says so, and all end."""
    def case(work):
        env = torch_env(free_port(), 3)
        begin = time.monotonic()
        job = Job(work, 3, lambda rank: {**env(rank), "TINY_DO": f"{victim}:kill@1"})
        codes = {rank: -signal.SIGKILL if rank == victim else 9 for rank in range(3)}
        check_failure(job, codes, rf"E0911\]: rank {victim} ended before the job was complete(\n  --> .*)?")
        if time.monotonic() - begin > 10:
            raise Failed("the others took long to notice")
    case.__name__ = f"rank_{victim}_is_killed"
    return case


def a_rank_fails(work):
    """What one rank finds, it says; the others are silent."""
    subprocess.run([TINY], env={**CLEAN, "TINY_WRITE": work.directory, "TINY_ID": "10", "TINY_ID_RANK": "1"}, check=True)
    check_failure(Job(work, 3, torch_env(free_port(), 3)), {0: 9, 1: 3, 2: 9}, r"E0382\]: index 10 is out of range(\n  --> .*)?")


CASES = [address, first_rank_last, option, many, file, file_of_an_earlier_job, address_alone, token_of_the_user, file_of_the_token,
         link_at_the_token, threads, message_of_a_stranger, wrong_token, right_token, fake_rank_0, slow_and_silent, many_strangers,
         rank_of_another_job, memory, nobody_listens, wrong_variables, somebody_else_listens, ranks_are_missing, another_world, another_program, another_model,
         a_rank_twice, token_of_another_user, short_token, several_machines, no_place, bad_place, unwritable_file, killed(0), killed(2),
         a_rank_fails]


def launcher_cases():
    for case, there in [(open_mpi, shutil.which("mpirun.openmpi")), (mpich, shutil.which("mpirun.mpich")),
                        (torchrun, sys.executable == "/usr/bin/python3" and importlib.util.find_spec("torch"))]:
        if there:
            yield case
        else:
            print(f"{case.__name__}: not installed")


def main():
    failed = 0
    chosen = sys.argv[2:]
    for case in [case for case in [*CASES, *launcher_cases()] if not chosen or case.__name__ in chosen]:
        with tempfile.TemporaryDirectory(prefix="rankc-rendezvous-") as directory:
            begin = time.monotonic()
            try:
                case(Work(directory))
                print(f"{case.__name__}: ok, {time.monotonic() - begin:.1f} s", flush=True)
            except LeftOut as why:
                print(f"{case.__name__}: left out, {why}", flush=True)
            except (Failed, OSError, subprocess.SubprocessError) as wrong:
                failed += 1
                print(f"{case.__name__}: FAILED: {wrong}", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
