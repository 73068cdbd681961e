#!/usr/bin/python3
"""Products with weights of 4, 8 and 16 bits on the stand-in of a GPU: against NumPy in f64 (programs/opcheck/reference.py).

    small_weights.py --rankc RANKC [CODES...]

Of one row to more than a tile has, columns and k that no tile divides, groups of several sizes, with zero points and an offset, stored
as (n, k) and as (k, n), scales along k and along n; rows with NaN and infinities."""
import os
import sys

from stand_in import TESTS, by_type, call, needed # noqa: E402
from elements import narrow, wide # noqa: E402

sys.path.append(os.path.join(TESTS, "programs", "opcheck"))

with needed():
    import numpy as np
    from reference import dequant_matmul

# m, k, n, indices with one scale, (n, k) or (k, n), zero points, scales along n
CASES = [(1, 256, 5, 32, 1, 0, 0), (1, 1056, 9, 32, 1, 1, 0), (2, 64, 4, 16, 1, 1, 0), (3, 512, 7, 512, 1, 0, 0), (4, 40, 1, 8, 1, 0, 0),
         (16, 96, 6, 32, 1, 1, 0), (17, 96, 70, 32, 1, 1, 0), (70, 36, 66, 12, 1, 0, 0), (1, 36, 3, 12, 1, 1, 0), (2, 12, 3, 6, 1, 0, 0),
         (3, 64, 34, 32, 0, 1, 0), (65, 48, 130, 16, 0, 0, 0), (5, 32, 64, 32, 1, 0, 1), (66, 34, 64, 16, 0, 0, 1), (0, 64, 8, 32, 1, 0, 0)]
BITS = {"u4": 4, "i4": 4, "u8": 8, "i8": 8, "bf16": 16, "fp16": 16}


def values_of(case, codes, rng):
    m, k, n, block, turned, zeros, across = case
    x = rng.standard_normal((m, k)).astype("f4")
    if m > 2:
        x[0, 0], x[1, k - 1] = np.nan, np.inf
    shape, groups = ((n, k), k // block) if turned else ((k, n), k // block)
    scales = (n, groups) if turned else (groups, n)
    if across:
        groups = n // block
        scales = (groups, k) if turned else (k, groups)
    values = {"x": x}
    if BITS[codes] == 16:
        values["w"] = narrow(rng.standard_normal(shape), codes)
    else:
        values["w"] = rng.integers(0, 256, (*shape[:-1], shape[-1] * BITS[codes] // 8), dtype="u1")
        values["w"] = values["w"].view("i1") if codes == "i8" else values["w"]
    values["s"] = rng.uniform(0.01, 0.1, scales).astype("f4")
    if zeros and BITS[codes] < 16:
        low, high = (-(2 ** (BITS[codes] - 1)), 2 ** (BITS[codes] - 1)) if codes[0] == "i" else (0, 2 ** BITS[codes])
        values["z"] = rng.integers(low, high, scales).astype("i1" if codes[0] == "i" else "u1")
    return values


def type_of(name, codes):
    if name in "xs":
        return "f32"
    return codes if name == "w" and BITS[codes] != 4 else {"u": "u8", "i": "i8" if name == "z" else "u8"}[codes[0]]


def check(rankc, work, codes):
    rng = np.random.default_rng(BITS[codes])
    lines, n, given, results, expected = ["rankc-ir 1", 'graph "small" level=TYPED'], 0, [], [], []
    for i, case in enumerate(CASES):
        values, operands, turned, across = values_of(case, codes, rng), [], case[4], case[6]
        for name, value in values.items():
            lines.append(f'input %{n} "{name}{i}" {type_of(name, codes)}[{",".join(map(str, value.shape))}]')
            np.save(f"{work}/{name}{i}.npy", value)
            given += ["--input", f"{name}{i}={work}/{name}{i}.npy"]
            operands.append(f"%{n}")
            n += 1
        offset = 0.0 if "z" in values or BITS[codes] == 16 else 3.0
        attributes = {"codes": codes, "trans_b": turned, "across": across, "offset": offset}
        lines.append(f'%{n} "y{i}" = DequantMatMul({", ".join(operands)}) ' + " ".join(
            f'{key}="{value}"' if key == "codes" else f"{key}={value}" for key, value in attributes.items()))
        results.append(f"output %{n} \"y{i}\"")
        zeros = [values["z"].astype("f8")] if "z" in values else []
        weights = wide(values["w"]) if BITS[codes] == 16 else values["w"]
        with np.errstate(invalid="ignore"):
            expected.append(dequant_matmul(values["x"].astype("f8"), weights, values["s"].astype("f8"), *zeros,
                                           {**attributes, "codes": codes.replace("fp", "f")}))
        n += 1
    with open(f"{work}/small.rir", "w", encoding="utf-8") as out:
        out.write("\n".join(lines + results) + "\n")
    call(rankc, "compile", f"{work}/small.rir", "-o", work, "-q", "--target", "cuda", timeout=600)
    call(rankc, "run", work, *given, "--output-dir", f"{work}/out", "--comm", "loopback", timeout=600)
    failures, most = [], 0
    for i, want in enumerate(expected):
        got = np.load(f"{work}/out/y{i}.npy")
        finite = np.isfinite(want)
        same = np.array_equal(got[~finite], want[~finite].astype("f4"), equal_nan=True)
        with np.errstate(invalid="ignore"):
            away = np.abs(got - want)[finite].max(initial=0) / max(np.abs(want[finite]).max(initial=0), 1e-3) if same else np.inf
        most = max(most, away)
        if not away <= 2e-6: # f32 sums of up to 1056 terms
            failures.append(f"{codes} {CASES[i]}: {away}")
    print(f"{codes}: {most:.1e}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(by_type(__doc__, BITS, check))
