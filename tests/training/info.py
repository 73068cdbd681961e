#!/usr/bin/python3
"""The optimizer that a model brings along, TrainingInfoProto.

    info.py --rankc RANKC

Models whose training algorithm has Momentum or Adagrad of ai.onnx.preview.training are trained without --optimizer; their
losses are those of the pseudo code in the operators' documentation, here in NumPy and f64. What is not exactly an optimizer of
rankc's is refused by name. Weights are stored as float_data, as onnx.helper does."""
import functools
import sys

from harness import call, expect, lines_of, needed, rankc_of, report

with needed():
    import numpy as np
    import onnx
    from onnx import helper

STEPS, BATCH, BOUND, RATE = 6, 4, 1e-5, 0.05
DOMAIN = "ai.onnx.preview.training"


def momentum(x, g, v, t, alpha, beta, norm_coefficient, mode):
    g = norm_coefficient * x + g
    v = alpha * v + (beta if t > 0 else 1) * g
    return x - RATE * (v if mode == "standard" else g + alpha * v), v


def adagrad(x, g, h, t, decay_factor=0.0, epsilon=1e-6, norm_coefficient=0.0):
    g = norm_coefficient * x + g
    h = h + g * g
    return x - RATE / (1 + t * decay_factor) * g / (np.sqrt(h) + epsilon), h


# Operator, its attributes, the pseudo code.
TRAINED = {
    "standard": ("Momentum", {"alpha": 0.9, "beta": 0.7, "norm_coefficient": 0.01, "mode": "standard"}, momentum),
    "nesterov": ("Momentum", {"alpha": 0.8, "beta": 1.0, "norm_coefficient": 0.0, "mode": "nesterov"}, momentum),
    "dampened": ("Momentum", {"alpha": 0.8, "beta": 0.6, "norm_coefficient": 0.0, "mode": "nesterov"}, momentum),
    "adagrad": ("Adagrad", {"decay_factor": 0.1, "norm_coefficient": 0.02}, adagrad),
}
REFUSED = {
    "adam": ("Adam", {}, "loss", "rankc has no optimizer equivalent to 'Adam'"),
    "other": ("Momentum", TRAINED["standard"][1], "error", "Gradient is computed of another value than the model's output 0"),
    "unknown": ("Lamb", {}, "loss", "unknown operator: 'Lamb'"),
    "rate": ("Adagrad", {"rate": "W"}, "loss", "the learning rate is not a constant of the model: 'W'"),
}


def write_model(path, w, op, attributes, differentiated="loss"):
    value = helper.make_tensor_value_info
    rate = attributes.pop("rate", "R")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "W"], ["y"]), helper.make_node("Sub", ["y", "t"], ["error"]),
         helper.make_node("Mul", ["error", "error"], ["squares"]), helper.make_node("ReduceMean", ["squares"], ["loss"], keepdims=0)],
        "model", [value("x", 1, [BATCH, 3]), value("t", 1, [BATCH, 2])], [value("loss", 1, [])],
        [helper.make_tensor("W", 1, w.shape, w.flatten())])
    algorithm = helper.make_graph(
        [helper.make_node("Gradient", ["W", "x"], ["G"], domain=DOMAIN, xs=["W"], zs=["x"], y=differentiated),
         helper.make_node(op, [rate, "T", "W", "G", "V"], ["W_new", "V_new"], domain=DOMAIN, **attributes)],
        "algorithm", [], [value("W_new", 1, w.shape), value("V_new", 1, w.shape)],
        [helper.make_tensor("R", 1, [], [RATE]), helper.make_tensor("T", 7, [], [0]),
         helper.make_tensor("V", 1, w.shape, np.zeros(w.size))])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid(DOMAIN, 1)])
    info = model.training_info.add()
    info.algorithm.CopyFrom(algorithm)
    onnx.save(model, path)


def data(random):
    return (random.standard_normal((BATCH * STEPS, n)).astype("f4") for n in (3, 2))


def expected(w, x, t, update, attributes):
    w, kept, losses = w.astype("f8"), np.zeros(w.shape), []
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        error = x[rows] @ w - t[rows]
        losses.append((error ** 2).mean())
        w, kept = update(w, 2 * x[rows].T @ error / error.size, kept, step, **attributes)
    return losses


def trains(rankc, name, work):
    op, attributes, update = TRAINED[name]
    random = np.random.default_rng(5)
    w, (x, t) = random.standard_normal((3, 2)).astype("f4"), data(random)
    write_model(f"{work}/model.onnx", w, op, dict(attributes))
    np.save(f"{work}/x.npy", x)
    np.save(f"{work}/t.npy", t)
    for command in ([rankc, "compile", f"{work}/model.onnx", "-o", f"{work}/out", "-q", "--train"],
                    [rankc, "train", f"{work}/out", "--data", f"x={work}/x.npy", "--data", f"t={work}/t.npy", "--steps", str(STEPS),
                     "--log", f"{work}/log"]):
        call(*command)
    losses = [line["loss"] for line in lines_of(f"{work}/log")]
    wanted = expected(w, x.astype("f8"), t.astype("f8"), update, attributes)
    worst = max(abs(a - b) / b for a, b in zip(losses, wanted))
    expect(len(losses) == STEPS and worst <= BOUND, f"losses {losses}, expected {wanted}")
    return "ok"


def refuses(rankc, name, work):
    op, attributes, differentiated, text = REFUSED[name]
    write_model(f"{work}/model.onnx", np.ones((3, 2), "f4"), op, dict(attributes), differentiated)
    said = call(rankc, "plan", f"{work}/model.onnx", "--train", status=4).stderr
    expect(text in said, said.strip())
    call(rankc, "plan", f"{work}/model.onnx", "--train", "--optimizer", "sgd")
    return "ok"


def main():
    rankc = rankc_of(__doc__)
    return report((f"{check.__name__} {name}", functools.partial(check, rankc, name))
                  for check, names in ((trains, TRAINED), (refuses, REFUSED)) for name in names)


if __name__ == "__main__":
    sys.exit(main())
