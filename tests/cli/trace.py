"""--trace and --profile of run and train: every instruction of every rank, nested and in order, and where the time went."""
import collections
import json
import pathlib
import re
import resource
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
from rankc_test import call, json_of, manifest_of, parser_of  # noqa: E402

TESTS = pathlib.Path(__file__).resolve().parent.parent
STEPS, INSTRUCTIONS, COMMUNICATION = range(3)


def spans(trace, pid, tid):
    return [e for e in trace["traceEvents"] if e["ph"] == "X" and (e["pid"], e["tid"]) == (pid, tid)]


def end(span):
    return span["ts"] + span["dur"]


def check_spans(trace, manifest, ranks, steps, micro_batches=1):
    """Every instruction of manifest.json is there for each rank and step; spans of a track are in order or nested."""
    for rank in range(ranks):
        names = [e["args"].get("name") for e in trace["traceEvents"] if e["ph"] == "M" and e["pid"] == rank]
        assert f"rank {rank}" in names, names
        outer = spans(trace, rank, STEPS)
        assert [s["args"]["step"] for s in outer] == steps, outer
        inner = spans(trace, rank, INSTRUCTIONS)
        assert all(b["ts"] >= end(a) - 1e-6 for a, b in zip(inner, inner[1:])), "instructions overlap"
        for step in outer:
            within = [s for s in inner if s["args"]["step"] == step["args"]["step"]]
            assert all(step["ts"] <= s["ts"] and end(s) <= end(step) + 1e-6 for s in within)
            expected = {tuple(row[:1]) for row in manifest["work"][rank_class(manifest, rank)]}
            assert {(s["args"]["instruction"],) for s in within} == expected, (rank, step)
            assert {s["args"]["micro_batch"] for s in within} == set(range(micro_batches)), within
        for s in inner:
            node = manifest["instructions"][s["args"]["instruction"]]
            assert s["name"] == f'{node["op"]} {node["node"]}' and s["args"]["bytes"] >= 0 and s["args"]["flops"] >= 0, s
        calls = spans(trace, rank, COMMUNICATION)
        for a, b in zip(calls, calls[1:]):
            nested = a["ts"] <= b["ts"] and end(b) <= end(a) + 1e-6
            assert b["ts"] >= end(a) - 1e-6 or (nested and b["cat"] == "waiting") or a["cat"] == "waiting", (a, b)


def rank_class(manifest, rank):
    return rank % len(manifest["work"])


def check_memory(trace, manifest, ranks, in_flight=None):
    """Each rank has counters of its memory: what is stored is there all the time, and what is live has the plan's peak.
    in_flight: of each stage, micro-batches whose values are kept at the same time."""
    for rank in range(ranks):
        counters = [e for e in trace["traceEvents"] if e["ph"] == "C" and e["pid"] == rank]
        assert len(counters) > 4 and all(e["name"] == "memory" for e in counters), counters
        assert [e["ts"] for e in counters] == sorted(e["ts"] for e in counters)
        about = manifest["classes"][rank_class(manifest, rank)]
        planned, live = about["memory"], about["live"]
        for kind in ("weights", "gradients", "optimizer"):
            assert {e["args"].get(kind, 0) for e in counters} == {planned[kind]}, (kind, counters[0], planned)
        assert max(e["args"].get("scratch", 0) for e in counters) <= planned["scratch"]
        together = [e["args"].get("activations", 0) + e["args"].get("communication", 0) for e in counters]
        assert max(together) <= planned["activations"] + planned["communication"] + live["inputs"], (together, planned)
        assert together[-1] == live["inputs"], together  # behind the last step
        slots = sum(slot[2] + slot[3] for slot in live["slots"])
        if not slots:
            assert max(together) == live["held"] + max(a + c for a, c in zip(live["activations"], live["communication"])), (together, live)
        if in_flight:
            assert slots and live["held"] == slots * in_flight[rank] + live["inputs"], (live, in_flight)
            assert max(together) >= live["held"] > max(together) - slots - max(
                a + c for a, c in zip(live["activations"], live["communication"])), (together, live)


def check_collectives(trace):
    """A collective ends on no rank before it began on all."""
    both = [[s for s in spans(trace, rank, COMMUNICATION) if s["name"] == "all_reduce"] for rank in range(2)]
    assert len(both[0]) == len(both[1]) > 0
    for a, b in zip(*both):
        assert a["args"]["of"] == b["args"]["of"] and a["args"]["bytes"] == b["args"]["bytes"], (a, b)
        assert max(a["ts"], b["ts"]) <= min(end(a), end(b)) + 1, (a, b)


def check_profile(profile, steps, ranks):
    assert profile["steps"] == steps and profile["ranks"] == ranks, profile
    for rows in (profile["operators"], profile["layers"]):
        total = sum(row["ms"] for row in rows)
        assert abs(total - profile["instructions_ms"]) < 1e-6, (total, profile)
        assert 0.9 * profile["step_ms"] <= total <= profile["step_ms"] + 1e-6, (total, profile)
    assert any(row["name"] == "MatMul" and row["flops"] > 0 for row in profile["operators"])


def check_errors(run, work):
    for wrong in ("0:1", "2:1", "3", "a:b", "1:2:3", "", "1:99999999999"):
        assert "--trace-steps" in call(*run, "--trace", work / "x.json", "--trace-steps", wrong, status=2).stderr, wrong
    assert "E0611" in call(*run, "--trace", "/dev/null/none/x.json", status=6).stderr
    assert "No space left" in call(*run, "--trace", "/dev/full", status=6).stderr
    limited = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
    assert "E0611" in call(*run, "--comm", "loopback", "--trace", work / "x.json", status=6, preexec_fn=limited).stderr
    assert "E0916" in call(*run, "--trace", work / "x.json", "--trace-steps", "50:60").stderr
    (work / "machine.json").write_text("{}")
    assert "E0396" in call(*run, f"--profile={work}/machine.json", status=3).stderr


def check_machines(rankc, run, work):
    """A profile says whose peaks it compares with: a file's, a named machine's, those of the compile, or nobody's."""
    peaks = lambda *words: re.search("^peaks .*", call(*words).stdout, re.M)[0]
    (work / "peak.json").write_text(json.dumps({"bandwidth": 1e10, "rates": {"f32": 1e11}}))
    assert peaks(*run, f"--profile={work}/peak.json") == f"peaks of a rank: 100.0 GFLOP/s, 10.00 GB/s, of {work}/peak.json"
    (work / "peak.json").write_text(json.dumps({"name": "mine", "bandwidth": 1e10, "rates": {"f32": 2e11}, "peaks": {"f32": 3e11}}))
    assert peaks(*run, f"--profile={work}/peak.json") == f"peaks of a rank: 300.0 GFLOP/s, 10.00 GB/s, of mine ({work}/peak.json)"
    # data sheets: 67 TFLOP/s in f32 and 3.35 TB/s; 19.5 and 2
    assert peaks(*run, "--profile=h100") == "peaks of a rank: 67000.0 GFLOP/s, 3350.00 GB/s, of h100"
    unknown = call(*run, "--profile=h10", status=2).stderr
    assert "E0396" in unknown and "--> --profile" in unknown and "did you mean 'h100'" in unknown, unknown
    assert peaks(*run, "--profile").startswith("peaks are not known"), "no machine was named"
    other = work / "for a machine"
    call(rankc, "compile", TESTS / "models/gpt2/model.onnx", "-o", other, "--dim", "batch=2", "--dim", "seq=1..11@5", "--machine",
         "a100-80", "-q")
    run = [rankc, "run", other, "--random-inputs"]
    assert peaks(*run, "--profile") == "peaks of a rank: 19500.0 GFLOP/s, 2000.00 GB/s, of a100-80 (--machine of the compile)"
    assert json_of(*run, "--profile", "--json")["profile"]["machine"] == "a100-80 (--machine of the compile)"
    assert peaks(*run, "--profile=h100").endswith("of h100")


def check_sizes(rankc, work):
    """A program with open sizes counts bytes and operations at those of the run, as one that was compiled for them; it
    computes positions in addition, which the other one has as constants."""
    counted = []
    for name, dim in (("open", "seq=1..11@5"), ("fixed", "seq=3")):
        call(rankc, "compile", TESTS / "models/gpt2/model.onnx", "-o", work / name, "--dim", "batch=2", "--dim", dim, "-q")
        run = [rankc, "run", work / name, "--random-inputs", "--profile", "--json", "--trace", work / f"{name}.json"]
        rows = json_of(*run, *(["--dim", "seq=3"] if name == "open" else []))["profile"]["operators"]
        events = [s["args"] for s in spans(json.loads((work / f"{name}.json").read_text()), 0, INSTRUCTIONS)]
        for op in ("MatMul", "Attention", "LayerNorm", "Add"):
            counted += [(name, op, row["bytes"], row["flops"]) for row in rows if row["name"] == op]
            traced = [event for event in events if event["operator"] == op]
            assert counted[-1][2:] == tuple(sum(event[key] for event in traced) for key in ("bytes", "flops")), (counted, traced)
    assert len(counted) == 8 and [row[1:] for row in counted[:4]] == [row[1:] for row in counted[4:]], counted


def check_run(rankc, work):
    model = work / "gpt"
    call(rankc, "compile", TESTS / "models/gpt2/model.onnx", "-o", model, "--dim", "batch=2", "--dim", "seq=11", "--pas",
         "tp", "--plan-ngpus", 2, "-q")
    manifest = manifest_of(model)
    run = [rankc, "run", model, "--random-inputs"]
    plain = call(*run).stdout
    for comm in ("shm", "loopback"):
        trace = work / f"{comm}.json"
        out = call(*run, "--comm", comm, "--trace", trace, "--trace-steps", "2:3", "--repeat", 5, "--warmup", 1).stdout
        assert out.splitlines()[0] == plain.strip(), "tracing changes results"
        trace = json.loads(trace.read_text())
        check_spans(trace, manifest, 2, [2, 3])
        check_memory(trace, manifest, 2)
        check_collectives(trace)
    text = call(*run, "--repeat", 3, "--profile").stdout
    assert "profile of 3 steps, mean of 2 ranks" in text and "  MatMul " in text, text
    operators = json_of(*run, "--profile", "--json")["profile"]["operators"]
    expected = collections.Counter(i["op"] for i in manifest["instructions"])
    assert {row["name"]: row["calls"] for row in operators} == expected, (operators, expected)
    (work / "peak.json").write_text(json.dumps({"bandwidth": 1e10, "rates": {"f32": 1e11}}))
    check_machines(rankc, run, work)
    check_errors(run, work)


def check_train(rankc, work):
    """Two pipeline stages, each with two micro-batches, and with sums that overlap computation."""
    data, model = TESTS / "training/mlp", work / "mlp"
    call(rankc, "compile", data / "model.onnx", "--train", "-o", model, "--pas", "pp", "--plan-ngpus", 2, "--accumulate", 2,
         "-q")
    manifest = manifest_of(model)
    train = [rankc, "train", model, "--data", f"target={data}/target.npy", "--data", f"x={data}/x.npy", "--steps", 14]
    plain = json_of(*train, "--json")["losses"]
    result = json_of(*train, "--json", "--trace", work / "t.json", "--profile")
    assert result["losses"] == plain, "tracing changes losses"
    trace = json.loads((work / "t.json").read_text())
    check_spans(trace, manifest, 2, list(range(1, 11)), 2)  # the first ten steps
    check_memory(trace, manifest, 2, [2, 1])  # 1f1b: the first stage is one micro-batch ahead
    names = {s["name"] for rank in range(2) for s in spans(trace, rank, COMMUNICATION)}
    assert {"post_send", "post_receive", "wait"} <= names, names
    assert result["profile"]["steps"] == 10 and result["profile"]["ranks"] == 2


def check_sum(rankc, work):
    """The rows of a profile sum up to the step."""
    model = work / "gpt_train"
    call(rankc, "compile", TESTS / "training/gpt2/model.onnx", "--train", "-o", model, "-q")
    inputs = {path.stem: path for path in (TESTS / "training/gpt2").glob("*.npy")}
    names = [entry["name"] for entry in manifest_of(model)["inputs"]]
    data = [word for name in names for word in ("--data", f"{name}={inputs[name]}")]
    result = json_of(rankc, "train", model, *data, "--steps", 4, "--profile", "--json")
    check_profile(result["profile"], 4, 1)


def check_modules(rankc, work):
    """Nodes are called node_MatMul_1; the exporter's metadata has their modules and lines."""
    model = work / "origin"
    call(rankc, "compile", TESTS / "cli/origin/model.onnx", "-o", model, "-q")
    run = [rankc, "run", model, "--random-inputs", "--trace", work / "o.json", "--profile", "--json"]
    layers = {row["name"] for row in json_of(*run)["profile"]["layers"]}
    assert {"embed", "layers.0", "layers.1", "layers.2", "layers.3"} <= layers and not any("node_" in l for l in layers), layers
    inner = spans(json.loads((work / "o.json").read_text()), 0, INSTRUCTIONS)
    assert any(s["args"].get("module") == "layers.0.norm" and "net.py:23" in s["args"]["from"] for s in inner), inner


def check_cuda(rankc, work):
    """Instructions are timed by events in the stream. Further steps are executed as graphs again."""
    data, model = TESTS / "training/mlp", work / "mlp"
    call(rankc, "compile", data / "model.onnx", "--train", "-o", model, "--target", "cuda", "--pas", "tp", "--plan-ngpus", 2,
         "--accumulate", 2, "-q")
    manifest = manifest_of(model)
    train = [rankc, "train", model, "--comm", "loopback", "--data", f"target={data}/target.npy", "--data", f"x={data}/x.npy",
             "--steps", 5, "--json"]
    plain = json_of(*train)["losses"]
    result = json_of(*train, "--trace", work / "t.json", "--trace-steps", "2:3", "--profile")
    assert result["losses"] == plain and result["profile"]["steps"] == 2, result
    trace = json.loads((work / "t.json").read_text())
    check_spans(trace, manifest, 2, [2, 3], 2)
    check_memory(trace, manifest, 2)
    assert all(any(s["dur"] > 0 for s in spans(trace, rank, INSTRUCTIONS)) for rank in range(2))


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--cuda", action="store_true")
    args = parser.parse_args()
    rankc = args.rankc
    with tempfile.TemporaryDirectory() as work:
        if args.cuda:
            return check_cuda(rankc, pathlib.Path(work))
        check_run(rankc, pathlib.Path(work))
        check_sizes(rankc, pathlib.Path(work))
        check_train(rankc, pathlib.Path(work))
        check_sum(rankc, pathlib.Path(work))
        check_modules(rankc, pathlib.Path(work))


main()
