#!/usr/bin/env python3
"""State that steps keep (--state): a decoder with caches, called from Python by ctypes with rows after rows.

    states.py --rankc RANKC

The logits of each step are those of ONNX Runtime, whose past is fed back; states.py --record prints their sums, and needs
onnxruntime. llama_past.onnx is a llama of two layers, exported by torch.onnx (dynamo=False) with its past."""
import ctypes
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, expect, json_of, needed, parser_of, report  # noqa: E402

with needed():
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "llama_past.onnx")
VOCABULARY, BATCH, CAPACITY = 100, 2, 24
CHUNKS = [5, 1, 1, 3, 1, 7, 1, 5]  # rows of each step: 24
# of each step: the sum of the logits' magnitudes, by ONNX Runtime 1.32
SUMS = [87.3763, 16.1941, 18.0229, 53.0014, 18.4063, 128.8849, 18.587, 90.5304]
PLANS = {"one rank": [], "tp 2": ["--pas", "tp", "--plan-ngpus", "2"], "tp 4": ["--pas", "tp", "--plan-ngpus", "4"],
         "pp 2": ["--pas", "pp", "--plan-ngpus", "2"], "data 2": ["--pas", "data:data=2", "--plan-ngpus", "2"]}


def feeds(step):
    first, rows = sum(CHUNKS[:step]), CHUNKS[step]
    ids = numpy.arange(BATCH * CAPACITY, dtype=numpy.int64).reshape(BATCH, CAPACITY) * 7 % VOCABULARY
    return {"input_ids": numpy.ascontiguousarray(ids[:, first:first + rows]),
            "attention_mask": numpy.ones((BATCH, first + rows), numpy.int64),
            "position_ids": numpy.ascontiguousarray(numpy.broadcast_to(numpy.arange(first, first + rows), (BATCH, rows)))}


def record():
    import onnxruntime
    session, sums = onnxruntime.InferenceSession(MODEL), []
    names = [output.name for output in session.get_outputs()]
    past = {i.name: numpy.zeros((BATCH, 2, 0, 8), numpy.float32) for i in session.get_inputs() if "past" in i.name}
    for step in range(len(CHUNKS)):
        results = dict(zip(names, session.run(None, feeds(step) | past)))
        past = {name: results[name.replace("past_key_values", "present")] for name in past}
        sums.append(round(float(numpy.abs(results["logits"].astype("f8")).sum()), 4))
    print(sums)


class Sizes(ctypes.Structure):
    """struct llama_past_sizes"""
    _fields_ = [("batch", ctypes.c_int64), ("sequence", ctypes.c_int64), ("past", ctypes.c_int64)]


class Tensors(ctypes.Structure):
    """struct llama_past_tensors"""
    _fields_ = [("sizes", Sizes), *((name, ctypes.c_void_p) for name in ("input_ids", "attention_mask", "position_ids", "logits"))]


def compiled(rankc, work, plan, *more):
    out = os.path.join(work, plan.replace(" ", "_"))
    batch = f"{BATCH}..4:2" if "data" in plan else "1..4"
    call(rankc, "compile", MODEL, "--state", "auto", "--dim", f"batch={batch}", "--dim", "sequence=1..8", "--dim",
         f"past_sequence_length=0..{CAPACITY}", *PLANS[plan], "-o", out, "-q", *more)
    return os.path.join(out, "llama_past", "_")


def step_of(model, rt, step):
    """Status of a step, and the sum of the logits' magnitudes."""
    given, rows = feeds(step), CHUNKS[step]
    logits = numpy.empty((BATCH, rows, VOCABULARY), numpy.float32)
    own = Tensors(Sizes(BATCH, rows, 0), *(array.ctypes.data for array in given.values()), logits.ctypes.data)
    return model.llama_past_infer(rt, ctypes.byref(own)), float(numpy.abs(logits.astype("f8")).sum())


def check(rankc, work, plan):
    program = compiled(rankc, work, plan, "--no-build")
    for rank in json_of(rankc, "show", program, "--json")["ranks"]:
        expect(rank["memory"]["state"] and rank["state_copied"] == 0, f"a step copies {rank['state_copied']} bytes of caches")
    call("make", "-s", "-C", program, "build/model.so")
    model, faults = ctypes.CDLL(os.path.join(program, "build/model.so")), []
    model.rt_error.restype = ctypes.c_char_p
    model.rt_state_length.restype = model.rt_state_capacity.restype = ctypes.c_int64
    model.rt_state_truncate.argtypes = [ctypes.c_void_p, ctypes.c_int64]

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    def run_rank(rt, _):
        rt = ctypes.c_void_p(rt)

        def run(steps):
            for step in steps:
                status, total = step_of(model, rt, step)
                if status or abs(total - SUMS[step]) > 1e-4 * SUMS[step]:
                    faults.append(f"step {step}: status {status}, {total}, not {SUMS[step]}")
                if model.rt_state_length(rt) != sum(CHUNKS[:step + 1]):
                    faults.append(f"step {step}: {model.rt_state_length(rt)} rows are kept")

        run(range(len(CHUNKS)))
        if model.rt_state_truncate(rt, CAPACITY + 1) == 0 or model.rt_state_capacity(rt) != CAPACITY:
            faults.append("truncated to more than there is")
        model.rt_state_truncate(rt, sum(CHUNKS[:3]))
        if model.rt_state_save(rt, work.encode()):
            faults.append("not saved")
        run(range(3, 6))
        if model.rt_state_restore(rt, work.encode()):
            faults.append("not restored")
        run(range(3, 5))
        model.rt_state_reset(rt)
        run(range(2))
        return 0

    expect(model.llama_past_run_threads(program.encode(), 0, run_rank, None) == 0, model.rt_error(None).decode())
    expect(not faults, "; ".join(faults[:4]))
    return f"{len(CHUNKS) + 7} steps"


def check_full(rankc, work):
    """The cache is full: exit 5, before anything is written; verify proves the plan; memory is told."""
    program = compiled(rankc, work, "tp 2")
    for name, array in feeds(0).items():
        numpy.save(os.path.join(work, name), array)
    given = [word for name in feeds(0) for word in ("--input", f"{name}={work}/{name}.npy")]
    call(rankc, "run", program, *given, "--repeat", "9", "-q")
    call(rankc, "verify", program)
    call(rankc, "verify", program, "--numeric", "--dim", "batch=2", "--dim", "sequence=3")
    memory = json_of(rankc, "show", program, "--json")["ranks"][0]["memory"]
    expect(memory["state"] == 4 * (4 * 1 * CAPACITY * 8 * 4), memory)
    small = os.path.join(work, "small")
    call(rankc, "compile", MODEL, "--state", "auto", "--dim", "batch=1..4", "--dim", "sequence=1..8", "--dim", "past_sequence_length=0..4",
         "-o", small, "-q")
    done = call(rankc, "run", os.path.join(small, "llama_past/_"), *given, "-q", "--output-dir", os.path.join(work, "out"), status=5)
    expect("E0508" in done.stderr and "past_sequence_length" in done.stderr, done.stderr)
    expect(not os.path.exists(os.path.join(work, "out", "logits.npy")), "outputs of a step that was refused")
    return "refused"


def mask_model(path):
    """A mask of which the last rows are read alone, as convolutions do: no operator says that it is as long as past and new tokens. Two
    inputs are passed on; one of them is read."""
    nodes = [helper.make_node("Shape", ["input_ids"], ["size"], start=1), helper.make_node("Neg", ["size"], ["first"]),
             helper.make_node("Slice", ["attention_mask", "first", "end", "axis"], ["last"]),
             helper.make_node("Mul", ["last", "input_ids"], ["kept"]), helper.make_node("Cast", ["kept"], ["real"], to=TensorProto.FLOAT),
             helper.make_node("Add", ["real", "past_key_values.0.cross"], ["logits"]),
             *[helper.make_node("Identity", ["past_key_values." + name], ["present." + name]) for name in ("0.cross", "0.window")],
             helper.make_node("Unsqueeze", ["logits", "axes"], ["rows"]),
             helper.make_node("Concat", ["past_key_values.0.key", "rows"], ["present.0.key"], axis=2)]
    tokens = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", size]) for name, size in
              (("input_ids", "sequence"), ("attention_mask", "total"))]
    cache = helper.make_tensor_value_info("past_key_values.0.key", TensorProto.FLOAT, ["batch", 1, "past", 1])
    passed = [helper.make_tensor_value_info("past_key_values." + name, TensorProto.FLOAT, []) for name in ("0.cross", "0.window")]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in
               ("logits", "present.0.key", "present.0.cross", "present.0.window")]
    constants = [numpy_helper.from_array(numpy.array(values, "i8"), name) for name, values in (("end", [2 ** 63 - 1]), ("axis", [1]), ("axes", [1, 3]))]
    onnx.save(helper.make_model(helper.make_graph(nodes, "mask", [*tokens, cache, *passed], outputs, constants),
                                opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)


def check_mask(rankc, work):
    model, program = os.path.join(work, "mask.onnx"), os.path.join(work, "program")
    mask_model(model)
    dims = ["--dim", "batch=1..2", "--dim", "sequence=1..4", "--dim", "past=0..8"]
    expect("'total'" in call(rankc, "compile", model, *dims, "-o", program, status=2).stderr, "without state nothing says how long the mask is")
    call(rankc, "compile", model, "--state", "auto", *dims, "-o", program, "-q")
    shapes = {port["name"]: port["shape"] for port in json_of(rankc, "show", program, "--json")["inputs"]}
    expect(sorted(shapes["attention_mask"][1].split(" + ")) == ["past", "sequence"], shapes)
    expect(set(shapes) == {"input_ids", "attention_mask", "past_key_values.0.cross"}, shapes)
    given = {"input_ids": numpy.array([[3, 5, 7]]), "attention_mask": numpy.array([[0, 1, 1]]), "past_key_values.0.cross": numpy.float32(.5)}
    for name, values in given.items():
        numpy.save(os.path.join(work, name), values)
    call(rankc, "run", program, *(word for name in given for word in ("--input", f"{name}={work}/{name}.npy")), "--output-dir", work, "-q")
    expect(numpy.load(os.path.join(work, "logits.npy")).tolist() == [[.5, 5.5, 7.5]], "the mask is not that of the last tokens")
    expect(os.path.exists(os.path.join(work, "outputs.json")) and not os.path.exists(os.path.join(work, "present.0.cross.npy")), "state is written")
    return "past + sequence"


def main():
    parser = parser_of(__doc__, rankc=None)
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    if given.record:
        return record()
    return report([(plan, lambda work, plan=plan: check(given.rankc, work, plan)) for plan in PLANS] +
                  [("full", lambda work: check_full(given.rankc, work)), ("mask", lambda work: check_mask(given.rankc, work))])


if __name__ == "__main__":
    sys.exit(main())
