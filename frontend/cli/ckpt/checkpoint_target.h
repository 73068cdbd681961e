/* A checkpoint that is written for a plan from the tensors of another one. */
#ifndef FRONTEND_CLI_CKPT_CHECKPOINT_TARGET_H
#define FRONTEND_CLI_CKPT_CHECKPOINT_TARGET_H

#include "frontend/cli/ckpt/checkpoint.h"
#include "runtime/base/io/saved_write.h"

/* A tensor of the new checkpoint, cut along mesh axes. */
struct checkpoint_tensor {
    const struct rt_saved_tensor *from;
    const char *name, *copy_of; /* in the new checkpoint */
    int copy;                   /* number among the tensors of one name, from 1 on */
    int ncuts;
    struct rt_saved_cut *cuts; /* part and parts are set for each rank */
    const bool *holds;         /* by class of ranks; NULL: all hold it */
};

struct checkpoint_target {
    struct cli *cli;
    struct checkpoint *from;
    const char *path, *name, *program; /* of the new checkpoint; of the program that loads it, and its key */
    const struct rt_json *made_of;     /* what the key is a hash of */
    int directory;                     /* open */
    int ranks;
    struct rt_mesh mesh;
    const int *class_of; /* by rank; NULL: one class */
    VEC(struct checkpoint_tensor) tensors[RT_SAVED_KINDS];
    VEC(struct rt_saved_written) files;
};

/* Writes it; the directory at target->path must not exist, and after a failure it does not. 0, or -1 after
 * diagnostics. */
int checkpoint_write(struct checkpoint_target *target);

/* The name under which `out` is written until it is complete. checkpoint_publish, of a file in an open directory, then
 * gives it its own: 0, or -1 after a diagnostic. */
const char *checkpoint_beside(struct cli *cli, const char *out);
int checkpoint_publish(struct cli *cli, int directory, const char *out);

#endif
