"""Records what PyTorch computes of the model in samples/operators, and writes the model.

    python record.py          needs torch and onnx; writes samples/operators/{pool.onnx,x.npy} and, here, y.npy,
                              target.npy and reference.json

The model pools the features of a sequence by attention and caps them: two operations that are functions of the module
here and nodes of domain "acme" in the ONNX file."""
import json
import os

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLE = os.path.join(HERE, "..", "..", "samples", "operators")
BATCH, TIME, IN, HIDDEN, OUT, CAP, STEPS, LR = 4, 6, 8, 12, 5, 0.5, 10, 0.5


class Pooled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.score, self.head = torch.nn.Linear(IN, HIDDEN), torch.nn.Linear(HIDDEN, 1, bias=False), torch.nn.Linear(HIDDEN, OUT)

    def forward(self, x):
        hidden = self.fc(x)
        weights = torch.softmax(self.score(hidden).squeeze(2), 1)
        pooled = torch.einsum("bt,btc->bc", weights, hidden)
        return self.head(CAP * torch.tanh(pooled / CAP))


def export(module):
    weights = {"fc.weight": module.fc.weight.T, "fc.bias": module.fc.bias, "score.weight": module.score.weight.T,
               "head.weight": module.head.weight.T, "head.bias": module.head.bias}
    nodes = [("MatMul", "x fc.weight", "fc.product"), ("Add", "fc.product fc.bias", "hidden"), ("MatMul", "hidden score.weight", "scores"),
             ("Squeeze", "scores axis", "scores_of_time"), ("Softmax", "scores_of_time", "weights"), ("acme::Pool", "weights hidden", "pooled"),
             ("acme::Softcap", "pooled", "capped"), ("MatMul", "capped head.weight", "head.product"), ("Add", "head.product head.bias", "y")]
    made = []
    for kind, inputs, output in nodes:
        domain, _, name = kind.rpartition("::")
        attributes = {"cap": CAP} if name == "Softcap" else {}
        made.append(helper.make_node(name, inputs.split(), [output], name=output, domain=domain, **attributes))
    initializers = [numpy_helper.from_array(np.ascontiguousarray(value.detach().numpy()), name) for name, value in weights.items()]
    graph = helper.make_graph(made, "pool", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", TIME, IN])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", OUT])],
                              [*initializers, numpy_helper.from_array(np.array([2]), "axis")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)], ir_version=8)
    onnx.save(model, os.path.join(SAMPLE, "pool.onnx"))


def main():
    torch.manual_seed(0)
    module, x, target = Pooled(), torch.randn(STEPS * BATCH, TIME, IN), torch.randn(STEPS * BATCH, OUT)
    export(module)
    np.save(os.path.join(SAMPLE, "x.npy"), x[:BATCH].numpy())
    np.save(os.path.join(HERE, "y.npy"), module(x[:BATCH]).detach().numpy())
    np.save(os.path.join(HERE, "x.npy"), x.numpy())
    np.save(os.path.join(HERE, "target.npy"), target.numpy())
    losses, norms = [], []
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        loss = torch.nn.functional.mse_loss(module(x[part]), target[part])
        module.zero_grad()
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(module.parameters(), 1e9).item())
        with torch.no_grad():
            for parameter in module.parameters():
                parameter -= LR * parameter.grad
    with open(os.path.join(HERE, "reference.json"), "w") as file:
        json.dump({"lr": LR, "loss": losses, "grad_norm": norms}, file)


if __name__ == "__main__":
    main()
