/* Writes the files of a checkpoint (saved.h): files of parts, and checkpoint.json. */
#ifndef RT_BASE_SAVED_WRITE_H
#define RT_BASE_SAVED_WRITE_H

#include "file.h"
#include "../shape/mesh.h"
#include "safetensors.h"
#include "saved.h"

/* A cut of a tensor; `part` and `parts` of the cut are those of one part. */
struct rt_saved_cut {
    struct rt_region_cut cut;
    int axis; /* of the mesh */
};

/* A tensor, and a part of it. */
struct rt_saved_entry {
    const char *name, *copy_of; /* as in struct rt_saved_tensor */
    enum rt_dtype dtype;
    int ndim;
    const int64_t *dims; /* of the complete tensor */
    int ncuts;
    const struct rt_saved_cut *cuts; /* those of one dimension from the outermost to the innermost */
};

/* The part that the cuts leave; false if they are no cuts. */
bool rt_saved_region(const struct rt_saved_entry *entry, struct rt_region *region);

/* A file of parts. Its header is written twice, the second time with the hashes of the parts' chunks. */
struct rt_saved_output {
    struct rt_new_file file;
    const struct rt_saved_entry *entries;
    struct rt_safetensor *tensors;
    char **hashes; /* of the chunks of each part, one after another; zeros until they are written */
    int n, next;   /* the part that is written now */
    int64_t done;  /* bytes of it so far */
    int64_t bytes; /* of the file so far */
};

/* Begins the file `path` in an open directory, with the parts of n entries, which stay the caller's until the end.
 * After false, the file does not exist; otherwise rt_saved_output_end must be called. */
bool rt_saved_output_begin(struct rt_saved_output *out, int directory, const char *path,
                           const struct rt_saved_entry *entries, int n, struct rt_reason *why);
/* Appends bytes of the current part: a multiple of RT_SAVED_CHUNK, or all that is left of it. Errors are reported by
 * rt_saved_output_end. */
void rt_saved_output_append(struct rt_saved_output *out, const void *bytes, int64_t count);
/* Ends the file and syncs it to disk; `hash` is that of its header. After an error no file remains. */
bool rt_saved_output_end(struct rt_saved_output *out, int64_t *bytes, char hash[RT_HASH_HEX], struct rt_reason *why);

/* Content of checkpoint.json. */
struct rt_saved_summary {
    const char *name, *program;    /* of the program, and its key */
    const struct rt_json *made_of; /* the texts that the key is a hash of, an object; NULL: not known */
    int64_t step, micro_batches, micro_batches_per_step, seed;
    const struct rt_mesh *mesh;
    const struct rt_saved_entry *tensors[RT_SAVED_KINDS];
    int ntensors[RT_SAVED_KINDS];
    const struct rt_saved_written {
        struct rt_saved_file is;
        char hash[RT_HASH_HEX];
    } * files;
    int nfiles;
};

/* The name of the file of a rank. */
void rt_saved_file_name(struct rt_saved_file *out, enum rt_saved_kind kind, int rank);

/* Writes checkpoint.json, `path`, in an open directory. */
bool rt_saved_summary_write(const struct rt_saved_summary *summary, int directory, const char *path,
                            struct rt_reason *why);

#endif
