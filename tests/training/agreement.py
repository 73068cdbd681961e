#!/usr/bin/python3
"""Ranks that were started with different options: the job ends at once, and the error names the option, the rank and both values.

    agreement.py --rankc RANKC [--every N] [--mpi | LAUNCHER...]

Every option that the program prints with --help is in CASES, with values that differ between two ranks, and what comes of it. The
launchers are rankc itself, which starts a script in place of the program, the variables of torchrun, mpirun of each MPI that is
installed, and the same with --comm mpi, under which a job takes a second: --every N goes through every Nth case alone."""
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

from harness import Failed, call, data_of, expect, folder_of, model_of, parser_of

CLEAN = {name: value for name, value in os.environ.items()
         if not re.match(r"(RANK|WORLD_SIZE|LOCAL_.*|MASTER_.*|OMPI_.*|PMI.*|SLURM_.*|RANKC_.*)$", name)}
CLEAN |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
          "OMPI_MCA_hwloc_base_binding_policy": "none", "OMP_NUM_THREADS": "1"}
MPIS = {"openmpi": "mpirun.openmpi", "mpich": "mpiexec.mpich"}
SOON = 60  # seconds within which a job ends, however busy the machine
DIFFERS, OWN, MEETING = "differs", "own", "meeting"
PLAIN = {"--random-inputs": "1"}
SAVING = {"--checkpoint-dir": "{work}/kept"}
EVALUATING = {"--eval-data": "{data}"}
GENERATING = {"--generate": "{work}/prompts"}

# Per option: what comes of different values; other options of both ranks; the values of rank 0 and rank 1. None: not given, True: a flag.
CASES = {
    "--input": [(DIFFERS, PLAIN, "x={work}/a.npy", "x={work}/b.npy"), (DIFFERS, PLAIN, None, "x={work}/b.npy")],
    "--dim": [],  # of programs with open sizes: tests/sizes/embedded.py
    "--data": [(DIFFERS, {}, "{data}", "{other}"), (OWN, {}, "{data}", "{same}")],
    "--steps": [(DIFFERS, {}, "3", "2"), (DIFFERS, PLAIN | {"--data": "{data}"}, "2", None)],
    "--lr-schedule": [(DIFFERS, {}, None, "linear:steps=9"), (DIFFERS, {}, "linear:steps=9", "linear:steps=8")],
    "--lr": [(DIFFERS, {}, None, "0.1"), (DIFFERS, {}, "0.5", "0.25")],
    "--accumulate": [(DIFFERS, {}, "2", "4")],
    "--shuffle": [(DIFFERS, {}, "0", None), (DIFFERS, {}, "4", "5")],
    "--checkpoint-dir": [(DIFFERS, {}, None, "{work}/one"), (DIFFERS, {"--resume": "auto"}, "{work}/kept", "{work}/two"),
                         (DIFFERS, {}, "{work}/two", "{work}/kept"), (OWN, {"--resume": "auto"}, "{work}/kept", "{work}/same/../kept")],
    "--checkpoint-every": [(DIFFERS, SAVING, None, "1")],
    "--keep": [(DIFFERS, SAVING, "1", "2")],
    "--resume": [(DIFFERS, SAVING, "latest", "2")],
    "--checkpoint-async": [(DIFFERS, SAVING, True, None)],
    "--reset-optimizer": [(DIFFERS, SAVING | {"--resume": "latest"}, None, True)],
    "--eval-data": [(DIFFERS, {}, None, "{data}"), (DIFFERS, {}, "{data}", "{other}")],
    "--eval-every": [(DIFFERS, EVALUATING, "1", None)],
    "--eval-steps": [(DIFFERS, EVALUATING, "1", "2")],
    "--early-stop": [(DIFFERS, EVALUATING, "1", "2")],
    "--keep-best": [(DIFFERS, EVALUATING | SAVING, True, None)],
    "--eval-only": [(DIFFERS, EVALUATING, True, None)],
    "--log": [(OWN, {}, "{work}/log", None)],
    "--output-dir": [(OWN, PLAIN, "{work}/out", None)],
    "--comm": [(MEETING, {}, None, "mpi")],  # under mpirun; others say that there is no MPI
    "--adapter": [],  # of programs that have several: tests/generate/adapters.py
    "--broadcast-weights": [(DIFFERS, {}, None, True)],
    "--threads": [(OWN, {}, "1", "2")],
    "--repeat": [(DIFFERS, PLAIN, "2", "3"), (OWN, PLAIN, "1", None)],
    "--warmup": [(DIFFERS, PLAIN, None, "1")],
    "--random-inputs": [(DIFFERS, {}, "1", "2")],
    "--log-every": [(OWN, {}, None, "2")],
    "--trace": [(DIFFERS, {}, "{work}/trace", None), (OWN, {}, "{work}/trace", "{work}/elsewhere")],
    "--trace-steps": [(DIFFERS, {"--trace": "{work}/trace"}, "1:1", "1:2")],
    "--profile": [(DIFFERS, {}, None, True)],
    "--dump-tensors": [(DIFFERS, {"--dump-dir": "{work}/dump"}, "*", None), (DIFFERS, {"--dump-dir": "{work}/dump"}, "*", "x*")],
    "--generate": [(DIFFERS, GENERATING, "{work}/prompts", None)],
    "--max-new-tokens": [(DIFFERS, GENERATING, "2", "3")],
    "--temperature": [(DIFFERS, GENERATING, "0.5", None)],
    "--top-k": [(DIFFERS, GENERATING, "2", "3")],
    "--top-p": [(DIFFERS, GENERATING, "0.5", None)],
    "--min-p": [(DIFFERS, GENERATING, "0.5", None)],
    "--repetition-penalty": [(DIFFERS, GENERATING, "1.5", "2")],
    "--seed": [(DIFFERS, GENERATING, None, "1")],
    "--stop": [(DIFFERS, GENERATING, "1", "2")],
    "--role": [(DIFFERS, GENERATING, "x=ids", "x=mask")],
    "--save-state": [(DIFFERS, GENERATING, "{work}/state", None)],
    "--load-state": [(DIFFERS, GENERATING, "{work}/state", None)],
    "--report": [],  # rank 0's alone
    "--ask": [],
    "--dump-dir": [(DIFFERS, {"--dump-tensors": "*"}, "{work}/dump", None), (OWN, {"--dump-tensors": "*"}, "{work}/dump", "{work}/dump2")],
    "--quiet": [(OWN, {}, True, None)],
    "--verbose": [(OWN, {}, None, True)],
    "--json": [(OWN, {}, True, None)],
    "--rank": [],  # the launchers' own
    "--world": [],  # the runtime's test of rendezvous
    "--rendezvous": [],
    "--join-timeout": [(OWN, {}, "30", "60")],
    "--stall-timeout": [(OWN, {}, "30", "60")],
    "--kernels": [(DIFFERS, {}, "reference", None), (OWN, {}, "auto", None)],
    "--directory": [(OWN, {}, "{work}/model/_/.", None)],
    "--help": [(MEETING, {}, None, True), (MEETING, {}, True, None)],
}


class Bench:
    def __init__(self, rankc, work):
        self.rankc, self.work, self.jobs = rankc, work, 0
        call(rankc, "compile", model_of("mlp"), "-o", work, "-q", "--train", "--pas", "tp:tensor=2", "--accumulate", "2")
        self.directory = f"{work}/model/_"
        self.program = f"{self.directory}/build/real"
        shutil.copy(f"{self.directory}/build/run", self.program)
        os.makedirs(f"{work}/other")
        os.makedirs(f"{work}/same")
        call(self.program, "--comm", "loopback", "--random-inputs=7", "--dump-tensors", "x", "--dump-dir", f"{work}/made", "-q")
        x, made = f"{folder_of('mlp')}/x.npy", f"{work}/made/step_1/micro_0/rank_0/x.npy"
        for source, to, differs in (made, "a", False), (made, "b", True), (x, "other/x", True), (x, "same/x", False):
            copy(source, f"{work}/{to}.npy", differs)
        self.data = [word for word in data_of("mlp", ["x", "target"]) if word != "--data"]
        self.other, self.same = ([f"x={work}/{folder}/x.npy", self.data[1]] for folder in ("other", "same"))
        call(self.program, "--comm", "loopback", *self.words({"--checkpoint-dir": "{work}/kept"}))

    def words(self, options):
        """The command line of a rank: training, unless its options are those of inference."""
        given = dict(options)
        trains = not given.keys() & {"--random-inputs", "--steps"}
        base = {"--data": "{data}"} | ({"--steps": "2"} if trains else {})
        given = {"--directory": self.directory, "--threads": "1", "--quiet": True} | ({} if "--random-inputs" in given else base) | given
        words = []
        for name, value in given.items():
            values = {"{data}": self.data, "{other}": self.other, "{same}": self.same}.get(value, [value])
            for one in values if value is not None else []:
                words += [name] if one is True else [f"{name}={one.format(work=self.work)}"]
        return words

    def job(self, launcher, first, second):
        """Exit code of the job, and what it said."""
        self.jobs += 1
        words = [self.words(first), self.words(second)]
        if launcher == "rankc":
            return self.launched(words)
        if launcher == "torchrun":
            port = free_port()
            env = [CLEAN | {"RANK": str(r), "WORLD_SIZE": "2", "LOCAL_RANK": str(r), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                   for r in range(2)]
            return ended([start([self.program, *words[r]], env[r]) for r in range(2)])
        mpi, _, comm = launcher.partition(" ")
        more = ["--comm", comm] if comm else []
        command = [MPIS[mpi], "-n", "1", self.program, *words[0], *more, ":", "-n", "1", self.program, *words[1], *more]
        for _ in range(4):  # MPICH's launcher returns 1 of some jobs whose ranks both return 8
            code, said = ended([start(command, CLEAN)])
            if mpi != "mpich" or code != 1:
                break
        return code, said

    def launched(self, words):
        """rankc starts a script in place of the program, which replaces the options of each rank."""
        with open(f"{self.directory}/build/run", "w", encoding="utf-8") as script:
            script.write("#!/bin/sh\nfor word; do [ \"$before\" = --rank ] && rank=$word; before=$word; done\n")
            for rank in range(2):
                given = " ".join(f"'{word}'" for word in words[rank])
                script.write(f"[ $rank = {rank} ] && exec {self.program} {given} --rank {rank} --world 2 --comm shm\n")
        return ended([start([self.rankc, "run", self.directory, "--random-inputs"], CLEAN)])


def copy(source, to, differs):
    """A copy, with another last byte but one."""
    with open(source, "rb") as file:
        content = bytearray(file.read())
    content[-2] ^= differs
    with open(to, "wb") as file:
        file.write(content)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(words, env):
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)


def ended(processes):
    """The exit code of the first that failed, and what all said."""
    try:
        said = [process.communicate(timeout=SOON)[1] for process in processes]
    except subprocess.TimeoutExpired:
        raise Failed(f"not ended within {SOON} s") from None
    finally:
        for process in processes:
            process.kill()
    return next((process.returncode for process in processes if process.returncode), 0), "".join(said)


def phrase(option, value):
    """How an error calls it, as a regular expression."""
    if value is None or value is True:
        return f"{'with' if value else 'without'} {option}\\b"
    return f"with {option}\\b"


def check(bench, launcher, option, case):
    """What ranks of the launcher say if their values of an option differ."""
    outcome, both, *values = case
    if outcome == MEETING and launcher not in MPIS:
        return
    first, second = [both | ({} if value is None and option not in both else {option: value}) for value in values]
    code, said = bench.job(launcher, first, second)
    shown = f"{launcher}: {option} {values}: exit {code}\n{said}"
    if outcome == OWN:
        expect(code == 0 and "E09" not in said, shown)
        return
    pattern = rf"E0902\]: rank 1 was started {phrase(option, values[1])}.*, but rank 0 {phrase(option, values[0])}.*: it must be the same"
    expect(code == 8 and re.search(pattern, said), f"{shown} not {pattern}")
    expect(outcome != MEETING or said.count("E0902") == 1, f"{shown} said twice")
    for value in values if outcome == DIFFERS else []:
        plain = value and value is not True and not value.startswith("{") and option not in ("--dump-dir", "--checkpoint-dir", "--trace")
        expect(not plain or value.partition("=")[2].format(work=bench.work) in said, f"{shown} not {value}")


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--mpi", action="store_true", help="all MPIs that are installed; 77: none")
    parser.add_argument("launchers", nargs="*")
    words = parser.parse_args()
    mpis = [f"{mpi}{comm}" for mpi in MPIS for comm in ("", " mpi") if shutil.which(MPIS[mpi])]
    launchers = mpis if words.mpi else words.launchers or ["rankc", "torchrun", *mpis]
    failed = 0
    if not launchers:
        return 77
    with tempfile.TemporaryDirectory(prefix="rankc-agreement-") as work:
        bench = Bench(words.rankc, work)
        printed = re.findall(r"^  (?:-\w, )?(--[a-z-]+)", call(bench.program, "--help").stdout, re.MULTILINE)
        missing = set(printed) ^ set(CASES)
        if missing:
            failed += 1
            print(f"FAILED: options of the program and of this test differ: {sorted(missing)}")
        every = [(option, case) for option, cases in CASES.items() for case in cases]
        for place, launcher in enumerate(launchers):
            for option, case in every[place % words.every::words.every]:
                try:
                    check(bench, launcher, option, case)
                except Failed as wrong:
                    failed += 1
                    print(f"FAILED: {wrong}", flush=True)
        print(f"{bench.jobs} jobs under {', '.join(launchers)}: {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
