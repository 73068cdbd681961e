#!/usr/bin/python3
"""Published runs that are not in a table of runs, from the publications themselves, as a table for published.py.

    published_unseen.py --rows perf_rows.csv --llm-foundry DIR --bigscience DIR --megatron-bridge DIR --vocabulary DIR --torchtitan DIR > unseen.csv

The directories are git clones of github.com/mosaicml/llm-foundry, bigscience-workshop/bigscience,
NVIDIA-NeMo/Megatron-Bridge, sail-sg/VocabularyParallelism and pytorch/torchtitan. What a publication does not repeat for each run (sizes of the
model, words of its settings) is that of a row of the table; runs of models that the table does not have are left out, and
so are runs for which the table has one with the same settings (and speed, where a publication repeats runs)."""
import argparse
import csv
import os
import re
import subprocess
import sys

BRIDGE_GPUS = ("GB300", "GB200", "B300", "B200", "H100-80")
SETTINGS = "layers hidden heads vocab seq gpu ngpus tp pp dp cp ep microbatch global_batch schedule".split()


def text_of(clone, path):
    return subprocess.run(["git", "-C", clone, "show", "HEAD:" + path], capture_output=True, text=True, check=True).stdout


def cells_of(text):
    """Rows of the tables of a Markdown text: the lines of text since the table before, and the cells by the table's names."""
    names, between = None, []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            names = None
            between.append(line)
        elif names is None:
            names = cells
        elif not re.match(r"[-:]*$", cells[0]):  # no ruler
            yield between, dict(zip(names, cells))
            between = []


def like(row, notes=None, **columns):
    """A row with other settings: what was derived from its own speed goes, and the number of micro-batches follows."""
    row = dict(row, mem_gb="", mfu_or_hfu="")
    row.update({name.replace("zero", "zero/fsdp"): str(value) for name, value in columns.items()})
    row["notes"] = re.sub(r"iter_s=[^;]*;|;util=[^;]*", "", row["notes"] if notes is None else notes)
    micro_batches = int(row["global_batch"]) / int(row["dp"]) / int(row["microbatch"])
    row["notes"] = re.sub(r"n_micro=\d+", f"n_micro={micro_batches:.0f}", row["notes"])
    return row


def first_of(rows, column):
    found = {}
    for row in rows:
        found.setdefault(row[column], row)
    return found


def llm_foundry(clone, shown):
    models = {name.lower(): row for name, row in first_of(shown, "model").items()}
    for _, run in cells_of(text_of(clone, "scripts/train/benchmarking/README.md")):
        if "mpt-" + run["Model"] not in models:
            continue
        n = int(run["# GPUs"])
        yield like(models["mpt-" + run["Model"]], params=f"{int(run['NumParams']) / 1e9:.3f}B", seq=run["SeqLen (T)"],
                   gpu=run["GPU"].replace("gb", "").replace("_", "-").upper(), ngpus=n, nodes=-(-n // 8), dp=n, microbatch=run["MicroBatchSize"],
                   global_batch=run["GlobalBatchSize"], recompute="full" if run["Activation Checkpointing"] == "True" else "none",
                   precision=run["Precision"] + (" PURE" if run["MP Mode"] == "PURE" else ""), zero="FSDP " + run["Sharding Strategy"], tflops_per_gpu=run["Model TFLOP"],
                   tokens_per_s_per_gpu=run["Throughput (T/s/GPU)"])


def bigscience(clone, shown):
    """The chronicle's tables of the days in the table, and of 02-27. Its other tables have no sizes of the model."""
    days = first_of(shown, "source")
    hidden = layers = None
    for between, run in cells_of(text_of(clone, "train/tr11-176B-ml/chronicles-prequel.md")):
        for line in between:
            for name, value in re.findall(r"\bN?(HIDDEN|LAYERS)=(\d+)\b", line):
                hidden, layers = (value, layers) if name == "HIDDEN" else (hidden, value)
        day = re.search(r"02-2[1-8]", run.get("Notes", ""))
        memory, full = re.match(r"(\d+)GB", run.get("Mem", "")), run.get("Mem") == "OOM"
        if not day or not run.get("Nodes") or {"ZS", "Layers", "NHIDDEN"} & set(run) or not (full or re.fullmatch(r"[\d.]+", run["TFLOPs"])):
            continue
        source = "BigScience chronicle " + day[0]
        heads, parts = run.get("NHEADS") or 64, [int(run[name]) for name in ("TP", "PP", "DP")]
        row = like(days.get(source) or days["BigScience chronicle 02-26"], source=source, model="GPT-" + run["Size"], params=run["Size"], layers=layers, hidden=hidden,
                   ffn=4 * int(hidden), heads=heads, kv_heads=heads, tp=parts[0], pp=parts[1], dp=parts[2], ngpus=parts[0] * parts[1] * parts[2], nodes=run["Nodes"],
                   microbatch=run["MBS"], global_batch=run["GBS"], schedule="1F1B" if parts[1] > 1 else "none", tflops_per_gpu="" if full else run["TFLOPs"])
        row["mem_gb"] = memory[1] if memory else ""
        row["notes"] += ";result=OOM" if full else ""
        yield row


def megatron_bridge(clone, shown):
    """A cell "a (b)" has the values of two runs."""
    models = first_of(shown, "model")
    for page in ("docs/performance-summary.md", "docs/performance-summary-archive.md"):
        at = {}
        for between, run in cells_of(text_of(clone, page)):
            for line in between:
                for kind, value in re.findall(r"^#+ (?:(Model|System): (?:DGX-)?)?(\S.*)", line):
                    at[kind or ("release" if "NeMo Container" in value else "part")] = value.split(" NeMo")[0]
            run = {name: re.sub(r"\[\^.*", "", cell) for name, cell in run.items()}
            named = re.fullmatch(r"(\S.*?) ?(?:\((.*)\))?", run.get("Model", at.get("Model", "")))
            model = named[1] + "".join(" " + kind for kind in ("SFT", "LoRA") if at["part"].startswith(kind))
            gpu = run.get("System", at.get("System", "")).replace("DGX-", "").replace("H100", "H100-80")
            if model not in models or gpu not in BRIDGE_GPUS:
                continue
            for second in range(1 + any("(" in cell for name, cell in run.items() if name != "Model")):
                yield bridge_run(models[model], at["release"], named[2], gpu, run, second)


def bridge_run(row, release, note, gpu, run, second):
    def cell(name, absent):
        value = re.sub(r"(\S+) \((.*)\)", r"\2" if second else r"\1", run.get(name, absent))
        return absent if value == "n/a" else value

    n, tp, pp, cp, chunks, sharded = int(run["#-GPUs"]), int(cell("TP", "1")), int(cell("PP", "1")), int(cell("CP", "1")), cell("VP", "1"), cell("FSDP", "0") != "0"
    precision = cell("Precision", "FP8-CS")
    if second and "(" not in run.get("Precision", "") or second and precision == "FP8-MX":
        precision = "FP8-MX/subchannel"
    schedule = "none" if pp == 1 else "1F1B" if chunks == "1" else f"Interleaved1F1B v={chunks}"
    notes = re.sub(r";FSDP group=\d+|;tokendrop|;dropless|;w/o? MTP", "", re.sub(r"VP=[^;]*", f"VP={chunks}", row["notes"]))
    notes += (";" + note if note else "") + (f";FSDP group={cell('FSDP', '0')}" if sharded else "")
    return like(row, notes, source="Megatron-Bridge " + release, gpu=gpu, ngpus=n, nodes=-(-n // 8), seq=run["Sequence Length"], tp=tp, pp=pp, cp=cp, dp=n // tp // pp // cp,
                ep=cell("EP", "1"), schedule=schedule, microbatch=run["MBS"], global_batch=run["GBS"], precision=precision,
                zero="FSDP" if sharded else "DDP + distributed optimizer (ZeRO-1)", tflops_per_gpu=cell("Model TFLOP / sec / GPU", ""),
                tokens_per_s_per_gpu=cell("Tokens / sec / GPU", ""))


def vocabulary(clone, shown):
    first = shown[0]
    for line in text_of(clone, "artifact/example-results/full-exp.txt").splitlines():
        run = re.fullmatch(r" *(\d+)k +(\d+)k +(\S+) +([\d.]+)% +([\d.]+)", line)
        if run:
            row = like(first, seq=1024 * int(run[1]), vocab=1000 * int(run[2]), model=f"GPT-4B V={run[2]}k", schedule="1F1B " + run[3],
                       tflops_per_gpu=float(run[4]) * 3.12)
            yield dict(row, mem_gb=run[5])


def torchtitan(clone, shown):
    """The tables of benchmarks/ whose rows differ in precision, compilation, or how long sequences are divided. flops_def=tt:
    6 for each weight but the embedding, 12 for each layer's hidden elements and the sequence's length, for each token."""
    def run_of(row, tokens, **columns):
        row = like(row, tokens_per_s_per_gpu=tokens.replace(",", ""), **columns)
        layers, hidden, vocab, length = (int(row[name]) for name in ("layers", "hidden", "vocab", "seq"))
        flops = 6 * (float(row["params"][:-1]) * 1e9 - vocab * hidden) + 12 * layers * hidden * length
        return dict(row, tflops_per_gpu=f"{flops * float(row['tokens_per_s_per_gpu']) / 1e12:.2f}")

    tables, title, size = {note[1]: row for row in shown if (note := re.search(r";T(\d) ", row["notes"]))}, None, None
    for between, run in cells_of(text_of(clone, "benchmarks/llama3_h100_202412_torchtitan.md")):
        title = re.search(r"\*\*Table (\d)\*\*", " ".join(between)) if between else title
        row = tables.get(title[1]) if title else None
        if row and title[1] in "13":
            eight, compiled = ("Float8" in run["Techniques"], "compile" in run["Techniques"])
            found = run_of(row, run["TPS/GPU"], precision=row["precision"] if eight else "bf16")
            found["notes"] = found["notes"].replace("compile+float8", "compile+float8" if eight else "compile" if compiled else "eager")
            yield dict(found, mem_gb=run["Memory(GiB)"])
        elif row and title[1] in "26":
            dp, cp = re.findall(r"\d+", run["Parallelism"])
            sequences = int(row["global_batch"]) // int(row["dp"])
            yield dict(run_of(row, run["TPS/GPU"], seq=run["Sequence Length"], dp=dp, cp=cp, global_batch=sequences * int(dp)), mem_gb=run["Memory(GiB)"])
    for between, run in cells_of(text_of(clone, "benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md")):
        size = re.search(r"Llama3 (\d+b) on", " ".join(between)) if between else size
        for column, word in (("Vanilla TP tokens/sec", "vanilla"), ("Async TP tokens/sec", "async")):
            rows = [row for row in shown if size and "2025-06" in row["source"] and size[1].upper() in row["model"] and word in row["notes"].lower()]
            if rows and column in run:
                yield run_of(rows[0], run[column], precision=run["Quantization"].replace("None (bfloat16)", "bf16").replace("float8", "fp8"))
    for _, run in cells_of(text_of(clone, "benchmarks/llama3-8b_h200_202506_trainy-whitefiber.md")):
        if "NUM_NODES" in run:
            n = 8 * int(run["NUM_NODES"])
            found = run_of(tables["3"], run["TPS/GPU"], source="torchtitan 2025-06 H200", gpu="H200", ngpus=n, nodes=n // 8, dp=n, global_batch=2 * n)
            yield dict(found, mem_gb=run["Memory(GiB)"])


SOURCES = {"llm_foundry": ("llm-foundry", llm_foundry), "bigscience": ("BigScience", bigscience), "megatron_bridge": ("Megatron-Bridge", megatron_bridge),
           "vocabulary": ("Vocab", vocabulary), "torchtitan": ("torchtitan", torchtitan)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True)
    for name in SOURCES:
        parser.add_argument("--" + name.replace("_", "-"), metavar="DIR")
    args = parser.parse_args()
    with open(args.rows, encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))

    def settings(row):
        columns = SETTINGS + (["precision", "recompute", "zero/fsdp", "source"] if "BigScience" not in row["source"] else ["source"])
        speed = f"{float(row['tflops_per_gpu'] or 0):.0f}" if "Bridge" in row["source"] else ""
        return tuple(row[name] for name in columns), speed

    out = csv.DictWriter(sys.stdout, list(table[0]), lineterminator="\n")
    out.writeheader()
    for name, (word, runs) in SOURCES.items():
        shown = [row for row in table if row["source"].startswith(word)]
        if getattr(args, name):
            seen = {settings(row) for row in shown}
            out.writerows(row for row in runs(os.path.abspath(getattr(args, name)), shown) if settings(row) not in seen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
