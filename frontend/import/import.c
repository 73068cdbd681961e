#include "frontend/import/import.h"

#include <limits.h>

#include "frontend/import/import_state.h"
#include "frontend/read/onnx_check.h"
#include "ir/provenance.h"
#include "runtime/base/number/checked.h"
#include "runtime/base/io/file.h"

enum { MAX_ERRORS = 50 }; /* the walk ends after so many, since further errors are likely to be consequences */

int scope_find(const struct scope *scope, const char *name) {
    for (; scope; scope = scope->outer) {
        int value = map_get(&scope->ids, name, strlen(name));
        if (value >= 0) return value - NO_ID_BELOW;
    }
    return UNDEFINED;
}

void scope_define(struct scope *scope, const char *name, int id) {
    map_put(&scope->ids, name, strlen(name), id + NO_ID_BELOW);
}

static struct scope *scope_new(struct arena *arena, const struct scope *outer) {
    struct scope *scope = ARENA_NEW(arena, struct scope);
    map_init(&scope->ids, arena);
    scope->outer = outer;
    return scope;
}

const char *lower_where(const struct lower *lower) {
    const struct import *import = lower->import;
    return arena_printf(import->arena, "%s%s", onnx_where_node(import->model, lower->node, lower->index),
                        provenance_text(import->arena, import->graph, lower->builder.node));
}

/* Attributes; inside a function they may refer to an attribute of the call (ref_attr_name) ------------------------ */

static const Onnx__AttributeProto *find_attribute(const struct frame *frame, const Onnx__NodeProto *node,
                                                  const char *name) {
    for (size_t i = 0; i < node->n_attribute; i++) {
        const Onnx__AttributeProto *attribute = node->attribute[i];
        if (strcmp(onnx_text(attribute->name), name) != 0) continue;
        const char *refers = onnx_text(attribute->ref_attr_name);
        if (!*refers) return attribute;
        for (int k = 0; k < frame->nbound; k++)
            if (strcmp(frame->bound[k].name, refers) == 0) return frame->bound[k].attribute;
    }
    return NULL;
}

bool lower_made_by(const struct lower *lower, const char *producer) {
    return strcmp(onnx_text(lower->import->model->proto->producer_name), producer) == 0;
}

int64_t lower_random_key(struct lower *lower, int64_t seed) {
    return (int64_t)((uint64_t)seed << 32 | (uint32_t)lower->import->random_operators++);
}

const Onnx__AttributeProto *lower_attribute(const struct lower *lower, const char *name) {
    return find_attribute(lower->frame, lower->node, name);
}

/* Sequences ------------------------------------------------------------------------------------------------------- */

bool lower_is_sequence(int id) {
    return id >= SEQUENCES;
}

int import_sequence(struct import *import, int n, const int *items, bool nothing) {
    struct sequence sequence = {n, arena_copy(import->arena, n ? items : &n, (size_t)n * sizeof *items), nothing};
    VEC_PUSH(import->arena, &import->sequences, sequence);
    return SEQUENCES + import->sequences.n - 1;
}

int lower_sequence(struct lower *lower, int n, const int *items) {
    return import_sequence(lower->import, n, items, false);
}

int lower_nothing(struct lower *lower) {
    return import_sequence(lower->import, 0, NULL, true);
}

bool lower_is_nothing(const struct lower *lower, int id) {
    return lower_is_sequence(id) && lower->import->sequences.at[id - SEQUENCES].nothing;
}

const int *lower_items(const struct lower *lower, int sequence, int *n) {
    const struct sequence *found = &lower->import->sequences.at[sequence - SEQUENCES];
    *n = found->n;
    return found->items;
}

int lower_sparse(struct lower *lower, const Onnx__SparseTensorProto *proto) {
    return import_sparse(lower->import, proto, lower->builder.node, lower_where(lower));
}

int lower_proto(struct lower *lower, const Onnx__TensorProto *proto) {
    return import_tensor(
        lower->import, proto,
        arena_printf(lower->import->arena, "%s.%d", lower->builder.node, lower->builder.graph->tensors.n), false);
}

/* Finishing a node ------------------------------------------------------------------------------------------------ */

/* Defines the node's outputs in its scope, POISONED if it failed. Tensors that the node created get the names of the
 * ONNX values. */
static void finish_node(struct import *import, const struct frame *frame, struct lower *lower, int status) {
    for (int i = 0; i < lower->noutputs; i++) {
        const char *name = onnx_text(lower->node->output[i]);
        int id = status < 0 ? POISONED : lower->outputs[i];
        if (id >= 0 && !lower_is_sequence(id)) id = amounts_fold(import, id);
        if (!*name) continue;
        if (id == LEFT_OUT) {
            lower_unsupported(lower, "output %d", i);
            id = POISONED;
        }
        if (id >= 0 && id < lower->first_tensor)
            import_alias(import, name, id);
        else if (id >= 0 && !lower_is_sequence(id))
            import->graph->tensors.at[id].name = arena_printf(import->arena, "%s%s", frame->prefix, name);
        if (id >= 0 && !frame->up && !lower_is_sequence(id) && import_check_declared(import, name, id) < 0)
            id = POISONED;
        scope_define(frame->scope, name, id);
    }
}

/* Gives errors that were reported at a core node (by ir/build.h) the place of the ONNX node. */
static void place_errors(struct import *import, const struct lower *lower, int from) {
    for (int i = from; i < import->diags->all.n; i++) import->diags->all.at[i].where = lower_where(lower);
}

/* Entering subgraphs and functions -------------------------------------------------------------------------------- */

static struct frame *push(struct lower *lower, struct scope *scope, Onnx__NodeProto *const *nodes, size_t nnodes) {
    struct import *import = lower->import;
    struct frame *frame = ARENA_NEW(import->arena, struct frame);
    *frame = *lower->frame;
    frame->up = import->frame;
    frame->scope = scope;
    frame->nodes = nodes;
    frame->nnodes = (int64_t)nnodes;
    frame->at = 0;
    frame->prefix = arena_printf(import->arena, "%s/", lower->builder.node);
    frame->name_count = NULL;
    frame->caller = arena_copy(import->arena, lower, sizeof *lower);
    frame->failed = NULL;
    frame->diagnostics = import->diags->all.n;
    frame->errors = import->diags->errors;
    frame->unsupported = import->unsupported;
    import->frame = frame;
    lower->entered = true;
    return frame;
}

int lower_enter(struct lower *lower, const struct subgraph *subgraph) {
    struct import *import = lower->import;
    const Onnx__GraphProto *graph = subgraph->graph;
    struct scope *scope = scope_new(import->arena, lower->frame->scope);
    if ((int)graph->n_input != subgraph->ninputs)
        return lower_error(lower, 331, EXIT_MALFORMED, "the subgraph takes %zu inputs, but %d are given",
                           graph->n_input, subgraph->ninputs);
    import_initializers(import, graph, scope);
    for (size_t i = 0; i < graph->n_input; i++)
        scope_define(scope, onnx_text(graph->input[i]->name), subgraph->inputs[i]);
    struct frame *frame = push(lower, scope, graph->node, graph->n_node);
    const char **results = ARENA_ARRAY(import->arena, const char *, graph->n_output + 1);
    for (size_t i = 0; i < graph->n_output; i++) results[i] = onnx_text(graph->output[i]->name);
    frame->nresults = (int)graph->n_output;
    frame->results = results;
    if (subgraph->taken) {
        struct taken *taken = arena_copy(import->arena, subgraph->taken, sizeof *taken);
        taken->outer = frame->taken;
        frame->taken = taken;
    }
    frame->done = subgraph->done;
    frame->failed = subgraph->failed;
    frame->state = subgraph->state;
    return 0;
}

int lower_if_taken(struct lower *lower, int x, int value) {
    for (const struct taken *taken = lower->frame->taken; taken && x >= 0; taken = taken->outer)
        x = emit3(lower, OP_Where, taken->condition, taken->value ? x : value, taken->value ? value : x);
    return x;
}

static int function_done(struct lower *lower, void *state, int n, const int *values) {
    (void)state;
    for (int i = 0; i < lower->noutputs && i < n; i++) lower->outputs[i] = values[i];
    return 0;
}

/* The values of the function's attributes in this call: those given, else the function's defaults. */
static void bind_attributes(struct frame *frame, struct lower *lower, const Onnx__FunctionProto *function) {
    size_t most = function->n_attribute + function->n_attribute_proto;
    struct bound_attribute *bound = ARENA_ARRAY(lower->import->arena, struct bound_attribute, most + 1);
    frame->nbound = 0;
    for (size_t i = 0; i < most; i++) {
        bool fallback = i >= function->n_attribute;
        const Onnx__AttributeProto *preset = fallback ? function->attribute_proto[i - function->n_attribute] : NULL;
        const char *name = onnx_text(fallback ? preset->name : function->attribute[i]);
        const Onnx__AttributeProto *given = find_attribute(lower->frame, lower->node, name);
        if (given || preset) bound[frame->nbound++] = (struct bound_attribute){name, given ? given : preset};
    }
    frame->bound = bound;
}

static int enter_function(struct lower *lower, const Onnx__FunctionProto *function) {
    struct import *import = lower->import;
    if (lower->node->n_input > function->n_input || lower->node->n_output > function->n_output)
        return lower_error(lower, 331, EXIT_MALFORMED,
                           "function %s has %zu input(s) and %zu output(s), %zu and %zu given",
                           diag_quote(lower->builder.diags, onnx_text(function->name)), function->n_input,
                           function->n_output, lower->node->n_input, lower->node->n_output);
    struct scope *scope = scope_new(import->arena, NULL);
    for (size_t i = 0; i < function->n_input; i++)
        scope_define(scope, onnx_text(function->input[i]), (int)i < lower->ninputs ? lower->inputs[i] : LEFT_OUT);
    struct frame *frame = push(lower, scope, function->node, function->n_node);
    frame->nopsets = function->n_opset_import;
    frame->opsets = function->opset_import;
    frame->nresults = (int)function->n_output;
    frame->results = (const char *const *)function->output;
    frame->done = function_done;
    bind_attributes(frame, lower, function);
    return 0;
}

/* True for errors about the shapes or values of operands: E0371 to E0390. */
static bool is_of_operands(const struct diagnostic *item) {
    return item->code >= 371 && item->code <= 390;
}

/* The frame has errors: passes them to frame->failed. */
static int fail(struct import *import, const struct frame *frame, struct lower *lower) {
    struct failure failure = {.misfit = import->unsupported == frame->unsupported};
    diags_take(import->diags, frame->diagnostics, &failure.diags);
    for (int i = 0; i < failure.diags.all.n; i++) {
        const struct diagnostic *item = &failure.diags.all.at[i];
        if (item->severity == RT_SEVERITY_ERROR && !is_of_operands(item)) failure.misfit = false;
    }
    return frame->failed(lower, frame->state, &failure);
}

/* All nodes of the frame have been lowered: passes its results to frame->done, which sets the caller's outputs or
 * enters the next frame (the next iteration of a Loop). */
static void leave(struct import *import, struct frame *frame) {
    import->frame = frame->up;
    if (!frame->caller) return;
    struct lower *lower = frame->caller;
    int *values = ARENA_ARRAY(import->arena, int, frame->nresults + 1), status = 0;
    for (int i = 0; i < frame->nresults; i++) {
        values[i] = scope_find(frame->scope, onnx_text(frame->results[i]));
        if (values[i] == UNDEFINED)
            lower_error(lower, 325, EXIT_MALFORMED, "no node computes the result %s",
                        diag_quote(import->diags, frame->results[i]));
        if (values[i] < LEFT_OUT) status = -1;
    }
    lower->entered = false;
    int first = import->graph->nodes.n;
    if (frame->failed && (status < 0 || import->diags->errors > frame->errors))
        status = fail(import, frame, lower);
    else if (!status)
        status = frame->done(lower, frame->state, frame->nresults, values);
    if (!status) status = import_pass_counts(lower, first);
    if (!lower->entered) finish_node(import, lower->frame, lower, status);
}

/* One node -------------------------------------------------------------------------------------------------------- */

static int64_t opset_version(const struct frame *frame, const char *domain) {
    for (size_t i = 0; i < frame->nopsets; i++)
        if (strcmp(onnx_domain(frame->opsets[i]->domain), domain) == 0) return frame->opsets[i]->version;
    return *domain ? 1 : 0;
}

static const char *function_key(struct arena *arena, const char *domain, const char *name, const char *overload) {
    return arena_printf(arena, "%s::%s:%s", onnx_domain(domain), onnx_text(name), onnx_text(overload));
}

static const Onnx__FunctionProto *find_function(struct import *import, const Onnx__NodeProto *node) {
    if (!import->functions.n) return NULL;
    const char *key = function_key(import->arena, node->domain, node->op_type, node->overload);
    int at = map_get(&import->functions, key, strlen(key));
    return at < 0 ? NULL : import->model->proto->functions[at];
}

static const char *node_name(struct import *import, const struct frame *frame, const Onnx__NodeProto *node) {
    return arena_printf(import->arena, "%s%s", frame->prefix, onnx_node_name(node, frame->name_count));
}

/* Looks up the node's inputs: 0, or -1 if one is undefined (E324) or POISONED. */
static int find_inputs(struct lower *lower) {
    int status = 0;
    for (int i = 0; i < lower->ninputs; i++) {
        const char *name = onnx_text(lower->node->input[i]);
        lower->inputs[i] = *name ? scope_find(lower->frame->scope, name) : LEFT_OUT;
        if (lower->inputs[i] == UNDEFINED)
            lower_error(lower, 324, EXIT_MALFORMED, "input %d %s is not defined", i,
                        diag_quote(lower->builder.diags, name));
        if (lower->inputs[i] < LEFT_OUT) status = -1;
    }
    return status;
}

static const char *count_text(struct lower *lower, int least, int most) {
    struct arena *arena = lower->import->arena;
    const char *plural = least == 1 && most == 1 ? "" : "s";
    if (least == most) return arena_printf(arena, "%d input%s", least, plural);
    if (most == ONNX_MANY) return arena_printf(arena, "at least %d input%s", least, plural);
    return arena_printf(arena, "%d to %d inputs", least, most);
}

/* Checks the number of inputs and outputs. Optional inputs left out at the end are not counted, neither here nor by the
 * lowering; inside a function a name may stand for an input left out by the call. */
static int check_counts(struct lower *lower) {
    const struct onnx_op *op = lower->op;
    while (lower->ninputs > 0 && lower->inputs[lower->ninputs - 1] == LEFT_OUT) lower->ninputs--;
    if (lower->ninputs < op->in_min || lower->ninputs > op->in_max)
        return lower_error(lower, 331, EXIT_MALFORMED, "%s takes %s, but %d given", op->name,
                           count_text(lower, op->in_min, op->in_max), lower->ninputs);
    int required = op->in_max == ONNX_MANY && !op->sequences ? lower->ninputs : op->in_min;
    for (int i = 0; i < required; i++)
        if (lower->inputs[i] == LEFT_OUT)
            return lower_error(lower, 331, EXIT_MALFORMED, "required input %d is omitted", i);
    if (!lower->noutputs || lower->noutputs > op->out_max)
        return lower_error(lower, 331, EXIT_MALFORMED, "%s has %d output%s, %d given", op->name, op->out_max,
                           op->out_max == 1 ? "" : "s", lower->noutputs);
    for (int o = 0; o < lower->noutputs; o++)
        if (*onnx_text(lower->node->output[o])) return 0;
    return lower_error(lower, 332, EXIT_MALFORMED, "no output has a name");
}

static int check_sequences(struct lower *lower) {
    for (int i = 0; i < lower->ninputs && !lower->op->sequences; i++)
        if (lower_is_sequence(lower->inputs[i]))
            return lower_error(lower, 341, EXIT_MALFORMED, "input %d is a sequence, not a tensor", i);
    return 0;
}

/* Lowers a MAP row: one elementwise core operator with the same inputs and attributes. */
static int lower_map(struct lower *lower) {
    struct attr attrs[4];
    int n = 0, ndim;
    struct onnx_attr attr;
    if (lower->ninputs == 2) {
        struct tensor a = lower_input(lower, 0), b = lower_input(lower, 1);
        int64_t dims[RT_MAX_NDIM];
        if (!broadcast_dims(a.ndim, a.dims, b.ndim, b.dims, &ndim, dims))
            return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    }
    for (const char *rest = lower->op->attrs; (rest = onnx_next_attr(rest, &attr)); n++) {
        const char *name = arena_copy(lower->import->arena, attr.name, attr.length);
        attrs[n] = attr_of_float(name, lower_float(lower, name));
    }
    return lower_result(lower, emit(lower, lower->op->core->id, lower->ninputs, lower->inputs, n, attrs));
}

static int lower_node(struct lower *lower, const Onnx__FunctionProto *function) {
    int before = lower->builder.diags->all.n;
    if (find_inputs(lower) < 0) {
        if (!function) lower_check_attributes(lower);
        return -1;
    }
    if (function) return enter_function(lower, function);
    int status = check_counts(lower);
    if (lower_check_attributes(lower) < 0 || status < 0 || check_sequences(lower) < 0) return -1;
    int first = lower->import->graph->nodes.n;
    if (import_check_counted(lower) < 0) return -1;
    status = lower->op->core ? lower_map(lower) : lower->op->lower(lower);
    if (!status) status = import_pass_counts(lower, first);
    if (status < 0 && lower->builder.diags->all.n == before) BUG("%s failed without a diagnostic", lower->op->name);
    if (status < 0) place_errors(lower->import, lower, before);
    return status;
}

static void import_node(struct import *import, struct frame *frame) {
    const Onnx__NodeProto *node = frame->nodes[frame->at];
    const char *domain = onnx_domain(node->domain);
    int64_t version = opset_version(frame, domain);
    struct lower lower = {.builder = {import->graph, import->diags, node_name(import, frame, node)},
                          .import = import,
                          .frame = frame,
                          .node = node,
                          .index = frame->at++,
                          .version = (int)(version > INT_MAX ? INT_MAX : version),
                          .float_dtype = import->options->dtype,
                          .train = import->options->train,
                          .sync_batch_norm = import->options->train && import->options->sync_batch_norm,
                          .ninputs = (int)node->n_input,
                          .noutputs = (int)node->n_output,
                          .first_tensor = import->graph->tensors.n};
    lower.inputs = ARENA_ARRAY(import->arena, int, lower.ninputs + 1);
    lower.outputs = ARENA_ARRAY(import->arena, int, lower.noutputs + 1);
    for (int i = 0; i < lower.noutputs; i++) lower.outputs[i] = LEFT_OUT;
    import_provenance(&lower);
    const struct onnx_op *row = NULL;
    lower.op = import_find_user(import, domain, onnx_text(node->op_type));
    const Onnx__FunctionProto *function = lower.op ? NULL : find_function(import, node);
    if (!function && !lower.op) lower.op = onnx_op_find(&import->rows, domain, onnx_text(node->op_type), version, &row);
    bool missing = !function && (!lower.op || lower.op->refused);
    if (missing) import_missing(import, node, lower.op ? lower.op : row, lower.version, lower_where(&lower));
    int status = missing ? -1 : lower_node(&lower, function);
    if (!lower.entered) finish_node(import, frame, &lower, status);
}

static void walk(struct import *import) {
    int errors = import->diags->errors;
    while (import->frame) {
        struct frame *frame = import->frame;
        if (frame->at == frame->nnodes) {
            leave(import, frame);
            continue;
        }
        if (import->walked++ == ONNX_NODES) {
            diag_error(import->diags, 504, EXIT_LIMIT, import->model->place, "more than %d nodes after expansion",
                       ONNX_NODES);
            return;
        }
        import_node(import, frame);
        if (import->diags->errors - errors >= MAX_ERRORS) return;
    }
}

/* The model ------------------------------------------------------------------------------------------------------- */

static void index_functions(struct import *import) {
    const Onnx__ModelProto *proto = import->model->proto;
    map_init(&import->functions, import->arena);
    for (size_t i = 0; i < proto->n_functions; i++) {
        const Onnx__FunctionProto *function = proto->functions[i];
        const char *key = function_key(import->arena, function->domain, function->name, function->overload);
        map_put(&import->functions, key, strlen(key), (int)i);
    }
}

static struct map *count_names(struct arena *arena, const Onnx__GraphProto *graph) {
    struct map *count = ARENA_NEW(arena, struct map);
    onnx_count_names(graph, arena, count);
    return count;
}

/* False if the default operator set has an unsupported version, which was reported as E401. */
static bool opset_is_known(const Onnx__ModelProto *proto) {
    for (size_t i = 0; i < proto->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *set = proto->opset_import[i];
        if (!*onnx_domain(set->domain) && (set->version < ONNX_OPSET_MIN || set->version > ONNX_OPSET_MAX))
            return false;
    }
    return true;
}

int import_model(struct arena *arena, struct diags *diags, struct onnx_model *model,
                 const struct import_options *options, struct graph **out) {
    const Onnx__GraphProto *proto = model->proto->graph;
    struct import import = {.arena = arena, .diags = diags, .model = model, .options = options};
    struct graph *graph = import.graph = ARENA_NEW(arena, struct graph);
    graph_init(graph, arena, rt_path_name(model->path));
    graph->train = options->train;
    import_exporter(&import);
    onnx_op_index(&import.rows, arena);
    map_init(&import.missing_index, arena);
    map_init(&import.shared, arena);
    map_init(&import.counts, arena);
    map_init(&import.amount_index, arena);
    map_init(&import.bounds, arena);
    map_init(&import.equal, arena);
    index_functions(&import);
    import_index_user(&import);
    if (!opset_is_known(model->proto)) return -1;
    struct frame *frame = ARENA_NEW(arena, struct frame);
    *frame = (struct frame){.scope = scope_new(arena, NULL),
                            .nodes = proto->node,
                            .nnodes = (int64_t)proto->n_node,
                            .prefix = "",
                            .nopsets = model->proto->n_opset_import,
                            .opsets = model->proto->opset_import,
                            .name_count = count_names(arena, proto)};
    import.frame = frame;
    import_values(&import, frame->scope);
    walk(&import);
    import_report_missing(&import);
    import_report_aliases(&import);
    import_report_undeclared(&import);
    import_compare_signature(&import);
    if (!import.frame && import_outputs(&import, frame->scope) == 0) import_loss(&import, frame->scope);
    *out = graph;
    return diags->errors ? -1 : 0;
}
