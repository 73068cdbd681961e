"""--dump-tensors and compare: ranks against one rank, against ONNX Runtime and PyTorch, a program that was changed, and names
that would lead out of the directory."""
import json
import pathlib
import re
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
from rankc_test import call, json_of, needed, printed, rankc_of  # noqa: E402

with needed():
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
MODELS = SOURCE / "samples/models"
OUTSIDE = "../../../outside", "/tmp/rankc-outside", "..", ".", "x" * 1024, "\u00e9/\u4e2d\n'\"%2F"

# PyTorch 2: h = tanh(x @ w), loss = (h * h).mean(), loss.backward()
X = [[1, 2, 3], [-1, 0.5, 2]]
W = [[0.5, -1], [0.25, 2], [-0.75, 0.125]]
H = [[-0.8482836484909058, 0.9976609945297241], [-0.9540452361106873, 0.9780260920524597]]
W_GRADIENT = [[-0.07610014081001282, -0.018924128264188766], [-0.25928908586502075, 0.015289077535271645],
              [-0.4424780607223511, 0.049502283334732056]]


def entries(dump, rank=0):
    return [json.loads(line) for line in (dump / f"rank_{rank}.jsonl").read_text().splitlines()]


def run_gpt2(rankc, work, name, *plan):
    call(rankc, "compile", MODELS / "gpt2.onnx", "-o", work / name, "-q", *plan)
    dump_gpt2(rankc, work, name)


def dump_gpt2(rankc, work, name):
    call(rankc, "run", work / name, "--input", f"input_ids={MODELS / 'gpt2.input_ids.npy'}", "--dump-tensors", "*",
         "--dump-dir", work / (name + ".dump"))


def check_gpt2(rankc, work):
    run_gpt2(rankc, work, "one")
    run_gpt2(rankc, work, "four", "--pas", "hybrid:tensor=2,data=2", "--plan-ngpus", "4")
    one, four = work / "one.dump", work / "four.dump"
    report = json_of(rankc, "compare", one, four, "--json")
    assert report["different"] == 0 and report["first"] is None and len(report["tensors"]) > 60, report
    kinds = {e.get("partial") for e in entries(four)}
    assert kinds == {None, "sum"} and {e["replica"] for e in entries(four, 3)} == {True, False}, kinds
    for dump in one, four:
        report = json_of(rankc, "compare", dump, SOURCE / "tests/cli/gpt2_values", "--json")
        assert len(report["tensors"]) == 5 and report["only_b"] == [] and report["different"] == 0, report
    text = call(rankc, "compare", one, four, "--rtol", "0", "--atol", "0", status=8).stdout
    assert text.startswith("first difference: "), text


def check_changed(rankc, work):
    """A constant of GELU in the source of the ranks."""
    program = work / "four/gpt2/_"
    source = program / "rank_0.c"
    text = source.read_text()
    assert text.count("0.044715f") == 1, "one function for both layers"
    source.write_text(text.replace("0.044715f", "0.054715f"))
    call("make", "-C", program, "build/run")
    dump_gpt2(rankc, work, "four")
    text = call(rankc, "compare", work / "one.dump", work / "four.dump", "-v", status=8).stdout
    first = [line for line in text.splitlines() if line.startswith("first difference")]
    assert len(first) == 1 and "'/transformer/h.0/mlp/act/Mul_3_output_0'" in first[0], text
    assert text.splitlines()[-1].split()[0] != "0", text
    marked = [line for line in text.splitlines() if line.startswith("*")]
    assert marked and all("h.0/mlp" in m or "h.0/Add_1" in m or "h.1" in m or "ln_f" in m or "logits" in m for m in marked), marked


def check_stages(rankc, work):
    """Values that a stage receives while it computes: those of a program without stages."""
    tokens = np.random.default_rng(3).integers(0, 101, (8, 11))
    np.save(work / "ids.npy", tokens)
    for name, plan in ("trained", ["--pas", "dp"]), ("trained2", ["--pas", "pp:pipeline=2"]):
        call(rankc, "compile", MODELS / "gpt2.onnx", "-o", work / name, "-q", "--train", "--loss",
             "cross_entropy:logits=logits,labels=labels", "--optimizer", "sgd:lr=0.1", "--accumulate", "4", *plan)
        call(rankc, "train", work / name, "--data", f"input_ids={work / 'ids.npy'}", "--data", f"labels={work / 'ids.npy'}",
             "--steps", "3", "--dump-tensors", "*", "--dump-dir", work / (name + ".dump"))
    report = json_of(rankc, "compare", work / "trained.dump", work / "trained2.dump", "--json")
    assert report["different"] == 0 and len(report["tensors"]) > 500, report


def make_model(path, names):
    """loss = mean(h * h), h = tanh(x @ w); names: of what the nodes make."""
    value = helper.make_tensor_value_info
    product, h, square = names
    nodes = [helper.make_node("MatMul", ["x", "w"], [product]), helper.make_node("Tanh", [product], [h]),
             helper.make_node("Mul", [h, h], [square]), helper.make_node("ReduceMean", [square], ["loss"], keepdims=0)]
    weight = numpy_helper.from_array(np.array(W, "f4"), "w")
    graph = helper.make_graph(nodes, "g", [value("x", 1, [2, 3])], [value("loss", 1, [])], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def check_training(rankc, work):
    make_model(work / "m.onnx", ("p", "h", "s"))
    np.save(work / "x.npy", np.array(X, "f4"))
    call(rankc, "compile", work / "m.onnx", "-o", work / "m", "--train", "--optimizer", "sgd:lr=1", "-q")
    call(rankc, "train", work / "m", "--data", f"x={work / 'x.npy'}", "--steps", "1", "--dump-tensors", "*", "--dump-dir",
         work / "m.dump")
    found = {e["name"]: np.load(work / "m.dump" / e["file"]) for e in entries(work / "m.dump")}
    expected = np.array(W_GRADIENT, "f4")
    gradients = [n for n, v in found.items() if v.shape == (3, 2) and np.allclose(v, expected, rtol=1e-5, atol=1e-7)]
    assert gradients, {n: v.tolist() for n, v in found.items()}
    updated = [n for n, v in found.items() if v.shape == (3, 2) and np.allclose(v, np.array(W) - expected, rtol=1e-5)]
    assert updated and np.array_equal(found["w"], np.array(W, "f4")), found


def check_names(rankc, work):
    """Every file lies in the directory, and each name has one of its own."""
    np.save(work / "x.npy", np.array(X, "f4"))
    for i in range(0, len(OUTSIDE), 3):
        make_model(work / "h.onnx", OUTSIDE[i:i + 3])
        call(rankc, "compile", work / "h.onnx", "-o", work / "h", "-q", "--reuse", "override")
        before = {p for p in work.rglob("*")}
        call(rankc, "run", work / "h", "--input", f"x={work / 'x.npy'}", "--dump-tensors", "*", "--dump-dir",
             work / f"h{i}.dump")
        made = {p for p in work.rglob("*")} - before
        dump = work / f"h{i}.dump"
        assert all(p == dump or dump in p.parents for p in made), made
        files = [e["file"] for e in entries(dump)]
        assert len(set(files)) == len(files) and all(f.count("/") == 2 and ".." not in f.split("/") for f in files), files
        names = {e["name"] for e in entries(dump)}
        assert names & set(OUTSIDE[i:i + 3]), names
        call(rankc, "compare", dump, dump)
    assert not pathlib.Path("/tmp/rankc-outside").exists()


def convolved(x, w):
    """numpy's sums of the products of windows, with a border of zeros for windows of 3 x 3."""
    edge = w.shape[2] // 2
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (edge, edge), (edge, edge)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64))


def check_images(rankc, work):
    """A program has channels last, a dump the model's dimensions, of parts of channels, too."""
    generator = np.random.default_rng(5)
    x = generator.standard_normal((2, 7, 5, 6)).astype(np.float32)
    weights = [generator.standard_normal(shape).astype(np.float32) for shape in ((34, 7, 3, 3), (9, 34, 1, 1))]
    nodes = [helper.make_node("Conv", ["x", "v"], ["a"], pads=[1, 1, 1, 1]), helper.make_node("Tanh", ["a"], ["b"]),
             helper.make_node("Conv", ["b", "w"], ["c"]), helper.make_node("Abs", ["c"], ["d"]),
             helper.make_node("Sin", ["d"], ["y"])]
    graph = helper.make_graph(nodes, "images", [helper.make_tensor_value_info("x", 1, x.shape)],
                              [helper.make_tensor_value_info("y", 1, (2, 9, 5, 6))],
                              [numpy_helper.from_array(w, name) for w, name in zip(weights, "vw")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), work / "images.onnx")
    np.save(work / "x.npy", x)
    values = work / "images.values"
    values.mkdir()
    b = np.tanh(convolved(x, weights[0]))
    for name, value in ("b", b), ("y", np.sin(np.abs(convolved(b, weights[1])))):
        np.save(values / f"{name}.npy", value.astype(np.float32))
    for name, plan in ("whole", []), ("parts", ["--pas", "tp:tensor=2"]):
        call(rankc, "compile", work / "images.onnx", "-o", work / name, "-q", *plan)
        assert "rt_conv_packed_f32" in (work / name / "images/_/rank_0.c").read_text(), "the program has channels last"
        call(rankc, "run", work / name, "--input", f"x={work / 'x.npy'}", "--dump-tensors", "*", "--dump-dir", work / (name + ".dump"))
        report = json_of(rankc, "compare", work / (name + ".dump"), values, "--json")
        assert report["different"] == 0 and report["only_b"] == [], report
        b_shapes = {tuple(e["shape"]) for e in entries(work / (name + ".dump")) if e["name"] == "b"}
        assert b_shapes == {(2, 34, 5, 6)}, b_shapes


def check_errors(rankc, work):
    run = [rankc, "run", work / "one", "--input", f"input_ids={MODELS / 'gpt2.input_ids.npy'}"]
    error = call(*run, "--dump-tensors", "nothing*", status=2).stderr
    assert "no tensor or node of the program matches 'nothing*'" in error, error
    error = call(*run, "--dump-tensors", "*", "--dump-dir", "/proc/none", status=6).stderr
    assert "cannot make directory '/proc/none'" in error, error
    call(*run, "--dump-dir", work / "unused", status=2)
    call(rankc, "compare", work / "one.dump", status=2)
    call(rankc, "compare", work / "one.dump", work / "one", status=3)
    call(rankc, "compare", work / "one.dump", work / "none", status=6)
    index = work / "one.dump/rank_0.jsonl"
    text = index.read_text()
    for bad in text.replace('"file": "step_1', '"file": "../step_1'), text.replace("[[0, 2]]", "[[0, 3]]"), "{}\n":
        index.write_text(bad)
        call(rankc, "compare", work / "one.dump", work / "one.dump", status=3)
    index.write_text(text[:-9])  # the process was killed
    out, error = printed(rankc, "compare", work / "one.dump", work / "one.dump")
    assert "the last line is incomplete and left out" in error and out.startswith("0 of "), (out, error)
    assert int(out.split()[2]) == len(text.splitlines()) - 1, out
    call(rankc, "compile", MODELS / "gpt2.onnx", "-o", work / "stages", "-q", "--pas", "pp", "--plan-ngpus", 2)
    error = call(rankc, "run", work / "stages", "--random-inputs", "--dump-tensors", "*lm_head*", "--dump-dir", work / "s").stderr
    assert re.search(r"dumped [1-9]\d* tensors? of \d+, counted on each of 2 ranks", error), error  # all of them on rank 1


def main():
    rankc = rankc_of(__doc__)
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        for check in (check_gpt2, check_changed, check_stages, check_training, check_names, check_images,
                      check_errors):
            check(rankc, work)


main()
