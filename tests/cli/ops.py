"""`rankc ops` against ONNX's own operator schemas: every operator of an opset that both know is listed, and the forms that
rankc takes have the inputs, outputs and attributes of the schema. And against rankc itself: every elementwise operator is
compiled and built for every type that is listed for it."""
import re
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from rankc_test import call, json_of, needed, rankc_of  # noqa: E402

with needed():
    import onnx
    from onnx import TensorProto, defs, helper

ROWS = Path(__file__).parents[2] / "ir" / "ops.def"
TYPES = {"f32": "FLOAT", "f64": "DOUBLE", "i64": "INT64", "i32": "INT32", "i16": "INT16", "i8": "INT8", "u64": "UINT64",
         "u32": "UINT32", "u16": "UINT16", "u8": "UINT8", "bool": "BOOL", "fp16": "FLOAT16",
         "bf16": "BFLOAT16"}  # those of quantised tensors are newer than Debian's onnx

OLDEST, MANY = 6, 2**31 - 1

# ONNX Runtime's, in ONNX's domain; tests and exporters of PyTorch use them.
NOT_ONNX = {"SimplifiedLayerNormalization"}
# The schema's attributes that no longer have a meaning, which rankc need not know.
LEGACY = {"consumed_inputs"}


def schemas():
    """Name -> the schemas of ONNX's domain, oldest first."""
    found = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.support_level == defs.OpSchema.SupportType.COMMON:
            found.setdefault(schema.name, []).append(schema)
    return {name: sorted(all, key=lambda s: s.since_version) for name, all in found.items()}


def schema_at(history, version):
    """The form that holds in that opset."""
    older = [schema for schema in history if schema.since_version <= version]
    return older[-1] if older else None


def form_faults(name, form, schema, faults):
    most = form["most_inputs"] if form["most_inputs"] is not None else MANY
    if most < schema.max_input or form["least_inputs"] > schema.min_input:
        faults.append(f"{name}: inputs {form['least_inputs']}..{most}, ONNX {schema.min_input}..{schema.max_input}")
    attributes = {a["name"] for a in form["attributes"]}
    required = {a["name"] for a in form["attributes"] if a["required"]}
    missing = {a for a in schema.attributes if a not in LEGACY} - attributes
    if missing:
        faults.append(f"{name}, opset {form['since']}: no attribute {', '.join(sorted(missing))}")
    for a in required:
        if a not in schema.attributes or not schema.attributes[a].required:
            faults.append(f"{name}, opset {form['since']}: attribute {a} is not required by ONNX")


def elementwise_rows():
    """Name -> types of its operands, such as "bTT->T"."""
    return dict(re.findall(r'^EW\((\w+), "([^"@]+)"', ROWS.read_text(), re.M))


def elementwise_model(operators):
    """One node for every operator and type; the node count is the second result."""
    inputs, nodes, outputs = {}, [], []
    rows = elementwise_rows()
    for o in operators:
        types = rows.get(o["core"]) if o.get("core") == o["name"] else None
        for dtype in o["dtypes"] if types else []:
            names = []
            for k, letter in enumerate(types[: types.index("-")]):
                of = "bool" if letter == "b" else dtype
                names.append(f"{of}_{k}")
                inputs[names[-1]] = helper.make_tensor_value_info(names[-1], getattr(TensorProto, TYPES[of]), [5])
            result = f"{o['name']}_{dtype}"
            nodes.append(helper.make_node(o["name"], names, [result]))
            of = "bool" if types.endswith("b") else dtype
            outputs.append(helper.make_tensor_value_info(result, getattr(TensorProto, TYPES[of]), [5]))
    graph = helper.make_graph(nodes, "all", list(inputs.values()), outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=8), len(nodes)


def compile_faults(rankc, operators, faults):
    model, count = elementwise_model(operators)
    with tempfile.TemporaryDirectory() as work:
        onnx.save(model, f"{work}/all.onnx")
        done = call(rankc, "compile", f"{work}/all.onnx", "-o", work, status=None)
    if done.returncode:
        faults.append(done.stderr)
    return count


def main():
    rankc = rankc_of(__doc__)
    listed = json_of(rankc, "ops", "--json")
    ours = {o["name"]: o for o in listed["operators"] if o["domain"] == ""}
    known, faults = schemas(), []
    faults += [f"{name} is not listed" for name in known if name not in ours]
    newest = defs.onnx_opset_version()
    for name, row in ours.items():
        forms = [form for form in row.get("forms", []) if form["since"] <= newest]
        if name not in known and name not in NOT_ONNX and forms:
            faults.append(f"{name} is no operator of ONNX")
        for form in forms:
            schema = schema_at(known.get(name, []), form["since"])
            if schema and not schema.deprecated:
                form_faults(name, form, schema, faults)
    compiled = compile_faults(rankc, ours.values(), faults)
    print("\n".join(faults))
    print(f"{len(known)} operators of ONNX, {len(ours)} listed, {compiled} compiled, {len(faults)} faults")
    sys.exit(1 if faults or len(known) < 150 or compiled < 150 else 0)


main()
