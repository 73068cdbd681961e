#!/usr/bin/python3
"""Training as a graph: linear_sgd.rir on one rank and several, step after step, against NumPy.

    linear_sgd.py --rankc RANKC

Updates are applied between steps, in every layout a weight is loaded in (plan "mixed" loads it whole and in parts), and the
plan is proven by `rankc verify`. Gradient
descent computed in f64 is the reference; the bound is DESIGN 8's, with one rank's error as the error of f32."""
import os
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_plans import plan_of  # noqa: E402
from rankc_test import bound_of, call, needed, rankc_of  # noqa: E402

with needed():
    import numpy as np

STEPS, BATCH, INPUTS, OUTPUTS = 7, 12, 5, 3
HEAD = b"8 bytes."  # the weight lies behind them in its file
PLANS = ["one", "dp2", "data2", "data3", "tp2", "tp3", "mixed"]


def write_inputs(work):
    rng = np.random.default_rng(1)
    x, t, w = (rng.standard_normal(shape).astype("f4") for shape in
               ((BATCH, INPUTS), (BATCH, OUTPUTS), (INPUTS, OUTPUTS)))
    np.save(os.path.join(work, "x.npy"), x)
    np.save(os.path.join(work, "t.npy"), t)
    with open(os.path.join(work, "linear_sgd.bin"), "wb") as file:
        file.write(HEAD + w.tobytes())
    text = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "linear_sgd.rir")).read()
    mixed = text.replace(" train\n", " train\nmesh tensor=2\n").replace('"forward"', '"forward" split(tensor:n/1/1)')
    for name, content in ("linear_sgd", text), ("mixed", mixed):
        with open(os.path.join(work, name + ".rir"), "w") as file:
            file.write(content)
    return x.astype("f8"), t.astype("f8"), w.astype("f8")


def descend(x, t, w, steps):
    """Loss of the last step and the weight after it."""
    for _ in range(steps):
        d = x @ w - t
        loss, w = (d * d).sum() / BATCH, w - x.T @ d / 96
    return loss, w


def run(rankc, work, plan, steps, comm):
    out = os.path.join(work, plan)
    if not os.path.isdir(out):
        model, options = ("mixed", []) if plan == "mixed" else ("linear_sgd", plan_of(plan).options)
        call(rankc, "compile", os.path.join(work, model + ".rir"), "-o", out, "-q", *options)
        call(rankc, "verify", out, "-q")
    call(rankc, "run", out, "--input", f"x={work}/x.npy", "--input", f"t={work}/t.npy", "--kernels", "reference",
         "--threads", "1", "--comm", comm, "--repeat", str(steps), "--output-dir", out + "/out")
    return np.load(out + "/out/loss.npy"), np.load(out + "/out/w_new.npy")


def check_refusals(rankc, work):
    """A weight must lie in a file beside the text, all of it, and not behind a link."""
    text, binary = os.path.join(work, "linear_sgd.rir"), os.path.join(work, "linear_sgd.bin")
    content = open(text).read()
    os.symlink(binary, os.path.join(work, "link.bin"))
    cases = [(3, content.replace("@1+8", "@0+8")), (3, content.replace("@1+8", "@2+8")),
             (3, content.replace("@1+8", "@1+9")), (3, content.replace("linear_sgd.bin", "link.bin")),
             (6, content.replace("linear_sgd.bin", "absent.bin")), (0, content)]
    for expected, case in cases:
        path = os.path.join(work, "refused.rir")
        with open(path, "w") as file:
            file.write(case)
        status = subprocess.run([rankc, "compile", path, "-o", work + "/refused", "--no-build", "-q", "--reuse", "override"],
                                capture_output=True, timeout=60).returncode
        if status != expected:
            raise SystemExit(f"exit {status}, expected {expected}, for\n{case}")


def check(rankc, work):
    x, t, w = write_inputs(work)
    for steps in (1, STEPS):
        reference = descend(x, t, w, steps)
        one = run(rankc, work, "one", steps, "auto")
        for plan in PLANS:
            for comm in ("loopback", "shm") if plan == "data2" else ("loopback",):
                values = run(rankc, work, plan, steps, comm)
                for name, value, mine, ref in zip(("loss", "w_new"), values, one, reference):
                    error = np.abs(value - ref).max()
                    bound = bound_of(np.abs(mine - ref).max(), np.abs(ref).max())
                    if error > bound:
                        raise SystemExit(f"{plan} after {steps} steps: {name} is off by {error:g}, bound {bound:g}")
        if steps == 1 and np.abs(one[1] - w).max() < 0.01:
            raise SystemExit("the step changes too little to prove anything")
    check_refusals(rankc, work)
    print(f"{len(PLANS)} plans, {STEPS} steps")
    return 0


def main():
    rankc = rankc_of(__doc__)
    with tempfile.TemporaryDirectory(prefix="rankc-linear-") as work:
        return check(rankc, work)


if __name__ == "__main__":
    sys.exit(main())
