#!/usr/bin/python3
"""Ranks that MPI connects, under each MPI that is installed: the conformance suite of transports, and programs.

    mpi.py TEST_COMM [RANKC [CASE...]]
    mpi.py TEST_COMM RANKC --sample        what the test suite runs: the others take minutes where ranks share cores

A letter per rank names its host, and ranks of one letter share memory. Hosts are namespaces (namespaces.py) where those are
allowed, each with its own network, name and /dev/shm; else, and with RANKC_TEST_NAMESPACES=0, they are told apart by RANKC_HOST
alone. Programs give what they give in shared memory, bit for bit. Exit status 77 where no MPI is installed."""
import contextlib
import glob
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import Failed, call, expect  # noqa: E402

from namespaces import Namespaces, NotAllowed

HERE = os.path.dirname(os.path.abspath(__file__))
GPT2 = os.path.join(HERE, "..", "training", "gpt2")
SAMPLES = os.path.join(HERE, "..", "..", "samples")
MPIS = {"openmpi": "mpirun.openmpi", "mpich": "mpiexec.mpich"}
MODEL = os.path.join(HERE, "..", "models", "gpt2_static")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
           "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
           "OMP_NUM_THREADS": "1"}
LAUNCHERS = re.compile(r"(RANK|WORLD_SIZE|LOCAL_.*|MASTER_.*|OMPI_.*|PMI.*|SLURM_.*|RANKC_.*)$")
for set_by_launcher in filter(LAUNCHERS.match, list(os.environ)):
    del os.environ[set_by_launcher]
os.environ.update(AS_ROOT)
ENV = os.environ
PROGRAM = '"$@"'  # of a script of mpirun
FATAL = ["abort", "abort of posted transfers", "different calls"]
SAMPLE = ["openmpi conformance aa ", "openmpi conformance aab ", "openmpi inference aabb", "openmpi training ab --pas tp", "openmpi training aabb",
          "openmpi different", "openmpi killed", "openmpi callers abab", "mpich broadcast", "mpich conformance ab ", "mpich conformance fatal", "mpich inference abb",
          "mpich training", "mpich different", "mpich killed", "mpich restarted", "mpich callers aaaa", "openmpi hanging ab", "mpich hanging aa",
          "mpich large hosts aaabbbccc", "mpich stopped"]
# hosts, arguments of the compile; all are run again in shared memory
INFERENCE = [("ab", ["--pas", "tp", "--plan-ngpus", "2"]), ("aabb", ["--pas", "hybrid:tensor=2,data=2", "--plan-ngpus", "4"]),
             ("abb", ["--pas", "pp", "--plan-ngpus", "3"])]
TRAINING = [("ab", ["--pas", "tp", "--plan-ngpus", "2"]),
            *(("aabb" if stage else "ab", ["--pas", "dp", "--use-zero", str(stage)]) for stage in range(4)),
            ("abab", ["--pas", "hybrid:tensor=2,data=2", "--plan-ngpus", "4"]),
            ("ab", ["--pas", "context:context=2,attention=heads"]),
            ("ab", ["--pas", "pp", "--plan-ngpus", "2", "--accumulate", "4", "--schedule", "1f1b"])]


# Of a launcher: words before the first rank, and words of a rank. Not MPICH: a program of one message hangs in MPI_Finalize
# between namespaces (4.0.2 with UCX 1.13 over TCP), so its hosts are told apart by RANKC_HOST.
STARTS = {"openmpi": ("--mca plm_rsh_agent {agent} --mca plm_rsh_no_tree_spawn 1 --mca btl_tcp_if_include {network} "
                      "--mca oob_tcp_if_include {network}", "-n 1 --host {address}:64")}
network = None  # Namespaces, or None: hosts are told apart by RANKC_HOST


def launched(mpi, hosts, *command):
    """The command of a rank on each of the hosts."""
    if network and mpi in STARTS:
        start, rank = STARTS[mpi]
        words = [*network.inside(hosts[0]), MPIS[mpi], *start.format(agent=network.agent, network=network.range).split()]
        of_host = {host: rank.format(address=network.address(host)).split() for host in hosts}
    else:
        words = [MPIS[mpi]]
        of_host = {host: ["-n", "1", "env", f"RANKC_HOST={host}"] for host in hosts}
    for place, host in enumerate(hosts):
        words += [*([":"] if place else []), *of_host[host], *command]
    return words


def conform(mpi, hosts, test):
    call(*launched(mpi, hosts, test, hosts, "*"))


def large_hosts(mpi, hosts, test):
    """Hosts with so many ranks that a reduce-scatter goes along the chain of hosts."""
    call(*launched(mpi, hosts, test, hosts, "all-gather", "reduce-scatter", "nan"))


def fatal(mpi, hosts, test):
    for case in FATAL:
        done = call(*launched(mpi, hosts, test, hosts, case), status=None)
        passed = len(re.findall(r"^rank \d+ passed$", done.stdout, re.MULTILINE))
        expect(passed == len(hosts), f"{case}: {passed} of {len(hosts)} ranks passed\n{done.stdout}{done.stderr}")


def inputs():
    names = {path: os.path.basename(path)[:-4] for path in sorted(glob.glob(f"{MODEL}/inputs/*.npy"))}
    return [word for path, name in names.items() for word in ("--input", f"{name}={path}")]


def inference(bench, mpi, hosts, options):
    program = bench.compile(os.path.join(MODEL, "model.onnx"), *options)
    given = inputs()
    expected, got = bench.path("expected"), bench.path("got")
    call(bench.rankc, "run", program, *given, "--output-dir", expected, "--threads", "1")
    call(*launched(mpi, hosts, f"{program}/build/run", *given, "--output-dir", got, "--threads", "1", "--comm", "mpi"))
    compare(expected, got, "*.npy")


def trained(bench, *options):
    """A program that trains GPT-2, and its data."""
    with open(f"{GPT2}/reference.json", encoding="utf-8") as file:
        recorded = json.load(file)
    program = bench.compile(f"{GPT2}/model.onnx", "--train", "--optimizer", "adamw:lr=0.003", "--clip-grad-norm", "1", *options)
    given = [word for name in recorded["inputs"] for word in ("--data", f"{name}={GPT2}/{name}.npy")]
    return program, [*given, "--threads", "1", "--quiet"]


def training(bench, mpi, hosts, options):
    program, given = trained(bench, *options)
    given += ["--steps", "3"]
    expected, got = bench.path("expected"), bench.path("got")
    call(bench.rankc, "train", program, "--runtime-ngpus", str(len(hosts)), *given, "--checkpoint-dir", expected,
         "--log", f"{expected}.jsonl")
    call(*launched(mpi, hosts, f"{program}/build/train", *given, "--checkpoint-dir", got, "--log", f"{got}.jsonl", "--comm", "mpi"))
    expect(metrics(f"{expected}.jsonl") == metrics(f"{got}.jsonl"), "metrics differ")
    compare(expected, got, "step-*/*.safetensors")


def metrics(log):
    with open(log, encoding="utf-8") as lines:
        return [{name: line[name] for name in ("step", "loss", "grad_norm") if name in line} for line in map(json.loads, lines)]


def compare(expected, got, pattern):
    names = [os.path.relpath(path, expected) for path in sorted(glob.glob(f"{expected}/{pattern}"))]
    expect(names, f"no {pattern} in {expected}")
    for name in names:
        with open(f"{expected}/{name}", "rb") as one, open(f"{got}/{name}", "rb") as other:
            expect(one.read() == other.read(), f"{name} differs")


REFUSED = (8, 9)  # mpirun's exit code may be that of a rank which was ended because of the other one


def different_programs(bench, mpi, hosts, _):
    """All ranks stop, and it is said which one has another program."""
    one = bench.compile(os.path.join(MODEL, "model.onnx"), "--pas", "tp", "--plan-ngpus", "2")
    other = bench.compile(os.path.join(MODEL, "model.onnx"), "--pas", "pp", "--plan-ngpus", "2")
    given = inputs()
    words = launched(mpi, hosts, f"{one}/build/run", *given, "--comm", "mpi")
    words[len(words) - words[::-1].index(f"{one}/build/run") - 1] = f"{other}/build/run"
    done = call(*words, status=None)
    expect(done.returncode in REFUSED, f"exit {done.returncode}, not 8\n{done.stderr}")
    expect("rank 1 runs another program than rank 0, compiled with another plan" in done.stderr, done.stderr)


def different_checkpoints(bench, mpi, hosts, _):
    """A host whose rank only reads has a directory of its own, with another checkpoint: all ranks stop, and it is said which one has it."""
    program, given = trained(bench, "--pas", "dp")
    one, other = bench.path("one"), bench.path("other")
    for directory, rate in (one, "0.003"), (other, "0.3"):
        call(bench.rankc, "train", program, *given, "--steps", "1", "--checkpoint-dir", directory, "--lr", rate)
    words = launched(mpi, hosts, f"{program}/build/train", *given, "--steps", "2", "--checkpoint-dir", one, "--resume", "1", "--comm", "mpi")
    words[len(words) - words[::-1].index(one) - 1] = other
    done = call(*words, status=None)
    expect(done.returncode in REFUSED, f"exit {done.returncode}, not 8\n{done.stderr}")
    expect("rank 1 has another checkpoint of step 1 than rank 0" in done.stderr, done.stderr)


def killed(bench, mpi, hosts, _):
    """A rank is killed: the job is down within the time that the launcher takes, with an exit code other than 0."""
    program = bench.compile(os.path.join(MODEL, "model.onnx"), "--pas", "tp", "--plan-ngpus", "2")
    given = inputs()
    command = launched(mpi, hosts, f"{program}/build/run", *given, "--comm", "mpi", "--repeat", "100000000")
    with subprocess.Popen(command, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as job:
        ranks = bench.wait_for_ranks(f"{program}/build/run", 2)
        time.sleep(1)
        os.kill(ranks[-1], signal.SIGKILL)
        start = time.monotonic()
        job.communicate(timeout=60)
        expect(job.returncode != 0, "exit 0")
        expect(time.monotonic() - start < 10, f"{time.monotonic() - start:.1f} s until the job was down")


def stopped(bench, mpi, hosts, _):
    """Rank 0 is stopped by a signal while the other one has not come to MPI_Init, or ends with an error before: the job ends soon, with its
    exit code."""
    program, given = trained(bench, "--pas", "tp", "--plan-ngpus", "2")
    script = 'r=${PMI_RANK:-$OMPI_COMM_WORLD_RANK}; [ $r = 0 ] || sleep 2; echo $$ >"$0.$r"; %s exec "$@"'
    for sent, change, status in (signal.SIGTERM, "", 130), (signal.SIGINT, 'set -- "$@" --comm mpi;', 130), (None, '[ $r = 0 ] && set -- "$@" --lr x;', 2):
        file = bench.path("rank")
        words = launched(mpi, hosts, "sh", "-c", script % change, file, f"{program}/build/train", *given, "--steps", "60")
        with subprocess.Popen(words, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as job:
            if sent:
                bench.wait_for(lambda path=f"{file}.0": os.path.exists(path) and os.path.getsize(path), "rank 0")
                time.sleep(1)
                with open(f"{file}.0", encoding="ascii") as number:
                    os.kill(int(number.read()), sent)
            try:
                said = job.communicate(timeout=30)[1]
            except subprocess.TimeoutExpired:
                job.kill()
                raise
        expect(job.returncode == status, f"{sent}: exit {job.returncode}, not {status}\n{said}")


def broadcast(bench, mpi, hosts, _):
    """Rank 0 compiles, and the other host gets the files of --broadcast and can start: without weights those of the first unit are sent."""
    given = trained(bench, "--use-zero", "3")[1] + ["--steps", "2"]
    expected, log = bench.path("expected"), bench.path("log")
    call(bench.rankc, "train", trained(bench, "--use-zero", "3")[0], "--runtime-ngpus", "2", *given, "--checkpoint-dir", expected)
    here, there = bench.path("here"), bench.path("there")

    def compiled(*options, model=f"{GPT2}/model.onnx", status=0):
        words = launched(mpi, hosts, bench.rankc, "compile", model, "-q", "--train", "--optimizer", "adamw:lr=0.003", "--clip-grad-norm", "1",
                         "--use-zero", "3", "-o", here, *options)
        words[len(words) - words[::-1].index(here) - 1] = there
        words[len(words) - words[::-1].index(model) - 1] = "/no/such/model.onnx"  # only rank 0 reads it
        done = call(*words, status=None)
        expect(done.returncode == status, f"exit {done.returncode}, not {status}\n{done.stderr}")
        return done.stderr
    for choice, left in (("all", set()), ("no_weights", {"weights/slices-0.safetensors"}),
                         ("code", {"weights/slices-0.safetensors", "graph.rir", "plan.json"})):
        shutil.rmtree(there, ignore_errors=True)
        compiled("--weights", "copy", "--broadcast", choice)
        files, got = files_of(f"{here}/model/_"), files_of(f"{there}/model/_")
        expect(set(files) - set(got) == left and all(files[name] == got[name] for name in got), f"{choice}: {set(files) ^ set(got)}")
    state = os.stat(f"{there}/model/_/manifest.json").st_ino
    compiled("--weights", "copy", "--broadcast", "code")
    expect(os.stat(f"{there}/model/_/manifest.json").st_ino == state, "files that are there were sent again")
    words = launched(mpi, hosts, f"{here}/model/_/build/train", *given, "--checkpoint-dir", log, "--comm", "mpi")
    words[len(words) - words[::-1].index(f"{here}/model/_/build/train") - 1] = f"{there}/model/_/build/train"
    done = call(*words, status=None)
    expect(done.returncode and done.stderr.count("E0601") == 1 and "'weights/slices-0.safetensors'" in done.stderr, done.stderr)
    call(*[part for word in words for part in (["--broadcast-weights", word] if word == "--comm" else [word])])
    compare(expected, log, "step-*/*.safetensors")
    said = compiled("--broadcast", "all", model="/no/such/model.onnx", status=6)
    expect(said.count("E0601") == 1 and os.stat(f"{there}/model/_/manifest.json").st_ino == state, said)
    shutil.rmtree(there)
    with open(there, "w", encoding="utf-8"):
        said = compiled("--weights", "copy", "--broadcast", "all", status=6)
    expect(said.count("E0611") == 1 and there in said, said)
    said = call(bench.rankc, "compile", f"{GPT2}/model.onnx", "-o", here, "--broadcast", "all", status=2).stderr
    expect("mpirun -n PROCESSES" in said, said)


def files_of(directory):
    """Contents by path, without what make leaves in build/."""
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.relpath(f"{folder}/{name}", directory)
            if not path.startswith("build/") or name in ("run", "train", "stamp"):
                with open(f"{folder}/{name}", "rb") as file:
                    found[path] = file.read()
    return found


def restarted(bench, mpi, hosts, _):
    """rankc train --comm mpi --restarts: mpirun is started again after a rank was killed, and the run has the bits of one that nothing
    disturbed. It is not after an error that a rank reports, after a signal, or when no restart is left."""
    program, given = trained(bench, "--pas", "tp", "--plan-ngpus", "2")
    given.remove("--quiet")  # which hides the notes on restarts
    folder, whole = bench.path("mpirun"), bench.path("whole")
    os.mkdir(folder)
    with open(f"{folder}/mpirun", "w", encoding="ascii") as script:
        script.write(f'#!/bin/sh\nexec {MPIS[mpi]} "$@"\n')
    os.chmod(f"{folder}/mpirun", 0o755)
    env = {**ENV, "PATH": f"{folder}:{ENV['PATH']}"}
    steps = 400
    call(bench.rankc, "train", program, *given, "--steps", str(steps), "--checkpoint-dir", whole, "--log", f"{whole}.jsonl")

    def train(restarts, *options):
        kept = bench.path("kept")
        return kept, subprocess.Popen([bench.rankc, "train", program, *given, "--comm", "mpi", "--restarts", str(restarts), "--checkpoint-dir", kept,
                                       "--checkpoint-every", "20", "--log", f"{kept}.jsonl", *options], env=env, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.PIPE, text=True)
    for restarts, status in (2, 0), (1, 9):
        kept, run = train(restarts, "--steps", str(steps))
        for kill in range(2):
            ranks = bench.wait_for_ranks(f"{program}/build/train", 2)
            bench.wait_for(lambda: glob.glob(f"{kept}/step-{20 + 40 * kill}"), "a checkpoint")
            os.kill(ranks[kill], signal.SIGKILL)
            bench.wait_for(lambda: not any(os.path.exists(f"/proc/{rank}/exe") for rank in ranks), "the end of the ranks")
        said = run.communicate(timeout=120)[1]
        expect(run.returncode == status, f"exit {run.returncode}, not {status}\n{said}")
        expect(said.count("E0911") == 2 and said.count("note: restart ") == restarts, said)
        if not status:
            expect(metrics(f"{kept}.jsonl") == metrics(f"{whole}.jsonl"), "other metrics")
            compare(whole, kept, f"step-{steps}/*.safetensors")
    for options, code in (["--lr", "1e30"], "E0914"), (["--resume", "latest"], "E0601"):
        said = (run := train(3, "--steps", "5", *options)[1]).communicate(timeout=120)[1]
        # mpirun's exit code may be that of a rank which ended because of the other one, and it may end before it passed on what a rank
        # said: then rankc says so (E0911) and starts it again, to the same end
        expect(run.returncode in (6, 9) and code in said and ("restart " not in said or "E0911" in said), f"{options}: exit {run.returncode}\n{said}")
    run = train(3, "--steps", "1000000")[1]
    ranks = bench.wait_for_ranks(f"{program}/build/train", 2)
    run.send_signal(signal.SIGTERM)
    said = run.communicate(timeout=120)[1]
    expect(run.returncode == 130 and "restart " not in said, f"exit {run.returncode}\n{said}")
    # mpirun may end moments before the ranks that it has ended
    bench.wait_for(lambda: not any(os.path.exists(f"/proc/{rank}/exe") for rank in ranks), "the end of the ranks")


def callers(bench, mpi, hosts, _):
    """Programs on communicators of a caller who has initialised MPI: tests/runtime/callers.c, and samples/mpi."""
    tokens = inputs()[1].split("=")[1]
    for source, model, names, words in ((f"{HERE}/callers.c", f"{MODEL}/model.onnx", "half", ["single"] if mpi == "mpich" else []),
                                        (f"{SAMPLES}/mpi/groups.c", f"{SAMPLES}/models/gpt2.onnx", "group", [])):
        program = bench.compile(model, "--pas", "tp", "--plan-ngpus", "2")
        given, binary, out = f"{SAMPLES}/models/gpt2.input_ids.npy" if names == "group" else tokens, bench.path(mpi), bench.path("out")
        name = "input_ids" if names == "group" else inputs()[1].split("=")[0]
        call("make", "-s", "-C", program, "build/model.a")
        flags = call("make", "-s", "-C", program, "--eval", "print:;@echo $(RANKC_CFLAGS) -- $(RANKC_LIBS)", "print").stdout.split()
        libraries = flags[flags.index("--") + 1:]
        done = call(f"mpicc.{mpi}", "-std=gnu11", "-Wall", "-Wextra", "-fopenmp", f"-I{program}", *flags[:flags.index("--")], "-o", binary,
                    source, "build/model.a", *libraries, status=None, cwd=program)
        expect(done.returncode == 0, done.stderr)
        done = call(*launched(mpi, hosts, binary, program, given, *words))
        call(bench.rankc, "run", program, "--input", f"{name}={given}", "--output-dir", out, "--threads", "1")
        first = "%.6g" % first_value(glob.glob(f"{out}/*.npy")[0])
        said = dict(re.findall(rf"^{names} (\d): (\S+)", done.stdout, re.MULTILINE))
        expect({key: "%.6g" % float(value) for key, value in said.items()} == {"0": first, "1": first}, f"{said}, not {first}\n{done.stderr}")


def hanging(bench, mpi, hosts, _):
    """A rank that is stopped is found and named, and the job ends: with exit 9, or it starts again with --restarts."""
    program, given = trained(bench, "--pas", "tp", "--plan-ngpus", "2")
    given.remove("--quiet")
    env = with_mpirun(bench, mpi, hosts)
    for restarts, status in ((0, 9), (1, 0)):
        kept = bench.path("kept")
        with subprocess.Popen([bench.rankc, "train", program, *given, "--comm", "mpi", "--restarts", str(restarts), "--stall-timeout", "1", "--steps",
                               "300", "--checkpoint-dir", kept, "--checkpoint-every", "20"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True) as job:
            ranks = bench.wait_for_ranks(f"{program}/build/train", 2)
            bench.wait_for(lambda: glob.glob(f"{kept}/step-20"), "a checkpoint")
            os.kill(ranks[1], signal.SIGSTOP)
            try:
                said = job.communicate(timeout=60)[1]
            finally:
                job.kill()
        expect(job.returncode == status, f"exit {job.returncode}, not {status}\n{said}")
        expect(re.search(r"error\[E0912\]: rank [01] \(pid %d\) made no progress for [0-9.]+ s: it is stopped" % ranks[1], said), said)
        expect(re.search(r"note: rank [01], step [0-9]+, call [0-9]+ \(.*(at node '[^']+' \([A-Za-z]+\)|between instructions)", said), said)
        expect(said.count("note: restart ") == restarts and "E0601" not in said, said)


def with_mpirun(bench, mpi, hosts):
    """An environment whose mpirun is that of this MPI and starts ranks on these hosts."""
    folder = bench.path("mpirun")
    os.mkdir(folder)
    with open(f"{folder}/mpirun", "w", encoding="ascii") as script:
        # mpirun -n N PROGRAM ..
        script.write(f"#!/bin/sh\nshift 2\nexec {' '.join(launched(mpi, hosts, PROGRAM))}\n")
    os.chmod(f"{folder}/mpirun", 0o755)
    return {**ENV, "PATH": f"{folder}:{ENV['PATH']}"}


def parent(entry):
    with open(f"{entry}/stat", encoding="utf-8", errors="replace") as file:
        return "/proc/" + file.read().rpartition(")")[2].split()[1]


def first_value(path):
    with open(path, "rb") as file:
        content = file.read()
    return struct.unpack_from("<f", content, 10 + struct.unpack_from("<H", content, 8)[0])[0]


class Bench:
    def __init__(self, rankc, work):
        self.rankc, self.work, self.made = rankc, work, 0

    def path(self, name):
        self.made += 1
        return f"{self.work}/{self.made}-{name}"

    def compile(self, model, *options):
        """Compiled once for all MPIs."""
        out = f"{self.work}/{abs(hash((model, options)))}"
        if not os.path.isdir(out):
            call(self.rankc, "compile", model, "-q", "-o", out, *options)
        return glob.glob(f"{out}/*/_")[0]

    def wait_for(self, condition, what):
        deadline = time.monotonic() + 30
        while not condition():
            if time.monotonic() > deadline:
                raise Failed(f"{what}: not within 30 s")
            time.sleep(0.005)

    def wait_for_ranks(self, program, n):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            found = []
            for entry in glob.glob("/proc/[0-9]*"):
                try:
                    if os.path.samefile(f"{entry}/exe", program) and not os.path.samefile(f"{parent(entry)}/exe", program):
                        found.append(int(os.path.basename(entry)))
                except OSError:
                    pass
            if len(found) == n:
                return sorted(found)
            time.sleep(0.05)
        raise Failed("the ranks have not begun")


def cases(bench, test, mpi):
    for hosts in ("aa", "ab", "aab", "aabb", "abab"):
        yield f"conformance {hosts}", lambda hosts=hosts: conform(mpi, hosts, test)
    for hosts in ("aaaabbbb", "aaabbbccc", "aaaaabbbbb"):
        yield f"large hosts {hosts}", lambda hosts=hosts: large_hosts(mpi, hosts, test)
    yield "conformance fatal aabb", lambda: fatal(mpi, "aabb", test)
    if bench.rankc:
        for hosts, options in INFERENCE:
            yield f"inference {hosts} {' '.join(options)}", lambda h=hosts, o=options: inference(bench, mpi, h, o)
        for hosts, options in TRAINING:
            yield f"training {hosts} {' '.join(options)}", lambda h=hosts, o=options: training(bench, mpi, h, o)
        for function in (different_programs, different_checkpoints, broadcast, killed, restarted, stopped):
            yield function.__name__, lambda f=function: f(bench, mpi, "ab", None)
        for hosts in ("aa", "ab"):
            yield f"hanging {hosts}", lambda h=hosts: hanging(bench, mpi, h, None)
        for hosts in ("aaaa", "abab"):
            if shutil.which(f"mpicc.{mpi}"):
                yield f"callers {hosts}", lambda h=hosts: callers(bench, mpi, h, None)


def several_hosts():
    """A context with the hosts of all cases, which are namespaces where those are allowed."""
    global network
    why = "RANKC_TEST_NAMESPACES is 0"
    if os.environ.get("RANKC_TEST_NAMESPACES") != "0":
        try:
            network = Namespaces("abc")
            print("hosts are namespaces")
            return network
        except NotAllowed as reason:
            why = reason
    print(f"hosts are told apart by RANKC_HOST: {why}")
    return contextlib.nullcontext()


def main():
    test = os.path.abspath(sys.argv[1])
    rankc = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2] else None
    chosen = SAMPLE if sys.argv[3:] == ["--sample"] else sys.argv[3:]
    found = [mpi for mpi, program in MPIS.items() if shutil.which(program)]
    for mpi in set(MPIS) - set(found):
        print(f"left out: {MPIS[mpi]} is not installed")
    if not found:
        return 77
    failed = 0
    with tempfile.TemporaryDirectory(prefix="rankc-mpi-") as work, several_hosts():
        bench = Bench(rankc, work)
        for mpi in found:
            for name, case in cases(bench, test, mpi):
                if chosen and not any(word in f"{mpi} {name} " for word in chosen):
                    continue
                start, why = time.monotonic(), None
                try:
                    case()
                except (Failed, OSError, subprocess.TimeoutExpired) as error:
                    failed, why = failed + 1, f"{type(error).__name__}: {error}"
                print(f"{'FAILED' if why else 'ok'} {mpi} {name} ({time.monotonic() - start:.1f} s)\n{why or ''}".rstrip(), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
