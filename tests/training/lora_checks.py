#!/usr/bin/python3
"""What low-rank adapters do beside the steps that lora.py compares.

    lora_checks.py --rankc RANKC [--hash-file PROGRAM] [CHECK...]

  merged    `ckpt to-onnx` adds the adapters of a checkpoint to the weights: logits within 1e-5 of peft's, also where an embedding is
            tied to the logits, and of a decoder with caches that either exporter of PyTorch wrote; with --hash-file, which seals what was
            edited, a checkpoint whose matrices have another r than its rules is refused
  decoders  `--adapter` finds the modules of such a decoder, beside its weights or merged, and lists what has no place; so does
            --weight-dtype
  dropout   losses, norms and adapters are those of one rank under every plan; without dropout they are others; the mean of the
            gradients of many micro-batches goes to that without dropout; evaluation has none
  sets      of adapters of stacks in one program, with another r and on other parameters, each one gives peft's logits
  own       an adapter of which some stacks have an r or alpha of their own is trained and written again as it was read; an expression
            that names such stacks, and an r that does not fit, are refused
  fp8       --fp8 computes the frozen products and the adapters in 8 bits: losses near those in f32, two units as one bit for bit"""
import json
import os
import sys
import tempfile

from harness import call, expect, lines_of, needed, parser_of, plan_of, read_json, report
from lora import BOUND, folder_of, input_of, worst_of
from train import tensors_of

with needed():
    import numpy as np
    import onnx.helper

LOSS = ["--loss", "cross_entropy:logits=logits,labels=labels"]
WRITER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../samples/generate/writer.onnx")


def model_of(case):
    return os.path.dirname(folder_of(case))


def data_of(case):
    return [word for name in (input_of(case), "labels") for word in ("--data", f"{name}={model_of(case)}/{name}.npy")]


def logits_differ(rankc, model, options, case, work):
    """How far the logits of a compiled model are from those of peft with trained-1, relative to the largest."""
    work = tempfile.mkdtemp(dir=work)
    np.save(f"{work}/x.npy", np.load(f"{model_of(case)}/{input_of(case)}.npy")[:2])
    call(rankc, "compile", model, "-o", f"{work}/run", "-q", *options)
    call(rankc, "run", f"{work}/run", "--input", f"{input_of(case)}={work}/x.npy", "--output-dir", f"{work}/outputs", "-q")
    ours, theirs = np.load(f"{work}/outputs/logits.npy"), np.load(f"{folder_of(case)}/logits.npy")
    return abs(ours - theirs).max() / abs(theirs).max()


def checkpoint_of(rankc, case, plan, options, work):
    """A checkpoint of adapters that peft trained."""
    call(rankc, "compile", f"{model_of(case)}/model.onnx", "-o", f"{work}/train", "-q", "--train", *LOSS, "--adapter", f"{folder_of(case)}/trained-1",
         "--optimizer", "sgd:lr=0", *plan_of(plan).options, *options)
    call(rankc, "train", f"{work}/train", *data_of(case), "--steps", 1, "--checkpoint-dir", f"{work}/checkpoints", "-q")
    return f"{work}/checkpoints"


DECODER = ["--state", "auto", "--dim", "batch=2", "--dim", "sequence=1..9", "--dim", "past=0..9"]


def refuse_edited(rankc, hash_file, checkpoints, work):
    """Rules of a larger r than the matrices have."""
    step = os.path.join(checkpoints, os.listdir(checkpoints)[0], "checkpoint.json")
    with open(step, encoding="utf-8") as file:
        text = file.read()
    expect(":r=4," in text, text)
    with open(step, "w", encoding="utf-8") as file:
        file.write(text.replace(":r=4,", ":r=4000,"))
    call(sys.executable, os.path.join(os.path.dirname(WRITER), "../../tests/cli/seal.py"), hash_file, step)
    said = call(rankc, "ckpt", "to-onnx", checkpoints, f"{model_of('experts/experts')}/model.onnx", f"{work}/none.onnx", status=8).stderr
    expect("no matrices of that rule for 'experts.0.down'" in said, said)


def merged(rankc, work, hash_file):
    worst = 0
    for case, plan, options, said in (("gpt2/all", "tp2", [], "0 parameters, 9 adapters merged"),
                                      ("gpt2/attention", "one", ["--param", "*.ln_1.*:train"], "2 parameters, 2 adapters merged"),
                                      ("llama/all", "one", [], "0 parameters, 14 adapters merged"),
                                      ("gpt2/embedding", "tp2", [], "0 parameters, 4 adapters merged"),
                                      ("mixtral/stacks", "one", [], "0 parameters, 6 adapters merged"),
                                      ("mixtral/router", "one", [], "0 parameters, 4 adapters merged"),
                                      ("stacks/stacks", "tp2", [], "0 parameters, 3 adapters merged"),
                                      ("tied/logits", "one", ["--param", "lm_head.weight:train"], "1 parameter, 3 adapters merged"),
                                      ("tied/both", "one", [], "0 parameters, 2 adapters merged"),
                                      ("experts/experts", "one", [], "0 parameters, 8 adapters merged")):
        folder = os.path.join(work, case.replace("/", "-"))
        checkpoints = checkpoint_of(rankc, case, plan, options, folder)
        models = [("model.onnx", []), *([("decode_dynamo.onnx", DECODER), ("decode_legacy.onnx", DECODER)] if case == "llama/all" else [])]
        for model, options in models:
            done = call(rankc, "ckpt", "to-onnx", checkpoints, f"{model_of(case)}/{model}", f"{folder}/merged.onnx")
            expect(said in done.stdout, done.stdout)
            apart = logits_differ(rankc, f"{folder}/merged.onnx", options, case, folder)
            expect(apart <= BOUND, f"{case} {model}: logits differ by {apart}")
            worst = max(worst, apart)
    foreign = call(rankc, "ckpt", "to-onnx", checkpoints, f"{model_of('llama/all')}/model.onnx", f"{work}/none.onnx", status=8).stderr
    expect("no product for the adapter of 'experts.0.down'" in foreign and "nor for that of 'experts.3.up'" in foreign, foreign)
    if hash_file:
        refuse_edited(rankc, hash_file, checkpoints, work)
    expect(not os.path.exists(f"{work}/none.onnx"), "a model was written")
    return f"{worst:.1e}"


def decoders(rankc, work, _):
    worst = 0
    for exporter in ("dynamo", "legacy"):
        model = f"{model_of('llama/all')}/decode_{exporter}.onnx"
        for merge in ("", ":merge"):
            apart = logits_differ(rankc, model, [*DECODER, "--adapter", f"{folder_of('llama/all')}/trained-1{merge}"], "llama/all", work)
            expect(apart <= BOUND, f"{exporter}{merge}: logits differ by {apart}")
            worst = max(worst, apart)
        call(rankc, "compile", model, "-o", f"{work}/small-{exporter}", "-q", *DECODER, "--weight-dtype", "*q_proj.weight=int4:group=16")
        ops = [i["op"] for i in read_json(f"{work}/small-{exporter}/decode_{exporter}/_", "manifest.json")["instructions"]]
        expect(ops.count("DequantMatMul") == 2, f"{exporter}: {ops}")
        refused = call(rankc, "compile", model, "-o", f"{work}/no", *DECODER, "--adapter", f"{folder_of('gpt2/all')}/trained-1", status=8).stderr
        for module in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
            expect(all(f"of 'transformer.h.{layer}.{module}'" in refused for layer in (0, 1)), refused)
        expect("lm_head" not in refused, refused)  # has its place
    return f"{worst:.1e}"


def sets(rankc, work, _):
    worst, cases = 0, ("mixtral/stacks", "mixtral/down", "mixtral/own")
    np.save(f"{work}/x.npy", np.load(f"{model_of(cases[0])}/input_ids.npy")[:2])
    call(rankc, "compile", f"{model_of(cases[0])}/model.onnx", "-o", f"{work}/run", "-q", *plan_of("tp2").options,
         *(word for case in cases for word in ("--adapter", f"{folder_of(case)}/trained-1:name={os.path.basename(case)}")))
    for case in cases:
        call(rankc, "run", f"{work}/run", "--adapter", os.path.basename(case), "--input", f"input_ids={work}/x.npy", "--output-dir",
             f"{work}/{case}", "-q")
        ours, theirs = np.load(f"{work}/{case}/logits.npy"), np.load(f"{folder_of(case)}/logits.npy")
        apart = abs(ours - theirs).max() / abs(theirs).max()
        expect(apart <= BOUND, f"{case}: logits differ by {apart}")
        worst = max(worst, apart)
    return f"{worst:.1e}"


def check_open_sizes(rankc, work):
    """A model of open sizes is imported more than once, and its stack is adapted once."""
    value, w = onnx.helper.make_tensor_value_info, np.ones((3, 4, 5), "f4")
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "experts.up"], ["y"])], "g", [value("x", 1, (3, "n", 4))],
                                   [value("y", 1, (3, "n", 5))], [onnx.helper.make_tensor("experts.up", 1, w.shape, w.ravel())])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8), f"{work}/open.onnx")
    os.mkdir(f"{work}/ones")
    with open(f"{work}/ones/adapter_config.json", "w", encoding="utf-8") as file:
        json.dump({"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_parameters": ["experts.up"]}, file)
    header = json.dumps({f"base_model.model.experts.lora_{letter}.weight": {"dtype": "F32", "shape": shape, "data_offsets": offsets}
                         for letter, shape, offsets in (("A", [6, 4], [0, 96]), ("B", [5, 6], [96, 216]))}).encode()
    with open(f"{work}/ones/adapter_model.safetensors", "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header + np.ones(54, "f4").tobytes())
    call(rankc, "compile", f"{work}/open.onnx", "-o", f"{work}/open", "-q", "--dim", "n=1..7", "--adapter", f"{work}/ones")
    np.save(f"{work}/x.npy", np.ones((3, 2, 4), "f4"))
    call(rankc, "run", f"{work}/open", "--input", f"x={work}/x.npy", "--output-dir", f"{work}/y", "-q")
    y = np.load(f"{work}/y/y.npy")
    expect((y == 4 * (1 + 2)).all(), f"{y}")


def own(rankc, work, _):
    check_open_sizes(rankc, work)
    case, start = "mixtral/own", f"{folder_of('mixtral/own')}/trained-1"
    model = f"{model_of(case)}/model.onnx"
    call(rankc, "ckpt", "to-peft", checkpoint_of(rankc, case, "one", [], work), f"{work}/written", "-q")
    trained, written = (tensors_of(f"{folder}/adapter_model.safetensors") for folder in (start, f"{work}/written"))
    expect(trained == written, "other matrices are written")
    apart = logits_differ(rankc, model, ["--adapter", f"{work}/written"], case, work)
    expect(apart <= BOUND, f"logits differ by {apart}")
    config = read_json(start, "adapter_config.json")
    for odd, status, wrong in (({"alpha_pattern": {".*down_proj": 4}}, 3, "'.*down_proj'"), ({"rank_pattern": {"down_proj|up": 3}}, 3, "'down_proj|up'"),
                               ({"rank_pattern": {"down_proj": 2.5}}, 3, "'down_proj'"), ({"rank_pattern": {"down_proj": 5}}, 8, "12 rows"),
                               ({"rank_pattern": {"down_proj": 6}}, 8, "2 matrices of 6 rows")):
        with open(f"{work}/written/adapter_config.json", "w", encoding="utf-8") as file:
            json.dump({**config, **odd}, file)
        said = call(rankc, "compile", model, "-o", f"{work}/no", "-q", "--adapter", f"{work}/written", status=status).stderr
        expect(wrong in said, said)
    return f"{apart:.1e}"


class Dropped:
    """Runs of llama with adapters that drop inputs."""
    DATA = data_of("llama/all")

    def __init__(self, rankc, work):
        self.rankc, self.work = rankc, work

    def train(self, plan, micro_batches, dropout, optimizer, steps):
        """The metrics, and the adapters at the end."""
        work, units = tempfile.mkdtemp(dir=self.work), plan_of(plan).units
        out, log = f"{work}/out", f"{work}/log.jsonl"
        call(self.rankc, "compile", f"{model_of('llama/all')}/model.onnx", "-o", out, "-q", "--train", *LOSS,
             "--lora", f"*_proj:r=4,alpha=8,dropout={dropout}", "--optimizer", optimizer, "--accumulate", micro_batches // units,
             *plan_of(plan).options)
        call(self.rankc, "verify", out, "-q")
        call(self.rankc, "train", out, *self.DATA, "--steps", steps, "--log", log, "--threads", 1, "--checkpoint-dir", f"{work}/kept")
        call(self.rankc, "ckpt", "merge", f"{work}/kept", f"{work}/kept.safetensors", "-q")
        return lines_of(log), tensors_of(f"{work}/kept.safetensors")


def difference_of(run, other):
    """Of losses, norms and adapters, checked, relative to the other's."""
    def each():
        for ours, theirs in zip(run[0], other[0]):
            yield from ((f"step {ours['step']}: {key}", ours[key], theirs[key], theirs[key]) for key in ("loss", "grad_norm"))
        for name, values in run[1].items():
            scale = max(map(abs, other[1][name]))
            yield from ((f"{name}[{i}]", a, b, scale) for i, (a, b) in enumerate(zip(values, other[1][name])))
    return worst_of(each())


def mean_gradients(dropped, dropout, micro_batches):
    """The gradients of all B after one step, which a rate of 1 subtracts from zeros."""
    adapters = dropped.train("one", micro_batches, dropout, "sgd:lr=1", 1)[1]
    return np.concatenate([adapters[name] for name in sorted(adapters) if name.endswith("lora_B.weight")])


def dropout(rankc, work, _):
    dropped = Dropped(rankc, work)
    optimizer = "adamw:lr=0.003,eps=1e-4"
    one = dropped.train("one", 2, 0.25, optimizer, 8)
    worst = {plan: difference_of(dropped.train(plan, 2, 0.25, optimizer, 8), one)
             for plan in ("one+recompute=full", "dp2+use-zero=3", "tp2pp2", "context2")}
    plain = dropped.train("one", 2, 0, optimizer, 8)
    apart = abs(one[0][-1]["loss"] - plain[0][-1]["loss"]) / plain[0][-1]["loss"]
    expect(apart > 100 * BOUND, f"dropout changes the loss by {apart} alone")
    exact = mean_gradients(dropped, 0, 7)  # the samples once: B is zero, so that the gradient is linear in what is dropped
    few, many = (np.linalg.norm(mean_gradients(dropped, 0.25, 7 * times) - exact) / np.linalg.norm(exact) for times in (1, 64))
    expect(few > 0.05 and many < few / 4, f"the mean gradient is {few} from that without dropout, then {many}")  # sqrt(64) is 8
    return f"{worst}, mean gradient {few:.3f} then {many:.3f}"


def fp8(rankc, work, _):
    with open(f"{work}/text.bin", "w", encoding="ascii") as text:
        text.write("Rough winds do shake the darling buds of May, and summer's lease\n" * 32)
    base = [WRITER, "-q", "--train", "--dim", "batch=2", "--dim", "sequence=64", "--dim", "total=64", "--dim", "past=0", "--bind", "attention_mask=1",
            "--bind", "position_ids=" + ",".join(map(str, range(64))), *LOSS, "--lora", "*_proj:r=16,alpha=16", "--optimizer", "adamw:lr=0.01"]
    runs = {}
    for name, options in (("f32", ["--accumulate", "2"]), ("fp8", ["--accumulate", "2", "--fp8", "hybrid"]),
                          ("fp8 dp2", [*plan_of("dp2").options, "--fp8", "hybrid"])):
        out, log = f"{work}/{name}", f"{work}/{name}.jsonl"
        call(rankc, "compile", *base, "-o", out, *options)
        call(rankc, "verify", out, "-q")
        call(rankc, "train", out, "--data", f"input_ids={work}/text.bin:u8", "--data", f"labels={work}/text.bin:u8:shift=1", "--shuffle", 1,
             "--steps", 30, "--log", log, "--threads", 1)
        runs[name] = [line["loss"] for line in lines_of(log)]
    expect(runs["fp8"] == runs["fp8 dp2"], f"two units have other losses: {runs}")
    first, last = runs["fp8"][0], runs["fp8"][-1]
    expect(runs["fp8"] != runs["f32"] and last < 0.3 * first and abs(last - runs["f32"][-1]) < 0.1 * (first - last), f"losses {runs}")
    return f"{last:.4f}, in f32 {runs['f32'][-1]:.4f}"


CHECKS = {check.__name__: check for check in (merged, decoders, sets, own, dropout, fp8)}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("checks", nargs="*", default=list(CHECKS))
    parser.add_argument("--hash-file")
    options = parser.parse_args()
    return report([(name, lambda work, name=name: CHECKS[name](options.rankc, work, options.hash_file)) for name in options.checks])


if __name__ == "__main__":
    sys.exit(main())
