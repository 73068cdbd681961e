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
# (products: scores pass through memory); exchanges: how long those of the plan take that nothing hides; reduces: bytes of a gradient
# that ZeRO 3 scatters (4 in the plan); gathers: of a layer's parameters, each a collective; adds: of the time in which rankc adds
# gradients to sums, the part that it takes; equal: stages have equally many layers. Of memory: bytes that are kept of each score
# and, beyond the plan's, of each logit; bytes of what is kept between layers (4 as rankc's --amp has it); how many units of FSDP,
# of a layer each, are whole at once, with one gradient.
Behaviour = collections.namedtuple("Behaviour", "words what attention exchanges reduces gathers adds equal scores logits between units")
HALVES = 0.6  # 6 bytes are moved to add a gradient in 16 bits, 10 to add one of 16 bits to f32
BEHAVIOURS = (
    Behaviour("llm-foundry", "PyTorch's FSDP; FlashAttention 2 with a bias of positions", "alibi", 1, 4, 1, 1, False, 0, 0, 4, 0),
    Behaviour("ATorch", "PyTorch's FSDP and FlashAttention 2; transformers' loss, in f32", "flash2", 1, 4, 1, 1, False, 0, 18, 4, 2),
    Behaviour("torchtitan", "FSDP2, exchanges beside products; FlashAttention 2", "flash2", 0.5, 4, 1, 1, True, 0, 10, 2, 0),
    Behaviour("ml-engineering", "DeepSpeed and FlashAttention 3, on Blackwell 4", "flash3", 0.5, 2, 1, 1, False, 0, 0, 4, 0),
    Behaviour("Megatron-Bridge|NeMo|README H100", "Transformer Engine: exchanges beside products (userbuffers); cuDNN's attention", "cudnn", 0.25, 2, 1, 0, True, 0, 0, 4, 0),
    Behaviour("Alpa", "XLA in 16 bits, attention that is not fused", "products", 1, 4, 1, 1, False, 2, 0, 2, 0),
    Behaviour("VocabularyParallelism", "Megatron in 2024: FlashAttention 2, exchanges beside nothing", "flash2", 1.2, 4, 1, 0, True, 0, 0, 2, 0),
    Behaviour("BigScience|DeepSpeed|MT-NLG|SC21|Megatron-LM 2021", "Megatron and DeepSpeed until 2022: attention that is not fused, with dropout; "
              "exchanges beside nothing; gradients are added in 16 bits", "products", 1.2, 2, 4, HALVES, True, 5, 0, 2, 0),
    Behaviour("Megatron|Korthikanti|Zero-bubble", "Megatron until 2023: the same, but products add to sums of gradients", "products", 1.2, 4, 1, 0, True, 5, 0, 2, 0),
    Behaviour("", "others", "cudnn", 1, 4, 1, 1, False, 0, 0, 4, 0))
# By the beginning of a machine's name: how many times as long kernels take as the plan says. matmul: products; fp8: those of 8 bits.
BLACKWELL = {"flash2": 2.7, "flash3": 0.87, "cudnn": 0.6}
SLOWER = {"v": {"matmul": 1.08, "fp8": 1.08}, "a": {"matmul": 1.08, "fp8": 1.08, "alibi": 1.3, "flash2": 1.8},
          "h": {"matmul": 1.15, "alibi": 2.2, "flash2": 1.5, "flash3": 0.8, "cudnn": 0.8}, "gb200": {**BLACKWELL, "matmul": 1.2, "fp8": 1.2},
          "b200": {**BLACKWELL, "matmul": 1.2, "fp8": 1.2}, "gb300": BLACKWELL, "b300": BLACKWELL}
CONTEXT = 3 * 2**30  # bytes of the driver's context, of libraries' kernels and of NCCL's communicators, which nvidia-smi counts
ROWWISE = 2  # times as long take products of 8-bit floats with a scale for each row
PASSES = 10  # of scores in 16 bits through memory in forward and backward, and AGAIN times as many if they are recomputed
AGAIN = 1.4
FITTED = 320  # layers times stages of rows to which these were fitted, at most
OWN = 2  # where rankc's kernels compute gradients of attention, they take so many times a library's time
NODE, HOPS = 8, (3.4e-6, 14e-6)  # devices of a node; seconds of a hop of NCCL's rings inside and between nodes
CORES = {"v": 15.7e12, "a": 19.5e12}  # operations per second of products whose rows of 16 bits are no multiple of 8: without tensor cores
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
        if "VocabularyParallelism" in self.row["source"]:
            sizes["tie_word_embeddings"] = False  # its pretrain_gpt.sh: --untie-embeddings-and-output-weights
        family = "mixtral" if self.experts else "llama" if self.gated else "gpt2"
        return {"model_type": family, **{key: size if size is False else int(size) for key, size in sizes.items()}}

    def micro_batches(self):
        """Sizes of a micro-batch: one, or those of a sweep."""
        per_replica = self.global_batch / self.dp
        if self.microbatch or number(note(self.row, "n_micro")):
            return [self.microbatch or per_replica / number(note(self.row, "n_micro"))]
        if not self.global_batch or not re.search("microbatch tuned|best of a sweep", self.row["notes"]):
            raise Refused("the size of a micro-batch is missing")
        stated = re.search(r"best of a sweep (\d+)\.\.(\d+)", self.row["notes"])
        least, most = map(int, stated.groups()) if stated else (1, per_replica)
        return [2 ** i for i in range(16) if per_replica % 2 ** i == 0 and least <= per_replica / 2 ** i <= most]

    def stages(self):
        """A plan that gives each stage equally many layers, where the framework does not balance their times. Where the layers do not
        divide, the embedding and the head count as a layer each."""
        way = next(iter(self.schedule()[1:]), "")
        stages = self.pp * (2 if way == "zb-v" else number(way.partition("v=")[2]) or 1)
        more = next((more for more in (0, 2) if (self.layers + more) % stages == 0), None)
        if not self.behaviour().equal or self.pp == 1 or more is None:
            return None
        each = (self.layers + more) / stages
        nodes = [{"name": f"layers.{layer}.{name}", "op": "MatMul", "stage": int((layer + more // 2) // each)} for layer in range(int(self.layers))
                 for name in ("q_proj", "o_proj")]
        return {"format": 1, "mesh": [{"axis": "pipeline", "size": int(self.pp)}], "nodes": nodes}

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

    def has_own_attention(self):
        """True if the plan leaves attention's gradient to rankc's kernels: its library would need more than 1 GiB for the scores' gradients
        of the heads that share keys (rt_attend_is_small, runtime/base/scratch.h)."""
        return 2 * self.heads / self.kv_heads * self.seq / self.cp * self.seq + 4 * self.heads / self.kv_heads * self.seq * self.head > 2**30

    def rings(self, micro):
        """Seconds of the latency of a step's gathers and scatters of parameters that ZeRO 3 divides. NCCL passes them around a ring of all
        ranks, a hop after the other (tuning.cc, ring with protocol Simple)."""
        ranks = self.dp * self.cp
        nodes = max(ranks * self.tp * self.pp / NODE, 1) if self.tp * self.pp < NODE else ranks
        hops = (ranks - nodes) * HOPS[0] + (nodes - 1) * HOPS[1]
        times = 3 * self.layers * self.global_batch / (micro * self.dp) * self.behaviour().gathers
        return times * hops if self.zero()[1] == "3" and nodes > 1 else 0

    def seconds(self, estimate, micro):
        """Of a step as the framework would carry out the plan. Stages wait in proportion to what they compute."""
        behaviour, machine = self.behaviour(), self.machine()
        slower = next((times for name, times in SLOWER.items() if machine.startswith(name)), {})
        attention = estimate["attention_s"] / (OWN if self.has_own_attention() else 1) * slower.get(behaviour.attention, 1)
        bandwidth = next((b for name, b in BANDWIDTH.items() if machine.startswith(name)), 0)
        if behaviour.attention == "products" and bandwidth:
            scores = 2 * self.seq ** 2 * self.heads / self.tp * self.layers / self.pp * self.global_batch / self.dp
            attention += PASSES * (AGAIN if self.recomputation() else 1) * scores / bandwidth
            if self.head % 8:
                attention += (3 + bool(self.recomputation())) * 2 * self.head * scores / CORES[machine[0]]
        adds = 1 if behaviour.adds == HALVES and "bf16" in self.precision() else behaviour.adds  # DeepSpeed adds those in f32
        others = estimate["other_kernels_s"] - (1 - adds) * estimate["adding_gradients_s"]
        products = estimate["products_s"] * slower.get("fp8" if "--fp8" in self.precision() else "matmul", 1) * self.repeated() * (ROWWISE if "rowwise" in self.row["precision"] else 1)
        computing = products + attention + others + estimate["launching_s"]
        exchanged = behaviour.exchanges * estimate["communicating_s"]
        if self.zero()[1] == "3" and self.tp == 1:
            exchanged *= (4 + behaviour.reduces) / 8  # of 4 bytes that are gathered in forward and backward, and 4 that are scattered
        if "torchtitan" in self.row["source"] and re.search("fp8(?! rowwise)", self.row["precision"]):
            exchanged *= 0.75  # what is gathered has 8 bits (enable_fsdp_float8_all_gather, PrepareFloat8ModuleInput)
        return computing * (1 + estimate["waiting_s"] / estimate["computing_s"]) + exchanged + self.rings(micro)

    def repeated(self):
        """How many times as many operations of products there are with torchtitan's selective recomputation."""
        layers = self.layers * (self.attention + self.mlp)
        again = self.layers * self.hidden * sum(self.every_second()) if self.recomputation() == ["--recompute", "selective"] else 0
        return 1 + again / (3 * (layers + self.vocab * self.hidden))

    def stage_of(self, rank):
        return int(rank // (self.tp * self.cp * self.ep) % self.pp)

    def kept(self, plan, rank):
        """Layers times micro-batches of which the rank keeps activations at once (those of a whole stage where all is recomputed), and
        the part that these are of the plan's slots. rankc has slots for the most that each chunk of a stage keeps; PyTorch allocates
        what is kept at a time, in Megatron's interleaved schedule (schedules.py, num_warmup_microbatches) one for each step of warm-up."""
        schedule = plan.get("schedule") or {}
        slots = schedule.get("slots_to_backward") or schedule.get("slots")
        if self.pp == 1 or not slots:
            return self.layers, 1
        of_chunks = slots[self.stage_of(rank)]
        of_chunks = of_chunks if isinstance(of_chunks, list) else [of_chunks]
        alive = sum(of_chunks)
        if schedule["name"].startswith("interleaved"):
            alive = min(alive, 2 * (self.pp - self.stage_of(rank) - 1) + (len(of_chunks) - 1) * self.pp + 1)
        return alive * self.layers / self.pp / len(of_chunks), alive / sum(of_chunks)

    def memory(self, plan, micro, words):
        """GiB of the device that needs most, as the framework would carry out the plan."""
        behaviour, tokens, how = self.behaviour(), micro * self.seq / self.cp, (self.recomputation() or ["", ""])[1]
        sequence = self.tp if "--sequence-parallel" in words else 1

        def of_rank(rank):
            kept, part = self.kept(plan, rank["rank"])
            scores = tokens * self.seq * self.heads / self.tp * (1 if how == "full" else kept)
            between = (4 - behaviour.between) * kept * tokens * self.hidden / sequence if how == "full" else 0
            again = 2 * kept * tokens * sum(self.every_second()) / self.tp if how == "selective" else 0
            reserved = (1 - part) * rank["memory"]["activations"]
            halves = rank["memory"]["gradients"] / 2 if behaviour.adds == HALVES else 0
            sums = -halves if "fp16" in words else halves
            logits = behaviour.logits * tokens * self.vocab / self.tp if self.stage_of(rank["rank"]) == self.pp - 1 else 0
            return rank["memory"]["peak"] + behaviour.scores * scores + logits + sums - between - again - reserved

        layer, tables = self.attention + self.mlp, 2 * self.vocab * self.hidden
        whole = 4 * ((behaviour.units + 1) * layer + 2 * tables) if behaviour.units and "--use-zero" in words else 0
        whole += CONTEXT if "nvidia-smi" in self.row["notes"] else 0
        return (max(map(of_rank, plan["ranks"])) + whole) / 2**30

    def every_second(self):
        """Results of the products that torchtitan's selective recomputation of operators repeats: every second one."""
        results = [self.head * self.heads, self.head * self.kv_heads, self.head * self.kv_heads, self.hidden] + [self.ffn] * (1 + self.gated) + [self.hidden]
        return results[1::2]

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
        if self.pp > 1 and "torchtitan" in self.row["source"]:
            level = "1"  # FSDP2 keeps what a stage gathered (reshard_after_forward=not pp_enabled), and reduces once in a step
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


def ask(given, path, run, words, micro=1):
    """The estimate of the plan with these options; Refused with rankc's message."""
    refine = ["--refine", os.path.join(os.path.dirname(path), "stages.json")] if run.stages() and "autodist" not in words else []
    status, out, said, seconds = execute([given.rankc, "plan", "--model-config", path, *words, *refine, "--json", "-q"], given.limit)
    if status == -signal.SIGKILL or seconds > given.limit:
        raise Refused(f"too slow: not planned in {given.limit:g} s")
    if status:
        message = json.loads(said.splitlines()[0]) if said.startswith("{") else {}
        raise Refused(f"rankc plan: {message.get('code', '')} {message.get('text', f'exit {status}')}")
    plan = json.loads(out)
    found, gib = plan["estimate"], run.memory(plan, micro, words)
    rate, own = (run.operations() * run.global_batch / seconds / run.ngpus / 1e12 for seconds in (run.seconds(found, micro), found["step_s"]))
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
            for name, content in (("config.json", run.configuration()), ("stages.json", run.stages())):
                with open(os.path.join(directory, name), "w", encoding="ascii") as file:
                    json.dump(content, file)
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

    lines = [("dense, of few layers times stages", list(filter(is_small, dense))), ("dense, the others", list(itertools.filterfalse(is_small, dense))),
             ("dense", dense), ("all", every)]
    as_planned = [rates(runs, lambda found: found.planned).replace(" | ", " and ") for runs in (dense, every)]
    with open(path, "w", encoding="ascii") as file:
        file.write(PAGE.format(
            table=table_of(every, dense), empty="\n".join(f"| {count} | {reason} |" for reason, count in reasons.most_common()), oom=oom, slow=slow,
            behaviours="\n".join(f"| {' | '.join([b.words.replace('|', ', ') or 'others', *map(str, b[1:7]), 'layers' if b.equal else 'times', *map(str, b[8:])])} |"
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
- Where the publication took the fastest micro-batch and does not say which, so does the script, in the range that was tried.

## Rows that are left empty

| rows | why |
|---|---|
{empty}

## What frameworks do otherwise

The plan's estimate is of rankc's program: the parts of its step, computing, communicating and waiting. A framework's step is the sum of
the same parts, of which some take so many times as long; its memory has parts that rankc's program has not:

| source | behaviour | attention | exchanges that nothing hides | bytes of a gradient that ZeRO 3 scatters | gathers of a layer | adding gradients | equal stages | bytes of a score | of a logit, more | between layers | units |
|---|---|---|---|---|---|---|---|---|---|---|---|
{behaviours}

Kernels, times as long as in the plan: products 1.08 on V100 and A100, 1.15 on H100 and H200 (of 8-bit floats 1) and 1.2 on B200 and GB200, whose
clocks fall under load; FlashAttention 2 1.8 and 1.5, with a bias of positions (alibi) 1.3 and 2.2; on Blackwell,
for which it has no kernels of its own, 2.7: as fast as on H100.
FlashAttention 3 and 4 reach 447 TFLOP/s of a step on H200 and 834 on B200 (stas00/ml-engineering), 0.8 and 0.87 times the plan's time;
cuDNN's attention is taken as FlashAttention 3 on Hopper, and as 0.6 times on Blackwell. Where attention is not fused, its scores
pass through memory 10 times in 16 bits, 1.4 times that if they are recomputed. rankc computes the gradients of attention with kernels
of its own where its library would need more than 1 GiB for the heads that share keys; these take twice a library's time. Where attention is not
fused and a head's elements are no multiple of 8, tensor cores do not multiply them (BigScience, hidden size 13,824 with 128 heads).

- *Adding gradients*: Megatron's products add to the sums of gradients (wgrad_gemm_accum_fp32, `gradient_accumulation_fusion`). rankc
  writes a gradient in 16 bits and then adds it, which moves 10 bytes for each parameter and micro-batch: a tenth of the steps of
  Zero-bubble with 1,024 tokens in a micro-batch. The plan says how long that takes (`adding_gradients_s`), and it is left out.
- *Equal stages*: Megatron and torchtitan give stages equally many layers, rankc equal times; the plan is asked for with `--refine`. Where layers do
  not divide, embedding and head count as a layer each, as with `account_for_embedding_in_pipeline_split` and in Zero-bubble.
- *Scatters and gathers* of ZeRO 3: NCCL's rings take a hop after the other, 3.4 microseconds inside a node and 14 between nodes
  (tuning.cc), for three collectives of each gather. DeepSpeed gathers four products of a layer one by one, FSDP a layer.
- torchtitan with 8-bit floats gathers parameters and activations in 8 bits, a quarter less than the plan exchanges; scales of rows
  make its products twice as long; with stages, parameters stay gathered through a step (`reshard_after_forward=not pp_enabled`), which is ZeRO 1 here;
  its selective recomputation repeats every second product of a layer, whose results are not kept (parallelize_llama.py).

Memory is that of the plan, and what a framework keeps besides:

- *Bytes of a score* that attention keeps where it is not fused: probabilities in 16 bits, and with dropout its result and mask. They are
  kept of every layer and micro-batch on its way, or of one layer where all is recomputed.
- *Of a logit, more*: a loss that is not fused has copies of the logits in f32: cast, shifted, their softmax, and the gradients of each.
  torchtitan's has its softmax, the gradients of that and of the logits, 12 bytes of which the plan has 2.
- *Between layers*: bytes of what is kept there where all is recomputed. rankc's `--amp` keeps 4, as PyTorch's autocast does; FSDP2 and
  Megatron cast the model and keep 2.
- Sums of gradients have 16 bits with DeepSpeed and fp16; with bf16 they have 32, beside gradients of 16 (BigScience's chronicles). Memory that nvidia-smi said has 3 GiB more: the driver's context and NCCL's communicators.
- Of interleaved stages, rankc has slots for the most activations that each chunk keeps, and PyTorch allocates what is kept at a time.
- *Units* of PyTorch's FSDP that are whole at once, in f32, with the gradient of one, and with the tables outside of layers and theirs.

These follow from what the frameworks do. The bytes of a logit and the units were chosen with ATorch's four rows in view, torchtitan's bytes of a
logit with its two rows of 32,768 tokens, nvidia-smi's 3 GiB with BigScience's, and FlashAttention
of VocabularyParallelism from the memory of its rows (its pretrain_gpt.sh has --use-flash-attn); nothing else was fitted to memory. Of the plan as it is, the error of memory is {memory}.

The constants of kernels on V100, A100 and H100 were fitted to the dense rows with at most {fitted} layers times stages, and rounded. Those of
products on Blackwell, of exchanges under Transformer Engine, and of scales of rows were chosen with the rows of Megatron-Bridge and torchtitan in
view, of which the former are mostly among the others. That half of the rate is reached with 100 rows was chosen with the largest products of
A100 (1,024 rows) and the stages of VocabularyParallelism in view. Errors of TFLOP/s:

| rows | median | 90 % |
|---|---|---|
{errors}

Of the plan as it is they are {dense} for dense models, and {every} for all. Of 78 dense runs that are in no table
(bench/published_unseen.py; every fourth of llm-foundry, every second of Megatron-Bridge, all others) the errors were 7.8% and 24.1%, of memory 4.6% and
12.6% in 23 rows. By source: llm-foundry 5.8% and 12.9%, VocabularyParallelism 3.2% and 6.6%, torchtitan 7.2% and 28.5%, Megatron-Bridge 9.2% and
19.1%, BigScience 16.2% and 29.7%. Nothing was fitted to them, but what is said of heads and of bf16 under DeepSpeed was looked for with BigScience's in view.

What is not expressed:

- ZeRO-3 of 2021 (SC21): its gathers copied each parameter and hid nothing (DeepSpeed, pull request 1188); three rows are up to 2.2 times as fast here.
- One row of VocabularyParallelism, whose step is 1.5 times what its own measured stages take ([stage-times.md](stage-times.md)).
- Recipes of Megatron-Bridge recompute or offload more than their rows say; as the rows are, the largest need more memory than the device
  has. MXFP8 and whole-tensor scales cost different kernels.
- PyTorch reports memory that its allocator has reserved, which is more than what is live.
- DeepSpeed's steps with stages: BigScience's are 8 to 34% slower than estimated, for unknown reasons.
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
