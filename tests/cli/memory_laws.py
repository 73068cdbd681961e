#!/usr/bin/python3
"""Published laws of memory, in the memory that `rankc plan` plans.

    memory_laws.py --rankc RANKC

Activations of a layer: Korthikanti et al., arXiv 2205.05198, section 4, in bytes of 16-bit training, for s tokens of b
sequences, hidden size h, a heads and t tensor-parallel ranks. States: Rajbhandari et al., arXiv 1910.02054, section 5. The
first stage of p holds p micro-batches: Narayanan et al., arXiv 2104.04473, section 2.2."""
import json
import os
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import json_of, rankc_of  # noqa: E402

RANKC = ""


def near(name, value, wanted, bound):
    print(f"{name}: {value:.4g}, by the law {wanted:.4g}")
    assert abs(value / wanted - 1) <= bound, (name, value, wanted)


CONFIG = {"model_type": "gpt2", "n_layer": 8, "n_embd": 256, "n_head": 8, "vocab_size": 1024, "n_positions": 256}
LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
         "max_position_embeddings": 8192, "vocab_size": 128256}
ELEMENTS = 4 * 256 * 256  # s b h


def plan_of(directory, config, *words):
    path = os.path.join(directory, "config.json")
    with open(path, "w", encoding="ascii") as file:
        json.dump(config, file)
    command = [RANKC, "plan", "--model-config", path, *words, "--json", "-q"]
    return json_of(*command)


def planned(directory, layers, *words):
    plan = plan_of(directory, {**CONFIG, "n_layer": layers}, *words, "--dim", "batch=4")
    weights = sum(4 * product(p["shape"]) for p in plan["parameters"])
    return [rank["memory"] for rank in plan["ranks"]], weights


def product(shape):
    elements = 1
    for extent in shape:
        elements *= extent
    return elements


def plan_states(directory):
    """f32 and AdamW: 4 bytes of a weight, 4 of its gradient, 8 of moments, each divided from its stage of ZeRO on; 1 %
    is for alignment."""
    for stage in range(4):
        memory, weights = planned(directory, 8, "--pas", "dp", "--runtime-ngpus", "4", "--use-zero", str(stage))
        near(f"ZeRO {stage}, weights", memory[0]["weights"], weights / (4 if stage > 2 else 1), 0.01)
        near(f"ZeRO {stage}, moments", memory[0]["optimizer"], 2 * weights / (4 if stage else 1), 0.01)
        offloaded, _ = planned(directory, 8, "--pas", "dp", "--runtime-ngpus", "4", "--use-zero", str(stage), "--target", "cuda", "--offload",
                               "optimizer")
        near(f"ZeRO {stage}, moments on the host", offloaded[0]["host"], 2 * weights / (4 if stage else 1), 0.01)
        assert offloaded[0]["optimizer"] < 0.01 * weights, offloaded[0]
        if stage > 2:
            offloaded, _ = planned(directory, 8, "--pas", "dp", "--runtime-ngpus", "4", "--target", "cuda", "--offload", "weights")
            near("ZeRO 3, parameters and moments on the host", offloaded[0]["host"], 3 * weights / 4, 0.01)
            assert offloaded[0]["optimizer"] + offloaded[0]["weights"] < 0.01 * weights, offloaded[0]
        if stage > 1:
            near(f"ZeRO {stage}, gradients", memory[0]["gradients"], weights / 4, 0.01)


def plan_stages(directory):
    """Stage r of p holds the activations of p - r micro-batches, and the last one what it receives of a second one, while
    it sends the first stage gradients of tied weights."""
    memory, _ = planned(directory, 8, "--pas", "pp:pipeline=4", "--accumulate", "8")
    each = memory[2]["activations"] / 2
    for r in range(2):
        near(f"stage {r}", memory[r]["activations"], (4 - r) * each, 0.05)
    near("stage 3", memory[3]["activations"], 1.1 * each, 0.1)


def most_in_flight(line, chunk):
    """Of the micro-batches of a line of the timeline, such as "0a 1a 0b 0b'", those that are between the forward and the
    backward segment of the chunk."""
    cells = [cell for cell in line.split() if cell.rstrip("'")[-1] == chunk]
    counts = [sum(1 - 2 * cell.endswith("'") for cell in cells[:n]) for n in range(1, len(cells) + 1)]
    return max(counts)


def plan_interleaved(directory):
    """What forward segments keep is held for as many micro-batches as are in flight, though values of more are received:
    of the last stage for one (figure 4 of Narayanan et al.)."""
    for layers, p, v in ((16, 4, 2), (32, 4, 4), (32, 8, 2)):
        words = ("--pas", f"hybrid:pipeline={p}", "--runtime-ngpus", "64", "--use-zero", "1", "--amp", "bf16", "--global-batch", "1024", "--dim",
                 "batch=1", "--machine", "h100", "--recompute", "full", "--schedule", f"interleaved:v={v}")
        schedule = plan_of(directory, {**LLAMA, "num_hidden_layers": layers}, *words)["schedule"]
        kept = schedule.get("slots_to_backward", schedule["slots"])
        for rank, line in enumerate(schedule["timeline"]):
            wanted = [most_in_flight(line, "abcdefgh"[chunk]) for chunk in range(v)]
            print(f"{v} stages of rank {rank} of {p}: {kept[rank]} micro-batches kept, {schedule['slots'][rank]} received")
            assert all(w <= k <= r for w, k, r in zip(wanted, kept[rank], schedule["slots"][rank])), (kept[rank], wanted)
        assert kept[p - 1][v - 1] == 1, kept


def plan_activations(directory):
    """Bytes of f32, twice those of 16 bits. There is no dropout, so its masks (2 of the 10 bytes that tensor parallelism
    leaves whole, and the scores' mask) are missing; scores are not kept. Gradients of a layer's 12 h h weights are
    exchanged from the same memory."""
    def layer_of(*words, ways=1):
        ranks = [planned(directory, n, *words)[0][0] for n in (16, 8)]
        sums = [rank["activations"] + rank["communication"] for rank in ranks]
        return (sums[0] - sums[1]) / 8 / ELEMENTS - 4 * 12 * 256**2 / ways / ELEMENTS

    whole, tensor = layer_of("--pas", "dp"), layer_of("--pas", "tp:tensor=2", ways=2)
    sequence = layer_of("--pas", "tp:tensor=2", "--sequence-parallel", ways=2)
    near("left whole by tensor parallelism", 2 * tensor - whole, 2 * (10 - 2), 0.03)
    near("sequence parallelism", sequence, whole / 2, 0.01)
    assert 2 * (whole - tensor) <= 2 * 24, (whole, tensor)


def main():
    global RANKC
    RANKC = rankc_of(__doc__)
    with tempfile.TemporaryDirectory() as directory:
        plan_states(directory)
        plan_stages(directory)
        plan_interleaved(directory)
        plan_activations(directory)


if __name__ == "__main__":
    main()
