/* State of an import, private to the import_*.c files; lowerings include onnx_lower.h instead. */
#ifndef FRONTEND_IMPORT_IMPORT_STATE_H
#define FRONTEND_IMPORT_IMPORT_STATE_H

#include "frontend/import/import.h"
#include "frontend/import/import_equal.h"
#include "frontend/lower/lowering_state.h"

/* The values that nodes of a graph can read, by name. Subgraphs also see those of the graphs around them. */
struct scope {
    struct map ids; /* name -> id + NO_ID_BELOW */
    const struct scope *outer;
};

/* A graph input that is not a tensor: its tensors are n of the import's ports, from `first` on. */
struct boundary {
    const char *name;
    int first, n;
    bool nothing;  /* an optional without a value */
    bool poisoned; /* not resolved because of an error that was reported */
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
    struct lowering lowering;
    struct arena *arena; /* this, diags, model and graph are those of the lowering */
    struct diags *diags;
    struct onnx_model *model;
    struct graph *graph;
    const struct import_options *options;
    struct equalities *equalities;
    struct map rows;                   /* onnx_op_index */
    struct onnx_op *user_rows;         /* by index of options->operators */
    struct map user_index;             /* "domain::type" -> index of user_rows */
    struct map functions;              /* "domain::name:overload" -> index in the model's functions */
    VEC(Onnx__ValueInfoProto *) ports; /* the graph inputs as tensors */
    VEC(struct boundary) boundaries;
    struct map declared; /* value name -> index of its declaration in infos */
    VEC(const Onnx__ValueInfoProto *) infos;
    int nfixed; /* the first infos are graph inputs and outputs, whose declared types must hold */
    struct {
        int count;
        const char *where, *text; /* of the first */
    } undeclared;                 /* values that are not as the model declares them */
    struct frame *frame;          /* the innermost */
    int64_t walked;               /* nodes so far */
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

/* import_values.c, import_marks.c: values that no node computes, and declarations of values. */

/* Defines graph inputs, bound inputs and initializers in `scope`: 0, or -1 after diagnostics. */
int import_values(struct import *import, struct scope *scope);
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

/* import_bind.c: inputs that --bind makes constants. */

struct sizes;
/* Defines them; symbolic dimensions get their sizes from their shapes. */
void import_binds(struct sizes *sizes, struct scope *scope);

/* import_ports.c: graph inputs and outputs that are sequences or optionals. */

/* Finds the tensors that the graph inputs consist of: 0, or -1 after diagnostics. */
int import_ports(struct import *import);
/* Defines the inputs that are no tensors; their tensors have been defined. */
void import_boundaries(struct import *import, struct scope *scope);
/* Sets the outputs of the graph. */
int import_outputs(struct import *import, const struct scope *scope);

/* import_pairs.c: makes state of the inputs and outputs that options->state names: 0, or -1 after a diagnostic. */

int import_pairs(struct import *import);
/* With state: adds what the name of a mask over all tokens says of its length, where no operator does: the cache's and
 * that of the new tokens together. False: nothing. */
bool import_mask_size(struct arena *arena, const struct onnx_model *model, const struct import_options *options,
                      struct equalities *equalities);

/* Options that give what has no size in a decoder with caches bounds, and keep the caches, as " --state auto
 * --dim past=0..1024": in the import's arena; NULL if no input with the name of a cache lacks a size, in training, and
 * with --state none. */
const char *import_decoder_options(const struct import *import, const struct map *missing);

/* import_signature.c: the parameters of the PyTorch module that was exported. */

/* Collects them from the signature in the metadata. Call it before the first import_mark. */
void import_signature(struct import *import);
/* When training, a remark on those that are missing in the export. */
void import_compare_signature(struct import *import);

/* import_provenance.c: where nodes come from (ir/provenance.h). */

/* Records what the model says about the node's module and source line. */
void import_provenance(struct import *import, const struct lower *lower);
/* Records what wrote the model, and its operator set. */
void import_exporter(struct import *import);

/* import_loss.c: appends options->loss, if given, and makes it the only output of the graph. */
int import_loss(struct import *import, struct scope *scope);

/* The reason that the code in onnx_op.refused stands for, as text. */
const char *onnx_refusal(int code);

#endif
