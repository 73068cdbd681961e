/* What the two halves of checkpoints share: which tensors a rank keeps, and where their parts lie in files.
 *
 * Ranks of a unit that hold the same part of a tensor hold the same bytes; the first of them owns it, and writes it for
 * all. Units are copies of each other: unit 0 writes. */
#ifndef RT_CHECKPOINT_H
#define RT_CHECKPOINT_H

#include "core/private.h"

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

/* "D/step-7"; "D/.writing-7-0a1b2c3d", where `token` is not 0; a file in it. RT_OK, or a status that is recorded. */
int checkpoint_path(struct rt *rt, struct checkpoint_path *out, const char *directory, const char *prefix, int64_t step,
                    uint32_t token);
int checkpoint_file(struct rt *rt, struct checkpoint_path *out, const struct checkpoint_path *directory,
                    enum kept_kind kind, int shard);
int checkpoint_json(struct rt *rt, struct checkpoint_path *out, const struct checkpoint_path *directory);
/* The last component: what it is called in D. */
const char *checkpoint_name(const struct checkpoint_path *path);

/* Note [Directory of checkpoints]
 * D is shared with other users' programs and with runs that were killed, so nothing in it is taken for granted. D
 * itself is found by the path that the user gave; everything beneath is reached by its name in an open directory, and
 * no link is followed. A directory with one of our names gets it by rename, when it is complete:
 *
 *   step-K                  a complete checkpoint
 *   .writing-K-TOKEN        one that is being written: no two saves have the same token
 *   .removing-K-TOKEN       one that is being removed
 *   .lock                   locked by the one job that writes to D, for as long as it runs; says who that is
 *
 * Whoever has the lock removes what dead jobs left. The lock is the kernel's (flock): a dead owner has none, and no
 * clock is read to find that out. */
#define CHECKPOINT_DONE     "step-"
#define CHECKPOINT_WRITING  ".writing-"
#define CHECKPOINT_REMOVING ".removing-"
#define CHECKPOINT_LOCK     ".lock"

/* An open directory of checkpoints. */
struct checkpoint_directory {
    char *path;
    int fd;   /* -1: it is not open */
    int lock; /* -1: not held */
};

/* Opens D, which messages call `path`; makes it first where `create`. RT_OK, or a status that is recorded;
 * checkpoint_close is due in both cases. */
int checkpoint_open(struct rt *rt, struct checkpoint_directory *out, const char *path, bool create);
void checkpoint_close(struct checkpoint_directory *directory); /* gives up the lock, too */

/* Opens a checkpoint in it. RT_OK through *fd, or a status that is recorded. */
int checkpoint_enter(struct rt *rt, const struct checkpoint_directory *directory, const struct checkpoint_path *path,
                     int *fd);

/* Takes the lock, and removes what dead jobs left. RT_ERROR_BUSY, recorded: another job has it. */
int checkpoint_lock(struct rt *rt, struct checkpoint_directory *directory);

/* Removes a directory with all that is in it, or a file, or a link itself. False with errno where something cannot be
 * removed, or is on another file system. */
bool checkpoint_remove(const struct checkpoint_directory *directory, const char *name);

/* The largest step below `below` of which there is a checkpoint; -1: there is none. */
int64_t checkpoint_before(const struct checkpoint_directory *directory, int64_t below);

/* For names that are to be new; never 0. */
uint32_t checkpoint_token(void);

/* A file that base/ refused to read, or to write: recorded. `content` is the status where its content is wrong. */
int checkpoint_refused(struct rt *rt, int content, const char *path, const struct rt_reason *why);
int checkpoint_unwritten(struct rt *rt, const struct rt_reason *why);

/* The last member of checkpoint.json is the hash of the text before it. */
#define CHECKPOINT_HASH ",\n  \"hash_above\": \""

#endif
