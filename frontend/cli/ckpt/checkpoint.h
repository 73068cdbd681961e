/* Opens checkpoints for `rankc ckpt`. */
#ifndef FRONTEND_CLI_CKPT_CHECKPOINT_H
#define FRONTEND_CLI_CKPT_CHECKPOINT_H

#include "frontend/cli/cli.h"
#include "passes/train/lora.h"
#include "runtime/base/io/saved.h"

struct checkpoint {
    const char *path; /* of the directory step-K */
    int directory;    /* open; -1: none */
    struct rt_saved *saved;
};

/* The path of the newest step-K in the directory `path`; NULL: it has none. */
const char *checkpoint_newest(const char *path, struct cli *cli);

/* Opens the checkpoint at `path`: a directory with checkpoint.json, or one with step-K directories, of which the newest
 * is opened. 0, or -1 after a diagnostic; call checkpoint_close in both cases. */
int checkpoint_open(struct checkpoint *checkpoint, const char *path, struct cli *cli);
void checkpoint_close(struct checkpoint *checkpoint);

/* Records that the checkpoint was refused; returns -1. */
int checkpoint_refused(const struct checkpoint *checkpoint, struct cli *cli, const struct rt_reason *why);

/* The number with that key in checkpoint.json; 0: there is none. */
int64_t checkpoint_number(const struct checkpoint *checkpoint, const char *key);

/* Elements of the complete tensor. */
int64_t checkpoint_elements(const struct rt_saved_tensor *tensor);

/* Writes tensor names and shapes as "NAME f32 [3, 4]". */
const char *checkpoint_tensor_text(const struct rt_saved_tensor *tensor, struct cli *cli);

/* The values of the complete tensor, in its type, in the cli's arena. NULL after a diagnostic. */
void *checkpoint_values(struct cli *cli, const struct checkpoint *from, const struct rt_saved_tensor *tensor);

/* A low-rank adapter: the module beside which it was trained, by which rule, and its matrices. */
struct checkpoint_adapter {
    const char *module;
    enum lora_kind kind;
    int stack; /* number of a stack among those of its module */
    const struct lora_rule *rule;
    const struct rt_saved_tensor *a, *b;
};

struct checkpoint_adapters {
    VEC(struct checkpoint_adapter) all;
    int others; /* parameters that are no adapters */
    const char *first_other;
    struct training training; /* the rules */
};

/* The adapters of a checkpoint, none if it has none. 0, or -1 after a diagnostic. */
int checkpoint_adapters_read(struct checkpoint_adapters *adapters, const struct checkpoint *from, struct cli *cli);

/* Where they belong in a model, at the sizes for which the checkpoint's program was compiled; dimensions that have none
 * there are 1. Each place's `given` has the matrices, in f32. 0, or -1 after diagnostics. */
struct onnx_model;
int checkpoint_adapters_place(const struct checkpoint_adapters *adapters, const struct checkpoint *from,
                              const char *path, struct onnx_model *model, struct cli *cli, struct lora_places *places);

/* Adds the adapter to the matrix of its place, of such a type. */
void checkpoint_add_adapter(struct cli *cli, const struct lora_place *place, void *matrix, enum rt_dtype dtype);

/* A tensor of a checkpoint, and its name in a file, which may have it as a matrix: with its last dimensions as one. */
struct checkpoint_named {
    const char *name;
    const struct rt_saved_tensor *from;
    bool matrix;
};

/* Writes the complete tensors, in this order, as the safetensors file `out`. 0, or -1 after a diagnostic. */
int checkpoint_write_tensors(struct cli *cli, struct checkpoint *from, const char *out,
                             const struct checkpoint_named *all, int n);

/* Opens the directory that `path` is to be written in, which is made if it does not exist. -1 after a diagnostic. */
int checkpoint_open_parent(struct cli *cli, const char *path);

/* The actions that write what the operands behind the checkpoint name: 0, or -1 after diagnostics. */
int checkpoint_merge(struct cli *cli, struct checkpoint *checkpoint);
int checkpoint_dedup(struct cli *cli, struct checkpoint *checkpoint);
int checkpoint_reshard(struct cli *cli, struct checkpoint *checkpoint);
int checkpoint_to_onnx(struct cli *cli, struct checkpoint *checkpoint);
int checkpoint_to_peft(struct cli *cli, struct checkpoint *checkpoint);

#endif
