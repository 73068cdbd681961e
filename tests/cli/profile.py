#!/usr/bin/python3
"""rankc profile writes a machine file that --machine takes.

    profile.py --rankc RANKC"""
import json
import math
import os
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, needed, rankc_of  # noqa: E402

with needed():
    import numpy
    import onnx
    from onnx import helper, numpy_helper


LINK = {"bandwidth": 1e9, "latency": 1e-6}


def level_with(collectives):
    return [{**LINK, "collectives": collectives}]


def refuses_broken_files(rankc, machine, path):
    """Exit code 3, with the line, for each key that only processors' files have."""
    for key, value in (("alone", 0), ("writes", 3), ("elementwise", "fast"), ("by_size", []), ("by_size", [[1, 2, 3]]),
                       ("by_size_alone", [[2, 5], [2, 5]]), ("by_size", [[i, 5] for i in range(1, 14)]),
                       ("kernels", {"depthwise": [0, 1]}), ("kernels", {"pointwise": [1, 1, 1, 1, 1]}), ("kernels", {"pointwise": [1, 1, -1]}), ("kernels", {"winograd": [1, 1]}), ("kernels", 5),
                       ("distant", 5), ("distant", {"depthwise": 0.9}), ("distant", {"depthwise": [1]}), ("distant", {"winograd": 1}),
                       ("slowdown", 0.9), ("levels", level_with(5)), ("levels", level_with({"all_gathers": LINK})), ("levels", level_with({"send": 5})),
                       ("levels", level_with({"send": {"bandwidth": 1e9}})), ("levels", level_with({"send": {**LINK, "alpha": 1}})),
                       ("levels", level_with({"send": {**LINK, "by_size": [[5, 5], [4, 4]]}}))):
        with open(path, "w", encoding="ascii") as file:
            json.dump({**machine, key: value}, file)
        words = ["plan", "--model-config", "gpt2", "--inference", "--machine", path, "-q"]
        done = call(rankc, *words, status=3)
        assert "E0396" in done.stderr and "line 1" in done.stderr, (key, value, done.stderr)


def counts_convolutions(rankc, directory, machine):
    """Convolutions with epilogues and channels last are priced as what they are, not by the vector that is added to them."""
    shapes = {"first": (64, 16, 3, 3), "wide": (128, 64, 1, 1), "apart": (128, 1, 3, 3), "last": (64, 128, 3, 3)}
    rng = numpy.random.default_rng(7)
    nodes, weights, x, flops = [], [], "x", 0
    for name, shape in shapes.items():
        weights += [numpy_helper.from_array(rng.standard_normal(shape).astype("f4"), name),
                    numpy_helper.from_array(rng.standard_normal(shape[0]).astype("f4"), f"{name}_bias")]
        group = 128 if name == "apart" else 1
        nodes += [helper.make_node("Conv", [x, name, f"{name}_bias"], [f"{name}_y"], name=name, group=group,
                                   pads=[shape[2] // 2] * 4),
                  helper.make_node("Relu", [f"{name}_y"], [f"{name}_z"], name=f"{name}_relu")]
        x = f"{name}_z"
        flops += 2 * 4 * 28 * 28 * math.prod(shape)
    graph = helper.make_graph(nodes, "convolutions", [helper.make_tensor_value_info("x", 1, (4, 16, 28, 28))],
                              [helper.make_tensor_value_info(x, 1, (4, 64, 28, 28))], weights)
    model = os.path.join(directory, "convolutions.onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    for pas, parts in (("dp", 1), ("tp:tensor=2", 2)):
        plan = call(rankc, "plan", model, "--pas", pas, "--plan-ngpus", str(parts), "--target", "c", "--machine", machine, "--json", "-q")
        estimate = json.loads(plan.stdout)["estimate"]
        assert estimate["executed_flops"] == flops, (pas, estimate, flops)


def main():
    rankc = rankc_of(__doc__)
    done = call(rankc, "profile", "--runtime-ngpus", "2", "--threads", "1")
    machine = json.loads(done.stdout)
    assert machine["bandwidth"] > 1e7 and machine["memory"] > 1e7 and 0 < machine["launch"] < 0.1, machine
    for kind in ("f64", "f32", "half"):
        assert 1e7 < machine["rates"][kind] < 1e15, machine
    assert machine["levels"][0]["bandwidth"] > 1e5 and 0 < machine["levels"][0]["latency"] < 1, machine
    collectives = machine["levels"][0]["collectives"]
    assert sorted(collectives) == ["all_gather", "all_to_all", "reduce_scatter", "send"], machine
    for link in collectives.values():
        assert 0 < link["latency"] < 1 and len(link["by_size"]) == 3 and all(1e5 < rate < 1e13 for _, rate in link["by_size"]), machine
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "here.json")
        with open(path, "w", encoding="ascii") as file:
            file.write(done.stdout)
        words = ["plan", "--model-config", "gpt2", "--inference", "--target", "c", "--machine", path, "--json", "-q"]
        plan = call(rankc, *words)
        estimate = json.loads(plan.stdout)["estimate"]
        # GPT-2 at 1,024 tokens: 2 N tokens and the attention; no step is shorter than its operations take
        assert estimate["machine"] == "this machine", estimate
        assert estimate["step_s"] >= 0.99 * estimate["executed_flops_causal"] / machine["rates"]["f32"] / machine["alone"], estimate
        kinds = machine["kernels"]
        assert len(kinds) == 18 and all(rate > 1e5 and min(halves) >= 0 and len(halves) == 3 for rate, *halves in kinds.values()), kinds
        distant = machine["distant"]
        assert len(distant) == 16 and set(distant) < set(kinds) and all(1 <= times <= 10 for times in distant.values()), distant
        assert machine["writes"] == 2 and len(machine["by_size"]) == len(machine["by_size_alone"]) == 7, machine
        counts_convolutions(rankc, directory, path)
        refuses_broken_files(rankc, machine, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
