/* Values that were written to a directory: by --dump-tensors (Note [Dumps] in runtime/program/dump.h), or one .npy file
 * per tensor, whose stem is the tensor's name with %XX for other bytes than letters, digits, '.', '_' and '-'.
 * Directories are untrusted. */
#ifndef CLI_COMPARE_DUMPED_H
#define CLI_COMPARE_DUMPED_H

#include "frontend/cli/cli.h"
#include "ir/base/map.h"
#include "runtime/base/npy.h"

struct dumped_part {
    const char *file;
    const struct rt_json *ranges; /* per dimension: runs [start, stop]; NULL: the whole tensor */
    bool sliced;
    int64_t slice[2];    /* first element of the ranges, and number of elements */
    const char *partial; /* "sum", "max", "min"; NULL: the value itself */
};

struct dumped_tensor {
    const char *name, *node, *op; /* node and op: "" if unknown */
    int64_t step, micro;          /* micro -1: computed once per step */
    int64_t instruction;
    bool before;  /* it was read before that instruction */
    bool unknown; /* where parts lie is not known */
    bool half;    /* of a 16-bit type */
    int ndim;
    int64_t dims[RT_MAX_NDIM];
    VEC(struct dumped_part) parts;
};

struct dumped {
    const char *directory;
    bool plain;    /* files of names alone: no steps, no order */
    int64_t ranks; /* of a dump */
    VEC(struct dumped_tensor) all;
    struct map index; /* key of a tensor -> its number */
};

/* 0, or -1 after a diagnostic. */
int dumped_open(struct dumped *dumped, const char *directory, struct cli *cli);

/* What two dumps call the same value. */
const char *dumped_key(const struct dumped_tensor *tensor, bool by_name, struct arena *arena);

/* The complete tensor, put together from its parts, as f64: the caller frees *values. *complete: parts cover all of
 * it. 0, or -1 after a diagnostic. */
int dumped_read(const struct dumped *dumped, struct dumped_tensor *tensor, double **values, int64_t *count,
                bool *complete, struct cli *cli);

#endif
