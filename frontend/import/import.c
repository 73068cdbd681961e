#include "ir/build.h"
#include "frontend/import/import.h"

#include <limits.h>

#include "ir/build.h"
#include "frontend/import/import_state.h"
#include "frontend/read/onnx_check.h"
#include "ir/base/str.h"
#include "ir/user.h"
#include "runtime/base/io/file.h"

/* Unsupported operators: all of one kind are reported in one error. */

enum { MOST_NAMED = 16, MOST_NOTES = 8 }; /* operators named in the error; operators with a note on their place */

static const struct reason {
    int code;
    enum exit_code exit;
    const char *one, *many, *because, *help;
} reasons[] = {
    {403, EXIT_MALFORMED, "unknown operator %s", "unknown operators %s", "ONNX has no such operator", NULL},
    {402, EXIT_UNSUPPORTED, "operator %s is not supported", "operators %s are not supported", "not implemented yet",
     NULL},
    {404, EXIT_UNSUPPORTED, "operator %s uses data types that are not supported",
     "operators %s use data types that are not supported", "its data types are not supported", NULL},
    {405, EXIT_UNSUPPORTED, "control flow is not supported: %s", "control flow is not supported: %s",
     "control flow that depends on data", NULL},
    {410, EXIT_UNSUPPORTED, "the shape of the result depends on data: %s",
     "the shapes of the results depend on data: %s", "the shape of the result depends on data", NULL},
};

enum { OLDEST_WHOLE = 6 }; /* operators that changed before this opset are supported in the form that they have in it */

const char *onnx_refusal(int code) {
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].code == code) return reasons[i].because;
    BUG("E%04d is no code of an unsupported model", code);
}

/* Records a node whose operator has no row (`row` NULL), only rows of later versions, or a row that refuses it. */
static void import_missing(struct import *import, const Onnx__NodeProto *node, const struct onnx_op *row, int version,
                           const char *where) {
    const char *domain = onnx_domain(node->domain), *type = onnx_text(node->op_type);
    const char *name = *domain ? arena_printf(import->arena, "%s::%s", domain, type) : type;
    int at = map_find(&import->missing_index, name);
    import->unsupported++;
    if (at >= 0) {
        import->missing.at[at].count++;
        return;
    }
    struct missing missing = {.name = name, .count = 1, .version = version, .where = where};
    if (row && row->since <= version) missing.remedy = row->remedy;
    bool old = row && !*domain && version < OLDEST_WHOLE && row->since <= OLDEST_WHOLE;
    bool newer = row && row->since > version && !old;
    missing.code = newer || (!row && !*domain) ? 403 : row && row->refused ? row->refused : 402;
    missing.since = newer || old ? row->since : 0;
    map_set(&import->missing_index, name, import->missing.n);
    VEC_PUSH(import->arena, &import->missing, missing);
}

static void note_each(struct import *import, int code, int count) {
    int noted = 0;
    for (int i = 0; i < import->missing.n && noted < MOST_NOTES; i++) {
        const struct missing *missing = &import->missing.at[i];
        if (missing->code != code) continue;
        if (missing->since && code == 402)
            diag_help(import->diags,
                      "%s changed in opset %d; convert the model by the onnx package: "
                      "version_converter.convert_version(model, target_version), target_version >= %d",
                      missing->name, missing->since, missing->since);
        else if (missing->since)
            diag_help(import->diags, "%s was added in opset %d, but the model imports opset %d", missing->name,
                      missing->since, missing->version);
        else if (count > 1 || missing->count > 1)
            diag_note(import->diags, "%s: %d node(s), the first is %s", diag_quote(import->diags, missing->name),
                      missing->count, missing->where);
        if (missing->remedy) diag_help(import->diags, "%s: %s", missing->name, missing->remedy);
        noted++;
    }
}

static void report(struct import *import, const struct reason *reason) {
    struct strbuf names = {.arena = import->arena};
    const struct missing *first = NULL;
    int count = 0;
    VEC_EACH(&import->missing, i, const struct missing *missing) {
        if (missing->code != reason->code) continue;
        if (!first) first = missing;
        if (count++ < MOST_NAMED)
            strbuf_printf(&names, "%s%s", count > 1 ? ", " : "", str_name(import->arena, missing->name));
    }
    if (!first) return;
    if (count > MOST_NAMED) strbuf_printf(&names, " and %d more", count - MOST_NAMED);
    if (reason->code == 403) strbuf_printf(&names, " in opset %d", first->version);
    const char *template = count > 1 ? reason->many : reason->one;
    const char *at = strstr(template, "%s");
    diag_error(import->diags, reason->code, reason->exit, first->where, "%.*s%s%s", (int)(at - template), template,
               strbuf_text(&names), at + 2);
    note_each(import, reason->code, count);
    if (reason->help) diag_help(import->diags, "%s", reason->help);
    if (reason->code == 402 && strstr(first->name, "::") && strncmp(first->name, "com.microsoft::", 15) != 0)
        diag_help(import->diags, "--ops FILE declares operators of your own");
}

static void import_report_missing(struct import *import) {
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) report(import, &reasons[i]);
}

/* Nodes that become operators which the user declares (--ops, ir/user.h). A declaration is one more row of the table of
 * ONNX operators; it takes precedence over rows of the same name and over functions of the model.
 *
 * Operators with a pattern are declared in the graph, for pass recognise, whether nodes have them or not. */
static void import_index_user(struct import *import) {
    const struct graph *declared = import->options->operators;
    map_init(&import->user_index, import->arena);
    if (!declared) return;
    import->user_rows = ARENA_ARRAY(import->arena, struct onnx_op, declared->operators.n + 1);
    VEC_EACH_VALUE(&declared->operators, i, struct user_op *const user) {
        import->user_rows[i] = (struct onnx_op){.domain = "",
                                                .name = user->op.name,
                                                .since = 1,
                                                .in_min = user_required(user),
                                                .in_max = user_inputs(user),
                                                .out_max = user_outputs(user),
                                                .attrs = user->attrs,
                                                .lower = lower_user,
                                                .user = user};
        map_set(&import->user_index, user->model, i);
        if (user->pattern) graph_declare(import->graph, user, declared->operators.at, declared->operators.n);
    }
}

/* The row of a node's operator; NULL if none is declared. */
static const struct onnx_op *import_find_user(const struct import *import, const char *domain, const char *type) {
    if (!import->user_index.n) return NULL;
    const char *name = arena_printf(import->arena, "%s::%s", domain, type);
    int at = map_find(&import->user_index, name);
    return at < 0 ? NULL : &import->user_rows[at];
}

enum { MAX_ERRORS = 50 }; /* the walk ends after so many, since further errors are likely to be consequences */

static struct scope *scope_new(struct arena *arena, const struct scope *outer) {
    struct scope *scope = ARENA_NEW(arena, struct scope);
    map_init(&scope->ids, arena);
    scope->outer = outer;
    return scope;
}

/* Defines the node's outputs in its scope, POISONED if it failed. Tensors that the node created get the names of the
 * ONNX values. */
static void finish_node(struct import *import, const struct frame *frame, struct lower *lower, int status) {
    for (int i = 0; i < lower->noutputs; i++) {
        const char *name = onnx_text(lower->node->output[i]);
        int id = status < 0 ? POISONED : lower->outputs[i];
        if (id >= 0 && !lower_is_sequence(id)) id = amounts_fold(&import->lowering, id);
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

static struct frame *push(struct import *import, struct lower *lower, struct scope *scope,
                          Onnx__NodeProto *const *nodes, size_t nnodes) {
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

/* Enters what the node's lowering has asked for. */
static void enter_subgraph(struct import *import, struct lower *lower) {
    const struct subgraph *subgraph = lower->enters;
    const Onnx__GraphProto *graph = subgraph->graph;
    struct scope *scope = scope_new(import->arena, lower->frame->scope);
    lower->enters = NULL;
    import_initializers(import, graph, scope);
    for (size_t i = 0; i < graph->n_input; i++)
        scope_define(scope, onnx_text(graph->input[i]->name), subgraph->inputs[i]);
    struct frame *frame = push(import, lower, scope, graph->node, graph->n_node);
    const char **results = ARENA_ARRAY(import->arena, const char *, graph->n_output + 1);
    for (size_t i = 0; i < graph->n_output; i++) results[i] = onnx_text(graph->output[i]->name);
    frame->nresults = (int)graph->n_output;
    frame->results = results;
    if (subgraph->taken) frame->taken = subgraph->taken;
    frame->done = subgraph->done;
    frame->failed = subgraph->failed;
    frame->state = subgraph->state;
}

static int function_done(struct lower *lower, void *state, int n, const int *values) {
    (void)state;
    for (int i = 0; i < lower->noutputs && i < n; i++) lower->outputs[i] = values[i];
    return 0;
}

/* The values of the function's attributes in this call: those given, else the function's defaults. */
static void bind_attributes(struct frame *frame, struct lower *lower, const Onnx__FunctionProto *function) {
    size_t most = function->n_attribute + function->n_attribute_proto;
    struct bound_attribute *bound = ARENA_ARRAY(lower->arena, struct bound_attribute, most + 1);
    frame->nbound = 0;
    for (size_t i = 0; i < most; i++) {
        bool fallback = i >= function->n_attribute;
        const Onnx__AttributeProto *preset = fallback ? function->attribute_proto[i - function->n_attribute] : NULL;
        const char *name = onnx_text(fallback ? preset->name : function->attribute[i]);
        const Onnx__AttributeProto *given = lower_attribute(lower, name);
        if (given || preset) bound[frame->nbound++] = (struct bound_attribute){name, given ? given : preset};
    }
    frame->bound = bound;
}

static int enter_function(struct import *import, struct lower *lower, const Onnx__FunctionProto *function) {
    if (lower->node->n_input > function->n_input || lower->node->n_output > function->n_output)
        return lower_error(lower, 331, "function %s has %zu input(s) and %zu output(s), %zu and %zu given",
                           diag_quote(lower->builder.diags, onnx_text(function->name)), function->n_input,
                           function->n_output, lower->node->n_input, lower->node->n_output);
    struct scope *scope = scope_new(import->arena, NULL);
    for (size_t i = 0; i < function->n_input; i++)
        scope_define(scope, onnx_text(function->input[i]), (int)i < lower->ninputs ? lower->inputs[i] : LEFT_OUT);
    struct frame *frame = push(import, lower, scope, function->node, function->n_node);
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
    VEC_EACH(&failure.diags.all, i, const struct diagnostic *item)
        if (item->severity == RT_SEVERITY_ERROR && !is_of_operands(item)) failure.misfit = false;
    if (!failure.diags.errors) failure.misfit = false; /* it reads a value of a node that failed before */
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
            lower_error(lower, 325, "no node computes the result %s", diag_quote(import->diags, frame->results[i]));
        if (values[i] < LEFT_OUT) status = -1;
    }
    lower->entered = false;
    int first = import->graph->nodes.n;
    if (frame->failed && (status < 0 || import->diags->errors > frame->errors))
        status = fail(import, frame, lower);
    else if (!status)
        status = frame->done(lower, frame->state, frame->nresults, values);
    if (!status && lower->enters) enter_subgraph(import, lower);
    if (!status) status = lower_pass_counts(lower, first);
    if (!lower->entered) finish_node(import, lower->frame, lower, status);
}

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
    int at = map_find(&import->functions, key);
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
            lower_error(lower, 324, "input %d %s is not defined", i, diag_quote(lower->builder.diags, name));
        if (lower->inputs[i] < LEFT_OUT) status = -1;
    }
    return status;
}

static const char *count_text(struct lower *lower, int least, int most) {
    struct arena *arena = lower->arena;
    if (least == most) return arena_printf(arena, "%d input(s)", least);
    if (most == ONNX_MANY) return arena_printf(arena, "at least %d input(s)", least);
    return arena_printf(arena, "%d to %d inputs", least, most);
}

/* Checks the number of inputs and outputs. Optional inputs left out at the end are not counted, neither here nor by the
 * lowering; inside a function a name may stand for an input left out by the call. */
static int check_counts(struct lower *lower) {
    const struct onnx_op *op = lower->op;
    while (lower->ninputs > 0 && lower->inputs[lower->ninputs - 1] == LEFT_OUT) lower->ninputs--;
    if (lower->ninputs < op->in_min || lower->ninputs > op->in_max)
        return lower_error(lower, 331, "%s takes %s, but %d given", op->name, count_text(lower, op->in_min, op->in_max),
                           lower->ninputs);
    int required = op->in_max == ONNX_MANY && !op->sequences ? lower->ninputs : op->in_min;
    for (int i = 0; i < required; i++)
        if (lower->inputs[i] == LEFT_OUT) return lower_error(lower, 331, "required input %d is omitted", i);
    if (!lower->noutputs || lower->noutputs > op->out_max)
        return lower_error(lower, 331, "%s has %d output(s), %d given", op->name, op->out_max, lower->noutputs);
    for (int o = 0; o < lower->noutputs; o++)
        if (*onnx_text(lower->node->output[o])) return 0;
    return lower_error(lower, 332, "no output has a name");
}

static int check_sequences(struct lower *lower) {
    for (int i = 0; i < lower->ninputs && !lower->op->sequences; i++)
        if (lower_is_sequence(lower->inputs[i]))
            return lower_error(lower, 341, "input %d is a sequence, not a tensor", i);
    return 0;
}

static int visit(struct import *import, struct lower *lower, const Onnx__FunctionProto *function) {
    int before = import->diags->all.n;
    if (find_inputs(lower) < 0) {
        if (!function) lower_check_attributes(lower);
        return -1;
    }
    if (function) return enter_function(import, lower, function);
    int status = check_counts(lower);
    if (lower_check_attributes(lower) < 0 || status < 0 || check_sequences(lower) < 0) return -1;
    int first = import->graph->nodes.n;
    if (lower_check_counted(lower) < 0) return -1;
    status = lower->op->core ? lower_map(lower) : lower->op->lower(lower);
    if (!status && lower->enters) enter_subgraph(import, lower);
    if (!status) status = lower_pass_counts(lower, first);
    if (status < 0 && import->diags->all.n == before) BUG("%s failed without a diagnostic", lower->op->name);
    if (status < 0) place_errors(import, lower, before);
    return status;
}

/* The node's attributes; inside a function those of the call that they refer to (ref_attr_name), NULL if the call does
 * not give them. */
static const Onnx__AttributeProto **attributes_of(struct arena *arena, const struct frame *frame,
                                                  const Onnx__NodeProto *node) {
    const Onnx__AttributeProto **attributes = ARENA_ARRAY(arena, const Onnx__AttributeProto *, node->n_attribute + 1);
    for (size_t i = 0; i < node->n_attribute; i++) {
        const char *refers = onnx_text(node->attribute[i]->ref_attr_name);
        attributes[i] = *refers ? NULL : node->attribute[i];
        for (int k = frame->nbound - 1; k >= 0 && *refers; k--)
            if (strcmp(frame->bound[k].name, refers) == 0) attributes[i] = frame->bound[k].attribute;
    }
    return attributes;
}

static void import_node(struct import *import, struct frame *frame) {
    const Onnx__NodeProto *node = frame->nodes[frame->at];
    const char *domain = onnx_domain(node->domain);
    int64_t version = opset_version(frame, domain);
    struct lower lower = {.builder = {import->graph, import->diags, node_name(import, frame, node)},
                          .arena = import->arena,
                          .shared = &import->lowering,
                          .frame = frame,
                          .taken = frame->taken,
                          .node = node,
                          .attributes = attributes_of(import->arena, frame, node),
                          .index = frame->at++,
                          .version = (int)(version > INT_MAX ? INT_MAX : version),
                          .ninputs = (int)node->n_input,
                          .noutputs = (int)node->n_output,
                          .first_tensor = import->graph->tensors.n};
    lower.inputs = ARENA_ARRAY(import->arena, int, lower.ninputs + 1);
    lower.outputs = ARENA_ARRAY(import->arena, int, lower.noutputs + 1);
    for (int i = 0; i < lower.noutputs; i++) lower.outputs[i] = LEFT_OUT;
    import_provenance(import, &lower);
    const struct onnx_op *row = NULL;
    lower.op = import_find_user(import, domain, onnx_text(node->op_type));
    const Onnx__FunctionProto *function = lower.op ? NULL : find_function(import, node);
    if (!function && !lower.op) lower.op = onnx_op_find(&import->rows, domain, onnx_text(node->op_type), version, &row);
    bool missing = !function && (!lower.op || lower.op->refused);
    if (missing) import_missing(import, node, lower.op ? lower.op : row, lower.version, lower_where(&lower));
    int status = missing ? -1 : visit(import, &lower, function);
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

static void index_functions(struct import *import) {
    const Onnx__ModelProto *proto = import->model->proto;
    map_init(&import->functions, import->arena);
    for (size_t i = 0; i < proto->n_functions; i++) {
        const Onnx__FunctionProto *function = proto->functions[i];
        const char *key = function_key(import->arena, function->domain, function->name, function->overload);
        map_set(&import->functions, key, (int)i);
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

static int import_once(struct arena *arena, struct diags *diags, struct onnx_model *model,
                       const struct import_options *options, struct equalities *equalities, struct graph **out) {
    const Onnx__GraphProto *proto = model->proto->graph;
    struct graph *graph = ARENA_NEW(arena, struct graph);
    struct import import = {
        .arena = arena, .diags = diags, .model = model, .graph = graph, .options = options, .equalities = equalities};
    import.lowering = (struct lowering){.arena = arena,
                                        .diags = diags,
                                        .model = model,
                                        .graph = graph,
                                        .operators = options->operators,
                                        .float_dtype = options->dtype,
                                        .sync_batch_norm = options->train && options->sync_batch_norm};
    lowering_init(&import.lowering);
    graph_init(graph, arena, rt_path_name(model->path));
    *out = graph;
    graph->train = options->train;
    graph->keeps = options->keeps;
    import_exporter(&import);
    onnx_op_index(&import.rows, arena);
    map_init(&import.missing_index, arena);
    map_init(&import.shared, arena);
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
    if (!diags->errors) import_pairs(&import);
    if (!diags->errors && (!graph->open || !equality_find_indexed(equalities, graph))) build_compute_open(graph, diags);
    return diags->errors ? -1 : 0;
}

static void say_equalities(struct diags *diags, const struct onnx_model *model, const struct equalities *equalities) {
    VEC_EACH(&equalities->all, i, const struct equality *equality) {
        diag_remark(diags, model->place, "dimension %s is %s", diag_quote(diags, equality->name),
                    open_text(equality->from, diags->arena, equality->value, NULL, false));
    }
    VEC_EACH(&equalities->limits, i, const struct limited *limited) {
        diag_remark(diags, model->place, "%s is at most %lld",
                    open_plain(limited->from, diags->arena, limited->limit.value), (long long)limited->limit.most);
    }
}

int import_model(struct arena *arena, struct diags *diags, struct onnx_model *model,
                 const struct import_options *options, struct graph **out) {
    struct equalities equalities = {0};
    for (int i = 0; i < options->ndims; i++) equalities.guess |= open_is_range(&options->dims[i].range);
    for (int i = 0; i < options->nshapes; i++)
        for (int d = 0; d < options->shapes[i].ndim; d++)
            equalities.guess |= open_is_range(&options->shapes[i].sizes[d]);
    const int before = diags->all.n;
    for (;;) {
        struct diags dropped;
        const int known = equalities.all.n + equalities.limits.n;
        equalities.guessed = 0;
        const int status = import_once(arena, diags, model, options, &equalities, out);
        const bool found =
            equalities.all.n + equalities.limits.n > known || (status < 0 && equality_find(&equalities, (*out)->open));
        const bool more =
            found || ((status < 0 || equalities.guessed) && import_mask_size(arena, model, options, &equalities));
        if (!more && !equalities.guessed) {
            if (!status) say_equalities(diags, model, &equalities);
            return status;
        }
        if (!more) equalities.guess = false; /* what is missing is missing */
        diags_take(diags, before, &dropped);
    }
}
