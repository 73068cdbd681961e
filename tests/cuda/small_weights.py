#!/usr/bin/python3
"""Products with weights of 4, 8 and 16 bits on the stand-in of a GPU: against NumPy in f64 (programs/opcheck/reference.py).

    small_weights.py --rankc RANKC [CODES...]

Of one row to more than a tile has, columns and k that no tile divides, groups of several sizes, with zero points and an offset, stored
as (n, k) and as (k, n), scales along k and along n; rows with NaN and infinities. Batches, and rows each with the matrix of its expert.
x in f32, bf16 and fp16."""
import os
import sys

from stand_in import TESTS, by_type, call, needed # noqa: E402
from elements import narrow, wide # noqa: E402

sys.path.append(os.path.join(TESTS, "programs", "opcheck"))

with needed():
    import numpy as np
    from reference import dequant_expert_matmul, dequant_matmul

# m, k, n, indices with one scale, (n, k) or (k, n), zero points, scales along n
CASES = [(1, 256, 5, 32, 1, 0, 0), (1, 1056, 9, 32, 1, 1, 0), (2, 64, 4, 16, 1, 1, 0), (3, 512, 7, 512, 1, 0, 0), (4, 40, 1, 8, 1, 0, 0),
         (16, 96, 6, 32, 1, 1, 0), (17, 96, 70, 32, 1, 1, 0), (70, 36, 66, 12, 1, 0, 0), (1, 36, 3, 12, 1, 1, 0), (2, 12, 3, 6, 1, 0, 0),
         (3, 64, 34, 32, 0, 1, 0), (65, 48, 130, 16, 0, 0, 0), (5, 32, 64, 32, 1, 0, 1), (66, 34, 64, 16, 0, 0, 1), (0, 64, 8, 32, 1, 0, 0)]
# How many matrices, 0: no stack; whether they are of experts; the type of x
FORMS = [(0, False, "f32"), (3, False, "f32"), (4, True, "f32"), (0, False, "bf16"), (2, False, "fp16"), (4, True, "bf16")]
BITS = {"u4": 4, "i4": 4, "u8": 8, "i8": 8, "bf16": 16, "fp16": 16}
# Of the largest element: f32 sums of up to 1056 terms; weights and results that are rounded to 16 bits
BOUNDS = {"f32": 2e-6, "bf16": 2 ** -7, "fp16": 2 ** -10}


def values_of(case, form, codes, rng):
    m, k, n, block, turned, zeros, across = case
    matrices, experts, dtype = form
    lead = (matrices,) if matrices else ()
    x = rng.standard_normal((m, k) if experts or not matrices else (matrices, m, k)).astype("f4")
    if m > 2:
        x[..., 0, 0], x[..., 1, k - 1] = np.nan, np.inf
    shape, groups = ((n, k), k // block) if turned else ((k, n), k // block)
    scales = (n, groups) if turned else (groups, n)
    if across:
        groups = n // block
        scales = (groups, k) if turned else (k, groups)
    shape, scales = lead + shape, lead + scales
    values = {"x": x if dtype == "f32" else narrow(x, dtype)}
    if BITS[codes] == 16:
        values["w"] = narrow(rng.standard_normal(shape), codes)
    else:
        values["w"] = rng.integers(0, 256, (*shape[:-1], shape[-1] * BITS[codes] // 8), dtype="u1")
        values["w"] = values["w"].view("i1") if codes == "i8" else values["w"]
        values["s"] = rng.uniform(0.01, 0.1, scales).astype("f4")
    if zeros and BITS[codes] < 16 and not experts:
        low, high = (-(2 ** (BITS[codes] - 1)), 2 ** (BITS[codes] - 1)) if codes[0] == "i" else (0, 2 ** BITS[codes])
        values["z"] = rng.integers(low, high, scales).astype("i1" if codes[0] == "i" else "u1")
    if experts:
        values["i"] = rng.integers(-matrices, matrices, m)
    return values


def type_of(name, codes, form):
    if name in "xsi":
        return {"x": form[2], "s": "f32", "i": "i64"}[name]
    return codes if name == "w" and BITS[codes] != 4 else {"u": "u8", "i": "i8" if name == "z" else "u8"}[codes[0]]


def expected_of(values, form, attributes):
    """In f64, of x and weights as they are stored."""
    x = values["x"].astype("f8") if form[2] == "f32" else wide(values["x"]).astype("f8")
    codes = attributes["codes"]
    w = wide(values["w"]).astype("f8") if BITS[codes] == 16 else values["w"]
    scale = values["s"].astype("f8") if "s" in values else None
    attributes = {**attributes, "codes": codes.replace("fp", "f")}
    with np.errstate(invalid="ignore"):
        if form[1]:
            return dequant_expert_matmul(x, w, scale, values["i"], attributes)
        return dequant_matmul(x, w, scale, values["z"].astype("f8") if "z" in values else None, attributes)


def check(rankc, work, codes):
    rng = np.random.default_rng(BITS[codes])
    lines, n, given, results, expected = ["rankc-ir 1", 'graph "small" level=TYPED'], 0, [], [], []
    cases = [(case, form) for form in FORMS for case in CASES if BITS[codes] < 16 or not case[6]]
    for i, (case, form) in enumerate(cases):
        values, operands = values_of(case, form, codes, rng), {}
        for name, value in values.items():
            lines.append(f'input %{n} "{name}{i}" {type_of(name, codes, form)}[{",".join(map(str, value.shape))}]')
            np.save(f"{work}/{name}{i}.npy", value)
            given += ["--input", f"{name}{i}={work}/{name}{i}.npy"]
            operands[name] = f"%{n}"
            n += 1
        attributes = {"codes": codes, "trans_b": case[4], "across": case[6], "offset": 0.0 if "z" in values or BITS[codes] == 16 else 3.0}
        op, last = ("DequantExpertMatMul", "i") if form[1] else ("DequantMatMul", "z")
        lines.append(f'%{n} "y{i}" = {op}({", ".join(operands.get(name, "_") for name in ("x", "w", "s", last))}) ' + " ".join(
            f'{key}="{value}"' if key == "codes" else f"{key}={value}" for key, value in attributes.items()))
        results.append(f"output %{n} \"y{i}\"")
        expected.append(expected_of(values, form, attributes))
        n += 1
    with open(f"{work}/small.rir", "w", encoding="utf-8") as out:
        out.write("\n".join(lines + results) + "\n")
    call(rankc, "compile", f"{work}/small.rir", "-o", work, "-q", "--target", "cuda", timeout=600)
    call(rankc, "run", work, *given, "--output-dir", f"{work}/out", "--comm", "loopback", timeout=600)
    failures, most = [], dict.fromkeys(BOUNDS, 0)
    for i, want in enumerate(expected):
        dtype, got = cases[i][1][2], np.load(f"{work}/out/y{i}.npy")
        got = got if dtype == "f32" else wide(got)
        finite = np.isfinite(want)
        same = np.array_equal(got[~finite], want[~finite].astype("f4"), equal_nan=True)
        with np.errstate(invalid="ignore"):
            away = np.abs(got - want)[finite].max(initial=0) / max(np.abs(want[finite]).max(initial=0), 1e-3) if same else np.inf
        most[dtype] = max(most[dtype], away)
        if not away <= BOUNDS[dtype]:
            failures.append(f"{codes} {cases[i]}: {away}")
    print(f"{codes}: {most}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(by_type(__doc__, BITS, check))
