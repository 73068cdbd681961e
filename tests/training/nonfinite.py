#!/usr/bin/python3
"""Values that are not finite: what they do to parameters, and what a run says of them.

    nonfinite.py --rankc RANKC [NAME...]

Each check is a function here; models and PyTorch's numbers are from record_nonfinite.py."""
import functools
import math
import os
import sys

import harness
from harness import HERE, call, data_of, expect, model_of, needed, parser_of, plan_of, read_json, report
from train import tensors_of

with needed():
    import numpy as np
    import onnx
    import onnx.numpy_helper

PLANS = ["one", "dp2", "tp2", "data2"]
BOUND = 1e-6  # of what PyTorch computes in f32


class Bench(harness.Bench):
    def compile(self, case, *options):
        """The directory of the case's program."""
        model = self.path("model.onnx")
        with open(os.path.join(HERE, "nonfinite", f"{case}.onnx"), "rb") as source, open(model, "wb") as copy:
            copy.write(source.read())
        call(self.rankc, "compile", model, "-o", self.path("out"), "-q", "--reuse", "override", "--train", *options)
        return self.path("out/model/_")

    def data(self, reference):
        """The recorded inputs as files, by name."""
        files = {}
        for name, array in reference["inputs"].items():
            files[name] = self.path(f"{name}.npy")
            np.save(files[name], np.array([float(v) for v in array["values"]], np.float32).reshape(array["shape"]))
        return files


def recorded(case):
    return read_json(HERE, "nonfinite", f"{case}.json")


def words(option, files):
    return [word for name, file in files.items() for word in (option, f"{name}={file}")]


def flags(rankc):
    """Of a C compiler, to link with this build's runtime."""
    build = os.path.dirname(os.path.dirname(os.path.abspath(rankc)))
    said = call("pkg-config", "--static", "--cflags", "--libs", "rankc-rt",
                env={"PKG_CONFIG_PATH": os.path.join(build, "meson-uninstalled")})
    return ["-I" + os.path.join(build, "frontend", "include"), *said.stdout.split()]


def same(ours, value):
    """NaN where PyTorch's is, and there alone; infinite likewise."""
    return math.isnan(ours) if math.isnan(value) else ours == value or abs(ours - value) <= BOUND * abs(value)


def updated(bench):
    """A gradient that is not finite spoils the elements that PyTorch's update spoils, and no other."""
    for case in "root", "infinite":
        reference = recorded(case)
        for optimizer, parameters in reference["steps"].items():
            out, kept = bench.compile(case, "--optimizer", optimizer), bench.path(f"{case} {optimizer}")
            call("cc", "-O1", "-I", out, os.path.join(HERE, "step.c"), os.path.join(out, "model.c"), os.path.join(out, "rank_0.c"),
                 *flags(bench.rankc), "-o", bench.path("step"))
            call(bench.path("step"), out, kept, *bench.data(reference).values())
            found = tensors_of(os.path.join(kept, "step-1", "parameters-0.safetensors"))
            for name, values in parameters.items():
                expect(all(same(a, float(b)) for a, b in zip(found[name], values)),
                       f"{case}, {optimizer}: {name} {found[name]}, PyTorch {values}")


def ended(bench):
    """A gradient that is not finite ends the run also after its last step, and leaves no checkpoint of it."""
    for case, value in ("root", "not a number"), ("infinite", "infinite"):
        files, kept = bench.data(recorded(case)), bench.path(f"{case} kept")
        said = call(bench.rankc, "train", bench.compile(case), *words("--data", files), "--steps", "1", "--checkpoint-dir", kept, status=9)
        expect("error[E0914]" in said.stderr and value in said.stderr, said.stderr)
        expect("nan" in said.stdout or "inf" in said.stdout, said.stdout)
        expect(not os.path.isdir(kept) or not os.listdir(kept), "there is a checkpoint")


def said_of(bench, case, plan, files, *options):
    """What a run of one step says."""
    out = bench.compile(case, *plan_of(plan).options, *options)
    return call(bench.rankc, "train", out, *words("--data", files), "--steps", "1", "--threads", "1", status=9).stderr


def named(bench):
    """The error names the first node whose value is not finite, under every plan; where one loop computes several, as one of
    them."""
    for case in "log", "quotient", "softmax":
        reference = recorded(case)
        for plan in PLANS:
            said = said_of(bench, case, plan, doubled(bench, reference))
            place, _, loop = said.partition("help:")
            expect("error[E0914]" in said and " step 1 " in said and "on rank 0" in said, f"{case} {plan}: {said}")
            expect(f"node '{reference['first']}'" in place or f"'{reference['first']}'" in loop, f"{case} {plan}: {said}")
            expect("gradient of" not in said, f"{case} {plan}: {said}")
    for case in "root", "infinite":
        said = said_of(bench, case, "one", bench.data(recorded(case)))
        expect("gradient of node" in said, said)


def doubled(bench, reference):
    """Two micro-batches of the recorded inputs."""
    files = bench.data(reference)
    for path in files.values():
        np.save(path, np.concatenate([np.load(path)] * 2))
    return files


def given(bench):
    """Data and parameters that are not finite are named before any node, and the rank whose unit has them."""
    files = doubled(bench, recorded("root"))
    x = np.load(files["x"])
    x[5, 1] = np.nan
    np.save(files["x"], x)
    for plan, rank in ("one", 0), ("dp2", 1), ("tp2dp2", 2):
        said = said_of(bench, "root", plan, files, *(["--accumulate", "2"] if plan == "one" else []))
        expect("input 'x'" in said and f"on rank {rank}" in said, f"{plan}: {said}")
    said = said_of(bench, "parameter", "one", doubled(bench, recorded("parameter")))
    expect("parameter 'other', before the step" in said, said)


def poisoned(bench, tensor, index):
    """gpt2 with a NaN in a parameter."""
    model, path = onnx.load(model_of("gpt2")), bench.path("poisoned.onnx")
    value = next(entry for entry in model.graph.initializer if entry.name == tensor)
    array = onnx.numpy_helper.to_array(value).copy()
    array.reshape(-1)[index] = np.nan
    value.CopyFrom(onnx.numpy_helper.from_array(array, tensor))
    onnx.save(model, path)
    return path


def sliced(bench):
    """Under ZeRO 3 a parameter is named by the rank whose slice has the value; a value that is made, at its node, though operands and
    results are slices."""
    data = data_of("gpt2", harness.recorded("gpt2")["inputs"])
    tensor = "model.transformer.h.1.mlp.c_fc.weight" # 4096 elements, of which 3 ranks have 1376, 1376 and 1344
    for index, rank in (0, 0), (1375, 0), (1376, 1), (4095, 2):
        call(bench.rankc, "compile", poisoned(bench, tensor, index), "-o", bench.path("sliced"), "-q", "--reuse", "override", "--train",
             "--runtime-ngpus", "3", "--use-zero", "3")
        said = call(bench.rankc, "train", bench.path("sliced"), *data, "--steps", "1", "--threads", "1", status=9).stderr
        expect(f"parameter '{tensor}', before the step" in said and f"on rank {rank}" in said, f"element {index}: {said}")
    for zero in "0", "3":
        call(bench.rankc, "compile", model_of("gpt2"), "-o", bench.path("huge"), "-q", "--reuse", "override", "--train",
             "--runtime-ngpus", "3", "--use-zero", zero, "--init", f"{tensor}=constant:value=3e38")
        said = call(bench.rankc, "train", bench.path("huge"), *data, "--steps", "1", "--threads", "1", status=9).stderr
        expect("node '/model/transformer/h.1/mlp/c_fc/" in said and "before the step" not in said, f"ZeRO {zero}: {said}")


def unlabelled(bench):
    """A mean over labels of which none counts is NaN, as in PyTorch (F.cross_entropy: 0 / 0), and the error says so. mean=tokens divides by
    the labels of the whole step."""
    model = os.path.join(HERE, "data/gpt2")
    files = {name: f"{model}/packed/{name}.npy" for name in ("input_ids", "position_ids", "labels")}
    labels = np.load(files["labels"])
    labels[:2] = -100 # the first micro-batch
    files["labels"] = bench.path("labels.npy")
    np.save(files["labels"], labels)
    for mean, status in ("", 9), (",mean=tokens", 0):
        call(bench.rankc, "compile", f"{model}/model.onnx", "-o", bench.path("labelled"), "-q", "--reuse", "override", "--train",
             "--accumulate", "2", "--loss", f"cross_entropy:logits=logits,labels=labels{mean}")
        said = call(bench.rankc, "train", bench.path("labelled"), *words("--data", files), "--steps", "1", "--log",
                    bench.path(f"new/{status}/log"), status=status).stderr
        expect(os.path.exists(bench.path(f"new/{status}/log")), "the folder of the log is not made")
        expect(mean or ("error[E0914]" in said and "divides 0 by 0" in said and "mean=tokens" in said), said)


CHECKS = [updated, ended, named, given, sliced, unlabelled]


def main():
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", default=[check.__name__ for check in CHECKS])
    options = parser.parse_args()

    def run(check, work):
        check(Bench(options.rankc, work))
        return "ok"
    return report((check.__name__, functools.partial(run, check)) for check in CHECKS if check.__name__ in options.names)


if __name__ == "__main__":
    sys.exit(main())
