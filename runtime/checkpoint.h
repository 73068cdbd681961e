/* What the two halves of checkpoints share: which tensors a rank keeps, and where their parts lie in files.
 *
 * Ranks of a unit that hold the same part of a tensor hold the same bytes; the first of them owns it, and writes it for all.
 * Units are copies of each other: unit 0 writes. */
#ifndef RT_CHECKPOINT_H
#define RT_CHECKPOINT_H

#include "private.h"

#include "base/json.h"

#include <limits.h>

enum { CHECKPOINT_FORMAT = 1 };
enum kept_kind { KEPT_PARAMETERS, KEPT_OPTIMIZER, KEPT_KINDS };
extern const char *const kept_stems[KEPT_KINDS]; /* of file names */

/* A tensor that training changes. */
struct kept {
    const char *name;
    char *copy; /* "NAME#2" in files, where a plan keeps a tensor cut in two ways; NULL: under its name */
    enum rt_dtype dtype;
    int ndim, nsplits;
    const int64_t *dims; /* complete */
    const struct rt_split *split;
    unsigned char *at; /* of this rank's part; NULL: it holds none */
    int64_t part[RT_MAX_NDIM], bytes;
    int owner; /* shard */
};

struct kept_list {
    struct rt_json_document *manifest; /* owns the names */
    struct kept *at[KEPT_KINDS];
    int n[KEPT_KINDS];
    unsigned char *arena[KEPT_KINDS]; /* where the tensors of a kind lie: the rank's arena, or a copy of a device's */
    bool copied;
};

/* What files call it. */
static inline const char *kept_key(const struct kept *kept) {
    return kept->copy ? kept->copy : kept->name;
}

/* RT_OK, or a status that is recorded; kept_free is due in both cases. */
int kept_find(struct kept_list *list, struct rt *rt);
/* What has been written to the tensors becomes the rank's. */
int kept_give(struct kept_list *list, struct rt *rt);
void kept_free(struct kept_list *list);

struct checkpoint_path {
    char text[PATH_MAX];
};

/* "D/step-7", or of a checkpoint that is not complete "D/.writing-7"; a file in it. RT_OK, or a status that is recorded. */
int checkpoint_path(struct rt *rt, struct checkpoint_path *out, const char *directory, const char *prefix,
                    int64_t step);
int checkpoint_file(struct rt *rt, struct checkpoint_path *out, const struct checkpoint_path *directory,
                    enum kept_kind kind, int shard);
int checkpoint_json(struct rt *rt, struct checkpoint_path *out, const struct checkpoint_path *directory);

#define CHECKPOINT_DONE    "step-"
#define CHECKPOINT_WRITING ".writing-"

/* A file that base/ refused: recorded, `content` being the status where its content is wrong. */
int checkpoint_refused(struct rt *rt, int content, const char *path, const struct rt_reason *why);

/* The last member of checkpoint.json is the hash of the text before it. */
#define CHECKPOINT_HASH ",\n  \"hash_above\": \""

#endif
