#!/usr/bin/python3
"""Training in pipeline stages against the same plan without them: losses and gradient norms of every step must be equal bit for bit,
on target cuda within BOUND (other operators are fused if they are divided among stages).

    pipeline.py --rankc RANKC [--target c|cuda] [--product] [--results FILE] [--table FILE] [CASE...]

Without --product: the plans of QUICK. With it: tensor 1, 2 x pipeline 2, 4 x units 1, 2 x ZeRO (with two units) x all schedules x
recomputation none, full, as far as 8 ranks go. What is in --results is not run again, so that an interrupted run goes on.

The plan without stages is compared with one rank that sees the same micro-batches: equal without a tensor axis, ZeRO 0 and 1 with
units, and ZeRO 2 and 3, as far as the order of additions is the same; else within BOUND."""
import glob
import itertools
import json
import os
import sys
import tempfile

from harness import COMM, call, compile_case, data_of, expect, lines_of, model_of, parser_of, recorded, report

ACCUMULATE, STEPS, BOUND, MOST_RANKS = 4, 10, 1e-5, 8
SCHEDULES = ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "chimera"]
# schedules that a user writes: a V shape, in which rank 0 has the first and the last stage; 1F1B
GRIDS = {"v": "# V\nF0@0 F1@0 . F0@3 B0@3 F1@3 B1@3 . B0@0 B1@0\n. F0@1 F0@2 F1@1 F1@2 B0@2 B0@1 B1@2 B1@1  # rank 1\n",
         "1f1b": "F0 F1 B0 F2 B1 F3 B2 B3\nF0 B0 F1 B1 F2 B2 F3 B3\n",
         "w": "F0@0 F1@0 F0@3 B0@3 F1@3 B1@3 W0@3 B0@0 W1@3 B1@0 W0@0 W1@0\nF0@1 F0@2 F1@1 F1@2 B0@2 B0@1 B1@2 B1@1 W0@2 W0@1 W1@2 W1@1\n"}
# line of the file, and what is wrong with it
BROKEN = {"F0 B0\nF0\n": (2, "3 cells, but 2 stages with 1 micro-batch have 4"), "F0 B0\nF0@0 B0@0\n": (2, "stage 0 is on line 1, too"),
          "\n\nX\n": (3, "a cell is F, B or W"), "F99999999999\n": (1, "F, B and W are followed by the number"), "F0 B0@\n": (1, "@ is followed by"),
          "F0 B0\n# x\nB0 F0\n": (3, "B0 of stage 1 comes before its F"), "F0 B0 F0 B0\n": (1, "4 cells, but 1 stage"), "": (0, "the file has no cell"),
          "F0 B0\n..\n": (2, "the line has no cell"), "F0@4095 B0@4095\n": (1, "no line has stage 0"), "F0B0\n": (1, "cells are separated by blanks"),
          "F0 B0 W0\nF0 B0\n": (2, "5 cells, but 2 stages with 1 micro-batch have 6"), "F0 W0 B0\n": (1, "W0 of stage 0 comes before its B"),
          "F0 B0 W0 B0\n": (1, "4 cells"), "F0@0 F0@1 B0@1 B0@0 W0@0 W0@1\n": (1, "W0 of stage 0 comes before that of stage 1")}

TIED = ("--tied-gradients", "step")  # gradients of tied embeddings are sent once a step: sums are rounded in another order

# Of each target: tensor, pipeline, units, ZeRO, schedule, recomputation, micro-batches of a unit, further options
QUICK = {"c": {
    "gpt2": [(1, 2, 1, 0, "1f1b", "none", 7), (1, 4, 1, 0, "1f1b", "full", 4), (1, 3, 1, 0, "gpipe", "none", 4), (2, 2, 1, 0, "1f1b", "none", 4),
             (1, 2, 2, 1, "gpipe", "none", 2), (1, 2, 2, 3, "1f1b", "full", 4), (1, 2, 1, 0, "1f1b", "none", 1),
             (1, 2, 1, 0, "1f1b", "none", 4, "--amp", "fp16"), (1, 2, 1, 0, "interleaved", "none", 6),
             (2, 2, 1, 0, "interleaved", "none", 4), (1, 2, 2, 3, "interleaved:v=3", "full", 2), (1, 2, 1, 0, "v", "full", 2),
             (1, 4, 1, 0, "zb-h1", "none", 4), (1, 2, 1, 0, "zb-h2", "full", 7), (1, 2, 1, 0, "w", "none", 2),
             (1, 2, 2, 0, "chimera", "none", 3), (2, 2, 2, 3, "chimera", "full", 2), (1, 2, 1, 0, "chimera", "none", 2),
             (1, 2, 1, 0, "1f1b", "none", 7, *TIED), (2, 2, 2, 1, "1f1b", "none", 3, *TIED), (1, 2, 2, 2, "1f1b", "none", 4, *TIED),
             (1, 2, 2, 3, "zb-h1", "full", 4, *TIED), (1, 2, 1, 0, "interleaved:v=3", "none", 4, *TIED), (1, 4, 1, 0, "chimera", "none", 8, *TIED),
             (1, 3, 1, 0, "gpipe", "none", 4, *TIED, "--amp", "fp16")],
    "llama": [(1, 4, 2, 2, "chimera", "none", 4), (1, 2, 2, 2, "1f1b", "none", 4), (1, 2, 2, 1, "interleaved", "none", 4), (1, 2, 2, 3, "zb-v", "none", 4)],
    "mlp_dropout": [(1, 2, 1, 0, "1f1b", "none", 4), (1, 2, 1, 0, "zb-v", "none", 4)],
    "cnn_bn": [(1, 2, 1, 0, "1f1b", "none", 4)],
    "recurrent": [(1, 4, 1, 0, "1f1b", "none", 4), (1, 8, 1, 0, "1f1b", "none", 2), (1, 4, 1, 0, "interleaved", "none", 4)],
    "gpt2_fp8": [(1, 2, 1, 0, "1f1b", "none", 4)],
}, "cuda": {
    "gpt2": [(1, 4, 1, 0, "gpipe", "full", 4), (2, 2, 2, 1, "1f1b", "none", 2), (1, 2, 2, 3, "1f1b", "full", 4),
             (1, 2, 1, 0, "interleaved", "none", 4), (1, 2, 1, 0, "zb-v", "none", 4), (1, 3, 1, 0, "zb-h2", "none", 6)],
    "llama": [(1, 2, 2, 2, "1f1b", "none", 4)],
    "mlp_dropout": [(1, 3, 1, 0, "1f1b", "none", 4), (1, 2, 1, 0, "zb-v", "none", 4)],
    "cnn_bn": [(1, 2, 1, 0, "1f1b", "none", 4)],
}}


def policy(tensor, pipeline):
    axes = [f"{name}={size}" for name, size in (("tensor", tensor), ("pipeline", pipeline)) if size > 1]
    return "hybrid:" + ",".join(axes) if axes else "dp"


def losses(o, case, plan, units, accumulate, options, work):
    """Loss, norm and, with a type that needs it, loss scale of every step."""
    out, log = os.path.join(work, "out"), os.path.join(work, "log.jsonl")
    reference = recorded(case)
    compile_case(o.rankc, case, f"{plan}@{units}", accumulate, out, reference["options"] + options, target=o.target)
    call(o.rankc, "train", out, *data_of(case, reference["inputs"]), "--steps", str(STEPS), "--kernels", "reference", "--threads", "1",
         "--log", log, *COMM[o.target])
    return [tuple(line[key] for key in ("loss", "grad_norm", "loss_scale") if key in line) for line in lines_of(log)]


def farthest(got, wanted):
    """The largest relative difference."""
    return max(abs(a - b) / abs(b) for x, y in zip(got, wanted) for a, b in zip(x, y))


def is_near(got, wanted, more):
    """Within BOUND. Where sums are rounded in another order and weights then to 16 bits, so for the first half of the steps:
    later a weight may have been rounded to the other side, and all are within DESIGN 8's 8 eps of fp16."""
    half = STEPS // 2 if "fp16" in more and TIED[1] in more else STEPS
    return farthest(got[:half], wanted[:half]) <= BOUND and farthest(got, wanted) <= (BOUND if half == STEPS else 8 * 2**-11)


def grid_file(schedule, work):
    """The path of a schedule of GRIDS; names as they are."""
    if schedule not in GRIDS or schedule in SCHEDULES:
        return schedule
    path = os.path.join(work, f"{schedule}.grid")
    with open(path, "w", encoding="utf-8") as file:
        file.write(GRIDS[schedule])
    return path


def check(o, known, case, row, work):
    tensor, pipeline, units, zero, schedule, recompute, accumulate, *more = row
    options = list(more) + (["--use-zero", str(zero)] if zero else [])
    base = (case, tensor, units, accumulate, *options)
    if base not in known:
        known[base] = losses(o, case, policy(tensor, 1), *base[2:4], options, work)
    one = (case, 1, 1, accumulate * units, *more)
    if one not in known:
        known[one] = losses(o, case, "dp", 1, accumulate * units, list(more), work)
    got = losses(o, case, policy(tensor, pipeline), units, accumulate,
                 options + ["--schedule", grid_file(schedule, work)] + ([] if recompute == "none" else ["--recompute", recompute]), work)
    rounds = o.target == "cuda" or TIED[1] in more  # in another order than without stages
    expect(got == known[base] or rounds and is_near(got, known[base], more), f"{got} instead of {known[base]}")
    worst = farthest(got, known[one])
    expect(is_near(got, known[one], more) or case == "cnn_bn", f"{worst:.1e} from one rank")
    if worst == 0:
        return "equal to one rank"
    return f"{'equal to' if got == known[base] else 'within the bound of'} the plan without stages; {worst:.1e} from one rank"


def interleaved_slots(p, v, m):
    """By rank and chunk: the most micro-batches between forward and backward, in the order of Narayanan et al. (SC 2021), section 2.2: the k-th
    forward segment of a rank is that of chunk k % (p v) / p, the k-th backward segment that of the chunk which is as far from the end."""
    def cell(k, forward):
        chunk = k % (p * v) // p
        return chunk if forward else v - 1 - chunk
    slots = []
    for rank in range(p):
        total, before = m * v, min(2 * (p - 1 - rank) + (v - 1) * p, m * v)
        now, most = [0] * v, [0] * v
        for k in range(total + before):
            if k < total:
                now[cell(k, True)] += 1
                most = [max(a, b) for a, b in zip(now, most)]
            if k >= before:
                now[cell(k - before, False)] -= 1
        slots.append(most)
    return slots


def formulas(o, work):
    """Slots of the stages, and the length of the timeline: forward 1, backward 2 units of time."""
    for case, p, v, m in (("gpt2", 2, 2, 2), ("gpt2", 2, 2, 8), ("llama", 4, 2, 8), ("gpt2", 2, 4, 4), ("gpt2", 4, 3, 4)):
        out = os.path.join(work, "out")
        compile_case(o.rankc, case, f"{policy(1, p)}@1", m, out, ["--schedule", f"interleaved:v={v}", "--no-build"])
        shown = json.loads(call(o.rankc, "show", "--json", out).stdout)["schedule"]
        kept = shown.get("slots_to_backward", shown["slots"])
        expect(kept == interleaved_slots(p, v, m), f"{kept} slots instead of {interleaved_slots(p, v, m)}")
        last = max(line.rindex(f"{m - 1}a'") for line in shown["timeline"]) // 4 + 2
        bubble = 1 - 3 * v * m / last
        expect(abs(bubble - (p - 1) / (v * m + p - 1)) < 1e-9, f"interleaved:v={v} of {p}: stages wait {bubble}")
    for pipeline, accumulate, schedule in itertools.product((2, 4), (1, 4, 8), SCHEDULES[:2]):
        out = os.path.join(work, "out")
        compile_case(o.rankc, "gpt2", f"{policy(1, pipeline)}@1", accumulate, out, ["--schedule", schedule, "--no-build"])
        shown = json.loads(call(o.rankc, "show", "--json", out).stdout)["schedule"]
        slots = [accumulate if schedule == "gpipe" else min(pipeline - stage, accumulate) for stage in range(pipeline)]
        kept = shown.get("slots_to_backward", shown["slots"])  # what is sent may have more
        expect(kept == slots, f"{kept} slots instead of {slots}")
        last = shown["timeline"][0].rindex(f"{accumulate - 1}'") // 3 + 2
        bubble = 1 - 3 * accumulate / last
        expect(abs(bubble - (pipeline - 1) / (accumulate + pipeline - 1)) < 1e-9, f"{schedule} of {pipeline}: stages wait {bubble}")
    return "bubble (p - 1) / (m + p - 1)"


def chimera(o, work):
    """Li and Hoefler (SC 2021), with backward segments of two units of time: p stages wait 2 (p - 2) units with p micro-batches, and the bubble
    is (p - 2) / (3 / 2 m + p - 2); a rank keeps p / 2 + 1 to p micro-batches. Further groups of p wait p - 2 units each. Each of two scale
    units has one of the pipelines, with half of the micro-batches."""
    out = os.path.join(work, "out")
    for p, m in ((4, 2), (8, 8), (8, 24), (4, 8), (4, 4)):
        compile_case(o.rankc, "gpt2", f"{policy(1, p // 2)}@2", m // 2, out, ["--schedule", "chimera", "--no-build"])
        shown = json.loads(call(o.rankc, "show", "--json", out).stdout)
        slots, timeline = shown["schedule"]["slots"], shown["schedule"]["timeline"]
        wait = max(line.rindex(line.split()[-1]) // 4 + 2 for line in timeline) - 3 * m
        if m % p == 0:
            expect(wait == (p - 2) * (m // p + 1), f"chimera of {p}, {m}: {wait} units")
            expect(m > p or abs(wait / (wait + 3 * m) - (p - 2) / (1.5 * m + p - 2)) < 1e-9, "the published bubble")
            expect(min(map(sum, slots)) == p // 2 + 1 and max(map(sum, slots)) <= p, slots)
    return "as published"


def zero_bubble(o, work, case, schedule, p, m):
    """Units of time beyond 3 m, if each of a micro-batch's three parts takes 1: of the step; of the rank with the most, from its first segment to
    its last; and the slots."""
    out, chunks = os.path.join(work, "out"), 2 if schedule == "zb-v" else 1
    compile_case(o.rankc, case, f"{policy(1, p)}@1", m, out, ["--schedule", schedule, "--no-build"])
    shown = json.loads(call(o.rankc, "show", "--json", out).stdout)["schedule"]
    width = 3 if schedule == "1f1b" else 3 + chunks
    spans = [((len(line) - len(line.lstrip())) / width, line.rindex(line.split()[-1]) / width + (2 if schedule == "1f1b" else 1))
             for line in shown["timeline"]]
    return max(end for _, end in spans) / chunks - 3 * m, max(end - begin for begin, end in spans) / chunks - 3 * m, shown["slots"]


def zero_bubbles(o, work):
    """Qi et al. (ICLR 2024), sections 2 and 6, with equal times: the bubble of 1F1B is 3 (p - 1), that of ZB-H1 p - 1, and there is none in ZB-H2
    and ZB-V between the first and the last segment of a rank. Memory is that of 1F1B, in ZB-H2 twice as much."""
    for p, m in ((2, 3), (2, 8), (4, 8)):
        expect(zero_bubble(o, work, "gpt2", "zb-h1", p, m) == (p - 1, p - 1, [p] * p), f"zb-h1 of {p}, {m}")
        expect(zero_bubble(o, work, "gpt2", "zb-h2", p, m) == (p - 1, 0, [2 * p - 1] * p), f"zb-h2 of {p}, {m}")
        step, own, slots = zero_bubble(o, work, "mlp", "zb-v", p, m)
        expect((step, own) == ((p - 1) / 2, 0) and all(sum(of) <= 2 * p + 1 for of in slots), f"zb-v of {p}, {m}: {step}, {own}, {slots}")
    return "as published"


def activations(o, schedule, *options, config="llama3-8b", parts=("activations", "communication")):
    """Bytes of activations and of values that ranks exchange, on the rank with the most of them, of 4 stages and 8 micro-batches; and the slots."""
    plan = json.loads(call(o.rankc, "plan", "--json", "--model-config", config, "--dim", "batch=1", "--dim", "seq=4096", "--pas", "pp", "--plan-ngpus", "4",
                           "--accumulate", "8", "--schedule", schedule, *options).stdout)
    return max(sum(rank["memory"][part] for part in parts) for rank in plan["ranks"]), plan["schedule"]


def zero_bubble_memory(o, work):
    """Qi et al. (ICLR 2024), section 2.2: ZB-H1 keeps about as much as 1F1B, ZB-H2 at most twice as much. What only a backward segment reads is kept
    by as many micro-batches as 1F1B keeps; what it computes for the weight segments, by those of the delay between the two. Values that
    are being sent and received are not counted. The second stage has the most, three micro-batches of the one and two of the other."""
    usual = activations(o, "1f1b", parts=["activations"])[0]
    one, slots = activations(o, "zb-h1", parts=["activations"])
    expect(slots["slots_to_backward"] == [4, 3, 2, 1] and slots["slots_to_weight"] == [1, 2, 3, 4], slots)
    two = activations(o, "zb-h2", parts=["activations"])[0]
    expect(one <= 1.15 * usual and two <= 2 * usual, f"{one} and {two} bytes, under 1f1b {usual}")
    return f"{one / usual:.2f} and {two / usual:.2f} times 1f1b's"


def grids(o, work):
    """A schedule of a file is refused with the line, a deadlock with what waits; its content, not its name, decides what is compiled."""
    path, out = os.path.join(work, "a.grid"), os.path.join(work, "out")

    def compiled(text, status, *more):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return call(o.rankc, "compile", model_of("gpt2"), "-o", out, "--train", "--optimizer", "sgd:lr=0.1", "--pas", "pp", "--plan-ngpus", "2", "--no-build",
                    "--schedule", path, *more, status=status).stderr
    for text, (line, why) in BROKEN.items():
        said = compiled(text, 3)
        expect("E0427" in said and why in said and f"{path}:{line}\n" in said, said)
    said = compiled("F0 B0 F1 B1\nF0 F1 B0 B1\n", 8)
    expect("coordinate 0, micro-batch 0: it waits for the send of" in said and "from stage 1 to stage 0" in said, said)
    expect("the schedule has 4 micro-batches" in compiled(GRIDS["1f1b"], 2, "--accumulate", "2"), "accumulate")
    expect("the pipeline axis" in compiled("F0 B0\n", 2), "lines")
    compiled(GRIDS["v"], 0)
    [where] = glob.glob(os.path.join(out, "**", "plan.json"), recursive=True)
    with open(where, encoding="utf-8") as file:
        plan = json.load(file)
    expect(plan["stages"] == [0, 1, 1, 0] and plan["micro_batches"] == 2 and plan["schedule"].count("\n") == 2, plan["schedule"])
    call(o.rankc, "verify", os.path.dirname(where))
    compiled(GRIDS["v"].replace("# V", "# same"), 0)  # the same program
    expect("schedule: was" in compiled(GRIDS["1f1b"], 8), "another schedule under the same name")
    return f"{len(BROKEN)} refused"


def states(o, work):
    """A stage has the optimizer's states of the weights that it has, two of each, also where weights are too large to compute with on
    several stages: here 4 of 1024 x 1024, in two stages."""
    try:
        import numpy as np
        import onnx
        from onnx import helper, numpy_helper
    except ImportError:
        return "passed over: no onnx"
    size, path = 1024, os.path.join(work, "large.onnx")
    weights = [numpy_helper.from_array(np.full((size, size), 0.5 / size, np.float32) * (1 + np.eye(size, dtype=np.float32)), f"w{i}") for i in range(4)]
    nodes = [helper.make_node(*row) for i in range(4) for row in (("MatMul", [f"h{i}", f"w{i}"], [f"p{i}"]), ("Tanh", [f"p{i}"], [f"h{i + 1}"]))]
    nodes.append(helper.make_node("ReduceMean", ["h4"], ["loss"], keepdims=0))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "large", [value("h0", 1, [8, size])], [value("loss", 1, [])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    for accumulate in 1, 4:
        plan = call(o.rankc, "plan", path, "--json", "--train", "--optimizer", "adamw:lr=0.1,weight_decay=0.1", "--pas", "pp", "--plan-ngpus", "2",
                    "--accumulate", str(accumulate)).stdout
        for rank in json.loads(plan)["ranks"]:
            memory = rank["memory"]
            expect(abs(memory["optimizer"] - 2 * memory["weights"]) < 4096 and memory["weights"] == 2 * 4 * size * size, f"{accumulate}: {memory}")
    return "two moments beside each weight"


def product():
    for tensor, pipeline, units in itertools.product((1, 2), (2, 4), (1, 2)):
        for zero, schedule, recompute in itertools.product(range(4 if units > 1 else 1), SCHEDULES, ("none", "full")):
            if tensor * pipeline * units <= MOST_RANKS:
                yield tensor, pipeline, units, zero, schedule, recompute, ACCUMULATE


def name_of(row):
    tensor, pipeline, units, zero, schedule, recompute, accumulate, *more = row
    return " ".join([f"tensor={tensor} pipeline={pipeline} units={units} zero={zero} {schedule} recompute={recompute} accumulate={accumulate}", *more])


INTRODUCTION = f"""# Training in pipeline stages: schedules compared

[guide-train.md](../guide-train.md#pipeline-stages-and-schedules) says how stages and schedules are chosen and what they
do. `tests/training/pipeline.py --product --table` writes this page.

## Losses

Losses and gradient norms of {STEPS} steps with {ACCUMULATE} micro-batches per scale unit. The columns tensor and pipeline are the ways of
these mesh axes, units the scale units, ZeRO and recompute the values of `--use-zero` and `--recompute`. Every run equals
the same plan without stages bit for bit. The last column compares
with one rank that sees the same micro-batches: the largest relative difference; 0 means that the bits are equal.

"""
WAITING = """
## Waiting

Units of time that ranks wait in a step of m micro-batches on p ranks, counted in the timeline. The forward pass of a stage,
and each of the two parts of its backward pass, takes one unit. *With the wait*: all ranks begin and end a step together,
as they do in rankc because of the losses and of the norm of `--clip-grad-norm`. *Without*: if steps overlapped, a rank
would wait only between its first pass and its last. A *slot* is the memory of one micro-batch in a stage; `[4,1]` are
the slots of the two stages of a rank.

"""
MEMORY = """
## Memory of activations

Llama 3 8B in 4 stages, 8 micro-batches of one sequence of 4096 tokens, as `rankc plan` prints it: GiB of activations and of
values in communication, on the rank with the most; *times* is the ratio to `1f1b`. *Slots* are those of each rank's
stages. Zero-bubble schedules have slots of other numbers for two kinds of values: *first*, for activations that the
gradients of weights do not need; *second*, for what the first part of a backward pass computes for the second. Other schedules
have others for what they keep and neither send nor receive (*first*), where these are fewer, and for gradients that they
receive and send (*second*).

"""


def waiting(o, table):
    """Bubbles of the timeline with equal times, in units."""
    table.write(WAITING + "| p | m | schedule | with the wait | without | slots of each rank's stages |\n|---|---|---|---|---|---|\n")
    for p, m, schedule in itertools.product((2, 4), (4, 8, 16), ("1f1b", "zb-h1", "zb-h2", "zb-v")):
        with tempfile.TemporaryDirectory() as work:
            step, own, slots = zero_bubble(o, work, "gpt2", schedule, p, m)
        table.write(f"| {p} | {m} | {schedule} | {step:g} | {own:g} | {' '.join(str(of).replace(' ', '') for of in slots)} |\n")


def memory(o, table):
    table.write(MEMORY + "| recompute | schedule | GiB | times | slots | first | second |\n|---|---|---|---|---|---|---|\n")
    for recompute, schedule in itertools.product(("none", "full"), ("1f1b", "interleaved", "interleaved:v=4", "zb-h1", "zb-h2", "zb-v", "chimera")):
        options = [] if recompute == "none" else ["--recompute", recompute]
        got, shown = activations(o, schedule, *options)
        slots = [" ".join(str(of).replace(" ", "") for of in shown.get(key, [])) for key in ("slots", "slots_to_backward", "slots_to_weight")]
        slots[2] = slots[2] or " ".join(str(of).replace(" ", "") for of in shown.get("slots_of_gradients", []))
        table.write(f"| {recompute} | {schedule} | {got / 2**30:.1f} | {got / activations(o, '1f1b', *options)[0]:.2f} | {' | '.join(slots)} |\n")


def write_table(o, path, results):
    with open(path, "w", encoding="utf-8") as table:
        table.write(INTRODUCTION + "| model | tensor | pipeline | units | ZeRO | schedule | recompute | from one rank |\n"
                    "|---|---|---|---|---|---|---|---|\n")
        for (case, *row), said in results.items():
            worst = "0" if said == "equal to one rank" else said.split("; ")[1].split()[0]
            table.write(f"| {case} | {' | '.join(map(str, row[:6]))} | {worst} |\n")
        waiting(o, table)
        memory(o, table)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--target", default="c", choices=COMM)
    parser.add_argument("--product", action="store_true")
    parser.add_argument("--results", help="a file of lines, one per result")
    parser.add_argument("--table")
    parser.add_argument("cases", nargs="*")
    o = parser.parse_args()
    known, results = {}, {}
    if o.results and os.path.exists(o.results):
        results = {tuple(line["row"]): line["result"] for line in lines_of(o.results)}

    def run(case, row, work):
        key = (case, *row)
        if key not in results:
            results[key] = check(o, known, case, row, work)
            if o.results:
                with open(o.results, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"row": key, "result": results[key]}) + "\n")
        return results[key]

    quick = QUICK[o.target]
    cases = o.cases or (["gpt2", "llama"] if o.product else list(quick))
    rows = [(case, row) for case in cases for row in (product() if o.product else quick[case])]
    checks = [(f"{case} {name_of(row)}", lambda work, case=case, row=row: run(case, row, work)) for case, row in rows]
    others = [] if o.cases or o.product or o.target == "cuda" else [formulas, chimera, zero_bubbles, zero_bubble_memory, grids, states]
    failed = report(checks + [(other.__name__, lambda work, other=other: other(o, work)) for other in others])
    if o.table and not failed:
        write_table(o, o.table, results)
    return failed


if __name__ == "__main__":
    sys.exit(main())
