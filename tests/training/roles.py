#!/usr/bin/python3
"""Which initializers are parameters: exports of one model in four ways, against its named_parameters and its losses.

    roles.py --rankc RANKC [CHECK..]

The models and what PyTorch says of them: roles/record.py."""
import functools
import json
import math
import os
import sys

from harness import HERE, call, expect, lines_of, parser_of, report

FOLDER = os.path.join(HERE, "roles")
LOSS = ["--train", "--loss", "cross_entropy:logits=logits,labels=labels"]
# What the exporter has computed of parameters: by its name, of which one. The parameter may be there as well.
COMPUTED = {"dynamo": {"mul_14": "p", "exp": "logit_scale"}}
# Parameters that the exporter stored transposed under another name, without saying of what.
RENAMED = {"legacy": {"onnx::MatMul_167": "attn.qkv.weight", "onnx::MatMul_185": "attn.proj.weight",
                      "onnx::MatMul_186": "fc.weight", "onnx::MatMul_187": "out.weight", "onnx::PRelu_188": "prelu.weight"}}
BOUND = 1e-5 # of a loss: PyTorch's sums are in another order


def model(name):
    return os.path.join(FOLDER, name + ".onnx")


def reference():
    with open(os.path.join(FOLDER, "reference.json")) as file:
        return json.load(file)


def planned(rankc, name, *options):
    return json.loads(call(rankc, "plan", model(name), *LOSS, "--json", *options).stdout)


def check_parameters(rankc, work, name):
    """Those that are trained are PyTorch's, each once."""
    wanted, computed = reference()["parameters"], COMPUTED.get(name, {})
    found = {}
    for parameter in planned(rankc, name)["parameters"]:
        own = parameter["name"]
        expect(parameter["trained"], f"{own} is not trained")
        expect((own in computed) == ("doubt" in parameter), f"{own}: doubt is {parameter.get('doubt')}")
        source = RENAMED.get(name, {}).get(own) or parameter.get("computed_from", own)
        if own in computed:
            expect(source == computed[own], f"{own} is of {source}")
        if own not in computed or source not in found:
            expect(source not in found or source in computed.values(), f"{source} is there twice")
            expect(math.prod(parameter["shape"]) == math.prod(wanted[source]), f"{source} has shape {parameter['shape']}")
            found[source] = own
    expect(set(found) == set(wanted), f"trained are {sorted(found)}, not {sorted(wanted)}")
    return f"{len(found)} parameters"


def check_constants(rankc, work, name):
    """No buffer is trained; each is listed with a reason, if the export still has it."""
    plan = planned(rankc, name)
    constants = {constant["name"]: constant["reason"] for constant in plan["constants"]}
    trained = {parameter["name"] for parameter in plan["parameters"]}
    buffers = set(reference()["buffers"])
    expect(not buffers & trained, f"trained buffers: {buffers & trained}")
    expect({"attn.mask", "table"} <= set(constants), f"constants are {sorted(constants)}")
    expect(all(constants.values()), "a constant has no reason")
    return f"{len(constants)} constants"


def check_losses(rankc, work, name):
    wanted = reference()
    log = os.path.join(work, "log")
    call(rankc, "compile", model(name), "-o", work, "-q", *LOSS, "--optimizer", f"sgd:lr={wanted['rate']}")
    call(rankc, "verify", work, "-q")
    data = [word for of in ("ids", "labels") for word in ("--data", f"{of}={FOLDER}/{of}.npy")]
    call(rankc, "train", work, *data, "--steps", str(len(wanted["losses"])), "--log", log)
    losses = [line["loss"] for line in lines_of(log)]
    worst = max(abs(a - b) / abs(b) for a, b in zip(losses, wanted["losses"], strict=True))
    expect(worst < BOUND, f"losses are {losses}, not {wanted['losses']}")
    return f"losses differ by {worst:.1e}"


def check_options(rankc, work, name):
    """--param decides otherwise, by the exporter's name or PyTorch's."""
    def of(plan, parameter):
        return next((p for p in plan["parameters"] if parameter in (p["name"], p.get("computed_from"))), None)

    plan = planned(rankc, name, "--param", "attn.mask:train,lr=0.5", "--param", "*.score_bias:frozen", "--param",
                   "fc.weight:weight_decay=0.25")
    expect(of(plan, "attn.mask")["lr"] == 0.5, "attn.mask is not trained at its rate")
    expect("attn.mask" not in {c["name"] for c in plan["constants"]}, "attn.mask is a constant too")
    expect(not of(plan, "attn.score_bias")["trained"], "attn.score_bias is trained")
    expect(of(plan, "fc.weight")["weight_decay"] == 0.25, "fc.weight has another weight decay")
    plan = planned(rankc, name, "--param", "attn.mask:frozen", "--param", "p:frozen")
    expect(not any(p["name"] == "p" and p["trained"] for p in plan["parameters"]), "p is trained")
    for option, text in (("none:train", "no parameter's name matches 'none'"), ("attn.mask:lr=1", "'attn.mask' is not a parameter"),
                         ("p:train,frozen", "exclude each other")):
        told = call(rankc, "plan", model(name), *LOSS, "--param", option, status=2).stderr
        expect(text in told, f"{option}: {told}")
    return "as asked for"


def check_keys(rankc, work, name):
    """A change of --param is noticed."""
    call(rankc, "compile", model(name), "-o", work, "-q", "--no-build", *LOSS)
    told = call(rankc, "compile", model(name), "-o", work, "--no-build", *LOSS, "--param", "attn.mask:train", status=8).stderr
    expect("param" in told, told)
    return "noticed"


def check_written(rankc, work, name):
    """Weights that are written back into a model that has a transposed copy of one: both are written."""
    try:
        import onnx
        from onnx import numpy_helper
    except ImportError:
        return "passed over: no onnx"
    out, steps, trained = (os.path.join(work, name) for name in ("out", "steps", "trained.onnx"))
    call(rankc, "compile", model(name), "-o", out, "-q", *LOSS, "--optimizer", "sgd:lr=0.1")
    data = [word for of in ("ids", "labels") for word in ("--data", f"{of}={FOLDER}/{of}.npy")]
    call(rankc, "train", out, *data, "--steps", "1", "--checkpoint-dir", steps)
    call(rankc, "ckpt", "to-onnx", steps, model(name), trained)
    external = os.path.join(work, "external.onnx")
    onnx.save_model(onnx.load(model(name)), external, save_as_external_data=True, location="values", size_threshold=0)
    call(rankc, "ckpt", "to-onnx", steps, external, os.path.join(work, "again.onnx"))
    again = {i.name: numpy_helper.to_array(i) for i in onnx.load(os.path.join(work, "again.onnx")).graph.initializer}
    before, after = ({i.name: numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer} for path in (model(name), trained))
    copy = [k for k, v in before.items() if v.shape == (16, 32) and (v == before["emb.weight"].T).all()]
    expect(len(copy) == 1, f"copies are {copy}")
    expect((after["emb.weight"] != before["emb.weight"]).any(), "emb.weight is as it was")
    expect((after[copy[0]] == after["emb.weight"].T).all(), f"{copy[0]} is another matrix")
    expect(list(after) == list(again) and all((after[k] == again[k]).all() for k in after), "external data: other values")
    return f"{copy[0]} too"


def folded_from(info, sources):
    """Adds onnxscript's metadata to a declaration, byte by byte: older onnx packages know no metadata_props."""
    def field(tag, content):
        return bytes([tag, len(content)]) + content

    entry = field(0x0A, b"pkg.onnxscript.optimizer.folded_from") + field(0x12, sources.encode())
    info.MergeFromString(field(0x22, entry))


def check_repeated(rankc, work, name):
    """The embedding of the one token type that is used, stored once for each token: it is trained as one row, as the module's
    parameter would be, and written back for each token."""
    try:
        import numpy as np
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        return "passed over: no onnx"
    row, x, rate = np.float32([1, -2, 3]), np.random.default_rng(1).standard_normal((2, 4, 3)).astype("f4"), 0.25
    nodes = [helper.make_node("Add", ["x", "embedding"], ["a"]), helper.make_node("Mul", ["a", "a"], ["b"]),
             helper.make_node("ReduceMean", ["b"], ["loss"], keepdims=0)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 3])],
                              [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])],
                              [numpy_helper.from_array(np.tile(row, (2, 4, 1)), "embedding")])
    graph.value_info.append(helper.make_tensor_value_info("embedding", TensorProto.FLOAT, [2, 4, 3]))
    folded_from(graph.value_info[0], "['token_type.weight', 'val_4']")
    path, out, steps = (os.path.join(work, name) for name in ("repeated.onnx", "out", "steps"))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    np.save(os.path.join(work, "x.npy"), x)
    call(rankc, "compile", path, "-o", out, "-q", "--train", "--optimizer", f"sgd:lr={rate}")
    call(rankc, "train", out, "--data", f"x={work}/x.npy", "--steps", "1", "--checkpoint-dir", steps)
    call(rankc, "ckpt", "to-onnx", steps, path, os.path.join(work, "after.onnx"))
    after = numpy_helper.to_array(onnx.load(os.path.join(work, "after.onnx")).graph.initializer[0])
    wanted = row - rate * 2 * (x + row).sum((0, 1)) / x.size
    expect(after.shape == (2, 4, 3), f"written is {after.shape}")
    expect(np.allclose(after, wanted, rtol=1e-6, atol=0), f"trained to {after[0, 0]}, not {wanted}")
    return "one row"


def check_merged(rankc, work, name):
    """Equal initializers that the exporter gave one name are one parameter: this is said. So is a folded batch normalisation."""
    try:
        import numpy as np
        import onnx
        from onnx import helper, numpy_helper
    except ImportError:
        return "passed over: no onnx"
    path, value = os.path.join(work, "model.onnx"), helper.make_tensor_value_info
    weights = {"a.weight": np.ones(4), "onnx::Conv_7": np.ones((4, 4, 1))}
    graph = helper.make_graph(
        [helper.make_node("Identity", ["a.weight"], ["b.weight"]), helper.make_node("Mul", ["x", "a.weight"], ["y"]),
         helper.make_node("Mul", ["y", "b.weight"], ["z"]), helper.make_node("Conv", ["z", "onnx::Conv_7"], ["c"]),
         helper.make_node("ReduceMean", ["c"], ["loss"], keepdims=0)],
        "model", [value("x", 1, [2, 4, 4])], [value("loss", 1, [])],
        [numpy_helper.from_array(values.astype(np.float32), key) for key, values in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    told = call(rankc, "plan", path, "--train").stderr
    expect("the exporter merged initializers of equal value: 'b.weight' is 'a.weight'" in told, told)
    expect("a batch normalization" in told and "'onnx::Conv_7'" in told, told)
    return "told"


CHECKS = {"parameters": check_parameters, "constants": check_constants, "losses": check_losses, "options": check_options,
          "keys": check_keys, "written": check_written, "merged": check_merged,
          "repeated": check_repeated}
# The default of torch.onnx.export computes exp(logit_scale), which is then trained in its place: its losses are others.
CASES = [(check, name) for name in ("dynamo", "dynamo_plain", "legacy", "legacy_plain") for check in ("parameters", "constants")]
CASES += [("losses", name) for name in ("dynamo_plain", "legacy", "legacy_plain")]
CASES += [("options", "dynamo"), ("options", "dynamo_plain"), ("keys", "dynamo"), ("written", "legacy"), ("merged", ""), ("repeated", "")]


def main():
    parser = parser_of(__doc__)
    parser.add_argument("checks", nargs="*")
    options = parser.parse_args()
    chosen = [(check, name) for check, name in CASES if not options.checks or check in options.checks]
    return report([(f"{check} {name}", functools.partial(CHECKS[check], options.rankc, name=name)) for check, name in chosen])


if __name__ == "__main__":
    sys.exit(main())
