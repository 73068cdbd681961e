#!/usr/bin/python3
"""Ranks of the tiny program that are started one by one find each other, or say once why they do not.

    rendezvous.py TINY

Every case starts processes on this machine, and compares outputs with those of ranks that are threads of one process, or exit
codes and diagnostics with what is promised. Launchers that are not installed (mpirun of either MPI, torchrun) are left out, and
named."""
import contextlib
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

TINY = os.path.abspath(sys.argv[1])
LAUNCHERS = re.compile(r"(RANK|WORLD_SIZE|LOCAL_.*|MASTER_.*|OMPI_.*|PMI.*|SLURM_.*|RANKC_.*|TORCHELASTIC_.*|TINY_.*)$")
CLEAN = {name: value for name, value in os.environ.items() if not LAUNCHERS.match(name)}


class Wrong(Exception):
    pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Work:
    """A directory with the program's files, and what its outputs should be."""

    def __init__(self, directory):
        self.directory = directory
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
        for rank in order if order is not None else range(ranks):
            self.processes[rank] = subprocess.Popen(
                work.command(name, *options(rank)), env={**CLEAN, "TINY_SHARDS": str(ranks), **env(rank)},
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(pause)

    def wait(self):
        """Exit codes by rank, and all that was said, by rank."""
        said = {rank: process.communicate(timeout=60)[1] for rank, process in sorted(self.processes.items())}
        return {rank: process.returncode for rank, process in self.processes.items()}, said


def torch_env(port, ranks):
    return lambda rank: {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(ranks),
                         "LOCAL_RANK": str(rank)}


def flags(ranks, *options):
    return lambda rank: ["--rank", str(rank), "--world", str(ranks), *options]


def check_outputs(work, ranks, job, name="out"):
    codes, said = job.wait()
    if any(codes.values()) or any(said.values()):
        raise Wrong(f"exit codes {codes}, said {said}")
    if work.outputs(name) != work.expected(ranks):
        raise Wrong("outputs differ from those of one process")


def check_failure(job, codes, pattern):
    """One diagnostic in all, which the pattern matches."""
    got, said = job.wait()
    text = "".join(said.values())
    if got != codes or not re.fullmatch(rf"rankc: error\[{pattern}\n", text):
        raise Wrong(f"exit codes {got}, wanted {codes}; said {said}, wanted {pattern}")


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
        raise Wrong("the file is still there")


def file_of_an_earlier_job(work):
    place = os.path.join(work.directory, "place")
    with socket.socket() as other:  # which listens where the first rank of that job did, and hangs up
        other.bind(("127.0.0.1", 0))
        other.listen()
        with open(place, "w") as card:
            card.write(f"{'0' * 32} {other.getsockname()[1]} 127.0.0.1\n")
        job = Job(work, 2, lambda rank: {}, flags(2, "--rendezvous", f"file:{place}"), order=[1])
        other.accept()[0].close()
    job.processes.update(Job(work, 2, lambda rank: {}, flags(2, "--rendezvous", f"file:{place}"), order=[0]).processes)
    check_outputs(work, 2, job)


def strangers(work):
    """Who connects and says nothing, or something else, does not disturb."""
    port = free_port()
    job = Job(work, 2, torch_env(port, 2), order=[0])
    open_ones = []
    for words in [b"", b"GET / HTTP/1.0\r\n\r\n", b"\0" * 4096] * 30:
        until = time.monotonic() + 10
        while True:
            try:
                open_ones.append(socket.create_connection(("127.0.0.1", port)))
                break
            except ConnectionRefusedError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
        with contextlib.suppress(OSError):
            open_ones[-1].sendall(words)
    job.processes.update(Job(work, 2, torch_env(port, 2), order=[1]).processes)
    check_outputs(work, 2, job)
    for one in open_ones:
        one.close()


def launched(work, ranks, command, name):
    done = subprocess.run([*command, *work.command(name)], env={**CLEAN, "TINY_SHARDS": str(ranks)}, capture_output=True,
                          text=True, timeout=120)
    if done.returncode or work.outputs(name) != work.expected(ranks):
        raise Wrong(f"exit {done.returncode}: {done.stdout}{done.stderr}")


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
    check_failure(job, {1: 9}, rf"E0903\]: rank 1 of 2 did not find rank 0 at 127\.0\.0\.1:{port} within 1 s: nobody listens")


def somebody_else_listens(work):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        job = Job(work, 2, torch_env(port, 2), lambda rank: ["--join-timeout", "1"], order=[0])
        check_failure(job, {0: 6}, rf"E0904\]: rank 0 cannot listen at 127\.0\.0\.1:{port}: Address already in use")


def ranks_are_missing(work):
    job = Job(work, 4, torch_env(port := free_port(), 4), lambda rank: ["--join-timeout", "2"], order=[0, 2])
    check_failure(job, {0: 9, 2: 9}, rf"E0903\]: ranks 1, 3 of 4 did not come to 127\.0\.0\.1:{port} within 2 s")


def another_world(work):
    port = free_port()
    job = Job(work, 3, torch_env(port, 3), order=[0])
    job.processes.update(Job(work, 4, torch_env(port, 4), order=[2], pause=0.3).processes)
    job.processes.update(Job(work, 3, torch_env(port, 3), order=[1]).processes)
    check_failure(job, {0: 8, 1: 8, 2: 8}, r"E0901\]: rank 2 was started as one of 4 ranks, rank 0 as one of 3")


def another_program(work):
    env = torch_env(free_port(), 3)
    job = Job(work, 3, lambda rank: {**env(rank), **({"TINY_KEY": "tiny-2"} if rank == 1 else {})}, order=[0, 2, 1], pause=0.1)
    check_failure(job, {0: 8, 1: 8, 2: 8}, r"E0902\]: rank 1 runs another program than rank 0")


def a_rank_twice(work):
    env = torch_env(free_port(), 3)
    job = Job(work, 3, lambda rank: env(1 if rank == 2 else rank), order=[0, 1, 2], pause=0.2)
    check_failure(job, {0: 2, 1: 2, 2: 2}, r"E0901\]: rank 1 of 3 was started twice")


def no_place(work):
    job = Job(work, 2, lambda rank: {}, flags(2), order=[1])
    check_failure(job, {1: 2}, r"E0901\]: rank 1 of 2 does not know where the others are: .*")


def bad_place(work):
    for place in ["", "host", "host:", "host:0", ":1", "host:99999", "file:", "h" * 300 + ":1"]:
        job = Job(work, 2, lambda rank: {}, flags(2, "--rendezvous", place), order=[0])
        check_failure(job, {0: 2}, r"E0904\]: ranks cannot meet at .*")


def unwritable_file(work):
    job = Job(work, 2, lambda rank: {}, flags(2, "--rendezvous", f"file:{work.directory}/none/place"), order=[0])
    check_failure(job, {0: 6}, r"E0904\]: rank 0 cannot say where it listens: .*")


def killed(victim):
    """A rank dies in the first step: one of the others says so, and all end."""
    def case(work):
        env = torch_env(free_port(), 3)
        begin = time.monotonic()
        job = Job(work, 3, lambda rank: {**env(rank), "TINY_DO": f"{victim}:kill@1"})
        codes = {rank: -signal.SIGKILL if rank == victim else 9 for rank in range(3)}
        check_failure(job, codes, rf"E0911\]: rank {victim} ended before the job had(\n  --> .*)?")
        if time.monotonic() - begin > 10:
            raise Wrong("the others took long to notice")
    case.__name__ = f"rank_{victim}_is_killed"
    return case


def a_rank_fails(work):
    """What one rank finds, it says; the others are silent."""
    subprocess.run([TINY], env={**CLEAN, "TINY_WRITE": work.directory, "TINY_ID": "10", "TINY_ID_RANK": "1"}, check=True)
    check_failure(Job(work, 3, torch_env(free_port(), 3)), {0: 9, 1: 3, 2: 9}, r"E0382\]: index 10 is out of range(\n  --> .*)?")


CASES = [address, first_rank_last, option, many, file, file_of_an_earlier_job, strangers, nobody_listens, somebody_else_listens,
         ranks_are_missing, another_world, another_program, a_rank_twice, no_place, bad_place, unwritable_file,
         killed(0), killed(2), a_rank_fails]


def launcher_cases():
    for case, there in [(open_mpi, shutil.which("mpirun.openmpi")), (mpich, shutil.which("mpirun.mpich")),
                        (torchrun, sys.executable == "/usr/bin/python3" and importlib.util.find_spec("torch"))]:
        if there:
            yield case
        else:
            print(f"{case.__name__}: not installed")


def main():
    failed = 0
    for case in [*CASES, *launcher_cases()]:
        with tempfile.TemporaryDirectory(prefix="rankc-rendezvous-") as directory:
            begin = time.monotonic()
            try:
                case(Work(directory))
                print(f"{case.__name__}: ok, {time.monotonic() - begin:.1f} s", flush=True)
            except (Wrong, subprocess.SubprocessError) as wrong:
                failed += 1
                print(f"{case.__name__}: FAILED: {wrong}", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
