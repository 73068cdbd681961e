#!/usr/bin/env python3
"""Which attention, norms, rotary embeddings and activations of exported models become one operator each.

    recognised.py --rankc RANKC [--table FILE] DIR...

DIR is a folder that export_today.py writes, NAME_FORM. Counts the operators that are left after pass `recognise` and
compares with what PyTorch computed (file `computes`). Writes the table as Markdown, and exits 1 if one is missing that
is not listed below with its reason. docs/measured/recognition.md is its table over all families and forms.
"""
import collections
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
from rankc_test import call, dims_of, parser_of  # noqa: E402

HEAD = """# Recognised operators

Exporters decompose attention, norms, rotary position embeddings and activations. Pass `recognise` replaces each
decomposition by one operator. This table, written by `tests/models/recognised.py --table`, counts them in small models
of HuggingFace transformers 5.23 as PyTorch 2.15 exports them: `dynamo` and `dynamo23` are the default exporter at opset 18
and 23, `legacy` is `dynamo=False` at opset 17. Recognised operators have kernels of their own, and attention is split by
heads. An entry with fewer operators than PyTorch computed would be bold. An empty entry means that the model has none, or
that the exporter refuses the model (cohere, glm and whisper in the legacy exporter).
<!-- not run: they need PyTorch and take an hour -->

    python3 tests/models/export_today.py --out models
    python3 tests/models/recognised.py --rankc build/frontend/rankc --table docs/measured/recognition.md models/*/

For a model of your own, `rankc compile -v` reports subgraphs that nearly match a pattern: the node, and the first operand
that is not what the pattern expects.
The patterns are in [recognise.def](../passes/rewrite/recognise.def) and, for the scores of attention, in
[recognise_attention.c](../passes/rewrite/recognise_attention.c).
"""
KINDS = {
    "attention": ("Attention", "FlashAttention"),
    "norms": ("LayerNorm", "RMSNorm"),
    "rope": ("Rope",),
    "activations": ("Gelu", "GeluTanh", "Silu", "Swish", "Relu"),
    "experts": ("ExpertMatMul",),
}


def recognised(rankc, folder, kinds=KINDS):
    """Operators after the pass, by kind; None where the model is refused, with the error."""
    done = call(rankc, "plan", folder / "model.onnx", "--dump-after", "recognise", *dims_of(folder), status=None)
    if done.returncode:
        return None, done.stderr.strip().splitlines()[0]
    operators = collections.Counter(re.findall(r"^%.* = (\w+)\(", done.stdout, re.M))
    return {kind: sum(operators[name] for name in names) for kind, names in kinds.items()}, ""


def computed(folder):
    given = {kind: int(count) for kind, count in (line.split("=") for line in (folder / "computes").read_text().split())}
    return {kind: given.get(kind, 0) for kind in KINDS}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--table", type=pathlib.Path)
    parser.add_argument("folders", metavar="DIR", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    cells, forms, missing = {}, [], 0
    for folder in options.folders:
        if not (folder / "model.onnx").exists():
            continue
        name, form = folder.name.rsplit("_", 1)
        forms += [form] * (form not in forms)
        found, error = recognised(options.rankc, folder)
        wanted = computed(folder)
        for kind in KINDS:
            if found is None:
                cells[name, kind, form] = "refused"
            elif wanted[kind] or found[kind]:
                short = found[kind] < wanted[kind]
                cells[name, kind, form] = f"**{found[kind]}/{wanted[kind]}**" if short else str(found[kind])
                missing += short
        print(f"{folder.name}: {error or ' '.join(f'{kind} {found[kind]}/{wanted[kind]}' for kind in KINDS)}", flush=True)
    if options.table:
        write_table(options.table, cells, forms)
    print(f"{missing} of {len(cells)} counts fall short")
    return missing > 0


def write_table(path, cells, forms):
    names = list(dict.fromkeys(name for name, _, _ in cells))
    kinds = [kind for kind in KINDS if any(of == kind for _, of, _ in cells)]
    lines = [HEAD, "| family | " + " | ".join(f"{kind} {form}" for kind in kinds for form in forms) + " |",
             "|---" * (1 + len(kinds) * len(forms)) + "|"]
    for name in names:
        row = [cells.get((name, kind, form), "") for kind in kinds for form in forms]
        lines.append(f"| {name} | " + " | ".join(row) + " |")
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
