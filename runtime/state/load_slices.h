/* Weights of a program that was compiled with `--weights copy`: its own files, weights/slices-<shard>.safetensors, hold
 * each part once, complete. "weights" of manifest.json says which file has the part of which place, and the hash of its
 * bytes; a slice whose bytes, type or shape differ is refused (E0802). */
#ifndef RT_LOAD_SLICES_H
#define RT_LOAD_SLICES_H

#include "core/private.h"

#include "base/file_reader.h"
#include "base/json.h"
#include "base/safetensors.h"

struct slice_file {
    struct rt_reader file; /* of data; closed: not opened yet */
    struct rt_safetensors tensors;
    int64_t next; /* where the search for the next tensor begins: files have them in the program's order */
};

struct load_slices {
    struct rt *rt;
    struct rt_json_document *manifest;
    const struct rt_json **of_weight; /* entries of "weights", by weight of the program */
    struct slice_file *file;          /* by shard */
    unsigned char *piece;             /* of a slice that is hashed */
};

/* RT_OK, or a status that is recorded; load_slices_close is due in both cases. */
int load_slices_open(struct load_slices *slices, struct rt *rt);
void load_slices_close(struct load_slices *slices);

/* The rank's part of weight `w`, checked: *part is the weight as if the slice were the complete tensor, at part->offset
 * of *file, and nothing cut it. */
int load_slice(struct load_slices *slices, int w, struct rt_weight *part, const struct rt_reader **file);

/* After everything was read: the files are still those that were checked. */
int load_slices_check(struct load_slices *slices);

#endif
