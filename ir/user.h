/* Operators that users declare (docs/user-operators.md). A declaration is a statement of text IR:
 *
 *   operator "acme::Gate" types="ff->f" dims="* c, c -> * c" flops=9 attrs="alpha:f=1" \
 *       call="acme_gate_$T($y, $x0, $x1, $[*], $c, $alpha)" c="gate.h" cuda="gate.cuh" kernels="f32 f64" \
 *       gradient="acme::GateGrad(a, b, dy).0 | acme::GateGrad(a, b, dy).1"
 *
 *   "acme::Gate"  the name, DOMAIN::NAME, in text IR, plans and messages
 *   types         as in ir/op.h, of the letters T N f I b d s u l, with "?" after optional inputs
 *   dims          the annotation (ir/dims.h); shapes, legal splits and FLOPs follow from it
 *   flops         per point of the iteration space; 1 if it is left out
 *   attrs         "name:kind": kind i (integer), f (float) or I (integers), then "=" and a default, or "!" if a node
 *                 must have it
 *   call          of the kernel, in the language of codegen/call/placeholders.h; only the variables of
 *                 user_call_variables
 *   c, cuda       files with the kernel for each target, below the folder of the text that declares it. Sources of
 *                 ranks include them, so functions are static
 *   kernels       the types of the first operand with several types for which there are kernels; all if left out
 *   expr          instead of dims, call, c and cuda: the expression of an elementwise operator (ir/expr/expr.h)
 *   gradient      per input, separated by " | ": 0 (none), an expression of dy (the gradient of output 0), y, the
 *                 inputs (x, or a b c ..) and the attributes, or output N of a declared operator:
 *                 "acme::GateGrad(a, dy).N", which takes its attributes from the node's
 *   model         DOMAIN::TYPE of the ONNX nodes that become this operator; the name if left out
 *   pattern       a subgraph of core operators (ir/pattern.h) that becomes this operator, too: names x0, x1 .. are its
 *                 inputs, NAME# the attribute NAME of kind f
 *
 * A declaration becomes a row like those of ops.def, which the nodes of its graph point to. */
#ifndef IR_USER_H
#define IR_USER_H

#include "ir/gradient.h"
#include "ir/op.h"

enum { USER_INPUTS = 8, USER_OUTPUTS = 3, USER_ATTRS = 16, USER_TEXT = 4096 /* bytes of a property */ };

enum user_target { USER_C, USER_CUDA, USER_TARGETS };

struct user_kernel {
    const char *file; /* as declared; NULL: none for that target */
    const char *text; /* its content; NULL: not read */
    size_t bytes;
};

struct user_op {
    struct op op; /* id OP_NONE; op.user points to this */
    const char *model, *attrs, *gradient, *kernels, *pattern;
    struct user_kernel kernel[USER_TARGETS];
};

/* One attribute of `attrs`. */
struct user_attr {
    char name[32];
    char kind; /* i f I */
    bool required;
    const char *fallback; /* the text of the default, followed by a blank or the end; NULL: none */
};

/* Parses the first attribute of the text. Returns the text behind it, NULL if there is none or it is malformed; then
 * *why is set. */
const char *user_next_attr(const char *text, struct user_attr *attr, const char **why);

/* What is wrong with a declaration: the property, the reason, and where in the property's text. */
struct user_fault {
    const char *property, *why;
    size_t at;
};

/* Completes the row of a declaration whose properties are set, and checks it by itself. */
bool user_op_complete(struct user_op *user, struct arena *arena, struct user_fault *fault);
/* Checks what the declaration says of others: its gradient. `all`: the n operators declared with it. */
bool user_op_check_gradient(const struct user_op *user, struct user_op *const *all, int n, struct arena *arena,
                            struct user_fault *fault);

/* Number of inputs and outputs, and of inputs that may not be left out. */
int user_inputs(const struct user_op *user);
int user_outputs(const struct user_op *user);
int user_required(const struct user_op *user);

/* The reason why property `pattern` is malformed, and the byte *at which; NULL: it is not. */
const char *user_pattern_fault(const struct user_op *user, struct arena *arena, size_t *at);
/* The input that a name of the pattern refers to; -1: none. */
int user_pattern_input(const struct user_op *user, const char *name);

/* Adds the subgraph of the pattern with these inputs, by its first alternatives and with the attributes' defaults:
 * reductions are over the last dimension. Returns its result, or -1 after a diagnostic. */
int user_pattern_build(struct build *builder, const struct user_op *user, const int *inputs);

/* The operator declared in the graph under that name, else the row of ops.def; NULL if there is none. */
const struct op *graph_find_op(const struct graph *graph, const char *name);
/* Declares the operator in the graph, and those that its gradient uses, which are among the n in `all`. */
void graph_declare(struct graph *graph, struct user_op *user, struct user_op *const *all, int n);

/* The attributes of a node of the operator: those of `from` that it declares, and defaults. *n is their number. */
const struct attr *user_attrs(const struct user_op *user, const struct node *from, struct arena *arena, int *n);

#endif
