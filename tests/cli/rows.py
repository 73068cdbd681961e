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
import math
import os
import random
import subprocess
import sys
import tempfile

NAMES = ("source,model,params,layers,hidden,heads,kv_heads,ffn,vocab,seq,gpu,ngpus,nodes,tp,pp,dp,cp,ep,zero/fsdp,schedule,"
         "microbatch,global_batch,recompute,precision,tflops_per_gpu,mfu_or_hfu,mem_gb,tokens_per_s_per_gpu,notes")
PAGE = """# Published training runs, as `rankc plan --rows` predicts them

`rankc plan --rows` ([autodist.md](autodist.md#published-runs-of-other-systems)) predicts the throughput and memory of training
runs that others published. This page, written by `tests/cli/rows.py --rows FILE.csv --table docs/published-rows.md`, has
the relative errors by source. A row of the table FILE.csv, which is not in this repository, is one run. Rows with offload
to the host's memory are left empty.

The laws (frontend/cli/rows/rows_laws.c, rows_memory.c) have constants of systems and devices (rows_systems.def,
rows_devices.def) and a few that hold for all; none belongs to a row. They were fitted to the same rows, so the last table
says how well a few constants describe these runs, not how well new runs are predicted. The next table says how well rows
are predicted that the constants were not fitted to (`tests/cli/rows_fit.py --build BUILD --rows FILE.csv --leave-out`). If
a source is left out, a system that occurs only there is unknown, and is predicted as the typical one; a device that occurs
only there has the constants of the first of its generation. Constants of a system are expected near those of the typical
one, and of a device near that one's, so few rows do not move them far. A fit starts at the present values of the constants
that hold for all, which saw all rows, so these errors are somewhat low. The last line is of runs
that were used in no fit: tests/cli/rows_unseen.py reads five of the publications (llm-foundry, BigScience, Megatron-Bridge,
VocabularyParallelism, torchtitan) and leaves out what is in the table. (That llm-foundry's runs fit into the memory was known
when its bytes of the logits were set; they are those of its loss.)

| fitted to | predicted | rows | TFLOP/s: median | 90 % | dense models | 90 % | memory: median | 90 % |
|---|---|---|---|---|---|---|---|---|
| every other row | the others, and the reverse | 413 | 3.2% | 16.0% | 2.8% | 10.9% | 2.5% | 8.8% |
| all sources but one | that one, each in turn | 413 | 4.7% | 18.0% | 4.2% | 14.5% | 5.4% | 14.3% |
| the table | other runs of five publications | 315 | 3.9% | 13.6% | 3.6% | 10.0% | 3.3% | 7.6% |

Of these 315 runs, one is called out of memory (BigScience's 195B at 79 of 80 GB, predicted at 81); the two runs of BigScience
that ran out of memory are called so. Of 35 sources with several rows, the median of the medians is 4.2%,
and the largest 29.2% (torchtitan 2024 405B: three runs that show alone how much of FSDP's gathers torchtitan hides).

Six rows give no micro-batch because the publication took the fastest one; the fastest that fits is predicted for them:
three of Alpa (pipelines only) are 1.9, 2.9 and 1.8 % off, three of Megatron-LM 2.8, 4.4 and 3.5 %.

What orders the rows of a sweep:

- The longest pipeline stage has whole layers, and the last one has the head too: 78 layers in 12 stages take as long as
  84, but the last stage has room for the head. Where a publication counts the tables as a layer each, no stage is longer.
- Results of products are divided into tiles, and the last wave of tiles leaves multiprocessors idle. On the 108 of an A100,
  with four tensor-parallel ranks and two sequences, a hidden size of 13824 fills 99.8 % of them, 12288 only 96.2 %.
- A V100 reaches each device of its node through links of its own: a group of two has one of six.
- Alpa's collectives do not run beside computing. torchtitan's selective recomputation repeats every second product, or
  every second layer. Gradients of weights that LoRA freezes are not computed.
- The ways of dividing the head among the stages add 1, 2 or half as many micro-batches in flight (arXiv 2411.05288).
- A ring that gathers weights passes every rank: 512 ranks wait for 511 hops, DeepSpeed for each weight, FSDP for each layer.
- Notes that state the network of a node ("4x100G", "800 Gb/s") replace the machine's. Stages on one node use its links.
- Attention with ALiBi ran in kernels that reach half the rate of those without; that with windows and sinks (GPT OSS), a
  third of it.
- A host starts the many kernels of a layer with experts: those of B300 need twice the time of those of GB200.

What the laws leave out: the zero-bubble schedule of torchtitan issue #773 ran without compilation and is reported as a
fault; quantization to MXFP8 by torchtitan on B200; why ZeRO-3 in SC21 used a fifth of the network that DeepSpeed's
later runs did.

The fit also counts how far apart two runs of a source are predicted in the wrong order. All sweeps of five and more runs are
at 0.8 or above; the lowest have runs that contradict others. BigScience 02-28 has one with 26 heads per rank at 128
TFLOP/s, where runs with 16, 24 and 32 reach 144 to 154: it is predicted just below the run at 150, and if it were
predicted just above that one, the correlation would be 0.72. In 02-26, twice the micro-batch made one run 17 % slower, two
others 3 and 8 %. In 02-20, the slowest of seven runs between 88 and 98 TFLOP/s nearly filled its memory (75 of 80 GiB).
Megatron-Bridge 26.06.01 has a run of GPT OSS 120B at 661 TFLOP/s that 26.08 publishes at 1077 with the same settings. The
rows of torchtitan on A100 lie within 8 % of each other. Runs with the same settings differ by 3 % in BigScience 02-25 and
by 9 % in 02-21.

A run fits if states and activations, times the system's factor, and its reserve (columns `memory` and `reserve` of
rows_systems.def) are at most the memory of the device. Of the runs that ran out of memory, one of BigScience (206B: 82
layers of 14336 in 12 stages) needs 69 GiB of 80 by the law, so it is called to fit. The same day's table has a run that
needs as much by the law and ran: 203B, 94 layers of 13312, with the same division, at 67 GB; and one of 195B ran at 79
GB. It ran out of memory for a reason that the publication does not say. Of the runs that ran, one is called out of
memory: Llama 3 70B in NVFP4 without any division on a device with 288 GB (Megatron-Bridge 26.02.01), where 16-bit
weights and f32 gradients alone take 424 GB; the other releases divide it.

"""
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
        unknown, _ = lines_of(rankc, path, "\n".join([NAMES, SAMPLE[0].replace("ATorch seed001 FSDP table", "somebody")]))
        assert abs(float(unknown[0]["tflops_per_gpu"]) / 204.67 - 1) < 0.25 and abs(float(unknown[0]["mem_gb"]) / 38.67 - 1) < 0.4, unknown
        tuned(rankc, path)
        filled(rankc, path)
        spellings(rankc, path)
        malformed(rankc, path)
        layouts(rankc, path)
        words(rankc, path)
        networks(rankc, path)
        cells(rankc, path)
    return 0


def tuned(rankc, path):
    """Alpa's table: the micro-batch is the best of a sweep. So the fastest one that fits, which must come near."""
    row = "Alpa OSDI22 artifact inter_only,GPT-2.6B,2.6B,32,2560,32,32,10240,51200,1024,V100-16,8,1,1,8,1,1,1,none,1F1B,{},1024,full,fp16,,,,,{}"
    sizes, note = [1, 2, 4, 8, 16, 32, 64], "flops_def=alpa_hw;n_micro is the best of a sweep"
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join([NAMES, row.format("", note)] + [row.format(s, "flops_def=alpa_hw") for s in sizes] + [row.format("", "")]) + "\n")
    got, errors = predict(rankc, path)
    fit = [float(g["tflops_per_gpu"]) for g in got[1:-1] if g["fits"] == "1"]
    assert 1 < len(fit) < len(sizes) and float(got[0]["tflops_per_gpu"]) == max(fit), got
    assert abs(max(fit) / 56.57 - 1) < 0.1 and "micro-batch is missing" in errors and not got[-1]["fits"], (got, errors)


def filled(rankc, path):
    """Runs that nearly filled their devices and ran: they fit, and take most of the memory (llm-foundry's benchmark; DeepSpeed on
    Azure, 2022)."""
    runs = [
        "llm-foundry MPT,MPT-350m,0.356B,24,1024,16,16,4096,50368,2048,A100-40,128,16,1,1,128,1,1,FSDP FULL_SHARD,none,18,2304,none,bf16 PURE,142.0,45.61,,,flops_def=mpt",
        "llm-foundry MPT,MPT-760m,0.760B,24,1536,12,12,6144,50368,2048,A100-80,8,1,1,1,8,1,1,FSDP FULL_SHARD,none,24,384,none,amp_bf16,177.0,56.85,,,flops_def=mpt",
        "DeepSpeed Azure 2022,GPT-175B,175B,96,12288,96,96,49152,50257,1024,A100-80,512,64,1,1,512,1,1,ZeRO-3,none,16,8192,full,fp16,196.5,62.98,,,flops_def=hw_megatron",
    ]
    got, errors = lines_of(rankc, path, "\n".join([NAMES] + runs))
    assert not errors and all(g["fits"] == "1" and float(g["mem_gb"]) > 0.75 * size for g, size in zip(got, (40, 80, 80))), (got, errors)


HEAD = "model,heads,kv_heads,ffn,vocab,cp,ep,recompute,precision,notes,source,layers,hidden,seq,gpu,ngpus,tp,pp,dp,zero/fsdp,schedule,microbatch,global_batch"
FIRST = "Llama,32,8,14336,128256,1,1,full,bf16,,torchtitan"


def predict_rows(rankc, path, names, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, names, restval="1", extrasaction="ignore")
        out.writeheader()
        out.writerows(rows)
    return predict(rankc, path)


def lines_of(rankc, path, text, newline="\n"):
    with open(path, "wb") as file:
        file.write(text.replace("\n", newline).encode())
    return predict(rankc, path)


def spellings(rankc, path):
    """Spellings of publications: the same row in each, so the same prediction."""
    for plain, others in (
            ("32,4096,8192,H100-80,64,1,8,8,zero-3,Interleaved1F1B v=2,1,64", (
                "32,4096,8192,H100 80GB,64,1,8,8,ZeRO3,1F1B interleaved v=2,1,64", "32,4096,8192,NVIDIA H100-80GB SXM5,64,1,8,8,ZeRO stage 3,interleaved vpp=2,1,64")),
            ("32,4096,8192,h100,64,1,8,8,fsdp2,Interleaved 1F1B,1,64", (
                '32,4.096K,8192,"H100-80",64, 1,8,8,FSDP FULL_SHARD,"Interleaved, v=2",1,64',))):
        for other in others:
            for newline in ("\n", "\r\n"):
                got, errors = lines_of(rankc, path, f"{HEAD}\n{FIRST},{plain}\n\n{FIRST},{other}\n", newline)
                first, second = ({k: v for k, v in g.items() if k != "row"} for g in got)
                assert first == second and first["tflops_per_gpu"] and not errors, (other, got, errors)
    text = f"{HEAD}\n" + "".join(f"{FIRST},32,4096,4096,{gpu},8,1,1,8,zero-{stage},none,1,64\n" for gpu in ("A100-80GB SXM", "A100-40", "GB200", "B200")
                                for stage in (0, 1, 2, 3))
    got, _ = lines_of(rankc, path, "\ufeff" + text)
    memory = [float(g["mem_gb"]) for g in got]
    assert all(memory[i] > memory[i + 1] for i in range(0, 3)), memory  # each stage divides more
    assert [g["fits"] for g in got][0] == "0" and [g["fits"] for g in got][3] == "1", got  # 8B, 18 bytes each: not on 80 GiB
    assert len({g["tflops_per_gpu"] for g in got[3::4]}) == 4, got


def layouts(rankc, path):
    """The same rows with columns in another order, with others between them, without optional ones, in quotes and with spaces."""
    rows = list(csv.DictReader([NAMES] + SAMPLE[:2]))
    rows.append(dict(rows[1], microbatch="", notes="flops_def=hw_megatron;n_micro=48"))  # 48 of 2 sequences on each of 24 replicas
    plain, _ = predict_rows(rankc, path, list(rows[0]), rows)
    assert all(p["tflops_per_gpu"] for p in plain) and list(plain[1].values())[1:] == list(plain[2].values())[1:], plain
    for names in (list(rows[0])[::-1], ["x"] + list(rows[0]) + ["y, z"]):
        assert predict_rows(rankc, path, names, rows) == (plain, ""), names
    text = "\n".join(", ".join(f'"{cell}"' for cell in line) for line in [[f" {n.upper()} " for n in rows[0]]] + [list(r.values()) for r in rows])
    assert lines_of(rankc, path, "\ufeff" + text.replace(', "', ',"'), "\r\n") == (plain, ""), text
    got, errors = predict_rows(rankc, path, [n for n in rows[0] if n not in ("cp", "ep", "kv_heads", "source")], rows[1:2])
    assert errors.count("there is no column") == 4 and abs(float(got[0]["tflops_per_gpu"]) / float(plain[1]["tflops_per_gpu"]) - 1) < 0.2, (got, errors)
    assert lines_of(rankc, path, NAMES) == ([], ""), "a row of names alone"


def words(rankc, path):
    """Words for one thing that publications spell in different ways, and words for a number that is not there."""
    names = NAMES.split(",")
    first = dict(zip(names, next(csv.reader([SAMPLE[1]]))))
    for column, spellings_ in {"recompute": [("full", "Full", "yes", "activation checkpointing", "full AC", "uniform"), ("none", "no", "", "off", "false"),
                                             ("selective", "SAC", "Selective AC")],
                               "precision": [("bf16", "bfloat16", "BF16-mixed"), ("fp16", "float16"), ("fp32", "float32")],
                               "schedule": [("ZB-H1", "zb h1", "ZBH1"), ("Interleaved1F1B v=2", "1F1B interleaved, vpp=2", "Interleaved 1F1B VP=2"), ("gpipe", "GPipe", "AFAB")],
                               "zero/fsdp": [("zero-1", "ZeRO stage 1", "ZeRO=1", "zero_1")], "gpu": [("A100-80", "8x A100 80GB", "DGX A100-80GB")],
                               "seq": [("2048", "2k", "2K", "2,048")], "dp": [("24", "", "n/a", "-")], "notes": [("flops_def=hw_megatron", "flops_def=hw_megatron;no offload")], "kv_heads": [("96", "", "unknown")]}.items():
        for same in spellings_:
            got, errors = predict_rows(rankc, path, names, [dict(first, **{column: word}) for word in same])
            assert got[0]["tflops_per_gpu"] and len({tuple(list(g.values())[1:]) for g in got}) == 1 and not errors, (column, same, got, errors)


def networks(rankc, path):
    """What notes state of a node's network: the same speed in other words; a faster one is faster; one adapter's says nothing."""
    names = NAMES.split(",")
    first = dict(zip(names, next(csv.reader([SAMPLE[0]]))), ngpus="64", dp="64", global_batch="64", microbatch="1")
    speeds = [float(predict_rows(rankc, path, names, [dict(first, notes=f"flops_def=atorch_full;{note}")])[0][0]["tflops_per_gpu"]) for note in (
        "4x100G Omni-Path", "400 Gb/s", "", "8xHDR", "1600 Gbps RoCE", "1.6 Tb/s", "8x200Gb HDR", "25Gb/s net")]
    assert speeds[1] == speeds[2] and len(set(speeds[3:7])) == 1 and speeds[7] < speeds[0] < speeds[3], speeds


def cells(rankc, path):
    """A cell that is empty or absurd never gives more than the device's peak, less than nothing, or another exit code."""
    names, peaks = NAMES.split(","), {"A100-80": 312}
    draw = random.Random(1)
    absurd = ["", "0", "-1", "nan", "inf", "1e308", "1e15", "0.001", "999999999999", "1", "3", "7.5", "?", "x" * 300, "v=99999", "MoE 0e top0", "MoE 8e top2;4x100G",
              "MoE 1e9e top3 +4 shared", "n_micro=1e300", "9x", "99999999xHDR", "0x1p9 Gb/s", "zero-", "1F1B v=0"]
    rows = []
    for line in SAMPLE[:2]:
        row = dict(zip(names, next(csv.reader([line]))))
        rows += [dict(row, **{name: word}) for name in names for word in absurd]
        rows += [dict(row, **{name: draw.choice(absurd[:-1]) for name in draw.sample(names, 4)}) for _ in range(1000)]
    got, _ = predict_rows(rankc, path, names, rows)
    assert len(got) == len(rows), len(got)
    for row, g in zip(rows, got):
        filled = [g[k] for k in ("tflops_per_gpu", "mem_gb", "fits")]
        assert all(filled) or not any(filled), (row, g)
        if filled[0]:
            assert 0 < float(filled[0]) <= peaks.get(row["gpu"], 1e9) and 0 < float(filled[1]) < math.inf and filled[2] in "01", (row, g)


def malformed(rankc, path):
    """Rows of nonsense are left empty with a reason; a file that is no table is an error, with exit code 3."""
    bad = {"thirty,4096,8192,H100-80,64,1,1,64,none,none,1,64": "layers is no number", "-32,4096,8192,H100-80,64,1,1,64,none,none,1,64": "layers is no number",
           "nan,4096,8192,H100-80,64,1,1,64,none,none,1,64": "layers is no number", "1e400,4096,8192,H100-80,64,1,1,64,none,none,1,64": "layers is no number",
           "0,4096,8192,H100-80,64,1,1,64,none,none,1,64": "sizes of the model", "32,4096,8192,H100-80,64,1,1,64,none,none,0,64": "micro-batch",
           "32,4096,8192,TPUv5,64,1,1,64,none,none,1,64": "device is unknown", "32,4096,8192,,64,1,1,64,none,none,1,64": "device is unknown",
           "32,4096,8192,H100-80,8,8,8,1,none,none,1,64": "more devices", "32,4096,8192,H100-80,64,1,1,64,none,none,1,": "global batch", "32": "device is unknown"}
    got, errors = lines_of(rankc, path, f"{HEAD}\n" + "".join(f"{FIRST},{row}\n" for row in bad))
    assert len(got) == len(bad) and not any(g["tflops_per_gpu"] or g["mem_gb"] or g["fits"] for g in got), got
    assert [e.split(": ")[2] for e in errors.splitlines() if "warning" in e] and all(why in errors for why in bad.values()), errors
    for text, why in (("", "there is no column"), ("\n", "there is no column"), (HEAD.replace("hidden", "width"), "no column hidden"), (HEAD + '\n"Llama', "does not end"),
                      (HEAD + "\n\0", "zero byte")):
        with open(path, "w", encoding="ascii", newline="") as file:
            file.write(text)
        done = subprocess.run([rankc, "plan", "--rows", path], capture_output=True, text=True, check=False)
        assert done.returncode == 3 and "E0397" in done.stderr and why in done.stderr, (text, done.stderr)
    done = subprocess.run([rankc, "plan", "--rows", path + ".none"], capture_output=True, text=True, check=False)
    assert done.returncode == 6, done


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    place = [0.0] * len(values)
    for i, at in enumerate(order):
        place[at] = i
    equal = collections.defaultdict(list)
    for value, at in zip(values, place):
        equal[value].append(at)
    return [sum(equal[value]) / len(equal[value]) for value in values]


def spearman(left, right):
    a, b = ranks(left), ranks(right)
    mean = (len(a) - 1) / 2
    top = sum((x - mean) * (y - mean) for x, y in zip(a, b))
    return top / math.sqrt(sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b))


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
        if (row["tflops_per_gpu"] or row["mem_gb"]) and prediction["fits"] == "0":
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
    text = "\n".join(lines) + f"\n\nRows that ran out of memory: {called} of {out_of_memory} are called so. Rows that ran and are called so: {', '.join(false) or 'none'}. Rows that are left empty: {sum(not g['tflops_per_gpu'] for g in got)} of {len(got)}.\n"
    if target:
        with open(target, "w", encoding="ascii") as file:
            file.write(PAGE + text)
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
