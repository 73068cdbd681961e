/* What the import keeps while it walks a model. Lowerings do not see this: they have onnx_lower.h. */
#ifndef FRONTEND_IMPORT_IMPORT_STATE_H
#define FRONTEND_IMPORT_IMPORT_STATE_H

#include "frontend/import/import.h"
#include "frontend/lower/onnx_lower.h"
#include "frontend/lower/onnx_ops.h"

/* The names that nodes can read, with what they stand for; those of enclosing graphs are seen from subgraphs. */
struct scope {
    struct map ids; /* name -> id + NO_ID_BELOW */
    const struct scope *outer;
};

/* Ids of values: tensors from 0 on, sequences from SEQUENCES on. */
enum {
    LEFT_OUT = -1,
    POISONED = -2, /* an error was reported where it should have been computed */
    UNDEFINED = -3,
    NO_ID_BELOW = 2, /* map values are never negative */
    SEQUENCES = 1 << 30
};

struct sequence {
    int n;
    const int *items;
};

/* An attribute of a function call, by the name that the function's nodes refer to. */
struct bound_attribute {
    const char *name;
    const Onnx__AttributeProto *attribute;
};

/* One list of nodes on its way: the model's graph, a function's body, a branch, a pass through a loop. */
struct frame {
    struct frame *up;
    struct scope *scope;
    Onnx__NodeProto *const *nodes;
    int64_t nnodes, at;
    const char *prefix; /* before the names of nodes and values; "" in the model's graph */
    size_t nopsets;
    Onnx__OperatorSetIdProto *const *opsets;
    int nbound;
    const struct bound_attribute *bound;
    struct map *name_count; /* times a node's name occurs; NULL: unknown, all count as unique */

    /* Of an entered one: the node that it stands in for, and what happens with its results. */
    struct lower *caller;
    int nresults;
    const char *const *results; /* names */
    int (*done)(struct lower *lower, void *state, int n, const int *values);
    void *state;
};

/* Operators met that rankc does not have, once each. */
struct missing {
    const char *name;
    int code, count, version, since; /* since: 0, or the later version that has it */
    const char *where;               /* the first node */
};

struct import {
    struct arena *arena;
    struct diags *diags;
    struct onnx_model *model;
    const struct import_options *options;
    struct graph *graph;
    struct map rows;      /* onnx_op_index */
    struct map functions; /* "domain::name:overload" -> index in the model's */
    struct map declared;  /* value -> index in infos: what the model says about it */
    VEC(const Onnx__ValueInfoProto *) infos;
    int nfixed;          /* the first infos are of the graph's inputs and outputs: their shapes are never disputed */
    struct map disputed; /* ids of values whose size DISPUTED_CEIL decided */
    struct {
        int count;
        const char *where, *text; /* of the first */
    } disputes[DISPUTES];
    struct frame *frame;
    int64_t walked;       /* nodes so far */
    int random_operators; /* likewise */
    VEC(struct sequence) sequences;
    VEC(struct missing) missing;
    struct map missing_index;
    struct map aliases; /* what merged weights were called: "'a' is 'b'" */
    struct map trained; /* names that training_info updates; none: it does not say */
};

int scope_find(const struct scope *scope, const char *name);
void scope_define(struct scope *scope, const char *name, int id);

/* import_values.c: the values that no node computes, and what the model says about all of them. ------------------- */

/* Initializers, inputs and constants into `scope`; 0, or -1 after diagnostics. */
int import_values(struct import *import, struct scope *scope);
/* An initializer or constant as a tensor of that name, POISONED after a diagnostic. */
int import_tensor(struct import *import, const Onnx__TensorProto *proto, const char *name, bool may_be_weight);
/* What the model says of a weight that may be trained: its mark and sources (import_marks.c). */
void import_mark(struct import *import, int weight);
/* A value that stands for a weight is called so: of one that may be trained, the exporter merged two. */
void import_alias(struct import *import, const char *name, int weight);
void import_report_aliases(struct import *import);
/* Notes what training_info updates: before the first import_mark. */
void import_trained(struct import *import);
/* E342 if the model declares a value otherwise than `tensor` is; where only the shape differs and `dispute` says why it
 * may, that is noted, and counts as a remark. */
int import_check_declared(struct import *import, const char *name, int tensor, enum dispute dispute);
void import_report_disputes(struct import *import);
/* Notes the graph's results. */
int import_outputs(struct import *import, const struct scope *scope);

/* import_signature.c: notes the parameters of a PyTorch module that its export does not have, where it is trained.
 * -- */
void import_compare_signature(struct import *import);

/* import_loss.c: options->loss, if it is given, takes the place of the graph's results. ---------------------------- */
int import_loss(struct import *import, struct scope *scope);

/* import_missing.c: operators that are not there. ------------------------------------------------------------------ */

/* Counts a node whose operator has no row (row NULL), no old enough row, or a row that refuses it. */
void import_missing(struct import *import, const Onnx__NodeProto *node, const struct onnx_op *row, int version,
                    const char *where);
void import_report_missing(struct import *import);
/* Why there is no such operator: what a row's `refused` stands for. */
const char *onnx_refusal(int code);

#endif
