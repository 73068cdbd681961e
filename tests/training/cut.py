#!/usr/bin/python3
"""Files that are cut while a run uses them: data of training, inputs, checkpoints, and the model that has the weights.

    cut.py --rankc RANKC --cut-at CUT_AT.so [NAME...]

Each check is a function here. A file that shrinks is an error with its name (E0604, exit 6), wherever it is cut, also inside
the page that holds its new end: there a mapping would read zeros and say nothing."""
import functools
import os
import subprocess
import sys
import time

from harness import call, expect, needed, parser_of, report

with needed():
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

ENDLESS = 1000000  # steps
SAMPLES, WIDTH = 1500, 16


def learner(path, values=np.full((WIDTH, 2), 0.01, np.float32), location=None):
    """x (4, WIDTH) times w, the mean of the squares; `location` is a file for w."""
    w = numpy_helper.from_array(values, "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Mul", ["y", "y"], ["z"]),
             helper.make_node("ReduceMean", ["z"], ["loss"], keepdims=0)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, WIDTH))
    graph = helper.make_graph(nodes, "g", [x], [helper.make_tensor_value_info("loss", TensorProto.FLOAT, ())], [w])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    onnx.save(made, path, save_as_external_data=bool(location), location=location)


def wait_for(log, run):
    """Until the run has written a step."""
    for _ in range(3000):
        if os.path.exists(log) and os.path.getsize(log):
            return
        expect(run.poll() is None, "the run ended before its first step")
        time.sleep(0.01)
    raise AssertionError("no step in 30 s")


def train_and_cut(rankc, work, ranks, option, size):
    """What a run says, and its status, whose file of `option` is cut to `size` bytes after its first step."""
    out, log = os.path.join(work, f"out{ranks}"), os.path.join(work, "log.jsonl")
    data, cut = os.path.join(work, "x.npy"), os.path.join(work, "cut.npy")
    if not os.path.isdir(out):
        learner(os.path.join(work, "m.onnx"))
        call(rankc, "compile", os.path.join(work, "m.onnx"), "-o", out, "-q", "--train", "--optimizer", "sgd:lr=0.001",
             "--runtime-ngpus", str(ranks))
    for path in data, cut:
        np.save(path, np.ones((SAMPLES, WIDTH), np.float32))
    if os.path.exists(log):
        os.unlink(log)
    files = {"--data": data, "--eval-data": data} | {option: cut}
    run = subprocess.Popen([rankc, "train", out, "--data", f"x={files['--data']}", "--eval-data", f"x={files['--eval-data']}",
                            "--eval-every", "1", "--steps", str(ENDLESS), "--log", log, "--threads", "1"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(log, run)
        os.truncate(cut, size)
        return run.communicate(timeout=60)[1], run.returncode
    finally:
        run.kill()


def data(rankc, _, work):
    """Training data, on one rank and two; cut to nothing, at a page, inside the last page and by its last byte."""
    full = 128 + SAMPLES * WIDTH * 4
    for ranks in 1, 2:
        for option in "--data", "--eval-data":
            for size in 0, 4096, full - 100, full - 1:
                said, status = train_and_cut(rankc, work, ranks, option, size)
                expect(status == 6 and "error[E0604]" in said and "cut.npy' changed while it was read" in said,
                       f"{ranks} ranks, {option} of {size} bytes: exit {status}, {said}")


def cut_during(command, preload, path, at, size, also=()):
    """A command that reads the file says that it changed, whether it notices while reading or afterwards; the file is as before.
    `also`: other ends that are right, each an exit code and what names it."""
    with open(path, "rb") as file:
        content = file.read()
    env = {"LD_PRELOAD": preload, "CUT_FILE": path, "CUT_AT": str(at), "CUT_TO": str(size)}
    done = call(*command, env=env, status=None)
    name = os.path.basename(path)
    with open(path, "wb") as file:
        file.write(content)
    ends = [(6, "error[E0604]"), *also]
    expect(any(done.returncode == code and said in done.stderr for code, said in ends) and name in done.stderr,
           f"{name}, {size} of {len(content)} bytes at {at}: exit {done.returncode}, {done.stderr}")


def inputs(rankc, preload, work):
    """What a run is given."""
    model, x = os.path.join(work, "m.onnx"), os.path.join(work, "x.npy")
    learner(model)
    np.save(x, np.ones((4, WIDTH), np.float32))
    call(rankc, "compile", model, "-o", os.path.join(work, "out"), "-q")
    for at, size in (1, 0), (1, 300), (2, 383):
        cut_during([rankc, "run", os.path.join(work, "out"), "--input", f"x={x}"], preload, x, at, size)


def weights(rankc, preload, work):
    """The model, while a run reads its weights: packed, and cut by columns. Of two ranks one may open the file when the other has
    had it cut already: it finds a file of another length than that of the model which was compiled."""
    model, x, w = os.path.join(work, "m.onnx"), os.path.join(work, "x.npy"), os.path.join(work, "w.bin")
    learner(model, np.random.default_rng(0).normal(size=(WIDTH, 600)).astype("f4"), "w.bin")
    np.save(x, np.ones((4, WIDTH), np.float32))
    bytes_ = WIDTH * 600 * 4
    other = (8, "error[E0802]")
    for name, options, also in ("one", [], ()), ("two", ["--pas", "tp", "--plan-ngpus", "2"], (other,)):
        out = os.path.join(work, name)
        for at, size in (1, 0), (1, bytes_ - 5000), (1, bytes_ - 1), (2, bytes_ - 1):
            call(rankc, "compile", model, "-o", out, "-q", "--reuse", "override", *options)
            program = [rankc, "run", out, "--input", f"x={x}", "--comm", "loopback" if options else "auto"]
            cut_during(program, preload, w, at, size, also)


def checkpoint(rankc, preload, work):
    """A checkpoint, while a run resumes: cut as soon as it was opened it has another length, and changed after that.
    Whatever is read has a hash, so a cut after the last read is not noticed."""
    out, x, kept = os.path.join(work, "out"), os.path.join(work, "x.npy"), os.path.join(work, "kept")
    learner(os.path.join(work, "m.onnx"))
    np.save(x, np.ones((SAMPLES, WIDTH), np.float32))
    call(rankc, "compile", os.path.join(work, "m.onnx"), "-o", out, "-q", "--train", "--optimizer", "adamw:lr=0.001")
    train = [rankc, "train", out, "--data", f"x={x}", "--checkpoint-dir", kept, "--threads", "1"]
    call(*train, "--steps", "2")
    for name in "parameters-0.safetensors", "optimizer-0.safetensors":
        path = os.path.join(kept, "step-2", name)
        with open(path, "rb") as file:
            content = file.read()
        for at, size in (1, 0), (1, len(content) - 1):
            env = {"LD_PRELOAD": preload, "CUT_FILE": path, "CUT_AT": str(at), "CUT_TO": str(size)}
            done = call(*train, "--steps", "3", "--resume", "2", env=env, status=None)
            why = f"{name}' is damaged: its size differs"
            expect(done.returncode == 8 and "error[E0805]" in done.stderr and why in done.stderr,
                   f"{name}, {size} bytes at {at}: exit {done.returncode}, {done.stderr}")
            with open(path, "wb") as file:
                file.write(content)
        for at in range(2, 5):
            for size in 0, 100, len(content) - 1:
                cut_during([*train, "--steps", "3", "--resume", "2"], preload, path, at, size)
    call(*train, "--steps", "3", "--resume", "2")


def model(rankc, preload, work):
    """The model, while it is compiled: more than is copied, so that it is mapped, and looked at, as masks are."""
    path = os.path.join(work, "m.onnx")
    mask = np.ones((66 << 10, 1 << 10), np.bool_)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1 << 10,))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, mask.shape)
    zero = numpy_helper.from_array(np.float32(0), "zero")
    graph = helper.make_graph([helper.make_node("Where", ["mask", "x", "zero"], ["y"])], "g", [x], [y],
                              [numpy_helper.from_array(mask, "mask"), zero])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    bytes_ = os.path.getsize(path)
    command = [rankc, "compile", path, "-o", os.path.join(work, "out"), "-q", "--no-build"]
    for at in range(2, 8):
        for size in 1 << 20, bytes_ - 1:
            cut_during(command, preload, path, at, size)
    call(*command)


CHECKS = [data, inputs, weights, checkpoint, model]


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--cut-at", required=True)
    parser.add_argument("names", nargs="*", default=[check.__name__ for check in CHECKS])
    options = parser.parse_args()

    def run(check, work):
        check(options.rankc, options.cut_at, work)
        return "ok"
    return report((check.__name__, functools.partial(run, check)) for check in CHECKS if check.__name__ in options.names)


if __name__ == "__main__":
    sys.exit(main())
