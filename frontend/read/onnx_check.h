/* Structural checks of a model that was read: what can be said without knowing operators or shapes.
 *
 * Every loop over the model is iterative and linear. Errors are collected, the first CHECK_ERRORS of them recorded.
 * A graph, every subgraph in an attribute and every function body is a scope; a subgraph sees the values that its
 * outer scopes define, and may redefine a name of theirs for itself (exporters do). onnx_check.c looks at the model
 * and at declared values, onnx_check_node.c at nodes and attributes, onnx_check_scope.c at who defines and who
 * reads a value, onnx_check_function.c at functions that call each other.
 */
#ifndef FRONTEND_READ_ONNX_CHECK_H
#define FRONTEND_READ_ONNX_CHECK_H

#include "frontend/read/onnx_data.h"
#include "frontend/read/onnx_model.h"

enum { CHECK_ERRORS = 20, ONNX_IR_MIN = 3, ONNX_IR_MAX = 14, ONNX_OPSET_MIN = 6, ONNX_OPSET_MAX = 28 };

/* Checks model->proto. -1 when it is malformed or too large. Gives every attribute its type where the file left it
 * out and exactly one value tells it. */
int onnx_check(struct onnx_model *model);

/* What follows is for the check files alone. */

/* A list of nodes that defines values. */
struct check_scope {
    const Onnx__GraphProto *graph;       /* NULL: a function body */
    const Onnx__FunctionProto *function; /* NULL: a graph */
    Onnx__NodeProto **nodes;
    int nnodes;
    int parent, parent_node; /* the scope and its node that hold this subgraph, -1: none */
    int root;                /* index of the function it is part of, -1: none */
    struct map defined;      /* value name -> check_definition */
    int first_edge;          /* index into edges of the latest "node reads what a node of this scope writes", -1 */
    int late_reader, late_writer;
    const char *late_value; /* the first value read before it is written; NULL: none */
};

struct check_edge {
    int reader, writer;
    int next;        /* edge of the scope */
    int next_reader; /* edge with this writer */
};

/* One call of a function by a node; caller -1: the main graph or its subgraphs. */
struct check_call {
    int caller, callee, next;
};

struct check {
    struct onnx_model *model;
    struct arena *scratch;
    int recorded, left_out, malformed;
    VEC(struct check_scope) scopes; /* [0] the main graph */
    VEC(struct check_edge) edges;
};

/* Records an error unless CHECK_ERRORS were. -1. */
#define CHECK_FAIL(check, code, exit, place, ...)                                                                      \
    (check_admit(check, exit)                                                                                          \
         ? diag_error((check)->model->diags, code, exit, onnx_place_text((check)->model, place), __VA_ARGS__)          \
         : -1)
bool check_admit(struct check *check, enum exit_code exit);

const char *check_quote(struct check *check, const char *name);
/* The place of node `index` of a scope. */
struct onnx_place check_place(const struct check_scope *scope, int index);
/* "node #5 'name'" */
const char *check_node_text(struct check *check, const struct check_scope *scope, int index);
bool check_is_utf8(const char *text);

void check_node(struct check *check, const struct check_scope *scope, int index);
void check_attributes(struct check *check, Onnx__AttributeProto **attributes, size_t count,
                      const struct onnx_place *place, bool in_function);
void check_tensor(struct check *check, const Onnx__TensorProto *tensor, const struct onnx_place *place);

void check_definitions(struct check *check, struct check_scope *scope);
void check_reads(struct check *check, int scope);
void check_order(struct check *check, struct check_scope *scope);
/* The index of an input of `scope` that is called `name`, -1: none. */
int check_input_index(const struct check_scope *scope, const char *name);

void check_functions(struct check *check);

#endif
