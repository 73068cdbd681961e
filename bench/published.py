#!/usr/bin/env python3
"""Published training runs, and what rankc estimates for the same model, plan and machine.

    published.py --rankc RANKC --rows FILE.csv [--jobs N] [--limit SECONDS] [--page docs/measured/published-rows.md] [-v]

FILE.csv has a run in each row. Columns, in any order: source, model, params, layers, hidden, heads, kv_heads, ffn, vocab,
seq, gpu, ngpus, tp, pp, dp, cp, ep, zero/fsdp, schedule, microbatch, global_batch, recompute, precision, notes, and the
published tflops_per_gpu and mem_gb. A row becomes a configuration and the options of one `rankc plan --model-config`
(several where the publication took the fastest micro-batch and does not say which). stdout has CSV, a line for each row:
row,tflops_per_gpu,mem_gb,fits. Operations are counted as the publication counts them (flops_def in notes), the time of the
step, the memory (GiB) and whether that fits in the device's are the plan's. A row that cannot be expressed so, or whose plan is
refused or takes longer than the limit, is left empty; stderr has the reasons, and with -v the options and seconds of each row."""
import argparse
import collections
import concurrent.futures
import csv
import itertools
import json
import math
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile

NEEDED = ("layers", "hidden", "heads", "seq", "gpu", "ngpus", "microbatch", "global_batch")
MACHINES = ("v100-16", "v100-32", "a100-80", "a100-40", "h100", "h100-96", "h200", "b200", "b300", "gb200", "gb300", "mi300x")
# Systems whose tensor parallelism also divides what lies between the products
SEQUENCE_PARALLEL = ("Megatron-Bridge", "NeMo", "torchtitan", "Megatron-LM README H100")

# What a framework does otherwise than rankc's program, by words of the source; the first that is found. attention: its kernels
# (products: scores pass through memory); exchanges: how long those of the plan take that nothing hides. Of memory: bytes that are
# kept of each score and, beyond the plan's, of each logit; bytes of what is kept between layers (4 as rankc's --amp has it); how
# many units of FSDP, of a layer each, are whole at once, with one gradient.
Behaviour = collections.namedtuple("Behaviour", "words what attention exchanges scores logits between units")
BEHAVIOURS = (
    Behaviour("llm-foundry", "PyTorch's FSDP; FlashAttention 2 with a bias of positions", "alibi", 1, 0, 0, 4, 0),
    Behaviour("ATorch", "PyTorch's FSDP and FlashAttention 2; transformers' loss, in f32", "flash2", 1, 0, 18, 4, 2),
    Behaviour("torchtitan|ml-engineering", "FSDP2, exchanges beside products; FlashAttention 2", "flash2", 0.5, 0, 0, 4, 0),
    Behaviour("Megatron-Bridge|NeMo|README H100", "Transformer Engine: exchanges beside products; cuDNN's attention", "cudnn", 0.5, 0, 0, 4, 0),
    Behaviour("Alpa", "XLA in 16 bits, attention that is not fused", "products", 1, 2, 0, 2, 0),
    Behaviour("VocabularyParallelism", "Megatron in 2024: FlashAttention 2, exchanges beside nothing", "flash2", 1.2, 0, 0, 2, 0),
    Behaviour("Megatron|BigScience|DeepSpeed|Korthikanti|MT-NLG|SC21|Zero-bubble",
              "Megatron and DeepSpeed until 2023: attention that is not fused, with dropout; exchanges beside nothing", "products", 1.2, 5, 0, 2, 0),
    Behaviour("", "others", "cudnn", 1, 0, 0, 4, 0))
# Per generation of devices, by the beginning of a machine's name: how many times as long kernels take as the plan says.
GENERATIONS = {"a": {"matmul": 1.05, "alibi": 1.3, "flash2": 1.8}, "h": {"matmul": 1.15, "alibi": 2.2, "flash2": 1.5}, "b": {"cudnn": 0.6}, "g": {"cudnn": 0.6}}
PASSES = 10  # of scores in 16 bits through memory in forward and backward, and AGAIN times as many if they are recomputed
AGAIN = 1.4
FITTED = 320  # layers times stages of rows to which these were fitted, at most
LONG, OWN = 32768, 2  # from this sequence on, rankc's kernels compute gradients of attention, in so many times a library's time
BANDWIDTH = {"v100": 765e9, "a100-40": 1320e9, "a100-80": 1700e9}  # that is reached


class Refused(Exception):
    """Why a row is no plan of rankc's."""


def number(text):
    """The number at the beginning, such as 1,024, ~0.5B and 235B-A22B; 0: there is none."""
    found = re.match(r"[~\s]*([0-9][0-9,]*\.?[0-9]*)\s*([KMBT]?)", text, re.IGNORECASE)
    return float(found[1].replace(",", "")) * 1000 ** " KMBT".index(found[2].upper() or " ") if found else 0


def note(row, key):
    found = re.search(rf"(?:^|;)\s*{key}=([^;(]*)", row["notes"])
    return found[1].strip() if found else ""


class Run:
    """A row's model and how it was divided."""

    def __init__(self, row):
        self.row = row
        for name in "layers hidden heads kv_heads ffn vocab seq ngpus tp pp dp cp ep microbatch global_batch params".split():
            setattr(self, name, number(row[name]))
        if re.match(r"\s*\d+\s*K\s*$", row["seq"], re.IGNORECASE) and math.log2(self.seq / 1000) % 1 == 0:
            self.seq *= 1.024  # 8K are 8192
        if not (self.layers and self.hidden and self.heads and self.seq and self.ngpus):
            raise Refused("sizes of the model are missing")
        self.kv_heads, self.ffn = self.kv_heads or self.heads, self.ffn or 4 * self.hidden
        self.tp, self.pp, self.cp, self.ep = (max(ways, 1) for ways in (self.tp, self.pp, self.cp, self.ep))
        self.dp = self.dp or max(self.ngpus // (self.tp * self.pp * self.cp), 1)
        moe = re.search(r"MoE (\d+)e top(\d+)(?: \+(\d+) shared)?(?:.* hd(\d+))?", row["notes"])
        self.experts, self.chosen, self.shared, head = (int(part or 0) for part in moe.groups()) if moe else (0, 0, 0, 0)
        self.head = head or (128 if moe else self.hidden / self.heads)
        self.attention = 2 * self.hidden * self.head * (self.heads + self.kv_heads)  # weights of a layer
        self.gated = bool(moe) or "llama" in row["model"].lower() or self.layers_are_gated()
        self.mlp = (3 if self.gated else 2) * self.hidden * self.ffn

    def layers_are_gated(self):
        """True if three products of an MLP come nearest to the published number of parameters."""
        def distance(products, tables):
            layer = self.attention + products * self.hidden * self.ffn
            return abs(self.layers * layer + tables * self.vocab * self.hidden - self.params)
        return self.params > 0 and min(((distance(p, t), p == 3) for p in (2, 3) for t in (1, 2)))[1]

    def operations(self):
        """Of a sequence, by the publication's definition."""
        L, h, s, V, f = self.layers, self.hidden, self.seq, self.vocab, self.ffn
        linear, head = 2 * s * L * (self.attention + self.mlp * max(self.chosen + self.shared, 1)), 2 * s * h * V
        scores = 4 * s * s * self.head * self.heads * L
        layer = 8 * s * h * h + 4 * s * s * h
        definitions = {
            "atorch_full": 4 * L * (layer + 6 * s * h * f) + 3 * head,
            "tt": 3 * (linear + head + scores),
            "mb_causal": 3 * (linear + head + scores / 2),
            "hw_megatron": 96 * s * L * h * h * (1 + s / (6 * h) + V / (16 * L * h)),
            "model_megatron": 72 * s * L * h * h * (1 + s / (6 * h) + V / (12 * L * h)),
            "bs_old": 8 * s * L * (12 * h * h + 13 * h),
            "mpt": 6 * self.params * s + 3 * scores,
            "alpa_hw": 96 * s * L * h * h * (1 + s / (6 * h)) + 3 * head,
            "vp": 3 * (head + L * (layer + 4 * s * h * f)),
        }
        if "8*size*tok" in self.row["notes"]:
            return 8 * self.params * s
        return definitions.get(note(self.row, "flops_def"), 3 * (linear + head + scores))

    def configuration(self):
        text = self.row["model"] + self.row["notes"]
        for word, what in (("LoRA", "adapters"), ("MLA", "latent attention"), ("sliding window", "sliding windows"), ("shared", "shared experts")):
            if word in text:
                raise Refused(f"no configuration has {what}")
        if self.ep > 1 and not self.experts:
            raise Refused("notes do not say how many experts there are")
        sizes = {"num_hidden_layers": self.layers, "hidden_size": self.hidden, "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads,
                 "intermediate_size": self.ffn, "vocab_size": self.vocab, "max_position_embeddings": self.seq}
        if self.experts:
            sizes.update(head_dim=self.head, num_local_experts=self.experts, num_experts_per_tok=self.chosen)
        family = "mixtral" if self.experts else "llama" if self.gated else "gpt2"
        return {"model_type": family, **{key: int(size) for key, size in sizes.items()}}

    def micro_batches(self):
        """Sizes of a micro-batch: one, or those of a sweep."""
        per_replica = self.global_batch / self.dp
        if self.microbatch or number(note(self.row, "n_micro")):
            return [self.microbatch or per_replica / number(note(self.row, "n_micro"))]
        if not self.global_batch or not re.search("microbatch tuned|best of a sweep", self.row["notes"]):
            raise Refused("the size of a micro-batch is missing")
        return [2 ** i for i in range(16) if per_replica % 2 ** i == 0]

    def options(self, micro):
        units = self.ngpus / (self.tp * self.pp * self.cp * self.ep)
        if units < 1 or units % 1 or micro % 1 or not self.global_batch or self.global_batch % (micro * self.dp):
            raise Refused("ways, devices, micro-batches and the global batch contradict each other")
        settings = ["cut=mirrored"] * (self.cp > 1) + ["capacity=1"] * (self.experts > 0)
        axes = [f"{name}={ways:.0f}" for name, ways in (("tensor", self.tp), ("context", self.cp), ("expert", self.ep), ("pipeline", self.pp)) if ways > 1]
        words = ["--pas", "hybrid:" + ",".join(axes + settings) if axes else "dp"]
        words += ["--runtime-ngpus", f"{self.ngpus:.0f}", "--machine", self.machine(), "--accumulate", f"{self.global_batch / (micro * self.dp):.0f}",
                  "--dim", f"batch={micro * self.ep:.0f}", "--dim", f"seq={self.seq:.0f}"]
        words += self.zero() + self.precision() + self.recomputation() + self.schedule()
        text = self.row["source"] + self.row["notes"] + self.row["recompute"]
        if self.tp > 1 and "no SP" not in text and ("sequence parallel" in text or any(name in text for name in SEQUENCE_PARALLEL)):
            words += ["--sequence-parallel"]
            words += ["--async-tp"] if re.search("async ?TP(?!.*unless)", self.row["notes"]) else []
        return words

    def behaviour(self):
        return next(b for b in BEHAVIOURS if re.search(b.words, self.row["source"]))

    def seconds(self, estimate):
        """Of a step as the framework would carry out the plan. Stages wait in proportion to what they compute."""
        behaviour, machine = self.behaviour(), self.machine()
        slower = GENERATIONS.get(machine[0], {})
        attention = estimate["attention_s"] / (OWN if self.seq >= LONG else 1) * slower.get(behaviour.attention, 1)
        bandwidth = next((b for name, b in BANDWIDTH.items() if machine.startswith(name)), 0)
        if behaviour.attention == "products" and bandwidth:
            scores = 2 * self.seq ** 2 * self.heads / self.tp * self.layers / self.pp * self.global_batch / self.dp
            attention += PASSES * (AGAIN if self.recomputation() else 1) * scores / bandwidth
        computing = estimate["products_s"] * slower.get("matmul", 1) + attention + estimate["other_kernels_s"] + estimate["launching_s"]
        return computing * (1 + estimate["waiting_s"] / estimate["computing_s"]) + behaviour.exchanges * estimate["communicating_s"]

    def layers_kept(self, plan, rank):
        """Layers times micro-batches of which the rank keeps activations at once; those of a whole stage where all is recomputed."""
        schedule = plan.get("schedule") or {}
        slots = schedule.get("slots_to_backward") or schedule.get("slots")
        if self.pp == 1 or not slots:
            return self.layers
        of_chunks = slots[int(rank * self.pp // (self.tp * self.cp * self.ep * self.pp))]
        of_chunks = of_chunks if isinstance(of_chunks, list) else [of_chunks]
        return sum(of_chunks) * self.layers / self.pp / len(of_chunks)

    def memory(self, plan, micro, words):
        """GiB of the device that needs most, as the framework would carry out the plan."""
        behaviour, tokens, again = self.behaviour(), micro * self.seq / self.cp, self.recomputation() == ["--recompute", "full"]

        def of_rank(rank):
            kept = self.layers_kept(plan, rank["rank"])
            scores = tokens * self.seq * self.heads / self.tp * (1 if again else kept)
            elements = kept * tokens * self.hidden / (self.tp if "--sequence-parallel" in words else 1) if again else 0
            return rank["memory"]["peak"] + behaviour.scores * scores - (4 - behaviour.between) * elements

        layer, tables = self.attention + self.mlp, 2 * self.vocab * self.hidden
        whole = 4 * ((behaviour.units + 1) * layer + 2 * tables) if behaviour.units and "--use-zero" in words else 0
        return (max(map(of_rank, plan["ranks"])) + behaviour.logits * tokens * self.vocab / self.tp + whole) / 2**30

    def search(self):
        """For the fastest plan of the same step."""
        return ["--pas", "autodist", "--runtime-ngpus", f"{self.ngpus:.0f}", "--machine", self.machine(), "--global-batch", f"{self.global_batch:.0f}",
                "--dim", f"seq={self.seq:.0f}"] + self.precision()

    def machine(self):
        text = self.row["gpu"].lower()
        device = re.search(r"(gb|mi|[abhv])\d00x?", text)
        size = device and re.search(r"\d\d", text[device.end():].split("sxm")[0])
        known = [name for name in MACHINES if device and re.match(rf"{device[0]}(-|$)", name)]
        found = [name for name in known if size and name.endswith(size[0])] + known
        if found:
            return found[0]
        raise Refused(f"the device {self.row['gpu']} is unknown")

    def zero(self):
        text = self.row["zero/fsdp"].lower()
        if "offload" in text and not re.search("(no|without|w/o) offload", text):
            raise Refused("rankc does not move states to the host's memory")
        stage, group = re.search(r"zero\W*(?:stage\W*)?([0-3])", text), number(note(self.row, "FSDP group"))
        if stage:
            level = stage[1]
        elif "fsdp" in text:
            level = "2" if "grad_op" in text else "0" if "no_shard" in text else "3"
        elif text.strip() in ("", "none", "ddp"):
            level = "0"
        else:
            raise Refused(f"how states are divided is not stated: {text}")
        replicas = self.dp * self.cp
        return ["--use-zero", level] + (["--zero-ngroups", f"{replicas / group:.0f}"] if group and level != "0" else [])

    def precision(self):
        text = self.row["precision"].lower()
        if "fp4" in text:
            raise Refused("rankc has no floats of four bits")
        if "fp8" in text or "float8" in text:
            return ["--amp", "bf16", "--fp8", "hybrid"]
        return [] if text.startswith("fp32") else ["--amp", "fp16" if re.match("fp16(?!/bf16)", text) else "bf16"]

    def recomputation(self):
        """Megatron's selective recomputation repeats attention's scores, which flash attention never keeps."""
        text = re.sub(r"[\s_-]", "", self.row["recompute"].lower())
        if "selectivelayer" in text:
            return ["--recompute", f"first:{self.layers // 2:.0f}"]
        if "selectiveop" in text:
            return ["--recompute", "selective"]
        whole = "selective" not in text and re.search("full|checkpoint|uniform|block|true|yes|every", text)
        return ["--recompute", "full"] if whole else []

    def schedule(self):
        text = re.sub(r"[\s_-]", "", self.row["schedule"].lower())
        if self.pp == 1:
            return []
        if re.search("vocab|interlaced|redis", text):
            raise Refused("rankc does not divide the head among the stages")
        for word, name in (("zb1p|zbh1", "zb-h1"), ("zb2p|zbh2", "zb-h2"), ("zbv", "zb-v"), ("gpipe|afab", "gpipe")):
            if re.search(word, text):
                return ["--schedule", name]
        if "interleaved" in text and "zero" not in text or text == "1f1bi":
            stated = re.search(r"vp?p?=(\d+)", text) or re.search(r"(\d+)", note(self.row, "VP"))
            each = math.ceil(self.layers / self.pp)
            chunks = int(stated[1]) if stated else each if text == "1f1bi" else next((v for v in range(2, 9) if each % v == 0), each)
            return ["--schedule", f"interleaved:v={chunks}" if chunks > 1 else "1f1b"]
        if text not in ("", "none") and "1f1b" not in text and "accumulation" not in text:
            raise Refused(f"rankc has no schedule {self.row['schedule']}")
        return ["--schedule", "1f1b"]


Estimate = collections.namedtuple("Estimate", "tflops planned gib planned_gib fits seconds words")


def execute(command, limit):
    """Exit status, output, messages, and seconds of processor time; beyond the limit the program is killed."""
    def restrict():
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit)))

    with tempfile.TemporaryFile() as said, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, preexec_fn=restrict) as child:
        out = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return child.returncode, out.decode(), said.read().decode(), usage.ru_utime + usage.ru_stime


def ask(given, path, run, words, micro=0):
    """The estimate of the plan with these options; Refused with rankc's message."""
    status, out, said, seconds = execute([given.rankc, "plan", "--model-config", path, *words, "--json", "-q"], given.limit)
    if status == -signal.SIGKILL or seconds > given.limit:
        raise Refused(f"too slow: not planned in {given.limit:g} s")
    if status:
        message = json.loads(said.splitlines()[0]) if said.startswith("{") else {}
        raise Refused(f"rankc plan: {message.get('code', '')} {message.get('text', f'exit {status}')}")
    plan = json.loads(out)
    found, gib = plan["estimate"], run.memory(plan, micro, words)
    rate, own = (run.operations() * run.global_batch / seconds / run.ngpus / 1e12 for seconds in (run.seconds(found), found["step_s"]))
    return Estimate(rate, own, gib, found["memory"] / 2**30, gib <= found["device_memory"] / 2**30, seconds, words)


def fastest(given, path, run):
    """The fastest plan that fits among those of the sizes of a micro-batch; Refused where all are."""
    plans, refused = [], None
    for micro in run.micro_batches():
        try:
            plans.append(ask(given, path, run, run.options(micro), micro))
        except Refused as why:
            refused = why
    if not plans:
        raise refused
    return max(plans, key=lambda p: (p.fits, p.tflops))


def estimate(given, row):
    """The plan of a row, or why there is none; and the plan of the search, if it is asked for."""
    found = better = None
    with tempfile.TemporaryDirectory() as directory:
        try:
            run, path = Run(row), os.path.join(directory, "config.json")
            with open(path, "w", encoding="ascii") as file:
                json.dump(run.configuration(), file)
            found = fastest(given, path, run)
            if given.search and found.fits:
                better = ask(given, path, run, run.search())
        except Refused as why:
            found = found or why
    return found, better


def read(path):
    """Rows with the names of columns in lower case; a column that is missing is empty."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, skipinitialspace=True)
        names = {name.strip().lower() for name in rows.fieldnames or ()}
        missing = [name for name in NEEDED if name not in names]
        if missing:
            sys.exit(f"{path}: there is no column {missing[0]}")
        return [collections.defaultdict(str, {name.strip().lower(): (cell or "").strip() for name, cell in row.items() if name}) for row in rows]


def report(number, row, found, verbose):
    """A line of the result; reasons, options and seconds on stderr."""
    if isinstance(found, Refused):
        print(f"{number},,,")
        print(f"row {number}: {found}", file=sys.stderr)
        return
    print(f"{number},{found.tflops:.4g},{found.gib:.4g},{found.fits:d}", flush=True)
    if verbose:
        print(f"row {number}: {row['model']} on {row['ngpus']} {row['gpu']}, {found.seconds:.1f} s: {' '.join(found.words)}", file=sys.stderr)


def of_ten(pairs):
    """The median and the ninth of ten of the relative errors of estimates."""
    off = sorted(abs(a / b - 1) for a, b in pairs)
    return f"{statistics.median(off):.1%} | {off[min(len(off) - 1, int(0.9 * len(off)))]:.1%}" if off else " | "


def ratio(values):
    return f"{statistics.median(values):.2f}" if values else ""


def pairs_of(runs, column, value):
    """Estimated and published numbers of the rows that have both."""
    return [(value(found), number(row[column])) for row, found, _ in runs if not isinstance(found, Refused) and number(row[column])]


def line_of(name, runs, searches):
    """A line of the page's table."""
    rates, memory = pairs_of(runs, "tflops_per_gpu", lambda f: f.tflops), pairs_of(runs, "mem_gb", lambda f: f.gib)
    planned = sum(not isinstance(found, Refused) for _, found, _ in runs)
    faster = ratio([better.tflops / found.tflops for _, found, better in runs if better])
    return (f"| {name} | {len(runs)} | {planned} | {of_ten(rates)} | {ratio([a / b for a, b in rates])} | {len(memory) or ''} | {of_ten(memory)} | "
            f"{ratio([a / b for a, b in memory])} |" + (f" {faster} |" if searches else ""))


def table_of(every, dense):
    """By source; with a column for the search, if there was one."""
    sources, searches = collections.defaultdict(list), any(better for _, _, better in every)
    for run in every:
        sources[run[0]["source"].split(" (")[0]].append(run)
    names = "source rows planned TFLOP/s:_median 90_% ratio memory:_rows median 90_% ratio" + " search,_times_as_fast" * searches
    heads = [name.replace("_", " ") for name in names.split()]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    lines += [line_of(name, runs, searches) for name, runs in sorted(sources.items())]
    return "\n".join(lines + [line_of("all", every, searches), line_of("all dense models", dense, searches)])


def write_page(path, every):
    dense = [run for run in every if "MoE" not in run[0]["notes"]]
    planned = [run for run in every if not isinstance(run[1], Refused)]
    reasons = collections.Counter(re.sub(r"(?<=[ .'])[0-9]+", "..", str(run[1])) for run in every if isinstance(run[1], Refused))
    out = [run for run in planned if "OOM" in run[0]["notes"]]
    oom = (f"Of {len(out)} rows that ran out of memory and are planned, {sum(not run[1].fits for run in out)} are called so; of the others, "
           f"{sum(not run[1].fits for run in planned if run not in out)} are called so although they ran.")
    slow = {f"{row['model']} on {row['ngpus']} {row['gpu']}": found.seconds for row, found, _ in sorted(planned, key=lambda run: run[1].seconds)}
    slow = "; ".join(f"{name}, {seconds:.0f} s" for name, seconds in sorted(slow.items(), key=lambda item: -item[1])[:5])

    def rates(runs, value=lambda found: found.tflops):
        return of_ten(pairs_of(runs, "tflops_per_gpu", value))

    def is_small(run):
        return number(run[0]["layers"]) * max(number(run[0]["pp"]), 1) <= FITTED

    lines = [("dense, fitted to", list(filter(is_small, dense))), ("dense, the others", list(itertools.filterfalse(is_small, dense))),
             ("dense", dense), ("all", every)]
    as_planned = [rates(runs, lambda found: found.planned).replace(" | ", " and ") for runs in (dense, every)]
    with open(path, "w", encoding="ascii") as file:
        file.write(PAGE.format(
            table=table_of(every, dense), empty="\n".join(f"| {count} | {reason} |" for reason, count in reasons.most_common()), oom=oom, slow=slow,
            behaviours="\n".join(f"| {b.words.replace('|', ', ') or 'others'} | {b.what} | {b.attention} | {b.exchanges:g} | {b.scores} | {b.logits} | {b.between} | {b.units} |"
                                 for b in BEHAVIOURS),
            errors="\n".join(f"| {name} | {rates(runs)} |" for name, runs in lines), dense=as_planned[0], every=as_planned[1], fitted=FITTED,
            memory=of_ten(pairs_of(every, "mem_gb", lambda found: found.planned_gib)).replace(" | ", " and ")))


PAGE = """# Published training runs, as plans of rankc

`bench/published.py --rankc RANKC --rows FILE.csv --page docs/measured/published-rows.md` writes this page. A row of the table FILE.csv,
which is not in this repository, is a training run that somebody published: sizes of the model, devices, how the model was
divided, operations per second and memory. The script asks `rankc plan --model-config --machine` for the same model,
machine and plan ([model-config.md](../model-config.md), [autodist.md](../autodist.md)) and compares the estimate of that plan
with what was published. Machines are rows of [machines.def](../../passes/plan/machine/machines.def): the vendors' data sheets, and
the largest products that were measured on the device (stas00/ml-engineering). What a framework does otherwise than rankc's program is
[below](#what-frameworks-do-otherwise), with its constants. No constant is of a row.

Errors are relative, the median and that of the ninth of ten rows; *ratio* is the median of estimated over published.

{table}

{oom}

The plans that took longest, in seconds of processor time: {slow}.

How rows are expressed where words differ:

- The micro-batch of a plan with experts is that of all ranks that have other experts. Their buffers have room for the mean number of
  an expert's rows (`capacity=1`), as balanced experts need.
- 8-bit floats of any scaling are `--fp8 hybrid`, whose scales are those of whole tensors.
- Megatron's selective recomputation repeats attention's scores, which flash attention never keeps: nothing is recomputed.
  torchtitan's is `--recompute selective` by operators, and `first:` half of the layers by layers.
- Megatron-Bridge, NeMo and torchtitan use sequence parallelism wherever they use tensor parallelism.
- Where the publication took the fastest micro-batch and does not say which, so does the script.

## Rows that are left empty

| rows | why |
|---|---|
{empty}

## What frameworks do otherwise

The plan's estimate is of rankc's program: the parts of its step, computing, communicating and waiting. A framework's step is the sum of
the same parts, of which some take so many times as long; its memory has parts that rankc's program has not:

| source | behaviour | attention | exchanges that nothing hides | bytes of a score | of a logit, more | between layers | units |
|---|---|---|---|---|---|---|---|
{behaviours}

Kernels, times as long as in the plan: products 1.05 on A100 and 1.15 on H100 and H200, whose clocks fall under load; FlashAttention 2
1.8 and 1.5, with a bias of positions (alibi) 1.3 and 2.2; cuDNN's attention 0.6 on Blackwell. Where attention is not fused, its scores
pass through memory 10 times in 16 bits, 1.4 times that if they are recomputed. From 32,768 positions on rankc computes gradients of
attention with kernels of its own, which take twice a library's time.

Memory is that of the plan, and what a framework keeps besides:

- *Bytes of a score* that attention keeps where it is not fused: probabilities in 16 bits, and with dropout its result and mask. They are
  kept of every layer and micro-batch on its way, or of one layer where all is recomputed.
- *Of a logit, more*: a loss that is not fused has copies of the logits in f32: cast, shifted, their softmax, and the gradients of each.
- *Between layers*: bytes of what is kept there where all is recomputed. rankc's `--amp` keeps 4, as PyTorch's autocast does.
- *Units* of PyTorch's FSDP that are whole at once, in f32, with the gradient of one, and with the tables outside of layers and theirs.

These follow from what the frameworks do. The bytes of a logit and the units were chosen with ATorch's four rows in view, and FlashAttention
of VocabularyParallelism from the memory of its rows; nothing else was fitted to memory. Of the plan as it is, the error of memory is {memory}.

The constants of time were fitted to the dense rows with at most {fitted} layers times stages, and rounded; the others were looked at afterwards.
Errors of TFLOP/s:

| rows | median | 90 % |
|---|---|---|
{errors}

Of the plan as it is they are {dense} for dense models, and {every} for all. Of 38 dense runs that are in no table
(bench/published_unseen.py; 31 are of llm-foundry), the errors were 5.9% and 16.7%.

What is not expressed:

- Products of Megatron that add to the sums of gradients. rankc computes a gradient in 16 bits and then adds it, which moves 12 bytes for
  each parameter and micro-batch. Most of the other rows have stages and small micro-batches, where this counts most; what part of their
  error it is was not measured.
- ZeRO-3 over hundreds of ranks without tensor parallelism (SC21, DeepSpeed on Azure): published runs are slower than gathers of large
  messages are.
- Recipes of Megatron-Bridge recompute or offload more than their rows say; as the rows are, the largest need more memory than the device
  has. MXFP8 and whole-tensor scales cost different kernels.
- PyTorch reports memory that its allocator has reserved, which is more than what is live: most of torchtitan's rows lack 5 to 20 GiB.
  Those with 32,768 tokens a rank lack 38 GiB, as much as copies of the logits in f32 have; those with fewer tokens do not lack these.
- Networks are those of the machine, also where a row states its own.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=float, default=120, help="seconds of processor time for a plan")
    parser.add_argument("--search", action="store_true", help="also search for the fastest plan of the same step, for the page")
    parser.add_argument("--page", help="write docs/measured/published-rows.md here")
    parser.add_argument("-v", "--verbose", action="store_true")
    given = parser.parse_args()
    rows, every = read(given.rows), []
    print("row,tflops_per_gpu,mem_gb,fits")
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        for i, (found, better) in enumerate(pool.map(lambda row: estimate(given, row), rows)):
            report(i, rows[i], found, given.verbose)
            every.append((rows[i], found, better))
    reasons = collections.Counter(str(found) for _, found, _ in every if isinstance(found, Refused))
    for reason, count in reasons.most_common():
        print(f"{count} rows: {reason}", file=sys.stderr)
    print(f"{len(rows)} rows, {len(rows) - sum(reasons.values())} planned, {sum(reasons.values())} left empty", file=sys.stderr)
    if given.page:
        write_page(given.page, every)


if __name__ == "__main__":
    main()
