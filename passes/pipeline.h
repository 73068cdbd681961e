/* The list of passes (passes.def) and their options. Each pass is one function, pass_NAME, in a file of its own. */
#ifndef PASSES_PIPELINE_H
#define PASSES_PIPELINE_H

#include "ir/ir.h"
#include "ir/decisions.h"

/* How attention is computed: by the operators of the graph; by the FlashAttention kernels, forward and backward; or
 * by a library of the target, with FlashAttention where the library does not support the case. */
enum attention_kind { ATTENTION_PRODUCTS, ATTENTION_FLASH, ATTENTION_LIBRARY, ATTENTION_ATOMIC };

/* From the word of option --attention; NULL: ATTENTION_PRODUCTS. */
enum attention_kind attention_kind_of(const char *word);

struct machine;
struct small_weights;
struct policy_plugin;

struct rank_class; /* passes/rank/rankplan.h */

/* A target's kernel of an operator, beside the operator's row. */
struct target_kernel {
    bool missing; /* there is none */
    bool halves;  /* it takes 16-bit floats, too */
    bool dense;   /* it takes no strides, whatever the row says */
    /* Bytes of workspace that it needs for a node; NULL: none. */
    int64_t (*scratch)(const struct graph *graph, const struct rank_class *class, const struct node *node);
};

struct pass_context {
    const char *policy; /* name of a row of policies.def */
    struct decisions decisions;
    const struct machine *machine;         /* for which policies estimate times; NULL: machine_default */
    const struct constraints *rules;       /* of policy manual */
    const struct policy_plugin *plugin;    /* from which policy manual takes its rules instead; NULL: none */
    const struct annotations *annotations; /* of policy annotated; NULL: the model has none */
    const struct constraints *constraints; /* on single nodes (passes/plan/constrain/constraints.h); NULL: none */
    const struct plan *given;              /* takes the place of the policy's plan (passes/plan/plan.h); NULL: none */
    struct plan *plan;                     /* pass policy stores the plan that it has applied; NULL: it does not */
    /* matrix products are calls of a library: weights are not packed, and epilogues are those of ir/expr/epilogue.h */
    bool library_products;
    /* kernels of packed products apply an epilogue to each block of the result */
    bool block_epilogues;
    bool row_programs; /* kernels are written for Rows and Columns (ir/expr/row_program.h) */
    /* they give the bits of their nodes' own kernels, and have a buffer for each value of a row */
    bool exact_rows;
    enum attention_kind attention;
    const struct small_weights *small_weights; /* train/small_weights.h; NULL: weights stay as they are */
    const char *cache_dtype;             /* of caches to which steps add rows: bf16, fp16, int8; NULL: the model's */
    const struct target_kernel *kernels; /* by enum op_id, that of operators of the user last; NULL: the rows say all */
    const struct training *training; /* how parameters are updated (train/training.h); NULL: the graph says it all */
    struct weight_roles *roles;      /* what roles finds (roles.h) is added to it; NULL: nothing is kept, nor said */
    bool unverified;                 /* pipeline_run verifies no graph: a search makes many, and verifies one */
    bool verbose;                    /* remarks list all nodes or weights, not only the first */
    struct diags *diags;
};

struct pass {
    const char *name;
    enum level from, to;
    int (*run)(struct graph *graph, const struct pass_context *context);
    const char *help;
};

extern const struct pass passes[];
extern const int npasses;

const struct pass *pass_find(const char *name);

/* Runs the passes from the graph's level up to and including `last` (NULL: all), verifying after each unless
 * the context says else. A graph that is past a pass's `from` skips it. Returns -1 after diagnostics. */
int pipeline_run(struct graph *graph, const struct pass_context *context, const struct pass *last);

/* The functions of the rows. Each returns -1 after diagnostics. */
#define PASS(name, from, to, run, help) int run(struct graph *graph, const struct pass_context *context);
#include "passes/passes.def"
#undef PASS

#endif
