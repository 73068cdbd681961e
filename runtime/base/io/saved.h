/* Reads a checkpoint, written under any plan: any region of any tensor. Checkpoints are untrusted: every byte that is
 * used is covered by a hash, and every size is checked.
 *
 * A checkpoint is a directory with checkpoint.json, which ends with a hash of the text before it, and files
 * KIND-R.safetensors with the parts that rank R wrote. checkpoint.json has the hash of each file's header. The metadata
 * of a header has, for each tensor of the file, the shape of the complete tensor, the cuts that lead to the part, and
 * the hashes of the part's chunks: so a reader checks what it reads, not the whole file. In format 1 the hash of a file
 * covers its whole content, and chunks have none. */
#ifndef RT_BASE_SAVED_H
#define RT_BASE_SAVED_H

#include "../dtype.h"
#include "../text/json.h"
#include "../shape/runs.h"

enum { RT_SAVED_FORMAT = 2, RT_SAVED_OLDEST = 1 };

#define RT_SAVED_JSON  "checkpoint.json"
#define RT_SAVED_CHUNK ((int64_t)1 << 20) /* bytes of a part that a hash covers; the last chunk may be shorter */
#define RT_SAVED_HASH  ",\n  \"hash_above\": \""

enum rt_saved_kind { RT_SAVED_PARAMETERS, RT_SAVED_OPTIMIZER, RT_SAVED_KINDS };
extern const char *const rt_saved_kinds[RT_SAVED_KINDS]; /* names in files: "parameters", "optimizer" */

/* A part of a tensor in a file. */
struct rt_saved_part {
    struct rt_region region;
    int file;                         /* index of the file */
    int64_t offset;                   /* of its first byte in the file */
    const char *hashes;               /* of its chunks, one after another; NULL in format 1 */
    const struct rt_saved_part *next; /* of the same tensor */
};

struct rt_saved_tensor {
    const char *name;    /* "NAME#2" is the tensor NAME cut in a second way */
    const char *copy_of; /* NAME; NULL: it is no copy */
    enum rt_dtype dtype;
    int ndim;
    int64_t dims[RT_MAX_NDIM]; /* of the complete tensor */
    struct rt_saved_part *parts;
};

struct rt_saved_file {
    char name[48];
    int64_t bytes;
};

struct rt_saved; /* an open checkpoint */

/* Opens the checkpoint in the open directory `directory`, which must stay open; messages print `path`. NULL: refused.
 * `json_only`: reads checkpoint.json alone; there are no parts then. */
struct rt_saved *rt_saved_open(int directory, const char *path, bool json_only, struct rt_reason *why);
void rt_saved_close(struct rt_saved *saved);

/* The content of checkpoint.json, and its format. */
const struct rt_json *rt_saved_root(const struct rt_saved *saved);

/* What the key of a training program is a hash of: "keys" of its manifest. NULL: it is not there. */
const struct rt_json *rt_saved_made_of(const struct rt_json *manifest);

/* Says why the checkpoint belongs to another program than the manifest's: which option or file differs first. */
void rt_saved_refuse(const struct rt_saved *saved, const struct rt_json *manifest, struct rt_reason *why);
int rt_saved_format(const struct rt_saved *saved);
/* The hash of checkpoint.json, which covers those of all files: RT_HASH_HEX characters with the final zero. */
const char *rt_saved_hash(const struct rt_saved *saved);

/* Its tensors, in the order of checkpoint.json, and files. */
int rt_saved_count(const struct rt_saved *saved, enum rt_saved_kind kind);
const struct rt_saved_tensor *rt_saved_at(const struct rt_saved *saved, enum rt_saved_kind kind, int index);
const struct rt_saved_tensor *rt_saved_find(const struct rt_saved *saved, enum rt_saved_kind kind, const char *name);
int rt_saved_files(const struct rt_saved *saved);
const struct rt_saved_file *rt_saved_file(const struct rt_saved *saved, int index);

/* From now on each parameter has the values of its average, the optimizer's state NAME.ema, if it has one. Refused:
 * none has. */
bool rt_saved_average(struct rt_saved *saved, struct rt_reason *why);

/* Reads elements [start, start + count) of a region of the tensor to `to`. Refused: a chunk that the region needs does
 * not have its hash, or no file has the element. */
bool rt_saved_read(struct rt_saved *saved, const struct rt_saved_tensor *tensor, const struct rt_region *region,
                   int64_t start, int64_t count, void *to, struct rt_reason *why);

/* Checks all bytes of a part. */
bool rt_saved_check(struct rt_saved *saved, const struct rt_saved_tensor *tensor, const struct rt_saved_part *part,
                    struct rt_reason *why);

#endif
