/* Low-rank adapters (LoRA, Hu et al. 2021): beside the product of x with a stored weight W,
 *
 *     y = x W + scale * dropout(x) A' B'
 *
 * scale is alpha / r, or alpha / sqrt(r) with rslora. A and B are weights of MARK_ADAPTER. A graph that has any trains
 * them, and of its other weights those that --param trains. The weight of a 16-bit product has adapters in f32. Names,
 * initial values and bytes of the matrices are those of peft, but names of stacks:
 *
 *     kind       product                        module                       A              B
 *     LINEAR     MatMul(x, W)                   MODULE of MODULE.weight      (r, inputs)    (outputs, r)
 *     EMBEDDING  Gather(W, x): x is one-hot     MODULE of MODULE.weight      (r, rows)      (columns, r)
 *     STACK      MatMul or ExpertMatMul, W of   the parameter: MODULE.NAME   (E r, inputs)  (outputs, r, E)
 *                E matrices, chosen or all, or
 *                one that is named so
 *
 * which are MODULE.lora_A.weight and MODULE.lora_B.weight, of an embedding MODULE.lora_embedding_A and
 * MODULE.lora_embedding_B. Of a stack they are MODULE.NAME.lora_A.K and MODULE.NAME.lora_B.K for the module's stack K,
 * from 0, in the order of products: peft names them otherwise, by this order. There B is (outputs, r E). */
#ifndef PASSES_TRAIN_LORA_H
#define PASSES_TRAIN_LORA_H

#include "ir/ir.h"
#include "passes/train/training.h"

/* Parses a --lora rule, "GLOB[,GLOB..]:r=8,alpha=16,..", and adds it: 0, or -1 after a diagnostic. */
int lora_rule_add(struct training *training, const char *text, struct arena *arena, struct diags *diags);

/* The last rule with a glob that matches the module's name, or the end of it that follows a dot; NULL: none. */
const struct lora_rule *lora_rule_of(const struct training *training, const char *module);

/* By what A' B' is multiplied. */
double lora_scale(const struct lora_rule *rule);

enum lora_kind { LORA_LINEAR, LORA_EMBEDDING, LORA_STACK };

/* Which matrix of which module's adapter a weight of that name is. */
struct lora_matrix {
    char letter; /* 'A' or 'B'; 0: none */
    enum lora_kind kind;
    int stack; /* its number; else 0 */
    const char *module;
};
struct lora_matrix lora_matrix_of_name(struct arena *arena, const char *name);

/* The name of that matrix of the adapter to which `of` belongs. */
const char *lora_name_of_matrix(struct arena *arena, const struct lora_matrix *of, char letter);

/* The tensor that is this matrix of the module's adapter; -1: there is none. */
int lora_find_matrix(const struct graph *graph, const char *module, enum lora_kind kind, char letter);

/* The --init rule for a weight, else how the matrix of an adapter that no file has begins; NULL: it is stored. */
const struct init_rule *lora_init_of(const struct training *training, const struct graph *graph,
                                     const struct tensor *weight);

/* True if the graph has adapters: its other weights are frozen. */
bool lora_is_in(const struct graph *graph);

/* True if the weight is trained. adapts: the graph has adapters. */
bool weight_is_trained(const struct training *training, bool adapts, const struct tensor *tensor);

/* An adapter that a file has. */
struct lora_given {
    const char *name; /* of the module, in the program that wrote the file */
    enum lora_kind kind;
    int wraps; /* of a stack, in peft: adapters of later parameters of the module; -1: `name` is the parameter's */
    struct lora_rule rule;
    const struct training *rules;   /* of stacks of a file that does not name them, for lora_name_stacks; else NULL */
    int64_t count, outputs, inputs; /* matrices, 1 but of a stack, and their extents */
    int set;                        /* of several, from which a program chooses at run time; else 0 */
    bool merged;                    /* in inference: into the weights */
    struct stored a, b;
    const void *a_bytes, *b_bytes; /* as stored */
};

/* Sets of adapters, of which a program applies one at a time (frontend/driver/files/adapter_sets.c): set i has a matrix
 * of MARK_ADAPTER at bytes + i * stride + stored.offset. */
struct lora_sets {
    int n; /* 0: none, and adapters are stored as other weights */
    const char *const *names;
    const unsigned char *bytes;
    int64_t stride;
};
#define LORA_NO_SET "none" /* name of no set */

/* Modules, each once, of products that can be adapted, or of those that are: by the scope that the exporter recorded,
 * by the weight's name without ".weight", or by the node's name; of a stack the name of the parameter. */
struct lora_module {
    const char *name;
    enum lora_kind kind;
};
struct lora_modules {
    VEC(struct lora_module) all;
};
struct lora_modules lora_modules_of(const struct graph *graph);
struct lora_modules lora_modules_adapted(const struct graph *graph);

/* The module of a node that multiplies by the weight, or gathers its rows, as lora_modules_of names it. */
const char *lora_module_of(const struct graph *graph, const struct node *node, int weight);

/* The module that an adapter is for: the one of its name, else the only one whose name ends with it, or with whose name
 * it ends. peft nests the adapters of a module's stacks in the order of its parameters, for which the order of the
 * products is taken. NULL: none, or several. */
const char *lora_find(const struct lora_modules *modules, const struct lora_given *given, struct arena *arena);

/* Names the parameters of stacks that peft has nested, which have their r and alpha by name, and divides `count`, so
 * far the rows of A, by r. 0, or -1 after a diagnostic. Comes before lora_attach, which reports a stack without
 * place. */
int lora_name_stacks(const struct graph *graph, struct lora_given *given, int n, struct diags *diags);

/* Puts the adapters beside products of an IMPORTED graph, each beside that of the module that lora_find finds. 0, or -1
 * after diagnostics, also if an adapter has no product. */
int lora_attach(struct graph *graph, const struct lora_given *given, int n, struct diags *diags);

/* Where an adapter belongs: a product whose stored matrix it is added to. */
struct lora_place {
    const struct lora_given *given;
    const char *module, *node, *weight; /* names: of the product's module, of the product, of the matrix */
    bool turned;                        /* the matrix is (outputs, inputs) */
    bool shared;                        /* products of other modules, or other operators, read the matrix too */
};
struct lora_places {
    VEC(struct lora_place) all;
};

/* Finds the products beside which lora_attach would put the adapters, in a graph of pass fuse. 0, or -1 as there. */
int lora_find_places(const struct graph *graph, const struct lora_given *given, int n, struct diags *diags,
                     struct lora_places *out);

/* Adds scale B A to the `count` matrices, which are (outputs, inputs) if `turned`, else (inputs, outputs). */
struct lora_sum {
    int64_t count, outputs, inputs, r;
    const float *a, *b;
    double scale;
};
void lora_add(const struct lora_sum *sum, float *matrices, bool turned, struct arena *arena);

/* The products that can be adapted, a line for each: module, weight, type, number of values for each unit of r. The
 * graph is that of pass fuse. */
const char *lora_list(const struct graph *graph, struct arena *arena);

#endif
