#!/usr/bin/python3
"""Trains GPT-2 and Llama with ZeRO under plans, and compares every step with one rank and the memory with the paper's formulas.

    zero.py --rankc RANKC [--quick] [--models "MODEL..."] [--plans PLAN;...] [--stages "Z..."] [--cases "CASE..."] [--table FILE] [--jobs N]

One rank sees the same micro-batches: as many a step as all units have together. What is checked (DESIGN 8):
  exact    the losses have the bits of one rank's. The gradient's norm adds the same squares in another order, in f64.
  bounded  losses and norms are within 1e-5 of one rank's, relatively; with --amp within DESIGN 8's bound per tensor, where ref is
           one rank in f64: 2 max|one - ref| + 8 eps max|ref|.
EXPECTED says which class a plan has. Stage 1 must have the bits of stage 0. Memory of a rank is what `rankc show` prints; it must be
what the formulas of the ZeRO paper give (arXiv 1910.02054, section 3.1), which divide the bytes of Adam's two moments (stage 1), of
sums of gradients (2) and of parameters (3) by the number of ranks that would hold them alike (expected_memory).
Stage 3 with --zero-prefetch has the bits of --zero-prefetch 0 at every distance; what a larger distance costs is communication memory.

A case is micro-batches per unit and step, and options (OPTIONS): "4", "4+clip"."""
import concurrent.futures
import fnmatch
import functools
import os
import sys
import tempfile

from harness import Failed, call, expect, json_of, lines_of, manifest_of, model_of, names_of, needed, parser_of, plan_of, recorded, report

with needed():
    import numpy as np

PLANS = ["dp2", "dp3", "dp4", "dp8", "tp2", "tp2dp2", "tp2dp4", "data2", "data2dp2",
         "data2dp4", "tp2data2", "tp2data2dp2"]
CASES = ["1", "4", "4+clip+recompute", "4+amp"]
OPTIONS = {"clip": ["--clip-grad-norm", "0.5"], "amp": ["--amp", "bf16"], "recompute": ["--recompute", "full"],
           "frozen": ["--param", "*mlp*:frozen"], "whole": ["--param", "*mlp*:whole"]}
# Model, plan, case, stages: what --quick checks.
QUICK = [("gpt2", "dp3", "2+clip", (1, 2, 3)), ("gpt2", "dp2", "1+amp", (1, 3)), ("llama", "tp2dp2", "2", (1, 3)),
         ("llama", "context2dp2", "2", (1, 3)),
         ("gpt2", f"manual:{os.path.dirname(os.path.abspath(__file__))}/nest_tokens.rules@2", "1", (0, 3)),
         ("gpt2", "data2dp2", "2", (1, 2, 3)), ("llama", "dp2", "2+frozen", (2, 3)), ("gpt2", "dp2", "1+whole", (3,))]
# Model, plan, case: those of --zero-prefetch; --quick checks the quick ones with the first distances.
PREFETCH = [(model, plan, case) for model in ("gpt2", "llama") for plan in ("dp2", "dp4", "data2dp2", "tp2dp2")
            for case in ("1", "4", "4+clip+recompute", "4+amp")]
QUICK_PREFETCH, DISTANCES = [("gpt2", "data2dp2", "2+recompute"), ("llama", "dp4", "1+amp")], (0, 1, 2, 8, 1000)
VOCABULARY = {"gpt2": 101, "llama": 97}
STEPS, BATCH, BOUND, NORM_BOUND, BF16_EPS = 6, 2, 1e-5, 1e-12, 2.0 ** -7
ALIGNMENT, GRAIN, THRESHOLD = 64, 16, 1024  # bytes; elements; elements


def class_of(policy, units, accumulate, stage):
    """The class of equality with one rank (DESIGN 8)."""
    if policy != "dp":  # sums over a dimension that the mesh divides
        return "bounded"
    if units == 1 or accumulate == 1:
        return "exact"
    return EXPECTED[stage]


# With several units and micro-batches: stages 0 and 1 add micro-batches of a unit first, and then units.
EXPECTED = {0: "bounded", 1: "bounded", 2: "bounded", 3: "bounded"}


# Memory ------------------------------------------------------------------------------------------------------------------------

def part(extent, ways, blocks, unit):
    """The largest rank's part of a dimension: `blocks` equal blocks, each divided into whole units."""
    return blocks * -(-(extent // blocks // unit) // ways) * unit


def elements_of(tensor, mesh):
    """Of the part that the mesh leaves the first rank."""
    shape = list(tensor["shape"])
    for cut in tensor["slices"]:
        shape[cut["dim"]] = part(shape[cut["dim"]], mesh[cut["axis"]], cut["blocks"], cut["unit"])
    return int(np.prod(shape))


def aligned(elements, dtype="f32"):
    size = {"bool": 1, "bf16": 2, "f32": 4}.get(dtype, 8)
    return -(-elements * size // ALIGNMENT) * ALIGNMENT


def sliced(elements, ways):
    """Elements of one rank of those that hold the part alike: the paper's 1 / N, rounded up to vectors along each axis."""
    for n in ways:
        if n > 1:
            elements = -(-(-(-elements // n)) // GRAIN) * GRAIN
    return elements


def expected_memory(whole, units, stage, kept=()):
    """Bytes of weights, sums of gradients and optimizer of rank 0; `whole`: the manifest of the plan without ZeRO, which says
    how the mesh divides parameters and states; kept: globs of parameters that stay whole."""
    mesh = {axis["axis"]: axis["size"] for axis in whole["mesh"]}
    ways, parameters = [mesh.get("context", 1), mesh.get("data", 1), units], {p["name"]: p["trained"] for p in whole["parameters"]}

    def stored(tensor, from_stage):
        elements = elements_of(tensor, mesh)
        divided = tensor["dtype"] == "f32" and np.prod(tensor["shape"]) >= THRESHOLD
        if stage >= from_stage and divided and not any(fnmatch.fnmatch(tensor["name"], glob_) for glob_ in kept):
            elements = sliced(elements, ways)
        return aligned(elements, tensor["dtype"])

    states = whole["states"]
    gradients = [s for s in states if s["name"].endswith(".m")]  # a sum lies as its moments do
    expect(len(gradients) == sum(parameters.values()), "a parameter has no moment")
    return {"weights": sum(stored(t, 3 if t["name"] in parameters else 4) for t in whole["tensors"]),
            "gradients": sum(stored(t, 2) for t in gradients), "optimizer": sum(stored(t, 1) for t in states)}


def formula(whole, units, stage):
    """The paper's, with nothing rounded and nothing left whole: bytes of all three."""
    mesh = {axis["axis"]: axis["size"] for axis in whole["mesh"]}
    n = mesh.get("context", 1) * mesh.get("data", 1) * units
    psi = sum(elements_of(t, mesh) for t in whole["states"] if t["name"].endswith(".m"))
    return 4 * psi / (n if stage >= 3 else 1) + 4 * psi / (n if stage >= 2 else 1) + 8 * psi / (n if stage >= 1 else 1)


# Runs --------------------------------------------------------------------------------------------------------------------------

class Trained:
    """What a run of a plan gave: metrics, and what the compiler says of it."""

    def __init__(self, metrics, memory, manifest):
        self.loss, self.norm = ([line[key] for line in metrics] for key in ("loss", "grad_norm"))
        self.memory, self.manifest = memory, manifest


class Bench:
    """Trains models in `work`; equal runs are done once."""

    def __init__(self, rankc, work, jobs):
        self.rankc, self.work = rankc, work
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs)
        self.runs = {}
        for model, tokens in VOCABULARY.items():
            self.make_data(model, tokens)

    def make_data(self, model, tokens):
        """More samples than recorded, so that ranks see different ones; some labels are ignored."""
        os.makedirs(f"{self.work}/{model}")
        shape = np.load(os.path.join(os.path.dirname(model_of(model)), "input_ids.npy")).shape[1:]
        random = np.random.default_rng(list(model.encode()))
        for name in ("input_ids", "labels"):
            np.save(f"{self.work}/{model}/{name}.npy", random.integers(0, tokens, (97, *shape)))

    def one(self, model, micro_batches, *options, dtype="f32"):
        return self.submit(model, "one", micro_batches, 0, *options, *(["--dtype", dtype] if dtype != "f32" else []))

    def submit(self, *key):
        if key not in self.runs:
            self.runs[key] = self.pool.submit(self.train, f"{self.work}/{len(self.runs)}", *key)
        return self.runs[key]

    def train(self, out, model, plan, accumulate, stage, *options):
        call(self.rankc, "compile", model_of(model), "-o", out, "-q", "--train", *plan_of(plan).options, "--accumulate", accumulate,
             "--use-zero", stage, "--optimizer",
             recorded(model)["optimizer"], *options)
        data = [word for name in ("input_ids", "labels") for word in ("--data", f"{name}={self.work}/{model}/{name}.npy")]
        call(self.rankc, "train", out, *data, "--steps", str(STEPS), "--log", out + ".log", "--threads", "1")
        call(self.rankc, "verify", out, "-q")
        memory = json_of(self.rankc, "show", out, "--json")["ranks"][0]["memory"]
        return Trained(lines_of(out + ".log"), memory, manifest_of(out))


def words_of(case):
    accumulate, *names = case.split("+")
    return int(accumulate), names


def relative(values, others):
    return max(abs(a - b) / (abs(b) or 1) for a, b in zip(values, others))


def amp_share(got, one, ref):
    """The largest difference as a share of DESIGN 8's bound."""
    distance = lambda run, key: max(abs(a - b) for a, b in zip(getattr(run, key), getattr(ref, key)))
    return max(distance(got, key) / (2 * distance(one, key) + 8 * BF16_EPS * max(map(abs, getattr(ref, key))))
               for key in ("loss", "norm"))


def compare(bench, model, plan, case, stage):
    """What the table says of the run: "exact" or the largest relative difference."""
    (policy, units, _), (accumulate, names) = plan_of(plan), words_of(case)
    options = [word for name in names for word in OPTIONS[name]]
    got = bench.submit(model, plan, accumulate, stage, *options).result()
    one = bench.one(model, units * accumulate, *options).result()
    wanted, worst = class_of(policy, units, accumulate, stage), relative(got.loss, one.loss)
    found = "exact" if got.loss == one.loss else f"{worst:.0e}"
    if wanted == "exact":
        expect(found == "exact", f"losses differ by {worst:.1e}: {got.loss}, one rank {one.loss}")
        norms = relative(got.norm, one.norm)
        expect(norms <= NORM_BOUND, f"norms differ by {norms:.1e}")
    elif "amp" in names:
        plain = [word for name in names if name != "amp" for word in OPTIONS[name]]
        share = amp_share(got, one, bench.one(model, units * accumulate, *plain, dtype="f64").result())
        expect(share <= 1, f"{share:.2f} of the bound")
    else:
        norms = relative(got.norm, one.norm)
        expect(max(worst, norms) <= BOUND, f"losses differ by {worst:.1e}, norms by {norms:.1e}")
    if stage == 1:
        whole = bench.submit(model, plan, accumulate, 0, *options).result()
        expect(got.loss == whole.loss, f"stage 0 gives other losses: {got.loss}, {whole.loss}")
        expect(relative(got.norm, whole.norm) <= NORM_BOUND, f"stage 0 gives other norms: {got.norm}, {whole.norm}")
    return found


def check_memory(bench, model, plan, case, stage):
    """The run's memory, that which is expected, and the paper's formula."""
    units, (accumulate, names) = plan_of(plan).units, words_of(case)
    options = [word for name in names for word in OPTIONS[name]]
    got = bench.submit(model, plan, accumulate, stage, *options).result().memory
    whole = bench.submit(model, plan, accumulate, 0, *options).result().manifest
    kept = [option.partition(":")[0] + "*" for option in OPTIONS["whole"][1:] if "whole" in names]
    expected = expected_memory(whole, units, stage, kept)
    if accumulate == 1 and stage < 2:
        expected["gradients"] = 0  # nothing is summed: gradients of one micro-batch are operands of the reduction
    wrong = [f"{kind}: {got[kind]} bytes, expected {value}" for kind, value in expected.items() if got[kind] != value]
    expect(not wrong, "; ".join(wrong))
    return got, formula(whole, units, stage)


def cases_of(options):
    if options.quick:
        return [(*case, stage) for *case, stages in QUICK for stage in stages]
    return [(model, plan, case, stage) for model in options.models.split() for plan in names_of(options.plans)
            for case in options.cases.split() for stage in map(int, options.stages.split())]


def run_prefetch(bench, table, distances, key, _work):
    """Trains with each distance; what `show` says of memory, by distance."""
    model, plan, case = key
    accumulate, names = words_of(case)
    options = [word for name in names for word in OPTIONS[name]]
    runs = [bench.submit(model, plan, accumulate, 3, *options, "--zero-prefetch", str(n)) for n in distances]
    first, *others = [run.result() for run in runs]
    for n, run in zip(distances[1:], others):
        expect(run.loss == first.loss and run.norm == first.norm, f"other numbers at distance {n}: {run.loss}, not {first.loss}")
        for kind in "weights", "gradients", "optimizer":
            expect(run.memory[kind] == first.memory[kind], f"distance {n} changes the memory of {kind}")
    table[key] = [run.memory["activations"] + run.memory["communication"] for run in [first, *others]]
    expect(table[key][0] <= table[key][-1], f"gathers take no memory: {table[key]}")
    return f"equal; {' '.join(map(str, table[key]))} bytes of activations and communication"


def run_case(bench, tables, key, _work):
    equal, memory = tables
    said = []
    for check, table in (compare, equal), (check_memory, memory):
        try:
            table[key] = check(bench, *key)
            said.append(table[key] if check is compare else "memory as expected")
        except Failed as wrong:
            said.append(f"{'memory' if check is check_memory else 'FAILED'}: {wrong}")
    text = "; ".join(said)
    if any(word in text for word in ("FAILED", "memory: ")):
        raise Failed(text)
    return text


def write_tables(path, options, equal, memory, prefetched):
    stages = options.stages.split()
    with open(path, "w") as table:
        table.write(INTRODUCTION)
        table.write("\n## Losses\n\n" + LOSSES + f"\n| model | plan | ranks | micro-batches, options | {' | '.join('stage ' + s for s in stages)} |\n"
                    f"|{'---|' * (4 + len(stages))}\n")
        for model, plan, case in dict.fromkeys(key[:3] for key in cases_of(options)):
            policy, units, _ = plan_of(plan)
            accumulate, names = words_of(case)
            cells = " | ".join(equal.get((model, plan, case, int(stage)), "**failed**") for stage in stages)
            table.write(f"| {model} | {policy}, {units} unit{'s' * (units > 1)} | {plan_of(plan).world} | "
                        f"{', '.join([str(accumulate), *names])} | {cells} |\n")
        table.write("\n## Memory\n\n" + MEMORY + "\n| model | plan | ranks | stage | weights | gradients | optimizer | sum | formula |\n"
                    f"|{'---|' * 9}\n")
        for model, plan, case, stage in cases_of(options):
            if case != "4":
                continue
            policy, units, _ = plan_of(plan)
            row = f"| {model} | {policy}, {units} unit{'s' * (units > 1)} | {plan_of(plan).world} | {stage} | "
            if (model, plan, case, stage) not in memory:
                table.write(row + "**failed** | | | | |\n")
                continue
            got, paper = memory[model, plan, case, stage]
            kinds = [got[kind] for kind in ("weights", "gradients", "optimizer")]
            table.write(row + " | ".join(map(str, [*kinds, sum(kinds), round(paper)])) + " |\n")
        table.write("\n## Prefetch\n\n" + PREFETCHED + f"\n| model | plan | ranks | micro-batches, options | losses | "
                    f"{' | '.join(map(str, DISTANCES))} |\n|{'---|' * (5 + len(DISTANCES))}\n")
        for model, plan, case in PREFETCH:
            policy, units, _ = plan_of(plan)
            accumulate, names = words_of(case)
            found = prefetched.get((model, plan, case))
            table.write(f"| {model} | {policy}, {units} unit{'s' * (units > 1)} | {plan_of(plan).world} | "
                        f"{', '.join([str(accumulate), *names])} | {'equal' if found else '**failed**'} | "
                        f"{' | '.join(map(str, found or [''] * len(DISTANCES)))} |\n")


INTRODUCTION = """# ZeRO: losses and memory of its stages

[guide-train.md](../guide-train.md#zero) says what `--use-zero` does and how it is used. This page compares its stages 0 to 3
in runs of six steps: the GPT-2 and Llama of tests/training, on random tokens. `tests/training/zero.py --table` writes it.

A *unit* is a scale unit, a group of ranks that holds one copy of the model; under `dp` that is one rank. "Micro-batches,
options" are the micro-batches of a unit in a step (`--accumulate`), and `--clip-grad-norm` (clip), `--recompute full`
(recompute) and `--amp bf16` (amp).
"""
LOSSES = """All losses are compared with those of one rank that sees the same micro-batches. "exact": they are equal bit for bit. A
number is the largest relative difference of a loss. At most 1e-5 is allowed; with amp, twice the difference between one
rank and the same graph in f64, plus 8 times bf16's precision (2^-7). Losses of stages 0 and 1 are equal bit for bit.
"""
MEMORY = """Bytes of rank 0, as `rankc show` prints them, with four micro-batches. The test computes them from the shapes of the
parameters, and they agree exactly: parameters of fewer than 1024 elements stay whole, slices are rounded up to 16 elements,
and tensors begin at multiples of 64 bytes; weights include constants. "Formula" is the sum by the ZeRO paper
([arXiv 1910.02054](https://arxiv.org/abs/1910.02054)) for f32 and Adam, with nothing rounded and nothing left whole: P
parameters take 4P bytes of weights, 4P of gradients and 8P of optimizer states, each divided by N where the stage divides
it. N is the number of ranks that hold the same parameters without ZeRO.
"""
PREFETCHED = """In stage 3, `--zero-prefetch N` gathers the parameters of the next N operators that have any while an operator computes.
Losses and gradient norms are equal bit for bit for every N ("equal"). The other columns are the bytes of activations and
communication of rank 0, as `rankc show` prints them, for N = 0, 1, 2, 8 and 1000: the earlier parameters are gathered,
the longer they take memory.
"""


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="a few cases of each kind")
    parser.add_argument("--models", default=" ".join(VOCABULARY))
    parser.add_argument("--plans", default=" ".join(PLANS), help="their names: rankc_plans.py")
    parser.add_argument("--stages", default="0 1 2 3")
    parser.add_argument("--cases", default=" ".join(CASES))
    parser.add_argument("--table", help="where to write tables of the results")
    parser.add_argument("--jobs", type=int, default=1, help="compiles and runs at once")
    options = parser.parse_args()
    tables, prefetched = ({}, {}), {}
    prefetches = QUICK_PREFETCH if options.quick else PREFETCH if options.table else []
    distances = DISTANCES[:3] if options.quick else DISTANCES
    with tempfile.TemporaryDirectory(prefix="rankc-zero-") as work:
        bench = Bench(options.rankc, work, options.jobs)
        failed = report([*((" ".join(map(str, key)), functools.partial(run_case, bench, tables, key)) for key in cases_of(options)),
                         *(("prefetch " + " ".join(key), functools.partial(run_prefetch, bench, prefetched, distances, key))
                           for key in prefetches)])
    if options.table:
        write_tables(options.table, options, *tables, prefetched)
    return failed


if __name__ == "__main__":
    sys.exit(main())
