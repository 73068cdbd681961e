/* Where nodes come from, as PyTorch's exporter (torch.onnx, dynamo=True) records it in a node's metadata_props:
 *
 *   name_scopes      ['', 'layers.0', 'layers.0.attn', 'layers.0.attn.q_proj', 'linear']: paths of the modules,
 *                    outermost first, and the name of the call in the exported program
 *   class_hierarchy  ['__main__.Net', .., 'torch.nn.modules.linear.Linear', 'aten.linear.default']: their classes
 *   stack_trace      as Python prints it: two lines for each frame, outermost first
 *
 * The exporter writes several ONNX nodes for one call; the result of the last has the name of the call. */
#include <ctype.h>

#include "frontend/import/import_state.h"
#include "ir/provenance.h"

/* ATen's operators that are what a module computes, so that its path says what they do. */
static const char *const of_module[] = {"addmm",       "batch_norm",        "conv1d",     "conv2d",     "conv3d",
                                        "convolution", "embedding",         "group_norm", "layer_norm", "linear",
                                        "mm",          "native_layer_norm", "rms_norm",   NULL};

static const char *property(const struct lower *lower, const char *key) {
    const char *full = arena_printf(lower->arena, "pkg.torch.onnx.%s", key);
    return onnx_property(lower->node->metadata_props, lower->node->n_metadata_props, full);
}

/* A piece of a text. */
struct piece {
    const char *text;
    size_t length;
};

static const char *copy(struct arena *arena, struct piece piece) {
    return arena_printf(arena, "%.*s", (int)(piece.length > 4096 ? 4096 : piece.length), piece.text);
}

/* The last two items of a Python list of strings. */
static void last_items(const char *list, struct piece *before, struct piece *last) {
    *before = *last = (struct piece){"", 0};
    for (const char *quote = strpbrk(list, "'\""); quote;) {
        const char *close = strchr(quote + 1, *quote);
        if (!close) return;
        *before = *last;
        *last = (struct piece){quote + 1, (size_t)(close - quote - 1)};
        quote = strpbrk(close + 1, "'\"");
    }
}

/* "linear" of "linear_3". */
static struct piece without_number(struct piece name) {
    size_t length = name.length;
    while (length && isdigit((unsigned char)name.text[length - 1])) length--;
    if (length > 1 && length < name.length && name.text[length - 1] == '_') name.length = length - 1;
    return name;
}

static const char *lower_case(struct arena *arena, const char *text) {
    char *made = arena_strdup(arena, text);
    for (char *c = made; *c; c++) *c = (char)tolower((unsigned char)*c);
    return made;
}

static bool is_call(const struct lower *lower, struct piece call) {
    const char *result = lower->noutputs ? onnx_text(lower->node->output[0]) : "";
    return strlen(result) == call.length && memcmp(result, call.text, call.length) == 0;
}

/* What the node computes in its module: the call's name if it is the result of the call, else the operator. "" if it is
 * what the module is for: the call is in a module of PyTorch, which has no other. */
static const char *word_of(const struct lower *lower, struct piece call) {
    struct arena *arena = lower->arena;
    struct piece class, operator;
    const char *stem = copy(arena, without_number(call));
    last_items(property(lower, "class_hierarchy"), &class, &operator);
    if (class.length > 9 && memcmp(class.text, "torch.nn.", 9) == 0) return "";
    for (int i = 0; of_module[i]; i++)
        if (strcmp(of_module[i], stem) == 0) return "";
    return is_call(lower, call) ? stem : lower_case(arena, onnx_text(lower->node->op_type));
}

/* A frame of a stack trace: File "/a/model.py", line 41, in forward */
struct trace {
    struct piece file, number, function, code;
    bool library; /* of PyTorch itself */
};

static struct piece until(const char *text, const char *end) {
    const char *at = strstr(text, end);
    return (struct piece){text, at ? (size_t)(at - text) : 0};
}

static bool contains(struct piece piece, const char *text) {
    return memmem(piece.text, piece.length, text, strlen(text)) != NULL;
}

/* Reads the frame at a line of the trace. */
static bool read_frame(const char *line, struct trace *trace) {
    static const char file[] = "File \"", number[] = "\", line ", in[] = ", in ";
    line += strspn(line, " ");
    const struct piece whole = {line, strcspn(line, "\n")};
    if (strncmp(line, file, sizeof file - 1) != 0 || !contains(whole, number)) return false;
    trace->file = until(line + sizeof file - 1, number);
    trace->library = contains(trace->file, "/torch/") || contains(trace->file, "\\torch\\");
    for (size_t i = trace->file.length; i > 0; i--) /* the base name */
        if (strchr("/\\", trace->file.text[i - 1])) {
            trace->file = (struct piece){trace->file.text + i, trace->file.length - i};
            break;
        }
    trace->number.text = trace->file.text + trace->file.length + sizeof number - 1;
    trace->number.length = strspn(trace->number.text, "0123456789");
    trace->function = trace->code = (struct piece){"", 0};
    const char *after = trace->number.text + trace->number.length, *next = line + whole.length;
    if (strncmp(after, in, sizeof in - 1) == 0)
        trace->function = (struct piece){after + sizeof in - 1, (size_t)(next - after) - (sizeof in - 1)};
    if (!*next) return true;
    next += 1 + strspn(next + 1, " ");
    trace->code = (struct piece){next, strcspn(next, "\n")};
    return true;
}

/* The innermost frame that is not of PyTorch itself; the innermost if all are. */
static bool find_frame(const char *text, struct trace *found) {
    bool any = false;
    struct trace trace = {0};
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (read_frame(line, &trace) && (!any || !trace.library || found->library)) {
            *found = trace;
            any = true;
        }
    return any;
}

static void read_trace(const struct lower *lower, struct provenance *from) {
    struct arena *arena = lower->arena;
    struct trace trace = {0};
    if (!find_frame(property(lower, "stack_trace"), &trace)) return;
    const char *function = copy(arena, trace.function);
    const bool named = *function && *function != '<';
    from->line = arena_printf(arena, "%s:%s%s%s", copy(arena, trace.file), copy(arena, trace.number),
                              named ? " in " : "", named ? function : "");
    if (strncmp(copy(arena, trace.code), "File \"", 6) != 0) from->code = copy(arena, trace.code);
}

/* Nodes that onnxscript's optimizer makes have no metadata: they are of the module whose result they read. */
static void inherit(const struct import *import, const struct lower *lower) {
    const struct graph *graph = lower->builder.graph;
    const char *name = lower->ninputs ? onnx_text(lower->node->input[0]) : "";
    const int id = *name ? scope_find(import->frame->scope, name) : UNDEFINED;
    if (!graph->provenances.n || id < 0 || lower_is_sequence(id) || graph->tensors.at[id].producer < 0) return;
    const struct provenance *of = provenance_of(graph, graph->nodes.at[graph->tensors.at[id].producer].name, NULL);
    if (!of) return;
    struct provenance from = *of;
    from.node = lower->builder.node;
    from.word = lower_case(lower->arena, onnx_text(lower->node->op_type));
    provenance_add(lower->builder.graph, &from);
}

void import_provenance(struct import *import, const struct lower *lower) {
    const char *scopes = property(lower, "name_scopes");
    struct piece scope, call;
    if (!*scopes) return inherit(import, lower);
    last_items(scopes, &scope, &call);
    struct provenance from = {.node = lower->builder.node, .scope = copy(lower->arena, scope)};
    from.word = word_of(lower, call);
    read_trace(lower, &from);
    provenance_add(lower->builder.graph, &from);
}

static int default_opset(const Onnx__ModelProto *proto) {
    for (size_t i = 0; i < proto->n_opset_import; i++)
        if (!*onnx_domain(proto->opset_import[i]->domain)) return (int)proto->opset_import[i]->version;
    return 0;
}

void import_exporter(struct import *import) {
    const Onnx__ModelProto *proto = import->model->proto;
    provenance_exporter(import->graph, onnx_text(proto->producer_name), onnx_text(proto->producer_version),
                        default_opset(proto));
}
