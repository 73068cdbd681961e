/* Structural checks of an ONNX model: everything that needs neither operator semantics nor shape inference.
 *
 * Every check takes time linear in the size of the model and does not recurse. Checks go on after an error; the first
 * CHECK_ERRORS errors are reported. The main graph, every graph attribute and every function body is a scope. A
 * subgraph sees the values of the scopes around it and may shadow their names, as exporters do.
 *
 *   onnx_check.c           versions, declared values
 *   onnx_check_node.c      nodes and attributes
 *   onnx_check_scope.c     definitions and uses of values, order of nodes
 */
#ifndef FRONTEND_READ_ONNX_CHECK_H
#define FRONTEND_READ_ONNX_CHECK_H

#include "frontend/read/onnx_data.h"
#include "frontend/read/onnx_model.h"

enum { CHECK_ERRORS = 20, ONNX_IR_MIN = 3, ONNX_IR_MAX = 14, ONNX_OPSET_MIN = 1, ONNX_OPSET_MAX = 28 };

/* Checks model->proto: 0, or -1 after diagnostics if the model is malformed or too large. An attribute without a type
 * gets that of its only value; nodes are sorted topologically; a
 * dimension of -1, which frameworks write for one of any size, has no size. */
int onnx_check(struct onnx_model *model);

/* The rest is shared by the onnx_check*.c files only. */

/* A scope: a graph, a subgraph in an attribute, or a function body. */
struct check_scope {
    const Onnx__GraphProto *graph;       /* NULL: a function body */
    const Onnx__FunctionProto *function; /* NULL: a graph */
    Onnx__NodeProto **nodes;
    int nnodes;
    int parent, parent_node; /* the enclosing scope and the node in it that has this subgraph, -1: none */
    int root;                /* index of the enclosing function, -1: the main graph */
    struct map defined;      /* value name -> definition, encoded in onnx_check_scope.c */
    int first_edge;          /* head of the scope's list of edges, -1: empty */
    int late_reader, late_writer;
    const char *late_value; /* the first value that is read by a node before its writer; NULL: none */
};

/* Node `reader` of a scope reads an output of node `writer` of the same scope. */
struct check_edge {
    int reader, writer;
    int next;        /* next edge of the scope, -1: last */
    int next_writer; /* next edge of the same reader, -1: last */
};

/* A node that calls a function. caller: the enclosing function, -1: the main graph. next: next call of the callee. */
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

/* Reports an error at `place`, a struct onnx_place *, unless CHECK_ERRORS have been reported. Is -1. */
#define CHECK_FAIL(check, code, place, ...) CHECK_FAIL_AS(check, code, onnx_exit(code), place, __VA_ARGS__)
#define CHECK_FAIL_AS(check, code, exit, place, ...)                                                                   \
    (check_admit(check, exit)                                                                                          \
         ? diag_error((check)->model->diags, code, exit, onnx_place_text((check)->model, place), __VA_ARGS__)          \
         : -1)
bool check_admit(struct check *check, enum exit_code exit);

/* A name in quotes for a diagnostic, escaped. */
const char *check_quote(struct check *check, const char *name);
/* The place of node `index` of a scope; -1: of the scope itself. */
struct onnx_place check_place(const struct check_scope *scope, int index);

/* One node with its attributes and their tensors. */
void check_node(struct check *check, const struct check_scope *scope, int index);
/* in_function: attributes may refer to attributes of the enclosing function (ref_attr_name). */
void check_attributes(struct check *check, Onnx__AttributeProto **attributes, size_t count,
                      const struct onnx_place *place, bool in_function);
void check_tensor(struct check *check, const Onnx__TensorProto *tensor, const struct onnx_place *place);
void check_sparse(struct check *check, const Onnx__SparseTensorProto *sparse, const struct onnx_place *place);

/* Fills scope->defined: E321 for a name defined twice. Must have run for a scope and all around it before
 * check_reads. */
void check_definitions(struct check *check, struct check_scope *scope);
/* E324, E325 for inputs and outputs that nothing defines. Collects the edges of the scope. */
void check_reads(struct check *check, int scope);
/* Sorts the nodes of the scope topologically, with a remark if they were not; E322 for a cycle. Needs the edges of
 * check_reads. */
void check_order(struct check *check, struct check_scope *scope);
/* The index of the input of `scope` with that name, -1: none. */
int check_input_index(const struct check_scope *scope, const char *name);

#endif
