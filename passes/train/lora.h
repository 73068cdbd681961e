/* Low-rank adapters (LoRA, Hu et al. 2021): beside the product of x with a stored weight W,
 *
 *     y = x W + scale * dropout(x) A' B'
 *
 * A is (r, inputs) and B is (outputs, r), as peft stores them. scale is alpha / r, or alpha / sqrt(r) with rslora. Both
 * are weights of MARK_ADAPTER, MODULE.lora_A.weight and MODULE.lora_B.weight. A graph that has any trains them, and of
 * its other weights those that --param trains. The weight of a 16-bit product has adapters in f32. */
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

/* Which matrix of which module's adapter a weight of that name is: 'A' or 'B'; 0: none. */
char lora_matrix_of_name(struct arena *arena, const char *name, const char **module);

/* The name of a matrix of the module's adapter. */
const char *lora_name_of_matrix(struct arena *arena, const char *module, char matrix);

/* The --init rule for a weight, else how the matrix of an adapter that no file has begins; NULL: it is stored. */
const struct init_rule *lora_init_of(const struct training *training, const struct graph *graph,
                                     const struct tensor *weight);

/* True if the graph has adapters: its other weights are frozen. */
bool lora_is_in(const struct graph *graph);

/* True if the weight is trained. adapts: the graph has adapters. */
bool weight_is_trained(const struct training *training, bool adapts, const struct tensor *tensor);

/* The module of a product that can be adapted: by the scope that the exporter recorded, by the weight's name without
 * ".weight", or by the node's name. NULL: the node is no product with a stored matrix. */
const char *lora_module_of(const struct graph *graph, const struct node *node);

/* An adapter that a file has. */
struct lora_given {
    const char *name; /* of the module, in the program that wrote the file */
    struct lora_rule rule;
    int64_t outputs, inputs;
    int set;     /* of several, from which a program chooses at run time; else 0 */
    bool merged; /* in inference: into the weights */
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

/* Names of modules, each once: of products that can be adapted, or of those that are. */
struct lora_modules {
    VEC(const char *) all;
};
struct lora_modules lora_modules_of(const struct graph *graph);
struct lora_modules lora_modules_adapted(const struct graph *graph);

/* The module that an adapter of that name is for: the one of that name, else the only one whose name ends with it, or
 * with whose name it ends. NULL: none, or several. */
const char *lora_find(const struct lora_modules *modules, const char *name);

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

/* Adds scale B A to the matrix, which is (outputs, inputs) if `turned`, else (inputs, outputs). */
struct lora_sum {
    int64_t outputs, inputs, r;
    const float *a, *b;
    double scale;
};
void lora_add(const struct lora_sum *sum, float *matrix, bool turned, struct arena *arena);

/* The products that can be adapted, a line for each: module, weight, type, number of values for each unit of r. The
 * graph is that of pass fuse. */
const char *lora_list(const struct graph *graph, struct arena *arena);

#endif
