#!/usr/bin/python3
"""Estimates of the time of a step, and the search of --pas autodist.

    search.py --rankc RANKC"""
import itertools
import json
import math
import os
import re
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, rankc_of  # noqa: E402

RANKC = ""


def run(*args):
    return call(RANKC, "plan", *args, "--json", "-q", status=None)


def plan(*args):
    done = run(*args)
    if done.returncode:
        return None
    return json.loads(done.stdout)


def near(name, value, wanted, bound):
    print(f"{name}: {value:.4g}, published {wanted:.4g} ({value / wanted - 1:+.1%})")
    assert abs(value / wanted - 1) <= bound, name


def published():
    """ATorch's published table of Llama 2 7B under FSDP with full recomputation, batch 4, 4096 tokens, on A100 80G:
    seconds of a step by number of GPUs. The constants that all GPUs share (passes/plan/machine/machine.c, gpu_of) were fitted to a
    table of 328 runs, of which these are eight."""
    for devices, seconds in ((8, 4.898), (64, 5.137)):
        got = plan("--model-config", "llama2-7b", "--pas", "fsdp", "--runtime-ngpus", str(devices), "--dim", "batch=4",
                   "--recompute", "full", "--amp", "bf16", "--machine", "a100-80")["estimate"]
        near(f"llama2-7b, {devices} a100-80", got["step_s"], seconds, 0.15)
        # 6 N tokens and the attention, once as squares
        flops = devices * 4 * 3 * (2 * 4096 * 6.607e9 + 32 * 4 * 4096**2 * 4096)
        near("flops of the model", got["model_flops"], flops, 0.01)


def limits():
    """--mem-limit at the plan's own need is kept, a byte less is refused with exit code 5."""
    args = ("--model-config", "gpt2", "--pas", "tp", "--plan-ngpus", "2", "--machine", "a100-40")
    need = plan(*args)["estimate"]["memory"]
    assert run(*args, "--mem-limit", str(need)).returncode == 0
    refused = run(*args, "--mem-limit", str(need - 1))
    assert refused.returncode == 5 and "E0431" in refused.stderr and "live then" in refused.stderr, refused.stderr
    # of ZeRO's slices too
    refused = run("--model-config", "gpt2", "--use-zero", "1", "--runtime-ngpus", "2", "--mem-limit", "100M")
    needed = int(re.search(r"needs (\d+) bytes", refused.stderr)[1])
    assert sum(int(b) for b in re.findall(r"note: [a-z]+: (\d+) bytes", refused.stderr)) == needed, refused.stderr


def smallest():
    """A search that finds nothing that fits says the smallest plan, what is live then, and a limit that suffices."""
    model = ("--model-config", "gpt2", "--dim", "seq=256", "--machine", "h100")
    search = (*model, "--pas", "autodist", "--runtime-ngpus", "2", "--forbid", "pipeline,context")
    refused = run(*search, "--mem-limit", "100M")
    assert refused.returncode == 5 and "E0430" in refused.stderr and "live then" in refused.stderr, refused.stderr
    least, words = (re.search(text, refused.stderr)[1] for text in (r"needs (\d+)", r'it is (--pas [^"]+)"'))
    assert plan(*model, *words.split())["estimate"]["memory"] == int(least), refused.stderr
    assert run(*search, "--mem-limit", least).returncode == 0, least
    # one sequence for so many ranks: there are not so many nodes
    few = run(*model, "--pas", "autodist", "--runtime-ngpus", "16384", "--global-batch", "1")
    assert few.returncode == 5 and "pipeline stages, but the model has only" in few.stderr, few.stderr


def pipelines_and_grouped_heads():
    """More pipeline stages than heads of keys and values."""
    assert plan("--model-config", "llama3-8b", "--pas", "pp", "--plan-ngpus", "16", "--dim", "seq=128")


def optimum():
    """The search finds a plan as good as the best of these meshes, ZeRO stages, recomputations and schedules, each of
    them planned."""
    for model, devices, limit in (("gpt2", 4, "2G"),):
        common = ["--model-config", model, "--machine", "a100-80", "--amp", "bf16", "--global-batch", "32", "--dim",
                  "seq=256", "--dim", "batch=2"] + (["--mem-limit", limit] if limit else [])
        best = None
        schedules = (None, "interleaved", "zb-h1", "zb-h2", "zb-v")
        for tensor, pipeline, zero, recompute, schedule, sequence in itertools.product(
                (1, 2, 4), (1, 2, 4), (0, 1, 3), (None, "full"), schedules, (False, True)):
            if devices % (tensor * pipeline) or (zero and tensor * pipeline == devices):
                continue
            if (schedule and (pipeline == 1 or (recompute and schedule.startswith("zb-")))) or (sequence and tensor == 1):
                continue
            axes = [f"{n}={s}" for n, s in (("tensor", tensor), ("pipeline", pipeline)) if s > 1]
            args = ["--pas", "hybrid:" + ",".join(axes) if axes else "dp", "--runtime-ngpus", str(devices),
                    "--use-zero", str(zero)] + (["--recompute", recompute] if recompute else [])
            args += (["--schedule", schedule] if schedule else []) + (["--sequence-parallel"] if sequence else [])
            found = plan(*common, *args)
            if found and found["estimate"]["memory"] <= found["estimate"]["device_memory"]:
                if best is None or found["estimate"]["step_s"] < best[0]:
                    best = (found["estimate"]["step_s"], args)
        got = plan(*common, "--pas", "autodist", "--runtime-ngpus", str(devices))["estimate"]["step_s"]
        print(f"{model}, {devices} devices, limit {limit}: search {got:.5g}, optimum {best[0]:.5g} ({' '.join(best[1])})")
        assert got <= best[0] * 1.0001


def moves_of_zero():
    """A matrix of a layer has as many sums and gathers in a step as predictions count (zero_moves in passes/place/zero.c)."""
    for zero, micro in itertools.product(range(4), (1, 3)):
        counts = []
        with tempfile.TemporaryDirectory() as directory:
            for layers in (2, 3):
                config = os.path.join(directory, f"{layers}.json")
                with open(config, "w") as file:
                    json.dump({**DENSE, "num_hidden_layers": layers}, file)
                text = call(RANKC, "plan", "--model-config", config, "--runtime-ngpus", "4", "--use-zero", str(zero), "--accumulate",
                            str(micro), "-q").stdout
                counts.append({kind: int(n) for kind, n in re.findall(r"^  (\w+) +(\d+)x", text, flags=re.M)})
        matrices = 7  # the two norms are smaller than ZERO_THRESHOLD
        more = {kind: n - counts[0][kind] for kind, n in counts[1].items()}
        sums, gathers = micro if zero >= 2 else 1, (0, 1, 1, 2 * micro)[zero]
        wanted = {"reduce_scatter": matrices * sums, "all_gather": matrices * gathers} if zero else {"unit_sum": matrices + 2}
        assert all(more[kind] == n for kind, n in wanted.items()), (zero, micro, more, wanted)


SMALL = {"model_type": "mixtral", "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8,
         "num_key_value_heads": 4, "num_hidden_layers": 4, "vocab_size": 4096, "max_position_embeddings": 1024,
         "num_local_experts": 4, "num_experts_per_tok": 2}


DENSE = {**{key: value for key, value in SMALL.items() if "expert" not in key}, "model_type": "llama"}

MACHINE = {"format": 1, "name": "x", "memory": 1e12, "bandwidth": 2e12, "traffic": 0.8, "launch": 4e-6, "attention": 0.5,
           "overlap": 0.5, "rates": {"f64": 1e13, "f32": 1e13, "half": 2e14, "fp8": 2e14},
           "peaks": {"f64": 1e13, "f32": 1e13, "half": 3e14, "fp8": 3e14}, "half_extents": [0, 0, 0]}


def settings_of(tensor, context, expert, pipeline):
    """The settings of --pas for a mesh, one for each way to compute attention along context."""
    axes = [f"{n}={s}" for n, s in (("tensor", tensor), ("context", context), ("expert", expert), ("pipeline", pipeline))
            if s > 1]
    forms = ("", "cut=mirrored", "attention=heads", "attention=ring", "attention=ring,cut=mirrored")
    for form in forms[:len(forms) if context > 1 else 1]:
        yield "hybrid:" + ",".join(axes + [form] * bool(form)) if axes else "dp"


def optimum_of_mixtures():
    """Of a model with experts, the search finds the best of all meshes with tensor, context, expert and pipeline
    parallelism, sizes of micro-batches and schedules, chimera among them."""
    devices, sequences = 4, 8
    with tempfile.TemporaryDirectory() as directory:
        config = os.path.join(directory, "config.json")
        with open(config, "w") as file:
            json.dump(SMALL, file)
        common = ["--model-config", config, "--machine", "a100-80", "--amp", "bf16", "--global-batch", str(sequences),
                  "--runtime-ngpus", str(devices), "--use-zero", "1", "--recompute", "none"]
        best, planned = (math.inf, ""), 0
        for mesh in itertools.product((1, 2, 4), repeat=4):
            for batch in (mesh[2] * s for s in (1, 2, 4, 8)):
                units = devices // math.prod(mesh)
                if math.prod(mesh) > devices or sequences % (units * batch):
                    continue
                schedules = ("1f1b", "interleaved", "zb-h1", "chimera")[:4 if mesh[3] > 1 else 1]
                for settings, schedule in itertools.product(settings_of(*mesh), schedules):
                    args = ["--pas", settings, "--dim", f"batch={batch}", "--schedule", schedule]
                    found = plan(*common, *args)
                    planned += 1
                    if found and found["estimate"]["step_s"] < best[0]:
                        best = found["estimate"]["step_s"], " ".join(args)
        got = plan(*common, "--pas", "autodist")
    print(f"mixture: search {got['estimate']['step_s']:.5g}, optimum of {planned} {best[0]:.5g} ({best[1]})")
    assert got["estimate"]["step_s"] <= best[0] * 1.0001
    options = [p["options"] for p in got["search"]["plans"]]
    for word in ("expert=", "cut=mirrored", "attention=heads", "attention=ring", "batch=", "chimera"):
        assert any(word in o for o in options), word
    assert all(p["rejected"] for p in got["search"]["plans"][1:])


def generation():
    """Of a step that adds a token to so many texts on all devices, the search finds the most tokens a second: the best of
    all meshes whose scale units share the texts. Each of these has its cache, so that a step has one micro-batch."""
    devices, chosen = 8, set()
    for texts in (8, 64):
        common = ["--model-config", "llama3-8b", "--inference", "--decode", "--dim", "past=8191", "--machine", "h100", "--runtime-ngpus",
                  str(devices)]
        best = (math.inf, "")
        for tensor, pipeline in itertools.product((1, 2, 4, 8), repeat=2):
            if tensor * pipeline > devices:
                continue
            args = ["--pas", f"hybrid:tensor={tensor},pipeline={pipeline}", "--dim", f"batch={texts * tensor * pipeline // devices}"]
            found = plan(*common, *args)["estimate"]
            if found["memory"] <= found["device_memory"]:
                best = min(best, (found["step_s"], " ".join(args)))
        got = plan(*common, "--pas", "autodist", "--global-batch", str(texts))
        print(f"generation, {texts} texts: search {got['estimate']['step_s']:.5g}, optimum {best[0]:.5g} ({best[1]})")
        assert got["estimate"]["step_s"] <= best[0] * 1.0001
        for options in (p["options"] for p in got["search"]["plans"] if "@" not in p["options"]):  # of equal stages
            ranks = math.prod(int(n) for n in re.findall(r"(?:tensor|pipeline|context)=(\d+)", options))
            batch = re.search(r"batch=(\d+)", options)
            assert devices // ranks * int(batch[1] if batch else 1) == texts, options
        chosen.add(got["search"]["plans"][0]["options"])
    assert len(chosen) == 2, chosen


LLAMA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "samples", "models", "llama_any.onnx")
DECODER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sizes", "llama_past.onnx")


def generation_of_files():
    """The same of a decoder's file, whose number of tokens and length of the cache are ranges."""
    devices, texts = 4, 64
    common = [DECODER, "--state", "auto", "--machine", "h100", "--runtime-ngpus", str(devices), "--dim", "sequence=1..16@1", "--dim",
              "past_sequence_length=0..1024@512"]
    best = (math.inf, "")
    for tensor, pipeline in itertools.product((1, 2, 4), repeat=2):
        if tensor * pipeline <= devices:
            args = ["--pas", f"hybrid:tensor={tensor},pipeline={pipeline}", "--dim", f"batch={texts * tensor * pipeline // devices}"]
            found = plan(*common, *args)
            best = min(best, (found["estimate"]["step_s"], " ".join(args))) if found else best
    got = plan(*common, "--pas", "autodist", "--global-batch", str(texts))
    print(f"generation of a file: search {got['estimate']['step_s']:.5g}, optimum {best[0]:.5g} ({best[1]})")
    assert got["estimate"]["step_s"] <= best[0] * 1.0001


def optimum_of_ranges():
    """Of a model file whose batch and sequence are ranges, the search finds the best plan at the typical sizes, also of those
    with ring attention or --async-tp, and none that some size does not allow."""
    common = [LLAMA, "--machine", "h100", "--plan-ngpus", "4", "--attention", "flash", "--dim", "batch=1..4"]
    dims = ["--dim", "seq=64..8192:64@4096"]
    found = {}
    for tensor, context, pipeline in itertools.product((1, 2, 4), repeat=3):
        for settings in settings_of(tensor, context, 1, pipeline) if tensor * context * pipeline == 4 else ():
            for more in ([], ["--async-tp"], ["--sequence-parallel"], ["--async-tp", "--sequence-parallel"])[:4 if tensor > 1 else 1]:
                done = plan(*common, *dims, "--pas", settings, *more)
                if done:
                    found[" ".join([settings, *more])] = done["estimate"]["step_s"]
    for trait, word in (("", ""), ("attention=ring", "attention=ring"), ("tensor", "tensor="), ("async-tp", "--async-tp")):
        got = plan(*common, *dims, "--pas", "autodist", *(["--require", trait] if trait else []))
        best = min((s, a) for a, s in found.items() if word in a)
        chosen = got["search"]["plans"][0]["options"]
        print(f"ranges, {trait or 'any'}: search {got['estimate']['step_s']:.5g} ({chosen}), optimum of {len(found)} {best[0]:.5g} ({best[1]})")
        assert got["estimate"]["step_s"] <= best[0] * 1.0001 and word in chosen, chosen
    odd = plan(*common, "--dim", "seq=1..8192@4096", "--pas", "autodist", "--runtime-ngpus", "4")["search"]["plans"]
    assert "context" not in odd[0]["options"] and any("not always a multiple of" in (p["rejected"] or "") for p in odd), odd


def optimum_of_groups():
    """With slow links between nodes, the search finds the best of all ZeRO stages and groups; --require takes one."""
    devices, model = 8, SMALL
    machine = {**MACHINE, "levels": [{"devices": 4, "bandwidth": 2e11, "latency": 1e-5}, {"bandwidth": 2e9, "latency": 1e-4}]}
    with tempfile.TemporaryDirectory() as directory:
        files = [os.path.join(directory, name) for name in ("config.json", "machine.json")]
        for file, value in zip(files, (model, machine)):
            with open(file, "w") as text:
                json.dump(value, text)
        common = ["--model-config", files[0], "--machine", files[1], "--amp", "bf16", "--global-batch", "64", "--dim", "batch=2",
                  "--runtime-ngpus", str(devices), "--recompute", "none"]
        for limit in ([], ["--mem-limit", "460M"]):
            best = (math.inf, "")
            for tensor, zero, groups in itertools.product((1, 2, 4), range(4), (1, 2, 4)):
                units = devices // tensor
                if units % groups or groups == units or (groups > 1 and not zero):
                    continue
                args = ["--pas", f"hybrid:tensor={tensor}" if tensor > 1 else "dp", "--use-zero", str(zero)]
                args += ["--zero-ngroups", str(groups)] if groups > 1 else []
                found = plan(*common, *limit, *args)
                if found and found["estimate"]["step_s"] < best[0]:
                    best = found["estimate"]["step_s"], " ".join(args)
            got = plan(*common, *limit, "--pas", "autodist", "--forbid", "pipeline,context,sequence-parallel")
            chosen = got["search"]["plans"][0]["options"]
            print(f"groups {limit}: search {got['estimate']['step_s']:.5g} ({chosen}), optimum {best[0]:.5g} ({best[1]})")
            assert got["estimate"]["step_s"] <= best[0] * 1.0001
        required = plan(*common, "--pas", "autodist", "--require", "zero=3,zero-groups=2")["search"]["plans"][0]["options"]
        assert "--use-zero 3 --zero-ngroups 2" in required, required


def unequal_meshes(devices):
    """Of tensor, data and pipeline parallelism: with stages that are equal, and with some that have an axis of their own."""
    for tensor, data, stages in itertools.product(range(1, devices + 1), repeat=3):
        if tensor * data * stages == devices:
            yield [f"{n}={s}" for n, s in (("tensor", tensor), ("data", data), ("pipeline", stages)) if s > 1]
    for tensor, stages, own in itertools.product(range(1, devices), range(2, devices), range(2, 5)):
        for larger in range(1, stages):
            if tensor * (stages + larger * (own - 1)) != devices:
                continue
            for first in (0, stages - larger):
                of = f"@{first}-{first + larger - 1}"
                if tensor == 1:
                    yield [f"tensor={own}{of}", f"pipeline={stages}"]
                yield [f"tensor={tensor}"] * (tensor > 1) + [f"data={own}{of}", f"pipeline={stages}"]


def optimum_of_unequal_stages():
    """The search finds the best of all meshes whose pipeline stages have equal or unequal numbers of ranks."""
    found_unequal = False
    for devices, sequences in ((3, 24), (5, 16), (7, 32)):
        with tempfile.TemporaryDirectory() as directory:
            config = os.path.join(directory, "config.json")
            with open(config, "w") as file:
                json.dump({**DENSE, "num_hidden_layers": 9}, file)
            common = ["--model-config", config, "--machine", "a100-80", "--amp", "bf16", "--dim", "batch=12", "--accumulate", str(sequences),
                      "--use-zero", "0", "--recompute", "none", "--schedule", "1f1b", "--plan-ngpus", str(devices)]
            best, planned = (math.inf, ""), 0
            for axes, sequence in itertools.product(unequal_meshes(devices), (False, True)):
                args = ["--pas", "hybrid:" + ",".join(axes), *["--sequence-parallel"] * sequence]
                found = plan(*common, *args) if any("tensor" in axis for axis in axes) or not sequence else None
                planned += found is not None
                if found and found["estimate"]["step_s"] < best[0]:
                    best = found["estimate"]["step_s"], " ".join(args)
            got = plan(*common, "--pas", "autodist", "--forbid", "context,async-tp")
        chosen = got["search"]["plans"][0]["options"]
        found_unequal = found_unequal or "@" in chosen
        print(f"unequal stages: search {got['estimate']['step_s']:.5g} ({chosen}), optimum of {planned} {best[0]:.5g} ({best[1]})")
        assert got["estimate"]["step_s"] <= best[0] * 1.0001
    assert found_unequal


def optimum_of_runs():
    """The search finds the best of tensor parallelism with and without --async-tp and --sequence-parallel, and with up to
    eight stages on each rank; --forbid and --require choose among them."""
    devices, model = 4, {**DENSE, "num_hidden_layers": 16, "hidden_size": 1024}
    machine = {**MACHINE, "launch": 1e-6, "levels": [{"bandwidth": 1e11, "latency": 1e-6}]}
    with tempfile.TemporaryDirectory() as directory:
        files = [os.path.join(directory, name) for name in ("config.json", "machine.json")]
        for file, value in zip(files, (model, machine)):
            with open(file, "w") as text:
                json.dump(value, text)
        common = ["--model-config", files[0], "--machine", files[1], "--amp", "bf16", "--global-batch", "16", "--dim", "batch=2",
                  "--runtime-ngpus", str(devices), "--use-zero", "1", "--recompute", "none"]
        found = {}
        for tensor, pipeline, runs, sequence in itertools.product((1, 2, 4), (1, 2, 4), (False, True), (False, True)):
            if tensor * pipeline > devices or 16 % (2 * devices // (tensor * pipeline)) or (tensor == 1 and (runs or sequence)):
                continue
            axes = [f"{n}={s}" for n, s in (("tensor", tensor), ("pipeline", pipeline)) if s > 1]
            stages = [v for v in (2, 3, 4, 6, 8) if tensor == 1 < pipeline <= 16 / 2 / v]  # of two of the 16 layers or more
            for schedule in ("1f1b", *(f"interleaved:v={v}" for v in stages)):
                args = ["--pas", "hybrid:" + ",".join(axes) if axes else "dp", "--schedule", schedule]
                args += ["--async-tp"] * runs + ["--sequence-parallel"] * sequence
                done = plan(*common, *args)
                if done:
                    found[" ".join(args)] = done["estimate"]["step_s"]
        only = ["--pas", "autodist", "--forbid", "context,schedule=zb-h1,schedule=zb-h2,schedule=zb-v,schedule=chimera"]
        for more, among in (([], lambda a: True), (["--require", "tensor"], lambda a: "tensor" in a),
                            (["--require", "async-tp"], lambda a: "--async-tp" in a),
                            (["--require", "schedule=interleaved:v=4"], lambda a: "v=4" in a),
                            (["--require", "schedule=interleaved"], lambda a: "interleaved" in a)):
            got = plan(*common, *only, *more)
            best = min((s, a) for a, s in found.items() if among(a))
            chosen = got["search"]["plans"][0]["options"]
            print(f"runs {more}: search {got['estimate']['step_s']:.5g} ({chosen}), optimum of {len(found)} {best[0]:.5g} ({best[1]})")
            assert got["estimate"]["step_s"] <= best[0] * 1.0001 and among(chosen), chosen
            assert ("--async-tp" in chosen) == ("tensor" in chosen), chosen  # it pays on this machine
        without = plan(*common, "--pas", "autodist", "--forbid", "async-tp,schedule=interleaved")["search"]["plans"]
        assert not any("--async-tp" in p["options"] or (p["rejected"] or "")[:7] != "refused" and "interleaved" in p["options"]
                       for p in without), without


def optimum_of_rings():
    """Where memory is short for the gathered keys of a long sequence, the search takes ring attention as complete
    enumeration does."""
    devices = 8
    model = {**DENSE, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 256,
             "vocab_size": 512, "intermediate_size": 256, "max_position_embeddings": 65536}
    with tempfile.TemporaryDirectory() as directory:
        config = os.path.join(directory, "config.json")
        with open(config, "w") as file:
            json.dump(model, file)
        common = ["--model-config", config, "--machine", "a100-80", "--amp", "bf16", "--dim", "batch=1", "--runtime-ngpus",
                  str(devices), "--use-zero", "1"]
        limit = 0
        for rounds in range(2):
            best = (math.inf, "")
            for context, recompute in itertools.product((1, 2, 4, 8), ("none", "selective", "full")):
                if devices % context:
                    continue
                for settings in settings_of(1, context, 1, 1):
                    args = ["--pas", settings, "--plan-ngpus", str(context), "--recompute", recompute]
                    done = plan(*common, *args)
                    need, step = (done["estimate"][k] for k in ("memory", "step_s"))
                    if "ring" in settings:
                        limit = min(limit or need, need) if not rounds else limit
                    if rounds and need <= limit and step * context < best[0]:
                        best = step * context, " ".join(args)
        got = plan(*common, "--pas", "autodist", "--forbid", "tensor,pipeline", "--mem-limit", str(limit))
        chosen = got["search"]["plans"][0]["options"]
        print(f"rings: search {chosen}, optimum {best[1]}")
        assert "attention=ring" in best[1] and "attention=ring" in chosen, (best, chosen)
        assert got["estimate"]["step_s"] * got["plan_ngpus"] <= best[0] * 1.0001


def step_seconds(*args):
    """Of the text, which is short for any number of ranks."""
    done = call(RANKC, "plan", *args, "-q")
    number, unit = re.search(r"^  step +([0-9.]+) (s|ms|us):", done.stdout, flags=re.M).groups()
    return float(number) * {"s": 1, "ms": 1e-3, "us": 1e-6}[unit]


def few_micro_batches():
    """Where a scale unit has few micro-batches, stages wait under any schedule: the search finds a plan at least as fast as
    one without stages."""
    common = ["--model-config", "llama3-8b", "--runtime-ngpus", "16384", "--amp", "bf16", "--global-batch", "16384",
              "--machine", "h100"]
    without = step_seconds(*common, "--pas", "hybrid:tensor=2", "--dim", "batch=2", "--sequence-parallel", "--use-zero", "1")
    got = step_seconds(*common, "--pas", "autodist")
    print(f"few micro-batches: search {got:.5g}, without stages {without:.5g}")
    assert got <= without


MPT_1B = {"model_type": "gpt2", "n_layer": 24, "n_embd": 2048, "n_head": 16, "n_inner": 8192, "vocab_size": 50368, "n_positions": 8192}


def promising():
    """Pipelines that are predicted too fast are planned first; the search goes on while another seems faster than the best of them."""
    with tempfile.TemporaryDirectory(prefix="rankc-search-") as directory:
        config = os.path.join(directory, "mpt_1b.json")
        with open(config, "w", encoding="ascii") as file:
            json.dump(MPT_1B, file)
        for options in (("llama3-8b", "--machine", "h200", "--runtime-ngpus", "5", "--global-batch", "420"),
                        (config, "--machine", "a100-40", "--runtime-ngpus", "8", "--global-batch", "128", "--dim", "seq=8192")):
            words = ("--model-config", *options, "--amp", "bf16", "--pas")
            found, simple = step_seconds(*words, "autodist"), step_seconds(*words, "dp", "--use-zero", "1")
            assert found <= simple, (options, found, simple)


def constraints():
    """--forbid and --require choose among the candidates; each must concern one."""
    words = ("--model-config", "gpt2", "--machine", "a100-80", "--amp", "bf16", "--global-batch", "32", "--dim", "seq=256",
             "--pas", "autodist", "--runtime-ngpus", "4")

    # the best 20, and the best of each of ten kinds
    one = plan(*words, "--forbid", "tensor,pipeline,context", "--require", "recompute=full")
    assert one["plan_ngpus"] == 1 and one["runtime_ngpus"] == 4
    found = one["search"]
    plans = found["plans"]
    assert "rejected" in plans[0] and plans[0]["rejected"] is None and len(plans) <= 20 + 10 <= found["candidates"], found
    assert plans[0]["step_s"] == one["estimate"]["step_s"] and "--recompute full" in plans[0]["options"], plans[0]
    assert all(p["rejected"] for p in plans[1:]) and "search" not in plan(*words[:-4], "--pas", "dp"), plans
    two = plan(*words, "--require", "tensor=2,pipeline", "--forbid", "schedule=zb-h1")
    assert two["plan_ngpus"] == 4 and two["schedule"]["name"] != "zb-h1", two["schedule"]
    for more, code, text in ((("--require", "zero=7"), 5, "E0432"), (("--forbid", "tensr"), 2, "did you mean 'tensor'"),
                             (("--forbid", "pipeline", "--require", "pipeline"), 5, "exclude all")):
        done = run(*words, *more)
        assert done.returncode == code and text in done.stderr, done.stderr


def renamed(directory, name):
    """The GPT-2 of tests/models with another name of its dimension "batch", which has as many letters."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models", "gpt2", "model.onnx"), "rb") as file:
        model = file.read()
    assert len(name) == 5 and b"\x05batch" in model
    path = os.path.join(directory, f"{name}.onnx")
    with open(path, "wb") as file:
        file.write(model.replace(b"\x05batch", b"\x05" + name.encode()))
    return path


def batches_of_files():
    """Of a model file, --global-batch counts samples along the first dimension of its inputs, whatever its name: the search
    finds the best of all sizes, as the options that ask for it."""
    devices, samples = 4, 32
    with tempfile.TemporaryDirectory() as directory:
        model = renamed(directory, "items")
        common = [model, "--train", "--loss", "cross_entropy:logits=logits,labels=labels", "--machine", "a100-80",
                  "--runtime-ngpus", str(devices), "--dim", "seq=16", "--global-batch", str(samples)]
        best, planned = (math.inf, ""), 0
        for tensor, data, each, zero in itertools.product((1, 2, 4), (1, 2, 4), (1, 2, 4, 8), (0, 1)):
            batch, units = each * data, devices // (tensor * data)
            if tensor * data > devices or samples % (units * batch):
                continue
            axes = [f"{n}={s}" for n, s in (("tensor", tensor), ("data", data)) if s > 1]
            args = ["--pas", "hybrid:" + ",".join(axes) if axes else "dp", "--dim", f"items={batch}", "--use-zero", str(zero)]
            found = plan(*common, *args)
            planned += 1
            equal = plan(*common[:-2], *args, "--accumulate", str(samples // (units * batch)))
            assert found == equal, args
            if found["estimate"]["step_s"] < best[0]:
                best = found["estimate"]["step_s"], args
        got = plan(*common, "--pas", "autodist", "--forbid", "pipeline,context")
        chosen = got["search"]["plans"][0]["options"]
        print(f"file: search {got['estimate']['step_s']:.5g} ({chosen}), optimum of {planned} {best[0]:.5g} ({best[1]})")
        assert got["estimate"]["step_s"] <= best[0] * 1.0001
        again = plan(*(w for w in common if w not in ("--runtime-ngpus", str(devices))), *chosen.split())
        assert "--dim items=" in chosen and again["estimate"]["step_s"] == got["estimate"]["step_s"], chosen
        fixed = plan(*common, "--dim", "items=2", "--pas", "autodist")
        assert not any("items=" in p["options"] for p in fixed["search"]["plans"])
        ranks = min(2, len(os.sched_getaffinity(0)))
        done = run(model, *common[1:4], "--dim", "seq=16", "--global-batch", "4", "--pas", "autodist", "--runtime-ngpus",
                   str(ranks), "--measure-topk", "1")
        assert done.returncode == 0, done.stderr
        fastest = json.loads(done.stdout)["search"]["plans"][0]
        assert fastest["measured_micro_batch_s"] > 0 and "--dim items=" in fastest["options"], fastest
        words = [*common[:-4], "--pas", "dp"]
        shaped = plan(*words, "--shape", "input_ids=2,16", "--global-batch", str(samples))
        assert shaped == plan(*words, "--shape", "input_ids=2,16", "--accumulate", str(samples // (2 * devices)))
        inferred = plan(model, *common[4:], "--pas", "autodist")["search"]["plans"]  # micro-batches of stages too
        assert {b for p in inferred for b in re.findall(r"items=(\d+)", p["options"])} >= {"8", "16", "32"}, inferred
    model = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training", "gpt2", "model.onnx")
    refused = run(model, "--train", "--global-batch", "8", "--pas", "autodist", "--runtime-ngpus", "2")
    assert refused.returncode == 2 and "E0205" in refused.stderr and "batch" in refused.stderr, refused.stderr


def inference_in_stages():
    """A sample passes through the stages one after the other, so they are no faster than one rank."""
    words = ("--model-config", "gpt2", "--inference", "--machine", "a100-80", "--dim", "seq=256")
    one, two = (plan(*words, "--pas", pas)["estimate"]["step_s"] for pas in ("dp", "pp:pipeline=2"))
    assert one <= two <= 1.2 * one, (one, two)


def compiled():
    """A searched plan compiles, and is verified like any other."""
    model = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training", "gpt2", "model.onnx")
    with tempfile.TemporaryDirectory() as directory:
        for words in (["compile", model, "--train", "--pas", "autodist", "--plan-ngpus", "2", "-o", directory, "--no-build"],
                      ["verify", os.path.join(directory, "model", "_")]):
            done = call(RANKC, *words, "-q")


def measured():
    """--measure-topk runs the best plans that fit, and takes the fastest of them; --save-machine corrects estimates by
    what it measured."""
    tests = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training")
    ranks = min(2, len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as directory:
        file = os.path.join(directory, "corrected.json")
        for model, training in (("mlp", ["--train"]), ("mlp", [])):
            words = [os.path.join(tests, model, "model.onnx"), *training]
            done = call(RANKC, "plan", *words, "--pas", "autodist", "--runtime-ngpus", str(ranks), "--measure-topk", "2", "--save-machine",
                        file)
            notes = re.findall(r"([\d.e-]+) (s|us) a micro-batch, predicted ([\d.e-]+) (s|us)", done.stderr)
            scale = {"s": 1, "us": 1e-6}
            times = [(float(measured) * scale[a], float(predicted) * scale[b]) for measured, a, predicted, b in notes]
            assert len(times) == 2 and 0 < times[0][0] <= times[1][0], done.stderr
            assert re.search(r", [\d.]+ KiB a rank", done.stderr) and "e-0" not in done.stderr, done.stderr  # of a small model
            with open(file) as text:
                machine = json.load(text)
            factor = math.prod(is_ / was for is_, was in times) ** 0.5
            assert abs(machine["correction"] / factor - 1) < 0.02, (machine["correction"], factor)
        steps = []
        for correction in (machine["correction"], 1):
            with open(file, "w") as text:
                json.dump({**machine, "correction": correction}, text)
            steps.append(plan(*words, "--machine", file)["estimate"]["step_s"])
        assert abs(steps[0] / steps[1] / machine["correction"] - 1) < 1e-6, steps
        model = os.path.join(directory, "pick.rir")
        with open(model, "w") as text:
            text.write('rankc-ir 1\ngraph "pick" level=TYPED\ninput %0 "i" i64[64]\nconst %1 "w" f32[1,4] = [0.5*4]\n'
                       '%2 "j" i64[64] = Add(%0, %0) node="twice"\n%3 "y" f32[64,4] = Gather(%1, %2) axis=0 node="pick"\n'
                       'output %3 "y"\n')
        done = run(model, "--pas", "autodist", "--measure-topk", "1")
        assert done.returncode == 9 and "could be measured: E0382: " in json.loads(done.stderr)["text"], done.stderr
    words += ["--pas", "autodist"]
    for more, code, text in ((("--runtime-ngpus", "4096"), 5, "E0433"),
                             (("--runtime-ngpus", "4096", "--target", "cuda"), 5, "GPU")):
        done = run(*words, "--measure-topk", "2", *more)
        assert done.returncode == code and text in done.stderr, done.stderr
    done = run("--model-config", "gpt2", "--pas", "autodist", "--measure-topk", "1")
    assert done.returncode == 2 and "no weights" in done.stderr, done.stderr


def machine_files():
    """A broken machine file is refused with its line."""
    good = {"format": 1, "name": "x", "memory": 1e10, "bandwidth": 1e10, "traffic": 1, "launch": 0, "attention": 1,
            "overlap": 0, "rates": {"f64": 1e11, "f32": 1e11, "half": 1e11, "fp8": 1e11},
            "peaks": {"f64": 1e11, "f32": 1e11, "half": 1e11, "fp8": 1e11}, "half_extents": [0, 0, 0],
            "levels": [{"bandwidth": 1e9, "latency": 1e-5}]}
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "machine.json")

        def status(machine):
            with open(path, "w") as file:
                json.dump(machine, file, indent=1)
            return run("--model-config", "gpt2", "--machine", path)

        assert status(good).returncode == 0, status(good).stderr
        for key in good:
            if key != "name":
                bad = status({k: v for k, v in good.items() if k != key})
                assert bad.returncode == 3 and "E0396" in bad.stderr and "line" in bad.stderr, (key, bad.stderr)
        level = good["levels"][0]
        for key, value in (("bandwidth", -1), ("launch", "x"), ("levels", []), ("rates", 3), ("speed", 1),
                           ("half_extents", [1, 2]), ("name", 3), ("rates", {**good["rates"], "f32": 0}),
                           ("rates", {**good["rates"], "half": 1e-9}), ("peaks", {**good["peaks"], "f16": 1e11}),
                           ("levels", [{**level, "devices": 8}]), ("levels", [{**level, "devices": 1.5}, level]),
                           ("levels", [{**level, "bysize": [[1, 1e9]]}])):
            bad = status({**good, key: value})
            assert bad.returncode == 3 and "E0396" in bad.stderr, (key, bad.stderr)
    unknown = run("--model-config", "gpt2", "--machine", "h10")
    assert unknown.returncode == 2 and "h100" in unknown.stderr


def main():
    global RANKC
    RANKC = rankc_of(__doc__)
    for case in (published, limits, smallest, pipelines_and_grouped_heads, inference_in_stages, compiled, machine_files, constraints, measured,
                 moves_of_zero, optimum, optimum_of_mixtures, optimum_of_groups, optimum_of_unequal_stages, optimum_of_runs, optimum_of_rings, optimum_of_ranges, generation, generation_of_files, batches_of_files, few_micro_batches, promising):
        case()


if __name__ == "__main__":
    main()
