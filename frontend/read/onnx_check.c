#include "frontend/read/onnx_check.h"

#include <inttypes.h>
#include <string.h>

#include "ir/base/str.h"

/* The model's functions and the calls between them. */
struct functions {
    struct check *check;
    Onnx__FunctionProto **all;
    int n;
    struct map index;  /* domain NUL name NUL overload -> number */
    struct strbuf key; /* the latest key */
    VEC(struct check_call) calls;
    int *first;         /* by callee: its calls */
    int *waits;         /* calls of a function whose callee has no size yet */
    int *callee;        /* of a function without a size: one that it calls and that has none */
    int64_t *size;      /* nodes after expansion, at most ONNX_NODES + 1 */
    int64_t main_nodes; /* the same of the main graph */
};

static void add_nodes(int64_t *sum, int64_t more) {
    *sum += more;
    if (*sum > ONNX_NODES) *sum = ONNX_NODES + 1;
}

static void make_key(struct functions *functions, const char *domain, const char *name, const char *overload) {
    const char *parts[] = {onnx_domain(domain), onnx_text(name), onnx_text(overload)};
    functions->key.length = 0;
    for (int i = 0; i < 3; i++) strbuf_add(&functions->key, parts[i], strlen(parts[i]) + 1);
}

static const char *function_text(struct functions *functions, int function) {
    const Onnx__FunctionProto *proto = functions->all[function];
    const char *domain = onnx_domain(proto->domain);
    const char *name =
        arena_printf(functions->check->scratch, "%s%s%s", domain, *domain ? "::" : "", onnx_text(proto->name));
    return str_name(functions->check->model->arena, name);
}

static struct onnx_place function_place(struct functions *functions, int function) {
    return (struct onnx_place){.what = "function", .name = onnx_text(functions->all[function]->name)};
}

static void name_functions(struct functions *functions) {
    map_init(&functions->index, functions->check->scratch);
    strbuf_init(&functions->key, functions->check->scratch);
    for (int i = 0; i < functions->n; i++) {
        struct onnx_place place = function_place(functions, i);
        if (!*onnx_text(functions->all[i]->name))
            CHECK_FAIL(functions->check, 328, &place, "function #%d has no name", i);
        make_key(functions, functions->all[i]->domain, functions->all[i]->name, functions->all[i]->overload);
        if (map_get(&functions->index, functions->key.text, functions->key.length) < 0)
            map_put(&functions->index, functions->key.text, functions->key.length, i);
        else
            CHECK_FAIL(functions->check, 328, &place, "function %s is defined twice", function_text(functions, i));
        check_attributes(functions->check, functions->all[i]->attribute_proto, functions->all[i]->n_attribute_proto,
                         &place, true);
    }
}

/* Adds the nodes of a scope to the size of the enclosing function or main graph and records its calls of functions. */
static void collect_calls(struct functions *functions, const struct check_scope *scope) {
    add_nodes(scope->root < 0 ? &functions->main_nodes : &functions->size[scope->root], scope->nnodes);
    EACH_VALUE(scope->nodes, scope->nnodes, i, const Onnx__NodeProto *node) {
        make_key(functions, node->domain, node->op_type, node->overload);
        int callee = map_get(&functions->index, functions->key.text, functions->key.length);
        if (callee < 0) continue;
        VEC_PUSH(functions->check->scratch, &functions->calls,
                 (struct check_call){scope->root, callee, functions->first[callee]});
        functions->first[callee] = functions->calls.n - 1;
        if (scope->root >= 0) functions->waits[scope->root]++;
    }
}

/* Computes expanded sizes in topological order, callees first. Returns the number of functions that have a size: fewer
 * than all if functions are recursive. */
static int expand(struct functions *functions) {
    int *queue = ARENA_ARRAY(functions->check->scratch, int, functions->n), done = 0, n = 0;
    for (int i = 0; i < functions->n; i++)
        if (!functions->waits[i]) queue[n++] = i;
    for (; done < n; done++)
        for (int c = functions->first[queue[done]]; c >= 0; c = functions->calls.at[c].next) {
            int caller = functions->calls.at[c].caller;
            add_nodes(caller < 0 ? &functions->main_nodes : &functions->size[caller], functions->size[queue[done]]);
            if (caller >= 0 && !--functions->waits[caller]) queue[n++] = caller;
        }
    return n;
}

static void report_recursion(struct functions *functions) {
    VEC_EACH(&functions->calls, c, const struct check_call *call) {
        if (call->caller >= 0 && functions->waits[call->caller] && functions->waits[call->callee])
            functions->callee[call->caller] = call->callee;
    }
    int at = 0;
    while (!functions->waits[at]) at++;
    for (; functions->waits[at] > 0; at = functions->callee[at]) functions->waits[at] = -1; /* visited */
    struct onnx_place place = function_place(functions, at);
    if (functions->callee[at] == at)
        CHECK_FAIL(functions->check, 327, &place, "function %s calls itself", function_text(functions, at));
    else
        CHECK_FAIL(functions->check, 327, &place, "function %s calls itself through %s", function_text(functions, at),
                   function_text(functions, functions->callee[at]));
}

/* E327 for recursive functions, E504 if the model has more than ONNX_NODES nodes after expansion. */
static void check_functions(struct check *check) {
    const Onnx__ModelProto *proto = check->model->proto;
    struct functions functions = {.check = check, .all = proto->functions, .n = (int)proto->n_functions};
    if (!functions.n) return;
    functions.first = ARENA_ARRAY(check->scratch, int, functions.n);
    functions.waits = ARENA_ARRAY(check->scratch, int, functions.n);
    functions.callee = ARENA_ARRAY(check->scratch, int, functions.n);
    functions.size = ARENA_ARRAY(check->scratch, int64_t, functions.n);
    for (int i = 0; i < functions.n; i++) functions.first[i] = -1;
    name_functions(&functions);
    for (int i = 0; i < check->scopes.n; i++) collect_calls(&functions, &check->scopes.at[i]);
    struct onnx_place place = {.text = check->model->place};
    if (expand(&functions) < functions.n)
        report_recursion(&functions);
    else if (functions.main_nodes > ONNX_NODES)
        CHECK_FAIL(check, 504, &place, "expansion of functions exceeds %d nodes", ONNX_NODES);
}

#define VALUE_BYTES 0x1p46 /* larger values fit no machine */

bool check_admit(struct check *check, enum exit_code exit) {
    if (exit != EXIT_UNSUPPORTED) check->malformed++;
    if (check->recorded < CHECK_ERRORS) return check->recorded++, true;
    check->left_out++;
    return false;
}

const char *check_quote(struct check *check, const char *name) {
    return diag_quote(check->model->diags, name);
}

struct onnx_place check_place(const struct check_scope *scope, int index) {
    struct onnx_place place = {.index = index, .node = index >= 0 ? scope->nodes[index] : NULL};
    if (scope->function)
        place.inside = "function", place.inner = onnx_text(scope->function->name);
    else if (scope->parent >= 0)
        place.inside = "subgraph", place.inner = onnx_text(scope->graph->name);
    return place;
}

/* A version number of the file and its supported range. `lower` and `raise` are the help for a version above and below
 * the range; the newest or oldest supported version follows. */
static const struct version_range {
    const char *name;
    int least, most;
    const char *lower, *raise;
} ir_range = {"ir_version", ONNX_IR_MIN, ONNX_IR_MAX,
              "if the model uses no newer feature, load it with the onnx package and save it with model.ir_version =",
              "convert it with an older onnx package to at least ir_version"},
  opset_range = {"opset", ONNX_OPSET_MIN, ONNX_OPSET_MAX,
                 "export it with a lower opset_version, or convert it by the onnx package: "
                 "version_converter.convert_version(model, target_version), target_version =",
                 "convert it by the onnx package: version_converter.convert_version(model, target_version), "
                 "target_version >="};

static bool is_supported(const struct version_range *range, int64_t version) {
    return version >= range->least && version <= range->most;
}

static void refuse_version(struct check *check, int code, const struct onnx_place *place,
                           const struct version_range *range, int64_t version) {
    if (!check_admit(check, EXIT_UNSUPPORTED)) return;
    const bool newer = version > range->most;
    diag_error(check->model->diags, code, EXIT_UNSUPPORTED, onnx_place_text(check->model, place),
               "%s %" PRId64 " is %s than %d, the %s that is supported", range->name, version,
               newer ? "newer" : "older", newer ? range->most : range->least, newer ? "newest" : "oldest");
    diag_help(check->model->diags, "%s %d", newer ? range->lower : range->raise, newer ? range->most : range->least);
}

static void check_versions(struct check *check, const struct onnx_place *place) {
    const Onnx__ModelProto *proto = check->model->proto;
    if (!proto->has_ir_version)
        CHECK_FAIL_AS(check, 312, EXIT_UNSUPPORTED, place, "the model has no ir_version, which must be from %d to %d",
                      ONNX_IR_MIN, ONNX_IR_MAX);
    else if (!is_supported(&ir_range, proto->ir_version))
        refuse_version(check, 312, place, &ir_range, proto->ir_version);
}

static void check_import(struct check *check, const Onnx__OperatorSetIdProto *import, const struct onnx_place *place,
                         struct map *first) {
    const Onnx__ModelProto *proto = check->model->proto;
    const char *domain = onnx_domain(import->domain);
    int before = map_find(first, domain);
    if (before < 0)
        map_set(first, domain, first->n);
    else if (proto->opset_import[before]->version != import->version)
        CHECK_FAIL(check, 315, place, "domain %s is imported twice (%" PRId64 ", %" PRId64 ")",
                   check_quote(check, *domain ? domain : "ai.onnx"), proto->opset_import[before]->version,
                   import->version);
    if (!*domain && !is_supported(&opset_range, import->version))
        refuse_version(check, 401, place, &opset_range, import->version);
}

/* True if a node of the main graph or of its subgraphs is in the default domain. */
static bool uses_default_domain(const struct check *check) {
    VEC_EACH(&check->scopes, s, const struct check_scope *scope) {
        for (int i = 0; scope->root < 0 && i < scope->nnodes; i++)
            if (!*onnx_domain(scope->nodes[i]->domain)) return true;
    }
    return false;
}

static void check_imports(struct check *check, const struct onnx_place *place) {
    const Onnx__ModelProto *proto = check->model->proto;
    struct map first; /* domain -> its first opset_import */
    map_init(&first, check->scratch);
    for (size_t i = 0; i < proto->n_opset_import; i++) check_import(check, proto->opset_import[i], place, &first);
    bool needed = !proto->n_opset_import || uses_default_domain(check);
    if (needed && map_get(&first, "", 0) < 0) CHECK_FAIL(check, 314, place, "no opset_import for the default domain");
}

static void check_graph_features(struct check *check, const struct onnx_place *place) {
    const Onnx__GraphProto *graph = check->model->proto->graph;
    if (!graph->n_output) CHECK_FAIL(check, 326, place, "graph has no outputs");
    if (graph->n_quantization_annotation)
        diag_remark(check->model->diags, check->model->place, "quantization_annotation is ignored");
}

static const Onnx__TypeProto__Tensor *tensor_type(const Onnx__ValueInfoProto *value) {
    if (!value->type || value->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE) return NULL;
    return value->type->tensor_type;
}

/* The tensor type within optional(..) and sequence(..); NULL: none. */
static const Onnx__TypeProto__Tensor *innermost_type(const Onnx__TypeProto *type) {
    while (type && type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE) {
        const bool optional = type->value_case == ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE;
        if (!optional && type->value_case != ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE) return NULL;
        type = optional ? type->optional_type->elem_type : type->sequence_type->elem_type;
    }
    return type ? type->tensor_type : NULL;
}

static bool is_static(const Onnx__TensorShapeProto__Dimension *dim) {
    return dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
}

/* Bytes of a value, symbolic dimensions counted as 1. A double, since declared extents may overflow any integer. */
static double value_bytes(const Onnx__TypeProto__Tensor *type) {
    enum rt_dtype dtype = rt_dtype_by_onnx(type->elem_type);
    double bytes = dtype == RT_DTYPE_NONE ? 1 : (double)rt_dtype_bytes(dtype);
    for (size_t i = 0; i < type->shape->n_dim; i++)
        if (is_static(type->shape->dim[i])) bytes *= (double)type->shape->dim[i]->dim_value;
    return bytes;
}

static void check_value_shape(struct check *check, const Onnx__TypeProto__Tensor *type,
                              const struct onnx_place *place) {
    const Onnx__TensorShapeProto *shape = type->shape;
    const char *name = onnx_text(place->name);
    if (shape->n_dim > ONNX_DIMS) {
        CHECK_FAIL(check, 506, place, "value %s has %zu dimension(s), at most %d are supported",
                   check_quote(check, name), shape->n_dim, ONNX_DIMS);
        return;
    }
    for (size_t i = 0; i < shape->n_dim; i++) {
        Onnx__TensorShapeProto__Dimension *dim = shape->dim[i];
        if (!is_static(dim) || dim->dim_value >= 0) continue;
        if (dim->dim_value == -1) {
            dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE__NOT_SET;
            continue;
        }
        CHECK_FAIL(check, 352, place, "value %s: dimension %zu is %" PRId64, check_quote(check, name), i,
                   dim->dim_value);
        return;
    }
    if (value_bytes(type) > VALUE_BYTES)
        CHECK_FAIL(check, 505, place, "value %s needs %.2g bytes", check_quote(check, name), value_bytes(type));
}

static void check_value(struct check *check, const Onnx__ValueInfoProto *value, const struct onnx_place *place) {
    const Onnx__TypeProto__Tensor *type = innermost_type(value->type);
    if (!type) return; /* whether other types are supported is the importer's to say: E404 */
    if (type->elem_type && !onnx_type_name(type->elem_type))
        CHECK_FAIL(check, 356, place, "value %s: unknown element type %" PRId32,
                   check_quote(check, onnx_text(value->name)), type->elem_type);
    if (type->shape) check_value_shape(check, type, place);
}

static void check_values(struct check *check, const struct check_scope *scope, Onnx__ValueInfoProto **values,
                         size_t count, const char *what) {
    for (size_t i = 0; i < count; i++) {
        struct onnx_place place = check_place(scope, -1);
        place.what = what;
        place.name = onnx_text(values[i]->name);
        check_value(check, values[i], &place);
    }
}

static bool shapes_agree(const Onnx__TypeProto__Tensor *type, const Onnx__TensorProto *tensor) {
    if (type->elem_type && type->elem_type != tensor->data_type) return false;
    if (!type->shape) return true;
    if (type->shape->n_dim != tensor->n_dims) return false;
    for (size_t i = 0; i < tensor->n_dims; i++)
        if (is_static(type->shape->dim[i]) && type->shape->dim[i]->dim_value != tensor->dims[i]) return false;
    return true;
}

static void check_initializer(struct check *check, const struct check_scope *scope, const Onnx__TensorProto *tensor) {
    struct onnx_place place = check_place(scope, -1);
    place.what = "initializer";
    place.name = onnx_text(tensor->name);
    int before = check->malformed;
    check_tensor(check, tensor, &place);
    int input = check_input_index(scope, place.name);
    if (input < 0 || check->malformed > before) return;
    const Onnx__TypeProto__Tensor *type = tensor_type(scope->graph->input[input]);
    if (type && !shapes_agree(type, tensor))
        CHECK_FAIL(check, 342, &place, "initializer %s has another type than the graph input of the same name",
                   check_quote(check, place.name));
}

static void add_scope(struct check *check, const Onnx__GraphProto *graph, const Onnx__FunctionProto *function,
                      int parent, int parent_node, int root) {
    VEC_PUSH(check->scratch, &check->scopes,
             (struct check_scope){.graph = graph,
                                  .function = function,
                                  .nodes = graph ? graph->node : function->node,
                                  .nnodes = (int)(graph ? graph->n_node : function->n_node),
                                  .parent = parent,
                                  .parent_node = parent_node,
                                  .root = root,
                                  .first_edge = -1});
}

static void add_subgraphs(struct check *check, int at) {
    const struct check_scope scope = check->scopes.at[at];
    for (int i = 0; i < scope.nnodes; i++)
        for (size_t a = 0; a < scope.nodes[i]->n_attribute; a++) {
            const Onnx__AttributeProto *attribute = scope.nodes[i]->attribute[a];
            if (attribute->g) add_scope(check, attribute->g, NULL, at, i, scope.root);
            for (size_t g = 0; g < attribute->n_graphs; g++)
                add_scope(check, attribute->graphs[g], NULL, at, i, scope.root);
        }
}

/* The graphs of training_info may read every value of the main graph, so their parent node is the one after its
 * last. */
static void add_scopes(struct check *check) {
    const Onnx__ModelProto *proto = check->model->proto;
    int end = (int)proto->graph->n_node;
    add_scope(check, proto->graph, NULL, -1, -1, -1);
    for (size_t i = 0; i < proto->n_functions; i++) add_scope(check, NULL, proto->functions[i], -1, -1, (int)i);
    for (size_t i = 0; i < proto->n_training_info; i++) {
        const Onnx__TrainingInfoProto *info = proto->training_info[i];
        if (info->initialization) add_scope(check, info->initialization, NULL, 0, end, -1);
        if (info->algorithm) add_scope(check, info->algorithm, NULL, 0, end, -1);
    }
    for (int i = 0; i < check->scopes.n; i++) add_subgraphs(check, i);
}

static void check_scope_values(struct check *check, const struct check_scope *scope) {
    const Onnx__GraphProto *graph = scope->graph;
    if (!graph) {
        check_values(check, scope, scope->function->value_info, scope->function->n_value_info, "value");
        return;
    }
    check_values(check, scope, graph->input, graph->n_input, "input");
    check_values(check, scope, graph->output, graph->n_output, "output");
    check_values(check, scope, graph->value_info, graph->n_value_info, "value");
    for (size_t i = 0; i < graph->n_initializer; i++) check_initializer(check, scope, graph->initializer[i]);
    for (size_t i = 0; i < graph->n_sparse_initializer; i++)
        check_sparse(check, graph->sparse_initializer[i], &(struct onnx_place){.text = check->model->place});
}

static void check_scopes(struct check *check) {
    for (int i = 0; i < check->scopes.n; i++) {
        check_definitions(check, &check->scopes.at[i]);
        check_scope_values(check, &check->scopes.at[i]);
        for (int k = 0; k < check->scopes.at[i].nnodes; k++) check_node(check, &check->scopes.at[i], k);
    }
    for (int i = 0; i < check->scopes.n; i++) check_reads(check, i);
    for (int i = 0; i < check->scopes.n; i++) check_order(check, &check->scopes.at[i]);
}

int onnx_check(struct onnx_model *model) {
    struct check check = {.model = model, .scratch = &model->scratch};
    struct onnx_place place = {.text = model->place};
    add_scopes(&check);
    check_versions(&check, &place);
    check_imports(&check, &place);
    check_graph_features(&check, &place);
    check_scopes(&check);
    check_functions(&check);
    if (check.left_out) diag_note(model->diags, "%d more error(s)", check.left_out);
    return check.malformed ? -1 : 0;
}
