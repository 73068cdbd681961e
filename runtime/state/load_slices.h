/* Loads weights of a program compiled with `--weights copy`. The program's own files,
 * weights/slices-<shard>.safetensors, have each distinct part (slice) once. "weights" of manifest.json gives the file
 * and the hash of each slice; a slice whose bytes, type or shape differ is refused (E0802). */
#ifndef RT_LOAD_SLICES_H
#define RT_LOAD_SLICES_H

#include "core/private.h"

#include "base/io/file_reader.h"
#include "base/text/json.h"
#include "base/io/safetensors.h"

struct slice_file {
    struct rt_reader file; /* closed: not opened yet */
    struct rt_safetensors tensors;
    int64_t next; /* where the search for the next tensor begins: files list tensors in the program's order */
};

struct load_slices {
    struct rt *rt;
    struct rt_json_document *manifest;
    const struct rt_json **of_weight; /* entry of "weights" of each weight of the program */
    struct slice_file *file;          /* by shard */
    unsigned char *piece;             /* buffer for hashing */
};

/* RT_OK or a recorded status; call load_slices_close in both cases. */
int load_slices_open(struct load_slices *slices, struct rt *rt);
void load_slices_close(struct load_slices *slices);

/* Finds the rank's slice of weight `w` and checks it. *part describes it as an uncut tensor at part->offset of
 * *file. */
int load_slice(struct load_slices *slices, int w, struct rt_weight *part, const struct rt_reader **file);

/* Called after reading: checks that the files did not change since their slices were checked. */
int load_slices_check(struct load_slices *slices);

#endif
