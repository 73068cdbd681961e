#!/usr/bin/python3
"""Estimates with links whose bandwidth depends on the kind of collective, and with computing that is slower beside one.

    collectives.py --rankc RANKC

Twice the time of each kind, one after the other, adds the time of all communication. A program under each plan makes
those kinds that the literature says of it: Megatron-LM's tensor parallelism sums or, with sequences divided, gathers and
reduce-scatters; FSDP gathers weights and reduce-scatters gradients; DeepSpeed-Ulysses exchanges all to all; pipeline
stages and ring attention send to one rank."""
import json
import os
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import json_of, rankc_of  # noqa: E402

SLOWER = 0.02  # of the time of a kind: so little that no other kinds take its place
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send")
RATES = {"f64": 1e13, "f32": 1e13, "half": 2e14, "fp8": 2e14}
MACHINE = {"format": 1, "memory": 1e12, "bandwidth": 2e12, "traffic": 0.8, "launch": 4e-6, "attention": 0.5, "overlap": 0,
           "rates": RATES, "peaks": RATES, "half_extents": [0, 0, 0]}
# plans, the kinds that they make, and the one that takes most of the time
PLANS = (("--pas tp --plan-ngpus 2 --inference", {"all_reduce", "all_gather"}, None),
         ("--pas tp --plan-ngpus 4 --sequence-parallel", {"all_reduce", "all_gather", "reduce_scatter"}, None),
         ("--pas fsdp --runtime-ngpus 4", {"all_reduce", "all_gather", "reduce_scatter"}, "all_gather"),
         ("--pas pp --plan-ngpus 2 --accumulate 4", {"send"}, "send"),
         ("--pas hybrid:context=4,attention=heads", {"all_reduce", "all_gather", "all_to_all"}, "all_reduce"),
         ("--pas hybrid:context=4,attention=ring --attention flash", {"all_reduce", "all_gather", "send"}, "all_reduce"))


GPT2 = ("--model-config", "gpt2", "--dim", "seq=128")
IMAGE = (os.path.join(os.path.dirname(os.path.abspath(__file__)), "image.rir"),)


def estimate(rankc, plan, own=(), bandwidth=1e10, model=GPT2, **more):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "machine.json")
        collectives = {kind: {"bandwidth": 1e10 / (1 + SLOWER), "latency": 0} for kind in own}
        with open(path, "w", encoding="ascii") as file:
            json.dump({**MACHINE, **more, "levels": [{"bandwidth": bandwidth, "latency": 0, "collectives": collectives}]}, file)
        words = ["plan", *model, "--machine", path, "--json", "-q", *plan.split()]
        return json_of(rankc, *words)["estimate"]


def main():
    rankc = rankc_of(__doc__)
    for plan, kinds, most in PLANS:
        alone = estimate(rankc, plan)["communicating_s"]
        added = {kind: (estimate(rankc, plan, {kind})["communicating_s"] / alone - 1) / SLOWER for kind in KINDS}
        print(plan, added)
        assert {kind for kind, part in added.items() if part > 1e-6} == kinds, added
        assert not most or max(added, key=added.get) == most, added
        # stages that wait for each other's messages wait for more of them the longer they are
        assert abs(sum(added.values()) - 1) < (0.1 if "send" in kinds and len(kinds) == 1 else 1e-4), added
    # a window of 3 x 3 reads one row of 128 elements of 8 channels from the other rank
    rows = [estimate(rankc, "--pas tp --plan-ngpus 2", own, model=IMAGE)["communicating_s"] for own in (("send",), ())]
    assert abs((rows[0] - rows[1]) / SLOWER * 1e10 - 8 * 128 * 4) < 1, rows
    # a step of one token takes as long as reading the weights, and starting kernels
    words = ["plan", "--model-config", "llama3-8b", "--inference", "--dim", "seq=1", "--machine", "h100", "--json", "-q"]
    token = json_of(rankc, *words)
    reading = sum(rank["memory"]["weights"] for rank in token["ranks"]) / 3.35e12
    assert reading < token["estimate"]["step_s"] < 1.5 * reading, (reading, token["estimate"])
    plan = "--pas fsdp --runtime-ngpus 4"
    beside, slower = (estimate(rankc, plan, bandwidth=1e12, overlap=1, slowdown=factor) for factor in (1, 2))
    both = beside["communicating_s"] + beside["hidden_s"]
    assert beside["hidden_s"] > 0.2 * both and 0.5 <= slower["hidden_s"] / beside["hidden_s"] < 0.6, (beside, slower)
    assert abs(slower["communicating_s"] + slower["hidden_s"] - both) < 1e-9, (beside, slower)


if __name__ == "__main__":
    main()
