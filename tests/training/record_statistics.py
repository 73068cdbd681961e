#!/usr/bin/env python3
"""Records how PyTorch trains models with BatchNorm on several scale units, into <case>/statistics.json.

    record_statistics.py [CASE...]

"own": each unit normalises with the statistics of its own micro-batch; evaluation has the running statistics of unit 0, which
DistributedDataParallel broadcasts. "shared": SyncBatchNorm, which is BatchNorm of the units' micro-batches one behind the other.
Per number of units and micro-batches of a unit: losses and gradient norms of STEPS steps in f64, then the loss in evaluation
and the running statistics. It needs what record.py needs, and onnx."""
import json
import pathlib
import warnings

import onnx.numpy_helper
import torch
from torch import nn

from harness import parser_of
import record

STEPS = 6
RUNS = {"cnn_bn": [(2, 1), (2, 2), (3, 1)], "resnet": [(2, 2)], "mlp_batch_norm": [(2, 1)]}


def exported(name, case):
    """The case's module as its model.onnx has it: the export in training mode has updated running statistics; and the data."""
    module, data = record.make(name, case)
    stored = onnx.load(str(pathlib.Path(__file__).parent / name / "model.onnx")).graph.initializer
    values = {value.name: torch.from_numpy(onnx.numpy_helper.to_array(value).copy()) for value in stored}
    module.load_state_dict({key: values.get(key, value) for key, value in module.state_dict().items()})
    return module, data


def copies(name, case, module, units):
    """A module for each unit, with the parameters of the first and buffers of its own."""
    made = [record.again(name, case, module).double() for _ in range(units)]
    for copy in made[1:]:
        for mine, first in zip(copy.modules(), made[0].modules()):
            for key in mine._parameters:
                mine._parameters[key] = first._parameters[key]
    return made


def rows_of(data, first, batch):
    arguments = [torch.from_numpy(value[[(first + i) % record.SAMPLES for i in range(batch)]]) for value in data.values()]
    return [a.double() if a.is_floating_point() else a for a in arguments]


def train(modules, case, data, units, accumulate, shared):
    """Unit u of a round has the u-th of its micro-batches; shared statistics are those of the round."""
    optimizer, batch, at = case.make_optimizer(modules[0]), case.data[0], 0
    result = {"loss": [], "grad_norm": []}
    for _ in range(STEPS):
        optimizer.zero_grad()
        step = 0.0
        for _ in range(accumulate):
            for module in [modules[0]] if shared else modules:
                samples = batch * (units if shared else 1)
                loss = module(*rows_of(data, at, samples)) / (accumulate * (1 if shared else units))
                loss.backward()
                step += loss.item()
                at += samples
        result["loss"].append(step)
        result["grad_norm"].append(nn.utils.clip_grad_norm_(modules[0].parameters(), case.clip or float("inf")).item())
        optimizer.step()
    return {**result, **record.evaluation(modules[0], data, batch, torch.float64)}


def main():
    parser = parser_of(__doc__, rankc=False)
    parser.add_argument("names", metavar="CASE", nargs="*", choices=[*RUNS, []])
    warnings.filterwarnings("ignore")
    for name in parser.parse_args().names or RUNS:
        case = record.Case(*record.CASES[name])
        module, data = exported(name, case)
        runs = [{"units": units, "accumulate": accumulate,
                 "own": train(copies(name, case, module, units), case, data, units, accumulate, False),
                 "shared": train(copies(name, case, module, 1), case, data, units, accumulate, True)}
                for units, accumulate in RUNS[name]]
        (pathlib.Path(__file__).parent / name / "statistics.json").write_text(json.dumps(runs) + "\n")


if __name__ == "__main__":
    main()
