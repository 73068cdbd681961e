#!/usr/bin/python3
"""How near `rankc plan --rows` comes to published training runs.

    rows.py --rankc RANKC --rows perf_rows.csv [--table FILE.md]     all rows, by source; rank correlation of sweeps
    rows.py --rankc RANKC                                            a sample of rows (suite), with bounds

The constants of systems and devices (frontend/cli/rows_*.def) were fitted to the table, so this says how well a few
constants describe it, and not how well rows of other systems are predicted."""
import argparse
import collections
import csv
import io
import os
import subprocess
import sys
import tempfile

NAMES = ("source,model,params,layers,hidden,heads,kv_heads,ffn,vocab,seq,gpu,ngpus,nodes,tp,pp,dp,cp,ep,zero/fsdp,schedule,"
         "microbatch,global_batch,recompute,precision,tflops_per_gpu,mfu_or_hfu,mem_gb,tokens_per_s_per_gpu,notes")
# ATorch's FSDP table; Megatron-LM, SC21 table 1 (Narayanan et al., arXiv 2104.04473); rows that cannot be simulated.
SAMPLE = [
    "ATorch seed001 FSDP table,Llama2-7B,6.74B,32,4096,32,32,11008,32000,4096,A100-80,8,1,1,1,8,1,1,FSDP full shard,none,4,32,"
    "full per decoder layer,bf16 amp,204.67,65.6,38.67,3345.1,flops_def=atorch_full;n_micro=1",
    "Megatron-LM 2021 (SC21 table 1),GPT-145.6B,145.6B,80,12288,96,96,49152,51200,2048,A100-80,1536,192,8,8,24,1,1,none,"
    "Interleaved1F1B,2,2304,full,fp16,148,47,,,flops_def=hw_megatron",
    "x,m,1B,24,2048,16,16,8192,50000,2048,A100-80,8,1,1,1,8,1,1,ZeRO-3 + CPU offload,none,1,8,none,bf16,,,,,",
    "x,m,1B,24,2048,16,16,8192,50000,2048,TPU,8,1,1,1,8,1,1,none,none,1,8,none,bf16,,,,,",
    '"x, ""y""",m,1B,24,2048,16,16,8192,50000,2048,A100-80,8,1,1,1,8,1,1,none,none,1,8,none,bf16,,,,,',
]


def predict(rankc, path):
    done = subprocess.run([rankc, "plan", "--rows", path, "-q"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(csv.DictReader(io.StringIO(done.stdout))), done.stderr


def quantile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))]


def sample(rankc):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "rows.csv")
        with open(path, "w", encoding="ascii") as file:
            file.write("\n".join([NAMES] + SAMPLE) + "\n")
        got, errors = predict(rankc, path)
        assert [r["row"] for r in got] == ["0", "1", "2", "3", "4"], got
        assert abs(float(got[0]["tflops_per_gpu"]) / 204.67 - 1) < 0.1 and abs(float(got[0]["mem_gb"]) / 38.67 - 1) < 0.02, got[0]
        assert abs(float(got[1]["tflops_per_gpu"]) / 148 - 1) < 0.25, got[1]
        assert not got[2]["tflops_per_gpu"] and not got[3]["fits"] and got[4]["tflops_per_gpu"], got
        assert "row 2" in errors and "offload" in errors and "device is unknown" in errors, errors
        with open(path, "w", encoding="ascii") as file:
            file.write("a,b\n1,2\n")
        broken = subprocess.run([rankc, "plan", "--rows", path], capture_output=True, text=True, check=False)
        assert broken.returncode == 3 and "E0397" in broken.stderr, broken.stderr
    return 0


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    place = [0.0] * len(values)
    for i, at in enumerate(order):
        place[at] = i
    return place


def spearman(left, right):
    a, b = ranks(left), ranks(right)
    mean = (len(a) - 1) / 2
    top = sum((x - mean) * (y - mean) for x, y in zip(a, b))
    return top / sum((x - mean) ** 2 for x in a)


def table(rankc, path, target):
    with open(path, encoding="utf-8", newline="") as file:
        published = list(csv.DictReader(file))
    got, _ = predict(rankc, path)
    speed, memory, pairs = collections.defaultdict(list), collections.defaultdict(list), collections.defaultdict(list)
    out_of_memory, called, false, dense = 0, 0, [], []
    for row, prediction in zip(published, got):
        if not prediction["tflops_per_gpu"]:
            continue
        source = row["source"].split(" (")[0]
        if row["tflops_per_gpu"]:
            measured, value = float(row["tflops_per_gpu"]), float(prediction["tflops_per_gpu"])
            speed[source].append(abs(value / measured - 1))
            if "MoE" not in row["notes"]:
                dense.append(speed[source][-1])
            pairs[source].append((value, measured))
        if row["mem_gb"]:
            memory[source].append(abs(float(prediction["mem_gb"]) / float(row["mem_gb"]) - 1))
            if prediction["fits"] == "0":
                false.append(prediction["row"])
        if "OOM" in row["notes"]:
            out_of_memory += 1
            called += prediction["fits"] == "0"
    lines = ["| source | rows | TFLOP/s: median | 90 % | rank correlation | memory: rows | median | 90 % |", "|---|---|---|---|---|---|---|---|"]

    def line(name, errors, bytes_, correlation):
        sizes = [str(len(bytes_)), f"{quantile(bytes_, .5):.1%}", f"{quantile(bytes_, .9):.1%}"] if bytes_ else ["", "", ""]
        lines.append("| " + " | ".join([name, str(len(errors)), f"{quantile(errors, .5):.1%}", f"{quantile(errors, .9):.1%}", correlation] + sizes) + " |")

    for source in sorted(speed):
        many = len(pairs[source]) >= 5
        line(source, speed[source], memory[source], f"{spearman(*zip(*pairs[source])):.2f}" if many else "")
    line("all", sum(speed.values(), []), sum(memory.values(), []), "")
    line("all dense models", dense, sum(memory.values(), []), "")
    text = "\n".join(lines) + f"\n\nRows that ran out of memory: {called} of {out_of_memory} are called so. Rows with a published memory that are called so wrongly: {', '.join(false) or 'none'}. Rows that are left empty: {sum(not g['tflops_per_gpu'] for g in got)} of {len(got)}.\n"
    if target:
        with open(target, "w", encoding="ascii") as file:
            file.write("# Published training runs, as `rankc plan --rows` predicts them\n\nWritten by `tests/cli/rows.py --rows FILE.csv "
                       "--table docs/published-rows.md`: relative errors by source. Rows\nwith offload are left empty. The constants of systems and devices\n(frontend/cli/rows_systems.def, "
                       "rows_devices.def) were fitted to the same rows.\n\n" + text)
    print(text)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--rows")
    parser.add_argument("--table")
    args = parser.parse_args()
    rankc = os.path.abspath(args.rankc)
    return table(rankc, args.rows, args.table) if args.rows else sample(rankc)


if __name__ == "__main__":
    sys.exit(main())
