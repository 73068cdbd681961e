#!/usr/bin/python3
"""Flash attention on the stand-in of a GPU or on CPUs, and its gradient: against PyTorch's autograd in f64.

    attention.py --rankc RANKC [ROW...]     e.g. f32, "bf16 cudnn", "c f32"; by default those of target cuda

Heads of odd sizes and of 128 elements, one key, one row, several tiles of both, heads that share keys, every kind of mask, rows
of which every key is masked. In 16-bit floats the bounds are those of their precision. The same by cuDNN, where there is its header:
graphs of operations computed by host/cudnn_graph.cpp, forward, backward and both, which are to be as many as the cases that it takes.

On CPUs also with several threads, for more and for fewer heads than threads: bit for bit as with one.

The same program has attention whose operands are parts of other tensors: which moves are left out, because attention takes strides,
and which are not."""
import os
import re
import sys

from stand_in import STAND_IN, build_cudnn, by_type, call, expect, has_cudnn, needed # noqa: E402
from elements import narrow, wide # noqa: E402

with needed():
    import numpy as np
    import torch

LOWEST = -3.402823466e38
# heads, kv heads, t, s, d, e, masks and attributes
CASES = [
    (2, 2, 5, 7, 3, 5, {}),
    (4, 2, 70, 70, 16, 16, {"causal": 1, "fill": -np.inf}),
    (3, 1, 9, 33, 24, 40, {"causal": 1, "offset": 24, "fill": LOWEST}),
    (2, 1, 1, 1, 128, 128, {}),
    (2, 2, 17, 90, 72, 128, {"keep": (17, 90), "fill": LOWEST}),
    (2, 1, 20, 70, 64, 64, {"bias": (2, 20, 70)}),
    (2, 2, 65, 130, 8, 8, {"keep": (65, 130), "bias": (1, 1, 130), "bias_first": 1, "drop": 1, "fill": -1e4, "hidden": 3}),
    (2, 1, 66, 66, 20, 12, {"causal": 1, "keep": (2, 66, 66), "fill": LOWEST, "bias": (66, 66), "hidden": 5}),
    (1, 1, 3, 4, 6, 6, {"bias": (3, 4), "low": -np.inf, "clamp": 1}),
    (4, 2, 33, 29, 16, 24, {"batch": (3,), "causal": 1, "fill": -np.inf}),
    (2, 1, 17, 20, 8, 8, {"batch": (2,), "bias": (2, 1, 1, 20)}),
    (2, 2, 5, 9, 16, 8, {"batch": (2, 3), "bias": (2, 3, 2, 5, 9), "causal": 1, "offset": 4, "fill": -1e9, "bias_first": 1}),
    (4, 2, 12, 20, 8, 8, {"batch": (2, 3), "bias": (4, 12, 20)}),
    (2, 1, 6, 7, 8, 8, {"batch": (2, 2), "bias": (2, 1, 1, 1, 7)}),
    (2, 1, 9, 9, 8, 8, {"causal": 1, "offset": -2, "fill": LOWEST}),
    (2, 1, 9, 9, 8, 8, {"causal": 1, "fill": -8.0}),
    (1, 1, 9, 9, 8, 8, {"bias": (9, 9), "clamp": 1}),
    (2, 2, 9, 9, 8, 8, {"bias": (9, 9), "low": -1e38}),
    (4, 2, 70, 90, 16, 24, {"causal": 1, "offset": 20, "window": 11, "fill": -np.inf}),
    (2, 1, 40, 40, 8, 8, {"causal": 1, "window": 5, "fill": LOWEST, "cap": 0.75}),
    (4, 2, 33, 29, 16, 24, {"batch": (2,), "sink": (4, 1, 1), "causal": 1, "fill": -np.inf}),
    (2, 1, 20, 17, 8, 8, {"causal": 1, "offset": -3, "window": 4, "fill": -np.inf, "nan_to_zero": 1, "sink": (2, 2, 1, 1), "batch": (2,)}),
    (2, 1, 20, 20, 8, 8, {"causal": 1, "offset": -3, "fill": -np.inf, "nan_to_zero": 1, "cap": 2.0}),
    (2, 1, 300, 530, 8, 24, {"causal": 1, "offset": 230, "window": 290, "fill": -np.inf}),
    # the last row of a tile sees the first key of a block, or two rows do, or the first row of the next tile does not
    (2, 1, 70, 70, 16, 16, {"causal": 1, "offset": 1, "fill": -np.inf}),
    (2, 1, 40, 40, 72, 72, {"causal": 1, "offset": 1, "fill": LOWEST}),
    (2, 1, 70, 70, 8, 8, {"causal": 1, "offset": 2, "fill": -np.inf}),
    (2, 1, 70, 70, 8, 8, {"causal": 1, "offset": -1, "fill": -np.inf, "nan_to_zero": 1}),
    # few rows, whose keys are divided: whole pieces and parts, pieces that a row does not see
    (4, 2, 1, 300, 64, 64, {}),
    (8, 2, 2, 1030, 128, 128, {"causal": 1, "offset": 1028, "fill": -np.inf}),
    (8, 1, 2, 257, 24, 40, {"keep": (2, 257), "fill": LOWEST}),
    (3, 1, 5, 520, 3, 5, {"causal": 1, "offset": 300, "window": 40, "fill": -np.inf, "batch": (2,), "sink": (3, 1, 1)}),
    (2, 1, 4, 800, 72, 128, {"causal": 1, "offset": -2, "fill": -np.inf, "nan_to_zero": 1}),
    (2, 2, 3, 600, 16, 16, {"bias": (2, 3, 600), "bias_first": 1, "keep": (3, 600), "fill": -np.inf, "hidden": 1, "nan_to_zero": 1, "cap": 2.0}),
]
# Those that cuDNN takes: heads in multiples of 8, masks that hide whole keys and no whole row, batches that masks repeat along or not.
FORWARD, BACKWARD = [1, 2, 3, 5, 9, 10, 11, 12, 17, 24, 25, 26, 28, 29], [1, 2, 3, 9, 20, 24, 25, 26, 28, 29]
FORWARD_FP16 = [i for i in FORWARD if "bias" not in CASES[i][6]]
# Calls where the workspace of the gradient is as small as it can be: one for each head of k and v.
PARTS = sum(int(np.prod(CASES[i][6].get("batch", ()))) * CASES[i][1] for i in BACKWARD)
# Calls for the form that each program has, forward and backward: of 2 samples with 4 heads where the workspace is so small.
FORM, FORM_PARTS = 2, 1 + 2 * 4
# of the largest element, or of the inputs' size where that is larger: f32 sums of up to 130 terms; halves round scores' weights
# and how they change
BOUNDS = {"f32": 2e-6, "bf16": 1e-2, "fp16": 2e-3}
# name: type, which operators are cuDNN's ("atomic": gradients are added up in any order), calls of it, flags
OWN = {dtype: (dtype, (), 0, "") for dtype in BOUNDS}
CPUS = {f"c {dtype}": OWN[dtype] for dtype in BOUNDS}
CUDNN = {
    "bf16 cudnn": ("bf16", ("forward", "backward"), len(FORWARD) + len(BACKWARD) + FORM, ""),
    "fp16 cudnn forward": ("fp16", ("forward",), len(FORWARD_FP16) + FORM, ""),
    "bf16 cudnn backward": ("bf16", ("backward",), len(BACKWARD) + FORM, ""),
    "bf16 cudnn atomic": ("bf16", ("backward", "atomic"), PARTS + FORM_PARTS, "-DRT_ATTEND_WORKSPACE=1"),
    "fp16 cudnn in parts": ("fp16", ("forward", "backward"), len(FORWARD_FP16) + PARTS + FORM_PARTS, "-DRT_ATTEND_WORKSPACE=1"),
}


def attend(q, k, v, keep, bias, sink, more):
    """In the order of runtime/kernels/c/kernels.h, struct rt_attention."""
    group, (t, s) = q.shape[-3] // k.shape[-3], (q.shape[-2], k.shape[-2])
    scores = q @ k.repeat_interleave(group, -3).transpose(-1, -2) * more["scale"]
    if more.get("cap"):
        scores = more["cap"] * torch.tanh(scores / more["cap"])
    fill = torch.tensor(more.get("fill", 0.0), dtype=scores.dtype)
    if bias is not None and more.get("bias_first"):
        scores = scores + bias
    if more.get("causal"):
        ahead = torch.arange(s) - torch.arange(t)[:, None] - more.get("offset", 0)
        scores = torch.where((ahead > 0) | (ahead <= -more.get("window", t + s)), fill, scores)
    if keep is not None:
        scores = torch.where(keep if more.get("drop") else ~keep, fill, scores)
    if bias is not None and not more.get("bias_first"):
        scores = scores + bias
    if more.get("clamp"):
        scores = torch.where(scores < LOWEST, torch.tensor(LOWEST, dtype=scores.dtype), scores)
    if sink is not None:
        scores = torch.cat([scores, sink.expand(*scores.shape[:-1], 1)], -1)
    # weights of a hidden row, and their derivatives, are 0: autograd must not meet the NaN
    hidden = (scores == -np.inf).all(-1, True) & bool(more.get("nan_to_zero"))
    weights = torch.softmax(scores.masked_fill(hidden, 0), -1).masked_fill(hidden, 0)
    return weights[..., :s] @ v.repeat_interleave(group, -3)


def values_of(case, dtype):
    h, kv, t, s, d, e, more = case
    rng = np.random.default_rng(h * 1000 + s)
    shapes = {"q": (h, t, d), "k": (kv, s, d), "v": (kv, s, e), "dy": (h, t, e)}
    values = {name: narrow(rng.standard_normal((*more.get("batch", ()), *shape)), dtype) for name, shape in shapes.items()}
    if "keep" in more:
        keep = rng.random(more["keep"]) < 0.7
        if "hidden" in more:
            keep[..., more["hidden"] % keep.shape[-2], :] = bool(more.get("drop"))
        values["keep"] = keep
    if "bias" in more:
        bias = rng.standard_normal(more["bias"])
        if "low" in more:
            bias[1] = more["low"]
        values["bias"] = narrow(bias, dtype)
    if "sink" in more:
        values["sink"] = narrow(rng.standard_normal(more["sink"]), dtype)
    return values


def reference(values, more):
    tensors = {name: torch.tensor(np.array(wide(x), "?" if name == "keep" else "f8")) for name, x in values.items()}
    inputs = [tensors[name].requires_grad_() for name in "qkv"]
    y = attend(*inputs, tensors.get("keep"), tensors.get("bias"), tensors.get("sink"), more)
    return [y.detach().numpy(), *(g.numpy() for g in torch.autograd.grad(y, inputs, tensors["dy"]))]


def given_of(at, *names):
    """Operands of these names, "_" where there is none, without those that may be left out at the end."""
    operands = [at.get(name, "_") for name in names]
    while operands and operands[-1] == "_":
        operands.pop()
    return operands


def graph(dtype, library):
    """The cases in text, values of their inputs, each case's attributes with its own values, and the number of the next tensor."""
    lines, results, n = ["rankc-ir 1", 'graph "attention" level=TYPED'], [], 0
    values, mores = {}, []
    for i, case in enumerate(CASES):
        more = {"scale": case[4] ** -0.5, **case[6]}
        given, at = values_of(case, dtype), {}
        for name, x in given.items():
            kind = "bool" if name == "keep" else dtype
            lines.append(f'input %{n} "{name}{i}" {kind}[{",".join(map(str, x.shape))}]')
            values[f"{name}{i}"], at[name] = x, f"%{n}"
            n += 1
        keys = ("scale", "fill", "cap", "causal", "offset", "window", "drop", "bias_first", "clamp", "nan_to_zero")
        attributes = " ".join(f"{key}={more[key]!r}" for key in keys if key in more)
        forward, backward = (attributes + f" library={1 + ('atomic' in library)}" * (which in library) for which in ("forward", "backward"))
        forward_masks = given_of(at, "keep", "bias", "sink")
        masks = given_of(at, "keep", "bias")
        operands = [at["q"], at["k"], at["v"], *forward_masks]
        lines.append(f'%{n} "y", %{n + 1} "stats" = FlashAttention({", ".join(operands)}) {forward}')
        operands = [at["dy"], at["q"], at["k"], at["v"], f"%{n}", f"%{n + 1}", *masks]
        lines.append(f'%{n + 2} "dq", %{n + 3} "dk", %{n + 4} "dv" = FlashAttentionGrad({", ".join(operands)}) {backward}')
        results.append([n, n + 2, n + 3, n + 4])
        mores.append((more, given))
        n += 5
    lines += [f'output %{r} "y{i}_{j}"' for i, row in enumerate(results) for j, r in enumerate(row)]
    return lines, values, mores, n


def distance(got, expected):
    finite = np.isfinite(expected)
    if not np.array_equal(got[~finite], expected[~finite], equal_nan=True):
        return np.inf
    return np.abs(got[finite] - expected[finite]).max(initial=0) / max(np.abs(expected[finite]).max(initial=0), 1)


# Attention of 2 images, T positions, HEADS heads of SIZE elements, its operands parts of one tensor and its gradients put together to
# one. Of each form, how many Slices, Transposes and Concats are to be executed, and what is other: lines, or more lines.
T, HEADS, SIZE = 37, 4, 8
WIDTH = HEADS * SIZE
CAUSAL = "scale=0.353 causal=1 fill=-inf"
LINES = ["qkv = Neg(minus)"] # inputs of programs for CPUs lie in memory of which the plan knows no parts
LINES += [f"{part}_part = Slice(qkv) start=[0,0,{i * WIDTH}] step=[1,1,1] size=[2,{T},{WIDTH}]" for i, part in enumerate("qkv")]
LINES += [f"{part}_heads = Reshape({part}_part) shape=[2,{T},{HEADS},{SIZE}]" for part in "qkv"]
LINES += [f"{part} = Transpose({part}_heads) perm=[0,2,1,3]" for part in "qkv"]
LINES += [f"y_heads, stats = FlashAttention(q, k, v) {CAUSAL}", "y_rows = Transpose(y_heads) perm=[0,2,1,3]",
          f"y = Reshape(y_rows) shape=[2,{T},{WIDTH}]", f"dy_rows = Reshape(dy) shape=[2,{T},{HEADS},{SIZE}]",
          "dy_heads = Transpose(dy_rows) perm=[0,2,1,3]",
          f"dq_heads, dk_heads, dv_heads = FlashAttentionGrad(dy_heads, q, k, v, y_heads, stats) {CAUSAL}"]
LINES += [f"d{part}_rows = Transpose(d{part}_heads) perm=[0,2,1,3]" for part in "qkv"]
LINES += [f"d{part} = Reshape(d{part}_rows) shape=[2,{T},{WIDTH}]" for part in "qkv"]
LINES += ["dqkv = Concat(dq, dk, dv) axis=2", "output y", "output dqkv"]
FORMS = {
    "all are views": (0, []),
    "q is an output too": (2, ["output q"]),
    "others read a part of k": (1, ["other = Neg(k_part)", "output other"]),
    "heads of y are an output too": (1, ["output y_heads"]),
    "one gradient is there twice": (1, ["dqkv = Concat(dq, dq, dv) axis=2"]),
    "heads of k are turned twice": (0, ["k_columns = Transpose(k_heads) perm=[0,2,3,1]", "k = Transpose(k_columns) perm=[0,1,3,2]"]),
    "elements of a head are no neighbours": (3, ["k_columns = Transpose(k_heads) perm=[0,2,3,1]", "k_other = Neg(k_columns)",
                                                 "k_again = Neg(k_other)", "k = Transpose(k_again) perm=[0,1,3,2]"]),
}


def form_graph(form, dtype, more, library, first):
    """The text of a form, whose tensors have names that begin with `form` and numbers from `first`. A line among `more` takes the place of
    that of the same result."""
    lines = {line.split(" = ")[0]: line for line in LINES}
    at = list(lines).index("q")
    lines = dict([*list(lines.items())[:at], *((line.split(" = ")[0], line) for line in more if line.startswith("k_")),
                  *list(lines.items())[at:]])
    lines.update({line.split(" = ")[0]: line for line in more})
    outputs = [line for line in lines.values() if line.startswith("output")]
    number = {"minus": f"%{first}", "dy": f"%{first + 1}"}
    text = [f'input {number["minus"]} "{form}minus" {dtype}[2,{T},{3 * WIDTH}]', f'input {number["dy"]} "{form}dy" {dtype}[2,{T},{WIDTH}]']
    for line in (line for line in lines.values() if " = " in line):
        results, (op, operands, attributes) = line.split(" = ")[0], re.fullmatch(r"(\w+)\((.*?)\)(.*)", line.split(" = ")[1]).groups()
        operands = ", ".join(number[name] for name in operands.split(", "))
        attributes += " library=1" * (library and "Flash" in op)
        for name in results.split(", "):
            number[name] = f"%{first + len(number)}"
        text.append(", ".join(f'{number[name]} "{form}{name}"' for name in results.split(", ")) + f" = {op}({operands}){attributes}")
    text += [f'output {number[name]} "{form}{name}"' for name in (line.split()[1] for line in outputs)]
    return text, first + len(number)


def form_reference(qkv, dy, twice):
    qkv = torch.tensor(np.array(qkv, "f8")).requires_grad_()
    q, k, v = (part.reshape(2, T, HEADS, SIZE).transpose(1, 2) for part in qkv.split(WIDTH, 2))
    more = {"scale": 0.353, "causal": 1, "fill": -np.inf}
    y = torch.stack([attend(q[i], k[i], v[i], None, None, None, more) for i in range(2)]).transpose(1, 2).reshape(2, T, WIDTH)
    gradient, = torch.autograd.grad(y, [qkv], torch.tensor(np.array(dy, "f8")))
    dq, dk, dv = gradient.split(WIDTH, 2)
    return y.detach().numpy(), torch.cat([dq, dq if twice else dk, dv], 2).numpy()


def forms_of(name):
    """By cuDNN the first alone: what it is told of strides does not depend on the form; in fp16 too, whose kernels are those of bf16. On
    CPUs in f32 alone: casts of the gradient's operands are contiguous."""
    dtype, library, *_ = {**OWN, **CUDNN, **CPUS}[name]
    forms = list(FORMS.items())
    return forms[:0 if name in CPUS and dtype != "f32" else 1 if library or dtype == "fp16" else len(forms)]


def form_values(dtype):
    rng = np.random.default_rng(1)
    return {"minus": narrow(rng.standard_normal((2, T, 3 * WIDTH)), dtype), "dy": narrow(rng.standard_normal((2, T, WIDTH)), dtype)}


def check_forms(name, source, out):
    """The moves in the source of the program, and what the forms made in `out`."""
    dtype, failures = {**OWN, **CUDNN, **CPUS}[name][0], []
    given = form_values(dtype)
    moved = re.findall(r"rt_(?:transpose|slice|concat)_[^;]*?\b(form\d+_)", source)
    expect(len(moved) == len(re.findall(r"rt_(?:transpose|slice|concat)_", source)), f"{name}: moves of no form")
    for number, (form, (moves, _)) in enumerate(forms_of(name)):
        executed = moved.count(f"form{number}_")
        expected = form_reference(-wide(given["minus"]), wide(given["dy"]), form.startswith("one gradient"))
        errors = [distance(wide(np.load(f"{out}/form{number}_{result}.npy")), value) for result, value in zip(("y", "dqkv"), expected)]
        print(f"{dtype} {form}: {executed} moves, y {errors[0]:.1e} dqkv {errors[1]:.1e}")
        if not max(errors) <= BOUNDS[dtype] or executed != moves:
            failures.append(f"{dtype} {form}: {executed} moves, not {moves}")
    return failures


def write(work, name):
    """The graph and its inputs; what they are, and options that name them."""
    dtype, library, *_ = {**OWN, **CUDNN, **CPUS}[name]
    lines, values, mores, n = graph(dtype, library)
    for number, (_, (_, more)) in enumerate(forms_of(name)):
        text, n = form_graph(f"form{number}_", dtype, more, bool(library), n)
        lines += text
        values.update({f"form{number}_{key}": value for key, value in form_values(dtype).items()})
    with open(f"{work}/attention.rir", "w") as out:
        out.write("\n".join(lines) + "\n")
    for key, value in values.items():
        np.save(f"{work}/{key}.npy", value)
    return mores, [word for key in values for word in ("--input", f"{key}={work}/{key}.npy")]


def check(rankc, work, name):
    dtype, library, calls, flags = {**OWN, **CUDNN, **CPUS}[name]
    target = "c" if name in CPUS else "cuda"
    counted = STAND_IN and bool(library) # calls of the library itself are not
    env = {**build_cudnn(), "FAKE_CUDNN_LOG": f"{work}/calls"} if counted else {}
    if counted: # little is left for the kernels, so the stand-in's compiler need not optimise
        env["NVCCFLAGS"] = f"{env['NVCCFLAGS'].replace('-O1', '-O0')} {flags}"
    mores, given = write(work, name)
    call(rankc, "compile", f"{work}/attention.rir", "-o", f"{work}/{target}", "-q", "--target", target, timeout=900, env=env)
    runs = []
    for out, threads in (("first", "1"), ("second", "1" if target == "cuda" else "3")):
        call(rankc, "run", f"{work}/{target}", *given, "--output-dir", f"{work}/{out}", "--threads", threads, timeout=900, env=env)
        runs.append([[np.load(f"{work}/{out}/y{i}_{j}.npy") for j in range(4)] for i in range(len(CASES))])
    failures = []
    made = sum(1 for _ in open(f"{work}/calls")) if os.path.exists(f"{work}/calls") else 0
    if counted and made != 2 * calls:
        failures.append(f"{name}: {made} calls of cuDNN in two runs, not {2 * calls}")
    for case, (more, own), got, again in zip(CASES, mores, *runs):
        expected = reference(own, more)
        errors = [distance(wide(a), b) for a, b in zip(got, expected)]
        print(f"{dtype} {case[:6]} {sorted(case[6])}: " + " ".join(f"{name} {e:.1e}" for name, e in zip(("y", "dq", "dk", "dv"), errors)))
        if not max(errors) <= BOUNDS[dtype]:
            failures.append(f"{dtype} {case}")
        if "atomic" not in library and any(a.tobytes() != b.tobytes() for a, b in zip(got, again)):
            failures.append(f"{dtype} {case}: other bits at another run")
    with open(f"{work}/{target}/attention/_/rank_0.{'cu' if target == 'cuda' else 'c'}") as source:
        return failures + check_forms(name, source.read(), f"{work}/first")


if __name__ == "__main__":
    sys.exit(by_type(__doc__, {**OWN, **(CUDNN if has_cudnn() else {})}, check))
