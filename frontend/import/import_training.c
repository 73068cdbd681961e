/* The optimizer in a model's TrainingInfoProto, whose `algorithm` has nodes of domain ai.onnx.preview.training. */
#include <stdlib.h>

#include "frontend/import/import_state.h"

static const char domain[] = "ai.onnx.preview.training";

/* ONNX's update operators and the optimizer of rankc with the same update; options are "option=attribute/default".
 * ONNX's beta is 1 - dampening of PyTorch. ONNX's Adam has no equivalent: it adds epsilon before the bias correction of
 * the second moment and omits the correction in the first step. */
static const struct form {
    const char *op, *optimizer, *options;
} forms[] = {
    {"Adagrad", "adagrad", "lr_decay=decay_factor/0 eps=epsilon/1e-6 weight_decay=norm_coefficient/0"},
    {"Momentum", "sgd", "momentum=alpha/0 dampening=beta/1 weight_decay=norm_coefficient/0"},
    {"Adam", NULL, NULL},
};
enum { FORMS = sizeof forms / sizeof *forms };

struct reading {
    struct arena *arena;
    struct diags *diags;
    struct onnx_model *model;
    const Onnx__GraphProto *algorithm;
};

static int refuse(const struct reading *reading, const char *what, const char *name) {
    diag_error(reading->diags, 402, EXIT_UNSUPPORTED, reading->model->place, "training_info: %s %s", what,
               diag_quote(reading->diags, name));
    return diag_help(reading->diags, "choose the optimizer with --optimizer instead");
}

static const Onnx__AttributeProto *attribute(const Onnx__NodeProto *node, const char *name) {
    for (size_t i = 0; i < node->n_attribute; i++)
        if (strcmp(onnx_text(node->attribute[i]->name), name) == 0) return node->attribute[i];
    return NULL;
}

static bool attribute_is(const Onnx__NodeProto *node, const char *name, const char *text) {
    const Onnx__AttributeProto *found = attribute(node, name);
    return found && found->s.len == strlen(text) && memcmp(found->s.data, text, found->s.len) == 0;
}

/* Reads a float initializer of one element; false if there is none of that name. */
static bool read_number(const struct reading *reading, const Onnx__GraphProto *graph, const char *name, double *value) {
    for (size_t i = 0; i < graph->n_initializer; i++) {
        struct onnx_tensor tensor;
        if (strcmp(onnx_text(graph->initializer[i]->name), name) != 0) continue;
        if (onnx_tensor(reading->model, graph->initializer[i], NULL, &tensor) < 0 || tensor.count != 1 ||
            !rt_dtype_is_float(tensor.dtype))
            return false;
        rt_convert(value, RT_F64, tensor.data, tensor.dtype, 1);
        return true;
    }
    return false;
}

static double option_of(const struct reading *reading, const Onnx__NodeProto *node, const char *text) {
    const size_t option = strcspn(text, "="), name = strcspn(text, "/");
    const Onnx__AttributeProto *given =
        attribute(node, arena_copy(reading->arena, text + option + 1, name - option - 1));
    const double value = given ? (double)given->f : strtod(text + name + 1, NULL);
    return strncmp(text, "dampening", option) == 0 ? 1 - value : value;
}

/* Translates an update node to text for --optimizer, "sgd:lr=..,momentum=..". */
static int describe(const struct reading *reading, const struct form *form, const Onnx__NodeProto *node,
                    const char **text) {
    const char *rate = node->n_input ? onnx_text(node->input[0]) : "";
    double lr;
    if (!form->optimizer) return refuse(reading, "rankc has no optimizer equivalent to", form->op);
    if (!read_number(reading, reading->algorithm, rate, &lr) &&
        !read_number(reading, reading->model->proto->graph, rate, &lr))
        return refuse(reading, "the learning rate is not a constant of the model:", rate);
    *text = arena_printf(reading->arena, "%s:lr=%.9g", form->optimizer, lr);
    for (const char *at = form->options; *at; at += strcspn(at, " "), at += strspn(at, " ")) {
        const char *name = arena_copy(reading->arena, at, strcspn(at, "="));
        *text = arena_printf(reading->arena, "%s,%s=%.9g", *text, name, option_of(reading, node, at));
    }
    if (attribute_is(node, "mode", "nesterov")) *text = arena_printf(reading->arena, "%s,nesterov=1", *text);
    return 0;
}

/* The Gradient node must differentiate the model's output 0, which rankc trains on. */
static int check_gradient(const struct reading *reading, const Onnx__NodeProto *node) {
    const Onnx__GraphProto *graph = reading->model->proto->graph;
    const char *loss = graph->n_output ? onnx_text(graph->output[0]->name) : "";
    return attribute_is(node, "y", loss)
               ? 0
               : refuse(reading, "Gradient is computed of another value than the model's output 0:", loss);
}

static int read_node(const struct reading *reading, const Onnx__NodeProto *node, const char **text) {
    const char *op = onnx_text(node->op_type), *own = NULL;
    if (strcmp(onnx_domain(node->domain), domain) != 0) return 0;
    if (strcmp(op, "Gradient") == 0) return check_gradient(reading, node);
    for (int i = 0; i < FORMS; i++)
        if (strcmp(forms[i].op, op) == 0 && describe(reading, &forms[i], node, &own) < 0) return -1;
    if (!own) return refuse(reading, "unknown operator:", op);
    if (*text && strcmp(*text, own) != 0) return refuse(reading, "parameters are updated by different operators:", op);
    *text = own;
    return 0;
}

int import_optimizer(struct arena *arena, struct diags *diags, struct onnx_model *model, const char **text) {
    const Onnx__ModelProto *proto = model->proto;
    *text = NULL;
    for (size_t i = 0; i < proto->n_training_info; i++) {
        const struct reading reading = {arena, diags, model, proto->training_info[i]->algorithm};
        for (size_t k = 0; reading.algorithm && k < reading.algorithm->n_node; k++)
            if (read_node(&reading, reading.algorithm->node[k], text) < 0) return -1;
        if (reading.algorithm && reading.algorithm->n_node && !*text)
            return refuse(&reading, "the algorithm has no optimizer operator:", onnx_text(reading.algorithm->name));
    }
    return 0;
}
