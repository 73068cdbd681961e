#!/usr/bin/python3
"""rankc profile writes a machine file that --machine takes.

    profile.py --rankc RANKC"""
import json
import os
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, rankc_of  # noqa: E402


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
        assert len(kinds) == 16 and all(rate > 1e5 and min(halves) >= 0 and len(halves) == 3 for rate, *halves in kinds.values()), kinds
        distant = machine["distant"]
        assert len(distant) == 14 and set(distant) < set(kinds) and all(1 <= times <= 10 for times in distant.values()), distant
        assert machine["writes"] == 2 and len(machine["by_size"]) == len(machine["by_size_alone"]) == 7, machine
        refuses_broken_files(rankc, machine, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
