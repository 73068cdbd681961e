"""The cases that the case collector of the installed onnx package makes, as backend.py reads them."""
import glob
import os
import shutil
import warnings

import onnx
import onnx.backend.test
from onnx import numpy_helper

WRITERS = {"tensor_type": numpy_helper.from_array, "sequence_type": numpy_helper.from_list,
           "optional_type": numpy_helper.from_optional, "map_type": numpy_helper.from_dict}


def write_value(path, value, declared):
    kind = declared.type.WhichOneof("value")
    proto = value if isinstance(value, onnx.TensorProto) else WRITERS[kind](value, declared.name)
    with open(path, "wb") as file:
        file.write(proto.SerializeToString())


def write_case(directory, case):
    for number, sides in enumerate(case.data_sets):
        folder = os.path.join(directory, f"test_data_set_{number}")
        os.makedirs(folder)
        graph = case.model.graph
        for side, values, declared in zip(["input", "output"], sides, [graph.input, graph.output]):
            for i, value in enumerate(values):
                write_value(os.path.join(folder, f"{side}_{i}.pb"), value, declared[i])
    onnx.save(case.model, os.path.join(directory, "model.onnx"))


def write_cases(root):
    """Writes the collected cases of one node and of several, and copies those that the package has as files. None of the
    collected cases has tolerances of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import onnx.backend.test.case.model as models
        import onnx.backend.test.case.node as nodes
        cases = {(case.kind, case.name): case for case in [*nodes.collect_testcases(None), *models.collect_testcases()]}
    for (kind, name), case in cases.items():
        if kind != "real":
            write_case(os.path.join(root, kind, name), case)
    for folder in glob.glob(os.path.join(onnx.backend.test.__path__[0], "data", "*", "test_*")):
        kind, name = folder.split(os.sep)[-2:]
        if kind != "real" and (kind, name) not in cases:
            shutil.copytree(folder, os.path.join(root, kind, name))
