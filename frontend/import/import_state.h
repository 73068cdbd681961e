/* State of an import, private to the import_*.c files; lowerings include onnx_lower.h instead. */
#ifndef FRONTEND_IMPORT_IMPORT_STATE_H
#define FRONTEND_IMPORT_IMPORT_STATE_H

#include "frontend/import/import.h"
#include "frontend/lower/amounts.h"
#include "frontend/lower/onnx_lower.h"
#include "frontend/lower/onnx_ops.h"

/* The values that nodes of a graph can read, by name. Subgraphs also see those of the graphs around them. */
struct scope {
    struct map ids; /* name -> id + NO_ID_BELOW */
    const struct scope *outer;
};

/* Ids of values: a tensor's id from 0 on, SEQUENCES + index for a sequence, or a negative constant. */
enum {
    LEFT_OUT = -1,   /* an optional input or output that the node does not have */
    POISONED = -2,   /* not computed because of an error that was reported */
    UNDEFINED = -3,  /* no value has that name */
    NO_ID_BELOW = 2, /* added to ids in a struct map, whose values must not be negative */
    SEQUENCES = 1 << 30
};

/* A graph input that is not a tensor: its tensors are n of the import's ports, from `first` on. */
struct boundary {
    const char *name;
    int first, n;
    bool nothing;  /* an optional without a value */
    bool poisoned; /* not resolved because of an error that was reported */
};

struct sequence {
    int n;
    const int *items;
    bool nothing; /* an optional without a value */
};

/* The value of a function's attribute in one call; nodes of the function refer to it by `name`. */
struct bound_attribute {
    const char *name;
    const Onnx__AttributeProto *attribute;
};

/* A list of nodes being imported: the main graph, the body of a function, a branch of an If, an iteration of a Loop. */
struct frame {
    struct frame *up;
    struct scope *scope;
    Onnx__NodeProto *const *nodes;
    int64_t nnodes, at;
    const char *prefix; /* of the names of nodes and values; "" in the main graph */
    size_t nopsets;
    Onnx__OperatorSetIdProto *const *opsets;
    int nbound;
    const struct bound_attribute *bound;
    const struct taken *taken; /* NULL: always */
    struct map *name_count;    /* node name -> occurrences; NULL: names are taken as unique */

    /* Unless it is the main graph: the node that it replaces, and the callback for its results (struct subgraph). */
    struct lower *caller;
    int nresults;
    const char *const *results; /* names */
    int (*done)(struct lower *lower, void *state, int n, const int *values);
    int (*failed)(struct lower *lower, void *state, const struct failure *failure); /* NULL: the caller fails */
    void *state;
    int diagnostics, errors, unsupported; /* when it was entered */
};

/* An unsupported operator of the model; one entry however many nodes have it. */
struct missing {
    const char *name;
    int code, count, version, since; /* since: the later opset version that has it, 0: none */
    const char *where, *remedy;      /* the first node; a line of help, or NULL */
};

struct import {
    struct arena *arena;
    struct diags *diags;
    struct onnx_model *model;
    const struct import_options *options;
    struct graph *graph;
    struct map rows;                   /* onnx_op_index */
    struct onnx_op *user_rows;         /* by index of options->operators */
    struct map user_index;             /* "domain::type" -> index of user_rows */
    struct map functions;              /* "domain::name:overload" -> index in the model's functions */
    VEC(Onnx__ValueInfoProto *) ports; /* the graph inputs as tensors */
    VEC(struct boundary) boundaries;
    struct map declared; /* value name -> index of its declaration in infos */
    VEC(const Onnx__ValueInfoProto *) infos;
    int nfixed;        /* the first infos are graph inputs and outputs, whose declared types must hold */
    struct map counts; /* ids of values: Note [Counted values] in import_counts.c */
    VEC(struct counted) counted;
    int passed; /* nodes whose results are known to be counted or not */
    /* Note [Amounts] in amounts.h: */
    struct map amount_index;            /* tensor -> index in amounts */
    VEC(const struct amount *) amounts; /* one per element of the tensor */
    struct map bounds;                  /* root -> index in bound */
    VEC(int64_t) bound;                 /* the most that a root can be */
    VEC(struct amount_sum) sums;        /* that are known */
    struct map equal;                   /* text of a node's computation -> the first tensor of it */
    VEC(int) first_equal;               /* tensor -> the first tensor of equal value */
    int numbered;                       /* nodes in `equal` */
    struct {
        int count;
        const char *where, *text; /* of the first */
    } undeclared;                 /* values that are not as the model declares them */
    struct frame *frame;          /* the innermost */
    int64_t walked;               /* nodes so far */
    int random_operators;         /* so far */
    int nchwc_block;              /* lower_nchwc_block, once it is known; else 0 */
    VEC(struct sequence) sequences;
    VEC(struct missing) missing;
    struct map missing_index;
    int unsupported;    /* nodes in `missing` so far */
    struct map shared;  /* Note [Shared weights] in import_values.c */
    struct map aliases; /* names of merged weights, as text "'a' is 'b'" */
    struct map module;  /* parameters of the PyTorch module by the name of its member; empty: not known */
    struct map trained; /* weights that training_info updates; empty: the model has none */
};

/* The id of the value with that name, UNDEFINED if there is none. */
int scope_find(const struct scope *scope, const char *name);
void scope_define(struct scope *scope, const char *name, int id);

/* Adds a sequence, or an optional without a value, and returns its id. */
int import_sequence(struct import *import, int n, const int *items, bool nothing);

/* import_values.c, import_marks.c: values that no node computes, and declarations of values. --------------------- */

/* Defines graph inputs, bound inputs and initializers in `scope`: 0, or -1 after diagnostics. */
int import_values(struct import *import, struct scope *scope);
/* Adds an initializer or constant to the graph as a tensor of that name; POISONED after a diagnostic. may_be_weight:
 * large float tensors become WEIGHTs. */
int import_tensor(struct import *import, const Onnx__TensorProto *proto, const char *name, bool may_be_weight);
/* The same of a sparse tensor, which becomes a dense constant; errors are at `where`. */
int import_sparse(struct import *import, const Onnx__SparseTensorProto *proto, const char *name, const char *where);
/* Defines the initializers of a graph in `scope`, but those that it has already. */
void import_initializers(struct import *import, const Onnx__GraphProto *graph, struct scope *scope);
/* When training: sets the weight's mark and sources from the model's metadata and training_info. */
void import_mark(struct import *import, int weight);
/* The value `name` is a copy of a weight. When training, records that the exporter has merged two parameters. */
void import_alias(struct import *import, const char *name, int weight);
void import_report_aliases(struct import *import);
/* Collects the weights that training_info updates. Call it before the first import_mark. */
void import_trained(struct import *import);
/* Compares the value `name`, which a node computes, with its declaration: what the node computes is right, and a
 * warning says so. E342 for an output of another element type. 0 or -1. */
int import_check_declared(struct import *import, const char *name, int tensor);
void import_report_undeclared(struct import *import);

/* Adds a tensor to the graph as a constant; POISONED if it is too large. */
int import_constant(struct import *import, const char *name, const struct rt_tensor *tensor);

/* import_bind.c: inputs that --bind makes constants. --------------------------------------------------------------- */

struct sizes;
/* Defines them; symbolic dimensions get their sizes from their shapes. */
void import_binds(struct sizes *sizes, struct scope *scope);

/* import_ports.c: graph inputs and outputs that are sequences or optionals. ---------------------------------------- */

/* Finds the tensors that the graph inputs consist of: 0, or -1 after diagnostics. */
int import_ports(struct import *import);
/* Defines the inputs that are no tensors; their tensors have been defined. */
void import_boundaries(struct import *import, struct scope *scope);
/* Sets the outputs of the graph. */
int import_outputs(struct import *import, const struct scope *scope);

/* import_counts.c: values whose size depends on data (Note [Counted values] there). -------------------------------- */

/* NULL: the size of the tensor does not depend on data. */
const struct counted *import_counted(const struct import *import, int id);
/* E410 if the node's operator does not take its counted operands. Brings operands that broadcast to the same bounds. */
int import_check_counted(struct lower *lower);
/* Finds which results of the nodes so far are counted. */
void import_find_counts(struct import *import);
/* The same; E410 if one of the nodes from `first` on cannot be computed on valid indices alone. */
int import_pass_counts(struct lower *lower, int first);
/* import_amounts.c: a constant in place of an integer tensor or bool whose elements are known (Note [Amounts] in
 * amounts.h), other tensors as they are. */
int amounts_fold(struct import *import, int tensor);
/* Adds the counts of outputs to the outputs. */
void import_count_outputs(struct import *import);

/* import_signature.c: the parameters of the PyTorch module that was exported. ------------------------------------- */

/* Collects them from the signature in the metadata. Call it before the first import_mark. */
void import_signature(struct import *import);
/* When training, a remark on those that are missing in the export. */
void import_compare_signature(struct import *import);

/* import_provenance.c: where nodes come from (ir/provenance.h). ---------------------------------------------------- */

/* Records what the model says about the node's module and source line. */
void import_provenance(const struct lower *lower);
/* Records what wrote the model, and its operator set. */
void import_exporter(struct import *import);

/* import_loss.c: appends options->loss, if given, and makes it the only output of the graph. */
int import_loss(struct import *import, struct scope *scope);

/* import_user.c: operators that the user declares. The row of a node's operator; NULL if none is declared. */
void import_index_user(struct import *import);
const struct onnx_op *import_find_user(const struct import *import, const char *domain, const char *type);

/* import_missing.c: unsupported operators. ------------------------------------------------------------------------- */

/* Records a node whose operator has no row (`row` NULL), only rows of later versions, or a row that refuses it. */
void import_missing(struct import *import, const Onnx__NodeProto *node, const struct onnx_op *row, int version,
                    const char *where);
void import_report_missing(struct import *import);
/* The reason that the code in onnx_op.refused stands for, as text. */
const char *onnx_refusal(int code);

#endif
