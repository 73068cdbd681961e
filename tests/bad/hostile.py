"""Names that try to be something else."""
from onnx import AttributeProto

NAMES = [
    "a*/ int evil=1; /*", "x\nint evil2=2;", "ends in a backslash \\", "trigraph ??/", '"; int evil3=3; char *s = "', "%s%n%s%d",
    "$(touch pwn)", "`touch pwn`", ";touch pwn", "|touch pwn", "-o/etc/x", "-", "--help", "'", "\\", "\\\n", "\t", " ", "#define y 1",
    "\n#include </etc/passwd>\n", "${name}", "@for x in ranks", "@end", "@if", "$(shell touch pwn)", "$@", "a:b", "a=b", "a#b",
    "static_cast", "const_cast", "dynamic_cast", "reinterpret_cast", "char8_t", "char16_t", "co_await", "co_return", "consteval",
    "constinit", "class", "new", "this", "template", "typename", "virtual", "concept", "requires", "half", "dim3", "size_t", "int64_t",
    "weights", "activations", "rt", "at", "instruction", "layer_forward", "add_0", "memcpy", "stdin",
    "if", "int", "main", "malloc", "errno", "NULL", "__attribute__", "_Generic", "I", "linux", "unix", "blockIdx", "static_assert",
    "rt_open", "model_open", "a.b", "a_b", "a/b", "a b", "A.B", "A_B", "a-b", "0", "1e9", "0x10", "..", ".", "/", "../../../pwn",
    "/tmp/pwn", "nul", "\u202ehidden\u202c", "\u200b", "\U0001f4a9", "\x1b]0;title\x07", "\x1b[2J", "\x7f", "\x01", "<script>", "&amp;",
    "{\"a\": 1}", "\\u0000", "__proto__", "%", "%%", "~", "*", "?", "[a-z]", "gpu_0/data_0", "x" * 300, "\u00e4" * 200,
]
SUFFIX = "\x1b]0;t\x07\n\"%s%n\\*/??/\u202e"


def rename_graph(graph, rename):
    for value in [*graph.input, *graph.output, *graph.value_info, *graph.initializer,
                  *(sparse.values for sparse in graph.sparse_initializer)]:
        value.name = rename(value.name)
    rename_nodes(graph.node, rename)


def rename_nodes(nodes, rename):
    for node in nodes:
        node.input[:] = [rename(n) for n in node.input]
        node.output[:] = [rename(n) for n in node.output]
        node.name = rename(node.name)
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                rename_graph(attribute.g, rename)


def twin(model):
    """The same model with every name made worse."""
    made = type(model)()
    made.CopyFrom(model)

    def rename(name):
        return name + SUFFIX if name else name
    rename_graph(made.graph, rename)
    for function in made.functions:
        function.input[:] = [rename(n) for n in function.input]
        function.output[:] = [rename(n) for n in function.output]
        rename_nodes(function.node, rename)
    return made
