"""Reports of misuse, of hostile files and of machines that fail."""
import os
import re
import shlex
import shutil
import signal
import subprocess
import time

from call import ENVIRONMENT, Failed, expect, run

import numpy as np

LOSS = ["--train", "--loss", "cross_entropy:logits=y,labels=labels"]


def long_initializer(rankc, folder, work):
    from onnx import TensorProto, helper, numpy_helper, save
    name = "a" * 508
    graph = helper.make_graph([helper.make_node("MatMul", ["x", name], ["y"])], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 4])], [numpy_helper.from_array(np.ones((8, 4), "f4"), name)])
    model, x = os.path.join(work, "long.onnx"), os.path.join(work, "x.npy")
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    np.save(x, np.ones((4, 8), "f4"))
    run(rankc, "compile", model, "-o", f"{work}/out", "-q")
    expect("8 8 8" in run(rankc, "run", f"{work}/out", "--input", f"x={x}"), "the sums are not 8")


def recomputed_boundary(rankc, folder, work):
    """Every plan of the report is planned, or refused as what it is: never by the check of layouts (E1101)."""
    with open(os.path.join(folder, "cmd"), encoding="utf-8") as file:
        lines = [shlex.split(line.replace("$L", shlex.join(LOSS)), comments=True) for line in file if line.startswith("rankc plan")]
    expect(len(lines) == 4, "four plans")
    for line in lines:
        said = run(rankc, *line[1:], cwd=folder, status=None)
        expect("E1101" not in said and "internal error" not in said, f"{shlex.join(line)}\n{said}")


def interrupted_start(rankc, folder, work):
    """SIGTERM to one of two ranks under MPICH while they start ends the other and mpirun."""
    mpirun = shutil.which("mpirun.mpich")
    expect(mpirun, "no mpirun.mpich")
    run(rankc, "compile", f"{folder}/mlp.onnx", "--dim", "batch=4", *LOSS, "--optimizer", "adamw:lr=0.01", "--pas", "tp", "--plan-ngpus", "2",
        "-o", f"{work}/out", "-q")
    x, labels, wrap, pid = (os.path.join(work, name) for name in ("x.npy", "labels.npy", "wrap.sh", "pid"))
    np.save(x, np.zeros((64, 8), "f4"))
    np.save(labels, np.arange(64) % 4)
    with open(wrap, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\n[ "$PMI_RANK" != 0 ] || {{ echo $$ >{pid}.new && mv {pid}.new {pid}; }}\nexec "$@"\n')
    os.chmod(wrap, 0o755)
    for delay in (0.005, 0.015, 0.025, 0.035, 0.045):
        job = subprocess.Popen([mpirun, "-n", "2", wrap, f"{work}/out/mlp/_/build/train", "--data", f"x={x}", "--data", f"labels={labels}", "--steps",
                                "100000", "--threads", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT,
                               start_new_session=True)
        try:
            while not os.path.exists(pid):
                time.sleep(0.001)
            with open(pid, encoding="utf-8") as file:
                rank = int(file.read())
            time.sleep(delay)
            os.kill(rank, signal.SIGTERM)
            job.wait(30)
        except subprocess.TimeoutExpired as problem:
            raise Failed(f"SIGTERM {delay} s after the start: mpirun waits") from problem
        finally:
            try:
                os.killpg(job.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            job.wait()
            os.unlink(pid)


def full_disk(rankc, folder, work):
    """A checkpoint that a full disk leaves in part is not there, and the next try succeeds."""
    model = os.path.join(os.path.dirname(folder), "rel-03-mpich-sigterm-at-start", "mlp.onnx")
    run(rankc, "compile", model, "--dim", "batch=4", *LOSS, "--optimizer", "adamw:lr=0.01", "-o", f"{work}/out", "-q")
    np.save(f"{work}/x.npy", np.zeros((8, 8), "f4"))
    np.save(f"{work}/labels.npy", np.zeros(8, "i8"))
    run(rankc, "train", f"{work}/out", "--data", f"x={work}/x.npy", "--data", f"labels={work}/labels.npy", "--steps", "1", "--checkpoint-dir",
        f"{work}/ck", "--threads", "1")
    os.mkdir(f"{work}/small")
    script = (f'mount -t tmpfs -o size=8k none "{work}/small" || exit 77; "{rankc}" ckpt reshard "{work}/ck/step-1" "{work}/out" "{work}/small/r" && exit 3;'
              f' ls -A "{work}/small"; mount -o remount,size=1m "{work}/small"; "{rankc}" ckpt reshard "{work}/ck/step-1" "{work}/out" "{work}/small/r" && echo second')
    said = run("unshare", "-m", "sh", "-c", script, status=None)
    expect("second" in said, said)


def dump_places(rankc, folder, work):
    """A manifest whose places were edited is refused: nothing beyond the tensor is written out."""
    run(rankc, "compile", f"{folder}/mlp.onnx", "--dim", "batch=4", "--pas", "tp", "--plan-ngpus", "2", "-o", f"{work}/out", "-q")
    for number in ("64", "16384"):
        shutil.copytree(f"{work}/out/mlp/_", f"{work}/{number}")
        run("/usr/bin/python3", "-B", f"{folder}/reseal.py", f"{work}/{number}", number)
        said = run(rankc, "run", f"{work}/{number}", "--input", f"x={folder}/x.npy", "--dump-tensors", "*", "--dump-dir", f"{work}/d{number}", status=None)
        expect("error[E" in said and "SIG" not in said, said)


def linked(rankc, folder, work, source, directory):
    """Compiles mlp.onnx for training into directory, and source with it; returns the program."""
    run(rankc, "compile", os.path.join(os.path.dirname(folder), "rel-07-thread-rank-returns-early", "mlp.onnx"), "--dim", "batch=4", *LOSS, "--pas", "tp",
        "--plan-ngpus", "2", "--instance-name", "train", "-o", directory, "-q")
    train = f"{directory}/mlp/train"
    run("make", "-s", "-C", train, "build/model.a")
    build = os.path.dirname(os.path.dirname(rankc))
    run("cc", "-w", "-I", train, "-I", f"{build}/frontend/include", source, f"{train}/build/model.a", f"{build}/runtime/librankc-rt.a", "-o", f"{work}/program",
        "-fopenmp", "-lm", "-lpthread", "-ldl", *(["-ldnnl"] if "dnnl" in run("sh", "-c", f"nm -u {build}/runtime/librankc-rt.a | grep -m 1 ' dnnl_' || true") else []))
    return f"{work}/program", train


def early_return(rankc, folder, work):
    program, train = linked(rankc, folder, work, f"{folder}/early.c", work)
    said = run(program, environment={"DIR": train}, status=None, limit=20)
    expect("E0905" in said, said)


def null_arguments(rankc, folder, work):
    """No case of capi.c ends by a signal."""
    with open(f"{folder}/capi.c", encoding="utf-8") as file:
        text = file.read()
    source = f"{work}/capi.c"
    with open(source, "w", encoding="utf-8") as file:
        file.write(text.replace("$W/t/.rankc", f"{work}/t/.rankc").replace("$W", work))
    program, _ = linked(rankc, folder, work, source, f"{work}/t/.rankc")
    said = run(program, "0", "37", status=None, cwd=work, limit=200) + run(program, "100", "137", status=None, cwd=work, limit=200)
    expect("SIGNAL" not in said, "\n".join(line for line in said.splitlines() if "SIGNAL" in line))


def division_by_zero(rankc, folder, work):
    np.save(f"{work}/a.npy", np.array([7, -9, 5, 3]))
    np.save(f"{work}/b.npy", np.array([0, 2, 0, 0]))
    run(rankc, "compile", f"{folder}/n_div.onnx", "-o", f"{work}/o", "-q")
    said = run(rankc, "run", f"{work}/o", "--input", f"a={work}/a.npy", "--input", f"b={work}/b.npy", status=None)
    expect("error[E" in said and "zero" in said, said)


def rival_compiles(rankc, folder, work):
    """Compiles share an -o, one of them is killed: the others end well, and nothing of it stays after the next."""
    kinds = [["--pas", "tp", "--plan-ngpus", "2"], ["--pas", "dp"], ["--pas", "data", "--plan-ngpus", "2"]]
    compile_words = [rankc, "compile", f"{folder}/mlp.onnx", "--dim", "batch=4", "-o", f"{work}/o", "-q", "--reuse", "moo", "--no-build"]
    for trial in range(12):
        jobs = [subprocess.Popen([*compile_words, *kinds[(trial + job) % 3]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT)
                for job in range(3)]
        time.sleep(0.004 * trial)
        jobs[trial % 3].send_signal([signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT][trial % 4])
        said = [job.communicate(timeout=60)[0] for job in jobs]
        expect(all(job.returncode == 0 for number, job in enumerate(jobs) if number != trial % 3), f"trial {trial}: {said}")
        run(*compile_words, *kinds[trial % 3])
        left = sorted(name for name in os.listdir(f"{work}/o/mlp") if not re.fullmatch(r"_|\._\.lock", name))
        expect(not left, f"trial {trial}: {left} stay")
