#!/usr/bin/python3
"""bench/published.py: rows of published runs become plans. Memory and operations are compared with what a hand calculation gives.

    published.py --rankc RANKC --script bench/published.py"""
import csv
import io
import os
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, parser_of  # noqa: E402

NAMES = ("source,model,params,layers,hidden,heads,kv_heads,ffn,vocab,seq,gpu,ngpus,tp,pp,dp,cp,ep,zero/fsdp,schedule,microbatch,global_batch,"
         "recompute,precision,notes")
LAYERS, HIDDEN, VOCAB, SEQ = 24, 2048, 50000, 128
# of products, biases and norms of a layer; embeddings of tokens, which are the head's too, and positions; the last norm
PARAMETERS = LAYERS * (12 * HIDDEN**2 + 13 * HIDDEN) + (VOCAB + SEQ + 2) * HIDDEN
GIB = 2.0**30


def row(**other):
    plain = {"source": "x", "model": "GPT", "params": "1.3B", "layers": LAYERS, "hidden": HIDDEN, "heads": 16, "kv_heads": 16, "ffn": 4 * HIDDEN,
             "vocab": VOCAB, "seq": SEQ, "gpu": "A100-80", "ngpus": 8, "tp": 1, "pp": 1, "dp": 8, "cp": 1, "ep": 1, "zero/fsdp": "none",
             "schedule": "none", "microbatch": 1, "global_batch": 8, "recompute": "none", "precision": "fp32", "notes": ""}
    return {**plain, **other}


class Published:
    def __init__(self, given):
        self.command = [sys.executable, "-B", given.script, "--rankc", given.rankc]

    def __call__(self, *rows, options=(), names=NAMES):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "rows.csv")
            with open(path, "w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, names.split(","), extrasaction="ignore")
                writer.writeheader()
                writer.writerows(rows)
            done = call(*self.command, "--rows", path, *options, status=None)
        return list(csv.DictReader(io.StringIO(done.stdout))), done.stderr, done.returncode


def near(name, value, wanted, bound):
    print(f"{name}: {value:.4g}, by hand {wanted:.4g}")
    assert abs(value / wanted - 1) <= bound, (name, value, wanted)


def memory(published):
    """f32 with AdamW: 4 bytes of a weight, 4 of its gradient, 8 of moments, and less than a tenth for the activations of so short a
    sequence. ZeRO 1 divides the moments among 8 ranks. 120 layers of such weights do not fit."""
    plain, divided = published(row(), row(**{"zero/fsdp": "ZeRO-1"}))[0]
    states, got = 16 * PARAMETERS / GIB, float(plain["mem_gb"])
    print(f"memory: {got} GiB, states by hand {states:.2f}")
    assert states < got < 1.1 * states, (got, states)
    near("ZeRO 1 saves", got - float(divided["mem_gb"]), 8 * PARAMETERS * 7 / 8 / GIB, 0.03)
    assert plain["fits"] == divided["fits"] == "1"
    [large] = published(row(layers=120, notes="n_micro=1"))[0]
    assert large["fits"] == "0" and float(large["mem_gb"]) > 80, large  # 16 bytes of 6 billion weights


def operations(published):
    """The same step by two publications' counts (Narayanan et al., arXiv 2104.04473, equation 3: with recomputation and without)."""
    hardware, model = published(*(row(notes=f"flops_def={name}_megatron") for name in ("hw", "model")))[0]
    scores, head = SEQ / (6 * HIDDEN), VOCAB / (LAYERS * HIDDEN)
    near("operations", float(hardware["tflops_per_gpu"]) / float(model["tflops_per_gpu"]),
         96 * (1 + scores + head / 16) / (72 * (1 + scores + head / 12)), 0.001)
    assert 0 < float(model["tflops_per_gpu"]) < 19.5, model  # f32 of an A100


def empty(published):
    rows, said, status = published(row(gpu="TPU"), row(**{"zero/fsdp": "ZeRO-3 + CPU offload"}), row(precision="NVFP4"), row(global_batch=9),
                                   row(model="GPT+LoRA"), row(layers=""), row(hidden=5120))
    assert [list(r.values()) for r in rows] == [[str(i), "", "", ""] for i in range(7)] and status == 0, rows
    for word in ("row 0: the device TPU is unknown", "host's memory", "four bits", "contradict", "adapters", "sizes of the model", "row 6: rankc plan: E0395",
                 "7 rows, 0 planned, 7 left empty"):
        assert word in said, (word, said)
    rows, said, status = published(row(), options=("--limit", "0"))
    assert rows[0]["fits"] == "" and "too slow" in said, said
    _, said, status = published(row(), names="layers,hidden")
    assert status and "there is no column heads" in said, said


def spellings(published):
    """The same row as publications spell it: the same plan."""
    plain = {"model": "Llama3-8B", "params": "8.03B", "heads": 16, "kv_heads": 8, "gpu": "H100-80", "zero/fsdp": "zero-3", "precision": "bf16", "layers": 4}
    others = ({"gpu": "NVIDIA H100 80GB SXM5", "zero/fsdp": "ZeRO stage 3", "precision": "amp_bf16"}, {"gpu": "h100", "zero/fsdp": "FSDP FULL_SHARD"},
              {"hidden": "2.048K", "zero/fsdp": "FSDP2", "microbatch": "", "notes": "n_micro=1"})
    rows, said, _ = published(row(**plain), *(row(**{**plain, **other}) for other in others))
    assert len({tuple(list(r.values())[1:]) for r in rows}) == 1 and rows[0]["fits"] == "1", (rows, said)


def frameworks(published):
    """Of the same plan: Megatron's stages have equally many layers, so that the one with a large vocabulary is waited for (the paper
    arXiv 2411.05288 names this); its products add to sums of gradients, which saves the most where micro-batches are small."""
    stages = {"pp": 8, "dp": 1, "schedule": "1F1B", "precision": "bf16", "seq": 2048, "global_batch": 32}
    small = {"precision": "bf16", "global_batch": 64, "ngpus": 1, "dp": 1, "seq": 512}
    narrow, wide = (row(source=source, **{**stages, "vocab": vocab}) for source, vocab in (("Megatron-Bridge", 1024), ("Megatron-Bridge", 256000)))
    free = [dict(r, source="x") for r in (narrow, wide)]
    rates = [float(r["tflops_per_gpu"]) for r in published(narrow, wide, *free, *(row(source=s, **small, microbatch=m) for m in (1, 32)
                                                                               for s in ("Megatron-Bridge", "x")))[0]]
    print("TFLOP/s:", rates)
    assert rates[1] / rates[0] < 0.8 * rates[3] / rates[2], rates
    assert rates[4] / rates[5] > 1.1 * rates[6] / rates[7], rates


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--script", required=True)
    published = Published(parser.parse_args())
    memory(published)
    operations(published)
    empty(published)
    spellings(published)
    frameworks(published)


if __name__ == "__main__":
    main()
