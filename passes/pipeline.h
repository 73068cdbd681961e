/* The list of passes and what they are told. Each pass is one file with one function of this type. */
#ifndef PASSES_PIPELINE_H
#define PASSES_PIPELINE_H

#include "ir/ir.h"

/* How attention is computed, where the target's kernels take it: as the graph says; by FlashAttention, and its
 * gradient; by a library of the target, or by FlashAttention what that does not take. */
enum attention_kind { ATTENTION_PRODUCTS, ATTENTION_FLASH, ATTENTION_LIBRARY };

/* By the word of option --attention, which a manifest keeps; products for NULL. */
enum attention_kind attention_kind_of(const char *word);

struct pass_context {
    const char *policy;         /* name of a row of policies.def */
    const struct rules *rules;  /* of policy manual */
    const struct rt_json *plan; /* a plan file's: takes the place of a policy; NULL: none */
    const char *plan_file;
    /* they read stored matrices as they are, and finish results in the forms of ir/expr/epilogue.h */
    bool library_products;
    /* packed products finish their results block by block, by a function of the target's template */
    bool block_epilogues;
    bool row_programs; /* kernels are written for Rows and Columns (ir/expr/rows.h) */
    enum attention_kind attention;
    /* operators whose kernels take 16-bit floats too, beside the rows that say so; NULL: none */
    const enum op_id *halves;
    const struct training *training; /* how parameters are updated (train/training.h); NULL: the graph says it all */
    struct decisions *decisions;     /* what roles finds (roles.h) is added to it; NULL: nothing is kept, nor said */
    bool verbose;                    /* notes name all that they are about */
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

/* Runs the passes from the graph's level up to and including `last` (NULL: all), verifying after each. A graph that
 * is past a pass's `from` skips it. Returns -1 after diagnostics. */
int pipeline_run(struct graph *graph, const struct pass_context *context, const struct pass *last);

/* The functions of the rows. Each returns -1 after diagnostics. */
#define PASS(name, from, to, run, help) int run(struct graph *graph, const struct pass_context *context);
#include "passes/passes.def"
#undef PASS

#endif
